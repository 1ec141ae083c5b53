"""Figures 2 to 8 and Table 2 of the FastLloyd paper, and further figures.

Table 3 and what belongs to the protocol are in `pkm.analysis.figures.federation_costs`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pkm.analysis import claims
from pkm.analysis.figures import FigureResult, FigureSpec, federation_costs
from pkm.analysis.figures.layout import (
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
    plain_number,
    wants_log,
)
from pkm.analysis.figures.panels import (
    comparable_methods,
    epsilon_grid_figure,
    heat_map,
    set_value_axis,
)
from pkm.analysis.figures.style import GREY, INK, MethodStyles, epsilon_label
from pkm.analysis.tables import (
    Panel,
    Study,
    area_table,
    concatenate,
    percentile_interval,
    resampled_means,
    resampling_weights,
    summarize,
    wide,
)
from pkm.schema import label_of

TITLES = Titles(
    {
        "adult": "Adult",
        "birch2": "Birch2",
        "iris": "Iris",
        "breast": "Breast",
        "yeast": "Yeast",
        "house": "House",
        "lsun": "LSun",
        "s1": "S1",
        "wine": "Wine",
        "mnist": "MNIST",
    }
)
REAL = tuple(TITLES)
PAPER_METHODS = ("sulloyd", "glloyd", "fastlloyd")
FRONT_TO_BACK = (
    "packing",
    "mean",
    "kmeans",
    "lloyd",
    "sulloyd_fold",
    "glloyd_fold",
    "sulloyd_sound",
    "glloyd_sound",
    "fastlloyd_sound",
    "sulloyd",
    "glloyd",
    "fastlloyd",
)
GENERATED = "-generated"
SUMMARY_COLUMNS = [
    "sweep",
    "dataset",
    "n",
    "d",
    "k",
    "method",
    "variant",
    "epsilon",
    "delta",
    "mean",
    "half_width",
    "median",
    "seeds",
    "left_out",
]
REFERENCE = (
    "The reference centers of a data set are the best of ten seeded k-means++ starts, the same for "
    "every method. A band that reaches below zero fills the panel down to its edge."
)


def _counted(datasets: Sequence[str]) -> str:
    """Count the data sets of a figure: real ones, then generated ones."""
    real = sum(name in REAL for name in datasets)
    text = f"{real} real data set{'' if real == 1 else 's'}"
    return f"{text} and {len(datasets) - real} generated" if len(datasets) > real else text


def _substitutes(datasets: Iterable[str]) -> str:
    """Name the generated data sets among `datasets` that replace a file."""
    names = sorted(set(datasets))
    generated = [name for name in names if name.endswith(GENERATED)]
    if not generated:
        return ""
    listed = ", ".join(generated[:4])
    if len(generated) > 4:
        listed += f" and {len(generated) - 4} more"
    return (
        f"Substitutes: {len(generated)} of {len(names)} data sets were generated in place of files "
        f"that are not available ({listed})."
    )


def _over_epsilon(
    study: Study,
    *,
    sweep: str,
    metric: str,
    methods: Sequence[str] | None,
    subject: str,
    note: str = "",
) -> FigureResult:
    """One panel per real data set, a metric over epsilon.

    `methods` None draws all that may share the axis.

    ``{sets}`` in `subject` becomes the number of data sets that are drawn.
    """
    panel = study.panel(sweep, metric)
    styles = MethodStyles(study.cells)
    incomparable = []
    if methods is None:
        baselines = ("mean", "packing", "kmeans") if metric != "nicv" else ()
        comparable, incomparable = comparable_methods(panel.cells)
        methods = [name for name in comparable if name not in baselines]
    datasets = (*REAL, *sorted(set(panel.cells["dataset"]) - set(REAL)))
    figure, summary, logarithmic, absent, outside = epsilon_grid_figure(
        panel,
        datasets,
        in_order(methods, FRONT_TO_BACK),
        titles=TITLES,
        value_name=label_of(metric),
    )
    sets = _counted([name for name in datasets if name not in absent])
    caption = (
        f"{subject.format(sets=sets)} Lines are means over {count_text(summary['seeds'])}, bands "
        "their 95 % Student t intervals."
    )
    if logarithmic:
        caption += (
            " Logarithmic value axis, because the methods lie more than a factor 5 apart: "
            f"{TITLES.join(logarithmic)}."
        )
    caption += " Where a band reaches far beyond every mean it is cut at the edge of the panel."
    if metric == "davies_bouldin":
        caption += _infinite_text(summary)
    caption += f" {note}" if note else ""
    if outside:
        caption += f" Outside their panels: {_outside_text(outside)}."
    table = summary.sort_values(["dataset", "method", "epsilon"])[SUMMARY_COLUMNS]
    table = table.reset_index(drop=True)
    without_rows = [
        styles.label(name)
        for name in methods
        if len(summary) and not (summary["method"] == name).any()
    ]
    gaps = gap_texts([*map(TITLES.__getitem__, absent), *without_rows])
    gaps += incomparable_texts(incomparable)
    return FigureResult(
        figure,
        table,
        _format_over_epsilon(table),
        caption,
        gaps,
        _substitutes(table["dataset"]),
    )


def _infinite_text(summary: pd.DataFrame) -> str:
    cells = summary[summary["left_out"] > 0]
    return (
        " Infinite values (one cluster left) are left out of the means, as in the paper: "
        f"{cells['left_out'].sum()} values in {len(cells)} cells; the table has the count per "
        "cell. Leaving them out flatters methods that collapse."
    )


def _outside_text(outside: dict[str, dict[str, float]]) -> str:
    texts = []
    for name, levels in outside.items():
        values = ", ".join(f"{label} {value:.3g}" for label, value in levels.items())
        texts.append(f"{TITLES[name]}: {values}")
    return "; ".join(texts)


def _format_over_epsilon(table: pd.DataFrame) -> pd.DataFrame:
    if not len(table):
        return pd.DataFrame({"data set": [], "epsilon": []})
    epsilons = [DASH if np.isnan(value) else f"{value:g}" for value in table["epsilon"]]
    texts = wide(table.assign(epsilon=epsilons), ["dataset", "epsilon"])
    return texts.rename(columns={"dataset": "data set"})


def _figure2(study: Study) -> FigureResult:
    return _over_epsilon(
        study,
        sweep="real",
        metric="nicv",
        methods=("packing", "mean", "lloyd", *PAPER_METHODS),
        subject=(
            "NICV (mean squared distance of a point to its center) over the privacy budget on "
            "{sets}."
        ),
        note=(
            "Thin grey lines: the data mean as the only center, and packing centers that ignore "
            "the data. SuLloyd and GLloyd as the paper plots them, without post-processing to the "
            "domain."
        ),
    )


def _figure2_fold(study: Study) -> FigureResult:
    return _over_epsilon(
        study,
        sweep="real",
        metric="nicv",
        methods=None,
        subject=(
            "As Figure 2, on {sets}, with every method of the sweep: SuLloyd and GLloyd also with "
            "their centers folded back into the domain (dashed, hollow), which FastLloyd always "
            "gets and the paper's baselines do not."
        ),
    )


def _figure6(study: Study) -> FigureResult:
    return _over_epsilon(
        study,
        sweep="real",
        metric="silhouette",
        methods=("lloyd", *PAPER_METHODS),
        subject=(
            "Silhouette score over the privacy budget on {sets}; a result with one cluster counts "
            "as -1."
        ),
        note="Exact up to 10,000 points, on a fixed seeded sample of 10,000 above.",
    )


def _figure7(study: Study) -> FigureResult:
    return _over_epsilon(
        study,
        sweep="real",
        metric="davies_bouldin",
        methods=("lloyd", *PAPER_METHODS),
        subject="Davies–Bouldin index over the privacy budget on {sets} (lower is better).",
    )


def _figure8(study: Study) -> FigureResult:
    return _over_epsilon(
        study,
        sweep="real",
        metric="centroid_mse",
        methods=("lloyd", *PAPER_METHODS),
        subject=(
            "Mean squared distance between released centers and reference centers, matched by the "
            "Hungarian method, on {sets}."
        ),
        note=REFERENCE,
    )


def _figure8_distance(study: Study) -> FigureResult:
    return _over_epsilon(
        study,
        sweep="real",
        metric="centroid_distance",
        methods=("lloyd", *PAPER_METHODS),
        subject=(
            "As Figure 8 without the square, which is what the authors' code plots: the mean "
            "distance between matched centers, on {sets}."
        ),
        note=REFERENCE,
    )


def _sound(metric: str) -> Callable[[Study], FigureResult]:
    name = label_of(metric)
    subject = name if name.isupper() else name.capitalize()

    def draw(study: Study) -> FigureResult:
        return _over_epsilon(
            study,
            sweep="sound",
            metric=metric,
            methods=None,
            subject=subject
            + " of the sound variants on {sets}: public domain instead of the data's own minimum "
            "and maximum, a fixed public δ, a noisy count below one keeps the old center. Not "
            "comparable in height with the published runs: the scaling of the data differs.",
        )

    return draw


def _initialization(study: Study) -> FigureResult:
    packing = study.panel("real", "nicv")
    packing = packing.take((packing.cells["method"] == "fastlloyd").to_numpy())
    uniform = study.panel("initialization", "nicv")
    if len(uniform.cells):
        starts = uniform.cells.get(
            "initialization", pd.Series("uniform", index=uniform.cells.index)
        )
        uniform = uniform.take((starts == "uniform").to_numpy())
    label = f"{MethodStyles(study.cells).label('fastlloyd')} (uniform start)"
    cells = uniform.cells.assign(method="fastlloyd_uniform", label=label)
    uniform = replace(uniform, cells=cells)
    figure, summary, logarithmic, absent, _ = epsilon_grid_figure(
        concatenate([packing, uniform]),
        REAL,
        ("fastlloyd_uniform", "fastlloyd"),
        titles=TITLES,
        value_name="NICV",
    )
    drawn = [name for name in REAL if name not in absent]
    caption = (
        "FastLloyd from packed spheres (solid) and from uniformly random centers (dashed) on "
        f"{_counted(drawn)}. Means over {count_text(summary['seeds'])}, bands 95 % Student t "
        "intervals."
    )
    if logarithmic:
        caption += f" Logarithmic value axis: {TITLES.join(logarithmic)}."
    table = summary[["dataset", "method", "epsilon", "mean", "half_width", "median", "seeds"]]
    gaps = gap_texts(map(TITLES.__getitem__, absent))
    if not len(uniform.cells):
        gaps += gap_texts(["uniform start"])
    return FigureResult(figure, table, _format_over_epsilon(table), caption, gaps)


# --- areas --------------------------------------------------------------------------------------


def _draw_areas(
    axes: Axes, table: pd.DataFrame, along: str, reference: str, styles: MethodStyles
) -> list[str]:
    """Draw areas relative to one method over d or k; return the methods drawn."""
    methods = [
        name
        for name in ("sulloyd", "lloyd", "glloyd", "fastlloyd")
        if (table["method"] == name).any()
    ]
    if not len(table):
        empty_panel(axes)
        return methods
    for order, name in enumerate(methods):
        subset = table[table["method"] == name].sort_values(along)
        area = subset["area"].to_numpy()
        errors = np.clip([area - subset["low"], subset["high"] - area], 0, None)
        axes.errorbar(
            subset[along],
            area,
            yerr=np.nan_to_num(errors) if name != reference else None,
            capsize=2.5,
            elinewidth=1.2,
            zorder=5 + order,
            **styles[name].line(),
        )
    axes.set_xscale("log", base=2)
    ticks = sorted(table[along].unique())
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    axes.minorticks_off()
    axes.set_xlim(min(ticks) / 1.25, max(ticks) * 1.25)
    drawn = table[table["method"].isin(methods)]
    low = drawn["low"].fillna(np.inf).to_numpy()
    high = drawn["high"].fillna(-np.inf).to_numpy()
    set_value_axis(axes, drawn["area"].to_numpy(), low, high)
    return methods


def _figure3(study: Study) -> FigureResult:
    panels = {"g2": study.panel("g2", "nicv"), "synthk": study.panel("synthk", "nicv")}
    styles = MethodStyles(study.cells)
    g2 = area_table(panels["g2"], ["d"], relative_to="sulloyd")
    synthk = area_table(panels["synthk"], ["k"], relative_to="sulloyd")
    figure = Figure(figsize=(10.2, 4.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    drawn = (
        _draw_areas(left, g2, "d", "sulloyd", styles),
        _draw_areas(right, synthk, "k", "sulloyd", styles),
    )
    panel_title(left, 0, "G2: number of dimensions, k = 2")
    panel_title(right, 1, "Synth-K: number of clusters, d = 2")
    left.set_xlabel("number of dimensions d (log scale)")
    right.set_xlabel("number of clusters k (log scale)")
    left.set_ylabel("AUC / AUC of SuLloyd")
    methods = max(drawn, key=len)
    cells = pd.concat([panel.cells for panel in panels.values()])
    if methods:
        figure.legend(
            handles=[Line2D([], [], **styles[name].line()) for name in methods],
            loc="outside upper center",
            ncols=4,
            fontsize=10,
            handlelength=2.6,
        )
        figure.supxlabel(f"AUC of NICV over {epsilon_label(cells)}", fontsize=10, color=INK)
    parts = [g2.assign(panel="a", sweep="g2"), synthk.assign(panel="b", sweep="synthk")]
    table = pd.concat(parts, ignore_index=True)
    grids = {
        name: ", ".join(f"{value:g}" for value in panel.epsilons) or "none"
        for name, panel in panels.items()
    }
    caption = (
        "Area under NICV over epsilon relative to SuLloyd (= 1). Data sets that share d (all "
        "overlap levels) or k (all replicates) are averaged before the ratio is taken. Error bars: "
        "95 % percentile bootstrap over seeds, the same resampled seeds for all methods and "
        "epsilons. Lines instead of bars, so that the intervals can be seen. Epsilon grid: G2 "
        f"{grids['g2']}; Synth-K {grids['synthk']}."
    )
    gaps = _absent_values(g2, "d", 2 ** np.arange(1, 11), "(a)")
    gaps += _absent_values(synthk, "k", 2 ** np.arange(1, 8), "(b)")
    texts = table.assign(
        value=[f"{row.area:.3f} [{row.low:.3f}, {row.high:.3f}]" for row in table.itertuples()]
    )
    formatted = texts.pivot_table(
        index=["panel", "d", "k"], columns="method", values="value", aggfunc="first", dropna=False
    )
    formatted = formatted.dropna(how="all").fillna(DASH).reset_index().rename_axis(columns=None)
    substitutes = _substitutes(cells["dataset"])
    return FigureResult(figure, table, formatted.map(_blank_nan), caption, gaps, substitutes)


def _blank_nan(value: object) -> object:
    if isinstance(value, float):
        return DASH if np.isnan(value) else f"{value:g}"
    return value


def _absent_values(
    table: pd.DataFrame, column: str, expected: Iterable[int], panel: str
) -> tuple[str, ...]:
    absent = [str(value) for value in expected if value not in set(table[column])]
    return gap_texts([f"{panel} {column} = {', '.join(absent)}"]) if absent else ()


def _figure4(study: Study) -> FigureResult:
    panel = study.panel("synth", "nicv")
    table = area_table(panel, ["d", "k"])
    dimensions = sorted(set(table["d"]))
    clusters = sorted(set(table["k"]))
    figure = Figure(figsize=(12.4, 1.6 + 0.37 * max(len(dimensions), 4)), layout="constrained")
    grid = list(figure.subplots(1, 3))
    matrices = [
        table[table["method"] == name]
        .pivot(index="d", columns="k", values="area")
        .reindex(dimensions, columns=clusters)
        .to_numpy(dtype=float)
        for name in ("sulloyd", "fastlloyd")
    ]
    sulloyd, fastlloyd = matrices
    improvement = 100 * (1 - fastlloyd / sulloyd)
    titles = ("SuLloyd: AUC", "FastLloyd: AUC", "Improvement: reduction of AUC in %")
    for index, (axes, title) in enumerate(zip(grid, titles, strict=True)):
        panel_title(axes, index, title)
    has_areas = _area_maps(figure, grid[:2], matrices, dimensions, clusters)
    _improvement_map(figure, grid[2], improvement, dimensions, clusters)
    for axes in grid:
        if axes.axison:
            axes.set_xlabel("number of clusters k")
    grid[0].set_ylabel("number of dimensions d")
    if has_areas:
        used = panel.cells[panel.cells["method"].isin(["sulloyd", "fastlloyd"])]
        figure.supxlabel(f"AUC of NICV over {epsilon_label(used)}", fontsize=10, color=INK)
    caption = (
        "Area under NICV over epsilon on the Synth data sets, averaged over the data sets of a "
        f"cell ({_range_text(table['datasets'])} each); (a) and (b) share one logarithmic color "
        "scale; (c) is the share by which FastLloyd's area is smaller than SuLloyd's (negative: "
        "larger). A dash marks a cell without stored rows; values of k and d without any are left "
        "out. The paper does not label the axes; here k is horizontal and d vertical."
    )
    absent = 45 - np.isfinite(improvement).sum()
    gaps = gap_texts([f"{absent} of the paper's 45 cells"]) if absent > 0 else ()
    texts = table.assign(
        value=[f"{row.area:.4g} [{row.low:.4g}, {row.high:.4g}]" for row in table.itertuples()]
    )
    formatted = pivoted(texts, ["d", "k"], "method", "value")
    return FigureResult(
        figure, table, formatted, caption, gaps, _substitutes(panel.cells["dataset"])
    )


def _area_maps(
    figure: Figure,
    grid: Sequence[Axes],
    matrices: Sequence[np.ndarray],
    rows: Sequence[int],
    columns: Sequence[int],
) -> bool:
    """Draw areas on one color scale; return whether there are any."""
    known = np.concatenate([values[np.isfinite(values)] for values in matrices])
    if not known.size:
        for axes in grid:
            empty_panel(axes)
        return False
    several = known.min() < known.max()
    norm = LogNorm(known.min(), known.max()) if several else Normalize(0, known.max())
    for axes, values in zip(grid, matrices, strict=True):
        image = heat_map(axes, values, rows, columns, norm, "YlGnBu", plain_number)
    bar = figure.colorbar(image, ax=grid, shrink=0.9, pad=0.015, aspect=30)
    log_axis(bar.ax.yaxis)
    bar.outline.set_visible(False)
    return True


def _improvement_map(
    figure: Figure, axes: Axes, values: np.ndarray, rows: Sequence[int], columns: Sequence[int]
) -> None:
    known = values[np.isfinite(values)]
    if not known.size:
        empty_panel(axes)
        return
    largest = max(np.abs(known).max(), 1)
    norm = TwoSlopeNorm(0, -largest, largest)
    image = heat_map(axes, values, rows, columns, norm, "PuOr", lambda value: f"{value:.0f}")
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02, aspect=30)
    bar.ax.set_ylim(min(known.min(), 0), max(known.max(), 0))
    bar.outline.set_visible(False)


# --- ablation -----------------------------------------------------------------------------------

AVERAGES = {
    "ratio_of_means": "mean NICV / mean naive NICV",
    "mean_of_ratios": "mean of NICV / naive NICV",
}
CONFIGURATION = ["alpha", "radius_schedule", "radius_clipping", "postprocessing"]
N_ABLATION_SETS = 48


def _range_text(values: pd.Series, to: str = " to ", empty: str = "none") -> str:
    """Write the smallest and the largest value, or the only one."""
    if not len(values):
        return empty
    low = values.min()
    high = values.max()
    return f"{low}" if low == high else f"{low}{to}{high}"


def relative_ablation(
    panel: Panel, weights: np.ndarray
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """NICV relative to GLloyd without post-processing, averaged over data sets in two definitions.

    Returns
    -------
    configurations : DataFrame
        One line each, with a column `datasets`.
    averages : dict of str to ndarray of shape (n_lines, n_configurations)
        ``ratio_of_means``, as the text defines it: the mean NICV over the data sets divided by the
        same mean of GLloyd. ``mean_of_ratios``, as the authors' code plots it: every data set
        weighs the same, whatever its NICV.
    """
    columns = [*CONFIGURATION, "datasets"]
    cells = panel.cells
    averages = {name: [np.empty((len(weights), 0))] for name in AVERAGES}
    lines = []
    if len(cells) and set(CONFIGURATION) <= set(cells.columns):
        means = resampled_means(panel, weights)
        naive = {cells.at[i, "dataset"]: i for i in cells.index[cells["method"] == "glloyd"]}
        variants = cells[(cells["method"] != "glloyd") & cells["dataset"].isin(naive)]
        for configuration, group in variants.groupby(CONFIGURATION, sort=True):
            nicv = means[:, group.index]
            naive_nicv = means[:, [naive[name] for name in group["dataset"]]]
            ratio_of_means = nicv.mean(axis=1) / naive_nicv.mean(axis=1)
            mean_of_ratios = (nicv / naive_nicv).mean(axis=1)
            averages["ratio_of_means"].append(ratio_of_means[:, None])
            averages["mean_of_ratios"].append(mean_of_ratios[:, None])
            line = dict(zip(CONFIGURATION, configuration, strict=True))
            lines.append(line | {"datasets": len(group)})
    stacked = {name: np.hstack(parts) for name, parts in averages.items()}
    return pd.DataFrame(lines, columns=columns), stacked


def _ablation_table(panel: Panel) -> pd.DataFrame:
    """Both averages with their bootstrap intervals, one line per configuration."""
    table, averages = relative_ablation(panel, resampling_weights(max(len(panel.seeds), 1)))
    for name, values in averages.items():
        low, high = percentile_interval(values)
        table = table.assign(**{name: values[0], f"{name}_low": low, f"{name}_high": high})
    return table


def _figure5(average: str) -> Callable[[Study], FigureResult]:
    def draw(study: Study) -> FigureResult:
        panel = study.panel("ablation", "nicv")
        table = _ablation_table(panel)
        drawn = table.rename(
            columns={average: "ratio", f"{average}_low": "low", f"{average}_high": "high"}
        )
        figure = _ablation_figure(panel, drawn, AVERAGES[average])
        texts = {}
        for name in AVERAGES:
            numbers = table[[name, f"{name}_low", f"{name}_high"]].to_numpy(dtype=float)
            texts[name] = [f"{mean:.4f} [{low:.4f}, {high:.4f}]" for mean, low, high in numbers]
        formatted = table[[*CONFIGURATION, "datasets"]].assign(**texts)
        gaps = () if len(table) else gap_texts(["Figure 5"])
        if len(table) and table["datasets"].max() < N_ABLATION_SETS:
            absent = N_ABLATION_SETS - table["datasets"].max()
            gaps = gap_texts([f"{absent} of {N_ABLATION_SETS} ablation data sets"])
        caption = _ablation_caption(panel, table, average)
        substitutes = _substitutes(panel.cells["dataset"])
        return FigureResult(figure, table, formatted, caption, gaps, substitutes)

    return draw


def _ablation_caption(panel: Panel, table: pd.DataFrame, average: str) -> str:
    sets = f"{_range_text(table['datasets'])} of the 48 data sets (all three separations)"
    if average == "ratio_of_means":
        caption = (
            f"Ablation at ε = 0.1: mean NICV of each configuration over {sets}, divided by the "
            "same mean of GLloyd without post-processing and radius, as the text defines it "
            "(column ratio_of_means)."
        )
    else:
        caption = (
            "As Figure 5, averaged as the authors' code does: NICV of each configuration divided "
            f"by GLloyd's on each data set, then averaged over {sets} (column mean_of_ratios). The "
            "authors' code keeps the last separation only, 16 data sets."
        )
    chosen = table[
        (table["alpha"] == 0.8)
        & (table["radius_schedule"] == "step")
        & table["radius_clipping"].astype(bool)
        & (table["postprocessing"] == "fold")
    ]
    if len(chosen):
        line = chosen.iloc[0]
        caption += (
            " The paper's choice (0.8, Step, clipping, folding): ratio of means "
            f"{line['ratio_of_means']:.4f}, mean of ratios {line['mean_of_ratios']:.4f}."
        )
    return f"{caption} {len(panel.seeds)} seeds; bands: 95 % bootstrap over seeds."


# How postprocessings are drawn: label, color, marker.
POSTPROCESSINGS = {
    "none": ("no post-processing", "#d55e00", "s"),
    "truncate": ("truncate", "#56b4e9", "v"),
    "fold": ("fold", "#009e73", "o"),
}
SCHEDULE_LINESTYLES = {"step": "-", "constant": (0, (3, 1.5))}


def _ablation_figure(panel: Panel, table: pd.DataFrame, value_name: str) -> Figure:
    figure = Figure(figsize=(10.2, 4.3), layout="constrained")
    grid = figure.subplots(1, 2, sharey=True)
    for index, (axes, clipping) in enumerate(zip(grid, (True, False), strict=True)):
        panel_title(axes, index, f"{'with' if clipping else 'without'} radius clipping")
        half = table[table["radius_clipping"] == clipping]
        if len(half):
            _draw_ablation(axes, half)
        else:
            empty_panel(axes)
    if not len(table):
        return figure
    if wants_log(table["ratio"].to_numpy()):
        grid[0].set_yscale("log")
        grid[0].set_ylim(table["ratio"].min() / 1.2, table["ratio"].max() * 1.2)
        log_axis(grid[0].yaxis)
    handles = [
        Line2D([], [], color=color, marker=marker, linewidth=1.8, label=label)
        for label, color, marker in POSTPROCESSINGS.values()
    ]
    constant = SCHEDULE_LINESTYLES["constant"]
    handles += [
        Line2D([], [], color=INK, linestyle="-", label="Step radius (filled)"),
        Line2D([], [], color=INK, linestyle=constant, label="Constant radius (hollow)"),
        Line2D([], [], color=GREY, linewidth=1.0, label="naive GLloyd = 1"),
    ]
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=6,
        fontsize=9.5,
        handlelength=2.4,
        columnspacing=1.3,
    )
    grid[0].set_ylabel(value_name)
    figure.supxlabel(_fixed_epsilon(panel), fontsize=10, color=INK)
    return figure


def _draw_ablation(axes: Axes, table: pd.DataFrame) -> None:
    axes.axhline(1, color=GREY, linewidth=1.0, zorder=1)
    for (postprocessing, schedule), curve in table.groupby(["postprocessing", "radius_schedule"]):
        _, color, marker = POSTPROCESSINGS[postprocessing]
        curve = curve.sort_values("alpha")
        alpha = curve["alpha"].to_numpy(dtype=float)
        axes.plot(
            alpha,
            curve["ratio"],
            color=color,
            linestyle=SCHEDULE_LINESTYLES[schedule],
            marker=marker,
            markersize=5,
            markerfacecolor=color if schedule == "step" else "white",
            linewidth=1.8,
        )
        axes.fill_between(alpha, curve["low"], curve["high"], color=color, alpha=0.15, linewidth=0)
    axes.set_xlabel("radius factor α")


def _fixed_epsilon(panel: Panel) -> str:
    label = epsilon_label(panel.cells)
    values = ", ".join(f"{value:g}" for value in panel.epsilons)
    return label.replace("ε", f"ε = {values}", 1)


# --- iterations and sizes -----------------------------------------------------------------------


def _iterations(study: Study) -> FigureResult:
    """NICV over a fixed number of iterations, one curve per epsilon."""
    panel = study.panel("iterations", "nicv")
    summary = summarize(panel)
    figure, grid = panel_grid(len(REAL), 5, 2.45, 2.35, 0.95)
    epsilons = panel.epsilons
    shades = colormaps["viridis"](np.linspace(0.0, 0.82, max(len(epsilons), 1)))
    colors = dict(zip(epsilons, shades, strict=False))
    absent = []
    for index, (axes, name) in enumerate(zip(grid, REAL, strict=True)):
        panel_title(axes, index, TITLES[name], fontsize=11)
        subset = summary[summary["dataset"] == name]
        if len(subset) and "n_iterations" in subset:
            _draw_iterations(axes, subset, colors)
        else:
            empty_panel(axes)
            absent.append(name)
    figure.supylabel("NICV", fontsize=11)
    figure.supxlabel("number of iterations T", fontsize=11)
    columns = ["dataset", "epsilon", "n_iterations", "mean", "half_width", "median", "seeds"]
    table = summary[[name for name in columns if name in summary]]
    drawn = [name for name in REAL if name not in absent]
    caption = (
        "FastLloyd with the number of iterations fixed by hand instead of by the error bound: the "
        f"whole budget is spread over T rounds, on {_counted(drawn)}. Means over "
        f"{count_text(summary['seeds'])}, bands 95 % Student t intervals."
    )
    if not len(summary):
        return FigureResult(figure, table, table, caption, gap_texts(["sweep over iterations"]))
    handles = [
        Line2D([], [], color=colors[value], marker="o", markersize=4, label=f"ε = {value:g}")
        for value in epsilons
    ]
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=len(epsilons),
        title=f"FastLloyd, {epsilon_label(panel.cells)}",
    )
    formatted = table.assign(method="T = " + table["n_iterations"].astype(str))
    gaps = gap_texts(map(TITLES.__getitem__, absent))
    return FigureResult(figure, table, _format_over_epsilon(formatted), caption, gaps)


def _draw_iterations(axes: Axes, table: pd.DataFrame, colors: dict[float, np.ndarray]) -> None:
    table = table.assign(
        t=table["n_iterations"].astype(float),
        low=table["mean"] - table["half_width"],
        high=table["mean"] + table["half_width"],
    )
    for epsilon, curve in table.groupby("epsilon"):
        curve = curve.sort_values("t")
        color = colors[epsilon]
        axes.plot(curve["t"], curve["mean"], color=color, marker="o", markersize=3.5, linewidth=1.6)
        axes.fill_between(
            curve["t"], curve["low"], curve["high"], color=color, alpha=0.15, linewidth=0
        )
    mean, low, high = (table[name].to_numpy() for name in ("mean", "low", "high"))
    set_value_axis(axes, mean, low, high)
    axes.set_xticks(sorted(table["n_iterations"].astype(int).unique()))


def _table2(study: Study) -> FigureResult:
    """Sizes of the data sets as stored and as the paper reports them."""
    reported_sizes = pd.DataFrame(claims.load("fastlloyd")["reported"]["table2"])
    sizes = study.cells.drop_duplicates("dataset").set_index("dataset")[["n", "d", "k"]]
    # Sets with added outliers are not in the paper's table.
    sizes = sizes[~sizes.index.str.contains(r"-o\d+$")]
    lines = []
    for row in reported_sizes.itertuples():
        if row.family:
            stored = sizes[sizes.index.str.startswith(f"{row.dataset}-")]
        else:
            stored = sizes[sizes.index == row.dataset]
        lines.append(
            {
                "data set": row.title,
                "N (paper)": row.n,
                "d (paper)": row.d,
                "k (paper)": row.k,
                "N (here)": _range_text(stored["n"], DASH, DASH),
                "d (here)": _range_text(stored["d"], DASH, DASH),
                "k (here)": _range_text(stored["k"], DASH, DASH),
                "sets here": len(stored),
            }
        )
    table = pd.DataFrame(lines)
    gaps = gap_texts(line["data set"] for line in lines if not line["sets here"])
    caption = (
        "Sizes of the data sets that were used, and as the paper reports them. Families: smallest "
        "to largest. A dash means that no run on the data set is stored."
    )
    stored_sets = study.cells["dataset"]
    return FigureResult(None, table, table, caption, gaps, _substitutes(stored_sets))


FIGURES = (
    FigureSpec("figure2", "Figure 2: NICV on the real data sets", True, _figure2),
    FigureSpec("table2", "Table 2: data sets", True, _table2),
    FigureSpec("figure3", "Figure 3: scaling with dimensions and clusters", True, _figure3),
    FigureSpec("figure4", "Figure 4: SuLloyd and FastLloyd on Synth", True, _figure4),
    federation_costs.TABLE3,
    FigureSpec(
        "figure5",
        "Figure 5: ablation of radius and post-processing",
        True,
        _figure5("ratio_of_means"),
    ),
    FigureSpec("figure6", "Figure 6: silhouette score", True, _figure6),
    FigureSpec("figure7", "Figure 7: Davies–Bouldin index", True, _figure7),
    FigureSpec("figure8", "Figure 8: centroid MSE", True, _figure8),
    FigureSpec(
        "figure2_fold",
        "Figure 2 with folded baselines and every other method",
        False,
        _figure2_fold,
    ),
    FigureSpec(
        "figure5_ratios", "Figure 5 by the mean of ratios", False, _figure5("mean_of_ratios")
    ),
    FigureSpec("figure8_distance", "Figure 8 without the square", False, _figure8_distance),
    FigureSpec("sound_nicv", "Sound variants: NICV", False, _sound("nicv")),
    FigureSpec("sound_silhouette", "Sound variants: silhouette score", False, _sound("silhouette")),
    FigureSpec("iterations", "Number of iterations", False, _iterations),
    FigureSpec("initialization", "Packed spheres against a uniform start", False, _initialization),
    *federation_costs.FURTHER_FIGURES,
)
