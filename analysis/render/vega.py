"""Interactive charts of pages: generic Vega-Lite, one view a panel."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.styles import CYCLE
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.panel import Drawing, Panel

Json = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
WIDTH = 260  # pixels of a panel
HEIGHT = 190
ROW = 20  # pixels of a row of a forest
CELL = 46  # pixels of a cell of a map
#: Pixels of a panel with what is beside it, by kind: a page has as many as fit.
ROOM = {
    "lines": 340,
    "forest": 560,
    "heatmap": 340,
}
ENTRY = 170  # pixels of an entry of the legend
#: Dashes by the words for them.
DASHES = {"--": [6, 3], ":": [2, 2]}
#: Color schemes of Vega by the names that matplotlib has for them.
SCHEMES = {
    "YlGnBu": "yellowgreenblue",
    "YlOrRd": "yelloworangered",
    "PuOr": "purpleorange",
}
INTERVALS = {
    "t95": "95 % interval",
    "se3": "three standard errors",
    "deviation": "standard deviation",
    "bootstrap95": "95 % bootstrap interval",
    "none": "interval",
}
#: Columns that the pointer shows, and how it calls them.
TOOLTIP = {
    "seeds": "seeds",
    "epsilon": "ε declared",
    "epsilon_spent": "ε spent",
    "adjacency": "adjacency",
}


def chart(drawing: Drawing) -> Json:
    """Return the chart of a figure: a Vega-Lite specification with its data.

    Every view has its records in ``data.values``. A click in the legend, which the
    first view has, leaves one hue; with the shift key several. ``usermeta`` says how
    wide a panel is with its labels.
    """
    views = [_view(panel) for panel in drawing.panels]
    if drawing.spec.kind == "heatmap":
        _add_colors(views, drawing)
    else:
        _add_legend(views, drawing)
    return {
        "$schema": SCHEMA,
        "config": {"view": {"stroke": None}, "axis": {"labelLimit": 220}},
        "usermeta": {"panel": ROOM[drawing.spec.kind]},
        "columns": drawing.columns,
        "concat": views,
        "resolve": {"scale": {"color": _resolve(drawing.spec)}},
    }


def _resolve(spec: FigureSpec) -> str:
    return "independent" if spec.kind == "heatmap" else "shared"


def _view(panel: Panel) -> Json:
    """Return the view of a panel."""
    records, encodings, layers = KINDS[panel.spec.kind](panel)
    base = {name: encodings.pop(name) for name in ("x", "y", "color")}
    tooltip = [
        {
            "field": name,
            "title": title,
            "type": "nominal",
        }
        for name, title in _tooltip(panel.spec).items()
        if any(name in record for record in records)
    ]
    view: Json = {
        "title": panel.title,
        "data": {"values": records},
        "encoding": base | {"tooltip": tooltip},
        "layer": layers,
    }
    return view | encodings


def _tooltip(spec: FigureSpec) -> dict[str, str]:
    x = spec.x if spec.kind == "lines" else spec.row
    named = {
        "panel": "panel",
        "dataset": "data set",
        "hue": spec.hue,
    }
    named |= {
        "style": spec.style or "style",
        "place": x,
        "value": spec.value,
    }
    named |= {"interval": INTERVALS[spec.interval]} | TOOLTIP
    return {name: title.replace("_", " ") for name, title in named.items()}


def _records(panel: Panel) -> Iterator[tuple[Mapping[str, Any], Json]]:
    """Yield rows and what the pointer shows of them."""
    spec = panel.spec
    for row in panel.table.to_dict("records"):
        style = panel.styles.get(row.get("hue"))
        record = {
            "panel": panel.title,
            "hue": style.label or str(row["hue"]) if style else None,
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


def _axis(field: str, title: str, scale: Mapping[str, Any], **more: Any) -> Json:
    kind = {
        "field": field,
        "type": "quantitative",
        "title": title or None,
    }
    scale = {"nice": False} | scale
    if scale.get("type") == "linear":
        scale = {"zero": False} | scale
    return kind | {"scale": scale} | more


# Kinds of charts: records, encodings (with the size of the view), layers


def _lines(panel: Panel) -> tuple[list[Json], Json, list[Json]]:
    spec = panel.spec
    records = []
    for row, record in _records(panel):
        if panel.log and row["value"] <= 0:
            continue
        key = "level" if np.isnan(row["x"]) else "value"
        place = {"level": record["value"]}
        if key == "value":
            x = rounded(row["x"])
            place = {"at": x, "place": panel.names.get(x, spec.format_name(x))}
            place["curve"] = f"{row.get('style')} {row.get('curve')}"
            ends = rounded(row["shown_low"]), rounded(row["shown_high"])
            if ends[0] < ends[1]:
                place |= {"from": ends[0], "to": ends[1]}
        records.append(record | place)
    low, high = lines.limits(panel)
    y_scale: Json = {"domain": [low, high], "reverse": spec.y_reversed}
    x_scale: Json = {"reverse": spec.x_reversed, "padding": 8}
    x_scale["type"] = "linear" if spec.x_scale == "linear" else "log"
    y_scale["type"] = "log" if panel.log else "linear"
    ticks: Json = {"values": sorted({r["at"] for r in records if "at" in r})}
    if panel.names:
        names = list(panel.names.values())
        ticks["labelExpr"] = f"{names}[datum.value]"
    encodings: Json = {
        "x": _axis(
            "at",
            panel.x_label,
            x_scale,
            axis=ticks | {"labelOverlap": True},
        ),
        "y": _axis(
            "value",
            panel.y_label,
            y_scale,
            axis={"tickCount": 5},
        ),
        "color": {"field": "hue", "type": "nominal"},
        "width": WIDTH,
        "height": HEIGHT,
    }
    dash = {"strokeDash": {"field": "hue", "type": "nominal"}}
    detail = {"detail": {"field": "curve"}}
    ends = {"y": {"field": "from"}, "y2": {"field": "to"}}
    level = {"x": None, "y": {"field": "level"}}
    mark = {"clip": True}
    band = {"type": "area", "opacity": 0.16}
    if spec.bands == "bars":
        band = {"type": "rule", "opacity": 0.8}
    layers = [
        _layer("level", mark | {"type": "rule"}, level | dash),
        _layer("from", mark | band, ends | detail),
        _layer("at", mark | {"type": "line"}, dash | detail),
        _layer(
            "at",
            mark
            | {
                "type": "point",
                "filled": True,
                "opacity": 1,
            },
            {},
        ),
    ]
    return records, encodings, layers + _reference_layers(panel)


def _layer(field: str, mark: Json, encoding: Json) -> Json:
    """Return a layer of the records that have a field."""
    return {
        "transform": [{"filter": f"isValid(datum['{field}'])"}],
        "mark": mark,
        "encoding": encoding,
    }


def _reference_layers(panel: Panel) -> list[Json]:
    """Return reference lines at a level; slopes are in the picture alone."""
    layers = []
    for entry in panel.spec.references:
        for side in ("x", "y"):
            value = entry.get(side)
            if isinstance(value, str):
                value = forest.reference_place(entry, panel.table)
            if value is not None:
                layer = {
                    "data": {"values": [{}]},
                    "mark": {"type": "rule", "strokeDash": [2, 2]},
                    "encoding": {side: {"datum": value}, "color": {"value": "grey"}},
                }
                layers.append(layer)
    return layers


def _forest(panel: Panel) -> tuple[list[Json], Json, list[Json]]:
    spec = panel.spec
    records = []
    for row, record in _records(panel):
        if np.isnan(row["row_y"]):
            records.append(record | {"level": record["value"]})
            continue
        record["place"] = panel.names[row["row_y"]]
        record["at"] = row["row_y"]
        kind = "stacked" if row["hue"] in spec.stacked else "mark"
        record[kind] = record["value"]
        if np.isfinite(row.get("reported", np.nan)):
            record["reported"] = rounded(row["reported"])
        records.append(record)
    scale: Json = {"type": "linear", "zero": bool(spec.stacked or spec.y_zero)}
    if panel.log:
        scale = {"type": "log"}
    if spec.y_scale == "symlog":
        scale = {"type": "symlog", "constant": forest.LINEAR_BELOW}
    places = list(map(float, panel.names))
    labels = list(panel.names.values())
    y: Json = {
        "field": "at",
        "type": "ordinal",
        "sort": places,
        "title": None,
        "scale": {"domain": places},
        "axis": {"labelExpr": f"{labels}[indexof({places}, datum.value)]"},
    }
    encodings: Json = {
        "x": _axis("value", panel.x_label, scale),
        "y": y,
        "color": {"field": "hue", "type": "nominal"},
        "width": 1.4 * WIDTH,
        "height": {"step": ROW},
    }
    ends = {"x": {"field": "low"}, "x2": {"field": "high"}}
    bar = {"x": {"field": "stacked", "aggregate": "sum"}}
    apart: Json = {"yOffset": {"field": "hue"}} if spec.dodge else {}
    black = {"color": {"value": "black"}, "x": {"field": "reported"}}
    layers = [
        _layer("stacked", {"type": "bar"}, bar),
        _layer("level", {"type": "rule"}, {"x": {"field": "level"}, "y": None}),
        _layer("low", {"type": "rule"}, ends | apart),
        _layer(
            "mark",
            {
                "type": "point",
                "filled": True,
                "opacity": 1,
            },
            apart,
        ),
        _layer(
            "reported",
            {
                "type": "point",
                "shape": "diamond",
                "size": 60,
            },
            black,
        ),
    ]
    return records, encodings, layers + _reference_layers(panel)


def _heatmap(panel: Panel) -> tuple[list[Json], Json, list[Json]]:
    spec = panel.spec
    columns, rows = heatmap.sides(panel)
    records = []
    for row, record in _records(panel):
        record.pop("hue", None)
        place = {"at": spec.format_name(row["x"]), "row": spec.format_name(row["row"])}
        place["place"] = f"{place['row']}, {place['at']}"
        records.append(record | place | {"text": row["text"]})
    sides = {"at": (columns, panel.x_label), "row": (rows[::-1], panel.y_label)}
    x, y = (
        {
            "field": field,
            "type": "ordinal",
            "sort": list(map(spec.format_name, side)),
            "title": label or None,
        }
        for field, (side, label) in sides.items()
    )
    value = {"field": "value", "type": "quantitative"}
    encodings: Json = {
        "x": x,
        "y": y,
        "color": value | {"title": spec.color_label or None},
        "width": {"step": CELL},
        "height": {"step": CELL / 2},
    }
    number = {"text": {"field": "text"}, "color": {"value": "black"}}
    layers = [
        _layer("value", {"type": "rect"}, {}),
        _layer("text", {"type": "text", "fontSize": 9}, number),
    ]
    return records, encodings, layers


def _add_colors(views: Sequence[Json], drawing: Drawing) -> None:
    """Give the maps of a group one scale of colors."""
    for indices in drawing.color_groups():
        panels = [drawing.panels[index] for index in indices]
        scale = heatmap.norm([panel.table for panel in panels], panels[0].spec)
        for index in indices:
            panel = drawing.panels[index]
            name = heatmap.color_map(panel)
            scheme = name.removesuffix("_r")
            views[index]["encoding"]["color"] |= {
                "legend": {"format": ".3~g"},
                "scale": {
                    "type": "log" if panel.log else "linear",
                    "scheme": SCHEMES.get(scheme, scheme),
                    "reverse": name.endswith("_r"),
                    "domain": [float(scale.vmin), float(scale.vmax)],
                    "clamp": True,
                },
            }


KINDS = {
    "lines": _lines,
    "forest": _forest,
    "heatmap": _heatmap,
}


# Legend


def _add_legend(views: Sequence[Json], drawing: Drawing) -> None:
    """Give hues their colors, and let a click in the legend choose some of them."""
    present = {record["hue"] for view in views for record in view["data"]["values"]}
    shown = {
        style.label or str(hue): style.line for hue, style in drawing.styles.items()
    }
    shown = {label: line for label, line in shown.items() if label in present}
    dashes = [_dash(line.get("linestyle", "-")) for line in shown.values()]
    ranges = {
        "color": [
            _color(line["color"], index) for index, line in enumerate(shown.values())
        ],
        "strokeDash": dashes,
    }
    columns = max(drawing.columns * WIDTH // ENTRY, 1)
    legend = {
        "orient": "top",
        "columns": columns,
        "title": None,
        "labelLimit": 400,
    }

    def scaled(channel: str) -> Json:
        scale = {"domain": list(shown), "range": ranges[channel]}
        return {
            "field": "hue",
            "type": "nominal",
            "scale": scale,
            "legend": legend,
        }

    for view in views:
        view["transform"] = [{"filter": {"param": "shown"}}]
        for encoding in _encodings(view):
            for channel in ranges:
                if encoding.get(channel, {}).get("field") == "hue":
                    encoding[channel] = scaled(channel)
    select = {"type": "point", "fields": ["hue"]}
    param = {
        "name": "shown",
        "select": select,
        "bind": "legend",
    }
    # Only as the first layer does it always answer to clicks.
    empty = {
        "data": {"values": []},
        "mark": "point",
        "encoding": {},
        "params": [param],
    }
    views[0]["layer"].insert(0, empty)


def _encodings(view: Json) -> list[Json]:
    return [view["encoding"], *(layer["encoding"] for layer in view["layer"])]


def _dash(style: Any) -> list[float]:
    if isinstance(style, str):
        return DASHES.get(style, [1, 0])
    return [2.0 * length for length in style]


def _color(color: str, index: int) -> str:
    return CYCLE[index % len(CYCLE)][0] if color == forest.OF_METHOD else to_hex(color)
