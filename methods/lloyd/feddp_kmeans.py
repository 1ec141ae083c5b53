"""FedDP-KMeans: starting centers from public points that private records choose among.

Scott, Lampert and Saulpic (2025). The server's public points may have another
distribution than the private records. Noisy second moments of the records give a
subspace, and noisy counts the number of records nearest to each public point there.
Weighted k-means on the public points is post-processing. The centers are recovered in
all features as noisy means, and a noisy Lloyd step moves them. The paper's federation
is a secure sum; here a curator adds the noise to it.
"""

import math
from typing import Literal

import numpy as np

from pkm.compute import DIRECTION_SCALE
from pkm.methods.baselines.public_data import PublicDataMethod
from pkm.methods.constraints import AUTO, Integer
from pkm.methods.lloyd.noisy_steps import noisy_lloyd_step
from pkm.methods.lloyd.pe_means import LLOYD_RADIUS, PublicBall, cluster_by_counts
from pkm.methods.schedule import Schedule, counting_noise, plan_release
from pkm.privacy import (
    Curator,
    Gaussian,
    NearestCounts,
    NearestSumsAndCounts,
    PrivacyClaim,
    SecondMoments,
    gaussian_mu,
)

# Shares of mu squared; without a subspace the others keep their proportions.
SUBSPACE_SHARE = 0.30
WEIGHT_SHARE = 0.15
RECOVERY_SHARE = 0.30
LLOYD_SHARE = 0.25
MIN_WEIGHT = 5.0  # smallest noisy count of a public point in the k-means (the paper's)
MIN_COUNT_DEVIATIONS = 3.0  # smallest divisor of a sum, in standard deviations


def leading_directions(matrix: np.ndarray, m: int) -> np.ndarray:
    """Orthonormal directions (m, d) of the largest eigenvalues of a symmetric matrix.

    Parameters
    ----------
    matrix : ndarray of shape (d, d), float64
    m : int

    Returns
    -------
    ndarray of float64
        In multiples of 2**-16, the largest entry of each direction positive. Rounding
        errors of linear algebra libraries then have no effect.

    Examples
    --------
    >>> leading_directions(np.diag([1.0, 9.0, 4.0]), 2).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    _, vectors = np.linalg.eigh(matrix)  # in increasing order of the eigenvalues
    directions = vectors.T[::-1][:m]
    largest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(m), largest])
    steps = np.rint(signs[:, None] * directions * DIRECTION_SCALE)
    return steps / DIRECTION_SCALE + 0.0


class FedDPKMeans(PublicDataMethod):
    """Weighted k-means on public points in a private subspace, then two Lloyd steps.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    public_data : ndarray of shape (m, d), optional
        Points that need no protection, in the units of the bounds, at least as many as
        clusters. Points outside of the bounds are clipped, or refused with
        ``clip=False``. Default: 20 uniform points of the domain for each cluster, which
        ignore the data; other methods are then a better choice.
    epsilon : float, default=1.0
        Total, zero-out adjacency. Records are protected, public points are not.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    dimensions : int or "auto", default="auto"
        Dimensions of the subspace; without effect if there are no more features.
        ``auto`` is ``n_clusters``.
    n_init : int, default=10
        Starts of the k-means on the public points; they cost no privacy.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    PublicKMeans : The public points alone, at no cost of privacy.
    PEMeans : Candidates that evolve, without public points.

    Notes
    -----
    The shares of mu squared are 0.3 for the second moments, 0.15 for the counts, 0.3
    for the recovery and 0.25 for the Lloyd step. Without a subspace the others keep
    their proportions.

    Differences to the paper and its code:

    - Noise is Gaussian throughout, and there is one budget. They give each of four
      steps an epsilon of its own.
    - The sensitivity of second moments is the squared norm of a record. Their code
      takes the norm (F-18).
    - A sum is divided by at least three standard deviations of its count's noise.
    - Differences to centers are clipped to 0.8 k^(-1/d) of the ball's radius, except in
      the recovery from a subspace.
    - In the recovery every record is assigned to the center nearest in the subspace.
      They leave out records that are not clearly nearer to one center than to others.
    - The unit of privacy is a record, not a client.

    References
    ----------
    Scott, J., Lampert, C. H. and Saulpic, D. (2025). Differentially private federated
    k-means clustering with server-side data. ICML, PMLR 267, 53757-53790.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> public = np.array([[-0.4, 0.1], [0.6, 0.6], [0.0, -0.9]])
    >>> model = FedDPKMeans(2, public_data=public, bounds=(-1, 1), random_state=1)
    >>> sorted(model.fit(X).cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "FedDP-KMeans"
    color = "#01665e"
    marker = "d"
    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {
        "dimensions": AUTO | Integer(1),
        "n_init": Integer(1),
    }
    batched = False  # each replicate has a subspace of its own
    supports_chunks = True
    benefits_from_ball = True

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    dimensions: int | Literal["auto"] = "auto"
    n_init: int = 10

    def resolved_dimensions(self) -> int:
        """Number of dimensions of the subspace."""
        return self.n_clusters if self.dimensions == "auto" else self.dimensions

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        shares = [
            (SecondMoments, SUBSPACE_SHARE),
            (NearestCounts, WEIGHT_SHARE),
            (NearestSumsAndCounts, RECOVERY_SHARE),
            (NearestSumsAndCounts, LLOYD_SHARE),
        ]
        if n_features <= self.resolved_dimensions():
            del shares[0]
        total = math.fsum(share for _, share in shares)
        mu = gaussian_mu(self.epsilon, self.resolved_delta(n_points))
        releases = [
            plan_release(query, Gaussian, mu=mu * math.sqrt(share / total))
            for query, share in shares
        ]
        return Schedule(*releases)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`pkm.methods.PrivateKMeans.cluster`."""
        k = self.n_clusters
        d = curator.n_features
        releases = self.schedule(curator.n_points, d).releases
        *projection, weighting, recovery, step = releases
        points = curator.clipped_points(curator.radius)
        generator = curator.public_rng()
        public = points.clip(self.public_positions(curator, generator))
        public = public.astype(np.float64)

        # The subspace of the largest eigenvalues of noisy second moments.
        basis = None
        if projection:
            noise = counting_noise(projection[0])
            moments = points.release(SecondMoments(), moments=noise)["moments"]
            matrix = SecondMoments.matrix(moments)
            basis = leading_directions(matrix, self.resolved_dimensions())
            public = public @ basis.T
        ball = PublicBall(points, basis)

        # Noisy numbers of the records nearest to each public point there.
        weights = ball.count_nearest(public, weighting.mu)

        # Weighted k-means on the public points with large counts: post-processing.
        kept = weights >= MIN_WEIGHT
        starts = cluster_by_counts(public, weights, kept, k, self.n_init, generator)

        # Recover the centers as noisy means in all features of the records
        # nearest in the subspace.
        eta = points.radius * min(1.0, LLOYD_RADIUS / k ** (1 / d))
        radius = eta if basis is None else points.radius
        centers = ball.lift(starts)
        min_count = MIN_COUNT_DEVIATIONS
        centers = noisy_lloyd_step(points, centers, radius, recovery.mu, min_count)

        # A Lloyd step.
        return noisy_lloyd_step(points, centers, eta, step.mu, min_count)[None], 2
