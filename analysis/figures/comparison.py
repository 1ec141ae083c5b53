"""The cross-paper comparison: ratios, rank diagrams, which method does best where, and time."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pkm.analysis.comparison import (
    BASELINES,
    LEVEL,
    REFERENCE,
    UNRANKED,
    Ranking,
    best_methods,
    complete,
    fit_times,
    private,
    rank,
    ratios,
    shared_datasets,
)
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.panels import heat_map
from pkm.analysis.render.layout import (
    DASH,
    NO_DATA,
    empty_panel,
    in_order,
    log_axis,
    panel_grid,
    pivoted,
    plain_number,
)
from pkm.analysis.render.style import GREY, INK, PALE, MethodStyle, MethodStyles, epsilon_label
from pkm.analysis.tables import Study

EPSILON = 1.0  # of figures that show a single epsilon; where it was not run, the nearest is shown
LOW_DIMENSIONS = 11
N_DIAGRAMS = 3  # epsilons of the diagrams of critical differences
WORST_COLOR = 30.0
#: Methods in the order of columns.
METHODS = (
    "kmeans",
    "sulloyd_sound",
    "glloyd_sound",
    "fastlloyd_sound",
    "lsh_splits_sound",
    "dpm_merged",
    "dpm_sound",
    "em_mc",
    "balcan",
    "kaplan_stemmer",
    "eugkm",
    "eugkm_balanced",
    "mean",
    "packing",
)
#: Methods with a parameter that was chosen on data sets of the comparison.
TUNED = ("dpm_merged", "dpm_sound")
INSUFFICIENT = "‡"
_GRID = (
    f"more than {LOW_DIMENSIONS} columns: two intervals in each make cells that hold noise alone"
)
#: What the sweeps leave out, by method: a test of the data set, and the reason.
NOT_PLANNED: dict[str, tuple[Callable[[Mapping[str, int]], bool], str]] = {
    "eugkm": (lambda facts: facts["d"] > LOW_DIMENSIONS, _GRID),
    "eugkm_balanced": (lambda facts: facts["d"] > LOW_DIMENSIONS, _GRID),
    "em_mc": (lambda facts: facts["n"] > 100_000, "more than 100,000 points take it minutes a fit"),
}
RATIO_CAPTION = (
    "Ratio: NICV over that of the best stored k-means++ run on the data set; medians over seeds, "
    "in brackets their distribution-free 95 % interval (the range where fewer than six seeds were "
    "run). All private methods are sound variants. † A parameter of DPM was chosen on letters, gas "
    "and the two embeddings, among others. Points of the embeddings and of celltype come from maps "
    "fitted to their records, which no epsilon covers (F-28). "
)
INSUFFICIENT_CAPTION = (
    f"{INSUFFICIENT} No bucket could pass its threshold with so few records: the centers come from "
    "points placed without data and from the queries about those. "
)


class Labels:
    """Styles of the methods, with labels as this comparison writes them.

    All private methods here are sound, so labels do not say it; † marks those of `TUNED`.
    """

    def __init__(self, cells: pd.DataFrame) -> None:
        self._styles = MethodStyles(cells)

    def __getitem__(self, method: str) -> MethodStyle:
        return self._styles[method]

    def label(self, method: str) -> str:
        """Return the label of a method."""
        label = self._styles.label(method).removesuffix(" (sound)")
        return f"{label} †" if method in TUNED else label

    def line(self, method: str) -> dict:
        """Return keyword arguments for a curve."""
        style = self._styles[method].line()
        width = min(style["linewidth"], 1.5)
        changes = {"linewidth": width, "markersize": 4.5, "markeredgewidth": 0.8}
        return style | changes | {"label": self.label(method)}


DrawTable = Callable[[pd.DataFrame, Labels], FigureResult]


def _datasets(table: pd.DataFrame) -> list[str]:
    """Return data sets by number of columns, then by number of points."""
    return table.drop_duplicates("dataset").sort_values(["d", "n", "dataset"])["dataset"].tolist()


def _nearest_epsilon(table: pd.DataFrame) -> float:
    grid = np.sort(table["epsilon"].dropna().unique())
    return float(grid[np.argmin(np.abs(np.log(grid / EPSILON)))]) if grid.size else np.nan


def _gaps(table: pd.DataFrame, labels: Labels) -> tuple[str, ...]:
    """Say for each method on which data sets it lacks a result, and why."""
    lines = []
    facts = table.drop_duplicates("dataset").set_index("dataset")
    missing_by_method = complete(table, _datasets(table))[1]
    for method, missing in missing_by_method.items():
        label = labels.label(method)
        not_planned, reason = NOT_PLANNED.get(method, (lambda _: False, ""))
        left_out = [name for name in missing if not_planned(facts.loc[name])]
        if left_out:
            lines.append(f"{label}: {', '.join(left_out)} left out ({reason})")
        rest = [name for name in missing if name not in left_out]
        if rest:
            lines.append(
                f"{label}: no result at every epsilon on {', '.join(rest)} (not planned at this "
                "size, not available, or over the time limit: see what is missing)"
            )
    return tuple(lines)


def _empty_result(name: str) -> FigureResult:
    figure = Figure(figsize=(6, 2), layout="constrained")
    empty_panel(figure.subplots())
    empty = pd.DataFrame({"note": [f"{name}: {NO_DATA}"]})
    return FigureResult(figure, empty, empty, NO_DATA, (NO_DATA,))


def _ratio_caption(table: pd.DataFrame) -> str:
    return RATIO_CAPTION + (INSUFFICIENT_CAPTION if table["insufficient_data"].any() else "")


def _ratio_texts(table: pd.DataFrame) -> list[str]:
    return [
        f"{row.median:.3g} [{row.low:.3g}, {row.high:.3g}]"
        + (f" {INSUFFICIENT}" if row.insufficient_data else "")
        for row in table.itertuples()
    ]


def _with_table(draw: DrawTable) -> Callable[[Study], FigureResult]:
    """Call a figure with the ratios; without ratios it is an empty panel."""

    def draw_study(study: Study) -> FigureResult:
        table = ratios(study)
        if not len(private(table)):
            return _empty_result("ratios")
        return draw(table, Labels(study.cells))

    return draw_study


@_with_table
def draw_ratios(table: pd.DataFrame, labels: Labels) -> FigureResult:
    """Heat map of median ratios at one epsilon, data sets down, methods across."""
    epsilon = _nearest_epsilon(table)
    datasets = _datasets(table)
    subset = table[table["epsilon"] == epsilon]
    methods = [name for name in in_order(subset["method"], METHODS) if name != REFERENCE]
    wide = subset.pivot_table(index="dataset", columns="method", values="median", aggfunc="first")
    values = wide.reindex(datasets)[methods].to_numpy()
    size = (1.6 + 0.78 * len(methods), 1.7 + 0.3 * len(datasets))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    facts = subset.drop_duplicates("dataset").set_index("dataset")
    upwards = datasets[::-1]
    rows = [
        f"{name}  {facts['n'][name]:,} × {facts['d'][name]}, k {facts['k'][name]}"
        for name in upwards
    ]
    top = float(np.clip(np.nanmax(values), 1.1, WORST_COLOR))
    names = [labels.label(method) for method in methods]
    marked = subset.assign(mark=np.where(subset["insufficient_data"], INSUFFICIENT, ""))
    marks = marked.pivot(index="dataset", columns="method", values="mark")
    heat_map(
        axes,
        values[::-1],
        rows,
        names,
        LogNorm(1.0, top, clip=True),
        "viridis_r",
        lambda value: plain_number(float(f"{value:.3g}")),
        8,
        marks.reindex(upwards)[methods].fillna("").to_numpy(),
    )
    axes.set_xticks(range(len(methods)), names, rotation=40, ha="left")
    axes.xaxis.tick_top()
    texts = subset.assign(text=_ratio_texts(subset))
    formatted = texts.pivot_table(
        index="dataset", columns="method", values="text", aggfunc="first"
    ).reindex(datasets)[methods]
    formatted = formatted.fillna(DASH).rename(columns=labels.label).reset_index()
    native = ", ".join(labels.label(name) for name in UNRANKED)
    caption = (
        f"{_ratio_caption(subset)}Here at ε = {epsilon:g}; the CSV has every epsilon. "
        f"{epsilon_label(_with_labels(subset, labels))}. Data sets by number of columns. {native}: "
        f"as many centers as it finds. Colors end at {top:.3g}."
    )
    return FigureResult(
        figure, table, formatted.rename_axis(columns=None), caption, _gaps(table, labels)
    )


def _with_labels(table: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return a table with the labels of its methods, which an axis names them by."""
    return table.assign(
        label=table["method"].map(lambda name: labels[name].short_label), color="", marker=""
    )


