"""k-means++ seeding as a race: every point has an exponential clock for every step, the first to ring is the seed.

A clock that runs at a rate of the squared distance to the nearest seed rings first with a probability in proportion to
it, so the law is that of k-means++. Clocks belong to points: who takes a point away that is no seed changes no winner,
and who takes a seed away leaves the steps before it as they are.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def race(rows, clocks, ids, seeds, first, sizes):
    """Choose seeds from step ``first`` on, the earlier ones given; count the points nearest to each.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float32
        Integer-valued coordinates: squared distances are exact.
    clocks : ndarray of shape (n, k), float64
        Standard exponential variates.
    ids : ndarray of shape (n,), int64
        They settle ties, so that the order of rows does not matter.
    seeds : ndarray of shape (k,), int64
        Row numbers: read up to ``first``, written from there.
    first : int
    sizes : ndarray of shape (k,), int64
        Written: points nearest to each seed, ties to the earlier one.

    Returns
    -------
    int
        Number of seeds: fewer than k where there are fewer distinct points.
    """
    n, d = rows.shape
    nearest, label = np.full(n, np.inf), np.zeros(n, np.int64)
    sizes[:] = 0
    found = 0
    for t in range(len(seeds)):
        if t >= first:
            winner, least = -1, np.inf
            for i in range(n):
                if nearest[i] > 0:
                    rings = clocks[i, t] if t == 0 else clocks[i, t] / nearest[i]
                    if rings < least or (rings == least and winner >= 0 and ids[i] < ids[winner]):
                        winner, least = i, rings
            if winner < 0:
                break
            seeds[t] = winner
        found = t + 1
        for i in range(n):
            square = 0.0
            for h in range(d):
                step = np.float64(rows[i, h]) - np.float64(rows[seeds[t], h])
                square += step * step
            if square < nearest[i]:
                nearest[i], label[i] = square, t
    for i in range(n):
        sizes[label[i]] += 1
    return found


@njit(cache=True, nogil=True)
def nearest_row(row, rows, chosen, n_chosen):
    """Which of the rows ``chosen[:n_chosen]`` is nearest to a row, ties to the earlier one."""
    best, least = 0, np.inf
    for t in range(n_chosen):
        square = 0.0
        for h in range(len(row)):
            step = np.float64(row[h]) - np.float64(rows[chosen[t], h])
            square += step * step
        if square < least:
            best, least = t, square
    return best
