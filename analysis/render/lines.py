"""Curves over a quantity, with bands or bars for their intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pkm.analysis.figure import FigureSpec
from pkm.analysis.render.heatmap import ordered
from pkm.analysis.render.layout import log_axis, plain_number, short_number, wants_log
from pkm.analysis.render.style import DOTTED, GREY, INK, HueStyle, variant_styles

MAX_TICKS = 8  # of an axis
MAX_BAND = 3.0  # factor by which a band goes below its curve on a logarithmic axis, where cut
MAX_RANGE = 1000.0  # factor by which a non-private level may be below the private curves
DODGE = 0.15  # largest shift of a curve on a logarithmic axis, as a power of 2
ROOM = 0.2  # share by which the x axis is lengthened for exponents
Curve = tuple[np.ndarray, np.ndarray]  # x and value
REPORTED = {"color": INK, "marker": "D", "markerfacecolor": "none", "linestyle": ""}


def draw(
    axes: Axes, table: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]
) -> dict[str, str]:
    """Draw the curves of one panel; hues without an x are level lines.

    Names on the x axis are drawn at equal distances; a column `curve` tells the curves of one hue
    apart.

    Returns
    -------
    dict of str to str
        Notes for the caption: ``log`` for a logarithmic value axis that the values asked for,
        ``outside`` with the level lines outside the limits, which the other curves set.
    """
    table = table[table["hue"].isin(list(styles))]
    names = [] if pd.api.types.is_numeric_dtype(table["x"]) else ordered(table["x"], spec)
    if names:
        table = table.assign(x=[float(names.index(name)) for name in table["x"]])
    if spec.interval == "none":
        table = table.assign(low=table["value"], high=table["value"])
    table = table.assign(
        low=table["low"].fillna(table["value"]), high=table["high"].fillna(table["value"])
    )
    logarithmic = _is_log(table, spec, styles)
    if logarithmic:
        table = _cut(table, spec)
    grid = np.unique(table["x"].dropna().to_numpy(dtype=float))
    grid = grid if grid.size else np.array([0.1, 1.0])
    for order, (hue, style) in enumerate(styles.items()):
        curves = table[table["hue"] == hue]
        shift = dodged(order, len(styles)) if spec.dodge else 1.0
        for line, curve in _curves(curves, spec, style):
            if not len(curve):
                continue
            if curve["x"].notna().any():
                _draw_curve(
                    axes, curve, spec, line | {"zorder": line.get("zorder", 10 + order)}, shift
                )
            else:
                _draw_level(axes, curve.iloc[0], grid, spec, style)
    _x_axis(axes, grid, spec)
    if names:
        axes.set_xticks(grid, [spec.name_of(name) for name in names])
    levels = [entry["y"] for entry in spec.references if "y" in entry]
    limiting = np.append(_limiting(table, styles), levels)
    set_value_axis(
        axes,
        limiting,
        table[table["hue"].map(lambda hue: not styles[hue].baseline)],
        logarithmic,
        spec.y_zero,
    )
    if spec.y_reversed:
        axes.invert_yaxis()
    for entry in spec.references:
        _draw_reference(axes, entry, _fitted(table, styles))
    if spec.exponents:
        _write_exponents(axes, _fitted(table, styles), styles)
    notes = {}
    if logarithmic and spec.y_scale == "auto":
        notes["log"] = ""
        place = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
        axes.text(1, 1, "log", fontsize=7.5, color=GREY, **place)
    outside = _outside(axes, table, styles)
    return notes | ({"outside": outside} if outside else {})


def dodged(order: int, count: int) -> float:
    """Return the factor by which the x of one of some curves is moved."""
    return 2.0 ** (DODGE * (2 * (order + 0.5) / count - 1))


def _is_log(table: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]) -> bool:
    if spec.y_scale == "auto":
        return wants_log(_limiting(table, styles, near=True))
    return spec.y_scale == "log" and bool((table["value"] > 0).any())


def _limiting(table: pd.DataFrame, styles: Mapping[Any, HueStyle], near: bool = True) -> np.ndarray:
    """Values that set scale and limits: of all curves but baselines, where there are others."""
    baseline = table["hue"].map(lambda hue: styles[hue].baseline).to_numpy(dtype=bool)
    values = table["value"].to_numpy(dtype=float)
    inside = values[~baseline] if (~baseline).any() else values
    curve_values = values[~baseline & table["x"].notna().to_numpy()]
    # A level that is almost exact would stretch a logarithmic axis over many empty decades.
    lowest = curve_values.min() / MAX_RANGE if near and curve_values.size else -np.inf
    return inside[(inside >= lowest) | (inside <= 0)]


def _cut(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """Cut the lower ends of bands, which may be below zero, on a logarithmic axis."""
    if not spec.cut:
        return table
    positive = table.loc[table["value"] > 0, "value"]
    floor = table["value"] / MAX_BAND if spec.cut == "point" else positive.min() / MAX_BAND
    low = np.fmax(table["low"], floor)
    return table.assign(low=low, high=np.fmax(table["high"], low))


def _curves(table: pd.DataFrame, spec: FigureSpec, style: HueStyle):
    """Yield the keywords and lines of each curve of a hue: one, or one for each `style`."""
    if "curve" in table:
        for _, part in table.groupby("curve", sort=False):
            yield from _curves(part.drop(columns="curve"), spec, style)
        return
    table = table.sort_values("x", kind="stable")
    if not spec.style:
        yield style.line, table
        return
    for value, variant in variant_styles(table, spec).items():
        changes = {key: item for key, item in variant.items() if key != "label"}
        yield style.line | changes, table[table["style"] == value]


def _draw_curve(
    axes: Axes, curve: pd.DataFrame, spec: FigureSpec, line: Mapping[str, Any], shift: float
) -> None:
    x, value, low, high = (
        curve[name].to_numpy(dtype=float) for name in ("x", "value", "low", "high")
    )
    x = x * shift
    if spec.bands == "bars":
        errors = np.clip([value - low, high - value], 0, None)
        shown = errors if errors.any() else None
        axes.errorbar(x, value, yerr=shown, capsize=2.5, elinewidth=1.2, **line)
        return
    axes.plot(x, value, **line)
    if line["zorder"] > 2 and spec.interval != "none":
        axes.fill_between(x, low, high, color=line["color"], alpha=0.16, linewidth=0, zorder=3)


def _draw_level(
    axes: Axes, line: pd.Series, grid: np.ndarray, spec: FigureSpec, style: HueStyle
) -> None:
    """Draw a level line over the panel; with its band over the grid where asked."""
    keywords = style.line | {"zorder": 2}
    if not spec.level_bands:
        axes.axhline(line["value"], **(keywords | {"marker": None}))
        return
    axes.plot(grid, np.full(grid.size, line["value"]), **keywords)
    if not style.baseline:
        low, high = (np.full(grid.size, line[name]) for name in ("low", "high"))
        axes.fill_between(grid, low, high, color=style.color, alpha=0.16, linewidth=0, zorder=1)


def _outside(axes: Axes, table: pd.DataFrame, styles: Mapping[Any, HueStyle]) -> str:
    """Name the level lines outside the limits, with their values; empty without any."""
    bottom, top = axes.get_ylim()
    levels = table[table["x"].isna()]
    texts = [
        f"{styles[line.hue].short_label} {line.value:.3g}"
        for line in levels.itertuples()
        if not bottom <= line.value <= top
    ]
    return ", ".join(texts)


# --- axes ---------------------------------------------------------------------------------------


def _x_axis(axes: Axes, grid: np.ndarray, spec: FigureSpec) -> None:
    """Set scale and ticks of the x axis at the values of the grid, thinned where they are many."""
    if spec.x_scale == "linear":
        margin = 0.03 * max(np.ptp(grid), 1e-9)
        axes.set_xlim(grid[0] - margin, grid[-1] + margin)
        # Labels of values that are close together would touch.
        ticks = [grid[0]]
        for value in grid[1:]:
            if value - ticks[-1] >= np.ptp(grid) / MAX_TICKS / 1.3:
                ticks.append(value)
    else:
        base = 2 if spec.x_scale == "log2" else 10
        axes.set_xscale("log", base=base)
        margin = max((grid[-1] / grid[0]) ** 0.04, 2 ** (2 * DODGE) if spec.dodge else 1.05)
        axes.set_xlim(grid[0] / margin, grid[-1] * margin)
        ticks = grid[:: -(-grid.size // MAX_TICKS)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    axes.tick_params(labelsize=8.5)
    if spec.x_reversed:
        axes.invert_xaxis()


def set_value_axis(
    axes: Axes, values: np.ndarray, bands: pd.DataFrame, logarithmic: bool, zero: bool = False
) -> None:
    """Set scale and limits of a value axis.

    Values stay inside. Bands may be cut: the band of a heavy-tailed method would otherwise set the
    scale.
    """
    if not values.size:
        return
    top = values.max()
    bottom = values.min()
    highest = max(bands["high"].max(), top) if len(bands) else top
    if logarithmic:
        bottom = values[values > 0].min()
        positive = bands.loc[bands["low"] > 0, "low"]
        lowest = max(min(positive.min(), bottom) if len(positive) else bottom, bottom / 2)
        axes.set_yscale("log")
        axes.set_ylim(lowest / 1.15, min(highest, 3 * top) * 1.15)
        log_axis(axes.yaxis)
        return
    reach = max(top - bottom, 0.02 * max(abs(top), abs(bottom)), 1e-12)
    lowest = max(min(bands["low"].min(), bottom) if len(bands) else bottom, bottom - 0.6 * reach)
    highest = min(highest, top + 0.6 * reach)
    lowest = min(lowest, 0.0) if zero else lowest
    margin = 0.06 * (highest - lowest) + 1e-12
    axes.set_ylim(lowest - (0 if zero else margin), highest + margin)
    value_ticks(axes)


def value_ticks(axes: Axes) -> None:
    """Set the ticks of a value axis by its scale."""
    if axes.get_yscale() == "log":
        log_axis(axes.yaxis)
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
        axes.locator_params(axis="y", nbins=5)


# --- reference lines ----------------------------------------------------------------------------


def reference_line(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of a reference line: changes of its look, and `x`, `y` or `slope`."""
    look = {"color": GREY, "linestyle": DOTTED, "linewidth": 1.2}
    return look | {key: value for key, value in entry.items() if key not in ("x", "y", "slope")}


