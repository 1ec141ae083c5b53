"""Public starting centers."""

import math

import numpy as np
from estimators import blobs

from pkm.methods import Lloyd
from pkm.methods.initialization import starting_centers
from pkm.privacy import SCALE, snap


def test_packing_search_of_the_variants():
    """``published`` starts where the published code starts; ``sound`` packs as wide as it can."""
    halving = starting_centers([0], 3, 2, "packing", "halving") / SCALE
    np.testing.assert_allclose(halving[0, 0], [0.5542328, -0.0687564], atol=2.0**-17)

    points = snap(blobs())

    def centers(**parameters):
        return Lloyd(3, **parameters).fit_batch(points, [0]).centers

    published = centers(variant="published")
    published_halving = centers(variant="published", radius_search="halving")
    assert (published == published_halving).all()
    assert (centers() == centers(radius_search="bisection")).all()

    uniform = starting_centers(range(200), 5, 2, "uniform", "bisection") / SCALE
    assert np.abs(uniform.mean()) < 5 / math.sqrt(3 * uniform.size)
