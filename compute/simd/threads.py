"""Work on ranges of points, divided among numba's threads."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

import numba

Result = TypeVar("Result")

#: Products of coordinates from which work is divided among threads: they take about a
#: millisecond, and threads start in a tenth of that.
THREADED_PRODUCTS = 1 << 24
#: The last ranges of a thread are no smaller than this part of its share, or of such a
#: millisecond.
SMALLEST_SHARE = 1 / 16
SMALLEST_PRODUCTS = THREADED_PRODUCTS // 4


def by_threads(
    n: int,
    n_values: int,
    work: Callable[[int, int], Result],
) -> list[Result]:
    """Results of work on ranges of n points, by each of numba's threads if that pays.

    Parameters
    ----------
    n : int
    n_values : int
        Number of coordinates that a point's are multiplied with, or what takes as long.
    work : callable
        From the first point of a range and the one after its last; it runs without
        Python's lock.

    Returns
    -------
    list
        In the order of the ranges.

    Examples
    --------
    >>> by_threads(5, 1, lambda first, last: (first, last))
    [(0, 5)]
    """
    n_threads = (
        1 if n * n_values < THREADED_PRODUCTS else min(numba.get_num_threads(), n)
    )
    if n_threads == 1:
        return [work(0, n)]
    smallest = max(
        SMALLEST_PRODUCTS // n_values, int(SMALLEST_SHARE * n / n_threads), 1
    )
    ranges = shrinking_ranges(n, n_threads, smallest)
    results: dict[int, Result] = {}
    # All threads take from this iterator: a step of it is one instruction under
    # Python's lock.
    pending = iter(ranges)

    def work_on_pending() -> None:
        for first, last in pending:
            results[first] = work(first, last)

    others = [_started(work_on_pending) for _ in range(n_threads - 1)]
    work_on_pending()
    for other in others:
        other.result()
    return [results[first] for first, _ in ranges]


def shrinking_ranges(n: int, n_threads: int, smallest: int) -> list[tuple[int, int]]:
    """Divide n points into ranges of two thirds of a thread's share of the rest.

    A thread takes the next range when it is done with one. So a thread that starts
    late, or whose core is slower, takes fewer, and at the end the others wait for a
    small one.

    Examples
    --------
    >>> shrinking_ranges(27, 2, 4)
    [(0, 9), (9, 15), (15, 19), (19, 23), (23, 27)]
    """
    ranges = []
    first = 0
    while first < n:
        size = max(2 * (n - first) // (3 * n_threads), smallest)
        last = min(first + size, n)
        ranges.append((first, last))
        first = last
    return ranges


def _started(work: Callable[[], None]) -> "Future[None]":
    """Start work in a thread of its own: faster than a pool for a single piece."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run).start()
    return future
