"""k-means++ of scikit-learn: the non-private reference of the private methods."""

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer
from pkm.privacy import NO_CLAIM, SCALE, Curator, snap_centers


class KMeansPlusPlus(PrivateKMeans):
    """scikit-learn's k-means with k-means++ seeding, without privacy.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    n_init : int, default=1
        Number of starts, of which the best is kept.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    Lloyd : Starts from packed spheres, as the private variants do.
    KMedian : For sums of distances in place of squares.
    """

    label = "k-means++, non-private"
    color = "#000000"
    marker = ""
    claims = {"sound": NO_CLAIM}
    constraints = {"n_init": Integer(1)}
    serves_weights = True

    n_init: int = 1

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run scikit-learn once per seed; ``n_iter`` is its largest."""
        points = curator.disclose().astype(np.float64)
        points /= SCALE
        weights = curator.disclose_weights()
        fits = []
        with warnings.catch_warnings():
            # `fit` warns of few centers, for every method; a batch does not.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for r, seed in enumerate(curator.public_seeds, start=1):
                model = KMeans(self.n_clusters, random_state=seed % 2**32)
                # scikit-learn centers points in place: only the last fit may do so.
                is_last = r == curator.n_replicates
                model.set_params(n_init=self.n_init, copy_x=not is_last)
                fits.append(model.fit(points, sample_weight=weights))
        centers = np.stack([fit.cluster_centers_ for fit in fits])
        return snap_centers(centers * SCALE), max(fit.n_iter_ for fit in fits)
