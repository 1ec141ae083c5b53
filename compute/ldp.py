"""Kernels of the local model: keyed hashes of (user, value), and what the server sums over the users' reports.

A hash is a function of a public key, the number of the user and a value; nothing is stored per user and nothing depends
on the order in which users or values are looked at. Privacy does not rest on it, only the accuracy does.
"""

import numpy as np
from numba import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_ONE = np.uint64(1)


@njit(cache=True, inline="always")
def _mixed(word):
    """The output function of SplitMix64 (Steele, Lea, Flood 2014): every bit depends on all bits."""
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@njit(cache=True, inline="always")
def _of_user(key, user):
    return _mixed(_mixed(key ^ _mixed(np.uint64(user) * _STEP)) + _STEP)


@njit(cache=True, inline="always")
def _of_value(base, value):
    return _mixed(_mixed(base + (np.uint64(value) + _ONE) * _STEP) ^ base)


@njit(cache=True, inline="always")
def _below(word, g):
    """A value in 0 .. g - 1 from the upper half of a word."""
    return np.int64(((word >> _32) * np.uint64(g)) >> _32)


@njit(cache=True, inline="always")
def _parity(word):
    for shift in (np.uint64(32), np.uint64(16), np.uint64(8), np.uint64(4), np.uint64(2), _ONE):
        word ^= word >> shift
    return np.int64(word & _ONE)


@njit(cache=True)
def _hashes(key, users, values, g, out):
    for i in range(len(users)):
        out[i] = _below(_of_value(_of_user(key, users[i]), values[i]), g)


@njit(cache=True)
def _supports(key, users, reports, g, totals):
    for i in range(len(users)):
        base = _of_user(key, users[i])
        for value in range(len(totals)):
            totals[value] += _below(_of_value(base, value), g) == reports[i]


@njit(cache=True)
def _parities(key, users, values, bits, mask, out):
    for i in range(len(users)):
        base = _of_user(key, users[i])
        for bit in range(bits):
            out[i] |= _parity(_of_value(base, bit) & mask & np.uint64(values[i])) << bit


@njit(cache=True)
def _add_spectrum(key, users, reports, bits, mask, spectrum):
    rows, signs = np.empty(1 << bits, np.uint64), np.empty(1 << bits, np.int64)
    rows[0], signs[0] = 0, 1
    for i in range(len(users)):
        base = _of_user(key, users[i])
        for bit in range(bits):
            row, sign = _of_value(base, bit) & mask, 1 - 2 * ((reports[i] >> bit) & 1)
            for other in range(1 << bit):
                rows[(1 << bit) + other], signs[(1 << bit) + other] = (
                    rows[other] ^ row,
                    signs[other] * sign,
                )
        for each in range(1 << bits):
            spectrum[rows[each]] += signs[each]


@njit(cache=True)
def _signs(key, users, cells, out):
    for i in range(len(users)):
        out[i] = 1 - 2 * np.int64(_of_value(_of_user(key, users[i]), cells[i]) >> np.uint64(63))


@njit(cache=True)
def _add_signed(key, users, reports, cells, totals):
    d = reports.shape[1]
    for i in range(len(users)):
        base = _of_user(key, users[i])
        for j in range(len(cells)):
            if _of_value(base, cells[j]) >> np.uint64(63):
                for h in range(d):
                    totals[j, h] -= reports[i, h]
            else:
                for h in range(d):
                    totals[j, h] += reports[i, h]


def hashes(key: int, users: np.ndarray, values: np.ndarray, g: int) -> np.ndarray:
    """Hash a value of each user to 0 .. g - 1.

    Parameters
    ----------
    key : int
        Public, in [0, 2**64).
    users, values : ndarray of shape (m,), int64
        Not negative.
    g : int
        Below 2**31.

    Returns
    -------
    ndarray of shape (m,), int64

    Examples
    --------
    >>> users, values = np.array([0, 1, 0]), np.array([5, 5, 5])
    >>> one, _, other = hashes(7, users, values, 1000)
    >>> bool(one == other)
    True
    """
    out = np.empty(len(users), np.int64)
    _hashes(np.uint64(key), users, values, g, out)
    return out


def supports(key: int, users: np.ndarray, reports: np.ndarray, g: int, size: int) -> np.ndarray:
    """Number of users whose hash of each value 0 .. size - 1 is what they reported, shape (size,), int64."""
    totals = np.zeros(size, np.int64)
    _supports(np.uint64(key), users, reports, g, totals)
    return totals


def parities(key: int, users: np.ndarray, values: np.ndarray, bits: int, size: int) -> np.ndarray:
    """Hash a value of each user to ``bits`` bits: entries of random rows of a Hadamard matrix.

    Parameters
    ----------
    key : int
    users, values : ndarray of shape (m,), int64
    bits : int
    size : int
        Order of the matrix, a power of two above all values.

    Returns
    -------
    ndarray of shape (m,), int64
        Two values of one user agree with probability ``2**-bits`` exactly, over uniform rows.
    """
    out = np.zeros(len(users), np.int64)
    _parities(np.uint64(key), users, values, bits, np.uint64(size - 1), out)
    return out


def add_spectrum(
    key: int, users: np.ndarray, reports: np.ndarray, bits: int, spectrum: np.ndarray
) -> None:
    """Add users' reports to the transform (size,), int64, of the numbers that :func:`supported` gives."""
    _add_spectrum(np.uint64(key), users, reports, bits, np.uint64(len(spectrum) - 1), spectrum)


def supported(spectrum: np.ndarray, bits: int) -> np.ndarray:
    """Number of users whose parities of each value are what they reported, shape (size,), int64.

    Notes
    -----
    That all of ``bits`` parities agree is the product of factors (1 +- entry) / 2. Multiplied out it is a sum over
    2**bits rows, so that one fast Walsh-Hadamard transform serves all users and values: exact, in integers.
    """
    totals, width = spectrum.copy(), 1
    while width < len(totals):
        pairs = totals.reshape(-1, 2, width)
        low, high = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
        pairs[:, 0], pairs[:, 1] = low, high
        width *= 2
    return totals >> bits


def signs(key: int, users: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Public random sign of each user's cell, shape (m,), int64, in {-1, 1}."""
    out = np.empty(len(users), np.int64)
    _signs(np.uint64(key), users, cells, out)
    return out


def add_signed(
    key: int, users: np.ndarray, reports: np.ndarray, cells: np.ndarray, totals: np.ndarray
) -> None:
    """Add reports (m, d), int32, times the users' signs of each cell, to the totals (cells, d), int64, of all cells."""
    _add_signed(np.uint64(key), users, reports, cells, totals)
