"""Predicates on a grid of settings of one method.

They tell which settings have the best means, how much the means differ, and whether data sets rank
the settings alike.

A check names the `sweep`, `metrics`, `datasets`, the `method`, its `parameters` (a list of numeric
columns, or a mapping from one column of lists to names for their items) and how many `settings` the
whole grid has. Each metric on each data set is one part of the claim, decided on resampled seeds
like every predicate on means; settings are ranked separately in every resample.
"""

import collections
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pkm.analysis.expressions import evaluated
from pkm.analysis.findings import Context, Draws, MissingRows, check_type, join_texts, no_rows_of
from pkm.analysis.inference import paired_rank_correlation
from pkm.analysis.tables import Study, matches, resampled_means
from pkm.schema import higher_is_better

#: Keys that select the grids.
GRIDS = ("sweep", "metrics", "datasets", "method", "parameters", "settings")
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

    def inside(self, corner: str) -> np.ndarray:
        """Mask of the settings in a corner: an expression in the parameters."""
        return self.settings.eval(corner).to_numpy()


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


@dataclass(frozen=True)
class Grids:
    """The grids of a check, one per metric and data set.

    Attributes
    ----------
    grids : list of HyperparameterGrid
        Each has at least three settings.
    missing : str
        Data sets and settings that the claim needs and that are not stored.
    complete : bool
        Whether all settings of all grids are stored.
    """

    grids: list[HyperparameterGrid]
    missing: str
    complete: bool

    def __iter__(self) -> Iterator[HyperparameterGrid]:
        return iter(self.grids)

    def draws(
        self, values: Sequence[np.ndarray], lines: Sequence[Mapping] = (), **options: object
    ) -> Draws:
        """Return one value per grid, or per line where other cases are given."""
        cases = lines or [{"dataset": grid.dataset, "metric": grid.metric} for grid in self.grids]
        complete = np.full(len(values), self.complete)
        seeds = min(grid.seeds for grid in self.grids)
        options = {"complete": complete} | options
        return Draws(np.column_stack(values), pd.DataFrame(cases), seeds, self.missing, **options)


def find_grids(study: Study, check: Mapping, context: Context) -> Grids:
    """Find the grids of a check.

    Raises
    ------
    MissingRows
        If no data set has at least three settings.
    """
    datasets = context.resolve(check["datasets"])
    grids = []
    for metric, dataset in itertools.product(check["metrics"], datasets):
        panel = study.panel(check["sweep"], metric)
        selector = {"dataset": dataset, "method": check["method"]}
        panel = panel.take(matches(panel.cells, selector))
        settings = table_of_settings(panel.cells, check["parameters"])
        if settings is None:
            continue

        # Keep the cells whose parameters could be parsed.
        known = settings.notna().all(axis=1).to_numpy()
        if np.count_nonzero(known) < 3:
            continue
        panel = panel.take(known)
        settings = settings[known].reset_index(drop=True)
        means = resampled_means(panel)
        quality = means if higher_is_better(metric) else -means
        grids.append(HyperparameterGrid(dataset, metric, settings, means, quality, panel.min_seeds))
    if not grids:
        raise MissingRows(context.why(check["sweep"]))
    n_settings = min(len(grid.settings) for grid in grids)
    n_expected = check["settings"]
    few = f"{n_settings} of {n_expected} settings" if n_settings < n_expected else ""
    missing = join_texts(no_rows_of(datasets, [grid.dataset for grid in grids]), few)
    return Grids(grids, missing, not few)


@check_type(*GRIDS, "statistic", "name", "corner", "grows")
def of_settings(study: Study, check: Mapping, context: Context) -> Draws:
    """Check one number about each grid, by bounds or, where it is a truth value, itself.

    `statistic` is an expression in the columns of the settings, their `means`, their `quality`
    (means, signed so that more is better), their `rank` (0 for the best) and their number `n`, and
    in `corner`, an expression in the columns; see `pkm.analysis.expressions`. ``in_best(t, 0.2)``
    is the mean of t over the best fifth of the settings, ``in_worst(t, 0.2)`` that over the worst.
    `name` is what to call the number. With `grows` it can only grow with more settings.
    """
    grids = find_grids(study, check, context)
    values = []
    lines = []
    for grid in grids:
        rank = grid.ranks()
        n = len(grid.settings)
        names = {"means": grid.means, "quality": grid.quality, "rank": rank, "n": n}
        names |= {"in_best": _share_mean(rank), "in_worst": _share_mean(n - 1 - rank)}
        if "corner" in check:
            names["corner"] = grid.inside(check["corner"])
        try:
            values.append(evaluated(check["statistic"], dict(grid.settings) | names))
        except MissingRows:
            continue
        lines.append({"dataset": grid.dataset, "metric": grid.metric})
    if not values:
        raise MissingRows(f"settings are not stored that {check['statistic']} needs")
    options = {"complete": None} if check.get("grows") else {}
    n_true = sum(bool(truth[0]) for truth in values)
    text = f"{check['name']} for {n_true} of {len(values)}" if values[0].dtype == bool else ""
    return grids.draws(values, lines, name=check["name"], text=text, **options)


