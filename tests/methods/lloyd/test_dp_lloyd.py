"""DP-Lloyd: the published shares and noise, the sound variant."""

import numpy as np
import pytest
from separated_blobs import blobs, box, cost

from pkm.methods import DPLloyd, SuLloyd
from pkm.privacy import snap


@pytest.mark.parametrize(
    ("d", "overspend"),
    [(2, 0.905), (4, 0.959), (5, 1.003), (10, 1.212), (11, 1.249), (16, 1.412), (100, 2.663)],
)
def test_published_dp_lloyd_overspends_by_its_swapped_shares(d, overspend):
    """In five columns or more; with fewer it spends less than it declares."""
    points = np.zeros((5000, d), int)
    ledger = DPLloyd(n_clusters=3, variant="published").fit_batch(points, [0]).ledger
    assert ledger.spent() == pytest.approx(overspend, rel=1e-3)
    assert ledger.budget.epsilon == pytest.approx(ledger.spent())
    assert "F-26" in DPLloyd(variant="published").claim.flaws


def test_sound_dp_lloyd_is_sulloyd(shared_noise):
    points, _ = blobs()
    run = DPLloyd(n_clusters=4, epsilon=0.7).fit_batch(points, [1, 2])
    expected = SuLloyd(n_clusters=4, epsilon=0.7).fit_batch(points, [1, 2])
    assert (run.centers == expected.centers).all()
    assert run.ledger.spent() == expected.ledger.spent()
    assert run.ledger.spent() == pytest.approx(0.7)


def test_published_dp_lloyd_charges_the_noise_it_draws():
    points, _ = blobs(n=3000)
    method = DPLloyd(n_clusters=2, variant="published", epsilon=0.9)
    charges = method.fit_batch(points, [0]).ledger.charges
    weight = (4 * 4 * 0.225**2) ** (1 / 3)
    count_epsilon = 0.9 / len(charges) / (4 + weight)
    sum_epsilon = weight * count_epsilon
    for charge in charges:
        assert 1 / charge.details["count_scale"] == pytest.approx(count_epsilon)
        assert charge.details["sum_epsilon"] == pytest.approx(sum_epsilon)
        assert charge.epsilon == pytest.approx(count_epsilon + 4 * sum_epsilon)


def test_published_dp_lloyd_reaches_the_means_without_noise():
    points = snap(np.repeat([[-0.5, 0.25], [0.5, 0.5]], 2000, axis=0))
    method = DPLloyd(n_clusters=2, variant="published", epsilon=1e6)
    run = method.fit_batch(points, range(5), box(0.0, 10.0, 2))
    assert min(cost(points, run)) == pytest.approx(0, abs=1)
