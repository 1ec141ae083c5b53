"""Ranges of points, divided among threads."""

from threading import Event, current_thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkm.compute.simd import threads


@given(n=st.integers(1, 10**9), n_threads=st.integers(1, 64), smallest=st.integers(1, 10**7))
def test_ranges_are_all_points_in_order_and_never_larger_than_a_share(n, n_threads, smallest):
    smallest = max(smallest, n // 1000)
    ranges = threads.guided_ranges(n, n_threads, smallest)
    firsts, lasts = zip(*ranges, strict=True)
    assert (firsts[0], lasts[-1]) == (0, n)
    assert firsts[1:] == lasts[:-1]
    sizes = [last - first for first, last in ranges]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 < sizes[0] <= max(n / n_threads, smallest)
    assert all(size >= smallest for size in sizes[:-1])


@pytest.mark.parametrize("range_that_fails", [0, 1, 5, -1])
def test_an_error_in_any_thread_is_raised(monkeypatch, range_that_fails):
    n = 3 * threads.THREADED_PRODUCTS
    monkeypatch.setattr("numba.get_num_threads", lambda: 3)
    ranges = threads.map_ranges(n, 1, lambda first, last: (first, last))
    wrong = ranges[range_that_fails]

    def work(first, last):
        if (first, last) == wrong:
            raise MemoryError(f"points {first} to {last}")

    with pytest.raises(MemoryError, match=f"points {wrong[0]} to {wrong[1]}"):
        threads.map_ranges(n, 1, work)


def test_a_thread_that_is_held_up_leaves_its_ranges_to_the_others(monkeypatch):
    """The first range of the other thread lasts until the calling one has done all the others."""
    monkeypatch.setattr("numba.get_num_threads", lambda: 2)
    caller = current_thread()
    held_up = Event()
    others_done = Event()
    taken = {}

    def work(first, last):
        taken[first] = current_thread()
        if current_thread() is caller:
            held_up.wait(60)
            if last == n:
                others_done.set()
        else:
            held_up.set()
            others_done.wait(60)
        return first, last

    n = 8 * threads.THREADED_PRODUCTS
    ranges = threads.map_ranges(n, 1, work)
    assert ranges == sorted(ranges)
    assert list(taken.values()).count(caller) == len(ranges) - 1
