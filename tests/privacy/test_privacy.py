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
    Sensitivity,
    StreamReuseError,
    SumsAndCounts,
    gaussian_mu,
    gdp_delta,
    gdp_epsilon,
    noise,
    snap,
    snap_centers,
)
from pkm.privacy.queries import sum_sensitivity_of

EPSILONS = (0.05, 0.1, 0.5, 1.0, 4.0, 10.0)
DELTAS = (1e-3, 1e-5, 1e-9)


# Calibration


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 30.749566), (1.0, 3.730632), (4.0, 1.081162)])
def test_calibration_meets_known_values(epsilon, sigma):
    """Values computed with fifty digits for delta = 1e-5."""
    assert 1 / gaussian_mu(epsilon, 1e-5) == pytest.approx(sigma, abs=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_agrees_with_dp_accounting(epsilon, delta):
    theirs = accountant.get_smallest_gaussian_noise(
        common.DifferentialPrivacyParameters(epsilon, delta), 1, 1.0
    )
    assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_is_on_the_safe_side_and_tight(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gdp_delta(mu, epsilon) <= delta < gdp_delta(mu * (1 + 1e-7), epsilon)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@given(st.floats(0.01, 5), st.floats(0.01, 5))
def test_gdp_delta_falls_with_epsilon_and_grows_with_mu(mu, epsilon):
    assert (
        0
        <= gdp_delta(mu, epsilon * 1.01)
        <= gdp_delta(mu, epsilon)
        <= gdp_delta(mu * 1.01, epsilon)
        <= 1
    )


def test_no_noise_needed_for_nothing():
    assert (
        gdp_delta(0.0, 1.0) == 0
        and gdp_epsilon(0.0, 0.0) == 0
        and gdp_epsilon(1.0, 0.0) == math.inf
    )


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1, 0), (1, 1)]
)
def test_calibration_refuses(epsilon, delta):
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
def test_budget_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        Budget(*arguments)


def test_budgets_split_and_add_up_within_one_adjacency_only():
    parts = Budget(1.0, 1e-6).split([1, 2, 5])
    assert math.fsum(part.epsilon for part in parts) == pytest.approx(1.0)
    assert (parts[0] + parts[1]).epsilon == pytest.approx(3 / 8)
    with pytest.raises(ValueError, match="zero_out and replace_one cannot be added"):
        Budget(1.0) + Budget(1.0, adjacency=Adjacency.REPLACE_ONE)


def test_claim_refuses_unknown_words():
    with pytest.raises(ValueError, match="notion='perfect' is unknown"):
        PrivacyClaim("perfect")
    assert not NO_CLAIM.private


# Grid


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20))
def test_snap_is_nearest_and_idempotent(values):
    grid = snap(values)
    assert np.abs(grid / SCALE - values).max() <= 2.0**-17
    assert (snap(grid / SCALE) == grid).all()


@pytest.mark.parametrize(
    ("value", "message"), [(math.nan, "finite"), (math.inf, "finite"), (1.001, r"\[-1, 1\]")]
)
def test_snap_refuses(value, message):
    with pytest.raises(ValueError, match=message):
        snap([0.0, value])


def test_released_centers_saturate():
    centers = snap_centers(np.array([[math.inf, -math.inf, 0.4]]))
    assert centers[0, 2] == 0 and centers[0, 0] == -centers[0, 1]
    assert 3 * (int(centers[0, 0]) + SCALE) ** 2 < 2**53


# Noise

MOMENTS = {"normal": {2: 1, 4: 3, 8: 105}, "laplace": {2: 2, 4: 24, 8: 40_320}}


@pytest.mark.statistical
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(("law", "reference"), [("normal", stats.norm), ("laplace", stats.laplace)])
def test_noise_follows_its_law(secure, law, reference):
    draws = getattr(NoiseStreams(range(4), secure=secure), law)(("a", 0), (50_000,))
    assert stats.kstest(draws.ravel(), reference.cdf).pvalue > 1e-6
    for power in (2, 4):
        # Even moments: (2m - 1)!! for the normal, (2m)! for the Laplace law; the variance of a mean
        # of powers is below the moment of twice the power, over the number of draws.
        moment = MOMENTS[law]
        assert abs(draws.mean()) < 5 * math.sqrt(moment[2] / draws.size)
        assert abs((draws**power).mean() - moment[power]) < 5 * math.sqrt(
            moment[2 * power] / draws.size
        )


