"""Points in shards in memory, or in blocks that every pass reads again.

shard
    Points that one array in memory holds, such as those of a client.
block
    Consecutive rows that are read or processed together, to bound memory.
chunk
    The block of a dask array, on a worker (:mod:`pkm.compute.storage.dask_points`).

A pass reads all points once. It computes sums of integers over shards or blocks, which
are the same in any order and for any division of the points.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast

import numba
import numpy as np

from pkm.compute.storage.persons import Persons
from pkm.compute.storage.points import Points, RowWeights, read_weights
from pkm.row_blocks import ChangedRows, RowBlocks

#: Result of a function for a shard or block, such as integer arrays of sums.
Arrays = tuple[np.ndarray, ...]
#: Combines the results of two sets of points to one; the first may be changed in place.
Combine = Callable[[Arrays, Arrays], Arrays]
Value = TypeVar("Value")
SECONDS_WITHOUT_BAR = 2.0  # of a pass, after which it shows a progress bar


def add(totals: Arrays, more: Arrays) -> Arrays:
    """Add arrays to totals in place, one by one."""
    for total, term in zip(totals, more, strict=True):
        total += term
    return totals


def total_array(
    points: Any, function: Callable[..., np.ndarray], **arguments: Any
) -> np.ndarray:
    """Sum over all points of a function that returns one integer array.

    Parameters
    ----------
    points : Shards, Blocks or DaskPoints
    function : callable
        Picklable: it may be sent to a worker.
    **arguments
        Further arguments of the function.

    Examples
    --------
    >>> ones, twos = (Points.from_grid(np.array([[i]])) for i in (1, 2))
    >>> halves = Shards([ones, twos])
    >>> total_array(halves, lambda shard: shard.rows.sum(axis=0).astype(int)).tolist()
    [3]
    """
    (total,) = points.map_reduce(one_array(function, **arguments))
    return total


def one_array(
    function: Callable[..., np.ndarray], **arguments: Any
) -> Callable[[Points], Arrays]:
    """Return a function of points whose result is a tuple of one array."""
    return partial(_one_array, function=function, arguments=arguments)


def _one_array(
    points: Points,
    function: Callable[..., np.ndarray],
    arguments: Mapping[str, Any],
) -> Arrays:
    return (function(points, **arguments),)


def map_reduce_all(
    points: Any,
    functions: Sequence[Callable[[Points], Arrays]],
    combine: Combine = add,
) -> list[Arrays]:
    """Combine the arrays of several functions, in one pass for all.

    Parameters
    ----------
    points : Shards, Blocks or DaskPoints
    functions : sequence of callable
        As of :meth:`Blocks.map_reduce`; they return equally many arrays.
    combine : callable, optional
        Combines two results of one function. Default: adds them.

    Examples
    --------
    >>> shards = Shards([Points.from_grid(np.array([[i], [5]])) for i in (1, 2)])
    >>> functions = [one_array(lambda points: points.rows.max(axis=0))] * 2
    >>> map_reduce_all(shards, functions)
    [(array([10.], dtype=float32),), (array([10.], dtype=float32),)]
    """
    n = len(functions)
    # Sums are added as soon as they are known: many at once may be large.
    if combine is not add:
        combine = partial(_combine_each, combine=combine, n=n)
    totals = points.map_reduce(partial(_apply_all, functions=functions), combine)
    return _divide(totals, n)


def _apply_all(
    points: Points, functions: Sequence[Callable[[Points], Arrays]]
) -> Arrays:
    results = (function(points) for function in functions)
    return tuple(chain.from_iterable(results))


def _combine_each(totals: Arrays, more: Arrays, combine: Combine, n: int) -> Arrays:
    pairs = zip(_divide(totals, n), _divide(more, n), strict=True)
    sums = (combine(*pair) for pair in pairs)
    return tuple(chain.from_iterable(sums))


def _divide(arrays: Arrays, n: int) -> list[Arrays]:
    """Divide a tuple of arrays into n tuples of equal length."""
    size = len(arrays) // n
    return [arrays[start : start + size] for start in range(0, len(arrays), size)]


class RowSource(Protocol):
    """Rows that every pass reads again, in blocks: RowBlocks or a GridFile."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        ...

    def blocks(self) -> Iterator[Any]:
        """Read all rows once."""
        ...


