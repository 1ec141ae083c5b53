"""Bounds of columns that have no public ones, found privately.

Bounds of minus and plus infinity ask for them. Such a column is first placed on a scale
that has room for all numbers. Noisy counts of its octaves say which of them hold
records, and so where the numbers are, up to a factor of two. Noisy counts of cells of
equal width between these ends then say it more closely. Records beyond the bounds are
clipped to them, as to public ones. Source of the first step: Wilson et al.,
"Differentially private SQL with bounded user contribution" (PoPETs 2020).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pkm.compute.storage.octaves import OCTAVES, from_octaves
from pkm.methods.schedule import SharePlan
from pkm.privacy import (
    SCALE,
    Charge,
    Curator,
    Gaussian,
    Laplace,
    SideCounts,
    gaussian_mu,
)

SHARE = 0.1  # of the budget
CELLS = 16  # on either side of the middle, of the second count
# Probability that no octave without a record is taken for one with records.
CONFIDENCE = 0.999
# Limit of the noisy count of a cell without records, in standard deviations. It is less
# strict than that of octaves: all cells lie between bounds that were found.
TAIL = 3.5
# The guard: the largest count of an octave that may be noise, in n.
MAX_COUNT_ERROR = 1 / 16
#: Bounds of a column of which no cell can be told from noise.
UNKNOWN = (-1.0, 1.0)


@dataclass(frozen=True)
class BoundsPlan(SharePlan):
    """The releases that find bounds.

    Attributes
    ----------
    share, pure
        As of :class:`pkm.methods.schedule.SharePlan`.
    columns : tuple of int
        Those without bounds.
    cost : float
        Cost of each of the two counts: mu of Gaussian noise, or epsilon of Laplace.
    """

    columns: tuple[int, ...]
    cost: float

    @property
    def releases(self) -> Sequence[Charge]:
        """Octaves, then cells."""
        return [self.plan(SideCounts, self.cost)] * 2

    @property
    def count_noise(self) -> Gaussian | Laplace:
        """Noise of a count, in records: one is in a cell of each column."""
        n_columns = len(self.columns)
        return self.noise(self.cost, n_columns, math.sqrt(n_columns))

    @property
    def threshold(self) -> float:
        """Largest count of an octave that may be noise, in records."""
        n_octaves = 4 * OCTAVES * len(self.columns)
        return self.count_noise.margin_of_error(CONFIDENCE ** (1 / n_octaves))

    @property
    def limit(self) -> float:
        """Largest count of a cell that may be noise, in records."""
        n_columns = len(self.columns)
        return TAIL * self.stddev(self.cost, n_columns, math.sqrt(n_columns))


def plan_bounds(
    columns: Sequence[int],
    n_points: int,
    epsilon: float,
    delta: float,
) -> BoundsPlan:
    """Plan the releases that find the bounds of some columns.

    Parameters
    ----------
    columns : sequence of int
    n_points : int
    epsilon, delta : float
        Budget of the whole run. Noise is Laplace if delta is 0.

    Raises
    ------
    ValueError
        If the budget is too little for that number of records.

    Examples
    --------
    >>> plan = plan_bounds([0, 3], 5_000, 1.0, 1e-6)
    >>> round(plan.threshold), plan.releases[0].label
    (127, 'side_counts')
    """
    pure = delta == 0
    whole = epsilon if pure else gaussian_mu(epsilon, delta)
    share = SHARE / 2
    cost = whole * (share if pure else math.sqrt(share))
    plan = BoundsPlan(SHARE, pure, tuple(columns), cost)
    if plan.threshold > MAX_COUNT_ERROR * n_points:
        raise ValueError(
            f"epsilon={epsilon:g} is too little to find bounds of {len(columns)} "
            f"columns of n={n_points} records: raise epsilon, or give bounds that are "
            "known without the data"
        )
    return plan


def find_bounds(curator: Curator, plan: BoundsPlan) -> Curator:
    """Find bounds, for one replicate; return a curator of the points in them.

    Parameters
    ----------
    curator : Curator
        Of points with infinite bounds in the plan's columns.
    plan : BoundsPlan
    """
    # On the scale of octaves each shell is one of them.
    radii = np.arange(2 * OCTAVES, 0, -1) / (2 * OCTAVES)
    counts = _release_counts(curator, plan, radii)
    ends = from_octaves(_list_ends(radii))
    bounds = curator.domain.copy()
    for column, numbers in zip(plan.columns, counts, strict=True):
        cells = np.flatnonzero(numbers > plan.threshold)
        is_found = len(cells) > 0
        bounds[:, column] = ends[[cells[0], cells[-1] + 1]] if is_found else UNKNOWN
    curator = curator.with_bounds(bounds)

    # Of the cells one more is kept at either end, where records are few.
    radii = np.arange(CELLS, 0, -1) / CELLS
    counts = _release_counts(curator, plan, radii)
    shares = (_list_ends(radii) + 1) / 2
    for column, numbers in zip(plan.columns, counts, strict=True):
        first = _find_first(numbers, plan.limit)
        last = len(numbers) - 1 - _find_first(numbers[::-1], plan.limit)
        if first > last:
            continue
        lower, upper = bounds[:, column]
        kept = [max(first - 1, 0), min(last + 2, len(numbers))]
        bounds[:, column] = lower + (upper - lower) * shares[kept]
    return curator.with_bounds(bounds)


def _find_first(numbers: np.ndarray, limit: float) -> int:
    """Find the first cell up to which there are more records than noise may be.

    The number of cells if there is none.

    Examples
    --------
    >>> _find_first(np.array([1.0, -2.0, 9.0, 8.0]), 10.0)
    4
    >>> _find_first(np.array([1.0, -2.0, 12.0, 16.0]), 10.0)
    3
    """
    # Noise of a sum of m counts grows with sqrt(m).
    limits = limit * np.sqrt(np.arange(1, len(numbers) + 1))
    is_visible = np.cumsum(numbers) > limits
    return int(is_visible.argmax()) if is_visible.any() else len(numbers)


def _release_counts(
    curator: Curator,
    plan: BoundsPlan,
    radii: np.ndarray,
) -> np.ndarray:
    """Release the numbers of records by cell of each column, from the lowest on."""
    noise = plan.count_noise
    answer = curator.release(
        SideCounts(np.zeros(curator.n_features), radii, plan.columns),
        counts=replace(noise, scale=noise.scale * SCALE),
    )
    below, above = np.moveaxis(answer["counts"][0] / SCALE, 1, 0)
    return np.concatenate([below, above[:, ::-1]], axis=1)


def _list_ends(radii: np.ndarray) -> np.ndarray:
    """List the ends of all cells on both sides of 0."""
    return np.concatenate([-radii, [0.0], radii[::-1]])
