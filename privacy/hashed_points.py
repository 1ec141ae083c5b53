"""Private points in a public ball, and what Kaplan and Stemmer's algorithm and private local search ask about them.

Two sets are at hand: all points, and the narrowed set of those that were farthest from released centers. A record that
is there or not (zero-out adjacency) changes the narrowed set by one replacement, because where it leaves the next
farthest moves up; so what is asked of the narrowed set is calibrated to a replacement. The object keeps count of that
itself: a method names what a release may cost, and gets the noise that this takes.

What a record changes, in records and half-widths of the domain:

=====================  ========================  =================================
question               all points                narrowed set
=====================  ========================  =================================
``histogram``          one bucket by 1           two buckets by 1, hence sqrt(2)
``sums``               one sum by the radius     one sum by 2 radii
``counts``             one count by 1            (asked of all points only)
``sums_and_counts``    one sum by the radius,    (asked of all points only)
                       one count by 1
``choose_*``           all costs up, by at most  (asked of all points only)
                       the squared diameter
=====================  ========================  =================================
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pkm.compute import SCALE, Points, inertia, labels
from pkm.compute.hashing import Hash, clip_norms, clipped_sums, farthest_points, swap_costs
from pkm.privacy.mechanisms import Gaussian
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.selection import Exponential, selection_epsilon
from pkm.privacy.stability_histogram import StabilityHistogram


class HashedPoints:
    """One replicate's points, pulled into a public ball about the middle of the domain.

    Made by :meth:`pkm.privacy.Curator.buckets`. Every release is charged ``mu`` before anything is drawn, whatever the data
    let it find; all noise is Gaussian, but for the choices.

    Parameters
    ----------
    shards : sequence of Points
        Private; answers depend neither on the split nor on the order.
    n_points : int
        Public number of records, those that contribute nothing included.
    radius : float
        Of the ball, in half-widths of the domain. Points outside are moved to its surface (to the grid point next to it
        inside); at sqrt(d) none is.
    streams : NoiseStreams
        Of one replicate.
    charge : callable
        ``charge(label, mechanism, **cost)`` charges a release and returns its stream key.

    Attributes
    ----------
    radius : float
        At most sqrt(d).
    n_points, n_restricted, n_features : int
        Public: records, most of them that the narrowed set has, columns.
    """

    def __init__(
        self,
        shards: Sequence[Points],
        n_points: int,
        radius: float,
        streams: NoiseStreams,
        charge: Callable[..., tuple],
    ):
        self.n_points = self.n_restricted = n_points
        self.n_features = shards[0].shape[1]
        if not 0 < radius < math.inf:
            raise ValueError(
                f"radius={radius} of the public ball must be positive and finite, in half-widths"
            )
        self.radius = min(radius, math.sqrt(self.n_features))
        self._all = [_into_ball(shard, self.radius) for shard in shards]
        self._restricted, self._is_restricted = self._all, False
        self._streams, self._charge = streams, charge
        self._hashed: tuple[Hash, list[np.ndarray]] | None = None

    def histogram(
        self, hashing: Hash, *, mu: float, delta: float, min_count: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """HashedPoints of the narrowed set whose noisy counts pass a threshold.

        Parameters
        ----------
        hashing : Hash
            Public.
        mu : float
            Cost of the noise.
        delta : float
            Probability that the threshold may fail: charged beside it.
        min_count : float, default=0
            A higher public threshold, in records.

        Returns
        -------
        codes : ndarray of shape (b,), int64
            HashedPoints by their numbers under the hash, in increasing order.
        counts : ndarray of shape (b,), float64
            Noisy, in records.
        """
        noise = self.histogram_noise(mu, delta)
        details = {"count_scale": noise.stddev, "count_sensitivity": self.count_sensitivity}
        key = self._charge("bucket_counts", Gaussian.name, mu=mu, delta=delta, details=details)
        codes, counts = np.unique(np.concatenate(self._codes(hashing)), return_counts=True)
        kept, noisy = noise.release(counts, self._streams, key, min_count)
        return codes[kept], noisy

    def histogram_noise(self, mu: float, delta: float) -> StabilityHistogram:
        """Noise and threshold of a histogram at that cost, as things stand: public."""
        return histogram_noise(mu, delta, self._is_restricted)

    @property
    def count_sensitivity(self) -> float:
        """L2 sensitivity of the bucket counts of the narrowed set, as things stand: public."""
        return math.sqrt(2) if self._is_restricted else 1.0

    def sums(
        self, hashing: Hash, codes: np.ndarray, about: np.ndarray, radius: float, *, mu: float
    ) -> np.ndarray:
        """Noisy sums of the points of some buckets of the narrowed set, each about a reference.

        Parameters
        ----------
        hashing : Hash
        codes : ndarray of shape (b,), int64
            Released, increasing; may be empty, the release is paid for all the same.
        about : ndarray of shape (b, d), int64
            Public or released, in the domain.
        radius : float
            In half-widths: differences that are longer are shortened to it.
        mu : float
            Cost.

        Returns
        -------
        ndarray of shape (b, d), float64
            In grid steps.
        """
        self._check_places(about)
        if about.shape[0] != len(codes) or (np.diff(codes) <= 0).any():
            raise ValueError(
                f"codes must be {len(about)} increasing numbers, one for each reference"
            )
        if not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite")
        sensitivity = (2 if self._is_restricted else 1) * radius
        details = {"sum_scale": sensitivity / mu, "sum_sensitivity": sensitivity, "radius": radius}
        key = self._charge("bucket_sums", Gaussian.name, mu=mu, details=details)
        exact = self._exact_sums(hashing, codes, about, radius)
        noise = Gaussian(sensitivity * SCALE / mu)
        return noise.add(exact[None], self._streams, key)[0].astype(np.float64)

    def _exact_sums(
        self, hashing: Hash, codes: np.ndarray, about: np.ndarray, radius: float
    ) -> np.ndarray:
        sums = np.zeros(about.shape, np.int64)
        if len(codes):
            for shard, found in zip(self._restricted, self._codes(hashing), strict=True):
                place = np.minimum(np.searchsorted(codes, found), len(codes) - 1)
                sums += clipped_sums(
                    shard, np.where(codes[place] == found, place, -1), about, radius * SCALE
                )
        return sums

    def filter_farthest(self, centers: np.ndarray, share: float) -> None:
        """Narrow the set to the records that are farthest from their nearest center.

        Parameters
        ----------
        centers : ndarray of shape (k, d), int64
            Released, in the domain.
        share : float
            Part of the records of the set that stay, in (0, 1): rounded down, of their public number.

        Notes
        -----
        Ties go to the points first in lexicographic order, so that the set is a function of the points as a multiset.
        Nothing is released. With one record more or less in the set before, or one replaced, the set after differs by
        one replacement at most: but for the record itself, both hold the farthest ones that the smaller takes.
        """
        self._check_places(centers)
        if not 0 < share < 1:
            raise ValueError(f"share={share} of the records to keep must be in (0, 1)")
        self.n_restricted = math.floor(share * self.n_restricted)
        marks = farthest_points(self._restricted, centers, self.n_restricted)
        self._restricted = [
            Points.prepare(shard.rows[mark].astype(np.int64))
            for shard, mark in zip(self._restricted, marks, strict=True)
        ]
        self._is_restricted, self._hashed = True, None

    def counts(self, centers: np.ndarray, *, mu: float) -> np.ndarray:
        """Noisy numbers of all points nearest to each center, in records: shape (k,), float64.

        Parameters
        ----------
        centers : ndarray of shape (k, d), int64
            Released, in the domain. Ties go to the lower index.
        mu : float
            Cost: a record changes one count by 1.
        """
        self._check_places(centers)
        key = self._charge(
            "nearest_counts",
            Gaussian.name,
            mu=mu,
            details={"count_scale": 1 / mu, "count_sensitivity": 1.0},
        )
        exact = sum(
            np.bincount(labels(shard, centers[None])[0], minlength=len(centers))
            for shard in self._all
        )
        return Gaussian(SCALE / mu).add(exact[None] * SCALE, self._streams, key)[0] / SCALE

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
        self._check_places(centers)
        if not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite")
        details = {
            "sum_scale": radius / sum_mu,
            "count_scale": 1 / count_mu,
            "sum_sensitivity": radius,
            "count_sensitivity": 1.0,
            "radius": radius,
        }
        key = self._charge(
            "nearest_sums_and_counts",
            Gaussian.name,
            mu=math.hypot(sum_mu, count_mu),
            details=details,
        )
        sums, counts = self._exact_sums_and_counts(centers, radius)
        noisy = Gaussian(radius * SCALE / sum_mu).add(sums[None], self._streams, (*key, "sums"))[0]
        sizes = Gaussian(SCALE / count_mu).add(
            counts[None] * SCALE, self._streams, (*key, "counts")
        )[0]
        return noisy.astype(np.float64), sizes / SCALE

    def _exact_sums_and_counts(
        self, centers: np.ndarray, radius: float
    ) -> tuple[np.ndarray, np.ndarray]:
        sums, counts = np.zeros(centers.shape, np.int64), np.zeros(len(centers), np.int64)
        for shard in self._all:
            nearest = labels(shard, centers[None])[0].astype(np.int64)
            sums += clipped_sums(shard, nearest, centers, radius * SCALE)
            counts += np.bincount(nearest, minlength=len(centers))
        return sums, counts

    def choose_swap(
        self, candidates: np.ndarray, current: np.ndarray, slots: Sequence[int], *, mu: float
    ) -> tuple[int, int]:
        """Choose a swap by the exponential mechanism: the smaller the cost of all points after it, the likelier.

        Parameters
        ----------
        candidates : ndarray of shape (m, d), int64
            Released, in the domain and in the ball.
        current : ndarray of shape (k,), int64
            Indices of the candidates that are chosen now.
        slots : sequence of int
            Positions in ``current`` that may be given up, in increasing order.
        mu : float
            Cost.

        Returns
        -------
        slot, candidate : int
            The position to give up and the index of the candidate to put there.
        """
        self._check_places(candidates)
        slots = np.asarray(slots, np.int64)
        charged = self._charge_choice("swaps", candidates, mu)
        costs = sum(
            swap_costs(shard, candidates, np.asarray(current, np.int64), slots)
            for shard in self._all
        )
        slot, candidate = divmod(self._draw(costs.ravel().tolist(), *charged), len(candidates))
        return int(slots[slot]), candidate

    def choose_set(self, candidates: np.ndarray, sets: np.ndarray, *, mu: float) -> int:
        """Choose one of several sets of candidates by the exponential mechanism, by the cost of all points.

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
        self._check_places(candidates)
        charged = self._charge_choice("sets", candidates, mu)
        costs = [
            sum(each)
            for each in zip(*(inertia(shard, candidates[sets]) for shard in self._all), strict=True)
        ]
        return self._draw(costs, *charged)

    def cost_range(self, candidates: np.ndarray) -> float:
        """Most that a record can add to the cost of a set of candidates, in squared half-widths: public.

        No point is farther from a candidate than the ball's far side, or than the far corner of the domain.
        """
        y = np.abs(candidates) / SCALE
        across = (self.radius + np.sqrt((y * y).sum(axis=1))) ** 2
        return float(np.minimum(across, ((1 + y) ** 2).sum(axis=1)).max())

    def _charge_choice(
        self, label: str, candidates: np.ndarray, mu: float
    ) -> tuple[tuple, Exponential, float]:
        mechanism, most = Exponential(selection_epsilon(mu)), self.cost_range(candidates)
        # The mechanism's exponents run over its epsilon at most; the range of the costs depends on released places,
        # hence stays out of the charge, which is the same for all replicates.
        key = self._charge(label, "exponential", mu=mu, details={"range": mechanism.epsilon})
        return key, mechanism, most * SCALE**2

    def _draw(self, costs: list[int], key: tuple, mechanism: Exponential, most: float) -> int:
        least = min(costs)
        # Costs are integers, their differences are exact, so the exponents are good to a part in 2**52.
        exponents = np.array([-(mechanism.epsilon / most) * float(cost - least) for cost in costs])
        return mechanism.choose(exponents, float(self._streams.uniform(key, (1,))[0, 0]))

    def _codes(self, hashing: Hash) -> list[np.ndarray]:
        """Codes of the narrowed set's points; those of the last hash are kept."""
        if self._hashed is None or self._hashed[0] is not hashing:
            self._hashed = hashing, [hashing.codes(shard) for shard in self._restricted]
        return self._hashed[1]

    def _check_places(self, places: np.ndarray) -> None:
        if (
            not np.issubdtype(places.dtype, np.integer)
            or places.ndim != 2
            or places.shape[1] != self.n_features
        ):
            raise ValueError(
                f"places must be grid integers of shape (m, {self.n_features}), got {places.dtype} of shape "
                f"{places.shape}; release them through into_ball"
            )
        if np.abs(places).max(initial=0) > SCALE:
            raise ValueError("places must lie in the domain; release them through into_ball")

    def into_ball(self, places: np.ndarray) -> np.ndarray:
        """Round places (m, d), in grid steps, to grid points of the ball and the domain: int64."""
        return np.clip(clip_norms(places, self.radius * SCALE), -SCALE, SCALE)


def histogram_noise(mu: float, delta: float, restricted: bool) -> StabilityHistogram:
    """Noise and threshold of a histogram of cost (mu, delta), of all points or of a narrowed set."""
    return (
        StabilityHistogram(math.sqrt(2) / mu, delta, 2)
        if restricted
        else StabilityHistogram(1 / mu, delta)
    )


def _into_ball(shard: Points, radius: float) -> Points:
    # At sqrt(d) no point of the domain is outside, though the root's square may be rounded to less than d.
    if radius >= math.sqrt(shard.shape[1]) or not (shard.squared_norms > (radius * SCALE) ** 2).any():
        return shard
    return Points.prepare(clip_norms(shard.rows, radius * SCALE))