def test_streams_differ_by_key_and_seed_and_repeat():
    streams = NoiseStreams([0, 1])
    one = streams.normal(("sums", 0), (1000,))
    assert (NoiseStreams([0, 1]).normal(("sums", 0), (1000,)) == one).all()
    others = [streams.normal(key, (1000,)) for key in (("sums", 1), ("counts", 0))]
    pairs = [(one[0], one[1]), (one[0], others[0][0]), (one[0], others[1][0])]
    for a, b in pairs:
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(1000)
        assert not np.isin(a, b).any()


def test_stream_of_a_replicate_ignores_its_neighbors_and_earlier_draws():
    batch = NoiseStreams([5, 7, 9])
    batch.normal(("first", 0), (3,))
    assert (
        batch.normal(("x", 2), (4, 2))[1] == NoiseStreams([7]).normal(("x", 2), (4, 2))[0]
    ).all()


def test_secure_tails_are_fine_and_bounded():
    """Uniforms in (0, 1/2] with a geometric exponent: the share below 2^-j is 2^(1-j), also far
    out.
    """
    signs, tails = noise._secure_tails(1_000_000)
    assert 0 < tails.min() and tails.max() <= 0.5
    assert set(np.unique(signs)) == {-1.0, 1.0}
    for j in (2, 6, 12):
        share = 2.0 ** (1 - j)
        assert abs((tails < 2.0**-j).mean() - share) < 5 * math.sqrt(share / tails.size)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("law", ["normal", "laplace", "uniform", "gumbel"])
def test_nothing_can_be_drawn(secure, law):
    for shape in ((0,), (0, 3), (2, 0)):
        assert getattr(NoiseStreams([1, 2], secure=secure), law)(("a", 0), shape).shape == (
            2,
            *shape,
        )


def test_secure_noise_never_repeats():
    one, other = (NoiseStreams([0], secure=True).normal(("x", 0), (100,)) for _ in range(2))
    assert not (one == other).any()


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_bad_seeds_are_refused(seeds):
    with pytest.raises(ValueError, match="different non-negative integers"):
        NoiseStreams(seeds)


# Mechanisms


@pytest.mark.parametrize(("mechanism", "deviation"), [(Gaussian, 1.0), (Laplace, math.sqrt(2))])
def test_mechanism_has_the_asked_scale(mechanism, deviation):
    zeros = np.zeros((2, 100_000), np.int64)
    noise = mechanism(1000.0).draw(zeros, NoiseStreams([3, 4]), ("scale",))
    assert noise.dtype == np.int64
    # The sampling error of a standard deviation is at most sd * sqrt(5 / (4 n)) for these laws
    # (kurtosis up to 6).
    assert noise.std() == pytest.approx(1000 * deviation, rel=5 * math.sqrt(1.25 / zeros.size))
    assert abs(noise.mean()) < 5 * 1000 * deviation / math.sqrt(zeros.size)


@settings(max_examples=30, deadline=None)
@given(st.integers(-(2**40), 2**40), st.integers(0, 1000))
def test_rounding_commutes_with_the_data(value, seed):
    """Noise is rounded to nearest before it meets the data, so the data shift the release and do
    nothing else.
    """
    zeros = np.zeros((1, 8), np.int64)
    for mechanism in (Gaussian(2.5), Laplace(2.5)):
        at_zero = mechanism.draw(zeros, NoiseStreams([seed]), ("x",))
        assert (
            mechanism.draw(zeros + value, NoiseStreams([seed]), ("x",)) == at_zero + value
        ).all()


