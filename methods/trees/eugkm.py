"""EUGkM: weighted k-means on the noisy counts of a uniform grid (Su et al. 2016).

One release, no iterations, any number of restarts. It is for few features, because the
grid has at least two intervals in each. The hybrid spends half of the budget on a Lloyd
step from the centers of EUGkM.
"""

import math
from typing import Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import FLAG, Integer, OneOf
from pkm.methods.coreset import project_onto_simplex
from pkm.methods.lloyd.lloyd import FastLloyd, SuLloyd
from pkm.methods.schedule import Schedule, counting_noise, plan_release
from pkm.methods.trees.leaves import gather_leaves
from pkm.privacy import (
    MAX_CELLS,
    SCALE,
    Charge,
    Curator,
    Gaussian,
    GridCounts,
    Laplace,
    PrivacyClaim,
    gaussian_mu,
    snap_centers,
)

MIN_INTERVALS = 2
# Of the hybrid, whose first half of the budget is for the grid: the second is for the
# first of two Lloyd rounds.
GRID_SHARE = 1 / 2
LLOYD_ROUNDS = 2
# Of the published rule: balances the noise of a cell against its width.
RECORDS_PER_CELL = 10


def grid_intervals(
    n_points: int,
    n_features: int,
    n_clusters: int,
    epsilon: float,
    rule: str,
    max_cells: int,
) -> int:
    """Number of intervals per feature, from public quantities only.

    Parameters
    ----------
    n_points, n_features, n_clusters : int
    epsilon : float
    rule : {"published", "balanced"}
        ``published``: (n epsilon / 10)^(2 / (d + 2)), for any number of clusters.
        ``balanced``: (n epsilon)^(2 / (d + 2)) / (d k^(1 - 2 / d))^(1 / (d + 2)). It
        minimizes the sum of two squared errors, of rounding to cells and of noise in k
        equal clusters.
    max_cells : int
        Largest number of cells; a finer grid is made coarser.

    Returns
    -------
    int
        At least 2 where ``max_cells`` allows it.

    Examples
    --------
    >>> grid_intervals(5000, 2, 15, 1.0, "published", 2_000_000)
    22
    """
    # The optimum of the rule, between errors of rounding to cells and of noise in
    # cells.
    d = n_features
    if rule == "published":
        optimum = (n_points * epsilon / RECORDS_PER_CELL) ** (2 / (d + 2))
    else:
        clusters = d * n_clusters ** (1 - 2 / d)
        optimum = ((n_points * epsilon) ** 2 / clusters) ** (1 / (d + 2))
    intervals = max(MIN_INTERVALS, round(min(optimum, float(max_cells))))

    # At most max_cells cells; the root may be rounded either way.
    if intervals**d > max_cells:
        intervals = int(max_cells ** (1 / d)) + 1
        while intervals**d > max_cells:
            intervals -= 1
    return intervals


