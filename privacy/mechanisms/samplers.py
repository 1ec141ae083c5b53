"""Exact integer samplers of noise, from the operating system's entropy.

The discrete laws of Canonne, Kamath and Steinke (2020) on the integers:

======================================  ==============================
discrete Laplace law of scale s         P(x) ~ exp(-|x| / s)
discrete Gaussian law of scale s        P(x) ~ exp(-x^2 / (2 s^2))
======================================  ==============================

Scales are integers, so that every outcome has a rational exponent. A candidate is drawn
by rejection: its magnitude is ``v * cell + offset``, where the offset is uniform below
the cell's integer width, and v is the number of zeros before the first one among random
bits; it is kept with probability ``2**v * exp(-exponent)``, which is at most 1 because
the envelope falls by half within a cell.

What decides is whether a uniform number, whose first 64 bits are a random word, lies
below that probability. The probability is computed in float64, with an error below
:data:`TOLERANCE`. A word that is nearer to it than that, about one in 2**39, is decided
by rational bounds and further random bits. So every outcome has exactly the stated
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
# and of a word as a fraction of 2^64. The exponent is off by at most 2^-50 of itself,
# so the probability by at most 2^-41 of itself, even if exp itself is off by a thousand
# units in the last place.
TOLERANCE = 2.0**-40
MAX_EXPONENT = 512.0

# Integer scales up to this one are served: no product below overflows.
MAX_SCALE = 1 << 46
UNBOUNDED = 1 << 61

# Width of a cell over the scale, times 2^16, rounded up: log 2 and sqrt(2 log 2). Over
# so many scales the law of magnitudes falls at least by half.
LAPLACE_CELL = 45_427
GAUSSIAN_CELL = 77_163

_MAX_WORD = np.uint64(2**64 - 1)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_BUFFER_WORDS = 1 << 17  # a megabyte of entropy is asked for at a time, at most


def discrete_laplace(scales: np.ndarray) -> np.ndarray:
    """Draw from the discrete Laplace law of each scale.

    Parameters
    ----------
    scales : ndarray of int64
        Positive, at most :data:`MAX_SCALE`.

    Returns
    -------
    ndarray of the same shape, int64
    """
    return bounded_laplace(scales, np.int64(-UNBOUNDED), np.int64(UNBOUNDED))


def bounded_laplace(
    scales: np.ndarray, lower: np.ndarray | np.int64, upper: np.ndarray | np.int64
) -> np.ndarray:
    """Draw from the discrete Laplace law of each scale, conditioned on an interval.

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
    """Draw from the discrete Gaussian law; see :func:`discrete_laplace`."""
    return _sample(True, scales, np.int64(-UNBOUNDED), np.int64(UNBOUNDED))


def choose(exponents: Sequence[Fraction], word: int) -> int:
    """Choose an index with probability proportional to ``exp(exponent)``, by inversion.

    Parameters
    ----------
    exponents : sequence of Fraction
        At least one.
    word : int
        First 64 bits of a uniform number; further ones are drawn where they are needed.

    Returns
    -------
    int
    """
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

        # Find the first candidate whose cumulative weight may exceed the target. It is
        # the one if its cumulative weight certainly does, as that of the last
        # candidate, and that of those before it certainly does not.
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
    lower: np.ndarray | np.int64,
    upper: np.ndarray | np.int64,
) -> np.ndarray:
    """Draw candidates until each entry has one that is kept."""
    if scales.size and not 1 <= scales.min() <= scales.max() <= MAX_SCALE:
        raise ValueError(f"scales must be between 1 and {MAX_SCALE}")
    flat_scales = np.ascontiguousarray(scales, np.int64).ravel()
    flat_lower = np.broadcast_to(lower, scales.shape).ravel()
    flat_upper = np.broadcast_to(upper, scales.shape).ravel()
    noise = np.empty(scales.size, np.int64)
    words = np.empty(0, np.uint64)
    done = 0
    while done < noise.size:
        # Six words make one draw on average. Words that are left over begin the next
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
        done, used, value, doublings = _fill(
            words, used, is_gaussian, scales, lower, upper, TOLERANCE, noise, done
        )
        if doublings < 0:
            return done, used

        # A word too near to the probability: decide it exactly.
        scale = int(scales[done])
        exponent = (
            Fraction(value**2, 2 * scale**2)
            if is_gaussian
            else Fraction(abs(value), scale)
        )
        if _is_below(int(words[used - 1]), exponent, doublings):
            noise[done] = value
            done += 1


def _is_below(
    word: int,
    exponent: Fraction,
    doublings: int,
) -> bool:
    """Whether a uniform that begins with a word is below 2^doublings exp(-exponent)."""
    bits = 64
    while True:
        low, high = exp_bounds(exponent, bits)
        if word + 1 <= low << doublings:
            return True
        if word >= high << doublings:
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

    Returns the next entry to fill and the number of words used. A candidate that
    float64 does not decide follows, with its number of doublings: the last word used
    decides on it. Where there is none, the doublings are -1.
    """
    # Before each candidate: entries below ``done`` are filled and words below ``used``
    # are spent. A candidate that the words do not suffice for is drawn again from the
    # same words, and more.
    while done < len(noise):
        if used + 3 > len(words):
            break
        scale = scales[done]

        # A uniform offset, in steps: of a cell, or of an interval that is narrower than
        # the scale.
        is_narrow = upper[done] - lower[done] < scale
        if is_narrow:
            width = upper[done] - lower[done] + 1
        else:
            width = (
                scale * (GAUSSIAN_CELL if is_gaussian else LAPLACE_CELL) // 65536 + 1
            )
        offset = words[used] // (_MAX_WORD // np.uint64(width))
        position = used + 1
        if offset >= np.uint64(width):
            used = position
            continue

        # The candidate: negative by the first bit, with a doubling for every zero after
        # it.
        doublings = 0
        if is_narrow:
            value = lower[done] + np.int64(offset)
        else:
            bits = words[position]
            position += 1
            is_negative = bits & _ONE == _ONE
            bits >>= _ONE
            if bits == _ZERO:
                doublings = 63
                while position < len(words) and words[position] == _ZERO:
                    doublings += 64
                    position += 1
                if position == len(words):
                    break
                bits = words[position]
                position += 1
            while bits & _ONE == _ZERO:
                bits >>= _ONE
                doublings += 1
            value = doublings * width + np.int64(offset)
            # Zero is drawn with one sign alone.
            is_rejected = is_negative and value == 0
            if is_negative:
                value = -value
            if is_rejected or value < lower[done] or value > upper[done]:
                used = position
                continue
        if position == len(words):
            break

        # Keep it if the uniform number that begins with the next word is below its
        # probability.
        exponent = abs(value) / scale
        if is_gaussian:
            exponent *= exponent / 2
        probability = math.ldexp(math.exp(-exponent), doublings)
        uniform = np.float64(words[position]) * 2.0**-64
        used = position + 1
        if exponent > MAX_EXPONENT or abs(uniform - probability) <= tolerance:
            return done, used, value, doublings
        if uniform < probability:
            noise[done] = value
            done += 1
    return done, used, 0, -1
