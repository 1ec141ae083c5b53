"""Limits on the threads of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import numba
from threadpoolctl import threadpool_limits


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """Limit the thread pools of BLAS, OpenMP and numba to `threads` during a block."""
    before = numba.get_num_threads()
    most = numba.config.NUMBA_NUM_THREADS  # pyright: ignore
    numba.set_num_threads(min(threads, most))
    try:
        with threadpool_limits(limits=threads):
            yield
    finally:
        numba.set_num_threads(before)
