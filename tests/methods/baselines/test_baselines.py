"""The noisy mean: choice and cost of its noise, its error, the spread of records about it."""

import math

import numpy as np
import pytest

from pkm import datasets
from pkm.methods.baselines.baselines import N_SHELLS, DataMean, NoisyMean
from pkm.metrics import evaluate
from pkm.privacy import SCALE, Gaussian, Laplace, gaussian_mu, snap


def add_nothing(self, values, streams, key, sensitivity=None):
    """Return the exact answer: noise that is charged and not added."""
    return values


def draw(n, d, seed=0):
    return np.random.default_rng(seed).integers(-SCALE, SCALE + 1, (n, d))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("d", [1, 2, 5, 8, 9, 12, 30, 100])
def test_the_noise_is_that_with_the_smaller_variance(d, epsilon):
    (release,) = NoisyMean(epsilon=epsilon, spread_share=0).schedule(1000, d).releases
    # The sum's sensitivity in radii is 1 in L2 and sqrt(d) in L1.
    variances = {Laplace: 2 * d / epsilon**2, Gaussian: 1 / gaussian_mu(epsilon, 1e-6) ** 2}
    assert release.mechanism == min(variances, key=variances.get).name


@pytest.mark.parametrize("spread_share", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("d", [2, 40])
def test_charges_add_up_to_the_declared_budget(d, spread_share):
    """Recomputed from the noise scales of the charges."""
    epsilon = 0.7
    method = NoisyMean(n_clusters=3, epsilon=epsilon, spread_share=spread_share)
    ledger = method.fit_batch(draw(500, d), [0, 5]).ledger
    costs = [ledger.charges[0].details["sum_sensitivity"] / ledger.charges[0].details["sum_scale"]]
    if spread_share:
        costs.append(1 / ledger.charges[1].details["count_scale"])
    assert len(ledger.charges) == len(costs)
    if ledger.charges[0].mechanism == "laplace":
        assert sum(costs) == pytest.approx(epsilon, rel=1e-12)
    else:
        mu = gaussian_mu(epsilon, 1e-6)
        assert sum(cost**2 for cost in costs) == pytest.approx(mu**2, rel=1e-9)
    assert ledger.spent() <= epsilon * (1 + 1e-9)


def test_without_noise_the_only_center_is_the_mean(monkeypatch):
    for mechanism in (Laplace, Gaussian):
        monkeypatch.setattr(mechanism, "draw", add_nothing)
    for d in (3, 40):
        points = draw(300, d)
        center = NoisyMean(n_clusters=4, spread_share=0).fit_batch(points, [0]).centers
        expected = DataMean().fit_batch(points, [0]).centers
        assert center.shape == (1, 1, d)
        # The sum is rounded to 2^-16 radii of the ball for each record.
        assert np.abs(center - expected).max() <= math.sqrt(d) + 1


@pytest.mark.parametrize("seed", range(5))
def test_without_noise_half_of_the_records_are_within_the_spread(seed, monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    rng = np.random.default_rng(seed)
    points = snap(np.clip(rng.normal(0.1, rng.uniform(0.001, 0.3), (999, 2)), -1, 1))
    run = NoisyMean(n_clusters=6, spread_share=0.5).fit_batch(points, [seed])
    mean = run.centers[0, 0]
    distances = np.linalg.norm(points - mean, axis=1) / SCALE
    radii = 2 * math.sqrt(2) / math.sqrt(2) ** np.arange(N_SHELLS)
    spread = min(r for r in radii if (distances > r).sum() < 999 / 2)
    from_mean = np.linalg.norm(run.centers[0] - mean, axis=1) / SCALE
    assert run.n_centers.tolist() == [6]
    assert (from_mean <= spread + 1e-3).all()
    # Five packed centers do not all lie in the inner third.
    assert from_mean.max() > spread / 3


def test_equal_records_give_the_smallest_spread(monkeypatch):
    monkeypatch.setattr(Laplace, "draw", add_nothing)
    run = NoisyMean(n_clusters=3, spread_share=0.2).fit_batch(np.full((50, 2), 100), [0])
    smallest = 2 * math.sqrt(2) / math.sqrt(2) ** (N_SHELLS - 1) * SCALE
    assert np.linalg.norm(run.centers[0] - 100, axis=1).max() <= smallest + 2


@pytest.mark.statistical
@pytest.mark.parametrize("d", [2, 20])
def test_error_of_the_mean_is_that_of_its_noise(d):
    n = 2000
    method = NoisyMean(epsilon=1.0, spread_share=0)
    centers = method.fit_batch(draw(n, d), range(300)).centers[:, 0]
    (release,) = method.schedule(n, d).releases
    is_laplace = release.mechanism == Laplace.name
    # A coordinate of the sum has its noise in 2^-16 of the ball's radius sqrt(d).
    scale = SCALE * (math.sqrt(d) / release.epsilon if is_laplace else 1 / release.mu)
    variance = (2 if is_laplace else 1) * (scale * math.sqrt(d) / n) ** 2
    errors = centers - draw(n, d).mean(axis=0)
    # Five standard errors, and the rounding of n records toward zero.
    kurtosis = 6 if is_laplace else 3
    tolerance = 5 * math.sqrt((kurtosis - 1) / errors.size)
    assert (errors**2).mean() == pytest.approx(variance, rel=tolerance + 0.01)


def test_packed_centers_lower_the_cost_of_the_mean():
    points = snap(datasets.load("planted-20000-2-16-0.05").points)
    alone = NoisyMean(16, epsilon=1.0, spread_share=0).fit_batch(points, [0]).centers
    packed = NoisyMean(16, epsilon=1.0, spread_share=0.2).fit_batch(points, [0]).centers
    costs = [evaluate(points, centers, ["nicv"])["nicv"][0] for centers in (alone, packed)]
    assert costs[1] < costs[0] / 2


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan, "auto"])
def test_shares_outside_the_unit_interval_are_refused(share):
    with pytest.raises(ValueError, match=r"spread_share=.* must be a number in \[0, 1\)"):
        NoisyMean(spread_share=share).fit_batch(draw(20, 2), [0])
