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


def draw(
    axes: Axes, table: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]
) -> dict[str, str]:
    """Draw the rows of one panel: stacked bars, then marks with their intervals and numbers.

    Hues without a row are level lines.
    """
    places = row_places(table, spec)
    intervals = table.assign(
        low=table["low"].fillna(table["value"]), high=table["high"].fillna(table["value"])
    )
    levels = levels_of(table)
    marks = [hue for hue in styles if hue not in spec.stacked and hue not in levels]
    for (group, row), y in places.items():
        in_row = intervals["row"] == row
        if group is not None:
            in_row &= intervals["group"] == group
        by_hue = intervals[in_row].set_index("hue")
        _stack(axes, y, by_hue, spec, styles)
        _span(axes, y, by_hue, spec)
        for order, hue in enumerate(marks):
            if hue in by_hue.index:
                shift = DODGE * (order - (len(marks) - 1) / 2) if spec.dodge else 0.0
                for _, line in by_hue.loc[[hue]].iterrows():
                    _mark(axes, y + shift, line, spec, styles[hue])
        if "reported" in by_hue and by_hue["reported"].notna().any():
            axes.plot(by_hue["reported"].dropna().iloc[0], y, markersize=8, zorder=1.9, **REPORTED)
    for line in intervals[intervals["row"].isna()].itertuples():
        axes.axvline(line.value, **(styles[line.hue].line | {"marker": None, "zorder": 1}))
    _row_axis(axes, places, spec, intervals)
    _value_axis(axes, intervals, spec)
    for entry in spec.references:
        # A name stands for the column that has the panel's value.
        x = table[entry["x"]].iloc[0] if isinstance(entry["x"], str) else entry["x"]
        axes.axvline(x, **(reference_line(entry) | {"zorder": 1}))
    return {}


def levels_of(table: pd.DataFrame) -> set[Any]:
    """Return the hues without a row."""
    return set(table.loc[table["row"].isna(), "hue"])


def _stack(
    axes: Axes,
    y: float,
    by_hue: pd.DataFrame,
    spec: FigureSpec,
    styles: Mapping[Any, HueStyle],
) -> None:
    start = 0.0
    for hue in spec.stacked:
        if hue in by_hue.index:
            # A difference of measured times can be slightly below zero.
            width = max(by_hue.at[hue, "value"], 0)
            face = {"color": styles[hue].color, "edgecolor": "white", "linewidth": 0.25}
            axes.barh(y, width, 0.82, left=start, **face)
            start += width


def _span(axes: Axes, y: float, by_hue: pd.DataFrame, spec: FigureSpec) -> None:
    """Join the marks of some hues of a row by a line."""
    members = by_hue[by_hue.index.isin(spec.span)]
    if len(members):
        ends = [members["value"].min(), members["value"].max()]
        axes.plot(ends, [y, y], color=method_color(members.iloc[0]), linewidth=1.4)


def method_color(line: pd.Series) -> str:
    """Return the color of the method of a line."""
    return line["color"] if isinstance(line.get("color"), str) else INK


def _mark(axes: Axes, y: float, line: pd.Series, spec: FigureSpec, style: HueStyle) -> None:
    y += style.shift
    errors = np.clip([[line["value"] - line["low"]], [line["high"] - line["value"]]], 0, None)
    shown = errors if errors.any() else None
    look = {key: value for key, value in style.line.items() if key not in ("label", "linestyle")}
    look = {key: method_color(line) if value == OF_METHOD else value for key, value in look.items()}
    axes.errorbar(line["value"], y, xerr=shown, capsize=2, elinewidth=1, linestyle="", **look)
    if spec.label:
        text = number_text(spec.label, line)
        end = np.fmax(line["high"], line.get("reported", np.nan))
        place = {"xytext": (LABEL_POINTS, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(text, (end, y), **place, fontsize=8, color=INK)


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
