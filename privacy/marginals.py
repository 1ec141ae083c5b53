"""Queries on few columns at a time: contingency tables, and which columns depend on each other.

Under zero-out or add-remove adjacency a record changes one cell of every table by 1. The score of
some columns is the L1 distance of their table from one of independent columns, so a record changes
it by at most 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np

from pkm.compute import Points
from pkm.compute.blocks import Sums
from pkm.privacy.budget import Adjacency
from pkm.privacy.grid import MAX_CELLS, SCALE
from pkm.privacy.mechanisms import Gaussian, Laplace
from pkm.privacy.query import Mechanisms, Query, Sensitivity
from pkm.privacy.selection import Exponential, ScoreRange


@dataclass(frozen=True, eq=False)
class Marginals(Query):
    """Numbers of points in all cells of contingency tables of columns.

    Parameters
    ----------
    tables : sequence of tuple of int
        Columns of each table, without repetition.
    edges : sequence of ndarray of shape (m - 1,), int64
        For each column, in grid steps, increasing and public: a point lies in the interval after
        as many of them as are at most its coordinate, of m.

    Notes
    -----
    Its part is ``counts`` (R, cells), int64, in units of 2**-16 records: the tables one after the
    other, each in C order; :meth:`split` separates them. It serves one replicate.
    """

    label: ClassVar[str] = "marginals"
    mechanisms: ClassVar[Mechanisms] = {"counts": (Gaussian, Laplace)}

    tables: Sequence[tuple[int, ...]]
    edges: Sequence[np.ndarray]

    def check(self, view: Any) -> None:
        """Refuse more than one replicate, columns that are none, and too many cells."""
        view.check_single(self.label)
        _check_tables(self.tables, self.edges, view.n_features)

    def shape(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of intervals of the columns of a table."""
        return tuple(len(self.edges[h]) + 1 for h in columns)

    def split(self, cells: np.ndarray) -> list[np.ndarray]:
        """Separate values of all cells, of shape (cells,), into tables."""
        shapes = [self.shape(columns) for columns in self.tables]
        ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        return [
            table.reshape(shape) for table, shape in zip(np.split(cells, ends), shapes, strict=True)
        ]

    def sensitivity(self, view: Any, adjacency: Adjacency) -> Mapping[str, Sensitivity]:
        """One record in one cell of every table."""
        m = len(self.tables)
        return {"counts": Sensitivity(m * SCALE, math.sqrt(m) * SCALE, SCALE, m)}

    def exact(self, view: Any) -> Mapping[str, np.ndarray]:
        """Exact counts over all shards."""
        tables = view._shards.total(partial(_tables, tables=self.tables, edges=self.edges))
        counts = [table.ravel() for table in tables]
        return {"counts": np.concatenate(counts)[None] * SCALE}

    def details(self) -> Mapping[str, float | None]:
        """The number of tables."""
        return {"tables": len(self.tables)}


@dataclass(frozen=True, eq=False)
class DependentColumns(Query):
    """One of several sets of columns: one whose table is far from independence is likely.

    Parameters
    ----------
    tables : sequence of tuple of int
        Candidates: columns of each table, without repetition.
    edges : sequence of ndarray, int64
        As for :class:`Marginals`.
    shares : sequence of ndarray of shape (m,), float64
        Released shares of the intervals of each column, not negative.

    Notes
    -----
    Its part is ``choices`` (1, 1), int64: the index of the candidate. The score is the L1 distance
    of the table from ``n`` times the product of the shares, which is rounded to 2**-16 records so
    that scores are exact: a record changes each by at most 1, up or down. It serves one replicate.
    """

    label: ClassVar[str] = "dependent_columns"
    mechanisms: ClassVar[Mechanisms] = {"choices": (Exponential,)}
    # The score reads the number of records, which is public under this adjacency alone.
    adjacencies: ClassVar[tuple[Adjacency, ...]] = (Adjacency.ZERO_OUT,)

    tables: Sequence[tuple[int, ...]]
    edges: Sequence[np.ndarray]
    shares: Sequence[np.ndarray]

    def check(self, view: Any) -> None:
        """Refuse more than one replicate, columns that are none, and shares of another length."""
        view.check_single(self.label)
        _check_tables(self.tables, self.edges, view.n_features)
        if len(self.shares) != view.n_features:
            raise ValueError(
                f"shares must be of {view.n_features} columns, got {len(self.shares)}; release "
                "them first"
            )
        for h, shares in enumerate(self.shares):
            expected = (len(self.edges[h]) + 1,)
            if shares.shape != expected or not (np.isfinite(shares) & (shares >= 0)).all():
                raise ValueError(
                    f"shares[{h}] must be finite, not negative, of shape {expected}, got shape "
                    f"{shares.shape}"
                )

    def sensitivity(self, view: Any, adjacency: Adjacency) -> Mapping[str, ScoreRange]:
        """Scores move by at most 1, in both directions: their differences by 2."""
        return {"choices": ScoreRange(2.0)}

    def exact(self, view: Any) -> Mapping[str, list[np.ndarray]]:
        """Scores of all pairs."""
        scores = []
        tables = view._shards.total(partial(_tables, tables=self.tables, edges=self.edges))
        for columns, table in zip(self.tables, tables, strict=True):
            independent = view.n_points * reduce(
                np.multiply.outer, [self.shares[h] for h in columns]
            )
            difference = table * SCALE - np.rint(independent * SCALE).astype(np.int64)
            scores.append(int(np.abs(difference).sum()) / SCALE)
        return {"choices": [np.array(scores)]}


def _tables(points: Points, tables: Sequence[tuple[int, ...]], edges: Sequence[np.ndarray]) -> Sums:
    """Contingency tables, int64, of points."""
    rows = points.rows
    intervals = [np.searchsorted(inner, rows[:, h], side="right") for h, inner in enumerate(edges)]
    found = []
    for columns in tables:
        shape = tuple(len(edges[h]) + 1 for h in columns)
        cells = np.ravel_multi_index(tuple(intervals[h] for h in columns), shape)
        found.append(np.bincount(cells, minlength=math.prod(shape)).reshape(shape))
    return tuple(found)


def _check_tables(
    tables: Sequence[tuple[int, ...]], edges: Sequence[np.ndarray], n_features: int
) -> None:
    """Refuse edges that do not increase, columns that do not exist, and too many cells."""
    if len(edges) != n_features:
        raise ValueError(f"edges must be of {n_features} columns, got {len(edges)}")
    for h, inner in enumerate(edges):
        if inner.dtype != np.int64 or inner.ndim != 1 or (np.diff(inner) <= 0).any():
            raise ValueError(
                f"edges[{h}] must be increasing grid integers, int64 of shape (m,), got "
                f"{inner.dtype} of shape {inner.shape}"
            )
    for columns in tables:
        is_known = all(0 <= h < n_features for h in columns)
        if not columns or not is_known or len(set(columns)) < len(columns):
            raise ValueError(
                f"columns={tuple(columns)} of a table must be one or more different indices from "
                f"0 to {n_features - 1}"
            )
    n_cells = sum(math.prod(len(edges[h]) + 1 for h in columns) for columns in tables)
    if not 1 <= n_cells <= MAX_CELLS:
        raise ValueError(
            f"tables have {n_cells} cells together: from 1 to {MAX_CELLS} are served; take fewer "
            "tables or intervals"
        )
