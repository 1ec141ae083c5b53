"""Local randomizers: their exact laws by enumeration, densities, unbiasedness, deviations, and what
reports depend on.

Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from pkm.compute.ldp import add_signed_reports, hash_values, random_signs
from pkm.privacy import NoiseStreams
from pkm.privacy.randomizers import (
    REPORT_SCALE,
    DirectResponse,
    HadamardResponse,
    LocalHashing,
    SignedSums,
    UserCells,
    UserVectors,
    VectorRandomizer,
    frequency_oracle,
)

ORACLES = (DirectResponse, LocalHashing, HadamardResponse)
EPSILONS = (0.1, 1.0, 4.0)


def streams(seed=0):
    return NoiseStreams([seed])


def reports_of(oracle, users, values, streams, key):
    """Symbols that users report."""
    return streams.release(oracle, UserCells(users, values), key)[0]


def directions_of(randomizer, vectors, streams, key):
    """Directions that users report, all of one cell."""
    users = np.arange(len(vectors))
    return streams.release(randomizer, UserVectors(users, 0 * users, vectors), key)[0]


def estimates(oracle, users, values, seed=0, key=("test",)):
    tally = oracle.tally()
    tally.add(users, reports_of(oracle, users, values, streams(seed), key))
    return tally.estimate()


# Frequency oracles: the law of a report


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", ORACLES)
def test_reports_are_locally_private_by_enumeration(kind, epsilon):
    """All outputs for all pairs of inputs: the ratio never exceeds exp(epsilon), and some pair
    attains it.
    """
    largest = 0.0
    for key in range(5):
        oracle = kind(epsilon, 23, key)
        for user in (0, 7, 10**6):
            law = oracle.probabilities(user)
            assert law.shape == (23, oracle.symbols)
            np.testing.assert_allclose(law.sum(axis=1), 1, rtol=1e-12)
            ratios = law[:, None] / law[None]
            assert ratios.max() <= math.exp(epsilon) * (1 + 1e-12)
            largest = max(largest, ratios.max())
    assert largest == pytest.approx(math.exp(epsilon), rel=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("kind", ORACLES)
def test_reports_follow_the_law_that_is_enumerated(kind, secure):
    oracle = kind(1.5, 9, 3)
    draws = 40_000
    for user, value in ((0, 0), (5, 8)):
        users = np.full(draws, user)
        values = np.full(draws, value)
        reports = reports_of(oracle, users, values, NoiseStreams([1], secure), ("law", user))
        expected = oracle.probabilities(user)[value] * draws
        assert (
            stats.chisquare(np.bincount(reports, minlength=oracle.symbols), expected).pvalue > 1e-6
        )


@pytest.mark.parametrize("kind", ORACLES)
def test_probabilities_that_estimates_rest_on(kind):
    """Support of the own value with probability keep, of another with probability agree, on average
    over the hash.
    """
    oracle = kind(1.0, 12, 11)
    users = np.arange(60_000)
    own = np.full(len(users), 4)
    foreign = np.full(len(users), 9)
    reports = reports_of(oracle, users, own, streams(), ("support",))
    for value, expected in ((own, oracle.p_true), (foreign, oracle.p_false_support)):
        share = (oracle.symbols_of(users, value) == reports).mean()
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / len(users))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(ORACLES),
    st.integers(1, 70),
    st.integers(0, 2**64 - 1),
    st.floats(0.05, 6),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=20, unique=True),
)
def test_supports_by_brute_force(kind, size, key, epsilon, users):
    """Kernels, the Hadamard transform among them, against asking every user about every value."""
    oracle = kind(epsilon, size, key)
    users = np.array(users)
    reports = np.random.default_rng(0).integers(0, oracle.symbols, len(users))
    tally = oracle.tally()
    for part in (slice(0, 3), slice(3, None)):
        tally.add(users[part], reports[part])
    brute = [
        (oracle.symbols_of(users, np.full(len(users), v)) == reports).sum() for v in range(size)
    ]
    assert tally.supports.tolist() == brute


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", ORACLES)
def test_estimates_are_unbiased(kind, epsilon):
    n = 100_000
    size = 40
    oracle = kind(epsilon, size, 5)
    values = np.minimum(np.random.default_rng(2).geometric(0.1, n) - 1, size - 1)
    counts = np.bincount(values, minlength=size)
    errors = estimates(oracle, np.arange(n), values) - counts
    scores = errors / [oracle.stddev(n, count) for count in counts]
    assert np.abs(scores).max() < 5.5  # forty scores


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ORACLES)
def test_deviation_is_that_of_the_estimates(kind):
    """Rare and frequent values, fresh hashes in every repetition: the sample variance against its
    chi-square law.
    """
    n = 400
    size = 30
    repetitions = 600
    values = np.repeat([0, 1, 2], [300, 99, 1])
    found = np.array(
        [
            estimates(kind(1.0, size, 1000 + i), np.arange(n), values, key=("repeated", i))
            for i in range(repetitions)
        ]
    )
    for value, count in ((0, 300), (1, 99), (17, 0)):
        deviation = kind(1.0, size).stddev(n, count)
        low, high = stats.chi2(repetitions - 1).ppf([1e-7, 1 - 1e-7])
        assert low < (repetitions - 1) * found[:, value].var(ddof=1) / deviation**2 < high
        assert abs(found[:, value].mean() - count) < 5 * deviation / math.sqrt(repetitions)


def test_the_known_deviations():
    """Of optimized local hashing, over sqrt(n): 3.98, 1.92, 0.85, 0.28 at epsilon 0.5, 1, 2, 4."""
    for epsilon, expected in ((0.5, 3.98), (1.0, 1.92), (2.0, 0.85), (4.0, 0.28)):
        assert LocalHashing(epsilon, 100).stddev(1) == pytest.approx(expected, abs=0.006)
        ratio = HadamardResponse(epsilon, 100).stddev(1) / LocalHashing(epsilon, 100).stddev(1)
        assert 0.99 < ratio < 1.03


def test_the_oracle_is_chosen_by_the_size_of_the_domain():
    for epsilon in EPSILONS:
        border = 3 * math.exp(epsilon) + 2
        for size in (1, 2, 5, 11, 50, 256, 257, 5000):
            oracle = frequency_oracle(epsilon, size, 9)
            expected = (
                DirectResponse
                if size < border
                else LocalHashing
                if size <= 256
                else HadamardResponse
            )
            assert type(oracle) is expected and oracle.key == 9
            if oracle.symbols <= 1000:
                best = min(kind(epsilon, size).stddev(1000) for kind in ORACLES)
                assert oracle.stddev(1000) <= 1.04 * best


@pytest.mark.statistical
def test_hashes_are_uniform_and_agree_as_often_as_they_should():
    users = np.arange(80_000)
    g = 5
    n = 80_000
    one, other = (hash_values(77, users, np.full(n, value), g) for value in (3, 4))
    for drawn in (one, other, hash_values(78, users, np.full(n, 3), g)):
        assert stats.chisquare(np.bincount(drawn, minlength=g)).pvalue > 1e-6
    joint = np.bincount(one * g + other, minlength=g * g)
    assert stats.chisquare(joint).pvalue > 1e-6
    assert (
        stats.chisquare(np.bincount(one[:-1] * g + one[1:], minlength=g * g)).pvalue > 1e-6
    )  # user after user


# What a report depends on


@pytest.mark.parametrize("kind", ORACLES)
def test_a_report_depends_on_its_own_user_alone(kind):
    oracle = kind(1.0, 20, 1)
    users = np.arange(1000)
    values = np.random.default_rng(0).integers(0, 20, 1000)
    changed = values.copy()
    changed[::2] = (changed[::2] + 7) % 20
    one, other = (
        reports_of(oracle, users, each, streams(), ("own",)) for each in (values, changed)
    )
    assert (one[1::2] == other[1::2]).all()
    assert (one != other).any()


def test_vectors_choose_a_side_and_nothing_else():
    """The axis of a report is drawn without the vector, to the last bit: all that a vector can
    change is the sign.
    """
    generator = np.random.default_rng(3)
    for d in (1, 2, 8):
        randomizer = VectorRandomizer(1.0, d)
        one, other = (
            directions_of(randomizer, vectors, streams(), ("axis",))
            for vectors in (generator.uniform(-0.5, 0.5, (500, d)), np.zeros((500, d)))
        )
        assert (np.abs(one) == np.abs(other)).all()
        same = (one == other).all(axis=1)
        assert ((one == other).all(axis=1) | (one == -other).all(axis=1)).all()
        assert 0 < same.sum() < 500


# The vector randomizer


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("d", [1, 2, 3, 8, 100])
def test_density_ratio(d, epsilon):
    """At most exp(epsilon) between any two vectors of the ball, attained by opposite ones on its
    surface.
    """
    randomizer = VectorRandomizer(epsilon, d)
    generator = np.random.default_rng(d)
    directions = generator.standard_normal((2000, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    vectors = generator.standard_normal((60, d))
    vectors *= (generator.random(60) ** 0.2 / np.linalg.norm(vectors, axis=1))[:, None]
    vectors[0], vectors[1] = 0, -vectors[5]
    vectors[2] = np.sign(vectors[6]) / math.sqrt(d)
    vectors[3] = -vectors[2]
    densities = np.array([randomizer.density(vector, directions) for vector in vectors])
    ratios = densities[:, None] / densities[None]
    assert ratios.max() <= math.exp(epsilon) * (1 + 1e-12)
    poles = densities[2] / densities[3]
    assert poles.max() == pytest.approx(math.exp(epsilon)) and poles.min() == pytest.approx(
        math.exp(-epsilon)
    )
    # A direction and its opposite make up for each other: the density integrates to 1 over uniform
    # directions.
    opposite = np.array([randomizer.density(vector, -directions) for vector in vectors[1:]])
    np.testing.assert_allclose((densities[1:] + opposite) / 2, 1, rtol=1e-12)
    np.testing.assert_allclose(densities[0], 1)


@pytest.mark.statistical
@pytest.mark.parametrize("length", [0.0, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_reports_have_the_density(d, length):
    """Side by a binomial test; along the vector, on either side, as a uniform direction is."""
    n = 50_000
    randomizer = VectorRandomizer(1.0, d)
    axis = np.ones(d) / math.sqrt(d)
    reports = (
        directions_of(randomizer, np.tile(length * axis, (n, 1)), streams(d), ("density",))
        / REPORT_SCALE
    )
    assert np.abs(np.linalg.norm(reports, axis=1) - 1).max() < d / REPORT_SCALE
    along = reports @ axis
    towards = 0.5 * (1 + min(length, 1.0) * math.tanh(0.5))
    assert stats.binomtest(int((along > 0).sum()), n, towards).pvalue > 1e-6
    if d > 1:
        law = stats.beta(0.5, (d - 1) / 2)
        assert stats.kstest(along[along > 0] ** 2, law.cdf).pvalue > 1e-6
        assert stats.kstest(along[along < 0] ** 2, law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_length_makes_reports_unbiased(d, epsilon):
    """The constant against numerical integration of a uniform direction's mean along an axis."""
    if d == 1:
        mean = 1.0
    else:
        weight = lambda t: math.sin(t) ** (d - 2)  # noqa: E731
        above, _ = integrate.quad(lambda t: abs(math.cos(t)) * weight(t), 0, math.pi)
        mean = above / integrate.quad(weight, 0, math.pi)[0]
    assert VectorRandomizer(epsilon, d).length == pytest.approx(
        1 / (math.tanh(epsilon / 2) * mean), rel=1e-7
    )


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("d", [1, 2, 10])
def test_vectors_are_unbiased_with_the_declared_deviation(d, epsilon):
    n = 100_000
    randomizer = VectorRandomizer(epsilon, d)
    for number, vector in enumerate((np.zeros(d), np.full(d, 0.6 / math.sqrt(d)), np.eye(d)[0])):
        reports = directions_of(randomizer, np.tile(vector, (n, 1)), streams(), ("mean", number))
        vectors = reports * (randomizer.length / REPORT_SCALE)
        assert np.abs(vectors.mean(axis=0) - vector).max() < 5 * randomizer.stddev / math.sqrt(n)
        second = (vectors**2).mean(axis=0)  # of every coordinate the same, whatever the vector
        spread = randomizer.length**2 * stats.beta(0.5, (d - 1) / 2).std() if d > 1 else 0.0
        assert (
            np.abs(second - randomizer.stddev**2).max()
            < 5 * spread / math.sqrt(n) + 1e-5 * second.max()
        )


