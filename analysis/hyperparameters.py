"""Predicates on a grid of settings of one method.

They tell which settings have the best means, how much the means differ, and whether data sets rank
the settings alike.

A check names the `sweep`, `metrics`, `datasets`, the `method`, its `parameters` (a list of numeric
columns, or a mapping from one column of lists to names for their items) and how many `settings` the
whole grid has. Each metric on each data set is one part of the claim, decided on resampled seeds
like every predicate on means; settings are ranked separately in every resample.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.findings import (
    INCONCLUSIVE,
    Context,
    Finding,
    MissingRows,
    decide,
    join_texts,
    no_rows_of,
    percent,
    within,
)
from pkm.analysis.tables import (
    Study,
    matches,
    percentile_interval,
    resampled_means,
)
from pkm.schema import higher_is_better

_TIE = 1e-9  # relative difference of quality that is rounding


@dataclass(frozen=True)
class HyperparameterGrid:
    """Means of one metric on one data set over settings.

    Attributes
    ----------
    dataset, metric : str
    settings : DataFrame
        One line per setting, one column per parameter.
    means : ndarray of shape (lines, settings)
        Line 0 is the sample itself, the others are resamples.
    quality : ndarray of shape (lines, settings)
        The same, signed so that more is better.
    seeds : int
        Fewest seeds of a setting.
    """

    dataset: str
    metric: str
    settings: pd.DataFrame
    means: np.ndarray
    quality: np.ndarray
    seeds: int

    def ranks(self) -> np.ndarray:
        """Rank of every setting in every line, 0 for the best."""
        order = np.argsort(-self.quality, axis=1, kind="stable")
        return np.argsort(order, axis=1)

    def inside(self, corner: Mapping[str, Mapping]) -> np.ndarray:
        """Mask of the settings within the bounds of a corner (parameter to bounds)."""
        mask = np.ones(len(self.settings), dtype=bool)
        for name, bounds in corner.items():
            mask &= within(self.settings[name].to_numpy(), bounds)
        return mask


def table_of_settings(
    cells: pd.DataFrame, parameters: list[str] | Mapping[str, list[str]]
) -> pd.DataFrame | None:
    """Parse the parameters of a method as numeric columns, one line per cell.

    Parameters
    ----------
    cells : DataFrame
        Cells of a panel.
    parameters : list of str, or mapping of str to list of str
        Columns, or the column of lists and the names of their items.

    Returns
    -------
    DataFrame or None
        None if a column is missing; lines whose value is not of that form hold NaN.
    """
    if isinstance(parameters, list):
        if not set(parameters) <= set(cells.columns):
            return None
        numeric = cells[parameters].apply(pd.to_numeric, errors="coerce")
        return numeric.reset_index(drop=True)
    ((column, names),) = parameters.items()
    if column not in cells.columns:
        return None
    items = [_items(text, len(names)) for text in cells[column]]
    return pd.DataFrame(items, columns=names)


def _items(text: object, count: int) -> list[float]:
    """Parse a JSON list of `count` numbers; NaN for anything else."""
    is_list = isinstance(text, str) and text.startswith("[")
    items = json.loads(text) if is_list else []
    return items if len(items) == count else [math.nan] * count


def find_grids(
    study: Study, check: Mapping, context: Context
) -> tuple[list[HyperparameterGrid], str]:
    """Find the grids of a check, and say what is missing.

    Returns
    -------
    list of HyperparameterGrid
        One per metric and data set with at least three settings.
    str
        Data sets and settings that the claim needs and that are not stored.

    Raises
    ------
    MissingRows
        If no data set has at least three settings.
    """
    grids = []
    for metric in check["metrics"]:
        sign = 1.0 if higher_is_better(metric) else -1.0
        panel = study.panel(check["sweep"], metric)
        for dataset in context.resolve(check["datasets"]):
            selector = {"dataset": dataset, "method": check["method"]}
            part = panel.take(matches(panel.cells, selector))
            settings = table_of_settings(part.cells, check["parameters"])
            if settings is None:
                continue

            # Keep the cells whose parameters could be parsed.
            known = settings.notna().all(axis=1).to_numpy()
            part = part.take(known)
            settings = settings[known].reset_index(drop=True)
            if len(settings) < 3:
                continue

            means = resampled_means(part)
            quality = sign * means
            grid = HyperparameterGrid(dataset, metric, settings, means, quality, part.min_seeds)
            grids.append(grid)
    if not grids:
        raise MissingRows(context.why(check["sweep"]))
    return grids, _describe_missing(grids, check, context)


def _describe_missing(grids: Sequence[HyperparameterGrid], check: Mapping, context: Context) -> str:
    """Name the data sets without a grid, and the settings that a grid lacks."""
    datasets = context.resolve(check["datasets"])
    n_settings = min(len(grid.settings) for grid in grids)
    n_expected = check["settings"]
    return join_texts(
        no_rows_of(datasets, [grid.dataset for grid in grids]),
        f"{n_settings} of {n_expected} settings" if n_settings < n_expected else "",
    )


def _keys(grids: Sequence[HyperparameterGrid], **columns: object) -> pd.DataFrame:
    """One line per grid: data set, metric, number of settings and further columns."""
    lines = [
        {"dataset": grid.dataset, "metric": grid.metric, "settings": len(grid.settings)}
        for grid in grids
    ]
    return pd.DataFrame(lines).assign(**columns)


def _intervals(
    grids: Sequence[HyperparameterGrid], name: str, resampled: Sequence[np.ndarray]
) -> pd.DataFrame:
    """One line per grid: a resampled quantity on the sample itself, and its 95 % interval."""
    low, high = percentile_interval(np.column_stack(resampled))
    on_sample = [values[0] for values in resampled]
    return _keys(grids, **{name: on_sample}, low=low, high=high)


def _finding(
    truth: Sequence[np.ndarray],
    evidence: pd.DataFrame,
    grids: Sequence[HyperparameterGrid],
    numbers: str,
    missing: str,
) -> Finding:
    """Decide a predicate that has one part per column of `truth`."""
    seeds = min(grid.seeds for grid in grids)
    return decide(np.column_stack(truth), seeds, numbers, missing, evidence)


def best_part(study: Study, check: Mapping, context: Context) -> Finding:
    """Check a linear form of the parameters, averaged over the best `share` of the settings.

    `form` maps parameters to weights. Against bounds (`at_least`, `above`, ...), or with
    ``below_worst: true`` against the worst share.
    """
    grids, missing = find_grids(study, check, context)
    form = check["form"]
    truth = []
    best_means = []
    worst_means = []
    for grid in grids:
        value = sum(weight * grid.settings[name].to_numpy() for name, weight in form.items())
        n_settings = len(value)
        n_best = max(round(check["share"] * n_settings), 1)
        ranks = grid.ranks()
        best = ((ranks < n_best) @ value) / n_best
        worst = ((ranks >= n_settings - n_best) @ value) / n_best
        truth.append(best < worst if check.get("below_worst") else within(best, check))
        best_means.append(best)
        worst_means.append(worst[0])
    evidence = _intervals(grids, "best", best_means).assign(worst=worst_means)
    formula = " ".join(f"{weight:+g} {name}" for name, weight in form.items())
    numbers = f"Mean of {formula} in the best {percent(check['share'])} between "
    numbers += f"{evidence['best'].min():.3g} and {evidence['best'].max():.3g}, in the worst "
    numbers += f"between {min(worst_means):.3g} and {max(worst_means):.3g};"
    return _finding(truth, evidence, grids, numbers, missing)


def interior_best(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the mean quality is best at an inner level of each parameter `along`.

    All parameters but `rest_of` divide what that one leaves, so its levels bound theirs. A level is
    therefore a share of the rest, counts only if it is stored at every level of `rest_of`, and its
    quality is the mean over these of the means inside them. Inconclusive below `levels` levels; a
    tie with an outer level leaves a part open.
    """
    grids, missing = find_grids(study, check, context)
    truth = []
    lines = []
    n_levels = []
    for grid, name in itertools.product(grids, check["along"]):
        # Levels stored at every level of `rest_of`, as shares of what that one leaves.
        outer = grid.settings[check["rest_of"]].to_numpy()
        share = np.round(grid.settings[name].to_numpy() / (1 - outer), 4)
        stored = [set(share[outer == value]) for value in np.unique(outer)]
        levels = sorted(set.intersection(*stored))
        n_levels.append(len(levels))
        if len(levels) < 3:
            continue

        # The best inner level against the best outer one; on the sample a tie counts.
        by_level = [_balanced(grid.quality, share == level, outer) for level in levels]
        quality = np.column_stack(by_level)
        best_inner = quality[:, 1:-1].max(axis=1)
        best_outer = quality[:, [0, -1]].max(axis=1)
        lead = best_inner - best_outer
        tie = _TIE * np.abs(quality).max(axis=1)
        true = lead > tie
        true[0] = lead[0] >= -tie[0]
        truth.append(true)
        lines.append(
            {
                "dataset": grid.dataset,
                "metric": grid.metric,
                "along": name,
                "best": levels[quality[0].argmax()],
                "levels": ", ".join(f"{value:.3g}" for value in levels),
            }
        )

    few_levels = min(n_levels) < check["levels"]
    if few_levels:
        few = f"{min(n_levels)} of {check['levels']} levels of {' and '.join(check['along'])} "
        missing = join_texts(missing, f"{few}stored at every level of {check['rest_of']}")
    if not truth:
        seeds = min(grid.seeds for grid in grids)
        return Finding(INCONCLUSIVE, "Too few levels to have an inner one.", 0, seeds, missing)
    n_inner = sum(bool(part[0]) for part in truth)
    numbers = f"Best at an inner level for {n_inner} of {len(truth)};"
    finding = _finding(truth, pd.DataFrame(lines), grids, numbers, missing)
    if few_levels:
        text = f"{finding.numbers} Too few levels for a verdict."
        return replace(finding, verdict=INCONCLUSIVE, numbers=text)
    return finding


