"""k-means on synthetic records from a private maximum spanning tree of columns.

The synthetic-data route to private clustering: columns are measured one by one and
along the edges of a tree of dependent pairs, records are drawn from what was measured,
and k-means on them costs nothing more. After McKenna, Miklau and Sheldon, "Winning the
NIST Contest: a scalable and general approach to differentially private synthetic data"
(2021), section 4: their MST, with intervals of numeric columns in place of categories.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pkm.methods.coreset import consistent
from pkm.methods.synthetic.synthetic import (
    SyntheticKMeans,
    TablesSchedule,
    measure_tables,
    select_table,
)
from pkm.privacy import SCALE, Curator, DependentColumns

FINE_INTERVALS = 64  # of a column, measured alone
MAX_INTERVALS = 32  # of a column in the tables of pairs
MERGED_NOISE = 3.0  # standard deviations that the count of a merged interval exceeds


@dataclass(frozen=True)
class Column:
    """A column as it was measured alone.

    Attributes
    ----------
    fine : ndarray of shape (FINE_INTERVALS,), float64
        Consistent counts of equal intervals.
    starts : ndarray of shape (m,), int64
        First fine interval of each merged one.
    """

    fine: np.ndarray
    starts: np.ndarray

    @property
    def edges(self) -> np.ndarray:
        """Inner edges (m - 1,) of the merged intervals, int64, in grid steps."""
        return _fine_edges()[self.starts[1:] - 1]

    @property
    def counts(self) -> np.ndarray:
        """Counts (m,) of the merged intervals."""
        return np.add.reduceat(self.fine, self.starts)


def _fine_edges() -> np.ndarray:
    """Inner edges of equal intervals of a column, in grid steps."""
    return np.arange(1, FINE_INTERVALS) * (2 * SCALE // FINE_INTERVALS) - SCALE


def merge_intervals(counts: np.ndarray, least: float) -> np.ndarray:
    """Merge intervals from left to right until each reaches a least count.

    Parameters
    ----------
    counts : ndarray of shape (m,), float64
    least : float

    Returns
    -------
    ndarray of int64
        First interval of each merged one. What is left at the end joins the last one.

    Examples
    --------
    >>> merge_intervals(np.array([1.0, 5.0, 0.0, 2.0, 4.0, 1.0]), 5.0).tolist()
    [0, 2]
    """
    starts = [0]
    total = 0.0
    for i, count in enumerate(counts):
        total += count
        if total >= least:
            starts.append(i + 1)
            total = 0.0
    if len(starts) > 1:
        starts.pop()
    return np.array(starts, np.int64)


def measure_columns(
    curator: Curator,
    mu: float,
    max_intervals: int,
) -> list[Column]:
    """Measure every column on equal intervals, and merge those of few records.

    Parameters
    ----------
    curator : Curator
    mu : float
        Of all columns together.
    max_intervals : int
        A merged interval holds more than one in so many records, and more than noise.

    Returns
    -------
    list of Column
    """
    d = curator.n_features
    n = float(curator.n_points)
    stddev = math.sqrt(d) / mu
    tables = [(h,) for h in range(d)]
    least = max(MERGED_NOISE * stddev, n / max_intervals)
    columns = []
    for counts in measure_tables(curator, tables, [_fine_edges()] * d, stddev):
        fine = consistent(counts, n)
        columns.append(Column(fine, merge_intervals(fine, least)))
    return columns


def select_tree(
    curator: Curator,
    columns: list[Column],
    epsilon: float,
) -> list[tuple[int, int]]:
    """Select d - 1 pairs of columns that form a tree, by their dependence.

    Parameters
    ----------
    curator : Curator
    columns : list of Column
    epsilon : float
        Of one choice.

    Returns
    -------
    list of tuple of int
    """
    d = len(columns)
    edges = [column.edges for column in columns]
    shares = [column.counts / curator.n_points for column in columns]
    subtree = np.arange(d)  # that a column belongs to
    tree = []
    for _ in range(d - 1):
        # Only pairs that join two subtrees are candidates.
        pairs = itertools.combinations(range(d), 2)
        joining = [(a, b) for a, b in pairs if subtree[a] != subtree[b]]
        query = DependentColumns(joining, edges, shares)
        a, b = joining[select_table(curator, query, epsilon)]
        tree.append((a, b))
        subtree[subtree == subtree[b]] = subtree[a]
    return tree


def draw_along_tree(
    columns: list[Column],
    tables: dict[tuple[int, int], np.ndarray],
    n_records: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw records along the tree, column by column, uniform in their fine intervals.

    Parameters
    ----------
    columns : list of Column
    tables : dict of (a, b) to ndarray
        Counts, not negative, of the tree's pairs of merged intervals.
    n_records : int
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_records, d), float64
        In grid steps.
    """
    d = len(columns)
    intervals = np.zeros((n_records, d), np.int64)

    # The root by itself, every other column given its neighbor on the way to the root.
    intervals[:, 0] = _draw(columns[0].counts, n_records, generator)
    done = {0}
    while len(done) < d:
        for (a, b), table in tables.items():
            if (a in done) == (b in done):
                continue
            parent, child = (a, b) if a in done else (b, a)
            conditional = table if a in done else table.T
            counts = columns[child].counts
            weights = [row if row.any() else counts for row in conditional]
            intervals[:, child] = _draw_given(intervals[:, parent], weights, generator)
            done.add(child)

    return draw_in_intervals(columns, intervals, generator)


