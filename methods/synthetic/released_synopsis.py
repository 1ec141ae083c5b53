"""What follows from a released synopsis, that is, a private summary of the points.

No private data are read, and nothing is charged, for the number of clusters, synthetic
rows, k-medians and a Gaussian mixture.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import check_is_fitted

from pkm.compute import SCALE, middle_and_half_width
from pkm.methods.baselines.kmedian import move_to_medians
from pkm.methods.trees.leaves import Leaves
from pkm.methods.weighted_kmeans import weighted_inertia, weighted_kmeans
from pkm.scalars import is_integer

N_INIT = 3  # starts of each k-means of a curve
SEED = 0  # of public randomness, which is the same in every call
MIXTURE_ROWS = 20_000  # that a mixture is fitted to
# Mean squared distance of records from their centers over that of candidates, which are
# averages of buckets of records: about the median on generated mixtures.
RECORDS_OVER_CANDIDATES = 2.0


@dataclass(frozen=True, eq=False)
class Synopsis:
    """A private summary of the points: weighted cubes that records are spread over.

    Attributes
    ----------
    leaves : Leaves
        On a linear scale, in grid steps of the domain that the method ran in.
    inertias : ndarray of shape (max_clusters,), float64, or None
        Cost curve (inertia of k = 1, 2, ...), in squared grid steps; None where k was
        given.
    """

    leaves: Leaves
    inertias: np.ndarray | None = None


def cost_curve(
    leaves: Leaves,
    max_clusters: int,
    n_points: int,
) -> np.ndarray:
    """Inertias of k-means for k = 1, 2, ..., as weighted cells estimate them.

    Parameters
    ----------
    leaves : Leaves
    max_clusters : int
    n_points : int
        Number of records that the leaves stand for.

    Returns
    -------
    ndarray of shape (max_clusters,), float64
        Sums of squared distances, in squared units of the midpoints. They do not
        increase.

    Examples
    --------
    >>> points = np.array([[0.0], [2.0], [9.0], [11.0]])
    >>> leaves = Leaves(points, np.zeros(4), np.ones(4))
    >>> cost_curve(leaves, 4, n_points=8).tolist()
    [170.0, 8.0, 4.0, 0.0]
    """
    points = leaves.midpoints
    weights = leaves.weights
    # Within a leaf records are uniform, whatever k is.
    within = float(leaves.spread @ weights)
    inertias = np.empty(max_clusters)
    for k in range(1, max_clusters + 1):
        centers = weighted_kmeans(points, weights, k, N_INIT, SEED)
        inertias[k - 1] = within + weighted_inertia(points, weights, centers)

    # More centers never have more inertia; a few starts may miss that. Small cells are
    # left out of a synopsis: the others stand for all records.
    return np.minimum.accumulate(inertias) * (n_points / weights.sum())


def find_knee(inertias: np.ndarray) -> int:
    """Choose the number of clusters by a cost curve.

    Without clusters log inertia falls evenly with log k, by 2/d: a straight line. The
    knee is where the curve lies farthest below the line between its ends.

    Parameters
    ----------
    inertias : ndarray of shape (max_clusters,), float64
        Nonnegative; of k = 1, 2, ...; at least three, or there is nothing to choose.

    Returns
    -------
    int
        At least 1, and below ``max_clusters``.

    Notes
    -----
    The rule of the chord is that of Satopää, Albrecht, Irwin and Raghavan (2011),
    "Finding a kneedle in a haystack".

    Examples
    --------
    >>> find_knee(np.array([90.0, 40.0, 5.0, 4.5, 4.2, 4.0]))
    3
    """
    log_k = np.log(np.arange(1, len(inertias) + 1))
    # Without a logarithm of 0, the inertia of as many centers as there are points.
    log_inertias = np.log(np.maximum(inertias, np.finfo(float).tiny))
    slope = (log_inertias[-1] - log_inertias[0]) / log_k[-1]
    return int(np.argmax(log_inertias[0] + slope * log_k - log_inertias)) + 1


def spread_clusters(
    candidates: Leaves,
    centers: np.ndarray,
    mean_square: float,
) -> Leaves:
    """Describe clusters as cubes about their centers.

    Parameters
    ----------
    candidates : Leaves
        Weighted points, each of the cluster of its nearest center.
    centers : ndarray of shape (k, d), float64
    mean_square : float
        Mean squared distance of records from their centers; 0 if it is not known, and
        taken from the candidates.

    Returns
    -------
    Leaves
        One for each cluster with a candidate.
    """
    # Assign the candidates, whose counts add up to those of the clusters.
    squares = cdist(candidates.midpoints, centers, "sqeuclidean")
    labels = squares.argmin(axis=1)
    weights = np.bincount(labels, candidates.weights, len(centers))
    if mean_square == 0:
        scatter = np.average(squares.min(axis=1), weights=candidates.weights)
        mean_square = RECORDS_OVER_CANDIDATES * float(scatter)

    # The side of a cube whose points have this mean squared distance from its center.
    side = math.sqrt(12 * mean_square / centers.shape[1])
    clusters = Leaves(centers, np.full(len(centers), side), weights)
    return clusters.take(np.flatnonzero(weights))


class ReleasedSynopsis:
    """A fitted estimator whose synopsis answers more than where the centers are.

    It reads ``synopsis_``, ``cluster_centers_`` and the bounds, which ``fit`` sets.

    Attributes
    ----------
    synopsis_ : structured ndarray of shape (m,)
        Boxes that records are spread over, in the units of X: ``center`` (d,) and
        ``sides`` (d,), and ``weight``, the noisy number of records.
    cost_curve_ : ndarray of shape (max_clusters,), float64
        Estimated inertia of k = 1, 2, ..., in squared half-widths of the bounds. Only
        with ``n_clusters="auto"``.
    """

    synopsis_: np.ndarray
    cost_curve_: np.ndarray

    def _set_synopsis(self: Any, synopsis: Synopsis) -> None:
        """Set attributes of a fit, in the units of X."""
        # Leaves are in grid steps of the domain that the method ran in.
        middle, half_width = middle_and_half_width(*self.domain_)
        leaves = synopsis.leaves
        d = len(middle)
        fields = [("center", float, (d,)), ("sides", float, (d,)), ("weight", float)]
        self.synopsis_ = np.empty(len(leaves.weights), fields)
        self.synopsis_["center"] = leaves.midpoints / SCALE * half_width + middle
        self.synopsis_["sides"] = leaves.sides[:, None] / SCALE * half_width
        self.synopsis_["weight"] = leaves.weights

        # A curve of an earlier fit is no longer true.
        vars(self).pop("cost_curve_", None)
        if synopsis.inertias is not None:
            relative = 1.0 if self.zoom_ is None else self.zoom_.half_width
            self.cost_curve_ = synopsis.inertias * (relative / SCALE) ** 2

    def sample(
        self: Any,
        n: int,
        random_state: int | None = None,
    ) -> np.ndarray:
        """Draw synthetic rows from the synopsis, at no cost of privacy.

        A box is drawn by its weight, and a row evenly from the box, clipped to the
        bounds. Boxes are the released cells up to three columns. With more they are
        cubes about the centers, so that rows show no shape of a cluster.

        Parameters
        ----------
        n : int
        random_state : int, optional
            Seed of the rows. Default: others in every call.

        Returns
        -------
        ndarray of shape (n, d), float64
            In the units of X.

        Raises
        ------
        ValueError
            If n is no positive integer.
        """
        check_is_fitted(self, "synopsis_")
        if not (is_integer(n) and n >= 1):
            raise ValueError(f"n={n!r} must be an integer of at least 1")
        # Boxes by weight, and a place in each.
        rng = np.random.default_rng(random_state)
        weights = self.synopsis_["weight"]
        chosen = rng.choice(len(weights), n, p=weights / weights.sum())
        boxes = self.synopsis_[chosen]
        shifts = rng.uniform(-0.5, 0.5, boxes["center"].shape)
        return np.clip(boxes["center"] + shifts * boxes["sides"], *self._fitted_bounds)

    def k_medians(self: Any) -> np.ndarray:
        """Move the centers to medians of the synopsis, at no cost of privacy.

        They are for the sum of distances in place of squares. Assignments of the boxes'
        centers alternate with steps of Weiszfeld's algorithm.

        Returns
        -------
        ndarray of shape (k, d), float64
            In the units of X, in the order of ``cluster_centers_``. From four columns
            on they are these, because the synopsis has no other points.
        """
        check_is_fitted(self, "synopsis_")
        if len(self.synopsis_) <= len(self.cluster_centers_):
            return self.cluster_centers_.copy()
        # In grid steps, in which a column has the weight that it has in the fit.
        middle, half_width = middle_and_half_width(*self.domain_)
        step = half_width / SCALE
        points = (self.synopsis_["center"] - middle) / step
        start = (self.cluster_centers_ - middle) / step
        medians, _ = move_to_medians(points, self.synopsis_["weight"], start)
        return medians * step + middle

    def gaussian_mixture(self: Any) -> GaussianMixture:
        """Fit a Gaussian mixture to rows of :meth:`sample`, at no cost of privacy.

        Returns
        -------
        GaussianMixture
            Fitted, with a component for each cluster and diagonal covariances, in the
            units of X.
        """
        check_is_fitted(self, "synopsis_")
        # In half-widths: scikit-learn adds 1e-6 to variances.
        middle, half_width = middle_and_half_width(*self.domain_)
        rows = (self.sample(MIXTURE_ROWS, SEED) - middle) / half_width
        mixture = GaussianMixture(
            len(self.cluster_centers_),
            covariance_type="diag",
            means_init=(self.cluster_centers_ - middle) / half_width,
            random_state=SEED,
        ).fit(rows)

        # All that `fit` has set and other methods read, in the units of X.
        mixture.means_init = self.cluster_centers_
        mixture.means_ = mixture.means_ * half_width + middle
        mixture.covariances_ *= half_width**2
        mixture.precisions_ /= half_width**2
        mixture.precisions_cholesky_ /= half_width
        mixture.lower_bound_ -= np.log(half_width).sum()
        return mixture
