"""Work on ranges of points, divided among numba's threads."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

import numba

Result = TypeVar("Result")

#: Work of at least so many products of two coordinates is divided among threads: it
#: takes about a millisecond, and threads start in a tenth of that.
THREADED_PRODUCTS = 1 << 24
#: No range is smaller than this share of a thread's points, nor than so many products.
SMALLEST_SHARE = 1 / 16
SMALLEST_PRODUCTS = THREADED_PRODUCTS // 4


def map_ranges(
    n: int,
    cost: int,
    work: Callable[[int, int], Result],
) -> list[Result]:
    """Map a function over ranges of n points, on numba's threads if that pays.

    Parameters
    ----------
    n : int
    cost : int
        Work for a point, in products of coordinates.
    work : callable
        Called as ``work(first, last)`` for the points first .. last - 1; should release
        the GIL.

    Returns
    -------
    list
        In the order of the ranges.

    Examples
    --------
    >>> map_ranges(5, 1, lambda first, last: (first, last))
    [(0, 5)]
    """
    n_threads = 1 if n * cost < THREADED_PRODUCTS else min(numba.get_num_threads(), n)
    if n_threads == 1:
        return [work(0, n)]
    smallest = max(SMALLEST_PRODUCTS // cost, int(SMALLEST_SHARE * n / n_threads), 1)
    ranges = guided_ranges(n, n_threads, smallest)
    results: dict[int, Result] = {}
    # All threads take ranges from this iterator; the global lock makes each step
    # atomic.
    pending = iter(ranges)

    def work_on_pending() -> None:
        for first, last in pending:
            results[first] = work(first, last)

    others = [_started(work_on_pending) for _ in range(n_threads - 1)]
    work_on_pending()
    for other in others:
        other.result()
    return [results[first] for first, _ in ranges]


def guided_ranges(n: int, n_threads: int, smallest: int) -> list[tuple[int, int]]:
    """Divide n points into ranges of decreasing size (OpenMP's guided schedule).

    A range has two thirds of a thread's share of the remaining points. A thread takes
    the next range when it has finished one. So a thread that starts late, or is slower,
    takes fewer, and at the end threads wait for a small range only.

    Examples
    --------
    >>> guided_ranges(27, 2, 4)
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
    """Start work in a new thread: faster than a pool for one piece of work."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run).start()
    return future
