"""Private points under a public projection into the unit ball.

Maximum cover (Gupta, Ligett, McSherry, Roth, Talwar, SODA 2010; used for clustering by
Nguyen, Chaturvedi, Xu, AAAI 2021): grid points are picked one after the other. A grid
point covers the points within a radius. It is picked with probability proportional to
``exp(weight * c)``, where c is the number of points that it covers and no earlier pick
has covered.

Cost of a cover, under zero-out or add-remove adjacency, for any number of picks and
grids. Let a record be in A and not in B. Let p_i be the probability on B, given the
earlier picks, that pick i covers it. Until it is covered, the sum of weights on A is
``1 + (exp(weight) - 1) p_i`` times that on B. Afterwards all weights are equal. So any
outcome is at most ``exp(weight)`` times as likely on A. Conversely it is at most
``exp((exp(weight) - 1) S)`` times as likely on B, where S is the sum of p_i over the
picks before the record is covered; the ratio of the covering pick itself is at most 1.
S exceeds ln(1 / delta) with probability at most delta, because all these picks must
miss the record. Hence ``epsilon = max(weight, (exp(weight) - 1) ln(1 / delta))``, about
half of the papers' constant.

Most grid points cover nothing and are never listed. A pick is drawn from a mixture with
the same distribution: every grid point has the weight 1, and one that covers c points
has ``exp(weight c) - 1`` in addition. If only a bound on c is known, a grid point is
drawn by the bound and accepted with the ratio of the two weights. All computations are
in log space.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from pkm.compute import SCALE
from pkm.compute.kernels.cover import BLOCK_SIDE, Cover, log_expm1
from pkm.compute.kernels.lattice import uniform_index
from pkm.compute.kernels.unit_ball import (
    PROJECTION_BLOCK,
    Projection,
    label_sums,
    nearest_labels,
)
from pkm.compute.storage.points import make_slices
from pkm.privacy.base import BaseCurator, View
from pkm.privacy.checks import check_floats, check_positive
from pkm.privacy.mechanisms.additive import Cost
from pkm.privacy.mechanisms.noise import Key, NoiseStreams
from pkm.privacy.mechanisms.selection import ScoreSensitivity
from pkm.privacy.queries.sums import (
    GAUSSIAN_SUMS_AND_COUNTS,
    ONE_COUNT,
    CountQuery,
    entries_sensitivity,
)
from pkm.privacy.query import Answer, Mechanisms, Query, Sensitivities


def cover_epsilon(weight: float, delta: float) -> float:
    """Epsilon of a maximum cover that fails with probability ``delta``.

    Parameters
    ----------
    weight : float
        Positive: the contribution of a covered point to the exponent.
    delta : float
        In (0, 1).

    Returns
    -------
    float
    """
    _check_cover("weight", weight, delta)
    # The larger of the bounds on the two directions: see the module's text.
    return max(weight, math.expm1(weight) * math.log(1 / delta))


def cover_weight(epsilon: float, delta: float) -> float:
    """Largest weight with which a maximum cover costs no more than (epsilon, delta).

    Examples
    --------
    >>> round(cover_epsilon(cover_weight(0.2, 1e-6), 1e-6), 12)
    0.2
    """
    _check_cover("epsilon", epsilon, delta)
    # Each of the two terms of cover_epsilon solved for the weight.
    return min(epsilon, math.log1p(epsilon / math.log(1 / delta)))


def _check_cover(name: str, value: float, delta: float) -> None:
    check_positive(name, value)
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must be in (0, 1) for a maximum cover")


class CoverProblem(NamedTuple):
    """Input of :class:`MaximumCover`; the points are private, the rest is public.

    Attributes
    ----------
    points : Projection or ndarray of shape (n, m), float64
        In the unit ball.
    grids : sequence of (side, radius)
        See :class:`CoverPicks`.
    n_picks : int
        Number of picks per grid.
    """

    points: Projection | np.ndarray
    grids: Sequence[tuple[float, float]]
    n_picks: int


@dataclass(frozen=True)
class MaximumCover:
    """Picks of grid points that cover many points, one after the other.

    Parameters
    ----------
    weight : float
        The contribution of a covered point to the exponent.
    delta : float
        Probability with which epsilon may not hold.
    """

    weight: float
    delta: float
    name = "maximum_cover"

    def __post_init__(self) -> None:
        cover_epsilon(self.weight, self.delta)  # raises if one is out of range

    def check(self, sensitivity: ScoreSensitivity) -> None:
        """Refuse counts that a record changes by more than 1: no proof covers them."""
        if not sensitivity.monotonic or sensitivity.difference != 1:
            raise ValueError(f"{sensitivity} must be that of numbers of covered points")

    def cost(self, sensitivity: ScoreSensitivity) -> Cost:
        """Cost of the whole cover, for any number of picks and grids."""
        return Cost(epsilon=cover_epsilon(self.weight, self.delta), delta=self.delta)

    def details(self, sensitivity: ScoreSensitivity) -> dict[str, float]:
        """Weight of a covered point, for the ledger."""
        return {"weight": self.weight}

    def draw(
        self,
        values: CoverProblem,
        streams: NoiseStreams,
        key: Key,
        sensitivity: ScoreSensitivity | None = None,
    ) -> np.ndarray:
        """Draw the picks of each grid; the points that one covers are then removed.

        Parameters
        ----------
        values : CoverProblem
        streams : NoiseStreams
            Streams of one replicate.
        key : tuple
        sensitivity : ignored

        Returns
        -------
        ndarray of shape (1, len(grids) * n_picks, m), float64
            Grid points of the unit ball.
        """
        # One mask for all grids: the proof charges a record until its first cover.
        uncovered = np.ones(len(values.points), bool)
        picks = []
        for grid, (side, radius) in enumerate(values.grids):
            cover = Cover(values.points, side, radius, self.weight, uncovered)
            for i in range(values.n_picks):
                grid_point = draw_cover(cover, self.weight, streams, (*key, grid, i))
                picks.append(grid_point * side)
                cover.remove(cover.covered(grid_point))
            del cover  # free its counts before those of the next grid are computed
        return np.array([picks])


class ProjectedPoints(View):
    """One replicate's points under a public projection into the unit ball.

    It is made by :meth:`pkm.privacy.Curator.projection`. Its queries are
    :class:`CoverPicks`, :class:`ProjectedCounts` and :class:`ProjectedSumsAndCounts`.

    Parameters
    ----------
    curator : BaseCurator
        Curator of one replicate. Answers do not depend on its shards.
    matrix : ndarray of shape (m, d), int64
        Public: the projection, small enough that products are exact.
    length : float
        Public: projected points are divided by it and clipped to the unit ball.

    Attributes
    ----------
    n_dimensions, n_features : int

    Raises
    ------
    ValueError
        If the matrix does not fit.
    """

    def __init__(
        self,
        curator: BaseCurator,
        matrix: np.ndarray,
        length: float,
    ) -> None:
        super().__init__(curator)
        self._projection = Projection(curator._shards, matrix, length)
        self.n_dimensions = len(matrix)


@dataclass(frozen=True, eq=False)
class CoverPicks(Query):
    """Grid points that cover many projected points.

    Parameters
    ----------
    grids : sequence of (side, radius)
        Public: the side of each grid, and the radius within which its grid points
        cover. A record that is covered on one grid is left out on all later ones.
    n_picks : int
        Number of grid points for each grid; a grid point can be picked twice.

    Notes
    -----
    Its part is ``picks`` (len(grids) * n_picks, m), float64: grid points of the unit
    ball, in the order of the picks. A record that is not covered yet adds 1 to the
    counts of the grid points near it, and changes no other count.
    """

    label = "maximum_cover"
    mechanisms: ClassVar[Mechanisms] = {"picks": (MaximumCover,)}
    view = ProjectedPoints

    grids: Sequence[tuple[float, float]]
    n_picks: int

    def check(self, source: ProjectedPoints) -> None:
        """Refuse a cover without grids or picks, and grids of impossible sizes."""
        if not all(0 < length < math.inf for grid in self.grids for length in grid):
            raise ValueError(
                f"grids={self.grids} must be pairs of positive finite lengths"
            )
        if self.n_picks < 1 or not self.grids:
            raise ValueError(
                f"n_picks={self.n_picks} and the number of grids, "
                f"{len(self.grids)}, must be at least 1"
            )

    def sensitivity(self, source: ProjectedPoints) -> Sensitivities:
        """Counts of covered points are monotonic and change by at most 1."""
        return {"picks": ScoreSensitivity(1.0, monotonic=True)}

    def exact(self, source: ProjectedPoints) -> Answer:
        """Projected points."""
        return {"picks": CoverProblem(source._projection, self.grids, self.n_picks)}


@dataclass(frozen=True, eq=False)
class _ProjectedQuery(Query):
    """Base class of the queries on the points nearest to each center."""

    view = ProjectedPoints

    centers: np.ndarray

    def check(self, source: ProjectedPoints) -> None:
        """Refuse centers that do not fit the projection."""
        check_floats("centers", self.centers, ("k", source.n_dimensions))
        if not len(self.centers):
            raise ValueError("centers must be one or more: there is none to be nearest")

    def _label(self, source: ProjectedPoints) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield blocks of the points, and the nearest center of each point."""
        projection = source._projection
        for rows in make_slices(len(projection), PROJECTION_BLOCK):
            yield rows, nearest_labels(projection[rows], self.centers)