@_with_table
def draw_curves(table: pd.DataFrame, labels: Labels) -> FigureResult:
    """Median ratio over epsilon, one panel per data set."""
    datasets = _datasets(table)
    methods = in_order(table["method"], METHODS)
    columns = min(5, len(datasets))
    figure, grid = panel_grid(len(datasets), columns, 2.5 + 0.4 / columns, 2.2, 1.3)
    for axes, name in zip(grid, datasets, strict=True):
        subset = table[table["dataset"] == name]
        shape = f"d {subset['d'].iloc[0]}, k {subset['k'].iloc[0]}"
        axes.set_title(f"{name} ({shape})", color=INK, fontsize=10)
        for method in methods:
            curve = subset[subset["method"] == method].sort_values("epsilon")
            if len(curve):
                axes.plot(curve["epsilon"], curve["median"], **labels.line(method))
        limiting = subset[~subset["method"].isin([*BASELINES, REFERENCE])]
        top = limiting["median"].max() if len(limiting) else 2.0
        axes.set_yscale("log")
        axes.set_ylim(min(float(subset["median"].min()), 1.0) / 1.05, top * 1.15)
        log_axis(axes.yaxis)
        _epsilon_ticks(axes, subset["epsilon"], fontsize=8)
    figure.supylabel("ratio to non-private k-means", fontsize=11, color=INK)
    figure.supxlabel(epsilon_label(_with_labels(table, labels)), fontsize=11, color=INK)
    figure.legend(
        handles=[Line2D([], [], **labels.line(name)) for name in methods],
        loc="outside upper center",
        ncols=5 if columns > 3 else 3,
        fontsize=9,
    )
    texts = table.assign(text=_ratio_texts(table))
    formatted = texts.pivot_table(
        index=["dataset", "epsilon"], columns="method", values="text", aggfunc="first"
    ).reindex(columns=methods)
    formatted = formatted.fillna(DASH).rename(columns=labels.label).reset_index()
    caption = f"{_ratio_caption(table)}Both axes logarithmic."
    return FigureResult(
        figure, table, formatted.rename_axis(columns=None), caption, _gaps(table, labels)
    )


