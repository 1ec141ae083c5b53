"""Exact samplers: their law, candidate by candidate, and what secure noise and choices cost.

Statistical tests use a fixed stream of bytes in place of the operating system's entropy; their
thresholds are five standard errors of the statistic or a p-value of 1e-6.
"""

import math
import os
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution, privacy_loss_mechanism
from scipy import stats
from scipy.integrate import quad

from pkm.privacy import (
    SCALE,
    Adjacency,
    BoundedLaplace,
    Budget,
    CellCounts,
    CellSums,
    Curator,
    Exponential,
    Gaussian,
    GridCounts,
    Laplace,
    Ledger,
    NoiseStreams,
    Percentile,
    Sensitivity,
    StabilityHistogram,
    SumsAndCounts,
    gaussian_mu,
    gdp_delta,
)
from pkm.privacy.mechanisms import samplers, selection
from pkm.privacy.mechanisms.additive import MAX_SCALE, BoundedValues
from pkm.privacy.mechanisms.selection import OrderStatistics, ScoreSensitivity
from pkm.privacy.mechanisms.stability_histogram import OccupiedCells
from pkm.privacy.queries.moved_records import AllPoints, SoftCounts, SortedGaussian, Total
from pkm.privacy.queries.sums import CountsAndBoundedSums
from pkm.privacy.rho_bounded import RhoBoundedCurator

LAWS = {"laplace": samplers.discrete_laplace, "gaussian": samplers.discrete_gaussian}
SECURE = NoiseStreams([0], secure=True)


class FixedBytes:
    """The same bytes in every test, however they are asked for."""

    def __init__(self, seed=0):
        self.generator = np.random.default_rng(seed)
        self.rest = b""

    def __call__(self, size):
        while len(self.rest) < size:
            self.rest += self.generator.bytes(1 << 20)
        drawn = self.rest[:size]
        self.rest = self.rest[size:]
        return drawn


@pytest.fixture
def entropy(monkeypatch):
    """Replace the operating system's entropy; return a function that starts it again."""

    def start(seed=0):
        monkeypatch.setattr(os, "urandom", FixedBytes(seed))

    start()
    return start


def exponent_of(law, value, scale):
    """Exact exponent of an outcome."""
    if law == "gaussian":
        return Fraction(value**2, 2 * scale**2)
    return Fraction(abs(value), scale)


def weights_of(law, values, scale):
    """Relative probabilities of outcomes, in float64."""
    return np.exp([-float(exponent_of(law, value, scale)) for value in values.tolist()])


def assert_follows(outcomes, values, weights):
    """Chi-square test of outcomes against the weights of all possible values."""
    assert np.isin(outcomes, values).all()
    expected = outcomes.size * weights / weights.sum()
    observed = np.array([(outcomes == value).sum() for value in values])

    # Rare outcomes are counted together.
    common = expected >= 10
    rare = ~common
    if rare.any():
        expected = np.append(expected[common], expected[rare].sum())
        observed = np.append(observed[common], observed[rare].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-6


# The law


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1, 2, 3, 10])
@pytest.mark.parametrize("law", LAWS)
def test_outcomes_follow_the_probability_mass_function(entropy, law, scale):
    outcomes = LAWS[law](np.full(200_000, scale))
    values = np.arange(-60 * scale, 60 * scale + 1)
    assert_follows(outcomes, values, weights_of(law, values, scale))


