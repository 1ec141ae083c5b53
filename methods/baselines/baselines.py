"""Baselines that a useful method must beat: one center, or centers without data."""

import math
from dataclasses import field
from typing import Literal

import numpy as np

from pkm.compute.kernels.seeding import ball_packing
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import OneOf, Real
from pkm.methods.initialization import starting_centers
from pkm.methods.schedule import Schedule, counting_noise, plan_release
from pkm.privacy import (
    NO_CLAIM,
    SCALE,
    ClippedSum,
    Curator,
    Gaussian,
    Laplace,
    PrivacyClaim,
    ShellCounts,
    SumsAndCounts,
    gaussian_mu,
    snap_centers,
)

SHELL_RATIO = math.sqrt(2)  # of the radii of neighboring shells
N_SHELLS = 24  # down to a 3,000th of the domain


class DataMean(PrivateKMeans):
    """The exact mean of the points as the only center.

    Parameters
    ----------
    n_clusters : int, default=1
        Accepted and without effect.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    NoisyMean : Private, with packed centers about the mean.
    PackingCenters : Centers that ignore the data.
    """

    label = "data mean as only center"
    color = "#8c8c8c"
    marker = "x"
    claims = {"sound": NO_CLAIM}
    supports_chunks = True

    n_clusters: int = field(default=1, kw_only=False)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Sum and count all points; see :meth:`PrivateKMeans.cluster`."""
        center = np.zeros((curator.n_replicates, 1, curator.n_features), np.int64)
        answer = curator.release(SumsAndCounts(center), sums=None, counts=None)
        counts = answer["counts"][:, :, None] / SCALE
        return snap_centers(answer["sums"] / counts), 1


class NoisyMean(PrivateKMeans):
    """The noisy mean, with packed centers about it or as the only center.

    It needs little budget. Where another method is worse, that method is of no use.

    Parameters
    ----------
    n_clusters : int, default=8
        Without effect where ``spread_share`` is 0.
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6; not spent if the noise is Laplace noise.
    spread_share : float, default=0.2
        Share of the budget, in [0, 1), for the median distance of records to the
        released mean, from noisy counts of shells. The other centers are packed into
        the ball of that radius about the mean. With 0 the mean is the only center.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    DataMean : The exact mean, without privacy.
    PackingCenters : Centers that ignore the data.
    LocalMean : The mean without a trusted curator.

    Notes
    -----
    The mean is the noisy sum over the public n. All noise is Laplace, or all is
    Gaussian, whichever makes the smaller error of the mean: Laplace for few columns.
    The choice follows from public values.

    References
    ----------
    A baseline of this project. The mean is the textbook application of the Laplace and
    the Gaussian mechanism: Dwork, C. and Roth, A. (2014). The algorithmic foundations
    of differential privacy, sections 3.3 and A.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.4]], 5000, axis=0)
    >>> model = NoisyMean(1, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> model.cluster_centers_.round(2).tolist()
    [[-0.0, 0.3]]
    """

    label = "noisy mean, packing about it"
    color = "#525252"
    marker = "+"
    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {"spread_share": Real(0, 1, "[)")}
    batched = False  # shells are about a center of one replicate
    supports_chunks = True
    benefits_from_ball = True

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    spread_share: float = 0.2

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Examples
        --------
        >>> [release.mechanism for release in NoisyMean().schedule(1000, 4).releases]
        ['laplace', 'laplace']
        >>> [release.mechanism for release in NoisyMean().schedule(1000, 16).releases]
        ['gaussian', 'gaussian']
        """
        # Standard deviations of the sum: sqrt(2 d) / epsilon of Laplace, 1 / mu of
        # Gaussian.
        share = self.spread_share
        epsilon = self.epsilon
        mu = gaussian_mu(epsilon, self.resolved_delta(n_points))
        if math.sqrt(2 * n_features) / epsilon < 1 / mu:
            mean = plan_release(ClippedSum, Laplace, epsilon=(1 - share) * epsilon)
            spread = plan_release(ShellCounts, Laplace, epsilon=share * epsilon)
        else:
            mean = plan_release(ClippedSum, Gaussian, mu=mu * math.sqrt(1 - share))
            spread = plan_release(ShellCounts, Gaussian, mu=mu * math.sqrt(share))
        return Schedule(mean, spread) if share else Schedule(mean)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Release the mean and the spread; see :meth:`PrivateKMeans.cluster`."""
        n = curator.n_points
        d = curator.n_features
        mean_release, *spread_release = self.schedule(n, d).releases

        # The mean, about the midpoint of the domain. In radii of the ball a record adds
        # a vector of L2 norm 1, and of L1 norm at most sqrt(d).
        noise = counting_noise(mean_release)
        if isinstance(noise, Laplace):
            noise = Laplace(noise.scale * math.sqrt(d))
        query = ClippedSum(np.zeros(d), curator.radius)
        sums = curator.release(query, sums=noise)["sums"][0]
        mean = np.clip(sums / SCALE * curator.radius / n, -1.0, 1.0)
        if not spread_release:
            return snap_centers(mean[None, None] * SCALE), 1

        # The smallest radius about the mean with fewer than n / 2 records outside.
        radii = 2 * curator.radius / SHELL_RATIO ** np.arange(N_SHELLS)
        noise = counting_noise(spread_release[0])
        counts = curator.release(ShellCounts(mean, radii), counts=noise)["counts"][0]
        outside = np.cumsum(counts) / SCALE
        index = np.count_nonzero(np.logical_and.accumulate(outside < n / 2)[:-1])
        spread = radii[index]

        # The mean, and centers packed into the ball of that radius.
        generator = curator.public_rng()
        packed = mean + spread * ball_packing(generator, self.n_clusters - 1, d)
        centers = np.concatenate([mean[None], packed])
        return snap_centers(np.clip(centers, -1.0, 1.0) * SCALE)[None], 2


class PackingCenters(PrivateKMeans):
    """The sphere-packing starting centers, without a query to the data.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    radius_search : {"halving", "bisection"}, default="bisection"
        Search for the largest radius of spheres that can be packed into the domain:
        the first of 1, 1/2, 1/4, ... half-widths, or nearly the largest one.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    FastLloyd : Starts from these centers.
    NoisyMean : Packs the centers about a private mean.
    """

    label = "packing centers, no data"
    color = "#8c8c8c"
    marker = "+"
    claims = {"sound": NO_CLAIM}
    supports_chunks = True
    constraints = {
        "radius_search": OneOf("halving", "bisection"),
    }

    radius_search: str = "bisection"

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Pack the spheres; see :meth:`PrivateKMeans.cluster`."""
        centers = starting_centers(
            curator.public_seeds,
            self.n_clusters,
            curator.n_features,
            "packing",
            self.radius_search,
        )
        return centers, 0
