"""Private points sorted into public cells, and what may be asked of the cells.

A method grows a tree of cells by splits that are functions of released values only. Which points lie where stays in
here: the method names cells by number, and every answer is charged before it is drawn. Cells that are asked together
must be disjoint, so that a record changes one of them and all together cost what the worst one does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pkm.compute import (
    SCALE,
    Points,
    column_sums,
    digitize,
    histogram,
    hyperplane_sides,
    stable_partition,
)
from pkm.privacy.mechanisms import Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.selection import Exponential, SplitScore

MAX_INTERVALS = 4096  # a grid finer than that would not fit the memory of large trees
MAX_SUM = 2.0**60


@dataclass(frozen=True)
class BoxGrid:
    """Public grid on [-1, 1], the same for every column: intervals, whose middles are the candidates for splits.

    Every interval is two bins. A last bin holds what the intervals leave over at the upper end.

    Attributes
    ----------
    thresholds : tuple of int
        Increasing grid positions: a point belongs to bin b if b thresholds are below it.
    inside_cell : bool
        Whether candidates are left out whose interval is not inside the cell.
    """

    thresholds: tuple[int, ...]
    inside_cell: bool

    @classmethod
    def of_intervals(cls, width: float, inside_cell: bool = False) -> "BoxGrid":
        """Lay out intervals of a width, in half-widths of the domain, from the lower end.

        At most 4,096 of them; an interval wider than the domain becomes the domain.

        Examples
        --------
        >>> BoxGrid.of_intervals(5.0).thresholds, list(BoxGrid.of_intervals(0.5).boundaries)
        ((0, 65536), [1, 3, 5, 7])
        """
        if not width > 0:
            raise ValueError(f"width={width} must be positive")
        width = min(max(width, 2 / MAX_INTERVALS), 2.0)
        halves = np.arange(1, 2 * int(2 / width * (1 + 1e-12)) + 1) * (width / 2) - 1
        return cls(
            tuple(np.floor(np.minimum(halves, 1.0) * SCALE).astype(int).tolist()), inside_cell
        )

    @property
    def n_bins(self) -> int:
        """Number of bins per column."""
        return len(self.thresholds) + 1

    @property
    def boundaries(self) -> range:
        """The candidates: splitting at boundary b sends bins below b to the left."""
        return range(1, self.n_bins, 2)


class _Shard:
    """One shard's points in the order of the cells."""

    def __init__(self, points: Points, codes: np.ndarray):
        self.rows, self.codes = points.rows, codes
        index = np.uint16 if len(codes) <= 1 << 16 else np.int32
        self.order = np.arange(len(codes), dtype=index)
        self._cells = [(0, len(codes))]

    def split(self, cell: int, feature: int, boundary: int) -> None:
        start, stop = self._cells[cell]
        order = self.order[start:stop]
        middle = start + stable_partition(self.codes, order, feature, boundary, np.empty_like(order))
        self._cells += [(start, middle), (middle, stop)]

    def size(self, cell: int) -> int:
        start, stop = self._cells[cell]
        return stop - start

    def members(self, cell: int) -> np.ndarray:
        return self.order[slice(*self._cells[cell])]


@dataclass
class _Cell:
    """What is public about a cell: its bins per column, its parent, and its children once it is split."""

    first: np.ndarray
    last: np.ndarray
    parent: int | None = None
    children: tuple[int, int] | None = None


