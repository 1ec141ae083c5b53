"""Queries on the points of a curator under rho-bounded adjacency.

L2 sensitivities to the move of one record by at most ``max_shift``, in half-widths and
records:

- :class:`AllPoints`: one row by ``max_shift``.
- :class:`Total`: the sum by ``max_shift``.
- :class:`GroupSums`: one sum by ``max_shift``; a record keeps its group when it moves.
- :class:`QuadtreeCounts`: two counts of each histogram by 1, however short the move.
- :class:`SoftCounts`: the weights of one record, by :func:`soft_sensitivity`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pkm.compute.kernels.quadtree import (
    MAX_NUMBERS,
    CellsAt,
    ShiftedRows,
    add_soft_counts,
    find_span,
    is_tied,
    lexicographic_order,
    occupied_cells,
)
from pkm.compute.storage.points import make_slices
from pkm.privacy.checks import check_grid_integers, check_range
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import Gaussian
from pkm.privacy.mechanisms.noise import Key, NoiseStreams
from pkm.privacy.mechanisms.stability_histogram import StreamedCells
from pkm.privacy.queries.clipped_regions import BLOCK_ROWS, TWO_RECORDS, group_sums
from pkm.privacy.queries.sums import (
    GAUSSIAN_COUNTS,
    GAUSSIAN_SUMS,
    LARGE_COUNTS,
    entries_sensitivity,
    vector_sensitivity,
)
from pkm.privacy.query import (
    RHO_BOUNDED,
    Answer,
    Details,
    Mechanisms,
    Query,
    Sensitivities,
    Sensitivity,
)

LEVELS = 19  # of a quadtree
MAX_NODES = 1 << 18  # of a grid of soft counts
MAX_FEATURES = 10  # of a grid of soft counts: a point has weights at 2^d nodes


class SortedGaussian(Gaussian):
    """Gaussian noise on every coordinate, then the rows sorted by their noisy values.

    So the order of the released rows is not the private one; equal rows are in random
    order.

    Parameters
    ----------
    scale : float
        Standard deviation, in grid steps.

    Notes
    -----
    It costs as much as the noise, because sorting is post-processing.
    """

    def draw(
        self,
        values: np.ndarray,
        streams: NoiseStreams,
        key: Key,
        sensitivity: Sensitivity,
    ) -> list["SortedRows"]:
        """Add noise to rows (1, n, d), int32 or int64, and sort them lexicographically.

        Returns
        -------
        list of one SortedRows
        """
        # Block by block, with the noise of one draw.
        noised = np.empty(values.shape[1:], np.int64)
        add_noise = Gaussian(self.scale).draw_blocks(streams, (*key, "noise"))
        for block in make_slices(len(noised), BLOCK_ROWS):
            rows = values[0, block].astype(np.int64)
            noised[block] = add_noise(rows.ravel()).reshape(rows.shape)

        ties = streams.uniform((*key, "ties"), (len(noised),))[0]
        order = _sorted_order(noised, ties)
        return [SortedRows(noised[order], order)]


def _sorted_order(rows: np.ndarray, ties: np.ndarray) -> np.ndarray:
    """Lexicographic order of rows (n, d), int64; equal rows in order of ``ties``."""
    lowest, highest = find_span(rows)
    if (highest - lowest).max() >= MAX_NUMBERS:
        return np.lexsort((ties, *rows.T[::-1]))
    # Radix sort where columns fit its keys, then order runs of equal rows by ``ties``.
    shifted = ShiftedRows(rows, (lowest, highest), np.zeros_like(lowest))
    order, is_first = lexicographic_order(shifted, np.arange(len(rows)))
    # Sort the rows of each run of equal ones by their uniform variates.
    tied = np.flatnonzero(is_tied(is_first))
    runs = np.cumsum(is_first[tied])
    order[tied] = order[tied][np.lexsort((ties[order[tied]], runs))]
    return order


class SortedRows(NamedTuple):
    """Outcome of :class:`SortedGaussian`.

    Attributes
    ----------
    rows : ndarray of shape (n, d), int64
        Noised, in lexicographic order.
    order : ndarray of shape (n,), int32 or int64
        Private: index of the exact row that each noised row belongs to.
    """

    rows: np.ndarray
    order: np.ndarray


class _MovedQuery(Query):
    """Base class of queries with one row or sum that moves by as much as the record."""

    adjacencies = RHO_BOUNDED

    def sensitivity(self, source: Any) -> Sensitivities:
        """The length of the move."""
        (part,) = self.mechanisms
        change = vector_sensitivity(source.max_shift * SCALE, source.n_features)
        return {part: change}


@dataclass(frozen=True, eq=False)
class AllPoints(_MovedQuery):
    """All points, with noise on each coordinate; released once.

    Later queries name records by their position in the answer.

    Notes
    -----
    Its part is ``points`` (1, n, d), int64, in grid steps and in lexicographic order,
    equal ones in random order.
    """

    label = "noised_points"
    mechanisms: ClassVar[Mechanisms] = {"points": (SortedGaussian,)}
    released_alone = True

    def check(self, source: Any) -> None:
        """Refuse a second release: queries name records by the order of the first."""
        if source._released:
            raise ValueError(
                f"{self.label} can be released once: its order is what later queries "
                "refer to"
            )

    def exact(self, source: Any) -> Answer:
        """Exact points, in an order that does not depend on the order of the data."""
        return {"points": source._rows[None]}

    def postprocess(self, source: Any, outcomes: dict[str, Any]) -> dict[str, Any]:
        """Keep the order in the curator, and release the rows."""
        # The order links released rows to records: it never leaves the curator.
        (released,) = outcomes["points"]
        source.number_records(released.order)
        return {"points": released.rows[None]}


@dataclass(frozen=True, eq=False)
class Total(_MovedQuery):
    """Sum of all points.

    Notes
    -----
    Its part is ``sums`` (1, d), int64, in grid steps.
    """

    label = "total"
    mechanisms = GAUSSIAN_SUMS

    def exact(self, source: Any) -> Answer:
        """Exact sum."""
        return {"sums": source._rows.sum(axis=0)[None]}


@dataclass(frozen=True, eq=False)
class GroupSums(_MovedQuery):
    """Sums of the exact points of groups that are defined by released data.

    Parameters
    ----------
    groups : ndarray of shape (n,), int
        Group of each released record, -1 for none: a function of released data. Group
        sizes are then public.
    n_groups : int

    Notes
    -----
    Its part is ``sums`` (1, n_groups, d), int64, in grid steps. A record keeps its
    group when it moves, so all groups together have the sensitivity of one sum,
    whatever their extent.
    """

    label = "group_sums"
    mechanisms = GAUSSIAN_SUMS

    groups: np.ndarray
    n_groups: int

    def check(self, source: Any) -> None:
        """Refuse groups that do not name released records."""
        source.check_groups(self.groups, self.n_groups)

    def exact(self, source: Any) -> Answer:
        """Exact sums."""
        return {"sums": group_sums(source._rows, self.groups, self.n_groups)[None]}


@dataclass(frozen=True, eq=False)
class QuadtreeCounts(Query):
    """Large counts of the cells of public shifted quadtrees.

    Parameters
    ----------
    shifts : ndarray of shape (r, d), int64
        Public; see :func:`pkm.compute.kernels.quadtree.occupied_cells`.
    levels : range
        Consecutive.

    Notes
    -----
    Its part is ``counts``, a list of one :class:`ReleasedCells`. A cell is named by its
    tree, its level and its position, (2 + d,), int64; the names are ordered by tree, by
    falling level, and lexicographically.

    In each of the H = r len(levels) histograms a move takes one record from a cell to
    another. At most 2 H counts change, by 1 each, so the L2 sensitivity is sqrt(2 H). A
    cell that occurs for one neighbor only holds one record there.
    """

    label = "cell_counts"
    mechanisms = LARGE_COUNTS
    adjacencies = RHO_BOUNDED

    shifts: np.ndarray
    levels: range

    def check(self, source: Any) -> None:
        """Refuse shifts off the grid or of another width, and bad levels."""
        shape = (len(self.shifts), source.n_features)
        check_grid_integers("shifts", self.shifts, shape)
        check_range("shifts", self.shifts, 0, 4 * SCALE, ", in grid steps")
        is_known = all(level in range(LEVELS) for level in self.levels)
        if self.levels.step != 1 or not is_known:
            raise ValueError(
                f"levels={self.levels} must be consecutive and below {LEVELS}"
            )

    def sensitivity(self, source: Any) -> Sensitivities:
        """Two counts of each histogram."""
        # A move changes two counts by 1 in each of the histograms.
        n_changes = 2 * len(self.shifts) * len(self.levels)
        return {"counts": entries_sensitivity(n_changes)}

    def exact(self, source: Any) -> Answer:
        """The occupied cells, one histogram after the other."""

        def histograms() -> Iterator[tuple[CellsAt, np.ndarray]]:
            # A first one without cells: concatenation needs one if there are no levels.
            no_names = np.empty((0, 2 + source.n_features), np.int64)
            yield lambda selected: no_names[selected], np.empty(0, np.int64)
            for tree, shift in enumerate(self.shifts):
                for level, cells_at, counts in occupied_cells(
                    source._rows, shift, self.levels
                ):
                    yield partial(_names_at, tree, level, cells_at), counts

        return {"counts": StreamedCells(histograms)}


def _names_at(
    tree: int,
    level: int,
    cells_at: CellsAt,
    selected: Any,
) -> np.ndarray:
    """Names of the selected cells of a level: tree, level and position, (m, 2 + d)."""
    # Columns: tree, level, then the cell's coordinates.
    cells = cells_at(selected)
    names = np.empty((len(cells), 2 + cells.shape[1]), cells.dtype)
    names[:, :2] = tree, level
    names[:, 2:] = cells
    return names


@dataclass(frozen=True, eq=False)
class SoftCounts(Query):
    """Numbers of points at the nodes of a public grid, with multilinear weights.

    A point counts at each of the 2^d nodes around it. At the fraction a of the way from
    the lower node to the upper one, the weights are 1 - a and a in each feature, and
    are multiplied over the features. They add up to 1, and the weighted mean of the
    nodes is the point.

    Parameters
    ----------
    intervals : int
        Between the ends of the domain, per feature; at least 1.

    Notes
    -----
    Its part is ``counts`` (1, intervals + 1, ..., intervals + 1), int64: one axis per
    feature, in units of 2**-16 records. Node i of m intervals lies at -1 + 2 i / m.
    Weights are continuous, so a short move changes little: see
    :func:`soft_sensitivity`.
    """

    label = "soft_counts"
    mechanisms = GAUSSIAN_COUNTS
    adjacencies = RHO_BOUNDED

    intervals: int

    def check(self, source: Any) -> None:
        """Refuse too many features or nodes."""
        d = source.n_features
        n_nodes = (self.intervals + 1) ** d
        if self.intervals < 1 or d > MAX_FEATURES or n_nodes > MAX_NODES:
            raise ValueError(
                f"intervals={self.intervals} in {d} features must be at least 1, in "
                f"at most {MAX_FEATURES} features, and make at most {MAX_NODES} nodes"
            )

    def sensitivity(self, source: Any) -> Sensitivities:
        """The weights of one record, at the nodes around its old and new position."""
        # Nodes are 2 / intervals half-widths apart. The weights of two positions are at
        # 2 * 2^d nodes.
        d = source.n_features
        l2 = soft_sensitivity(d, 2 / self.intervals, source.max_shift) * SCALE
        return {"counts": vector_sensitivity(l2, 2 ** (d + 1))}

    def exact(self, source: Any) -> Answer:
        """Exact sums of the weights, each rounded to 2**-16."""
        shape = (self.intervals + 1,) * source.n_features
        counts = np.zeros(math.prod(shape), np.int64)
        add_soft_counts(source._rows, self.intervals, counts)
        return {"counts": counts.reshape(1, *shape)}

    def details(self) -> Details:
        """The number of intervals."""
        return {"intervals": self.intervals}


def soft_sensitivity(
    n_features: int,
    side: float,
    max_shift: float,
) -> float:
    """L2 sensitivity of soft counts if a point moves by at most ``max_shift``.

    Parameters
    ----------
    n_features : int
    side : float
        Distance of neighboring nodes, in half-widths.
    max_shift : float
        In half-widths.

    Returns
    -------
    float
        In records.

    Examples
    --------
    >>> [round(soft_sensitivity(2, 0.5, shift), 4) for shift in (0.05, 1.0)]
    [0.1732, 1.4142]
    """
    # Inside a cell the weights are products of 1 - a and a. Take the vector of all
    # weights' derivatives by one feature: its inner product with itself is at most 2 /
    # side^2, and with that of another feature at most 1 / side^2. So along a unit
    # vector the weights change at a rate of at most sqrt(1 + d) / side. They are
    # continuous across cells. The weights of two points add up to 1 each, and differ by
    # at most sqrt(2) in L2. Rounding to 2**-16 changes each of the 2^d weights of
    # either point by at most half a unit.
    rounding = math.sqrt(2.0**n_features) / SCALE
    return min(math.sqrt(1 + n_features) * max_shift / side, TWO_RECORDS) + rounding
