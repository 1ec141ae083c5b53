"""Methods as estimators: what all of them keep to, keys of noise, budgets, scikit-learn."""

import contextlib
import gc
import re
import warnings
import weakref
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
from estimators import blobs, private_methods
from faults_around_releases import WithoutContext
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from pkm import methods
from pkm.audit.conformance import CHECKS, check_replay, conformance
from pkm.audit.report import configure
from pkm.compute import Points
from pkm.methods import (
    DPM,
    METHODS,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    KaplanStemmerLocal,
    KMeansPlusPlus,
    LocalLloyd,
    PrivateKMeans,
    SuLloyd,
    SynopsisKMeans,
    load_method,
)
from pkm.methods.fitting import RepeatableNoiseWarning
from pkm.privacy import (
    SCALE,
    Budget,
    Curator,
    Gaussian,
    NoiseStreams,
    PrivacyAccountant,
    PrivacyClaim,
    SumsAndCounts,
    snap,
)
from pkm.privacy.mechanisms.noise import public_seed

pytestmark = pytest.mark.usefixtures("short_fits")

KEY = ("sums_and_counts", 0, "counts")


def noise_of(method, **where):
    return method.noise_streams([5], 100, 2, **where).normal(KEY, (3,))


def test_a_fit_and_a_coreset_share_no_noise():
    """With two scales of the same noise, exact counts would follow."""
    method = KaplanStemmer(2)
    assert (noise_of(method) != noise_of(method, purpose="coreset")).all()


def test_domains_share_no_noise():
    """The same points on two grids differ by known factors; the same noise would be taken off."""
    X = np.clip(np.random.default_rng(0).normal(0, 0.3, (300, 2)), -1, 1)
    method = GLloyd(2)
    wide = noise_of(method, domain=[[-2.0, -2.0], [2.0, 2.0]])
    assert (noise_of(method) != wide).all()
    # Bounds and the domain of the grid are the same thing, as is its default.
    assert (noise_of(method) == noise_of(method, domain=[[-1.0, -1.0], [1.0, 1.0]])).all()
    by_fit = GLloyd(2, random_state=5, bounds=(-1, 1)).fit(X)
    by_batch = GLloyd(2).fit_batch(Points.quantize(X, -np.ones(2), np.ones(2))[0], [5])
    assert (by_fit._centers == by_batch.centers).all()


def test_parameters_that_are_arrays_are_in_the_key_in_full():
    """An abbreviated array would let budgets differ and share noise."""
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    other = shares + np.array([0.0, 0.0, 1e-10, -1e-10])
    assert (noise_of(DPM(shares=shares)) != noise_of(DPM(shares=other))).all()


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


def test_arguments_of_fit_are_not_swallowed():
    model = FastLloyd(2, bounds=(-1, 1), random_state=0)
    X = blobs()
    weights = np.linspace(0, 1, len(X))
    model.fit_predict(X, sample_weight=weights)
    assert (model.cluster_centers_ == model.fit(X, sample_weight=weights).cluster_centers_).all()
    with pytest.raises(TypeError, match="weights"):
        model.fit_predict(X, weights=weights)


def test_an_account_is_no_path():
    model = FastLloyd(2, bounds=(-1, 1))
    message = r"^account='a.json' must be a PrivacyAccountant, which .*open\(FILE\) reads$"
    with pytest.raises(TypeError, match=message):
        model.fit("nowhere.npy", account="a.json")
    with pytest.raises(TypeError, match=message):
        model.fit_batch(np.zeros((4, 2), np.int64), [0], account="a.json")


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


def test_secure_noise_ignores_the_seed():
    points = snap(blobs())
    first = FastLloyd(2, secure=True).fit_batch(points, [0]).centers
    second = FastLloyd(2, secure=True).fit_batch(points, [0]).centers
    assert (first != second).any()


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


PRIVATE = [
    method
    for method in map(load_method, METHODS)
    if any(claim.private for claim in method.claims.values())
]


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return np.clip(rng.normal(0.0, 0.3, (400, 2)), -1, 1)