def test_known_deviations_of_vectors():
    for epsilon, expected in ((0.5, 5.0), (1.0, 2.65), (2.0, 1.6), (4.0, 1.27)):
        assert VectorRandomizer(epsilon, 10).stddev == pytest.approx(expected, rel=0.03)


def test_lengths_do_not_overflow():
    assert VectorRandomizer(1.0, 100_000).stddev == pytest.approx(
        math.sqrt(math.pi / 2) / math.tanh(0.5), rel=1e-4
    )


# Signed sums


@pytest.mark.statistical
def test_signs_are_fair_and_independent():
    n = 100_000
    users = np.arange(n)
    drawn = [random_signs(5, users, np.full(n, cell)) for cell in (0, 1, 2)]
    for one in (*drawn, drawn[0] * drawn[1], drawn[1] * drawn[2], drawn[0][1:] * drawn[0][:-1]):
        assert set(np.unique(one)) == {-1, 1} and abs(one.sum()) < 5 * math.sqrt(n)
    assert (
        random_signs(5, users[::-1], np.zeros(n, int)) == drawn[0][::-1]
    ).all()  # of the user, not of the place


def test_sums_of_any_cell_are_decoded_from_the_same_reports():
    n = 100_000
    d = 3
    cells = 500
    generator = np.random.default_rng(1)
    users = np.arange(n)
    cell = np.minimum(generator.geometric(0.3, n) - 1, cells - 1)
    vectors = generator.uniform(-0.5, 0.5, (n, d)) + 0.2
    signed = SignedSums(1.0, d, 17)
    reports = streams().release(signed, UserVectors(users, cell, vectors), ("signed",))[0]
    asked = np.array([499, 2, 0, 1])
    totals, halves = (np.zeros((4, d), np.int64) for _ in range(2))
    signed.add(totals, users, reports, asked)
    for part in (slice(0, 1), slice(1, n)):
        signed.add(halves, users[part], reports[part], asked)
    assert (totals == halves).all()
    exact = np.array([vectors[cell == each].sum(axis=0) for each in asked])
    scores = (signed.estimate(totals) - exact) / signed.sum_stddev(n)
    assert np.abs(scores).max() < 5
    # A decoding that forgets the signs would still be within the noise of small cells; it is far
    # off here.
    assert np.abs(exact[2]).min() > 5 * signed.sum_stddev(n)