@dataclass(frozen=True, eq=False)
class ProjectedCounts(_ProjectedQuery, CountQuery):
    """Numbers of points nearest to each center in the projection.

    Parameters
    ----------
    centers : ndarray of shape (k, m), float64
        Public or released, in the unit ball's coordinates.

    Notes
    -----
    Its part is ``counts`` (k,), int64, in units of 2**-16 records. One record lies in
    one cell.
    """

    label = "projected_counts"

    def count(self, source: ProjectedPoints) -> np.ndarray:
        """Count block by block."""
        counts = np.zeros(len(self.centers), np.int64)
        for _, nearest in self._label(source):
            counts += np.bincount(nearest, minlength=len(self.centers))
        return counts


@dataclass(frozen=True, eq=False)
class ProjectedSumsAndCounts(_ProjectedQuery):
    """Sums in all features, and numbers, of the points nearest to each center.

    Parameters
    ----------
    centers : ndarray of shape (k, m), float64
        Public or released, in the unit ball's coordinates.

    Notes
    -----
    Its parts are ``sums`` (k, d), int64, about the domain's midpoint, in grid steps,
    and ``counts`` (k,), int64, in units of 2**-16 records. A record changes one cell:
    its count by 1 and its sum by at most the domain's half-diagonal, sqrt(d)
    half-widths.
    """

    label = "projected_sums_and_counts"
    mechanisms = GAUSSIAN_SUMS_AND_COUNTS

    def sensitivity(self, source: ProjectedPoints) -> Sensitivities:
        """One record in one cell."""
        # A point of the domain has at most 1 per coordinate, in half-widths.
        sums = entries_sensitivity(source.n_features)
        return {"sums": sums, "counts": ONE_COUNT}

    def exact(self, source: ProjectedPoints) -> Answer:
        """Exact sums and counts."""
        sums = np.zeros((len(self.centers), source.n_features), np.int64)
        counts = np.zeros(len(self.centers), np.int64)
        for rows, nearest in self._label(source):
            block_sums, block_counts = label_sums(
                source._projection.rows(rows), nearest, len(self.centers)
            )
            sums += block_sums
            counts += block_counts
        return {"sums": sums[None], "counts": counts[None] * SCALE}


