"""Rows of marks or bars with intervals: one per method, data set or setting."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.frames import number_text
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import wants_log
from pkm.analysis.render.axes import Axis, Json, joined, rounded, value_axis
from pkm.analysis.render.heatmap import ordered
from pkm.analysis.render.style import BLACK, POINT, HueStyle, mark_properties
from pkm.analysis.render.subplot import (
    DIAMOND,
    REFERENCE,
    REPORTED,
    Subplot,
    hue_key,
    make_record,
    reference_record,
)

BETWEEN_GROUPS = 0.7  # rows
DODGE = 0.2  # rows between the hues of one row
TWO_LINES = 0.35  # inches of a row whose label may have two lines
LETTER = 6.5  # pixels of a letter of a number beside a mark
BESIDE = 14  # pixels from a mark to the end of its number, without its letters
PIXELS = 70  # of the value axis, for an inch of the panel
SPAN = 1.4 * POINT
LINEAR_BELOW = 0.01  # of a scale that is logarithmic above
OF_METHOD = "method"  # the color of marks that have that of the method of their row
Styles = Mapping[Any, HueStyle]


def row_places(table: pd.DataFrame, spec: FigureSpec) -> dict[tuple[Any, Any], float]:
    """Return the height of every row by group and row, from the top down."""
    groups = ordered(table["group"], spec) if "group" in table else [None]
    places = {}
    height = 0.0
    for group in groups:
        members = table if group is None else table[table["group"] == group]
        if spec.sort_rows:
            members = members.sort_values("value", kind="stable")
            rows = members["row"].unique()
        else:
            rows = ordered(members["row"], spec)
        for row in rows:
            places[group, row] = height
            height += 1
        height += BETWEEN_GROUPS
    return places


def placed_rows(
    table: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> pd.DataFrame:
    """Return the table of one panel with the places of its marks, stacked bars first.

    Returns
    -------
    DataFrame
        With `row_y`, the height of the row (NaN of level lines), `y`, that of the mark,
        and `start` and `end` of bars.
    """
    hues = [*spec.stacked, *(hue for hue in styles if hue not in spec.stacked)]
    table = table[table["hue"].isin(list(styles))]
    table = table.sort_values(
        "hue", key=lambda column: column.map(hues.index), kind="stable"
    )
    places = row_places(table, spec)
    groups = table["group"] if "group" in table else [None] * len(table)
    rows = zip(groups, table["row"], strict=True)
    heights = [places.get(row, np.nan) for row in rows]

    shifts = {hue: style.shift for hue, style in styles.items()}
    if spec.dodge:
        without_marks = {*spec.stacked, *find_levels(table)}
        marks = [hue for hue in styles if hue not in without_marks]
        for order, hue in enumerate(marks):
            shifts[hue] += DODGE * (order - (len(marks) - 1) / 2)

    # A difference of measured times can be slightly below zero.
    lengths = table["value"].astype(float).clip(lower=0)
    lengths = lengths.where(table["hue"].isin(spec.stacked), 0.0)
    ends = lengths.groupby(heights).cumsum()
    shift = table["hue"].map(shifts).astype(float)
    return table.assign(
        row_y=heights, y=heights + shift, start=ends - lengths, end=ends
    )


def panel(
    table: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> Subplot:
    """Return the rows of one panel: stacked bars, then marks, intervals and numbers.

    Hues without a row are level lines.
    """
    placed = placed_rows(table, spec, styles)
    x = _value_axis(table, spec)
    if spec.label:
        x = _with_room(x, placed, spec)
    format_name = spec.format_name
    if spec.row == "method":
        format_name = MethodStyles(table).label

    names = {}
    records = []
    for row in placed.to_dict("records"):
        if not np.isnan(row["y"]):
            names[row["row_y"]] = spec.row_label.format(format_name(row["row"]))
        text = names.get(row["row_y"], "")
        style = styles[row["hue"]]
        record = make_record(row, hue_key(row["hue"], style), text, spec)
        records.append(record | _mark(row, spec, style, x))
    diamond = mark_properties(DIAMOND | {"markersize": 8})
    for y, value in reported_values(placed):
        if x.low <= value <= x.high:
            place = {"at": y, "place": names[y], "value": rounded(value)}
            records.append({"hue": REPORTED} | place | diamond)
    for y, (low, high), color in spans(placed, spec):
        span = {"hue": REFERENCE, "at": y, "color": color, "width": SPAN}
        records.append(span | {"from": rounded(low), "to": rounded(high)})
    for entry in spec.references:
        records.append(reference_record(entry, level=reference_place(entry, table)))
    y = _row_axis(row_places(table, spec), spec, format_name)
    return Subplot(x, y, records)


def _mark(
    row: Mapping[str, Any],
    spec: FigureSpec,
    style: HueStyle,
    x: Axis,
) -> Json:
    """Return where the mark of a value is, its interval, its number and its look."""
    line = replace_method_color(style.line, method_color(row))
    props = mark_properties(line)
    if np.isnan(row["y"]):
        return props | {"level": rounded(row["value"])}
    mark = {name: item for name, item in props.items() if name not in ("width", "dash")}
    mark["at"] = row["y"]
    if row["hue"] in spec.stacked:
        mark.pop("marker", None)
        return mark | {name: rounded(row[name]) for name in ("start", "end")}
    low = row["low"]
    high = row["high"]
    if low < high:
        mark["bar_low"] = rounded(max(low, x.low))
        mark["bar_high"] = rounded(high)
    if spec.label:
        mark["text"] = number_text(spec.label, row)
        mark["beside"] = rounded(label_place(row, x))
        mark["ink"] = BLACK
    return mark


def replace_method_color(line: Mapping[str, Any], color: str) -> dict[str, Any]:
    """Return a line style with a color in place of `OF_METHOD`."""
    return {key: color if value == OF_METHOD else value for key, value in line.items()}


def reference_place(entry: Mapping[str, Any], table: pd.DataFrame) -> float:
    """Return where a reference line is; a name stands for a column of the panel."""
    x = entry["x"]
    return float(table[x].iloc[0] if isinstance(x, str) else x)


def find_levels(table: pd.DataFrame) -> set[Any]:
    """Return the hues without a row."""
    return set(table.loc[table["row"].isna(), "hue"])


def spans(
    placed: pd.DataFrame, spec: FigureSpec
) -> list[tuple[float, list[float], str]]:
    """Return height, ends and color of the lines that join marks of a row."""
    by_row = placed[placed["hue"].isin(spec.span)].groupby("row_y")
    ends = by_row["value"].agg(["min", "max"]).to_numpy().tolist()
    colors = [method_color(members.iloc[0]) for _, members in by_row]
    return list(zip(by_row.groups, ends, colors, strict=True))


def reported_values(placed: pd.DataFrame) -> list[tuple[float, float]]:
    """Return height and value of what a paper reports of the rows."""
    if "reported" not in placed:
        return []
    known = placed.dropna(subset=["reported", "row_y"]).drop_duplicates("row_y")
    return list(zip(known["row_y"], known["reported"], strict=True))


def method_color(row: pd.Series | Mapping[str, Any]) -> str:
    """Return the color of the method of a row."""
    color = row.get("color")
    return color if isinstance(color, str) else BLACK


def label_place(row: Mapping[str, Any], x: Axis) -> float:
    """Return the value beside which the number of a mark is written."""
    value = row["value"]
    ends = [value, row["high"], row.get("reported", np.nan)]
    return max(end for end in ends if end <= x.high or end == value)


# Axes


def _row_axis(
    places: Mapping[tuple[Any, Any], float], spec: FigureSpec, format_name: Any
) -> Axis:
    """Name the rows; the first one of a group has the group's name before its own."""
    labels = []
    named = set()
    for group, row in places:
        text = spec.row_label.format(format_name(row))
        if spec.height >= TWO_LINES:
            text = text.replace(" (", "\n(")
        if group is not None and group not in named:
            parts = [spec.format_name(group), text]
            text = ",  ".join(filter(None, parts))
            named.add(group)
        labels.append(text)
    ticks = tuple(map(rounded, places.values()))
    return Axis(-0.7, max(ticks) + 0.7, ticks, tuple(labels), reverse=True, grid=False)


