"""Predicates on a grid of settings of one method.

Which settings do well, how much they differ, and whether data sets agree.

A check names the `sweep`, `metrics`, `datasets`, the `method`, its `parameters` (a list of numeric
columns, or a mapping from one column of lists to names for their items) and how many `settings` the
whole grid has. Each metric on each data set is one part of the claim, decided on resampled seeds
like every predicate on means; settings are ranked anew in every resample.
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
    percent,
    within,
)
from pkm.analysis.tables import (
    HIGHER_IS_BETTER,
    Study,
    matches,
    percentile_interval,
    resampled_means,
)

_TIE = 1e-9  # relative difference of quality that is rounding


@dataclass(frozen=True)
class HyperparameterGrid:
    """One metric on one data set over settings.

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
    """

    dataset: str
    metric: str
    settings: pd.DataFrame
    means: np.ndarray
    quality: np.ndarray
    seeds: int

    def ranks(self) -> np.ndarray:
        """Place of every setting in every line, 0 for the best."""
        return np.argsort(np.argsort(-self.quality, axis=1, kind="stable"), axis=1)

    def inside(self, corner: Mapping[str, Mapping]) -> np.ndarray:
        """Mask of the settings within the bounds of a corner (parameter to bounds)."""
        mask = np.ones(len(self.settings), dtype=bool)
        for name, bounds in corner.items():
            mask &= within(self.settings[name].to_numpy(), bounds)
        return mask


def table_of_settings(
    cells: pd.DataFrame, parameters: list[str] | Mapping[str, list[str]]
) -> pd.DataFrame | None:
    """Numeric columns of a method's parameters, one line per cell.

    Parameters
    ----------
    cells : DataFrame
        Cells of a panel.
    parameters : list of str, or mapping of str to list of str
        Columns, or the column of lists and the names of their items.

    Returns
    -------
    DataFrame or None
        None if a column is not there; lines whose value is not of that form hold NaN.
    """
    if isinstance(parameters, list):
        if not set(parameters) <= set(cells.columns):
            return None
        return cells[parameters].apply(pd.to_numeric, errors="coerce").reset_index(drop=True)
    ((column, names),) = parameters.items()
    if column not in cells.columns:
        return None
    return pd.DataFrame([_items(text, len(names)) for text in cells[column]], columns=names)


def _items(text: object, count: int) -> list[float]:
    items = json.loads(text) if isinstance(text, str) and text.startswith("[") else []
    return items if len(items) == count else [math.nan] * count


def grids(study: Study, check: Mapping, context: Context) -> tuple[list[HyperparameterGrid], str]:
    """Find the grids of a check, and say what is missing.

    Raises
    ------
    MissingRows
        If no data set has at least three settings.
    """
    found = []
    for metric in check["metrics"]:
        sign = 1.0 if metric in HIGHER_IS_BETTER else -1.0
        panel = study.panel(check["sweep"], metric)
        for dataset in context.resolve(check["datasets"]):
            selector = {"dataset": dataset, "method": check["method"]}
            part = panel.take(matches(panel.cells, selector))
            settings = table_of_settings(part.cells, check["parameters"])
            if settings is None:
                continue
            known = settings.notna().all(axis=1).to_numpy()
            part = part.take(known)
            settings = settings[known].reset_index(drop=True)
            if len(settings) < 3:
                continue
            means = resampled_means(part)
            quality = sign * means
            grid = HyperparameterGrid(dataset, metric, settings, means, quality, part.min_seeds)
            found.append(grid)
    if not found:
        raise MissingRows(context.why(check["sweep"]))
    return found, _describe_missing(found, check, context)


def _describe_missing(found: Sequence[HyperparameterGrid], check: Mapping, context: Context) -> str:
    stored = {grid.dataset for grid in found}
    absent = [name for name in context.resolve(check["datasets"]) if name not in stored]
    fewest = min(len(grid.settings) for grid in found)
    return join_texts(
        f"no stored rows of {', '.join(absent)}" if absent else "",
        f"{fewest} of {check['settings']} settings" if fewest < check["settings"] else "",
    )


def _keys(found: Sequence[HyperparameterGrid], **columns: object) -> pd.DataFrame:
    """One line per grid: data set, metric, number of settings and further columns."""
    keys = pd.DataFrame([{"dataset": grid.dataset, "metric": grid.metric} for grid in found])
    return keys.assign(settings=[len(grid.settings) for grid in found], **columns)


def _intervals(
    found: Sequence[HyperparameterGrid], name: str, resampled: Sequence[np.ndarray]
) -> pd.DataFrame:
    """One line per grid: a resampled quantity on the sample itself, and its 95 % interval."""
    low, high = percentile_interval(np.column_stack(resampled))
    return _keys(found, **{name: [values[0] for values in resampled]}, low=low, high=high)


def _finding(
    truth: Sequence[np.ndarray],
    evidence: pd.DataFrame,
    found: Sequence[HyperparameterGrid],
    numbers: str,
    missing: str,
) -> Finding:
    seeds = min(grid.seeds for grid in found)
    return decide(np.column_stack(truth), seeds, numbers, missing, evidence)


def best_part(study: Study, check: Mapping, context: Context) -> Finding:
    """Check a linear form of the parameters, averaged over the best `share` of the settings.

    `form` maps parameters to weights. Against bounds (`at_least`, `above`, ...), or with
    ``below_worst: true`` against the worst share.
    """
    found, missing = grids(study, check, context)
    truth = []
    bests = []
    worsts = []
    for grid in found:
        value = sum(
            weight * grid.settings[name].to_numpy() for name, weight in check["form"].items()
        )
        count = max(round(check["share"] * len(value)), 1)
        ranks = grid.ranks()
        best = ((ranks < count) @ value) / count
        worst = ((ranks >= len(value) - count) @ value) / count
        truth.append(best < worst if check.get("below_worst") else within(best, check))
        bests.append(best)
        worsts.append(worst[0])
    evidence = _intervals(found, "best", bests).assign(worst=worsts)
    form = " ".join(f"{weight:+g} {name}" for name, weight in check["form"].items())
    numbers = f"Mean of {form} in the best {percent(check['share'])} between "
    numbers += f"{evidence['best'].min():.3g} and {evidence['best'].max():.3g}, in the worst "
    numbers += f"between {min(worsts):.3g} and {max(worsts):.3g};"
    return _finding(truth, evidence, found, numbers, missing)


def interior_best(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the mean quality is best at an inner level of each parameter `along`.

    All parameters but `rest_of` divide what that one leaves, so its levels bound theirs. A level is
    therefore a share of the rest, counts only if it is stored at every level of `rest_of`, and its
    quality is the mean over these of the means inside them. Inconclusive below `levels` levels; a
    tie with an outer level leaves a part open.
    """
    found, missing = grids(study, check, context)
    truth = []
    lines = []
    n_levels = []
    for grid, name in itertools.product(found, check["along"]):
        # Levels stored at every level of `rest_of`, as shares of what that one leaves.
        outer = grid.settings[check["rest_of"]].to_numpy()
        share = np.round(grid.settings[name].to_numpy() / (1 - outer), 4)
        stored = [set(share[outer == value]) for value in np.unique(outer)]
        levels = sorted(set.intersection(*stored))
        n_levels.append(len(levels))
        if len(levels) < 3:
            continue

        # The best inner level against the best outer one; on the sample a tie counts.
        quality = np.column_stack(
            [_balanced(grid.quality, share == level, outer) for level in levels]
        )
        ahead = quality[:, 1:-1].max(axis=1) - quality[:, [0, -1]].max(axis=1)
        tie = _TIE * np.abs(quality).max(axis=1)
        truth.append(np.append(ahead[:1] >= -tie[:1], ahead[1:] > tie[1:]))
        line = {"dataset": grid.dataset, "metric": grid.metric, "along": name}
        line |= {"best": levels[quality[0].argmax()]}
        lines.append(line | {"levels": ", ".join(f"{value:.3g}" for value in levels)})
    few_levels = min(n_levels) < check["levels"]
    if few_levels:
        few = f"{min(n_levels)} of {check['levels']} levels of {' and '.join(check['along'])} "
        missing = join_texts(missing, f"{few}stored at every level of {check['rest_of']}")
    if not truth:
        seeds = min(grid.seeds for grid in found)
        return Finding(INCONCLUSIVE, "Too few levels to have an inner one.", 0, seeds, missing)
    n_inner = sum(bool(part[0]) for part in truth)
    numbers = f"Best at an inner level for {n_inner} of {len(truth)};"
    finding = _finding(truth, pd.DataFrame(lines), found, numbers, missing)
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
    found, missing = grids(study, check, context)
    names = list(check["setting"])
    setting = list(check["setting"].values())
    truth = []
    ranks = []
    with_setting = []
    for grid in found:
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
    found, missing = grids(study, check, context)
    truth = []
    lines = []
    texts = []
    for dataset in dict.fromkeys(grid.dataset for grid in found):
        of_dataset = [grid for grid in found if grid.dataset == dataset]
        best = np.column_stack([grid.quality.argmax(axis=1) for grid in of_dataset])
        truth.append((best != best[:, :1]).any(axis=1))
        settings = {
            grid.metric: str(tuple(grid.settings.iloc[position]))
            for grid, position in zip(of_dataset, best[0], strict=True)
        }
        lines.append({"dataset": dataset, "metrics": len(of_dataset)} | settings)
        texts.append(f"{dataset} {len(set(settings.values()))} of {len(of_dataset)}")
    numbers = f"Different best settings: {', '.join(texts)};"
    return _finding(truth, pd.DataFrame(lines), found, numbers, missing)


