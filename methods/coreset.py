"""Private coresets: weighted points that stand for the data, and counts made consistent with a public total."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from pkm.privacy import SCALE, Ledger, NoiseStreams, shards_of


@dataclass(frozen=True, eq=False)
class Coreset:
    """Private weighted points that stand for the data: what is done with them costs no further privacy.

    Attributes
    ----------
    points : ndarray of shape (m, d), float64
    weights : ndarray of shape (m,), float64
        Noisy numbers of the records nearest to each point; not negative, they add up to the public n.
    ledger : Ledger or None
        What was paid.

    Notes
    -----
    A weak coreset with an additive error. Without noise, moving every record to its nearest candidate changes the root
    of any cost by at most the root of the candidates' own cost, ``|sqrt(estimate) - sqrt(cost)| <= sqrt(cost(points))``
    (triangle inequality). The estimate leaves out how records spread about their candidates, so that it tends to be too
    low by about that cost, for all sets of centers alike. Noise adds an error of the order of ``sqrt(m)`` records, each
    with up to the squared diameter of the ball.
    """

    points: np.ndarray
    weights: np.ndarray
    ledger: Ledger | None = None

    def cost_estimate(self, centers) -> float:
        """Estimate the sum of squared distances of all records to the nearest of some centers.

        Parameters
        ----------
        centers : array-like of shape (k, d)

        Returns
        -------
        float
            In squared units of ``points``.

        Examples
        --------
        >>> Coreset(np.array([[0.0], [4.0]]), np.array([10.0, 5.0])).cost_estimate([[1.0]])
        55.0
        """
        centers = np.asarray(centers, np.float64)
        if centers.ndim != 2 or centers.shape[1] != self.points.shape[1] or not len(centers):
            raise ValueError(
                f"centers must have shape (k, {self.points.shape[1]}) with k >= 1, got {centers.shape}"
            )
        return float((cdist(self.points, centers, "sqeuclidean").min(axis=1) * self.weights).sum())


class ReleasesCoreset:
    """What methods share that can release a private coreset instead of centers: ``weighted_candidates`` is theirs."""

    def weighted_candidates(self, curator) -> tuple[np.ndarray, np.ndarray]:
        """Candidates (m, d) on the grid and their weights (m,), which add up to the public n; all that is asked."""
        raise NotImplementedError(f"{type(self).__name__} must define weighted_candidates(curator)")

    def coreset_of(self, points, seed: int) -> Coreset:
        """Release a private coreset of points on the grid, in half-widths of the domain.

        Parameters
        ----------
        points : ndarray of shape (n, d), int64, or Points, or a sequence of either
            As for :meth:`PrivateKMeans.fit_batch`.
        seed : int

        Returns
        -------
        Coreset
        """
        shards = shards_of(points)
        n_points, n_features = sum(shard.shape[0] for shard in shards), shards[0].shape[1]
        self.check_parameters(n_points)
        ledger = Ledger(self.budget(n_points, n_features))
        curator = self.curator(shards, ledger, NoiseStreams([seed], secure=self.secure))
        candidates, weights = self.weighted_candidates(curator)
        return Coreset(candidates / SCALE, weights, ledger)

    def coreset(self, X) -> Coreset:
        """Release a private coreset of points given in their own units.

        Parameters
        ----------
        X : array-like of shape (n, d)
            As for ``fit``.

        Returns
        -------
        Coreset
            In the units of X; what Lloyd steps would cost is not spent, or spent on the coreset.

        Examples
        --------
        >>> from pkm.methods import KaplanStemmer
        >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
        >>> coreset = KaplanStemmer(n_clusters=2, epsilon=4.0, random_state=1).coreset(X)
        >>> round(coreset.weights.sum()), round(coreset.cost_estimate([[0.0, 0.375]]), -1)
        (10000, 2660.0)
        """
        points, (lower, upper), seed = self._prepared(X)
        found = self.coreset_of(points, seed)
        half = upper / 2 - lower / 2
        return Coreset(found.points * half + (upper / 2 + lower / 2), found.weights, found.ledger)


def consistent(counts: np.ndarray, total: float) -> np.ndarray:
    """Move noisy counts to the nearest ones that are not negative and add up to a public total.

    Parameters
    ----------
    counts : ndarray of shape (m,), float64
    total : float
        Positive.

    Returns
    -------
    ndarray of shape (m,), float64

    Examples
    --------
    >>> consistent(np.array([7.0, 3.0, -5.0]), 8.0).tolist()
    [6.0, 2.0, 0.0]
    """
    ordered = np.sort(counts)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    shift = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(counts - shift, 0.0)
