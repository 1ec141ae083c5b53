"""Curves over a quantity, with bands or bars for their intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.styles import shorten
from pkm.analysis.figures.texts import short_number, wants_log
from pkm.analysis.render.hue_styles import Styles, artist, variant_styles
from pkm.analysis.render.panel import Panel, ordered

LETTER = 0.6  # width of a letter of a tick label, as a share of the font size
BETWEEN = 1.2  # least space between two tick labels, as a share of the font size
INSIDE = 0.75  # width of the axes, as a share of that of their panel
#: Factor by which a band may go below its curve on a logarithmic axis.
MAX_BAND = 3.0
#: Factor by which a non-private level may be below the private curves.
MAX_RANGE = 1000.0
DODGE = 0.15  # largest shift of a curve on a logarithmic axis, as a power of 2
BAND = 0.16  # opacity


def prepare(
    table: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> Panel:
    """Return the curves of one panel; hues without an x are level lines.

    Names on the x axis are drawn at equal distances; a column `curve` tells the curves
    of one hue apart. `shown_low` and `shown_high` are the ends of bands, `baseline`
    tells which rows set no limits.
    """
    baseline = [styles[hue].baseline for hue in table["hue"]]
    table = table.assign(baseline=np.array(baseline, dtype=bool))
    names = []
    if not pd.api.types.is_numeric_dtype(table["x"]):
        names = ordered(table["x"], spec)
        table = table.assign(x=[float(names.index(name)) for name in table["x"]])
    value = table["value"]
    low = value
    high = value
    if spec.interval != "none":
        low = table["low"].fillna(value)
        high = table["high"].fillna(value)
    is_positive = value > 0
    log = spec.y_scale == "log" and bool(is_positive.any())
    if spec.y_scale == "auto":
        log = wants_log(_limiting(table))
    if log and spec.cut:
        # The lower ends of bands may be below zero.
        largest = value if spec.cut == "point" else value[is_positive].min()
        low = np.fmax(low, largest / MAX_BAND)
        high = np.fmax(high, low)
    table = table.assign(shown_low=low, shown_high=high)
    labels = {float(place): spec.format_name(name) for place, name in enumerate(names)}
    return Panel(spec, table, styles, log, labels)


def split_curves(table: pd.DataFrame) -> pd.DataFrame:
    """Add `piece`: how many values of its curve, before a row, are not finite."""
    table = table.reset_index(drop=True)
    keys = list(table.filter(["panel", "hue", "style", "curve"]))
    value = table.sort_values("x", kind="stable")["value"].astype(float)
    columns = [table[key] for key in keys]
    is_gap = ~(value.abs() < np.inf)
    by_curve = is_gap.groupby(
        columns,
        dropna=False,
        observed=True,
    )
    return table.assign(piece=by_curve.cumsum())


def curves(panel: Panel) -> Iterator[tuple[Any, dict, pd.DataFrame]]:
    """Yield the curves and levels of a panel: hue, style, rows by x.

    Levels have one row, whose x is missing.
    """
    spec = panel.spec
    table = panel.table
    variants = variant_styles(table, spec) if spec.style else {}
    keys = list(table.filter(["hue", "style", "curve", "piece"]))
    for order, (hue, style) in enumerate(panel.styles.items()):
        rows = table[table["hue"] == hue]
        rows = rows.sort_values("x", kind="stable")
        level = rows.index.where(rows["x"].isna())
        pieces = rows.groupby(
            [*(rows[key] for key in keys), level],
            sort=False,
            dropna=False,
            observed=True,
        )
        for _, piece in pieces:
            line = {"zorder": 10 + order} | style.line
            if variants:
                line |= variants[piece["style"].iloc[0]]
            yield hue, line, piece


def draw(
    axes: Axes,
    panel: Panel,
) -> None:
    """Draw the curves of a panel."""
    spec = panel.spec
    hues = list(panel.styles)
    for hue, line, rows in curves(panel):
        value = rows["value"]
        low = rows["shown_low"]
        high = rows["shown_high"]
        with_interval = (low < high).any() and line["zorder"] > 2
        band = {
            "color": line["color"],
            "alpha": BAND,
            "linewidth": 0,
        }
        if rows["x"].isna().all():
            axes.axhline(value.iloc[0], **artist(line | {"marker": None}))
            is_shown = spec.level_bands and not panel.styles[hue].baseline
            if is_shown and with_interval:
                axes.axhspan(low.iloc[0], high.iloc[0], **band)
            continue
        x = rows["x"]
        if spec.dodge:
            # Curves differ by equal factors.
            place = 2 * (hues.index(hue) + 0.5) / len(hues) - 1
            x = x * 2.0 ** (DODGE * place)
        if with_interval and spec.bands == "bars":
            lengths = [value - low, high - value]
            axes.errorbar(
                x,
                value,
                np.clip(lengths, 0, None),
                fmt="none",
                ecolor=line["color"],
                elinewidth=1.2,
                capsize=2.5,
                zorder=line["zorder"],
            )
        elif with_interval:
            axes.fill_between(x, low, high, **band)
        axes.plot(x, value, **artist(line))
    draw_references(axes, panel)

    if panel.log:
        axes.set_yscale("log")
    axes.set_ylim(*limits(panel))
    if spec.y_reversed:
        axes.invert_yaxis()
    _set_x_axis(axes, panel)
    if spec.exponents:
        _write_exponents(axes, panel)


def draw_references(
    axes: Axes,
    panel: Panel,
) -> None:
    """Draw the reference lines of a panel."""
    for entry in panel.spec.references:
        line = artist(reference_line(entry))
        if "y" in entry:
            axes.axhline(entry["y"], **line)
        else:
            axes.axvline(reference_place(entry, panel.table), **line)


def reference_place(
    entry: Mapping,
    table: pd.DataFrame,
) -> float:
    """Return where a reference line is; a name stands for a column of the panel."""
    x = entry["x"]
    return float(table[x].iloc[0] if isinstance(x, str) else x)


def reference_line(entry: Mapping) -> dict:
    """Return how a reference line is drawn: by default grey and dotted."""
    default = {
        "color": "#8c8c8c",
        "linestyle": ":",
        "linewidth": 1.2,
        "marker": "",
    }
    line = default | dict(entry)
    for key in ("x", "y"):
        line.pop(key, None)
    return line


# Axes


def _set_x_axis(
    axes: Axes,
    panel: Panel,
) -> None:
    """Put ticks at the grid's values, thinned where they are many."""
    spec = panel.spec
    x = panel.table["x"].dropna()
    grid = np.unique(x.to_numpy(dtype=float))
    if panel.names:
        axes.set_xticks(list(panel.names), list(panel.names.values()))
    elif grid.size:
        ticks = spec.x_ticks or _choose_ticks(axes, grid, spec)
        if spec.x_scale != "linear":
            axes.set_xscale("log")
        axes.set_xticks(ticks, list(map(short_number, ticks)))
        axes.minorticks_off()
    if spec.x_reversed:
        axes.invert_xaxis()


