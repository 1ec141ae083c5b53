"""The curator: the only door to private points.

A method asks, the curator charges the ledger, answers exactly inside, adds noise, and hands out integers on the grid.
Questions are functions of public values only; an empty cell is an ordinary zero; nothing exact leaves.
"""

import math
from collections import Counter

import numpy as np

from compute import Points, sums_and_counts
from privacy.budget import Adjacency
from privacy.grid import SCALE
from privacy.ledger import Charge, Ledger
from privacy.mechanisms import Gaussian, Laplace
from privacy.noise import NoiseStreams


class Disclosure(PermissionError):
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

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public (n is public under zero-out adjacency).
    seeds : tuple of int
        One per replicate, for randomness that does not depend on the data.

    Raises
    ------
    ValueError
        If a point lies off the domain, shards differ in width, or the ledger's adjacency is not zero-out, which is what
        the sensitivities here are worked out for.
    """

    def __init__(self, points, ledger: Ledger | None, streams: NoiseStreams):
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

    def sums_and_counts(
        self,
        centres: np.ndarray,
        *,
        sum_noise: Gaussian | Laplace | None,
        count_noise: Gaussian | Laplace | None,
        radius: float | None = None,
        relative: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy sums and counts of the points nearest to each centre.

        Parameters
        ----------
        centres : ndarray of shape (R, k, d), int64
            Released or public centres on the grid, one set per replicate.
        sum_noise, count_noise : Gaussian, Laplace or None
            Both of one kind. None asks for exact answers.
        radius : float, optional
            In units of the domain's half-width: points farther than this from their nearest centre are left out.
        relative : bool, default=False
            Sum ``x - centre`` instead of ``x``; needs a radius, which then bounds what one record adds.

        Returns
        -------
        sums : ndarray of shape (R, k, d), int64
            In grid steps.
        counts : ndarray of shape (R, k), int64
            In units of 2**-16 records.

        Raises
        ------
        Disclosure
            If exact answers are asked for under a ledger.
        BudgetExceeded
            If the release costs more than is left.
        ValueError
            If the centres are not on the grid or the query is ill-posed; nothing is charged or drawn then.

        Notes
        -----
        One record lies in one cell, so all cells together cost what the worst one does. Under zero-out or add-remove
        adjacency it changes that cell's count by 1 and its sum by at most the radius (relative) or sqrt(d) (absolute)
        in L2, sqrt(d) times as much in L1.
        """
        self._check_sums_and_counts(centres, radius, relative, sum_noise, count_noise)
        if sum_noise is None:
            self._refuse_disclosure("sums_and_counts")
            sums, counts = self._exact_sums_and_counts(centres, radius, relative)
            return sums, counts * SCALE
        key = self._charge_sums_and_counts(radius, relative, sum_noise, count_noise)
        sums, counts = self._exact_sums_and_counts(centres, radius, relative)
        return (
            sum_noise.add(sums, self._streams, (*key, "sums")),
            count_noise.add(counts * SCALE, self._streams, (*key, "counts")),
        )

    def _check_sums_and_counts(self, centres, radius, relative, sum_noise, count_noise) -> None:
        # Relative sums about centres between grid points would carry the exact count in their fractions.
        if not np.issubdtype(centres.dtype, np.integer) or len(centres) != self.n_replicates:
            raise ValueError(
                f"centres must be grid integers for {self.n_replicates} replicates, got {centres.dtype} of shape "
                f"{centres.shape}; release them through snap_centres"
            )
        if radius is not None and not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite, or None")
        if relative and radius is None:
            raise ValueError("relative sums need a radius: without one a record's share is not bounded")
        if type(sum_noise) is not type(count_noise):
            raise ValueError(f"sum_noise and count_noise must be of one kind, got {sum_noise} and {count_noise}")
        if sum_noise is not None and self._ledger is None:
            raise ValueError("noise needs a ledger to be charged to, and this curator has none")

    def _charge_sums_and_counts(self, radius, relative, sum_noise, count_noise) -> tuple[str, int]:
        """Charge the release and return its stream key."""
        sum_sensitivity = sum_sensitivity_of(self.n_features, radius if relative else None, sum_noise.norm)
        shares = (sum_sensitivity * SCALE / sum_noise.scale, SCALE / count_noise.scale)
        cost = {"mu": math.hypot(*shares)} if sum_noise.norm == 2 else {"epsilon": math.fsum(shares)}
        details = {
            "sum_scale": sum_noise.scale / SCALE,
            "count_scale": count_noise.scale / SCALE,
            "sum_sensitivity": sum_sensitivity,
            "count_sensitivity": 1.0,
            "radius": radius,
        }
        label = "sums_and_counts"
        key = label, self._rounds[label]
        self._ledger.charge(Charge(*key, sum_noise.name, details=details, **cost))
        self._rounds[label] += 1
        return key

    def _exact_sums_and_counts(self, centres, radius, relative) -> tuple[np.ndarray, np.ndarray]:
        limit = None if radius is None else math.floor((radius * SCALE) ** 2)
        answers = [sums_and_counts(shard, centres, limit) for shard in self._shards]
        sums = sum(answer[0] for answer in answers)
        counts = sum(answer[1] for answer in answers)
        return (sums - counts[:, :, None] * centres if relative else sums), counts

    def disclose(self) -> np.ndarray:
        """Hand out the points themselves, shape (n, d), in grid steps: for methods that claim no privacy.

        Raises
        ------
        Disclosure
            Under any privacy claim.
        """
        self._refuse_disclosure("disclose")
        return np.concatenate([shard.rows for shard in self._shards])

    def _refuse_disclosure(self, query: str) -> None:
        if self._ledger is not None:
            raise Disclosure(f"{query} asks for exact answers, but the method claims privacy: give it noise")


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
        raise ValueError(f"points must be one or more shards of one width, got {[shard.shape for shard in shards]}")
    return shards


def prepare(points: np.ndarray) -> Points:
    """Lay out grid points for a curator, once for many runs."""
    points = np.asarray(points)
    if not np.issubdtype(points.dtype, np.integer) or points.ndim != 2:
        raise ValueError(f"points must be an (n, d) array of grid integers, got {points.dtype} of shape {points.shape}")
    return Points.prepare(points)
