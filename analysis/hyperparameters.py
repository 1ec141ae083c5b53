"""Predicates on a grid of settings of one method: which do well, how much they differ, whether data
sets agree.

A check names the `sweep`, `metrics`, `datasets`, the `method`, its `parameters` (a list of numeric
columns, or a mapping from one column of lists to names for their items) and how many `settings` the
whole grid has. Each metric on each data set is one part of the claim, decided on resampled seeds
like every predicate on means; settings are ranked anew in every resample.
"""

import itertools
import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis.findings import INCONCLUSIVE, Finding, MissingRows, decide, percent, within
from pkm.analysis.tables import (
    HIGHER_IS_BETTER,
    percentile_interval,
    resampled_means,
    resampling_weights,
)

_TIE = 1e-9  # relative difference of quality that is rounding


@dataclass(frozen=True)
class Grid:
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

    def ranks(self):
        """Place of every setting in every line, 0 for the best."""
        return np.argsort(np.argsort(-self.quality, axis=1, kind="stable"), axis=1)

    def inside(self, corner):
        """Mask of the settings within the bounds of a corner (parameter to bounds)."""
        chosen = np.ones(len(self.settings), dtype=bool)
        for name, bounds in corner.items():
            chosen &= within(self.settings[name].to_numpy(), bounds)
        return chosen


def table_of_settings(cells, parameters):
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


def _items(text, count):
    items = json.loads(text) if isinstance(text, str) and text.startswith("[") else []
    return items if len(items) == count else [math.nan] * count


def grids(study, check, context):
    """Find the grids of a check.

    Returns
    -------
    list of Grid, str
        And what is lacking.

    Raises
    ------
    MissingRows
        If no data set has at least three settings.
    """
    found, fewest = [], math.inf
    for metric in check["metrics"]:
        panel = study.panel(check["sweep"], metric)
        if not len(panel.cells):
            continue
        for dataset in context.resolve(check["datasets"]):
            mine = (panel.cells["dataset"] == dataset) & (panel.cells["method"] == check["method"])
            part = panel.take(mine.to_numpy())
            settings = table_of_settings(part.cells, check["parameters"])
            if settings is None:
                continue
            known = settings.notna().all(axis=1).to_numpy()
            part, settings = part.take(known), settings[known].reset_index(drop=True)
            if len(settings) < 3:
                continue
            seeds = int(np.isfinite(part.values).sum(axis=0).min())
            means = resampled_means(part, resampling_weights(len(part.seeds)))
            sign = 1.0 if metric in HIGHER_IS_BETTER else -1.0
            found.append(Grid(dataset, metric, settings, means, sign * means, seeds))
            fewest = min(fewest, len(settings))
    if not found:
        raise MissingRows(context.why([check["sweep"]]))
    return found, _lacking(found, fewest, check, context)


def _lacking(found, fewest, check, context):
    texts = []
    absent = [
        name
        for name in context.resolve(check["datasets"])
        if name not in {grid.dataset for grid in found}
    ]
    if absent:
        texts.append(f"no stored rows of {', '.join(absent)}")
    if fewest < check["settings"]:
        texts.append(f"{fewest} of {check['settings']} settings")
    return "; ".join(texts)


def _keys(found, **columns):
    keys = pd.DataFrame([{"dataset": grid.dataset, "metric": grid.metric} for grid in found])
    return keys.assign(settings=[len(grid.settings) for grid in found], **columns)


def _intervals(found, name, resampled):
    """One line per grid: a resampled quantity on the sample itself, and its 95 % interval."""
    low, high = percentile_interval(np.column_stack(resampled))
    return _keys(found, **{name: [values[0] for values in resampled]}, low=low, high=high)


def _finding(truth, evidence, found, numbers, lacking):
    seeds = min(grid.seeds for grid in found)
    return decide(np.column_stack(truth), evidence, seeds, numbers, lacking, evidence)