def _choose_ticks(
    axes: Axes,
    grid: np.ndarray,
    spec: FigureSpec,
) -> np.ndarray:
    """Choose values of a grid whose labels do not touch, from the smallest up.

    Where these are few of many on a linear axis, round numbers take their place.
    """
    places = grid if spec.x_scale == "linear" else np.log(grid)
    # The width of a label, as a share of that of the axes.
    longest = max(len(short_number(value)) for value in grid)
    letters = LETTER * longest + BETWEEN
    size = matplotlib.rcParams["xtick.labelsize"] / 72
    columns = axes.get_subplotspec().get_gridspec().ncols
    width = INSIDE * axes.figure.get_figwidth()
    share = letters * size * columns / width
    # Differences of values are rounded.
    distance = np.ptp(places) * share - 1e-9
    chosen = [0]
    for index in range(1, grid.size):
        last = places[chosen[-1]]
        if places[index] - last >= distance:
            chosen.append(index)
    if spec.x_scale == "linear" and 2 * len(chosen) < grid.size:
        low = grid[0]
        high = grid[-1]
        locator = MaxNLocator(5, steps=[1, 2, 5, 10])
        ticks = locator.tick_values(low, high)
        is_inside = (ticks >= low) & (ticks <= high)
        return ticks[is_inside]
    return grid[chosen]


