"""The m points that are farthest from some centers, found by radix selection.

Points are ranked by their squared distance to the nearest center, the largest first,
and those at one distance by their coordinates, the smallest first. Equal points, the
copies of one point, have equal ranks. So the m farthest are all points that rank before
a last point, and some copies of that point, whatever the order of the points.
:class:`Farthest` holds the last point and the number of its copies, not a list of
points. Where rows have weights, m is a sum of weights, and so are the counts below.
Then only some of the weight of the last point may be selected.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pkm.compute.kernels.nearest import squared_distances
from pkm.compute.storage.blocks import Arrays, Blocks, Shards, add
from pkm.compute.storage.dask_points import DaskPoints
from pkm.compute.storage.points import (
    SCALE,
    Points,
    count_labels,
    make_slices,
    read_weights,
)

#: A pass of the selection counts points by so many bits of their squared distances.
DIGIT_BITS = 16
#: At most so many candidates for the last point are gathered and sorted.
MAX_GATHERED = 1 << 16


@dataclass(frozen=True, eq=False)
class Farthest:
    """The farthest points from centers: all that rank before a last point, and copies.

    Attributes
    ----------
    centers : ndarray of shape (k, d), int64
        In grid steps.
    sq_dist : float
        Squared distance of the last point to its nearest center, in grid steps.
    row : ndarray of shape (d,), float32
        Its coordinates.
    tied_rows : ndarray of shape (e, d), float32
        Points that :meth:`mask` does not mark, though copies of them are among the
        farthest: the last point, and the farther ones of ``previous.tied_rows``.
    tied_counts : ndarray of shape (e,), int64
        Number of copies of each that are among the farthest; where rows have weights,
        their selected weight.
    previous : Farthest or None
        The points that were selected from; None for all.
    """

    centers: np.ndarray
    sq_dist: float
    row: np.ndarray
    tied_rows: np.ndarray
    tied_counts: np.ndarray
    previous: "Farthest | None" = None

    def mask(self, points: Points) -> np.ndarray:
        """Mark the farthest points (n,), bool, without ``tied_rows``."""
        return points.cached("mask", (self,), partial(self._mask, points))

    def _mask(self, points: Points) -> np.ndarray:
        marked = _is_before_last(points, self.centers, self.sq_dist, self.row)
        points.drop("sq_dists")
        return marked if self.previous is None else marked & self.previous.mask(points)


def list_tied(
    remaining: Farthest | None, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the selected rows (e, d) that the mask omits, and how often each counts.

    There are none where all points remain.
    """
    if remaining is None:
        return np.empty((0, n_features), np.float32), np.empty(0, np.int64)
    return remaining.tied_rows, remaining.tied_counts


