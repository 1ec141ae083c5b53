"""The methods: conformance, formulas, accounting from the charges, and a reference version."""

import gc
import math
import tracemalloc
import weakref
from dataclasses import replace
from inspect import signature

import numpy as np
import pandas as pd
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from pkm.audit.conformance import CHECKS, check_replay, conformance, main
from pkm.compute import Points
from pkm.compute.kernels.center_moves import KEEP, TRUNCATE, fold, move_centers, shortening
from pkm.methods import (
    DPM,
    METHODS,
    Balcan,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    KMeansPlusPlus,
    Lloyd,
    LSHSplits,
    MSTKMeans,
    PrivateKMeans,
    SuLloyd,
    SynopsisKMeans,
    load_method,
)
from pkm.methods.initialization import starting_centers
from pkm.metrics import evaluate
from pkm.privacy import (
    SCALE,
    Gaussian,
    PrivacyClaim,
    SumsAndCounts,
    gaussian_mu,
    snap,
)
from pkm.privacy.mechanisms.noise import public_seed

#: Names of the methods that can run here: a library's own environment may be missing.
AVAILABLE = [name for name in METHODS if load_method(name).unavailable() is None]
CLASSES = [load_method(name) for name in AVAILABLE]
PRIVATE_CLASSES = [
    method for method in CLASSES if any(claim.private for claim in method.claims.values())
]

RHO = 0.225
PRIVATE = (SuLloyd, GLloyd, FastLloyd)


def blobs(n=3000, d=2, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.7, 0.7, (4, d))
    noise = 0.08 * rng.standard_normal((n, d))
    points = centers[np.arange(n) % 4] + noise
    return np.clip(points, -1, 1)


def variant_parameters(method, variant):
    """Return the parameter that chooses a variant; a baseline has none."""
    if "variant" in signature(method).parameters:
        return {"variant": variant}
    return {}


# Conformance


def skip_unavailable(method):
    """Skip a test where the method needs a library that is not installed."""
    reason = getattr(method, "unavailable", lambda: None)()
    if reason:
        pytest.skip(reason)


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


class OrderDependent(FastLloyd):
    """Wrong: the result depends on the order of the points."""

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        return centers + int(curator._shards[0].rows[0, 0]), n_iter


class BatchDependent(FastLloyd):
    """Wrong: a replicate's result depends on the others."""

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        return centers + curator.n_replicates, n_iter


class Uncharged(FastLloyd):
    """Wrong: claims privacy and charges nothing."""

    def cluster(self, curator):
        shape = (curator.n_replicates, self.n_clusters, curator.n_features)
        return np.zeros(shape, np.int64), 0


@pytest.mark.parametrize(
    ("method", "failed_check"),
    [
        (OrderDependent, "check_order_and_shards"),
        (BatchDependent, "check_batch_is_loop"),
        (Uncharged, "check_ledger"),
    ],
)
def test_conformance_catches_a_broken_method(method, failed_check):
    failed_checks = {outcome.check for outcome in conformance(method) if outcome.error}
    assert failed_check in failed_checks


def test_conformance_command(capsys):
    assert main(["pkm.methods.GLloyd"]) == 0
    assert capsys.readouterr().out.count(" ok") == 2 * len(CHECKS)
    assert main([f"{__name__}.Uncharged"]) == 1
    assert main(["no.such.Method"]) == 2
    assert "known: KMeansPlusPlus" in capsys.readouterr().out


def test_an_overspending_method_is_stopped():
    class Overspending(FastLloyd):
        def schedule(self, n_points, n_features):
            schedule = super().schedule(n_points, n_features)
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


