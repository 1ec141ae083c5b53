"""The cross-paper comparison: ratios, rank diagrams, which method does best where, and time."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pkm.analysis.comparison import (
    LEVEL,
    NATIVE,
    REFERENCE,
    YARDSTICKS,
    best_methods,
    complete,
    private,
    rank,
    ratios,
    shared_datasets,
    times,
)
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.panels import NO_DATA, heat_map, log_axis, plain_number, say
from pkm.analysis.figures.style import GREY, INK, PALE, epsilon_label

MIDDLE = 1.0  # the epsilon of figures that show one; the middle of the grid where it was not run
LOW_DIMENSIONS = 11
SHOWN_RANKS = 3  # epsilons of the diagrams of critical differences
WORST_COLOR = 30.0
#: Name, color and marker of each method, in the order of columns; the family has the color, the method the marker.
LOOKS = {
    "kmeans": ("k-means++ (no privacy)", "#000000", None),
    "sulloyd_sound": ("SuLloyd", "#d55e00", "s"),
    "glloyd_sound": ("GLloyd", "#0072b2", "^"),
    "fastlloyd_sound": ("FastLloyd", "#009e73", "o"),
    "lsh_splits_sound": ("LSH-Splits", "#56b4e9", "P"),
    "dpm_merged": ("DPM, merged to k †", "#cc79a7", "D"),
    "dpm_sound": ("DPM, own number †", "#cc79a7", "d"),
    "em_mc": ("EM-MC", "#e69f00", "X"),
    "balcan": ("Balcan et al.", "#8a6d1f", "h"),
    "kaplan_stemmer": ("Kaplan-Stemmer", "#7a3e9d", "*"),
    "eugkm": ("EUGkM", "#b2182b", "p"),
    "eugkm_balanced": ("EUGkM, balanced grid", "#ef8a62", "8"),
    "mean": ("mean as only center", GREY, None),
    "packing": ("centers without data", GREY, None),
}
DASHES = {"kmeans": "-", "mean": (0, (1, 1.5)), "packing": (0, (5, 2)), "dpm_sound": (0, (2, 1.2))}
STARVED = "‡"
_GRID = (
    f"more than {LOW_DIMENSIONS} columns: two intervals in each make cells that hold noise alone"
)
#: What the sweeps leave out, by method: a test of the data set, and the reason.
NOT_PLANNED = {
    "eugkm": (lambda facts: facts["d"] > LOW_DIMENSIONS, _GRID),
    "eugkm_balanced": (lambda facts: facts["d"] > LOW_DIMENSIONS, _GRID),
    "em_mc": (lambda facts: facts["n"] > 100_000, "more than 100,000 points take it minutes a fit"),
}
HOW = (
    "Ratio: NICV over that of the best stored k-means++ run on the data set; medians over seeds, in brackets their "
    "distribution-free 95 % interval (the range where fewer than six seeds were run). † A parameter of DPM was chosen "
    "on letters, gas and the two embeddings, among others. "
)
HOW_STARVED = (
    f"{STARVED} No bucket could pass its threshold with so few records: the centers come from points placed without "
    "data and from what was asked about those. "
)


@dataclass(frozen=True)
class _Look:
    label: str
    color: str
    marker: str | None
    dash: object

    def line(self):
        return {
            "color": self.color, "marker": self.marker, "linestyle": self.dash, "label": self.label,
            "linewidth": 1.0 if self.marker is None else 1.5, "markersize": 4.5, "markeredgewidth": 0.6,
        }  # fmt: skip


def look(method):
    """How a method of the comparison is drawn; those that nobody has listed are drawn in ink."""
    label, color, marker = LOOKS.get(method, (method.replace("_", " "), INK, "."))
    return _Look(label, color, marker, DASHES.get(method, "-"))


def _ordered(methods):
    """Methods in the order of `LOOKS`, strangers after them."""
    return [name for name in LOOKS if name in set(methods)] + sorted(set(methods) - set(LOOKS))


def _datasets(table):
    """Data sets by number of columns, then by number of points."""
    return table.drop_duplicates("dataset").sort_values(["d", "n", "dataset"])["dataset"].tolist()


def _middle(table):
    grid = np.sort(table["epsilon"].dropna().unique())
    return float(grid[np.argmin(np.abs(np.log(grid / MIDDLE)))]) if grid.size else np.nan


def _missing(table, datasets):
    """One line for each method that lacks a result on some data set, with the reason where it was not planned."""
    lines, facts = [], table.drop_duplicates("dataset").set_index("dataset")
    for method, lack in complete(table, datasets)[1].items():
        label = look(method).label
        without, reason = NOT_PLANNED.get(method, (lambda _: False, ""))
        left_out = [name for name in lack if without(facts.loc[name])]
        if left_out:
            lines.append(f"{label}: {', '.join(left_out)} left out ({reason})")
        if rest := [name for name in lack if name not in left_out]:
            why = (
                "not planned at this size, not at hand, or over the time limit: see what is missing"
            )
            lines.append(f"{label}: no result at every epsilon on {', '.join(rest)} ({why})")
    return tuple(lines)


def _nothing(name):
    figure = Figure(figsize=(6, 2), layout="constrained")
    say(figure.subplots(), NO_DATA)
    empty = pd.DataFrame({"note": [f"{name}: {NO_DATA}"]})
    return FigureResult(figure, empty, empty, NO_DATA, (NO_DATA,))


def _how(table):
    return HOW + (HOW_STARVED if table["starved"].any() else "")


def _ratio_text(line):
    mark = f" {STARVED}" if line["starved"] else ""
    return f"{line['median']:.3g} [{line['low']:.3g}, {line['high']:.3g}]{mark}"


def _with_table(draw):
    """Give a figure the ratios, or words where there are none."""

    def drawn(study):
        table = ratios(study)
        return draw(table) if len(private(table)) else _nothing("ratios")

    return drawn


@_with_table
def draw_ratios(table):
    """Heat map of median ratios at one epsilon, data sets down, methods across."""
    epsilon, datasets = _middle(table), _datasets(table)
    mine = table[table["epsilon"] == epsilon]
    methods = [name for name in _ordered(mine["method"].unique()) if name != REFERENCE]
    values = mine.pivot_table(index="dataset", columns="method", values="median", aggfunc="first")
    values = values.reindex(datasets)[methods].to_numpy()
    figure = Figure(
        figsize=(1.6 + 0.78 * len(methods), 1.7 + 0.3 * len(datasets)), layout="constrained"
    )
    axes = figure.subplots()
    facts = mine.drop_duplicates("dataset").set_index("dataset")
    rows = [
        f"{name}  {facts['n'][name]:,} × {facts['d'][name]}, k {facts['k'][name]}"
        for name in datasets[::-1]
    ]
    top = float(np.clip(np.nanmax(values), 1.1, WORST_COLOR))
    labels, norm = [look(name).label for name in methods], LogNorm(1.0, top, clip=True)
    marked = mine.assign(mark=np.where(mine["starved"], STARVED, "")).pivot(
        index="dataset", columns="method", values="mark"
    )
    marks = marked.reindex(datasets[::-1])[methods].fillna("").to_numpy()
    heat_map(
        axes,
        values[::-1],
        rows,
        labels,
        norm,
        "viridis_r",
        lambda value: plain_number(float(f"{value:.3g}")),
        8,
        marks,
    )
    axes.set_xticks(range(len(methods)), labels, rotation=40, ha="left")
    axes.xaxis.tick_top()
    printed = mine.assign(text=[_ratio_text(line) for _, line in mine.iterrows()]).pivot_table(
        index="dataset", columns="method", values="text", aggfunc="first"
    )
    printed = (
        printed.reindex(datasets)[methods].fillna("–").rename(columns=lambda name: look(name).label)
    )
    caption = (
        f"{_how(mine)}Here at ε = {epsilon:g}; the CSV has every epsilon. {epsilon_label(mine)}. Data sets by "
        f"number of columns. {', '.join(look(name).label for name in NATIVE)}: as many centers as it finds. "
        f"Colors end at {top:.3g}."
    )
    return FigureResult(
        figure,
        table,
        printed.reset_index().rename_axis(columns=None),
        caption,
        _missing(table, datasets),
    )


@_with_table
def draw_curves(table):
    """Median ratio over epsilon, one panel per data set."""
    datasets, methods = _datasets(table), _ordered(table["method"].unique())
    columns = min(5, len(datasets))
    lines = -(-len(datasets) // columns)
    figure = Figure(figsize=(2.5 * columns + 0.4, 2.2 * lines + 1.3), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[len(datasets) :]:
        axes.set_axis_off()
    for axes, name in zip(grid.flat, datasets, strict=False):
        mine = table[table["dataset"] == name]
        axes.set_title(
            f"{name} (d {mine['d'].iloc[0]}, k {mine['k'].iloc[0]})", color=INK, fontsize=10
        )
        tops = []
        for method in methods:
            own = mine[mine["method"] == method].sort_values("epsilon")
            if len(own):
                axes.plot(own["epsilon"], own["median"], **look(method).line())
                if method not in (*YARDSTICKS, REFERENCE):
                    tops.append(own["median"].max())
        axes.set_xscale("log")
        axes.set_yscale("log")
        low = float(mine["median"].min())
        axes.set_ylim(min(low, 1.0) / 1.05, max(tops, default=2.0) * 1.15)
        log_axis(axes.yaxis)
        ticks = np.sort(mine["epsilon"].dropna().unique())
        axes.set_xticks(ticks, [f"{value:g}" for value in ticks], fontsize=8)
        axes.minorticks_off()
    figure.supylabel("ratio to non-private k-means", fontsize=11, color=INK)
    figure.supxlabel(epsilon_label(table), fontsize=11, color=INK)
    handles = [Line2D([], [], **look(name).line()) for name in methods]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=5 if columns > 3 else 3, fontsize=9
    )
    printed = table.assign(text=[_ratio_text(line) for _, line in table.iterrows()])
    printed = printed.pivot_table(
        index=["dataset", "epsilon"], columns="method", values="text", aggfunc="first"
    )
    printed = (
        printed.reindex(columns=methods)
        .fillna("–")
        .rename(columns=lambda name: look(name).label)
        .reset_index()
    )
    return FigureResult(
        figure,
        table,
        printed.rename_axis(columns=None),
        f"{_how(table)}Both axes logarithmic.",
        _missing(table, datasets),
    )


def _groups(table):
    """Titles, data sets and ranked methods of the groups that are compared.

    All data sets, with the methods that have results on all of them; and the data sets on which all methods have.
    """
    every = _datasets(table)
    groups = {"all data sets": every}
    if len(shared := shared_datasets(table, every)) < len(every):
        groups["data sets with a result of every method"] = shared
    return {
        title: (names, _ordered(complete(table, names)[0]))
        for title, names in groups.items()
        if names
    }


def _rankings(table):
    """Rankings by group title: a list over the epsilon grid."""
    grid = np.sort(table["epsilon"].dropna().unique())
    return {
        title: [rank(table, epsilon, datasets, methods) for epsilon in grid] if methods else []
        for title, (datasets, methods) in _groups(table).items()
    }


def _rank_lines(rankings):
    return pd.concat(
        [
            each.table.assign(
                group=title, epsilon=each.epsilon, datasets=len(each.datasets), friedman_p=each.p_value,
                critical_difference=each.critical,
            )
            for title, found in rankings.items()
            for each in found
        ],
        ignore_index=True,
    )  # fmt: skip


def _rank_caption(table):
    kept = "; ".join(
        f"{title}: {len(datasets)} sets" for title, (datasets, _) in _groups(table).items()
    )
    return (
        "On every data set methods are ranked by their median (1 is best, ties share), and ranks averaged over data "
        f"sets ({kept}). Only methods with a result on all of them at every epsilon take part, each with k centers; "
        "the second group is made of the data sets on which no method lacks one. "
    )


@_with_table
def draw_ranks(table):
    """Mean rank over epsilon with bootstrap bands over data sets."""
    rankings = _rankings(table)
    figure = Figure(figsize=(5.2 * len(rankings), 4.2), layout="constrained")
    for axes, (title, found) in zip(
        figure.subplots(1, len(rankings), squeeze=False).flat, rankings.items(), strict=True
    ):
        axes.set_title(title, color=INK, fontsize=10)
        if not found:
            say(axes, "no method has a result on all of these data sets")
            continue
        lines = _rank_lines({title: found})
        for method in _ordered(lines["method"].unique()):
            own, style = lines[lines["method"] == method].sort_values("epsilon"), look(method)
            axes.plot(own["epsilon"], own["mean_rank"], **style.line())
            axes.fill_between(
                own["epsilon"], own["low"], own["high"], color=style.color, alpha=0.1, linewidth=0
            )
        axes.set_xscale("log")
        ticks = np.sort(lines["epsilon"].unique())
        axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
        axes.minorticks_off()
        axes.invert_yaxis()
        axes.set_ylabel("mean rank (1 is best)")
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if not any(rankings.values()):
        return _nothing("ranks")
    figure.supxlabel(epsilon_label(private(table)), fontsize=10, color=INK)
    lines = _rank_lines(rankings)
    printed = lines.assign(
        text=[
            f"{a:.2f} [{b:.2f}, {c:.2f}]" for a, b, c in lines[["mean_rank", "low", "high"]].values
        ]
    )
    printed = printed.pivot_table(
        index=["group", "method"], columns="epsilon", values="text", aggfunc="first"
    )
    caption = _rank_caption(table) + "Bands: 95 % bootstrap over data sets."
    gaps = _missing(table, _datasets(table))
    return FigureResult(
        figure, lines, printed.fillna("–").reset_index().rename_axis(columns=None), caption, gaps
    )


@_with_table
def draw_differences(table):
    """Diagrams of critical differences at a few epsilons."""
    rankings = {title: found for title, found in _rankings(table).items() if found}
    if not rankings:
        return _nothing("ranks")
    grid = np.sort(table["epsilon"].dropna().unique())
    shown = grid[
        np.unique(np.linspace(0, grid.size - 1, min(SHOWN_RANKS, grid.size)).round().astype(int))
    ]
    most = max(len(found[0].table) for found in rankings.values())
    figure = Figure(
        figsize=(5.4 * len(rankings), (1.0 + 0.13 * most) * len(shown)), layout="constrained"
    )
    places = figure.subplots(len(shown), len(rankings), squeeze=False)
    for column, (title, found) in enumerate(rankings.items()):
        for line, epsilon in enumerate(shown):
            each = next(ranking for ranking in found if ranking.epsilon == epsilon)
            places[line, column].set_title(
                f"{title}, ε = {epsilon:g} ({_test_text(each)})", color=INK, fontsize=9
            )
            _difference_diagram(places[line, column], each)
    caption = (
        f"{_rank_caption(table)}Bars join methods whose mean ranks differ by less than Nemenyi's critical difference "
        f"at level {LEVEL} (CD): these data sets do not tell them apart. p: Friedman's test that all are alike. Few "
        "data sets make a large CD; they are also no random sample of any population."
    )
    lines = _rank_lines(rankings)
    printed = lines[
        ["group", "epsilon", "method", "mean_rank", "friedman_p", "critical_difference"]
    ].round(4)
    return FigureResult(figure, lines, printed, caption, _missing(table, _datasets(table)))


def _test_text(ranking):
    if not np.isfinite(ranking.critical):
        return "too few for a test"
    p = "p < 0.001" if ranking.p_value < 0.001 else f"p = {ranking.p_value:.2g}"
    return f"{p}, CD {ranking.critical:.2f}"


def _difference_diagram(axes, ranking):
    """Mean ranks on a line, the better half of the methods named on the left, bars over those that do not differ."""
    ranks, names = ranking.table["mean_rank"].to_numpy(), ranking.table["method"].tolist()
    k = len(names)
    half = -(-k // 2)
    axes.set_axis_off()
    axes.set_xlim(-0.9 * max(k - 1, 1) * 0.55 + 1, k + 0.9 * max(k - 1, 1) * 0.55)
    axes.set_ylim(half + 1.6, -1.6)
    axes.plot([1, max(k, 2)], [0, 0], color=INK, linewidth=1)
    for value in range(1, k + 1):
        axes.plot([value, value], [0, -0.15], color=INK, linewidth=0.8)
        axes.text(value, -0.3, str(value), ha="center", va="bottom", fontsize=7.5)
    cliques = ranking.cliques()
    for level, (first, last) in enumerate(cliques):
        height = 0.25 + 0.5 * level / max(len(cliques), 1)
        axes.plot(
            [ranks[first] - 0.06, ranks[last] + 0.06], [height, height], color=INK, linewidth=2.6
        )
    for place, (value, name) in enumerate(zip(ranks, names, strict=True)):
        left = place < half
        height = 1.1 + (place if left else k - 1 - place)
        end, style = (0.9 if left else k + 0.1), look(name)
        axes.plot([value, value, end], [0, height, height], color=style.color, linewidth=1)
        axes.plot([value], [0], marker="o", markersize=3.5, color=style.color)
        side, shift = ("right", -0.05) if left else ("left", 0.05)
        axes.text(
            end + shift,
            height,
            f"{style.label} {value:.2f}",
            ha=side,
            va="center",
            fontsize=8,
            color=INK,
        )


@_with_table
def draw_map(table):
    """Which private method does best, over records per cluster times epsilon and number of columns."""
    best = best_methods(table)
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axes = figure.subplots()
    # Data sets of equal numbers of columns would cover each other: they are spread a little, always alike.
    order = {name: place for place, name in enumerate(_datasets(table))}
    twins = best.groupby("d")["dataset"].transform(
        lambda names: names.map(order).rank(method="dense")
    )
    counts = best.groupby("d")["dataset"].transform("nunique")
    height = best["d"].to_numpy(dtype=float) * np.exp(0.09 * (twins - (counts + 1) / 2).to_numpy())
    axes.set_xscale("log")
    axes.set_yscale("log")
    useful = best["useful"].to_numpy(dtype=bool)
    if (~useful).any():
        axes.plot(
            best["records"][~useful],
            height[~useful],
            "x",
            color=GREY,
            markersize=5,
            label="none beats a yardstick",
        )
    for method in _ordered(best["method"].unique()):
        mine, style = useful & (best["method"] == method).to_numpy(), look(method)
        if mine.any():
            axes.plot(
                best["records"][mine], height[mine], linestyle="", marker=style.marker or "o", color=style.color,
                markersize=7, markeredgecolor="white", markeredgewidth=0.5, label=style.label,
            )  # fmt: skip
    log_axis(axes.xaxis)
    log_axis(axes.yaxis)
    axes.set_xlabel("ε · n / k: records of a cluster times ε")
    axes.set_ylabel("columns d")
    axes.grid(color=PALE, linewidth=0.5)
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = (
        "The private method of k centers with the smallest median ratio, for every data set and epsilon; a cross where "
        "even that one is no better than the mean as only center or centers placed without data. Sets of equal d are "
        "drawn one above the other. Where methods are close the winner is a matter of chance: the table has the second."
    )
    names = {
        column: best[column].map(lambda name: look(name).label if name else "–")
        for column in ("method", "second")
    }
    printed = best.assign(**names)[
        [
            "dataset",
            "epsilon",
            "d",
            "records",
            "method",
            "median",
            "second",
            "second_median",
            "yardstick",
            "useful",
        ]
    ].round(3)
    return FigureResult(figure, best, printed, caption)


def draw_times(study):
    """Seconds of a fit as a table."""
    found = times(study)
    if not len(found):
        return FigureResult(
            None,
            found,
            pd.DataFrame({"note": [NO_DATA]}),
            NO_DATA,
            (f"seconds of a fit: {NO_DATA}",),
        )
    order = found.drop_duplicates("dataset").sort_values(["n", "d", "dataset"])["dataset"]
    methods = _ordered(found["method"].unique())
    shown = found.assign(text=[f"{value:.2g}" for value in found["seconds"]])
    printed = shown.pivot_table(
        index=["dataset", "n", "d", "k"], columns="method", values="text", aggfunc="first"
    )
    printed = (
        printed[methods].reset_index().set_index("dataset").loc[order].reset_index().fillna("–")
    )
    printed = printed.rename(columns={name: look(name).label for name in methods}).rename_axis(
        columns=None
    )
    gaps = tuple(
        f"{look(name).label}: not timed" for name in _ordered({line for line in LOOKS} - set(methods))
        if name not in (*YARDSTICKS, *NATIVE)
    )  # fmt: skip
    caption = (
        "Seconds of one fit on one thread, alone on the machine, at ε = "
        f"{', '.join(f'{value:g}' for value in sorted(found['epsilon'].dropna().unique()))}: median of "
        f"{int(found['seeds'].min())} fits after one to warm up."
    )
    return FigureResult(None, found, printed, caption, gaps)


FIGURES = (
    FigureSpec("comparison_ratios", "Ratio to non-private k-means", False, draw_ratios),
    FigureSpec("comparison_curves", "Ratio over epsilon, data set by data set", False, draw_curves),
    FigureSpec("comparison_ranks", "Mean rank over data sets", False, draw_ranks),
    FigureSpec(
        "comparison_differences", "Which methods can be told apart", False, draw_differences
    ),
    FigureSpec("comparison_map", "Which method does best where", False, draw_map),
    FigureSpec("comparison_times", "Time of a fit", False, draw_times),
)
