"""Panels of curves over epsilon, and heat maps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from pkm.analysis.render.layout import (
    empty_panel,
    legend_columns,
    log_axis,
    panel_grid,
    panel_title,
    wants_log,
)
from pkm.analysis.render.style import GREY, INK, MethodStyle, MethodStyles, epsilon_label
from pkm.analysis.tables import Panel, summarize

# Scores between -1 and 1 have no ratios, so no logarithms.
SCORES = ("silhouette",)


class EpsilonFigure(NamedTuple):
    """A figure of panels over epsilon, and what its caption says.

    Attributes
    ----------
    figure : matplotlib.figure.Figure
    summary : DataFrame
        Means that it shows.
    logarithmic : list of str
        Data sets on a logarithmic axis.
    absent : list of str
        Data sets without rows.
    outside : dict of str to dict
        By data set, the level lines outside its panel: label to value.
    """

    figure: Figure
    summary: pd.DataFrame
    logarithmic: list[str]
    absent: list[str]
    outside: dict[str, dict[str, float]]


def set_value_axis(
    axes: Axes, means: np.ndarray, low: np.ndarray, high: np.ndarray, linear: bool = False
) -> bool:
    """Choose scale and limits of a value axis from curve means and band ends.

    Means stay inside. Bands may be cut: the band of a heavy-tailed method would otherwise set the
    scale.

    Returns
    -------
    bool
        Whether the axis is logarithmic.
    """
    if not np.isfinite(means).any():
        return False
    top = np.nanmax(means)
    bottom = np.nanmin(means)
    if not linear and wants_log(means):
        axes.set_yscale("log")
        highest = min(np.nanmax(np.append(high, top)), top * 3)
        lowest = max(np.nanmin(np.append(low[low > 0], bottom)), bottom / 2)
        axes.set_ylim(lowest / 1.15, highest * 1.15)
        log_axis(axes.yaxis)
        return True
    reach = max(top - bottom, 0.02 * max(abs(top), abs(bottom)), 1e-12)
    highest = min(np.nanmax(np.append(high, top)), top + 0.6 * reach)
    lowest = max(np.nanmin(np.append(low, bottom)), bottom - 0.6 * reach)
    margin = 0.06 * (highest - lowest)
    axes.set_ylim(lowest - margin - 1e-12, highest + margin + 1e-12)
    axes.locator_params(axis="y", nbins=5)
    return False


def _smallest_private_mean(summary: pd.DataFrame, methods: Sequence[str]) -> float:
    private = summary["method"].isin(methods) & summary["epsilon"].notna()
    means = summary.loc[private, "mean"].to_numpy()
    return float(np.nanmin(means)) if np.isfinite(means).any() else -np.inf


def curves(
    axes: Axes,
    summary: pd.DataFrame,
    methods: Sequence[str],
    styles: MethodStyles,
    linear: bool = False,
) -> tuple[bool, dict[str, float]]:
    """Draw the mean of each method over epsilon with its 95 % band.

    Non-private methods are level lines.

    Returns
    -------
    logarithmic : bool
        Whether the value axis is.
    outside : dict of str to float
        Level lines outside the panel, label to value: the private methods set the limits, a
        distant baseline would compress them.
    """
    grid = np.unique(summary["epsilon"].dropna())
    means = []
    lows = []
    highs = []
    levels = {}
    for order, method in enumerate(methods):
        subset = summary[summary["method"] == method].sort_values("epsilon")
        if not len(subset):
            continue
        style = styles[method]
        x = subset["epsilon"].to_numpy(dtype=float)
        mean = subset["mean"].to_numpy()
        half = np.nan_to_num(subset["half_width"].to_numpy())
        level = bool(np.isnan(x).all())
        if level:
            x = grid if grid.size else np.array([0.1, 1.0])
            mean = np.repeat(mean[:1], x.size)
            half = np.repeat(half[:1], x.size)
        axes.plot(x, mean, zorder=2 if style.baseline else 10 + order, **style.line())
        if not style.baseline:
            low = mean - half
            high = mean + half
            axes.fill_between(x, low, high, color=style.color, alpha=0.16, linewidth=0, zorder=3)
            means.append(mean)
            lows.append(low)
            highs.append(high)
        if level and np.isfinite(mean[0]):
            levels[style.short_label] = mean[0]
    inside = np.concatenate(means) if means else np.array(list(levels.values()))
    if not linear:
        # A baseline that is almost exact would stretch a logarithmic axis over many empty decades.
        inside = inside[(inside >= _smallest_private_mean(summary, methods) / 1000) | (inside <= 0)]
    low = np.concatenate(lows) if lows else np.array([np.nan])
    high = np.concatenate(highs) if highs else np.array([np.nan])
    logarithmic = set_value_axis(axes, inside, low, high, linear)
    bottom, top = axes.get_ylim()
    outside = {name: value for name, value in levels.items() if not bottom <= value <= top}
    return logarithmic, outside


def epsilon_axis(axes: Axes, grid: Sequence[float] | np.ndarray) -> None:
    """Set ticks of an epsilon axis at the grid, thinned where labels would touch."""
    axes.set_xlim(min(grid) - 0.03, max(grid) + 0.03)
    ticks = [value for value in grid if value >= 0.2 or value == min(grid)]
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks])


def epsilon_grid_figure(
    panel: Panel,
    datasets: Sequence[str],
    methods: Sequence[str],
    *,
    titles: Mapping[str, str],
    value_name: str,
    columns: int = 5,
) -> EpsilonFigure:
    """Draw one panel per data set: a metric over epsilon, legend above, one shared epsilon label.

    Parameters
    ----------
    panel : Panel
    datasets : sequence of str
        In the order of the panels; a panel without rows has a text instead.
    methods : sequence of str
        Methods drawn, in drawing order; the last lies on top.
    titles : mapping
        Title by data set.
    value_name : str
        Label of the value axes.
    columns : int

    Returns
    -------
    EpsilonFigure
    """
    listed = panel.cells["method"].isin(methods) & panel.cells["dataset"].isin(datasets)
    chosen = panel.take(listed.to_numpy())
    summary = summarize(chosen)
    styles = MethodStyles(panel.cells)
    figure, grid = panel_grid(len(datasets), columns, 2.45, 2.35, 0.95)
    present = [name for name in methods if (summary["method"] == name).any()]
    logarithmic = []
    absent = []
    outside = {}
    for index, (axes, name) in enumerate(zip(grid, datasets, strict=True)):
        subset = summary[summary["dataset"] == name]
        panel_title(axes, index, titles[name], fontsize=11)
        if not np.isfinite(subset["mean"]).any():
            empty_panel(axes)
            absent.append(name)
            continue
        is_log, levels = curves(axes, subset, methods, styles, panel.metric in SCORES)
        if is_log:
            logarithmic.append(name)
        if levels:
            outside[name] = levels
        epsilon_axis(axes, panel.epsilons if panel.epsilons.size else [0.1, 1.0])
    figure.supylabel(value_name, fontsize=11, color=INK)
    if present:
        figure.supxlabel(epsilon_label(chosen.cells), fontsize=11, color=INK)
        legend_above(figure, [styles[name] for name in present])
    return EpsilonFigure(figure, summary, logarithmic, absent, outside)


def legend_above(figure: Figure, styles: Sequence[MethodStyle]) -> None:
    """Put one legend for all panels above them, in as few rows as the width allows."""
    labels = [style.label for style in styles]
    figure.legend(
        handles=[Line2D([], [], **style.line()) for style in styles],
        loc="outside upper center",
        ncols=legend_columns(labels, figure.get_figwidth()),
        fontsize=10,
        handlelength=2.6,
        columnspacing=1.6,
    )


def heat_map(
    axes: Axes,
    values: np.ndarray,
    rows: Sequence[Any],
    columns: Sequence[Any],
    norm: Normalize | None,
    cmap: str | Colormap,
    text: Callable[[float], str],
    fontsize: float = 9.5,
    marks: np.ndarray | None = None,
) -> AxesImage:
    """Draw a matrix with its numbers; cells without a number have a grey dash.

    Parameters
    ----------
    axes : Axes
    values : ndarray of shape (len(rows), len(columns))
    rows, columns : sequences
        Tick labels.
    norm, cmap
        Color scale.
    text : callable
        Turns a value into its text.
    fontsize : float
    marks : ndarray of str of the shape of `values`, optional
        Appended to the numbers.
    """
    masked = np.ma.masked_invalid(values)
    image = axes.imshow(masked, norm=norm, cmap=cmap, aspect="auto", origin="lower")
    axes.set_facecolor("#f2f2f2")
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    for i, j in np.ndindex(*values.shape):
        if not np.isfinite(values[i, j]):
            axes.text(j, i, "–", ha="center", va="center", color=GREY)
            continue
        red, green, blue, _ = image.cmap(image.norm(values[i, j]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        words = text(values[i, j]) + ("" if marks is None else marks[i, j])
        color = "white" if dark else INK
        axes.text(j, i, words, ha="center", va="center", fontsize=fontsize, color=color)
    return image
