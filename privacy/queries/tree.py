"""Private points in a tree of public cells, with noisy queries on the cells.

A method splits cells by functions of released values only, each into two children. It
names cells by number; which points lie in which cell is private. The cells of one query
must be disjoint. Then a record changes one of them, and the cost of the query is that
of its most expensive cell.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pkm.compute import (
    SCALE,
    Points,
    histogram,
    stable_partition,
)
from pkm.compute.kernels.clipping import clipped_sums
from pkm.compute.storage.blocks import Shards, total_array
from pkm.compute.storage.points import read_weights
from pkm.privacy.base import BaseCurator, View
from pkm.privacy.checks import check_floats, check_grid_integers, check_type
from pkm.privacy.mechanisms.selection import ScoreSensitivity, SplitScore
from pkm.privacy.queries.sums import (
    CHOICES,
    GAUSSIAN_SUMS,
    CountQuery,
    vector_sensitivity,
)
from pkm.privacy.query import Answer, Details, Query, Sensitivities

MAX_INTERVALS = 4096  # of a BoxGrid: limits the memory of large trees
MAX_SUM = 2.0**60  # grid steps
MAX_BIN_COUNTS = 1 << 22  # limits the number of cells that one pass counts

#: Maps points to unsigned codes (n, m): a bin per feature, or a side per hyperplane.
Code = Callable[[Points], np.ndarray]
#: A cell, the feature that it is split by, and the boundary.
Split = tuple[int, int, int]


@dataclass(frozen=True)
class BoxGrid:
    """Public grid on [-1, 1], the same for every feature: thresholds between bins.

    In a grid of equal intervals (:meth:`of_intervals`) cells can be split at the
    midpoints of the intervals, the candidates. So every interval is two bins. One more
    bin holds the rest of the domain at its upper end.

    Attributes
    ----------
    thresholds : tuple of int
        Increasing grid positions, in grid steps: a point belongs to bin b if b
        thresholds are below it.
    inside_cell : bool
        Whether only candidates whose interval is inside the cell are allowed.
    """

    thresholds: tuple[int, ...]
    inside_cell: bool

    def __post_init__(self) -> None:
        is_sorted = all(low < high for low, high in itertools.pairwise(self.thresholds))
        is_inside = all(-SCALE <= threshold <= SCALE for threshold in self.thresholds)
        if not (is_sorted and is_inside):
            raise ValueError(
                f"thresholds={self.thresholds} must increase and lie in the domain, "
                f"from {-SCALE} to {SCALE}: the boxes of cells follow from them"
            )

    @classmethod
    def of_intervals(
        cls,
        width: float,
        inside_cell: bool = False,
    ) -> "BoxGrid":
        """Divide the domain into intervals of a width, in half-widths.

        They begin at the lower end. There are at most 4,096; a width above the domain's
        is reduced to it.

        Examples
        --------
        >>> list(BoxGrid.of_intervals(0.5).boundaries)
        [1, 3, 5, 7]
        >>> BoxGrid.of_intervals(5.0).thresholds
        (0, 65536)
        """
        if not width > 0:
            raise ValueError(f"width={width} must be positive")
        width = min(max(width, 2 / MAX_INTERVALS), 2.0)
        n_intervals = int(2 / width * (1 + 1e-12))
        # Ends of bins, half an interval apart, rounded down to grid steps.
        bin_ends = np.arange(1, 2 * n_intervals + 1) * (width / 2) - 1
        thresholds = np.floor(np.minimum(bin_ends, 1.0) * SCALE).astype(int)
        return cls(tuple(thresholds.tolist()), inside_cell)

    @property
    def n_bins(self) -> int:
        """Number of bins per feature."""
        return len(self.thresholds) + 1

    @property
    def boundaries(self) -> range:
        """Candidates of a grid of equal intervals.

        A split at boundary b puts the bins below b into the first child.
        """
        return range(1, self.n_bins, 2)


NO_GRID = BoxGrid((), False)
"""One bin per feature, for cells that are not boxes."""


class _OrderedPoints:
    """Points of one shard, block or chunk, ordered so that each cell is a slice."""

    def __init__(self, points: Points, code: Code) -> None:
        codes = code(points)
        self.rows = points.rows
        self.weights = read_weights(points)
        self.codes = codes
        index_type = np.uint16 if len(codes) <= 1 << 16 else np.int32
        self.order = np.arange(len(codes), dtype=index_type)
        self._ranges = [(0, len(codes))]  # slice of ``order`` for each cell

    def split(
        self,
        cell: int,
        feature: int,
        boundary: int,
    ) -> None:
        # Partition the slice of the cell in place: its two children are slices of it.
        start, stop = self._ranges[cell]
        order = self.order[start:stop]
        n_left = stable_partition(
            self.codes, order, feature, boundary, np.empty_like(order)
        )
        self._ranges += [(start, start + n_left), (start + n_left, stop)]

    def members(self, cell: int) -> np.ndarray:
        start, stop = self._ranges[cell]
        return self.order[start:stop]

    def size(self, cell: int) -> int:
        members = self.members(cell)
        # Without weights each point is one record.
        if not len(self.weights):
            return len(members)
        return self.weights[members].sum(dtype=np.int64)


@dataclass
class _Cell:
    """A cell: first bin and bin after the last in each feature, parent, state."""

    first: np.ndarray
    last: np.ndarray
    parent: int | None = None
    is_split: bool = False


def _no_codes(points: Points) -> np.ndarray:
    return np.empty((points.shape[0], 0), np.uint8)


class PartitionTree(View):
    """A tree of cells over one replicate's points, refined by :meth:`split`.

    Cell 0 holds all points. Its queries are :class:`CellCounts`, :class:`CellSums` and
    :class:`Splits`.

    Parameters
    ----------
    curator : BaseCurator
        Curator of one replicate.
    code : callable
        Function from Points to the codes (n, m) that cells are split by, of an unsigned
        type: one column per feature or hyperplane.
    n_codes : int
        Their number m.
    grid : BoxGrid, default=NO_GRID
        The grid whose bins the codes are. Default: codes are no bins of features.
    """

    def __init__(
        self,
        curator: BaseCurator,
        code: Code = _no_codes,
        n_codes: int = 0,
        grid: BoxGrid = NO_GRID,
    ) -> None:
        super().__init__(curator)
        # Points in memory are ordered by cells once; others in every pass.
        self._points = curator._shards
        is_kept = isinstance(self._points, Shards)
        self._ordered = (
            [_OrderedPoints(shard, code) for shard in self._points] if is_kept else None
        )
        self._code = code
        self._splits: list[Split] = []
        self._grid = grid
        self._n_codes = n_codes
        first = np.zeros(self.n_features, np.int64)
        last = np.full(self.n_features, grid.n_bins)
        self._cells = [_Cell(first, last)]
        # Bin b has the grid positions from edges[b] + 1 to edges[b + 1].
        self._edges = np.array([-SCALE - 1, *grid.thresholds, SCALE], np.int64)

    def split(
        self,
        cell: int,
        feature: int,
        boundary: int = 1,
    ) -> tuple[int, int]:
        """Split a cell by a public rule, and return the numbers of its children.

        Parameters
        ----------
        cell : int
            One that is not split yet.
        feature : int
            Feature (or hyperplane) to split by.
        boundary : int, default=1
            Points with a code below it go to the first child.

        Returns
        -------
        tuple of int
        """
        self.check_exist([cell])
        parent = self._cells[cell]
        if parent.is_split:
            raise ValueError(f"cell={cell} is split already")
        if not 0 <= feature < self._n_codes:
            raise ValueError(
                f"feature={feature} must be one of the {self._n_codes} that cells can "
                "be split by"
            )
        last = max(1, len(self._grid.thresholds))
        if not 1 <= boundary <= last:
            raise ValueError(f"boundary={boundary} must be in 1 .. {last}")

        # Divide the points.
        parent.is_split = True
        self._splits.append((cell, feature, boundary))
        for ordered in self._ordered or ():
            ordered.split(cell, feature, boundary)

        # Divide the bins. With a boundary outside the cell one child is empty, and both
        # keep the cell's box.
        left = _Cell(parent.first, parent.last.copy(), cell)
        right = _Cell(parent.first.copy(), parent.last, cell)
        is_box = self._grid is not NO_GRID
        if is_box and parent.first[feature] < boundary < parent.last[feature]:
            left.last[feature] = boundary
            right.first[feature] = boundary
        self._cells += [left, right]
        return len(self._cells) - 2, len(self._cells) - 1

    def box(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner (d,) of a cell, in grid steps: public."""
        # A bin begins one grid step above its lower edge.
        lower = self._edges[self._cells[cell].first] + 1
        upper = self._edges[self._cells[cell].last]
        return lower, upper

    def midpoint(self, cell: int) -> np.ndarray:
        """Grid point in the center of a cell, of shape (d,), int64: public."""
        lower, upper = self.box(cell)
        return (lower + upper) // 2

    def candidate(self, choice: int) -> tuple[int, int]:
        """Feature and boundary of a choice among the candidates of a grid: public."""
        boundaries = self._grid.boundaries
        feature, position = divmod(int(choice), len(boundaries))
        return feature, boundaries[position]

    def position(self, boundary: int) -> int:
        """Grid position of a boundary: points at or below it go to the first child."""
        return self._grid.thresholds[boundary - 1]

    def _total(
        self, function: Callable[..., np.ndarray], **arguments: Any
    ) -> np.ndarray:
        """Sum of a function's integer array over all points."""
        # Points in memory are in order already; others are ordered by all splits so
        # far.
        work = partial(function, **arguments)
        if self._ordered is None:
            split = partial(
                _apply_in_order, code=self._code, splits=self._splits, function=work
            )
            return total_array(self._points, split)
        return sum(map(work, self._ordered[1:]), work(self._ordered[0]))

    def check_disjoint(self, cells: Sequence[int]) -> None:
        """Refuse cells that do not exist, overlap or are named twice."""
        self.check_exist(cells)
        requested = set(cells)
        if len(requested) < len(cells):
            raise ValueError(f"cells={list(cells)} must be named once each")
        # Two cells overlap exactly if one is an ancestor of the other.
        for cell in requested:
            ancestor = self._cells[cell].parent
            while ancestor is not None:
                if ancestor in requested:
                    raise ValueError(
                        f"cells {ancestor} and {cell} overlap; query disjoint cells"
                    )
                ancestor = self._cells[ancestor].parent

    def check_exist(self, cells: Sequence[int]) -> None:
        """Refuse cells that do not exist."""
        n_cells = len(self._cells)
        if not all(cell in range(n_cells) for cell in cells):
            raise ValueError(f"cells={list(cells)} must be among the {n_cells} cells")


