"""Local randomizers: exact distributions by enumeration, densities, unbiasedness, deviations, and
what reports depend on.

Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from pkm.privacy import NoiseStreams
from pkm.privacy.mechanisms.randomizers import (
    REPORT_SCALE,
    HadamardResponse,
    LocalHashing,
    RandomizedResponse,
    SignedSums,
    UserCells,
    UserVectors,
    VectorRandomizer,
    frequency_oracle,
)

ORACLES = (RandomizedResponse, LocalHashing, HadamardResponse)
EPSILONS = (0.1, 1.0, 4.0)


def streams(seed=0):
    return NoiseStreams([seed])


def reports_of(oracle, users, values, streams, key):
    """Return the symbols that users report."""
    return streams.release(oracle, UserCells(users, values), key)[0]


def directions_of(randomizer, vectors, streams, key):
    """Return the directions that users report, all of one cell."""
    users = np.arange(len(vectors))
    cells = np.zeros(len(vectors), int)
    return streams.release(randomizer, UserVectors(users, cells, vectors), key)[0]


def estimated_counts(oracle, users, values, key):
    reports = reports_of(oracle, users, values, streams(), key)
    return oracle.estimate([(users, reports)])


# Frequency oracles: the distribution of a report


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", ORACLES)
def test_oracles_are_private_by_enumeration(kind, epsilon):
    """All outputs for all pairs of inputs: the ratio never exceeds exp(epsilon), and a pair attains
    it.
    """
    bound = math.exp(epsilon)
    largest_ratio = 0.0
    for key in range(5):
        oracle = kind(epsilon, 23, key)
        for user in (0, 7, 10**6):
            probabilities = oracle.probabilities(user)
            assert probabilities.shape == (23, oracle.symbols)
            np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
            ratios = probabilities[:, None] / probabilities[None]
            assert ratios.max() <= bound * (1 + 1e-12)
            largest_ratio = max(largest_ratio, ratios.max())
    assert largest_ratio == pytest.approx(bound, rel=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("kind", ORACLES)
def test_reports_follow_their_probabilities(kind, secure):
    oracle = kind(1.5, 9, 3)
    n_draws = 40_000
    for user, value in ((0, 0), (5, 8)):
        users = np.full(n_draws, user)
        values = np.full(n_draws, value)
        noise = NoiseStreams([1], secure)
        reports = reports_of(oracle, users, values, noise, ("law", user))
        observed = np.bincount(reports, minlength=oracle.symbols)
        expected = oracle.probabilities(user)[value] * n_draws
        assert stats.chisquare(observed, expected).pvalue > 1e-6


@pytest.mark.parametrize("kind", ORACLES)
def test_support_probabilities_of_true_and_false_values(kind):
    """A report supports the user's value with probability p_true, any other value with probability
    p_false_support, on average over the hash.
    """
    oracle = kind(1.0, 12, 11)
    n = 60_000
    users = np.arange(n)
    true_values = np.full(n, 4)
    false_values = np.full(n, 9)
    reports = reports_of(oracle, users, true_values, streams(), ("support",))
    for values, expected in (
        (true_values, oracle.p_true),
        (false_values, oracle.p_false_support),
    ):
        share = (oracle.encode(users, values) == reports).mean()
        standard_error = math.sqrt(expected * (1 - expected) / n)
        assert abs(share - expected) < 5 * standard_error


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(ORACLES),
    st.integers(1, 70),
    st.integers(0, 2**64 - 1),
    st.floats(0.05, 6),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=20, unique=True),
)
def test_supports_by_brute_force(kind, size, key, epsilon, users):
    """Kernels, the Hadamard transform among them, against a test of every report and value."""
    oracle = kind(epsilon, size, key)
    users = np.array(users)
    rng = np.random.default_rng(0)
    reports = rng.integers(0, oracle.symbols, len(users))
    chunks = [(users[part], reports[part]) for part in (slice(0, 3), slice(3, None))]
    supports, n_reports = oracle.count_supports(chunks)
    assert n_reports == len(users)

    expected = []
    for value in range(size):
        symbols = oracle.encode(users, np.full(len(users), value))
        expected.append((symbols == reports).sum())
    assert supports.tolist() == expected


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", ORACLES)
def test_estimates_are_unbiased(kind, epsilon):
    n = 100_000
    size = 40
    oracle = kind(epsilon, size, 5)
    draws = np.random.default_rng(2).geometric(0.1, n)
    values = np.minimum(draws - 1, size - 1)
    counts = np.bincount(values, minlength=size)
    estimates = estimated_counts(oracle, np.arange(n), values, ("test",))
    deviations = [oracle.stddev(n, count) for count in counts]
    scores = (estimates - counts) / deviations
    assert np.abs(scores).max() < 5.5  # forty scores


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ORACLES)
def test_stddev_is_that_of_the_estimates(kind):
    """Rare and frequent values, fresh hashes in every replicate: the sample variance against its
    chi-square distribution.
    """
    n = 400
    size = 30
    n_replicates = 600
    users = np.arange(n)
    values = np.repeat([0, 1, 2], [300, 99, 1])
    replicates = []
    for i in range(n_replicates):
        oracle = kind(1.0, size, 1000 + i)
        replicates.append(estimated_counts(oracle, users, values, ("repeated", i)))
    estimates = np.array(replicates)

    degrees = n_replicates - 1
    low, high = stats.chi2(degrees).ppf([1e-7, 1 - 1e-7])
    for value, count in ((0, 300), (1, 99), (17, 0)):
        stddev = kind(1.0, size).stddev(n, count)
        sample = estimates[:, value]
        assert low < degrees * sample.var(ddof=1) / stddev**2 < high
        assert abs(sample.mean() - count) < 5 * stddev / math.sqrt(n_replicates)


def test_known_stddevs_of_oracles():
    """Of optimized local hashing, over sqrt(n): 3.98, 1.92, 0.85, 0.28 at epsilon 0.5, 1, 2, 4."""
    for epsilon, expected in ((0.5, 3.98), (1.0, 1.92), (2.0, 0.85), (4.0, 0.28)):
        hashing_stddev = LocalHashing(epsilon, 100).stddev(1)
        hadamard_stddev = HadamardResponse(epsilon, 100).stddev(1)
        assert hashing_stddev == pytest.approx(expected, abs=0.006)
        assert 0.99 < hadamard_stddev / hashing_stddev < 1.03


def oracle_for_size(size, epsilon):
    """The oracle expected for a domain of some size."""
    if size < 3 * math.exp(epsilon) + 2:
        return RandomizedResponse
    if size <= 256:
        return LocalHashing
    return HadamardResponse


def test_frequency_oracle_is_chosen_by_domain_size():
    for epsilon in EPSILONS:
        for size in (1, 2, 5, 11, 50, 256, 257, 5000):
            oracle = frequency_oracle(epsilon, size, 9)
            assert type(oracle) is oracle_for_size(size, epsilon)
            assert oracle.key == 9
            if oracle.symbols <= 1000:
                smallest_stddev = min(kind(epsilon, size).stddev(1000) for kind in ORACLES)
                assert oracle.stddev(1000) <= 1.04 * smallest_stddev


# What a report depends on


@pytest.mark.parametrize("kind", ORACLES)
def test_report_depends_on_its_user_alone(kind):
    oracle = kind(1.0, 20, 1)
    users = np.arange(1000)
    values = np.random.default_rng(0).integers(0, 20, 1000)
    changed_values = values.copy()
    changed_values[::2] = (changed_values[::2] + 7) % 20

    reports = reports_of(oracle, users, values, streams(), ("own",))
    changed_reports = reports_of(oracle, users, changed_values, streams(), ("own",))
    assert (reports[1::2] == changed_reports[1::2]).all()
    assert (reports != changed_reports).any()


def test_vectors_determine_the_sign_alone():
    """The axis of a report is drawn without the vector, to the last bit: all that a vector can
    change is the sign.
    """
    rng = np.random.default_rng(3)
    for d in (1, 2, 8):
        randomizer = VectorRandomizer(1.0, d)
        vectors = rng.uniform(-0.5, 0.5, (500, d))
        zeros = np.zeros((500, d))
        reports = directions_of(randomizer, vectors, streams(), ("axis",))
        reports_of_zeros = directions_of(randomizer, zeros, streams(), ("axis",))
        assert (np.abs(reports) == np.abs(reports_of_zeros)).all()

        is_equal = (reports == reports_of_zeros).all(axis=1)
        is_opposite = (reports == -reports_of_zeros).all(axis=1)
        assert (is_equal | is_opposite).all()
        assert 0 < is_equal.sum() < 500


# The vector randomizer


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("d", [1, 2, 3, 8, 100])
def test_density_ratio_is_bounded(d, epsilon):
    """At most exp(epsilon) between any two vectors of the ball, attained by opposite vectors on its
    surface.
    """
    randomizer = VectorRandomizer(epsilon, d)
    rng = np.random.default_rng(d)
    directions = rng.standard_normal((2000, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    # Random vectors of the ball; the first four are zero, a negated vector, and two opposite
    # vectors on the surface.
    vectors = rng.standard_normal((60, d))
    lengths = rng.random(60) ** 0.2
    factors = lengths / np.linalg.norm(vectors, axis=1)
    vectors *= factors[:, None]
    vectors[0] = 0
    vectors[1] = -vectors[5]
    vectors[2] = np.sign(vectors[6]) / math.sqrt(d)
    vectors[3] = -vectors[2]

    densities = np.array([randomizer.density(vector, directions) for vector in vectors])
    ratios = densities[:, None] / densities[None]
    assert ratios.max() <= math.exp(epsilon) * (1 + 1e-12)
    surface_ratios = densities[2] / densities[3]
    assert surface_ratios.max() == pytest.approx(math.exp(epsilon))
    assert surface_ratios.min() == pytest.approx(math.exp(-epsilon))

    # The mean density of a direction and its opposite is 1, so the density integrates to 1 over
    # uniform directions.
    opposite = [randomizer.density(vector, -directions) for vector in vectors[1:]]
    means = (densities[1:] + np.array(opposite)) / 2
    np.testing.assert_allclose(means, 1, rtol=1e-12)
    np.testing.assert_allclose(densities[0], 1)


@pytest.mark.statistical
@pytest.mark.parametrize("length", [0.0, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_reports_follow_the_density(d, length):
    """The sign by a binomial test; the squared projection on the vector, for either sign, as for a
    uniform direction.
    """
    n = 50_000
    randomizer = VectorRandomizer(1.0, d)
    axis = np.ones(d) / math.sqrt(d)
    vectors = np.tile(length * axis, (n, 1))
    reports = directions_of(randomizer, vectors, streams(d), ("density",)) / REPORT_SCALE
    norms = np.linalg.norm(reports, axis=1)
    assert np.abs(norms - 1).max() < d / REPORT_SCALE

    projections = reports @ axis
    is_positive = projections > 0
    p_positive = 0.5 * (1 + min(length, 1.0) * math.tanh(0.5))
    assert stats.binomtest(int(is_positive.sum()), n, p_positive).pvalue > 1e-6
    if d > 1:
        distribution = stats.beta(0.5, (d - 1) / 2)
        for sample in (projections[is_positive], projections[projections < 0]):
            assert stats.kstest(sample**2, distribution.cdf).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("d", [1, 2, 5, 30])
def test_length_makes_reports_unbiased(d, epsilon):
    """The constant against numerical integration of a uniform direction's mean along an axis."""

    def weight(angle):
        return math.sin(angle) ** (d - 2)

    def weighted_projection(angle):
        return abs(math.cos(angle)) * weight(angle)

    if d == 1:
        mean = 1.0
    else:
        numerator, _ = integrate.quad(weighted_projection, 0, math.pi)
        denominator, _ = integrate.quad(weight, 0, math.pi)
        mean = numerator / denominator
    expected = 1 / (math.tanh(epsilon / 2) * mean)
    assert VectorRandomizer(epsilon, d).length == pytest.approx(expected, rel=1e-7)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("d", [1, 2, 10])
