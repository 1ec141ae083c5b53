"""k-means++ seeding as an exponential race.

Every point has an arrival time for every step; the point that arrives first is the seed. A standard
exponential time divided by a rate is exponential with that rate, and the first of several arrives
with a probability in proportion to its rate. With the squared distance to the nearest seed as the
rate, seeds have the distribution of k-means++. Arrival times belong to points: removing a point
that is not a seed changes no winner, and removing a seed does not change the steps before it.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def exponential_race(
    rows: np.ndarray,
    arrival_times: np.ndarray,
    ids: np.ndarray,
    seeds: np.ndarray,
    first: int,
    sizes: np.ndarray,
) -> int:
    """Choose seeds from step ``first`` on, given the earlier ones; count the points of each.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float32
        Integer-valued coordinates: squared distances are exact.
    arrival_times : ndarray of shape (n, k), float64
        Standard exponential variates.
    ids : ndarray of shape (n,), int64
        Ties go to the lower id, so that the order of rows does not matter.
    seeds : ndarray of shape (k,), int64
        Row numbers: read up to ``first``, written from there.
    first : int
        Step of the first seed to choose.
    sizes : ndarray of shape (k,), int64
        Written: points nearest to each seed, ties to the earlier one.

    Returns
    -------
    int
        Number of seeds: fewer than k where there are fewer distinct points.
    """
    n = rows.shape[0]
    squares = np.full(n, np.inf)
    labels = np.zeros(n, np.int64)
    n_seeds = 0
    # Before step t, squares and labels hold the nearest of seeds 0 .. t - 1 to each point.
    for t in range(len(seeds)):
        if t >= first:
            winner = _first_arrival(arrival_times[:, t], squares, ids, t == 0)
            if winner < 0:
                break
            seeds[t] = winner
        n_seeds = t + 1
        for i in range(n):
            square = 0.0
            for h in range(rows.shape[1]):
                step = np.float64(rows[i, h]) - np.float64(rows[seeds[t], h])
                square += step * step
            if square < squares[i]:
                squares[i] = square
                labels[i] = t

    sizes[:] = 0
    for i in range(n):
        sizes[labels[i]] += 1
    return n_seeds


@njit(cache=True, nogil=True)
def nearest_row(row: np.ndarray, rows: np.ndarray, seeds: np.ndarray, n_seeds: int) -> int:
    """Position of the seed nearest to a row among ``seeds[:n_seeds]``, ties to the earlier one."""
    nearest = 0
    min_square = np.inf
    for t in range(n_seeds):
        square = 0.0
        for h in range(len(row)):
            step = np.float64(row[h]) - np.float64(rows[seeds[t], h])
            square += step * step
        if square < min_square:
            nearest = t
            min_square = square
    return nearest


@njit(cache=True, nogil=True)
def _first_arrival(
    arrival_times: np.ndarray,
    rates: np.ndarray,
    ids: np.ndarray,
    equal_rates: bool,
) -> int:
    """Index of the first arrival among the points of positive rate, -1 if there are none."""
    winner = -1
    earliest = np.inf
    for i in range(len(rates)):
        if rates[i] > 0:
            time = arrival_times[i] if equal_rates else arrival_times[i] / rates[i]
            tied = time == earliest and winner >= 0
            if time < earliest or (tied and ids[i] < ids[winner]):
                winner = i
                earliest = time
    return winner
