"""Interactive charts of pages as data, which ``templates/charts.js`` draws.

A chart has records of what the pointer shows, and for each panel what a drawing decides
of scales, names and colors.
"""

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from pkm.analysis.figures.styles import CYCLE
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.panel import Drawing, Panel

Json = dict
#: Keys of a figure that the script reads.
KEYS = (
    "hue",
    "style",
    "x",
    "row",
    "value",
    "interval",
    "bands",
    "dodge",
    "stacked",
    "x_scale",
    "x_reversed",
    "y_scale",
    "y_reversed",
    "y_zero",
    "color_label",
)


def chart(drawing: Drawing) -> Json:
    """Return the chart of a figure.

    Returns
    -------
    dict
        `kind` and `columns` of the figure; `hues` of the legend, each with `label`,
        `color` and `dash`; `panels`, each with its records as `values`.
    """
    panels = [_describe(panel) for panel in drawing.panels]
    present = {record.get("hue") for panel in panels for record in panel["values"]}
    if drawing.spec.kind == "heatmap":
        # The maps of a group have one scale of colors.
        for indices in drawing.color_groups():
            norm = heatmap.norm([drawing.panels[index] for index in indices])
            for index in indices:
                panels[index]["domain"] = [float(norm.vmin), float(norm.vmax)]
    return {
        "kind": drawing.spec.kind,
        "columns": drawing.columns,
        "hues": _list_hues(drawing, present),
        "panels": panels,
    }


def _list_hues(
    drawing: Drawing,
    present: Iterable,
) -> list[Json]:
    """List the hues of the legend: those of some record."""
    shown = {}
    for hue, style in drawing.styles.items():
        label = style.label or str(hue)
        if label in present:
            shown[label] = style.line
    hues = []
    for (label, line), (color, _) in zip(shown.items(), cycle(CYCLE), strict=False):
        line = forest.in_method_color(line, color)
        color = to_hex(line["color"])
        hues.append({"label": label, "color": color, "dash": line["linestyle"]})
    return hues


def _describe(panel: Panel) -> Json:
    """Return what a panel shows."""
    spec = panel.spec
    place = PLACES[spec.kind]
    description = {key: getattr(spec, key) for key in KEYS} | {
        "title": panel.title,
        "x_label": panel.x_label,
        "y_label": panel.y_label,
        "log": panel.log,
        "linear_below": forest.LINEAR_BELOW,
        "places": list(panel.names),
        "names": list(panel.names.values()),
        "references": [_place_reference(entry, panel) for entry in spec.references],
        "values": [
            _record(row, panel) | place(row, panel)
            for row in panel.table.to_dict("records")
            if not (spec.kind == "lines" and panel.log and row["value"] <= 0)
        ],
    }
    if spec.kind == "lines":
        description["domain"] = lines.limits(panel)
    if spec.kind == "heatmap":
        columns, rows = heatmap.sides(panel)
        description["columns"] = list(map(spec.format_name, columns))
        description["rows"] = list(map(spec.format_name, rows[::-1]))
        description["color_map"] = heatmap.color_map(panel)
    return description


def _place_reference(
    entry: Mapping,
    panel: Panel,
) -> Json:
    """Return where a reference line is, by axis."""
    places = {side: entry[side] for side in ("x", "y") if side in entry}
    if "x" in places:
        places["x"] = forest.reference_place(entry, panel.table)
    return places


def _record(
    row: Mapping,
    panel: Panel,
) -> Json:
    """Return what the pointer shows of a row."""
    style = panel.styles.get(row.get("hue"))
    record: Json = {"panel": panel.title, "value": rounded(row["value"])}
    if style and panel.spec.kind != "heatmap":
        record["hue"] = style.label or str(row["hue"])
    if row.get("style") is not None:
        record["style"] = row["style"]
    # Rows that a function of a paper makes are of no single cell.
    if isinstance(row.get("cell"), str):
        record["cell"] = row["cell"]
    if row.get("dataset"):
        record["dataset"] = panel.spec.format_name(row["dataset"])
    if row.get("notion") in ("pure", "approximate"):
        record["adjacency"] = row["adjacency"].replace("_", "-")
    for name in ("low", "high", "seeds", "epsilon", "epsilon_spent"):
        value = row.get(name, np.nan)
        if np.isfinite(value):
            record[name] = rounded(value)
    if {"low", "high"} <= record.keys():
        record["interval"] = f"{row['low']:.4g} to {row['high']:.4g}"
    return {key: value for key, value in record.items() if value != ""}


def rounded(value: float) -> float:
    """Return a number with six digits."""
    return float(f"{value:.6g}")


# Where the mark of a row is, by kind of figure


def _on_curve(
    row: Mapping,
    panel: Panel,
) -> Json:
    if np.isnan(row["x"]):
        return {"level": rounded(row["value"])}
    x = rounded(row["x"])
    low = rounded(row["shown_low"])
    high = rounded(row["shown_high"])
    place = {
        "at": x,
        "place": panel.names.get(x, panel.spec.format_name(x)),
        "curve": f"{row.get('style')} {row.get('curve')} {row.get('piece')}",
    }
    return place | {"from": low, "to": high} if low < high else place


def _in_row(
    row: Mapping,
    panel: Panel,
) -> Json:
    value = rounded(row["value"])
    if np.isnan(row["row_y"]):
        return {"level": value}
    mark = "stacked" if row["hue"] in panel.spec.stacked else "mark"
    place = {"place": panel.names[row["row_y"]], "at": row["row_y"], mark: value}
    if np.isfinite(row.get("reported", np.nan)):
        place["reported"] = rounded(row["reported"])
    return place


def _on_tile(
    row: Mapping,
    panel: Panel,
) -> Json:
    at = panel.spec.format_name(row["x"])
    name = panel.spec.format_name(row["row"])
    return {"at": at, "row": name, "place": f"{name}, {at}", "text": row["text"]}


PLACES: dict[str, Any] = {"lines": _on_curve, "forest": _in_row, "heatmap": _on_tile}