@pytest.mark.statistical
def test_rounded_noise_has_no_atom_at_zero():
    """Truncation toward zero would double the mass at zero; rounding to nearest gives each integer
    its own interval.
    """
    noise = (
        Gaussian(2.0).draw(np.zeros((1, 400_000), np.int64), NoiseStreams([0]), ("atoms",)).ravel()
    )
    cells = np.arange(-6, 7)
    expected = np.diff(stats.norm(scale=2.0).cdf(np.append(cells - 0.5, 6.5)))
    observed = np.array([(noise == cell).sum() for cell in cells])
    rest = [noise.size - observed.sum()], [1 - expected.sum()]
    assert (
        stats.chisquare(
            np.append(observed, rest[0]), noise.size * np.append(expected, rest[1])
        ).pvalue
        > 1e-6
    )


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
def test_huge_noise_is_refused(mechanism):
    """It would be clipped or wrap; what exceeds one entry's range is refused for all."""
    for scale, unit in ((1e300, 1.0), (2.0**45, 1.0), (1.0, np.array([1.0, 2.0**45]))):
        with pytest.raises(ValueError, match=r"scale=\S+ grid steps of .* must be at most"):
            mechanism(scale).check(Sensitivity(1.0, 1.0, unit=unit))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_mechanism_refuses_scale(scale):
    with pytest.raises(ValueError, match="scale="):
        Gaussian(scale)
    with pytest.raises(ValueError, match="scale="):
        Laplace(scale)


# Ledger


def gaussian_rounds(rounds, mu):
    return [Charge("q", i, "gaussian", mu=mu) for i in range(rounds)]


def test_ledger_composes_gaussians_in_closed_form():
    """Seven rounds of noise multiplier 8 need epsilon 1.260096 at delta 1e-5 (exact)."""
    ledger = Ledger(Budget(2.0, 1e-5))
    for charge in gaussian_rounds(7, 1 / 8):
        ledger.charge(charge)
    assert ledger.spent() == pytest.approx(1.260096, abs=1e-6)
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        8.0, value_discretization_interval=1e-3
    ).self_compose(7)
    assert ledger.spent() == pytest.approx(pld.get_epsilon_for_delta(1e-5), rel=1e-4)
    assert ledger.delta_at(2.0) == pytest.approx(gdp_delta(math.sqrt(7) / 8, 2.0))
    assert ledger.unspent() == pytest.approx(2.0 - ledger.spent())


def test_ledger_refuses_the_round_too_many_and_stays_as_it_was():
    mu = gaussian_mu(1.0, 1e-5) / math.sqrt(7)
    ledger = Ledger(Budget(1.0, 1e-5))
    for charge in gaussian_rounds(7, mu):
        ledger.charge(charge)
    before = ledger.charges
    with pytest.raises(BudgetExceeded, match="round 7 would need delta"):
        ledger.charge(Charge("q", 7, "gaussian", mu=mu))
    assert ledger.charges == before


def test_ledger_refuses_a_used_stream():
    ledger = Ledger(Budget(1.0))
    ledger.charge(Charge("q", 0, "laplace", epsilon=0.1))
    with pytest.raises(StreamReuseError, match="noise must be fresh"):
        ledger.charge(Charge("q", 0, "laplace", epsilon=0.1))


def test_pure_budget_refuses_gaussian_noise_and_adds_pure_charges():
    ledger = Ledger(Budget(1.0))
    for i in range(10):
        ledger.charge(Charge("q", i, "laplace", epsilon=0.1))
    assert ledger.spent() == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        ledger.charge(Charge("q", 10, "laplace", epsilon=1e-3))
    with pytest.raises(BudgetExceeded):
        Ledger(Budget(1.0)).charge(Charge("q", 0, "gaussian", mu=0.01))


@pytest.mark.parametrize(
    "cost", [{"mu": math.nan}, {"mu": -1.0}, {"epsilon": -0.1}, {"delta": math.inf}]
)
def test_charges_that_are_no_costs_are_refused(cost):
    with pytest.raises(ValueError, match="of a charge must be finite and not negative"):
        Charge("q", 0, "gaussian", **cost)


def test_many_small_pure_charges_fit_where_their_sum_does_not():
    """200 charges of 0.01 add up to 2, but at delta 1e-6 they cost less than 1: charge and spent
    must agree.
    """
    ledger = Ledger(Budget(1.0, 1e-6))
    for i in range(200):
        ledger.charge(Charge("q", i, "laplace", epsilon=0.01))
    assert ledger.spent() < 1.0 and ledger.delta_at(1.0) <= 1e-6


