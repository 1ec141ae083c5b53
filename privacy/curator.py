"""The curator holds the private points and answers queries on them with noise.

For every query the curator charges the ledger, computes the exact answer, adds noise, and returns
integers on the grid. Queries are functions of public values only; an empty cell counts as zero;
exact answers are returned only to methods that claim no privacy.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import averaged_gaps, sums_and_counts
from pkm.privacy.base import BaseCurator, PointsLike
from pkm.privacy.budget import Adjacency
from pkm.privacy.grid import MAX_CELLS, SCALE
from pkm.privacy.hashed_points import HashedPoints
from pkm.privacy.ledger import Ledger, StreamKey
from pkm.privacy.mechanisms import BoundedLaplace, Gaussian, Laplace
from pkm.privacy.noise import Key, NoiseStreams
from pkm.privacy.projection import ProjectedPoints
from pkm.privacy.tree import BoxGrid, PartitionTree

GAP_BLOCK = 1 << 13  # gaps that are scored together


class DisclosureError(PermissionError):
    """An exact answer was requested under a privacy claim."""


class Curator(BaseCurator):
    """Central curator for a batch of replicates, under zero-out adjacency.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, whole or in shards; answers do not depend on the shards.
    ledger : Ledger or None
        None for methods that claim no privacy: they alone get exact answers.
    streams : NoiseStreams
        One stream family per replicate.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1 and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public (n is public under zero-out adjacency).
    seeds : tuple of int
        One per replicate, for randomness that does not depend on the data.
    domain : ndarray of shape (2, d), float64

    Raises
    ------
    ValueError
        If a point lies off the domain, shards differ in width, or the ledger's adjacency is not
        zero-out, for which the sensitivities are computed.
    """

    def __init__(
        self,
        points: PointsLike,
        ledger: Ledger | None,
        streams: NoiseStreams,
        domain: ArrayLike | None = None,
    ) -> None:
        if ledger is not None and ledger.budget.adjacency is not Adjacency.ZERO_OUT:
            raise ValueError(
                f"adjacency={ledger.budget.adjacency} is not supported by this curator: it charges "
                "what zero_out costs"
            )
        super().__init__(points, ledger, streams, domain)

    def sums_and_counts(
        self,
        centers: np.ndarray,
        *,
        sum_noise: Gaussian | Laplace | None,
        count_noise: Gaussian | Laplace | None,
        radius: float | None = None,
        relative: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy sums and counts of the points nearest to each center.

        Parameters
        ----------
        centers : ndarray of shape (R, k, d), int64
            Released or public centers on the grid, one set per replicate.
        sum_noise, count_noise : Gaussian, Laplace or None
            Both of one kind. None for exact answers.
        radius : float, optional
            In half-widths of the domain: points farther than this from their nearest center are
            left out.
        relative : bool, default=False
            Sum ``x - center`` instead of ``x``; needs a radius, which then bounds what one record
            adds.

        Returns
        -------
        sums : ndarray of shape (R, k, d), int64
            In grid steps.
        counts : ndarray of shape (R, k), int64
            In units of 2**-16 records.

        Raises
        ------
        DisclosureError
            If exact answers are requested under a ledger.
        BudgetExceeded
            If the release costs more than is left.
        ValueError
            If the centers are not on the grid or the query is ill-posed; nothing is charged or
            drawn then.

        Notes
        -----
        One record lies in one cell, so the cost of the query is that of its most expensive cell.
        Under zero-out or add-remove adjacency it changes that cell's count by 1 and its sum by at
        most the radius (relative) or sqrt(d) (absolute) in L2, sqrt(d) times as much in L1.
        """
        self._check_sums_and_counts(centers, radius, relative, sum_noise, count_noise)
        if sum_noise is None or count_noise is None:
            self._refuse_disclosure("sums_and_counts")
            key = None
        else:
            key = self._charge_sums_and_counts(radius, relative, sum_noise, count_noise)
        sums, counts = self._exact_sums_and_counts(centers, radius, relative)
        return self._release(sums, counts * SCALE, sum_noise, count_noise, key)

    def counts_and_bounded_sums(
        self,
        centers: np.ndarray,
        *,
        count_noise: Laplace,
        sum_noise: BoundedLaplace,
        origin: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy counts of the points nearest to each center, then noisy sums bounded by them.

        Parameters
        ----------
        centers : ndarray of shape (R, k, d), int64
        count_noise : Laplace
        sum_noise : BoundedLaplace
            Per coordinate; its sensitivity must cover the distance from ``origin`` to the domain's
            far end.
        origin : ndarray of shape (d,), int64
            Subtracted from each point, in grid steps.

        Returns
        -------
        counts : ndarray of shape (R, k), int64
            In units of 2**-16 records, mirrored at one half so that they are positive.
        sums : ndarray of shape (R, k, d), int64
            In grid steps; each between its count times the domain's ends.

        Notes
        -----
        One record lies in one cell: it changes its count by 1, each coordinate of its sum by at
        most the sensitivity.
        """
        self._check_sums_and_counts(centers, None, False, count_noise, count_noise)
        farthest = SCALE + np.abs(origin).max()
        if sum_noise.sensitivity < farthest:
            raise ValueError(f"sensitivity={sum_noise.sensitivity} must be at least {farthest}")
        cost = SCALE / count_noise.scale + self.n_features * sum_noise.epsilon
        details = {"count_scale": count_noise.scale / SCALE, "sum_epsilon": sum_noise.epsilon}
        key = self._charge("counts_and_bounded_sums", sum_noise.name, epsilon=cost, details=details)
        exact_sums, exact_counts = self._exact_sums_and_counts(centers, None, False)

        # Release the counts; mirror those below one half, which would make empty intervals.
        counts = count_noise.add(exact_counts * SCALE, self._streams, (*key, "counts"))
        counts = np.where(counts < SCALE // 2, SCALE - counts, counts)

        # Release the sums about the origin, between the noisy count times the ends of the domain.
        records = counts[:, :, None] / SCALE
        lower = records * (-SCALE - origin)
        upper = records * (SCALE - origin)
        shifted = exact_sums - exact_counts[:, :, None] * origin
        sums = sum_noise.add(shifted, lower, upper, self._streams, (*key, "sums"))
        return counts, sums

    def _check_sums_and_counts(
        self,
        centers: np.ndarray,
        radius: float | None,
        relative: bool,
        sum_noise: Gaussian | Laplace | None,
        count_noise: Gaussian | Laplace | None,
    ) -> None:
        """Refuse a query of sums and counts that is ill-posed, before it is charged."""
        # Relative sums about centers between grid points would show the exact count in their
        # fractional parts.
        if not np.issubdtype(centers.dtype, np.integer) or len(centers) != self.n_replicates:
            raise ValueError(
                f"centers must be grid integers for {self.n_replicates} replicates, got "
                f"{centers.dtype} of shape {centers.shape}; release them through snap_centers"
            )
        if radius is not None and not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite, or None")
        if relative and radius is None:
            raise ValueError(
                "relative sums need a radius: without one a record's contribution is not bounded"
            )
        if type(sum_noise) is not type(count_noise):
            raise ValueError(
                f"sum_noise and count_noise must be of one kind, got {sum_noise} and {count_noise}"
            )
        if sum_noise is not None and self._ledger is None:
            raise ValueError("noise needs a ledger to be charged to, and this curator has none")

    def _charge_sums_and_counts(
        self,
        radius: float | None,
        relative: bool,
        sum_noise: Gaussian | Laplace,
        count_noise: Gaussian | Laplace,
    ) -> StreamKey:
        """Charge the release and return its stream key."""
        sum_radius = radius if relative else None
        sum_sensitivity = sum_sensitivity_of(self.n_features, sum_radius, sum_noise.norm)
        sum_cost = sum_sensitivity * SCALE / sum_noise.scale
        count_cost = SCALE / count_noise.scale
        mu = math.hypot(sum_cost, count_cost) if sum_noise.norm == 2 else 0.0
        epsilon = math.fsum((sum_cost, count_cost)) if sum_noise.norm == 1 else 0.0
        details = {
            "sum_scale": sum_noise.scale / SCALE,
            "count_scale": count_noise.scale / SCALE,
            "sum_sensitivity": sum_sensitivity,
            "count_sensitivity": 1.0,
            "radius": radius,
        }
        return self._charge(
            "sums_and_counts", sum_noise.name, mu=mu, epsilon=epsilon, details=details
        )

    def _release(
        self,
        sums: np.ndarray,
        counts: np.ndarray,
        sum_noise: Gaussian | Laplace | None,
        count_noise: Gaussian | Laplace | None,
        key: StreamKey | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add noise to exact sums and counts; None of either noise releases them exactly.

        Overridden where a curator holds only a part of the points.
        """
        if sum_noise is None or count_noise is None or key is None:
            return sums, counts
        return noisy_sums_and_counts(sums, counts, sum_noise, count_noise, self._streams, key)

    def _exact_sums_and_counts(
        self, centers: np.ndarray, radius: float | None, relative: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Exact sums (R, k, d), in grid steps, and counts (R, k), in records."""
        limit = None if radius is None else math.floor((radius * SCALE) ** 2)
        sums, counts = sums_and_counts(self._shards[0], centers, limit)
        for shard in self._shards[1:]:
            shard_sums, shard_counts = sums_and_counts(shard, centers, limit)
            sums += shard_sums
            counts += shard_counts
        if relative:
            sums = sums - counts[:, :, None] * centers
        return sums, counts

    def grid_counts(self, intervals: int, noise: Gaussian | Laplace) -> np.ndarray:
        """Noisy numbers of points in all cells of a public grid.

        Parameters
        ----------
        intervals : int
            Number of equal intervals per feature, at least 1.
        noise : Gaussian or Laplace

        Returns
        -------
        ndarray of shape (R, intervals, ..., intervals), int64
            One axis per feature, in units of 2**-16 records. Interval i of m goes from -1 + 2 i / m
            to -1 + 2 (i + 1) / m in half-widths of the domain.

        Notes
        -----
        One record lies in one cell and changes its count by 1.
        """
        if self._ledger is None:
            raise ValueError(
                "grid_counts needs a ledger to be charged to, and this curator has none"
            )
        shape = (intervals,) * self.n_features
        if intervals < 1 or math.prod(shape) > MAX_CELLS:
            raise ValueError(
                f"intervals={intervals} must be at least 1 and, in {self.n_features} features, "
                f"make at most {MAX_CELLS} cells; take fewer, or a method for more features"
            )
        details = {
            "count_scale": noise.scale / SCALE,
            "count_sensitivity": 1.0,
            "intervals": intervals,
        }
        key = self._charge("grid_counts", noise.name, details=details, **noise.cost(SCALE))

        # Count the points of each cell; the domain's upper end belongs to the last interval.
        counts = np.zeros(math.prod(shape), np.int64)
        for shard in self._shards:
            steps = shard.rows.astype(np.int64) + SCALE
            positions = np.minimum(steps * intervals // (2 * SCALE), intervals - 1)
            cells = np.ravel_multi_index(tuple(positions.T), shape)
            counts += np.bincount(cells, minlength=len(counts))

        exact = np.broadcast_to(counts.reshape(shape) * SCALE, (self.n_replicates, *shape))
        return noise.add(exact, self._streams, key)

    def whole(self) -> PartitionTree:
        """Return the points of the only replicate as one cell, to be counted and summed."""
        self._check_supported("whole")
        return PartitionTree.whole(self._shards, self._streams, self._charge)

    def partition(self, grid: BoxGrid) -> PartitionTree:
        """Return a tree over the points of the only replicate, to be split on a public grid.

        See :class:`pkm.privacy.tree.PartitionTree` for the queries on its cells.
        """
        self._check_supported("partition")
        return PartitionTree.by_features(self._shards, grid, self._streams, self._charge)

    def hyperplanes(self, normals: np.ndarray, origin: np.ndarray) -> PartitionTree:
        """Return a tree over the points of the only replicate, to be split by public hyperplanes.

        Parameters
        ----------
        normals : ndarray of shape (m, d), int64
            Entries of at most 2**20 in size.
        origin : ndarray of shape (d,), int64
            Released or public point of the domain that all hyperplanes contain, in grid steps.

        Returns
        -------
        PartitionTree
            To be split by feature 0 .. m - 1; points on the side that the normal points to go to
            the second part.
        """
        self._check_supported("hyperplanes")
        return PartitionTree.by_hyperplanes(
            self._shards, normals, origin, self._streams, self._charge
        )

    def projection(self, matrix: np.ndarray, length: float) -> ProjectedPoints:
        """Project the points of the only replicate by a public matrix into the unit ball.

        Parameters
        ----------
        matrix : ndarray of shape (m, d), int64
            Small enough that products are exact.
        length : float
            Projected points are divided by it and pulled into the unit ball.

        Returns
        -------
        ProjectedPoints
            With the queries on them.
        """
        self._check_supported("projection")
        return ProjectedPoints(self._shards, matrix, length, self._streams, self._charge)

    def hashed_points(self, radius: float) -> HashedPoints:
        """Pull the points of the only replicate into a public ball around the domain's midpoint.

        Parameters
        ----------
        radius : float
            In half-widths of the domain; sqrt(d) leaves all points where they are.

        Returns
        -------
        HashedPoints
            With the queries on them.
        """
        self._check_supported("hashed_points")
        return HashedPoints(self._shards, self.n_points, radius, self._streams, self._charge)

    def gap_percentile(self, percent: float, epsilon: float) -> float:
        """Percentile of the gaps between neighboring values, averaged over features rank by rank.

        Parameters
        ----------
        percent : float
            Between 0 and 100.
        epsilon : float
            What the DPM paper charges for it (Algorithm 2 and Lemma 1).

        Returns
        -------
        float
            In half-widths of the domain.

        Notes
        -----
        Not private for two or more features: a record shifts the ranks of different features
        differently, and the claimed rank sensitivity of 2 does not hold. The charge carries that
        flaw.
        """
        self._check_supported("gap_percentile")
        flaw = "F-13" if self.n_features > 1 else ""
        key = self._charge("gap_percentile", "exponential", epsilon=epsilon, flaw=flaw)
        gaps = averaged_gaps(tuple(self._shards))

        # Draw an interval between neighboring gaps by the exponential mechanism, block by block:
        # the largest of exponent plus Gumbel variate wins.
        target_rank = percent / 100 * (self.n_points - 1)
        best = -math.inf
        lower = 0.0
        length = 2.0 * SCALE
        for first in range(0, self.n_points, GAP_BLOCK):
            last = min(first + GAP_BLOCK, self.n_points)
            edges = _gap_edges(gaps, first, last)
            lengths = np.maximum(np.diff(edges), 0.0)
            # The weight of an interval is its length times exp(epsilon / 4 * utility): the claimed
            # sensitivity of a rank is 2.
            utility = -np.abs(np.arange(first, last) - target_rank)
            with np.errstate(divide="ignore"):
                exponents = epsilon / 4 * utility + np.log(lengths)
            variates = self._streams.gumbel((*key, "interval", first), exponents.shape)[0]
            noisy = exponents + variates
            winner = int(noisy.argmax())
            if noisy[winner] > best:
                best = noisy[winner]
                lower = edges[winner]
                length = lengths[winner]

        # Draw a uniform value inside the interval.
        fraction = float(self._streams.uniform((*key, "inside"), (1,))[0, 0])
        return float(lower + fraction * length) / SCALE

    def _check_supported(self, query: str) -> None:
        """Refuse a query that needs a ledger and a single replicate."""
        if self._ledger is None:
            raise ValueError(f"{query} needs a ledger to be charged to, and this curator has none")
        if self.n_replicates != 1:
            raise ValueError(
                f"{query} serves one replicate at a time, not {self.n_replicates}: "
                "set batched = False"
            )

    def disclose(self) -> np.ndarray:
        """Return the points, shape (n, d), in grid steps: for methods that claim no privacy.

        Raises
        ------
        DisclosureError
            Under any privacy claim.
        """
        self._refuse_disclosure("disclose")
        return np.concatenate([shard.rows for shard in self._shards])

    def _refuse_disclosure(self, query: str) -> None:
        if self._ledger is not None:
            raise DisclosureError(
                f"{query} would return exact answers, but the method claims privacy: give it noise"
            )


def _gap_edges(gaps: np.ndarray, first: int, last: int) -> np.ndarray:
    """Ends of the intervals ``first`` .. ``last`` - 1 between neighboring gaps, in grid steps.

    Interval i lies between the i-th smallest of the n - 1 gaps and the next; the outermost ones end
    at the ends of the range, 0 and the domain's width.
    """
    edges = np.empty(last - first + 1)
    edges[1:-1] = gaps[first : last - 1]
    edges[0] = gaps[first - 1] if first > 0 else 0.0
    edges[-1] = gaps[last - 1] if last <= len(gaps) else 2.0 * SCALE
    return edges


def noisy_sums_and_counts(
    sums: np.ndarray,
    counts: np.ndarray,
    sum_noise: Gaussian | Laplace,
    count_noise: Gaussian | Laplace,
    streams: NoiseStreams,
    key: Key,
) -> tuple[np.ndarray, np.ndarray]:
    """Add noise to int64 sums (R, k, d) and counts (R, k), from separate streams."""
    noisy_sums = sum_noise.add(sums, streams, (*key, "sums"))
    noisy_counts = count_noise.add(counts, streams, (*key, "counts"))
    return noisy_sums, noisy_counts


def sum_sensitivity_of(n_features: int, radius: float | None, norm: int) -> float:
    """L1 or L2 sensitivity of a cell's sum, in half-widths: zero-out or add-remove adjacency.

    Parameters
    ----------
    n_features : int
    radius : float or None
        Radius of relative sums, in half-widths; None for sums about the domain's midpoint.
    norm : {1, 2}

    Returns
    -------
    float
    """
    if radius is None:
        return math.sqrt(n_features) if norm == 2 else float(n_features)
    return radius if norm == 2 else math.sqrt(n_features) * radius
