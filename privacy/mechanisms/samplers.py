"""Exact integer samplers of noise, from the operating system's entropy.

The discrete distributions of Canonne, Kamath and Steinke (2020) on the integers:

======================================  ==============================
discrete Laplace of scale s             P(x) ~ exp(-|x| / s)
discrete Gaussian of scale s            P(x) ~ exp(-x^2 / (2 s^2))
======================================  ==============================

Scales are integers, so that every outcome has a rational exponent. Outcomes are drawn
by rejection from a geometric envelope: the magnitudes are divided into bins of equal
integer width, and the envelope of each bin is half that of the bin before. A candidate
has the magnitude ``v * width + offset``, where the offset is uniform below the width,
and v is the number of zeros before the first one among random bits. It is accepted with
probability ``2**v * exp(-exponent)``, which is at most 1 because ``exp(-exponent)``
falls at least by half over a width.

A candidate is accepted if a uniform number, whose first 64 bits are a random word, lies
below that probability. The probability is computed in float64, with an error below
:data:`TOLERANCE`. If the word is nearer to it than that, about once in 2**39, rational
bounds and further random bits decide. So every outcome has exactly the stated
probability, whatever the float arithmetic, and no tail is cut off.
"""

import decimal
import math
import os
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numba import njit

# Bound on the error of a float64 probability 2^v exp(-x) <= 1 for x <= MAX_EXPONENT,
# and of a word as a fraction of 2^64. The relative error of the exponent is at most
# 2^-50, so that of the probability is at most 2^-41. If exp were wrong by a thousand
# units in the last place, that would add less than 2^-42.
TOLERANCE = 2.0**-40
MAX_EXPONENT = 512.0

# Largest integer scale: no product below overflows.
MAX_SCALE = 1 << 46
UNBOUNDED = np.int64(1 << 61)

# Width of a bin over the scale, times 2^16, rounded up: log 2 and sqrt(2 log 2). Over
# that width the distribution of magnitudes falls at least by half.
LAPLACE_BIN = 45_427
GAUSSIAN_BIN = 77_163

_MAX_WORD = np.uint64(2**64 - 1)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_BUFFER_WORDS = 1 << 17  # at most a megabyte of entropy is requested at a time


def discrete_laplace(scales: np.ndarray) -> np.ndarray:
    """Draw from the discrete Laplace distribution of each scale.

    Parameters
    ----------
    scales : ndarray of int64
        Positive, at most :data:`MAX_SCALE`.

    Returns
    -------
    ndarray of the same shape, int64
    """
    return _sample(False, scales)


def bounded_laplace(
    scales: np.ndarray, lower: np.ndarray | np.int64, upper: np.ndarray | np.int64
) -> np.ndarray:
    """Draw from the discrete Laplace distribution, conditioned on an interval.

    Parameters
    ----------
    scales : ndarray of int64
        Positive, at most :data:`MAX_SCALE`.
    lower, upper : ndarray of int64
        Both ends belong to the interval, ``lower <= 0 <= upper``; they broadcast with
        the scales.

    Returns
    -------
    ndarray of the shape of the scales, int64
    """
    return _sample(False, scales, lower, upper)


def discrete_gaussian(scales: np.ndarray) -> np.ndarray:
    """Draw from the discrete Gaussian; see :func:`discrete_laplace`."""
    return _sample(True, scales)


def choose(exponents: Sequence[Fraction], word: int) -> int:
    """Choose an index with probability proportional to ``exp(exponent)``, by inversion.

    Parameters
    ----------
    exponents : sequence of Fraction
        At least one.
    word : int
        First 64 bits of a uniform number; further bits are drawn if they are needed.

    Returns
    -------
    int
    """
    # Weights are relative to the largest; equal exponents share their bounds.
    top = max(exponents)
    distinct = set(exponents)
    bits = 64
    while True:
        # Work in units of 2^-precision of the largest weight. The widths of the bounds
        # add up to three units per candidate, far less than one in 2^bits of the total.
        precision = bits + 64 + len(exponents).bit_length()
        bounds = {
            exponent: exp_bounds(top - exponent, precision) for exponent in distinct
        }
        total_low = sum(bounds[exponent][0] for exponent in exponents)
        total_high = sum(bounds[exponent][1] for exponent in exponents)
        target_low = word * total_low >> bits
        target_high = ((word + 1) * total_high >> bits) + 1

        # The choice is the first candidate whose cumulative weight exceeds the target.
        # Both are known within bounds: the first one that may exceed it is the choice
        # if it certainly does and the one before certainly does not.
        low = 0
        high = 0
        for index, exponent in enumerate(exponents):
            before = high
            low += bounds[exponent][0]
            high += bounds[exponent][1]
            if high > target_low:
                is_last = index == len(exponents) - 1
                if before <= target_low and (is_last or target_high <= low):
                    return index
                break
        # The bounds do not decide: refine them, and the uniform number.
        word = word << 64 | int(random_words(1)[0])
        bits += 64


def random_words(count: int) -> np.ndarray:
    """Random 64-bit words from the operating system, as uint64."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Bound ``2**bits * exp(-exponent)`` from both sides.

    Parameters
    ----------
    exponent : Fraction
        Not negative.
    bits : int

    Returns
    -------
    low, high : int
        At most 3 apart.

    Examples
    --------
    >>> exp_bounds(Fraction(1), 10)
    (375, 378)
    """
    # Decimal division and exp are correctly rounded. Their relative errors, times the
    # exponent or 1, are far below 10^-20 of 2^-bits; exp(-x) times x is at most 1.
    context = decimal.Context(
        prec=math.ceil(bits * math.log10(2)) + 30,
        Emin=decimal.MIN_EMIN,
        Emax=decimal.MAX_EMAX,
    )
    quotient = context.divide(decimal.Decimal(exponent.numerator), exponent.denominator)
    power = context.exp(quotient.copy_negate())
    whole = int(context.multiply(power, decimal.Decimal(1 << bits)))
    return max(whole - 1, 0), whole + 2


