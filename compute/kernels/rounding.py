"""Continuous noise on integers: rounded to nearest, then added."""

from typing import Any

import numpy as np
from numba import vectorize


@vectorize(cache=True)
def add_rounded(value: Any, noise: Any, scale: Any) -> Any:
    """Integers plus scaled noise that is rounded to nearest, ties to even.

    Parameters
    ----------
    value : ndarray of any shape, int64
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
    return value + np.int64(np.rint(noise * scale))
