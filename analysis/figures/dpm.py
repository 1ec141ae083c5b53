"""Tables and figures of the DPM paper, and the figures this bench adds to them."""

import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from pkm.analysis import claims, reported
from pkm.analysis.charges import charges_of
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.panels import heat_map
from pkm.analysis.frames import comparable_methods
from pkm.analysis.hyperparameters import table_of_settings
from pkm.analysis.render.layout import (
    DASH,
    Titles,
    count_text,
    empty_panel,
    gap_texts,
    in_order,
    incomparable_texts,
    log_axis,
    panel_grid,
    panel_title,
    pivoted,
)
from pkm.analysis.render.style import GREY, INK, PALE, MethodStyles, epsilon_label
from pkm.analysis.tables import (
    Panel,
    Study,
    column_statistics,
    concatenate,
    percentile_interval,
    raw_units,
    resampled_means,
    resampling_weights,
    standard_deviations,
    summarize,
)
from pkm.schema import higher_is_better, label_of

TITLES = Titles(
    {
        "mnist-embeddings": "MNIST embeddings",
        "fashion-embeddings": "Fashion embeddings",
        "synth-10d": "Synth-10d",
        "synth-100d": "Synth-100d",
        "letters-18720": "Letters (18,720)",
        "gas": "Gas",
        "letters": "Letters (all 20,000)",
    }
)
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
BEST_SHARE = 0.2
PAPER_SHARES = (0.04, 0.18, 0.18, 0.6)
BEST = "#009e73"
WORST = "#e69f00"
NO_PAIR = "no pair of stored runs at matched budgets"


def _datasets(names: Iterable[str], expected: Sequence[str] = SIX) -> list[str]:
    """Return the expected data sets, and the others after them."""
    return [*expected, *in_order(set(names) - set(expected), TITLES)]


def _label(styles: MethodStyles, method: str) -> str:
    return styles.label(method).removesuffix(", non-private")


def _marker(styles: MethodStyles, method: str) -> str:
    return styles[method].marker or "X"


def _metric_title(metric: str) -> str:
    """Return a metric's name with an arrow to what is better."""
    arrow = "↑" if higher_is_better(metric) else "↓"
    return f"{label_of(metric)} {arrow}"


def _short_metric_title(metric: str) -> str:
    name, _, arrow = _metric_title(metric).rpartition(" ")
    return f"{name.split(' by ')[0]} {arrow}"


def _concat_sweeps(study: Study, sweeps: Sequence[str], metric: str) -> Panel:
    """Return the panel of a metric over several sweeps, or one without columns."""
    panels = [study.panel(name, metric) for name in sweeps]
    stored = [panel for panel in panels if len(panel.cells)]
    return concatenate(stored) if stored else panels[0]


def _at_epsilon(panel: Panel, epsilon: float) -> Panel:
    """Return the cells at one epsilon, and those that have none."""
    if not len(panel.cells):
        return panel
    epsilons = panel.cells["epsilon"]
    return panel.take((epsilons.isna() | np.isclose(epsilons, epsilon)).to_numpy())


def _comparable(panel: Panel) -> tuple[Panel, list[str]]:
    """Keep the methods that may share an axis; also return the names of the others."""
    comparable, incomparable = comparable_methods(panel.cells)
    return panel.take(panel.cells["method"].isin(comparable).to_numpy()), incomparable


def _means(panel: Panel) -> pd.DataFrame:
    """Return mean, deviation (n - 1) and seeds of every cell."""
    mean, _, median, seeds = column_statistics(panel.values)
    return panel.cells.assign(
        metric=panel.metric,
        mean=mean,
        deviation=standard_deviations(panel.values),
        median=median,
        seeds=seeds,
    )


def _gaps(
    table: pd.DataFrame,
    methods: Iterable[str],
    styles: MethodStyles,
    *,
    datasets: Iterable[str] = SIX,
    incomparable: Iterable[str] = (),
) -> tuple[str, ...]:
    """Say which expected data sets and methods have no rows, or may not share the axis."""
    datasets = list(datasets)
    stored = set(zip(table["dataset"], table["method"], strict=True))
    present = set(table["dataset"])
    gaps = [TITLES[name] for name in datasets if name not in present]
    for method in methods:
        absent = [
            TITLES[name] for name in datasets if name in present and (name, method) not in stored
        ]
        if absent:
            gaps.append(f"{_label(styles, method)} on {', '.join(absent)}")
    labels = [_label(styles, name) for name in incomparable]
    return gap_texts(gaps) + incomparable_texts(labels)


def _number(value: float) -> str:
    """Format with three digits, or three decimals below 1, and short exponents."""
    if not np.isfinite(value):
        return DASH
    return f"{value:.3f}" if abs(value) < 1 else _three_digits(value)


def _three_digits(value: float) -> str:
    if abs(value) < 1e4:
        return f"{value:#.3g}" if abs(value) < 100 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _with_deviation(table: pd.DataFrame) -> list[str]:
    return [f"{_number(row.mean)} ± {_number(row.deviation)}" for row in table.itertuples()]


# --- tables -------------------------------------------------------------------------------------


