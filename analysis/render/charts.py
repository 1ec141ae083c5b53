"""Interactive charts of pages as data, which ``templates/charts.js`` draws.

A chart has the rows of each panel, and what a drawing decides of scales, names and
colors.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from pkm.analysis.figures.styles import CYCLE
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.panel import Drawing, Panel

Json = dict
#: Columns of a table that the script reads.
COLUMNS = (
    "value",
    "low",
    "high",
    "seeds",
    "epsilon",
    "epsilon_spent",
    "style",
    "cell",
    "shown_low",
    "shown_high",
    "curve",
    "piece",
    "reported",
    "text",
)
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
    lines_of = {}
    for hue, style in drawing.styles.items():
        label = style.label or str(hue)
        if label in present:
            lines_of[label] = style.line
    hues = []
    for (label, line), (color, _) in zip(lines_of.items(), cycle(CYCLE), strict=False):
        line = forest.in_method_color(line, color)
        color = to_hex(line["color"])
        hues.append({"label": label, "color": color, "dash": line["linestyle"]})
    return hues


def _describe(panel: Panel) -> Json:
    """Return what a panel shows."""
    spec = panel.spec
    description = {key: getattr(spec, key) for key in KEYS} | {
        "title": panel.title,
        "x_label": panel.x_label,
        "y_label": panel.y_label,
        "log": panel.log,
        "linear_below": forest.LINEAR_BELOW,
        "places": list(map(_rounded, panel.names)),
        "names": list(panel.names.values()),
        "references": [_place_reference(entry, panel) for entry in spec.references],
        "values": list(_records(panel)),
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
        places["x"] = lines.reference_place(entry, panel.table)
    return places


def _records(panel: Panel) -> Iterator[Json]:
    """Yield the rows of a panel as the script reads them: numbers of six digits."""
    spec = panel.spec
    for row in panel.table.to_dict("records"):
        if spec.kind == "lines" and panel.log and row["value"] <= 0:
            continue
        record = {name: row.get(name) for name in COLUMNS} | {"panel": panel.title}
        if spec.kind == "heatmap":
            at = spec.format_name(row["x"])
            name = spec.format_name(row["row"])
            record |= {
                "at": at,
                "row": name,
                "place": f"{name}, {at}",
            }
        else:
            style = panel.styles[row["hue"]]
            record["hue"] = style.label or str(row["hue"])
            at = float(row["x" if spec.kind == "lines" else "row_y"])
            # Level lines have no place.
            if not np.isnan(at):
                place = panel.names.get(at, spec.format_name(at))
                record |= {"at": at, "place": place}
                if row["hue"] in spec.stacked:
                    record["stacked"] = row["value"]
        if row.get("dataset"):
            record["dataset"] = spec.format_name(row["dataset"])
        if row.get("notion") in ("pure", "approximate"):
            record["adjacency"] = row["adjacency"].replace("_", "-")
        record = {name: _rounded(value) for name, value in record.items()}
        record = {
            name: value for name, value in record.items() if value not in (None, "")
        }
        if {"low", "high"} <= record.keys():
            record["interval"] = f"{row['low']:.4g} to {row['high']:.4g}"
        yield record


def _rounded(value: Any) -> Any:
    """Return a number with six digits, None if it is not finite; others as they are."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if np.isfinite(value) else None
