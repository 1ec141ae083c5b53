"""Panels of curves over any quantity, with bands, and their tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pkm.analysis.findings import Context, MissingRows
from pkm.analysis.planted import Curve, curve
from pkm.analysis.render.layout import (
    DASH,
    empty_panel,
    format_number,
    log_axis,
    pivoted,
    plain_number,
    short_number,
    wants_log,
)
from pkm.analysis.tables import Panel, Study, column_statistics, standard_deviations

_EMPTY = Context({}, pd.DataFrame(columns=["sweep", "reason"]))
COLUMNS = ["method", "dataset", "x", "value", "low", "high", "seeds"]
MAX_TICKS = 8  # of an axis
_MIN_DISTANCE = 0.05  # of the height of a panel, between the texts at the ends of curves
Lines = Mapping[str, Mapping[str, Any]]  # keyword arguments of curves, by method


def means_with_bands(
    panel: Panel, along: str, errors: float = 3.0, cost: bool = True
) -> pd.DataFrame:
    """Return the mean of every cell with a band of `errors` standard errors.

    By default the mean is that of the cost (the metric times n).

    Returns
    -------
    DataFrame
        `COLUMNS`; ``x`` is NaN for cells that lack the quantity.
    """
    if not len(panel.cells):
        return pd.DataFrame(columns=COLUMNS)
    scale = panel.cells["n"].to_numpy(dtype=float) if cost else 1.0
    mean, _, _, seeds = column_statistics(panel.values)
    band = np.nan_to_num(errors * standard_deviations(panel.values) / np.sqrt(np.maximum(seeds, 1)))
    x = pd.to_numeric(panel.cells[along]) if along in panel.cells else np.nan
    table = panel.cells[["method", "dataset"]].assign(x=x, value=mean * scale)
    return table.assign(low=(mean - band) * scale, high=(mean + band) * scale, seeds=seeds)


def curves(
    study: Study, selectors: Mapping[str, Mapping[str, Any]], **check: Any
) -> tuple[pd.DataFrame, dict[str, Curve]]:
    """Return curves of `pkm.analysis.planted.curve`, one for each named selector that has rows.

    Returns
    -------
    DataFrame, dict
        `COLUMNS` with the selectors' names as methods, bands being 95 % intervals; and the curves
        by name.
    """
    parts = []
    by_name = {}
    for name, selector in selectors.items():
        try:
            line = curve(
                study, check | {"min_values": check.get("min_values", 1)}, _EMPTY, selector
            )
        except MissingRows:
            continue
        by_name[name] = line
        table = line.evidence().rename(columns={check["along"]: "x"}).assign(method=name)
        # With one or two seeds an interval may miss its own value.
        low = np.fmin(table["low"], table["value"])
        high = np.fmax(table["high"], table["value"])
        seeds = np.full(len(table), line.seeds)
        parts.append(table.assign(low=low, high=high, seeds=seeds)[COLUMNS])
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)
    return table, by_name


def with_slope(lines: Mapping[str, Curve]) -> dict[str, Curve]:
    """Return the curves that a power can be fitted to: two points or more, all positive."""
    return {
        name: line for name, line in lines.items() if line.x.size > 1 and (line.values[0] > 0).all()
    }


def most_common(study: Study, sweep: str, column: str) -> dict[str, Any]:
    """Return the value that most cells of a sweep have, as a condition; none without rows."""
    values = study.cells.loc[study.cells["sweep"] == sweep, column]
    return {column: values.mode().iloc[0].item()} if len(values) else {}


def draw(
    axes: Axes,
    table: pd.DataFrame,
    styles: Lines,
    *,
    log_x: bool = True,
    log_y: bool | None = None,
    x_label: str = "",
    y_label: str = "",
    backwards: bool = False,
) -> pd.DataFrame:
    """Draw the curves of a table; methods without an x are level lines.

    Parameters
    ----------
    axes : Axes
    table : DataFrame
        `COLUMNS`.
    styles : mapping
        Keywords by method; others are not drawn.
    log_x : bool
    log_y : bool, optional
        By default where positive means differ much, see `wants_log`.
    x_label, y_label : str
    backwards : bool
        Whether x falls from left to right.

    Returns
    -------
    DataFrame
        The part of the table that is drawn.
    """
    table = table[table["method"].isin(list(styles)) & np.isfinite(table["value"].astype(float))]
    grid = np.unique(table["x"].dropna().to_numpy(dtype=float))
    if not len(table) or not grid.size:
        empty_panel(axes)
        return table.iloc[:0]
    if log_y is None:
        log_y = wants_log(table["value"].to_numpy())
    floor = table.loc[table["value"] > 0, "value"].min() / 3
    for method, keywords in styles.items():
        subset = table[table["method"] == method].sort_values("x")
        if len(subset):
            _draw_curve(axes, subset, keywords, floor if log_y else -np.inf)
    if log_x:
        _log_x_axis(axes, grid)
    _y_limits(axes, table["value"].to_numpy(dtype=float), log_y)
    if backwards:
        axes.invert_xaxis()
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.tick_params(labelsize=8)
    return table


def _draw_curve(
    axes: Axes, subset: pd.DataFrame, keywords: Mapping[str, Any], floor: float
) -> None:
    if subset["x"].isna().all():
        axes.axhline(subset["value"].iloc[0], **(keywords | {"marker": None, "zorder": 2}))
        return
    x, value, low, high = (
        subset[name].to_numpy(dtype=float) for name in ("x", "value", "low", "high")
    )
    axes.plot(x, value, **keywords)
    bottom = np.maximum(low, floor)
    top = np.maximum(high, bottom)
    axes.fill_between(x, bottom, top, color=keywords["color"], alpha=0.15, linewidth=0)


def _log_x_axis(axes: Axes, grid: np.ndarray) -> None:
    axes.set_xscale("log")
    ticks = grid if grid.size <= MAX_TICKS else grid[:: -(-grid.size // MAX_TICKS)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))


def _y_limits(axes: Axes, values: np.ndarray, logarithmic: bool) -> None:
    positive = values[values > 0]
    if logarithmic and positive.size:
        low = positive.min()
        high = values.max()
        axes.set_yscale("log")
        axes.set_ylim(low / 1.6, max(high, 1.2 * low) * 1.6)
        log_axis(axes.yaxis)
        return
    low = min(0.0, values.min())
    high = values.max()
    axes.set_ylim(low - 0.02 * (high - low), high + 0.18 * max(high - low, 1e-12))
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.locator_params(axis="y", nbins=5)


def end_labels(
    axes: Axes, labels: Iterable[tuple[float, float, str, str]], room: float = 1.6
) -> None:
    """Write texts at the ends of curves, moved up where they would cover each other.

    Parameters
    ----------
    axes : Axes
        With its final limits on a logarithmic or linear y axis.
    labels : list of (x, y, text, color)
    room : float
        Factor by which a logarithmic x axis is lengthened for them.
    """
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * room)
    to_axes = axes.transData + axes.transAxes.inverted()
    lowest = -np.inf
    for x, y, text, color in sorted(labels, key=lambda label: label[1]):
        height = max(to_axes.transform((x, y))[1], lowest)
        lowest = height + _MIN_DISTANCE
        axes.annotate(
            text,
            (x, height),
            xycoords=("data", "axes fraction"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=color,
        )


def legend(
    figure: Figure,
    styles: Lines,
    drawn: Iterable[str],
    columns: int | None = None,
    extra: Sequence[Artist] = (),
) -> None:
    """Put one legend for all panels above them, of the methods that are drawn in one of them."""
    methods = set(drawn)
    handles = [Line2D([], [], **line) for name, line in styles.items() if name in methods]
    handles += list(extra)
    if not handles:
        return
    longest = max(len(str(handle.get_label())) for handle in handles)
    if columns is None:
        fitting = int(figure.get_figwidth() / (0.085 * longest + 0.75))
        columns = max(1, min(len(handles), fitting))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, fontsize=9.5, columnspacing=1.3
    )


def concat_panels(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of panels (by name) as one, with a column `panel`."""
    known = [table.assign(panel=name) for name, table in tables.items() if len(table)]
    if not known:
        return pd.DataFrame(columns=["panel", *COLUMNS])
    table = pd.concat(known, ignore_index=True)
    return table[["panel", *(name for name in table if name != "panel")]]


def empty_panels(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the names of the panels whose tables are empty."""
    return [name for name, table in tables.items() if table.empty]


def format_curves(table: pd.DataFrame, label: Callable[[str], str]) -> pd.DataFrame:
    """Format curves for the report: one line per panel and x, one column per method."""
    if not len(table):
        return pd.DataFrame(columns=["panel", "x"])
    texts = table.assign(
        text=[format_number(value) for value in table["value"]],
        name=table["method"].map(label),
        x=[DASH if pd.isna(x) else f"{x:g}" for x in table["x"]],
    )
    return pivoted(texts, ["panel", "x"], "name", "text", sort=False, observed=True)
