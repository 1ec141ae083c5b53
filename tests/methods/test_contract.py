"""What methods declare: the delta of a variant."""

import math

import numpy as np
import pytest

from pkm.methods import GLloyd


def test_delta_of_the_variants():
    n = 3000
    assert GLloyd(variant="published").resolved_delta(n) == pytest.approx(1 / (n * math.log(n)))
    assert GLloyd(variant="sound").resolved_delta(n) == 1e-6
    assert GLloyd(delta=1e-9).resolved_delta(n) == 1e-9
    with pytest.raises(ValueError, match="needs n >= 3, got 2"):
        GLloyd(1, variant="published", bounds=(-1, 1)).fit(np.zeros((2, 1)))
