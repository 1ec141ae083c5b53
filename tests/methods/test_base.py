"""Methods as estimators: what all of them keep to, budgets, scikit-learn."""

import gc
import re
import warnings
import weakref
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
from estimators import blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from pkm import methods
from pkm.audit.conformance import CHECKS, check_replay, conformance
from pkm.compute import Points
from pkm.methods import (
    METHODS,
    FastLloyd,
    GLloyd,
    KaplanStemmerLocal,
    KMeansPlusPlus,
    LocalLloyd,
    PrivateKMeans,
    SuLloyd,
    SynopsisKMeans,
    load_method,
)
from pkm.methods.fitting import RepeatableNoiseWarning
from pkm.privacy import SCALE, Gaussian, PrivacyClaim, SumsAndCounts

pytestmark = pytest.mark.usefixtures("short_fits")


#: Names of the methods that can run here: a library's own environment may be missing.
AVAILABLE = [name for name in METHODS if load_method(name).unavailable() is None]


CLASSES = [load_method(name) for name in AVAILABLE]


PRIVATE_CLASSES = [
    method for method in CLASSES if any(claim.private for claim in method.claims.values())
]


def variant_parameters(method, variant):
    """Return the parameter that chooses a variant; a baseline has none."""
    if "variant" in signature(method).parameters:
        return {"variant": variant}
    return {}


def skip_unavailable(method):
    """Skip a test where the method needs a library that is not installed."""
    reason = getattr(method, "unavailable", lambda: None)()
    if reason:
        pytest.skip(reason)


def test_a_delta_above_one_over_n_is_warned_of():
    X = blobs()
    method = GLloyd(2, bounds=(-1, 1), delta=2 / len(X))
    with pytest.warns(UserWarning, match=r"delta=.* is above 1/n="):
        method.fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GLloyd(2, bounds=(-1, 1), delta=1 / len(X)).fit(X)
        SuLloyd(2, bounds=(-1, 1)).fit(X)


@pytest.mark.parametrize("method", CLASSES, ids=lambda method: method.__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_registered_methods_conform(method):
    """Every check but the replay of neighbors: tests of the audit replay more of them."""
    skip_unavailable(method)
    checks = [check for check in CHECKS if check is not check_replay]
    outcomes = conformance(method, checks)
    assert len(outcomes) == len(checks) * len(method.claims)
    assert [outcome for outcome in outcomes if outcome.error] == []


@pytest.mark.parametrize("name", AVAILABLE)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_points_are_held_after_fit(name, new_objects_alone):
    """Private data die with their last reference outside: no cache of the process holds them."""
    method = load_method(name)
    skip_unavailable(method)
    lower = np.full(2, -1.0)
    upper = np.ones(2)
    for variant in method.claims:
        estimator = method(n_clusters=2, bounds=(-1, 1), random_state=0)
        if "variant" in estimator.get_params():
            estimator.set_params(variant=variant)
        X = blobs(seed=1)
        # Not the points of ``fit``: a cache that holds those would answer for equal ones.
        points, _ = Points.quantize(blobs(seed=2), lower, upper)
        references = [
            weakref.ref(X),
            weakref.ref(points),
            weakref.ref(points.rows),
        ]
        estimator.fit(X)
        estimator.fit_batch(points, [0])
        del X, points
        gc.collect()
        assert [reference() for reference in references] == [None] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", AVAILABLE)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_remainders_are_kept_for_all_queries_that_read_them(name):
    """``fit`` leaves out those that no query reads: the centers are those of points with them."""
    method = load_method(name)
    skip_unavailable(method)
    # Narrower than a grid step: without remainders all gaps are 0, and a zoom finds a single point.
    X = blobs(seed=3) * 2.0**-14
    for variant in method.claims:
        parameters = variant_parameters(method, variant)
        can_zoom = "zoom" in method().get_params() and method.claims[variant].private
        for zoom in [None, 0.2] if can_zoom else [None]:
            if zoom:
                parameters["zoom"] = zoom
            model = method(2, bounds=(-1, 1), random_state=0, **parameters)
            try:
                centers = model.fit(X).cluster_centers_
            except ValueError as error:
                assert "zoom" in str(error)
                continue
            points, _ = Points.quantize(X, -np.ones(2), np.ones(2))
            run = model.fit_batch(points, [0], np.array([[-1, -1], [1, 1]]))
            np.testing.assert_array_equal(centers, run.positions[0])


def test_an_overspending_method_is_stopped():
    class Overspending(FastLloyd):
        def schedule(self, *arguments):
            schedule = super().schedule(*arguments)
            return replace(schedule, rounds=schedule.rounds * 2)

    with pytest.raises(RuntimeError, match="the budget has delta"):
        Overspending(n_clusters=2, bounds=(-1, 1)).fit(blobs())


def test_a_new_method_needs_only_cluster():
    class NoisyMean(PrivateKMeans):
        claims = {"sound": PrivacyClaim("approximate")}  # noqa: RUF012

        def __init__(
            self,
            n_clusters=1,
            *,
            epsilon=1.0,
            delta=1e-6,
            bounds=(-1, 1),
            clip=True,
            random_state=None,
        ):
            self.n_clusters = n_clusters
            self.epsilon = epsilon
            self.delta = delta
            self.bounds = bounds
            self.clip = clip
            self.random_state = random_state

        def cluster(self, curator):
            start = np.zeros((curator.n_replicates, 1, curator.n_features), np.int64)
            noise = Gaussian(400.0 * SCALE)
            answer = curator.release(SumsAndCounts(start), sums=noise, counts=noise)
            means = answer["sums"] / (answer["counts"][:, :, None] / SCALE)
            return np.rint(means).astype(np.int64), 1

    model = NoisyMean(random_state=0, bounds=(-1, 1)).fit(blobs(100_000))
    assert model.cluster_centers_.shape == (1, 2)


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("Nope", "known are KMeansPlusPlus, KMedian, Lloyd, SuLloyd"),
        ("", "known are KMeansPlusPlus, KMedian, Lloyd, SuLloyd"),
        ("pkm.methods.lloyd.lloyd.Nope", "has no attribute 'Nope'"),
        ("nope.Nope", "is its folder on PYTHONPATH?"),
    ],
)
def test_unknown_methods_are_refused(target, hint):
    """The message lists the known names, or says what an import path lacks."""
    message = f"method {target!r} is unknown"
    with pytest.raises(ValueError, match=f"{message}.*{re.escape(hint)}"):
        load_method(target)


