"""What the figures of the comparison need beyond their figures.yaml."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.figure_data import FigureData
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import DASH, count_text, not_run_texts
from pkm.analysis.tables import ranking
from pkm.analysis.tables.study import Study

EPSILON = 1.0  # of figures that show one; where it was not run, the nearest is shown
N_DIAGRAMS = 3  # epsilons at which differences are shown
FACTORS = (1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)  # of the best, in profiles
#: Methods with a constant or a rule that was chosen on data sets of the comparison.
TUNED = ("dpm_merged", "dpm", "synopsis", "quadtree", "kaplan_stemmer", "mst", "aim")
#: What says how a method is drawn.
STYLE_COLUMNS = ["method", "label", "color", "marker"]
INSUFFICIENT = "‡"
_INSUFFICIENT_TEXT = (
    f"{INSUFFICIENT} No bucket could pass its threshold with so few records: the "
    "centers come from points placed without data and from the queries about those."
)


# Ratios


def ratios_by_epsilon(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show median ratios of all methods, data sets with few columns first."""
    table = _read_ratios(study, spec)
    if not len(ranking.private(table)):
        table = table.iloc[:0]
    table = table.assign(
        value=table["median"],
        x=table["epsilon"],
        hue=table["method"],
        panel=_name_rows("{dataset} (d {d}, k {k})", table),
    )
    is_marked = table["insufficient_data"].any()
    fields = {"insufficient": _INSUFFICIENT_TEXT if is_marked else ""}
    return FigureData(
        table,
        missing=_describe_missing(table, spec),
        fields=fields,
    )


