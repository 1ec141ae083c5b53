"""Additive mechanisms: scales, rounding, the largest noise.

Seeds are fixed; thresholds are five standard errors (fewer than one false alarm in a
million) or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from curators import NOISE, ONE_CENTER, ForbiddenNoise, curator_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from pkm.privacy import (
    BoundedLaplace,
    Gaussian,
    Laplace,
    NoiseStreams,
    SumsAndCounts,
)
from pkm.privacy.mechanisms.additive import MAX_SCALE, BoundedValues
from pkm.privacy.query import Sensitivity


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


FINE = Sensitivity(l1=40.0, l2=20.0, resolution=4)


def test_answers_in_parts_of_a_step_are_rounded_once():
    """After the noise, which is that of whole steps."""
    values = np.arange(-4000, 4000)[None]
    mechanism = Gaussian(2.5)
    variates = NoiseStreams([1]).normal(("x",), (8000,))
    noisy = NoiseStreams([1]).release(mechanism, values, ("x",), FINE)
    assert (noisy == np.rint(values / 4 + 2.5 * variates)).all()
    whole = NoiseStreams([1]).release(mechanism, values, ("x",))
    assert (NoiseStreams([1]).release(mechanism, 4 * values, ("x",), FINE) == whole).all()


def test_secure_noise_pays_for_rounding_before_it_is_added():
    """Two answers of 10,000 entries, 20 steps apart, are at most 120 apart once rounded."""
    values = np.tile([0, 1, 2, 3], 2500)[None]
    streams = NoiseStreams([0], secure=True)
    noise = streams.release(Gaussian(1000.0), values, ("x",), FINE) - values / 4
    law = stats.norm(scale=1000.0 * 120 / 20)
    assert stats.kstest(noise.ravel(), law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
@pytest.mark.parametrize("scale", [MAX_SCALE * (1 + 1e-9), 1e40, 1e300])
def test_noise_that_integers_do_not_carry_is_refused(mechanism, scale):
    """It would leave the low bits of the answer, or all of it, as they are."""
    query = SumsAndCounts(ONE_CENTER)
    for part in ("sums", "counts"):
        curator = curator_of(np.zeros((3, 2), np.int64), streams=ForbiddenNoise([0]))
        noise = NOISE | {part: mechanism(scale)}
        with pytest.raises(ValueError, match=r"of \w+ noise must be at most 1.76e\+13"):
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


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("width", [1.0, 2.5, 40.0, 1000.0])
def test_bounded_laplace_is_private_by_its_density(epsilon, width):
    """Exact: the log ratio of the densities of neighboring values is largest at the ends, and at
    most epsilon.
    """
    mechanism = BoundedLaplace(epsilon, 1.0)
    b = float(mechanism.scale(np.array(width)))

    def log_density(value, output):
        below = -math.expm1(-value / b)
        above = -math.expm1(-(width - value) / b)
        return -abs(output - value) / b - math.log(below + above)

    log_ratios = []
    for value in np.linspace(0, width - 1, 41):
        for output in np.linspace(0, width, 41):
            log_ratio = log_density(value, output) - log_density(value + 1, output)
            log_ratios.append(abs(log_ratio))
    assert max(log_ratios) <= epsilon * (1 + 1e-6)
    assert max(log_ratios) > 0.5 * epsilon  # the scale is not wastefully wide


@pytest.mark.statistical
def test_bounded_laplace_has_its_moments():
    n = 60_000
    mechanism = BoundedLaplace(0.5, 1000.0)
    lower = -4000.0
    upper = 9000.0
    value = 500
    values = BoundedValues(np.full((1, n), value), np.array(lower), np.array(upper))
    sample = NoiseStreams([1]).release(mechanism, values, ("x", 0))[0]

    b = float(mechanism.scale(np.array(upper - lower)))

    def moment(power):
        """Moment of the density, not normalized."""

        def integrand(z):
            return z**power * math.exp(-abs(z - value) / b)

        integral, _ = integrate.quad(integrand, lower, upper, points=[value])
        return integral

    mass = moment(0)
    mean = moment(1) / mass
    sd = math.sqrt(moment(2) / mass - mean**2)
    assert sample.min() >= lower
    assert sample.max() <= upper
    assert sample.mean() == pytest.approx(mean, abs=5 * sd / math.sqrt(n))
    assert sample.std() == pytest.approx(sd, rel=0.02)


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
def test_scales_are_floats_of_64_bits(mechanism):
    assert type(mechanism(np.float16(3.0)).scale) is float