class PartitionTree:
    """A growing tree of cells over one replicate's points; made by a :class:`pkm.privacy.Curator`.

    Cell 0 holds everything.

    Parameters
    ----------
    shards : sequence of Points
    codes : sequence of ndarray of shape (n, m), unsigned
        What cells are split by.
    grid : Grid or None
        The grid that the codes lie on; None for codes that are not bins of columns.
    streams : NoiseStreams
        Of one replicate.
    charge : callable
        From label and cost to the stream key of a release that has been paid for.
    """

    def __init__(
        self,
        shards: Sequence[Points],
        codes: Sequence[np.ndarray],
        grid: BoxGrid | None,
        streams: NoiseStreams,
        charge: Callable[..., tuple],
    ):
        self._shards = [_Shard(*each) for each in zip(shards, codes, strict=True)]
        self._grid, self._streams, self._charge = grid, streams, charge
        self._n_codes = codes[0].shape[1]
        self._n_points, self._d = sum(len(each) for each in codes), shards[0].shape[1]
        bins = 1 if grid is None else grid.n_bins
        self._cells = [_Cell(np.zeros(self._d, np.int64), np.full(self._d, bins))]
        # Bin b reaches from above edges[b] to edges[b + 1], the first from the domain's lower end itself.
        self._edges = np.array([-SCALE - 1, *(grid.thresholds if grid else ()), SCALE], np.int64)
        self._everywhere = np.full(self._d, -1), np.full(self._d, bins)

    @classmethod
    def whole(cls, shards: Sequence[Points], *door) -> "PartitionTree":
        """One cell that cannot be split."""
        return cls(
            shards, [np.empty((shard.shape[0], 0), np.uint8) for shard in shards], None, *door
        )

    @classmethod
    def by_columns(cls, shards: Sequence[Points], grid: BoxGrid, *door) -> "PartitionTree":
        """Cells that are split at grid boundaries of one column at a time."""
        return cls(shards, [digitize(shard, grid.thresholds) for shard in shards], grid, *door)

    @classmethod
    def by_hyperplanes(
        cls, shards: Sequence[Points], normals: np.ndarray, about: np.ndarray, *door
    ) -> "PartitionTree":
        """Cells that are split by the sign of an inner product; see :func:`compute.hyperplane_sides`."""
        return cls(shards, [hyperplane_sides(shard, normals, about) for shard in shards], None, *door)

    def split(self, cell: int, feature: int, boundary: int = 1) -> tuple[int, int]:
        """Split a cell by a public rule and name its two parts.

        Parameters
        ----------
        cell : int
            One that is not split yet.
        feature : int
            Column (or hyperplane) to split by.
        boundary : int, default=1
            Codes below it go to the first part.

        Returns
        -------
        tuple of int
        """
        self._check_known([cell])
        whole = self._cells[cell]
        if whole.children is not None:
            raise ValueError(f"cell={cell} is split already")
        if not 0 <= feature < self._n_codes:
            raise ValueError(
                f"feature={feature} must be one of the {self._n_codes} that cells can be split by"
            )
        last = 1 if self._grid is None else self._grid.n_bins - 1
        if not 1 <= boundary <= last:
            raise ValueError(f"boundary={boundary} must be in 1 .. {last}")
        for shard in self._shards:
            shard.split(cell, feature, boundary)
        left, right = (
            _Cell(whole.first, whole.last.copy(), cell),
            _Cell(whole.first.copy(), whole.last, cell),
        )
        if self._grid is not None and whole.first[feature] < boundary < whole.last[feature]:
            left.last[feature] = right.first[feature] = boundary
        whole.children = len(self._cells), len(self._cells) + 1
        self._cells += [left, right]
        return whole.children

    def counts(self, cells: Sequence[int], noise: Gaussian | Laplace) -> np.ndarray:
        """Noisy numbers of points.

        Parameters
        ----------
        cells : sequence of int
            Disjoint cells; may be empty, the release is paid for all the same.
        noise : Gaussian or Laplace

        Returns
        -------
        ndarray of shape (len(cells),), float64
            In records.
        """
        self._check_disjoint(cells)
        details = {"count_scale": noise.scale / SCALE, "count_sensitivity": 1.0}
        key = self._charge("cell_counts", noise.name, details=details, **noise.cost(SCALE))
        exact = np.array(
            [[sum(shard.size(cell) for shard in self._shards) for cell in cells]], dtype=np.int64
        )
        return noise.add(exact * SCALE, self._streams, key)[0] / SCALE

    def sums(
        self,
        cells: Sequence[int],
        multiplier: float,
        about: np.ndarray,
        radius: float | None = None,
    ) -> np.ndarray:
        """Noisy sums of the points of each cell about a reference, with Gaussian noise.

        Parameters
        ----------
        cells : sequence of int
            Disjoint cells.
        multiplier : float
            Standard deviation per unit of L2 sensitivity.
        about : ndarray of shape (len(cells), d), int64
            What is subtracted from each point of a cell, in grid steps.
        radius : float, optional
            In half-widths: a bound on the distance from the reference to calibrate to, if larger than the exact one.

        Returns
        -------
        ndarray of shape (len(cells), d), float64
            In grid steps.

        Notes
        -----
        A record adds at most the distance from the reference to the farthest corner of its cell's box.
        """
        self._check_disjoint(cells)
        if not np.issubdtype(about.dtype, np.integer) or about.shape != (len(cells), self._d):
            raise ValueError(f"about must be grid integers of shape {(len(cells), self._d)}")
        if np.abs(about).max(initial=0) * float(self._n_points) > MAX_SUM:
            raise ValueError(
                f"origin={np.abs(about).max()} steps is too far away for sums of {self._n_points} points"
            )
        noise, reach = Gaussian(multiplier), self._sum_sensitivities(cells, about, radius)
        # The cost is known before any cell is: the multiplier alone.
        key = self._charge(
            "cell_sums", noise.name, mu=1 / multiplier, details={"multiplier": multiplier}
        )
        sums = np.zeros((len(cells), self._d), np.int64)
        for i, cell in enumerate(cells):
            for shard in self._shards:
                members = shard.members(cell)
                sums[i] += column_sums(shard.rows, members) - len(members) * about[i]
        return noise.add(sums[None], self._streams, key, unit=reach[:, None])[0].astype(np.float64)

    def choose_splits(
        self,
        cells: Sequence[int],
        sizes: Sequence[float],
        score: SplitScore,
        mechanism: Exponential,
        *,
        margin: float = 0.0,
        delta: float = 0.0,
    ) -> list[tuple[int, int]]:
        """Choose a split for each cell by the exponential mechanism.

        Parameters
        ----------
        cells : sequence of int
            Disjoint cells.
        sizes : sequence of float
            Their released counts.
        score : SplitScore
        mechanism : Exponential
        margin : float, default=0
            Subtracted from the size that the sensitivity is worked out with: caution that is not needed.
        delta : float, default=0
            Charged beside epsilon, where a paper does so.

        Returns
        -------
        list of (int, int)
            Column and boundary.
        """
        self._check_disjoint(cells)
        if self._grid is None:
            raise ValueError(
                "splits can be chosen on a grid only; make the cells with curator.partition(grid)"
            )
        sizes = np.asarray(sizes, np.float64)
        if sizes.shape != (len(cells),) or not np.isfinite(sizes).all():
            raise ValueError(
                f"sizes must be {len(cells)} finite numbers, one for each cell, got {sizes}"
            )
        if not margin >= 0:
            raise ValueError(
                f"margin={margin} must not be negative: it would raise the cost above what is charged"
            )
        details = {"score_sensitivity": score.sensitivity, "margin": margin}
        key = self._charge(
            "splits", "exponential", epsilon=mechanism.epsilon, delta=delta, details=details
        )
        # Scores move by spread / size; the floor only matters where all scores are 0 anyway.
        scales = mechanism.epsilon * np.maximum(1.0, sizes - margin) / score.sensitivity
        uniforms = self._streams.uniform(key, (len(cells),))[0].tolist()
        boundaries, chosen = self._grid.boundaries, []
        exponents = np.empty((self._d, len(boundaries)))
        for cell, size, scale, uniform in zip(
            cells, sizes.tolist(), scales.tolist(), uniforms, strict=True
        ):
            self._score(cell, size, scale, score, exponents)
            feature, candidate = divmod(
                mechanism.choose(exponents.ravel(), uniform), len(boundaries)
            )
            chosen.append((feature, boundaries[candidate]))
        return chosen

    def box(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner of a cell, each of shape (d,), in grid steps: public."""
        return self._edges[self._cells[cell].first] + 1, self._edges[self._cells[cell].last]

    def midpoint(self, cell: int) -> np.ndarray:
        """Grid point in the middle of a cell, of shape (d,), int64: public."""
        lower, upper = self.box(cell)
        return (lower + upper) // 2

    def position(self, boundary: int) -> int:
        """Grid position of a boundary: points at or below it go to the left."""
        return self._grid.thresholds[boundary - 1]

    def _score(
        self, cell: int, size: float, scale: float, score: SplitScore, into: np.ndarray
    ) -> None:
        """Scaled scores of all candidates of a cell, into an array of shape (d, candidates)."""
        kind = np.uint16 if self._n_points < 1 << 16 else np.uint32
        counts = np.zeros((self._d, self._grid.n_bins), kind)
        for shard in self._shards:
            histogram(shard.codes, shard.members(cell), counts)
        place = self._cells[cell]
        allowed = (place.first, place.last) if self._grid.inside_cell else self._everywhere
        score.of_cell(counts, size, scale, *allowed, into)

    def _sum_sensitivities(self, cells: Sequence[int], about: np.ndarray, radius: float | None) -> np.ndarray:
        """L2 sensitivity of each cell's sum about its reference, in grid steps."""
        lower, upper = (
            np.array([self.box(cell) for cell in cells]).reshape(-1, 2, self._d).swapaxes(0, 1)
        )
        farthest = np.maximum(np.abs(lower - about), np.abs(upper - about)).astype(np.float64)
        reach = np.sqrt((farthest * farthest).sum(axis=1))
        if radius is None:
            return np.maximum(
                reach, 1.0
            )  # a cell of one grid point has nothing to hide but its count
        if radius * SCALE < reach.max(initial=0.0) * (1 - 1e-9):
            raise ValueError(
                f"radius={radius} must cover the cells: the farthest corner is {reach.max() / SCALE} from its reference"
            )
        return np.full(len(cells), radius * SCALE)

    def _check_disjoint(self, cells: Sequence[int]) -> None:
        self._check_known(cells)
        asked = set(cells)
        if len(asked) < len(cells):
            raise ValueError(f"cells={list(cells)} must be named once each")
        for cell in asked:
            above = self._cells[cell].parent
            while above is not None:
                if above in asked:
                    raise ValueError(f"cells {above} and {cell} overlap; ask for disjoint cells")
                above = self._cells[above].parent

    def _check_known(self, cells: Sequence[int]) -> None:
        if not all(cell in range(len(self._cells)) for cell in cells):
            raise ValueError(
                f"cells={list(cells)} must be among the {len(self._cells)} that there are"
            )
