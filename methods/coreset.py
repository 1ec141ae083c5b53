"""Private coresets: weighted points on which any centers cost about as on the data."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import middle_and_half_width
from pkm.compute.storage.grid_file import open_unchanged
from pkm.methods.base import PrivateKMeans
from pkm.methods.inputs import read_points
from pkm.methods.weighted_kmeans import weighted_inertia
from pkm.privacy import SCALE, Curator, Ledger, to_shards
from pkm.privacy.base import PointsLike
from pkm.row_blocks import RowsLike


@dataclass(frozen=True, eq=False)
class Coreset:
    """Private coreset: weighted points, whose post-processing costs no privacy.

    Attributes
    ----------
    points : ndarray of shape (m, d), float64
    weights : ndarray of shape (m,), float64
        Noisy numbers of the records nearest to each point: nonnegative, with the public
        sum n.
    ledger : Ledger or None
        The charges of the release.

    Notes
    -----
    A weak coreset with an additive error. Without noise,
    ``|sqrt(estimate) - sqrt(cost)| <= sqrt(cost(points))`` for all sets of centers, by
    the triangle inequality. The estimate leaves out the variance of records about their
    nearest points, so that it tends to be too low by about ``cost(points)``. Noise adds
    an error of the order of ``sqrt(m)`` records, each with up to the squared diameter
    of the ball.
    """

    points: np.ndarray
    weights: np.ndarray
    ledger: Ledger | None = None

    def cost_estimate(self, centers: ArrayLike) -> float:
        """Estimate the sum of squared distances of all records to nearest centers.

        Parameters
        ----------
        centers : array-like of shape (k, d)

        Returns
        -------
        float
            In squared units of ``points``.

        Examples
        --------
        >>> coreset = Coreset(np.array([[0.0], [4.0]]), np.array([10.0, 5.0]))
        >>> coreset.cost_estimate([[1.0]])
        55.0
        """
        centers = np.asarray(centers, np.float64)
        d = self.points.shape[1]
        if centers.ndim != 2 or centers.shape[1] != d or not len(centers):
            raise ValueError(
                f"centers must have shape (k, {d}) with k >= 1, got {centers.shape}"
            )
        return weighted_inertia(self.points, self.weights, centers)


class CoresetMethod(PrivateKMeans):
    """Method that can release a private coreset instead of centers.

    A subclass defines ``weighted_candidates``.
    """

    def weighted_candidates(self, curator: Curator) -> tuple[np.ndarray, np.ndarray]:
        """Query the curator for candidates and their weights.

        Returns
        -------
        candidates : ndarray of shape (m, d), int64
            On the grid.
        weights : ndarray of shape (m,), float64
            Their sum is the public n.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define weighted_candidates(curator)"
        )

    def draw_coreset(
        self,
        points: PointsLike,
        seed: int,
        *,
        domain: ArrayLike | None = None,
        secure: bool | None = None,
    ) -> Coreset:
        """Release a private coreset of points on the grid, in half-widths.

        Parameters
        ----------
        points : ndarray of shape (n, d), int64, or Points, or a sequence of either
            As for :meth:`PrivateKMeans.fit_batch`.
        seed : int
        domain : array-like of shape (2, d), optional
            As for :meth:`PrivateKMeans.fit_batch`.
        secure : bool, optional
            As for :meth:`PrivateKMeans.fit_batch`.

        Returns
        -------
        Coreset

        Warns
        -----
        RepeatableNoiseWarning
            As :meth:`PrivateKMeans.fit_batch`.
        """
        return self._draw(points, seed, domain, secure)[0]

    def _draw(
        self,
        points: PointsLike,
        seed: int,
        domain: ArrayLike | None,
        secure: bool | None,
    ) -> tuple[Coreset, np.ndarray]:
        """Release a coreset in half-widths of a domain, and this domain."""
        if self.hides_n:
            raise ValueError(
                "adjacency=add_remove is not supported for a coreset, whose releases "
                "are not those of the schedule: leave adjacency out"
            )
        if self.report:
            raise ValueError(
                f"report={self.report:g} is not supported for a coreset, which has no "
                "centers: leave report out"
            )
        secure = self.decide_secure(secure, f"seed={seed}", stacklevel=4)
        shards = to_shards(points)
        (run,) = self.prepare_runs(
            partial(self.curator, shards, domain=domain),
            shards.n_records,
            shards.n_features,
            [seed],
            domain=domain,
            secure=secure,
            purpose="coreset",
        )
        candidates, weights = run.method.weighted_candidates(run.curator)
        positions = candidates / SCALE
        if run.zoom is not None:
            positions = run.zoom.to_public(candidates)
        coreset = Coreset(positions, weights, run.ledger)
        return coreset, run.public_curator.domain

    def coreset(self, X: ArrayLike | RowsLike) -> Coreset:
        """Release a private coreset of points given in their own units.

        Parameters
        ----------
        X : array-like of shape (n, d), or what is read in blocks
            As for ``fit``.

        Returns
        -------
        Coreset
            Weighted points in the units of X.

        Examples
        --------
        >>> from pkm.methods import KaplanStemmer
        >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
        >>> method = KaplanStemmer(2, epsilon=4.0, bounds=(-1, 1), random_state=1)
        >>> coreset = method.coreset(X)
        >>> round(coreset.cost_estimate([[0.0, 0.375]]), -1)
        2660.0
        """
        self.check_parameters()
        with open_unchanged(X) as source:
            points, (lower, upper) = read_points(self, source)
            seed, secure = self._draw_seed()
            domain = np.array([lower, upper])
            coreset, domain = self._draw(points, seed, domain, secure)
        # Infinite bounds were replaced by those that were found.
        middle, half_width = middle_and_half_width(*domain)
        candidates = coreset.points * half_width + middle
        return Coreset(candidates, coreset.weights, coreset.ledger)


def project_onto_simplex(counts: np.ndarray, totals: float | np.ndarray) -> np.ndarray:
    """Project noisy counts onto the simplex: nonnegative, with a public sum.

    These are the nearest such counts, ``max(counts - theta, 0)``, by the algorithm of
    Duchi et al. (ICML 2008, figure 1).

    Parameters
    ----------
    counts : ndarray of shape (..., m), float64
    totals : float or ndarray of shape (...), float64
        Positive.

    Returns
    -------
    ndarray of shape (..., m), float64

    Examples
    --------
    >>> project_onto_simplex(np.array([7.0, 3.0, -5.0]), 8.0).tolist()
    [6.0, 2.0, 0.0]
    >>> rows = np.array([[5.0, 3.0, -1.0], [1.0, 1.0, 1.0]])
    >>> project_onto_simplex(rows, np.array([4.0, 6.0])).tolist()
    [[3.0, 1.0, 0.0], [2.0, 2.0, 2.0]]
    """
    # Theta if the j largest counts stay positive, for all j; in place, because a grid
    # may have millions of counts.
    descending = np.sort(counts)[..., ::-1]
    thetas = np.cumsum(descending, axis=-1)
    thetas -= np.asarray(totals)[..., None]
    thetas /= np.arange(1, counts.shape[-1] + 1)

    # The largest j (their rho) whose count exceeds its theta.
    n_positive = (descending > thetas).sum(axis=-1, keepdims=True)
    projected = counts - np.take_along_axis(thetas, n_positive - 1, axis=-1)
    return np.maximum(projected, 0.0, out=projected)
