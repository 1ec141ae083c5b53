"""Points in shards that are kept, or in blocks that every pass reads anew.

What is computed of them are sums of integers over shards, the same in any order and
split.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Protocol, TypeVar

import numba
import numpy as np

from pkm.compute.storage.points import Points
from pkm.row_blocks import RowBlocks

#: Integer arrays that are added over shards, one by one.
Sums = tuple[np.ndarray, ...]
#: Makes one result of those of two sets of points; the first may be changed in place.
Combine = Callable[[Sums, Sums], Sums]
Value = TypeVar("Value")


def add(totals: Sums, more: Sums) -> Sums:
    """Add arrays to totals in place, one by one."""
    for total, term in zip(totals, more, strict=True):
        total += term
    return totals


def total_array(
    points: Any, function: Callable[..., np.ndarray], **arguments: Any
) -> np.ndarray:
    """Sum of one integer array that a function makes of points and arguments.

    Parameters
    ----------
    points : Shards, Blocks or DaskPoints
    function : callable
        One that can be sent to a worker.
    **arguments
        Of the function, the same for all points.

    Examples
    --------
    >>> ones, twos = (Points.prepare(np.array([[i]])) for i in (1, 2))
    >>> halves = Shards([ones, twos])
    >>> total_array(halves, lambda shard: shard.rows.sum(axis=0).astype(int)).tolist()
    [3]
    """
    (total,) = points.total(partial(_one_array, function=function, arguments=arguments))
    return total


def _one_array(
    points: Points,
    function: Callable[..., np.ndarray],
    arguments: Mapping[str, Any],
) -> Sums:
    return (function(points, **arguments),)


class Source(Protocol):
    """Rows that can be read several times in blocks that have a length."""

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


class Shards(list[Points]):
    """Shards of points that are kept in memory.

    Examples
    --------
    >>> ones, twos = (Points.prepare(np.array([[i]])) for i in (1, 2))
    >>> halves = Shards([ones, twos])
    >>> halves.total(lambda shard: (shard.rows.sum(axis=0).astype(int),))[0].tolist()
    [3]
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

    def total(
        self,
        function: Callable[[Points], Sums],
        combine: Combine = add,
    ) -> Sums:
        """Sum of a function's arrays over all shards; see :meth:`Blocks.total`."""
        return reduce(combine, map(function, self))

    def map(self, function: Callable[[Points], Points]) -> "Shards":
        """Points of each shard, replaced by a function of them."""
        return Shards(function(shard) for shard in self)

    def kept(self) -> "Shards":
        """These shards, which are in memory."""
        return self


def _combine_all(results: Iterable[Sums], combine: Combine) -> Sums:
    """Combine the results of blocks in their order; nothing of no blocks.

    Sums are added at once. Other results grow, so that those of like numbers of blocks
    are combined with each other: each is copied a few times, not once for every later
    block.
    """
    pending: list[tuple[int, Sums]] = []  # numbers of blocks, and their results
    for result in results:
        n_blocks = 1
        while pending and (combine is add or pending[-1][0] <= n_blocks):
            n_before, before = pending.pop()
            result = combine(before, result)
            n_blocks += n_before
        pending.append((n_blocks, result))

    total: Sums = ()
    for _, result in reversed(pending):
        total = combine(result, total) if total else result
    return total


