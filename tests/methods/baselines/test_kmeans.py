"""k-means without privacy is scikit-learn's."""

import numpy as np
from estimators import blobs
from sklearn.cluster import KMeans

from pkm.methods import KMeansPlusPlus
from pkm.privacy import SCALE, snap
from pkm.privacy.mechanisms.noise import public_seed


def test_k_means_equals_scikit_learn():
    points = blobs()
    model = KMeansPlusPlus(4, n_init=3, random_state=7, bounds=(-1, 1)).fit(points)
    seed = public_seed(7) % 2**32
    expected = KMeans(4, n_init=3, random_state=seed).fit(snap(points) / SCALE)
    np.testing.assert_allclose(
        model.cluster_centers_,
        expected.cluster_centers_,
        atol=2.0**-16,
    )
