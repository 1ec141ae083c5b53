"""Private points in a tree of public cells, with noisy queries on the cells.

A method grows the tree by splits that are functions of released values only. Which points lie in
which cell is private: the method names cells by number, and every answer is charged before it is
drawn. The cells of one query must be disjoint, so that a record changes one of them and the cost
of the query is that of its most expensive cell.
"""

from collections.abc import Sequence
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
from pkm.privacy.ledger import ChargeRelease
from pkm.privacy.mechanisms import Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.selection import Exponential, SplitScore

MAX_INTERVALS = 4096  # a finer grid would not fit the memory of large trees
MAX_SUM = 2.0**60  # grid steps


@dataclass(frozen=True)
class BoxGrid:
    """Public grid on [-1, 1], the same for every feature, of equal intervals.

    The midpoints of the intervals are the candidates for splits. Every interval is two bins. A last
    bin holds what the intervals leave over at the upper end.

    Attributes
    ----------
    thresholds : tuple of int
        Increasing grid positions, in grid steps: a point belongs to bin b if b thresholds are below
        it.
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
        n_intervals = int(2 / width * (1 + 1e-12))
        bin_ends = np.arange(1, 2 * n_intervals + 1) * (width / 2) - 1
        thresholds = np.floor(np.minimum(bin_ends, 1.0) * SCALE).astype(int)
        return cls(tuple(thresholds.tolist()), inside_cell)

    @property
    def n_bins(self) -> int:
        """Number of bins per feature."""
        return len(self.thresholds) + 1

    @property
    def boundaries(self) -> range:
        """The candidates: splitting at boundary b sends bins below b to the left."""
        return range(1, self.n_bins, 2)


class _Shard:
    """One shard's points in the order of the cells."""

    def __init__(self, points: Points, codes: np.ndarray) -> None:
        self.rows = points.rows
        self.codes = codes
        index_type = np.uint16 if len(codes) <= 1 << 16 else np.int32
        self.order = np.arange(len(codes), dtype=index_type)
        self._ranges = [(0, len(codes))]  # of each cell, in the order

    def split(self, cell: int, feature: int, boundary: int) -> None:
        start, stop = self._ranges[cell]
        order = self.order[start:stop]
        n_left = stable_partition(self.codes, order, feature, boundary, np.empty_like(order))
        self._ranges += [(start, start + n_left), (start + n_left, stop)]

    def size(self, cell: int) -> int:
        start, stop = self._ranges[cell]
        return stop - start

    def members(self, cell: int) -> np.ndarray:
        start, stop = self._ranges[cell]
        return self.order[start:stop]


@dataclass
class _Cell:
    """Public facts of a cell: its bins per feature, its parent, and its children once split."""

    first: np.ndarray
    last: np.ndarray
    parent: int | None = None
    children: tuple[int, int] | None = None


