"""Points of a ``dask.array``: one task per chunk and pass, and a tree reduction.

Tasks return integers, so results are the same for any number of workers and any chunks.
Dask runs the tasks of a worker that has died again, with the same results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
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
from pkm.compute.storage.persons import (
    Persons,
    count_ids,
    draw_key,
    make_persons,
    merge_counts,
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
        Function from a chunk to Points.
    sizes : sequence of int
        Numbers of rows of the chunks.
    progress : bool
        Accepted as by :class:`pkm.compute.storage.blocks.Blocks`; dask shows its own
        progress.
    weights : RowWeights, Persons or None
        Weights of the rows, in the order of the chunks, or of the persons of `ids`.
    ids : sequence
        Delayed arrays (m,) with the persons of the rows of each chunk; needed for
        weights of persons.
    """

    chunks: Sequence[Any]
    n_rows: int
    n_features: int
    to_points: Callable[[WeightedBlock], Points]
    sizes: Sequence[int]
    progress: bool = False
    weights: RowWeights | Persons | None = None
    ids: Sequence[Any] = ()

    @classmethod
    def quantize(
        cls,
        array: Any,
        lower: np.ndarray,
        upper: np.ndarray,
        *,
        keep_remainders: bool = True,
        keep_missing: bool = False,
    ) -> "DaskPoints":
        """Chunks of rows in a box; see :meth:`Points.quantize`."""
        n, d = array.shape
        # A task needs whole rows: norms and distances run over all columns.
        wide = array.rechunk({1: -1})
        chunks = wide.to_delayed().ravel().tolist()
        to_points = partial(
            quantize_block,
            lower=lower,
            upper=upper,
            keep_remainders=keep_remainders,
            keep_missing=keep_missing,
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
            Function from Points to a tuple of arrays; picklable, as workers call it.
        combine : callable, optional
            Combines two tuples, in the order of the chunks. Default: adds them.

        Raises
        ------
        ChangedRows
            If the chunks have not as many rows as the array.
        ValueError
            If a chunk is no matrix of real numbers with the columns of the array.
        """
        from dask.delayed import delayed

        compute_chunk = partial(
            _compute,
            n_features=self.n_features,
            to_points=self.to_points,
            function=function,
        )
        # Keys of tasks are random: keys of a pure function hash its arguments, and with
        # them the weights of every chunk.
        task = delayed(compute_chunk, pure=False)
        results = list(map(task, self.chunks, self._divide_weights()))
        totals, n_rows = _reduce(results, combine)
        if n_rows != self.n_rows:
            raise ChangedRows(
                f"X has n={self.n_rows} rows, but its chunks have {n_rows}: call "
                "compute_chunk_sizes() of the array, and fit again"
            )
        return totals

    def _divide_weights(self) -> list[Any]:
        """Weights of the rows of each chunk; delayed where they are found by ids."""
        if self.weights is None:
            return [None] * len(self.chunks)
        ends = np.cumsum(self.sizes)[:-1]
        if isinstance(self.weights, RowWeights):
            units_of_chunks = np.split(self.weights.units, ends)
            return [self.weights._replace(units=units) for units in units_of_chunks]

        from dask.delayed import delayed

        units_of_rows: list[Any] = [None] * len(self.ids)
        if self.weights.row_units is not None:
            units_of_rows = np.split(self.weights.row_units, ends)
        # A task of its own: each worker gets the persons once.
        persons = delayed(
            replace(self.weights, row_units=None),
            traverse=False,
            pure=False,
        )
        weigh = delayed(Persons.weigh, pure=False)
        return list(map(weigh, repeat(persons), self.ids, units_of_rows))

    def persist(self) -> "DaskPoints":
        """These chunks: they stay where they are and are read again in every pass."""
        return self


def count_chunks(ids: Sequence[Any], sizes: Sequence[int]) -> Persons:
    """Count the rows of each person in delayed chunks of ids.

    Parameters
    ----------
    ids : sequence
        Delayed arrays (m,).
    sizes : sequence of int
        Numbers of rows of the chunks.

    Raises
    ------
    ValueError
        If a chunk has another number of ids, or they are neither integers nor texts.
    """
    from dask.delayed import delayed

    key = draw_key()
    count = delayed(partial(_count_chunk, key=key), pure=False)
    results = list(map(count, ids, sizes))
    (hashes, n_rows, n_without_id), _ = _reduce(results, merge_counts)
    # A copy: what a task has returned may be read-only.
    return make_persons((hashes, n_rows.copy(), n_without_id), key)


def _count_chunk(ids: Any, size: int, key: np.ndarray) -> tuple[Arrays, int]:
    """Count the rows of each person in a chunk of ids, and all rows."""
    if np.shape(ids) != (size,):
        raise ValueError(
            f"groups has a chunk of shape {np.shape(ids)} for {size} rows: give one id "
            "for each row"
        )
    return count_ids(ids, key), size


def _reduce(results: list[Any], combine: Combine) -> tuple[Arrays, int]:
    """Combine the results of delayed tasks, and add their numbers of rows."""
    from dask.base import compute
    from dask.delayed import delayed

    combine_some = delayed(partial(_combine_results, combine=combine), pure=False)
    # A tree of FAN_IN results per task: no task holds the results of all chunks.
    while len(results) > 1:
        results = [
            combine_some(results[i : i + FAN_IN])
            for i in range(0, len(results), FAN_IN)
        ]
    ((totals, n_rows),) = compute(results[0])
    return totals, n_rows


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


def _combine_results(
    results: Sequence[tuple[Arrays, int]], combine: Combine
) -> tuple[Arrays, int]:
    """Combine the results of several tasks, and add their numbers of rows."""
    (first, n_rows), *others = results
    # A copy: what a task has returned may be read again, after a worker has died.
    totals = tuple(array.copy() for array in first)
    for more, n_more in others:
        totals = combine(totals, more)
        n_rows += n_more
    return totals, n_rows