def test_vectors_are_unbiased_with_the_declared_stddev(d, epsilon):
    n = 100_000
    randomizer = VectorRandomizer(epsilon, d)
    stddev = randomizer.stddev
    spread = 0.0
    if d > 1:
        distribution = stats.beta(0.5, (d - 1) / 2)
        spread = randomizer.length**2 * distribution.std()
    zero = np.zeros(d)
    diagonal = np.full(d, 0.6 / math.sqrt(d))
    axis = np.eye(d)[0]
    for number, vector in enumerate((zero, diagonal, axis)):
        vectors = np.tile(vector, (n, 1))
        reports = directions_of(randomizer, vectors, streams(), ("mean", number))
        estimates = reports * (randomizer.length / REPORT_SCALE)
        bias = estimates.mean(axis=0) - vector
        assert np.abs(bias).max() < 5 * stddev / math.sqrt(n)

        # Second moments are equal for all coordinates and all vectors.
        second_moments = (estimates**2).mean(axis=0)
        tolerance = 5 * spread / math.sqrt(n) + 1e-5 * second_moments.max()
        assert np.abs(second_moments - stddev**2).max() < tolerance


def test_known_stddevs_of_vectors():
    for epsilon, expected in ((0.5, 5.0), (1.0, 2.65), (2.0, 1.6), (4.0, 1.27)):
        stddev = VectorRandomizer(epsilon, 10).stddev
        assert stddev == pytest.approx(expected, rel=0.03)