class WeightedBlock(NamedTuple):
    """A block of rows with their weights."""

    rows: np.ndarray
    weights: RowWeights | None

    def __len__(self) -> int:
        return len(self.rows)


class Shards(list[Points]):
    """Shards of points that are kept in memory.

    Examples
    --------
    >>> ones, twos = (Points.from_grid(np.array([[i]])) for i in (1, 2))
    >>> halves = Shards([ones, twos])
    >>> halves.map_reduce(lambda shard: (shard.rows.sum(axis=0).astype(int),))
    (array([3]),)
    """

    @property
    def n_records(self) -> int:
        """Number of records, null ones included."""
        return sum([shard.n_records for shard in self])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self[0].shape[1]

    @property
    def has_null(self) -> bool:
        """Whether there are null records."""
        return any(shard.n_null for shard in self)

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights."""
        return any(shard.weights is not None for shard in self)

    @property
    def n_persons(self) -> int:
        """Number of persons whose rows these are; 0 where each row is a record."""
        return sum([shard.n_persons for shard in self])

    def map_reduce(
        self,
        function: Callable[[Points], Arrays],
        combine: Combine = add,
    ) -> Arrays:
        """Combine the arrays of all shards; see :meth:`Blocks.map_reduce`."""
        return reduce(combine, map(function, self))

    def map(self, function: Callable[[Points], Points]) -> "Shards":
        """Apply a function to the points of each shard."""
        return Shards(function(shard) for shard in self)

    def persist(self) -> "Shards":
        """These shards, which are in memory already."""
        return self


def _combine_all(results: Iterable[Arrays], combine: Combine) -> Arrays:
    """Combine the results of blocks in their order; without blocks, an empty tuple.

    Sums are added at once. Other results grow with the number of blocks. They are
    combined with results of about as many blocks, as in a merge sort. So each is copied
    a logarithmic number of times, not once for every later block.
    """
    pending: list[tuple[int, Arrays]] = []  # numbers of blocks, and their results
    for result in results:
        n_blocks = 1
        while pending and (combine is add or pending[-1][0] <= n_blocks):
            n_before, before = pending.pop()
            result = combine(before, result)
            n_blocks += n_before
        pending.append((n_blocks, result))

    # The later results are smaller: combine from the last one on.
    total: Arrays = ()
    for _, result in reversed(pending):
        total = combine(result, total) if total else result
    return total


class StreamedPoints:
    """Base class of points that every pass reads again.

    Attributes
    ----------
    n_rows : int
    to_points : callable
        Function from rows that are read together to Points.
    weights : RowWeights, Persons or None
        Weights of the rows, in their order, or of persons whose ids are read with the
        rows; None where each row is a record.
    """

    n_rows: int
    to_points: Callable[[Any], Points]
    weights: RowWeights | Persons | None

    @property
    def has_weights(self) -> bool:
        """Whether rows have weights."""
        return self.weights is not None

    @property
    def n_persons(self) -> int:
        """Number of persons whose rows these are; 0 where each row is a record."""
        return self.weights.n_persons if self.weights else 0

    @property
    def n_records(self) -> int:
        """Number of records, null ones included."""
        return self.n_persons or self.n_rows

    def map(self, function: Callable[[Points], Points]) -> Self:
        """Apply a function to the points that are read together, in every pass."""
        to_points = partial(map_block, to_points=self.to_points, function=function)
        return replace(cast("Any", self), to_points=to_points)

    def with_bounds(self, lower: np.ndarray, upper: np.ndarray) -> Self:
        """Quantize rows in other bounds, (d,) each, before anything is mapped."""
        # A partial of a partial: the later bounds replace those of ``quantize``.
        quantize: Any = self.to_points
        to_points = partial(quantize, lower=lower, upper=upper)
        return replace(cast("Any", self), to_points=to_points)


@dataclass(frozen=True, eq=False)
class Blocks(StreamedPoints):
    """Points that every pass reads again, in blocks: memory does not grow with n.

    The calling thread reads blocks ahead. As many threads as numba has quantize them
    and compute.

    Attributes
    ----------
    rows : RowBlocks or GridFile
        In the units of the data, or on the grid.
    to_points : callable
        Function from a block of rows to Points.
    n_null : int or None
        Number of null records if it is known; blocks of a grid file hold none.
    progress : bool
        Whether each pass shows a progress bar.
    in_memory : bool
        Whether the rows are in memory; there is then room for the points as well.
    weights : RowWeights, Persons or None
        Weights of the rows, in the order of the blocks. Persons need RowBlocks with
        ids.
    """

    rows: RowSource
    to_points: Callable[[Any], Points]
    n_null: int | None = None
    progress: bool = False
    in_memory: bool = False
    weights: RowWeights | Persons | None = None

    @classmethod
    def quantize(
        cls,
        rows: RowBlocks,
        lower: np.ndarray,
        upper: np.ndarray,
        *,
        keep_remainders: bool = True,
        keep_missing: bool = False,
        progress: bool = False,
    ) -> "Blocks":
        """Blocks of rows in a box; see :meth:`Points.quantize`.

        Examples
        --------
        >>> from pkm.row_blocks import RowBlocks
        >>> arrays = [np.array([[0.5], [1.0]]), np.array([[-1], [3]])]
        >>> rows = RowBlocks(4, 1, lambda: iter(arrays))
        >>> blocks = Blocks.quantize(rows, -np.ones(1), np.ones(1))
        >>> blocks.map_reduce(lambda block: (block.rows.sum(axis=0).astype(int),))
        (array([98304]),)
        """
        to_points = partial(
            quantize_block,
            lower=lower,
            upper=upper,
            keep_remainders=keep_remainders,
            keep_missing=keep_missing,
        )
        return cls(rows, to_points, progress=progress)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.rows.n_rows

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.rows.n_columns

    @property
    def has_null(self) -> bool:
        """Whether there are null records: takes a pass if that is not known."""
        if self.n_null is not None:
            return self.n_null > 0
        return bool(total_array(self, count_null)[0])

    def map_reduce(
        self,
        function: Callable[[Points], Arrays],
        combine: Combine = add,
    ) -> Arrays:
        """Combine a function's arrays over all blocks, in one pass.

        Parameters
        ----------
        function : callable
            Function from Points to a tuple of arrays.
        combine : callable, optional
            Combines two tuples, in the order of the blocks. Default: adds them.

        Raises
        ------
        ChangedRows
            If the rows are not those of earlier passes.
        """
        return _combine_all(self._compute(function), combine)

    def _compute(self, function: Callable[[Points], Arrays]) -> Iterator[Arrays]:
        """Results of a function for the blocks, in their order."""
        n_threads = numba.get_num_threads()
        pending: deque[Future[Arrays]] = deque()

        def compute(block: Any, start: int) -> Arrays:
            return function(self._to_points(block, start))

        # One block per thread; kernels start no threads of their own inside.
        threads = ThreadPoolExecutor(
            n_threads, initializer=numba.set_num_threads, initargs=(1,)
        )
        with threads, _bar(self.n_rows, self.progress) as advance:
            blocks = self._read()
            first = list(islice(blocks, 2))
            if len(first) == 1:
                # To start threads takes longer than most single blocks.
                advance(self.n_rows)
                yield compute(*first[0])
                return
            for block, start in chain(first, blocks):
                pending.append(threads.submit(compute, block, start))
                advance(len(block))
                # Wait for the oldest result, to bound the number of blocks in memory.
                if len(pending) > n_threads:
                    yield pending.popleft().result()
            for future in pending:
                yield future.result()

    def _read(self) -> Iterator[tuple[Any, int]]:
        """Read all rows once, each block with the number of its first row."""
        blocks = self.rows.blocks()
        # Ids are read in the same pass as the rows, so that neither is kept for all n.
        if isinstance(self.weights, Persons):
            blocks = cast("RowBlocks", self.rows).identified_blocks()
        start = 0
        for block in blocks:
            yield block, start
            start += len(block)

    def _to_points(self, block: Any, start: int) -> Points:
        """Points of a block that begins at a row, with their weights."""
        if self.weights is None:
            return self.to_points(block)
        rows = slice(start, start + len(block))
        if isinstance(self.weights, Persons):
            row_units = self.weights.row_units
            row_units = None if row_units is None else row_units[rows]
            weights = self.weights.weigh(block.ids, row_units)
            return self.to_points(WeightedBlock(block.rows, weights))
        weights = self.weights._replace(units=self.weights.units[rows])
        return self.to_points(WeightedBlock(block, weights))

    def persist(self) -> "Blocks | Shards":
        """Quantize the points once and keep them, if the rows are in memory.

        The points have no remainders then.

        Examples
        --------
        >>> rows = RowBlocks(2, 1, lambda: iter([np.array([[0.5]]), np.array([[1.0]])]))
        >>> blocks = Blocks.quantize(rows, -np.ones(1), np.ones(1))
        >>> replace(blocks, in_memory=True).persist()[0].rows.ravel().tolist()
        [32768.0, 65536.0]
        """
        if not self.in_memory:
            return self
        # Arrays for all records; null records leave the last rows unused.
        rows = np.empty((self.n_rows, self.n_features), np.float32)
        squared_norms = np.empty(self.n_rows)
        weights = np.empty(self.n_rows, np.int32) if self.has_weights else None
        is_missing = None
        n_filled = 0
        for block, start in self._read():
            points = self._to_points(block, start)
            block_rows = slice(n_filled, n_filled + len(points.rows))
            rows[block_rows] = points.rows
            squared_norms[block_rows] = points.squared_norms
            if weights is not None:
                weights[block_rows] = read_weights(points)
            if points.is_missing is not None:
                if is_missing is None:
                    is_missing = np.zeros(rows.shape, bool)
                is_missing[block_rows] = points.is_missing
            n_filled = block_rows.stop
        points = Points(
            rows[:n_filled],
            squared_norms[:n_filled],
            n_null=self.n_rows - n_filled,
            weights=None if weights is None else weights[:n_filled],
            n_persons=self.n_persons,
            is_missing=None if is_missing is None else is_missing[:n_filled],
        )
        return Shards([points])


def array_blocks(array: np.ndarray) -> RowBlocks:
    """Rows (n, d) of an array in memory, in blocks."""
    n, d = array.shape
    return RowBlocks(n, d, lambda: iter([array]))


# Functions of the module, not closures: they are pickled for other processes.


def quantize_block(
    block: np.ndarray | WeightedBlock,
    lower: np.ndarray,
    upper: np.ndarray,
    keep_remainders: bool = True,
    keep_missing: bool = False,
) -> Points:
    """Quantize a block of rows in a box."""
    if not isinstance(block, WeightedBlock):
        block = WeightedBlock(block, None)
    if block.weights and len(block.weights.units) != len(block.rows):
        raise ChangedRows(
            f"a chunk of X has {len(block.rows)} rows, and {len(block.weights.units)} "
            "weights or ids: all passes must read the same rows"
        )
    points, _ = Points.quantize(
        block.rows,
        lower,
        upper,
        keep_remainders=keep_remainders,
        keep_missing=keep_missing,
        weights=block.weights,
    )
    return points


def map_block(
    block: Any,
    to_points: Callable[[Any], Points],
    function: Callable[[Points], Value],
) -> Value:
    """Apply a function to the points of a block."""
    return function(to_points(block))


def count_null(points: Points) -> np.ndarray:
    """Number of null records, (1,)."""
    return np.array([points.n_null])


@contextmanager
def _bar(n_rows: int, progress: bool) -> Iterator[Callable[[int], object]]:
    """Progress of one pass on standard error, or nothing."""
    if not progress:
        yield lambda _: None
        return
    from tqdm import tqdm

    # Most passes are too short for a bar.
    with tqdm(
        total=n_rows,
        unit=" rows",
        unit_scale=True,
        delay=SECONDS_WITHOUT_BAR,
        leave=False,
    ) as bar:
        yield bar.update
