"""NoisedPoints: one release, its projection and its calibration."""

import math

import numpy as np
import pytest
from moves import blobs

from pkm.methods import NoisedPoints
from pkm.privacy import (
    SCALE,
    gdp_delta,
    snap,
)


def test_projected_points_lie_in_their_box(shared_noise):
    rows = snap(blobs(2000))

    def run(**parameters):
        return NoisedPoints(4, rho=1.0, **parameters).fit_batch(rows, [0])

    narrow = run(project=0.25)
    wide = run(project=1e6)
    unprojected = run(project=None)
    assert np.abs(narrow.centers).max() <= 0.25 * SCALE
    assert (wide.centers == unprojected.centers).all()
    # Noise of sixteen times the half-width: without a projection centers lie far out, and are moved
    # into the domain.
    assert np.abs(unprojected.centers).max() == SCALE
    assert np.abs(run().centers).max() <= SCALE
    assert narrow.ledger.charges == unprojected.ledger.charges


@pytest.mark.parametrize(
    ("calibration", "epsilon"),
    [
        ("classical", 1.0),
        ("analytic", 1.0),
        ("analytic", 8.0),
    ],
)
def test_noised_points_spend_the_budget_on_one_release(calibration, epsilon):
    rows = snap(blobs(500))
    run = NoisedPoints(4, calibration=calibration, epsilon=epsilon).fit_batch(rows, [0])
    (charge,) = run.ledger.charges
    assert charge.label == "noised_points"
    if calibration == "classical":
        expected = 0.05 * math.sqrt(2 * math.log(1.25e6))
        assert charge.details["point_scale"] == pytest.approx(expected, rel=1e-3)
        assert gdp_delta(charge.mu, 1.0) < 1e-6
    else:
        assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("project", [0, -1.0, math.nan, math.inf, "far", True])
def test_a_bad_projection_is_refused(project):
    points = snap(blobs(50))
    message = r"project=.* must be None or a positive finite number, in half-widths"
    with pytest.raises(ValueError, match=message):
        NoisedPoints(3, project=project).fit_batch(points, [0])


def test_classical_calibration_refuses_a_large_epsilon():
    message = "calibration='classical' gives too little noise for epsilon=60"
    with pytest.raises(ValueError, match=message):
        NoisedPoints(3, epsilon=60.0, bounds=(-1, 1)).fit(blobs(50))