@pytest.mark.parametrize("scale", [1, 2, 3, 7])
@pytest.mark.parametrize("law", LAWS)
def test_each_candidate_is_kept_with_exactly_its_probability(monkeypatch, law, scale):
    """All candidates up to a magnitude: the word that decides is the last below the probability.

    A candidate of v doublings is drawn with probability proportional to 2^-v and kept with
    probability 2^v exp(-exponent), so that its outcome has the weight exp(-exponent).
    """
    monkeypatch.setattr(samplers, "random_words", lambda count: np.zeros(count, np.uint64))
    cell = samplers.GAUSSIAN_BIN if law == "gaussian" else samplers.LAPLACE_BIN
    width = scale * cell // 65536 + 1
    seen = set()
    for doublings in range(6):
        for offset in range(width):
            for is_negative in (False, True):
                value = doublings * width + offset
                if is_negative:
                    value = -value
                exponent = exponent_of(law, value, scale)
                with mpmath.workdps(60):
                    power = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
                    share = mpmath.ldexp(power, 64 + doublings)
                    last = int(mpmath.floor(share))
                assert last <= 2**64
                share_of_offset = (2**64 - 1) // width
                bits = is_negative | 1 << (doublings + 1)
                kept = [
                    kept_value([offset * share_of_offset, bits, word], law, scale)
                    for word in (max(last - 1, 0), min(last + 1, 2**64 - 1))
                ]
                if is_negative and value == 0:
                    assert kept == [None, None]
                elif last == 2**64:
                    assert kept == [value, value]
                else:
                    assert kept == [value, None]
                    assert value not in seen
                seen.add(value)
    assert seen == set(range(1 - 6 * width, 6 * width))


def kept_value(words, law, scale):
    """Outcome that the words of one candidate give, or None if it is not kept."""
    noise = np.empty(1, np.int64)
    bounds = np.array([-samplers.UNBOUNDED]), np.array([samplers.UNBOUNDED])
    done, _ = samplers._fill_from(
        np.array(words, np.uint64), law == "gaussian", np.array([scale]), *bounds, noise, 0
    )
    return int(noise[0]) if done else None


@pytest.mark.parametrize("scale", [1, 3, 1000, 2**43])
@pytest.mark.parametrize("law", LAWS)
def test_exact_arithmetic_decides_as_float_arithmetic_does(monkeypatch, entropy, law, scale):
    """Deciding all, many or hardly any words by rational bounds gives the same outcomes."""
    outcomes = []
    for tolerance in (samplers.TOLERANCE, 0.05, 2.0):
        monkeypatch.setattr(samplers, "TOLERANCE", tolerance)
        entropy()
        outcomes.append(LAWS[law](np.full(500, scale)))
    assert (outcomes[0] == outcomes[1]).all() and (outcomes[0] == outcomes[2]).all()


def test_outcomes_do_not_depend_on_the_size_of_the_buffers(monkeypatch, entropy):
    whole = samplers.discrete_gaussian(np.full(300, 5))
    for size in (1, 2, 5):
        monkeypatch.setattr(samplers, "_BUFFER_WORDS", size)
        entropy()
        assert (samplers.discrete_gaussian(np.full(300, 5)) == whole).all()


def test_a_word_on_the_edge_is_decided_by_further_bits(monkeypatch):
    """The words before and after exp(-1) are decided; the one on it by the bits that follow."""
    edge = math.floor(Fraction(samplers.exp_bounds(Fraction(1), 128)[0], 2**64))
    drawn = []

    def words(value, count):
        drawn.append(count)
        return np.full(count, value, np.uint64)

    for value, is_below in ((0, True), (2**64 - 1, False)):
        monkeypatch.setattr(
            samplers, "random_words", lambda count, value=value: words(value, count)
        )
        assert samplers._is_below(edge, Fraction(1), 0) is is_below
        assert drawn.pop() == 1 and not drawn
        assert samplers._is_below(edge - 9, Fraction(1), 0) and not drawn
        assert not samplers._is_below(edge + 9, Fraction(1), 0) and not drawn


@pytest.mark.parametrize("bits", [64, 128, 300])
@pytest.mark.parametrize(
    "exponent", [Fraction(0), Fraction(1, 2**90), Fraction(1, 3), Fraction(40), Fraction(10**9, 7)]
)
def test_bounds_enclose_the_exponential(exponent, bits):
    low, high = samplers.exp_bounds(exponent, bits)
    with mpmath.workdps(200):
        value = mpmath.ldexp(
            mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator), bits
        )
        assert 0 <= low <= value <= high <= low + 3