def _draw_reference(axes: Axes, entry: Mapping[str, Any], curves: Mapping[Any, Curve]) -> None:
    """Draw a level, or a power of x through the middle of the first curve."""
    line = reference_line(entry) | {"zorder": 1}
    if "slope" in entry:
        if curves:
            x, value = next(iter(curves.values()))
            middle = [np.exp(np.log(ends).mean()) for ends in (x, value)]
            axes.plot(x, middle[1] * (x / middle[0]) ** entry["slope"], **line)
        return
    if "y" in entry:
        axes.axhline(entry["y"], **line)
    else:
        axes.axvline(entry["x"], **line)


# --- exponents ----------------------------------------------------------------------------------


def _fitted(table: pd.DataFrame, styles: Mapping[Any, HueStyle]) -> dict[Any, Curve]:
    """Return the curves that a power of x can be fitted to: two values or more, all positive.

    Curves are x and value by hue; baselines have no exponent.
    """
    curves = {}
    for hue in (name for name, style in styles.items() if not style.baseline):
        curve = table[(table["hue"] == hue) & table["x"].notna()].sort_values("x")
        x, value = (curve[name].to_numpy(dtype=float) for name in ("x", "value"))
        if x.size > 1 and (value > 0).all():
            curves[hue] = x, value
    return curves


