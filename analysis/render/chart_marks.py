"""Marks of interactive charts: what each kind of figure has as records, and how they are drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from pkm.analysis.figure import FigureSpec
from pkm.analysis.frames import number_text
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.style import INK, HueStyle, MethodStyles

Json = dict[str, Any]
Styles = Mapping[Any, HueStyle]
REFERENCE = "reference"  # what has no entry of its own in the legend
REPORTED = "reported"
HALF_CELL = 0.48  # of a heat map, so that a line is left between cells

#: What charts have in common: configuration, titles of facts, layers by kind of figure.
COMMON = yaml.safe_load(Path(__file__).with_name("chart.yaml").read_text(encoding="utf-8"))
#: Facts of a cell that its record has where they are known.
NUMBERS = ("seeds", "epsilon", "epsilon_spent")


def layers_of(kind: str, place: Mapping[str, Json]) -> list[Json]:
    """Return the layers of a kind of figure; `place` has the axes x and y."""
    layers = []
    for layer in COMMON["layers"][kind]:
        # The second end of a span has the scale of the first.
        fields = layer["fields"].items()
        encoding = {channel: place.get(channel, {}) | {"field": field} for channel, field in fields}
        look = {"type": layer["mark"], "clip": True} | layer["look"]
        layers.append(
            {"transform": [{"filter": layer["where"]}], "mark": look, "encoding": encoding}
        )
    return layers


def rounded(value: Any) -> float | None:
    """Return a number with six digits; None for none."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def key_of(hue: Any, style: HueStyle) -> str:
    """Return what the data call a hue: its label, which the legend shows."""
    return style.label or f"{hue}"


def record_of(line: Mapping[str, Any], hue: str, at: float, text: str, spec: FigureSpec) -> Json:
    """Return the record of one value: where it is, its interval, and what the pointer shows."""
    low = line.get("low", np.nan)
    high = line.get("high", np.nan)
    record = {
        "hue": hue,
        "at": rounded(at),
        "place": text,
        "value": rounded(line["value"]),
        "style": line.get("style"),
        "curve": f"{line['curve']}" if "curve" in line else None,
        "cell": line.get("cell"),
        "dataset": spec.name_of(line["dataset"]) if line.get("dataset") else None,
    }
    if np.isfinite(low) and np.isfinite(high):
        record |= {"low": rounded(low), "high": rounded(high)}
        record["interval"] = f"{low:.4g} to {high:.4g}"
    if line.get("notion") in ("pure", "approximate"):
        record["adjacency"] = line["adjacency"].replace("_", "-")
    record |= {name: rounded(line.get(name, np.nan)) for name in NUMBERS}
    return {name: item for name, item in record.items() if item not in (None, "")}


def curves(axes: Axes, rows: pd.DataFrame, spec: FigureSpec, styles: Styles) -> list[Json]:
    """Return the records of curves; level lines and references have no `at`."""
    names = [] if pd.api.types.is_numeric_dtype(rows["x"]) else heatmap.ordered(rows["x"], spec)
    records = []
    for order, (hue, style) in enumerate(styles.items()):
        shift = lines.dodged(order, len(styles)) if spec.dodge else 1.0
        for line in rows[rows["hue"] == hue].sort_values("x").to_dict("records"):
            x = line["x"]
            is_level = pd.isna(x)
            at = float(names.index(x)) if names else x * shift
            record = record_of(
                line, key_of(hue, style), at, "" if is_level else spec.name_of(x), spec
            )
            with_band = spec.interval != "none" and style.line.get("zorder", 10) > 2
            if is_level:
                with_band = spec.level_bands and spec.bands == "area" and not style.baseline
            if with_band and "low" in record:
                record["band"] = spec.bands
                if axes.get_yscale() == "log":
                    record["low"] = max(record["low"], rounded(axes.get_ylim()[0]))
            records.append(record)
    return records + [record for entry in spec.references for record in _reference(axes, entry)]


def _reference(axes: Axes, entry: Mapping[str, Any]) -> list[Json]:
    """Return the records of a reference line: its level, or the ends of a power of x."""
    label = entry.get("label", REFERENCE)
    if "slope" not in entry:
        return [{"hue": label, "at" if "x" in entry else "value": entry.get("x", entry.get("y"))}]
    drawn = [line.get_xydata() for line in axes.lines if line.get_label() == label]
    return [
        {"hue": label, "at": x, "value": y} for line in drawn for x, y in line[[0, -1]].tolist()
    ]


def rows_of_marks(axes: Axes, rows: pd.DataFrame, spec: FigureSpec, styles: Styles) -> list[Json]:
    """Return the records of a forest; level lines have no `at`, spans no value."""
    placed = forest.placed_rows(rows, spec, styles)
    name_of = MethodStyles(rows).label if spec.row == "method" else spec.name_of
    places = {}
    records = []
    for line in placed.to_dict("records"):
        style = styles[line["hue"]]
        if not np.isnan(line["y"]):
            places[line["row_y"]] = spec.row_label.format(name_of(line["row"]))
        text = places.get(line["row_y"], "")
        record = record_of(line, key_of(line["hue"], style), line["y"], text, spec)
        color = to_hex(line["color"] if style.color == forest.OF_METHOD else style.color)
        is_hollow = style.line["markerfacecolor"] in ("white", "none")
        record |= {"color": color, "face": "white" if is_hollow else color}
        if line["hue"] in spec.stacked:
            record |= {name: rounded(line[name]) for name in ("start", "end")}
        elif spec.label:
            beside = rounded(forest.label_place(line))
            record |= {"text": number_text(spec.label, line), "beside": beside}
        records.append(record)
    for y, value in forest.reported_values(placed):
        mark = {"hue": REPORTED, "at": y, "place": places[y], "value": rounded(value)}
        records.append(mark | {"color": INK, "face": "transparent"})
    for y, (low, high), color in forest.spans(placed, spec):
        span = {"hue": REFERENCE, "at": y, "color": to_hex(color)}
        records.append(span | {"from": low, "to": high})
    for entry in spec.references:
        level = {"hue": entry.get("label", REFERENCE), "value": forest.reference_place(entry, rows)}
        records.append(level | {"color": to_hex(lines.reference_line(entry)["color"])})
    return records


def cells(axes: Axes, rows: pd.DataFrame, spec: FigureSpec, styles: Styles) -> list[Json]:
    """Return the records of a heat map, with the numbers and inks of the static one."""
    columns = heatmap.ordered(rows["x"], spec)
    names = heatmap.ordered(rows["row"], spec)
    names = names[::-1] if isinstance(names[0], str) else names
    written = {tuple(map(int, text.get_position())): text for text in axes.texts}
    records = []
    for line in rows.to_dict("records"):
        at, row = columns.index(line["x"]), names.index(line["row"])
        place = f"{spec.name_of(line['row'])}, {spec.name_of(line['x'])}"
        text = written[at, row]
        edges = {"left": at - HALF_CELL, "right": at + HALF_CELL}
        edges |= {"bottom": row - HALF_CELL, "top": row + HALF_CELL}
        look = {"row": row, "text": text.get_text(), "ink": to_hex(text.get_color())}
        records.append(record_of(line, "", at, place, spec) | edges | look)
    return records


RECORDS = {"lines": curves, "forest": rows_of_marks, "heatmap": cells}
