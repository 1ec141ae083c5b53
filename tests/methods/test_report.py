"""Reports on released clusters: exact without noise, within the budget, intervals that hold."""

import math
import pickle

import numpy as np
import pytest
from estimators import blobs
from scipy import integrate, stats
from scipy.spatial.distance import cdist
from sklearn.base import clone

from pkm.methods import (
    DistDP,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    Lloyd,
    LocalMean,
    QuadtreeKMeans,
    SuLloyd,
    SynopsisKMeans,
)
from pkm.methods.report import CONFIDENCE, REPORTED, _laplace_tails, bound_means, plan_report
from pkm.privacy import (
    SCALE,
    Budget,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    PrivacyAccountant,
    gaussian_mu,
    snap,
)

BOUNDS = [[-3.0, -2.0], [1.5, 2.0]]
HUGE = 1e15  # noise is 0 after rounding
METHODS = {
    "gaussian": FastLloyd(4, bounds=BOUNDS, random_state=5, report=0.1),
    "pure": SuLloyd(3, bounds=BOUNDS, random_state=5, report=0.1),
    "ball": SynopsisKMeans(3, bounds=(-50, 50), random_state=5, report=0.1),
    "cube": GLloyd(4, bounds=(-50, 50), zoom=0.1, random_state=5, report=0.1),
    "auto": SynopsisKMeans(
        "auto", max_clusters=6, bounds=BOUNDS, random_state=5, zoom=None, report=0.1
    ),
    "secret n": QuadtreeKMeans(3, bounds=BOUNDS, report=0.1, adjacency="add_remove"),
}


def reported(model):
    return {name: pickle.dumps(getattr(model, name)) for name in REPORTED}


# Without noise: the definitions, by brute force


@pytest.mark.slow
@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_without_noise_a_report_is_exact(name, weighs):
    """Sizes are those of ``predict``; the rest in numpy, in half-widths of the bounds."""
    X = blobs(3000)
    X[:9] *= 1.4
    groups = np.arange(len(X)) // 3 if weighs else None
    weights = 1 / 3 if weighs else 1.0
    model = clone(METHODS[name]).set_params(epsilon=HUGE).fit(X, groups=groups)
    middle, half_width = np.mean(model._fitted_bounds, axis=0), np.ptp(model._fitted_bounds, 0) / 2
    labels = model.predict(X)
    centers = model.cluster_centers_
    sizes = weights * np.bincount(labels, minlength=len(centers))
    # A third of a record is rounded down to 2^-16; labels next to borders may differ.
    np.testing.assert_allclose(model.cluster_sizes_, sizes, atol=1 + 1e-2)
    np.testing.assert_allclose(np.diff(model.cluster_sizes_interval_), 0, atol=1e-5)

    rows = (np.clip(X, *model._fitted_bounds) - middle) / half_width
    offsets = rows - ((centers - middle) / half_width)[labels]
    lengths = np.linalg.norm(offsets, axis=1)
    limit = model.cost_limit_
    assert 0 < np.count_nonzero(lengths > limit) <= 0.011 * len(X)
    assert weights * np.count_nonzero(lengths > limit) == pytest.approx(model.n_beyond_, abs=0.4)
    cost = weights * np.minimum(lengths, limit) @ np.minimum(lengths, limit)
    assert model.cost_ == pytest.approx(cost, rel=1e-3)
    assert cost <= -model.score(X)

    clipped = offsets * np.minimum(1, limit / lengths)[:, None]
    edges = model.profile_.edges
    np.testing.assert_allclose(edges[:, [0, -1]].T, model.domain_, atol=1e-9)
    for j in np.flatnonzero(sizes > 1):
        mean = centers[j] + half_width * clipped[labels == j].mean(axis=0)
        np.testing.assert_allclose(model.centers_interval_[j].T, [mean, mean], atol=2e-3)
        for h in range(2):
            inner = np.searchsorted(edges[h, 1:-1], X[labels == j, h], side="right")
            counts = weights * np.bincount(inner, minlength=edges.shape[1] - 1)
            np.testing.assert_allclose(model.profile_.counts[j, h], counts, atol=1.5)
    assert model.profile_.is_visible.tolist() == (sizes > 0).tolist()


def test_far_centers_and_records_are_in_the_report():
    """A domain that was compressed leaves out two groups of 0.4 %: they have sizes and means."""
    rng = np.random.default_rng(3)
    X = 0.3 * blobs(20_000, 3)
    X[:80] = 20 + 0.01 * rng.standard_normal((80, 3))
    X[80:160] = -20 + 0.01 * rng.standard_normal((80, 3))
    model = SynopsisKMeans(6, epsilon=100.0, bounds=(-1e4, 1e4), random_state=0, report=0.1).fit(X)
    assert np.ptp(model.domain_, axis=0).max() < 4
    far = np.abs(model.cluster_centers_).min(axis=1) > 19
    assert far.sum() == 2
    np.testing.assert_allclose(model.cluster_sizes_[far], 80, atol=model.min_visible_size_)
    sides = np.sign(model.cluster_centers_[far])
    np.testing.assert_allclose(model.centers_interval_[far].mean(axis=2), 20 * sides, atol=0.05)