@pytest.mark.parametrize("target", ["Nope", "pkm.methods.lloyd.lloyd.Nope", "nope.Nope", ""])
def test_unknown_methods_are_refused(target):
    """The message lists the known ones."""
    message = r"is unknown .*known: KMeansPlusPlus, KMedian, Lloyd, SuLloyd"
    with pytest.raises(ValueError, match=message):
        load_method(target)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"postprocessing": "mirror"},
            "postprocessing='mirror' is unknown, choose one of 'auto', 'none'",
        ),
        ({"radius_schedule": "late"}, "radius_schedule='late' is unknown"),
        ({"alpha": 0}, "alpha=0 must be a finite number of at least 1e-06"),
        (
            {"n_iterations": True},
            "n_iterations=True must be 'auto' or an integer",
        ),
        ({"secure": "x"}, "secure='x' is unknown, choose one of True, False"),
        ({"bounds": (-np.inf, 1)}, "must be finite with lower < upper"),
        (
            {"n_iterations": 0},
            "n_iterations=0 must be 'auto' or an integer of at least 1",
        ),
        (
            {"epsilon": "much"},
            "epsilon='much' must be a positive finite number",
        ),
        ({"delta": 2}, r"delta=2 must be 'auto' or a number in \(0, 1\)"),
        ({"bounds": (1, -1)}, "must be finite with lower < upper"),
        (
            {"bounds": (0, 1, 2)},
            r"bounds must be \(lower, upper\) or of shape \(2, 2\)",
        ),
        ({"variant": "fast"}, "variant='fast' is unknown"),
        ({"random_state": 1.5}, "random_state=1.5 must be None or an integer of at least 0"),
        ({"random_state": -1}, "random_state=-1 must be None or an integer of at least 0"),
        ({"random_state": np.random.default_rng(0)}, "not drawn from a generator"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    estimator = FastLloyd(n_clusters=2).set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        estimator.fit(blobs())


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([["a", "b"]], "X must be numeric"),
        ([1.0, 2.0], "Reshape your data"),
        (np.empty((0, 2)), r"X has 0 sample\(s\)"),
        (np.empty((2, 0)), r"X has 0 feature\(s\)"),
        (csr_matrix(np.eye(3)), r"X is sparse, .*: give X.toarray\(\)"),
        ([[1j, 0.0]], "Complex data not supported"),
    ],
)
def test_points_that_are_no_matrix_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        FastLloyd(n_clusters=1, bounds=(-1, 1)).fit(points)


@pytest.mark.parametrize("kind", ["nullable", "object", "objects", "list", "masked"])
def test_a_missing_value_of_any_kind_is_nan(kind):
    X = np.random.default_rng(0).integers(-9, 10, (60, 2)).astype(np.float64)
    X[4, 1] = np.nan
    frame = pd.DataFrame(X, columns=["a", "b"]).convert_dtypes()
    assert frame.loc[4, "b"] is pd.NA
    given = {
        "nullable": frame,
        "object": frame.astype(object),
        "objects": frame.to_numpy(dtype=object),
        "list": frame.to_numpy(dtype=object).tolist(),
        "masked": np.ma.masked_array(np.nan_to_num(X, nan=8).astype(np.int64), np.isnan(X)),
    }[kind]
    for method in (FastLloyd, DPM):
        model = method(2, epsilon=5.0, bounds=(-10, 10), random_state=0)
        expected = model.fit(X).cluster_centers_
        np.testing.assert_array_equal(model.fit(given).cluster_centers_, expected)
    with pytest.raises(ValueError, match="X has 1 rows with NaN"):
        model.predict(given)


def test_missing_values_beside_an_integer_beyond_the_floats():
    X = [[1, 0], [None, 0], [pd.NA, 0], [10**400, 0], [-1, 1]]
    model = FastLloyd(1, epsilon=5.0, bounds=(-1, 1), random_state=0)
    expected = model.fit([[1, 0], *[[np.nan, 0]] * 3, [-1, 1]]).cluster_centers_
    for points in (X, pd.DataFrame(X, columns=["a", "b"])):
        np.testing.assert_array_equal(model.fit(points).cluster_centers_, expected)


def test_text_in_a_frame_is_refused():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", pd.NA]})
    with pytest.raises(ValueError, match="X must be numeric: could not convert string to float"):
        FastLloyd(1, bounds=(-1, 1)).fit(frame)


def test_columns_in_another_order_are_refused():
    points = pd.DataFrame(blobs(), columns=["a", "b"])
    model = FastLloyd(n_clusters=2, bounds=(-1, 1)).fit(points)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.predict(points).tolist() == model.predict(points.to_numpy()).tolist()
    with pytest.raises(ValueError, match="got b, a; fitted with a, b"):
        model.predict(points[["b", "a"]])
    assert not hasattr(model.fit(points.to_numpy()), "feature_names_in_")


def test_weights_are_not_swallowed():
    with pytest.raises(TypeError, match="sample_weight"):
        FastLloyd(bounds=(-1, 1)).fit_predict(blobs(), sample_weight=np.ones(len(blobs())))


