"""k-means++ as scikit-learn does it: the non-private standard that private methods are measured against."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from sklearn.cluster import KMeans

from pkm.methods.base import PrivateKMeans
from pkm.privacy import NO_CLAIM, SCALE, PrivacyClaim, snap_centers


@dataclass(eq=False, repr=False)
class KMeansPlusPlus(PrivateKMeans):
    """scikit-learn's k-means with k-means++ seeding, without privacy.

    Parameters
    ----------
    n_clusters : int, default=8
    n_init : int, default=1
        Number of starts, of which the best is kept.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    """

    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": NO_CLAIM}

    _: KW_ONLY
    n_init: int = 1

    def cluster(self, curator):
        """Run scikit-learn once per seed; ``n_iter`` is the largest number of iterations any seed took."""
        points = curator.disclose().astype(np.float64) / SCALE
        fits = [
            KMeans(self.n_clusters, n_init=self.n_init, random_state=seed % 2**32).fit(points)
            for seed in curator.seeds
        ]
        centers = np.stack([fit.cluster_centers_ for fit in fits])
        return snap_centers(centers * SCALE), max(fit.n_iter_ for fit in fits)
