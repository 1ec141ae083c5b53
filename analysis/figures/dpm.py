"""Tables 1 to 3 and Figures 1, 4, 5 and 6 of the DPM paper, and the figures this bench adds to them."""

import json
import string

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from pkm.analysis import claims, reported
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.panels import NO_DATA, heat_map, log_axis, on_one_axis, say
from pkm.analysis.figures.style import GREY, INK, PALE, epsilon_label, look
from pkm.analysis.hyperparameters import table_of_settings
from pkm.analysis.tables import (
    HIGHER_IS_BETTER,
    METRIC_NAMES,
    column_statistics,
    concatenate,
    percentile_interval,
    raw_units,
    resampled_means,
    resampling_weights,
    standard_deviations,
    summarize,
)

TITLES = {
    "mnist-embeddings": "MNIST embeddings",
    "fashion-embeddings": "Fashion embeddings",
    "synth-10d": "Synth-10d",
    "synth-100d": "Synth-100d",
    "letters-18720": "Letters (18,720)",
    "gas": "Gas",
    "letters": "Letters (all 20,000)",
}
SIX = tuple(TITLES)[:6]
PUBLISHED = ("kmeans", "dp_lloyd", "em_mc", "lsh_splits", "dpm")
ORDER = (*PUBLISHED, "dp_lloyd_sound", "lsh_splits_sound", "dpm_sound", "dpm_merged")
QUALITY_SWEEPS = ("table", "em_mc", "em_mc_large")
TIMING_SWEEPS = ("timing", "timing_em_mc")
MATCHES = (
    ("dpm", "dpm_sound"),
    ("dpm", "dpm_merged"),
    ("lsh_splits", "lsh_splits_sound"),
    ("dp_lloyd", "dp_lloyd_sound"),
)
SHARES = {"shares": ["interval", "counts", "splits", "averages"]}
CENTRENESS = ["t", "q"]
GRID_METRICS = ("silhouette", "inertia", "accuracy", "norm_kmeans_distance")
CHOSEN_SHARE = 0.2
OWN_SHARES = (0.04, 0.18, 0.18, 0.6)
BEST, WORST = "#009e73", "#e69f00"
NO_PAIR = "no pair of stored runs at matched budgets"


def _title(name):
    return TITLES.get(name, name)


def _ordered(names, order):
    return sorted(
        set(names), key=lambda name: (order.index(name) if name in order else len(order), name)
    )


def _label(method):
    return look(method).label.replace("k-means++ (non-private)", "k-means++")


def _marker(method):
    return look(method).marker or "X"


def _join(study, sweeps, metric):
    """Panel of a metric over several sweeps, or one without columns."""
    found = [panel for name in sweeps if len((panel := study.panel(name, metric)).cells)]
    return concatenate(found) if found else study.panel(sweeps[0], metric)


def _at_epsilon(panel, epsilon):
    """Cells at one epsilon, and those that have none."""
    if not len(panel.cells):
        return panel
    own = panel.cells["epsilon"]
    return panel.take((own.isna() | np.isclose(own, epsilon)).to_numpy())


def _on_one_axis(panel):
    """Keep the methods that may share an axis; also return the names of the others."""
    kept, strangers = on_one_axis(panel.cells) if len(panel.cells) else ([], [])
    return panel.take(panel.cells["method"].isin(kept).to_numpy()), strangers


def _spread(panel):
    """Mean, deviation (n - 1) and seeds of every cell."""
    mean, _, median, count = column_statistics(panel.values)
    facts = {
        "mean": mean,
        "deviation": standard_deviations(panel.values),
        "median": median,
        "seeds": count,
    }
    return panel.cells.assign(metric=panel.metric, **facts)


def _seeds(table):
    if not len(table):
        return "no seeds"
    low, high = int(table["seeds"].min()), int(table["seeds"].max())
    return f"{high} seeds" if low == high else f"{low} to {high} seeds"


def _gaps(table, datasets, methods, strangers=()):
    """Say which expected data sets and methods have no rows, and which methods may not share the axis."""
    here = set(table["dataset"]) if len(table) else set()
    gaps = [f"{_title(name)}: {NO_DATA}" for name in datasets if name not in here]
    for method in methods:
        mine = set(table.loc[table["method"] == method, "dataset"]) if len(table) else set()
        absent = [_title(name) for name in datasets if name in here and name not in mine]
        if absent:
            gaps.append(f"{_label(method)} on {', '.join(absent)}: {NO_DATA}")
    gaps += [
        f"{_label(name)}: another adjacency or trust model, not on this axis" for name in strangers
    ]
    return tuple(gaps)