def _epsilon_ticks(axes: Axes, epsilons: pd.Series, fontsize: float = 9) -> None:
    axes.set_xscale("log")
    ticks = np.sort(epsilons.dropna().unique())
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks], fontsize=fontsize)
    axes.minorticks_off()


# --- ranks --------------------------------------------------------------------------------------


def _groups(table: pd.DataFrame) -> dict[str, tuple[list[str], list[str]]]:
    """Return title, data sets and ranked methods of the groups that are compared.

    All data sets, with the methods that have results on all of them; and the data sets on which all
    methods have.
    """
    datasets = _datasets(table)
    shared = shared_datasets(table, datasets)
    groups = {"all data sets": datasets}
    if len(shared) < len(datasets):
        groups["data sets with a result of every method"] = shared
    return {
        title: (names, in_order(complete(table, names)[0], METHODS))
        for title, names in groups.items()
        if names
    }


def _rankings(table: pd.DataFrame) -> dict[str, list[Ranking]]:
    """Return rankings by group title: a list over the epsilon grid."""
    grid = np.sort(table["epsilon"].dropna().unique())
    return {
        title: [rank(table, epsilon, datasets, methods) for epsilon in grid] if methods else []
        for title, (datasets, methods) in _groups(table).items()
    }


def _rank_table(rankings: Mapping[str, Iterable[Ranking]]) -> pd.DataFrame:
    tables = []
    for title, over_epsilon in rankings.items():
        for ranking in over_epsilon:
            tables.append(
                ranking.table.assign(
                    group=title,
                    epsilon=ranking.epsilon,
                    datasets=len(ranking.datasets),
                    friedman_p=ranking.p_value,
                    critical_difference=ranking.critical,
                )
            )
    return pd.concat(tables, ignore_index=True)


