"""k-means on synthetic records: the schedule, intervals, the tree, the records, the charges."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.synthetic.mst import (
    FINE_INTERVALS,
    Column,
    MSTKMeans,
    draw_along_tree,
    merge_intervals,
    select_tree,
)
from pkm.metrics import evaluate
from pkm.privacy import (
    SCALE,
    Budget,
    Curator,
    DependentColumns,
    Ledger,
    Marginals,
    NoiseStreams,
    gaussian_mu,
    snap,
)


def nicv(points, run):
    return evaluate(points, run.centers, ["nicv"])["nicv"].mean()


def exact_columns(points, n_merged=8):
    """Columns as measured without noise, with merged intervals of equal width."""
    starts = np.arange(0, FINE_INTERVALS, FINE_INTERVALS // n_merged)
    edges = np.arange(1, FINE_INTERVALS) * (2 * SCALE // FINE_INTERVALS) - SCALE
    fine = [np.searchsorted(edges, column, side="right") for column in points.T]
    counts = [np.bincount(each, minlength=FINE_INTERVALS).astype(float) for each in fine]
    return [Column(each, starts) for each in counts]


def curator_of(points, epsilon=1e12):
    return Curator(points, Ledger(Budget(epsilon, 0.5)), NoiseStreams([0]))


def chain(n=4000, d=4, seed=0):
    """Columns of which each is near the one before it, the nearer the later."""
    rng = np.random.default_rng(seed)
    columns = [rng.uniform(-0.8, 0.8, n)]
    for h in range(1, d):
        noise = rng.uniform(-0.8, 0.8, n)
        share = 0.5 + 0.4 * h / d
        columns.append(share * columns[-1] + (1 - share) * noise)
    return snap(np.stack(columns, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 5, 40])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_schedule_spends_the_budget_and_no_more(d, epsilon):
    points = chain(300, d)
    run = MSTKMeans(3, epsilon=epsilon).fit_batch(points, [0])
    schedule = MSTKMeans(3, epsilon=epsilon).schedule(300, d)
    labels = [charge.label for charge in run.ledger.charges]
    expected = ["marginals", *["dependent_columns"] * (d - 1), *["marginals"] * (d > 1)]
    assert labels == expected
    assert run.ledger.charges[0].mu == pytest.approx(schedule.columns_mu, rel=1e-9)
    assert 0.999 * epsilon < run.ledger.spent() <= epsilon * (1 + 1e-9)


def test_one_column_takes_the_whole_budget():
    assert MSTKMeans(3).schedule(300, 1).columns_mu == gaussian_mu(1.0, 1e-6)


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=40),
    st.floats(0.1, 50),
)
def test_merged_intervals_reach_the_least_count(counts, least):
    counts = np.array(counts)
    starts = merge_intervals(counts, least)
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    totals = np.add.reduceat(counts, starts)
    if len(starts) > 1:
        assert (totals >= least * (1 - 1e-12)).all()
    # None could be cut once more at its first interval that reaches the count, but for the last.
    ends = np.append(starts[1:], len(counts))
    for start, end in list(zip(starts, ends, strict=True))[:-1]:
        assert counts[start : end - 1].sum() < least


def test_tables_agree_with_histogramdd():
    points = chain()
    column = exact_columns(points)[0]
    query = Marginals([(0,), (2, 1), (0, 1, 3)], [column.edges] * 4)
    (cells,) = query.exact(curator_of(points))["counts"]
    bins = np.concatenate([[-SCALE], column.edges, [SCALE + 1]])
    for columns, table in zip(query.column_sets, query.split(cells), strict=True):
        expected, _ = np.histogramdd(points[:, columns], [bins] * len(columns))
        assert (table == expected * SCALE).all()


def test_shards_and_null_records_do_not_change_tables():
    points = chain()
    edges = [np.array([0])] * 4
    query = Marginals([(0, 3)], edges)
    whole = query.exact(curator_of(points))["counts"]
    parts = query.exact(Curator([points[:7], points[7:]], None, NoiseStreams([0])))["counts"]
    assert (whole == parts).all()


def test_without_noise_the_tree_is_the_maximum_spanning_tree():
    points = chain()
    columns = exact_columns(points)
    pairs = list(itertools.combinations(range(4), 2))
    shares = [column.counts / len(points) for column in columns]
    query = DependentColumns(pairs, [column.edges for column in columns], shares)
    (scores,) = query.exact(curator_of(points))["choices"]

    def weight(tree):
        return sum(scores[pairs.index(pair)] for pair in tree)

    def spans(tree):
        reached = {0}
        for _ in tree:
            reached |= {h for pair in tree if reached & set(pair) for h in pair}
        return len(reached) == 4

    best = max(filter(spans, itertools.combinations(pairs, 3)), key=weight)
    chosen = select_tree(curator_of(points), columns, 1e6)
    assert sorted(chosen) == sorted(best) == [(0, 1), (1, 2), (2, 3)]


def test_records_follow_the_tables():
    """Counts of the drawn records are within six standard deviations of the tables'."""
    points = chain()
    columns = exact_columns(points)
    query = Marginals([(0, 1), (1, 2), (2, 3)], [column.edges for column in columns])
    (cells,) = query.exact(curator_of(points))["counts"]
    tables = dict(zip(query.column_sets, query.split(cells / SCALE), strict=True))
    n = 50_000
    records = draw_along_tree(columns, tables, n, np.random.default_rng(0))
    assert (np.abs(records) <= SCALE).all()
    drawn = query.split(query.exact(curator_of(np.rint(records).astype(np.int64)))["counts"][0])
    for table, counts in zip(tables.values(), drawn, strict=True):
        expected = table / len(points)
        deviation = np.sqrt(expected * (1 - expected) / n)
        assert (np.abs(counts / SCALE / n - expected) <= 6 * deviation + 1e-3).all()