@pytest.mark.filterwarnings("ignore:Skipping check")
def test_checks_of_scikit_learn_that_fail_are_meant_to():
    checks = check_estimator(FastLloyd(3, bounds=(-10, 10)), on_fail=None)
    failed = {check["check_name"] for check in checks if check["status"] == "failed"}
    # A row with NaN is the null record, and exact labels are not covered by the claim.
    assert failed == {"check_estimators_nan_inf", "check_clustering"}


def test_transform_is_nearest_where_predict_says_and_score_sums_it():
    points = blobs() * [1, 20]
    bounds = ([-1, -20], [1, 20])
    for zoom in (None, 0.1):
        model = FastLloyd(4, epsilon=4, random_state=2, bounds=bounds, zoom=zoom).fit(points)
        distances = model.transform(points)
        steps = (points[:, None] - model.cluster_centers_) / [1, 20]
        np.testing.assert_allclose(distances, np.sqrt((steps**2).sum(axis=2)), atol=1e-12)
        nearest = np.take_along_axis(distances, model.predict(points)[:, None], 1)[:, 0]
        np.testing.assert_allclose(nearest, distances.min(axis=1), atol=1e-4)
        inertia = (distances.min(axis=1) ** 2).sum()
        np.testing.assert_allclose(model.score(points), -inertia, rtol=1e-9)

        # Rows outside the bounds are clipped to them, as in predict.
        outside = model.transform([[5.0, 0.0]])
        np.testing.assert_array_equal(outside, model.transform([[1.0, 0.0]]))
    assert list(model.get_feature_names_out()) == [f"fastlloyd{i}" for i in range(4)]
    with pytest.raises(ValueError, match="1 rows with NaN"):
        model.score([[np.nan, 0.0]])


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


# Formulas of the paper


@pytest.mark.parametrize("n", [150, 5000, 48_842])
@pytest.mark.parametrize("d", [2, 4, 784])
@pytest.mark.parametrize("k", [2, 15, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_number_of_iterations_and_noise_follow_the_paper(n, d, k, epsilon):
    """Sec. 5.5 and App. B.1, written out a second time."""
    if k > n:
        pytest.skip("more clusters than points")
    delta = 1 / (n * math.log(n))
    sigma = 1 / gaussian_mu(epsilon, delta)

    fast = FastLloyd(k, epsilon=epsilon, variant="published")
    eta = 0.8 * 2 * math.sqrt(d) / (2 * k ** (1 / d))
    error_factor = k**3 * eta**2 * sigma**2 * (1 + math.sqrt(4 * d)) ** 2
    bound = 4 * n**2 * 0.004 / error_factor
    schedule = fast.schedule(n, d).rounds
    n_iter = len(schedule)
    assert n_iter == int(np.clip(bound, 2, 7))
    radii = [release.radius for release in schedule]
    assert radii == pytest.approx([math.sqrt(d)] + [eta] * (n_iter - 1))
    for release in schedule:
        sums = release.sum_noise.scale / SCALE / release.radius
        counts = release.count_noise.scale / SCALE
        assert counts / sums == pytest.approx((4 * d) ** 0.25)
        squared_mu = 1 / sums**2 + 1 / counts**2
        assert squared_mu == pytest.approx(1 / (sigma**2 * n_iter))

    schedule = GLloyd(k, epsilon=epsilon, variant="published").schedule(n, d).rounds
    n_iter = len(schedule)
    bound = 0.004 * n**2 / (k**3 * d * sigma**2 * (2 * RHO + math.sqrt(d)) ** 2)
    assert n_iter == int(np.clip(bound, 2, 7))
    sums = schedule[0].sum_noise.scale / SCALE / math.sqrt(d)
    counts = schedule[0].count_noise.scale / SCALE
    assert counts / sums == pytest.approx(math.sqrt(math.sqrt(d) / (2 * RHO)))
    squared_mu = 1 / sums**2 + 1 / counts**2
    assert squared_mu == pytest.approx(1 / (sigma**2 * n_iter))

    schedule = SuLloyd(k, epsilon=epsilon, variant="published").schedule(n, d).rounds
    n_iter = len(schedule)
    weight = (4 * d * RHO**2) ** (1 / 3)
    bound = epsilon / math.sqrt(500 * k**3 / n**2 * (d + weight) ** 3)
    assert n_iter == int(np.clip(bound, 2, 7))
    sum_epsilon = d / (schedule[0].sum_noise.scale / SCALE)
    count_epsilon = 1 / (schedule[0].count_noise.scale / SCALE)
    assert sum_epsilon + count_epsilon == pytest.approx(epsilon / n_iter)
    assert sum_epsilon / count_epsilon == pytest.approx(d / weight)


@pytest.mark.parametrize("method", PRIVATE)
@pytest.mark.parametrize("variant", ["published", "sound"])
def test_charges_add_up_to_the_declared_budget(method, variant):
    """Recomputed from the log of actual charges by an independent accountant."""
    epsilon = 0.7
    run = method(3, epsilon=epsilon, variant=variant).fit_batch(snap(blobs()), [0])
    charges = run.ledger.charges
    assert len(charges) == run.n_iter
    assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)
    ratios = []
    for charge in charges:
        details = charge.details
        ratios.append(details["sum_sensitivity"] / details["sum_scale"])
        ratios.append(1 / details["count_scale"])
    if method is SuLloyd:
        assert sum(ratios) == pytest.approx(epsilon)
        return
    composed = None
    for ratio in ratios:
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            1 / ratio, value_discretization_interval=1e-3
        )
        composed = loss if composed is None else composed.compose(loss)
    recomputed = composed.get_epsilon_for_delta(run.ledger.budget.delta)
    assert recomputed == pytest.approx(epsilon, rel=1e-4)