def _table1(study: Study) -> FigureResult:
    """Sizes of the data sets as stored, and as the paper reports them."""
    reported_sizes = claims.load("dpm")["reported"]["sizes"]
    cells = study.cells[study.cells["sweep"] == "table"] if "table" in study.sweeps else study.cells
    stored = cells.drop_duplicates("dataset").set_index("dataset")
    lines = []
    for row in [*reported_sizes, {"dataset": "letters", "n": DASH, "d": DASH, "k": DASH}]:
        known = row["dataset"] in stored.index
        cell = stored.loc[row["dataset"]] if known else {}
        line = {"data set": TITLES[row["dataset"]]}
        line |= {f"{name} (paper)": row[name] for name in ("n", "d", "k")}
        line |= {f"{name} (here)": str(cell[name]) if known else DASH for name in ("n", "d", "k")}
        line["half range"] = f"{cell['domain_half_width']:g}" if known else DASH
        lines.append(line)
    table = pd.DataFrame(lines)
    gaps = gap_texts(line["data set"] for line in lines if line["n (here)"] == DASH)
    caption = (
        "Points, dimensions and classes of the data sets, as reported and as used here. Half range "
        "is half the width of the range that all columns share: inertia times its square, and "
        "distances times it, are in raw units. The paper's 18,720 Letters are 720 rows per class "
        "drawn with replacement, so rows repeat; the full 20,000 are listed as well."
    )
    return FigureResult(None, table, table, caption, gaps)


def _quality_table(number: int, datasets: Sequence[str]) -> Callable[[Study], FigureResult]:
    def draw(study: Study) -> FigureResult:
        styles = MethodStyles(study.cells)
        table = reported.compare(study, claims.load("dpm")["reported"]["quality"])
        table = table[table["table"] == number].reset_index(drop=True)
        letters = dict(zip(_reasons(table), string.ascii_lowercase, strict=False))
        lines = []
        for (dataset, method), group in table.groupby(["dataset", "method"], sort=False):
            line = {"data set": TITLES[dataset], "method": _label(styles, method)}
            for row in group.to_dict("records"):
                line[_metric_title(row["metric"])] = _quality_text(row, letters)
            spent = group["epsilon_spent"].max()
            line["ε spent"] = f"{spent:.3g}" if np.isfinite(spent) else DASH
            lines.append(line)
        counts = table["verdict"].value_counts()
        caption = (
            "Measured (mean ± standard deviation over seeds, n - 1) | reported, and the verdict: "
            "within (a difference of at most two standard errors of both and half a reported "
            "digit, where a reported deviation counts half a digit more and a silhouette has the "
            "error of the fixed sample of 10,000 points), better, worse, n. c. (not comparable). "
            f"{'; '.join(f'{count} {name}' for name, count in counts.items())}. Inertia in raw "
            "units; the KMeans distance is divided by W√d, the diagonal of the box. Declared ε = "
            "1; spent is what the ledger says. "
        )
        caption += " ".join(f"({letter}) {text}." for text, letter in letters.items())
        stored = table[(table["verdict"] != reported.NOT_STORED) & (table["seeds"] > 0)]
        gaps = _gaps(stored, PUBLISHED, styles, datasets=datasets)
        return FigureResult(None, table, pd.DataFrame(lines), caption.strip(), gaps)

    return draw


def _reasons(table: pd.DataFrame) -> list[str]:
    """Return the different reasons and notes of a table, without those that the verdict says."""
    texts = dict.fromkeys([*table["reason"], *table["note"]])
    return [
        text for text in texts if text and "seeds" not in text[-6:] and text != "no stored rows"
    ]


def _quality_text(row: dict[str, Any], letters: dict[str, str]) -> str:
    short = {reported.WITHIN: "within", reported.NOT_COMPARABLE: "n. c."}
    verdict = short.get(row["verdict"], row["verdict"])
    notes = [letters[text] for text in (row["reason"], row["note"]) if text in letters]
    marks = "".join(f" ({letter})" for letter in notes)
    known = np.isfinite(row["mean"])
    measured = f"{_number(row['mean'])} ± {_number(row['deviation'])}" if known else DASH
    return f"{measured} | {row['reported']}: {verdict}{marks}"


# --- figures of the paper -----------------------------------------------------------------------


def _figure1(study: Study) -> FigureResult:
    """Bars of the normalized KMeans distance, with the reported values as markers."""
    styles = MethodStyles(study.cells)
    panel = _concat_sweeps(study, QUALITY_SWEEPS, "norm_kmeans_distance")
    panel, incomparable = _comparable(_at_epsilon(panel, 1.0))
    table = _means(panel)
    table = table[table["method"].isin(PUBLISHED)].reset_index(drop=True)
    comparison = reported.compare(study, claims.load("dpm")["reported"]["quality"])
    comparison = comparison[comparison["metric"] == "norm_kmeans_distance"]
    reported_means = comparison.set_index(["dataset", "method"])["reported_mean"]
    datasets = _datasets(table["dataset"])
    figure, grid = panel_grid(len(datasets), 4)
    for index, (axes, name) in enumerate(zip(grid, datasets, strict=True)):
        panel_title(axes, index, TITLES[name], fontsize=11)
        subset = table[table["dataset"] == name].set_index("method")
        if len(subset):
            values = reported_means.get(name, pd.Series(dtype=float))
            _distance_bars(axes, subset, values, styles)
        else:
            empty_panel(axes)
    handles = [Patch(color=styles[name].color, label=_label(styles, name)) for name in PUBLISHED]
    handles += [
        Line2D([], [], **REPORTED_MARKER, label="reported"),
        Line2D([], [], color=INK, marker="^", linestyle="", label="above 1, cut"),
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=7, fontsize=9.5, columnspacing=1.2
    )
    figure.supylabel("KMeans distance / W√d", fontsize=11, color=INK)
    if len(table):
        label = epsilon_label(panel.cells).replace("ε", "ε = 1", 1)
        figure.supxlabel(label, fontsize=10, color=INK)
    caption = (
        "Mean distance of the released centers to the nearest center of a reference clustering, "
        "averaged over twenty references and divided by the diagonal of the box. Bars: measured, "
        f"with standard deviations over {count_text(table['seeds'])}. Diamonds: the reported "
        f"values, which the paper takes from its Table 2 (Letters and Gas: Table 3; its figure "
        "shows fewer sets). Values above 1 lie outside the box; they are cut and written at the "
        "top. The authors' plotting script swaps the names of the two embeddings in this figure, "
        "not in the tables. The measure is one-sided: clusters that no center is near cost nothing."
    )
    columns = ["dataset", "method", "epsilon", "epsilon_spent"]
    columns += ["mean", "deviation", "median", "seeds"]
    keys = pd.MultiIndex.from_frame(table[["dataset", "method"]])
    drawn = table[columns].assign(reported=reported_means.reindex(keys).to_numpy())
    formatted = drawn.assign(
        value=_with_deviation(drawn),
        reported=[f"{value:.2f}" if np.isfinite(value) else DASH for value in drawn["reported"]],
    )[["dataset", "method", "value", "reported"]]
    gaps = _gaps(table, PUBLISHED, styles, incomparable=incomparable)
    return FigureResult(figure, drawn, formatted, caption, gaps)