def test_mixed_charges_compose_exactly():
    """A mixture costs more than its parts and less than their sum; delta charged beside it is
    added.
    """
    ledger = Ledger(Budget(5.0, 1e-5))
    ledger.charge(Charge("g", 0, "gaussian", mu=0.2))
    gaussian_only = ledger.spent()
    for i in range(7):
        ledger.charge(Charge("p", i, "exponential", epsilon=0.05))
    mixed = ledger.spent()
    assert max(gaussian_only, 0.35) < mixed < gaussian_only + 0.35
    parts = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(0.05, 0), value_discretization_interval=1e-3
    ).self_compose(7)
    both = privacy_loss_distribution.from_gaussian_mechanism(
        5.0, value_discretization_interval=1e-3
    ).compose(parts)
    theirs = both.get_epsilon_for_delta(
        1e-5
    )  # their grid errs on the safe side, by about its own size
    assert mixed <= theirs <= mixed * (1 + 1e-5)
    ledger.charge(Charge("d", 0, "threshold", delta=5e-6))
    assert ledger.spent() > mixed


# Curator

NOISE = {"sums": Gaussian(9.0 * SCALE), "counts": Gaussian(9.0 * SCALE)}
NOT_NOISED = {"sums": None, "counts": None}


class Ones(NoiseStreams):
    """A source whose every draw is one: noise equals its scale."""

    def normal(self, key, shape):
        return np.ones((len(self.seeds), *shape))

    laplace = normal


def curator(points, budget=None, streams=None):
    ledger = Ledger(budget or Budget(1e6, 0.5))
    return Curator(np.asarray(points), ledger, streams or NoiseStreams([0]))


def test_released_noise_has_the_charged_scale():
    points = np.zeros((10, 2), np.int64)
    centers = np.zeros((1, 1, 2), np.int64)
    asked = curator(points, streams=Ones([0]))
    answer = asked.release(
        SumsAndCounts(centers, radius=0.5, relative=True),
        sums=Gaussian(3.0 * SCALE),
        counts=Gaussian(5.0 * SCALE),
    )
    assert (answer["sums"] == 3 * SCALE).all() and (answer["counts"] == (10 + 5) * SCALE).all()
    (charge,) = asked._ledger.charges
    assert charge.mu == pytest.approx(math.hypot(0.5 / 3.0, 1 / 5.0))
    assert charge.details["sum_sensitivity"] == 0.5 and charge.details["sum_scale"] == 3.0


def test_laplace_release_is_charged_by_l1():
    asked = curator(np.zeros((4, 3), np.int64))
    asked.release(
        SumsAndCounts(np.zeros((1, 2, 3), np.int64)),
        sums=Laplace(6.0 * SCALE),
        counts=Laplace(2.0 * SCALE),
    )
    assert asked._ledger.charges[0].epsilon == pytest.approx(3 / 6 + 1 / 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 5), st.floats(0.05, 3.0))
def test_one_record_moves_a_release_by_at_most_its_sensitivity(seed, d, k, radius):
    """Random neighbors (one record zeroed out) and random centers: exact answers differ by at most
    what is charged.
    """
    rng = np.random.default_rng(seed)
    points = rng.integers(-SCALE, SCALE + 1, (30, d))
    if seed % 3 == 0:
        points = np.sign(points) * SCALE  # corners are the worst case of absolute sums
    centers = rng.integers(-SCALE, SCALE + 1, (1, k, d))
    neighbor = np.delete(points, rng.integers(30), axis=0)
    for relative, limit in ((True, radius), (False, None)):
        query = SumsAndCounts(centers, limit, relative)
        answers = [
            Curator(p, None, NoiseStreams([0])).release(query, **NOT_NOISED)
            for p in (points, neighbor)
        ]
        sums = [answer["sums"] for answer in answers]
        counts = [answer["counts"] for answer in answers]
        step = (sums[0] - sums[1])[0].astype(float)
        assert np.linalg.norm(step) <= sum_sensitivity_of(d, limit, norm=2) * SCALE * (1 + 1e-12)
        assert np.abs(step).sum() <= sum_sensitivity_of(d, limit, norm=1) * SCALE * (1 + 1e-12)
        assert np.abs(counts[0] - counts[1]).sum() <= SCALE


def test_points_beyond_the_radius_are_left_out():
    query = SumsAndCounts(np.array([[[0]]]), radius=200 / SCALE, relative=True)
    answer = Curator(np.array([[100], [300]]), None, NoiseStreams([0])).release(query, **NOT_NOISED)
    assert answer["sums"].tolist() == [[[100]]] and answer["counts"].tolist() == [[SCALE]]