def best_part(study, check, context):
    """Check a linear form of the parameters (`form`), averaged over the best `share` of the
    settings.

    Against bounds (`at_least`, `above`, ...), or with ``below_worst: true`` against the worst
    share.
    """
    found, lacking = grids(study, check, context)
    truth, bests, worsts = [], [], []
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
    numbers = f"Mean of {form} in the best {percent(check['share'])} between {evidence['best'].min():.3g} and "
    numbers += f"{evidence['best'].max():.3g}, in the worst between {min(worsts):.3g} and {max(worsts):.3g};"
    return _finding(truth, evidence, found, numbers, lacking)


def interior_best(study, check, context):
    """Check that the mean quality is best at an inner level of each parameter `along`.

    All parameters but `rest_of` divide what that one leaves, so its levels bound theirs. A level is
    therefore a share of the rest, counts only if it is stored at every level of `rest_of`, and its
    quality is the mean over these of the means inside them. Inconclusive below `levels` levels; a
    tie with an outer level leaves a part open.
    """
    found, lacking = grids(study, check, context)
    truth, lines, fewest = [], [], math.inf
    for grid, name in itertools.product(found, check["along"]):
        outer = grid.settings[check["rest_of"]].to_numpy()
        share = np.round(grid.settings[name].to_numpy() / (1 - outer), 4)
        inside = [set(share[outer == value]) for value in np.unique(outer)]
        levels = sorted(set.intersection(*inside))
        fewest = min(fewest, len(levels))
        if len(levels) < 3:
            continue
        quality = np.column_stack(
            [_balanced(grid.quality, share == level, outer) for level in levels]
        )
        ahead = quality[:, 1:-1].max(axis=1) - quality[:, [0, -1]].max(axis=1)
        level = _TIE * np.abs(quality).max(axis=1)
        truth.append(np.append(ahead[:1] >= -level[:1], ahead[1:] > level[1:]))
        best = levels[quality[0].argmax()]
        lines.append({"dataset": grid.dataset, "metric": grid.metric, "along": name, "best": best})
        lines[-1]["levels"] = ", ".join(f"{value:.3g}" for value in levels)
    if fewest < check["levels"]:
        few = f"{fewest} of {check['levels']} levels of {' and '.join(check['along'])} stored at every level of "
        lacking = "; ".join(filter(None, [lacking, few + check["rest_of"]]))
    seeds = min(grid.seeds for grid in found)
    if not truth:
        return Finding(INCONCLUSIVE, "Too few levels to have an inner one.", 0, seeds, lacking)
    evidence = pd.DataFrame(lines)
    inner = sum(bool(part[0]) for part in truth)
    numbers = f"Best at an inner level for {inner} of {len(truth)};"
    finding = _finding(truth, evidence, found, numbers, lacking)
    if fewest < check["levels"]:
        return replace(
            finding,
            verdict=INCONCLUSIVE,
            numbers=f"{finding.numbers} Too few levels for a verdict.",
        )
    return finding


def _balanced(quality, chosen, outer):
    """Mean over the levels of `outer` of the mean of the chosen columns inside each."""
    return np.mean(
        [quality[:, chosen & (outer == value)].mean(axis=1) for value in np.unique(outer)], axis=0
    )


def among_best(study, check, context):
    """Check that one `setting` is among the best `share` of all."""
    found, lacking = grids(study, check, context)
    truth, places, kept = [], [], []
    for grid in found:
        at = np.flatnonzero(
            np.isclose(grid.settings[list(check["setting"])], list(check["setting"].values())).all(
                axis=1
            )
        )
        if not at.size:
            continue
        rank = grid.ranks()[:, at[0]]
        truth.append(rank < check["share"] * len(grid.settings))
        places.append(int(rank[0]) + 1)
        kept.append(grid)
    if not kept:
        raise MissingRows(f"the setting {check['setting']} is not stored")
    evidence = _keys(kept, place=places)
    shown = ", ".join(
        f"{line.dataset} {line.metric} {line.place} of {line.settings}"
        for line in evidence.itertuples(index=False)
    )
    return _finding(truth, evidence, kept, f"Its places: {shown};", lacking)


