"""Radix sort of non-negative integers, and sums of values over equal keys."""

import numpy as np
from numba import njit

#: Bits of a digit: the 256 positions that are written to in turn stay in the cache.
DIGIT_BITS = 8


def radix_argsort(keys: np.ndarray, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Stable order of keys, and the keys in that order.

    Time and memory are linear: 16 bytes a key beyond the keys.

    Parameters
    ----------
    keys : ndarray of shape (m,), int64
        From 0 to 2**n_bits - 1; overwritten, so that they need no copy.
    n_bits : int
        From 0 to 63.

    Returns
    -------
    order : ndarray of shape (m,), int32 or, from 2**31 keys on, int64
    sorted_keys : ndarray of shape (m,), int64

    Examples
    --------
    >>> order, sorted_keys = radix_argsort(np.array([700, 2, 700, 1]), 10)
    >>> order.tolist(), sorted_keys.tolist()
    ([3, 1, 0, 2], [1, 2, 700, 700])
    """
    m = len(keys)
    positions = np.arange(m, dtype=np.int32 if m < 1 << 31 else np.int64)
    return _sort(
        keys,
        positions,
        np.empty_like(keys),
        np.empty_like(positions),
        n_bits,
    )


def differs_from_previous(sorted_keys: np.ndarray) -> np.ndarray:
    """Mask (m,) of the sorted keys that are the first of equal ones."""
    is_first = np.ones(len(sorted_keys), bool)
    np.not_equal(sorted_keys[1:], sorted_keys[:-1], out=is_first[1:])
    return is_first


def sum_by_key(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct keys and the sums of their values.

    Fast for keys of a few increasing runs, which are merged.

    Examples
    --------
    >>> keys, sums = sum_by_key(np.array([3, 5, 1, 3]), np.array([10, 20, 30, 40]))
    >>> keys.tolist(), sums.tolist()
    ([1, 3, 5], [30, 50, 20])
    """
    if not len(keys):
        return keys, values
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(differs_from_previous(keys))
    return keys[firsts], np.add.reduceat(values[order], firsts)


@njit(cache=True, nogil=True)
def _sort(
    keys: np.ndarray,  # IN, overwritten
    order: np.ndarray,  # IN, overwritten
    next_keys: np.ndarray,  # OUT, like keys
    next_order: np.ndarray,  # OUT, like order
    n_bits: int,
) -> tuple[np.ndarray, np.ndarray]:
    # Least significant digit first. The two pairs of arrays change places with every
    # digit, so either may hold the result.
    n_digits = -(-n_bits // DIGIT_BITS)
    last = (1 << DIGIT_BITS) - 1
    # How often each value of each digit occurs.
    counts = np.zeros((n_digits, last + 1), np.int64)
    for digit in range(n_digits):
        for key in keys:
            counts[digit, (key >> (digit * DIGIT_BITS)) & last] += 1

    # Invariant: keys are in the order of the digits below; equal digits keep it.
    for digit in range(n_digits):
        ends = counts[digit]
        # Turn counts into the positions where runs begin; each ends where the next
        # begins once it is filled.
        n_before = 0
        for value in range(last + 1):
            n_equal = ends[value]
            ends[value] = n_before
            n_before += n_equal

        for row in range(len(keys)):
            key = keys[row]
            value = (key >> (digit * DIGIT_BITS)) & last
            next_keys[ends[value]] = key
            next_order[ends[value]] = order[row]
            ends[value] += 1
        keys, next_keys = next_keys, keys
        order, next_order = next_order, order
    return order, keys
