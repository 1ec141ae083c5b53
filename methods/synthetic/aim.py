"""k-means on synthetic records from AIM, which selects tables round by round.

Every round measures the table of few columns that the present model approximates worst,
and fits a graphical model to all noisy tables. After McKenna, Mullins, Sheldon and
Miklau, "AIM: an adaptive and iterative mechanism for differentially private synthetic
data" (2022), with intervals of numeric columns in place of categories.

Departures: a schedule is public here, so rounds have equal budgets and a number that is
fixed in advance. AIM's annealing would multiply the budget of later rounds after one
that changed the model by less than noise. Single columns are measured more finely, to
find their intervals; releases are composed exactly instead of by zCDP.
"""

import itertools
import math

import numpy as np

from pkm.methods.synthetic.graphical_model import (
    Columns,
    GraphicalModel,
    Measurement,
    count_cells,
    eliminate,
    fit_model,
)
from pkm.methods.synthetic.mst import Column, draw_in_intervals, measure_columns
from pkm.methods.synthetic.synthetic import (
    SyntheticKMeans,
    TablesSchedule,
    measure_tables,
    select_table,
)
from pkm.privacy import Curator, WorstApproximated

MAX_INTERVALS = 16  # of a column in the tables of several
MAX_COLUMNS = 3  # of a table
MAX_CELLS = 1 << 14  # of the model's cliques together
CHOICE_SHARE = 0.1  # of mu squared, as AIM has it
COLUMN_SHARE = 0.3
ROUND_STEPS = 100  # of mirror descent
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
        As measured alone.
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

    # Columns one by one: a merged interval has the noise of its fine ones.
    measurements = []
    for h, column in enumerate(columns):
        n_merged = np.diff(column.starts, append=len(column.fine))
        stddev = columns_stddev * np.sqrt(n_merged)
        measurements.append(Measurement((h,), column.counts, stddev))
    model = fit_model(shape, n, measurements, n_steps=ROUND_STEPS)

    all_tables: list[Columns] = []
    for m in range(1, MAX_COLUMNS + 1):
        all_tables += itertools.combinations(range(d), m)
    stddev = 1 / schedule.table_mu if schedule.n_rounds else 0.0
    for i in range(schedule.n_rounds):
        # Candidates: tables with which the model is not too large for the part of the
        # budget that is spent after the round.
        max_cells = max(MAX_CELLS * (i + 1) / schedule.n_rounds, model.tree.n_cells)
        measured = [m.columns for m in measurements]
        candidates = [
            table
            for table in all_tables
            if count_cells(shape, eliminate(shape, [*measured, table])) <= max_cells
        ]

        # Select one by its error, less that of its measurement, times its number of
        # columns.
        n_cells = [math.prod(shape[h] for h in table) for table in candidates]
        query = WorstApproximated(
            candidates,
            edges,
            expected=[model.marginal(table) for table in candidates],
            weights=[len(table) for table in candidates],
            offsets=[math.sqrt(2 / math.pi) * stddev * count for count in n_cells],
        )
        selected = candidates[select_table(curator, query, schedule.choice_epsilon)]

        # Measure it, and fit the model again.
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
    epsilon : float, default=1.0
        Total, zero-out adjacency: a record changes one cell of every table by 1, and
        the L1 error of every candidate by at most 1.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    n_init : int, default=10
        Starts of the k-means on the synthetic records; they cost no privacy.
    bounds, clip, random_state, secure
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    For up to 16 columns. Their intervals are those of :class:`pkm.methods.MSTKMeans`,
    but at most 16 or so of a column. Candidates are all tables of one to three columns
    with which the cliques of the model have at most 2^14 cells together, or that part
    of it which is the part of the rounds so far; with all tables of three columns as
    workload AIM weighs a candidate by its number of columns. There are 2 (d - 1)
    rounds, or one for each pair if those are fewer.

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
    max_features = 16  # the number of tables of three grows with the third power
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