def _number(value):
    """Three digits, short exponents."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.3f}" if abs(value) < 1 else _three_digits(value)


# --- tables ----------------------------------------------------------------------------------------------------------


def _table1(study):
    """Sizes of the data sets as stored, beside those the paper prints."""
    rows = claims.load("dpm")["printed"]["sizes"]
    cells = study.cells[study.cells["sweep"] == "table"] if "table" in study.sweeps else study.cells
    stored = cells.drop_duplicates("dataset").set_index("dataset")
    lines = []
    for row in [*rows, {"dataset": "letters", "n": "–", "d": "–", "k": "–"}]:
        here = stored.loc[row["dataset"]] if row["dataset"] in stored.index else {}
        lines.append(
            {
                "data set": _title(row["dataset"]),
                **{f"{name} (paper)": row[name] for name in ("n", "d", "k")},
                **{
                    f"{name} (here)": str(here[name]) if len(here) else "–"
                    for name in ("n", "d", "k")
                },
                "half range": f"{here['domain_half_width']:g}" if len(here) else "–",
            }
        )
    table = pd.DataFrame(lines)
    gaps = tuple(f"{line['data set']}: {NO_DATA}" for line in lines if line["n (here)"] == "–")
    caption = (
        "Points, dimensions and classes of the data sets, as printed and as used here. Half range is half the width of "
        "the range that all columns share: inertia times its square, and distances times it, are in raw units. The "
        "paper's 18,720 Letters are 720 rows per class drawn with replacement, so rows repeat; the full 20,000 stand "
        "beside them."
    )
    return FigureResult(None, table, table, caption, gaps)


def _quality_table(number, datasets):
    def draw(study):
        table = reported.compare(study, claims.load("dpm")["printed"]["quality"])
        table = table[table["table"] == number].reset_index(drop=True)
        reasons = {text: string.ascii_lowercase[i] for i, text in enumerate(_reasons(table))}
        lines = []
        for (dataset, method), inside in table.groupby(["dataset", "method"], sort=False):
            line = {"data set": _title(dataset), "method": _label(method)}
            for row in inside.to_dict("records"):
                arrow = "↑" if row["metric"] in HIGHER_IS_BETTER else "↓"
                line[f"{METRIC_NAMES[row['metric']]} {arrow}"] = _cell(row, reasons)
            spent = inside["epsilon_spent"].max()
            lines.append(line | {"ε spent": f"{spent:.3g}" if np.isfinite(spent) else "–"})
        counts = table["verdict"].value_counts()
        caption = (
            "Ours (mean ± standard deviation over seeds, n - 1) | printed, and the verdict: within (no further apart "
            "than two standard errors of both and half a printed digit, where a printed deviation counts half a digit "
            "more and a silhouette has the error of our fixed sample of 10,000 points), better, worse, n. c. (not "
            "comparable). "
            f"{'; '.join(f'{count} {name}' for name, count in counts.items())}. Inertia in raw units; the KMeans "
            "distance is divided by W√d, the diagonal of the box. Declared ε = 1; spent is what the ledger says. "
        )
        caption += " ".join(f"({letter}) {text}." for text, letter in reasons.items())
        stored = table[table["verdict"] != reported.NOT_STORED]
        stored = stored[stored["seeds"] > 0]
        return FigureResult(
            None, table, pd.DataFrame(lines), caption.strip(), _gaps(stored, datasets, PUBLISHED)
        )

    return draw


def _reasons(table):
    texts = [*table["reason"], *table["note"]]
    return [
        text
        for text in dict.fromkeys(texts)
        if text and "seeds" not in text[-6:] and text != "no stored rows"
    ]


def _cell(row, reasons):
    short = {reported.WITHIN: "within", reported.NOT_COMPARABLE: "n. c."}.get(
        row["verdict"], row["verdict"]
    )
    marks = "".join(
        f" ({reasons[text]})" for text in (row["reason"], row["note"]) if text in reasons
    )
    ours = (
        f"{_number(row['mean'])} ± {_number(row['deviation'])}" if np.isfinite(row["mean"]) else "–"
    )
    return f"{ours} | {row['printed']}: {short}{marks}"


# --- figures of the paper --------------------------------------------------------------------------------------------


def _panels(count, columns, width, height, extra=0.8):
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows + extra), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def _figure1(study):
    """Bars of the normalized KMeans distance, with the printed values as markers."""
    panel, strangers = _on_one_axis(
        _at_epsilon(_join(study, QUALITY_SWEEPS, "norm_kmeans_distance"), 1.0)
    )
    table = _spread(panel)
    table = table[table["method"].isin(PUBLISHED)].reset_index(drop=True)
    asked = reported.compare(study, claims.load("dpm")["printed"]["quality"])
    asked = asked[asked["metric"] == "norm_kmeans_distance"].set_index(["dataset", "method"])[
        "printed_mean"
    ]
    datasets = [*SIX, *_ordered(set(table["dataset"]) - set(SIX), tuple(TITLES))]
    figure, grid = _panels(len(datasets), 4, 3.1, 2.6)
    for place, (axes, name) in enumerate(zip(grid, datasets, strict=True)):
        axes.set_title(f"({string.ascii_lowercase[place]}) {_title(name)}", color=INK)
        mine = table[table["dataset"] == name].set_index("method")
        if not len(mine):
            say(axes, NO_DATA)
            continue
        _distance_bars(axes, mine, asked.get(name, pd.Series(dtype=float)))
    handles = [Patch(color=look(name).color, label=_label(name)) for name in PUBLISHED]
    handles.append(
        Line2D(
            [], [], color=INK, marker="D", markerfacecolor="white", linestyle="", label="printed"
        )
    )
    handles.append(Line2D([], [], color=INK, marker="^", linestyle="", label="above 1, cut"))
    figure.legend(
        handles=handles, loc="outside upper center", ncols=7, fontsize=9.5, columnspacing=1.2
    )
    figure.supylabel("KMeans distance / W√d", fontsize=11, color=INK)
    if len(table):
        figure.supxlabel(
            epsilon_label(panel.cells).replace("ε", "ε = 1", 1), fontsize=10, color=INK
        )
    caption = (
        "Mean distance of the released centers to the nearest center of a reference clustering, averaged over twenty "
        "references and divided by the diagonal of the box. Bars: ours, with standard deviations over "
        f"{_seeds(table)}. Diamonds: the printed values, which the paper takes from its Table 2 (Letters and Gas: "
        "Table 3; its figure shows fewer sets). Values above 1 lie outside the box; they are cut and written at the "
        "top. The authors' plotting script swaps the names of the two embeddings in this figure, not in the tables. "
        "The measure is one-sided: clusters that no center is near cost nothing."
    )
    shown = table[
        ["dataset", "method", "epsilon", "epsilon_spent", "mean", "deviation", "median", "seeds"]
    ]
    keys = pd.MultiIndex.from_frame(shown[["dataset", "method"]])
    shown = shown.assign(printed=asked.reindex(keys).to_numpy())
    text = shown.assign(
        value=[f"{_number(line.mean)} ± {_number(line.deviation)}" for line in shown.itertuples()],
        printed=shown["printed"].map(lambda value: f"{value:.2f}" if np.isfinite(value) else "–"),
    )[["dataset", "method", "value", "printed"]]
    return FigureResult(figure, shown, text, caption, _gaps(table, SIX, PUBLISHED, strangers))


def _distance_bars(axes, mine, asked):
    heights = [value for value in [*mine["mean"], *asked.dropna()] if value <= 1]
    tops = mine["mean"] + mine["deviation"].fillna(0)
    top = max([*heights, *tops[tops <= 1], 0.01])
    axes.set_ylim(0, 1.32 * top)
    for x, method in enumerate(PUBLISHED):
        labels = []
        if method in mine.index:
            value, deviation = mine["mean"][method], mine["deviation"][method]
            inside = min(value, top)
            axes.bar(x, inside, 0.72, color=look(method).color, alpha=0.85)
            reach = inside
            if value <= 1:
                error = np.nan_to_num(deviation)
                axes.errorbar(
                    x, value, [[min(error, value)], [error]], color=INK, capsize=2.5, elinewidth=1
                )
                reach = min(value + error, top)
                if asked.get(method, np.inf) <= 1:
                    reach = max(
                        reach, asked[method] + 0.02 * top
                    )  # the number stands clear of the printed marker
                axes.text(
                    x,
                    reach + 0.03 * top,
                    _short(value),
                    ha="center",
                    va="bottom",
                    fontsize=7.5,
                    color=INK,
                )
            else:
                labels.append(f"ours {_short(value)}")
        else:
            axes.text(
                x,
                0.03 * top,
                "not run",
                ha="center",
                va="bottom",
                fontsize=7.5,
                color=GREY,
                rotation=90,
            )
        if method in asked.index and np.isfinite(asked[method]):
            if asked[method] <= 1:
                axes.plot(
                    x + 0.22,
                    asked[method],
                    "D",
                    color=INK,
                    markerfacecolor="white",
                    markersize=5,
                    zorder=6,
                )
            else:
                labels.append(f"printed {_short(asked[method])}")
        if labels:
            axes.plot(x + 0.36, 1.05 * top, "^", color=INK, markersize=5, clip_on=False)
            axes.text(
                x, 1.16 * top, "\n".join(labels), ha="center", va="bottom", fontsize=7.5, color=INK
            )
    axes.set_xlim(-0.6, len(PUBLISHED) - 0.4)
    short = [_label(name).removesuffix("-Splits").removesuffix("++") for name in PUBLISHED]
    axes.set_xticks(range(len(PUBLISHED)), short, fontsize=7.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    axes.locator_params(axis="y", nbins=4)


def _short(value):
    return f"{value:.3f}" if value < 1 else f"{value:.1f}"


def _figure4(study):
    """CPU times on a logarithmic axis."""
    panel, strangers = _on_one_axis(_join(study, TIMING_SWEEPS, "fit_cpu_seconds"))
    table = _spread(panel)
    datasets = [*SIX, *_ordered(set(table["dataset"]) - set(SIX), tuple(TITLES))]
    datasets = [name for name in datasets if name in set(table["dataset"]) or name in SIX]
    methods = _ordered(set(table["method"]), ORDER)
    figure = Figure(figsize=(11.5, 4.3), layout="constrained")
    axes = figure.subplots()
    if not len(table):
        say(axes, NO_DATA)
    width = 0.8 / max(len(methods) - 1, 1)
    for order, method in enumerate(methods):
        mine = table[table["method"] == method].set_index("dataset").reindex(datasets)
        x = np.arange(len(datasets)) + (order - (len(methods) - 1) / 2) * width
        mean, error = mine["mean"].to_numpy(), np.nan_to_num(mine["deviation"].to_numpy())
        style = look(method, known=methods)
        axes.errorbar(
            x,
            mean,
            [np.minimum(error, 0.9 * mean), error],
            color=style.color,
            marker=_marker(method),
            markerfacecolor="white" if style.hollow else style.color,
            markersize=7,
            linestyle="",
            capsize=2.5,
            label=_label(method),
        )
        for at, value, end in zip(x, mean, mean + error, strict=True):
            if np.isfinite(value):
                end = max(end, 1.15 * value)  # clear of the marker
                axes.text(
                    at,
                    1.1 * end,
                    _seconds(value),
                    ha="center",
                    va="bottom",
                    fontsize=6.5,
                    color=INK,
                )
    if len(table):
        axes.set_yscale("log")
        axes.set_ylim(
            table["mean"].min() / 2.5, (table["mean"] + table["deviation"].fillna(0)).max() * 2.5
        )
        log_axis(axes.yaxis)
        axes.set_xticks(range(len(datasets)), [_title(name) for name in datasets])
        for edge in np.arange(len(datasets) - 1) + 0.5:
            axes.axvline(edge, color=PALE, linewidth=0.8)
        axes.set_xlim(-0.5, len(datasets) - 0.5)
        axes.grid(axis="x", visible=False)
        axes.set_ylabel("CPU seconds for one fit (log scale)")
        figure.legend(loc="outside upper center", ncols=len(methods), fontsize=10)
    caption = (
        "CPU time of one fit on one pinned thread, because other programs may run beside it; mean and standard "
        f"deviation over {_seeds(table)}. {_wall_over_cpu(study)}Implementations differ from the paper's (ours are "
        "compiled and share nothing with them), so heights say nothing about the paper's figure, orders of methods "
        "may. The authors' plotting script swaps the names of the two embeddings in this figure. A method without a "
        "marker was not run or was stopped by its time limit; the list of missing cells says which."
    )
    shown = table[
        ["dataset", "n", "d", "k", "method", "epsilon", "mean", "deviation", "median", "seeds"]
    ]
    text = shown.assign(
        value=[f"{_number(row.mean)} ± {_number(row.deviation)} s" for row in shown.itertuples()]
    )
    text = text[["dataset", "method", "value"]]
    return FigureResult(figure, shown, text, caption, _gaps(table, SIX, PUBLISHED, strangers))


def _wall_over_cpu(study):
    """Say how much longer than its CPU time a fit took at most; empty without times."""
    rows = study.rows_with(["fit_seconds", "fit_cpu_seconds"])
    rows = rows[rows["sweep"].isin(TIMING_SWEEPS)]
    if not len(rows):
        return ""
    largest = (rows["fit_seconds"] / rows["fit_cpu_seconds"]).max()
    return f"The largest ratio of wall-clock to CPU time of a fit is {largest:.3g}. "


def _seconds(value):
    return (
        f"{1000 * value:.3g} ms"
        if value < 1
        else f"{value:.3g} s"
        if value < 100
        else f"{value / 60:.2g} min"
    )


def _settings_of(study, sweep, metric, dataset, parameters):
    """Settings and their means on one data set; None where fewer than three are stored."""
    panel = raw_units(study.panel(sweep, metric))
    if not len(panel.cells):
        return None
    panel = panel.take(
        ((panel.cells["dataset"] == dataset) & (panel.cells["method"] == "dpm")).to_numpy()
    )
    settings = table_of_settings(panel.cells, parameters)
    if settings is None or len(settings) < 3:
        return None
    summary = summarize(panel)[["mean", "half_width", "seeds"]].reset_index(drop=True)
    return (
        pd.concat([settings, summary], axis=1)
        .dropna(subset=[*settings.columns, "mean"])
        .reset_index(drop=True)
    )


def _grid_datasets(study, sweep, expected):
    stored = set(study.cells.loc[study.cells["sweep"] == sweep, "dataset"])
    return [*expected, *_ordered(stored - set(expected), tuple(TITLES))]


def _figure5(study):
    """Budget splits on parallel axes: the best and the worst fifth by each metric."""
    datasets = _grid_datasets(study, "budget", ("mnist-embeddings", "letters-18720"))
    names = SHARES["shares"]
    figure = Figure(figsize=(12.6, 2.7 * len(datasets) + 0.9), layout="constrained")
    grid = figure.subplots(len(datasets), len(GRID_METRICS), squeeze=False, sharey=True)
    lines, gaps, seeds = [], [], []
    for row, dataset in enumerate(datasets):
        for column, metric in enumerate(GRID_METRICS):
            axes = grid[row][column]
            place = string.ascii_lowercase[row * len(GRID_METRICS) + column]
            arrow = "↑" if metric in HIGHER_IS_BETTER else "↓"
            axes.set_title(
                f"({place}) {METRIC_NAMES[metric].split(' by ')[0]} {arrow}", fontsize=10
            )
            settings = _settings_of(study, "budget", metric, dataset, SHARES)
            if settings is None:
                say(axes, NO_DATA)
                continue
            lines.append(
                _parallel(axes, settings, metric, names).assign(dataset=dataset, metric=metric)
            )
            seeds.append(settings["seeds"])
        if all(settings.empty or settings["dataset"].iloc[0] != dataset for settings in lines):
            gaps.append(f"{_title(dataset)}: {NO_DATA}")
        grid[row][0].set_ylabel(f"{_title(dataset)}\nshare of ε")
    handles = [
        Line2D([], [], color=BEST, linewidth=1, label="best 20 %"),
        Line2D([], [], color=WORST, linewidth=1, label="worst 20 %"),
        Line2D([], [], color=INK, linewidth=2.4, linestyle="-", label="their means (thick)"),
        Line2D([], [], color=INK, linestyle="", marker="x", label="the paper's choice"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=10)
    table = (
        pd.concat(lines, ignore_index=True)
        if lines
        else pd.DataFrame(columns=["dataset", "metric", *names])
    )
    count = len(table[["dataset", *names]].drop_duplicates()) // max(len(set(table["dataset"])), 1)
    counted = f"{min(map(min, seeds))} to {max(map(max, seeds))}" if seeds else "no"
    caption = (
        "Shares of ε for the interval size, the counts, the choice of splits and the averages: each line is a budget "
        f"split that adds up to one, out of {count} per data set, ranked by its mean over {counted} seeds at ε = 1. "
        "Thin green: the best fifth; thin orange: the worst; thick: their means. The paper shows the MNIST embeddings "
        "and does not print its grid."
    )
    if not len(table):
        return FigureResult(figure, table, table, caption, tuple(gaps))
    means = table.groupby(["dataset", "metric", "group"], sort=False)[names].mean().reset_index()
    means = means[means["group"] != "between"]
    text = means.assign(**{name: means[name].map("{:.3f}".format) for name in names})
    return FigureResult(figure, table, text, caption, tuple(gaps))


def _parallel(axes, settings, metric, names):
    """Draw one panel; return the settings with the group that each belongs to."""
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    ranked = settings.iloc[
        np.argsort(sign * settings["mean"].to_numpy(), kind="stable")
    ].reset_index(drop=True)
    count = max(round(CHOSEN_SHARE * len(ranked)), 1)
    group = np.full(len(ranked), "between", dtype=object)
    group[:count], group[len(ranked) - count :] = "best", "worst"
    for name, color in (("worst", WORST), ("best", BEST)):
        chosen = ranked[group == name][names].to_numpy()
        axes.plot(range(len(names)), chosen.T, color=color, linewidth=0.9, alpha=0.55)
        axes.plot(range(len(names)), chosen.mean(axis=0), color=color, linewidth=2.8, zorder=5)
    axes.plot(range(len(names)), OWN_SHARES, "x", color=INK, markersize=6, zorder=6)
    axes.set_xticks(range(len(names)), names, fontsize=8.5)
    axes.set_xlim(-0.25, len(names) - 0.75)
    axes.set_ylim(0, None)
    return ranked.assign(rank=np.arange(1, len(ranked) + 1), group=group)


def _figure6(study):
    """Heat maps of four metrics over t and q."""
    datasets = _grid_datasets(study, "centreness", ("synth-10d", "letters-18720"))
    figure = Figure(figsize=(15.5, 3.2 * len(datasets) + 0.4), layout="constrained")
    grid = figure.subplots(len(datasets), len(GRID_METRICS), squeeze=False)
    lines, gaps = [], []
    for row, dataset in enumerate(datasets):
        for column, metric in enumerate(GRID_METRICS):
            axes = grid[row][column]
            place = string.ascii_lowercase[row * len(GRID_METRICS) + column]
            arrow = "↑" if metric in HIGHER_IS_BETTER else "↓"
            axes.set_title(
                f"({place}) {_title(dataset)}: {METRIC_NAMES[metric].split(' by ')[0]} {arrow}",
                fontsize=9.5,
            )
            settings = _settings_of(study, "centreness", metric, dataset, CENTRENESS)
            if settings is None:
                say(axes, NO_DATA)
                gaps.append(f"{_title(dataset)}, {METRIC_NAMES[metric]}: {NO_DATA}")
                continue
            _centreness_map(figure, axes, settings, metric)
            lines.append(settings.assign(dataset=dataset, metric=metric))
    table = (
        pd.concat(lines, ignore_index=True)
        if lines
        else pd.DataFrame(columns=["dataset", "metric", *CENTRENESS])
    )
    caption = (
        "Mean of each metric over t (centreness at the edge of the outer part) and q (share of a node's points in it), "
        "where q is at most t / 2; darker is better in every panel, a dash marks what is not allowed or not stored. "
        f"{_seeds(table) if len(table) else 'no seeds'} a cell, ε = 1. The paper shows Synth-10d and says that the "
        "others look the same; it does not print its grid."
    )
    if not len(table):
        return FigureResult(figure, table, table, caption, tuple(gaps))
    text = table.assign(mean=table["mean"].map(_number)).pivot_table(
        index=["dataset", *CENTRENESS], columns="metric", values="mean", aggfunc="first"
    )
    text = text.fillna("–").reset_index().rename_axis(columns=None)
    text[CENTRENESS] = text[CENTRENESS].map("{:.3g}".format)
    return FigureResult(figure, table, text, caption, tuple(gaps))


def _centreness_map(figure, axes, settings, metric):
    matrix = settings.pivot(index="q", columns="t", values="mean")
    values = matrix.to_numpy(dtype=float)
    low, high = np.nanmin(values), np.nanmax(values)
    # A range that is nothing but rounding would show structure where there is none.
    pad = max(0.01 * max(abs(low), abs(high)) - (high - low), 0) / 2
    cmap = "YlGnBu" if metric in HIGHER_IS_BETTER else "YlGnBu_r"
    rows = [f"{value:.3g}" for value in matrix.index]
    columns = [f"{value:g}" for value in matrix.columns]
    scale = Normalize(low - pad, high + pad)
    fontsize = 7.5 if len(columns) < 6 else 6.5
    places = 4 if high < 0.1 else 3
    image = heat_map(
        axes, values, rows, columns, scale, cmap, lambda value: _fixed(value, places), fontsize
    )
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02, aspect=25)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5)
    if pad:
        bar.set_ticks([(low + high) / 2])
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _fixed(value, places)))
    axes.set_xlabel("t", fontsize=9)
    axes.set_ylabel("q", fontsize=9)
    axes.tick_params(labelsize=8)


def _fixed(value, places):
    """Numbers of one panel with equally many places, large ones with an exponent."""
    return f"{value:.{places}f}" if abs(value) < 10 else _three_digits(value)


def _three_digits(value):
    if abs(value) < 1e4:
        return f"{value:#.3g}" if abs(value) < 100 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


# --- figures of our own ----------------------------------------------------------------------------------------------


def matched_ratios(study, metric="inertia"):
    """Sound over published, at the largest stored budget of the sound variant that is within what the published spent.

    A pair counts where data set, scaling and adjacency agree, and neither epsilon spent nor delta of the sound variant
    is larger than the published one's.

    Returns
    -------
    DataFrame
        One line per pair and data set: both budgets (declared, spent, delta), `ratio` of means with a 95 % paired
        bootstrap interval over seeds, `seeds`, and `unproven`: flaws of charges of the published variant.
    """
    columns = ["published", "sound", "dataset", "ratio", "low", "high", "seeds", "unproven"]
    columns += [
        f"{fact}_{side}"
        for side in ("published", "sound")
        for fact in ("epsilon", "spent", "delta")
    ]
    panel = _join(study, (*QUALITY_SWEEPS, "sound"), metric)
    cells = panel.cells
    if not len(cells):
        return pd.DataFrame(columns=columns)
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    lines = []
    for published, sound in MATCHES:
        for old in cells[
            (cells["method"] == published) & np.isclose(cells["epsilon"], 1.0)
        ].itertuples():
            mine = cells[(cells["method"] == sound) & (cells["dataset"] == old.dataset)]
            same = (mine["adjacency"] == old.adjacency) & (
                mine["preprocessing"] == old.preprocessing
            )
            fits = (mine["epsilon_spent"] <= old.epsilon_spent * (1 + 1e-9)) & (
                mine["delta"] <= old.delta
            )
            mine = mine[same & fits].sort_values("epsilon")
            if not len(mine):
                continue
            new = mine.iloc[-1]
            ratio = means[:, new.name] / means[:, old.Index]
            (low,), (high,) = percentile_interval(ratio[:, None])
            both = np.isfinite(panel.values[:, [new.name, old.Index]]).all(axis=1)
            values = [
                published,
                sound,
                old.dataset,
                ratio[0],
                low,
                high,
                int(both.sum()),
                _unproven(old.charges),
            ]
            values += [
                old.epsilon,
                old.epsilon_spent,
                old.delta,
                new["epsilon"],
                new["epsilon_spent"],
                new["delta"],
            ]
            lines.append(dict(zip(columns, values, strict=True)))
    return pd.DataFrame(lines, columns=columns)


def _unproven(charges):
    """Flaws of charges whose cost is what a paper claims and is known not to hold."""
    flaws = {charge.get("flaw", "") for charge in json.loads(charges or "[]")}
    return " ".join(sorted(flaws - {""}))


def _matched(study):
    """Inertia of the sound variants relative to the published ones at matched spent epsilon."""
    table = matched_ratios(study)
    datasets = _ordered(set(table["dataset"]) | set(SIX), tuple(TITLES))
    figure = Figure(figsize=(14.5, 0.9 + 0.42 * max(len(datasets), 4)), layout="constrained")
    grid = figure.subplots(1, len(MATCHES))
    labelled = False
    low, high = (table["low"].min(), table["high"].max()) if len(table) else (1, 1)
    low, high = (
        np.nanmin([low, table["ratio"].min(), 1]),
        np.nanmax([high, table["ratio"].max(), 1]),
    )
    for place, (axes, (published, sound)) in enumerate(zip(grid, MATCHES, strict=True)):
        mine = table[(table["published"] == published) & (table["sound"] == sound)]
        axes.set_title(
            f"({string.ascii_lowercase[place]}) {_label(sound)}\nover {_label(published)}",
            fontsize=10,
        )
        if not len(mine):
            say(axes, NO_PAIR)
            continue
        style = look(sound)
        y = np.array([datasets.index(name) for name in mine["dataset"]])
        error = np.nan_to_num([mine["ratio"] - mine["low"], mine["high"] - mine["ratio"]])
        axes.axvline(1, color=GREY, linewidth=1)
        axes.errorbar(
            mine["ratio"],
            y,
            xerr=np.clip(error, 0, None),
            color=style.color,
            marker=_marker(sound),
            markerfacecolor="white",
            markersize=7,
            linestyle="",
            capsize=3,
        )
        axes.set_xscale("log")
        axes.set_xlim(low / 1.15, high * 1.15)
        log_axis(axes.xaxis)
        axes.tick_params(axis="x", labelsize=8)
        axes.set_yticks(
            range(len(datasets)),
            [""] * len(datasets) if labelled else [_title(name) for name in datasets],
        )
        axes.set_ylim(len(datasets) - 0.4, -0.6)
        labelled = True
        right = axes.secondary_yaxis("right")
        spent = {name: "–" for name in range(len(datasets))}
        spent |= {
            at: f"{old:.2f} | {new:.2f}" for at, old, new in zip(y, *_spent(mine), strict=True)
        }
        right.set_yticks(range(len(datasets)), list(spent.values()))
        right.tick_params(length=0, labelsize=8, colors="#555555")
        right.spines["right"].set_visible(False)
        axes.set_xlabel("inertia, sound / published", fontsize=9)
    caption = (
        "Inertia of the sound variant divided by that of the published one (left of the line: the sound one is "
        "better); 95 % paired bootstrap intervals over seeds, logarithmic axis. To the right of each panel: ε that "
        "the ledger says was spent, published | sound. The published variant declares ε = 1 with its own δ; the sound "
        "one runs at the largest stored ε that spends no more, at a smaller δ, under the same adjacency and range. "
        "What the published variants spend rests on their own claims: where those are known not to hold (column "
        "unproven of the table), the comparison is in their favor."
    )
    gaps = [
        f"{_label(sound)} over {_label(published)} on {_title(name)}: {NO_PAIR}"
        for published, sound in MATCHES
        for name in SIX
        if not (
            (table["sound"] == sound)
            & (table["published"] == published)
            & (table["dataset"] == name)
        ).any()
    ]
    text = table.assign(
        ratio=[f"{row.ratio:.3g} [{row.low:.3g}, {row.high:.3g}]" for row in table.itertuples()],
        published=table["published"].map(_label),
        sound=table["sound"].map(_label),
        spent=[f"{old:.3g} | {new:.3g}" for old, new in zip(*_spent(table), strict=True)],
        declared=[
            f"{row.epsilon_published:g} | {row.epsilon_sound:g}" for row in table.itertuples()
        ],
    )
    text = text[
        ["published", "sound", "dataset", "ratio", "declared", "spent", "unproven", "seeds"]
    ]
    return FigureResult(figure, table, text, caption, tuple(gaps))


def _spent(table):
    return table["spent_published"], table["spent_sound"]


def _two_sweeps(study, metric):
    """Published and sound methods at epsilon 1 on one axis."""
    return _on_one_axis(_at_epsilon(_join(study, (*QUALITY_SWEEPS, "sound"), metric), 1.0))


def _rows_per_method(study, metrics, draw, width, xlabel):
    """One panel per data set, one line per method; `draw(axes, place, method, values)` fills a line."""
    tables, strangers = [], []
    for metric in metrics:
        panel, others = _two_sweeps(study, metric)
        tables.append(_spread(panel))
        strangers = others or strangers
    table = pd.concat(tables, ignore_index=True)
    table = table[table["method"].isin(ORDER)]
    datasets = [*SIX, *_ordered(set(table["dataset"]) - set(SIX), tuple(TITLES))]
    methods = [name for name in ORDER if name in set(table["method"])] or list(PUBLISHED)
    figure, grid = _panels(len(datasets), 4, width, 0.55 + 0.24 * len(methods))
    labelled = set()
    for place, (axes, name) in enumerate(zip(grid, datasets, strict=True)):
        axes.set_title(f"({string.ascii_lowercase[place]}) {_title(name)}")
        mine = table[table["dataset"] == name]
        if not len(mine):
            say(axes, NO_DATA)
            continue
        for at, method in enumerate(methods):
            values = mine[mine["method"] == method].set_index("metric")
            if len(values):
                draw(axes, at, method, values)
        # Only now, because a limit set by hand ends the search for the other one.
        axes.set_xlim(left=min(0, axes.get_xlim()[0]))
        axes.set_ylim(len(methods) - 0.4, -0.6)
        # The first panel of a row that is drawn carries the names.
        labels = (
            [""] * len(methods)
            if place // 4 in labelled
            else [_label(method) for method in methods]
        )
        labelled.add(place // 4)
        axes.set_yticks(range(len(methods)), labels, fontsize=8.5)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="x", labelsize=8)
    figure.supxlabel(xlabel, fontsize=10, color=INK)
    columns = [
        "dataset",
        "k",
        "method",
        "variant",
        "metric",
        "epsilon",
        "epsilon_spent",
        "mean",
        "deviation",
        "seeds",
    ]
    shown = table[columns].reset_index(drop=True)
    text = shown.assign(
        value=[f"{_number(row.mean)} ± {_number(row.deviation)}" for row in shown.itertuples()]
    )
    text = text.pivot_table(
        index=["dataset", "method"], columns="metric", values="value", aggfunc="first", sort=False
    )
    text = text.fillna("–").reset_index().rename_axis(columns=None)
    return figure, grid, shown, text, _gaps(table, SIX, PUBLISHED, strangers)


def _directions(study):
    """Both directions of the KMeans distance."""
    metrics = ("norm_kmeans_distance", "norm_reverse_kmeans_distance")

    def draw(axes, at, method, values):
        style = look(method)
        forward, reverse = (values["mean"].get(name, np.nan) for name in metrics)
        shown = np.minimum([forward, reverse], 1.0)
        axes.plot(shown, [at, at], color=style.color, linewidth=1.6, alpha=0.6)
        axes.plot(shown[0], at, "o", color=style.color, markersize=6, markerfacecolor=style.color)
        axes.plot(
            shown[1],
            at,
            "o",
            color=style.color,
            markersize=6,
            markerfacecolor="white",
            markeredgewidth=1.4,
        )

    label = "distance / W√d (values above 1 drawn at 1)"
    figure, _, shown, text, gaps = _rows_per_method(study, metrics, draw, 3.3, label)
    handles = [
        Line2D(
            [],
            [],
            color=INK,
            marker="o",
            linestyle="",
            label="from released centers to the nearest reference",
        ),
        Line2D(
            [],
            [],
            color=INK,
            marker="o",
            markerfacecolor="white",
            linestyle="",
            label="from reference centers to the nearest released one",
        ),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=10)
    caption = (
        "The KMeans distance in both directions at ε = 1, divided by the diagonal of the box; means over "
        f"{_seeds(shown)}. Filled: the paper's direction, in which clusters that no center is near cost nothing. "
        "Hollow: the other one, in which they do, and superfluous centers do not. A clustering near k-means has both "
        "small. Published and sound variants declare the same ε and spend what the table says."
    )
    return FigureResult(figure, shown, text, caption, gaps)


def _centers(study):
    """Released and non-empty centers per method."""
    metrics = ("n_centers", "nonempty_centers")

    def draw(axes, at, method, values):
        style = look(method)
        released, used = (values["mean"].get(name, np.nan) for name in metrics)
        error = np.nan_to_num(values["deviation"].get("n_centers", 0.0))
        axes.barh(at, released, 0.72, facecolor="none", edgecolor=style.color, linewidth=1.2)
        axes.barh(at, used, 0.72, color=style.color, alpha=0.8)
        axes.errorbar(released, at, xerr=error, color=INK, capsize=2.5, elinewidth=1)
        axes.axvline(
            values["k"].iloc[0], color=GREY, linewidth=1.1, linestyle=(0, (4, 2)), zorder=0
        )

    figure, _, shown, text, gaps = _rows_per_method(study, metrics, draw, 3.3, "number of centers")
    handles = [
        Patch(facecolor=INK, alpha=0.8, label="non-empty"),
        Patch(facecolor="none", edgecolor=INK, label="released"),
        Line2D([], [], color=GREY, linestyle=(0, (4, 2)), label="reported number of classes"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=10)
    caption = (
        "Centers that a method releases (outline, with standard deviation) and those that win at least one point "
        f"(filled) at ε = 1; means over {_seeds(shown)}. All methods but DPM without merging are told the number of "
        "classes; more centers lower inertia and raise accuracy by themselves."
    )
    return FigureResult(figure, shown, text, caption, gaps)


def _scaling(study):
    """CPU time over the number of points and of dimensions."""
    panel, strangers = _on_one_axis(study.panel("scaling", "fit_cpu_seconds"))
    table = _spread(panel)
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    grid = figure.subplots(1, 2)
    methods = _ordered(set(table["method"]), ORDER)
    titles = {"n": "number of points n", "d": "number of dimensions d"}
    fixed = {}
    for place, (axes, (along, other)) in enumerate(
        zip(grid, (("n", "d"), ("d", "n")), strict=True)
    ):
        axes.set_title(f"({'ab'[place]}) {titles[along]}")
        sizes = table.groupby(other)[along].nunique() if len(table) else pd.Series(dtype=int)
        if not len(sizes) or sizes.max() < 2:
            say(axes, NO_DATA)
            continue
        fixed[along] = int(sizes.idxmax())
        half = table[table[other] == fixed[along]]
        for method in methods:
            mine = half[half["method"] == method].sort_values(along)
            style = look(method, known=methods).line() | {
                "marker": _marker(method),
                "label": _label(method),
            }
            axes.errorbar(
                mine[along], mine["mean"], np.nan_to_num(mine["deviation"]), capsize=2, **style
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = sorted(half[along].unique())
        low, high = half["mean"].min() / 1.6, half["mean"].max() * 1.6
        linear = np.array(ticks) / np.sqrt(ticks[0] * ticks[-1]) * np.sqrt(low * high)
        axes.plot(ticks, linear, color=GREY, linestyle=":", linewidth=1.2, label="linear", zorder=0)
        axes.set_ylim(low, high)
        log_axis(axes.yaxis)
        axes.set_xticks(ticks, [f"{value:,}" for value in ticks])
        axes.minorticks_off()
        axes.set_xlabel(f"{titles[along]} (log scale), {other} = {fixed[along]:,}")
    grid[0].set_ylabel("CPU seconds for one fit (log scale)")
    if fixed:
        handles, labels = next(axes for axes in grid if axes.lines).get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=len(methods) + 1, fontsize=9.5
        )
    caption = (
        "CPU time of one fit on normal clusters as in Synth, on one pinned thread; mean and standard deviation over "
        f"{_seeds(table)}. Parallel to the dotted line means linear."
    )
    shown = table[["dataset", "n", "d", "k", "method", "mean", "deviation", "seeds"]]
    text = shown.assign(
        value=[f"{_number(row.mean)} ± {_number(row.deviation)} s" for row in shown.itertuples()]
    )
    gaps = _scaling_gaps(fixed, strangers)
    return FigureResult(figure, shown, text[["n", "d", "method", "value"]], caption, gaps)


def _scaling_gaps(fixed, strangers):
    gaps = [f"times over {along}: {NO_DATA}" for along in ("n", "d") if along not in fixed]
    return tuple(
        gaps
        + [
            f"{_label(name)}: another adjacency or trust model, not on this axis"
            for name in strangers
        ]
    )


FIGURES = (
    FigureSpec("table1", "Table 1: data sets", True, _table1),
    FigureSpec(
        "table2", "Table 2: quality on the well separated sets", True, _quality_table(2, SIX[:4])
    ),
    FigureSpec("table3", "Table 3: quality on the hard sets", True, _quality_table(3, SIX[4:])),
    FigureSpec("figure1", "Figure 1: distance to non-private k-means", True, _figure1),
    FigureSpec("figure4", "Figure 4: running time", True, _figure4),
    FigureSpec("figure5", "Figure 5: budget splits", True, _figure5),
    FigureSpec("figure6", "Figure 6: centreness parameters", True, _figure6),
    FigureSpec("matched", "Published and sound at matched spent budgets", False, _matched),
    FigureSpec("directions", "The KMeans distance in both directions", False, _directions),
    FigureSpec("centers", "Number of centers", False, _centers),
    FigureSpec("scaling", "Running time over points and dimensions", False, _scaling),
)