@dataclass(frozen=True, eq=False)
class Blocks:
    """Points that every pass reads anew, in blocks: memory does not grow with n.

    Blocks are read ahead of the compute by the calling thread; numba's number of
    threads enter them and compute.

    Attributes
    ----------
    rows : RowBlocks or GridFile
        In the units of the data, or packed.
    enter : callable
        From a block of rows to Points.
    n_null : int or None
        Number of null records where it is known; blocks of packed points have none.
    progress : bool
        Whether each pass shows a progress bar.
    in_memory : bool
        Whether the rows are in memory, where there is room for points as well.
    """

    rows: Source
    enter: Callable[[Any], Points]
    n_null: int | None = None
    progress: bool = False
    in_memory: bool = False

    @classmethod
    def quantize(
        cls,
        rows: RowBlocks,
        lower: np.ndarray,
        upper: np.ndarray,
        *,
        keep_remainders: bool = True,
        progress: bool = False,
    ) -> "Blocks":
        """Points of a box; see :meth:`Points.quantize`.

        Examples
        --------
        >>> from pkm.row_blocks import RowBlocks
        >>> arrays = [np.array([[0.5], [1.0]]), np.array([[-1], [3]])]
        >>> rows = RowBlocks(4, 1, lambda: iter(arrays))
        >>> blocks = Blocks.quantize(rows, -np.ones(1), np.ones(1))
        >>> blocks.total(lambda block: (block.rows.sum(axis=0).astype(int),))[0] / 2**16
        array([1.5])
        """
        enter = partial(
            enter_box, lower=lower, upper=upper, keep_remainders=keep_remainders
        )
        return cls(rows, enter, progress=progress)

    @property
    def n_records(self) -> int:
        """Number of records, null ones included."""
        return self.rows.n_rows

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.rows.n_columns

    @property
    def has_null(self) -> bool:
        """Whether there are null records: one pass where that is not known."""
        if self.n_null is not None:
            return self.n_null > 0
        return bool(total_array(self, count_null)[0])

    def total(
        self,
        function: Callable[[Points], Sums],
        combine: Combine = add,
    ) -> Sums:
        """Sum of a function's integer arrays over all blocks, in one pass.

        Parameters
        ----------
        function : callable
            From Points to a tuple of arrays.
        combine : callable, optional
            Makes one tuple of two, in the order of the blocks; by default it adds.

        Raises
        ------
        ChangedRows
            If the rows are not those of earlier passes.
        """
        return _combine_all(self._compute(function), combine)

    def _compute(self, function: Callable[[Points], Sums]) -> Iterator[Sums]:
        """Results of a function for the blocks, in their order."""
        n_threads = numba.get_num_threads()
        pending: deque[Future[Sums]] = deque()
        compute = partial(enter_and_map, enter=self.enter, function=function)
        # Each thread computes on a block of its own, and no block has threads of its
        # own.
        threads = ThreadPoolExecutor(
            n_threads, initializer=numba.set_num_threads, initargs=(1,)
        )
        with threads, _bar(self.n_records, self.progress) as advance:
            for block in self.rows.blocks():
                pending.append(threads.submit(compute, block))
                advance(len(block))
                if len(pending) > n_threads:
                    yield pending.popleft().result()
            for future in pending:
                yield future.result()

    def map(self, function: Callable[[Points], Points]) -> "Blocks":
        """Points of each block, replaced by a function of them in every pass."""
        return replace(
            self, enter=partial(enter_and_map, enter=self.enter, function=function)
        )

    def kept(self) -> "Blocks | Shards":
        """Points entered once, without remainders, where the rows are in memory.

        Examples
        --------
        >>> rows = RowBlocks(2, 1, lambda: iter([np.array([[0.5]]), np.array([[1.0]])]))
        >>> blocks = Blocks.quantize(rows, -np.ones(1), np.ones(1))
        >>> replace(blocks, in_memory=True).kept()[0].rows.ravel().tolist()
        [32768.0, 65536.0]
        """
        if not self.in_memory:
            return self
        rows = np.empty((self.n_records, self.n_features), np.float32)
        squared_norms = np.empty(self.n_records)
        n_entered = 0
        for block in self.rows.blocks():
            points = self.enter(block)
            entered = slice(n_entered, n_entered + len(points.rows))
            rows[entered] = points.rows
            squared_norms[entered] = points.squared_norms
            n_entered = entered.stop
        n_null = self.n_records - n_entered
        return Shards(
            [Points(rows[:n_entered], squared_norms[:n_entered], n_null=n_null)]
        )


def array_blocks(array: np.ndarray) -> RowBlocks:
    """Rows (n, d) of an array in memory, in blocks."""
    n, d = array.shape
    return RowBlocks(n, d, lambda: iter([array]))


# Functions of modules, not closures: they are sent to other processes.


def enter_box(
    block: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    keep_remainders: bool = True,
) -> Points:
    """Points of a block of rows in a box."""
    return Points.quantize(block, lower, upper, keep_remainders=keep_remainders)[0]


def enter_and_map(
    block: Any,
    enter: Callable[[Any], Points],
    function: Callable[[Points], Value],
) -> Value:
    """Result of a function for the points of a block."""
    return function(enter(block))


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

    with tqdm(total=n_rows, unit=" rows", unit_scale=True, leave=False) as bar:
        yield bar.update