def _balanced(quality: np.ndarray, columns: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Mean over the levels of `outer` of the mean of some columns (a mask) inside each."""
    means = [quality[:, columns & (outer == value)].mean(axis=1) for value in np.unique(outer)]
    return np.mean(means, axis=0)


def among_best(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that one `setting` is among the best `share` of all."""
    grids, missing = find_grids(study, check, context)
    names = list(check["setting"])
    setting = list(check["setting"].values())
    truth = []
    ranks = []
    with_setting = []
    for grid in grids:
        equal = np.isclose(grid.settings[names], setting).all(axis=1)
        if not equal.any():
            continue
        rank = grid.ranks()[:, equal.argmax()]
        truth.append(rank < check["share"] * len(grid.settings))
        ranks.append(int(rank[0]) + 1)
        with_setting.append(grid)
    if not with_setting:
        raise MissingRows(f"the setting {check['setting']} is not stored")
    evidence = _keys(with_setting, rank=ranks)
    texts = [
        f"{line.dataset} {line.metric} {line.rank} of {line.settings}"
        for line in evidence.itertuples(index=False)
    ]
    return _finding(truth, evidence, with_setting, f"Its ranks: {', '.join(texts)};", missing)


def best_differs(study: Study, check: Mapping, context: Context) -> Finding:
    """Check, per data set, that the best setting is not the same for all metrics."""
    grids, missing = find_grids(study, check, context)
    truth = []
    lines = []
    texts = []
    for dataset in dict.fromkeys(grid.dataset for grid in grids):
        # Position of the best setting by each metric, in every line.
        of_dataset = [grid for grid in grids if grid.dataset == dataset]
        best = np.column_stack([grid.quality.argmax(axis=1) for grid in of_dataset])
        truth.append((best != best[:, :1]).any(axis=1))

        settings = {
            grid.metric: str(tuple(grid.settings.iloc[position]))
            for grid, position in zip(of_dataset, best[0], strict=True)
        }
        n_metrics = len(of_dataset)
        n_different = len(set(settings.values()))
        lines.append({"dataset": dataset, "metrics": n_metrics} | settings)
        texts.append(f"{dataset} {n_different} of {n_metrics}")
    numbers = f"Different best settings: {', '.join(texts)};"
    return _finding(truth, pd.DataFrame(lines), grids, numbers, missing)


def flat(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the relative range of the means over the settings outside `corner` against bounds.

    The range is (largest - smallest) / mean.
    """
    grids, missing = find_grids(study, check, context)
    truth = []
    ranges = []
    for grid in grids:
        means = grid.means[:, ~grid.inside(check["corner"])]
        relative_range = np.ptp(means, axis=1) / np.abs(means.mean(axis=1))
        truth.append(within(relative_range, check))
        ranges.append(relative_range)
    evidence = _intervals(grids, "relative_range", ranges)
    largest = evidence.loc[evidence["relative_range"].argmax()]
    numbers = f"Largest relative range {percent(largest['relative_range'])} "
    numbers += f"({largest['dataset']}, {largest['metric']}; required: at most "
    numbers += f"{percent(check['at_most'])});"
    return _finding(truth, evidence, grids, numbers, missing)


def worst_in_corner(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the worst setting lies in `corner`."""
    grids, missing = find_grids(study, check, context)
    truth = []
    worst = []
    for grid in grids:
        position = grid.quality.argmin(axis=1)
        truth.append(grid.inside(check["corner"])[position])
        setting = grid.settings.iloc[position[0]]
        worst.append(", ".join(f"{name} = {value:.3g}" for name, value in setting.items()))
    n_inside = sum(bool(part[0]) for part in truth)
    numbers = f"The worst setting lies in the corner for {n_inside} of {len(truth)};"
    return _finding(truth, _keys(grids, worst=worst), grids, numbers, missing)


def same_ranking(study: Study, check: Mapping, context: Context) -> Finding:
    """Check Spearman's correlation, between two data sets, of the settings in `corner`.

    Against bounds, for every metric and pair of data sets.
    """
    grids, missing = find_grids(study, check, context)
    truth = []
    lines = []
    for left, right in itertools.combinations(grids, 2):
        if left.metric != right.metric:
            continue

        # Match the settings that both data sets have, and keep those in the corner.
        left_settings = left.settings.reset_index(names="left")
        right_settings = right.settings.reset_index(names="right")
        both = left_settings.merge(right_settings, on=list(left.settings))
        in_corner = left.inside(check["corner"])[both["left"]]
        both = both[in_corner]
        if len(both) < 3:
            continue

        correlation = _line_correlation(left.means[:, both["left"]], right.means[:, both["right"]])
        truth.append(within(correlation, check))
        lines.append(
            {
                "dataset": f"{left.dataset} and {right.dataset}",
                "metric": left.metric,
                "settings": len(both),
                "correlation": correlation[0],
            }
        )
    if not truth:
        raise MissingRows("two data sets with at least three settings in the corner are needed")
    evidence = pd.DataFrame(lines)
    numbers = f"Spearman in the corner between {evidence['correlation'].min():.3g} and "
    numbers += f"{evidence['correlation'].max():.3g};"
    return _finding(truth, evidence, grids, numbers, missing)


def _line_correlation(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each line with that of the other matrix; NaN if one is constant."""
    mean_rank = (left.shape[1] + 1) / 2
    left_ranks = stats.rankdata(left, axis=1) - mean_rank
    right_ranks = stats.rankdata(right, axis=1) - mean_rank
    left_squares = (left_ranks**2).sum(axis=1)
    right_squares = (right_ranks**2).sum(axis=1)
    scale = np.sqrt(left_squares * right_squares)
    product = (left_ranks * right_ranks).sum(axis=1)
    known = scale > 0
    return np.where(known, product / np.where(known, scale, 1), np.nan)


EVALUATORS = {
    "best_part": best_part,
    "interior_best": interior_best,
    "among_best": among_best,
    "best_differs": best_differs,
    "flat": flat,
    "worst_in_corner": worst_in_corner,
    "same_ranking": same_ranking,
}