REPORTED_MARKER = {"color": INK, "marker": "D", "markerfacecolor": "white", "linestyle": ""}


def _distance_bars(
    axes: Axes, table: pd.DataFrame, reported_means: pd.Series, styles: MethodStyles
) -> None:
    """Draw one bar per method with its reported value.

    Values above 1 are cut and written at the top.
    """
    heights = [value for value in [*table["mean"], *reported_means.dropna()] if value <= 1]
    ends = table["mean"] + table["deviation"].fillna(0)
    top = max([*heights, *ends[ends <= 1], 0.01])
    axes.set_ylim(0, 1.32 * top)
    for x, method in enumerate(PUBLISHED):
        value = reported_means.get(method, np.nan)
        labels = []
        if method not in table.index:
            _write(axes, x, 0.03 * top, "not run", color=GREY, rotation=90)
        else:
            mean = table["mean"][method]
            _bar(axes, x, mean, table["deviation"][method], value, top, styles[method].color)
            if mean > 1:
                labels.append(f"measured {_short(mean)}")
        if value <= 1:
            axes.plot(x + 0.22, value, **REPORTED_MARKER, markersize=5, zorder=6)
        elif np.isfinite(value):
            labels.append(f"reported {_short(value)}")
        if labels:
            axes.plot(x + 0.36, 1.05 * top, "^", color=INK, markersize=5, clip_on=False)
            _write(axes, x, 1.16 * top, "\n".join(labels))
    axes.set_xlim(-0.6, len(PUBLISHED) - 0.4)
    names = [_label(styles, name).removesuffix("-Splits").removesuffix("++") for name in PUBLISHED]
    axes.set_xticks(range(len(PUBLISHED)), names, fontsize=7.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
    axes.locator_params(axis="y", nbins=4)


def _bar(
    axes: Axes, x: int, mean: float, deviation: float, reported_mean: float, top: float, color: str
) -> None:
    """Draw a bar up to `top`, with its deviation and number where it is not cut."""
    axes.bar(x, min(mean, top), 0.72, color=color, alpha=0.85)
    if mean > 1:
        return
    error = np.nan_to_num(deviation)
    axes.errorbar(x, mean, [[min(error, mean)], [error]], color=INK, capsize=2.5, elinewidth=1)
    end = min(mean + error, top)
    if reported_mean <= 1:
        # The number is clear of the marker of the reported value.
        end = max(end, reported_mean + 0.02 * top)
    _write(axes, x, end + 0.03 * top, _short(mean))


def _write(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    color: str = INK,
    fontsize: float = 7.5,
    rotation: int = 0,
) -> None:
    axes.text(
        x,
        y,
        text,
        ha="center",
        va="bottom",
        fontsize=fontsize,
        color=color,
        rotation=rotation,
    )


def _short(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.1f}"


def _figure4(study: Study) -> FigureResult:
    """CPU times on a logarithmic axis."""
    styles = MethodStyles(study.cells)
    panel, incomparable = _comparable(_concat_sweeps(study, TIMING_SWEEPS, "fit_cpu_seconds"))
    table = _means(panel)
    datasets = _datasets(table["dataset"])
    methods = in_order(table["method"], ORDER)
    figure = Figure(figsize=(11.5, 4.3), layout="constrained")
    axes = figure.subplots()
    if len(table):
        _draw_times(axes, table, datasets, methods, styles)
        figure.legend(loc="outside upper center", ncols=len(methods), fontsize=10)
    else:
        empty_panel(axes)
    caption = (
        "CPU time of one fit on one pinned thread, because other programs may run at the same "
        f"time; mean and standard deviation over {count_text(table['seeds'])}. "
        f"{_wall_over_cpu(study)}Implementations differ from the paper's (these are compiled and "
        "share no code with them), so the order of methods can be compared with the paper's "
        "figure, heights cannot. The authors' plotting script swaps the names of the two "
        "embeddings in this figure. A method without a marker was not run or was stopped by its "
        "time limit; the list of missing cells says which."
    )
    columns = ["dataset", "n", "d", "k", "method", "epsilon"]
    columns += ["mean", "deviation", "median", "seeds"]
    drawn = table[columns]
    formatted = drawn.assign(value=[f"{text} s" for text in _with_deviation(drawn)])
    formatted = formatted[["dataset", "method", "value"]]
    gaps = _gaps(table, PUBLISHED, styles, incomparable=incomparable)
    return FigureResult(figure, drawn, formatted, caption, gaps)


def _draw_times(
    axes: Axes,
    table: pd.DataFrame,
    datasets: Sequence[str],
    methods: Sequence[str],
    styles: MethodStyles,
) -> None:
    """Draw one group of markers per data set, a marker per method."""
    step = 0.8 / max(len(methods) - 1, 1)
    for order, method in enumerate(methods):
        subset = table[table["method"] == method].set_index("dataset").reindex(datasets)
        x = np.arange(len(datasets)) + (order - (len(methods) - 1) / 2) * step
        mean = subset["mean"].to_numpy()
        error = np.nan_to_num(subset["deviation"].to_numpy())
        style = styles[method]
        axes.errorbar(
            x,
            mean,
            [np.minimum(error, 0.9 * mean), error],
            color=style.color,
            marker=_marker(styles, method),
            markerfacecolor="white" if style.hollow else style.color,
            markersize=7,
            linestyle="",
            capsize=2.5,
            label=_label(styles, method),
        )
        for center, value, end in zip(x, mean, mean + error, strict=True):
            if np.isfinite(value):
                # The number is clear of the marker.
                end = max(end, 1.15 * value)
                _write(axes, center, 1.1 * end, _seconds(value), fontsize=6.5)
    axes.set_yscale("log")
    highest = (table["mean"] + table["deviation"].fillna(0)).max()
    axes.set_ylim(table["mean"].min() / 2.5, highest * 2.5)
    log_axis(axes.yaxis)
    axes.set_xticks(range(len(datasets)), [TITLES[name] for name in datasets])
    for edge in np.arange(len(datasets) - 1) + 0.5:
        axes.axvline(edge, color=PALE, linewidth=0.8)
    axes.set_xlim(-0.5, len(datasets) - 0.5)
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("CPU seconds for one fit (log scale)")


def _wall_over_cpu(study: Study) -> str:
    """Say how much longer than its CPU time a fit took at most; empty without times."""
    rows = study.rows_with(["fit_seconds", "fit_cpu_seconds"])
    rows = rows[rows["sweep"].isin(TIMING_SWEEPS)]
    if not len(rows):
        return ""
    largest = (rows["fit_seconds"] / rows["fit_cpu_seconds"]).max()
    return f"The largest ratio of wall-clock to CPU time of a fit is {largest:.3g}. "


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 100 else f"{value / 60:.2g} min"


# --- hyperparameters ----------------------------------------------------------------------------


def _settings_of(
    study: Study, sweep: str, metric: str, dataset: str, parameters: dict | list
) -> pd.DataFrame | None:
    """Return settings and their means on one data set; None where fewer than three are stored."""
    panel = raw_units(study.panel(sweep, metric))
    if not len(panel.cells):
        return None
    chosen = (panel.cells["dataset"] == dataset) & (panel.cells["method"] == "dpm")
    panel = panel.take(chosen.to_numpy())
    settings = table_of_settings(panel.cells, parameters)
    if settings is None or len(settings) < 3:
        return None
    summary = summarize(panel)[["mean", "half_width", "seeds"]].reset_index(drop=True)
    table = pd.concat([settings, summary], axis=1)
    return table.dropna(subset=[*settings.columns, "mean"]).reset_index(drop=True)


def _grid_datasets(study: Study, sweep: str, expected: Sequence[str]) -> list[str]:
    return _datasets(study.cells.loc[study.cells["sweep"] == sweep, "dataset"], expected)


def _figure5(study: Study) -> FigureResult:
    """Budget splits on parallel axes: the best and the worst fifth by each metric."""
    datasets = _grid_datasets(study, "budget", ("mnist-embeddings", "letters-18720"))
    names = SHARES["shares"]
    size = (12.6, 2.7 * len(datasets) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(datasets), len(GRID_METRICS), squeeze=False, sharey=True)
    tables = []
    panels = [(dataset, metric) for dataset in datasets for metric in GRID_METRICS]
    for index, (axes, (dataset, metric)) in enumerate(zip(grid.flat, panels, strict=True)):
        panel_title(axes, index, _short_metric_title(metric))
        settings = _settings_of(study, "budget", metric, dataset, SHARES)
        if settings is None:
            empty_panel(axes)
            continue
        ranked = _parallel(axes, settings, metric, names)
        tables.append(ranked.assign(dataset=dataset, metric=metric))
    for axes, dataset in zip(grid[:, 0], datasets, strict=True):
        axes.set_ylabel(f"{TITLES[dataset]}\nshare of ε")
    handles = [
        Line2D([], [], color=BEST, linewidth=1, label="best 20 %"),
        Line2D([], [], color=WORST, linewidth=1, label="worst 20 %"),
        Line2D([], [], color=INK, linewidth=2.4, linestyle="-", label="their means (thick)"),
        Line2D([], [], color=INK, linestyle="", marker="x", label="the paper's choice"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=10)
    empty = pd.DataFrame(columns=["dataset", "metric", "seeds", *names])
    table = pd.concat(tables, ignore_index=True) if tables else empty
    present = set(table["dataset"])
    gaps = gap_texts(TITLES[name] for name in datasets if name not in present)
    count = len(table[["dataset", *names]].drop_duplicates()) // max(len(present), 1)
    seeds = f"{table['seeds'].min()} to {table['seeds'].max()}" if len(table) else "no"
    caption = (
        "Shares of ε for the interval size, the counts, the choice of splits and the averages: "
        f"each line is a budget split that adds up to one, out of {count} per data set, ranked by "
        f"its mean over {seeds} seeds at ε = 1. Thin green: the best fifth; thin orange: the "
        "worst; thick: their means. The paper shows the MNIST embeddings and does not report its "
        "grid."
    )
    if not len(table):
        empty = empty.drop(columns="seeds")
        return FigureResult(figure, empty, empty, caption, gaps)
    means = table.groupby(["dataset", "metric", "group"], sort=False)[names].mean().reset_index()
    means = means[means["group"] != "between"]
    formatted = means.assign(**{name: means[name].map("{:.3f}".format) for name in names})
    return FigureResult(figure, table, formatted, caption, gaps)


def _parallel(
    axes: Axes, settings: pd.DataFrame, metric: str, names: Sequence[str]
) -> pd.DataFrame:
    """Draw one panel; return the settings with the group that each belongs to."""
    sign = -1 if higher_is_better(metric) else 1
    order = np.argsort(sign * settings["mean"].to_numpy(), kind="stable")
    ranked = settings.iloc[order].reset_index(drop=True)
    count = max(round(BEST_SHARE * len(ranked)), 1)
    group = np.full(len(ranked), "between", dtype=object)
    group[:count] = "best"
    group[len(ranked) - count :] = "worst"
    x = range(len(names))
    for name, color in (("worst", WORST), ("best", BEST)):
        shares = ranked[group == name][list(names)].to_numpy()
        axes.plot(x, shares.T, color=color, linewidth=0.9, alpha=0.55)
        axes.plot(x, shares.mean(axis=0), color=color, linewidth=2.8, zorder=5)
    axes.plot(x, PAPER_SHARES, "x", color=INK, markersize=6, zorder=6)
    axes.set_xticks(x, names, fontsize=8.5)
    axes.set_xlim(-0.25, len(names) - 0.75)
    axes.set_ylim(0, None)
    return ranked.assign(rank=np.arange(1, len(ranked) + 1), group=group)


def _figure6(study: Study) -> FigureResult:
    """Heat maps of four metrics over t and q."""
    datasets = _grid_datasets(study, "centreness", ("synth-10d", "letters-18720"))
    size = (15.5, 3.2 * len(datasets) + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(datasets), len(GRID_METRICS), squeeze=False)
    tables = []
    gaps = []
    panels = [(dataset, metric) for dataset in datasets for metric in GRID_METRICS]
    for index, (axes, (dataset, metric)) in enumerate(zip(grid.flat, panels, strict=True)):
        title = f"{TITLES[dataset]}: {_short_metric_title(metric)}"
        panel_title(axes, index, title, fontsize=9.5)
        settings = _settings_of(study, "centreness", metric, dataset, CENTRENESS)
        if settings is None:
            empty_panel(axes)
            gaps.append(f"{TITLES[dataset]}, {label_of(metric)}")
            continue
        _centreness_map(figure, axes, settings, metric)
        tables.append(settings.assign(dataset=dataset, metric=metric))
    empty = pd.DataFrame(columns=["dataset", "metric", "seeds", *CENTRENESS])
    table = pd.concat(tables, ignore_index=True) if tables else empty
    caption = (
        "Mean of each metric over t (centreness at the edge of the outer part) and q (share of a "
        "node's points in it), where q is at most t / 2; darker is better in every panel, a dash "
        f"marks what is not allowed or not stored. {count_text(table['seeds'])} a cell, ε = 1. The "
        "paper shows Synth-10d and says that the others look the same; it does not report its grid."
    )
    if not len(table):
        empty = empty.drop(columns="seeds")
        return FigureResult(figure, empty, empty, caption, gap_texts(gaps))
    texts = table.assign(mean=table["mean"].map(_number))
    formatted = pivoted(texts, ["dataset", *CENTRENESS], "metric", "mean")
    formatted[CENTRENESS] = formatted[CENTRENESS].map("{:.3g}".format)
    return FigureResult(figure, table, formatted, caption, gap_texts(gaps))


def _centreness_map(figure: Figure, axes: Axes, settings: pd.DataFrame, metric: str) -> None:
    matrix = settings.pivot(index="q", columns="t", values="mean")
    values = matrix.to_numpy(dtype=float)
    low = np.nanmin(values)
    high = np.nanmax(values)
    # A range that is nothing but rounding would show structure where there is none.
    pad = max(0.01 * max(abs(low), abs(high)) - (high - low), 0) / 2
    places = 4 if high < 0.1 else 3

    def text(value: float, _: object = None) -> str:
        return f"{value:.{places}f}" if abs(value) < 10 else _three_digits(value)

    image = heat_map(
        axes,
        values,
        [f"{value:.3g}" for value in matrix.index],
        [f"{value:g}" for value in matrix.columns],
        Normalize(low - pad, high + pad),
        "YlGnBu" if higher_is_better(metric) else "YlGnBu_r",
        text,
        7.5 if matrix.shape[1] < 6 else 6.5,
    )
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02, aspect=25)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5)
    if pad:
        bar.set_ticks([(low + high) / 2])
    bar.ax.yaxis.set_major_formatter(FuncFormatter(text))
    axes.set_xlabel("t", fontsize=9)
    axes.set_ylabel("q", fontsize=9)
    axes.tick_params(labelsize=8)


