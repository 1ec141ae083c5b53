"""k-means on synthetic records from AIM, which selects tables round by round.

Every round measures the contingency table (marginal) of few columns that the present
model approximates worst, and fits a graphical model to all noisy tables. After McKenna,
Mullins, Sheldon and Miklau, "AIM: an adaptive and iterative mechanism for
differentially private synthetic data" (2022), with intervals of numeric columns in
place of categories.

Departures: a schedule is public here, so that the number of rounds is fixed in advance
and their budgets are equal. AIM's annealing, which raises the budget of later rounds,
is left out. Single columns are measured on more intervals, to choose their intervals
for tables. Releases are composed exactly instead of by zCDP.
"""

import itertools
import math

import numpy as np

from pkm.methods.synthetic.graphical_model import (
    Columns,
    GraphicalModel,
    Measurement,
    fit_model,
    join_columns,
)
from pkm.methods.synthetic.mst import Column, draw_in_intervals, measure_columns
from pkm.methods.synthetic.synthetic import (
    SyntheticKMeans,
    TablesSchedule,
    measure_tables,
    select_table,
)
from pkm.methods.synthetic.triangulation import count_cells_with
from pkm.privacy import Curator, WorstApproximated

MAX_INTERVALS = 16  # of a column, in tables of several columns
MAX_COLUMNS = 3  # of a table
MAX_CELLS = 1 << 14  # of all cliques of the model
# Shares of mu squared: of all selections, as in AIM, and of the single columns.
CHOICE_SHARE = 0.1
COLUMN_SHARE = 0.3
# Steps of mirror descent in a round, and after the last one.
ROUND_STEPS = 100
FINAL_STEPS = 300


def select_and_fit(
    curator: Curator,
    columns: list[Column],
    schedule: TablesSchedule,
) -> GraphicalModel:
    """Measure a table in every round, and fit a graphical model to all of them.

    Parameters
    ----------
    curator : Curator
    columns : list of Column
        Measured one by one.
    schedule : TablesSchedule

    Returns
    -------
    GraphicalModel
    """
    d = len(columns)
    n = float(curator.n_points)
    edges = [column.edges for column in columns]
    shape = [len(column.starts) for column in columns]
    columns_stddev = math.sqrt(d) / schedule.columns_mu

    # Initialization: the single columns. The noise of a merged interval is that of the
    # sum of its fine ones.
    measurements = []
    for h, column in enumerate(columns):
        n_merged = np.diff(column.starts, append=len(column.fine))
        stddev = columns_stddev * np.sqrt(n_merged)
        measurements.append(Measurement((h,), column.counts, stddev))
    model = fit_model(shape, n, measurements, n_steps=ROUND_STEPS)

    # Candidates are all tables of up to three columns.
    all_tables: list[Columns] = []
    for m in range(1, MAX_COLUMNS + 1):
        all_tables += itertools.combinations(range(d), m)
    sizes = np.array(shape, np.float64)
    padded = np.array([(table * MAX_COLUMNS)[:MAX_COLUMNS] for table in all_tables])
    stddev = 1 / schedule.table_mu if schedule.n_rounds else 0.0
    for i in range(schedule.n_rounds):
        # Candidates: tables with which the model has at most MAX_CELLS cells, times the
        # part of the budget that is spent after the round.
        max_cells = max(MAX_CELLS * (i + 1) / schedule.n_rounds, model.tree.n_cells)
        joined = join_columns(d, [m.columns for m in measurements])
        counts = count_cells_with(joined, sizes, padded)
        candidates = [all_tables[j] for j in np.flatnonzero(counts <= max_cells)]

        # Select: the score is the L1 error of the model less the expected L1 error of a
        # noisy table, sqrt(2 / pi) sigma a cell, times the number of columns.
        n_cells = [math.prod(shape[h] for h in table) for table in candidates]
        query = WorstApproximated(
            candidates,
            edges,
            expected=[model.marginal(table) for table in candidates],
            weights=[len(table) for table in candidates],
            offsets=[math.sqrt(2 / math.pi) * stddev * count for count in n_cells],
        )
        selected = candidates[select_table(curator, query, schedule.choice_epsilon)]

        # Measure the table, and estimate: fit the model again, from its last factors.
        (counts,) = measure_tables(curator, [selected], edges, stddev)
        measurements.append(Measurement(selected, counts, stddev))
        is_last = i + 1 == schedule.n_rounds
        n_steps = FINAL_STEPS if is_last else ROUND_STEPS
        model = fit_model(shape, n, measurements, model.factors, n_steps)
    return model


class AIMKMeans(SyntheticKMeans):
    """k-means on synthetic records from AIM.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency. A record changes one cell of every table by 1, and
        the L1 error of every candidate by at most 1.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    n_init : int, default=10
        Starts of the k-means on the synthetic records; they cost no privacy.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    MSTKMeans : Pairs of columns along a tree; for up to 64 columns.
    SynopsisKMeans : Cells or buckets in place of tables; for more columns, too.

    Notes
    -----
    It is for up to 16 columns. Their intervals are those of
    :class:`pkm.methods.MSTKMeans`, but at most about 16 of a column. The candidates are
    tables of one to three columns. In round i of T the model with a candidate has at
    most 2^14 i / T cells in all cliques. AIM's weight of a candidate is its number of
    columns, for the workload of all tables of three columns. There are 2 (d - 1)
    rounds, or one for each pair if there are fewer pairs.

    References
    ----------
    McKenna, R., Mullins, B., Sheldon, D. and Miklau, G. (2022). AIM: an adaptive and
    iterative mechanism for differentially private synthetic data. PVLDB 15(11).

    McKenna, R., Sheldon, D. and Miklau, G. (2019). Graphical-model based estimation and
    inference for differential privacy. ICML.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = AIMKMeans(2, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "AIM + k-means"
    color = "#9970ab"
    marker = "H"
    max_features = 16  # the number of tables of three columns grows as d^3
    alternatives = "MSTKMeans or KaplanStemmer"
    choice = WorstApproximated
    shares = (COLUMN_SHARE, CHOICE_SHARE, 1 - COLUMN_SHARE - CHOICE_SHARE)

    def count_rounds(self, n_features: int) -> tuple[int, int]:
        """Twice the edges of a tree, or one round for each pair if those are fewer."""
        return min(math.comb(n_features, 2), 2 * (n_features - 1)), 1

    def draw_records(
        self,
        curator: Curator,
        schedule: TablesSchedule,
        n_records: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Measure tables in rounds, fit a model to them, and draw from it."""
        columns = measure_columns(curator, schedule.columns_mu, MAX_INTERVALS)
        model = select_and_fit(curator, columns, schedule)
        intervals = model.draw(n_records, generator)
        return draw_in_intervals(columns, intervals, generator)