def _limiting(table: pd.DataFrame) -> np.ndarray:
    """Return the values that set scale and limits: without baselines, if possible."""
    others = table[~table["baseline"]]
    limiting = others if len(others) else table
    values = limiting["value"].to_numpy(dtype=float)
    # A level that is almost exact would stretch a logarithmic axis over many empty
    # decades.
    is_curve = others["x"].notna()
    lowest = others["value"][is_curve].min() / MAX_RANGE
    is_far = (values < lowest) & (values > 0)
    return values[~is_far]


def limits(panel: Panel) -> tuple[float, float]:
    """Return the limits of the axis of values.

    Values are inside. Bands may be cut: the band of a heavy-tailed method would
    otherwise set the scale.
    """
    table = panel.table
    spec = panel.spec
    levels = [entry["y"] for entry in spec.references if "y" in entry]
    values = np.append(_limiting(table), levels)
    if not values.size:
        return 0.0, 1.0
    bands = table[~table["baseline"]]
    top = values.max()
    highest = np.fmax(bands["shown_high"].max(), top)
    lows = bands["shown_low"]
    if panel.log:
        bottom = values[values > 0].min()
        lowest = min([bottom, *lows[lows > 0]])
        low = max(lowest, bottom / 2) / 1.15
        high = min(highest, 3 * top) * 1.15
        return float(low), float(high)
    bottom = values.min()
    largest = max(abs(top), abs(bottom))
    reach = max(top - bottom, 0.02 * largest, 1e-12)
    lowest = np.fmin(lows.min(), bottom)
    low = max(lowest, bottom - 0.6 * reach)
    high = min(highest, top + 0.6 * reach)
    if spec.y_zero:
        low = min(low, 0.0)
    margin = 0.06 * (high - low) + 1e-12
    if not spec.y_zero:
        low -= margin
    return float(low), float(high + margin)


def outside(panel: Panel) -> str:
    """Name the level lines outside the limits, with their values; empty without any."""
    levels = panel.table[panel.table["x"].isna()]
    is_inside = levels["value"].between(*limits(panel))
    return ", ".join(
        f"{shorten(panel.styles[level.hue].label)} {level.value:.3g}"
        for level in levels[~is_inside].itertuples()
    )


# Exponents


def _write_exponents(
    axes: Axes,
    panel: Panel,
) -> None:
    """Write the powers of x that fit the curves, by height of the curves' ends.

    Curves of two values or more, all positive, have one; baselines have none.
    """
    powers = []
    for hue, style in panel.styles.items():
        rows = panel.table[panel.table["hue"] == hue]
        curve = rows.dropna(subset="x").sort_values("x")
        x, value = curve[["x", "value"]].to_numpy(dtype=float).T
        if not style.baseline and x.size > 1 and (value > 0).all():
            exponent, _ = np.polyfit(np.log(x), np.log(value), 1)
            handle = Line2D([], [], **artist(style.line))
            powers.append((value[-1], f"{exponent:z.2f}", handle))
    if not powers:
        return
    powers.sort(key=lambda power: -power[0])
    _, exponents, handles = zip(*powers, strict=True)
    axes.legend(
        handles,
        exponents,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        borderpad=0,
        handlelength=1.2,
        handletextpad=0.3,
    )


def share_limits(
    all_axes: Sequence[Axes],
    axis: str,
) -> None:
    """Give panels the same axis of values."""
    views = [getattr(axes, f"get_{axis}lim")() for axes in all_axes]
    low = np.min(views)
    high = np.max(views)
    for axes in all_axes:
        axes.set(**{f"{axis}lim": (low, high)})