# --- further figures ----------------------------------------------------------------------


def matched_ratios(study: Study, metric: str = "inertia") -> pd.DataFrame:
    """Sound over published, at matched budgets.

    The sound variant has the largest stored budget that is within what the published one spent.

    A pair counts where data set, scaling and adjacency agree, and neither epsilon spent nor delta
    of the sound variant is larger than the published one's.

    Returns
    -------
    DataFrame
        One line per pair and data set: both budgets (declared, spent, delta), `ratio` of means with
        a 95 % paired bootstrap interval over seeds, `seeds`, and `unproven`: flaws of charges of
        the published variant.
    """
    columns = ["published", "sound", "dataset", "ratio", "low", "high", "seeds", "unproven"]
    columns += ["epsilon_published", "spent_published", "delta_published"]
    columns += ["epsilon_sound", "spent_sound", "delta_sound"]
    panel = _concat_sweeps(study, (*QUALITY_SWEEPS, "sound"), metric)
    cells = panel.cells
    if not len(cells):
        return pd.DataFrame(columns=columns)
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    charges = charges_of(cells)
    lines = []
    for published, sound in MATCHES:
        declared = (cells["method"] == published) & np.isclose(cells["epsilon"], 1.0)
        for index, published_cell in cells[declared].iterrows():
            matched = _matching(cells[cells["method"] == sound], published_cell)
            if not len(matched):
                continue
            sound_cell = matched.iloc[-1]
            ratio = means[:, sound_cell.name] / means[:, index]
            (low,), (high,) = percentile_interval(ratio[:, None])
            both = np.isfinite(panel.values[:, [sound_cell.name, index]]).all(axis=1)
            dataset = published_cell["dataset"]
            line = {"published": published, "sound": sound, "dataset": dataset}
            line |= {"ratio": ratio[0], "low": low, "high": high, "seeds": int(both.sum())}
            line["unproven"] = _unproven(charges[charges.index == index])
            for side, cell in (("published", published_cell), ("sound", sound_cell)):
                line[f"epsilon_{side}"] = cell["epsilon"]
                line[f"spent_{side}"] = cell["epsilon_spent"]
                line[f"delta_{side}"] = cell["delta"]
            lines.append(line)
    return pd.DataFrame(lines, columns=columns)


