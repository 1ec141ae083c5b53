"""Base class of the curators: private shards, a ledger, noise streams, public properties."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import Points
from pkm.privacy.ledger import Charge, Ledger, StreamKey
from pkm.privacy.noise import NoiseStreams

PointsLike = np.ndarray | Points | Sequence[np.ndarray | Points]
"""Private points on the grid, whole or in shards."""


class BaseCurator:
    """The private points of a run, and the charges of its releases.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, whole or in shards.
    ledger : Ledger or None
        None for methods that claim no privacy.
    streams : NoiseStreams
        One stream family per replicate.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1 and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public.
    seeds : tuple of int
        One per replicate, for randomness that does not depend on the data.
    domain : ndarray of shape (2, d), float64
    """

    def __init__(
        self,
        points: PointsLike,
        ledger: Ledger | None,
        streams: NoiseStreams,
        domain: ArrayLike | None = None,
    ) -> None:
        self._shards = shards_of(points)
        self._ledger = ledger
        self._streams = streams
        self._rounds: Counter[str] = Counter()  # releases so far, by label
        self.n_points = sum(shard.shape[0] for shard in self._shards)
        self.n_features = self._shards[0].shape[1]
        self.n_replicates = len(streams.seeds)
        self.seeds = streams.seeds
        self.domain = np.empty((2, self.n_features))
        self.domain[:] = [[-1.0], [1.0]] if domain is None else domain

    def _charge(
        self,
        label: str,
        mechanism: str,
        *,
        mu: float = 0.0,
        epsilon: float = 0.0,
        delta: float = 0.0,
        details: Mapping[str, float | None] | None = None,
        flaw: str = "",
        group: int | None = None,
    ) -> StreamKey:
        """Charge a release and return the key of its noise stream; see :class:`Charge`."""
        assert self._ledger is not None  # releases without a ledger are refused before
        key = (label, self._rounds[label])
        charge = Charge(
            *key,
            mechanism,
            mu=mu,
            epsilon=epsilon,
            delta=delta,
            details=details or {},
            flaw=flaw,
            group=group,
        )
        self._ledger.charge(charge)
        self._rounds[label] += 1
        return key


def shards_of(points: PointsLike) -> list[Points]:
    """Convert private points, given whole or in shards, to a list of shards of one width."""
    whole = isinstance(points, np.ndarray | Points)
    shards = [
        shard if isinstance(shard, Points) else prepare(shard)
        for shard in ([points] if whole else points)
    ]
    if len({shard.shape[1] for shard in shards}) != 1:
        shapes = [shard.shape for shard in shards]
        raise ValueError(f"points must be one or more shards of one width, got {shapes}")
    return shards


def prepare(points: np.ndarray) -> Points:
    """Prepare grid points for a curator, once for many runs."""
    points = np.asarray(points)
    if not np.issubdtype(points.dtype, np.integer) or points.ndim != 2:
        raise ValueError(
            f"points must be an (n, d) array of grid integers, got {points.dtype} of shape "
            f"{points.shape}"
        )
    return Points.prepare(points)
