"""The drawing blocks the papers' figures are made of: curves over epsilon, heat maps, words in place of a panel."""

import textwrap

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from pkm.analysis.figures.style import GREY, INK, YARDSTICKS, epsilon_label, look, parts
from pkm.analysis.tables import summarize

LOG_RATIO = 5.0
NO_DATA = "not run: no stored rows"
# Scores between -1 and 1 have no ratios, so no logarithms.
SCORES = ("silhouette",)


def on_one_axis(cells):
    """Split methods into those under the commonest adjacency and trust model (with the non-private), and the rest."""
    private = cells[cells["notion"] != "none"]
    models = private["adjacency"].str.cat(private["trust"], sep="/")
    odd = set(private.loc[models != models.mode().iloc[0], "method"]) if len(private) else set()
    return [name for name in cells["method"].unique() if name not in odd], sorted(odd)


def say(axes, text):
    """Put words in the place of a panel that cannot be drawn."""
    axes.set_axis_off()
    axes.text(
        0.5,
        0.5,
        "\n".join(textwrap.wrap(text, 26)),
        transform=axes.transAxes,
        ha="center",
        va="center",
        color="#666666",
        fontsize=9,
        style="italic",
    )


def plain_number(value, _=None):
    """Format a tick without exponents where it stays short."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def log_axis(axis):
    """Ticks of a logarithmic value axis: 1-2-5 steps, plain numbers, never a bare axis."""
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    subs = (1.0, 2.0, 5.0) if decades < 2.2 else (1.0, 3.0) if decades < 3.5 else (1.0,)
    if decades < 1.05:
        subs = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(plain_number))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def wants_log(means):
    """Tell whether positive means lie so far apart that a linear axis would squash the small ones."""
    means = means[np.isfinite(means)]
    return bool(means.size and (means > 0).all() and means.max() > LOG_RATIO * means.min())


def set_value_axis(axes, means, low, high, linear=False):
    """Choose scale and limits of a value axis from curve means and band ends.

    Means stay inside. Bands may be cut: a heavy-tailed method's band would otherwise set the scale alone.

    Returns
    -------
    bool
        Whether the axis is logarithmic.
    """
    inside = np.isfinite(means)
    if not inside.any():
        return False
    top, bottom = np.nanmax(means), np.nanmin(means)
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
    axes.set_ylim(
        lowest - 0.06 * (highest - lowest) - 1e-12, highest + 0.06 * (highest - lowest) + 1e-12
    )
    axes.locator_params(axis="y", nbins=5)
    return False


def _private_means(summary, methods):
    means = summary.loc[
        summary["method"].isin(methods) & summary["epsilon"].notna(), "mean"
    ].to_numpy()
    return means if np.isfinite(means).any() else np.array([-np.inf])


def curves(axes, summary, methods, known, linear=False):
    """Draw the mean of each method over epsilon with its 95 % band; non-private ones are level lines.

    Returns
    -------
    tuple
        Whether the value axis is logarithmic, and the level lines that lie outside the panel (label to value): the
        private methods set the limits, a baseline far away must not squash them.
    """
    grid = np.unique(summary["epsilon"].dropna())
    means, lows, highs, levels = [], [], [], {}
    for order, method in enumerate(methods):
        mine = summary[summary["method"] == method].sort_values("epsilon")
        if not len(mine):
            continue
        style = look(method, mine["variant"].iloc[0], known)
        x = mine["epsilon"].to_numpy(dtype=float)
        mean, half = mine["mean"].to_numpy(), np.nan_to_num(mine["half_width"].to_numpy())
        if np.isnan(x).all():
            span = grid if grid.size else np.array([0.1, 1.0])
            x, mean, half = span, np.repeat(mean[:1], span.size), np.repeat(half[:1], span.size)
        yardstick = parts(method)[0] in YARDSTICKS
        keywords = style.line() | ({"marker": None} if np.isnan(mine["epsilon"]).all() else {})
        axes.plot(x, mean, zorder=2 if yardstick else 10 + order, **keywords)
        if not yardstick:
            axes.fill_between(
                x, mean - half, mean + half, color=style.color, alpha=0.16, linewidth=0, zorder=3
            )
            lows.append(mean - half)
            highs.append(mean + half)
            means.append(mean)
        if np.isnan(mine["epsilon"]).all() and np.isfinite(mean[0]):
            levels[style.label.split(" (")[0]] = mean[0]
    every = np.concatenate(means) if means else np.array(list(levels.values()))
    if not linear:
        # A baseline that is almost exact would stretch a logarithmic axis over many empty decades.
        every = every[(every >= np.nanmin(_private_means(summary, methods)) / 1000) | (every <= 0)]
    low, high = (np.concatenate(part) if part else np.array([np.nan]) for part in (lows, highs))
    logarithmic = set_value_axis(axes, every, low, high, linear)
    bottom, top = axes.get_ylim()
    return logarithmic, {
        name: value for name, value in levels.items() if not bottom <= value <= top
    }


def epsilon_axis(axes, grid):
    """Ticks of an epsilon axis at the grid, thinned where labels would touch."""
    axes.set_xlim(min(grid) - 0.03, max(grid) + 0.03)
    shown = [value for value in grid if value >= 0.2 or value == min(grid)]
    axes.set_xticks(shown, [f"{value:g}" for value in shown])


def epsilon_grid_figure(panel, datasets, methods, *, titles, value_name, columns=5):
    """Draw one panel per data set: a metric over epsilon, legend above, one shared epsilon label.

    Parameters
    ----------
    panel : Panel
    datasets : sequence of str
        Panels in their order; those without rows say so in words.
    methods : sequence of str
        Methods drawn, in drawing order; the last lies on top.
    titles : dict
        Title by data set.
    value_name : str
        Label of the value axes.
    columns : int

    Returns
    -------
    tuple
        The figure, the summary it shows, and by data set: those on a logarithmic axis, those that are missing (lists),
        and the yardsticks outside their panel (dict of dicts).
    """
    chosen = panel.take(
        (panel.cells["method"].isin(methods) & panel.cells["dataset"].isin(datasets)).to_numpy()
    )
    summary = summarize(chosen)
    lines = -(-len(datasets) // columns)
    figure = Figure(figsize=(2.45 * columns, 2.35 * lines + 0.95), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    logarithmic, absent, outside = [], [], {}
    present = [name for name in methods if (summary["method"] == name).any()]
    for place, axes in enumerate(grid.flat):
        if place >= len(datasets):
            axes.set_axis_off()
            continue
        name = datasets[place]
        mine = summary[summary["dataset"] == name]
        axes.set_title(f"({chr(97 + place)}) {titles.get(name, name)}", color=INK)
        if not np.isfinite(mine["mean"]).any():
            say(axes, NO_DATA)
            absent.append(name)
            continue
        is_log, beyond = curves(axes, mine, methods, present, panel.metric in SCORES)
        if is_log:
            logarithmic.append(name)
        if beyond:
            outside[name] = beyond
        epsilon_axis(axes, panel.epsilons if panel.epsilons.size else [0.1, 1.0])
    figure.supylabel(value_name, fontsize=11, color=INK)
    if present:
        figure.supxlabel(epsilon_label(chosen.cells), fontsize=11, color=INK)
        legend_above(figure, summary, present)
    return figure, summary, logarithmic, absent, outside


def legend_above(figure, summary, methods):
    """Put one legend for all panels above them, in as few rows as the width allows."""
    handles = []
    for name in methods:
        mine = summary[summary["method"] == name]
        keywords = look(name, mine["variant"].iloc[0], methods).line()
        if mine["epsilon"].isna().all():
            keywords["marker"] = None
        handles.append(Line2D([], [], **keywords))
    labels = [handle.get_label() for handle in handles]
    columns = _legend_columns(labels, figure.get_figwidth())
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        fontsize=10,
        handlelength=2.6,
        columnspacing=1.6,
    )


def _legend_columns(labels, width):
    """Return the largest number of legend columns whose labels fit into `width` inches."""
    for columns in range(len(labels), 1, -1):
        # A legend fills its columns from the left, the first ones taking the remainder.
        lines, longer = divmod(len(labels), columns)
        ends = np.cumsum([lines + (column < longer) for column in range(columns)])
        widest = [max(map(len, part)) for part in np.split(np.array(labels), ends[:-1])]
        if sum(0.085 * length + 0.75 for length in widest) <= width:
            return columns
    return 1


def heat_map(axes, values, rows, columns, norm, cmap, text, fontsize=9.5, marks=None):
    """Draw a matrix with its numbers; cells without a number carry a grey dash.

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
        What stands behind a number.
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
        if np.isfinite(values[i, j]):
            red, green, blue, _ = image.cmap(image.norm(values[i, j]))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
            words, color = (
                text(values[i, j]) + ("" if marks is None else marks[i, j]),
                "white" if dark else INK,
            )
            axes.text(j, i, words, ha="center", va="center", fontsize=fontsize, color=color)
        else:
            axes.text(j, i, "–", ha="center", va="center", color=GREY)
    return image
