"""Work on ranges of points, divided among numba's threads."""

from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from threading import Thread
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
    *ranges, last_range = pairwise(borders)
    others = [_started(work, first, last) for first, last in ranges]
    # The calling thread has the last range: fresh threads may start on its core, one after the
    # other, where it only waits.
    last_result = work(*last_range)
    return [*(other.result() for other in others), last_result]


def _started(work: Callable[[int, int], Result], first: int, last: int) -> "Future[Result]":
    """Start work in a thread of its own: a pool for a single piece takes a third longer."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work(first, last))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run).start()
    return future