def test_long_runs_of_zeros_are_doublings_too():
    scale = 1 << 40
    width = scale * samplers.LAPLACE_BIN // 65536 + 1
    assert kept_value([0, 0b1000, 0], "laplace", scale) == 2 * width
    assert kept_value([0, 0b1001, 0], "laplace", scale) == -2 * width
    assert kept_value([0, 0, 0b100, 0], "laplace", scale) == 65 * width
    assert kept_value([0, 0, 0, 1, 0], "laplace", scale) == 127 * width
    # The words end before the candidate: nothing is drawn from them yet.
    assert kept_value([0, 0, 0, 0], "laplace", scale) is None


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [2**10, 2**30, 2**43, samplers.MAX_SCALE])
@pytest.mark.parametrize(
    ("law", "reference"), [("laplace", stats.laplace), ("gaussian", stats.norm)]
)
def test_large_scales_follow_the_continuous_law_and_have_uniform_low_bits(
    entropy, law, reference, scale
):
    """Float noise comes in multiples of a power of two at large scales; this one does not."""
    outcomes = LAWS[law](np.full(100_000, scale))
    assert stats.kstest(outcomes / scale, reference.cdf).pvalue > 1e-6
    for bits in (1, 4):
        counts = np.bincount(outcomes & (2**bits - 1), minlength=2**bits)
        assert stats.chisquare(counts).pvalue > 1e-6


def test_scales_differ_entry_by_entry_and_shapes_are_kept(entropy):
    scales = np.array([[1, 10**3, 10**6], [10**9, 10**12, 2**44]])
    draws = np.stack([samplers.discrete_gaussian(scales) for _ in range(2000)])
    assert draws.shape == (2000, 2, 3) and draws.dtype == np.int64
    assert np.abs(draws.std(axis=0) / scales - 1).max() < 5 * math.sqrt(1 / 4000)
    for shape in ((0,), (0, 3), (2, 0)):
        assert samplers.discrete_laplace(np.ones(shape, np.int64)).shape == shape


@pytest.mark.parametrize("scale", [0, -1, samplers.MAX_SCALE + 1])
def test_scales_out_of_range_are_refused(scale):
    with pytest.raises(ValueError, match="scales must be between 1 and"):
        samplers.discrete_laplace(np.array([1, scale]))


@pytest.mark.statistical
@pytest.mark.parametrize(("lower", "upper"), [(-3, 12), (0, 40), (-5, 0), (0, 0), (-2, 2)])
def test_bounded_noise_follows_the_conditioned_law(entropy, lower, upper):
    """Intervals wider and narrower than the scale, also with the center at an end."""
    for scale in (1, 8, 30):
        outcomes = samplers.bounded_laplace(
            np.full(50_000, scale), np.int64(lower), np.int64(upper)
        )
        values = np.arange(lower, upper + 1)
        if lower == upper:
            assert (outcomes == lower).all()
            continue
        assert_follows(outcomes, values, weights_of("laplace", values, scale))


# Mechanisms


def recorded_scales(monkeypatch, name):
    """Scales that a sampler is asked for from now on; its noise is zero."""
    scales = []

    def record(asked, *bounds):
        scales.append(asked)
        return np.zeros(asked.shape, np.int64)

    monkeypatch.setattr(samplers, name, record)
    return scales


@pytest.mark.parametrize(
    ("mechanism", "name", "extra"),
    [(Gaussian, "discrete_gaussian", 2), (Laplace, "discrete_laplace", 0)],
)
def test_secure_scales_are_rounded_up(monkeypatch, mechanism, name, extra):
    recorded = recorded_scales(monkeypatch, name)
    values = np.arange(3)[None]
    for scale, unit, expected in (
        (1000.0, 1.0, [1000] * 3),
        (0.25, 1.0, [1] * 3),
        (2.5, 1.0, [3] * 3),
        (2.5, np.array([1.0, 2.0, 1e6]), [3, 5, 2_500_000]),
        (MAX_SCALE, 1.0, [2**44] * 3),
    ):
        sensitivity = Sensitivity(1.0, 1.0, unit=unit)
        mechanism(scale).check(sensitivity)
        assert (mechanism(scale).draw(values, SECURE, ("x", 0), sensitivity) == values).all()
        assert recorded.pop().tolist() == [[step + extra for step in expected]]


