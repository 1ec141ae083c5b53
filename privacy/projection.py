"""Private points under a public projection into the unit ball, with noisy queries on them.

Maximum cover (Gupta, Ligett, McSherry, Roth, Talwar, SODA 2010; used for clustering by Nguyen,
Chaturvedi, Xu, AAAI 2021): grid points are picked one after the other, each with probability
proportional to ``exp(weight * c)`` where c is the number of points within its radius that no
earlier pick has covered.

Cost of a cover, zero-out or add-remove adjacency, whatever the number of picks and grids. Let a
record be in A and not in B, and let p_i be the probability, on B and given the earlier picks, that
pick i covers it. Until it is covered, the sum of weights on A is ``1 + (exp(weight) - 1) p_i``
times that on B; afterwards all is equal. So any outcome is at most ``exp(weight)`` times as likely
on A. Conversely the ratio is at most ``exp((exp(weight) - 1) S)``, where S sums p_i over the picks
before the record is covered (the covering pick itself has a ratio of at most 1); S exceeds ln(1 /
delta) with probability at most delta, because all these picks must miss the record. Hence
``epsilon = max(weight, (exp(weight) - 1) ln(1 / delta))``, about half of the papers' constant.

Most grid points cover nothing and are never listed. A pick is drawn from a mixture with the same
distribution: every grid point weighs 1, and a grid point that covers c points weighs ``exp(weight
c) - 1`` in addition. Where only a bound on c is known, a draw by the bound is accepted with the
ratio of the two weights. All computations are in log space.
"""

import math
from collections.abc import Sequence

import numpy as np

from pkm.compute import SCALE, Points
from pkm.compute.cover import BLOCK_SIDE, Cover, log_expm1
from pkm.compute.lattice import uniform_index
from pkm.compute.unit_ball import label_sums, nearest_labels, project
from pkm.privacy.ledger import ChargeRelease
from pkm.privacy.mechanisms import Gaussian, Laplace
from pkm.privacy.noise import Key, NoiseStreams
from pkm.privacy.queries import ONE_COUNT


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
    if not 0 < weight < math.inf:
        raise ValueError(f"weight={weight} must be positive and finite")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must be in (0, 1) for a maximum cover")
    return max(weight, math.expm1(weight) * math.log(1 / delta))


def cover_weight(epsilon: float, delta: float) -> float:
    """Largest weight with which a maximum cover costs no more than (epsilon, delta).

    Examples
    --------
    >>> round(cover_epsilon(cover_weight(0.2, 1e-6), 1e-6), 12)
    0.2
    """
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon={epsilon} must be positive and finite")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must be in (0, 1) for a maximum cover")
    return min(epsilon, math.log1p(epsilon / math.log(1 / delta)))


