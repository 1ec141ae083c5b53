"""A scale with room for all numbers, for columns without bounds."""

import numpy as np

#: Octaves on either side of 1. Numbers beyond them have the places of the ends.
OCTAVES = 64


def to_octaves(numbers: np.ndarray) -> np.ndarray:
    """Place numbers between -1 and 1 by their sign and the logarithm of their size.

    Parameters
    ----------
    numbers : ndarray, any real dtype

    Returns
    -------
    ndarray, float64
        NaN and infinite numbers stay what they are.

    Examples
    --------
    >>> to_octaves(np.array([-1.0, 0.0, 2.0**64])).tolist()
    [-0.5, 0.0, 1.0]
    """
    numbers = np.asarray(numbers, np.float64)
    with np.errstate(divide="ignore"):
        exponents = np.log2(np.abs(numbers))
    shares = (exponents + OCTAVES) / (2 * OCTAVES)
    lengths = np.clip(shares, 0.0, 1.0)
    places = np.copysign(lengths, numbers)
    return np.where(np.isinf(numbers), numbers, places)


def from_octaves(places: np.ndarray) -> np.ndarray:
    """Return the numbers at places between -1 and 1.

    Examples
    --------
    >>> from_octaves(np.array([-0.5, 0.0, 1.0])).tolist() == [-1.0, 0.0, 2.0**64]
    True
    """
    exponents = (2 * np.abs(places) - 1) * OCTAVES
    sizes = np.exp2(exponents)
    return np.sign(places) * sizes
