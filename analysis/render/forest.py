"""Rows of marks or bars with intervals: one per method, data set or setting."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.figure_data import number_text
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import wants_log
from pkm.analysis.render.hue_styles import BLACK, DIAMOND, HueStyle, Styles, artist
from pkm.analysis.render.lines import draw_references
from pkm.analysis.render.panel import Panel, ordered

BETWEEN_GROUPS = 0.7  # space between groups, in rows
DODGE = 0.2  # space between the hues of one row, in rows
BAR = 0.82  # height of a bar, in rows
LINEAR_BELOW = 0.01  # below this value a symlog scale is linear
OF_METHOD = "method"  # stands for the color of the method of a mark


def prepare(
    table: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> Panel:
    """Return the rows of one panel with the places of their marks, stacked bars first.

    The table has `row_y`, the height of the row (NaN of level lines), `y`, that of the
    mark, and `start` and `end` of bars.
    """
    hues = list(dict.fromkeys([*spec.stacked, *styles]))
    table = table.sort_values(
        "hue", key=lambda column: column.map(hues.index), kind="stable"
    )
    places, names = _place_rows(table, spec)
    groups = table["group"] if "group" in table else [None] * len(table)
    rows = zip(groups, table["row"], strict=True)
    heights = [places.get(row, np.nan) for row in rows]

    shifts = {hue: style.shift for hue, style in styles.items()}
    if spec.dodge:
        without_marks = {*spec.stacked, *table.loc[table["row"].isna(), "hue"]}
        marks = [hue for hue in styles if hue not in without_marks]
        for order, hue in enumerate(marks):
            shifts[hue] += DODGE * (order - (len(marks) - 1) / 2)

    # A difference of measured times can be slightly below zero.
    lengths = table["value"].astype(float).clip(lower=0)
    lengths = lengths.where(table["hue"].isin(spec.stacked), 0.0)
    ends = lengths.groupby(heights).cumsum()
    shift = table["hue"].map(shifts).astype(float)
    table = table.assign(
        row_y=heights,
        y=heights + shift,
        start=ends - lengths,
        end=ends,
    )
    log = spec.y_scale == "log"
    if spec.y_scale == "auto" and not spec.stacked:
        log = wants_log(table["value"].to_numpy(dtype=float))
    return Panel(spec, table, styles, log, names)


def _place_rows(
    table: pd.DataFrame,
    spec: FigureSpec,
) -> tuple[dict[tuple[Any, Any], float], dict[float, str]]:
    """Return heights by group and row, from the top down, and the names at them.

    The first row of a group has the group's name before its own.
    """
    name_row = MethodStyles(table).label if spec.row == "method" else spec.format_name
    groups = ordered(table["group"], spec) if "group" in table else [None]
    places = {}
    names = {}
    height = 0.0
    for group in groups:
        members = table if group is None else table[table["group"] == group]
        rows = ordered(members["row"], spec)
        if spec.sort_rows:
            rows = members.sort_values("value", kind="stable")["row"].unique()
        heading = "" if group is None else spec.format_name(group)
        for row in rows:
            text = spec.row_label.format(name_row(row))
            names[height] = ",  ".join(filter(None, [heading, text]))
            places[group, row] = height
            height += 1
            heading = ""
        height += BETWEEN_GROUPS
    return places, names


def draw(
    axes: Axes,
    panel: Panel,
) -> None:
    """Draw rows: bars, marks, intervals, what is reported, and numbers at the right."""
    spec = panel.spec
    table = panel.table
    for hue, style in panel.styles.items():
        for row in table[table["hue"] == hue].to_dict("records"):
            _draw_mark(axes, row, style, spec)
    if "reported" in table:
        known = table.dropna(subset=["reported", "row_y"]).drop_duplicates("row_y")
        for row in known.itertuples():
            axes.plot([row.reported], [row.row_y], **artist(DIAMOND))
    by_row = table[table["hue"].isin(spec.span)].groupby("row_y")
    for y, rows in by_row:
        ends = rows["value"].agg(["min", "max"])
        color = method_color(rows.iloc[0])
        axes.plot(
            ends,
            [y, y],
            color=color,
            linewidth=1.4,
            zorder=1,
        )
    draw_references(axes, panel)

    if panel.log:
        axes.set_xscale("log")
    elif spec.y_scale == "symlog":
        axes.set_xscale("symlog", linthresh=LINEAR_BELOW)
    if spec.stacked or spec.y_zero:
        axes.set_xlim(left=0)
    axes.set_yticks(list(panel.names), list(panel.names.values()))
    axes.set_ylim(max(panel.names) + 0.7, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def _draw_mark(
    axes: Axes,
    row: Mapping,
    style: HueStyle,
    spec: FigureSpec,
) -> None:
    """Draw the mark of a value with its interval and its number."""
    line = in_method_color(style.line, method_color(row))
    if np.isnan(row["y"]):
        axes.axvline(row["value"], **artist(line | {"marker": None}))
        return
    if row["hue"] in spec.stacked:
        length = row["end"] - row["start"]
        axes.barh(
            row["y"],
            length,
            BAR,
            row["start"],
            color=line["color"],
            zorder=2,
        )
        return
    if row["low"] < row["high"]:
        ends = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
        axes.errorbar(
            row["value"],
            row["y"],
            xerr=np.clip(ends, 0, None),
            fmt="none",
            ecolor=line["color"],
            elinewidth=1.2,
            capsize=2,
            zorder=3,
        )
    axes.plot([row["value"]], [row["y"]], **artist(line | {"linestyle": ""}))
    text = number_text(spec.label, row)
    if text:
        at_right = axes.get_yaxis_transform()
        axes.text(
            1.01,
            row["y"],
            text,
            transform=at_right,
            va="center",
            size="small",
        )


def in_method_color(
    line: Mapping,
    color: str,
) -> dict:
    """Return a line style with a color in place of `OF_METHOD`."""
    return {key: color if value == OF_METHOD else value for key, value in line.items()}


def method_color(row: pd.Series | Mapping) -> str:
    """Return the color of the method of a row."""
    color = row.get("color")
    return color if isinstance(color, str) else BLACK