def draw_cover(
    cover: Cover, weight: float, streams: NoiseStreams, key: Key
) -> np.ndarray:
    """Draw one grid point, weighted by ``exp(weight * points covered)``.

    Parameters
    ----------
    cover : Cover
    weight : float
        At most the weight that the cover was made for.
    streams : NoiseStreams
        Streams of one replicate.
    key : tuple

    Returns
    -------
    ndarray of shape (m,), int64
    """
    # Log weights of the mixture's components: all grid points, at weight 1; grid points
    # with exact counts, one component per count; blocks with a bound on their counts,
    # one component per bound. See the class Cover.
    lattice = cover.lattice
    block_size = BLOCK_SIDE**lattice.dimensions
    counts, multiplicities = cover.positive_counts()
    log_counted = np.log(multiplicities) + log_expm1(weight * counts)
    log_bounded = (
        np.log(cover.n_bounded)
        + math.log(block_size)
        + log_expm1(weight * cover.bounds)
    )
    log_weights = np.concatenate([[math.log(lattice.size)], log_counted, log_bounded])

    # Rejection sampling; at most half of the weight is in bounded blocks.
    # Every attempt has variates of its own: those of a rejected one are not uniform.
    attempt = 0
    while True:
        # Draw a component by the Gumbel-max trick.
        attempt_key = (*key, attempt)
        variates = streams.gumbel((*attempt_key, "kind"), log_weights.shape)[0]
        component = int(np.argmax(log_weights + variates))

        # Draw a grid point of the component.
        # The Gumbel distribution function, exp(-exp(-x)), makes variates uniform.
        # A bounded block takes three: block, position, acceptance.
        shape = (max(3, lattice.dimensions),)
        variates = streams.gumbel((*attempt_key, "place"), shape)[0]
        uniforms = np.exp(-np.exp(-variates))
        if component == 0:
            return lattice.draw(uniforms[: lattice.dimensions])
        if component <= len(counts):
            i = component - 1
            rank = uniform_index(uniforms[0], int(multiplicities[i]))
            return cover.counted_point(int(counts[i]), rank)
        i = component - 1 - len(counts)
        block = uniform_index(uniforms[0], int(cover.n_bounded[i]))
        position = uniform_index(uniforms[1], block_size)
        grid_point = cover.bounded_point(int(cover.bounds[i]), block, position)

        # Accept it with the ratio of its weight to that of the bound.
        n_covered = np.count_nonzero(cover.covered(grid_point))
        if n_covered:
            log_weight, log_bound = log_expm1(
                np.array([n_covered, cover.bounds[i]]) * weight
            )
            if uniforms[2] <= math.exp(log_weight - log_bound):
                return grid_point
        attempt += 1
