"""k-means on synthetic records from a private maximum spanning tree of columns.

The synthetic-data route to private clustering: columns are measured one by one and
along the edges of a tree of dependent pairs, records are drawn from what was measured,
and k-means on them costs nothing more. After McKenna, Miklau and Sheldon, "Winning the
NIST Contest: a scalable and general approach to differentially private synthetic data"
(2021), section 4: their MST, with intervals of numeric columns in place of categories.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from pkm.methods.coreset import consistent
from pkm.methods.synthetic.synthetic import SyntheticKMeans, TablesSchedule
from pkm.privacy import (
    SCALE,
    Curator,
    DependentColumns,
    Exponential,
    Gaussian,
    Marginals,
)

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


def merged_starts(counts: np.ndarray, least: float) -> np.ndarray:
    """First interval of each merged one, from left to right: merged ones reach a least count.

    Parameters
    ----------
    counts : ndarray of shape (m,), float64
    least : float

    Returns
    -------
    ndarray of int64
        What is left at the end joins the last one.

    Examples
    --------
    >>> merged_starts(np.array([1.0, 5.0, 0.0, 2.0, 4.0, 1.0]), 5.0).tolist()
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


def measured_columns(curator: Curator, mu: float, max_intervals: int) -> list[Column]:
    """Release counts of equal intervals of every column, and merge intervals of few records.

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
    query = Marginals([(h,) for h in range(d)], [_fine_edges()] * d)
    answer = curator.release(query, counts=Gaussian(stddev * SCALE))
    least = max(MERGED_NOISE * stddev, n / max_intervals)
    columns = []
    for counts in query.split(answer["counts"][0] / SCALE):
        fine = consistent(counts, n)
        columns.append(Column(fine, merged_starts(fine, least)))
    return columns


def spanning_pairs(
    curator: Curator, columns: list[Column], epsilon: float
) -> list[tuple[int, int]]:
    """Choose d - 1 pairs of columns that form a tree, each among those that join two parts of it.

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
    part = np.arange(d)  # of the tree that each column belongs to
    chosen = []
    for _ in range(d - 1):
        joining = [
            (a, b) for a, b in itertools.combinations(range(d), 2) if part[a] != part[b]
        ]
        query = DependentColumns(joining, edges, shares)
        choice = curator.release(query, choices=Exponential(epsilon))["choices"][0, 0]
        a, b = joining[int(choice)]
        chosen.append((a, b))
        part[part == part[b]] = part[a]
    return chosen


def synthetic_records(
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
            parent, child_column = (a, b) if a in done else (b, a)
            conditional = table if a in done else table.T
            for value in np.unique(intervals[:, parent]):
                of_value = np.flatnonzero(intervals[:, parent] == value)
                weights = conditional[value]
                if not weights.any():
                    weights = columns[child_column].counts
                intervals[of_value, child_column] = _draw(
                    weights, len(of_value), generator
                )
            done.add(child_column)

    return records_in_intervals(columns, intervals, generator)


def records_in_intervals(
    columns: list[Column], intervals: np.ndarray, generator: np.random.Generator
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
        ends = np.append(column.starts[1:], FINE_INTERVALS)
        fine = np.empty(len(records), np.int64)
        for value in np.unique(intervals[:, h]):
            of_value = np.flatnonzero(intervals[:, h] == value)
            start = column.starts[value]
            inside = column.fine[start : ends[value]]
            fine[of_value] = start + _draw(inside, len(of_value), generator)
        records[:, h] = (fine + generator.random(len(records))) * width - SCALE
    return records


def _draw(weights: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    """Indices in proportion to weights that are not negative; uniform where all are zero."""
    total = weights.sum()
    probabilities = weights / total if total > 0 else None
    return generator.choice(len(weights), size, p=probabilities)


@dataclass(eq=False, repr=False)
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
    >>> model = MSTKMeans(n_clusters=2, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "MST + k-means"
    color = "#762a83"
    marker = "h"
    max_features = 64  # the number of pairs grows with the square
    compared = "pairs"
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
        """Measure columns and pairs, draw records; see :meth:`SyntheticKMeans.draw_records`."""
        n = curator.n_points

        # Columns one by one, and their merged intervals.
        columns = measured_columns(curator, schedule.columns_mu, MAX_INTERVALS)

        # The tree of dependent pairs, and their tables.
        tables = {}
        if schedule.n_rounds:
            pairs = spanning_pairs(curator, columns, schedule.choice_epsilon)
            query = Marginals(pairs, [column.edges for column in columns])
            stddev = math.sqrt(len(pairs)) / schedule.table_mu
            answer = curator.release(query, counts=Gaussian(stddev * SCALE))
            for pair, table in zip(
                pairs, query.split(answer["counts"][0] / SCALE), strict=True
            ):
                tables[pair] = consistent(table.ravel(), float(n)).reshape(table.shape)

        return synthetic_records(columns, tables, n_records, generator)