@pytest.mark.parametrize("change", [1, 3, 50])
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 30.7])
def test_discrete_laplace_noise_costs_what_is_charged(scale, change):
    charged = Laplace(scale).cost(Sensitivity(l1=change, l2=change)).epsilon
    loss = privacy_loss_mechanism.DiscreteLaplacePrivacyLoss(1 / math.ceil(scale), change)
    assert loss.get_delta_for_epsilon(charged) == 0.0
    if scale >= 1 and scale == math.ceil(scale):
        assert loss.get_delta_for_epsilon(charged * 0.999) > 0


@pytest.mark.parametrize("change", [1, 3, 50])
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0, 30.7, 1000.0])
def test_discrete_gaussian_noise_costs_no_more_than_continuous_noise(scale, change):
    mu = Gaussian(scale).cost(Sensitivity(l1=change, l2=change)).mu
    step = int(Gaussian.secure_scale(scale))
    assert step**2 >= scale**2 + 4
    loss = privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(step, change)
    for epsilon in (0.0, 0.01, 0.1, 0.5, 1.0, 3.0):
        delta = loss.get_delta_for_epsilon(epsilon)
        # dp_accounting cuts tails of mass 1e-30 off, and adds up in float64.
        assert delta <= gdp_delta(mu, epsilon) * (1 + 1e-9) + 1e-14
        if scale == 1000.0 and change == 50 and epsilon < 0.1:
            assert delta > 0.97 * gdp_delta(mu, epsilon)


@pytest.mark.parametrize("changes", [(1, 1), (3, 1, 1, 1)])
def test_discrete_gaussian_vectors_cost_no_more_than_continuous_ones(changes):
    """The bound holds for what several entries change together, by the L2 norm."""
    scale = 3.0
    mu = math.hypot(*changes) / scale
    entries = [
        privacy_loss_distribution.from_discrete_gaussian_mechanism(
            float(Gaussian.secure_scale(scale)),
            change,
            pessimistic_estimate=False,
            value_discretization_interval=1e-3,
        )
        for change in changes
    ]
    vector = entries[0]
    for entry in entries[1:]:
        vector = vector.compose(entry)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        assert vector.get_delta_for_epsilon(epsilon) <= gdp_delta(mu, epsilon)


