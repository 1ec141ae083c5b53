"""The separation index by its definition: a search for the best direction."""

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import norm

from pkm.datasets.generated.separation import ratio_to_index

Z = norm.ppf(0.975)


def index_along(direction, difference, first, second):
    """The definition: gap between the 95 % intervals of the two projections over their span."""
    sds = np.sqrt([direction @ first @ direction, direction @ second @ direction])
    distance = direction @ difference
    lower = 0 - Z * sds[0]
    upper = distance + Z * sds[1]
    gap = distance - Z * sds[1] - Z * sds[0]
    return gap / (upper - lower)


def best_by_search(difference, first, second):
    """Largest index over directions, by a general optimizer from several starts."""
    starts = [difference, np.linalg.solve(first, difference), np.linalg.solve(second, difference)]

    def minus_index(direction):
        return -index_along(direction, difference, first, second)

    results = [minimize(minus_index, start / np.linalg.norm(start), tol=1e-12) for start in starts]
    return -min(result.fun for result in results)


def best_by_shares(difference, first, second):
    """Largest index by dense solves over the share of the first standard deviation: no Lanczos."""

    def minus_ratio2(mu):
        return -difference @ np.linalg.solve(first / mu + second / (1 - mu), difference)

    best = minimize_scalar(
        minus_ratio2, bounds=(1e-6, 1 - 1e-6), method="bounded", options={"xatol": 1e-10}
    )
    return ratio_to_index(np.sqrt(-best.fun))