@dataclass(frozen=True, eq=False)
class CellCounts(CountQuery):
    """Numbers of points in disjoint cells of a tree.

    Parameters
    ----------
    cells : sequence of int
        Disjoint. A release without cells is charged, too.

    Notes
    -----
    Its part is ``counts`` (len(cells),), int64, in units of 2**-16 records.
    """

    label = "cell_counts"
    view = PartitionTree
    serves_weights = True

    cells: Sequence[int]

    def check(self, source: PartitionTree) -> None:
        """Refuse cells that overlap."""
        source.check_disjoint(self.cells)

    def count(self, source: PartitionTree) -> np.ndarray:
        """Count the points of the cells."""
        return source._total(_sizes, cells=self.cells)


@dataclass(frozen=True, eq=False)
class CellSums(Query):
    """Sums of the points of disjoint cells of a tree, each about an origin.

    Parameters
    ----------
    cells : sequence of int
        Disjoint.
    origins : ndarray of shape (len(cells), d), int64
        Subtracted from each point of a cell, in grid steps.
    radius : float, optional
        In half-widths: bound on the distance of a cell's points from its origin, by
        which noise is scaled. Default: the distance of the farthest corner.

    Notes
    -----
    Its part is ``sums`` (len(cells), d), int64, in grid steps. A record adds at most
    the distance from the origin to the farthest corner of its cell's box. That is the
    unit of the noise. So its scale is the noise multiplier, and the cost is known
    before the cells. What a row with a weight adds is rounded toward zero.
    """

    label = "cell_sums"
    mechanisms = GAUSSIAN_SUMS
    view = PartitionTree
    serves_weights = True

    cells: Sequence[int]
    origins: np.ndarray
    radius: float | None = None

    def check(self, source: PartitionTree) -> None:
        """Refuse cells that overlap, and origins off the grid or too far away."""
        source.check_disjoint(self.cells)
        shape = (len(self.cells), source.n_features)
        check_grid_integers("origins", self.origins, shape)
        farthest = np.abs(self.origins.astype(np.float64)).max(initial=0.0)
        if farthest * float(source.n_points) > MAX_SUM:
            raise ValueError(
                f"origins={farthest} steps is too far away for sums of "
                f"{source.n_points} points"
            )

    def sensitivity(self, source: PartitionTree) -> Sensitivities:
        """One sum by its cell's unit."""
        unit = self._distances(source)[:, None]
        return {"sums": vector_sensitivity(1.0, source.n_features, unit)}

    def exact(self, source: PartitionTree) -> Answer:
        """Exact sums."""
        sums = source._total(_sums, cells=self.cells, origins=self.origins)
        return {"sums": sums[None]}

    def _distances(self, source: PartitionTree) -> np.ndarray:
        """L2 sensitivity of each cell's sum about its origin, in grid steps."""
        # Farthest corner of the box: in each feature the end that is farther away.
        boxes = np.array([source.box(cell) for cell in self.cells])
        corners = boxes.reshape(-1, 2, source.n_features)  # also without a cell
        differences = np.abs(corners - self.origins[:, None])
        farthest = differences.max(axis=1).astype(np.float64)
        distances = np.linalg.norm(farthest, axis=1)
        if self.radius is None:
            # The sum over a cell that is its origin is 0 for any data: any positive
            # scale is enough.
            return np.maximum(distances, 1.0)
        if self.radius * SCALE < distances.max(initial=0.0) * (1 - 1e-9):
            raise ValueError(
                f"radius={self.radius} must cover the cells: the farthest corner is "
                f"{distances.max() / SCALE} from its origin"
            )
        return np.full(len(self.cells), self.radius * SCALE)


