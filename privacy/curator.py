"""The curator: the only door to private points.

A method asks, the curator charges the ledger, answers exactly inside, adds noise, and hands out integers on the grid.
Questions are functions of public values only; an empty cell is an ordinary zero; nothing exact leaves.
"""

import math
from collections import Counter

import numpy as np

from pkm.compute import Points, averaged_gaps, sums_and_counts
from pkm.privacy.budget import Adjacency
from pkm.privacy.grid import SCALE
from pkm.privacy.hashed_points import HashedPoints
from pkm.privacy.ledger import Charge, Ledger
from pkm.privacy.mechanisms import BoundedLaplace, Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.projection import ProjectedPoints
from pkm.privacy.tree import BoxGrid, PartitionTree

GAPS_AT_ONCE = 1 << 13
MAX_CELLS = 1 << 22  # of a grid that is counted in full


class DisclosureError(PermissionError):
    """An exact answer was asked for under a privacy claim."""


class Curator:
    """Central curator for a batch of replicates.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, in one piece or in shards; answers do not depend on the split.
    ledger : Ledger or None
        None for methods that claim no privacy: they alone get exact answers.
    streams : NoiseStreams
        One stream family per replicate.
    domain : array-like of shape (2, d), optional
        Public bounds, in the data's own units, that the grid stands for. Default: -1 and 1.

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
        If a point lies off the domain, shards differ in width, or the ledger's adjacency is not zero-out, which is what
        the sensitivities here are worked out for.
    """

    def __init__(self, points, ledger: Ledger | None, streams: NoiseStreams, domain=None):
        if ledger is not None and ledger.budget.adjacency is not Adjacency.ZERO_OUT:
            raise ValueError(
                f"adjacency={ledger.budget.adjacency} is not supported by this curator: it charges what zero_out costs"
            )
        self._shards = shards_of(points)
        self._ledger = ledger
        self._streams = streams
        self._rounds = Counter()
        self.n_points = sum(shard.shape[0] for shard in self._shards)
        self.n_features = self._shards[0].shape[1]
        self.n_replicates = len(streams.seeds)
        self.seeds = streams.seeds
        self.domain = np.empty((2, self.n_features))
        self.domain[:] = [[-1.0], [1.0]] if domain is None else domain

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
            Both of one kind. None asks for exact answers.
        radius : float, optional
            In units of the domain's half-width: points farther than this from their nearest center are left out.
        relative : bool, default=False
            Sum ``x - center`` instead of ``x``; needs a radius, which then bounds what one record adds.

        Returns
        -------
        sums : ndarray of shape (R, k, d), int64
            In grid steps.
        counts : ndarray of shape (R, k), int64
            In units of 2**-16 records.

        Raises
        ------
        DisclosureError
            If exact answers are asked for under a ledger.
        BudgetExceeded
            If the release costs more than is left.
        ValueError
            If the centers are not on the grid or the query is ill-posed; nothing is charged or drawn then.

        Notes
        -----
        One record lies in one cell, so all cells together cost what the worst one does. Under zero-out or add-remove
        adjacency it changes that cell's count by 1 and its sum by at most the radius (relative) or sqrt(d) (absolute)
        in L2, sqrt(d) times as much in L1.
        """
        self._check_sums_and_counts(centers, radius, relative, sum_noise, count_noise)
        if sum_noise is None:
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
        """Noisy counts of the points nearest to each center, then sums drawn inside what those counts allow.

        Parameters
        ----------
        centers : ndarray of shape (R, k, d), int64
        count_noise : Laplace
        sum_noise : BoundedLaplace
            Per coordinate; its sensitivity must cover the distance from ``about`` to the domain's far end.
        about : ndarray of shape (d,), int64
            What is subtracted from each point, in grid steps.

        Returns
        -------
        counts : ndarray of shape (R, k), int64
            In units of 2**-16 records, mirrored at one half so that they are positive.
        sums : ndarray of shape (R, k, d), int64
            Each between its count times the domain's ends.

        Notes
        -----
        One record lies in one cell: it changes its count by 1, each coordinate of its sum by at most the sensitivity.
        """
        self._check_sums_and_counts(centers, None, False, count_noise, count_noise)
        if sum_noise.sensitivity < SCALE + np.abs(origin).max():
            raise ValueError(
                f"sensitivity={sum_noise.sensitivity} must be at least {SCALE + np.abs(origin).max()}"
            )
        details = {"count_scale": count_noise.scale / SCALE, "sum_epsilon": sum_noise.epsilon}
        cost = SCALE / count_noise.scale + self.n_features * sum_noise.epsilon
        key = self._charge("counts_and_bounded_sums", sum_noise.name, epsilon=cost, details=details)
        sums, exact = self._exact_sums_and_counts(centers, None, False)
        counts = count_noise.add(exact * SCALE, self._streams, (*key, "counts"))
        counts = np.where(counts < SCALE // 2, SCALE - counts, counts)
        records = counts[:, :, None] / SCALE
        lower, upper = records * (-SCALE - origin), records * (SCALE - origin)
        return counts, sum_noise.add(
            sums - exact[:, :, None] * origin, lower, upper, self._streams, (*key, "sums")
        )

    def _check_sums_and_counts(self, centers, radius, relative, sum_noise, count_noise) -> None:
        # Relative sums about centers between grid points would carry the exact count in their fractions.
        if not np.issubdtype(centers.dtype, np.integer) or len(centers) != self.n_replicates:
            raise ValueError(
                f"centers must be grid integers for {self.n_replicates} replicates, got {centers.dtype} of shape "
                f"{centers.shape}; release them through snap_centers"
            )
        if radius is not None and not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite, or None")
        if relative and radius is None:
            raise ValueError(
                "relative sums need a radius: without one a record's share is not bounded"
            )
        if type(sum_noise) is not type(count_noise):
            raise ValueError(
                f"sum_noise and count_noise must be of one kind, got {sum_noise} and {count_noise}"
            )
        if sum_noise is not None and self._ledger is None:
            raise ValueError("noise needs a ledger to be charged to, and this curator has none")

    def _charge_sums_and_counts(self, radius, relative, sum_noise, count_noise) -> tuple[str, int]:
        """Charge the release and return its stream key."""
        sum_sensitivity = sum_sensitivity_of(
            self.n_features, radius if relative else None, sum_noise.norm
        )
        shares = (sum_sensitivity * SCALE / sum_noise.scale, SCALE / count_noise.scale)
        cost = (
            {"mu": math.hypot(*shares)} if sum_noise.norm == 2 else {"epsilon": math.fsum(shares)}
        )
        details = {
            "sum_scale": sum_noise.scale / SCALE,
            "count_scale": count_noise.scale / SCALE,
            "sum_sensitivity": sum_sensitivity,
            "count_sensitivity": 1.0,
            "radius": radius,
        }
        return self._charge("sums_and_counts", sum_noise.name, details=details, **cost)

    def _charge(self, label: str, mechanism: str, **cost) -> tuple[str, int]:
        """Charge a release and return its stream key."""
        key = label, self._rounds[label]
        self._ledger.charge(Charge(*key, mechanism, **cost))
        self._rounds[label] += 1
        return key

    def _release(self, sums, counts, sum_noise, count_noise, key) -> tuple[np.ndarray, np.ndarray]:
        """Make the exact answer what leaves; a curator that holds a part of the points only does it with others."""
        if sum_noise is None:
            return sums, counts
        return noisy_sums_and_counts(sums, counts, sum_noise, count_noise, self._streams, key)

    def _exact_sums_and_counts(self, centers, radius, relative) -> tuple[np.ndarray, np.ndarray]:
        limit = None if radius is None else math.floor((radius * SCALE) ** 2)
        answers = [sums_and_counts(shard, centers, limit) for shard in self._shards]
        sums = sum(answer[0] for answer in answers)
        counts = sum(answer[1] for answer in answers)
        return (sums - counts[:, :, None] * centers if relative else sums), counts

    def grid_counts(self, intervals: int, noise: Gaussian | Laplace) -> np.ndarray:
        """Noisy numbers of points in all cells of a public grid.

        Parameters
        ----------
        intervals : int
            Number of equal intervals per column, at least 1.
        noise : Gaussian or Laplace

        Returns
        -------
        ndarray of shape (R, intervals, ..., intervals), int64
            One axis per column, in units of 2**-16 records. Interval i of m reaches from -1 + 2 i / m to
            -1 + 2 (i + 1) / m in half-widths of the domain.

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
                f"intervals={intervals} must be at least 1 and, in {self.n_features} columns, make at most {MAX_CELLS}"
                " cells; take fewer, or a method for more columns"
            )
        details = {
            "count_scale": noise.scale / SCALE,
            "count_sensitivity": 1.0,
            "intervals": intervals,
        }
        key = self._charge("grid_counts", noise.name, details=details, **noise.cost(SCALE))
        counts = np.zeros(math.prod(shape), np.int64)
        for shard in self._shards:
            places = np.minimum(
                (shard.rows.astype(np.int64) + SCALE) * intervals // (2 * SCALE), intervals - 1
            )
            counts += np.bincount(
                np.ravel_multi_index(tuple(places.T), shape), minlength=len(counts)
            )
        exact = np.broadcast_to(counts.reshape(shape) * SCALE, (self.n_replicates, *shape))
        return noise.add(exact, self._streams, key)

    def whole(self) -> PartitionTree:
        """Put the points of the only replicate into one cell, to be counted and summed."""
        self._check_supported("whole")
        return PartitionTree.whole(self._shards, self._streams, self._charge)

    def partition(self, grid: BoxGrid) -> PartitionTree:
        """Sort the points of the only replicate into one cell that can be split at the boundaries of a public grid.

        See :class:`pkm.privacy.tree.PartitionTree` for what may be asked of the cells.
        """
        self._check_supported("partition")
        return PartitionTree.by_columns(self._shards, grid, self._streams, self._charge)

    def hyperplanes(self, normals: np.ndarray, about: np.ndarray) -> PartitionTree:
        """Sort the points of the only replicate into one cell that can be split by public hyperplanes.

        Parameters
        ----------
        normals : ndarray of shape (m, d), int64
            At most 2**20 in size.
        about : ndarray of shape (d,), int64
            Released or public point of the domain that all hyperplanes contain.

        Returns
        -------
        PartitionTree
            To be split by feature 0 .. m - 1; points on the side that the normal points to go to the second part.
        """
        self._check_supported("hyperplanes")
        return PartitionTree.by_hyperplanes(
            self._shards, normals, about, self._streams, self._charge
        )

    def projection(self, matrix: np.ndarray, length: float) -> ProjectedPoints:
        """See the points of the only replicate through a public projection into the unit ball.

        Parameters
        ----------
        matrix : ndarray of shape (m, d), int64
            Small enough that products are exact.
        length : float
            ProjectedPoints points are divided by it and pulled into the unit ball.

        Returns
        -------
        ProjectedPoints
            See there for what may be asked.
        """
        self._check_supported("projection")
        return ProjectedPoints(self._shards, matrix, length, self._streams, self._charge)

    def hashed_points(self, radius: float) -> HashedPoints:
        """Pull the points of the only replicate into a public ball about the middle of the domain.

        Parameters
        ----------
        radius : float
            In half-widths of the domain; sqrt(d) leaves all points where they are.

        Returns
        -------
        HashedPoints
            See there for what may be asked.
        """
        self._check_supported("hashed_points")
        return HashedPoints(self._shards, self.n_points, radius, self._streams, self._charge)

    def gap_percentile(self, percent: float, epsilon: float) -> float:
        """Percentile of the distances between neighboring values of a column, averaged over columns rank by rank.

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
        Not private for two or more columns: a record shifts the ranks of different columns differently, and the claimed
        rank sensitivity of 2 does not hold. The charge carries that flaw.
        """
        self._check_supported("gap_percentile")
        flaw = "F-13" if self.n_features > 1 else ""
        key = self._charge("gap_percentile", "exponential", epsilon=epsilon, flaw=flaw)
        gaps, n = averaged_gaps(tuple(self._shards)), self.n_points
        best, lower, length = -math.inf, 0.0, 2.0 * SCALE
        for first in range(0, n, GAPS_AT_ONCE):
            last = min(first + GAPS_AT_ONCE, n)
            # Interval i lies between the i-th smallest gap and the next; the range's ends stand at either side.
            edges = np.empty(last - first + 1)
            edges[1:-1], edges[0], edges[-1] = gaps[first : last - 1], 0.0, 2.0 * SCALE
            if first > 0:
                edges[0] = gaps[first - 1]
            if last < n:
                edges[-1] = gaps[last - 1]
            lengths = np.maximum(np.diff(edges), 0.0)
            # Its weight is its length; ranks that the claim lets move by two count with epsilon / 4.
            utility = -np.abs(np.arange(first, last) - percent / 100 * (n - 1))
            with np.errstate(divide="ignore"):
                exponents = epsilon / 4 * utility + np.log(lengths)
            noisy = exponents + self._streams.gumbel((*key, "interval", first), exponents.shape)[0]
            i = int(noisy.argmax())
            if noisy[i] > best:
                best, lower, length = noisy[i], edges[i], lengths[i]
        inside = float(self._streams.uniform((*key, "inside"), (1,))[0, 0])
        return float(lower + inside * length) / SCALE

    def _check_supported(self, query: str) -> None:
        if self._ledger is None:
            raise ValueError(f"{query} needs a ledger to be charged to, and this curator has none")
        if self.n_replicates != 1:
            raise ValueError(
                f"{query} serves one replicate at a time, not {self.n_replicates}: set batched = False"
            )

    def disclose(self) -> np.ndarray:
        """Hand out the points themselves, shape (n, d), in grid steps: for methods that claim no privacy.

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
                f"{query} asks for exact answers, but the method claims privacy: give it noise"
            )


def noisy_sums_and_counts(sums, counts, sum_noise, count_noise, streams: NoiseStreams, key: tuple):
    """Add the noise of a release of sums and counts, each from a stream of its own, to int64 values."""
    return sum_noise.add(sums, streams, (*key, "sums")), count_noise.add(
        counts, streams, (*key, "counts")
    )


def sum_sensitivity_of(n_features: int, radius: float | None, norm: int) -> float:
    """L1 or L2 sensitivity of a cell's sum, in half-widths of the domain: zero-out or add-remove adjacency.

    Parameters
    ----------
    n_features : int
    radius : float or None
        Radius of relative sums; None for sums about the domain's middle.
    norm : {1, 2}

    Returns
    -------
    float
    """
    if radius is None:
        return math.sqrt(n_features) if norm == 2 else float(n_features)
    return radius if norm == 2 else math.sqrt(n_features) * radius


def shards_of(points) -> list[Points]:
    """Lay out private points, given whole or in shards, as a list of shards of one width."""
    shards = [points] if isinstance(points, np.ndarray | Points) else list(points)
    shards = [shard if isinstance(shard, Points) else prepare(shard) for shard in shards]
    if len({shard.shape[1] for shard in shards}) != 1:
        raise ValueError(
            f"points must be one or more shards of one width, got {[shard.shape for shard in shards]}"
        )
    return shards


def prepare(points: np.ndarray) -> Points:
    """Lay out grid points for a curator, once for many runs."""
    points = np.asarray(points)
    if not np.issubdtype(points.dtype, np.integer) or points.ndim != 2:
        raise ValueError(
            f"points must be an (n, d) array of grid integers, got {points.dtype} of shape {points.shape}"
        )
    return Points.prepare(points)
