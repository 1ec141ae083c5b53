"""What the figures of the comparison of all papers need beyond their figures.yaml."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.frames import Frame
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import DASH, gap_texts
from pkm.analysis.tables import ranking
from pkm.analysis.tables.study import Study

EPSILON = 1.0  # of figures that show a single epsilon; where it was not run, the nearest is shown
N_DIAGRAMS = 3  # epsilons at which differences are shown
FACTORS = (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)  # of the best, in profiles
#: Bounds and zoom of the four settings that every method was run in.
SETTINGS = {
    "declared bounds": {"bounds_factor": 1.0, "zoomed": False},
    "declared bounds, with a zoom": {"bounds_factor": 1.0, "zoomed": True},
    "ten times wider": {"bounds_factor": 10.0, "zoomed": False},
    "ten times wider, with a zoom": {"bounds_factor": 10.0, "zoomed": True},
}
#: Epsilon that a run counts for, as a multiple of its own, by sweep. A replacement is two changes
#: of zero-out adjacency: twice epsilon, and delta (1 + e^epsilon) times as large.
ACCOUNTING = {
    "": ("zero-out, δ = 1e-6", 1.0),
    "smaller_delta": ("zero-out, δ = 1 / n^1.1", 1.0),
    "replace_one": ("replace-one, δ = 1e-6", 2.0),
}
#: Methods with a parameter that was chosen on data sets of the comparison.
TUNED = ("dpm_merged", "dpm")
#: What says how a method is drawn.
LOOK = ["method", "label", "color", "marker"]
INSUFFICIENT = "‡"
_INSUFFICIENT_TEXT = (
    f"{INSUFFICIENT} No bucket could pass its threshold with so few records: the centers come from "
    "points placed without data and from the queries about those."
)


# --- ratios -------------------------------------------------------------------------------------


def ratios_by_epsilon(study: Study, spec: FigureSpec) -> Frame:
    """Median ratios of all methods, data sets by number of columns, then of points."""
    table = _ratios(study, spec)
    names = [f"{row.dataset} (d {row.d}, k {row.k})" for row in table.itertuples()]
    table = table.assign(
        value=table["median"],
        x=table["epsilon"],
        hue=table["method"],
        panel=_as_listed(names),
    )
    if not len(ranking.private(table)):
        table = table.iloc[:0]
    some = table["insufficient_data"].any()
    fields = {"insufficient": _INSUFFICIENT_TEXT if some else ""}
    return Frame(table, gaps=_gaps(table, spec), fields=fields)


def ratios_at_one_epsilon(study: Study, spec: FigureSpec) -> Frame:
    """Median ratios at one epsilon, data sets down, methods across."""
    shown = ratios_by_epsilon(study, spec)
    table = shown.table
    epsilon = _nearest_epsilon(table)
    table = table[(table["epsilon"] == epsilon) & (table["method"] != ranking.REFERENCE)]
    rows = [f"{row.dataset}  {row.n:,} × {row.d}, k {row.k}" for row in table.itertuples()]
    labels = _labels(study, spec)
    columns = [labels[name] for name in in_order(table["method"], spec.order)]
    table = table.drop(columns="panel").assign(
        row=_as_listed(rows),
        x=pd.Categorical(table["label"], list(dict.fromkeys(columns))),
    )
    native = ", ".join(labels[name] for name in ranking.UNRANKED)
    fields = {"epsilon": f"{epsilon:g}", "native": native} | dict(shown.fields)
    return Frame(table, gaps=shown.gaps, fields=fields)


def _ratios(study: Study, spec: FigureSpec) -> pd.DataFrame:
    """Return the ratios with looks of methods; labels do not say that private ones are sound.

    Of methods that the figure lists, on the data sets on which the first of them has results.
    """
    table = ranking.ratios(study, spec.sweep, **spec.where)
    if spec.methods:
        table = table[table["method"].isin(spec.methods)]
        first = table.loc[table["method"] == spec.methods[0], "dataset"]
        table = table[table["dataset"].isin(first)]
    return _with_looks(study, spec, table)


def _with_looks(study: Study, spec: FigureSpec, table: pd.DataFrame) -> pd.DataFrame:
    styles = MethodStyles(study.cells)
    places = {name: place for place, name in enumerate(in_order(table["method"], spec.order))}
    table = table.assign(place=table["method"].map(places))
    table = table.sort_values(["d", "n", "dataset", "place", "epsilon"], ignore_index=True)
    labels = _labels(study, spec)
    return table.drop(columns="place").assign(
        label=table["method"].map(labels),
        color=[styles[name].color for name in table["method"]],
        marker=[styles[name].marker for name in table["method"]],
        mark=np.where(table["insufficient_data"], f" {INSUFFICIENT}", ""),
    )


def _labels(study: Study, spec: FigureSpec) -> dict[str, str]:
    """Return the labels of methods; see `_label`."""
    styles = MethodStyles(study.cells)
    return {
        name: _label(name, styles.label(name)) for name in {*study.cells["method"], *spec.order}
    }


def _label(method: str, label: str) -> str:
    """Write a label without saying that a private method is sound; † marks those of `TUNED`."""
    text = label.removesuffix(" (sound)").replace("(sound, ", "(")
    return f"{text} †" if method in TUNED else text


def _as_listed(names: Iterable[str]) -> pd.Categorical:
    """Return names as categories in the order of their first appearance."""
    return pd.Categorical(names, list(dict.fromkeys(names)))


def _nearest_epsilon(table: pd.DataFrame) -> float:
    grid = np.sort(table["epsilon"].dropna().unique())
    return float(grid[np.argmin(np.abs(np.log(grid / EPSILON)))]) if grid.size else np.nan


def _gaps(table: pd.DataFrame, spec: FigureSpec) -> tuple[str, ...]:
    """Say for each method on which data sets it lacks a result."""
    if not len(table):
        return gap_texts([spec.title])
    labels = table.drop_duplicates("method").set_index("method")["label"]
    missing = ranking.complete(table, list(table["dataset"].unique()))[1].items()
    return tuple(
        f"{labels[method]}: no result at every epsilon on {', '.join(names)} (not planned at this "
        "size, not available, or over the time limit: see what is missing)"
        for method, names in missing
    )


# --- wide bounds ---------------------------------------------------------------------------------


def wide_bounds(study: Study, spec: FigureSpec) -> Frame:
    """Median ratio over data sets by how much too wide bounds are, with and without a zoom."""
    panel = study.matrix("wide_bounds", ranking.METRIC)
    if not len(panel.cells):
        return Frame(pd.DataFrame({"value": []}), gaps=gap_texts([spec.title]))
    best = ranking.ratios(study).groupby("dataset")["reference"].min()
    medians = np.nanmedian(panel.values, axis=0)
    plain = panel.cells["method"].str.removesuffix(ranking.ZOOMED)
    is_zoomed = panel.cells["method"].str.endswith(ranking.ZOOMED) | plain.isin(
        ranking.ALWAYS_ZOOMED
    )
    table = panel.cells.assign(
        value=medians / panel.cells["dataset"].map(best).to_numpy(dtype=float),
        x=panel.cells["bounds_factor"],
        hue=np.where(is_zoomed, "with", "without"),
        panel=plain.map(_labels(study, spec)),
    )
    table = table[np.isfinite(table["value"])]
    groups = table.groupby(["panel", "hue", "x"], sort=False, observed=True)
    shown = groups["value"].median().to_frame()
    shown["datasets"] = groups["dataset"].nunique()
    sizes = sorted(shown["datasets"].unique())
    sets = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return Frame(shown.reset_index(), gaps=(), fields={"sets": sets})


# --- ranks --------------------------------------------------------------------------------------


def mean_ranks(study: Study, spec: FigureSpec) -> Frame:
    """Mean ranks over all data sets, and over those on which all methods have results."""
    table = _ratios(study, spec)
    groups = _groups(table)
    lines = _mean_ranks(table, spec, groups)
    sizes = "; ".join(f"{title}: {len(datasets)} sets" for title, datasets in groups.items())
    gaps = _gaps(table if len(lines) else table.iloc[:0], spec)
    return Frame(lines, ranking.private(table), gaps, {"sizes": sizes, "level": ranking.LEVEL})


def _groups(table: pd.DataFrame) -> dict[str, list[str]]:
    """All data sets, and those on which all methods have results where these are fewer."""
    names = list(dict.fromkeys(table["dataset"]))
    groups = {"all data sets": names}
    shared = ranking.shared_datasets(table, names)
    if 0 < len(shared) < len(names):
        groups["data sets with a result of every method"] = shared
    return groups


def _mean_ranks(
    table: pd.DataFrame, spec: FigureSpec, groups: Mapping[str, list[str]]
) -> pd.DataFrame:
    """Mean ranks of each group of data sets at each epsilon, with looks of the methods."""
    grid = np.sort(table["epsilon"].dropna().unique())
    looks = table[LOOK].drop_duplicates("method")
    columns = ["method", "mean_rank", "low", "high", "panel", "epsilon", "datasets", "friedman_p"]
    parts = [pd.DataFrame(columns=[*columns, "critical_difference"])]
    for title, datasets in groups.items():
        methods = in_order(ranking.complete(table, datasets)[0], spec.order)
        for epsilon in grid if methods else ():
            parts.append(ranking.rank(table, epsilon, datasets, methods).assign(panel=title))
    lines = pd.concat(parts[1:] or parts, ignore_index=True).merge(looks, on="method")
    lines = lines.rename(columns={"mean_rank": "value"})
    return lines.assign(hue=lines["method"], x=lines["epsilon"])


def critical_differences(study: Study, spec: FigureSpec) -> Frame:
    """Mean ranks at a few epsilons with half of the critical difference to both sides."""
    shown = mean_ranks(study, spec)
    lines = shown.table
    grid = np.sort(lines["epsilon"].unique())
    chosen = np.unique(np.linspace(0, grid.size - 1, min(N_DIAGRAMS, grid.size)).round())
    lines = lines[lines["epsilon"].isin(grid[chosen.astype(int)])]
    lines = lines.sort_values(["epsilon", "panel", "value"], ignore_index=True)
    half = lines["critical_difference"] / 2
    titles = [
        f"{title}, ε = {epsilon:g} ({_test_text(p, critical)})"
        for title, epsilon, p, critical in lines[
            ["panel", "epsilon", "friedman_p", "critical_difference"]
        ].itertuples(index=False)
    ]
    lines = lines.assign(
        low=lines["value"] - half,
        high=lines["value"] + half,
        row=lines["method"],
        group_of_sets=lines["panel"],
        panel=_as_listed(titles),
    )
    return Frame(lines, shown.cells, shown.gaps, shown.fields)


def _test_text(p_value: float, critical: float) -> str:
    if not np.isfinite(critical):
        return "too few for a test"
    p = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"
    return f"{p}, CD {critical:.2f}"


def ranks_by_accounting(study: Study, spec: FigureSpec) -> Frame:
    """Mean ranks under other accounting, on the data sets that all of it was run on."""
    tables = {}
    for sweep, (title, multiple) in ACCOUNTING.items():
        table = ranking.ratios(study, [sweep] if sweep else ())
        tables[title] = table.assign(epsilon=table["epsilon"] * multiple)
    sets = [set(ranking.private(table)["dataset"]) for table in tables.values()]
    shared = sorted(set.intersection(*sets))
    parts = []
    for title, table in tables.items():
        table = table[table["dataset"].isin(shared)]
        table = _with_looks(study, spec, table)
        parts.append(_mean_ranks(table, spec, {title: shared}))
    lines = pd.concat(parts, ignore_index=True)
    if not len(lines):
        return Frame(pd.DataFrame({"value": []}), gaps=gap_texts([spec.title]))
    lines = lines.assign(panel=pd.Categorical(lines["panel"], list(tables)))
    return Frame(lines, gaps=(), fields={"sets": f"{len(shared)}"})


# --- profiles -----------------------------------------------------------------------------------


def profiles(study: Study, spec: FigureSpec) -> Frame:
    """Share of settings within a factor of the best, by bounds and zoom."""
    parts = []
    for title, setting in SETTINGS.items():
        table = _with_looks(study, spec, ranking.ratios(study, **setting))
        looks = table[LOOK].drop_duplicates("method")
        for group, names in _groups(table[table["notion"] != "none"]).items():
            lines = ranking.profile(table, names, np.array(FACTORS)).merge(looks, on="method")
            panel = f"{title}: {group} ({len(names)})"
            if lines["method"].nunique() > 1:  # one method alone is always the best
                parts.append(lines.assign(panel=panel, group_of_sets=group, setting=title))
    if not parts:
        return Frame(pd.DataFrame({"value": []}), gaps=gap_texts([spec.title]))
    table = pd.concat(parts, ignore_index=True)
    places = in_order(table["method"], spec.order)
    table = table.assign(
        value=table["share"],
        x=table["factor"],
        hue=pd.Categorical(table["method"], places),
        panel=_as_listed(table["panel"]),
    )
    return Frame(table, gaps=())


# --- best methods and times ---------------------------------------------------------------------


def winners(study: Study, spec: FigureSpec) -> Frame:
    """The best private method of each data set and epsilon, over the records of a cluster."""
    table = _ratios(study, spec)
    best = ranking.best_methods(table)
    if not len(best):
        return Frame(table.iloc[:0].assign(value=np.nan), gaps=gap_texts([spec.title]))
    looks = table[LOOK].drop_duplicates("method")
    best = best.merge(looks, on="method").sort_values(["d", "n", "dataset", "epsilon"])
    rows = [f"{line.dataset} (d {line.d})" for line in best.itertuples()]
    labels = _labels(study, spec) | {"": DASH}
    best = best.assign(
        value=best["records"],
        low=np.nan,
        high=np.nan,
        row=_as_listed(rows),
        hue=best["method"].where(best["useful"], "none"),
        second=best["second"].map(labels),
    )
    return Frame(best, gaps=())


def times(table: pd.DataFrame) -> pd.DataFrame:
    """Sort data sets by size, and leave out of labels that methods are sound."""
    table = table.sort_values(["n", "d", "dataset"], kind="stable", ignore_index=True)
    return table.assign(label=list(map(_label, table["method"], table["label"])))