@pytest.fixture
def answers(monkeypatch):
    """Noisy counts of every release of sums and counts, run after run."""
    released = []
    release_all = Curator.release_all

    def recording(self, requests, source=None):
        answers = release_all(self, requests, source)
        for (query, noise), answer in zip(requests, answers, strict=True):
            if isinstance(query, SumsAndCounts):
                released.append((query, noise, answer["counts"]))
        return answers

    monkeypatch.setattr(Curator, "release_all", recording)
    return released


def noise_of_counts(recorded, points):
    """Noise of recorded counts, in units of its scale."""
    query, noise, counts = recorded
    exact = query.exact(Curator(points, None, NoiseStreams([0])))["counts"]
    return (counts - exact) / noise["counts"].scale


def test_two_budgets_of_one_seed_are_not_two_equations(points, answers):
    """With shared noise, two scales of it would give the exact counts."""
    for epsilon in (0.5, 1.0):
        GLloyd(2, epsilon=epsilon, n_iterations=2, random_state=7, bounds=(-1, 1)).fit(points)
    grid = np.rint(points * SCALE).astype(np.int64)
    first, _, other, _ = (noise_of_counts(recorded, grid) for recorded in answers)
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 1.5},
        {"delta": 1e-7},
        {"n_iterations": 3},
        {"n_clusters": 4},
        {"postprocessing": "none"},
        {"variant": "published"},
    ],
)
def test_noise_depends_on_every_parameter(parameters):
    key = ("sums_and_counts", 0, "counts")
    given = {"epsilon": 1.0, "n_clusters": 3, **parameters}
    streams = GLloyd(3, epsilon=1.0).noise_streams([5], 100, 2)
    other = GLloyd(**given).noise_streams([5], 100, 2)
    assert (streams.normal(key, (3,)) != other.normal(key, (3,))).all()


def test_noise_depends_on_method_and_shape():
    key = ("sums_and_counts", 0, "counts")
    draws = [
        method.noise_streams([5], n, d).normal(key, (3,))
        for method, n, d in (
            (GLloyd(3), 100, 2),
            (FastLloyd(3), 100, 2),
            (GLloyd(3), 101, 2),
            (GLloyd(3), 100, 3),
        )
    ]
    assert len(np.unique(np.concatenate(draws))) == 12


#: What two fits may differ in and have the same noise: the domain and a zoom are in its key apart,
#: and rows with all their entries are the same with any ``missing``.
NOT_OF_NOISE = ("bounds", "clip", "random_state", "secure", "zoom", "require_zoom", "missing")


def test_no_two_methods_or_variants_share_noise():
    """Whatever two methods or two parameters of one run with one seed has other noise."""
    rng = np.random.default_rng(0)
    draws = {}
    for method in private_methods().values():
        drawn = [method]
        rules = {name: rule for name, rule in method.constraints.items() if rule is not None}
        for name, rule in rules.items():
            drawn += [configure(method, **{name: rule.draw(rng)}) for _ in range(3)]
        for changed in drawn:
            parameters = changed.get_params().items()
            known = [item for item in parameters if item[0] not in NOT_OF_NOISE]
            # Some values are refused together with the others.
            with contextlib.suppress(ValueError):
                noise = noise_of(changed, secure=False)[0]
                draws[type(method), repr(known), changed.zoom] = tuple(noise.tolist())
    assert len(draws) > 400
    assert len(set(draws.values())) == len(draws)


def test_streams_without_a_context_would_be_found():
    """The check above refuses a planted fault: one noise at two budgets."""
    first, second = (noise_of(WithoutContext(3, epsilon=epsilon))[0] for epsilon in (1.0, 2.0))
    assert (first == second).all()


def test_methods_of_one_name_from_two_packages_share_no_noise():
    inherited = type("GLloyd", (GLloyd,), {"__module__": "plugin.methods"})
    other = type("GLloyd", (GLloyd,), {"__module__": "another.methods"})
    draws = {tuple(noise_of(method(3))[0].tolist()) for method in (GLloyd, inherited, other)}
    assert len(draws) == 3


def test_no_two_methods_of_this_package_have_one_name():
    """Keys of noise hold their names alone."""
    classes = {load_method(name) for name in METHODS}
    for method in list(classes):
        classes.update(base for base in method.__mro__ if issubclass(base, PrivateKMeans))
    names = [method.__qualname__ for method in classes]
    assert {method.__module__.partition(".")[0] for method in classes} == {"pkm"}
    assert len(set(names)) == len(names)