class EUGkM(PrivateKMeans):
    """Weighted k-means on the noisy counts of a uniform grid.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        All of it is for the counts (zero-out adjacency): a record lies in one cell, and
        changes its count by 1.
    grid_rule : {"published", "balanced"}, default="published"
        Number of intervals per feature, by the rule of Su et al. or by that of this
        implementation; see :func:`grid_intervals`.
    max_cells : int, default=2_000_000
        Largest number of grid cells, from 2 to 2**22. A finer grid is coarsened until
        it fits.
    consistent : bool, default=True
        Shift counts so that, with negative ones at zero, they sum to the public number
        of points. Otherwise negative ones become zero.
    n_init : int, default=10
        Starts of the k-means on the cells; they cost no privacy.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    QuadtreeKMeans : Nested grids, whose coarse counts show the empty parts.
    HybridKMeans : Half of the budget for a Lloyd step, by a public rule.
    GaussianEUGkM : The same grid with Gaussian noise; needs a delta.

    Notes
    -----
    Where fewer than ``n_clusters`` cells have a positive count, the midpoints of those
    cells are all that is released. More features than the binary logarithm of
    ``max_cells`` are refused before any query.

    References
    ----------
    Su, D., Cao, J., Li, N., Bertino, E. and Jin, H. (2016). Differentially private
    k-means clustering. CODASPY, 26-37.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = EUGkM(n_clusters=2, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "EUGkM"
    color = "#b2182b"
    marker = "p"
    claims = {"sound": PrivacyClaim("pure")}
    constraints = {
        "grid_rule": OneOf("published", "balanced"),
        "max_cells": Integer(MIN_INTERVALS, MAX_CELLS),
        "consistent": FLAG,
        "n_init": Integer(1),
    }
    supports_chunks = True
    batched = False  # a grid of millions of cells for one replicate at a time

    epsilon: float = 1.0
    grid_rule: str = "published"
    max_cells: int = 2_000_000
    consistent: bool = True
    n_init: int = 10

    def check_features(self, n_features: int) -> None:
        """Refuse more features than a grid of ``max_cells`` cells can have."""
        if MIN_INTERVALS**n_features > self.max_cells:
            raise ValueError(
                f"max_cells={self.max_cells} is too few for d={n_features} features: "
                f"two intervals in each make 2^{n_features} cells; EUGkM is a method "
                "for few features"
            )

    def intervals(
        self,
        n_points: int,
        n_features: int,
        share: float,
    ) -> int:
        """Intervals per feature of a grid whose counts have a share of the budget."""
        grid = self._plan_grid(n_points, share)
        # The epsilon at which Laplace noise has the variance of the noise of a count.
        epsilon = math.sqrt(2) * grid.mu if grid.mu > 0 else grid.epsilon
        k = self.n_clusters
        rule = self.grid_rule
        return grid_intervals(n_points, n_features, k, epsilon, rule, self.max_cells)

    def _plan_grid(
        self,
        n_points: int,
        share: float,
    ) -> Charge:
        """Plan the counts of the grid, at a share of the budget."""
        return plan_release(GridCounts, Laplace, epsilon=share * self.epsilon)

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        return Schedule(self._plan_grid(n_points, 1.0))

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Count cells, cluster midpoints; see :meth:`PrivateKMeans.cluster`."""
        return self._cluster_grid(curator, 1.0), 1

    def _cluster_grid(
        self,
        curator: Curator,
        share: float,
    ) -> np.ndarray:
        """Find centers (1, at most k, d), int64, by counts at a share of the budget."""
        # Release the counts of all cells of the grid, in records.
        n = curator.n_points
        intervals = self.intervals(n, curator.n_features, share)
        noise = counting_noise(self._plan_grid(n, share))
        counts = curator.release(GridCounts(intervals), counts=noise)["counts"][0]
        weights = counts / SCALE
        del counts  # millions of cells

        # Nonnegative weights: projected to those that sum to the public n, or clipped
        # at 0 by the selection of positive ones.
        if self.consistent:
            projected = project_onto_simplex(weights.ravel(), float(n))
            weights = projected.reshape(weights.shape)
        positions = np.argwhere(weights > 0)

        # k-means on the midpoints of the cells with positive weights: post-processing.
        cells = intervals, positions, weights[tuple(positions.T)]
        leaves = gather_leaves([cells]).or_domain(float(n))
        generator = curator.public_rng()
        centers = leaves.cluster(self.n_clusters, self.n_init, generator)
        return snap_centers(centers)[None]