def _rank_caption(table: pd.DataFrame) -> str:
    sizes = "; ".join(
        f"{title}: {len(datasets)} sets" for title, (datasets, _) in _groups(table).items()
    )
    return (
        "On every data set methods are ranked by their median (1 is best, ties share), and ranks "
        f"averaged over data sets ({sizes}). Only methods with a result on all of them at every "
        "epsilon take part, each with k centers; the second group is made of the data sets on "
        "which no method lacks one. "
    )


@_with_table
def draw_ranks(table: pd.DataFrame, labels: Labels) -> FigureResult:
    """Mean rank over epsilon with bootstrap bands over data sets."""
    rankings = _rankings(table)
    if not any(rankings.values()):
        return _empty_result("ranks")
    figure = Figure(figsize=(5.2 * len(rankings), 4.2), layout="constrained")
    grid = figure.subplots(1, len(rankings), squeeze=False)
    for axes, (title, over_epsilon) in zip(grid.flat, rankings.items(), strict=True):
        axes.set_title(title, color=INK, fontsize=10)
        if not over_epsilon:
            empty_panel(axes, "no method has a result on all of these data sets")
            continue
        _draw_ranks(axes, _rank_table({title: over_epsilon}), labels)
    figure.supxlabel(epsilon_label(_with_labels(private(table), labels)), fontsize=10, color=INK)
    lines = _rank_table(rankings)
    texts = [
        f"{mean:.2f} [{low:.2f}, {high:.2f}]"
        for mean, low, high in lines[["mean_rank", "low", "high"]].to_numpy()
    ]
    formatted = pivoted(lines.assign(text=texts), ["group", "method"], "epsilon", "text")
    caption = _rank_caption(table) + "Bands: 95 % bootstrap over data sets."
    return FigureResult(figure, lines, formatted, caption, _gaps(table, labels))


def _draw_ranks(axes: Axes, lines: pd.DataFrame, labels: Labels) -> None:
    for method in in_order(lines["method"], METHODS):
        curve = lines[lines["method"] == method].sort_values("epsilon")
        line = labels.line(method)
        axes.plot(curve["epsilon"], curve["mean_rank"], **line)
        axes.fill_between(
            curve["epsilon"],
            curve["low"],
            curve["high"],
            color=line["color"],
            alpha=0.1,
            linewidth=0,
        )
    _epsilon_ticks(axes, lines["epsilon"])
    axes.invert_yaxis()
    axes.set_ylabel("mean rank (1 is best)")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


