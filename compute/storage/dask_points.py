"""Points of a ``dask.array``: one task per chunk and pass, a tree of sums.

Tasks return integers, and their sums are the same on any number of workers, with any
chunks, and after a worker has died, whose tasks dask runs again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numba
import numpy as np

from pkm.compute.storage.blocks import (
    Combine,
    Sums,
    add,
    count_null,
    enter_and_map,
    enter_box,
    total_array,
)
from pkm.compute.storage.points import Points
from pkm.row_blocks import ChangedRows, checked_block

#: Sums that a task adds up.
FAN_IN = 8


@dataclass(frozen=True, eq=False)
class DaskPoints:
    """Points in chunks of rows that lie on, or are read by, the workers of a cluster.

    Attributes
    ----------
    chunks : sequence
        Delayed arrays (m, d), in the units of the data.
    n_records, n_features : int
        Of all chunks, null records included.
    enter : callable
        From a chunk to Points.
    progress : bool
        Accepted as by :class:`pkm.compute.storage.blocks.Blocks`; dask shows its own
        progress.
    """

    chunks: Sequence[Any]
    n_records: int
    n_features: int
    enter: Callable[[np.ndarray], Points]
    progress: bool = False

    @classmethod
    def quantize(
        cls,
        array: Any,
        lower: np.ndarray,
        upper: np.ndarray,
        *,
        keep_remainders: bool = True,
    ) -> "DaskPoints":
        """Points of a box of a ``dask.array``: see :meth:`Points.quantize`."""
        n, d = array.shape
        chunks = array.rechunk({1: -1}).to_delayed().ravel().tolist()
        enter = partial(
            enter_box, lower=lower, upper=upper, keep_remainders=keep_remainders
        )
        return cls(chunks, n, d, enter)

    @property
    def has_null(self) -> bool:
        """Whether there are null records: one pass."""
        return bool(total_array(self, count_null)[0])

    def total(
        self,
        function: Callable[[Points], Sums],
        combine: Combine = add,
    ) -> Sums:
        """Sum of a function's integer arrays over all chunks, in one pass.

        Parameters
        ----------
        function : callable
            From Points to a tuple of arrays; one that can be sent to a worker.
        combine : callable, optional
            Makes one tuple of two, in the order of the chunks; by default it adds.

        Raises
        ------
        ChangedRows
            If the chunks have not as many rows as the array.
        ValueError
            If a chunk is no matrix of real numbers with the columns of the array.
        """
        from dask.base import compute
        from dask.delayed import delayed

        compute_chunk = partial(
            _compute, n_features=self.n_features, enter=self.enter, function=function
        )
        task = delayed(compute_chunk, pure=False)
        parts = [task(chunk) for chunk in self.chunks]
        unite = delayed(partial(_united, combine=combine), pure=False)
        while len(parts) > 1:
            parts = [unite(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
        ((totals, n_records),) = compute(parts[0])
        if n_records != self.n_records:
            raise ChangedRows(
                f"X has n={self.n_records} rows, but its chunks have {n_records}: call "
                "compute_chunk_sizes() of the array, and fit again"
            )
        return totals

    def map(self, function: Callable[[Points], Points]) -> "DaskPoints":
        """Points of each chunk, replaced by a function of them in every pass."""
        return replace(
            self, enter=partial(enter_and_map, enter=self.enter, function=function)
        )

    def kept(self) -> "DaskPoints":
        """These chunks, which stay where they are."""
        return self


def _compute(
    chunk: np.ndarray,
    n_features: int,
    enter: Callable[[np.ndarray], Points],
    function: Callable[[Points], Sums],
) -> tuple[Sums, int]:
    """Arrays of a function and the number of records of one chunk, on one thread."""
    n_threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        points = enter(checked_block(np.asanyarray(chunk), n_features))
        return function(points), points.n_records
    finally:
        numba.set_num_threads(n_threads)


def _united(parts: Sequence[tuple[Sums, int]], combine: Combine) -> tuple[Sums, int]:
    """One result, and the number of records, of those of several tasks."""
    (first, n_records), *others = parts
    # A copy: what a task has returned may be read again, after a worker has died.
    totals = tuple(array.copy() for array in first)
    for more, n_more in others:
        totals = combine(totals, more)
        n_records += n_more
    return totals, n_records
