"""Interactive charts: the table of a figure as a Vega-Lite specification.

Scales, ticks, labels and titles are those of the static figure, so that both agree.
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
from pkm.analysis.frames import Frame, number_text, panel_names
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.layout import legend_columns
from pkm.analysis.render.style import INK, HueStyle, MethodStyles, variant_styles

Json = dict[str, Any]
SHADES = 16  # samples of a color map
PIXELS = 96  # of an inch
POINT = 96 / 72  # pixels
LETTER = 6.2  # pixels of a letter of a tick's label
MARGINS = (45, 80)  # pixels beside and below the axes of a panel
SMALLEST = 60  # pixels of a panel
SOLID = [1, 0]  # the dashes of a solid line
REFERENCE = "reference"  # what has no entry of its own in the legend
REPORTED = "reported"
CONFIG: Json = {
    "font": "DejaVu Sans, Verdana, sans-serif",
    "view": {"stroke": None},
    "axis": {"gridColor": "#e6e6e6", "labelColor": INK, "titleColor": INK, "titleFontWeight": 400},
    "title": {"color": INK, "fontWeight": 400, "fontSize": 13},
    "legend": {
        "orient": "top",
        "title": None,
        "labelLimit": 400,
        "labelFontSize": 12,
        "symbolOpacity": 1,
    },
}


def chart(figure: Figure, shown: Frame, spec: FigureSpec, styles: Mapping[Any, HueStyle]) -> Json:
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
        A Vega-Lite specification with its data.
    """
    drawn = shown.drawn
    names = panel_names(drawn, spec)
    columns = min(spec.columns, len(names))
    size = figure.get_size_inches() * PIXELS / (columns, -(-len(names) // columns))
    panels = []
    for index, (axes, name) in enumerate(zip(figure.axes, names, strict=False)):
        part = spec.part(name) if name else spec
        rows = drawn[drawn["panel"] == name] if name else drawn
        x_title = figure.get_supxlabel() if index + columns >= len(names) else ""
        y_title = figure.get_supylabel() if index % columns == 0 else ""
        place = {
            "x": _position(axes.xaxis, axes.get_xlabel() or x_title),
            "y": _position(axes.yaxis, axes.get_ylabel() or y_title),
        }
        if spec.kind == "heatmap":
            later = {spec.part(other).color_group for other in names[index + 1 :]}
            with_bar = part.color_bar and part.color_group not in later - {"panel"}
            records, layers = _heatmap(axes, rows, part, place, with_bar)
        elif spec.kind == "forest":
            records, layers = _forest(rows, part, styles, place)
        else:
            records, layers = _lines(axes, rows, part, styles, place)
        for record in records:
            record["panel"] = part.title
        for layer in layers:
            layer["encoding"]["tooltip"] = _tooltip(records, spec)
        lengths = [len(line) for label in _tick_labels(axes.yaxis) for line in label.split("\n")]
        width, height = size - MARGINS - np.array([max(lengths, default=0) * LETTER, 0])
        panels.append(
            {
                "title": axes.get_title(),
                "width": max(round(width), SMALLEST),
                "height": max(round(height), SMALLEST),
                "data": {"values": records},
                "layer": layers,
            }
        )
    if spec.kind != "heatmap":
        _add_legend(panels, drawn, spec, styles)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": CONFIG,
        "columns": columns,
        "concat": panels,
        # Maps have a scale of their own, curves the same legend.
        "resolve": {"scale": {"color": "independent" if spec.kind == "heatmap" else "shared"}},
    }


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _tick_labels(axis: Axis) -> list[str]:
    """Return the labels of ticks; empty ones where another panel has them."""
    texts = axis.get_major_formatter().format_ticks(axis.get_majorticklocs())
    return texts if axis.get_tick_params().get("labelleft", True) else [""] * len(texts)


def _position(axis: Axis, title: str) -> Json:
    """Return the encoding of a place: scale, ticks and label of an axis of the static figure."""
    low, high = axis.get_view_interval()
    texts = _tick_labels(axis)
    values = [_rounded(place) for place in axis.get_majorticklocs()]
    domain = {"domain": sorted([low, high]), "reverse": bool(axis.get_inverted())}
    scale = {"type": axis.get_scale(), "nice": False} | domain
    if axis.get_scale() == "linear":
        scale["zero"] = False
    elif axis.get_scale() == "symlog":
        scale["constant"] = axis.get_transform().linthresh
    text_of = f"split({json.dumps(texts)}[indexof({json.dumps(values)}, datum.value)], '\\n')"
    inside = [value for value in values if domain["domain"][0] <= value <= domain["domain"][1]]
    grid = any(line.get_visible() for line in axis.get_gridlines())
    ticks = {"values": inside, "labelExpr": text_of, "labelOverlap": True, "grid": grid}
    return {"type": "quantitative", "title": title or None, "scale": scale, "axis": ticks}


def _record(line: Mapping[str, Any], hue: str, at: float, text: str, value_place: Json) -> Json:
    """Return the data of one value: where it is, its interval, and what the pointer shows."""
    low = line.get("low", np.nan)
    high = line.get("high", np.nan)
    scale = value_place["scale"]
    lowest = scale["domain"][0] if scale["type"] == "log" else -np.inf
    record = {
        "hue": hue,
        "at": _rounded(at),
        "place": text,
        "value": _rounded(line["value"]),
        "low": _rounded(np.fmax(low, lowest) if np.isfinite(low) else low),
        "high": _rounded(high),
        "style": line.get("style"),
        "curve": f"{line['curve']}" if "curve" in line else None,
    }
    if np.isfinite(low) and np.isfinite(high):
        record["interval"] = f"{low:.4g} to {high:.4g}"
    for name in ("seeds", "epsilon", "epsilon_spent"):
        if np.isfinite(line.get(name, np.nan)):
            record[name] = _rounded(line[name])
    return {name: item for name, item in record.items() if item is not None}


def _key(hue: Any, style: HueStyle) -> str:
    """Return what the data call a hue: its label, which the legend shows."""
    return style.label or f"{hue}"


def _layer(mark: str, where: str, *, look: Json | None = None, **at: Any) -> Json:
    """Return a layer of marks at places, of the records that meet a condition."""
    return {
        "transform": [{"filter": where}],
        "mark": {"type": mark, "clip": True} | (look or {}),
        "encoding": at,
    }


def _tooltip(records: list[Json], spec: FigureSpec) -> list[Json]:
    """Return what the pointer shows of a mark: the fields that any record has."""
    titles = {
        "panel": "panel",
        "hue": spec.hue,
        "style": spec.style,
        "place": spec.x if spec.kind == "lines" else spec.row,
        "value": spec.value,
        "interval": f"interval ({spec.interval})",
        "seeds": "seeds",
        "epsilon": "epsilon",
        "epsilon_spent": "epsilon spent",
    }
    if spec.kind == "heatmap":
        del titles["hue"]
    elif spec.x == "epsilon":
        del titles["epsilon"]
    present = {name for record in records for name in record}
    return [
        {"field": name, "title": title.replace("_", " "), "type": "nominal"}
        for name, title in titles.items()
        if name in present
    ]


# --- curves -------------------------------------------------------------------------------------


def _lines(
    axes: Axes,
    rows: pd.DataFrame,
    spec: FigureSpec,
    styles: Mapping[Any, HueStyle],
    place: Mapping[str, Json],
) -> tuple[list[Json], list[Json]]:
    """Return the records and layers of curves; level lines and references have no `at`."""
    names = [] if pd.api.types.is_numeric_dtype(rows["x"]) else heatmap.ordered(rows["x"], spec)
    records = []
    for order, (hue, style) in enumerate(styles.items()):
        shift = lines.dodged(order, len(styles)) if spec.dodge else 1.0
        for line in rows[rows["hue"] == hue].sort_values("x").to_dict("records"):
            x = line["x"]
            at = float(names.index(x)) if names else x * shift
            text = "" if pd.isna(x) else spec.name_of(x)
            record = _record(line, _key(hue, style), at, text, place["y"])
            is_level = pd.isna(x)
            with_band = spec.interval != "none" and style.line.get("zorder", 10) > 2
            if is_level:
                with_band = spec.level_bands and not style.baseline
            records.append(record | {"band": with_band and spec.bands == "area"})
    records += [line for entry in spec.references for line in _reference(axes, entry)]
    x = {"x": place["x"] | {"field": "at"}}
    y = {"y": place["y"] | {"field": "value"}}
    interval = {"y": place["y"] | {"field": "low"}, "y2": {"field": "high"}}
    curve = "isValid(datum.at) && isValid(datum.value)"
    level = "!isValid(datum.at)"
    layers = [
        _layer("rect", f"{level} && datum.band", look={"opacity": 0.16}, **interval),
        _layer("rule", level, **y),
        _layer("rule", "!isValid(datum.value)", **x),
        _layer("area", f"{curve} && datum.band", look={"opacity": 0.16}, **x, **interval),
        _layer("line", curve, **x, **y),
        _layer("point", curve, **x, **y),
    ]
    if spec.bands == "bars":
        layers.insert(-1, _layer("rule", curve, **x, **interval))
    return records, layers


def _reference(axes: Axes, entry: Mapping[str, Any]) -> list[Json]:
    """Return the records of a reference line: its level, or the ends of a power of x."""
    label = entry.get("label", REFERENCE)
    if "slope" not in entry:
        return [{"hue": label, "at" if "x" in entry else "value": entry.get("x", entry.get("y"))}]
    drawn = [line.get_xydata() for line in axes.lines if line.get_label() == label]
    return [
        {"hue": label, "at": x, "value": y} for line in drawn for x, y in line[[0, -1]].tolist()
    ]


# --- rows of marks ------------------------------------------------------------------------------


def _forest(
    rows: pd.DataFrame,
    spec: FigureSpec,
    styles: Mapping[Any, HueStyle],
    place: Mapping[str, Json],
) -> tuple[list[Json], list[Json]]:
    """Return the records and layers of rows of marks and bars; level lines have no `at`."""
    heights = forest.row_places(rows[rows["row"].notna()], spec)
    name_of = MethodStyles(rows).label if spec.row == "method" else spec.name_of
    marks = [key for key in styles if key not in {*spec.stacked, *forest.levels_of(rows)}]
    ends: dict[float, float] = {}
    records = []
    for hue, style in styles.items():
        for line in rows[rows["hue"] == hue].to_dict("records"):
            is_level = pd.isna(line["row"])
            at = np.nan if is_level else heights[line.get("group"), line["row"]]
            text = "" if is_level else spec.row_label.format(name_of(line["row"]))
            shift = style.shift
            if spec.dodge and hue in marks:
                shift += forest.DODGE * (marks.index(hue) - (len(marks) - 1) / 2)
            record = _record(line, _key(hue, style), at + shift, text, place["x"])
            color = line["color"] if style.color == forest.OF_METHOD else style.color
            record["color"] = record["face"] = to_hex(color)
            if style.line["markerfacecolor"] in ("white", "none"):
                record["face"] = "white"
            if hue in spec.stacked:
                start = ends.get(at, 0.0)
                ends[at] = start + max(line["value"], 0.0)
                record |= {"start": _rounded(start), "end": _rounded(ends[at])}
            elif spec.label:
                record["text"] = number_text(spec.label, line)
            if "reported" in line:
                record["reported"] = _rounded(line["reported"])
            records.append(record)
            reported = line.get("reported", np.nan)
            if np.isfinite(reported):
                value = {"value": _rounded(reported)}
                records.append({"hue": REPORTED, "at": at, "place": text, "color": INK} | value)
                records[-1]["face"] = "transparent"
    for (group, row), at in heights.items():
        joined = rows[(rows["row"] == row) & rows["hue"].isin(spec.span)]
        if group is not None:
            joined = joined[joined["group"] == group]
        if len(joined):
            color = to_hex(forest.method_color(joined.iloc[0]))
            ends_of = {"from": joined["value"].min(), "to": joined["value"].max()}
            records.append({"hue": REFERENCE, "at": at, "color": color} | ends_of)
    for entry in spec.references:
        x = rows[entry["x"]].iloc[0] if isinstance(entry["x"], str) else entry["x"]
        color = to_hex(lines.reference_line(entry)["color"])
        records.append({"hue": entry.get("label", REFERENCE), "value": float(x), "color": color})
    x = {"x": place["x"] | {"field": "value"}}
    y = {"y": place["y"] | {"field": "at"}}
    mark = "isValid(datum.at) && isValid(datum.value) && !isValid(datum.end)"
    bar = {"x": place["x"] | {"field": "start"}, "x2": {"field": "end"}}
    span = {"x": place["x"] | {"field": "from"}, "x2": {"field": "to"}}
    interval = {"x": place["x"] | {"field": "low"}, "x2": {"field": "high"}}
    words = {"x": interval["x"] | {"field": "high"}, "text": {"field": "text"}}
    ink = {"value": INK}
    beside = {"clip": False, "align": "left", "dx": 8, "fontSize": 11}
    layers = [
        _layer("bar", "isValid(datum.end)", look={"size": 11}, **bar, **y),
        _layer("rule", "isValid(datum.to)", **span, **y),
        _layer("rule", "!isValid(datum.at)", **x),
        _layer("rule", f"{mark} && isValid(datum.interval)", **interval, **y),
        _layer("text", "isValid(datum.text)", look=beside, **words, **y, color=ink),
        _layer("point", mark, **x, **y),
    ]
    return records, layers


# --- heat maps ----------------------------------------------------------------------------------


def _heatmap(
    axes: Axes, rows: pd.DataFrame, spec: FigureSpec, place: Mapping[str, Json], with_bar: bool
) -> tuple[list[Json], list[Json]]:
    """Return the records and layers of a map, with the colors and numbers of the static one."""
    (image,) = axes.images
    columns = heatmap.ordered(rows["x"], spec)
    names = heatmap.ordered(rows["row"], spec)
    names = names[::-1] if isinstance(names[0], str) else names
    written = {tuple(map(int, text.get_position())): text for text in axes.texts}
    records = []
    for line in rows.to_dict("records"):
        cell = columns.index(line["x"]), names.index(line["row"])
        label = f"{spec.name_of(line['row'])}, {spec.name_of(line['x'])}"
        record = _record(line, "", cell[0], label, place["x"])
        ink = to_hex(written[cell].get_color())
        records.append(record | {"row": cell[1], "text": written[cell].get_text(), "ink": ink})
    shares = np.linspace(0, 1, SHADES)
    scale = {
        "type": "log" if isinstance(image.norm, LogNorm) else "linear",
        "domain": image.norm.inverse(shares).tolist(),
        "range": [to_hex(shade) for shade in image.cmap(shares)],
        "clamp": True,
        "interpolate": "rgb",
    }
    bar = {"orient": "right", "direction": "vertical", "title": spec.color_label or None}
    color = {"field": "value", "type": "quantitative", "scale": scale}
    color["legend"] = (
        bar | {"titleOrient": "right", "titleLimit": 0, "format": ".2~g"} if with_bar else None
    )
    x = {"x": place["x"] | {"field": "left"}, "x2": {"field": "right"}}
    y = {"y": place["y"] | {"field": "bottom"}, "y2": {"field": "top"}}
    center = {"x": place["x"] | {"field": "at"}, "y": place["y"] | {"field": "row"}}
    ink = {"field": "ink", "type": "nominal", "scale": None}
    cells = _layer("rect", "true", **x, **y, color=color)
    cells["transform"] = [
        {"calculate": f"datum.{middle} {sign} 0.48", "as": edge}
        for middle, sign, edge in zip(
            ("at", "at", "row", "row"), "-+-+", ("left", "right", "bottom", "top"), strict=True
        )
    ]
    words = {"text": {"field": "text"}, "color": ink}
    return records, [cells, _layer("text", "true", **center, **words)]


# --- colors, markers, legend --------------------------------------------------------------------


def _add_legend(
    panels: list[Json], drawn: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]
) -> None:
    """Color the marks, and let a click on an entry of the legend hide or show its hue."""
    present = set(drawn["hue"].dropna())
    shown = {hue: style for hue, style in styles.items() if hue in present}
    looks = {_key(hue, style): dict(style.line) for hue, style in shown.items()}
    named = [style.label for style in shown.values() if style.label]
    if spec.kind == "forest" and spec.row == spec.hue:
        named = []
    for hue in set(spec.stacked) & set(shown):
        looks[_key(hue, shown[hue])]["marker"] = "s"
    parts = [spec.part(name) for name in panel_names(drawn, spec) if name] or [spec]
    for entry in (entry for part in parts for entry in part.references):
        looks[entry.get("label", REFERENCE)] = lines.reference_line(entry)
        named += [entry["label"]] if entry.get("label") else []
    looks.setdefault(REFERENCE, {"color": INK})
    if any(record["hue"] == REPORTED for panel in panels for record in panel["data"]["values"]):
        looks[REPORTED] = lines.REPORTED
        named.append(REPORTED)
    named = list(dict.fromkeys(named))
    width = sum(panel["width"] for panel in panels[: spec.columns]) / PIXELS
    legend = {"values": named, "columns": legend_columns(named, width)} if named else None

    def scaled(values: list[Any]) -> Json:
        scale = {"domain": list(looks), "range": values}
        return {"field": "hue", "type": "nominal", "scale": scale, "legend": legend}

    colors = [_hex(look["color"]) for look in looks.values()]
    faces = [_hex(look.get("markerfacecolor", look["color"])) for look in looks.values()]
    dashes = {key: _dashes(look) for key, look in looks.items()}
    bare = [key for key, look in looks.items() if not look.get("marker")]
    widths = [_width(look) for look in looks.values()]
    markers = [marker_path(look.get("marker")) for look in looks.values()]
    color, fill, shape = scaled(colors), scaled(faces), scaled(markers)
    width = scaled(widths) | {"type": "ordinal", "legend": None}
    dash = {"field": "dash", "type": "nominal", "scale": None, "legend": legend}
    # In the legend, the edges of markers are not dashed.
    edge = scaled([dashes[key] if key in bare else SOLID for key in looks])
    if spec.style:
        variants = variant_styles(drawn, spec)
        labels = [variant["label"] for variant in variants.values()]
        scale = {"domain": labels, "range": [_dashes(variant) for variant in variants.values()]}
        dash = {"field": "style", "type": "nominal", "scale": scale, "legend": {"values": labels}}
    keys = list(looks)
    for panel in panels:
        panel["transform"] = [{"filter": {"param": "shown", "empty": False}}]
        records = panel["data"]["values"]
        for record in records:
            if dashes[record["hue"]] != SOLID:
                record["dash"] = dashes[record["hue"]]
            if "style" in record:
                variant = variants[record["style"]]
                record["style"] = variant["label"]
                record["face"] = variant.get("markerfacecolor", faces[keys.index(record["hue"])])
        own = {"field": "color", "type": "nominal", "scale": None}
        for layer in panel["layer"]:
            kind = layer["mark"]["type"]
            look = {"color": own if spec.kind == "forest" else color}
            if kind in ("line", "area"):
                look["detail"] = [{"field": name, "type": "nominal"} for name in ("curve", "style")]
            if kind == "line":
                look |= {"strokeDash": dash, "strokeWidth": width}
            elif kind == "rule" and spec.kind == "lines":
                look |= {"strokeDash": dash}
            elif kind == "point":
                hidden = {"test": f"indexof({json.dumps(bare)}, datum.hue) >= 0", "value": 0}
                look |= {"shape": shape, "opacity": {"condition": hidden, "value": 1}}
                if not spec.style:
                    look["strokeDash"] = edge
                of_record = spec.style or spec.kind == "forest"
                look["fill"] = {**own, "field": "face"} if of_record else fill
                layer["mark"]["size"] = 45
            layer["encoding"] = look | layer["encoding"]
    points = panels[0]["layer"][-1]
    select = {"type": "point", "fields": ["hue"], "toggle": "true", "clear": False}
    start = [{"hue": key} for key in looks]
    points["params"] = [{"name": "shown", "select": select, "bind": "legend", "value": start}]


def _hex(color: Any) -> str:
    replaced = {forest.OF_METHOD: INK, "none": "white"}
    return to_hex(replaced.get(color, color) if isinstance(color, str) else color)


def _width(look: Mapping[str, Any]) -> float:
    without = look.get("linestyle") in ("", "none", "None")
    return 0.0 if without else POINT * look.get("linewidth", 1.8)


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