# The run


@pytest.mark.parametrize("name", METHODS)
def test_a_report_takes_its_share_and_comes_last(name):
    model = clone(METHODS[name]).set_params(epsilon=4.0).fit(blobs(3000))
    *_, radius, summary = model.ledger_.charges
    assert (radius.label, summary.label) == ("nearest_shells", "cluster_summary")
    whole = 0.98 if name == "secret n" else 1.0
    if radius.mechanism == "laplace":
        assert radius.epsilon + summary.epsilon == pytest.approx(0.1 * whole * 4.0)
    else:
        share = math.hypot(radius.mu, summary.mu) ** 2
        assert share == pytest.approx(0.1 * gaussian_mu(4.0, model.resolved_delta(3000)) ** 2)
    assert 0.99 * 4.0 <= model.ledger_.spent() <= 4.0 * (1 + 1e-9)
    assert "cluster_summary" in model.statement().to_markdown()


def test_an_account_pays_for_the_report():
    X = blobs(3000)
    account = PrivacyAccountant(Budget(1.0, 1e-6))
    model = clone(METHODS["ball"]).set_params(random_state=None).fit(X, account=account)
    pairs = zip(account.runs[0].schedule, model.ledger_.charges, strict=True)
    assert all(planned.matches(charge) for planned, charge in pairs)


def test_noise_is_gaussian_beside_other_gaussian_noise():
    """A synopsis in two columns is pure but for its zoom."""
    for zoom, mechanism in ((None, "laplace"), (0.1, "gaussian")):
        model = SynopsisKMeans(3, bounds=(-9, 9), zoom=zoom, report=0.2)
        schedule = model.planned_run(20_000, 2, [0]).schedule
        assert schedule[-1].mechanism == mechanism
    assert not any(charge.mu for charge in SuLloyd(3, report=0.1).planned_run(99, 2, [0]).schedule)


@pytest.mark.parametrize("name", ["gaussian", "ball"])
def test_replicates_splits_and_orders_change_no_bit(name):
    X = snap(blobs(2000))
    method = METHODS[name]

    def run(points, seeds):
        return method.fit_batch(points, seeds, secure=False).reports

    whole = run(X, [0, 1])
    assert len(whole) == 2
    for reports in (
        run(X, [1]),
        run(np.random.default_rng(0).permutation(X), [1]),
        run([X[:7], X[7:]], [1]),
    ):
        assert pickle.dumps(reports[-1]) == pickle.dumps(whole[1])


def test_blocks_of_a_file_give_the_report_of_the_array(tmp_path):
    X = blobs(2000)
    np.save(tmp_path / "X.npy", X)
    for name in ("gaussian", "ball"):
        whole = reported(clone(METHODS[name]).fit(X))
        assert reported(clone(METHODS[name]).fit(tmp_path / "X.npy")) == whole


def test_without_a_report_there_is_none():
    """Nor after a fit that had one; and the result is that of methods before reports."""
    X = blobs(500)
    model = clone(METHODS["gaussian"]).fit(X)
    assert all(hasattr(model, name) for name in REPORTED)
    centers = model.cluster_centers_
    model.set_params(report=0.0).fit(X)
    assert not any(hasattr(model, name) for name in REPORTED)
    plain = clone(model).set_params(report=None).fit(X)
    np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)
    assert (centers != plain.cluster_centers_).all()  # other noise


# Errors


@pytest.mark.slow
@pytest.mark.parametrize("scales", [(2.0, 0.5), (2.0, 2.0), (2.0, 5.0)])
def test_tails_of_two_laplace_variables(scales):
    a, b = scales
    for distance in (0.0, 0.3, 4.0, 30.0):

        def density(x, distance=distance):
            tails = stats.laplace.sf(distance - x, scale=b) + stats.laplace.cdf(
                -distance - x, scale=b
            )
            return stats.laplace.pdf(x, scale=a) * tails

        expected, _ = integrate.quad(density, -200, 200, points=[0, distance, -distance], limit=200)
        found = _laplace_tails(np.array([distance]), a, np.array([b]))
        assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("kind", [Gaussian, Laplace])
