"""k-means on synthetic records from a private maximum spanning tree of columns.

Columns are measured one by one, and in pairs along a tree of dependent columns. Records
are drawn from the noisy tables, and k-means on them costs no more privacy. After
McKenna, Miklau and Sheldon, "Winning the NIST Contest: a scalable and general approach
to differentially private synthetic data" (2021), section 4: their MST, with intervals
of numeric columns in place of categories.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pkm.methods.coreset import project_onto_simplex
from pkm.methods.synthetic.synthetic import (
    SyntheticKMeans,
    TablesSchedule,
    measure_tables,
    select_table,
)
from pkm.privacy import SCALE, Curator, DependentColumns

FINE_INTERVALS = 64  # of a column, for the first measurement
MAX_INTERVALS = 32  # of a column, in the tables of pairs
MERGED_NOISE = 3.0  # smallest count of a merged interval, in standard deviations


@dataclass(frozen=True)
class Column:
    """Noisy counts of a column on equal intervals, which are merged for tables.

    Attributes
    ----------
    fine : ndarray of shape (FINE_INTERVALS,), float64
        Counts of equal (fine) intervals, nonnegative, with the public sum n.
    starts : ndarray of shape (m,), int64
        First fine interval of each merged interval.
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


def merge_intervals(counts: np.ndarray, min_count: float) -> np.ndarray:
    """Merge intervals from left to right until each has a minimum count.

    Parameters
    ----------
    counts : ndarray of shape (m,), float64
    min_count : float

    Returns
    -------
    ndarray of int64
        First interval of each merged one. Intervals at the end that have too small a
        count together are merged with the last one.

    Examples
    --------
    >>> merge_intervals(np.array([1.0, 5.0, 0.0, 2.0, 4.0, 1.0]), 5.0).tolist()
    [0, 2]
    """
    starts = [0]
    total = 0.0
    for i, count in enumerate(counts):
        total += count
        if total >= min_count:
            starts.append(i + 1)
            total = 0.0
    # The last start begins no interval, or one with too small a count.
    if len(starts) > 1:
        starts.pop()
    return np.array(starts, np.int64)


def measure_columns(
    curator: Curator,
    mu: float,
    max_intervals: int,
) -> list[Column]:
    """Measure every column on equal intervals, and merge those with few records.

    Parameters
    ----------
    curator : Curator
    mu : float
        Cost of all columns together.
    max_intervals : int
        A merged interval has at least 1 / max_intervals of the records, and at least
        three standard deviations of the noise.

    Returns
    -------
    list of Column
    """
    # One release for all columns: a record changes one cell of each.
    d = curator.n_features
    n = float(curator.n_points)
    stddev = math.sqrt(d) / mu
    tables = [(h,) for h in range(d)]
    min_count = max(MERGED_NOISE * stddev, n / max_intervals)
    columns = []
    for counts in measure_tables(curator, tables, [_fine_edges()] * d, stddev):
        fine = project_onto_simplex(counts, n)
        columns.append(Column(fine, merge_intervals(fine, min_count)))
    return columns


def select_tree(
    curator: Curator,
    columns: list[Column],
    epsilon: float,
) -> list[tuple[int, int]]:
    """Select d - 1 pairs of dependent columns that form a tree (McKenna et al., MST).

    Parameters
    ----------
    curator : Curator
    columns : list of Column
    epsilon : float
        Cost of one selection.

    Returns
    -------
    list of tuple of int
    """
    d = len(columns)
    edges = [column.edges for column in columns]
    shares = [column.counts / curator.n_points for column in columns]
    # Kruskal's algorithm, with the exponential mechanism in place of the maximum.
    component = np.arange(d)
    tree = []
    for _ in range(d - 1):
        # Candidates: pairs that connect two components.
        pairs = itertools.combinations(range(d), 2)
        candidates = [(a, b) for a, b in pairs if component[a] != component[b]]
        query = DependentColumns(candidates, edges, shares)
        a, b = candidates[select_table(curator, query, epsilon)]
        tree.append((a, b))
        component[component == component[b]] = component[a]
    return tree


def draw_along_tree(
    columns: list[Column],
    tables: dict[tuple[int, int], np.ndarray],
    n_records: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw records column by column along the tree, uniform in their fine intervals.

    Parameters
    ----------
    columns : list of Column
    tables : dict of (a, b) to ndarray
        Nonnegative counts of merged intervals, for each pair of the tree.
    n_records : int
    generator : numpy.random.Generator

    Returns
    -------
    ndarray of shape (n_records, d), float64
        In grid steps.
    """
    d = len(columns)
    intervals = np.zeros((n_records, d), np.int64)

    # Ancestral sampling: the root, then every column given its parent.
    intervals[:, 0] = _draw(columns[0].counts, n_records, generator)
    done = {0}
    while len(done) < d:
        for (a, b), table in tables.items():
            if (a in done) == (b in done):
                continue
            parent, child = (a, b) if a in done else (b, a)
            conditional = table if a in done else table.T
            # An interval of the parent without records says nothing of the child.
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
    """Draw records in merged intervals: fine intervals by their counts, then uniform.

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
    """Draw an index for each value, in proportion to the weights given the value."""
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
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency. A record changes one cell of every table by 1, and
        every score of a pair of columns by at most 1.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    n_init : int, default=10
        Starts of the k-means on the synthetic records; they cost no privacy.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    AIMKMeans : Tables that the model approximates worst; for up to 16 columns.
    SynopsisKMeans : Cells or buckets in place of tables; for more columns, too.

    Notes
    -----
    It is for up to 64 columns. Each is measured on 64 equal intervals; neighboring ones
    are merged until they hold at least n / 32 records, and at least three standard
    deviations of the noise. n records are drawn, at most 20,000.

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
    max_features = 64  # the number of pairs grows as d^2
    alternatives = "KaplanStemmer"
    choice = DependentColumns
    shares = (1 / 3, 1 / 3, 1 / 3)

    def count_rounds(self, n_features: int) -> tuple[int, int]:
        """One round, with a choice for each edge of a tree."""
        return 1, n_features - 1

    def draw_records(
        self,
        curator: Curator,
        schedule: TablesSchedule,
        n_records: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Measure columns and a tree of pairs; draw records along the tree."""
        # Measure the columns one by one, and merge their intervals.
        columns = measure_columns(curator, schedule.columns_mu, MAX_INTERVALS)

        # Select the tree of dependent pairs, and measure all its tables in one release.
        tables = {}
        if schedule.n_rounds:
            pairs = select_tree(curator, columns, schedule.choice_epsilon)
            edges = [column.edges for column in columns]
            stddev = math.sqrt(len(pairs)) / schedule.table_mu
            noisy = measure_tables(curator, pairs, edges, stddev)
            for pair, table in zip(pairs, noisy, strict=True):
                counts = project_onto_simplex(table.ravel(), float(curator.n_points))
                tables[pair] = counts.reshape(table.shape)

        return draw_along_tree(columns, tables, n_records, generator)
