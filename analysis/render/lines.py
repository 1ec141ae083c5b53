"""Curves over a quantity, with bands or bars for their intervals."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.texts import short_number, wants_log
from pkm.analysis.render.axes import Axis, Json, joined, rounded, value_axis
from pkm.analysis.render.heatmap import ordered
from pkm.analysis.render.style import HueStyle, mark_properties, variant_styles
from pkm.analysis.render.subplot import Subplot, hue_key, make_record, reference_record

MAX_TICKS = 8  # of the x axis
#: Factor by which a band may go below its curve on a logarithmic axis.
MAX_BAND = 3.0
#: Factor by which a non-private level may be below the private curves.
MAX_RANGE = 1000.0
DODGE = 0.15  # largest shift of a curve on a logarithmic axis, as a power of 2
EXPONENTS_SHARE = 0.2  # by which the x axis is lengthened for exponents
Curve = tuple[np.ndarray, np.ndarray]  # x and value
Styles = Mapping[Any, HueStyle]


def panel(
    table: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> Subplot:
    """Return the curves of one panel; hues without an x are level lines.

    Names on the x axis are drawn at equal distances; a column `curve` tells the curves
    of one hue apart.
    """
    table = table[table["hue"].isin(list(styles))]
    names = []
    if not pd.api.types.is_numeric_dtype(table["x"]):
        names = ordered(table["x"], spec)
    table = table.assign(place=table["x"])
    if names:
        table = table.assign(x=[float(names.index(name)) for name in table["x"]])

    # Ends of the intervals as they are drawn.
    for end in ("low", "high"):
        shown = table["value"]
        if spec.interval != "none":
            shown = table[end].fillna(shown)
        table = table.assign(**{f"shown_{end}": shown})
    logarithmic = _is_log(table, spec, styles)
    if logarithmic:
        table = _clip_intervals(table, spec)

    y = _value_axis(table, spec, styles, logarithmic)
    x = _x_axis(table, spec)
    if names:
        places = tuple(map(float, range(len(names))))
        x = replace(x, ticks=places, labels=tuple(map(spec.format_name, names)))
    records = list(itertools.chain(*_curves(table, spec, styles, y)))
    fitted = _fitted(table, styles)
    for entry in spec.references:
        records += _reference(entry, fitted)
    if spec.exponents:
        x = replace(x, high=x.from_fraction(1 + EXPONENTS_SHARE))
        records += _exponents(x, y, fitted, styles)

    notes = {}
    if logarithmic and spec.y_scale == "auto":
        notes["log"] = ""
    outside = _outside(y, table, styles)
    if outside:
        notes["outside"] = outside
    return Subplot(x, y, records, notes)


def share_values(panels: Sequence[Subplot]) -> list[Subplot]:
    """Give all panels the same value axis."""
    axis = joined([panel.y for panel in panels])
    return [replace(panel, y=axis) for panel in panels]


# What is drawn


def _curves(
    table: pd.DataFrame, spec: FigureSpec, styles: Styles, y: Axis
) -> Iterator[list[Json]]:
    """Yield the records of each hue, from back to front."""
    order = {hue: place for place, hue in enumerate(styles)}
    variants = variant_styles(table, spec) if spec.style else {}

    def depth(hue: Any) -> int:
        return styles[hue].line.get("zorder", 10 + order[hue])

    for hue in sorted(styles, key=depth):
        style = styles[hue]
        shift = dodged(order[hue], len(styles)) if spec.dodge else 1.0
        rows = table[table["hue"] == hue].sort_values("x", kind="stable")
        records = []
        for row in rows.to_dict("records"):
            is_level = pd.isna(row["x"])
            text = "" if is_level else spec.format_name(row["place"])
            record = make_record(row, hue_key(hue, style), text, spec)
            change = {}
            if variants:
                variant = variants[row["style"]]
                change = {key: item for key, item in variant.items() if key != "label"}
                record["style"] = variant["label"]
            props = mark_properties(style.line | change)
            if is_level:
                props.pop("marker", None)
                record |= props | _level(row, spec, style, y)
            elif y.scale != "log" or row["value"] > 0:
                curve = [hue, row.get("style"), row.get("curve")]
                place = {"at": rounded(row["x"] * shift), "curve": f"{curve}"}
                record |= props | place | _interval(row, spec, style, y)
            records.append(record)
        yield records


def _interval(
    row: Mapping[str, Any], spec: FigureSpec, style: HueStyle, y: Axis
) -> Json:
    """Return the ends of a band or a bar that a logarithmic axis can show."""
    low = row["shown_low"]
    high = row["shown_high"]
    if not low < high or style.line.get("zorder", 10) <= 2:
        return {}
    if y.scale == "log":
        low = max(low, y.low)
    kind = "bar" if spec.bands == "bars" else "band"
    return {f"{kind}_low": rounded(low), f"{kind}_high": rounded(high)}


def _level(
    row: Mapping[str, Any],
    spec: FigureSpec,
    style: HueStyle,
    y: Axis,
) -> Json:
    """Return where a level line is, with the ends of its band where asked."""
    level = {"level": rounded(row["value"])}
    low = row["shown_low"]
    high = row["shown_high"]
    if spec.level_bands and not style.baseline and low < high:
        if y.scale == "log":
            low = max(low, y.low)
        level |= {"band_level": rounded(low), "band_top": rounded(high)}
    return level


def dodged(order: int, count: int) -> float:
    """Return the factor by which the x of one of some curves is moved."""
    return 2.0 ** (DODGE * (2 * (order + 0.5) / count - 1))


def _clip_intervals(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """Clip the lower ends of bands, which may be below zero, on a logarithmic axis."""
    if not spec.cut:
        return table
    value = table["value"]
    largest = value if spec.cut == "point" else value[value > 0].min()
    low = np.fmax(table["shown_low"], largest / MAX_BAND)
    high = np.fmax(table["shown_high"], low)
    return table.assign(shown_low=low, shown_high=high)


def _outside(
    y: Axis,
    table: pd.DataFrame,
    styles: Styles,
) -> str:
    """Name the level lines outside the limits, with their values; empty without any."""
    levels = table[table["x"].isna()]
    is_inside = levels["value"].between(y.low, y.high)
    texts = [
        f"{styles[level.hue].short_label} {level.value:.3g}"
        for level in levels[~is_inside].itertuples()
    ]
    return ", ".join(texts)


def _reference(entry: Mapping[str, Any], curves: Mapping[Any, Curve]) -> list[Json]:
    """Return a level, or a power of x through the middle of the first curve."""
    if "y" in entry:
        return [reference_record(entry, level=entry["y"])]
    if "x" in entry:
        return [reference_record(entry, level_x=entry["x"])]
    if not curves:
        return []
    x, value = next(iter(curves.values()))
    middle = np.exp(np.log(x).mean())
    height = np.exp(np.log(value).mean())
    records = []
    for end in (x[0], x[-1]):
        at_end = height * (end / middle) ** entry["slope"]
        place = {"at": rounded(end), "value": rounded(at_end)}
        records.append(reference_record(entry, **place, curve=f"{entry}"))
    return records


# Axes


def _x_axis(table: pd.DataFrame, spec: FigureSpec) -> Axis:
    """Return the x axis: ticks at the grid's values, thinned where they are many."""
    grid = np.unique(table["x"].dropna().to_numpy(dtype=float))
    if not grid.size:
        grid = np.array([0.1, 1.0])
    first = grid[0]
    last = grid[-1]
    if spec.x_scale == "linear":
        scale = "linear"
        margin = 0.03 * max(last - first, 1e-9)
        largest = 2.0**DODGE if spec.dodge else 1.0
        limits = first / largest - margin, last * largest + margin
        # Labels of values that are close together would touch.
        distance = (last - first) / MAX_TICKS / 1.3
        ticks = [first]
        for value in grid[1:]:
            if value - ticks[-1] >= distance:
                ticks.append(value)
    else:
        scale = "log"
        least = 2 ** (2 * DODGE) if spec.dodge else 1.05
        margin = max((last / first) ** 0.04, least)
        limits = first / margin, last * margin
        step = -(-grid.size // MAX_TICKS)
        ticks = grid[::step]
    places = tuple(map(rounded, ticks))
    labels = tuple(map(short_number, places))
    return Axis(*map(float, limits), places, labels, scale, reverse=spec.x_reversed)


def _is_log(
    table: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> bool:
    if spec.y_scale == "auto":
        return wants_log(_limiting(table, styles))
    return spec.y_scale == "log" and bool((table["value"] > 0).any())


def _limiting(table: pd.DataFrame, styles: Styles) -> np.ndarray:
    """Values that set scale and limits: of all curves, or of all but baselines."""
    baseline = table["hue"].map(lambda hue: styles[hue].baseline).to_numpy(dtype=bool)
    values = table["value"].to_numpy(dtype=float)
    inside = values[~baseline] if (~baseline).any() else values
    curve_values = values[~baseline & table["x"].notna().to_numpy()]
    # A level that is almost exact would stretch a logarithmic axis over many empty
    # decades.
    lowest = curve_values.min() / MAX_RANGE if curve_values.size else -np.inf
    return inside[(inside >= lowest) | (inside <= 0)]


def _value_axis(
    table: pd.DataFrame, spec: FigureSpec, styles: Styles, logarithmic: bool
) -> Axis:
    """Return the value axis.

    Values stay inside. Bands may be cut: the band of a heavy-tailed method would
    otherwise set the scale.
    """
    levels = [entry["y"] for entry in spec.references if "y" in entry]
    values = np.append(_limiting(table, styles), levels)
    if not values.size:
        return value_axis(0.0, 1.0)
    has_limits = table["hue"].map(lambda hue: not styles[hue].baseline)
    bands = table[has_limits.astype(bool)]
    top = values.max()
    highest = max(bands["shown_high"].max(), top) if len(bands) else top
    if logarithmic:
        bottom = values[values > 0].min()
        lows = bands.loc[bands["shown_low"] > 0, "shown_low"]
        lowest = min([bottom, *lows])
        low = max(lowest, bottom / 2) / 1.15
        high = min(highest, 3 * top) * 1.15
        axis = value_axis(float(low), float(high), "log")
    else:
        bottom = values.min()
        reach = max(top - bottom, 0.02 * max(abs(top), abs(bottom)), 1e-12)
        lowest = min(bands["shown_low"].min(), bottom) if len(bands) else bottom
        low = max(lowest, bottom - 0.6 * reach)
        high = min(highest, top + 0.6 * reach)
        if spec.y_zero:
            low = min(low, 0.0)
        margin = 0.06 * (high - low) + 1e-12
        if not spec.y_zero:
            low -= margin
        axis = value_axis(float(low), float(high + margin))
    return replace(axis, reverse=spec.y_reversed)


# Exponents


def _fitted(table: pd.DataFrame, styles: Styles) -> dict[Any, Curve]:
    """Return the curves with a power of x: two values or more, all positive.

    Curves are x and value by hue; baselines have no exponent.
    """
    curves = {}
    for hue, style in styles.items():
        if style.baseline:
            continue
        is_curve = (table["hue"] == hue) & table["x"].notna()
        curve = table[is_curve].sort_values("x")
        x = curve["x"].to_numpy(dtype=float)
        value = curve["value"].to_numpy(dtype=float)
        if x.size > 1 and (value > 0).all():
            curves[hue] = x, value
    return curves


def _exponents(
    x: Axis, y: Axis, curves: Mapping[Any, Curve], styles: Styles
) -> list[Json]:
    """Write the fitted exponents at the right, by height of the curves' ends."""
    ends = {hue: y.to_fraction(value[-1]) for hue, (_, value) in curves.items()}
    hues = sorted(ends, key=ends.__getitem__)
    heights = separated([ends[hue] for hue in hues])
    records = []
    for hue, height in zip(hues, heights, strict=True):
        places, values = curves[hue]
        exponent, _ = np.polyfit(np.log(places), np.log(values), 1)
        record = {
            "hue": hue_key(hue, styles[hue]),
            "at_y": rounded(y.from_fraction(height)),
            "mark_at": rounded(x.from_fraction(0.87)),
            "text_at": rounded(x.from_fraction(0.9)),
            "text": f"{exponent:.2f}",
        }
        records.append(mark_properties(styles[hue].line) | record)
    return records


def separated(
    heights: Sequence[float], gap: float = 0.06, top: float = 0.97
) -> list[float]:
    """Move increasing heights up until they differ by `gap`, then down from the top.

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
