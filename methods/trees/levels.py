"""Counts of nested grids: level j, from 1, has 2**j intervals per feature."""

import itertools

import numpy as np

from pkm.methods.coreset import project_onto_simplex


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
        Variances of the averages, by inverse variance, from the finest level up (Hay,
        Rastogi, Miklau and Suciu 2010, section 4). The noise of the counts below one
        cell is independent of that below another one.

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


def nonnegative_cells(
    counts: list[np.ndarray],
    total: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the cells of the finest level with positive counts, after denoising.

    Where noise is as large as the counts, two constraints lower it: no count is
    negative, and the counts of a cell's children sum to its own.

    Parameters
    ----------
    counts : list of ndarray, float64
        Noisy, level j, from 1, of shape (2**j, ..., 2**j).
    total : float
        The public number of records, positive.

    Returns
    -------
    positions : ndarray of shape (m, d), int64
    counts : ndarray of shape (m,), float64
        Positive; they sum to the total.

    Notes
    -----
    From the coarsest level down, the counts of a cell's children are projected onto the
    simplex of its count. The projection subtracts their excess, which removes noise
    from empty parts of the domain.

    Examples
    --------
    >>> counts = [np.array([60.0, -4.0]), np.array([1.0, 55.0, -3.0, 2.0])]
    >>> positions, cells = nonnegative_cells(counts, 60.0)
    >>> positions.ravel().tolist(), cells.tolist()
    ([0, 1], [3.0, 57.0])
    """
    d = counts[0].ndim
    corners = list(itertools.product((0, 1), repeat=d))
    positions = np.zeros((1, d), np.int64)
    cell_counts = np.array([total])
    # Invariant: positions are the cells with positive counts of the level before. The
    # children of other cells have none.
    for level_counts in counts:
        children = (2 * positions[:, None, :] + corners).reshape(-1, d)
        noisy = level_counts[tuple(children.T)].reshape(-1, 2**d)
        child_counts = project_onto_simplex(noisy, cell_counts).ravel()
        is_positive = child_counts > 0
        positions = children[is_positive]
        cell_counts = child_counts[is_positive]
    return positions, cell_counts


def find_large_cells(
    counts: np.ndarray,
    min_count: float,
    max_left_out: float,
) -> np.ndarray:
    """Find the cells that hold a minimum number of records.

    Small cells of a fine grid are mostly noise, and draw centers to empty parts of the
    domain. Where there are few records all cells are small, so that the share of those
    that are left out is limited.

    Parameters
    ----------
    counts : ndarray of shape (m,), float64
        Positive.
    min_count : float
    max_left_out : float
        Share of the records that smaller cells may hold together.

    Returns
    -------
    ndarray of shape (m,), bool

    Examples
    --------
    >>> find_large_cells(np.array([5.0, 0.5, 4.0, 0.5]), 1.0, 0.2).tolist()
    [True, False, True, False]
    >>> find_large_cells(np.array([5.0, 0.5, 4.0, 0.5]), 1.0, 0.06).tolist()
    [True, False, True, True]
    """
    # From the smallest cell on, until those left out hold their share of the records.
    order = np.argsort(counts, kind="stable")
    shares = np.cumsum(counts[order]) / counts.sum()
    is_large = np.empty(len(counts), bool)
    is_large[order] = (counts[order] >= min_count) | (shares > max_left_out)
    return is_large
