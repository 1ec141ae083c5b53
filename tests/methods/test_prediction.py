"""Labels, distances and scores of fitted methods."""

import numpy as np
import pytest
from estimators import blobs

from pkm.methods import FastLloyd


def test_transform_is_nearest_where_predict_says_and_score_sums_it():
    points = blobs() * [1, 20]
    bounds = ([-1, -20], [1, 20])
    for zoom in (None, 0.1):
        model = FastLloyd(4, epsilon=4, random_state=2, bounds=bounds, zoom=zoom).fit(points)
        distances = model.transform(points)
        steps = (points[:, None] - model.cluster_centers_) / [1, 20]
        np.testing.assert_allclose(distances, np.sqrt((steps**2).sum(axis=2)), atol=1e-12)
        nearest = np.take_along_axis(distances, model.predict(points)[:, None], 1)[:, 0]
        np.testing.assert_allclose(nearest, distances.min(axis=1), atol=1e-4)
        inertia = (distances.min(axis=1) ** 2).sum()
        np.testing.assert_allclose(model.score(points), -inertia, rtol=1e-9)

        # Rows outside the bounds are clipped to them, as in predict.
        outside = model.transform([[5.0, 0.0]])
        np.testing.assert_array_equal(outside, model.transform([[1.0, 0.0]]))
    assert list(model.get_feature_names_out()) == [f"fastlloyd{i}" for i in range(4)]
    with pytest.raises(ValueError, match="1 rows with NaN"):
        model.score([[np.nan, 0.0]])
