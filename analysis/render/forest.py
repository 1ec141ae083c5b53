"""Rows of marks or bars with their intervals: one row per method, data set or setting."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pkm.analysis.figure import FigureSpec
from pkm.analysis.frames import number_text
from pkm.analysis.render.heatmap import ordered
from pkm.analysis.render.layout import log_axis, symlog_axis, wants_log
from pkm.analysis.render.lines import REPORTED, reference_line
from pkm.analysis.render.style import INK, HueStyle, MethodStyles

BETWEEN_GROUPS = 0.7  # rows
DODGE = 0.2  # rows between the hues of one row
TWO_LINES = 0.35  # inches of a row whose label may have two lines
LABEL_POINTS = 7  # from the end of an interval to its number
OF_METHOD = "method"  # the color of marks that have that of the method of their row


def row_places(table: pd.DataFrame, spec: FigureSpec) -> dict[tuple[Any, Any], float]:
    """Return the height of every row by group and row, from the top down."""
    groups = ordered(table["group"], spec) if "group" in table else [None]
    places = {}
    height = 0.0
    for group in groups:
        members = table if group is None else table[table["group"] == group]
        rows = ordered(members["row"], spec)
        if spec.sort_rows:
            rows = list(members.sort_values("value", kind="stable")["row"].unique())
        for row in rows:
            places[group, row] = height
            height += 1
        height += BETWEEN_GROUPS
    return places


def panel_height(drawn: pd.DataFrame, spec: FigureSpec) -> float:
    """Return the height of the panels in inches; the height of a specification is that of a row."""
    panels = drawn.groupby("panel") if "panel" in drawn else [("", drawn)]
    longest = max(max(row_places(table, spec).values()) for _, table in panels)
    return spec.height * (longest + 1.4) + 0.7


def placed_rows(
    table: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]
) -> pd.DataFrame:
    """Return the lines of one panel with their places, stacked bars first.

    Returns
    -------
    DataFrame
        With `row_y`, the height of the row (NaN of level lines), `y`, that of the mark, and `start`
        and `end` of bars.
    """
    hues = [*spec.stacked, *(hue for hue in styles if hue not in spec.stacked)]
    table = table[table["hue"].isin(list(styles))]
    table = table.sort_values("hue", key=lambda column: column.map(hues.index), kind="stable")
    places = row_places(table, spec)
    groups = table["group"] if "group" in table else [None] * len(table)
    heights = [places.get(place, np.nan) for place in zip(groups, table["row"], strict=True)]
    marks = [hue for hue in styles if hue not in {*spec.stacked, *levels_of(table)}]
    shifts = {hue: style.shift for hue, style in styles.items()}
    for order, hue in enumerate(marks if spec.dodge else ()):
        shifts[hue] += DODGE * (order - (len(marks) - 1) / 2)

    # A difference of measured times can be slightly below zero.
    lengths = table["value"].astype(float).clip(lower=0)
    lengths = lengths.where(table["hue"].isin(spec.stacked), 0.0)
    ends = lengths.groupby(heights).cumsum()
    shift = table["hue"].map(shifts).astype(float)
    return table.assign(row_y=heights, y=heights + shift, start=ends - lengths, end=ends)


def draw(
    axes: Axes, table: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]
) -> dict[str, str]:
    """Draw the rows of one panel: stacked bars, then marks with their intervals and numbers.

    Hues without a row are level lines.
    """
    placed = placed_rows(table, spec, styles)
    for y, ends, color in spans(placed, spec):
        axes.plot(ends, [y, y], color=color, linewidth=1.4)
    for line in placed.to_dict("records"):
        style = styles[line["hue"]]
        if np.isnan(line["y"]):
            axes.axvline(line["value"], **(style.line | {"marker": None, "zorder": 1}))
        elif line["hue"] in spec.stacked:
            face = {"color": style.color, "edgecolor": "white", "linewidth": 0.25}
            axes.barh(line["y"], line["end"] - line["start"], 0.82, left=line["start"], **face)
        else:
            _mark(axes, line, spec, style)
    for y, value in reported_values(placed):
        axes.plot(value, y, markersize=8, zorder=1.9, **REPORTED)
    intervals = table.assign(
        low=table["low"].fillna(table["value"]), high=table["high"].fillna(table["value"])
    )
    _row_axis(axes, row_places(table, spec), spec, intervals)
    _value_axis(axes, intervals, spec)
    for entry in spec.references:
        axes.axvline(reference_place(entry, table), **(reference_line(entry) | {"zorder": 1}))
    return {}


def reference_place(entry: Mapping[str, Any], table: pd.DataFrame) -> float:
    """Return where a reference line is; a name stands for the column that has the panel's value."""
    return float(table[entry["x"]].iloc[0] if isinstance(entry["x"], str) else entry["x"])


def levels_of(table: pd.DataFrame) -> set[Any]:
    """Return the hues without a row."""
    return set(table.loc[table["row"].isna(), "hue"])