@pytest.mark.parametrize(("size", "excess"), [(200.0, 0.002), (20.0, 0.02)])
def test_intervals_of_means_hold_together(kind, size, excess):
    """Within five standard errors of 95 %, and more often where means are far from the center."""
    rng = np.random.default_rng(0)
    n_runs = 20_000
    draw = {Gaussian: rng.normal, Laplace: rng.laplace}[kind]
    means = np.array([0.1, -0.7, 0.0])
    sums = size * means + draw(0, 3.0, (n_runs, 3))
    counts = size + draw(0, 4.0, n_runs)
    intervals = bound_means(sums, counts, kind(3.0), kind(4.0), CONFIDENCE ** (1 / 3))
    low, high = np.moveaxis(intervals, 2, 0)
    held = ((low <= means) & (means <= high)).all(axis=1).mean()
    error = 5 * math.sqrt(0.05 * 0.95 / n_runs)
    assert CONFIDENCE - error < held < CONFIDENCE + excess + error


@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_a_count_that_may_be_zero_bounds_nothing(kind):
    sums = np.array([[5.0], [5.0]])
    intervals = bound_means(sums, np.array([7.0, 99.0]), kind(3.0), kind(4.0), CONFIDENCE)
    assert intervals[0].tolist() == [[-1.0, 1.0]]
    assert np.abs(intervals[1]).max() < 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("method", [FastLloyd, SuLloyd])
def test_intervals_of_the_cost_hold_as_often_as_they_say(method):
    """Of 200 fits; the number is binomial, outside with a probability of at most 1e-6."""
    points = snap(blobs(300))
    fitted = method(2, epsilon=4.0, n_iterations=1, report=0.1)
    run = fitted.fit_batch(points, range(200), secure=False)
    n_held = 0
    for centers, report in zip(run.centers, run.reports, strict=True):
        lengths = cdist(points / SCALE, centers / SCALE).min(axis=1)
        clipped = np.minimum(lengths, report.cost_limit)
        low, high = report.cost_interval
        n_held += low <= clipped @ clipped <= high
    least, most = stats.binom.interval(1 - 1e-6, 200, CONFIDENCE)
    assert least <= n_held <= most


@pytest.mark.statistical
@pytest.mark.parametrize("noise", [Gaussian(30.0), Laplace(30.0)])
def test_half_widths_are_quantiles(noise):
    streams = NoiseStreams([4])
    for confidence in (0.5, 0.95, 0.999):
        drawn = noise.draw(np.zeros((1, 40_000), int), streams, (confidence,))
        share = (np.abs(drawn) <= noise.margin_of_error(confidence)).mean()
        assert share == pytest.approx(confidence, abs=5 * math.sqrt(0.25 / 40_000))


def test_a_cluster_is_visible_from_the_least_size_on():
    model = clone(METHODS["gaussian"]).set_params(n_clusters=8, epsilon=2.0)
    model.fit(blobs(400))
    low = model.cluster_sizes_interval_[:, 0]
    assert {*model.profile_.is_visible} == {True, False}
    assert ((low > 0) == model.profile_.is_visible).all()
    assert (model.cluster_sizes_[low > 0] >= model.min_visible_size_).all()


# What is refused


@pytest.mark.parametrize("report", [-0.1, 1.0, math.nan, "0.1", True])
def test_shares_that_are_none_are_refused(report):
    with pytest.raises(ValueError, match=r"report=.* must be None or a share of the budget"):
        FastLloyd(3, report=report).check_parameters()


@pytest.mark.parametrize("method", [Lloyd, DistDP, LocalMean])
def test_methods_without_releases_for_it_are_refused(method):
    with pytest.raises(ValueError, match=r"report=0\.1 is for private methods under zero-out"):
        method(3, report=0.1).check_parameters()


def test_what_a_report_cannot_be_on_is_refused_before_work(monkeypatch):
    def forbidden(*arguments):
        raise AssertionError("something was charged")

    monkeypatch.setattr(Ledger, "charge", forbidden)
    X = blobs(400)
    with pytest.raises(ValueError, match=r"report=0\.1 is not supported for a coreset"):
        KaplanStemmer(2, bounds=(-1, 1), report=0.1).coreset(X)
    shares = SynopsisKMeans(1, epsilon=0.5, delta=0.2, zoom=None, report=0.6, bounds=(-1, 1))
    with pytest.raises(ValueError, match=r"report=0\.6 leaves nothing of epsilon=0\.5"):
        shares.fit(np.zeros((60, 4)))
    with pytest.raises(ValueError, match=r"report=1e-06 of epsilon=1 is too little"):
        SuLloyd(3, report=1e-6, bounds=(-1, 1)).fit(X)
    with pytest.raises(ValueError, match=r"report=1e-06 of epsilon=1 is too little"):
        plan_report(1e-6, 2, 1.0, 0.0, pure=True)
