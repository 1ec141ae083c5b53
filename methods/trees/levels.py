"""Counts of nested grids: level j, from 1, has 2**j intervals per feature."""

import numpy as np


def average_with_children(
    counts: list[np.ndarray],
    variances: np.ndarray,
) -> np.ndarray:
    """Average noisy counts with the sums of their children, in place, level by level.

    Parameters
    ----------
    counts : list of ndarray, float64
        Level j, from 1, of shape (2**j, ..., 2**j).
    variances : ndarray of shape (levels,)
        Variance of one count of each level.

    Returns
    -------
    ndarray of shape (levels,)
        Variances of the averages, by inverse variance, from the finest level up. The
        noise of the counts below one cell is independent of that below another one.

    Examples
    --------
    >>> counts = [np.array([4.0, 8.0]), np.array([2.0, 0.0, 6.0, 2.0])]
    >>> average_with_children(counts, np.array([2.0, 1.0])).tolist()
    [1.0, 1.0]
    >>> counts[0].tolist()
    [3.0, 8.0]
    """
    n_children = 2 ** counts[0].ndim
    averaged = np.array(variances, np.float64)
    for level in range(len(counts) - 2, -1, -1):
        # From the finest level up: inverse-variance weights of a count and of the sum
        # of its 2^d children.
        children_variance = n_children * averaged[level + 1]
        weight = children_variance / (children_variance + variances[level])
        sums = sum_children(counts[level + 1])
        counts[level] *= weight
        counts[level] += (1 - weight) * sums
        averaged[level] = weight * variances[level]
    return averaged


def sum_children(counts: np.ndarray) -> np.ndarray:
    """Sums over the children of each cell, two per feature; of bool, their number."""
    shape = np.ravel([(size // 2, 2) for size in counts.shape])
    within = tuple(range(1, len(shape), 2))
    return counts.reshape(shape).sum(axis=within)
