"""What follows from a released synopsis, free of charge: k, rows, medians, a mixture."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

import pkm
from pkm.audit.pairs import draw_pairs
from pkm.audit.replay import replay
from pkm.audit.report import list_configurations
from pkm.methods import SynopsisKMeans
from pkm.methods.baselines.kmedian import weighted_kmedian
from pkm.methods.synthetic.released_synopsis import cost_curve, find_knee, spread_clusters
from pkm.methods.trees.leaves import Leaves
from pkm.privacy import SCALE

BOUNDS = [[-3.0, 0.0, 5.0, -1.0, -1.0, -1.0], [3.0, 0.2, 9.0, 1.0, 1.0, 1.0]]


def mixture(d, k=5, n=5000, seed=2):
    """Round clusters of several sizes in the bounds of the first d columns, and their centers."""
    rng = np.random.default_rng(seed)
    lower, upper = np.array(BOUNDS)[:, :d]
    centers = rng.uniform(-0.8, 0.8, (k, d))
    labels = rng.choice(k, n, p=rng.dirichlet(np.full(k, 8.0)))
    unit = np.clip(centers[labels] + 0.06 * rng.standard_normal((n, d)), -1, 1)
    return (unit + 1) / 2 * (upper - lower) + lower


def fit(d, **parameters):
    bounds = np.array(BOUNDS)[:, :d]
    given = {"n_clusters": 5, "epsilon": 1.0, "random_state": 3, **parameters}
    return SynopsisKMeans(bounds=bounds, **given).fit(mixture(d))


@pytest.fixture(scope="module", params=[2, 6])
def fitted(request):
    """Models of both kinds of synopsis, in columns of unequal widths."""
    return fit(request.param), mixture(request.param)


def inertia(model, X, centers):
    """Cost of centers in squared half-widths, as the model weighs the columns."""
    half_width = np.diff(model._fitted_bounds, axis=0)[0] / 2
    return (cdist(X / half_width, centers / half_width) ** 2).min(axis=1).sum()


# The curve and its knee


def cheapest(points, k):
    """Cost of the best clustering of sorted numbers, whose clusters are intervals."""
    costs = []
    for cuts in itertools.combinations(range(1, len(points)), k - 1):
        parts = np.split(points, cuts)
        costs.append(sum(((part - part.mean()) ** 2).sum() for part in parts))
    return min(costs)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=3, max_size=9, unique=True))
def test_a_curve_is_at_least_the_best_cost_and_does_not_rise(positions):
    points = np.sort(np.array(positions, np.float64))
    m = len(points)
    costs = cost_curve(Leaves(points[:, None], np.zeros(m), np.ones(m)), m + 2, m)
    best = np.array([cheapest(points, k) for k in range(1, m + 1)])
    assert (costs[:m] >= best * (1 - 1e-9) - 1e-3).all()
    assert (np.diff(costs) <= 0).all()
    assert costs[0] == pytest.approx(best[0])
    assert costs[m - 1 :].tolist() == [0.0, 0.0, 0.0]


def test_a_weight_is_as_many_points_and_records_spread_over_a_leaf():
    rng = np.random.default_rng(0)
    points = np.repeat(rng.uniform(-1, 1, (4, 3)), 3, axis=0) + 0.01 * rng.random((12, 3))
    weights = rng.integers(1, 5, 12)
    copies = np.repeat(points, weights, axis=0)
    n = len(copies)
    weighted = cost_curve(Leaves(points, np.zeros(12), weights.astype(float)), 4, n)
    copied = cost_curve(Leaves(copies, np.zeros(n), np.ones(n)), 4, n)
    np.testing.assert_allclose(weighted, copied)
    # A cube of side s has the variance s^2 / 12 in each of three columns.
    wide = cost_curve(Leaves(points, np.full(12, 2.0), weights.astype(float)), 4, 2 * n)
    np.testing.assert_allclose(wide, 2 * (weighted + n * 3 * 4 / 12))


@given(st.integers(3, 60), st.floats(0.1, 4.0), st.floats(1e-9, 1e9), st.data())
def test_the_knee_is_where_cost_falls_faster_than_without_clusters(most, power, unit, data):
    k = data.draw(st.integers(2, most - 1))
    costs = unit * np.arange(1, most + 1) ** -power
    costs[k - 1 :] /= 2
    assert find_knee(costs) == k
    assert find_knee(np.full(most, unit)) == 1
    assert find_knee(np.zeros(most)) == 1


def test_clusters_have_the_weights_of_their_candidates():
    points = np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0]])
    candidates = Leaves(points, np.ones(3), np.array([3.0, 1.0, 4.0]))
    centers = np.array([[0.0, 0.0], [9.0, 9.0], [50.0, 50.0]])
    clusters = spread_clusters(candidates, centers, 6.0)
    assert clusters.midpoints.tolist() == centers[:2].tolist()
    assert clusters.weights.tolist() == [4.0, 4.0]
    assert clusters.spread.tolist() == pytest.approx([6.0, 6.0])
    # Twice the mean square of the candidates, 4 for one of eight records.
    assert spread_clusters(candidates, centers, 0.0).spread.tolist() == pytest.approx([1.0, 1.0])


# The number of clusters


@pytest.mark.parametrize(("n", "d"), [(500, 2), (30_000, 2), (500, 6), (30_000, 6)])
def test_the_schedule_is_that_of_the_largest_number(n, d):
    auto = SynopsisKMeans("auto", max_clusters=12)
    assert auto.schedule(n, d) == SynopsisKMeans(12).schedule(n, d)
    assert auto.zoom_plan(n, d) == SynopsisKMeans(12).zoom_plan(n, d)


@pytest.mark.parametrize("d", [2, 6])
def test_k_is_the_knee_of_the_curve(d):
    model = fit(d, n_clusters="auto", epsilon=2.0)
    assert model.n_clusters_ == len(model.cluster_centers_) == find_knee(model.cost_curve_) == 5
    assert model.cost_curve_.shape == (20,)
    # The charges are those of the largest number, whatever the knee.
    charges = fit(d, n_clusters=20, epsilon=2.0).ledger_.charges
    assert [charge.cost for charge in model.ledger_.charges] == [charge.cost for charge in charges]


def test_a_curve_is_in_squared_half_widths_of_the_bounds():
    """The mean costs the variance of the points, which a synopsis of many records knows."""
    X = mixture(2)
    for zoom in (None, 0.1):
        model = fit(2, n_clusters="auto", epsilon=20.0, zoom=zoom)
        assert model.cost_curve_[0] == pytest.approx(
            inertia(model, X, X.mean(axis=0)[None]), rel=0.02
        )
        assert model.cost_curve_[4] == pytest.approx(-model.score(X), rel=0.1)


def test_a_curve_is_of_the_last_fit():
    model = fit(2, n_clusters="auto", max_clusters=6)
    model.set_params(n_clusters=3).fit(mixture(2))
    assert (model.n_clusters_, hasattr(model, "cost_curve_")) == (3, False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": "elbow"}, "n_clusters='elbow' must be 'auto' or an integer of at least 1"),
        ({"max_clusters": 2}, "max_clusters=2 must be an integer of at least 3"),
        ({"n_clusters": "auto"}, "max_clusters=20 must be at most the number of points n=19"),
        ({"n_clusters": 20}, "n_clusters=20 must be at most the number of points n=19"),
    ],
)
def test_bad_numbers_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        SynopsisKMeans(**parameters).check_parameters(19)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 6])
def test_replays_of_the_choice_are_clean(d):
    """Neighbors with the same releases have the same k, curve and synopsis, to the bit."""
    method = SynopsisKMeans("auto", max_clusters=4, epsilon=8.0)
    for number, pair in enumerate(draw_pairs("zero_out", 10, d, n_points=(40, 60))):
        outcome = replay(method, pair, number)
        assert not outcome.mismatch
        assert outcome.refusal is None
        assert all(each.ratio <= 1 + 1e-9 for each in outcome.realized)


def test_an_audit_leaves_the_choice_to_the_method():
    audited = list_configurations(SynopsisKMeans("auto", max_clusters=4), 5)
    assert {method.n_clusters for method in audited} == {"auto"}


# Rows, medians and a mixture


def test_answers_from_a_synopsis_read_and_charge_nothing(fitted, tmp_path):
    """A model without data has the same ones, and the ledger stays as it is."""
    model, _ = fitted
    charges = model.ledger_.charges
    model.save(tmp_path / "model")
    loaded = pkm.load(tmp_path / "model")
    np.testing.assert_array_equal(model.sample(50, 1), loaded.sample(50, 1))
    np.testing.assert_array_equal(model.k_medians(), loaded.k_medians())
    means = [each.gaussian_mixture().means_ for each in (model, loaded)]
    np.testing.assert_array_equal(*means)
    assert model.ledger_.charges == charges


def test_rows_have_the_moments_of_the_boxes(fitted):
    model, _ = fitted
    boxes, weights = model.synopsis_, model.synopsis_["weight"]
    rows = model.sample(40_000, random_state=0)
    lower, upper = model._fitted_bounds
    assert ((lower <= rows) & (rows <= upper)).all()
    mean = np.average(boxes["center"], axis=0, weights=weights)
    square = (boxes["center"] - mean) ** 2 + boxes["sides"] ** 2 / 12
    variance = np.average(square, axis=0, weights=weights)
    # Six standard deviations: of a mean, and of a variance of bounded rows.
    assert (np.abs(rows.mean(axis=0) - mean) < 6 * np.sqrt(variance / 40_000)).all()
    np.testing.assert_allclose(rows.var(axis=0), variance, rtol=0.05)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert not np.array_equal(model.sample(5), model.sample(5))


def test_k_means_on_rows_costs_about_what_the_centers_do(fitted):
    model, X = fitted
    half_width = np.diff(model._fitted_bounds, axis=0)[0] / 2
    rows = model.sample(5000, random_state=0) / half_width
    centers = KMeans(5, n_init=3, random_state=0).fit(rows).cluster_centers_ * half_width
    assert inertia(model, X, centers) < 1.05 * inertia(model, X, model.cluster_centers_)


def test_medians_cost_about_those_without_privacy(fitted):
    model, X = fitted
    half_width = np.diff(model._fitted_bounds, axis=0)[0] / 2
    unit = X / half_width
    best = weighted_kmedian(unit * SCALE, np.ones(len(X)), 5, 3, 0) / SCALE
    medians = model.k_medians() / half_width
    assert cdist(unit, medians).min(axis=1).sum() < 1.1 * cdist(unit, best).min(axis=1).sum()


def test_from_four_columns_on_the_medians_are_the_centers():
    model = fit(6)
    np.testing.assert_array_equal(model.k_medians(), model.cluster_centers_)


def test_medians_cost_less_than_the_centers_on_the_synopsis():
    model = fit(2)
    half_width = np.diff(model._fitted_bounds, axis=0)[0] / 2
    costs = []
    for centers in (model.k_medians(), model.cluster_centers_):
        distances = cdist(model.synopsis_["center"] / half_width, centers / half_width)
        costs.append(distances.min(axis=1) @ model.synopsis_["weight"])
    assert costs[0] < costs[1]


def test_a_mixture_is_in_the_units_of_the_rows(fitted):
    model, X = fitted
    found = model.gaussian_mixture()
    deviations = np.sqrt(found.covariances_)[:, None]
    densities = norm.logpdf(X, found.means_[:, None], deviations).sum(axis=2)
    expected = np.logaddexp.reduce(np.log(found.weights_)[:, None] + densities, axis=0)
    np.testing.assert_allclose(found.score_samples(X), expected)
    np.testing.assert_allclose(found.precisions_ * found.covariances_, 1.0)


def test_a_mixture_keeps_most_of_the_likelihood(fitted):
    """Of what a mixture without privacy gains over one normal distribution."""
    model, X = fitted
    widths = np.diff(model._fitted_bounds, axis=0)[0]
    scaled = X / widths
    scores = []
    for k in (1, 5):
        exact = GaussianMixture(k, covariance_type="diag", random_state=0).fit(scaled)
        scores.append(exact.score(scaled))
    score = model.gaussian_mixture().score(X) + np.log(widths).sum()
    assert score > scores[0] + 0.85 * (scores[1] - scores[0])


@pytest.mark.parametrize("n", [0, 2.0, True, "many"])
def test_bad_numbers_of_rows_are_refused(fitted, n):
    with pytest.raises(ValueError, match=f"n={n!r} must be an integer of at least 1"):
        fitted[0].sample(n)


@pytest.mark.parametrize(
    "call", [lambda m: m.sample(3), lambda m: m.k_medians(), lambda m: m.gaussian_mixture()]
)
def test_a_model_that_is_not_fitted_has_no_synopsis(call):
    with pytest.raises(NotFittedError):
        call(SynopsisKMeans())


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_hardly_any_budget_leaves_answers(d):
    X = np.random.default_rng(0).uniform(-1, 1, (60, d))
    model = SynopsisKMeans("auto", epsilon=0.01, bounds=(-1, 1), random_state=0).fit(X)
    assert 1 <= model.n_clusters_ < 20
    assert np.isfinite(model.sample(10)).all()
    assert np.isfinite(model.k_medians()).all()
    assert np.isfinite(model.cost_curve_).all()