#: Checks of scikit-learn that methods fail on purpose, with the reason.
NO_LABELS = {"check_clustering": "labels_ of private rows are not covered by a claim"}
NULL_RECORDS = {"check_estimators_nan_inf": "a row with NaN is the null record"}
PRIVATE_WEIGHTS = {
    "check_all_zero_sample_weights_error": "no weight of a record makes a private fit fail",
    "check_sample_weight_equivalence_on_dense_data": "n, and so the noise, is that of the rows",
}
EXACT_WEIGHTS = {"check_sample_weight_equivalence_on_dense_data": "seeding draws other rows"}
NO_WEIGHTS = dict.fromkeys(
    [
        *PRIVATE_WEIGHTS,
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_list",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
    ],
    "queries that are no sums over rows refuse weights",
)
COHORTS = {"check_fit2d_1sample": "every cohort needs a user of its own"}
#: Exported classes with a fit that scikit-learn's checks are not run on, with the reason.
UNCHECKED = {
    "PrivateKMeans": "a base class: it clusters nothing",
    "ProgramKMeans": "without a command it clusters nothing",
    "DiffprivlibKMeans": "its library has an environment of its own: checked where there is one",
    "Unlearning": "it is fitted to the points of clients, not to an array",
    "KFed": "it is fitted to the points of clients, not to an array",
}


def test_every_exported_estimator_is_checked_or_listed():
    exported = {name for name in methods.__all__ if hasattr(getattr(methods, name), "fit")}
    assert exported == {method.__name__ for method in CLASSES} | UNCHECKED.keys()


@pytest.mark.parametrize("name", sorted(UNCHECKED.keys() - set(AVAILABLE)))
def test_listed_estimators_fit_no_array(name):
    estimator = getattr(methods, name)(2)
    with pytest.raises((AttributeError, RuntimeError, TypeError, ValueError)):
        estimator.fit(blobs(20))


@pytest.mark.slow
@pytest.mark.parametrize("method", CLASSES)
def test_only_declared_checks_of_scikit_learn_fail(method):
    """All of those do, so that the reasons stay true."""
    model = method(bounds=(-10, 10))
    reasons = NO_LABELS
    served = EXACT_WEIGHTS
    if model.claim.private:
        reasons = NO_LABELS | NULL_RECORDS
        served = PRIVATE_WEIGHTS
    reasons = reasons | (NO_WEIGHTS if model.find_unweighted(100, 2) else served)
    if method in (KaplanStemmerLocal, LocalLloyd):
        reasons = reasons | COHORTS
        # The users of the other checks are too few at epsilon 1.
        model.set_params(epsilon=40.0)
    checks = check_estimator(model, expected_failed_checks=reasons, on_skip=None, on_fail=None)
    outcomes = {(check["check_name"], check["status"]) for check in checks}
    passed = {outcome for outcome in outcomes if outcome[1] == "passed"}
    assert outcomes - passed == {
        ("check_array_api_input", "skipped"),
        *[(name, "xfail") for name in reasons],
    }
    assert not reasons.keys() & {name for name, _ in passed}


