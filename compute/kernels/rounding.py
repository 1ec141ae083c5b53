"""Continuous noise on integers: rounded to nearest, then added."""

import numpy as np
from numba import njit


def add_rounded(values: np.ndarray, noise: np.ndarray, scale: float) -> np.ndarray:
    """Integers plus scaled noise that is rounded to nearest, ties to even.

    Parameters
    ----------
    values : ndarray of any shape, int64
    noise : ndarray of the same shape, float64
        Below 2**63 in size when scaled.
    scale : float

    Returns
    -------
    ndarray of the same shape, int64

    Examples
    --------
    >>> add_rounded(np.array([10, 10, 10]), np.array([0.2, 0.25, -1.0]), 2.0).tolist()
    [10, 10, 8]
    """
    noisy = np.empty(values.shape, np.int64)
    _add_rounded(values.reshape(-1), noise.reshape(-1), scale, noisy.reshape(-1))
    return noisy


@njit(cache=True)
def _add_rounded(
    values: np.ndarray, noise: np.ndarray, scale: float, noisy: np.ndarray
) -> None:
    for i in range(len(values)):
        noisy[i] = values[i] + np.int64(np.rint(noise[i] * scale))
