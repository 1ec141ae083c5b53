"""Work on ranges of points, divided among numba's threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numba

Result = TypeVar("Result")

#: Products of coordinates from which work is divided among threads: they take about a millisecond,
#: and threads start in a tenth of that.
THREADED_PRODUCTS = 1 << 24


def by_threads(n: int, n_values: int, work: Callable[[int, int], Result]) -> list[Result]:
    """Results of work on ranges of n points, one for each of numba's threads if that pays.

    Parameters
    ----------
    n : int
    n_values : int
        Number of coordinates that a point's are multiplied with, or what takes as long.
    work : callable
        From the first point of a range and the one after its last; it runs without Python's lock.

    Returns
    -------
    list
        In the order of the ranges.

    Examples
    --------
    >>> by_threads(5, 1, lambda first, last: (first, last))
    [(0, 5)]
    """
    n_threads = 1 if n * n_values < THREADED_PRODUCTS else min(numba.get_num_threads(), n)
    if n_threads == 1:
        return [work(0, n)]
    borders = [n * thread // n_threads for thread in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads - 1) as executor:
        others = executor.map(work, borders[:-2], borders[1:-1])
        # The calling thread has the last range: fresh threads may start on its core, one after the
        # other, where it only waits.
        last = work(*borders[-2:])
        return [*others, last]