@_with_table
def draw_differences(table: pd.DataFrame, labels: Labels) -> FigureResult:
    """Diagrams of critical differences at a few epsilons."""
    rankings = {title: ranked for title, ranked in _rankings(table).items() if ranked}
    if not rankings:
        return _empty_result("ranks")
    grid = np.sort(table["epsilon"].dropna().unique())
    positions = np.linspace(0, grid.size - 1, min(N_DIAGRAMS, grid.size))
    epsilons = grid[np.unique(positions.round().astype(int))]
    n_methods = max(len(ranked[0].table) for ranked in rankings.values())
    size = (5.4 * len(rankings), (1.0 + 0.13 * n_methods) * len(epsilons))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(epsilons), len(rankings), squeeze=False)
    for column, (title, ranked) in enumerate(rankings.items()):
        by_epsilon = {ranking.epsilon: ranking for ranking in ranked}
        for row, epsilon in enumerate(epsilons):
            ranking = by_epsilon[float(epsilon)]
            axes = panels[row, column]
            text = f"{title}, ε = {epsilon:g} ({_test_text(ranking)})"
            axes.set_title(text, color=INK, fontsize=9)
            _difference_diagram(axes, ranking, labels)
    caption = (
        f"{_rank_caption(table)}Bars join methods whose mean ranks differ by less than Nemenyi's "
        f"critical difference at level {LEVEL} (CD): these data sets do not distinguish them. p: "
        "Friedman's test of equal ranks. Few data sets make a large CD; they are also no "
        "random sample of any population."
    )
    lines = _rank_table(rankings)
    columns = ["group", "epsilon", "method", "mean_rank", "friedman_p", "critical_difference"]
    return FigureResult(figure, lines, lines[columns].round(4), caption, _gaps(table, labels))


def _test_text(ranking: Ranking) -> str:
    if not np.isfinite(ranking.critical):
        return "too few for a test"
    p = "p < 0.001" if ranking.p_value < 0.001 else f"p = {ranking.p_value:.2g}"
    return f"{p}, CD {ranking.critical:.2f}"


