"""Interactive charts: the table of a figure as a Vega-Lite specification.

Scales, ticks, labels and titles are those of the static figure, so that both agree. What is drawn
at them, `pkm.analysis.render.chart_marks` says.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path

from pkm.analysis.figure import FigureSpec
from pkm.analysis.frames import Frame, panel_names
from pkm.analysis.render import forest, lines
from pkm.analysis.render.chart_marks import (
    COMMON,
    RECORDS,
    REFERENCE,
    REPORTED,
    Json,
    Styles,
    key_of,
    layers_of,
    rounded,
)
from pkm.analysis.render.layout import legend_columns
from pkm.analysis.render.style import INK, variant_styles

SHADES = 16  # samples of a color map
PIXELS = 96  # of an inch
POINT = 96 / 72  # pixels
LETTER = 6.2  # pixels of a letter of a tick's label
LABELS = 45  # pixels beside a panel for its axis, without the letters of ticks
BELOW = 80  # pixels above and below the axes of a panel
SMALLEST = 60  # pixels of a panel
SOLID = [1, 0]  # the dashes of a solid line
OWN = {"type": "nominal", "scale": None}  # what records say of their look


def chart(figure: Figure, shown: Frame, spec: FigureSpec, styles: Styles) -> Json:
    """Return the interactive chart of a figure of kind lines, heatmap or forest.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The static figure; its first axes are the panels.
    shown : Frame
        What it shows.
    spec : FigureSpec
    styles : mapping of HueStyle
        By hue, in drawing order.

    Returns
    -------
    dict
        A Vega-Lite specification with its data. In ``usermeta``, `labels` is the room in pixels
        that the labels of a panel take beside it, and `y` the title that the first panels of rows
        share: a page that is narrow has more rows.
    """
    drawn = shown.drawn
    names = panel_names(drawn, spec)
    columns = min(spec.columns, len(names))
    width, height = figure.get_size_inches() * PIXELS / (columns, -(-len(names) // columns))
    labels = LABELS + LETTER * max(_longest_label(axes) for axes in figure.axes[: len(names)])
    panels = []
    for index, (axes, name) in enumerate(zip(figure.axes, names, strict=False)):
        part = spec.part(name) if name else spec
        rows = drawn[drawn["panel"] == name] if name else drawn
        y_title = figure.get_supylabel() if index % columns == 0 else ""
        place = {
            "x": _position(axes.xaxis, axes.get_xlabel()),
            "y": _position(axes.yaxis, axes.get_ylabel() or y_title),
        }
        records = RECORDS[spec.kind](axes, rows, part, styles)
        layers = layers_of(spec.kind, place)
        for record in records:
            record["panel"] = part.title
        for layer in layers:
            layer["encoding"]["tooltip"] = _tooltip(records, spec)
        if spec.kind == "heatmap":
            later = {spec.part(other).color_group for other in names[index + 1 :]}
            with_bar = part.color_bar and part.color_group not in later - {"panel"}
            layers[0]["encoding"]["color"] = _shades(axes, part, with_bar)
            layers[1]["encoding"]["color"] = OWN | {"field": "ink"}
        panels.append(
            {
                "title": axes.get_title(),
                "width": max(round(width - labels), SMALLEST),
                "height": max(round(height - BELOW), SMALLEST),
                "data": {"values": records},
                "layer": layers,
            }
        )
    if spec.kind != "heatmap":
        _color_marks(panels, drawn, spec, styles)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": COMMON["config"],
        "title": {"text": figure.get_supxlabel(), "orient": "bottom", "anchor": "middle"},
        "usermeta": {"labels": round(labels), "y": figure.get_supylabel()},
        "columns": columns,
        "concat": panels,
        # Maps have a scale of their own, curves the same legend.
        "resolve": {"scale": {"color": "independent" if spec.kind == "heatmap" else "shared"}},
    }


def _tick_labels(axis: Axis) -> list[str]:
    """Return the labels of ticks; empty ones where another panel has them."""
    texts = axis.get_major_formatter().format_ticks(axis.get_majorticklocs())
    return texts if axis.get_tick_params().get("labelleft", True) else [""] * len(texts)


def _longest_label(axes: Axes) -> int:
    words = [line for label in _tick_labels(axes.yaxis) for line in label.split("\n")]
    return max(map(len, words), default=0)


def _position(axis: Axis, title: str) -> Json:
    """Return the encoding of a place: scale, ticks and label of an axis of the static figure."""
    low, high = sorted(axis.get_view_interval())
    texts = _tick_labels(axis)
    values = [rounded(place) for place in axis.get_majorticklocs()]
    scale = {"type": axis.get_scale(), "nice": False, "domain": [low, high]}
    scale["reverse"] = bool(axis.get_inverted())
    if axis.get_scale() == "linear":
        scale["zero"] = False
    elif axis.get_scale() == "symlog":
        scale["constant"] = axis.get_transform().linthresh
    text_of = f"split({json.dumps(texts)}[indexof({json.dumps(values)}, datum.value)], '\\n')"
    inside = [value for value in values if low <= value <= high]
    grid = any(line.get_visible() for line in axis.get_gridlines())
    ticks = {"values": inside, "labelExpr": text_of, "labelOverlap": True, "grid": grid}
    return {
        "type": "quantitative",
        "title": title or None,
        "scale": scale,
        "axis": ticks | {"labelLimit": 0},
    }


def _tooltip(records: list[Json], spec: FigureSpec) -> list[Json]:
    """Return what the pointer shows of a mark: the fields that any record has."""
    named = {
        ".hue": spec.hue,
        ".style": spec.style,
        ".x": spec.x if spec.kind == "lines" else spec.row,
        ".value": spec.value,
        ".interval": COMMON["intervals"][spec.interval],
    }
    unused = {"hue"} if spec.kind == "heatmap" else {"epsilon"} if spec.x == "epsilon" else set()
    present = {name for record in records for name in record} - unused
    if "dataset" in spec.panel:
        present -= {"dataset"}
    return [
        {"field": name, "title": named.get(title, title).replace("_", " "), "type": "nominal"}
        for name, title in COMMON["tooltip"].items()
        if name in present
    ]


def _shades(axes: Axes, spec: FigureSpec, with_bar: bool) -> Json:
    """Return the colors of a heat map, those of the static one."""
    (image,) = axes.images
    shares = np.linspace(0, 1, SHADES)
    scale = {
        "type": "log" if isinstance(image.norm, LogNorm) else "linear",
        "domain": image.norm.inverse(shares).tolist(),
        "range": [to_hex(shade) for shade in image.cmap(shares)],
        "clamp": True,
        "interpolate": "rgb",
    }
    bar = {"orient": "right", "direction": "vertical", "title": spec.color_label or None}
    bar |= {"titleOrient": "right", "titleLimit": 0, "format": ".2~g"}
    legend = bar if with_bar else None
    return {"field": "value", "type": "quantitative", "scale": scale, "legend": legend}


# --- colors, markers, legend --------------------------------------------------------------------


def _color_marks(panels: list[Json], drawn: pd.DataFrame, spec: FigureSpec, styles: Styles) -> None:
    """Color the marks, and let a click on an entry of the legend hide or show its hue."""
    looks, named = _looks(panels, drawn, spec, styles)
    width = sum(panel["width"] for panel in panels[: spec.columns]) / PIXELS
    legend = {"values": named, "columns": legend_columns(named, width)} if named else None

    def scaled(values: list[Any]) -> Json:
        scale = {"domain": list(looks), "range": values}
        return {"field": "hue", "type": "nominal", "scale": scale, "legend": legend}

    faces = {key: _hex(look.get("markerfacecolor", look["color"])) for key, look in looks.items()}
    dashes = {key: _dashes(look) for key, look in looks.items()}
    bare = [key for key, look in looks.items() if not look.get("marker")]
    # Rows of marks have the color of their method, styles a face of their own.
    of_record = spec.kind == "forest" and (
        not named or any(style.color == forest.OF_METHOD for style in styles.values())
    )
    color = scaled([_hex(look["color"]) for look in looks.values()])
    fill = scaled(list(faces.values()))
    if of_record:
        color = OWN | {"field": "color"}
    if of_record or spec.style:
        fill = OWN | {"field": "face"}
    dash = {"field": "dash", "type": "nominal", "scale": None, "legend": legend}
    variants = variant_styles(drawn, spec) if spec.style else {}
    if variants:
        words = [variant["label"] for variant in variants.values()]
        scale = {"domain": words, "range": [_dashes(variant) for variant in variants.values()]}
        dash = {"field": "style", "type": "nominal", "scale": scale, "legend": {"values": words}}
    hidden = {"test": f"indexof({json.dumps(bare)}, datum.hue) >= 0", "value": 0}
    look_of = {
        "line": {
            "detail": [{"field": name, "type": "nominal"} for name in ("curve", "style")],
            "strokeDash": dash,
            "strokeWidth": OWN | {"field": "width", "type": "ordinal"},
        },
        "area": {"detail": [{"field": name, "type": "nominal"} for name in ("curve", "style")]},
        "point": {
            "shape": scaled([marker_path(look.get("marker")) for look in looks.values()]),
            "opacity": {"condition": hidden, "value": 1},
            "fill": fill,
        },
    }
    if spec.kind == "lines":
        look_of["rule"] = {"strokeDash": dash}
    if not spec.style:
        # In the legend, the edges of markers are not dashed.
        edges = [dashes[key] if key in bare else SOLID for key in looks]
        look_of["point"]["strokeDash"] = scaled(edges)
    for panel in panels:
        panel["transform"] = [{"filter": {"param": "shown", "empty": False}}]
        for record in panel["data"]["values"]:
            look = looks[record["hue"]]
            record["width"] = _width(look)
            if dashes[record["hue"]] != SOLID:
                record["dash"] = dashes[record["hue"]]
            if "style" in record:
                variant = variants[record["style"]]
                record["style"] = variant["label"]
                record["face"] = _hex(variant.get("markerfacecolor", faces[record["hue"]]))
        for layer in panel["layer"]:
            kind = layer["mark"]["type"]
            ink = {"value": INK} if kind == "text" else color
            layer["encoding"] = {"color": ink} | look_of.get(kind, {}) | layer["encoding"]
    select = {"type": "point", "fields": ["hue"], "toggle": "true", "clear": False}
    start = [{"hue": key} for key in looks]
    # The layer of points, whose legend it is.
    panels[0]["layer"][-1]["params"] = [
        {"name": "shown", "select": select, "bind": "legend", "value": start}
    ]


def _looks(
    panels: list[Json], drawn: pd.DataFrame, spec: FigureSpec, styles: Styles
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Return the look of every hue of the records, and which ones the legend names."""
    present = set(drawn["hue"].dropna())
    shown = {hue: style for hue, style in styles.items() if hue in present}
    looks: dict[str, Mapping[str, Any]] = {}
    for hue, style in shown.items():
        squares = {"marker": "s"} if hue in spec.stacked else {}
        looks[key_of(hue, style)] = style.line | squares
    named = [style.label for style in shown.values() if style.label]
    if spec.kind == "forest" and spec.row == spec.hue:
        named = []
    parts = [spec.part(name) for name in panel_names(drawn, spec) if name] or [spec]
    for entry in (entry for part in parts for entry in part.references):
        looks[entry.get("label", REFERENCE)] = lines.reference_line(entry)
        named += [entry["label"]] if entry.get("label") else []
    looks.setdefault(REFERENCE, {"color": INK})
    if any(record["hue"] == REPORTED for panel in panels for record in panel["data"]["values"]):
        looks[REPORTED] = lines.REPORTED
        named.append(REPORTED)
    return looks, [] if spec.legend == "none" else list(dict.fromkeys(named))


