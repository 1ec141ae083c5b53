"""Heat maps: a value by two quantities, written into its tile."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.figure_data import number_text
from pkm.analysis.figures.texts import DASH, plain_number
from pkm.analysis.render.hue_styles import BLACK, GREY, Styles
from pkm.analysis.render.panel import Panel, ordered
from pkm.schema import higher_is_better

LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue
DARK = 0.55  # luminance below which a tile has white text
LETTERS = 60  # most letters of the names of columns that fit side by side


def prepare(
    table: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> Panel:
    """Return one map: `x` across, `row` upwards, or downwards where rows have names.

    A `mark` of the table is appended to its number.
    """
    texts = []
    for tile in table.to_dict("records"):
        value = tile["value"]
        # Two digits below 1 leave room between tiles.
        number = plain_number(value if abs(value) >= 1 else float(f"{value:.2g}"))
        if spec.label != "plain":
            number = number_text(spec.label or "{value:.3g}", tile)
        texts.append(f"{number}{tile.get('mark') or ''}")
    return Panel(spec, table.assign(text=texts), styles, spec.colors == "log")


def sides(panel: Panel) -> tuple[list[Any], list[Any]]:
    """Return the columns and, from the lowest, the rows of a map."""
    columns = ordered(panel.table["x"], panel.spec)
    rows = ordered(panel.table["row"], panel.spec)
    if isinstance(rows[0], str):
        rows = rows[::-1]
    return columns, rows


def color_map(panel: Panel) -> str:
    """Return the name of the color map: darker is better where the spec says so."""
    spec = panel.spec
    if spec.colors == "better" and not higher_is_better(panel.table["metric"].iloc[0]):
        return f"{spec.color_map}_r"
    return spec.color_map


def norm(panels: Sequence[Panel]) -> Normalize:
    """Return the color scale of some maps, as the first of them has it."""
    spec = panels[0].spec
    values = pd.concat([panel.table["value"] for panel in panels])
    limits = spec.color_limits or (values.min(), values.max())
    low, high = map(float, limits)
    if spec.colors == "diverging":
        largest = max(abs(low), abs(high), 1.0)
        return Normalize(-largest, largest)
    if spec.colors == "log" and low < high:
        return LogNorm(low, high)
    # A range that is nothing but rounding would show structure where there is none.
    largest = max(abs(low), abs(high))
    pad = max(0.01 * largest - (high - low), 0) / 2
    return Normalize(low - pad, high + pad or 1.0)


def draw(
    axes: Axes,
    panel: Panel,
    scale: Normalize,
) -> Any:
    """Draw one map; return it for its bar of colors."""
    columns, rows = sides(panel)
    values = np.full((len(rows), len(columns)), np.nan)
    texts = np.full(values.shape, DASH, dtype=object)
    for tile in panel.table.itertuples():
        place = rows.index(tile.row), columns.index(tile.x)
        values[place] = tile.value
        texts[place] = tile.text
    colors = matplotlib.colormaps[color_map(panel)]
    luminance = colors(scale(values))[..., :3] @ LUMINANCE
    inks = np.where(luminance < DARK, "white", BLACK)
    inks[np.isnan(values)] = GREY
    for (y, x), text in np.ndenumerate(texts):
        ink = inks[y, x]
        axes.text(
            x,
            y,
            text,
            color=ink,
            ha="center",
            va="center",
            size="small",
        )
    # Centers of tiles are at whole numbers.
    edges = [np.arange(len(side) + 1) - 0.5 for side in (columns, rows)]
    drawn = axes.pcolormesh(
        *edges,
        values,
        cmap=colors,
        norm=scale,
        edgecolors="white",
        linewidth=1,
    )
    name = panel.spec.format_name
    x_names = list(map(name, columns))
    y_names = list(map(name, rows))
    turned = {}
    if sum(map(len, x_names)) > LETTERS:
        turned = {
            "rotation": 35,
            "ha": "right",
            "rotation_mode": "anchor",
        }
    axes.set_xticks(range(len(columns)), x_names, **turned)
    axes.set_yticks(range(len(rows)), y_names)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return drawn
