"""k-means on AIM's records: inference on junction trees, fits to tables, rounds, charges."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.synthetic import aim
from pkm.methods.synthetic.aim import AIMKMeans, select_and_fit
from pkm.methods.synthetic.graphical_model import (
    Measurement,
    build_model,
    evaluate_loss,
    fit_model,
    junction_tree,
)
from pkm.methods.synthetic.mst import measure_columns
from pkm.metrics import evaluate
from pkm.privacy import (
    SCALE,
    Budget,
    Curator,
    Ledger,
    NoiseStreams,
    WorstApproximated,
    gaussian_mu,
    snap,
)

SHAPE = (3, 4, 2, 3, 2)
ALL_TABLES = [
    columns
    for m in range(1, len(SHAPE) + 1)
    for columns in itertools.combinations(range(len(SHAPE)), m)
]
SMALL_TABLES = [columns for columns in ALL_TABLES if len(columns) <= 3]
CYCLE = [(0, 1), (1, 2), (2, 3), (0, 3)]
some_tables = st.lists(st.sampled_from(SMALL_TABLES), min_size=1, max_size=6, unique=True)


def sizes(columns, shape=SHAPE):
    return [shape[h] for h in columns]


def spread(table, columns):
    """A table with an axis of length 1 for every other column."""
    lengths = iter(table.shape)
    return table.reshape([next(lengths) if h in columns else 1 for h in range(len(SHAPE))])


def summed(joint, columns):
    return joint.sum(axis=tuple(h for h in range(joint.ndim) if h not in columns))


def joint_of(factors, total):
    """All cells of a product of factors, one by one."""
    logarithms = np.zeros(SHAPE)
    for columns, factor in factors.items():
        logarithms = logarithms + spread(factor, columns)
    weights = np.exp(logarithms)
    return total * weights / weights.sum()


def random_factors(tables, seed=0):
    rng = np.random.default_rng(seed)
    return {columns: rng.normal(0, 2, sizes(columns)) for columns in tables}


def noisy_measurements(tables, seed=0, total=300, stddev=4.0):
    """Tables of records of a random distribution, with noise."""
    rng = np.random.default_rng(seed)
    joint = rng.multinomial(total, rng.dirichlet(np.full(math.prod(SHAPE), 0.3))).reshape(SHAPE)
    measurements = []
    for i, columns in enumerate(tables):
        scale = stddev * (1 + i % 2)
        counts = summed(joint, columns) + rng.normal(0, scale, sizes(columns))
        measurements.append(Measurement(columns, counts, scale))
    return measurements


def least_loss(measurements, total):
    """Least loss over all joint tables: a problem of least squares without negative cells."""
    rows = []
    values = []
    for measured in measurements:
        cells = np.arange(measured.counts.size).reshape(measured.counts.shape)
        cell_of = np.broadcast_to(spread(cells, measured.columns), SHAPE).ravel()
        indicator = cell_of == np.arange(measured.counts.size)[:, None]
        rows.append(indicator / measured.stddev)
        values.append(measured.counts.ravel() / measured.stddev)
    # The total is exact: its row has a weight that leaves no room.
    weight = 1e4
    matrix = np.vstack([*rows, np.full((1, math.prod(SHAPE)), weight)])
    target = np.concatenate([*values, [weight * total]])
    cells, _ = nnls(matrix, target, maxiter=100_000)
    assert cells.sum() == pytest.approx(total, rel=1e-6)
    residual = np.vstack(rows) @ cells - np.concatenate(values)
    return 0.5 * float(residual @ residual)


def curator_of(points, epsilon=1e12):
    return Curator(points, Ledger(Budget(epsilon, 0.5)), NoiseStreams([0]))


def dependent(n=3000, d=4, seed=0):
    """Points of which the third column is the product of the signs of the first two."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-0.9, 0.9, (n, d))
    if d > 2:
        points[:, 2] = np.abs(points[:, 2]) * np.sign(points[:, 0] * points[:, 1])
    return snap(points)