def _hex(color: Any) -> str:
    replaced = {forest.OF_METHOD: INK, "none": "white", "transparent": "white"}
    return to_hex(replaced.get(color, color) if isinstance(color, str) else color)


def _width(look: Mapping[str, Any]) -> float:
    without = look.get("linestyle") in ("", "none", "None")
    return 0.0 if without else round(POINT * look.get("linewidth", 1.8), 2)


def _dashes(look: Mapping[str, Any]) -> list[float]:
    """Return the dashes of a line of Matplotlib in pixels; its own are in line widths."""
    style = look.get("linestyle", "-")
    named = {"-": SOLID, "--": [3.7, 1.6], ":": [1, 1.65], "-.": [6.4, 1.6, 1, 1.6]}
    lengths = named.get(style, SOLID) if isinstance(style, str) else style[1]
    width = POINT * look.get("linewidth", 1.8)
    return [length if lengths == SOLID else round(length * width, 2) for length in lengths]


def marker_path(marker: str | None) -> str:
    """Return a marker of Matplotlib as the path of an SVG; a dash for none.

    Examples
    --------
    >>> marker_path(None)
    'M-1,0L1,0'
    """
    if not marker:
        return "M-1,0L1,0"
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform())
    parts = []
    for points, code in path.iter_segments():
        if code == Path.CLOSEPOLY:
            parts.append("Z")
            continue
        pairs = points.reshape(-1, 2) * (1, -1) / np.abs(path.vertices).max()
        parts.append(letters[code] + " ".join(f"{x:.3g},{y:.3g}" for x, y in pairs))
    return "".join(parts)