def test_signed_sums_by_brute_force():
    generator = np.random.default_rng(0)
    users = generator.choice(10**9, 50)
    cells = np.array([3, 0, 12])
    reports = generator.integers(-(2**20), 2**20, (50, 4)).astype(np.int32)
    totals = np.zeros((3, 4), np.int64)
    add_signed_reports(99, users, reports, cells, totals)
    for row, cell in zip(totals, cells, strict=True):
        assert (
            row == (random_signs(99, users, np.full(50, cell))[:, None] * reports).sum(axis=0)
        ).all()


# Bad input


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 41.0])
def test_an_epsilon_that_cannot_be_carried_out_is_refused(epsilon):
    for make in (*ORACLES, frequency_oracle):
        with pytest.raises(
            ValueError, match=r"epsilon=.* must be positive and, of a local report, at most 40"
        ):
            make(epsilon, 10)
    with pytest.raises(ValueError, match="epsilon="):
        VectorRandomizer(epsilon, 3)


def test_empty_domains_are_refused():
    with pytest.raises(ValueError, match="size=0 must be at least 1"):
        LocalHashing(1.0, 0)
    with pytest.raises(ValueError, match="dimensions=0 must be at least 1"):
        VectorRandomizer(1.0, 0)


def test_the_rarest_lie_is_resolved_where_randomness_is_secure():
    """At the largest epsilon: reports are true, and the uniforms reach below the probability of a
    lie.
    """
    oracle = DirectResponse(40.0, 3)
    assert 2.0**-65 < oracle.probabilities(0)[0, 1] < 2.0**-53
    values = np.arange(3000) % 3
    assert (
        reports_of(oracle, np.arange(3000), values, NoiseStreams([0], secure=True), ("rare",))
        == values
    ).all()