# Junction trees


@settings(deadline=None)
@given(some_tables)
def test_a_junction_tree_has_every_table_and_the_running_intersection(tables):
    tree = junction_tree(SHAPE, tables)
    assert {h for clique in tree.cliques for h in clique} == set(range(len(SHAPE)))
    assert all(tree.find_clique(columns) is not None for columns in tables)
    assert tree.n_cells == sum(math.prod(sizes(clique)) for clique in tree.cliques)
    for i, clique in enumerate(tree.cliques[1:], start=1):
        assert tree.parents[i] < i
        # What a clique shares with any that comes before it, it shares with its parent.
        before = {h for other in tree.cliques[:i] for h in other}
        assert set(clique) & before == set(tree.separators[i])
        assert not any(set(clique) < set(other) for other in tree.cliques)


def test_a_tree_of_pairs_needs_no_larger_clique():
    tree = junction_tree(SHAPE, [(0, 1), (1, 2), (1, 3), (3, 4)])
    assert sorted(tree.cliques) == [(0, 1), (1, 2), (1, 3), (3, 4)]


# Inference


@pytest.mark.slow
@settings(deadline=None)
@given(some_tables, st.integers(0, 99))
def test_every_marginal_is_that_of_the_joint_table(tables, seed):
    factors = random_factors(tables, seed)
    model = build_model(junction_tree(SHAPE, tables), factors, 50.0)
    joint = joint_of(factors, 50.0)
    for columns in ALL_TABLES:
        assert model.marginal(columns) == pytest.approx(summed(joint, columns), rel=1e-10)


@pytest.mark.slow
@given(st.permutations(range(len(SHAPE))))
def test_the_order_of_columns_does_not_matter(order):
    tables = [*CYCLE, (1, 4)]
    factors = random_factors(tables)
    model = build_model(junction_tree(SHAPE, tables), factors, 50.0)
    # Column h of the model is column position[h] of the other.
    position = np.argsort(order)
    shape = tuple(SHAPE[h] for h in order)

    def moved(columns, table):
        places = [int(position[h]) for h in columns]
        return tuple(sorted(places)), table.transpose(np.argsort(places))

    other_factors = dict(moved(columns, factor) for columns, factor in factors.items())
    other = build_model(junction_tree(shape, other_factors), other_factors, 50.0)
    for columns in ALL_TABLES:
        places, expected = moved(columns, model.marginal(columns))
        assert other.marginal(places) == pytest.approx(expected, rel=1e-10)


def test_factors_that_are_far_apart_do_not_overflow():
    factors = {(0, 1): np.zeros((3, 4)), (1, 2): np.zeros((4, 2))}
    factors[0, 1][0, 0] = 5000.0
    factors[1, 2][0, 0] = -5000.0
    model = build_model(junction_tree(SHAPE, factors), factors, 10.0)
    assert model.marginal((0, 1, 2))[0, 0] == pytest.approx([0.0, 10.0])


def test_a_factor_outside_of_all_cliques_is_refused():
    with pytest.raises(ValueError, match=r"columns=\(0, 2\) of a factor must be in a clique"):
        build_model(junction_tree(SHAPE, [(0, 1)]), {(0, 2): np.zeros((3, 2))}, 1.0)


@pytest.mark.statistical
def test_drawn_records_follow_the_model():
    """Each of the 132 cells is within 6 standard deviations: P(alarm) < 3e-7."""
    tables = [*CYCLE, (1, 4)]
    factors = random_factors(tables)
    n = 200_000
    model = build_model(junction_tree(SHAPE, tables), factors, float(n))
    records = model.draw(n, np.random.default_rng(0))
    counts = np.zeros(SHAPE)
    np.add.at(counts, tuple(records.T), 1)
    for columns in [*CYCLE, (0, 2), (3, 4), (0, 1, 4)]:
        expected = summed(joint_of(factors, float(n)), columns)
        deviation = np.sqrt(expected * (1 - expected / n))
        assert (np.abs(summed(counts, columns) - expected) <= 6 * deviation + 6).all()


