"""Curves over a quantity, with bands or bars for their intervals."""

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
ROOM = 0.2  # share by which the x axis is lengthened for exponents
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
    names = (
        [] if pd.api.types.is_numeric_dtype(table["x"]) else ordered(table["x"], spec)
    )
    table = table.assign(place=table["x"])
    if names:
        table = table.assign(x=[float(names.index(name)) for name in table["x"]])
    for end in ("low", "high"):
        known = (
            table["value"]
            if spec.interval == "none"
            else table[end].fillna(table["value"])
        )
        table = table.assign(**{f"shown_{end}": known})
    logarithmic = _is_log(table, spec, styles)
    if logarithmic:
        table = _cut(table, spec)
    y = _value_axis(table, spec, styles, logarithmic)
    x = _x_axis(table, spec)
    if names:
        texts = tuple(spec.format_name(name) for name in names)
        x = replace(x, ticks=tuple(map(float, range(len(names)))), labels=texts)
    records = [record for curve in _curves(table, spec, styles, y) for record in curve]
    fitted = _fitted(table, styles)
    records += [
        record for entry in spec.references for record in _reference(entry, fitted)
    ]
    if spec.exponents:
        x = replace(x, high=x.from_fraction(1 + ROOM))
        records += _exponents(x, y, fitted, styles)
    notes = {"log": ""} if logarithmic and spec.y_scale == "auto" else {}
    outside = _outside(y, table, styles)
    return Subplot(x, y, records, notes | ({"outside": outside} if outside else {}))


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
    for hue in sorted(
        styles, key=lambda hue: styles[hue].line.get("zorder", 10 + order[hue])
    ):
        style = styles[hue]
        shift = dodged(order[hue], len(styles)) if spec.dodge else 1.0
        records = []
        for line in (
            table[table["hue"] == hue]
            .sort_values("x", kind="stable")
            .to_dict("records")
        ):
            is_level = pd.isna(line["x"])
            text = "" if is_level else spec.format_name(line["place"])
            record = make_record(line, hue_key(hue, style), text, spec)
            change = {}
            if variants:
                variant = variants[line["style"]]
                change = {key: item for key, item in variant.items() if key != "label"}
                record["style"] = variant["label"]
            props = mark_properties(style.line | change)
            if is_level:
                props.pop("marker", None)
                record |= props | _level(line, spec, style, y)
            elif y.scale != "log" or line["value"] > 0:
                curve = [hue, line.get("style"), line.get("curve")]
                record |= props | {
                    "at": rounded(line["x"] * shift),
                    "curve": f"{curve}",
                }
                record |= _interval(line, spec, style, y)
            records.append(record)
        yield records


def _interval(
    line: Mapping[str, Any], spec: FigureSpec, style: HueStyle, y: Axis
) -> Json:
    """Return the ends of a band or a bar that a logarithmic axis can show."""
    low, high = line["shown_low"], line["shown_high"]
    if not low < high or style.line.get("zorder", 10) <= 2:
        return {}
    if y.scale == "log":
        low = max(low, y.low)
    kind = "bar" if spec.bands == "bars" else "band"
    return {f"{kind}_low": rounded(low), f"{kind}_high": rounded(high)}


def _level(
    line: Mapping[str, Any],
    spec: FigureSpec,
    style: HueStyle,
    y: Axis,
) -> Json:
    """Return where a level line is, with the ends of its band where asked."""
    level = {"level": rounded(line["value"])}
    if (
        spec.level_bands
        and not style.baseline
        and line["shown_low"] < line["shown_high"]
    ):
        low = max(line["shown_low"], y.low) if y.scale == "log" else line["shown_low"]
        level |= {"band_level": rounded(low), "band_top": rounded(line["shown_high"])}
    return level


def dodged(order: int, count: int) -> float:
    """Return the factor by which the x of one of some curves is moved."""
    return 2.0 ** (DODGE * (2 * (order + 0.5) / count - 1))


