"""The points that are farthest from some centers, as a function of the multiset.

Points are ranked by their squared distance to the nearest center, the largest first,
and those at one distance by their coordinates, the smallest first. So which points are
the m farthest, as a multiset, is a function of the multiset of points: all before a
last point, and a number of copies of that. This is what :class:`Farthest` holds, and no
list of points.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pkm.compute.kernels.nearest import squared_distances
from pkm.compute.storage.blocks import Blocks, Shards, Sums
from pkm.compute.storage.dask_points import DaskPoints
from pkm.compute.storage.points import SCALE, Points, make_slices

#: Bits of a squared distance by which points are counted in a pass.
DIGIT_BITS = 16
#: Up to so many points are compared one by one.
MAX_GATHERED = 1 << 16


@dataclass(frozen=True, eq=False)
class Farthest:
    """Some points that are farthest from centers: all before the last one, and copies.

    Attributes
    ----------
    centers : ndarray of shape (k, d), int64
        In grid steps.
    square : float
        Squared distance of the last point to the nearest center.
    row : ndarray of shape (d,), float32
        Its coordinates.
    copies : ndarray of shape (e, d), float32
        Points that :meth:`mask` leaves out, though copies of them are among the
        farthest: the last one, and such of the set ``among``.
    n_copies : ndarray of shape (e,), int64
        How many copies of each.
    among : Farthest or None
        The set among which they are the farthest; None for all points.
    """

    centers: np.ndarray
    square: float
    row: np.ndarray
    copies: np.ndarray
    n_copies: np.ndarray
    among: "Farthest | None" = None

    def mask(self, points: Points) -> np.ndarray:
        """Mark the points (n,), bool, that are among them, but for the copies."""
        return points.cached("mask", (self,), partial(self._mask, points))

    def _mask(self, points: Points) -> np.ndarray:
        marked = _is_before_last(points, self.centers, self.square, self.row)
        points.drop("squares")
        return marked if self.among is None else marked & self.among.mask(points)


def list_copies(
    remaining: Farthest | None, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Points (e, d) that a set has beyond those that it marks, and their numbers.

    None, as of all points, if there is no set.
    """
    if remaining is None:
        return np.empty((0, n_features), np.float32), np.empty(0, np.int64)
    return remaining.copies, remaining.n_copies


def farthest(
    points: Shards | Blocks | DaskPoints,
    among: Farthest | None,
    centers: np.ndarray,
    n_farthest: int,
) -> Farthest | None:
    """Find those of some points that are farthest from their nearest center.

    Parameters
    ----------
    points : Shards, Blocks or DaskPoints
        Read in two passes, or in more where many points are at like distances.
    among : Farthest or None
        The set among which they are the farthest; None for all points.
    centers : ndarray of shape (k, d), int64
        In the domain, in grid steps.
    n_farthest : int
        How many; all if there are fewer.

    Returns
    -------
    Farthest or None
        ``among`` itself if these are all.

    Examples
    --------
    >>> points = Points.prepare(np.array([[1], [-3], [9], [9], [9]]))
    >>> two = farthest(Shards([points]), None, np.array([[0]]), 2)
    >>> two.mask(points).tolist(), two.copies.tolist(), two.n_copies.tolist()
    ([False, False, False, False, False], [[9.0]], [2])
    """
    d = points.n_features
    rows_of_copies, n_copies = list_copies(among, d)
    if n_farthest < 1:
        no_rows, no_counts = list_copies(None, d)
        return Farthest(
            centers,
            np.inf,
            np.zeros(d, np.float32),
            no_rows,
            no_counts,
        )
    copies = Points.prepare(rows_of_copies)

    # Narrow down the place of the last point, digit by digit, until few points are left
    # there.
    place = _Place.of_all(centers)
    n_wanted = n_farthest
    n_inside = np.inf
    while n_inside > MAX_GATHERED and not place.is_point:
        (counts,) = points.total(partial(_digit_counts, place=place, among=among))
        counts += _digit_counts(copies, place, n_copies=n_copies)[0]
        ends = np.cumsum(counts)
        if ends[-1] < n_wanted:
            return among
        digit = int(np.searchsorted(ends, n_wanted))
        n_inside = int(counts[digit])
        n_wanted -= int(ends[digit]) - n_inside
        place = place.narrowed(digit)

    # Sort these, and take as many as are wanted.
    if place.is_point:
        last = np.array(place.coordinates, np.float32)
        n_last = n_wanted
    else:
        (inside,) = points.total(
            partial(_rows_at, place=place, among=among), _concatenated
        )
        (more,) = _rows_at(copies, place, n_copies=n_copies)
        rows = np.concatenate([inside, more])
        order = _ranked(rows, squared_distances(Points.prepare(rows), centers))
        last = rows[order[n_wanted - 1]]
        n_last = np.count_nonzero((rows[order[:n_wanted]] == last).all(axis=1))

    # Copies of other points that were left out before stay where they are before the
    # last one.
    square = float(squared_distances(Points.prepare(last[None]), centers)[0])
    stays = _is_before_last(copies, centers, square, last)
    return Farthest(
        centers,
        square,
        last,
        np.concatenate([last[None], rows_of_copies[stays]]),
        np.concatenate([np.array([n_last]), n_copies[stays]]),
        among,
    )