def test_delta_of_the_variants():
    n = 3000
    assert GLloyd(variant="published").resolved_delta(n) == pytest.approx(1 / (n * math.log(n)))
    assert GLloyd(variant="sound").resolved_delta(n) == 1e-6
    assert GLloyd(delta=1e-9).resolved_delta(n) == 1e-9
    with pytest.raises(ValueError, match="needs n >= 3, got 2"):
        GLloyd(1, variant="published", bounds=(-1, 1)).fit(np.zeros((2, 1)))


def test_packing_search_of_the_variants():
    """``published`` starts where the published code starts; ``sound`` packs as wide as it can."""
    halving = starting_centers([0], 3, 2, "packing", "halving") / SCALE
    np.testing.assert_allclose(halving[0, 0], [0.5542328, -0.0687564], atol=2.0**-17)

    points = snap(blobs())

    def centers(**parameters):
        return Lloyd(3, **parameters).fit_batch(points, [0]).centers

    published = centers(variant="published")
    published_halving = centers(variant="published", radius_search="halving")
    assert (published == published_halving).all()
    assert (centers() == centers(radius_search="bisection")).all()

    uniform = starting_centers(range(200), 5, 2, "uniform", "bisection") / SCALE
    assert np.abs(uniform.mean()) < 5 / math.sqrt(3 * uniform.size)


# Post-processing


def reflect(coordinate):
    while abs(coordinate) > 1:
        border = 2 if coordinate > 1 else -2
        coordinate = border - coordinate
    return coordinate


@given(st.lists(st.integers(-20 * SCALE, 20 * SCALE), min_size=1, max_size=10))
def test_fold_is_reflection_at_the_borders(values):
    folded = fold(np.array(values))
    expected = [round(reflect(value / SCALE) * SCALE) for value in values]
    assert folded.tolist() == expected
    assert (fold(folded) == folded).all()


def moved(center, mean, longest=math.inf, outside=KEEP):
    """Move one center by ``move_centers`` to the mean of its only point."""
    centers = np.array([[center]])
    sums = np.array([[mean]])
    counts = np.array([[SCALE]])
    limit = 40.0 * SCALE
    return move_centers(centers, sums, counts, False, True, longest, limit, outside)[0, 0]


@given(st.lists(st.integers(-20 * SCALE, 20 * SCALE), min_size=1, max_size=10))
def test_truncate_is_the_nearest_point_of_the_domain(values):
    truncated = moved([0] * len(values), values, outside=TRUNCATE)
    expected = [min(max(value, -SCALE), SCALE) for value in values]
    assert truncated.tolist() == expected


@given(
    st.lists(st.integers(-(2**30), 2**30), min_size=2, max_size=5),
    st.integers(1, 10 * SCALE),
)
def test_shorten_keeps_direction_and_bounds_length(step, longest):
    origin = [0] * len(step)
    shortened = np.rint(np.array(step) * shortening(np.array(step), float(longest)))
    length = math.dist(step, origin)
    if length <= longest:
        assert shortened.tolist() == step
    else:
        assert math.dist(shortened, origin) <= longest + math.sqrt(len(step))
        exact = np.array(step) * (longest / length)
        assert np.abs(shortened - exact).max() <= 0.5 + 1e-6