class ProjectedPoints:
    """One replicate's points under a public projection; releases are charged first.

    Made by :meth:`pkm.privacy.Curator.projection`.

    Parameters
    ----------
    shards : sequence of Points
        Private; answers do not depend on the shards.
    matrix : ndarray of shape (m, d), int64
        Public: the projection, small enough that products are exact.
    length : float
        Public: projected points are divided by it and pulled into the unit ball.
    streams : NoiseStreams
        Of one replicate.
    charge : callable
        Charges a release and returns its stream key.

    Raises
    ------
    ValueError
        If the matrix does not fit.
    """

    def __init__(
        self,
        shards: Sequence[Points],
        matrix: np.ndarray,
        length: float,
        streams: NoiseStreams,
        charge: ChargeRelease,
    ) -> None:
        self._shards = shards
        self._streams = streams
        self._charge = charge
        self._projected = [project(shard, matrix, length) for shard in shards]
        self.n_dimensions, self.n_features = matrix.shape

    def maximum_cover(
        self, scales: Sequence[tuple[float, float]], picks: int, *, weight: float, delta: float
    ) -> np.ndarray:
        """Pick grid points that cover many points.

        Parameters
        ----------
        scales : sequence of (side, radius)
            Public grids, each with the distance up to which its grid points cover; a record that is
            covered on one grid is left out on all later ones.
        picks : int
            Number of grid points per grid; a grid point can be picked twice.
        weight : float
            The contribution of a covered point to the exponent.
        delta : float
            Probability with which the guarantee may fail.

        Returns
        -------
        ndarray of shape (len(scales) * picks, m), float64
            Grid points of the unit ball, in the order of the picks.
        """
        if picks < 1 or not scales:
            raise ValueError(
                f"picks={picks} and the number of scales, {len(scales)}, must be at least 1"
            )
        details = {"weight": weight, "count_sensitivity": 1.0}
        epsilon = cover_epsilon(weight, delta)
        key = self._charge(
            "maximum_cover", "exponential", epsilon=epsilon, delta=delta, details=details
        )

        # On each grid, draw the picks one after the other; each takes the points it covers out.
        points = np.concatenate(self._projected)
        centers = []
        for scale, (side, radius) in enumerate(scales):
            cover = Cover(points, side, radius, weight)
            for i in range(picks):
                grid_point = draw_cover(cover, weight, self._streams, (*key, scale, i))
                centers.append(grid_point * side)
                cover.remove(cover.covered(grid_point))
            points = cover.remaining()
        return np.array(centers)

    def counts(self, centers: np.ndarray, noise: Laplace | Gaussian) -> np.ndarray:
        """Noisy numbers of points nearest to each center in the projection.

        Parameters
        ----------
        centers : ndarray of shape (k, m), float64
            Public or released, in the unit ball's coordinates.
        noise : Laplace or Gaussian

        Returns
        -------
        ndarray of shape (k,), int64
            In units of 2**-16 records.

        Notes
        -----
        One record lies in one cell: all counts together have sensitivity 1 under zero-out
        adjacency.
        """
        self._check_centers(centers)
        details = {"count_scale": noise.scale / SCALE, "count_sensitivity": 1.0}
        key = self._charge(
            "projected_counts", noise.name, details=details, **noise.cost(ONE_COUNT)._asdict()
        )
        exact = np.zeros(len(centers), np.int64)
        for projected in self._projected:
            exact += np.bincount(nearest_labels(projected, centers), minlength=len(centers))
        return noise.draw(exact[None] * SCALE, self._streams, key)[0]

    def sums_and_counts(
        self, centers: np.ndarray, *, sum_noise: Gaussian, count_noise: Gaussian
    ) -> tuple[np.ndarray, np.ndarray]:
        """Noisy sums, in all features, and counts of the points nearest to each center.

        Parameters
        ----------
        centers : ndarray of shape (k, m), float64
            Public or released, in the unit ball's coordinates.
        sum_noise, count_noise : Gaussian

        Returns
        -------
        sums : ndarray of shape (k, d), int64
            About the domain's midpoint, in grid steps.
        counts : ndarray of shape (k,), int64
            In units of 2**-16 records.

        Notes
        -----
        A record changes one cell: its count by 1 and its sum by at most the domain's half-diagonal,
        sqrt(d).
        """
        self._check_centers(centers)
        sum_sensitivity = math.sqrt(self.n_features)
        mu = math.hypot(sum_sensitivity * SCALE / sum_noise.scale, SCALE / count_noise.scale)
        details = {
            "sum_scale": sum_noise.scale / SCALE,
            "count_scale": count_noise.scale / SCALE,
            "sum_sensitivity": sum_sensitivity,
            "count_sensitivity": 1.0,
        }
        key = self._charge("projected_sums_and_counts", sum_noise.name, mu=mu, details=details)
        exact_sums, exact_counts = self._exact_sums_and_counts(centers)
        sums = sum_noise.draw(exact_sums[None], self._streams, (*key, "sums"))[0]
        counts = count_noise.draw(exact_counts[None] * SCALE, self._streams, (*key, "counts"))[0]
        return sums, counts

    def _exact_sums_and_counts(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums = np.zeros((len(centers), self.n_features), np.int64)
        counts = np.zeros(len(centers), np.int64)
        for shard, projected in zip(self._shards, self._projected, strict=True):
            nearest = nearest_labels(projected, centers)
            shard_sums, shard_counts = label_sums(shard, nearest, len(centers))
            sums += shard_sums
            counts += shard_counts
        return sums, counts

    def _check_centers(self, centers: np.ndarray) -> None:
        if centers.ndim != 2 or centers.shape[1] != self.n_dimensions or not len(centers):
            raise ValueError(
                f"centers must have shape (k, {self.n_dimensions}) with k >= 1, got {centers.shape}"
            )
        if not np.isfinite(centers).all():
            raise ValueError("centers must be finite")


def draw_cover(cover: Cover, weight: float, streams: NoiseStreams, key: Key) -> np.ndarray:
    """Draw one grid point with probability proportional to ``exp(weight * points covered)``.

    Parameters
    ----------
    cover : Cover
    weight : float
        Not larger than the one that the cover was made for.
    streams : NoiseStreams
        Of one replicate.
    key : tuple

    Returns
    -------
    ndarray of shape (m,), int64
    """
    # Log weights of the mixture's components: all grid points at 1; the counted ones, by count; the
    # blocks of grid points with only a bound on their counts, by bound.
    lattice = cover.lattice
    block_size = BLOCK_SIDE**lattice.dimensions
    counts, multiplicities = cover.positive_counts()
    log_counted = np.log(multiplicities) + log_expm1(weight * counts)
    log_bounded = np.log(cover.n_bounded) + math.log(block_size) + log_expm1(weight * cover.bounds)
    log_weights = np.concatenate([[math.log(lattice.size)], log_counted, log_bounded])

    attempt = 0
    while True:
        # Draw a component by the Gumbel-max trick.
        attempt_key = (*key, attempt)
        noisy = log_weights + streams.gumbel((*attempt_key, "kind"), log_weights.shape)[0]
        component = int(np.argmax(noisy))

        # Draw a grid point of the component.
        uniforms = _uniforms(streams, (*attempt_key, "place"), max(3, lattice.dimensions))
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
        n_covered = len(cover.covered(grid_point))
        if n_covered:
            log_weight, log_bound = log_expm1(np.array([n_covered, cover.bounds[i]]) * weight)
            if uniforms[2] <= math.exp(log_weight - log_bound):
                return grid_point
        attempt += 1


def _uniforms(streams: NoiseStreams, key: Key, n: int) -> np.ndarray:
    """Uniforms in [0, 1] of one replicate, by the distribution function of Gumbel variates."""
    variates = streams.gumbel(key, (n,))[0]
    return np.exp(-np.exp(-variates))
