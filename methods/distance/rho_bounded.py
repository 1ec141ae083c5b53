"""Methods under rho-bounded adjacency: their base class, and a baseline."""

import math
from typing import Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.baselines.kmedian import weighted_kmedian
from pkm.methods.constraints import NONE, Integer, OneOf, Real
from pkm.methods.deltas import SOUND_DELTA
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, Budget, Charge, PrivacyClaim, gaussian_mu, snap_centers
from pkm.privacy.budget import Adjacency
from pkm.privacy.queries.moved_records import AllPoints, SortedGaussian
from pkm.privacy.rho_bounded import RhoBoundedCurator, diagonal, largest_shift

MAX_NOISED = 2.0  # half-widths: noised points are moved into [-2, 2]^d
CLAIM = PrivacyClaim("approximate", Adjacency.RHO_BOUNDED)


class RhoBoundedMethod(PrivateKMeans):
    """Base class of rho-bounded methods: common parameters, and the budget."""

    claims = {"sound": CLAIM}
    curator = RhoBoundedCurator
    batched = False
    published_delta = staticmethod(lambda n_points: SOUND_DELTA)
    constraints = {
        "rho": Real(0, unit="half-widths of the domain") | OneOf("diagonal"),
        "p": OneOf(1, 2),
        "calibration": OneOf("classical", "analytic"),
        "n_init": Integer(1),
    }

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    rho: float | Literal["diagonal"] = 0.05
    p: int = 2
    calibration: str = "classical"
    n_init: int = 1

    def budget(
        self,
        n_points: int,
        n_features: int,
    ) -> Budget:
        """Budget of one run: epsilon and delta for moves of at most rho."""
        delta = self.resolved_delta(n_points)
        rho = self.resolved_rho(n_features)
        return Budget(self.epsilon, delta, Adjacency.RHO_BOUNDED, rho)

    def resolved_rho(self, n_features: int) -> float:
        """Largest move that is protected, in half-widths."""
        return diagonal(n_features) if self.rho == "diagonal" else float(self.rho)

    def max_shift(self, n_features: int) -> float:
        """Largest move between grid points, in half-widths: rho plus rounding."""
        return largest_shift(self.resolved_rho(n_features), n_features)

    def _plan_points(
        self,
        epsilon: float,
        delta: float,
    ) -> Charge:
        """Plan the release of all points, with noise by the chosen calibration."""
        # The exact calibration, and the classical one: sigma = rho sqrt(2 ln(1.25 /
        # delta)) / epsilon (Algorithm 1, line 6), proved for epsilon < 1.
        mu = gaussian_mu(epsilon, delta)
        if self.calibration == "classical":
            classical_mu = epsilon / math.sqrt(2 * math.log(1.25 / delta))
            if classical_mu > mu:
                raise ValueError(
                    "calibration='classical' gives too little noise for "
                    f"epsilon={epsilon:.4g}, for which it was not proved; take "
                    "'analytic'"
                )
            mu = classical_mu
        return plan_release(AllPoints, SortedGaussian, mu=mu)

    def _cluster_released(
        self,
        points: np.ndarray,
        weights: np.ndarray,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Cluster weighted released points; return centers (1, k', d) on the grid."""
        # Algorithm 1, line 18: k-means (p = 2) or k-median.
        solve = weighted_kmeans if self.p == 2 else weighted_kmedian
        centers = solve(points, weights, self.n_clusters, self.n_init, generator)
        return snap_centers(centers)[None]


def release_points(
    curator: RhoBoundedCurator,
    release: Charge,
) -> np.ndarray:
    """Release all points (n, d), int64, with the planned noise."""
    noise = SortedGaussian(curator.max_shift * SCALE / release.mu)
    return curator.release(AllPoints(), points=noise)["points"][0]


class NoisedPoints(RhoBoundedMethod):
    """Cluster noised points, released at the whole budget.

    The paper's baseline ("random points").

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon, delta, rho, p, n_init, secure
        As for :class:`pkm.methods.DistDP`.
    calibration : {"classical", "analytic"}, default="classical"
        The paper's formula, or the exact one.
    project : float or None, default=2.0
        Coordinates of noised points are clipped to [-project, project], in half-widths,
        as in Appendix E for the paper's main method; None does not clip. Centers are
        clipped to the domain.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, adjacency
        For methods under zero-out adjacency: leave them out.

    See Also
    --------
    DistDP : The paper's method, with counts or sums of the true points.
    NoisedReports : Noise at the users, which protects any move.

    References
    ----------
    Epasto, A., Mirrokni, V., Narayanan, S. and Zhong, P. (2023). k-means clustering
    with distance-based privacy. NeurIPS.
    """

    label = "dist-DP random points"
    color = "#7a7a7a"
    marker = "X"
    constraints = {
        "project": NONE | Real(0, unit="half-widths"),
    }

    project: float | None = MAX_NOISED

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        self.schedule(1, 1)

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        return Schedule(self._plan_points(self.epsilon, self.resolved_delta(n_points)))

    def cluster(self, curator: RhoBoundedCurator) -> tuple[np.ndarray, int]:
        """Noise, project, cluster; see :meth:`PrivateKMeans.cluster`."""
        # Release all points with noise.
        (release,) = self.schedule(curator.n_points, curator.n_features).releases
        noised = release_points(curator, release).astype(np.float64)
        if self.project is not None:
            noised = np.clip(noised, -self.project * SCALE, self.project * SCALE)

        # Cluster them, and clip the centers to the domain: post-processing.
        weights = np.ones(curator.n_points)
        centers = self._cluster_released(noised, weights, curator.public_rng())
        return np.clip(centers, -SCALE, SCALE), 1