@given(st.lists(st.integers(-SCALE, SCALE), min_size=2, max_size=5), st.data())
def test_moves_are_shortened_from_the_center(mean, data):
    center = data.draw(st.lists(st.integers(-SCALE, SCALE), min_size=len(mean), max_size=len(mean)))
    longest = data.draw(st.integers(1, 3 * SCALE))
    step = np.array(mean) - np.array(center)
    expected = center + np.rint(step * shortening(step, float(longest)))
    assert moved(center, mean, float(longest)).tolist() == expected.tolist()


# A straightforward second version


def loop_version(method, points, seed):
    """Run one replicate, one cluster and one point at a time, from the definitions.

    The noise is from the same streams.
    """
    n, d = points.shape
    k = method.n_clusters
    sound = method.variant == "sound"
    search = "bisection" if sound else "halving"
    streams = method.noise_streams([seed], n, d)
    centers = starting_centers(streams.public_seeds, k, d, "packing", search)[0].astype(float)
    exact_limit = math.floor(math.sqrt(2**53 / d)) - SCALE - 1
    for t, release in enumerate(method.schedule(n, d).rounds):
        # Sums and counts of the points within the radius of their nearest centers.
        sums = np.zeros((k, d))
        counts = np.zeros(k)
        for point in points:
            squares = ((point - centers) ** 2).sum(axis=1)
            j = int(squares.argmin())
            if release.radius is None or squares[j] <= (release.radius * SCALE) ** 2:
                sums[j] += point - centers[j] if method.relative else point
                counts[j] += 1

        # Noise.
        noisy = release.sum_noise is not None
        if noisy:
            laplace = release.sum_noise.name == "laplace"
            draw = streams.laplace if laplace else streams.normal
            sum_draws = draw(("sums_and_counts", t, "sums"), (k, d))[0]
            count_draws = draw(("sums_and_counts", t, "counts"), (k,))[0]
            sums += np.rint(release.sum_noise.scale * sum_draws)
            counts += np.rint(release.count_noise.scale * count_draws) / SCALE

        # New centers, in the domain.
        for j in range(k):
            origin = centers[j] if method.relative else 0.0
            if noisy and not sound:
                moved = origin + sums[j] / (counts[j] + 1e-9)
            elif counts[j] < 1:
                moved = centers[j]
            else:
                moved = origin + sums[j] / counts[j]
            moved = np.clip(np.rint(moved), -exact_limit, exact_limit)
            if isinstance(method, FastLloyd):
                length = math.dist(moved, centers[j])
                longest = release.radius * SCALE
                if length > longest:
                    step = (moved - centers[j]) * (longest / length)
                    moved = centers[j] + np.rint(step)
            if isinstance(method, FastLloyd) or (sound and noisy):
                moved = [round(reflect(value / SCALE) * SCALE) for value in moved]
            centers[j] = moved
    return centers.astype(np.int64)


@pytest.mark.parametrize("method", [Lloyd, *PRIVATE])
@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("d", [2, 7])
def test_batched_methods_equal_a_straightforward_loop(method, variant, d):
    points = snap(blobs(400, d))
    estimator = method(3, variant=variant)
    run = estimator.fit_batch(points, [0, 1, 2, 3])
    for centers, seed in zip(run.centers, run.seeds, strict=True):
        assert (centers == loop_version(estimator, points, seed)).all()


@pytest.mark.parametrize("method", [GLloyd, SuLloyd])
def test_private_methods_without_noise_are_lloyd(method):
    """At a huge budget the noise rounds to nothing, and the same iterations give the same centers
    bit for bit.
    """
    points = snap(blobs())
    budget = {"epsilon": 1e12}
    if method is not SuLloyd:
        budget["delta"] = 0.5
    estimator = method(4, n_iterations=5, postprocessing="none", **budget)
    private = estimator.fit_batch(points, [1, 2])
    exact = Lloyd(4, n_iterations=5).fit_batch(points, [1, 2])
    assert (private.centers == exact.centers).all()


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_without_noise_an_empty_cluster_keeps_its_center(variant):
    points = snap(np.full((10, 2), 0.9))
    method = Lloyd(3, variant=variant, n_iterations=1)
    search = "bisection" if variant == "sound" else "halving"
    seeds = method.noise_streams([0], *points.shape).public_seeds
    starts = starting_centers(seeds, 3, 2, "packing", search)[0]
    squares = ((points[0] - starts) ** 2).sum(axis=1)
    (centers,) = method.fit_batch(points, [0]).centers
    is_empty = np.arange(3) != squares.argmin()
    assert (centers[is_empty] == starts[is_empty]).all()
    assert (centers[~is_empty] == points[0]).all()