def test_an_interval_without_records_in_its_table_falls_back_to_the_column():
    columns = exact_columns(chain(d=2))
    tables = {(0, 1): np.zeros((8, 8))}
    records = draw_along_tree(columns, tables, 2000, np.random.default_rng(0))
    edges = np.append(columns[1].edges, SCALE + 1)
    counts = np.bincount(np.searchsorted(edges, records[:, 1], side="right"), minlength=8)
    expected = columns[1].counts / columns[1].counts.sum()
    deviation = np.sqrt(2000 * expected * (1 - expected))
    assert (np.abs(counts - 2000 * expected) <= 6 * deviation + 1).all()


def test_separate_clusters_of_two_columns_are_found():
    rng = np.random.default_rng(0)
    middles = np.array([[-0.6, -0.6], [-0.6, 0.6], [0.6, 0.0]])
    points = snap(middles[rng.integers(3, size=20_000)] + rng.uniform(-0.1, 0.1, (20_000, 2)))
    private = nicv(points, MSTKMeans(3, epsilon=1.0).fit_batch(points, range(3)))
    assert private < 1.2 * nicv(points, KMeansPlusPlus(3, n_init=5).fit_batch(points, [0]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_init": 0}, "n_init=0 must be"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        MSTKMeans(3, **parameters).fit_batch(chain(100), [0])


def test_too_many_columns_are_refused_before_a_charge():
    points = np.zeros((10, 65), np.int64)
    with pytest.raises(ValueError, match="d=65 features are too many"):
        MSTKMeans(3).fit_batch(points, [0])


def test_noise_of_tables_has_the_scheduled_scale():
    run = MSTKMeans(3).fit_batch(chain(300, 5), [0])
    schedule = MSTKMeans(3).schedule(300, 5)
    scales = [charge.details["count_scale"] for charge in run.ledger.charges[::5]]
    expected = [math.sqrt(5) / schedule.columns_mu, math.sqrt(4) / schedule.table_mu]
    assert scales == pytest.approx(expected, rel=1e-6)
