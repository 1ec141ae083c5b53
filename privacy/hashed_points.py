"""Private points in a public ball, with the queries of Kaplan-Stemmer and of local search.

There are two sets: all points, and the restricted set of those that were farthest from released
centers. A record that is present or not (zero-out adjacency) changes the restricted set by one
replacement, because without it the next farthest is in the set; so queries on the restricted
set are calibrated to a replacement. :class:`HashedPoints` keeps track of that: a method chooses the
cost of a release, from which the noise follows.

What a record changes, in records and half-widths of the domain:

=====================  ========================  =================================
query                  all points                restricted set
=====================  ========================  =================================
``histogram``          one bucket by 1           two buckets by 1, hence sqrt(2)
``sums``               one sum by the radius     one sum by 2 radii
``counts``             one count by 1            (all points only)
``sums_and_counts``    one sum by the radius,    (all points only)
                       one count by 1
``choose_*``           all costs up, by at most  (all points only)
                       the squared diameter
=====================  ========================  =================================
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pkm.compute import SCALE, Points, inertia, labels
from pkm.compute.hashing import Hash, clip_norms, clipped_sums, farthest_points, swap_costs
from pkm.privacy.ledger import ChargeRelease, StreamKey
from pkm.privacy.mechanisms import Gaussian
from pkm.privacy.noise import Key, NoiseStreams
from pkm.privacy.selection import Exponential, ScoreRange, selection_epsilon
from pkm.privacy.stability_histogram import StabilityHistogram


class _Choice(NamedTuple):
    """A choice by the exponential mechanism that has been charged."""

    key: StreamKey
    mechanism: Exponential
    max_change: float  # that a record can make to a cost, in squared grid steps


class HashedPoints:
    """One replicate's points, pulled into a public ball around the midpoint of the domain.

    Made by :meth:`pkm.privacy.Curator.hashed_points`. Every release is charged ``mu`` before
    anything is drawn, whatever the data; all noise is Gaussian, but for the choices.

    Parameters
    ----------
    shards : sequence of Points
        Private; answers depend neither on the shards nor on the order.
    n_points : int
        Public number of records, those that contribute nothing included.
    radius : float
        Of the ball, in half-widths of the domain. Points outside are moved to its surface (to the
        grid point next to it inside); at sqrt(d) no point is outside.
    streams : NoiseStreams
        Of one replicate.
    charge : callable
        Charges a release and returns its stream key.

    Attributes
    ----------
    radius : float
        At most sqrt(d).
    n_points, n_restricted, n_features : int
        Public: number of records, largest number of records of the restricted set, number of
        features.
    """

    def __init__(
        self,
        shards: Sequence[Points],
        n_points: int,
        radius: float,
        streams: NoiseStreams,
        charge: ChargeRelease,
    ) -> None:
        if not 0 < radius < math.inf:
            raise ValueError(
                f"radius={radius} of the public ball must be positive and finite, in half-widths"
            )
        self.n_points = n_points
        self.n_restricted = n_points
        self.n_features = shards[0].shape[1]
        self.radius = min(radius, math.sqrt(self.n_features))
        self._all = [_into_ball(shard, self.radius) for shard in shards]
        self._restricted = self._all
        self._is_restricted = False
        self._streams = streams
        self._charge = charge
        self._cached_codes: tuple[Hash, list[np.ndarray]] | None = None

    def histogram(
        self, hashing: Hash, *, mu: float, delta: float, min_count: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Buckets of the restricted set whose noisy counts pass a threshold.

        Parameters
        ----------
        hashing : Hash
            Public.
        mu : float
            Cost of the noise.
        delta : float
            Probability that the threshold may fail: charged in addition.
        min_count : float, default=0
            A higher public threshold, in records.

        Returns
        -------
        codes : ndarray of shape (b,), int64
            Buckets by their numbers under the hash, in increasing order.
        counts : ndarray of shape (b,), float64
            Noisy, in records.
        """
        noise = self.histogram_noise(mu, delta)
        details = {"count_scale": noise.stddev, "count_sensitivity": self.count_sensitivity}
        key = self._charge("bucket_counts", Gaussian.name, mu=mu, delta=delta, details=details)
        codes, counts = np.unique(np.concatenate(self._codes(hashing)), return_counts=True)
        selected, noisy = noise.release(counts, self._streams, key, min_count)
        return codes[selected], noisy

    def histogram_noise(self, mu: float, delta: float) -> StabilityHistogram:
        """Noise and threshold of a histogram of the restricted set, of cost (mu, delta): public."""
        return histogram_noise(mu, delta, self._is_restricted)

    @property
    def count_sensitivity(self) -> float:
        """L2 sensitivity of the bucket counts of the restricted set, in records: public."""
        return math.sqrt(2) if self._is_restricted else 1.0

    def sums(
        self, hashing: Hash, codes: np.ndarray, origins: np.ndarray, radius: float, *, mu: float
    ) -> np.ndarray:
        """Noisy sums of the points of released buckets of the restricted set, each about an origin.

        Parameters
        ----------
        hashing : Hash
        codes : ndarray of shape (b,), int64
            Released, increasing; may be empty, the release is charged all the same.
        origins : ndarray of shape (b, d), int64
            Public or released, in the domain, in grid steps.
        radius : float
            In half-widths: differences that are longer are shortened to it.
        mu : float
            Cost.

        Returns
        -------
        ndarray of shape (b, d), float64
            In grid steps.
        """
        self._check_positions(origins)
        if origins.shape[0] != len(codes) or (np.diff(codes) <= 0).any():
            raise ValueError(
                f"codes must be {len(origins)} increasing numbers, one for each origin"
            )
        if not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite")
        sensitivity = (2 if self._is_restricted else 1) * radius
        details = {"sum_scale": sensitivity / mu, "sum_sensitivity": sensitivity, "radius": radius}
        key = self._charge("bucket_sums", Gaussian.name, mu=mu, details=details)
        exact = self._exact_sums(hashing, codes, origins, radius)
        noise = Gaussian(sensitivity * SCALE / mu)
        return noise.draw(exact[None], self._streams, key)[0].astype(np.float64)

    def _exact_sums(
        self, hashing: Hash, codes: np.ndarray, origins: np.ndarray, radius: float
    ) -> np.ndarray:
        sums = np.zeros(origins.shape, np.int64)
        if not len(codes):
            return sums
        for shard, shard_codes in zip(self._restricted, self._codes(hashing), strict=True):
            # Position of each point's bucket among the codes, -1 if it is not one of them.
            positions = np.minimum(np.searchsorted(codes, shard_codes), len(codes) - 1)
            buckets = np.where(codes[positions] == shard_codes, positions, -1)
            sums += clipped_sums(shard, buckets, origins, radius * SCALE)
        return sums

    def filter_farthest(self, centers: np.ndarray, fraction: float) -> None:
        """Restrict the set to the records that are farthest from their nearest center.

        Parameters
        ----------
        centers : ndarray of shape (k, d), int64
            Released, in the domain.
        fraction : float
            Of the restricted set's public number of records to keep, in (0, 1); the number is
            rounded down.

        Notes
        -----
        Ties go to the points first in lexicographic order, so that the set is a function of the
        points as a multiset. Nothing is released. If two sets differ by one record, or by one
        replacement, their restrictions differ by at most one replacement: but for the record
        itself, both hold the farthest ones that the smaller takes.
        """
        self._check_positions(centers)
        if not 0 < fraction < 1:
            raise ValueError(f"fraction={fraction} of the records to keep must be in (0, 1)")
        self.n_restricted = math.floor(fraction * self.n_restricted)
        masks = farthest_points(self._restricted, centers, self.n_restricted)
        self._restricted = [
            Points.prepare(shard.rows[mask].astype(np.int64))
            for shard, mask in zip(self._restricted, masks, strict=True)
        ]
        self._is_restricted = True
        self._cached_codes = None

    def counts(self, centers: np.ndarray, *, mu: float) -> np.ndarray:
        """Noisy numbers of all points nearest to each center, in records: shape (k,), float64.

        Parameters
        ----------
        centers : ndarray of shape (k, d), int64
            Released, in the domain. Ties go to the lower index.
        mu : float
            Cost: a record changes one count by 1.
        """
        self._check_positions(centers)
        details = {"count_scale": 1 / mu, "count_sensitivity": 1.0}
        key = self._charge("nearest_counts", Gaussian.name, mu=mu, details=details)
        exact = np.zeros(len(centers), np.int64)
        for shard in self._all:
            nearest = labels(shard, centers[None])[0]
            exact += np.bincount(nearest, minlength=len(centers))
        noise = Gaussian(SCALE / mu)
        return noise.draw(exact[None] * SCALE, self._streams, key)[0] / SCALE

    def sums_and_counts(
        self, centers: np.ndarray, radius: float, *, sum_mu: float, count_mu: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy sums about each center of all points nearest to it, and their noisy numbers.

        Parameters
        ----------
        centers : ndarray of shape (k, d), int64
            Released, in the domain.
        radius : float
            In half-widths: differences that are longer are shortened to it.
        sum_mu, count_mu : float
            Costs; together ``hypot(sum_mu, count_mu)``.

        Returns
        -------
        sums : ndarray of shape (k, d), float64
            In grid steps.
        counts : ndarray of shape (k,), float64
            In records.
        """
        self._check_positions(centers)
        if not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite")
        details = {
            "sum_scale": radius / sum_mu,
            "count_scale": 1 / count_mu,
            "sum_sensitivity": radius,
            "count_sensitivity": 1.0,
            "radius": radius,
        }
        mu = math.hypot(sum_mu, count_mu)
        key = self._charge("nearest_sums_and_counts", Gaussian.name, mu=mu, details=details)
        exact_sums, exact_counts = self._exact_sums_and_counts(centers, radius)
        sum_noise = Gaussian(radius * SCALE / sum_mu)
        count_noise = Gaussian(SCALE / count_mu)
        sums = sum_noise.draw(exact_sums[None], self._streams, (*key, "sums"))[0]
        counts = count_noise.draw(exact_counts[None] * SCALE, self._streams, (*key, "counts"))[0]
        return sums.astype(np.float64), counts / SCALE

    def _exact_sums_and_counts(
        self, centers: np.ndarray, radius: float
    ) -> tuple[np.ndarray, np.ndarray]:
        sums = np.zeros(centers.shape, np.int64)
        counts = np.zeros(len(centers), np.int64)
        for shard in self._all:
            nearest = labels(shard, centers[None])[0].astype(np.int64)
            sums += clipped_sums(shard, nearest, centers, radius * SCALE)
            counts += np.bincount(nearest, minlength=len(centers))
        return sums, counts

    def choose_swap(
        self,
        candidates: np.ndarray,
        current: np.ndarray,
        slots: Sequence[int] | np.ndarray,
        *,
        mu: float,
    ) -> tuple[int, int]:
        """Choose a swap by the exponential mechanism: low cost of all points after it is likely.

        Parameters
        ----------
        candidates : ndarray of shape (m, d), int64
            Released, in the domain and in the ball.
        current : ndarray of shape (k,), int64
            Indices of the current centers among the candidates.
        slots : sequence of int
            Positions in ``current`` that may be replaced, in increasing order.
        mu : float
            Cost.

        Returns
        -------
        slot, candidate : int
            The position to replace and the index of the candidate to put there.
        """
        self._check_positions(candidates)
        slots = np.asarray(slots, np.int64)
        current = np.asarray(current, np.int64)
        choice = self._charge_choice("swaps", candidates, mu)
        costs = [swap_costs(shard, candidates, current, slots) for shard in self._all]
        total_costs = np.sum(costs, axis=0).ravel()
        drawn = self._draw(total_costs.tolist(), *choice)
        slot, candidate = divmod(drawn, len(candidates))
        return int(slots[slot]), candidate

    def choose_set(self, candidates: np.ndarray, sets: np.ndarray, *, mu: float) -> int:
        """Choose a set of candidates by the exponential mechanism: low cost is likely.

        Parameters
        ----------
        candidates : ndarray of shape (m, d), int64
        sets : ndarray of shape (s, k), int64
            Indices of candidates.
        mu : float
            Cost.

        Returns
        -------
        int
            Index of the set.
        """
        self._check_positions(candidates)
        choice = self._charge_choice("sets", candidates, mu)
        costs_of_shards = [inertia(shard, candidates[sets]) for shard in self._all]
        costs = [sum(costs) for costs in zip(*costs_of_shards, strict=True)]
        return self._draw(costs, *choice)

    def cost_range(self, candidates: np.ndarray) -> float:
        """Bound on what a record adds to the cost of a set of candidates, in squared half-widths.

        Public. No point is farther from a candidate than the ball's far side, or than the far
        corner of the domain.
        """
        y = np.abs(candidates) / SCALE
        norms = np.sqrt((y * y).sum(axis=1))
        to_far_side = (self.radius + norms) ** 2
        to_far_corner = ((1 + y) ** 2).sum(axis=1)
        return float(np.minimum(to_far_side, to_far_corner).max())

    def _charge_choice(self, label: str, candidates: np.ndarray, mu: float) -> _Choice:
        mechanism = Exponential(selection_epsilon(mu))
        # The mechanism's exponents have its epsilon as their range; the range of the costs depends
        # on released centers, hence stays out of the charge, which is the same for all replicates.
        key = self._charge(label, "exponential", mu=mu, details={"range": mechanism.epsilon})
        return _Choice(key, mechanism, self.cost_range(candidates) * SCALE**2)

    def _draw(
        self,
        costs: Sequence[int],
        key: Key,
        mechanism: Exponential,
        max_change: float,
    ) -> int:
        """Draw an index of the costs, in squared grid steps, by the exponential mechanism."""
        smallest = min(costs)
        # Costs are integers, their differences are exact, so the exponents are good to a part in
        # 2**52.
        weight = -(mechanism.epsilon / max_change)
        exponents = np.array([weight * float(cost - smallest) for cost in costs])
        change = ScoreRange(mechanism.epsilon, one_sided=True)
        return int(mechanism.draw([exponents], self._streams, key, change)[0, 0])

    def _codes(self, hashing: Hash) -> list[np.ndarray]:
        """Codes of the restricted set's points; those of the last hash are cached."""
        if self._cached_codes is not None and self._cached_codes[0] is hashing:
            return self._cached_codes[1]
        codes = [hashing.codes(shard) for shard in self._restricted]
        self._cached_codes = (hashing, codes)
        return codes

    def _check_positions(self, positions: np.ndarray) -> None:
        is_integer = np.issubdtype(positions.dtype, np.integer)
        if not is_integer or positions.ndim != 2 or positions.shape[1] != self.n_features:
            raise ValueError(
                f"positions must be grid integers of shape (m, {self.n_features}), got "
                f"{positions.dtype} of shape {positions.shape}; release them through into_ball"
            )
        if np.abs(positions).max(initial=0) > SCALE:
            raise ValueError("positions must lie in the domain; release them through into_ball")

    def into_ball(self, positions: np.ndarray) -> np.ndarray:
        """Round positions (m, d), in grid steps, to int64 grid points of ball and domain."""
        return np.clip(clip_norms(positions, self.radius * SCALE), -SCALE, SCALE)


def histogram_noise(mu: float, delta: float, restricted: bool) -> StabilityHistogram:
    """Noise and threshold of a histogram of cost (mu, delta)."""
    if restricted:
        return StabilityHistogram(math.sqrt(2) / mu, delta, 2)
    return StabilityHistogram(1 / mu, delta)


def _into_ball(shard: Points, radius: float) -> Points:
    """Pull points outside a ball to its surface; radius in half-widths."""
    # At sqrt(d) no point of the domain is outside, though the root's square may be rounded to less
    # than d.
    holds_domain = radius >= math.sqrt(shard.shape[1])
    if holds_domain or not (shard.squared_norms > (radius * SCALE) ** 2).any():
        return shard
    return Points.prepare(clip_norms(shard.rows, radius * SCALE))
