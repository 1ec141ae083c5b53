"""Marginals: contingency tables of few columns, and selections among them.

Under zero-out or add-remove adjacency a record changes one cell of every table by 1.
A candidate is a tuple of columns. Its score is the L1 distance of their table from a
public one, such as that of independent columns. So a record changes it by at most 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from pkm.compute import Points
from pkm.compute.storage.blocks import total_array
from pkm.compute.storage.points import count_labels, make_slices, read_weights
from pkm.privacy.checks import (
    are_different_indices,
    check_floats,
    check_grid_integers,
    check_range,
)
from pkm.privacy.grid import MAX_CELLS, SCALE
from pkm.privacy.mechanisms.selection import ScoreSensitivity
from pkm.privacy.queries.sums import CHOICES, CountQuery, entries_sensitivity
from pkm.privacy.query import Answer, Details, Query, Sensitivities
from pkm.scalars import is_integer

MAX_EXPECTED = 2.0**40  # records of a table: in units of 2**-16 they fit int64
# Largest weight of a score: times 2**27 records in units of 2**-16 it is exact in
# float64.
MAX_WEIGHT = 1 << 10
BLOCK_ROWS = 1 << 14  # points whose cells are computed at a time


@dataclass(frozen=True, eq=False)
class _TableQuery(Query):
    """Base class of the queries on contingency tables of columns, of one replicate.

    Rows of a person, whose weights add up to a record, change a table by no more than
    a record does in L1.
    """

    serves_weights = True

    column_sets: Sequence[tuple[int, ...]]
    edges: Sequence[np.ndarray]

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, unknown columns, and too many cells."""
        source.check_single(self.label)
        d = source.n_features
        if len(self.edges) != d:
            raise ValueError(f"edges must be of {d} columns, got {len(self.edges)}")
        for h, inner in enumerate(self.edges):
            check_grid_integers(f"edges[{h}]", inner, ("m",))
            if inner.dtype != np.int64 or (np.diff(inner) <= 0).any():
                raise ValueError(f"edges[{h}] must be int64 and increasing")
        for columns in self.column_sets:
            if not columns or not are_different_indices(columns, d):
                raise ValueError(
                    f"columns={tuple(columns)} of a table must be one or more "
                    f"different indices from 0 to {d - 1}"
                )
        # All tables are released in one array.
        n_cells = sum(map(math.prod, self.shapes))
        if not 1 <= n_cells <= MAX_CELLS:
            raise ValueError(
                f"tables have {n_cells} cells together: from 1 to {MAX_CELLS} are "
                "served; take fewer tables or intervals"
            )

    def shape(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of intervals of the columns of a table."""
        return tuple(len(self.edges[h]) + 1 for h in columns)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each table."""
        return [self.shape(columns) for columns in self.column_sets]

    def split(self, cells: np.ndarray) -> list[np.ndarray]:
        """Separate values of all cells, of shape (cells,), into tables."""
        # Inverse of the concatenation in ``_count_cells``.
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return list(map(np.reshape, np.split(cells, ends), self.shapes))

    def count(self, source: Any) -> np.ndarray:
        """Count the points of all cells, over all shards."""
        arguments = {"column_sets": self.column_sets, "edges": self.edges}
        return total_array(
            source._shards, _count_cells, shapes=self.shapes, **arguments
        )


@dataclass(frozen=True, eq=False)
class Marginals(_TableQuery, CountQuery):
    """Numbers of points in all cells of contingency tables of columns.

    Parameters
    ----------
    column_sets : sequence of tuple of int
        Columns of each table, without repetition.
    edges : sequence of ndarray of shape (m - 1,), int64
        Inner edges of the m intervals of each column, in grid steps, increasing and
        public. An edge belongs to the interval above it.

    Notes
    -----
    Its part is ``counts`` (R, cells), int64, in units of 2**-16 records: the tables one
    after the other, each in C order; :meth:`split` separates them. It serves one
    replicate.
    """

    label = "marginals"

    def sensitivity(self, source: Any) -> Sensitivities:
        """One record in one cell of every table."""
        return {"counts": entries_sensitivity(len(self.column_sets))}

    def details(self) -> Details:
        """The number of tables."""
        return {"tables": len(self.column_sets)}


@dataclass(frozen=True, eq=False)
class _TableSelection(_TableQuery):
    """Base class of selections of a table by its distance from an expected table."""

    mechanisms = CHOICES

    def exact(self, source: Any) -> Answer:
        """Scores of all candidates."""
        tables = self.split(self.count(source))
        scores = []
        candidates = zip(tables, *self.score_terms(source), strict=True)
        for table, expected, weight, offset in candidates:
            # Counts in 2**-16 records, as integers: the score is exact.
            expected_units = np.rint(expected * SCALE).astype(np.int64)
            difference = table * source.count_factor - expected_units
            error = int(np.abs(difference).sum()) - round(offset * SCALE)
            scores.append(weight * error / SCALE)
        return {"choices": [np.array(scores)]}

    def score_terms(self, source: Any) -> tuple[Sequence[Any], ...]:
        """Expected tables, weights and offsets of the scores of all candidates."""
        raise NotImplementedError(f"{type(self).__name__} must define score_terms")


@dataclass(frozen=True, eq=False)
class DependentColumns(_TableSelection):
    """Selection of columns whose table is far from independence.

    Parameters
    ----------
    column_sets : sequence of tuple of int
        Candidates: columns of each table, without repetition.
    edges : sequence of ndarray, int64
        As for :class:`Marginals`.
    shares : sequence of ndarray of shape (m,), float64
        Released shares of the intervals of each column, not negative.

    Notes
    -----
    Its part is ``choices`` (1, 1), int64: the index of the candidate. The score is the
    L1 distance of the table from the public ``n`` times the product of the shares,
    which is rounded to 2**-16 records so that scores are exact. A record changes each
    by at most 1, up or down. It serves one replicate.
    """

    label = "dependent_columns"

    shares: Sequence[np.ndarray]

    def check(self, source: Any) -> None:
        """Refuse bad tables, and shares of another length."""
        super().check(source)
        if len(self.shares) != source.n_features:
            raise ValueError(
                f"shares must be of {source.n_features} columns, got "
                f"{len(self.shares)}; release them first"
            )
        for h, shares in enumerate(self.shares):
            check_floats(f"shares[{h}]", shares, self.shape((h,)))
            check_range(f"shares[{h}]", shares, 0, math.inf)
        for columns in self.column_sets:
            shares = [float(self.shares[h].sum()) for h in columns]
            expected = source.n_points * math.prod(shares)
            check_range(f"expected records of {columns}", expected, 0, MAX_EXPECTED)

    def sensitivity(self, source: Any) -> Sensitivities:
        """Scores change by at most 1, up or down, and differences by at most 2."""
        return {"choices": ScoreSensitivity(2.0)}

    def score_terms(self, source: Any) -> tuple[Sequence[Any], ...]:
        """Expected counts if the columns were independent with the released shares."""
        independent = []
        for columns in self.column_sets:
            shares = [self.shares[h] for h in columns]
            independent.append(source.n_points * reduce(np.multiply.outer, shares))
        n_tables = len(independent)
        return independent, [1] * n_tables, [0] * n_tables


@dataclass(frozen=True, eq=False)
class WorstApproximated(_TableSelection):
    """Selection of columns whose table is far from a model's (AIM).

    Parameters
    ----------
    column_sets : sequence of tuple of int
        Candidates: columns of each table, without repetition.
    edges : sequence of ndarray, int64
        As for :class:`Marginals`.
    expected : sequence of ndarray, float64
        Public counts of each table, those of a model.
    weights : sequence of int
        Positive weight of each table's error.
    offsets : sequence of float
        Subtracted from each table's error, in records, such as the error that the noise
        of measuring it would add.

    Notes
    -----
    Its part is ``choices`` (1, 1), int64: the index of the candidate. The score is the
    weight times the L1 distance of the table from the expected one, less the offset.
    Expected counts and offsets are rounded to 2**-16 records so that scores are exact:
    a record changes each by at most its weight, up or down. It serves one replicate.
    Source: AIM (McKenna et al. 2022), Algorithm 2.
    """

    label = "worst_approximated"

    expected: Sequence[np.ndarray]
    weights: Sequence[int]
    offsets: Sequence[float]

    def check(self, source: Any) -> None:
        """Refuse bad tables, and expected counts or weights that do not fit them."""
        super().check(source)
        for name in ("expected", "weights", "offsets"):
            length = len(getattr(self, name))
            if length != len(self.column_sets):
                raise ValueError(
                    f"{name} must be of {len(self.column_sets)} tables, got {length}"
                )
        for columns, expected in zip(self.column_sets, self.expected, strict=True):
            name = f"expected counts of columns={columns}"
            check_floats(name, expected, self.shape(columns))
            check_range(f"sum of {name}", np.abs(expected).sum(), 0, MAX_EXPECTED)
        for weight in self.weights:
            if not (is_integer(weight) and 1 <= weight <= MAX_WEIGHT):
                raise ValueError(
                    f"weights={weight!r} must be integers from 1 to {MAX_WEIGHT}"
                )
        for offset in self.offsets:
            if not abs(offset) <= MAX_EXPECTED:
                raise ValueError(
                    f"offsets={offset:g} must be at most {MAX_EXPECTED:.3g} records"
                )

    def sensitivity(self, source: Any) -> Sensitivities:
        """Scores change by at most their weights, up or down."""
        # Of the difference of two scores: one may rise while the other falls.
        return {"choices": ScoreSensitivity(2.0 * max(self.weights))}

    def score_terms(self, source: Any) -> tuple[Sequence[Any], ...]:
        """AIM, Algorithm 2: weight times (error less the expected noise)."""
        return self.expected, self.weights, self.offsets

    def details(self) -> Details:
        """The number of candidates."""
        return {"tables": len(self.column_sets)}


def _count_cells(
    points: Points,
    column_sets: Sequence[tuple[int, ...]],
    edges: Sequence[np.ndarray],
    shapes: Sequence[tuple[int, ...]],
) -> np.ndarray:
    """Numbers of points in the cells of all tables, one table after the other."""
    counts = [np.zeros(math.prod(shape), np.int64) for shape in shapes]
    for block in make_slices(len(points.rows), BLOCK_ROWS):
        rows = points.rows[block]
        weights = read_weights(points)[block]
        # The interval of each coordinate, column by column, is shared by all tables.
        intervals = [
            np.searchsorted(inner, rows[:, h], side="right")
            for h, inner in enumerate(edges)
        ]
        for columns, shape, count in zip(column_sets, shapes, counts, strict=True):
            cells = np.ravel_multi_index(tuple(intervals[h] for h in columns), shape)
            count += count_labels(cells, weights, len(count))
    return np.concatenate(counts)