def test_shards_answer_like_the_whole():
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE + 1, (50, 3))
    centers = rng.integers(-SCALE, SCALE + 1, (2, 4, 3))
    query = SumsAndCounts(centers, radius=1.0, relative=True)
    whole, split = (
        Curator(p, Ledger(Budget(1e6, 0.9)), NoiseStreams([0, 1])).release(query, **NOISE)
        for p in (points, [points[:7], points[7:8], points[8:]])
    )
    assert all((whole[part] == split[part]).all() for part in ("sums", "counts"))


def test_exact_answers_need_a_method_without_a_claim():
    private = curator(np.zeros((3, 2), np.int64))
    with pytest.raises(DisclosureError, match="claims privacy"):
        private.disclose()
    with pytest.raises(DisclosureError, match="claims privacy"):
        private.release(SumsAndCounts(np.zeros((1, 1, 2), np.int64)), **NOT_NOISED)


def test_nothing_is_drawn_when_the_budget_does_not_allow_it():
    class Forbidden(NoiseStreams):
        def normal(self, key, shape):
            raise AssertionError("noise was drawn before the charge was accepted")

    asked = curator(np.zeros((3, 2), np.int64), Budget(0.1, 1e-9), Forbidden([0]))
    with pytest.raises(BudgetExceeded):
        query = SumsAndCounts(np.zeros((1, 1, 2), np.int64))
        asked.release(query, sums=Gaussian(1.0), counts=Gaussian(1.0))
    assert asked._ledger.charges == ()


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
    asked = curator(np.zeros((3, 2), np.int64))
    with pytest.raises(ValueError, match=message):
        query = SumsAndCounts(**{"centers": np.zeros((1, 1, 2), np.int64), **arguments})
        asked.release(query, **NOISE)
    assert asked._ledger.charges == ()


def test_each_part_needs_noise_and_is_charged_by_its_own():
    asked = curator(np.zeros((3, 2), np.int64))
    query = SumsAndCounts(np.zeros((1, 1, 2), np.int64))
    with pytest.raises(DisclosureError, match="claims privacy"):
        asked.release(query, **{**NOISE, "counts": None})
    assert asked._ledger.charges == ()

    asked.release(query, **{**NOISE, "counts": Laplace(4.0 * SCALE)})
    (charge,) = asked._ledger.charges
    assert (charge.mu, charge.epsilon) == pytest.approx((math.sqrt(2) / 9, 1 / 4))


def test_curator_refuses_what_it_does_not_charge_for():
    """Sensitivities are those of zero-out; under another adjacency the same noise costs more."""
    points = np.zeros((3, 2), np.int64)
    for adjacency in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE, Adjacency.LOCAL):
        with pytest.raises(ValueError, match=f"adjacency={adjacency} is not supported"):
            curator(points, Budget(1.0, 1e-6, adjacency))
    with pytest.raises(ValueError, match="needs a ledger"):
        query = SumsAndCounts(np.zeros((1, 1, 2), np.int64))
        Curator(points, None, NoiseStreams([0])).release(query, **NOISE)


@pytest.mark.parametrize("shards", [[], [np.zeros((2, 2), np.int64), np.zeros((2, 3), np.int64)]])
def test_curator_refuses_shards(shards):
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
def test_curator_refuses_points(points, message):
    with pytest.raises(ValueError, match=message):
        curator(points)


@pytest.mark.statistical
def test_sum_and_count_noise_are_independent():
    """The published code seeds both from one number; here their correlation is within five standard
    errors of zero.
    """
    replicates = 4000
    zeros = np.zeros((replicates, 1, 1), np.int64)
    asked = Curator(
        np.zeros((1, 1), np.int64), Ledger(Budget(1e6, 0.9)), NoiseStreams(range(replicates))
    )
    noise = {"sums": Gaussian(1e3 * SCALE), "counts": Gaussian(1e3 * SCALE)}
    first, second = (asked.release(SumsAndCounts(zeros), **noise) for _ in range(2))
    streams = [a.ravel().astype(float) for a in (*first.values(), *second.values())]
    correlations = np.corrcoef(streams)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(replicates)


def test_nan_centers_are_not_released():
    with pytest.raises(ValueError, match="centers must not be NaN"):
        snap_centers(np.array([[np.nan, 0.0]]))
