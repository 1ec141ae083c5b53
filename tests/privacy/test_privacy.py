"""The privacy core: calibration, noise, mechanisms, ledger, curator.

Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from dp_accounting.pld import accountant, common, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.privacy import (
    NO_CLAIM,
    SCALE,
    Adjacency,
    Budget,
    BudgetExceeded,
    Charge,
    Curator,
    DisclosureError,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    PrivacyClaim,
    StreamReuseError,
    SumsAndCounts,
    gaussian_mu,
    gdp_delta,
    gdp_epsilon,
    snap,
    snap_centers,
)
from pkm.privacy.mechanisms import noise
from pkm.privacy.mechanisms.additive import MAX_SCALE

EPSILONS = (0.05, 0.1, 0.5, 1.0, 4.0, 10.0)
DELTAS = (1e-3, 1e-5, 1e-9)


# Calibration


@pytest.mark.parametrize(
    ("epsilon", "sigma"),
    [
        (0.1, 30.749566),
        (1.0, 3.730632),
        (4.0, 1.081162),
    ],
)
def test_calibration_matches_known_values(epsilon, sigma):
    """Values computed with fifty digits for delta = 1e-5."""
    mu = gaussian_mu(epsilon, 1e-5)
    assert 1 / mu == pytest.approx(sigma, abs=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_agrees_with_dp_accounting(epsilon, delta):
    parameters = common.DifferentialPrivacyParameters(epsilon, delta)
    sigma = accountant.get_smallest_gaussian_noise(parameters, 1, 1.0)
    mu = gaussian_mu(epsilon, delta)
    assert 1 / mu == pytest.approx(sigma, rel=1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_is_conservative_and_tight(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gdp_delta(mu, epsilon) <= delta < gdp_delta(mu * (1 + 1e-7), epsilon)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@given(st.floats(0.01, 5), st.floats(0.01, 5))
def test_gdp_delta_is_monotone(mu, epsilon):
    """It falls with epsilon and grows with mu."""
    delta = gdp_delta(mu, epsilon)
    delta_of_larger_epsilon = gdp_delta(mu, epsilon * 1.01)
    delta_of_larger_mu = gdp_delta(mu * 1.01, epsilon)
    assert 0 <= delta_of_larger_epsilon <= delta <= delta_of_larger_mu <= 1


def test_gdp_of_zero_mu_or_zero_delta():
    assert gdp_delta(0.0, 1.0) == 0
    assert gdp_epsilon(0.0, 0.0) == 0
    assert gdp_epsilon(1.0, 0.0) == math.inf


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0, 1e-5),
        (-1, 1e-5),
        (math.inf, 1e-5),
        (1, 0),
        (1, 1),
    ],
)
def test_calibration_refuses_bad_parameters(epsilon, delta):
    with pytest.raises(ValueError, match=r"epsilon=|delta="):
        gaussian_mu(epsilon, delta)


# Budget and claim


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), r"epsilon=0.0 must be positive"),
        ((math.nan,), "epsilon=nan must be positive"),
        ((1.0, 1.0), r"delta=1.0 must be in \[0, 1\)"),
        ((1.0, 0.0, "nearby"), "'nearby' is not a valid Adjacency"),
        ((1.0, 0.0, "rho_bounded"), "rho=None must be given"),
        ((1.0, 0.0, "zero_out", 0.5), "rho=0.5 must be given for rho_bounded and only there"),
    ],
)
def test_budget_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Budget(*arguments)


def test_budgets_split_and_add_within_one_adjacency():
    parts = Budget(1.0, 1e-6).split([1, 2, 5])
    total_epsilon = math.fsum(part.epsilon for part in parts)
    assert total_epsilon == pytest.approx(1.0)
    first_two = parts[0] + parts[1]
    assert first_two.epsilon == pytest.approx(3 / 8)
    with pytest.raises(ValueError, match="zero_out and replace_one cannot be added"):
        Budget(1.0) + Budget(1.0, adjacency=Adjacency.REPLACE_ONE)


def test_claim_refuses_unknown_notions():
    with pytest.raises(ValueError, match="notion='perfect' is unknown"):
        PrivacyClaim("perfect")
    assert not NO_CLAIM.private


# Grid


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_snap_is_nearest_and_idempotent(values):
    grid_values = snap(values)
    half_widths = grid_values / SCALE
    assert np.abs(half_widths - values).max() <= 2.0**-17
    assert (snap(half_widths) == grid_values).all()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "finite"),
        (math.inf, "finite"),
        (1.001, r"\[-1, 1\]"),
    ],
)
def test_snap_refuses_values_outside_the_domain(value, message):
    with pytest.raises(ValueError, match=message):
        snap([0.0, value])


def test_released_centers_saturate():
    centers = snap_centers(np.array([[math.inf, -math.inf, 0.4]]))
    largest, smallest, zero = centers[0].tolist()
    assert zero == 0
    assert largest == -smallest
    assert 3 * (largest + SCALE) ** 2 < 2**53


# Noise

MOMENTS = {"normal": {2: 1, 4: 3, 8: 105}, "laplace": {2: 2, 4: 24, 8: 40_320}}


@pytest.mark.statistical
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    ("law", "reference"),
    [
        ("normal", stats.norm),
        ("laplace", stats.laplace),
    ],
)
def test_noise_follows_its_distribution(secure, law, reference):
    streams = NoiseStreams(range(4), secure=secure)
    draw = getattr(streams, law)
    draws = draw(("a", 0), (50_000,))
    assert stats.kstest(draws.ravel(), reference.cdf).pvalue > 1e-6

    # Even moments: (2m - 1)!! for the normal, (2m)! for the Laplace distribution; the variance of a
    # mean of powers is below the moment of twice the power, over the number of draws.
    moments = MOMENTS[law]
    assert abs(draws.mean()) < 5 * math.sqrt(moments[2] / draws.size)
    for power in (2, 4):
        sample_moment = (draws**power).mean()
        standard_error = math.sqrt(moments[2 * power] / draws.size)
        assert abs(sample_moment - moments[power]) < 5 * standard_error


def test_streams_depend_on_key_and_seed_alone():
    streams = NoiseStreams([0, 1])
    draws = streams.normal(("sums", 0), (1000,))
    equal_streams = NoiseStreams([0, 1])
    repeated = equal_streams.normal(("sums", 0), (1000,))
    assert (repeated == draws).all()

    next_round = streams.normal(("sums", 1), (1000,))
    other_label = streams.normal(("counts", 0), (1000,))
    for unrelated in (draws[1], next_round[0], other_label[0]):
        correlation = np.corrcoef(draws[0], unrelated)[0, 1]
        assert abs(correlation) < 5 / math.sqrt(1000)
        assert not np.isin(draws[0], unrelated).any()


def test_replicate_stream_ignores_the_batch():
    """Neither the other replicates nor earlier draws change it."""
    batch = NoiseStreams([5, 7, 9])
    batch.normal(("first", 0), (3,))
    single = NoiseStreams([7])
    batch_draws = batch.normal(("x", 2), (4, 2))
    single_draws = single.normal(("x", 2), (4, 2))
    assert (batch_draws[1] == single_draws[0]).all()


def test_secure_tails_are_fine_and_bounded():
    """Uniforms in (0, 1/2] with a geometric exponent: the share below 2^-j is 2^(1-j), also far
    out.
    """
    signs, tails = noise._secure_tails(1_000_000)
    assert tails.min() > 0
    assert tails.max() <= 0.5
    assert set(np.unique(signs)) == {-1.0, 1.0}
    for j in (2, 6, 12):
        expected = 2.0 ** (1 - j)
        share = (tails < 2.0**-j).mean()
        assert abs(share - expected) < 5 * math.sqrt(expected / tails.size)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("law", ["normal", "laplace", "uniform", "gumbel"])
def test_draws_of_empty_shapes(secure, law):
    for shape in ((0,), (0, 3), (2, 0)):
        streams = NoiseStreams([1, 2], secure=secure)
        draws = getattr(streams, law)(("a", 0), shape)
        assert draws.shape == (2, *shape)


def test_secure_noise_never_repeats():
    draws = []
    for _ in range(2):
        streams = NoiseStreams([0], secure=True)
        draws.append(streams.normal(("x", 0), (100,)))
    assert not (draws[0] == draws[1]).any()


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_bad_seeds_are_refused(seeds):
    with pytest.raises(ValueError, match="different non-negative integers"):
        NoiseStreams(seeds)


# Mechanisms


@pytest.mark.parametrize(
    ("mechanism", "deviation"),
    [
        (Gaussian, 1.0),
        (Laplace, math.sqrt(2)),
    ],
)
def test_mechanism_noise_has_its_scale(mechanism, deviation):
    zeros = np.zeros((2, 100_000), np.int64)
    streams = NoiseStreams([3, 4])
    noise = streams.release(mechanism(1000.0), zeros, ("scale",))
    assert noise.dtype == np.int64
    # The sampling error of a standard deviation is at most sd * sqrt(5 / (4 n)) for these
    # distributions (kurtosis up to 6).
    expected = 1000 * deviation
    relative_error = math.sqrt(1.25 / zeros.size)
    assert noise.std() == pytest.approx(expected, rel=5 * relative_error)
    assert abs(noise.mean()) < 5 * expected / math.sqrt(zeros.size)


@settings(max_examples=30, deadline=None)
@given(st.integers(-(2**40), 2**40), st.integers(0, 1000))
def test_rounding_commutes_with_the_data(value, seed):
    """Noise is rounded to nearest before it is added, so the data shift the release and do nothing
    else.
    """
    zeros = np.zeros((1, 8), np.int64)
    for mechanism in (Gaussian(2.5), Laplace(2.5)):
        noise = NoiseStreams([seed]).release(mechanism, zeros, ("x",))
        release = NoiseStreams([seed]).release(mechanism, zeros + value, ("x",))
        assert (release == noise + value).all()


@pytest.mark.statistical
def test_rounded_noise_has_no_atom_at_zero():
    """Truncation toward zero would double the mass at zero; rounding to nearest gives each integer
    its own interval.
    """
    zeros = np.zeros((1, 400_000), np.int64)
    streams = NoiseStreams([0])
    noise = streams.release(Gaussian(2.0), zeros, ("atoms",)).ravel()
    integers = np.arange(-6, 7)
    edges = np.append(integers - 0.5, 6.5)
    expected = np.diff(stats.norm(scale=2.0).cdf(edges))
    observed = np.array([(noise == integer).sum() for integer in integers])

    # All integers further out form the last class.
    expected = np.append(expected, 1 - expected.sum())
    observed = np.append(observed, noise.size - observed.sum())
    assert stats.chisquare(observed, noise.size * expected).pvalue > 1e-6


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
@pytest.mark.parametrize("scale", [MAX_SCALE * (1 + 1e-9), 1e40, 1e300])
def test_noise_that_integers_do_not_carry_is_refused(mechanism, scale):
    """It would leave the low bits of the answer, or all of it, as they are."""
    query = SumsAndCounts(ONE_CENTER)
    for part in ("sums", "counts"):
        curator = curator_of(np.zeros((3, 2), np.int64), streams=ForbiddenNoise([0]))
        noise = NOISE | {part: mechanism(scale)}
        with pytest.raises(ValueError, match=r"grid steps of \w+ noise must be at most 1.76e\+13"):
            curator.release(query, **noise)
        assert curator._ledger.charges == ()


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
def test_the_largest_noise_is_carried_to_its_last_bit(mechanism):
    """A value of one step more shifts every draw by one step; the noise does not wrap."""
    zeros = np.zeros((1, 1000), np.int64)
    largest = mechanism(MAX_SCALE)
    noise = NoiseStreams([0]).release(largest, zeros, ("x",))
    shifted = NoiseStreams([0]).release(largest, zeros + 1, ("x",))
    assert (shifted == noise + 1).all()
    assert np.abs(noise).max() <= largest.max_noise < 2**61
    # Odd and even draws are equally likely: no low bit is left empty.
    assert abs((noise % 2).mean() - 0.5) < 5 / math.sqrt(4 * noise.size)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_mechanism_refuses_bad_scales(scale):
    with pytest.raises(ValueError, match="scale="):
        Gaussian(scale)
    with pytest.raises(ValueError, match="scale="):
        Laplace(scale)


# Ledger


def gaussian_charge(round_index, mu):
    return Charge("q", round_index, "gaussian", mu=mu)


def laplace_charge(round_index, epsilon):
    return Charge("q", round_index, "laplace", epsilon=epsilon)


def test_ledger_composes_gaussians_in_closed_form():
    """Seven rounds of noise multiplier 8 need epsilon 1.260096 at delta 1e-5 (exact)."""
    ledger = Ledger(Budget(2.0, 1e-5))
    for i in range(7):
        ledger.charge(gaussian_charge(i, 1 / 8))
    spent = ledger.spent()
    assert spent == pytest.approx(1.260096, abs=1e-6)

    single_round = privacy_loss_distribution.from_gaussian_mechanism(
        8.0, value_discretization_interval=1e-3
    )
    composed = single_round.self_compose(7)
    assert spent == pytest.approx(composed.get_epsilon_for_delta(1e-5), rel=1e-4)
    mu = math.sqrt(7) / 8
    assert ledger.delta_at(2.0) == pytest.approx(gdp_delta(mu, 2.0))
    assert ledger.unspent() == pytest.approx(2.0 - spent)


def test_a_ledger_prints_what_was_spent():
    ledger = Ledger(Budget(1.0))
    ledger.charge(Charge("count", 0, "laplace", epsilon=0.75))
    assert repr(ledger).endswith("1 releases, spent epsilon=0.75)")
    assert "epsilon=1.0" in repr(ledger)


def test_ledger_refuses_overspending_and_stays_unchanged():
    mu = gaussian_mu(1.0, 1e-5) / math.sqrt(7)
    ledger = Ledger(Budget(1.0, 1e-5))
    for i in range(7):
        ledger.charge(gaussian_charge(i, mu))
    charges = ledger.charges
    with pytest.raises(BudgetExceeded, match="round 7 would need delta"):
        ledger.charge(gaussian_charge(7, mu))
    assert ledger.charges == charges


def test_ledger_refuses_a_used_stream():
    ledger = Ledger(Budget(1.0))
    ledger.charge(laplace_charge(0, 0.1))
    with pytest.raises(StreamReuseError, match="noise must be fresh"):
        ledger.charge(laplace_charge(0, 0.1))


def test_pure_budget_adds_epsilons_and_refuses_gaussians():
    ledger = Ledger(Budget(1.0))
    for i in range(10):
        ledger.charge(laplace_charge(i, 0.1))
    assert ledger.spent() == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        ledger.charge(laplace_charge(10, 1e-3))

    unused = Ledger(Budget(1.0))
    with pytest.raises(BudgetExceeded):
        unused.charge(gaussian_charge(0, 0.01))


@pytest.mark.parametrize(
    "cost",
    [
        {"mu": math.nan},
        {"mu": -1.0},
        {"epsilon": -0.1},
        {"delta": math.inf},
    ],
)
def test_charge_refuses_invalid_costs(cost):
    with pytest.raises(ValueError, match="of a charge must be finite and not negative"):
        Charge("q", 0, "gaussian", **cost)


def test_small_pure_charges_cost_less_than_their_sum():
    """200 charges of 0.01 add up to 2, but at delta 1e-6 they cost less than 1: charge and spent
    must agree.
    """
    ledger = Ledger(Budget(1.0, 1e-6))
    for i in range(200):
        ledger.charge(laplace_charge(i, 0.01))
    assert ledger.spent() < 1.0
    assert ledger.delta_at(1.0) <= 1e-6


def test_mixed_charges_compose_exactly():
    """A mixture costs more than its parts and less than their sum; a delta charged in addition is
    added.
    """
    ledger = Ledger(Budget(5.0, 1e-5))
    ledger.charge(Charge("g", 0, "gaussian", mu=0.2))
    gaussian_only = ledger.spent()
    for i in range(7):
        ledger.charge(Charge("p", i, "exponential", epsilon=0.05))
    mixed = ledger.spent()
    assert max(gaussian_only, 0.35) < mixed < gaussian_only + 0.35

    # The accountant's grid overestimates the loss by about its interval.
    interval = 1e-3
    parameters = common.DifferentialPrivacyParameters(0.05, 0)
    pure = privacy_loss_distribution.from_privacy_parameters(
        parameters, value_discretization_interval=interval
    )
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(
        5.0, value_discretization_interval=interval
    )
    composed = gaussian.compose(pure.self_compose(7))
    accountant_epsilon = composed.get_epsilon_for_delta(1e-5)
    assert mixed <= accountant_epsilon <= mixed * (1 + 1e-5)

    ledger.charge(Charge("d", 0, "threshold", delta=5e-6))
    assert ledger.spent() > mixed


# Curator


class UnitNoise(NoiseStreams):
    """A source whose every draw is 1: noise equals its scale."""

    def normal(self, key, shape):
        return np.ones((len(self.seeds), *shape))

    laplace = normal


class ForbiddenNoise(NoiseStreams):
    """A source that refuses every draw."""

    def normal(self, key, shape):
        raise AssertionError("noise was drawn before the charge was accepted")

    laplace = normal


ONE_CENTER = np.zeros((1, 1, 2), np.int64)
NOISE = {"sums": Gaussian(9.0 * SCALE), "counts": Gaussian(9.0 * SCALE)}
EXACT = {"sums": None, "counts": None}


def curator_of(points, budget=None, streams=None):
    ledger = Ledger(budget or Budget(1e6, 0.5))
    return Curator(np.asarray(points), ledger, streams or NoiseStreams([0]))


def test_released_noise_has_the_charged_scale():
    points = np.zeros((10, 2), np.int64)
    curator = curator_of(points, streams=UnitNoise([0]))
    query = SumsAndCounts(ONE_CENTER, radius=0.5, relative=True)
    noise = {"sums": Gaussian(3.0 * SCALE), "counts": Gaussian(5.0 * SCALE)}
    answer = curator.release(query, **noise)
    assert (answer["sums"] == 3 * SCALE).all()
    assert (answer["counts"] == (10 + 5) * SCALE).all()
    (charge,) = curator._ledger.charges
    assert charge.mu == pytest.approx(math.hypot(0.5 / 3.0, 1 / 5.0))
    assert charge.details["sum_sensitivity"] == 0.5
    assert charge.details["sum_scale"] == 3.0


def test_laplace_release_is_charged_by_l1():
    curator = curator_of(np.zeros((4, 3), np.int64))
    centers = np.zeros((1, 2, 3), np.int64)
    noise = {"sums": Laplace(6.0 * SCALE), "counts": Laplace(2.0 * SCALE)}
    curator.release(SumsAndCounts(centers), **noise)
    (charge,) = curator._ledger.charges
    assert charge.epsilon == pytest.approx(3 / 6 + 1 / 2)


def test_noise_of_two_kinds_is_charged_as_a_mixture():
    curator = curator_of(np.zeros((4, 3), np.int64))
    centers = np.zeros((1, 2, 3), np.int64)
    noise = {"sums": Gaussian(6.0 * SCALE), "counts": Laplace(2.0 * SCALE)}
    curator.release(SumsAndCounts(centers), **noise)
    (charge,) = curator._ledger.charges
    assert charge.mu == pytest.approx(math.sqrt(3) / 6)
    assert charge.epsilon == pytest.approx(1 / 2)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 5),
    st.floats(0.05, 3.0),
)
def test_release_changes_within_its_sensitivity(seed, d, k, radius):
    """Random neighbors (one record zeroed out) and random centers: exact answers differ by at most
    what is charged.
    """
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (30, d))
    if seed % 3 == 0:
        points = np.sign(points) * SCALE  # corners are the worst case of absolute sums
    centers = rng.integers(-SCALE, SCALE + 1, (1, k, d))
    neighbor = np.delete(points, rng.integers(30), axis=0)
    for query in (SumsAndCounts(centers, radius, relative=True), SumsAndCounts(centers)):
        curator = curator_of(points)
        exact = query.exact(curator)
        neighbor_exact = query.exact(curator_of(neighbor))
        sensitivity = query.sensitivity(curator)["sums"]

        # In half-widths: the radius, or the half-diagonal; in L1 sqrt(d) times as much.
        longest = radius if query.relative else math.sqrt(d)
        assert sensitivity.l2 == pytest.approx(longest * SCALE)
        assert sensitivity.l1 == pytest.approx(math.sqrt(d) * longest * SCALE)

        change = (exact["sums"] - neighbor_exact["sums"])[0].astype(float)
        assert np.linalg.norm(change) <= sensitivity.l2 * (1 + 1e-12)
        assert np.abs(change).sum() <= sensitivity.l1 * (1 + 1e-12)
        assert np.abs(exact["counts"] - neighbor_exact["counts"]).sum() <= SCALE


def test_points_beyond_the_radius_are_excluded():
    points = np.array([[100], [300]])
    centers = np.array([[[0]]])
    curator = Curator(points, None, NoiseStreams([0]))
    query = SumsAndCounts(centers, radius=200 / SCALE, relative=True)
    answer = curator.release(query, **EXACT)
    assert answer["sums"].tolist() == [[[100]]]
    assert answer["counts"].tolist() == [[SCALE]]


def test_each_center_has_its_own_radius():
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE + 1, (400, 3))
    centers = rng.integers(-SCALE, SCALE + 1, (2, 5, 3))
    radii = rng.uniform(0.2, 1.5, (2, 5))
    curator = Curator(points, None, NoiseStreams([0, 1]))
    answer = curator.release(SumsAndCounts(centers, radii, relative=True), **EXACT)
    for r in range(2):
        for j in range(5):
            alone = SumsAndCounts(centers, float(radii[r, j]), relative=True)
            expected = curator.release(alone, **EXACT)
            assert (answer["sums"][r, j] == expected["sums"][r, j]).all()
            assert answer["counts"][r, j] == expected["counts"][r, j]


def test_noise_of_a_sum_is_in_multiples_of_its_radius():
    n_runs = 4096
    centers = np.repeat([[[0], [50_000]]], n_runs, axis=0)
    radii = np.repeat([[0.01, 1.0]], n_runs, axis=0)
    query = SumsAndCounts(centers, radii, relative=True)
    ledger = Ledger(Budget(10.0, 0.1))
    curator = Curator(np.zeros((1, 1), np.int64), ledger, NoiseStreams(range(n_runs)))
    sums = curator.release(query, sums=Gaussian(3.0), counts=Gaussian(SCALE))["sums"]
    deviations = np.sqrt((sums[:, :, 0] ** 2.0).mean(axis=0)) / SCALE
    # The standard error of a deviation is 1.1 %: seven of them.
    np.testing.assert_allclose(deviations, [0.03, 3.0], rtol=0.08)
    (charge,) = curator._ledger.charges
    assert charge.mu == pytest.approx(math.hypot(1 / 3, 1.0))


@pytest.mark.parametrize(
    ("radii", "message"),
    [
        (np.ones((1, 2)), "one for each center"),
        (np.ones((1, 1), np.int64), "one for each center, got int64"),
        (np.zeros((1, 1)), "positive and finite for each center"),
        (np.full((1, 1), math.nan), "positive and finite for each center"),
    ],
)
def test_radii_of_centers_are_checked(radii, message):
    curator = Curator(np.zeros((1, 1), np.int64), None, NoiseStreams([0]))
    with pytest.raises(ValueError, match=message):
        curator.release(SumsAndCounts(np.array([[[0]]]), radii, relative=True), **EXACT)


def test_answers_do_not_depend_on_shards():
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE + 1, (50, 3))
    centers = rng.integers(-SCALE, SCALE + 1, (2, 4, 3))
    query = SumsAndCounts(centers, radius=1.0, relative=True)
    answers = []
    for shards in (points, [points[:7], points[7:8], points[8:]]):
        ledger = Ledger(Budget(1e6, 0.9))
        curator = Curator(shards, ledger, NoiseStreams([0, 1]))
        answers.append(curator.release(query, **NOISE))
    answer, sharded_answer = answers
    for part in ("sums", "counts"):
        assert (answer[part] == sharded_answer[part]).all()


def test_exact_answers_are_refused_to_private_methods():
    curator = curator_of(np.zeros((3, 2), np.int64))
    with pytest.raises(DisclosureError, match="claims privacy"):
        curator.disclose()
    # Nor a part of an answer.
    for partly in (EXACT, NOISE | {"counts": None}, NOISE | {"sums": None}):
        with pytest.raises(DisclosureError, match="claims privacy"):
            curator.release(SumsAndCounts(ONE_CENTER), **partly)
    assert curator._ledger.charges == ()


def test_noise_is_drawn_after_the_charge():
    points = np.zeros((3, 2), np.int64)
    curator = curator_of(points, Budget(0.1, 1e-9), ForbiddenNoise([0]))
    with pytest.raises(BudgetExceeded):
        curator.release(SumsAndCounts(ONE_CENTER), sums=Gaussian(1.0), counts=Gaussian(1.0))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"relative": True}, "relative sums need a radius"),
        ({"relative": True, "radius": -1.5}, "radius=-1.5 must be positive"),
        ({"radius": math.nan}, "radius=nan must be positive"),
        ({"radius": 0.0}, "radius=0.0 must be positive"),
        # Between grid points, a relative sum would carry the exact count in its fraction.
        ({"centers": np.full((1, 1, 2), 0.5)}, "centers must be grid integers"),
        ({"centers": np.zeros((2, 1, 2), np.int64)}, "for 1 replicates"),
        ({"centers": np.zeros((1, 1, 3), np.int64)}, r"of shape \(1, k, 2\)"),
    ],
)
def test_ill_posed_queries_are_refused(arguments, message):
    curator = curator_of(np.zeros((3, 2), np.int64))
    query = SumsAndCounts(**{"centers": ONE_CENTER} | arguments)
    with pytest.raises(ValueError, match=message):
        curator.release(query, **NOISE)


def test_curator_refuses_unsupported_adjacencies():
    """Sensitivities are those of zero-out; under another adjacency the same noise costs more."""
    points = np.zeros((3, 2), np.int64)
    for adjacency in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE, Adjacency.LOCAL):
        with pytest.raises(ValueError, match=f"adjacency={adjacency} is not supported"):
            curator_of(points, Budget(1.0, 1e-6, adjacency))

    without_ledger = Curator(points, None, NoiseStreams([0]))
    with pytest.raises(ValueError, match="needs a ledger to be charged to"):
        without_ledger.release(SumsAndCounts(ONE_CENTER), **NOISE)


@pytest.mark.parametrize(
    "shards",
    [
        [],
        [np.zeros((2, 2), np.int64), np.zeros((2, 3), np.int64)],
    ],
)
def test_curator_refuses_bad_shards(shards):
    with pytest.raises(ValueError, match="one or more shards of one width"):
        Curator(shards, None, NoiseStreams([0]))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.full((2, 2), SCALE + 1), "must lie in the domain"),
        (np.zeros((2, 2)), "grid integers"),
        (np.zeros(3, np.int64), r"\(n, d\)"),
    ],
)
def test_curator_refuses_bad_points(points, message):
    with pytest.raises(ValueError, match=message):
        curator_of(points)


@pytest.mark.statistical
def test_sum_and_count_noise_are_independent():
    """The published code seeds both from one number; in this implementation their correlation is
    within five standard errors of zero.
    """
    n_replicates = 4000
    point = np.zeros((1, 1), np.int64)
    centers = np.zeros((n_replicates, 1, 1), np.int64)
    ledger = Ledger(Budget(1e6, 0.9))
    curator = Curator(point, ledger, NoiseStreams(range(n_replicates)))
    mechanism = Gaussian(1e3 * SCALE)
    releases = []
    for _ in range(2):
        answer = curator.release(SumsAndCounts(centers), sums=mechanism, counts=mechanism)
        releases += [answer[part].ravel().astype(float) for part in ("sums", "counts")]

    pairs = np.triu_indices(4, 1)
    correlations = np.corrcoef(releases)[pairs]
    assert np.abs(correlations).max() < 5 / math.sqrt(n_replicates)


def test_nan_centers_are_not_released():
    centers = np.array([[np.nan, 0.0]])
    with pytest.raises(ValueError, match="centers must not be NaN"):
        snap_centers(centers)
