"""What the figures of the comparison need beyond their figures.yaml."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.frames import FigureData
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import DASH, count_text, gap_texts
from pkm.analysis.tables import ranking
from pkm.analysis.tables.study import Study

EPSILON = 1.0  # of figures that show one; where it was not run, the nearest is shown
N_DIAGRAMS = 3  # epsilons at which differences are shown
FACTORS = (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)  # of the best, in profiles
#: Bounds and zoom of the four settings that every method was run in.
SETTINGS = {
    "declared bounds": {"bounds_factor": 1.0, "zoomed": False},
    "declared bounds, with a zoom": {"bounds_factor": 1.0, "zoomed": True},
    "ten times wider": {"bounds_factor": 10.0, "zoomed": False},
    "ten times wider, with a zoom": {"bounds_factor": 10.0, "zoomed": True},
}
#: Sweeps of each accounting, and the epsilon that a run counts for, as a multiple of
#: its own. A replacement is two changes of zero-out adjacency: twice epsilon, and delta
#: (1 + e^epsilon) times as large.
ACCOUNTING = {
    "zero-out, δ = 1e-6": ((), 1.0),
    "zero-out, δ = 1 / n^1.1": (("smaller_delta",), 1.0),
    "replace-one, δ = 1e-6": (("replace_one",), 2.0),
}
#: Methods with a parameter that was chosen on data sets of the comparison.
TUNED = ("dpm_merged", "dpm")
#: What says how a method is drawn.
STYLE_COLUMNS = ["method", "label", "color", "marker"]
#: Numbers of mean ranks.
RANKS = [
    "value",
    "low",
    "high",
    "epsilon",
    "datasets",
    "friedman_p",
    "critical_difference",
]
INSUFFICIENT = "‡"
_INSUFFICIENT_TEXT = (
    f"{INSUFFICIENT} No bucket could pass its threshold with so few records: the "
    "centers come from points placed without data and from the queries about those."
)


# Ratios


def ratios_by_epsilon(study: Study, spec: FigureSpec) -> FigureData:
    """Median ratios of all methods, data sets by number of columns, then of points."""
    table = _ratios(study, spec)
    if not len(ranking.private(table)):
        table = table.iloc[:0]
    names = [f"{row.dataset} (d {row.d}, k {row.k})" for row in table.itertuples()]
    table = table.assign(
        value=table["median"],
        x=table["epsilon"],
        hue=table["method"],
        panel=_as_listed(names),
    )
    is_marked = table["insufficient_data"].any()
    fields = {"insufficient": _INSUFFICIENT_TEXT if is_marked else ""}
    return FigureData(table, gaps=_gaps(table, spec), fields=fields)


def ratios_at_one_epsilon(study: Study, spec: FigureSpec) -> FigureData:
    """Median ratios at one epsilon, data sets down, methods across."""
    frame = ratios_by_epsilon(study, spec)
    table = frame.table
    grid = np.unique(table["epsilon"].dropna())
    epsilon = min(grid, key=lambda value: abs(np.log(value / EPSILON)), default=np.nan)
    is_private = table["method"] != ranking.REFERENCE
    table = table[(table["epsilon"] == epsilon) & is_private].drop(columns="panel")
    rows = [
        f"{row.dataset}  {row.n:,} × {row.d}, k {row.k}" for row in table.itertuples()
    ]
    label = _make_labels(study.cells)
    labels = map(label, in_order(table["method"], spec.order))
    table = table.assign(row=_as_listed(rows), x=table["label"].astype(_listed(labels)))
    native = ", ".join(map(label, ranking.UNRANKED))
    fields = {"epsilon": f"{epsilon:g}", "native": native, **frame.fields}
    return replace(frame, table=table, fields=fields)


def _ratios(study: Study, spec: FigureSpec) -> pd.DataFrame:
    """Return the ratios with styles of methods.

    Of methods that the figure lists, on the data sets on which the first of them has
    results.
    """
    table = ranking.ratios(study, spec.sweep, **spec.where)
    if spec.methods:
        table = table[table["method"].isin(spec.methods)]
        first = table.loc[table["method"] == spec.methods[0], "dataset"]
        table = table[table["dataset"].isin(first)]
    return _with_styles(study, spec, table)


def _with_styles(
    study: Study,
    spec: FigureSpec,
    table: pd.DataFrame,
) -> pd.DataFrame:
    """Add how methods are drawn, and put data sets and methods in their order."""
    styles = MethodStyles(study.cells)
    methods = table["method"]
    place = methods.map(in_order(methods, spec.order).index)
    table = table.assign(
        label=methods.map(_make_labels(study.cells)),
        color=methods.map(lambda name: styles[name].color),
        marker=methods.map(lambda name: styles[name].marker),
        mark=np.where(table["insufficient_data"], f" {INSUFFICIENT}", ""),
        place=place,
    )
    order = ["d", "n", "dataset", "place", "epsilon"]
    return table.sort_values(order, ignore_index=True).drop(columns="place")


def _make_labels(cells: pd.DataFrame) -> Callable[[str], str]:
    """Make labels that do not say that a method is sound; † marks those of `TUNED`."""
    styles = MethodStyles(cells)

    def label(method: str) -> str:
        text = styles[method].label.removesuffix(" (sound)").replace("(sound, ", "(")
        return f"{text} †" if method in TUNED else text

    return label


def _listed(names: Iterable[str]) -> pd.CategoricalDtype:
    """Return the categories of names, in the order of their first appearance."""
    return pd.CategoricalDtype(list(dict.fromkeys(names)))


def _as_listed(names: Iterable[str]) -> pd.Categorical:
    """Return names as categories in the order of their first appearance."""
    return pd.Categorical(names, dtype=_listed(names))


def _gaps(table: pd.DataFrame, spec: FigureSpec) -> tuple[str, ...]:
    """Say for each method on which data sets it lacks a result."""
    if not len(table):
        return gap_texts([spec.title])
    labels = table.drop_duplicates("method").set_index("method")["label"]
    missing = ranking.missing_results(table, table["dataset"].unique())
    return tuple(
        f"{labels[method]}: no result at every epsilon on {', '.join(names)} (not "
        "planned at this size, not available, or over the time limit: see what is "
        "missing)"
        for method, names in missing.items()
        if names
    )


# Wide bounds


def wide_bounds(study: Study, spec: FigureSpec) -> FigureData:
    """Median ratio over data sets by how much too wide bounds are, and by zoom."""
    matrix = study.matrix("wide_bounds", ranking.METRIC)
    cells = matrix.cells
    if not len(cells):
        return FigureData(pd.DataFrame({"value": []}))
    best = ranking.ratios(study).groupby("dataset")["reference"].min()
    methods = cells["method"].str.removesuffix(ranking.ZOOMED)
    is_zoomed = (methods != cells["method"]) | methods.isin(ranking.ALWAYS_ZOOMED)
    table = cells.assign(
        value=np.nanmedian(matrix.values, axis=0) / cells["dataset"].map(best),
        x=cells["bounds_factor"],
        hue=np.where(is_zoomed, "with", "without"),
        panel=methods.map(_make_labels(study.cells)),
    )
    groups = table.dropna(subset=["value"]).groupby(["panel", "hue", "x"], sort=False)
    medians = groups.agg(value=("value", "median"), datasets=("dataset", "nunique"))
    sets = count_text(medians["datasets"], "")
    return FigureData(medians.reset_index(), fields={"sets": sets.strip()})


# Ranks


def mean_ranks(study: Study, spec: FigureSpec) -> FigureData:
    """Mean ranks over all data sets, and over those with results of all methods."""
    table = _ratios(study, spec)
    groups = _groups(table)
    lines = _mean_ranks(table, spec, groups)
    sizes = "; ".join(f"{title}: {len(names)} sets" for title, names in groups.items())
    gaps = _gaps(table if len(lines) else lines, spec)
    fields = {"sizes": sizes, "level": ranking.LEVEL}
    return FigureData(lines, ranking.private(table), gaps, fields)


def _groups(table: pd.DataFrame) -> dict[str, list[str]]:
    """All data sets, and those with results of all methods where these are fewer."""
    names = list(table["dataset"].unique())
    groups = {"all data sets": names}
    shared = ranking.shared_datasets(table, names)
    if 0 < len(shared) < len(names):
        groups["data sets with a result of every method"] = shared
    return groups


def _mean_ranks(
    table: pd.DataFrame, spec: FigureSpec, groups: Mapping[str, list[str]]
) -> pd.DataFrame:
    """Mean ranks of each group of data sets at each epsilon, with styles of methods."""
    ranks = [
        ranking.rank(table, epsilon, datasets, methods).assign(panel=title)
        for title, datasets in groups.items()
        for methods in [in_order(ranking.complete_methods(table, datasets), spec.order)]
        for epsilon in sorted(table["epsilon"].dropna().unique())
        if methods
    ]
    if not ranks:
        return pd.DataFrame(columns=[*STYLE_COLUMNS, *RANKS, "panel", "hue", "x"])
    lines = pd.concat(ranks, ignore_index=True)
    lines = lines.merge(table[STYLE_COLUMNS].drop_duplicates("method"), on="method")
    lines = lines.rename(columns={"mean_rank": "value"})
    return lines.assign(hue=lines["method"], x=lines["epsilon"])


def critical_differences(study: Study, spec: FigureSpec) -> FigureData:
    """Mean ranks at a few epsilons, with half of the critical difference as bars."""
    frame = mean_ranks(study, spec)
    lines = frame.table
    grid = np.sort(lines["epsilon"].unique())
    chosen = np.linspace(0, grid.size - 1, min(N_DIAGRAMS, grid.size)).round()
    lines = lines[lines["epsilon"].isin(grid[chosen.astype(int)])]
    lines = lines.sort_values(["epsilon", "panel", "value"], ignore_index=True)
    titles = [
        f"{line.panel}, ε = {line.epsilon:g} "
        f"({_test_text(line.friedman_p, line.critical_difference)})"
        for line in lines.itertuples()
    ]
    lines = lines.assign(
        low=lines["value"] - lines["critical_difference"] / 2,
        high=lines["value"] + lines["critical_difference"] / 2,
        row=lines["method"],
        group_of_sets=lines["panel"],
        panel=_as_listed(titles),
    )
    return FigureData(lines, frame.cells, frame.gaps, frame.fields)


def _test_text(p_value: float, critical: float) -> str:
    if not np.isfinite(critical):
        return "too few for a test"
    p = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"
    return f"{p}, CD {critical:.2f}"


def ranks_by_accounting(study: Study, spec: FigureSpec) -> FigureData:
    """Mean ranks under other accounting, on the data sets that all of it was run on."""
    tables = {}
    for title, (sweeps, multiple) in ACCOUNTING.items():
        table = _with_styles(study, spec, ranking.ratios(study, sweeps))
        tables[title] = table.assign(epsilon=table["epsilon"] * multiple)
    sets = [set(ranking.private(table)["dataset"]) for table in tables.values()]
    shared = sorted(set.intersection(*sets))
    ranks = [
        _mean_ranks(table[table["dataset"].isin(shared)], spec, {title: shared})
        for title, table in tables.items()
    ]
    lines = pd.concat(ranks, ignore_index=True)
    lines = lines.assign(panel=lines["panel"].astype(_listed(tables)))
    return FigureData(lines, fields={"sets": f"{len(shared)}"})


# Profiles


def profiles(study: Study, spec: FigureSpec) -> pd.DataFrame:
    """Share of settings within a factor of the best, by bounds and zoom."""
    profiles = []
    for title, setting in SETTINGS.items():
        table = _with_styles(study, spec, ranking.ratios(study, **setting))
        styles = table[STYLE_COLUMNS].drop_duplicates("method")
        for group, names in _groups(table[table["notion"] != "none"]).items():
            lines = ranking.profile(table, names, FACTORS).merge(styles, on="method")
            panel = f"{title}: {group} ({len(names)})"
            lines = lines.assign(panel=panel, group_of_sets=group, setting=title)
            if lines["method"].nunique() > 1:  # one method alone is always the best
                profiles.append(lines)
    if not profiles:
        return pd.DataFrame({"value": []})
    table = pd.concat(profiles, ignore_index=True)
    return table.assign(
        value=table["share"],
        x=table["factor"],
        hue=table["method"].astype(_listed(in_order(table["method"], spec.order))),
        panel=_as_listed(table["panel"]),
    )


# Best methods and times


def winners(study: Study, spec: FigureSpec) -> pd.DataFrame:
    """The best private method of each data set and epsilon."""
    table = _ratios(study, spec)
    best = ranking.best_methods(table)
    best = best.merge(table[STYLE_COLUMNS].drop_duplicates("method"), on="method")
    best = best.sort_values(["d", "n", "dataset", "epsilon"])
    rows = [f"{line.dataset} (d {line.d})" for line in best.itertuples()]
    labels = best["second"].map(_make_labels(study.cells))
    return best.assign(
        value=best["records"],
        low=np.nan,
        high=np.nan,
        row=_as_listed(rows),
        hue=best["method"].where(best["useful"], "none"),
        second=labels.where(best["second"] != "", DASH),
    )


def times(table: pd.DataFrame) -> pd.DataFrame:
    """Sort data sets by size, and leave out of labels that methods are sound."""
    table = table.sort_values(["n", "d", "dataset"], kind="stable", ignore_index=True)
    return table.assign(label=table["method"].map(_make_labels(table)))
