"""Heat maps: a value by two quantities, written into its cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.frames import number_text
from pkm.analysis.figures.texts import DASH, plain_number, short_exponents
from pkm.analysis.render.axes import Axis, Json, value_axis
from pkm.analysis.render.style import BLACK, GREY, HueStyle, color_at, to_rgb
from pkm.analysis.render.subplot import Subplot, make_record
from pkm.schema import higher_is_better

LETTERS = 9  # of names along an inch
SLANT = -35  # degrees of names that are longer
DARK = 0.55  # luminance below which a cell has white text
HALF_CELL = 0.485  # so that a line is left between cells
SHADES = 16  # samples of a color map


def panel(
    table: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]
) -> Subplot:
    """Return one map: `x` across, `row` upwards, or downwards where rows have names.

    A `mark` of the table is appended to its number; cells without a number have a dash.
    """
    columns = ordered(table["x"], spec)
    rows = ordered(table["row"], spec)
    if isinstance(rows[0], str):
        rows = rows[::-1]
    cells = {(cell["row"], cell["x"]): cell for cell in table.to_dict("records")}
    records = []
    for (row, name), (column, value) in product(enumerate(rows), enumerate(columns)):
        record = {"at": column, "row": row, "text": DASH, "ink": GREY}
        cell = cells.get((name, value))
        if cell is not None:
            place = f"{spec.format_name(name)}, {spec.format_name(value)}"
            record |= make_record(cell, "", place, spec)
            record |= {"left": column - HALF_CELL, "right": column + HALF_CELL}
            record |= {"bottom": row - HALF_CELL, "top": row + HALF_CELL}
            record["text"] = _text(cell, spec)
        records.append(record)
    x = _names_axis(list(map(spec.format_name, columns)))
    y = _names_axis(list(map(spec.format_name, rows)))
    is_long = max(map(len, x.labels)) * len(columns) > LETTERS * spec.width
    return Subplot(replace(x, angle=SLANT if is_long else 0), y, records)


def _names_axis(names: Sequence[str]) -> Axis:
    ticks = tuple(map(float, range(len(names))))
    return Axis(-0.5, len(names) - 0.5, ticks, tuple(names), grid=False)


def ordered(values: pd.Series, spec: FigureSpec) -> list[Any]:
    """Return sorted numbers, or categories and names in their order."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.cat.remove_unused_categories().cat.categories)
    if pd.api.types.is_numeric_dtype(values):
        return sorted(values.dropna().unique())
    return in_order(values.dropna(), [*spec.order, *spec.titles])


def _text(cell: Mapping[str, Any], spec: FigureSpec) -> str:
    if spec.label == "plain":
        text = plain_number(cell["value"])
    else:
        text = number_text(spec.label or "{value:.3g}", cell)
    return f"{text}{cell.get('mark') or ''}"


# Colors


@dataclass(frozen=True)
class Colors:
    """The color scale of some maps: an axis, its colors, and the limits of its bar."""

    axis: Axis
    color_map: str
    bar_limits: tuple[float, float]

    def color(self, value: float) -> str:
        """Return the color of a value."""
        share = np.clip(self.axis.to_fraction(value), 0, 1)
        return color_at(float(share), self.color_map)

    def text_color(self, value: float) -> str:
        """Return the color of the number in a cell: white on dark ones."""
        red, green, blue = (level / 255 for level in to_rgb(self.color(value)))
        luminance = 0.299 * red + 0.587 * green + 0.114 * blue
        return "white" if luminance < DARK else BLACK

    def encoding(self, title: str | None) -> Json:
        """Return the scale in Vega-Lite, with its bar where it has a title."""
        ends = map(self.axis.to_fraction, self.bar_limits)
        shares = np.linspace(*ends, SHADES)
        places = list(map(self.axis.from_fraction, shares))
        scale = {
            "type": self.axis.scale,
            "clamp": True,
            "interpolate": "rgb",
            "domain": places,
            "range": list(map(self.color, places)),
        }
        legend = None
        if title is not None:
            low, high = self.bar_limits
            ticks = tuple(tick for tick in self.axis.ticks if low <= tick <= high)
            labels = tuple(short_exponents(f"{tick:.3g}") for tick in ticks)
            bar = replace(self.axis, ticks=ticks, labels=labels)
            legend = {
                "values": ticks,
                "labelExpr": bar.label_expression(),
                "labelFontSize": 11,
                "orient": "right",
                "titleOrient": "right",
                "title": title or None,
            }
        return {
            "type": "quantitative",
            "field": "value",
            "scale": scale,
            "legend": legend,
        }


def _colors(table: pd.DataFrame, spec: FigureSpec) -> Colors:
    """Return the color scale of the maps with the values of a table."""
    is_cost = spec.colors == "better" and not higher_is_better(table["metric"].iloc[0])
    color_map = f"{spec.color_map}_r" if is_cost else spec.color_map
    values = table["value"]
    low, high = map(float, spec.color_limits or (values.min(), values.max()))
    if spec.colors == "diverging":
        largest = max(abs(low), abs(high), 1.0)
        limits = (min(low, 0.0), max(high, 0.0))
        return Colors(value_axis(-largest, largest), color_map, limits)
    if spec.colors == "log" and low < high:
        return Colors(value_axis(low, high, "log"), color_map, (low, high))
    # A range that is nothing but rounding would show structure where there is none.
    least = 0.01 * max(abs(low), abs(high))
    pad = max(least - (high - low), 0) / 2
    low = low - pad
    high = high + pad or 1.0
    return Colors(value_axis(low, high), color_map, (low, high))


def colored(
    panels: Sequence[Subplot],
    tables: Sequence[pd.DataFrame],
    specs: Sequence[FigureSpec],
) -> list[Subplot]:
    """Give the panels of a `color_group` one scale, with a bar at the last one."""
    groups: dict[str, list[int]] = {}
    for index, spec in enumerate(specs):
        group = f"{index}" if spec.color_group == "panel" else spec.color_group
        groups.setdefault(group, []).append(index)
    scaled = list(panels)
    for indices in groups.values():
        spec = specs[indices[0]]
        colors = _colors(pd.concat([tables[index] for index in indices]), spec)
        for index in indices:
            records = []
            for record in panels[index].records:
                if "value" in record:
                    record = record | {"ink": colors.text_color(record["value"])}
                records.append(record)
            bar = spec.color_label if index == indices[-1] else None
            encoding = colors.encoding(bar)
            scaled[index] = replace(panels[index], records=records, colors=encoding)
    return scaled