class GaussianEUGkM(EUGkM):
    """EUGkM with Gaussian noise, under approximate privacy.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    grid_rule, max_cells, consistent, n_init
        As for :class:`EUGkM`; the rules see the epsilon at which Laplace noise has the
        variance of the Gaussian noise of a count.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    EUGkM : Laplace noise, for pure privacy.
    GaussianHybridKMeans : Half of the budget for a step, by a public rule.

    Notes
    -----
    It separates the effect of the noise from that of the method. At delta = 1e-6 and
    the epsilons of the papers, Laplace noise on one count is smaller than Gaussian.

    References
    ----------
    Su et al. (2016) for the method; the noise is a variation of this project.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = GaussianEUGkM(n_clusters=2, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "EUGkM, Gaussian noise"
    color = "#d6604d"
    marker = "p"
    claims = {"sound": PrivacyClaim("approximate")}

    delta: float | Literal["auto"] = "auto"

    def _plan_grid(
        self,
        n_points: int,
        share: float,
    ) -> Charge:
        # A share of mu squared.
        delta = self.resolved_delta(n_points)
        mu = math.sqrt(share) * gaussian_mu(self.epsilon, delta)
        return plan_release(GridCounts, Gaussian, mu=mu)


class HybridKMeans(EUGkM):
    """The hybrid of Su et al.: EUGkM, then a step of DP-Lloyd, each at half of epsilon.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency, pure.
    grid_rule, max_cells, consistent, n_init
        As for :class:`EUGkM`.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    EUGkM : The whole budget for the grid.
    QuadtreeKMeans : Nested grids and a Lloyd step.
    GaussianHybridKMeans : Gaussian noise, and a step of FastLloyd.

    Notes
    -----
    The step is made if its predicted error (:meth:`pkm.methods.SuLloyd.round_error`) is
    below that of rounding to cells, d / (3 m^2) for m intervals per feature. Otherwise
    EUGkM has the whole budget. Both errors follow from public values. Su et al. choose
    by predicted errors too; this rule is a reconstruction.

    References
    ----------
    Su, D., Cao, J., Li, N., Bertino, E. and Jin, H. (2016). Differentially private
    k-means clustering. CODASPY, 26-37.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = HybridKMeans(n_clusters=2, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(2).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "hybrid of Su et al."
    color = "#67001f"
    marker = "h"

    def has_step(
        self,
        n_points: int,
        n_features: int,
    ) -> bool:
        """Whether a step is made, from public quantities only."""
        # Mean squared errors, in squared half-widths: of the step, and of rounding.
        intervals = self.intervals(n_points, n_features, GRID_SHARE)
        error = self._lloyd().round_error(n_points, n_features, LLOYD_ROUNDS)
        return error < n_features / (3 * intervals**2)

    def _lloyd(self) -> SuLloyd | FastLloyd:
        """SuLloyd with two rounds: the first is the step, at half of epsilon."""
        return SuLloyd(self.n_clusters, epsilon=self.epsilon, n_iterations=LLOYD_ROUNDS)

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        if not self.has_step(n_points, n_features):
            return super().schedule(n_points, n_features)
        step = self._lloyd().schedule(n_points, n_features).releases[0]
        return Schedule(self._plan_grid(n_points, GRID_SHARE), step)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Cluster the grid, make the step; see :meth:`PrivateKMeans.cluster`."""
        if not self.has_step(curator.n_points, curator.n_features):
            return self._cluster_grid(curator, 1.0), 1
        # EUGkM at half of the budget, then the first of two Lloyd rounds.
        centers = self._cluster_grid(curator, GRID_SHARE)
        centers, _ = self._lloyd().iterate(curator, centers, n_rounds=1)
        return centers, 2


class GaussianHybridKMeans(GaussianEUGkM, HybridKMeans):
    """The hybrid with Gaussian noise: EUGkM, then one step of FastLloyd.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency; half of mu squared is for the grid, half
        for the step.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    grid_rule, max_cells, consistent, n_init
        As for :class:`EUGkM`.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    HybridKMeans : Laplace noise, for pure privacy.
    GaussianEUGkM : The whole budget for the grid.
    FastLloyd : The whole budget for Lloyd steps.

    References
    ----------
    Su et al. (2016) for the hybrid; the noise and FastLloyd's step are a variation of
    this project.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = GaussianHybridKMeans(2, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "hybrid, Gaussian noise"
    color = "#b35806"
    marker = "h"

    def _lloyd(self) -> SuLloyd | FastLloyd:
        return FastLloyd(
            self.n_clusters,
            epsilon=self.epsilon,
            delta=self.delta,
            n_iterations=LLOYD_ROUNDS,
            radius_schedule="constant",
        )
