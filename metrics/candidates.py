"""The best k of a set of released candidates, chosen on the points without privacy."""

import numpy as np

from pkm.compute import Points, labels
from pkm.compute.kernels.nearest import swap_costs
from pkm.compute.storage.points import count_labels, read_weights


def choose_best(
    points: Points,
    candidates: np.ndarray,
    k: int,
) -> tuple[np.ndarray, int]:
    """Choose k of some candidates by local search on the points.

    The search starts from the k candidates that are nearest to the most points. It
    repeatedly swaps a chosen candidate for another one, so that the cost falls most,
    and stops when no swap lowers it. Rows of persons have their weights.

    Parameters
    ----------
    points : Points
    candidates : ndarray of shape (m, d), int64
        On the grid.
    k : int
        All candidates are taken if there are no more than that.

    Returns
    -------
    chosen : ndarray of shape (min(k, m),), int64
        Indices of candidates, increasing.
    cost : int
        Exact sum of squared distances of the points to the nearest chosen candidate, in
        squared grid steps. It is a local optimum: other sets of k may cost less.

    Examples
    --------
    >>> points = Points.from_grid(np.array([[0], [1], [100]]))
    >>> chosen, cost = choose_best(points, np.array([[0], [1], [90], [100]]), 2)
    >>> chosen.tolist(), cost
    ([1, 3], 1)
    """
    # Start from the candidates that are nearest to the most points.
    m = len(candidates)
    nearest = labels(points, candidates[None])[0]
    sizes = count_labels(nearest, read_weights(points), m)
    by_size = np.argsort(-sizes, kind="stable")
    chosen = by_size[:k]
    all_slots = np.arange(len(chosen))
    while True:
        # costs[i, j]: cost after chosen[i] is swapped for candidate j. A candidate that
        # is swapped for itself gives the current cost.
        costs = swap_costs(points, candidates, chosen, all_slots)
        cost = costs[0, chosen[0]]

        # Make the best swap, until none lowers the cost. Each swap lowers an exact
        # integer of 0 or more, so the search ends.
        best = int(costs.argmin())
        slot, candidate = divmod(best, m)
        if costs[slot, candidate] >= cost:
            return np.sort(chosen), int(cost)
        chosen[slot] = candidate