def _difference_diagram(axes: Axes, ranking: Ranking, labels: Labels) -> None:
    """Draw mean ranks on a line, with bars over methods that do not differ.

    The better half of the methods is named on the left.
    """
    ranks = ranking.table["mean_rank"].to_numpy()
    names = ranking.table["method"].tolist()
    k = len(names)
    half = -(-k // 2)
    margin = 0.9 * max(k - 1, 1) * 0.55
    axes.set_axis_off()
    axes.set_xlim(-margin + 1, k + margin)
    axes.set_ylim(half + 1.6, -1.6)

    # Axis of ranks
    axes.plot([1, max(k, 2)], [0, 0], color=INK, linewidth=1)
    for value in range(1, k + 1):
        axes.plot([value, value], [0, -0.15], color=INK, linewidth=0.8)
        axes.text(value, -0.3, str(value), ha="center", va="bottom", fontsize=7.5)

    # Groups that do not differ
    cliques = ranking.cliques()
    for level, (first, last) in enumerate(cliques):
        height = 0.25 + 0.5 * level / max(len(cliques), 1)
        ends = [ranks[first] - 0.06, ranks[last] + 0.06]
        axes.plot(ends, [height, height], color=INK, linewidth=2.6)

    # Methods
    for index, (value, name) in enumerate(zip(ranks, names, strict=True)):
        left = index < half
        height = 1.1 + (index if left else k - 1 - index)
        end = 0.9 if left else k + 0.1
        color = labels[name].color
        axes.plot([value, value, end], [0, height, height], color=color, linewidth=1)
        axes.plot([value], [0], marker="o", markersize=3.5, color=color)
        axes.text(
            end + (-0.05 if left else 0.05),
            height,
            f"{labels.label(name)} {value:.2f}",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=INK,
        )


# --- best methods and times ---------------------------------------------------------------------


@_with_table
def draw_map(table: pd.DataFrame, labels: Labels) -> FigureResult:
    """Which private method does best, over ε n / k and the number of columns."""
    best = best_methods(table)
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    heights = _heights(best, _datasets(table))
    useful = best["useful"].to_numpy(dtype=bool)
    if (~useful).any():
        axes.plot(
            best["records"][~useful],
            heights[~useful],
            "x",
            color=GREY,
            markersize=5,
            label="none beats a baseline",
        )
    for method in in_order(best["method"], METHODS):
        wins = useful & (best["method"] == method).to_numpy()
        if not wins.any():
            continue
        axes.plot(
            best["records"][wins],
            heights[wins],
            linestyle="",
            marker=labels[method].marker or "o",
            color=labels[method].color,
            markersize=7,
            markeredgecolor="white",
            markeredgewidth=0.5,
            label=labels.label(method),
        )
    log_axis(axes.xaxis)
    log_axis(axes.yaxis)
    axes.set_xlabel("ε · n / k: records of a cluster times ε")
    axes.set_ylabel("columns d")
    axes.grid(color=PALE, linewidth=0.5)
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = (
        "The private method of k centers with the smallest median ratio, for every data set and "
        "epsilon; a cross where even that one is no better than the mean as only center or centers "
        "placed without data. Data sets of equal d are shifted vertically. Where methods are "
        "close the winner is a matter of chance: the table has the second."
    )
    names = {
        column: [labels.label(name) if name else DASH for name in best[column]]
        for column in ("method", "second")
    }
    columns = ["dataset", "epsilon", "d", "records", "method", "median", "second"]
    columns += ["second_median", "baseline", "useful"]
    return FigureResult(figure, best, best.assign(**names)[columns].round(3), caption)


def _heights(best: pd.DataFrame, datasets: Sequence[str]) -> np.ndarray:
    """Return d, shifted slightly for data sets of equal d, which would overlap."""
    order = {name: index for index, name in enumerate(datasets)}
    by_d = best.groupby("d")["dataset"]
    places = by_d.transform(lambda names: names.map(order).rank(method="dense"))
    shift = places - (by_d.transform("nunique") + 1) / 2
    return best["d"].to_numpy(dtype=float) * np.exp(0.09 * shift.to_numpy(dtype=float))


def draw_times(study: Study) -> FigureResult:
    """Seconds of a fit as a table."""
    table = fit_times(study)
    if not len(table):
        note = pd.DataFrame({"note": [NO_DATA]})
        return FigureResult(None, table, note, NO_DATA, (f"seconds of a fit: {NO_DATA}",))
    labels = Labels(study.cells)
    order = table.drop_duplicates("dataset").sort_values(["n", "d", "dataset"])["dataset"]
    methods = in_order(table["method"], METHODS)
    texts = table.assign(text=[f"{value:.2g}" for value in table["seconds"]])
    formatted = texts.pivot_table(
        index=["dataset", "n", "d", "k"], columns="method", values="text", aggfunc="first"
    )[methods]
    formatted = formatted.reset_index().set_index("dataset").loc[order].reset_index().fillna(DASH)
    formatted = formatted.rename(columns={name: labels.label(name) for name in methods})
    untimed = set(METHODS) - set(methods) - {*BASELINES, *UNRANKED}
    gaps = tuple(f"{labels.label(name)}: not timed" for name in in_order(untimed, METHODS))
    epsilons = ", ".join(f"{value:g}" for value in sorted(table["epsilon"].dropna().unique()))
    caption = (
        f"Seconds of one fit on one thread, alone on the machine, at ε = {epsilons}: median of "
        f"{int(table['seeds'].min())} fits after one to warm up."
    )
    return FigureResult(None, table, formatted.rename_axis(columns=None), caption, gaps)


FIGURES = (
    FigureSpec("comparison_ratios", "Ratio to non-private k-means", False, draw_ratios),
    FigureSpec("comparison_curves", "Ratio over epsilon, data set by data set", False, draw_curves),
    FigureSpec("comparison_ranks", "Mean rank over data sets", False, draw_ranks),
    FigureSpec(
        "comparison_differences", "Which methods differ significantly", False, draw_differences
    ),
    FigureSpec("comparison_map", "Which method does best where", False, draw_map),
    FigureSpec("comparison_times", "Time of a fit", False, draw_times),
)
