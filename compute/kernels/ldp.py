"""Kernels of the local model: keyed hashes of (user, value), and sums of reports.

A hash is a function of a public key, the number of the user and a value; nothing is
stored per user and nothing depends on the order in which users or values are read.
Privacy does not depend on its quality, only the accuracy does.
"""

from typing import Any

import numpy as np
from numba import njit, vectorize

# Constants of SplitMix64: the golden ratio, and the multipliers of its output function.
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)

# Shifts as uint64: numba makes a float64 of a uint64 and a plain integer.
_U1 = np.uint64(1)
_U2 = np.uint64(2)
_U4 = np.uint64(4)
_U8 = np.uint64(8)
_U16 = np.uint64(16)
_U27 = np.uint64(27)
_U30 = np.uint64(30)
_U31 = np.uint64(31)
_U32 = np.uint64(32)
_U63 = np.uint64(63)


@njit(cache=True, inline="always")
def mix(word: np.uint64) -> np.uint64:
    """Output function of SplitMix64 (Steele, Lea, Flood 2014): it mixes all bits."""
    word = (word ^ (word >> _U30)) * _MULTIPLIER_1
    word = (word ^ (word >> _U27)) * _MULTIPLIER_2
    return word ^ (word >> _U31)


@njit(cache=True, inline="always")
def _hash_user(key: np.uint64, user: int) -> np.uint64:
    hashed = mix(np.uint64(user) * GOLDEN_GAMMA)
    return mix(mix(np.uint64(key) ^ hashed) + GOLDEN_GAMMA)


@njit(cache=True, inline="always")
def _hash_value(user_word: np.uint64, value: int) -> np.uint64:
    step = (np.uint64(value) + _U1) * GOLDEN_GAMMA
    return mix(mix(user_word + step) ^ user_word)


@njit(cache=True, inline="always")
def _reduce(word: np.uint64, g: int) -> np.int64:
    """Value in 0 .. g - 1 from the upper half of a word."""
    return np.int64(((word >> _U32) * np.uint64(g)) >> _U32)


@njit(cache=True, inline="always")
def _parity(word: np.uint64) -> np.int64:
    for shift in (_U32, _U16, _U8, _U4, _U2, _U1):
        word ^= word >> shift
    return np.int64(word & _U1)


@vectorize(cache=True)
def hash_values(
    key: Any,
    user: Any,
    value: Any,
    g: Any,
) -> Any:
    """Hash a value of each user to 0 .. g - 1.

    Parameters
    ----------
    key : uint64
        Public.
    user, value : ndarray of shape (m,), int64
        Not negative.
    g : int
        Below 2**31.

    Returns
    -------
    ndarray of shape (m,), int64

    Examples
    --------
    >>> users, values = np.array([0, 1, 0]), np.array([5, 5, 5])
    >>> first, _, third = hash_values(np.uint64(7), users, values, 1000)
    >>> bool(first == third)
    True
    """
    return _reduce(_hash_value(_hash_user(key, user), value), g)


@njit(cache=True)
def support_counts(
    key: np.uint64,
    users: np.ndarray,  # IN (m,), int64
    reports: np.ndarray,  # IN (m,), int64
    g: int,
    size: int,
) -> np.ndarray:
    """Supports of each value, the users who reported its hash: (size,), int64."""
    counts = np.zeros(size, np.int64)
    for i in range(len(users)):
        user_word = _hash_user(key, users[i])
        for value in range(size):
            counts[value] += _reduce(_hash_value(user_word, value), g) == reports[i]
    return counts


