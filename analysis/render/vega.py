"""Interactive charts of pages: generic Vega-Lite, one view a panel.

What charts of a kind have in common is in ``vega.yaml``.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from pkm.analysis.figures.styles import CYCLE
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.panel import Drawing, Panel
from pkm.yaml_files import read_file

Json = dict
TEMPLATES: Json = read_file(Path(__file__).with_suffix(".yaml"))
ENTRY = 170  # pixels of an entry of the legend


def chart(drawing: Drawing) -> Json:
    """Return the chart of a figure: a Vega-Lite specification with its data.

    Every view has its records in ``data.values``. A click in the legend, which the
    first view has, leaves one hue; with the shift key several. ``usermeta`` says how
    wide a panel is with its labels.
    """
    kind = drawing.spec.kind
    views = [_view(panel) for panel in drawing.panels]
    if kind == "heatmap":
        _add_colors(views, drawing)
    else:
        _add_legend(views, drawing)
    resolve = "independent" if kind == "heatmap" else "shared"
    return TEMPLATES["chart"] | {
        "usermeta": {"panel": TEMPLATES["room"][kind]},
        "columns": drawing.columns,
        "concat": views,
        "resolve": {"scale": {"color": resolve}},
    }


def _view(panel: Panel) -> Json:
    """Return the view of a panel."""
    spec = panel.spec
    view = deepcopy(TEMPLATES[spec.kind])
    fill_in = {"lines": _lines, "forest": _forest, "heatmap": _heatmap}
    records = fill_in[spec.kind](panel, view["encoding"], view["layer"])
    for entry in spec.references:
        for side in {"x", "y"} & set(entry):
            value = entry[side]
            if isinstance(value, str):
                value = forest.reference_place(entry, panel.table)
            layer = deepcopy(TEMPLATES["reference"])
            layer["encoding"][side] = {"datum": value}
            view["layer"].append(layer)

    titles = TEMPLATES["tooltip"] | {
        "hue": spec.hue,
        "style": spec.style or "style",
        "place": spec.x if spec.kind == "lines" else spec.row,
        "value": spec.value,
        "interval": TEMPLATES["intervals"][spec.interval],
    }
    shown = set().union(*records)
    view["encoding"]["tooltip"] = [
        {"field": name, "title": title.replace("_", " "), "type": "nominal"}
        for name, title in titles.items()
        if name in shown
    ]
    return view | {"title": panel.title, "data": {"values": records}}


def _records(panel: Panel) -> Iterator[tuple[Mapping, Json]]:
    """Yield rows and what the pointer shows of them."""
    spec = panel.spec
    for row in panel.table.to_dict("records"):
        style = panel.styles.get(row.get("hue"))
        hue = None
        if style:
            hue = style.label or str(row["hue"])
        record = {
            "panel": panel.title,
            "hue": hue,
            "value": rounded(row["value"]),
            "style": row.get("style"),
        }
        # Rows that a function of a paper makes are of no single cell.
        if isinstance(row.get("cell"), str):
            record["cell"] = row["cell"]
        if row.get("dataset"):
            record["dataset"] = spec.format_name(row["dataset"])
        if row.get("notion") in ("pure", "approximate"):
            record["adjacency"] = row["adjacency"].replace("_", "-")
        for name in ("low", "high", "seeds", "epsilon", "epsilon_spent"):
            value = row.get(name, np.nan)
            if np.isfinite(value):
                record[name] = rounded(value)
        if {"low", "high"} <= record.keys():
            record["interval"] = f"{row['low']:.4g} to {row['high']:.4g}"
        yield row, {k: item for k, item in record.items() if item not in (None, "")}


def rounded(value: float) -> float:
    """Return a number with six digits."""
    return float(f"{value:.6g}")


# Kinds of charts: fill in the axes, and return the records


def _quantity(title: str, scale_type: str, **scale: Any) -> Json:
    """Return title and scale of an axis of numbers; logarithms have no zero."""
    zero = {"zero": scale.pop("zero", False)} if scale_type == "linear" else {}
    return {
        "title": title or None,
        "scale": {"nice": False, "type": scale_type} | zero | scale,
    }


def _lines(
    panel: Panel,
    encoding: Json,
    layers: list[Json],
) -> list[Json]:
    spec = panel.spec
    records = []
    for row, record in _records(panel):
        if panel.log and row["value"] <= 0:
            continue
        records.append(record)
        if np.isnan(row["x"]):
            record["level"] = record["value"]
            continue
        x = rounded(row["x"])
        low = rounded(row["shown_low"])
        high = rounded(row["shown_high"])
        record |= {
            "at": x,
            "place": panel.names.get(x, spec.format_name(x)),
            "curve": f"{row.get('style')} {row.get('curve')} {row.get('piece')}",
        }
        if low < high:
            record |= {"from": low, "to": high}

    scale_type = "linear" if spec.x_scale == "linear" else "log"
    ticks = sorted({record["at"] for record in records if "at" in record})
    axis: Json = {"labelOverlap": True, "values": ticks}
    if panel.names:
        axis["labelExpr"] = f"{list(panel.names.values())}[datum.value]"
    encoding["x"]["axis"] = axis
    encoding["x"] |= _quantity(
        panel.x_label,
        scale_type,
        reverse=spec.x_reversed,
        padding=8,
    )
    encoding["y"] |= _quantity(
        panel.y_label,
        "log" if panel.log else "linear",
        reverse=spec.y_reversed,
        domain=list(lines.limits(panel)),
    )
    if spec.bands == "bars":
        layers[1]["mark"] = TEMPLATES["bars"]
    return records


def _forest(
    panel: Panel,
    encoding: Json,
    layers: list[Json],
) -> list[Json]:
    spec = panel.spec
    records = []
    for row, record in _records(panel):
        records.append(record)
        if np.isnan(row["row_y"]):
            record["level"] = record["value"]
            continue
        mark = "stacked" if row["hue"] in spec.stacked else "mark"
        record |= {
            "place": panel.names[row["row_y"]],
            "at": row["row_y"],
            mark: record["value"],
        }
        if np.isfinite(row.get("reported", np.nan)):
            record["reported"] = rounded(row["reported"])

    options: Json = {"scale_type": "linear", "zero": bool(spec.stacked or spec.y_zero)}
    if spec.y_scale == "symlog":
        options = {"scale_type": "symlog", "constant": forest.LINEAR_BELOW}
    elif panel.log:
        options = {"scale_type": "log"}
    encoding["x"] |= _quantity(panel.x_label, **options)
    places = list(map(float, panel.names))
    labels = list(panel.names.values())
    encoding["y"] |= {
        "sort": places,
        "scale": {"domain": places},
        "axis": {"labelExpr": f"{labels}[indexof({places}, datum.value)]"},
    }
    if spec.dodge:
        for layer in layers[2:4]:
            layer["encoding"]["yOffset"] = {"field": "hue"}
    return records


def _heatmap(
    panel: Panel,
    encoding: Json,
    layers: list[Json],
) -> list[Json]:
    name = panel.spec.format_name
    columns, rows = heatmap.sides(panel)
    encoding["x"]["sort"] = list(map(name, columns))
    encoding["x"]["title"] = panel.x_label or None
    encoding["y"]["sort"] = list(map(name, rows[::-1]))
    encoding["y"]["title"] = panel.y_label or None
    records = []
    for row, record in _records(panel):
        at = name(row["x"])
        place = name(row["row"])
        record.pop("hue", None)
        record |= {
            "at": at,
            "row": place,
            "place": f"{place}, {at}",
            "text": row["text"],
        }
        records.append(record)
    return records


def _add_colors(
    views: Sequence[Json],
    drawing: Drawing,
) -> None:
    """Give the maps of a group one scale of colors."""
    for indices in drawing.color_groups():
        panels = [drawing.panels[index] for index in indices]
        norm = heatmap.norm(panels)
        for index, panel in zip(indices, panels, strict=True):
            name = heatmap.color_map(panel)
            scheme = name.removesuffix("_r")
            views[index]["encoding"]["color"] |= {
                "title": panel.spec.color_label or None,
                "scale": {
                    "type": "log" if panel.log else "linear",
                    "scheme": TEMPLATES["schemes"].get(scheme, scheme),
                    "reverse": name.endswith("_r"),
                    "domain": [float(norm.vmin), float(norm.vmax)],
                    "clamp": True,
                },
            }


def _add_legend(
    views: Sequence[Json],
    drawing: Drawing,
) -> None:
    """Give hues their colors, and let a click in the legend choose some of them."""
    present = set()
    for view in views:
        present.update(record["hue"] for record in view["data"]["values"])
    shown = {}
    for hue, style in drawing.styles.items():
        label = style.label or str(hue)
        if label in present:
            shown[label] = style.line
    lines = shown.values()
    ranges = {
        "color": [_color(line, index) for index, line in enumerate(lines)],
        "strokeDash": list(map(_dash, lines)),
    }
    columns = max(drawing.columns * TEMPLATES["lines"]["width"] // ENTRY, 1)
    for view in views:
        view["transform"] = [{"filter": {"param": "shown"}}]
        for part in (view, *view["layer"]):
            for channel, values in ranges.items():
                encoding = part["encoding"].get(channel, {})
                if encoding.get("field") == "hue":
                    encoding |= {
                        "scale": {"domain": list(shown), "range": values},
                        "legend": TEMPLATES["legend"] | {"columns": columns},
                    }
    views[0]["layer"].insert(0, TEMPLATES["choice"])


def _dash(line: Mapping) -> list[float]:
    style = line["linestyle"]
    if isinstance(style, str):
        return TEMPLATES["dashes"][style]
    return [2.0 * length for length in style]


def _color(
    line: Mapping,
    index: int,
) -> str:
    if line["color"] != forest.OF_METHOD:
        return to_hex(line["color"])
    color, _ = CYCLE[index % len(CYCLE)]
    return color