def test_rounding_at_random_makes_the_discrete_gaussian_law():
    """The argument of the cost: noise of variance s^2 - 4, rounded at random with deviation 2."""
    scale = 5
    values = np.arange(-60, 61)

    def probability(y):
        def integrand(z):
            weights = np.exp(-((values - z) ** 2) / 8)
            rounded = math.exp(-((y - z) ** 2) / 8) / weights.sum()
            return stats.norm.pdf(z, scale=math.sqrt(scale**2 - 4)) * rounded

        return quad(integrand, -45, 45, epsabs=1e-13, limit=200, points=[y])[0]

    expected = weights_of("gaussian", values, scale)
    expected /= expected.sum()
    for y in (0, 3, -7, 20):
        assert probability(y) == pytest.approx(expected[y + 60], rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("sensitivity", [1, 7])
def test_bounded_laplace_on_integers_costs_epsilon(epsilon, sensitivity):
    """All outcomes and all pairs of neighbors in intervals of several widths."""
    mechanism = BoundedLaplace(epsilon, float(sensitivity))
    for width in (0, 1, 2, 5, 7, 8, 13, 14, 15, 40):
        values = np.arange(width + 1)
        scale = math.ceil(mechanism.scale(np.array(float(width))))
        weights = np.exp(-np.abs(values - values[:, None]) / scale)
        log = np.log(weights / weights.sum(axis=1, keepdims=True))
        is_neighbor = np.abs(values - values[:, None]) <= sensitivity
        losses = np.abs(log[:, None, :] - log[None, :, :]).max(axis=2)
        assert losses[is_neighbor].max() <= epsilon * (1 + 1e-12)


@pytest.mark.statistical
def test_secure_bounded_laplace_draws_from_that_law(entropy):
    mechanism = BoundedLaplace(0.5, 4.0)
    exact = np.full((1, 20_000), 3)
    lower, upper = -2.5, 9.9
    outcomes = mechanism.draw(BoundedValues(exact, lower, upper), SECURE, ("x", 0))
    values = np.arange(-2, 10)
    scale = math.ceil(mechanism.scale(np.array(11.0)))
    assert outcomes.shape == exact.shape
    assert_follows(outcomes.ravel(), values, weights_of("laplace", values - 3, scale))

    # A value outside the interval is moved to its end, and an interval may hold one integer.
    assert (mechanism.draw(BoundedValues(exact, 5.0, 5.0), SECURE, ("x", 0)) == 5).all()


def test_secure_histogram_keeps_its_threshold(entropy):
    """What a lonely record adds passes the threshold no more often than delta says."""
    for stddev in (0.001, 1.0, 10.0):
        histogram = StabilityHistogram(stddev, 0.01, max_changed_cells=1)
        scale = float(Gaussian.secure_scale(stddev * SCALE))
        threshold = math.ceil(histogram.threshold * SCALE)
        assert stats.norm.sf(threshold - SCALE - 0.5, scale=scale) <= 0.01
        cells = OccupiedCells(np.arange(100_000), np.ones(100_000, np.int64))
        (released,) = histogram.draw(cells, SECURE, ("x", 0), Sensitivity(1.0, 1.0))
        assert len(released.cells) == pytest.approx(1000, abs=5 * math.sqrt(1000))


# Refusals


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("scale", [1e40, 1e30, 1e19, 2.0**53, np.nextafter(MAX_SCALE, np.inf)])
@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
def test_noise_that_integers_do_not_carry_is_refused(mechanism, scale, secure):
    """Noise beyond the integers would be clipped, and exact answers released for nothing."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (40, 2))
    ledger = Ledger(Budget(1.0, 1e-6))
    curator = Curator(points, ledger, NoiseStreams([0], secure=secure))
    centers = np.zeros((1, 2, 2), np.int64)
    huge = mechanism(scale)
    small = mechanism(1e4 * SCALE)
    requests = [
        (SumsAndCounts(centers), {"sums": huge, "counts": small}),
        (SumsAndCounts(centers), {"sums": small, "counts": huge}),
        (SumsAndCounts(centers, radius=0.5, relative=True), {"sums": huge, "counts": huge}),
        (GridCounts(3), {"counts": huge}),
    ]
    if mechanism is Laplace:
        bounded = BoundedLaplace(1.0, 4.0 * SCALE)
        query = CountsAndBoundedSums(centers, np.zeros(2, np.int64))
        requests.append((query, {"counts": huge, "sums": bounded}))
        tiny = BoundedLaplace(4.0 * SCALE / scale, 4.0 * SCALE)
        requests.append((query, {"counts": small, "sums": tiny}))
    for query, noise in requests:
        with pytest.raises(ValueError, match="noise does not fit int64"):
            curator.release(query, **noise)
    assert ledger.charges == () and ledger.spent() == 0.0


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("scale", [1e40, 1e19, np.nextafter(MAX_SCALE, np.inf)])
def test_views_and_other_curators_refuse_it_too(scale, secure):
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (40, 2))
    streams = NoiseStreams([0], secure=secure)
    central = Ledger(Budget(1.0, 1e-6))
    tree = Curator(points, central, streams).whole()
    moving = Ledger(Budget(1.0, 1e-6, Adjacency.RHO_BOUNDED, rho=0.1))
    rho_bounded = RhoBoundedCurator(points, moving, streams)
    for view, query, noise in (
        (tree, CellCounts([0]), {"counts": Gaussian(scale)}),
        (tree, CellCounts([0]), {"counts": Laplace(scale)}),
        (tree, CellSums([0], np.zeros((1, 2), np.int64)), {"sums": Gaussian(scale / SCALE)}),
        (rho_bounded, AllPoints(), {"points": SortedGaussian(scale)}),
        (rho_bounded, Total(), {"sums": Gaussian(scale)}),
        (rho_bounded, SoftCounts(3), {"counts": Gaussian(scale)}),
    ):
        with pytest.raises(ValueError, match="noise does not fit int64"):
            view.release(query, **noise)
    assert central.charges == () and moving.charges == ()


def test_the_largest_scale_is_served(entropy):
    points = np.zeros((5, 1), np.int64)
    ledger = Ledger(Budget(1.0, 1e-6))
    curator = Curator(points, ledger, NoiseStreams([0], secure=True))
    counts = curator.release(GridCounts(1000), counts=Laplace(MAX_SCALE))["counts"]
    assert 0.5 < np.abs(counts).mean() / MAX_SCALE < 2
    assert ledger.charges[0].epsilon == SCALE / MAX_SCALE


# Choices


@pytest.mark.statistical
def test_secure_choices_follow_the_exponential_mechanism(entropy):
    scores = np.array([0.0, -np.inf, 3.0, 1.0, -2.0, 3.0])
    draws = Exponential(2.0).draw(
        [scores] * 20_000, SECURE, ("x", 0), ScoreSensitivity(np.full(20_000, 4.0))
    )
    assert_follows(draws[0], np.arange(6)[scores > -np.inf], np.exp(scores[scores > -np.inf] / 2))


def test_exact_choices_are_those_of_float_arithmetic(monkeypatch, entropy):
    """Choosing by rational weights, with the same random words, gives the same candidates."""
    rng = np.random.default_rng(1)
    cases = [(rng.normal(0, 30, 12), 0.3), (np.zeros(7), 1.0), (rng.normal(0, 1e5, 5), 1.0)]
    cases += [(np.append(rng.normal(size=4), -np.inf), 2.0), (np.array([5.0]), 1.0)]
    choices = []
    for tolerance in (selection.TOLERANCE, 1.0):
        monkeypatch.setattr(selection, "TOLERANCE", tolerance)
        entropy()
        choices.append([[selection.choose_securely(*case) for _ in range(40)] for case in cases])
    assert choices[0] == choices[1]


def test_unlikely_candidates_can_be_chosen(monkeypatch):
    """Float arithmetic leaves them out; a word at the end of the range is decided exactly."""
    scores = np.array([0.0, -42.0])
    monkeypatch.setattr(
        samplers, "random_words", lambda count: np.full(count, 2**64 - 1, np.uint64)
    )
    assert selection.choose_securely(scores, 1.0) == 1
    assert selection.choose_securely(scores, 2.0) == 1
    assert selection.choose_securely(np.array([0.0, -np.inf]), 1.0) == 0
    assert selection.choose_securely(np.full(3, -np.inf), 1.0) == 0


@pytest.mark.statistical
def test_secure_percentile_is_an_integer_of_the_exponential_mechanism(entropy):
    """Each integer is a candidate: the outcome does not show between what values it lies."""
    values = OrderStatistics(np.array([2.5, 2.5, 4.0, 9.25]), 2.0, 12.0)
    outcomes = [
        Percentile(3.0).draw(values, SECURE, ("x", 0), ScoreSensitivity(4.0))[0]
        for _ in range(5000)
    ]
    candidates = np.arange(13)
    ranks = np.array([(values.ordered <= candidate).sum() for candidate in candidates])
    weights = np.exp(-0.75 * np.abs(ranks - 2.0))
    assert_follows(np.array(outcomes), candidates, weights)


# Calibration of noise that costs little


@pytest.mark.parametrize("epsilon", [1e-4, 1e-6, 1e-10])
@pytest.mark.parametrize("delta", [1e-6, 1e-12, 1e-30])
def test_little_noise_cost_is_calibrated_on_the_safe_side(epsilon, delta):
    """Exact delta of the calibrated mu: the terms of its formula agree in up to forty digits."""
    mu = gaussian_mu(epsilon, delta)
    with mpmath.workdps(90):
        z = mpmath.mpf(epsilon) / mu
        first = mpmath.ncdf(-z + mpmath.mpf(mu) / 2)
        exact = first - mpmath.exp(epsilon) * mpmath.ncdf(-z - mpmath.mpf(mu) / 2)
        assert gdp_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-12)
        assert 1 - 1e-6 < float(exact) / delta < 1