class PartitionTree:
    """A growing tree of cells over one replicate's points; made by a :class:`pkm.privacy.Curator`.

    Cell 0 holds all points.

    Parameters
    ----------
    shards : sequence of Points
    codes : sequence of ndarray of shape (n, m), unsigned
        Codes that cells are split by, one column per feature or hyperplane.
    grid : BoxGrid or None
        The grid that the codes lie on; None for codes that are not bins of features.
    streams : NoiseStreams
        Of one replicate.
    charge : callable
        Charges a release and returns its stream key.
    """

    def __init__(
        self,
        shards: Sequence[Points],
        codes: Sequence[np.ndarray],
        grid: BoxGrid | None,
        streams: NoiseStreams,
        charge: ChargeRelease,
    ) -> None:
        self._shards = [
            _Shard(shard, shard_codes) for shard, shard_codes in zip(shards, codes, strict=True)
        ]
        self._grid = grid
        self._streams = streams
        self._charge = charge
        self._n_codes = codes[0].shape[1]
        self._n_points = sum(len(shard_codes) for shard_codes in codes)
        self._d = shards[0].shape[1]
        n_bins = 1 if grid is None else grid.n_bins
        first = np.zeros(self._d, np.int64)
        last = np.full(self._d, n_bins)
        self._cells = [_Cell(first, last)]
        # Bin b reaches from above edges[b] to edges[b + 1], the first from the domain's lower end
        # itself.
        thresholds = () if grid is None else grid.thresholds
        self._edges = np.array([-SCALE - 1, *thresholds, SCALE], np.int64)
        self._unrestricted = (np.full(self._d, -1), np.full(self._d, n_bins))

    @classmethod
    def whole(
        cls, shards: Sequence[Points], streams: NoiseStreams, charge: ChargeRelease
    ) -> "PartitionTree":
        """Start a tree of one cell that cannot be split."""
        codes = [np.empty((shard.shape[0], 0), np.uint8) for shard in shards]
        return cls(shards, codes, None, streams, charge)

    @classmethod
    def by_features(
        cls,
        shards: Sequence[Points],
        grid: BoxGrid,
        streams: NoiseStreams,
        charge: ChargeRelease,
    ) -> "PartitionTree":
        """Start a tree whose cells are split at grid boundaries of a feature."""
        codes = [digitize(shard, grid.thresholds) for shard in shards]
        return cls(shards, codes, grid, streams, charge)

    @classmethod
    def by_hyperplanes(
        cls,
        shards: Sequence[Points],
        normals: np.ndarray,
        origin: np.ndarray,
        streams: NoiseStreams,
        charge: ChargeRelease,
    ) -> "PartitionTree":
        """Start a tree whose cells are split by hyperplanes."""
        codes = [hyperplane_sides(shard, normals, origin) for shard in shards]
        return cls(shards, codes, None, streams, charge)

    def split(self, cell: int, feature: int, boundary: int = 1) -> tuple[int, int]:
        """Split a cell by a public rule and name its two parts.

        Parameters
        ----------
        cell : int
            One that is not split yet.
        feature : int
            Feature (or hyperplane) to split by.
        boundary : int, default=1
            Codes below it go to the first part.

        Returns
        -------
        tuple of int
        """
        self._check_exist([cell])
        parent = self._cells[cell]
        if parent.children is not None:
            raise ValueError(f"cell={cell} is split already")
        if not 0 <= feature < self._n_codes:
            raise ValueError(
                f"feature={feature} must be one of the {self._n_codes} that cells can be split by"
            )
        last = 1 if self._grid is None else self._grid.n_bins - 1
        if not 1 <= boundary <= last:
            raise ValueError(f"boundary={boundary} must be in 1 .. {last}")

        # Divide the points.
        for shard in self._shards:
            shard.split(cell, feature, boundary)

        # Divide the bins; a boundary outside the cell leaves one part empty and the box as it is.
        left = _Cell(parent.first, parent.last.copy(), cell)
        right = _Cell(parent.first.copy(), parent.last, cell)
        if self._grid is not None and parent.first[feature] < boundary < parent.last[feature]:
            left.last[feature] = boundary
            right.first[feature] = boundary
        parent.children = (len(self._cells), len(self._cells) + 1)
        self._cells += [left, right]
        return parent.children

    def counts(self, cells: Sequence[int], noise: Gaussian | Laplace) -> np.ndarray:
        """Noisy numbers of points.

        Parameters
        ----------
        cells : sequence of int
            Disjoint cells; may be empty, the release is charged all the same.
        noise : Gaussian or Laplace

        Returns
        -------
        ndarray of shape (len(cells),), float64
            In records.
        """
        self._check_disjoint(cells)
        details = {"count_scale": noise.scale / SCALE, "count_sensitivity": 1.0}
        key = self._charge("cell_counts", noise.name, details=details, **noise.cost(SCALE))
        sizes = [sum(shard.size(cell) for shard in self._shards) for cell in cells]
        exact = np.array([sizes], dtype=np.int64)
        return noise.add(exact * SCALE, self._streams, key)[0] / SCALE

    def sums(
        self,
        cells: Sequence[int],
        multiplier: float,
        origins: np.ndarray,
        radius: float | None = None,
    ) -> np.ndarray:
        """Noisy sums of the points of each cell about an origin, with Gaussian noise.

        Parameters
        ----------
        cells : sequence of int
            Disjoint cells.
        multiplier : float
            Standard deviation per unit of L2 sensitivity.
        origins : ndarray of shape (len(cells), d), int64
            Subtracted from each point of a cell, in grid steps.
        radius : float, optional
            In half-widths: a bound on the distance from the origin to calibrate to, if larger than
            the exact one.

        Returns
        -------
        ndarray of shape (len(cells), d), float64
            In grid steps.

        Notes
        -----
        A record adds at most the distance from the origin to the farthest corner of its cell's box.
        """
        self._check_disjoint(cells)
        if not np.issubdtype(origins.dtype, np.integer) or origins.shape != (len(cells), self._d):
            raise ValueError(f"origins must be grid integers of shape {(len(cells), self._d)}")
        farthest = np.abs(origins).max(initial=0)
        if farthest * float(self._n_points) > MAX_SUM:
            raise ValueError(
                f"origins={farthest} steps is too far away for sums of {self._n_points} points"
            )
        noise = Gaussian(multiplier)
        sensitivities = self._sum_sensitivities(cells, origins, radius)
        # The cost is known before any cell is: the multiplier alone.
        details = {"multiplier": multiplier}
        key = self._charge("cell_sums", noise.name, mu=1 / multiplier, details=details)

        sums = np.zeros((len(cells), self._d), np.int64)
        for i, cell in enumerate(cells):
            for shard in self._shards:
                members = shard.members(cell)
                sums[i] += column_sums(shard.rows, members) - len(members) * origins[i]
        unit = sensitivities[:, None]
        noisy = noise.add(sums[None], self._streams, key, unit=unit)[0]
        return noisy.astype(np.float64)

    def choose_splits(
        self,
        cells: Sequence[int],
        sizes: Sequence[float] | np.ndarray,
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
            Their released counts, in records.
        score : SplitScore
        mechanism : Exponential
        margin : float, default=0
            In records: subtracted from the size that the sensitivity is computed from, a margin of
            safety that is not needed.
        delta : float, default=0
            Charged in addition to epsilon, where a paper does so.

        Returns
        -------
        list of (int, int)
            Feature and boundary.
        """
        self._check_disjoint(cells)
        grid = self._grid
        if grid is None:
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
                f"margin={margin} must not be negative: the cost would exceed what is charged"
            )
        details = {"score_sensitivity": score.sensitivity, "margin": margin}
        key = self._charge(
            "splits", "exponential", epsilon=mechanism.epsilon, delta=delta, details=details
        )

        # Scores move by sensitivity / size; the floor only matters where all scores are 0 anyway.
        scales = mechanism.epsilon * np.maximum(1.0, sizes - margin) / score.sensitivity
        uniforms = self._streams.uniform(key, (len(cells),))[0].tolist()

        # Score all candidates of a cell, in every feature, and draw one of them.
        splits: list[tuple[int, int]] = []
        exponents = np.empty((self._d, len(grid.boundaries)))
        for cell, size, scale, uniform in zip(
            cells, sizes.tolist(), scales.tolist(), uniforms, strict=True
        ):
            self._score(grid, cell, size, scale, score, exponents)
            choice = mechanism.choose(exponents.ravel(), uniform)
            feature, candidate = divmod(choice, len(grid.boundaries))
            splits.append((feature, grid.boundaries[candidate]))
        return splits

    def box(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper corner of a cell, each of shape (d,), in grid steps: public."""
        lower = self._edges[self._cells[cell].first] + 1
        upper = self._edges[self._cells[cell].last]
        return lower, upper

    def midpoint(self, cell: int) -> np.ndarray:
        """Grid point in the center of a cell, of shape (d,), int64: public."""
        lower, upper = self.box(cell)
        return (lower + upper) // 2

    def position(self, boundary: int) -> int:
        """Grid position of a boundary: points at or below it go to the left."""
        assert self._grid is not None  # boundaries are those of a grid
        return self._grid.thresholds[boundary - 1]

    def _score(
        self,
        grid: BoxGrid,
        cell: int,
        size: float,
        scale: float,
        score: SplitScore,
        out: np.ndarray,
    ) -> None:
        """Scaled scores of all candidates of a cell, into an array of shape (d, candidates)."""
        count_type = np.uint16 if self._n_points < 1 << 16 else np.uint32
        counts = np.zeros((self._d, grid.n_bins), count_type)
        for shard in self._shards:
            histogram(shard.codes, shard.members(cell), counts)
        first, last = self._unrestricted
        if grid.inside_cell:
            first = self._cells[cell].first
            last = self._cells[cell].last
        score.of_cell(counts, size, scale, first, last, out)

    def _sum_sensitivities(
        self, cells: Sequence[int], origins: np.ndarray, radius: float | None
    ) -> np.ndarray:
        """L2 sensitivity of each cell's sum about its origin, in grid steps."""
        boxes = np.array([self.box(cell) for cell in cells])
        corners = boxes.reshape(-1, 2, self._d)  # also without a cell
        differences = np.abs(corners - origins[:, None])
        farthest = differences.max(axis=1).astype(np.float64)
        distances = np.sqrt((farthest * farthest).sum(axis=1))
        if radius is None:
            # The sum over a cell of one grid point may be 0 for any data: any positive scale will
            # do.
            return np.maximum(distances, 1.0)
        if radius * SCALE < distances.max(initial=0.0) * (1 - 1e-9):
            raise ValueError(
                f"radius={radius} must cover the cells: the farthest corner is "
                f"{distances.max() / SCALE} from its origin"
            )
        return np.full(len(cells), radius * SCALE)

    def _check_disjoint(self, cells: Sequence[int]) -> None:
        self._check_exist(cells)
        requested = set(cells)
        if len(requested) < len(cells):
            raise ValueError(f"cells={list(cells)} must be named once each")
        for cell in requested:
            ancestor = self._cells[cell].parent
            while ancestor is not None:
                if ancestor in requested:
                    raise ValueError(f"cells {ancestor} and {cell} overlap; query disjoint cells")
                ancestor = self._cells[ancestor].parent

    def _check_exist(self, cells: Sequence[int]) -> None:
        n_cells = len(self._cells)
        if not all(cell in range(n_cells) for cell in cells):
            raise ValueError(f"cells={list(cells)} must be among the {n_cells} cells")