def _value_axis(table: pd.DataFrame, spec: FigureSpec) -> Axis:
    """Return the value axis: all marks, intervals and reference lines are inside."""
    values = table["value"].to_numpy(dtype=float)
    places = [entry["x"] for entry in spec.references]
    references = [place for place in places if not isinstance(place, str)]
    lows = table["low"].fillna(table["value"])
    high = float(table["high"].fillna(table["value"]).max())
    top = max([high, *references])

    scale = spec.y_scale
    if scale == "auto":
        scale = "log" if not spec.stacked and wants_log(values) else "linear"
    if scale == "log":
        low = min([float(lows[lows > 0].min()), *references])
        return value_axis(low / 1.15, top * 1.15, "log")
    if scale == "symlog":
        low = -LINEAR_BELOW / 5
        return value_axis(low, 1.3 * max(high, LINEAR_BELOW), scale, LINEAR_BELOW)
    if spec.stacked or spec.y_zero:
        return value_axis(0.0, 1.1 * top if top > 0 else 1.0)
    low = min([float(lows.min()), *references])
    margin = 0.05 * (top - low) or 0.05 * abs(top) or 1.0
    return value_axis(low - margin, top + margin)


def _with_room(
    x: Axis,
    placed: pd.DataFrame,
    spec: FigureSpec,
) -> Axis:
    """Lengthen a value axis so that numbers beside marks are inside the panel."""
    longest = 1.0  # over the length of the given axis
    for row in placed.dropna(subset=["row_y"]).to_dict("records"):
        text = number_text(spec.label, row)
        pixels = LETTER * len(text) + BESIDE if text else 0.0
        share = min(pixels / (PIXELS * spec.width), 0.5)
        end = x.to_fraction(label_place(row, x))
        longest = max(longest, end / (1 - share))
    longer = value_axis(x.low, x.from_fraction(longest), x.scale, x.constant)
    return replace(longer, title=x.title)


def share_values(panels: Sequence[Subplot]) -> list[Subplot]:
    """Give all panels the same value axis."""
    axis = joined([panel.x for panel in panels])
    return [replace(panel, x=axis) for panel in panels]