def farthest(
    points: Shards | Blocks | DaskPoints,
    previous: Farthest | None,
    centers: np.ndarray,
    n_farthest: int,
) -> Farthest | None:
    """Select the points that are farthest from their nearest center.

    Parameters
    ----------
    points : Shards, Blocks or DaskPoints
        Read in two passes, or in more where many points are at similar distances.
    previous : Farthest or None
        The points to select from, by an earlier selection; None for all.
    centers : ndarray of shape (k, d), int64
        In the domain, in grid steps.
    n_farthest : int
        Number of points to select, or their weight; all if there are fewer.

    Returns
    -------
    Farthest or None
        ``previous`` itself if it has fewer points than are to be selected.

    Examples
    --------
    >>> points = Points.from_grid(np.array([[1], [-3], [9], [9], [9]]))
    >>> two = farthest(Shards([points]), None, np.array([[0]]), 2)
    >>> two.mask(points).tolist(), two.tied_rows.tolist(), two.tied_counts.tolist()
    ([False, False, False, False, False], [[9.0]], [2])
    """
    d = points.n_features
    tied_rows, tied_counts = list_tied(previous, d)
    if n_farthest < 1:
        no_rows, no_counts = list_tied(None, d)
        return Farthest(centers, np.inf, np.zeros(d, np.float32), no_rows, no_counts)
    tied_points = replace(Points.from_grid(tied_rows), weights=tied_counts)

    # Find the rank of the last point digit by digit, until few points share the digits.
    # Invariant: the last point has the prefix, and n_wanted of the points with the
    # prefix are selected.
    largest = int(_gaps(np.zeros(1), d)[0])
    prefix = _RankPrefix(centers, largest.bit_length())
    n_wanted = n_farthest
    n_inside = np.inf
    while n_inside > MAX_GATHERED and not prefix.is_complete:
        count = partial(_digit_counts, prefix=prefix, previous=previous)
        counts, numbers = points.map_reduce(count)
        add((counts, numbers), _digit_counts(tied_points, prefix))
        # The digit of the last point is the first whose cumulative count is enough.
        ends = np.cumsum(counts)
        if ends[-1] < n_wanted:
            return previous
        digit = int(np.searchsorted(ends, n_wanted))
        n_inside = int(numbers[digit])
        n_wanted -= int(ends[digit] - counts[digit])
        prefix = prefix.extended(digit)

    # Sort the points with the prefix; the counts of the last one reach n_wanted.
    if prefix.is_complete:
        last = np.array(prefix.coordinates, np.float32)
        n_last = n_wanted
    else:
        gather = partial(_rows_at, prefix=prefix, previous=previous)
        inside = points.map_reduce(gather, _concatenated)
        rows, counts = _concatenated(inside, _rows_at(tied_points, prefix))
        sq_dists = squared_distances(Points.from_grid(rows), centers)
        # The last key of lexsort is the primary one.
        order = np.lexsort((*rows.T[::-1], -sq_dists))
        ends = np.cumsum(counts[order])
        last = rows[order[np.searchsorted(ends, n_wanted)]]
        # Copies are in a row: the first of them begins where the counts before end.
        first = int((rows[order] == last).all(axis=1).argmax())
        n_last = n_wanted - int(ends[first] - counts[order[first]])

    # Earlier copies, which masks do not mark, are selected if they rank before the last
    # point.
    sq_dist = float(squared_distances(Points.from_grid(last[None]), centers)[0])
    stays = _is_before_last(tied_points, centers, sq_dist, last)
    return Farthest(
        centers,
        sq_dist,
        last,
        np.concatenate([last[None], tied_rows[stays]]),
        np.concatenate([np.array([n_last]), tied_counts[stays]]),
        previous,
    )


