"""FedDP-KMeans: starting centers from public points that private records choose among.

Scott, Lampert and Saulpic (2025). Public points, of the server in their paper, need not
follow the distribution of the private ones. Records say which directions matter (noisy
second moments), and how many of them are near each public point there (noisy counts);
weighted k-means on the public points then costs nothing. The centers are recovered in
all features as noisy means, and a noisy Lloyd step moves them. Their federation is a
secure sum: here a curator adds the noise to it.
"""

import math
from typing import Literal

import numpy as np

from pkm.compute import DIRECTION_SCALE
from pkm.methods.baselines.public_data import PublicDataMethod
from pkm.methods.constraints import AUTO, Integer
from pkm.methods.lloyd.noisy_steps import noisy_lloyd_step
from pkm.methods.lloyd.pe_means import LLOYD_RADIUS, PublicBall, cluster_kept
from pkm.methods.schedule import Schedule, count_noise, plan_release
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
LEAST_WEIGHT = 5.0  # records that a public point must stand for, as in the paper
LEAST_DEVIATIONS = 3.0  # of the noise, that a count must exceed to divide a sum


def leading_directions(matrix: np.ndarray, m: int) -> np.ndarray:
    """Orthonormal directions (m, d) of the largest eigenvalues of a symmetric matrix.

    Parameters
    ----------
    matrix : ndarray of shape (d, d), float64
    m : int

    Returns
    -------
    ndarray of float64
        In multiples of 2**-16, the largest entry of each direction positive, so that
        the last bits of a linear algebra library decide nothing.

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
    public_data : ndarray of shape (m, d), optional
        Points that are no part of the private ones and need no protection, in the units
        of the bounds, at least as many as clusters. They are moved into the bounds as
        private points are, and refused outside of them with ``clip=False``. Default: 20
        uniform points of the domain for each cluster, which say nothing about the data:
        without public points other methods are a better choice.
    epsilon : float, default=1.0
        Total, zero-out adjacency. Records are protected, public points are not.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    dimensions : int or "auto", default="auto"
        Of the subspace; with no more features nothing is projected. ``auto`` is
        ``n_clusters``.
    n_init : int, default=10
        Starts of the k-means on the public points; they cost no privacy.
    bounds, clip, random_state, secure
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    Of mu squared 0.3 are for the second moments, 0.15 for the counts, 0.3 for the
    recovery, 0.25 for the Lloyd step; where nothing is projected the others share in
    these proportions.

    It differs from the paper and its code in these points. Noise is Gaussian throughout
    and the budget is one, where they give each of four steps an epsilon of its own. The
    noise of second moments is for the squared norm of a record, which is what it adds
    (their code takes the norm: F-18). Sums are divided by no count below its noise, and
    differences to centers are clipped to 0.8 k^(-1/d) of the ball's radius but in the
    recovery from a subspace. In the recovery every record counts for the center nearest
    in the subspace; they leave out records that are not clearly nearer to one than to
    any other. The unit of privacy is a record, not a client.

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
        **PublicDataMethod.constraints,
        "dimensions": AUTO | Integer(1),
        "n_init": Integer(1),
    }
    batched = False  # each replicate has a subspace of its own
    supports_chunks = True
    supports_ball = True

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

        # The subspace of the largest eigenvalues of the noisy second moments.
        basis = None
        if projection:
            noise = count_noise(projection[0])
            moments = points.release(SecondMoments(), moments=noise)["moments"]
            matrix = SecondMoments.matrix(moments)
            basis = leading_directions(matrix, self.resolved_dimensions())
            public = public @ basis.T
        ball = PublicBall(points, basis)

        # Noisy numbers of the records nearest to each public point there.
        weights = ball.count_nearest(public, weighting.mu)

        # Weighted k-means of the public points that stand for enough records.
        kept = weights >= LEAST_WEIGHT
        starts = cluster_kept(public, weights, kept, k, self.n_init, generator)

        # Noisy means in all features of the records nearest in the subspace.
        near = points.radius * min(1.0, LLOYD_RADIUS / k ** (1 / d))
        radius = near if basis is None else points.radius
        centers = ball.lifted(starts)
        least = LEAST_DEVIATIONS
        centers = noisy_lloyd_step(points, centers, radius, recovery.mu, least)

        # A Lloyd step.
        return noisy_lloyd_step(points, centers, near, step.mu, least)[None], 2
