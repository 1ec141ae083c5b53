"""Queries on points that are clipped to a public ball.

L2 sensitivities, in records and half-widths of the domain:

- :class:`BucketCounts`: one bucket by 1; two buckets once points were filtered.
- :class:`BucketSums`: one sum by the radius; by 2 radii once points were filtered.
- :class:`NearestCounts`, :class:`NearestShells`: one count by 1.
- :class:`NearestSumsAndCounts`: one sum by the radius, and one count by 1.
- :class:`SecondMoments`: the matrix by the squared radius.
- :class:`Swaps`, :class:`CandidateSets`: a record raises all costs, by at most the
  range of :meth:`ClippedPoints.cost_range`: the squared diameter if all centers are in
  the ball.

The first two are on the remaining points of :class:`ClippedPoints`, the others on all.

Where rows have weights, those of a record add up to 1 at most. Every answer is a sum
over rows that is linear in the weights, or rounded toward zero row by row. So a record
changes it by an average of what whole records do, and all bounds hold. Linear sums are
exact, in 2**-16 grid steps; the released ones are rounded after the noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from pkm.compute import SCALE, Points, inertia
from pkm.compute.kernels.clipping import nearest_clipped_sums, sums_about
from pkm.compute.kernels.farthest import list_tied
from pkm.compute.kernels.hashing import Hash, bucket_counts, bucket_sums, merge_counts
from pkm.compute.kernels.nearest import swap_costs
from pkm.compute.kernels.shells import nearest_shells
from pkm.compute.storage.blocks import Arrays, total_array
from pkm.compute.storage.points import make_slices
from pkm.privacy.checks import check_grid_integers, check_positive
from pkm.privacy.mechanisms.additive import Gaussian
from pkm.privacy.mechanisms.selection import ScoreSensitivity
from pkm.privacy.mechanisms.stability_histogram import OccupiedCells
from pkm.privacy.queries.clipped_points import ClippedPoints
from pkm.privacy.queries.shells import check_radii
from pkm.privacy.queries.sums import (
    CHOICES,
    GAUSSIAN_COUNTS,
    GAUSSIAN_SUMS,
    GAUSSIAN_SUMS_AND_COUNTS,
    LARGE_COUNTS,
    ONE_COUNT,
    TWO_COUNTS,
    CountQuery,
    vector_sensitivity,
)
from pkm.privacy.query import (
    Answer,
    BlockQuery,
    Details,
    Mechanisms,
    Query,
    Sensitivities,
)

MOMENT_STEPS = 1 << 12
"""Coordinates are truncated to so many steps per half-width before multiplication."""

MOMENT_ROWS = 1 << 12
"""Points per matrix product; sums of so many products are exact in float64."""


@dataclass(frozen=True, eq=False)
class BucketCounts(BlockQuery):
    """Buckets of the remaining points whose noisy counts pass a threshold.

    Parameters
    ----------
    hashing : Hash
        Public.
    min_count : float, default=0
        A public threshold above that of the noise, in records.

    Notes
    -----
    Its part is ``counts``, a
    :class:`pkm.privacy.mechanisms.stability_histogram.ReleasedCells`: buckets by their
    numbers under the hash (b,), int64, in increasing order, and their counts (b,),
    int64, in units of 2**-16 records. A record lies in one bucket, or is spread over
    some; a replacement takes one out of buckets and puts one into others. The number of
    remaining records follows from the curator's n, which is public or released.
    """

    label = "bucket_counts"
    mechanisms = LARGE_COUNTS
    view = ClippedPoints
    serves_weights = True
    combine = staticmethod(merge_counts)

    hashing: Hash
    min_count: float = 0.0

    def check(self, source: ClippedPoints) -> None:
        """Refuse a hash of other points."""
        source.check_hash(self.hashing)

    def sensitivity(self, source: ClippedPoints) -> Sensitivities:
        """One record in one bucket, or one replacement."""
        return {"counts": TWO_COUNTS if source.is_filtered else ONE_COUNT}

    def of_block(self, source: ClippedPoints) -> Callable[[Points], Arrays]:
        """Buckets that occur, and their counts."""
        # Of the points that are farthest from some centers; their mask is computed once
        # for all queries that share the pass.
        remaining = source._remaining
        return partial(bucket_counts, hashing=self.hashing, remaining=remaining)

    def answer(self, source: ClippedPoints, totals: Arrays) -> Answer:
        """Buckets that occur, and their exact counts."""
        # Counts of the points in the mask, then of the tied ones, which it leaves out.
        tied_rows, tied_counts = list_tied(source._remaining, source.n_features)
        codes = self.hashing.codes(Points.from_grid(tied_rows))
        buckets, counts = merge_counts(totals, (codes, tied_counts))
        buckets = buckets.astype(np.int64)
        factor = source.count_factor
        return {"counts": OccupiedCells(buckets, counts, self.min_count, factor)}


@dataclass(frozen=True, eq=False)
class BucketSums(BlockQuery):
    """Sums of the remaining points in released buckets, each about an origin.

    Parameters
    ----------
    hashing : Hash
        Public.
    codes : ndarray of shape (b,), int64
        Numbers of released buckets, increasing. A release without buckets is charged,
        too.
    origins : ndarray of shape (b, d), int64
        Public or released, in the domain, in grid steps.
    radius : float
        In half-widths: differences are clipped to it in norm.

    Notes
    -----
    Its part is ``sums`` (b, d), int64, in grid steps. A record adds at most the radius
    to one sum; a replacement takes that much from a sum and adds that much to the same
    or another one. A record whose rows are in several sums adds no more to all of them.
    The L2 sensitivity, for the scale of the noise, is
    :meth:`ClippedPoints.sum_sensitivity`.
    """

    label = "bucket_sums"
    mechanisms = GAUSSIAN_SUMS
    view = ClippedPoints
    serves_weights = True

    hashing: Hash
    codes: np.ndarray
    origins: np.ndarray
    radius: float

    def check(self, source: ClippedPoints) -> None:
        """Refuse origins off the grid or domain, and codes that do not fit them."""
        source.check_hash(self.hashing)
        source.check_positions(self.origins)
        if (
            self.origins.shape[0] != len(self.codes)
            or (self.codes < 0).any()
            or (self.codes[1:] <= self.codes[:-1]).any()
        ):
            raise ValueError(
                f"codes must be {len(self.origins)} increasing numbers, one for each "
                "origin, and the first at least 0"
            )
        check_positive("radius", self.radius)

    def sensitivity(self, source: ClippedPoints) -> Sensitivities:
        """The radius in one sum, or twice the radius for a replacement."""
        # A replacement takes a clipped difference from one sum and adds one to the same
        # or another: 2 radii, if both are in one sum and opposite.
        l2 = source.sum_sensitivity(self.radius)
        sums = vector_sensitivity(l2, source.n_features, resolution=source.resolution)
        return {"sums": sums}

    def of_block(self, source: ClippedPoints) -> Callable[[Points], Arrays]:
        """Sums of the points that a mask marks."""
        return partial(self._add_up, remaining=source._remaining)

    def answer(self, source: ClippedPoints, totals: Arrays) -> Answer:
        """Exact sums: of marked points, and of the copies that masks leave out."""
        # A mask cannot select some copies of a point and leave out others. So these are
        # stored once, with the number that is selected.
        (sums,) = totals
        tied = list_tied(source._remaining, source.n_features)
        for row, count in zip(*tied, strict=True):
            points = Points.from_grid(row[None])
            sums += count * self._add_up(points, remaining=None)[0]
        return {"sums": sums[None]}

    @property
    def _add_up(self) -> Callable[..., Arrays]:
        # Rows and origins are in grid steps, and so is the radius.
        return partial(
            bucket_sums,
            hashing=self.hashing,
            released=self.codes,
            origins=self.origins,
            radius=self.radius * SCALE,
        )

    def details(self) -> Details:
        """The radius."""
        return {"radius": self.radius}


@dataclass(frozen=True, eq=False)
class _NearestQuery(Query):
    """Base class of the queries on the points nearest to each center."""

    view = ClippedPoints
    serves_weights = True

    centers: np.ndarray

    def check(self, source: ClippedPoints) -> None:
        """Refuse centers off the grid, and an empty array."""
        shape = ("k", source.n_features)
        check_grid_integers("centers", self.centers, shape, "; snap them first")
        if not len(self.centers):
            raise ValueError("centers must be one or more: there is none to be nearest")


@dataclass(frozen=True, eq=False)
class NearestCounts(_NearestQuery, CountQuery):
    """Numbers of all points nearest to each center.

    Parameters
    ----------
    centers : ndarray of shape (k, d), int64
        Released, in grid steps. Ties go to the lower index.

    Notes
    -----
    Its part is ``counts`` (k,), int64, in units of 2**-16 records. A record changes one
    of them.
    """

    label = "nearest_counts"
    mechanisms = GAUSSIAN_COUNTS

    def count(self, source: ClippedPoints) -> np.ndarray:
        """Count over all shards."""
        centers = self.centers[None]
        add_up = partial(sums_about, centers=centers, origins=np.zeros_like(centers))
        _, counts = source._shards.map_reduce(add_up)
        # This kernel counts in 2**-16 records; the base class applies the factor again.
        return counts[0] // source.count_factor


@dataclass(frozen=True, eq=False)
class NearestShells(_NearestQuery, CountQuery):
    """Numbers of all points by the distance to the nearest center.

    Parameters
    ----------
    centers : ndarray of shape (k, d), int64
        Released, in grid steps.
    radii : ndarray of shape (m,), float64
        Decreasing, in half-widths. Shell 0 is all that is farther than ``radii[1]``,
        shell j the points at distances from ``radii[j + 1]`` to ``radii[j]``, the last
        one the rest.

    Notes
    -----
    Its part is ``counts`` (m,), int64, in units of 2**-16 records. A record changes one
    of them.
    """

    label = "nearest_shells"

    radii: np.ndarray

    def check(self, source: ClippedPoints) -> None:
        """Refuse bad centers, and radii that do not decrease."""
        super().check(source)
        check_radii(self.radii)

    def count(self, source: ClippedPoints) -> np.ndarray:
        """Count over all shards."""
        arguments = {"centers": self.centers, "radii": self.radii * SCALE}
        return total_array(source._shards, nearest_shells, **arguments)


@dataclass(frozen=True, eq=False)
class NearestSumsAndCounts(_NearestQuery):
    """Sums about each center of all points nearest to it, and their numbers.

    Parameters
    ----------
    centers : ndarray of shape (k, d), int64
        Released, in grid steps. Ties go to the lower index.
    radius : float
        In half-widths: differences are clipped to it in norm.

    Notes
    -----
    Its parts are ``sums`` (k, d), int64, in grid steps, and ``counts`` (k,), int64, in
    units of 2**-16 records. A record changes one count by 1 and its sum by at most the
    radius.
    """

    label = "nearest_sums_and_counts"
    mechanisms = GAUSSIAN_SUMS_AND_COUNTS

    radius: float

    def check(self, source: ClippedPoints) -> None:
        """Refuse bad centers, and a radius that is not positive and finite."""
        super().check(source)
        check_positive("radius", self.radius)

    def sensitivity(self, source: ClippedPoints) -> Sensitivities:
        """One record in one cell, and the radius in its sum."""
        # Rounding toward zero keeps each clipped difference within the radius.
        length = self.radius * SCALE
        sums = vector_sensitivity(
            length, source.n_features, resolution=source.resolution
        )
        return {"sums": sums, "counts": ONE_COUNT}

    def exact(self, source: ClippedPoints) -> Answer:
        """Exact sums and counts."""
        add_up = partial(
            nearest_clipped_sums, centers=self.centers, radius=self.radius * SCALE
        )
        sums, counts = source._shards.map_reduce(add_up)
        return {"sums": sums[None], "counts": counts[None] * source.count_factor}

    def details(self) -> Details:
        """The radius."""
        return {"radius": self.radius}


@dataclass(frozen=True, eq=False)
class SecondMoments(Query):
    """Sum over all points of the products of their coordinates, about the midpoint.

    Notes
    -----
    Its part is ``moments`` (d (d + 1) / 2,), int64: the upper triangle, row by row, in
    units of 2**-24 squared half-widths; :meth:`matrix` converts it to the symmetric
    matrix. A record adds the matrix ``x x'``, whose Frobenius norm is ``|x|^2``, at
    most the squared radius of the ball: that is 2**16 units of the noise. An entry off
    the diagonal stands for two entries of the matrix, so its unit is divided by
    sqrt(2). Then the change of the triangle has the Frobenius norm of the matrix.
    Coordinates are truncated to 2**-12 half-widths, toward zero, so that products are
    integers; those of a row with a weight are multiplied by its root before.
    """

    label = "second_moments"
    mechanisms: ClassVar[Mechanisms] = {"moments": (Gaussian,)}
    view = ClippedPoints
    serves_weights = True

    def sensitivity(self, source: ClippedPoints) -> Sensitivities:
        """The squared radius, in the Frobenius norm of the matrix."""
        # In units of the largest change over 2**16; truncation only shortens a record.
        rows, columns = np.triu_indices(source.n_features)
        largest = (source.radius * MOMENT_STEPS) ** 2
        unit = np.where(rows == columns, largest, math.sqrt(0.5) * largest) / SCALE
        return {"moments": vector_sensitivity(SCALE, len(unit), unit)}

    def exact(self, source: ClippedPoints) -> Answer:
        """Exact sums of products."""
        moments = total_array(source._shards, _moments)
        return {"moments": moments[np.triu_indices(source.n_features)][None]}

    @staticmethod
    def matrix(moments: np.ndarray) -> np.ndarray:
        """Symmetric matrix (d, d), in squared half-widths, of a released answer.

        Examples
        --------
        >>> SecondMoments.matrix(np.array([2, -1, 4]) << 24).tolist()
        [[2.0, -1.0], [-1.0, 4.0]]
        """
        # d (d + 1) / 2 moments, solved for d.
        d = (math.isqrt(8 * len(moments) + 1) - 1) // 2
        matrix = np.zeros((d, d))
        matrix[np.triu_indices(d)] = moments / MOMENT_STEPS**2
        return matrix + np.triu(matrix, 1).T


@dataclass(frozen=True, eq=False)
class _CandidateQuery(Query):
    """Base class of selections by the cost of candidates as centers."""

    mechanisms = CHOICES
    view = ClippedPoints
    serves_weights = True

    candidates: np.ndarray

    def sensitivity(self, source: ClippedPoints) -> Sensitivities:
        """A record adds at most the cost range to each cost, in squared grid steps."""
        # A cost is a sum over records of squared distances to the nearest center: a
        # record adds between 0 and the largest squared distance to each.
        largest = source.cost_range(self.candidates) * SCALE**2
        return {"choices": ScoreSensitivity(largest, monotonic=True)}


@dataclass(frozen=True, eq=False)
class Swaps(_CandidateQuery):
    """Selection of a swap of a center for a candidate, by the cost after it.

    Parameters
    ----------
    candidates : ndarray of shape (m, d), int64
        Released, in the domain and in the ball.
    current : ndarray of shape (k,), int64
        Indices of the current centers among the candidates.
    slots : sequence of int
        Positions in ``current`` whose centers may be replaced, in increasing order.

    Notes
    -----
    Its part is ``choices`` (1,), int64: the position among the slots times m, plus the
    index of the candidate; see :meth:`swap`. A record adds to all costs, by at most
    :meth:`ClippedPoints.cost_range`. That depends on released centers, so it is not
    recorded in the charge, which is the same for all replicates.
    """

    label = "swaps"

    current: np.ndarray
    slots: Sequence[int] | np.ndarray

    def check(self, source: ClippedPoints) -> None:
        """Refuse candidates off the grid or domain, and indices out of range."""
        source.check_positions(self.candidates)
        check_indices("current", self.current, len(self.candidates))
        check_indices("slots", self.slots, len(self.current))

    def exact(self, source: ClippedPoints) -> Answer:
        """Scores of all swaps."""
        arguments = {name: np.asarray(array) for name, array in vars(self).items()}
        # Costs are Python integers: exact for any number of points.
        costs = total_array(source._shards, swap_costs, **arguments)
        return {"choices": [score_costs(costs.ravel().tolist())]}

    def swap(self, choice: int) -> tuple[int, int]:
        """Position to replace, and index of the candidate to put there: public."""
        # Choices are numbered row by row of the matrix (slots, candidates) of costs.
        position, candidate = divmod(int(choice), len(self.candidates))
        return int(self.slots[position]), candidate


@dataclass(frozen=True, eq=False)
class CandidateSets(_CandidateQuery):
    """Selection of one of several sets of candidates, by its cost.

    Parameters
    ----------
    candidates : ndarray of shape (m, d), int64
        Released, in the domain.
    sets : ndarray of shape (s, k), int64
        Indices of candidates.

    Notes
    -----
    Its part is ``choices`` (1,), int64: the index of the set. A record adds to all
    costs as for :class:`Swaps`.
    """

    label = "sets"

    sets: np.ndarray

    def check(self, source: ClippedPoints) -> None:
        """Refuse candidates off the grid or domain, and indices out of range."""
        source.check_positions(self.candidates)
        check_indices("sets", self.sets, len(self.candidates))

    def exact(self, source: ClippedPoints) -> Answer:
        """Scores of the sets."""
        costs = total_array(
            source._shards, _inertias, centers=self.candidates[self.sets]
        )
        return {"choices": [score_costs(costs.tolist())]}


def score_costs(costs: Sequence[int]) -> np.ndarray:
    """Scores (c,) of exact costs in squared grid steps: minus the excess cost.

    The excess is over the smallest cost. Costs are Python integers, so differences are
    exact, and scores have a relative error of at most 2**-53.

    Examples
    --------
    >>> score_costs([2**80 + 3, 2**80 + 1]).tolist()
    [-2.0, -0.0]
    """
    smallest = min(costs)
    return np.array([-float(cost - smallest) for cost in costs])


def check_indices(name: str, indices: Sequence[int] | np.ndarray, size: int) -> None:
    """Refuse indices that are not in ``range(size)``, and an empty list."""
    indices = np.asarray(indices)
    if not indices.size or indices.min() < 0 or indices.max() >= size:
        raise ValueError(
            f"{name} must be one or more indices from 0 to {size - 1}, got {indices}"
        )


def _moments(points: Points) -> np.ndarray:
    """Sums of products (d, d) of coordinates, in 2**-24 squared half-widths."""
    # Products are integers of at most 2**24, so float64 sums of a block are exact.
    d = points.shape[1]
    moments = np.zeros((d, d), np.int64)
    for block in make_slices(len(points.rows), MOMENT_ROWS):
        rows = points.rows[block].astype(np.float64)
        rows *= MOMENT_STEPS / SCALE
        if points.weights is not None:
            # A product is an integer, or 2**-49 of itself or more away from one: float
            # rounding cannot lift it there.
            rows *= np.sqrt(points.weights[block] / SCALE)[:, None]
        rows = np.trunc(rows)
        moments += (rows.T @ rows).astype(np.int64)
    return moments


def _inertias(points: Points, centers: np.ndarray) -> np.ndarray:
    """Costs (s,) of sets of centers, integers of any size."""
    return np.array(inertia(points, centers), object)