def spans(placed: pd.DataFrame, spec: FigureSpec) -> list[tuple[float, list[float], str]]:
    """Return height, ends and color of the lines that join the marks of some hues of a row."""
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


def method_color(line: pd.Series | Mapping[str, Any]) -> str:
    """Return the color of the method of a line."""
    return line["color"] if isinstance(line.get("color"), str) else INK


def _mark(axes: Axes, line: Mapping[str, Any], spec: FigureSpec, style: HueStyle) -> None:
    errors = [[line["value"] - line["low"]], [line["high"] - line["value"]]]
    shown = np.clip(np.nan_to_num(errors), 0, None)
    look = {key: value for key, value in style.line.items() if key not in ("label", "linestyle")}
    look = {key: method_color(line) if value == OF_METHOD else value for key, value in look.items()}
    bars = {"xerr": shown if shown.any() else None, "capsize": 2, "elinewidth": 1}
    axes.errorbar(line["value"], line["y"], linestyle="", **bars, **look)
    if spec.label:
        place = {"xytext": (LABEL_POINTS, 0), "textcoords": "offset points", "va": "center"}
        at = (label_place(line), line["y"])
        axes.annotate(number_text(spec.label, line), at, **place, fontsize=8, color=INK)


def label_place(line: Mapping[str, Any]) -> float:
    """Return the value beside which the number of a mark is written."""
    return np.nanmax([line["value"], line["high"], line.get("reported", np.nan)])


def _row_axis(
    axes: Axes, places: Mapping[tuple[Any, Any], float], spec: FigureSpec, table: pd.DataFrame
) -> None:
    """Name the rows; the first one of a group has the group's name before its own."""
    name_of = MethodStyles(table).label if spec.row == "method" else spec.name_of
    labels = []
    named = set()
    for group, row in places:
        text = spec.row_label.format(name_of(row))
        if spec.height >= TWO_LINES:
            text = text.replace(" (", "\n(")
        if group is not None and group not in named:
            text = ",  ".join(filter(None, [spec.name_of(group), text]))
            named.add(group)
        labels.append(text)
    axes.set_yticks(list(places.values()), labels, fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(max(places.values()) + 0.7, -0.7)


def share_row_labels(grid: Sequence[Axes], columns: int) -> None:
    """Name the rows in the first column alone where all panels have the same ones."""
    labels = [[text.get_text() for text in axes.get_yticklabels()] for axes in grid]
    if all(others == labels[0] for others in labels):
        for index, axes in enumerate(grid):
            if index % columns:
                axes.tick_params(labelleft=False)


def _value_axis(axes: Axes, table: pd.DataFrame, spec: FigureSpec) -> None:
    values = table["value"].to_numpy(dtype=float)
    if spec.y_scale == "log" or (spec.y_scale == "auto" and not spec.stacked and wants_log(values)):
        axes.set_xscale("log")
        levels = [entry["x"] for entry in spec.references if not isinstance(entry["x"], str)]
        low = min([table.loc[table["low"] > 0, "low"].min(), *levels])
        high = max([table["high"].max(), *levels])
        # Numbers at the marks need room on the right.
        room = (high / low) ** (0.12 if spec.label else 0.0)
        axes.set_xlim(low / 1.15, high * 1.15 * room)
        log_axis(axes.xaxis)
    elif spec.y_scale == "symlog":
        axes.set_xscale("symlog", linthresh=spec.linear_below, linscale=0.5)
        axes.set_xlim(-spec.linear_below / 5, 1.3 * max(table["high"].max(), spec.linear_below))
        symlog_axis(axes.xaxis, spec.linear_below)
    elif spec.stacked or spec.y_zero:
        axes.set_xlim(0, 1.1 * table["high"].max())
    elif spec.label:
        left, right = axes.get_xlim()
        axes.set_xlim(left, right + 0.1 * (right - left))
    axes.tick_params(axis="x", labelsize=8.5)


def share_value_axis(grid: Sequence[Axes], spec: FigureSpec) -> None:
    """Give the value axes of all panels the same limits."""
    limits = np.array([axes.get_xlim() for axes in grid])
    for axes in grid:
        axes.set_xlim(limits[:, 0].min(), limits[:, 1].max())
        if axes.get_xscale() == "log":
            log_axis(axes.xaxis)
        elif axes.get_xscale() == "symlog":
            symlog_axis(axes.xaxis, spec.linear_below)


def handle(style: HueStyle, spec: FigureSpec, hue: Any, levels: Container[Any]) -> Artist:
    """Return the entry of a hue in the legend."""
    if hue in spec.stacked:
        return Patch(color=style.color, label=style.label)
    absent = "marker" if hue in levels else "linestyle"
    line = {key: INK if value == OF_METHOD else value for key, value in style.line.items()}
    return Line2D([], [], **(line | {absent: ""}))