def draw_in_intervals(
    columns: list[Column],
    intervals: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw records inside of merged intervals: a fine one by its count, uniform in it.

    Parameters
    ----------
    columns : list of Column
    intervals : ndarray of shape (n_records, d), int64
        Merged interval of every column.
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_records, d), float64
        In grid steps.
    """
    records = np.empty(intervals.shape)
    width = 2 * SCALE / FINE_INTERVALS
    for h, column in enumerate(columns):
        merged = intervals[:, h]
        weights = np.split(column.fine, column.starts[1:])
        fine = column.starts[merged] + _draw_given(merged, weights, generator)
        offsets = generator.random(len(records))
        records[:, h] = (fine + offsets) * width - SCALE
    return records


def _draw_given(
    values: np.ndarray,
    weights: Sequence[np.ndarray],
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw an index for each value, in proportion to the weights of that value."""
    drawn = np.empty(len(values), np.int64)
    for value in np.unique(values):
        rows = np.flatnonzero(values == value)
        drawn[rows] = _draw(weights[value], len(rows), generator)
    return drawn


def _draw(
    weights: np.ndarray,
    size: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw indices in proportion to weights; uniform where all are zero."""
    total = weights.sum()
    probabilities = weights / total if total > 0 else None
    return generator.choice(len(weights), size, p=probabilities)


class MSTKMeans(SyntheticKMeans):
    """k-means on synthetic records from a private maximum spanning tree of columns.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, zero-out adjacency: a record changes one cell of every table by 1, and
        every score of a pair of columns by at most 1.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    n_init : int, default=10
        Starts of the k-means on the synthetic records; they cost no privacy.
    bounds, clip, random_state, secure
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    For up to 64 columns. Each is measured on 64 equal intervals; neighboring ones are
    merged until they hold more than noise and more than one in 32 records. As many
    records are drawn as there are, at most 20,000.

    References
    ----------
    McKenna, R., Miklau, G. and Sheldon, D. (2021). Winning the NIST Contest: a scalable
    and general approach to differentially private synthetic data. Journal of Privacy
    and Confidentiality 11(3).

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = MSTKMeans(2, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "MST + k-means"
    color = "#762a83"
    marker = "h"
    max_features = 64  # the number of pairs grows with the square
    alternatives = "KaplanStemmer"
    choice = DependentColumns
    shares = (1 / 3, 1 / 3, 1 / 3)

    def count_rounds(self, n_features: int) -> tuple[int, int]:
        """One, with a choice for each edge of a tree."""
        return 1, n_features - 1

    def draw_records(
        self,
        curator: Curator,
        schedule: TablesSchedule,
        n_records: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Measure columns and a tree of pairs; draw records along the tree."""
        # Columns one by one, and their merged intervals.
        columns = measure_columns(curator, schedule.columns_mu, MAX_INTERVALS)

        # The tree of dependent pairs, and their tables.
        tables = {}
        if schedule.n_rounds:
            pairs = select_tree(curator, columns, schedule.choice_epsilon)
            edges = [column.edges for column in columns]
            stddev = math.sqrt(len(pairs)) / schedule.table_mu
            noisy = measure_tables(curator, pairs, edges, stddev)
            for pair, table in zip(pairs, noisy, strict=True):
                counts = consistent(table.ravel(), float(curator.n_points))
                tables[pair] = counts.reshape(table.shape)

        return draw_along_tree(columns, tables, n_records, generator)