def test_more_budget_lowers_nicv():
    points = snap(blobs(20_000))

    def nicv(method, epsilon):
        run = method(4, epsilon=epsilon).fit_batch(points, range(60))
        return evaluate(points, run.centers, ["nicv"])["nicv"]

    for method in PRIVATE:
        difference = nicv(method, 0.01) - nicv(method, 2.0)
        assert difference.mean() > 5 * difference.std() / math.sqrt(60)


def test_secure_noise_ignores_the_seed():
    points = snap(blobs())
    first = FastLloyd(2, secure=True).fit_batch(points, [0]).centers
    second = FastLloyd(2, secure=True).fit_batch(points, [0]).centers
    assert (first != second).any()


def test_k_means_equals_scikit_learn():
    points = blobs()
    model = KMeansPlusPlus(4, n_init=3, random_state=7, bounds=(-1, 1)).fit(points)
    seed = public_seed(7) % 2**32
    expected = KMeans(4, n_init=3, random_state=seed).fit(snap(points) / SCALE)
    np.testing.assert_allclose(
        model.cluster_centers_,
        expected.cluster_centers_,
        atol=2.0**-16,
    )


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
                assert "epsilon=" in str(refusal) or "scale=" in str(refusal)
            else:
                assert np.isfinite(run.centers).all()
        for epsilon, message in (
            (0.0, "positive finite"),
            (-1.0, "positive finite"),
            (1e-17, "too small"),
        ):
            with pytest.raises(ValueError, match=f"epsilon={epsilon} .*{message}"):
                method(n_clusters=2, epsilon=epsilon, **parameters).fit_batch(points, [0])


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


def test_a_private_fit_needs_bounds():
    with pytest.raises(ValueError, match=r"bounds=None: a private fit needs the public domain"):
        GLloyd(2).fit(blobs())


def test_bounds_of_a_method_without_privacy_are_the_extremes():
    X = np.random.default_rng(0).normal(50, 3, (200, 2))
    X[:, 1] = 7.0
    bounds = np.stack([X.min(axis=0), X.max(axis=0)])
    bounds[:, 1] = 0.0, 14.0
    given = Lloyd(3, bounds=bounds, random_state=0).fit(X)
    found = Lloyd(3, random_state=0).fit(X)
    assert np.array_equal(found.cluster_centers_, given.cluster_centers_)
    with pytest.raises(ValueError, match="rows with NaN or infinite values"):
        Lloyd(3).fit(np.full((5, 2), np.nan))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mapped_file_is_read_in_blocks(tmp_path, monkeypatch, dtype):
    """The same fit as in memory, with the memory of some blocks."""
    monkeypatch.setattr("pkm.row_blocks.BLOCK_VALUES", 1 << 16)
    X = np.random.default_rng(0).uniform(-1, 1, (200_000, 10)).astype(dtype)
    np.save(tmp_path / "points.npy", X)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    model = FastLloyd(n_clusters=8, bounds=(-1, 1), random_state=0)
    expected = model.fit(X.astype(np.float64)).cluster_centers_
    tracemalloc.start()
    fitted = model.fit(mapped).cluster_centers_
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(fitted, expected)
    assert peak <= X.nbytes / 2


@pytest.mark.parametrize(
    "model",
    [
        FastLloyd(2),
        DPM(2),
        KaplanStemmer(2),
        SynopsisKMeans(2),
        LSHSplits(2),
        Balcan(2, shifts=1, depth=2, search_rounds=1),
        MSTKMeans(2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_fit_takes_at_most_twice_its_input(monkeypatch, model):
    """Beyond it, the points on the grid included, in single precision."""
    monkeypatch.setattr("pkm.row_blocks.BLOCK_VALUES", 1 << 16)
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (2, 10))[rng.integers(2, size=300_000)].astype(np.float32)
    X += 0.1 * rng.standard_normal(X.shape, dtype=np.float32)
    model.set_params(bounds=(-1, 1), random_state=0)
    model.fit(X)  # compilers and caches take memory once
    tracemalloc.start()
    model.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 2 * X.nbytes
