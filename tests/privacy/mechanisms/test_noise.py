"""Streams of noise: their laws, and what they depend on.

Seeds are fixed; thresholds are five standard errors (fewer than one false alarm in a
million) or a p-value of 1e-6.
"""

import math
from inspect import signature

import numpy as np
import pytest
from scipy import stats

from pkm.methods import METHODS, DistDP, NoisedPoints, load_method
from pkm.privacy import (
    SCALE,
    NoiseStreams,
)
from pkm.privacy.mechanisms import noise

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


CLASSES = [load_method(name) for name in METHODS]


PRIVATE_CLASSES = [
    method for method in CLASSES if any(claim.private for claim in method.claims.values())
]


@pytest.mark.statistical
@pytest.mark.parametrize("secure", [False, True])
def test_gumbel_and_uniform_streams_follow_their_distributions(secure):
    streams = NoiseStreams([5], secure=secure)
    # Fresh entropy cannot be seeded; a fresh sample fails a test at 1e-6 once in a million runs.
    gumbel = streams.gumbel(("a", 0), (40_000,))[0]
    assert stats.kstest(gumbel, stats.gumbel_r.cdf).pvalue > 1e-6
    uniform = streams.uniform(("b", 0), (40_000,))[0]
    assert stats.kstest(uniform, stats.uniform.cdf).pvalue > 1e-6
    assert uniform.min() > 0
    assert uniform.max() < 1


# The analytic formula is not proved for large budgets.
ANALYTIC = {DistDP: {"calibration": "analytic"}, NoisedPoints: {"calibration": "analytic"}}


@pytest.mark.slow
@pytest.mark.parametrize("method", PRIVATE_CLASSES)
def test_releases_never_share_a_stream(method, monkeypatch):
    """Every draw of a run, of every variant, has a unique key."""
    draws = []
    seeded = NoiseStreams._seeded

    def recording(self, key, shape, draw):
        # A rehearsal on public points releases nothing; its seed is 0.
        if self.seeds != (0,):
            draws.append((self.seeds, key))
        return seeded(self, key, shape, draw)

    monkeypatch.setattr(NoiseStreams, "_seeded", recording)
    rng = np.random.default_rng(0)
    points = rng.integers(-SCALE, SCALE, (4000, 3))
    has_variants = "variant" in signature(method).parameters
    for variant in method.claims:
        draws.clear()
        parameters = dict(ANALYTIC.get(method, {}))
        if has_variants:
            parameters["variant"] = variant
        model = method(n_clusters=3, epsilon=5.0, **parameters)
        run = model.fit_batch(points, [1, 2])
        assert len(draws) > len(run.ledger.charges) / 2
        assert len(set(draws)) == len(draws)