def _share_mean(ranks: np.ndarray) -> Callable[[pd.Series, float], np.ndarray]:
    """Return the function that averages a column over the share of lowest rank."""

    def mean(column: pd.Series, share: float) -> np.ndarray:
        n_chosen = max(round(share * ranks.shape[1]), 1)
        return ((ranks < n_chosen) @ column.to_numpy()) / n_chosen

    return mean


@check_type(*GRIDS, "along", "rest_of", "levels")
def interior_best(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that the mean quality is best at an inner level of each parameter `along`.

    All parameters but `rest_of` divide what that one leaves, so its levels bound theirs. A level is
    therefore a share of the rest, counts only if it is stored at every level of `rest_of`, and its
    quality is the mean over these of the means inside them. Inconclusive below `levels` levels; a
    tie with an outer level leaves a part open.
    """
    grids = find_grids(study, check, context)
    truth = []
    lines = []
    n_levels = []
    for grid, name in itertools.product(grids, check["along"]):
        # Levels stored at every level of `rest_of`, as shares of what that one leaves.
        outer = grid.settings[check["rest_of"]].to_numpy()
        share = np.round(grid.settings[name].to_numpy() / (1 - outer), 4)
        levels = sorted(set.intersection(*(set(share[outer == x]) for x in np.unique(outer))))
        n_levels.append(len(levels))
        if len(levels) < 3:
            continue

        # The best inner level against the best outer one; on the sample a tie counts.
        by_level = [_balanced(grid.quality, share == level, outer) for level in levels]
        quality = np.column_stack(by_level)
        lead = quality[:, 1:-1].max(axis=1) - quality[:, [0, -1]].max(axis=1)
        tie = _TIE * np.abs(quality).max(axis=1)
        true = lead > tie
        true[0] = lead[0] >= -tie[0]
        truth.append(true)
        best = levels[quality[0].argmax()]
        lines.append({"dataset": grid.dataset, "metric": grid.metric, "along": name, "best": best})
    undecided = ""
    if min(n_levels) < check["levels"]:
        undecided = f"Only {min(n_levels)} of {check['levels']} levels are stored at every level "
        undecided += f"of {check['rest_of']}: too few for a verdict."
    if not truth:
        raise MissingRows(undecided)
    n_inner = sum(true[0] for true in truth)
    text = f"Best at an inner level for {n_inner} of {len(truth)}"
    return grids.draws(truth, lines, complete=None, text=text, undecided=undecided)


def _balanced(quality: np.ndarray, columns: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Mean over the levels of `outer` of the mean of some columns (a mask) inside each."""
    means = [quality[:, columns & (outer == value)].mean(axis=1) for value in np.unique(outer)]
    return np.mean(means, axis=0)


@check_type(*GRIDS)
def best_differs(study: Study, check: Mapping, context: Context) -> Draws:
    """Check, per data set, that the best setting is not the same for all metrics."""
    grids = find_grids(study, check, context)
    best = collections.defaultdict(list)
    for grid in grids:
        best[grid.dataset].append(grid.quality.argmax(axis=1))
    changes = [np.diff(np.sort(of_dataset, axis=0), axis=0) for of_dataset in best.values()]
    n_best = [1.0 + np.count_nonzero(change, axis=0) for change in changes]
    lines = [{"dataset": dataset} for dataset in best]
    return grids.draws(n_best, lines, name="Different best settings")


@check_type(*GRIDS, "corner")
def same_ranking(study: Study, check: Mapping, context: Context) -> Draws:
    """Check Spearman's correlation, between two data sets, of the settings in `corner`.

    Against bounds, for every metric and pair of data sets.
    """
    grids = find_grids(study, check, context)
    correlations = []
    lines = []
    for left, right in itertools.combinations(grids, 2):
        if left.metric != right.metric:
            continue
        # Match the settings that both data sets have, and keep those in the corner.
        left_settings = left.settings.reset_index(names="left")
        right_settings = right.settings.reset_index(names="right")
        both = left_settings.merge(right_settings, on=list(left.settings))
        both = both[left.inside(check["corner"])[both["left"]]]
        if len(both) > 2:
            sides = (left.means[:, both["left"]], right.means[:, both["right"]])
            correlations.append(paired_rank_correlation(*sides))
            pair = f"{left.dataset} and {right.dataset}"
            lines.append({"dataset": pair, "metric": left.metric, "settings": len(both)})
    if not correlations:
        raise MissingRows("two data sets with at least three settings in the corner are needed")
    return grids.draws(correlations, lines, name="Correlation")