def _sample(
    is_gaussian: bool,
    scales: np.ndarray,
    lower: np.ndarray | np.int64 = -UNBOUNDED,
    upper: np.ndarray | np.int64 = UNBOUNDED,
) -> np.ndarray:
    """Draw candidates until one is accepted for each entry."""
    if scales.size and not 1 <= scales.min() <= scales.max() <= MAX_SCALE:
        raise ValueError(f"scales must be between 1 and {MAX_SCALE}")
    flat_scales = np.ascontiguousarray(scales, np.int64).ravel()
    flat_lower = np.broadcast_to(lower, scales.shape).ravel()
    flat_upper = np.broadcast_to(upper, scales.shape).ravel()
    noise = np.empty(scales.size, np.int64)
    words = np.empty(0, np.uint64)
    done = 0
    while done < noise.size:
        # An accepted candidate takes about six words. Words left over begin the next
        # buffer.
        fresh = random_words(min(6 * (noise.size - done) + 16, _BUFFER_WORDS))
        words = np.concatenate([words, fresh])
        done, used = _fill_from(
            words, is_gaussian, flat_scales, flat_lower, flat_upper, noise, done
        )
        words = words[used:]
    return noise.reshape(scales.shape)


def _fill_from(
    words: np.ndarray,
    is_gaussian: bool,
    scales: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    noise: np.ndarray,
    done: int,
) -> tuple[int, int]:
    """Fill ``noise`` from entry ``done`` on; return the next entry and words used."""
    used = 0
    while True:
        done, used, value, n_zeros = _fill(
            words, used, is_gaussian, scales, lower, upper, TOLERANCE, noise, done
        )
        if n_zeros < 0:
            return done, used

        # The word is too near to the probability for float64: decide exactly.
        scale = int(scales[done])
        exponent = (
            Fraction(value**2, 2 * scale**2)
            if is_gaussian
            else Fraction(abs(value), scale)
        )
        if _is_below(int(words[used - 1]), exponent, n_zeros):
            noise[done] = value
            done += 1


def _is_below(
    word: int,
    exponent: Fraction,
    n_zeros: int,
) -> bool:
    """Whether a uniform that begins with a word is below 2^n_zeros exp(-exponent)."""
    bits = 64
    while True:
        low, high = exp_bounds(exponent, bits)
        if word + 1 <= low << n_zeros:
            return True
        if word >= high << n_zeros:
            return False
        word = word << 64 | int(random_words(1)[0])
        bits += 64


@njit(cache=True)
def _fill(
    words: np.ndarray,
    used: int,
    is_gaussian: bool,
    scales: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tolerance: float,
    noise: np.ndarray,
    done: int,
) -> tuple[int, int, int, int]:
    """Draw candidates while there are words.

    Returns the next entry to fill and the number of words used. If float64 does not
    decide on a candidate for that entry, the candidate and its number v of zeros
    follow: the last word used then decides. Else v is -1.
    """
    # OUT: noise. Invariant: entries below ``done`` are filled and words below ``used``
    # are spent. If words run out within a candidate, it is drawn again from the same
    # words with more behind them.
    while done < len(noise):
        if used + 3 > len(words):
            break
        scale = scales[done]

        # A uniform offset below the width of a bin, or in an interval that is narrower
        # than the scale, which is one bin.
        is_narrow = upper[done] - lower[done] < scale
        if is_narrow:
            width = upper[done] - lower[done] + 1
        else:
            width = scale * (GAUSSIAN_BIN if is_gaussian else LAPLACE_BIN) // 65536 + 1
        # Words beyond the last whole multiple of the width are rejected: no modulo
        # bias.
        offset = words[used] // (_MAX_WORD // np.uint64(width))
        position = used + 1
        if offset >= np.uint64(width):
            used = position
            continue

        # The candidate: its sign is the first bit, v the number of zeros after it.
        n_zeros = 0
        if is_narrow:
            value = lower[done] + np.int64(offset)
        else:
            bits = words[position]
            position += 1
            is_negative = bits & _ONE == _ONE
            bits >>= _ONE
            if bits == _ZERO:
                n_zeros = 63
                while position < len(words) and words[position] == _ZERO:
                    n_zeros += 64
                    position += 1
                if position == len(words):
                    break
                bits = words[position]
                position += 1
            while bits & _ONE == _ZERO:
                bits >>= _ONE
                n_zeros += 1
            value = n_zeros * width + np.int64(offset)
            # Reject a negative zero, which would count zero twice.
            is_rejected = is_negative and value == 0
            if is_negative:
                value = -value
            if is_rejected or value < lower[done] or value > upper[done]:
                used = position
                continue
        if position == len(words):
            break

        # Accept it if the uniform number that begins with the next word is below the
        # probability; if that is too close to tell, return the candidate.
        exponent = abs(value) / scale
        if is_gaussian:
            exponent *= exponent / 2
        probability = math.ldexp(math.exp(-exponent), n_zeros)
        uniform = np.float64(words[position]) * 2.0**-64
        used = position + 1
        if exponent > MAX_EXPONENT or abs(uniform - probability) <= tolerance:
            return done, used, value, n_zeros
        if uniform < probability:
            noise[done] = value
            done += 1
    return done, used, 0, -1