def flat(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the relative range of the means over the settings outside `corner` against bounds.

    That is (largest - smallest) / mean.
    """
    found, missing = grids(study, check, context)
    truth = []
    ranges = []
    for grid in found:
        means = grid.means[:, ~grid.inside(check["corner"])]
        relative_range = np.ptp(means, axis=1) / np.abs(means.mean(axis=1))
        truth.append(within(relative_range, check))
        ranges.append(relative_range)
    evidence = _intervals(found, "relative_range", ranges)
    largest = evidence.loc[evidence["relative_range"].argmax()]
    numbers = f"Largest relative range {percent(largest['relative_range'])} "
    numbers += f"({largest['dataset']}, {largest['metric']}; required: at most "
    numbers += f"{percent(check['at_most'])});"
    return _finding(truth, evidence, found, numbers, missing)


def worst_in_corner(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the worst setting lies in `corner`."""
    found, missing = grids(study, check, context)
    truth = []
    worst = []
    for grid in found:
        position = grid.quality.argmin(axis=1)
        truth.append(grid.inside(check["corner"])[position])
        setting = grid.settings.iloc[position[0]]
        worst.append(", ".join(f"{name} = {value:.3g}" for name, value in setting.items()))
    n_inside = sum(bool(part[0]) for part in truth)
    numbers = f"The worst setting lies in the corner for {n_inside} of {len(truth)};"
    return _finding(truth, _keys(found, worst=worst), found, numbers, missing)


def alike(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that two data sets rank the settings in `corner` alike.

    That is Spearman's correlation against bounds.
    """
    found, missing = grids(study, check, context)
    truth = []
    lines = []
    for left, right in itertools.combinations(found, 2):
        if left.metric != right.metric:
            continue
        # Match the settings that both data sets have, and keep those in the corner.
        both = left.settings.reset_index(names="left").merge(
            right.settings.reset_index(names="right"), on=list(left.settings)
        )
        both = both[left.inside(check["corner"])[both["left"]]]
        if len(both) < 3:
            continue
        correlation = _line_correlation(left.means[:, both["left"]], right.means[:, both["right"]])
        truth.append(within(correlation, check))
        line = {"dataset": f"{left.dataset} and {right.dataset}", "metric": left.metric}
        lines.append(line | {"settings": len(both), "correlation": correlation[0]})
    if not truth:
        raise MissingRows("two data sets with at least three settings in the corner are needed")
    evidence = pd.DataFrame(lines)
    numbers = f"Spearman in the corner between {evidence['correlation'].min():.3g} and "
    numbers += f"{evidence['correlation'].max():.3g};"
    return _finding(truth, evidence, found, numbers, missing)


def _line_correlation(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Spearman's correlation of lines of two matrices, one by one; NaN for constant lines."""
    left_ranks = stats.rankdata(left, axis=1) - (left.shape[1] + 1) / 2
    right_ranks = stats.rankdata(right, axis=1) - (right.shape[1] + 1) / 2
    scale = np.sqrt((left_ranks**2).sum(axis=1) * (right_ranks**2).sum(axis=1))
    product = (left_ranks * right_ranks).sum(axis=1)
    return np.where(scale > 0, product / np.where(scale > 0, scale, 1), np.nan)


EVALUATORS = {
    "best_part": best_part,
    "interior_best": interior_best,
    "among_best": among_best,
    "best_differs": best_differs,
    "flat": flat,
    "worst_in_corner": worst_in_corner,
    "alike": alike,
}