@dataclass(frozen=True, eq=False)
class _Place:
    """A range of the ranking: points with the first digits of their ranks in common.

    A point's rank is how much its squared distance is below the largest possible one,
    then its coordinates. Digits are 16 bits of the former, from the highest on, then
    single coordinates.

    Attributes
    ----------
    centers : ndarray of shape (k, d), int64
        Of the ranking.
    shift : int
        Number of low bits of the former that are not decided.
    decided : int
        Its decided bits.
    coordinates : tuple of int
        Those that are decided, once all bits are.
    """

    centers: np.ndarray
    shift: int
    decided: int = 0
    coordinates: tuple[int, ...] = ()

    @classmethod
    def of_all(cls, centers: np.ndarray) -> "_Place":
        return cls(centers, _largest_square(centers.shape[1]).bit_length())

    @property
    def is_point(self) -> bool:
        """Whether all of its points are copies of one."""
        return len(self.coordinates) == self.centers.shape[1]

    @property
    def next_shift(self) -> int:
        return max(0, self.shift - DIGIT_BITS)

    @property
    def n_values(self) -> int:
        """Number of values of the next digit."""
        return 1 << (self.shift - self.next_shift) if self.shift else 2 * SCALE + 1

    def narrowed(self, digit: int) -> "_Place":
        """Points of it whose next digit is this."""
        if not self.shift:
            return replace(self, coordinates=(*self.coordinates, digit - SCALE))
        decided = self.decided << (self.shift - self.next_shift) | digit
        return replace(self, shift=self.next_shift, decided=decided)

    def select_inside(
        self, points: Points, among: Farthest | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Indices (m,) of its points that are among others, and how far they are below.

        Block by block, so that what is computed of them takes little memory.
        """
        squares = _squares(points, self.centers)
        marked = None if among is None else among.mask(points)
        n_decided = len(self.coordinates)
        for block in make_slices(len(squares)):
            below = _largest_square(points.shape[1]) - squares[block].astype(np.int64)
            inside = np.flatnonzero(below >> self.shift == self.decided)
            rows = points.rows[block][inside, :n_decided]
            inside = inside[(rows == self.coordinates).all(axis=1)]
            if marked is not None:
                inside = inside[marked[block][inside]]
            yield block.start + inside, below[inside]


def _digit_counts(
    points: Points,
    place: _Place,
    among: Farthest | None = None,
    n_copies: np.ndarray | None = None,
) -> Sums:
    """How many points of a place have each value of the next digit."""
    counts = np.zeros(place.n_values, np.int64)
    for inside, below in place.select_inside(points, among):
        if place.shift:
            digits = (below >> place.next_shift) & (place.n_values - 1)
        else:
            digits = (
                points.rows[inside, len(place.coordinates)].astype(np.int64) + SCALE
            )
        weights = None if n_copies is None else n_copies[inside]
        counts += np.bincount(digits, weights, place.n_values).astype(
            np.int64, copy=False
        )
    return (counts,)


def _rows_at(
    points: Points,
    place: _Place,
    among: Farthest | None = None,
    n_copies: np.ndarray | None = None,
) -> Sums:
    """Coordinates (m, d) of the points of a place."""
    blocks = [inside for inside, _ in place.select_inside(points, among)]
    inside = np.concatenate([np.empty(0, int), *blocks])
    rows = points.rows[inside]
    return (rows if n_copies is None else np.repeat(rows, n_copies[inside], axis=0),)


def _squares(points: Points, centers: np.ndarray) -> np.ndarray:
    """Squared distance (n,) of each point to the nearest center, kept."""
    compute = partial(squared_distances, points, centers)
    return points.cached("squares", centers.tobytes(), compute)


def _concatenated(rows: Sums, more: Sums) -> Sums:
    return (np.concatenate([*rows, *more]),)


def _ranked(rows: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Order of points by their ranks."""
    # lexsort's last key is its first one.
    return np.lexsort((*rows.T[::-1], -squares))


def _is_before_last(
    points: Points,
    centers: np.ndarray,
    square: float,
    row: np.ndarray,
) -> np.ndarray:
    """Whether points (n,) come before one of that squared distance and coordinates."""
    squares = _squares(points, centers)
    is_before = squares > square
    tied = np.flatnonzero(squares == square)

    # Of those at its distance: where the first coordinate that differs is smaller.
    rows = points.rows[tied]
    differs = rows != row
    first = differs.argmax(axis=1)
    here = np.arange(len(tied)), first
    is_before[tied] = differs[here] & (rows[here] < row[first])
    return is_before


def _largest_square(n_features: int) -> int:
    """Largest squared distance of two points of the domain, in squared grid steps."""
    return 4 * n_features * SCALE**2