def _cut(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """Cut the lower ends of bands, which may be below zero, on a logarithmic axis."""
    if not spec.cut:
        return table
    positive = table.loc[table["value"] > 0, "value"]
    floor = (
        table["value"] / MAX_BAND if spec.cut == "point" else positive.min() / MAX_BAND
    )
    low = np.fmax(table["shown_low"], floor)
    return table.assign(shown_low=low, shown_high=np.fmax(table["shown_high"], low))


def _outside(
    y: Axis,
    table: pd.DataFrame,
    styles: Styles,
) -> str:
    """Name the level lines outside the limits, with their values; empty without any."""
    levels = table[table["x"].isna()]
    texts = [
        f"{styles[line.hue].short_label} {line.value:.3g}"
        for line in levels.itertuples()
        if not y.low <= line.value <= y.high
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
    middle, height = (np.exp(np.log(ends).mean()) for ends in (x, value))
    return [
        reference_record(
            entry,
            at=rounded(end),
            value=rounded(height * (end / middle) ** entry["slope"]),
            curve=f"{entry}",
        )
        for end in (x[0], x[-1])
    ]


# Axes


def _x_axis(table: pd.DataFrame, spec: FigureSpec) -> Axis:
    """Return the x axis: ticks at the grid's values, thinned where they are many."""
    grid = np.unique(table["x"].dropna().to_numpy(dtype=float))
    grid = grid if grid.size else np.array([0.1, 1.0])
    if spec.x_scale == "linear":
        margin = 0.03 * max(np.ptp(grid), 1e-9)
        largest = 2.0**DODGE if spec.dodge else 1.0
        limits = grid[0] / largest - margin, grid[-1] * largest + margin
        # Labels of values that are close together would touch.
        ticks = [grid[0]]
        for value in grid[1:]:
            if value - ticks[-1] >= np.ptp(grid) / MAX_TICKS / 1.3:
                ticks.append(value)
    else:
        margin = max(
            (grid[-1] / grid[0]) ** 0.04, 2 ** (2 * DODGE) if spec.dodge else 1.05
        )
        limits = grid[0] / margin, grid[-1] * margin
        ticks = grid[:: -(-grid.size // MAX_TICKS)]
    places = tuple(rounded(tick) for tick in ticks)
    scale = "linear" if spec.x_scale == "linear" else "log"
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
    bands = table[table["hue"].map(lambda hue: not styles[hue].baseline).astype(bool)]
    if not values.size:
        return value_axis(0.0, 1.0)
    top = values.max()
    bottom = values.min()
    highest = max(bands["shown_high"].max(), top) if len(bands) else top
    if logarithmic:
        bottom = values[values > 0].min()
        positive = bands.loc[bands["shown_low"] > 0, "shown_low"]
        lowest = max(
            min(positive.min(), bottom) if len(positive) else bottom, bottom / 2
        )
        axis = value_axis(
            float(lowest / 1.15), float(min(highest, 3 * top) * 1.15), "log"
        )
    else:
        reach = max(top - bottom, 0.02 * max(abs(top), abs(bottom)), 1e-12)
        lowest = min(bands["shown_low"].min(), bottom) if len(bands) else bottom
        lowest = max(lowest, bottom - 0.6 * reach)
        lowest = min(lowest, 0.0) if spec.y_zero else lowest
        highest = min(highest, top + 0.6 * reach)
        margin = 0.06 * (highest - lowest) + 1e-12
        axis = value_axis(
            float(lowest - (0 if spec.y_zero else margin)), float(highest + margin)
        )
    return replace(axis, reverse=spec.y_reversed)


# Exponents


def _fitted(table: pd.DataFrame, styles: Styles) -> dict[Any, Curve]:
    """Return the curves with a power of x: two values or more, all positive.

    Curves are x and value by hue; baselines have no exponent.
    """
    curves = {}
    for hue in (name for name, style in styles.items() if not style.baseline):
        curve = table[(table["hue"] == hue) & table["x"].notna()].sort_values("x")
        x, value = (curve[name].to_numpy(dtype=float) for name in ("x", "value"))
        if x.size > 1 and (value > 0).all():
            curves[hue] = x, value
    return curves


def _exponents(
    x: Axis, y: Axis, curves: Mapping[Any, Curve], styles: Styles
) -> list[Json]:
    """Write the fitted exponents at the right, by height of the curves' ends."""
    ends = {hue: y.to_fraction(value[-1]) for hue, (_, value) in curves.items()}
    hues = sorted(ends, key=ends.__getitem__)
    records = []
    for hue, height in zip(hues, separated([ends[hue] for hue in hues]), strict=True):
        record = {
            "hue": hue_key(hue, styles[hue]),
            "at_y": rounded(y.from_fraction(height)),
        }
        places, values = curves[hue]
        exponent = np.polyfit(np.log(places), np.log(values), 1)[0]
        places = {
            "mark_at": rounded(x.from_fraction(0.87)),
            "text_at": rounded(x.from_fraction(0.9)),
        }
        records.append(
            mark_properties(styles[hue].line)
            | record
            | places
            | {"text": f"{exponent:.2f}"}
        )
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