def best_differs(study, check, context):
    """Check, per data set, that the best setting is not the same for all metrics."""
    found, lacking = grids(study, check, context)
    truth, lines = [], []
    for dataset in dict.fromkeys(grid.dataset for grid in found):
        mine = [grid for grid in found if grid.dataset == dataset]
        best = np.column_stack([grid.quality.argmax(axis=1) for grid in mine])
        truth.append((best != best[:, :1]).any(axis=1))
        lines.append(
            {"dataset": dataset, "metrics": len(mine)}
            | {
                grid.metric: str(tuple(grid.settings.iloc[at]))
                for grid, at in zip(mine, best[0], strict=True)
            }
        )
    evidence = pd.DataFrame(lines)
    different = ", ".join(
        f"{line['dataset']} {len(set(list(line.values())[2:]))} of {line['metrics']}"
        for line in lines
    )
    return _finding(truth, evidence, found, f"Different best settings: {different};", lacking)


def flat(study, check, context):
    """Check that (largest - smallest) / mean over the settings outside `corner` is at most
    `at_most`.
    """
    found, lacking = grids(study, check, context)
    truth, spreads = [], []
    for grid in found:
        means = grid.means[:, ~grid.inside(check["corner"])]
        spread = np.ptp(means, axis=1) / np.abs(means.mean(axis=1))
        truth.append(within(spread, check))
        spreads.append(spread)
    evidence = _intervals(found, "spread", spreads)
    at = int(evidence["spread"].argmax())
    numbers = (
        f"Largest relative spread {percent(evidence['spread'][at])} ({evidence['dataset'][at]}, "
    )
    numbers += f"{evidence['metric'][at]}; asked: at most {percent(check['at_most'])});"
    return _finding(truth, evidence, found, numbers, lacking)


def worst_in_corner(study, check, context):
    """Check that the worst setting lies in `corner`."""
    found, lacking = grids(study, check, context)
    truth, worst = [], []
    for grid in found:
        at = grid.quality.argmin(axis=1)
        truth.append(grid.inside(check["corner"])[at])
        worst.append(
            ", ".join(f"{name} = {value:.3g}" for name, value in grid.settings.iloc[at[0]].items())
        )
    inside = sum(bool(part[0]) for part in truth)
    numbers = f"The worst setting lies in the corner for {inside} of {len(truth)};"
    return _finding(truth, _keys(found, worst=worst), found, numbers, lacking)


def alike(study, check, context):
    """Check that two data sets rank the settings in `corner` alike: Spearman's correlation against
    the bounds.
    """
    found, lacking = grids(study, check, context)
    truth, lines = [], []
    for one, other in itertools.combinations(found, 2):
        if one.metric != other.metric:
            continue
        names = list(one.settings)
        both = one.settings.reset_index(names="one").merge(
            other.settings.reset_index(names="other"), on=names
        )
        inside = one.inside(check["corner"])[both["one"]]
        left, right = one.means[:, both["one"][inside]], other.means[:, both["other"][inside]]
        if left.shape[1] < 3:
            continue
        correlation = _line_correlation(left, right)
        truth.append(within(correlation, check))
        lines.append(
            {
                "dataset": f"{one.dataset} and {other.dataset}",
                "metric": one.metric,
                "settings": left.shape[1],
                "correlation": correlation[0],
            }
        )
    if not truth:
        raise MissingRows("two data sets with at least three settings in the corner are needed")
    evidence = pd.DataFrame(lines)
    numbers = f"Spearman in the corner between {evidence['correlation'].min():.3g} and "
    numbers += f"{evidence['correlation'].max():.3g};"
    return _finding(truth, evidence, found, numbers, lacking)


def _line_correlation(left, right):
    """Spearman's correlation of each line of one matrix with the same line of another; NaN for
    constant lines.
    """
    left, right = (stats.rankdata(side, axis=1) - (side.shape[1] + 1) / 2 for side in (left, right))
    scale = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    return np.where(scale > 0, (left * right).sum(axis=1) / np.where(scale > 0, scale, 1), np.nan)


EVALUATORS = {
    "best_part": best_part,
    "interior_best": interior_best,
    "among_best": among_best,
    "best_differs": best_differs,
    "flat": flat,
    "worst_in_corner": worst_in_corner,
    "alike": alike,
}