def _write_exponents(
    axes: Axes, curves: Mapping[Any, Curve], styles: Mapping[Any, HueStyle]
) -> None:
    """Write the exponents of the fitted powers of x at the right, by height of the curves' ends."""
    left, right = axes.get_xlim()
    logarithmic = axes.get_xscale() == "log"
    room = (right / left) ** ROOM if logarithmic else ROOM * (right - left)
    axes.set_xlim(left, right * room if logarithmic else right + room)
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = {hue: to_axes.transform((x[-1], value[-1]))[1] for hue, (x, value) in curves.items()}
    hues = sorted(ends, key=ends.__getitem__)
    for hue, height in zip(hues, separated([ends[hue] for hue in hues]), strict=True):
        marker = dict(styles[hue].line) | {"linestyle": "", "label": None}
        axes.plot(0.86, height, transform=axes.transAxes, **marker)
        x, value = curves[hue]
        text = f"{np.polyfit(np.log(x), np.log(value), 1)[0]:.2f}"
        place = {"transform": axes.transAxes, "va": "center", "fontsize": 8}
        axes.text(0.89, height, text, color=styles[hue].color, **place)


def separated(heights: Sequence[float], gap: float = 0.06, top: float = 0.97) -> list[float]:
    """Move increasing heights up until they differ by `gap`, then down from the top where needed.

    Examples
    --------
    >>> [round(height, 3) for height in separated([0.1, 0.11, 0.5, 0.96, 0.96])]
    [0.1, 0.16, 0.5, 0.91, 0.97]
    """
    placed = list(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], top - gap * (len(placed) - 1 - i))
    return placed