@vectorize(cache=True)
def parity_hashes(
    key: Any,
    user: Any,
    value: Any,
    bits: Any,
    size: Any,
) -> Any:
    """Hash a value of each user to bits: entries of random rows of a Hadamard matrix.

    Parameters
    ----------
    key : uint64
    user, value : ndarray of shape (m,), int64
    bits : int
    size : int
        Order of the matrix, a power of two above all values.

    Returns
    -------
    ndarray of shape (m,), int64
        Two values of one user agree with probability ``2**-bits`` exactly, over uniform
        rows.
    """
    # Rows are drawn by the user and the bit, not by the value: entries of two values
    # agree in half of all rows. An entry of a Hadamard matrix is the parity of the bits
    # that row and column share.
    user_word = _hash_user(key, user)
    mask = np.uint64(size - 1) & np.uint64(value)
    hashed = 0
    for bit in range(bits):
        hashed |= _parity(_hash_value(user_word, bit) & mask) << bit
    return hashed


@njit(cache=True)
def add_spectrum(
    key: np.uint64,
    users: np.ndarray,  # IN (m,), int64
    reports: np.ndarray,  # IN (m,), int64
    bits: int,
    spectrum: np.ndarray,  # IN and OUT (size,), int64
) -> None:
    """Add reports to the Walsh-Hadamard spectrum (size,) of the support counts."""
    mask = np.uint64(len(spectrum) - 1)
    # For every subset of a report's bits: the row that is the product of its rows,
    # which is the XOR of their numbers, and the product of its reported signs.
    rows = np.empty(1 << bits, np.uint64)
    signs = np.empty(1 << bits, np.int64)
    rows[0] = 0
    signs[0] = 1
    for i in range(len(users)):
        user_word = _hash_user(key, users[i])
        for bit in range(bits):
            row = _hash_value(user_word, bit) & mask
            sign = 1 - 2 * ((reports[i] >> bit) & 1)
            # Invariant: all subsets of the earlier bits are listed; add this bit to
            # each.
            n_subsets = 1 << bit
            for subset in range(n_subsets):
                rows[n_subsets + subset] = rows[subset] ^ row
                signs[n_subsets + subset] = signs[subset] * sign
        for subset in range(1 << bits):
            spectrum[rows[subset]] += signs[subset]


def parity_support_counts(spectrum: np.ndarray, bits: int) -> np.ndarray:
    """Supports of each value, users whose report equals its hash: (size,), int64.

    Notes
    -----
    The indicator that all ``bits`` reported signs agree with a value's entries is the
    product of factors (1 + sign * entry) / 2. Multiplied out it is a sum over 2**bits
    rows of the matrix, so one fast Walsh-Hadamard transform of the spectrum serves all
    users and values: exact, in integers.
    """
    totals = spectrum.copy()
    width = 1
    # Invariant: blocks of ``width`` entries are transformed. Each step combines pairs
    # of neighboring blocks.
    while width < len(totals):
        pairs = totals.reshape(-1, 2, width)
        total = pairs[:, 0] + pairs[:, 1]
        difference = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] = total
        pairs[:, 1] = difference
        width *= 2
    return totals >> bits


@vectorize(cache=True)
def random_signs(key: Any, user: Any, cell: Any) -> Any:
    """Public random sign of each user's cell, shape (m,), int64, in {-1, 1}."""
    return 1 - 2 * np.int64(_hash_value(_hash_user(key, user), cell) >> _U63)


@njit(cache=True)
def add_signed_reports(
    key: np.uint64,
    users: np.ndarray,  # IN
    reports: np.ndarray,  # IN
    cells: np.ndarray,  # IN
    totals: np.ndarray,  # IN and OUT
) -> None:
    """Add each report times its user's sign of each cell to the cell's total.

    Parameters
    ----------
    key : uint64
    users : ndarray of shape (m,), int64
    reports : ndarray of shape (m, d), int32
    cells : ndarray of shape (c,), int64
        All cells.
    totals : ndarray of shape (c, d), int64
        Added to.
    """
    d = reports.shape[1]
    for i in range(len(users)):
        user_word = _hash_user(key, users[i])
        for j in range(len(cells)):
            # The highest bit of the word is the sign, as in random_signs.
            if _hash_value(user_word, cells[j]) >> _U63:
                for h in range(d):
                    totals[j, h] -= reports[i, h]
            else:
                for h in range(d):
                    totals[j, h] += reports[i, h]
