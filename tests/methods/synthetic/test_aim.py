"""k-means on AIM's records: rounds, charges, refusals."""

import numpy as np
import pytest

from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.synthetic import aim
from pkm.methods.synthetic.aim import AIMKMeans, select_and_fit
from pkm.methods.synthetic.graphical_model import build_model, junction_tree
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


def curator_of(points, epsilon=1e12):
    return Curator(points, Ledger(Budget(epsilon, 0.5)), NoiseStreams([0]))


def dependent(n=3000, d=4, seed=0):
    """Points of which the third column is the product of the signs of the first two."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-0.9, 0.9, (n, d))
    if d > 2:
        points[:, 2] = np.abs(points[:, 2]) * np.sign(points[:, 0] * points[:, 1])
    return snap(points)


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