def ratios_by_unit(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show median ratios of all methods, in panels of rows and then of persons."""
    data = ratios_by_epsilon(study, spec)
    by = ["unit", "d", "dataset"]
    ascending = [False, True, True]
    table = data.table.sort_values(
        by,
        ascending=ascending,
        kind="stable",
    )
    panel = _name_rows("{dataset}: {n:,} {unit}s", table)
    return replace(data, table=table.assign(panel=panel))


def ratios_at_one_epsilon(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show median ratios at one epsilon, data sets down, methods across."""
    data = ratios_by_epsilon(study, spec)
    table = data.table
    grid = np.unique(table["epsilon"].dropna())
    epsilon = min(
        grid,
        key=lambda value: abs(np.log(value / EPSILON)),
        default=np.nan,
    )
    is_private = table["method"] != ranking.REFERENCE
    is_shown = (table["epsilon"] == epsilon) & is_private
    table = table[is_shown].drop(columns="panel")

    label = _make_labels(study.cells)
    methods = in_order(table["method"], spec.order)
    labels = dict.fromkeys(map(label, methods))
    table = table.assign(
        row=_name_rows("{dataset}  {n:,} × {d}, k {k}", table),
        x=pd.Categorical(table["label"], list(labels)),
    )
    fields = {
        "epsilon": f"{epsilon:g}",
        "native": ", ".join(map(label, ranking.UNRANKED)),
    }
    return replace(
        data,
        table=table,
        fields=fields | data.fields,
    )


def price_over_records(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show median ratios of private methods over records of a cluster times epsilon.

    Settings are put together by the nearest half of a power of ten.
    """
    table = ranking.private(_read_ratios(study, spec))
    records = table["n"] * table["epsilon"] / table["k"]
    halves = (2 * np.log10(records)).round()
    table = table.assign(x=10 ** (halves / 2))
    grouped = table.groupby(["method", "x"], as_index=False)
    prices = grouped.agg(value=("median", "median"), settings=("median", "size"))
    methods = in_order(prices["method"], spec.order)
    hue = pd.Categorical(prices["method"], methods)
    return FigureData(_merge_styles(prices, table).assign(hue=hue))


def _read_ratios(
    study: Study,
    spec: FigureSpec,
) -> pd.DataFrame:
    """Return the ratios with styles of methods.

    Of methods that the figure lists, on the data sets on which the first of them has
    results.
    """
    table = ranking.ratios(study, spec.sweep, **spec.where)
    if spec.methods:
        table = table[table["method"].isin(spec.methods)]
        first = table[table["method"] == spec.methods[0]]
        table = table[table["dataset"].isin(first["dataset"])]
    styles = MethodStyles(study.cells)
    methods = table["method"]
    places = in_order(methods, spec.order)
    is_marked = table["insufficient_data"]
    table = table.assign(
        label=methods.map(_make_labels(study.cells)),
        color=[styles[name].color for name in methods],
        marker=[styles[name].marker for name in methods],
        mark=np.where(is_marked, f" {INSUFFICIENT}", ""),
        place=methods.map(places.index),
    )
    # Data sets by size, methods in the order of the figure.
    order = ["d", "n", "dataset", "place", "epsilon"]
    return table.sort_values(order, ignore_index=True).drop(columns="place")


def _make_labels(cells: pd.DataFrame) -> Callable[[str], str]:
    """Make labels that do not say that a method is sound; † marks those of `TUNED`."""
    styles = MethodStyles(cells)

    def label(method: str) -> str:
        text = styles[method].label
        text = text.removesuffix(" (sound)").replace("(sound, ", "(")
        return f"{text} †" if method in TUNED else text

    return label


def _name_rows(
    template: str,
    table: pd.DataFrame,
) -> pd.Categorical:
    """Name each row of a table; names are in the order of their first appearance."""
    names = [template.format(**row) for row in table.to_dict("records")]
    return pd.Categorical(names, list(dict.fromkeys(names)))


def _describe_missing(
    table: pd.DataFrame,
    spec: FigureSpec,
) -> tuple[str, ...]:
    """Say for each method on which data sets it lacks a result."""
    if not len(table):
        return not_run_texts([spec.title])
    labels = dict(zip(table["method"], table["label"], strict=True))
    is_full = ranking.full_results(table, table["dataset"].unique())
    lacking = is_full.columns[~is_full.all()]
    return tuple(
        f"{labels[method]}: no result at every epsilon on "
        f"{', '.join(is_full.index[~is_full[method]])} (not planned at this size, not "
        "available, or over the time limit: see what is missing)"
        for method in lacking
    )


# Wide bounds


def wide_bounds(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show median ratios by how much too wide bounds are, and by zoom."""
    matrix = study.matrix("wide_bounds", ranking.METRIC)
    cells = matrix.cells
    if not len(cells):
        return FigureData(pd.DataFrame({"value": []}))

    ratios = ranking.ratios(study)
    best = ratios.groupby("dataset")["reference"].min()
    medians = np.nanmedian(matrix.values, axis=0)
    references = cells["dataset"].map(best)
    methods = cells["method"].str.removesuffix(ranking.ZOOMED)
    is_zoomed = methods != cells["method"]
    is_zoomed |= methods.isin(ranking.ALWAYS_ZOOMED)
    table = cells.assign(
        value=medians / references,
        x=cells["bounds_factor"],
        hue=np.where(is_zoomed, "with", "without"),
        panel=methods.map(_make_labels(study.cells)),
    )

    table = table.dropna(subset=["value"])
    curves = table.groupby(["panel", "hue", "x"], sort=False)
    table = curves.agg(
        value=("value", "median"),
        datasets=("dataset", "nunique"),
    )
    table = table.reset_index()
    sets = count_text(table["datasets"], "")
    return FigureData(table, fields={"sets": sets.strip()})


# Ranks


def mean_ranks(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show mean ranks over all data sets, and over those that all methods have."""
    table = _read_ratios(study, spec)
    groups = _group_datasets(table)
    ranks = _mean_ranks(table, spec, groups)
    sizes = [f"{title}: {len(names)} sets" for title, names in groups.items()]
    missing = _describe_missing(table if len(ranks) else ranks, spec)
    fields = {
        "sizes": "; ".join(sizes),
        "level": ranking.LEVEL,
    }
    return FigureData(ranks, ranking.private(table), missing, fields)


def _group_datasets(table: pd.DataFrame) -> dict[str, list[str]]:
    """List all data sets, and those that all methods have where these are fewer."""
    names = list(table["dataset"].unique())
    groups = {"all data sets": names}
    shared = ranking.shared_datasets(table, names)
    if 0 < len(shared) < len(names):
        groups["data sets with a result of every method"] = shared
    return groups


def _mean_ranks(
    table: pd.DataFrame,
    spec: FigureSpec,
    groups: Mapping[str, list[str]],
) -> pd.DataFrame:
    """Compute mean ranks of each group of data sets at each epsilon, with styles."""
    grid = np.unique(table["epsilon"].dropna())
    ranks = []
    for title, datasets in groups.items():
        methods = ranking.complete_methods(table, datasets)
        if methods:
            methods = in_order(methods, spec.order)
            ranks += [
                ranking.rank(table, epsilon, datasets, methods).assign(panel=title)
                for epsilon in grid
            ]
    if not ranks:
        return pd.DataFrame({"value": [], "epsilon": [], "panel": []})
    rows = pd.concat(ranks, ignore_index=True)
    rows = rows.rename(columns={"mean_rank": "value"})
    rows = _merge_styles(rows, table)
    return rows.assign(hue=rows["method"], x=rows["epsilon"])


def _merge_styles(
    rows: pd.DataFrame,
    table: pd.DataFrame,
) -> pd.DataFrame:
    """Add the styles that the methods have in another table."""
    styles = table[STYLE_COLUMNS].drop_duplicates("method")
    return rows.merge(styles, on="method")


def critical_differences(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show mean ranks at a few epsilons; bars are half of the critical difference."""
    data = mean_ranks(study, spec)
    ranks = data.table
    if not len(ranks):
        return data
    grid = np.unique(ranks["epsilon"])
    n_shown = min(N_DIAGRAMS, grid.size)
    chosen = np.linspace(0, grid.size - 1, n_shown).round()
    epsilons = grid[chosen.astype(int)]
    ranks = ranks[ranks["epsilon"].isin(epsilons)]
    order = ["epsilon", "panel", "value"]
    ranks = ranks.sort_values(order, ignore_index=True)

    p_value = ranks["friedman_p"]
    p = p_value.map("p = {:.2g}".format)
    p = p.where(p_value >= 0.001, "p < 0.001")
    critical = ranks["critical_difference"]
    test = p + critical.map(", CD {:.2f}".format)
    test = test.where(critical.notna(), "too few for a test")
    named = ranks.assign(test=test)
    half = critical / 2
    ranks = ranks.assign(
        low=ranks["value"] - half,
        high=ranks["value"] + half,
        row=ranks["method"],
        group_of_sets=ranks["panel"],
        panel=_name_rows("{panel}, ε = {epsilon:g} ({test})", named),
    )
    return replace(data, table=ranks)


def ranks_by_accounting(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show mean ranks under other accounting, on the data sets that all of it has."""
    tables = {}
    for title in spec.panels:
        panel_spec = spec.for_panel(title)
        table = _read_ratios(study, panel_spec)
        epsilon = table["epsilon"] * panel_spec.compare.get("times", 1.0)
        tables[title] = table.assign(epsilon=epsilon)
    private = map(ranking.private, tables.values())
    sets = [set(table["dataset"]) for table in private]
    shared = sorted(set.intersection(*sets))

    ranks = []
    for title, table in tables.items():
        is_shared = table["dataset"].isin(shared)
        group = {title: shared}
        ranks.append(_mean_ranks(table[is_shared], spec, group))
    table = pd.concat(ranks, ignore_index=True)
    return FigureData(table, fields={"sets": f"{len(shared)}"})


# Profiles


def profiles(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show the share of settings within a factor of the best, by bounds and zoom."""
    profiles = []
    for title in spec.panels:
        table = _read_ratios(study, spec.for_panel(title))
        private = table.query("notion != 'none'")
        for group, names in _group_datasets(private).items():
            rows = ranking.profile(table, names, FACTORS)
            rows = _merge_styles(rows, table).assign(
                panel=f"{title}: {group} ({len(names)})",
                group_of_sets=group,
                setting=title,
            )
            # One method alone is always the best.
            if rows["method"].nunique() > 1:
                profiles.append(rows)
    if not profiles:
        return FigureData(pd.DataFrame({"value": []}))
    table = pd.concat(profiles, ignore_index=True)
    methods = in_order(table["method"], spec.order)
    table = table.assign(
        value=table["share"],
        x=table["factor"],
        hue=pd.Categorical(table["method"], methods),
        panel=_name_rows("{panel}", table),
    )
    return FigureData(table, missing=())


# Best methods and times


def winners(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show the best private method of each data set and epsilon."""
    table = _read_ratios(study, spec)
    best = ranking.best_methods(table)
    best = _merge_styles(best, table)
    best = best.sort_values(["d", "n", "dataset", "epsilon"])
    second = best["second"]
    labels = second.map(_make_labels(study.cells))
    best = best.assign(
        value=best["records"],
        low=np.nan,
        high=np.nan,
        row=_name_rows("{dataset} (d {d})", best),
        hue=best["method"].where(best["useful"], "none"),
        second=labels.where(second != "", DASH),
    )
    return FigureData(best)


def times(table: pd.DataFrame) -> pd.DataFrame:
    """Sort data sets by size, and leave out of labels that methods are sound."""
    order = ["n", "d", "dataset"]
    table = table.sort_values(
        order,
        kind="stable",
        ignore_index=True,
    )
    labels = table["method"].map(_make_labels(table))
    return table.assign(label=labels)