@pytest.mark.parametrize(
    ("model", "X", "message"),
    [
        (
            SynopsisKMeans(400, bounds=(-1, 1), secure=True),
            blobs(600),
            r"the number of distinct centers, \d+, is smaller than n_clusters=400: what was "
            "released has no more positions; raise epsilon, narrow bounds or lower n_clusters",
        ),
        # scikit-learn itself warns here, of its own class.
        (
            KMeansPlusPlus(3),
            np.repeat([[0.0], [1.0]], 5, axis=0),
            "the number of distinct centers, 2, is smaller than n_clusters=3: the points "
            "have no more positions; lower n_clusters",
        ),
    ],
    ids=["private", "not private"],
)
def test_a_fit_with_too_few_centers_warns_once(model, X, message):
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X)
    (warning,) = [item for item in caught if item.category is not RepeatableNoiseWarning]
    assert re.fullmatch(message, str(warning.message))
    assert warning.filename == __file__
    points, _ = Points.quantize(X, -np.ones(X.shape[1]), np.ones(X.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit_batch(points, [0, 1], secure=False)


def test_a_fit_with_all_centers_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SynopsisKMeans(3, bounds=(-1, 1), epsilon=8.0, secure=True).fit(blobs())
        KMeansPlusPlus(2).fit(np.repeat([[0.0], [1.0]], 5, axis=0))


def test_a_search_of_scikit_learn_needs_no_scorer():
    method = FastLloyd(4, bounds=(-1, 1), random_state=0)
    search = GridSearchCV(method, {"epsilon": [0.01, 8]}, cv=2)
    assert search.fit(blobs()).best_params_ == {"epsilon": 8}


def test_bounds_are_the_units_of_the_data(shared_noise):
    """Shifting and stretching data and bounds together moves the centers along with them and
    nothing else.
    """
    points = blobs()
    shift = [7.0, -1.0]
    stretched = points * 4 + shift
    bounds = ([3.0, -5.0], [11.0, 3.0])
    unit = FastLloyd(4, random_state=2, bounds=(-1, 1)).fit(points)
    moved = FastLloyd(4, random_state=2, bounds=bounds).fit(stretched)
    expected = unit.cluster_centers_ * 4 + shift
    np.testing.assert_allclose(moved.cluster_centers_, expected, atol=1e-9)
    assert (moved.predict(stretched) == unit.predict(points)).all()


def test_widest_bounds_do_not_overflow():
    model = FastLloyd(2, bounds=(-1e308, 1e308), random_state=0).fit(blobs())
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    PRIVATE_CLASSES,
)
def test_extreme_budgets_run_or_are_refused(method):
    """A refusal names epsilon."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (300, 2))
    for variant in method.claims:
        parameters = variant_parameters(method, variant)
        for epsilon in (1e-12, 1e-8, 1e-6, 1e-4, 1e5):
            estimator = method(n_clusters=2, epsilon=epsilon, **parameters)
            try:
                run = estimator.fit_batch(points, [0])
            except ValueError as refusal:
                assert "epsilon=" in str(refusal)
                assert "steps" not in str(refusal)
            else:
                assert np.isfinite(run.centers).all()
        for epsilon, message in (
            (0.0, "positive finite"),
            (-1.0, "positive finite"),
            (1e-17, "too small"),
            (1e16, "at most"),
        ):
            with pytest.raises(ValueError, match=f"{re.escape(f'epsilon={epsilon} ')}.*{message}"):
                method(n_clusters=2, epsilon=epsilon, **parameters).fit_batch(points, [0])


@pytest.mark.slow
@pytest.mark.parametrize("method", PRIVATE_CLASSES)
@pytest.mark.parametrize("n", [30, 3000])
def test_secure_noise_serves_every_schedule(method, n):
    """Also empty releases: few points and a small budget leave queries after a threshold empty."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (n, 3))
    for variant in method.claims:
        parameters = variant_parameters(method, variant)
        estimator = method(n_clusters=2, epsilon=1.0, secure=True, **parameters)
        run = estimator.fit_batch(points, [0])
        assert np.isfinite(run.centers).all()
