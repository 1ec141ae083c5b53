"""Exact privacy losses: against the laws of the mechanisms, enumerated, integrated or sampled.

For outcomes drawn on ``values`` the mean of exp(-loss) is the probability that ``others`` give to
what ``values`` can give. It is 1 if the loss is right, wherever ``others`` can give no more.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from pkm.audit.laws import LAWS, find_law
from pkm.compute import SCALE
from pkm.privacy import Gaussian, Laplace, NoiseStreams
from pkm.privacy.mechanisms.additive import BoundedLaplace, BoundedValues
from pkm.privacy.mechanisms.randomizers import (
    FrequencyOracle,
    HadamardResponse,
    LocalDomain,
    LocalHashing,
    RandomizedResponse,
    SignedSums,
    UserCells,
    UserVectors,
    VectorRandomizer,
)
from pkm.privacy.mechanisms.selection import (
    Exponential,
    OrderStatistics,
    Percentile,
    ScoreSensitivity,
)
from pkm.privacy.mechanisms.stability_histogram import OccupiedCells, StabilityHistogram
from pkm.privacy.queries.moved_records import SortedGaussian
from pkm.privacy.queries.projection import CoverProblem, MaximumCover
from pkm.privacy.query import Sensitivity

N_DRAWS = 4000
TESTED = {
    Gaussian,
    Laplace,
    BoundedLaplace,
    Exponential,
    Percentile,
    StabilityHistogram,
    SortedGaussian,
    MaximumCover,
    FrequencyOracle,
    VectorRandomizer,
}


def realized(mechanism, values, others, sensitivity):
    return find_law(mechanism, sensitivity).measure_cost(values, others)


def loss(mechanism, outcome, values, others, sensitivity):
    return find_law(mechanism, sensitivity).measure_loss(outcome, values, others)


def test_every_mechanism_with_a_loss_is_tested_here():
    assert set(LAWS) == TESTED


def test_an_unknown_mechanism_is_refused():
    with pytest.raises(ValueError, match="no loss that an audit knows"):
        realized(3.0, None, None, None)


def array(*entries):
    return np.array([entries], np.int64)


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [(Gaussian(40.0), stats.norm(scale=60.0)), (Laplace(40.0), stats.laplace(scale=60.0))],
)
def test_additive_noise(mechanism, law):
    values = array(10)
    others = array(-50)
    sensitivity = Sensitivity(l1=40.0, l2=40.0, unit=1.5)

    def loss_at(outcome):
        return loss(mechanism, np.array([[outcome]]), values, others, sensitivity)

    outcomes = np.linspace(-400, 400, 101)
    expected = law.logpdf(outcomes - 10) - law.logpdf(outcomes + 50)
    losses = np.array([loss_at(outcome) for outcome in outcomes])
    np.testing.assert_allclose(losses, expected, atol=1e-12)
    total, _ = quad(
        lambda x: law.pdf(x - 10) * math.exp(-loss_at(x)), -1500, 1500, points=[-50, 10]
    )
    assert total == pytest.approx(1.0, abs=1e-6)

    cost = realized(mechanism, values, others, sensitivity)
    if isinstance(mechanism, Laplace):
        assert cost.epsilon == pytest.approx(np.abs(losses).max()) == 1.0
    else:
        assert cost.mu == pytest.approx(1.0)


def test_costs_of_vectors_are_norms():
    values = array(3 * SCALE, 0, 5)
    others = array(0, -4 * SCALE, 5)
    sensitivity = Sensitivity(l1=1.0, l2=1.0)
    assert realized(Gaussian(SCALE), values, others, sensitivity).mu == pytest.approx(5.0)
    assert realized(Laplace(SCALE), values, others, sensitivity).epsilon == pytest.approx(7.0)


@pytest.mark.parametrize(("exact", "other"), [(20, 60), (0, 40), (100, 60), (-30, 10)])
def test_bounded_laplace(exact, other):
    mechanism = BoundedLaplace(epsilon=1.0, sensitivity=40.0)
    lower = array(0)
    upper = array(100)
    values = BoundedValues(array(exact), lower, upper)
    others = BoundedValues(array(other), lower, upper)
    b = mechanism.scale(upper - lower).item()

    def density(x, center):
        inside = stats.laplace(min(max(center, 0), 100), b)
        return inside.pdf(x) / (inside.cdf(100) - inside.cdf(0))

    outcomes = np.arange(101)
    losses = [loss(mechanism, np.array([[outcome]]), values, others, None) for outcome in outcomes]
    expected = np.log(density(outcomes, exact) / density(outcomes, other))
    np.testing.assert_allclose(losses, expected, atol=1e-9)
    cost = realized(mechanism, values, others, None)
    assert cost.epsilon == pytest.approx(np.abs(losses).max(), abs=1e-9)
    assert cost.epsilon <= 1.0 + 1e-9


@pytest.mark.parametrize("monotonic", [True, False])
def test_exponential_mechanism(monotonic):
    mechanism = Exponential(0.8)
    values = [np.array([0.0, 2.0, -3.0, 1.0]), np.array([1.0, -math.inf, 0.0])]
    others = [np.array([1.0, 2.0, -3.5, 0.0]), np.array([0.5, -math.inf, 0.0])]
    sensitivity = ScoreSensitivity(np.array([2.0, 1.0]), monotonic)

    def law(scores, change):
        weights = np.exp(0.8 / change * scores)
        return weights / weights.sum()

    first, second = (law(*each) for each in zip(values, (2.0, 1.0), strict=True))
    other_first, other_second = (law(*each) for each in zip(others, (2.0, 1.0), strict=True))
    losses = {}
    for i in range(4):
        for j in (0, 2):
            losses[i, j] = loss(mechanism, np.array([[i, j]]), values, others, sensitivity)
            ratio = first[i] * second[j] / (other_first[i] * other_second[j])
            assert losses[i, j] == pytest.approx(math.log(ratio))
    total = sum(first[i] * second[j] * math.exp(-losses[i, j]) for i, j in losses)
    assert total == pytest.approx(1.0)

    # What is charged is the range of the loss, which bounds it.
    cost = realized(mechanism, values, others, sensitivity)
    spread = max(losses.values()) - min(losses.values())
    if monotonic:
        assert cost == Exponential(spread).cost(sensitivity)
    else:
        assert cost.epsilon == pytest.approx(spread)


def test_percentile():
    mechanism = Percentile(0.9)
    values = OrderStatistics(np.array([10.0, 20.0, 45.0, 45.0, 80.0]), 2.0, 100.0)
    others = OrderStatistics(np.array([10.0, 32.0, 45.0, 77.0, 80.0]), 2.5, 100.0)
    sensitivity = ScoreSensitivity(4.0)

    # Both densities are constant between whole numbers.
    outcomes = np.arange(100) + 0.5

    def law(statistics):
        ranks = np.searchsorted(statistics.ordered, outcomes, side="right")
        weights = np.exp(-0.9 / 4.0 * np.abs(ranks - statistics.rank))
        return weights / weights.sum()

    losses = np.array(
        [loss(mechanism, np.array([x]), values, others, sensitivity) for x in outcomes]
    )
    np.testing.assert_allclose(losses, np.log(law(values) / law(others)), atol=1e-12)
    cost = realized(mechanism, values, others, sensitivity)
    assert cost.epsilon == pytest.approx(np.abs(losses).max())


def mean_of_inverse(mechanism, values, others, sensitivity):
    """Mean of exp(-loss) over draws, with its standard error, and all losses."""
    streams = NoiseStreams([7])
    losses = []
    for number in range(N_DRAWS):
        outcome = mechanism.draw(values, streams, ("draw", number), sensitivity)
        losses.append(loss(mechanism, outcome, values, others, sensitivity))
    ratios = np.exp(-np.array(losses))
    return ratios.mean(), ratios.std() / math.sqrt(N_DRAWS), np.array(losses)


@pytest.mark.slow
def test_stability_histogram():
    # The cell "9" occurs on one side alone; at this delta a tenth of the draws show it.
    mechanism = StabilityHistogram(stddev=4.0, delta=0.1)
    values = OccupiedCells(np.array([2, 5, 9]), np.array([12, 7, 1]))
    others = OccupiedCells(np.array([2, 5]), np.array([12, 9]))
    mean, error, losses = mean_of_inverse(mechanism, values, others, Sensitivity(SCALE, SCALE))
    assert mean == pytest.approx(1.0, abs=5 * error)

    cost = realized(mechanism, values, others, Sensitivity(SCALE, SCALE))
    assert cost.mu == pytest.approx(2 / 4)
    # Its scale is rounded up for secure noise, so that the threshold is a little higher.
    assert 0.09 < cost.delta <= 0.1
    shown = np.isinf(losses).mean()
    assert shown == pytest.approx(cost.delta, abs=5 * math.sqrt(0.1 * 0.9 / N_DRAWS))


@pytest.mark.slow
def test_stability_histogram_on_the_side_that_lacks_a_cell():
    mechanism = StabilityHistogram(stddev=4.0, delta=0.1)
    values = OccupiedCells(np.array([2]), np.array([12]))
    others = OccupiedCells(np.array([2, 9]), np.array([12, 1]))
    mean, error, losses = mean_of_inverse(mechanism, values, others, Sensitivity(SCALE, SCALE))
    hidden = 1 - realized(mechanism, values, others, Sensitivity(SCALE, SCALE)).delta
    assert np.isfinite(losses).all()
    assert mean == pytest.approx(hidden, abs=5 * error + 1e-12)


@pytest.mark.slow
def test_stability_histogram_of_parts_of_a_record():
    """A person adds 0.7 records to a cell of others, and 0.2 to an empty one."""
    mechanism = StabilityHistogram(stddev=4.0, delta=0.1)
    sizes = (np.array([1.3, 0.4, 0.2]) * SCALE).astype(np.int64)
    values = OccupiedCells(np.array([2, 5, 9]), sizes, count_factor=1)
    others = OccupiedCells(
        np.array([2, 5]), (np.array([0.6, 0.4]) * SCALE).astype(int), count_factor=1
    )
    mean, error, losses = mean_of_inverse(mechanism, values, others, Sensitivity(SCALE, SCALE))
    assert mean == pytest.approx(1.0, abs=5 * error)
    cost = realized(mechanism, values, others, Sensitivity(SCALE, SCALE))
    assert cost.mu == pytest.approx(0.7 / 4, rel=1e-4)
    assert 0.05 < cost.delta <= 0.1
    shown = np.isinf(losses).mean()
    assert shown == pytest.approx(cost.delta, abs=5 * math.sqrt(0.1 * 0.9 / N_DRAWS))
    assert cost == realized(mechanism, others, values, Sensitivity(SCALE, SCALE))


@pytest.mark.parametrize("is_secure", [False, True])
def test_gaussian_noise_of_answers_in_parts_of_a_step(is_secure):
    mechanism = Gaussian(3.0)
    values = np.tile([0, 1, 2, 3], 2000)[None]
    sensitivity = Sensitivity(l1=100.0, l2=100.0, resolution=4)
    assert realized(mechanism, array(0, 8), array(4, 8), sensitivity).mu == pytest.approx(1 / 3)
    output = mechanism.draw(values, NoiseStreams([0], is_secure), ("draw",), sensitivity)
    law = find_law(mechanism, sensitivity, is_secure)
    uniforms = law.draw_residuals(output, values, np.random.default_rng(0))
    if not is_secure:
        assert stats.kstest(uniforms.ravel(), "uniform").pvalue > 1e-6
    # Rounding to whole steps before the noise is seen in so little noise alone.
    assert stats.kstest(uniforms.ravel(), "uniform").statistic < 0.05


@pytest.mark.slow
def test_sorted_rows_with_noise():
    mechanism = SortedGaussian(float(SCALE))
    values = np.array([[[0, 0], [SCALE, 0], [0, SCALE]]], np.int64)
    others = values.copy()
    others[0, 1] = [SCALE // 2, SCALE // 2]
    sensitivity = Sensitivity(1.0, 1.0)
    mean, error, _ = mean_of_inverse(mechanism, values, others, sensitivity)
    assert mean == pytest.approx(1.0, abs=5 * error)
    cost = realized(mechanism, values, others, sensitivity)
    assert cost.mu == pytest.approx(math.sqrt(0.5))


def test_maximum_cover_costs_its_charge_for_every_point_that_differs():
    mechanism = MaximumCover(0.1, 1e-6)
    sensitivity = ScoreSensitivity(1.0, monotonic=True)
    points = np.array([[0.1, 0.2], [0.3, 0.4], [0.3, 0.4]])
    problem = CoverProblem(points, ((0.5, 0.2),), 1)
    charged = mechanism.cost(sensitivity)
    for n_points, n_changed in ((3, 0), (2, 1), (1, 2)):
        other = CoverProblem(points[:n_points], ((0.5, 0.2),), 1)
        cost = realized(mechanism, problem, other, sensitivity)
        assert cost.epsilon == n_changed * charged.epsilon
        assert cost.delta == n_changed * charged.delta
    # Its loss is left out, which is said as NaN.
    assert math.isnan(loss(mechanism, points[None], problem, problem, sensitivity))


@pytest.mark.parametrize("kind", [RandomizedResponse, LocalHashing, HadamardResponse])
def test_frequency_oracles(kind):
    oracle = kind(1.3, 6, 5)
    domain = LocalDomain(6)
    n_told_apart = 0
    for user in range(20):
        probabilities = oracle.probabilities(user)
        values = UserCells(np.array([user]), np.array([1]))
        others = UserCells(np.array([user]), np.array([4]))
        losses = []
        for report in range(oracle.symbols):
            found = loss(oracle, np.array([[report]]), values, others, domain)
            assert found == pytest.approx(
                math.log(probabilities[1, report] / probabilities[4, report])
            )
            losses.append(found)
        assert probabilities[1] @ np.exp(-np.array(losses)) == pytest.approx(1.0)
        cost = realized(oracle, values, others, domain)
        assert cost.epsilon == pytest.approx(np.abs(losses).max())
        n_told_apart += cost.epsilon > 0
    # Two values may have the same hash; most have not.
    assert n_told_apart > 5


@pytest.mark.slow
@pytest.mark.parametrize("randomizer", [VectorRandomizer(1.1, 2), SignedSums(1.1, 2, 9)])
@pytest.mark.parametrize("length", [1.0, 0.4, 0.0])
def test_vector_randomizers(randomizer, length):
    users = np.array([3])
    values = UserVectors(users, np.array([2]), np.array([[length, 0.0]]))
    others = UserVectors(users, np.array([2]), np.array([[-0.3, 0.8]]))
    domain = LocalDomain(2)
    mean, error, losses = mean_of_inverse(randomizer, values, others, domain)
    assert mean == pytest.approx(1.0, abs=5 * error)
    cost = realized(randomizer, values, others, domain)
    assert cost.epsilon == pytest.approx(np.abs(losses).max())
    assert cost.epsilon <= 1.1 + 1e-9


def test_a_user_whose_report_cannot_change_costs_nothing():
    oracle = RandomizedResponse(1.0, 4)
    values = UserCells(np.arange(3), np.array([0, 1, 2]))
    others = UserCells(np.arange(3), np.array([0, 3, 2]))
    assert realized(oracle, values, values, LocalDomain(4)).epsilon == 0
    assert realized(oracle, values, others, LocalDomain(4)).epsilon == pytest.approx(1.0)