def _matching(cells: pd.DataFrame, reference: pd.Series) -> pd.DataFrame:
    """Return the cells that spend no more than `reference`, by epsilon.

    Under the same adjacency and scaling, on the same data set.
    """
    same = np.logical_and.reduce(
        [cells[name] == reference[name] for name in ("dataset", "adjacency", "preprocessing")]
    )
    within_epsilon = cells["epsilon_spent"] <= reference["epsilon_spent"] * (1 + 1e-9)
    within_delta = cells["delta"] <= reference["delta"]
    return cells[same & within_epsilon & within_delta].sort_values("epsilon")


def _unproven(charges: pd.DataFrame) -> str:
    """Return the flaws of charges whose cost is what a paper claims and is known not to hold."""
    return " ".join(sorted(set(charges["flaw"]) - {""}))


def _matched(study: Study) -> FigureResult:
    """Inertia of the sound variants relative to the published ones at matched spent epsilon."""
    styles = MethodStyles(study.cells)
    table = matched_ratios(study)
    datasets = in_order([*table["dataset"], *SIX], TITLES)
    figure = Figure(figsize=(14.5, 0.9 + 0.42 * max(len(datasets), 4)), layout="constrained")
    grid = figure.subplots(1, len(MATCHES))
    ends = [table[name].astype(float) for name in ("low", "high", "ratio")]
    limits = (np.nanmin([1, *np.concatenate(ends)]), np.nanmax([1, *np.concatenate(ends)]))
    labelled = False
    for index, (axes, (published, sound)) in enumerate(zip(grid, MATCHES, strict=True)):
        title = f"{_label(styles, sound)}\nover {_label(styles, published)}"
        panel_title(axes, index, title)
        subset = table[(table["published"] == published) & (table["sound"] == sound)]
        if not len(subset):
            empty_panel(axes, NO_PAIR)
            continue
        _draw_matched(axes, subset, datasets, styles, limits)
        names = [""] * len(datasets) if labelled else [TITLES[name] for name in datasets]
        axes.set_yticks(range(len(datasets)), names)
        axes.set_ylim(len(datasets) - 0.4, -0.6)
        labelled = True
        _spent_axis(axes, subset, datasets)
    caption = (
        "Inertia of the sound variant divided by that of the published one (left of the line: the "
        "sound one is better); 95 % paired bootstrap intervals over seeds, logarithmic axis. To "
        "the right of each panel: ε that the ledger says was spent, published | sound. The "
        "published variant declares ε = 1 with its own δ; the sound one runs at the largest stored "
        "ε that spends no more, at a smaller δ, under the same adjacency and range. What the "
        "published variants spend rests on their claims: where those are known not to hold "
        "(column unproven of the table), the comparison is in their favor."
    )
    stored = set(zip(table["published"], table["sound"], table["dataset"], strict=True))
    gaps = tuple(
        f"{_label(styles, sound)} over {_label(styles, published)} on {TITLES[name]}: {NO_PAIR}"
        for published, sound in MATCHES
        for name in SIX
        if (published, sound, name) not in stored
    )
    return FigureResult(figure, table, _format_matched(table, styles), caption, gaps)