def test_noise_does_not_depend_on_where_points_and_noise_come_from():
    key = ("sums_and_counts", 0, "counts")
    expected = GLloyd(3).noise_streams([5], 100, 2).normal(key, (3,))
    for method in (GLloyd(3, bounds=(0, 5)), GLloyd(3, clip=False), GLloyd(3, random_state=5)):
        assert (method.noise_streams([5], 100, 2).normal(key, (3,)) == expected).all()


def test_public_seed_does_not_give_the_noise(points, answers):
    """A method holds the public seed; streams of it, with any known key, are other streams."""
    seen = []
    cluster = GLloyd.cluster

    class Curious(GLloyd):
        def cluster(self, curator):
            seen.extend(curator.public_seeds)
            assert not hasattr(curator, "seeds")
            return cluster(self, curator)

    Curious(2, random_state=7, bounds=(-1, 1)).fit(points)
    assert seen == [public_seed(7)]
    grid = np.rint(points * SCALE).astype(np.int64)
    noise = noise_of_counts(answers[0], grid)
    guessed = NoiseStreams(seen).normal(("sums_and_counts", 0, "counts"), (2,))
    assert np.abs(noise - guessed).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", PRIVATE, ids=lambda method: method.__name__)
def test_fit_without_a_seed_is_fresh_and_secure(method, monkeypatch):
    """Two fits differ, and no seeded stream is touched."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal(0.0, 0.3, (3000, 2)), -1, 1)

    def refuse(*arguments):
        raise AssertionError("noise was drawn from a seed")

    monkeypatch.setattr(NoiseStreams, "_seeded", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        first = method(n_clusters=2, bounds=(-1, 1)).fit(X)
        second = method(n_clusters=2, bounds=(-1, 1)).fit(X)
    assert not first.ledger_.repeatable
    assert not np.array_equal(first.cluster_centers_, second.cluster_centers_)


@pytest.mark.parametrize("method", [SuLloyd, KaplanStemmer])
def test_a_seed_warns_and_marks_the_ledger(method, points):
    with pytest.warns(RepeatableNoiseWarning, match="random_state=3 makes noise repeatable"):
        fitted = method(2, random_state=3, bounds=(-1, 1)).fit(points)
    assert fitted.ledger_.repeatable
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        fitted = method(2, random_state=3, secure=True, bounds=(-1, 1)).fit(points)
    assert not fitted.ledger_.repeatable


def test_a_batch_warns_unless_seeded_noise_is_asked_for(points):
    method = SuLloyd(2)
    grid = snap(points)
    with pytest.warns(RepeatableNoiseWarning, match=r"seeds=\[3, 4\] makes noise repeatable"):
        method.fit_batch(grid, [3, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        assert method.fit_batch(grid, [3], secure=False).ledger.repeatable
        assert not method.fit_batch(grid, [3], secure=True).ledger.repeatable
        assert not SuLloyd(2, secure=True).fit_batch(grid, [3]).ledger.repeatable


def test_a_seed_of_a_method_without_a_claim_does_not_warn(points):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        fitted = load_method("Lloyd")(2, random_state=3).fit(points)
    assert fitted.ledger_ is None


def test_a_coreset_warns_too(points):
    with pytest.warns(RepeatableNoiseWarning):
        coreset = KaplanStemmer(2, bounds=(-1, 1), random_state=3).coreset(points)
    assert coreset.ledger.repeatable
    assert not KaplanStemmer(2, bounds=(-1, 1)).coreset(points).ledger.repeatable


def test_a_method_without_a_random_state_charges_an_account():
    class Secure(GLloyd):
        def __init__(self, n_clusters=3, *, epsilon=1.0, bounds=(-1, 1)):
            self.n_clusters = n_clusters
            self.epsilon = epsilon
            self.bounds = bounds

    account = PrivacyAccountant(Budget(2.0, 1e-5))
    Secure().fit(blobs(500), account=account)
    assert [run.parameters for run in account.runs] == [
        {"n_clusters": 3, "epsilon": 1.0, "bounds": (-1, 1)}
    ]
