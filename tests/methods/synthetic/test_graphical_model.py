"""Graphical models: junction trees, inference against the joint table, fits to tables."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from pkm.methods.synthetic.graphical_model import (
    Measurement,
    build_model,
    evaluate_loss,
    fit_model,
    junction_tree,
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