@dataclass(frozen=True, eq=False)
class _RankPrefix:
    """The first digits of a rank, which some points have in common.

    A rank is a point's gap, which falls as its squared distance grows, followed by its
    coordinates. Its digits are 16 bits of the gap each, from the highest on, then one
    coordinate each.

    Attributes
    ----------
    centers : ndarray of shape (k, d), int64
        Centers of the ranking.
    shift : int
        Number of low bits of the gap that the prefix leaves open.
    decided : int
        The other bits of the gap.
    coordinates : tuple of int
        The first coordinates; none while bits of the gap are open.
    """

    centers: np.ndarray
    shift: int
    decided: int = 0
    coordinates: tuple[int, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the prefix is a whole rank: its points are copies of one."""
        return len(self.coordinates) == self.centers.shape[1]

    @property
    def next_shift(self) -> int:
        return max(0, self.shift - DIGIT_BITS)

    @property
    def n_values(self) -> int:
        """Number of values of the next digit."""
        return 1 << (self.shift - self.next_shift) if self.shift else 2 * SCALE + 1

    def extended(self, digit: int) -> "_RankPrefix":
        """The prefix followed by a digit."""
        if not self.shift:
            return replace(self, coordinates=(*self.coordinates, digit - SCALE))
        decided = self.decided << (self.shift - self.next_shift) | digit
        return replace(self, shift=self.next_shift, decided=decided)

    def select_inside(
        self, points: Points, previous: Farthest | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Indices (m,) of the points of ``previous`` with the prefix, and their gaps.

        Block by block, so that temporary arrays take little memory.
        """
        sq_dists = _cached_sq_dists(points, self.centers)
        marked = None if previous is None else previous.mask(points)
        n_decided = len(self.coordinates)
        for block in make_slices(len(sq_dists)):
            gaps = _gaps(sq_dists[block], points.shape[1])
            inside = np.flatnonzero(gaps >> self.shift == self.decided)
            rows = points.rows[block][inside, :n_decided]
            inside = inside[(rows == self.coordinates).all(axis=1)]
            if marked is not None:
                inside = inside[marked[block][inside]]
            yield block.start + inside, gaps[inside]


def _digit_counts(
    points: Points,
    prefix: _RankPrefix,
    previous: Farthest | None = None,
) -> Arrays:
    """Counts and numbers of points with a prefix by the value of their next digit."""
    weights = read_weights(points)
    counts = np.zeros(prefix.n_values, np.int64)
    numbers = np.zeros(prefix.n_values, np.int64)
    for inside, gaps in prefix.select_inside(points, previous):
        if prefix.shift:
            digits = (gaps >> prefix.next_shift) & (prefix.n_values - 1)
        else:
            digits = (
                points.rows[inside, len(prefix.coordinates)].astype(np.int64) + SCALE
            )
        own = weights[inside] if len(weights) else weights
        counts += count_labels(digits, own, prefix.n_values)
        numbers += np.bincount(digits, minlength=prefix.n_values)
    return counts, numbers


def _rows_at(
    points: Points,
    prefix: _RankPrefix,
    previous: Farthest | None = None,
) -> Arrays:
    """Coordinates (m, d) of the points with a prefix, and what each counts for."""
    blocks = [inside for inside, _ in prefix.select_inside(points, previous)]
    inside = np.concatenate([np.empty(0, int), *blocks])
    if points.weights is None:
        return points.rows[inside], np.ones(len(inside), np.int64)
    return points.rows[inside], points.weights[inside].astype(np.int64)


def _cached_sq_dists(points: Points, centers: np.ndarray) -> np.ndarray:
    """Squared distance (n,) of each point to its nearest center, cached."""
    compute = partial(squared_distances, points, centers)
    return points.cached("sq_dists", centers.tobytes(), compute)


def _concatenated(rows: Arrays, more: Arrays) -> Arrays:
    pairs = zip(rows, more, strict=True)
    return tuple(np.concatenate(pair) for pair in pairs)


def _is_before_last(
    points: Points,
    centers: np.ndarray,
    sq_dist: float,
    row: np.ndarray,
) -> np.ndarray:
    """Whether points (n,) rank before a point of that squared distance and row."""
    sq_dists = _cached_sq_dists(points, centers)
    is_before = sq_dists > sq_dist
    tied = np.flatnonzero(sq_dists == sq_dist)

    # Points at the same distance rank before it if the first coordinate in which they
    # differ from it is smaller.
    rows = points.rows[tied]
    differs = rows != row
    first = differs.argmax(axis=1)
    here = np.arange(len(tied)), first
    is_before[tied] = differs[here] & (rows[here] < row[first])
    return is_before


def _gaps(sq_dists: np.ndarray, n_features: int) -> np.ndarray:
    """Integers, 0 or more, that fall as squared distances of points of the domain grow.

    The bits of a float are in the order of its values. The high ones tell the order of
    magnitude, so that the first digit separates distances far below the largest.
    """
    # One is added because 0.0 is about a thousand octaves below 1: a digit would be
    # spent on octaves without points.
    largest = np.array([4.0 * n_features * SCALE**2])
    return (largest + 1).view(np.int64) - (sq_dists + 1).view(np.int64)