def test_lengths_do_not_overflow():
    stddev = VectorRandomizer(1.0, 100_000).stddev
    expected = math.sqrt(math.pi / 2) / math.tanh(0.5)
    assert stddev == pytest.approx(expected, rel=1e-4)


# Signed sums


def test_signed_sums_decode_any_cell():
    n = 100_000
    d = 3
    n_cells = 500
    rng = np.random.default_rng(1)
    users = np.arange(n)
    cells = np.minimum(rng.geometric(0.3, n) - 1, n_cells - 1)
    vectors = rng.uniform(-0.5, 0.5, (n, d)) + 0.2
    signed = SignedSums(1.0, d, 17)
    reports = streams().release(signed, UserVectors(users, cells, vectors), ("signed",))[0]

    # The same reports decode the sums of all queried cells, also in two parts.
    queried = np.array([499, 2, 0, 1])
    estimates = signed.estimate([(users, reports)], queried)
    chunks = [(users[part], reports[part]) for part in (slice(0, 1), slice(1, n))]
    assert (estimates == signed.estimate(chunks, queried)).all()

    sums = [vectors[cells == cell].sum(axis=0) for cell in queried]
    exact = np.array(sums)
    stddev = signed.sum_stddev(n)
    scores = (estimates - exact) / stddev
    assert np.abs(scores).max() < 5
    # A decoding without the signs would still be within the noise of small cells; the error in a
    # large cell exceeds it.
    assert np.abs(exact[2]).min() > 5 * stddev


# Bad input


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 41.0])
def test_epsilon_out_of_range_is_refused(epsilon):
    message = r"epsilon=.* of a local report must be from 9.5e-07 to 40"
    for make_oracle in (*ORACLES, frequency_oracle):
        with pytest.raises(ValueError, match=message):
            make_oracle(epsilon, 10)
    with pytest.raises(ValueError, match="epsilon="):
        VectorRandomizer(epsilon, 3)


def test_empty_domains_are_refused():
    with pytest.raises(ValueError, match="size=0 must be at least 1"):
        LocalHashing(1.0, 0)
    with pytest.raises(ValueError, match="dimensions=0 must be at least 1"):
        VectorRandomizer(1.0, 0)


def test_secure_uniforms_resolve_the_rarest_false_report():
    """At the largest epsilon: reports are true, and the uniforms reach below the probability of a
    false report.
    """
    oracle = RandomizedResponse(40.0, 3)
    p_false = oracle.probabilities(0)[0, 1]
    assert 2.0**-65 < p_false < 2.0**-53

    users = np.arange(3000)
    values = users % 3
    secure_streams = NoiseStreams([0], secure=True)
    reports = reports_of(oracle, users, values, secure_streams, ("rare",))
    assert (reports == values).all()