def _draw_matched(
    axes: Axes,
    table: pd.DataFrame,
    datasets: Sequence[str],
    styles: MethodStyles,
    limits: tuple[float, float],
) -> None:
    sound = table["sound"].iloc[0]
    y = [datasets.index(name) for name in table["dataset"]]
    error = np.nan_to_num([table["ratio"] - table["low"], table["high"] - table["ratio"]])
    axes.axvline(1, color=GREY, linewidth=1)
    axes.errorbar(
        table["ratio"],
        y,
        xerr=np.clip(error, 0, None),
        color=styles[sound].color,
        marker=_marker(styles, sound),
        markerfacecolor="white",
        markersize=7,
        linestyle="",
        capsize=3,
    )
    low, high = limits
    axes.set_xscale("log")
    axes.set_xlim(low / 1.15, high * 1.15)
    log_axis(axes.xaxis)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("inertia, sound / published", fontsize=9)


def _spent_axis(axes: Axes, table: pd.DataFrame, datasets: Sequence[str]) -> None:
    """Write what was spent at the right of a panel."""
    texts = dict.fromkeys(datasets, DASH)
    for row in table.itertuples():
        texts[row.dataset] = f"{row.spent_published:.2f} | {row.spent_sound:.2f}"
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(datasets)), list(texts.values()))
    right.tick_params(length=0, labelsize=8, colors="#555555")
    right.spines["right"].set_visible(False)


