"""Points of a ``dask.array``: one task per chunk and pass, and a tree reduction.

Tasks return integers, so results are the same for any number of workers and any chunks.
Dask runs the tasks of a worker that has died again, with the same results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numba
import numpy as np

from pkm.compute.storage.blocks import (
    Arrays,
    Combine,
    StreamedPoints,
    WeightedBlock,
    add,
    count_null,
    quantize_block,
    total_array,
)
from pkm.compute.storage.points import Points, RowWeights
from pkm.row_blocks import ChangedRows, checked_block

#: Results that a task of the reduction combines.
FAN_IN = 8


@dataclass(frozen=True, eq=False)
class DaskPoints(StreamedPoints):
    """Points in chunks of rows that lie on, or are read by, the workers of a cluster.

    Attributes
    ----------
    chunks : sequence
        Delayed arrays (m, d), in the units of the data.
    n_rows, n_features : int
        Shape of all chunks together.
    to_points : callable
        From a chunk to Points.
    sizes : sequence of int
        Numbers of rows of the chunks.
    progress : bool
        Accepted as by :class:`pkm.compute.storage.blocks.Blocks`; dask shows its own
        progress.
    weights : RowWeights or None
        Of the rows, in the order of the chunks.
    """

    chunks: Sequence[Any]
    n_rows: int
    n_features: int
    to_points: Callable[[WeightedBlock], Points]
    sizes: Sequence[int]
    progress: bool = False
    weights: RowWeights | None = None

    @classmethod
    def quantize(
        cls,
        array: Any,
        lower: np.ndarray,
        upper: np.ndarray,
        *,
        keep_remainders: bool = True,
    ) -> "DaskPoints":
        """Chunks of rows in a box; see :meth:`Points.quantize`."""
        n, d = array.shape
        wide = array.rechunk({1: -1})
        chunks = wide.to_delayed().ravel().tolist()
        to_points = partial(
            quantize_block, lower=lower, upper=upper, keep_remainders=keep_remainders
        )
        return cls(chunks, n, d, to_points, wide.chunks[0])

    @property
    def has_null(self) -> bool:
        """Whether there are null records: takes a pass."""
        return bool(total_array(self, count_null)[0])

    def map_reduce(
        self,
        function: Callable[[Points], Arrays],
        combine: Combine = add,
    ) -> Arrays:
        """Combine a function's arrays over all chunks, in one pass.

        Parameters
        ----------
        function : callable
            From Points to a tuple of arrays; picklable, it is sent to workers.
        combine : callable, optional
            Combines two tuples, in the order of the chunks. Default: adds them.

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
            _compute,
            n_features=self.n_features,
            to_points=self.to_points,
            function=function,
        )
        task = delayed(compute_chunk, pure=False)
        parts = list(map(task, self.chunks, self._divide_weights()))
        combine_parts = delayed(partial(_combine_parts, combine=combine), pure=False)
        # A tree of FAN_IN results per task: no task holds the results of all chunks.
        while len(parts) > 1:
            parts = [
                combine_parts(parts[i : i + FAN_IN])
                for i in range(0, len(parts), FAN_IN)
            ]
        ((totals, n_rows),) = compute(parts[0])
        if n_rows != self.n_rows:
            raise ChangedRows(
                f"X has n={self.n_rows} rows, but its chunks have {n_rows}: call "
                "compute_chunk_sizes() of the array, and fit again"
            )
        return totals

    def _divide_weights(self) -> list[RowWeights | None]:
        """Weights of the rows of each chunk."""
        if self.weights is None:
            return [None] * len(self.chunks)
        parts = np.split(self.weights.units, np.cumsum(self.sizes)[:-1])
        return [self.weights._replace(units=units) for units in parts]

    def persist(self) -> "DaskPoints":
        """These chunks: they stay where they are and are read again in every pass."""
        return self


def _compute(
    chunk: np.ndarray,
    weights: RowWeights | None,
    n_features: int,
    to_points: Callable[[WeightedBlock], Points],
    function: Callable[[Points], Arrays],
) -> tuple[Arrays, int]:
    """A function's arrays for one chunk, on one thread, and its number of rows."""
    # Dask runs a task on each core: kernels must not start threads of their own.
    n_threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        rows = checked_block(np.asanyarray(chunk), n_features)
        return function(to_points(WeightedBlock(rows, weights))), len(rows)
    finally:
        numba.set_num_threads(n_threads)


def _combine_parts(
    parts: Sequence[tuple[Arrays, int]], combine: Combine
) -> tuple[Arrays, int]:
    """Combine the results of several tasks, and add their numbers of rows."""
    (first, n_rows), *others = parts
    # A copy: what a task has returned may be read again, after a worker has died.
    totals = tuple(array.copy() for array in first)
    for more, n_more in others:
        totals = combine(totals, more)
        n_rows += n_more
    return totals, n_rows
