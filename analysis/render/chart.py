"""Charts: the panels of a figure as one Vega-Lite specification.

A page shows it as it is; its picture is made from the same text.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vl_convert import svg_to_pdf, svg_to_png, vegalite_to_svg

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.render.axes import Json
from pkm.analysis.render.style import COMMON, GREY, mark_properties
from pkm.analysis.render.subplot import Subplot

PIXELS_PER_INCH = 96
CHAR_WIDTH = 6.2  # pixels, in labels of ticks
TITLE_CHAR_WIDTH = 7  # pixels, in titles
AXIS = 9  # pixels between a panel and the labels at its left, and beside them
AXIS_TITLE = 20  # pixels of the title of an axis
TICKS = 20  # pixels below a panel for the labels of ticks
PANEL_TITLE = 26  # pixels above a panel
COLOR_BAR = 60  # pixels of a bar of colors beside a panel
BAR_HEIGHT = 0.82  # of a row
SPACING = 16  # pixels between panels, as in chart.yaml
MIN_PANEL_SIZE = 60  # pixels of a panel
MIN_WIDTH = 5.2  # of a figure, in inches, so that its labels fit
LEGEND_SYMBOL = 60  # pixels of a symbol beside its label
SAMPLE = 4.5  # half the length of a line in the legend, in half marker sizes
#: Pixels of half a marker there.
UNIT = math.sqrt(COMMON["config"]["legend"]["symbolSize"]) / 2
RESOLUTION = 170  # of pictures, in dots per inch
OWN = {"type": "ordinal", "scale": None}  # of channels whose values are in the data
#: Channels whose fields a record must have to be drawn.
REQUIRED_CHANNELS = (
    "x",
    "y",
    "x2",
    "y2",
    "text",
    "shape",
)
#: An entry of the legend: its label, which is also the hue, and the style of its curve.
Entry = tuple[str, Mapping[str, Any]]


def chart(
    panels: Sequence[Subplot],
    spec: FigureSpec,
    entries: Sequence[Entry],
    x_title: str,
    y_title: str,
) -> Json:
    """Return the chart of a figure of kind lines, heatmap or forest.

    Parameters
    ----------
    panels : sequence of Subplot
    spec : FigureSpec
    entries : sequence of (str, mapping)
        Labels of the legend with their marks, see `HueStyle.line`.
    x_title, y_title : str
        Titles that all panels share; empty for none.

    Returns
    -------
    dict
        A Vega-Lite specification with its data. In ``usermeta``, `labels` is the room
        in pixels that the labels of a panel take beside it, `y` the title that the
        first panels of rows share and `rows` whether they alone have the labels of the
        vertical axis: a page that is narrow has more rows.
    """
    columns = min(spec.columns, len(panels))
    width = PIXELS_PER_INCH * max(spec.width * columns, MIN_WIDTH)
    if entries and spec.legend == "right":
        width -= _longest([label for label, _ in entries]) * CHAR_WIDTH + LEGEND_SYMBOL
    share_rows = (
        spec.kind == "forest" and len({panel.y.labels for panel in panels}) == 1
    )
    labels = max(_longest(panel.y.labels) for panel in panels) * CHAR_WIDTH
    room = _panel_width(panels, columns, labels, share_rows, y_title, width)
    concat = []
    for index, panel in enumerate(panels):
        y = panel.y.encoding()
        height = _height(panel, spec, x_title)
        y_text = y_title if y_title and not index % columns else panel.y.title
        y["title"] = wrapped(y_text, height + TICKS) if y_text else None
        if share_rows and index % columns:
            y["axis"]["labels"] = False
        layers = _layers(panel, spec, {"x": panel.x.encoding(), "y": y})
        if any("log" in other.notes for other in panels):
            layers.append(log_label("log" in panel.notes))
        drawn = {
            "title": wrapped(panel.title, room + labels),
            "width": round(room),
            "height": height,
            "data": {"values": panel.records},
            "layer": layers,
        }
        if panel.colors:
            drawn["view"] = {"fill": "#f2f2f2"}
        concat.append(drawn)
    vega = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": COMMON["config"],
        "title": {
            "text": wrapped(x_title, width),
            "orient": "bottom",
            "anchor": "middle",
        },
        "usermeta": {
            "labels": round(labels + AXIS + AXIS_TITLE),
            "y": wrapped(y_title, concat[0]["height"] + TICKS) if y_title else "",
            "rows": share_rows,
        },
        "columns": columns,
        "concat": concat,
        # Maps have a scale of their own.
        "resolve": {
            "scale": {"fill": "independent" if spec.kind == "heatmap" else "shared"}
        },
    }
    if entries and spec.legend != "none":
        _add_legend(concat, entries, spec, width)
    return vega


def log_label(logarithmic: bool) -> Json:
    """Return the layer that writes "log" above the upper right corner of a panel.

    With a linear axis it is transparent, so that the titles of all panels are at the
    same height.
    """
    mark = {
        "type": "text",
        "text": "log",
        "align": "right",
        "baseline": "bottom",
        "dy": -1,
    }
    mark |= {
        "fontSize": 10,
        "color": GREY if logarithmic else "transparent",
        "tooltip": None,
    }
    corners = {"x": {"value": "width"}, "y": {"value": 0}}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": corners}


# Layers


def _layers(
    panel: Subplot,
    spec: FigureSpec,
    axes: Mapping[str, Json],
) -> list[Json]:
    """Return the layers of which the panel has records."""
    layers = []
    tooltip = _tooltip(panel, spec)
    for described in COMMON["layers"][spec.kind]:
        channels = {name: value for name, value in described.items() if name != "mark"}
        needed = [
            field
            for name, field in channels.items()
            if name in (*REQUIRED_CHANNELS, "strokeWidth")
        ]
        if not any(
            all(field in record for field in needed) for record in panel.records
        ):
            continue
        steps = [{"filter": " && ".join(f"isValid(datum.{field})" for field in needed)}]
        encoding: Json = {"tooltip": tooltip}
        for name, field in channels.items():
            # The second end of a span has the scale of the first.
            encoding[name] = axes.get(
                name, {} if name in REQUIRED_CHANNELS else OWN
            ) | {"field": field}
        if "shape" in channels:
            used = {record["marker"] for record in panel.records if "marker" in record}
            paths = {marker: COMMON["markers"][marker] for marker in sorted(used)}
            steps.append(
                {"calculate": f"{json.dumps(paths)}[datum.marker]", "as": "path"}
            )
            encoding["shape"] = OWN | {"field": "path"}
            encoding["strokeWidth"] = OWN | {"field": "edge"}
        if panel.colors and described["mark"]["type"] == "rect":
            encoding["fill"] = panel.colors
        mark = {"clip": True} | described["mark"]
        if mark["type"] == "bar":
            mark["size"] = round(BAR_HEIGHT * PIXELS_PER_INCH * spec.height)
        layers.append({"transform": steps, "mark": mark, "encoding": encoding})
    return layers


def _tooltip(panel: Subplot, spec: FigureSpec) -> list[Json]:
    """Return the tooltip of a mark: the fields that any record has."""
    named = {
        ".hue": spec.hue,
        ".style": spec.style,
        ".x": spec.x if spec.kind == "lines" else spec.row,
        ".value": spec.value,
        ".interval": COMMON["intervals"][spec.interval],
    }
    unused = (
        {"hue"}
        if spec.kind == "heatmap"
        else {"epsilon"}
        if spec.x == "epsilon"
        else set()
    )
    present = {name for record in panel.records for name in record} - unused
    if "dataset" in spec.panel:
        present -= {"dataset"}
    return [
        {
            "field": name,
            "title": named.get(title, title).replace("_", " "),
            "type": "nominal",
        }
        for name, title in COMMON["tooltip"].items()
        if name in present
    ]


# Sizes


def _panel_width(
    panels: Sequence[Subplot],
    columns: int,
    labels: float,
    share_rows: bool,
    y_title: str,
    width: float,
) -> float:
    """Return the width of a panel without its labels, in pixels."""
    own_titles = 0 if y_title else AXIS_TITLE * any(panel.y.title for panel in panels)
    with_labels = 1 if share_rows else columns
    taken = (
        columns * AXIS
        + with_labels * labels
        + columns * own_titles
        + SPACING * (columns - 1)
    )
    taken += AXIS_TITLE * bool(y_title)
    bars = [
        any(_has_bar(panel) for panel in panels[column::columns])
        for column in range(columns)
    ]
    return max((width - taken - COLOR_BAR * sum(bars)) / columns, MIN_PANEL_SIZE)


def _has_bar(panel: Subplot) -> bool:
    return panel.colors is not None and panel.colors["legend"] is not None


def _height(
    panel: Subplot,
    spec: FigureSpec,
    x_title: str,
) -> int:
    """Return the height of a panel in pixels: that of its rows, where it has rows."""
    if spec.kind == "heatmap":
        return round(PIXELS_PER_INCH * spec.height * max(3, len(panel.y.ticks)))
    if spec.kind == "forest":
        return round(PIXELS_PER_INCH * spec.height * (panel.y.high - panel.y.low))
    taken = TICKS + PANEL_TITLE * bool(panel.title) + AXIS_TITLE * (not x_title)
    return max(round(PIXELS_PER_INCH * spec.height - taken), MIN_PANEL_SIZE)


def _longest(labels: Iterable[str]) -> int:
    return max((len(line) for label in labels for line in label.split("\n")), default=0)


def wrapped(text: str, width: float) -> list[str]:
    """Return a title in as many lines as it takes.

    Examples
    --------
    >>> wrapped("with radius clipping", 100)
    ['with radius', 'clipping']
    """
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and TITLE_CHAR_WIDTH * len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# Legend


def _add_legend(
    concat: list[Json], entries: Sequence[Entry], spec: FigureSpec, width: float
) -> None:
    """Add the legend to the first panel; a click on an entry hides or shows its hue."""
    names = [label for label, _ in entries]
    marks = [mark_properties(line) for _, line in entries]
    beside = spec.legend == "right"
    # How far lines reach beyond a marker.
    beyond = (
        round((SAMPLE - 1) * UNIT) if any("width" in props for props in marks) else 0
    )
    legend = {
        "orient": "right" if beside else "top",
        "columns": 1 if beside else legend_columns(names, width / PIXELS_PER_INCH),
        "symbolOffset": beyond,
        "labelOffset": beyond + 4,
    }

    def scaled(values: list[Any]) -> Json:
        scale = {"domain": names, "range": values}
        return {"field": "hue", "type": "nominal", "scale": scale, "legend": legend}

    keys = {record["hue"] for panel in concat for record in panel["data"]["values"]}
    param = {
        "name": "shown",
        "select": {
            "type": "point",
            "fields": ["hue"],
            "toggle": "true",
            "clear": False,
        },
        "bind": "legend",
        "value": [{"hue": key} for key in sorted({*keys, *names})],
    }
    for panel in concat:
        panel["transform"] = [{"filter": {"param": "shown", "empty": False}}]
    # Only as the first layer does it always answer to clicks.
    concat[0]["layer"].insert(
        0,
        {
            "data": {"values": []},
            "params": [param],
            "mark": {"type": "point", "size": 0, "opacity": 0},
            "encoding": {
                "shape": scaled([sample(props) for props in marks]),
                "stroke": scaled([props["color"] for props in marks]),
                "fill": scaled([props["face"] for props in marks]),
            },
        },
    )


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Return how many legend columns fit into `width` inches."""
    for columns in range(len(labels), 1, -1):
        widest = [max(map(len, labels[column::columns])) for column in range(columns)]
        if sum(0.07 * length + 0.55 for length in widest) <= width:
            return columns
    return 1