def _format_matched(table: pd.DataFrame, styles: MethodStyles) -> pd.DataFrame:
    rows = list(table.itertuples())
    formatted = table.assign(
        published=[_label(styles, name) for name in table["published"]],
        sound=[_label(styles, name) for name in table["sound"]],
        ratio=[f"{row.ratio:.3g} [{row.low:.3g}, {row.high:.3g}]" for row in rows],
        declared=[f"{row.epsilon_published:g} | {row.epsilon_sound:g}" for row in rows],
        spent=[f"{row.spent_published:.3g} | {row.spent_sound:.3g}" for row in rows],
    )
    columns = ["published", "sound", "dataset", "ratio", "declared", "spent", "unproven", "seeds"]
    return formatted[columns]


def _rows_per_method(
    study: Study,
    metrics: Sequence[str],
    draw: Callable[[Axes, int, str, pd.DataFrame], None],
    x_label: str,
) -> tuple[Figure, pd.DataFrame, pd.DataFrame, tuple[str, ...]]:
    """Draw published and sound methods at epsilon 1: one panel per data set, one row per method.

    ``draw(axes, y, color, values)`` fills a row; `values` has the metrics as index.

    Returns
    -------
    figure, table, formatted, gaps
        As of a `FigureResult`.
    """
    styles = MethodStyles(study.cells)
    tables = []
    incomparable = []
    for metric in metrics:
        panel = _concat_sweeps(study, (*QUALITY_SWEEPS, "sound"), metric)
        panel, others = _comparable(_at_epsilon(panel, 1.0))
        tables.append(_means(panel))
        incomparable = others or incomparable
    table = pd.concat(tables, ignore_index=True)
    table = table[table["method"].isin(ORDER)]
    datasets = _datasets(table["dataset"])
    methods = in_order(table["method"], ORDER) or list(PUBLISHED)
    labels = [_label(styles, method) for method in methods]
    figure, grid = panel_grid(len(datasets), 4, 3.3, 0.55 + 0.24 * len(methods))
    labelled_rows = set()
    for index, (axes, name) in enumerate(zip(grid, datasets, strict=True)):
        panel_title(axes, index, TITLES[name], fontsize=11)
        subset = table[table["dataset"] == name]
        if not len(subset):
            empty_panel(axes)
            continue
        for y, method in enumerate(methods):
            values = subset[subset["method"] == method].set_index("metric")
            if len(values):
                draw(axes, y, styles[method].color, values)
        # After drawing, because a limit set by hand ends the search for the other one.
        axes.set_xlim(left=min(0, axes.get_xlim()[0]))
        axes.set_ylim(len(methods) - 0.4, -0.6)
        # The first panel of a row that is drawn carries the names.
        names = [""] * len(methods) if index // 4 in labelled_rows else labels
        labelled_rows.add(index // 4)
        axes.set_yticks(range(len(methods)), names, fontsize=8.5)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="x", labelsize=8)
    figure.supxlabel(x_label, fontsize=10, color=INK)
    columns = ["dataset", "k", "method", "variant", "metric", "epsilon", "epsilon_spent"]
    table = table[[*columns, "mean", "deviation", "seeds"]].reset_index(drop=True)
    texts = table.assign(value=_with_deviation(table))
    formatted = pivoted(texts, ["dataset", "method"], "metric", "value", sort=False)
    return figure, table, formatted, _gaps(table, PUBLISHED, styles, incomparable=incomparable)


