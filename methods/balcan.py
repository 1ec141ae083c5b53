"""Candidates from shifted cubes in a random projection, then private local search (Balcan et al., ICML 2017).

The method that Kaplan and Stemmer build on. Points are projected at random to a few dimensions and sorted into cubes of
halving sides, on several shifts; the middles of cubes with many points are the candidates, k of which are chosen by
private local search in the projection; each chosen center is recovered in all dimensions as a private mean of the
points nearest to it there.

What is ours, because the public code spends more than it says: all noise is Gaussian and composed by the ledger, cubes
that nobody lists leave by a threshold whose failure is charged, the radius is public, counts of the recovery are noisy.
The projection has orthonormal directions and candidates are lifted back into their span: squared distances to lifted
places differ from those in the projection by what the projection took from the point, the same for all candidates (but
for rounding, and for lifted places that are moved back into the domain), so that both rank sets alike. Each level of
cubes is counted on its own rather than inside the cubes that survived: a cube with many points lies in larger ones with
at least as many.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from pkm.compute import largest_packing
from pkm.compute.hashing import ENTRY, Hash, orthonormal
from pkm.methods.base import PrivateKMeans, is_integer, is_number
from pkm.methods.local_search import MOVES, private_local_search
from pkm.privacy import SCALE, Curator, PrivacyClaim, gaussian_mu
from pkm.privacy.hashed_points import HashedPoints
from pkm.privacy.noise import INITIALIZATION, child

CANDIDATE_SHARE, SEARCH_SHARE, RECOVERY_SHARE = 2 / 3, 1 / 12, 1 / 4  # of mu squared
THRESHOLD_DELTA = 0.5  # of delta, the rest is for the noise
SMALLEST_CLUSTER = 20  # a cube must have a share of 1 / (20 k) of the points
MAX_CANDIDATES = 500
FEW_FEATURES = 5  # are not projected
MAX_SWAPS = 20


@dataclass(eq=False, repr=False)
class Balcan(PrivateKMeans):
    """Cubes, local search, recovery.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, zero-out adjacency: of the squared noise cost 2/3 for cubes, 1/12 for the search, 1/4 for the recovery.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6. Half is for the thresholds, half for the Gaussian noise.
    radius : float or "auto", default="auto"
        Of the public ball about the middle of the domain that points are pulled into, in half-widths. ``auto`` is
        sqrt(d): the whole domain.
    n_dimensions : int or "auto", default="auto"
        Of the projection, at most d; ``auto`` is ln(n) / 2 rounded down, and d up to five columns.
    shifts : int, default=2
        Shifted copies of the cubes.
    depth : int, default=6
        Levels of cubes; the largest have half the ball's diameter as side.
    search_rounds : int or "auto", default="auto"
        Swaps of the local search; ``auto`` is k, at most 20.
    moves : {"all", "round_robin"}, default="all"
        Swaps that the local search draws from.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.

    Notes
    -----
    Where fewer than k cubes are large enough, packed places that ignore the data fill up the candidates.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 20_000, axis=0)
    >>> model = Balcan(n_clusters=2, epsilon=4.0, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label: ClassVar[str] = "Balcan et al."
    color: ClassVar[str] = "#8a6d1f"
    marker: ClassVar[str] = "h"
    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": PrivacyClaim("approximate")}
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "moves": MOVES,
        "secure": (True, False),
    }
    batched: ClassVar[bool] = False

    _: KW_ONLY
    epsilon: float = 1.0
    delta: float | str = "auto"
    radius: float | str = "auto"
    n_dimensions: int | str = "auto"
    shifts: int = 2
    depth: int = 6
    search_rounds: int | str = "auto"
    moves: str = "all"
    secure: bool = False

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if self.radius != "auto" and not (is_number(self.radius) and 0 < self.radius < math.inf):
            raise ValueError(f"radius={self.radius!r} must be 'auto' or a positive finite number")
        for name in ("n_dimensions", "search_rounds"):
            value = getattr(self, name)
            if value != "auto" and not (is_integer(value) and value >= 1):
                raise ValueError(f"{name}={value!r} must be 'auto' or an integer of at least 1")
        if not (is_integer(self.shifts) and self.shifts >= 1):
            raise ValueError(f"shifts={self.shifts!r} must be an integer of at least 1")
        if not (is_integer(self.depth) and 1 <= self.depth <= 12):
            raise ValueError(f"depth={self.depth!r} must be an integer from 1 to 12")

    def dimensions(self, n_points: int, n_features: int) -> int:
        """Number of dimensions that points are projected to."""
        if self.n_dimensions != "auto":
            return min(self.n_dimensions, n_features)
        few = max(1, int(math.log(n_points) / 2))
        return n_features if n_features <= FEW_FEATURES else min(few, n_features)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        d = curator.n_features
        delta = self.resolved_delta(curator.n_points)
        mu = gaussian_mu(self.epsilon, (1 - THRESHOLD_DELTA) * delta)
        buckets = curator.hashed_points(math.sqrt(d) if self.radius == "auto" else self.radius)
        generator = np.random.default_rng(child(curator.seeds[0], INITIALIZATION))
        directions = orthonormal(generator, self.dimensions(curator.n_points, d), d)
        candidates = self._candidates(buckets, directions, mu, THRESHOLD_DELTA * delta, generator)
        rounds = (
            min(self.n_clusters, MAX_SWAPS) if self.search_rounds == "auto" else self.search_rounds
        )
        centers = private_local_search(
            buckets,
            candidates,
            self.n_clusters,
            rounds=rounds,
            mu=mu * math.sqrt(SEARCH_SHARE),
            generator=generator,
            moves=self.moves,
        )
        return self._recovered(buckets, centers, mu * math.sqrt(RECOVERY_SHARE))[None], rounds

    def _candidates(
        self, buckets: HashedPoints, directions, mu: float, delta: float, generator
    ) -> np.ndarray:
        """Middles of large cubes in the span of the directions, at most 500 and at least k: on the grid, (m, d)."""
        n, k, counted = buckets.n_points, self.n_clusters, self.shifts * self.depth
        each = mu * math.sqrt(CANDIDATE_SHARE / counted)
        # Sides are halved without a remainder, so that cubes of all levels nest.
        smallest = max(1, round(buckets.radius * SCALE * ENTRY / 2 ** (self.depth - 1)))
        found, sizes = [np.empty((0, buckets.n_features), np.int64)], [np.empty(0)]
        for _ in range(self.shifts):
            side = smallest << (self.depth - 1)
            shift = generator.integers(0, side, len(directions))
            for _ in range(self.depth):
                hashing = Hash(directions, shift % side, side)
                codes, counts = buckets.histogram(
                    hashing, mu=each, delta=delta / counted, min_count=n / (SMALLEST_CLUSTER * k)
                )
                found.append(buckets.into_ball(hashing.middles(codes)))
                sizes.append(counts)
                side //= 2
        places, counts = np.concatenate(found), np.concatenate(sizes)
        places = places[np.argsort(-counts, kind="stable")[:MAX_CANDIDATES]]
        source = np.random.RandomState(int(generator.integers(2**32)))
        packed = largest_packing(source, k, len(directions), "bisection") * (
            buckets.radius / math.sqrt(len(directions))
        )
        fill = buckets.into_ball(packed @ (directions / ENTRY) * SCALE)
        return np.concatenate([places, fill[: max(0, k - len(places))]])

    def _recovered(self, buckets: HashedPoints, centers: np.ndarray, mu: float) -> np.ndarray:
        """Noisy means of the points nearest to each center, about it."""
        radius = buckets.radius
        parts = math.sqrt(buckets.n_features), 0.5
        sum_mu, count_mu = (mu * math.sqrt(part / sum(parts)) for part in parts)
        sums, counts = buckets.sums_and_counts(centers, radius, sum_mu=sum_mu, count_mu=count_mu)
        moved = centers + sums / np.maximum(counts, 1.0)[:, None]
        return buckets.into_ball(np.where(counts[:, None] < 1, centers, moved))