def sample(props: Mapping[str, Any]) -> str:
    """Return the symbol of the legend: a piece of the line, the marker on it.

    Examples
    --------
    >>> sample({"width": 2.0})
    'M-4.5,0L4.5,0'
    >>> sample({"marker": "|", "size": 45})
    'M0,1L0,-1'
    """
    marker = COMMON["markers"][props["marker"]] if "marker" in props else ""
    if "width" not in props:
        return marker or COMMON["markers"]["s"]
    edge = 1.0 if marker else 0.0
    pieces = []
    lengths = [length / UNIT for length in props.get("dash", [2 * SAMPLE * UNIT, 1.0])]
    start = -SAMPLE
    while start < SAMPLE:
        end = min(start + lengths[0], SAMPLE)
        sides = (
            [(start, min(end, -edge)), (max(start, edge), end)]
            if marker
            else [(start, end)]
        )
        pieces += [f"M{a:.3g},0L{b:.3g},0" for a, b in sides if b - a > 1e-6]
        start = end + lengths[1]
    return "".join(pieces) + marker


# Pictures


def pictures(vega: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return a chart as PNG and as PDF, the same bytes for the same chart."""
    svg = vegalite_to_svg(json.dumps(vega, allow_nan=False))
    pdf = svg_to_pdf(svg)
    # The entries of a dictionary come in any order; in another one they are as long.
    pdf = re.sub(rb"(\n +/\w+ \d+ 0 R)+", lambda match: in_order(match[0]), pdf)
    return svg_to_png(svg, scale=RESOLUTION / PIXELS_PER_INCH), pdf


def in_order(lines: bytes) -> bytes:
    r"""Sort lines, each of which starts with its line break.

    Examples
    --------
    >>> in_order(b"\nb\na")
    b'\na\nb'
    """
    return b"".join(b"\n" + line for line in sorted(lines.split(b"\n")[1:]))