def _directions(study: Study) -> FigureResult:
    """Both directions of the KMeans distance."""
    metrics = ("norm_kmeans_distance", "norm_reverse_kmeans_distance")

    def draw(axes: Axes, y: int, color: str, values: pd.DataFrame) -> None:
        means = [values["mean"].get(name, np.nan) for name in metrics]
        forward, reverse = np.minimum(means, 1.0)
        axes.plot([forward, reverse], [y, y], color=color, linewidth=1.6, alpha=0.6)
        axes.plot(forward, y, "o", color=color, markersize=6, markerfacecolor=color)
        hollow = {"markerfacecolor": "white", "markeredgewidth": 1.4}
        axes.plot(reverse, y, "o", color=color, markersize=6, **hollow)

    label = "distance / W√d (values above 1 drawn at 1)"
    figure, table, formatted, gaps = _rows_per_method(study, metrics, draw, label)
    point = {"color": INK, "marker": "o", "linestyle": ""}
    forward = "from released centers to the nearest reference"
    reverse = "from reference centers to the nearest released one"
    handles = [
        Line2D([], [], **point, label=forward),
        Line2D([], [], **point, markerfacecolor="white", label=reverse),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=10)
    caption = (
        "The KMeans distance in both directions at ε = 1, divided by the diagonal of the box; "
        f"means over {count_text(table['seeds'])}. Filled: the paper's direction, in which "
        "clusters that no center is near cost nothing. Hollow: the other one, in which they do, "
        "and superfluous centers do not. A clustering near k-means has both small. Published and "
        "sound variants declare the same ε and spend what the table says."
    )
    return FigureResult(figure, table, formatted, caption, gaps)


def _centers(study: Study) -> FigureResult:
    """Released and non-empty centers per method."""
    metrics = ("n_centers", "nonempty_centers")

    def draw(axes: Axes, y: int, color: str, values: pd.DataFrame) -> None:
        released, nonempty = (values["mean"].get(name, np.nan) for name in metrics)
        error = np.nan_to_num(values["deviation"].get("n_centers", 0.0))
        axes.barh(y, released, 0.72, facecolor="none", edgecolor=color, linewidth=1.2)
        axes.barh(y, nonempty, 0.72, color=color, alpha=0.8)
        axes.errorbar(released, y, xerr=error, color=INK, capsize=2.5, elinewidth=1)
        axes.axvline(values["k"].iloc[0], zorder=0, **N_CLASSES)

    figure, table, formatted, gaps = _rows_per_method(study, metrics, draw, "number of centers")
    handles = [
        Patch(facecolor=INK, alpha=0.8, label="non-empty"),
        Patch(facecolor="none", edgecolor=INK, label="released"),
        Line2D([], [], **N_CLASSES, label="reported number of classes"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=10)
    caption = (
        "Centers that a method releases (outline, with standard deviation) and those that win at "
        f"least one point (filled) at ε = 1; means over {count_text(table['seeds'])}. All methods "
        "but DPM without merging know the number of classes; more centers lower inertia and raise "
        "accuracy by themselves."
    )
    return FigureResult(figure, table, formatted, caption, gaps)


N_CLASSES = {"color": GREY, "linewidth": 1.1, "linestyle": (0, (4, 2))}


def _scaling(study: Study) -> FigureResult:
    """CPU time over the number of points and of dimensions."""
    styles = MethodStyles(study.cells)
    panel, incomparable = _comparable(study.panel("scaling", "fit_cpu_seconds"))
    table = _means(panel)
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    grid = figure.subplots(1, 2)
    methods = in_order(table["method"], ORDER)
    titles = {"n": "number of points n", "d": "number of dimensions d"}
    drawn = []
    panels = (("n", "d"), ("d", "n"))
    for index, (axes, (along, fixed)) in enumerate(zip(grid, panels, strict=True)):
        panel_title(axes, index, titles[along], fontsize=11)
        sizes = table.groupby(fixed)[along].nunique()
        if not len(sizes) or sizes.max() < 2:
            empty_panel(axes)
            continue
        drawn.append(along)
        value = int(sizes.idxmax())
        _draw_scaling(axes, table[table[fixed] == value], along, methods, styles)
        axes.set_xlabel(f"{titles[along]} (log scale), {fixed} = {value:,}")
    grid[0].set_ylabel("CPU seconds for one fit (log scale)")
    if drawn:
        handles, labels = next(axes for axes in grid if axes.lines).get_legend_handles_labels()
        columns = len(methods) + 1
        figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=9.5)
    caption = (
        "CPU time of one fit on normal clusters as in Synth, on one pinned thread; mean and "
        f"standard deviation over {count_text(table['seeds'])}. Parallel to the dotted line means "
        "linear."
    )
    table = table[["dataset", "n", "d", "k", "method", "mean", "deviation", "seeds"]]
    formatted = table.assign(value=[f"{text} s" for text in _with_deviation(table)])
    formatted = formatted[["n", "d", "method", "value"]]
    gaps = gap_texts(f"times over {along}" for along in ("n", "d") if along not in drawn)
    gaps += incomparable_texts(_label(styles, name) for name in incomparable)
    return FigureResult(figure, table, formatted, caption, gaps)


def _draw_scaling(
    axes: Axes, table: pd.DataFrame, along: str, methods: Sequence[str], styles: MethodStyles
) -> None:
    """Draw times on logarithmic axes, with a line that grows as the sizes do."""
    for method in methods:
        curve = table[table["method"] == method].sort_values(along)
        line = styles[method].line()
        line |= {"marker": _marker(styles, method), "label": _label(styles, method)}
        error = np.nan_to_num(curve["deviation"])
        axes.errorbar(curve[along], curve["mean"], error, capsize=2, **line)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted(table[along].unique())
    low = table["mean"].min() / 1.6
    high = table["mean"].max() * 1.6
    linear = np.array(ticks) / np.sqrt(ticks[0] * ticks[-1]) * np.sqrt(low * high)
    axes.plot(ticks, linear, color=GREY, linestyle=":", linewidth=1.2, label="linear", zorder=0)
    axes.set_ylim(low, high)
    log_axis(axes.yaxis)
    axes.set_xticks(ticks, [f"{value:,}" for value in ticks])
    axes.minorticks_off()


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