@dataclass(frozen=True, eq=False)
class Splits(Query):
    """Selection of a split for each of disjoint cells, among the grid's candidates.

    Parameters
    ----------
    cells : sequence of int
        Disjoint.
    sizes : sequence of float
        Their released counts, in records.
    score : SplitScore
    margin : float, default=0
        In records: subtracted from the sizes before the sensitivity is computed. Not
        needed for privacy; some papers do so.
    failure : float, default=0
        Probability that a size minus the margin exceeds the exact size, if a paper
        charges for it.

    Notes
    -----
    Its part is ``choices`` (len(cells),), int64: positions among the candidates of all
    features; see :meth:`PartitionTree.candidate`. Scores are piecewise linear in the
    weights of rows. So what the rows of a person change in several cells adds up to
    what a record changes in one.
    """

    label = "splits"
    mechanisms = CHOICES
    view = PartitionTree
    serves_weights = True

    cells: Sequence[int]
    sizes: Sequence[float] | np.ndarray
    score: SplitScore
    margin: float = 0.0
    failure: float = 0.0

    def check(self, source: PartitionTree) -> None:
        """Refuse cells that overlap, bad sizes, and a negative margin."""
        check_type("score", self.score, SplitScore)
        source.check_disjoint(self.cells)
        if source._grid is NO_GRID:
            raise ValueError(
                "splits can be chosen on a grid only; make the cells with "
                "curator.partition(grid)"
            )
        check_floats("sizes", self._sizes, (len(self.cells),), ", one for each cell")
        if not self.margin >= 0:
            raise ValueError(
                f"margin={self.margin} must not be negative: the cost would exceed "
                "what is charged"
            )

    def sensitivity(self, source: PartitionTree) -> Sensitivities:
        """The score's sensitivity over the size of the cell."""
        # Below a size of 1 all scores are 0: the lower bound avoids a division by zero.
        changes = self.score.sensitivity / np.maximum(1.0, self._sizes - self.margin)
        return {"choices": ScoreSensitivity(changes, failure=self.failure)}

    def exact(self, source: PartitionTree) -> Answer:
        """Scores of the candidates, cell by cell."""
        # A generator: the mechanism draws a choice before the next cell is scored.
        return {"choices": self._scores(source)}

    def details(self) -> Details:
        """Sensitivity of the score times the size, and the margin."""
        return {"score_sensitivity": self.score.sensitivity, "margin": self.margin}

    @property
    def _sizes(self) -> np.ndarray:
        return np.asarray(self.sizes, np.float64)

    def _scores(self, source: PartitionTree) -> Iterator[np.ndarray]:
        """Scores (d * candidates,) of one cell after the other, in a reused array."""
        grid = source._grid
        scores = np.empty((source.n_features, len(grid.boundaries)))
        first = np.full(source.n_features, -1)
        last = np.full(source.n_features, grid.n_bins)
        # The smallest type that holds the count of any bin. A released number of
        # records may be below the exact one.
        records_per_count = source.count_factor / SCALE
        n = max(source.n_points, source._points.n_records) / records_per_count
        narrow = np.uint16 if n < 1 << 16 else np.uint32
        count_type = narrow if n < 1 << 32 else np.int64
        sizes = self._sizes.tolist()
        # One pass counts the points of as many cells as memory allows.
        n_bins = grid.n_bins
        n_together = max(1, MAX_BIN_COUNTS // (source.n_features * n_bins))
        for start in range(0, len(self.cells), n_together):
            cells = self.cells[start : start + n_together]
            arguments = {"cells": cells, "n_bins": n_bins, "count_type": count_type}
            counts_of_cells = source._total(_histograms, **arguments)
            for cell, counts, size in zip(
                cells, counts_of_cells, sizes[start:], strict=False
            ):
                if grid.inside_cell:
                    first = source._cells[cell].first
                    last = source._cells[cell].last
                self.score.score_cell(
                    counts, records_per_count, size, first, last, scores
                )
                yield scores.ravel()


# Functions of the points of a shard, block or chunk: results are added over all.


def _apply_in_order(
    points: Points,
    code: Code,
    splits: Sequence[Split],
    function: Callable[[_OrderedPoints], np.ndarray],
) -> np.ndarray:
    """Order points by the cells after all splits, and apply a function to them."""
    ordered = _OrderedPoints(points, code)
    for split in splits:
        ordered.split(*split)
    return function(ordered)


def _sizes(points: _OrderedPoints, cells: Sequence[int]) -> np.ndarray:
    """Weights of some cells."""
    return np.array([points.size(cell) for cell in cells], np.int64)


def _sums(
    points: _OrderedPoints,
    cells: Sequence[int],
    origins: np.ndarray,
) -> np.ndarray:
    """Sums of the points of some cells about origins."""
    # One pass for all cells: points of other cells have the label -1.
    labels = np.full(len(points.rows), -1, np.int32)
    for i, cell in enumerate(cells):
        labels[points.members(cell)] = i
    return clipped_sums(points.rows, points.weights, labels, origins, np.inf, False)


def _histograms(
    points: _OrderedPoints, cells: Sequence[int], n_bins: int, count_type: type
) -> np.ndarray:
    """Weights of some cells in the bins of every feature."""
    counts = np.zeros((len(cells), points.codes.shape[1], n_bins), count_type)
    for i, cell in enumerate(cells):
        histogram(points.codes, points.members(cell), points.weights, counts[i])
    return counts