# The fit


@pytest.mark.parametrize(
    "tables",
    [[(0,), (1, 2)], CYCLE, [(0, 1, 2), (2, 3), (1, 4)], [(0, 1), (0, 1), (1, 2)]],
    ids=["disjoint", "cycle", "three columns", "measured twice"],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_reaches_the_least_loss(tables, seed):
    measurements = noisy_measurements(tables, seed)
    expected = least_loss(measurements, 300.0)
    model = fit_model(SHAPE, 300.0, measurements, n_steps=20_000, tolerance=1e-9)
    # Cells that are zero at the optimum are reached in the limit only.
    assert expected - 1e-6 <= evaluate_loss(model, measurements).loss <= expected * 1.001 + 1e-3


@pytest.mark.slow
def test_consistent_tables_of_a_tree_are_fitted_exactly():
    """Of tables without noise along a tree the model is their product over shared columns."""
    tables = [(0, 1), (1, 2), (1, 3)]
    joint = joint_of(random_factors([(0, 1), (1, 2), (1, 3), (3, 4)]), 100.0)
    measurements = [Measurement(columns, summed(joint, columns), 0.1) for columns in tables]
    model = fit_model(SHAPE, 100.0, measurements, n_steps=20_000, tolerance=1e-12)
    for columns in tables:
        assert model.marginal(columns) == pytest.approx(summed(joint, columns), abs=0.01)
    shared = summed(joint, (1,))
    ends = summed(joint, (0, 1))[:, :, None] * summed(joint, (1, 2))[None]
    expected = (ends / shared[None, :, None]).sum(axis=1)
    assert model.marginal((0, 2)) == pytest.approx(expected, abs=0.02)
    # A column that was not measured is uniform: no distribution of that loss has more entropy.
    assert model.marginal((4,)) == pytest.approx([50.0, 50.0])


def test_a_fit_that_starts_from_its_end_stays_there():
    measurements = noisy_measurements(CYCLE)
    model = fit_model(SHAPE, 300.0, measurements, n_steps=5000, tolerance=0.0)
    again = fit_model(SHAPE, 300.0, measurements, model.factors, n_steps=10)
    assert evaluate_loss(again, measurements).loss <= evaluate_loss(model, measurements).loss
    for columns in CYCLE:
        assert again.marginal(columns) == pytest.approx(model.marginal(columns), abs=0.1)


def test_more_steps_never_raise_the_loss():
    measurements = noisy_measurements([(0, 1, 2), (2, 3, 4), (0, 4)])
    losses = [
        evaluate_loss(
            fit_model(SHAPE, 300.0, measurements, n_steps=m, tolerance=0.0), measurements
        ).loss
        for m in (0, 1, 2, 5, 20, 80)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.1 * losses[0]


# The rounds


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_schedule_spends_the_budget_and_no_more(d, epsilon):
    run = AIMKMeans(3, epsilon=epsilon).fit_batch(dependent(300, d), [0])
    schedule = AIMKMeans(3, epsilon=epsilon).schedule(300, d)
    assert schedule.n_rounds == min(d * (d - 1) // 2, 2 * d - 2)
    labels = [charge.label for charge in run.ledger.charges]
    assert labels == ["marginals", *["worst_approximated", "marginals"] * schedule.n_rounds]
    assert run.ledger.charges[0].mu == pytest.approx(schedule.columns_mu, rel=1e-9)
    for charge in run.ledger.charges[1::2]:
        assert charge.epsilon == pytest.approx(schedule.choice_epsilon, rel=1e-9)
    for charge in run.ledger.charges[2::2]:
        assert charge.mu == pytest.approx(schedule.table_mu, rel=1e-9)
    assert 0.999 * epsilon < run.ledger.spent() <= epsilon * (1 + 1e-9)


def test_one_column_takes_the_whole_budget():
    assert AIMKMeans(3).schedule(300, 1).columns_mu == gaussian_mu(1.0, 1e-6)


def test_charges_are_the_same_for_all_data():
    costs = []
    for points in (
        dependent(),
        np.zeros((3000, 4), np.int64),
        snap(np.eye(4)[np.arange(3000) % 4]),
    ):
        run = AIMKMeans(3).fit_batch(points, [0])
        costs.append([(charge.label, charge.mu, charge.epsilon) for charge in run.ledger.charges])
    assert costs[0] == costs[1] == costs[2]


def test_scores_are_weighted_errors_less_the_offsets():
    points = dependent(500)
    rng = np.random.default_rng(0)
    edges = [np.array([-20_000, 0, 30_000])] * 4
    tables = [(0,), (1, 3), (0, 1, 2)]
    expected = [rng.dirichlet(np.ones(4 ** len(h))).reshape([4] * len(h)) * 500 for h in tables]
    query = WorstApproximated(tables, edges, expected, [1, 2, 3], [0.5, 10.0, 99.0])
    (scores,) = query.exact(curator_of(points))["choices"]
    bins = [-SCALE, -20_000, 0, 30_000, SCALE + 1]
    for columns, model, weight, offset, score in zip(
        tables, expected, [1, 2, 3], [0.5, 10.0, 99.0], scores, strict=True
    ):
        table, _ = np.histogramdd(points[:, columns], [bins] * len(columns))
        error = np.abs(table - model).sum() - offset
        assert score == pytest.approx(weight * error, abs=weight * table.size / SCALE)


def test_without_noise_the_model_learns_a_dependence_of_three_columns():
    """No pair of the columns tells anything; only the table of all three does."""
    points = dependent(20_000)
    curator = curator_of(points)
    schedule = AIMKMeans(3, epsilon=1e6, delta=0.1).schedule(20_000, 4)
    columns = measure_columns(curator, schedule.columns_mu, 4)
    model = select_and_fit(curator, columns, schedule)
    shape = [len(column.starts) for column in columns]
    edges = [np.concatenate([[-SCALE], column.edges, [SCALE + 1]]) for column in columns]
    expected, _ = np.histogramdd(points[:, :3], edges[:3])
    error = np.abs(model.marginal((0, 1, 2)) - expected).sum() / len(points)
    independent = build_model(junction_tree(shape, []), {}, float(len(points)))
    assert error < 0.1 * np.abs(independent.marginal((0, 1, 2)) - expected).sum() / len(points)


def test_the_model_keeps_to_its_limit(monkeypatch):
    monkeypatch.setattr(aim, "MAX_CELLS", 400)
    points = dependent(5000, 6)
    curator = curator_of(points)
    schedule = AIMKMeans(3, epsilon=100.0).schedule(5000, 6)
    columns = measure_columns(curator, schedule.columns_mu, 8)
    start = sum(len(column.starts) for column in columns)
    assert start < select_and_fit(curator, columns, schedule).tree.n_cells <= 400


def test_separate_clusters_of_two_columns_are_found():
    rng = np.random.default_rng(0)
    middles = np.array([[-0.6, -0.6], [-0.6, 0.6], [0.6, 0.0]])
    points = snap(middles[rng.integers(3, size=20_000)] + rng.uniform(-0.1, 0.1, (20_000, 2)))

    def nicv(run):
        return evaluate(points, run.centers, ["nicv"])["nicv"].mean()

    private = nicv(AIMKMeans(3, epsilon=1.0).fit_batch(points, range(3)))
    assert private < 1.3 * nicv(KMeansPlusPlus(3, n_init=5).fit_batch(points, [0]))


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
        AIMKMeans(3, **parameters).fit_batch(dependent(100), [0])


def test_too_many_columns_are_refused_before_a_charge():
    with pytest.raises(ValueError, match=r"d=17 features are too many.*MSTKMeans"):
        AIMKMeans(3).fit_batch(np.zeros((10, 17), np.int64), [0])
