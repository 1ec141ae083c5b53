"""The methods: conformance, the paper's formulas, accounting from the charges, and a
straightforward second version.
"""

import gc
import math
import weakref
from inspect import signature

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from pkm.compute import Points
from pkm.compute.center_moves import KEEP, TRUNCATE, fold, move_centers, shortening
from pkm.methods import (
    METHODS,
    FastLloyd,
    GLloyd,
    KMeansPlusPlus,
    Lloyd,
    PrivateKMeans,
    SuLloyd,
    load_method,
)
from pkm.audit.conformance import CHECKS, conformance, main
from pkm.methods.initialization import starting_centers
from pkm.metrics import evaluate
from pkm.privacy import (
    SCALE,
    Gaussian,
    NoiseStreams,
    PrivacyClaim,
    SumsAndCounts,
    gaussian_mu,
    snap,
)

CLASSES = [load_method(name) for name in METHODS]

RHO = 0.225
PRIVATE = (SuLloyd, GLloyd, FastLloyd)


def blobs(n=3000, d=2, seed=0):
    rng = np.random.default_rng(seed)
    return np.clip(
        rng.uniform(-0.7, 0.7, (4, d))[np.arange(n) % 4] + 0.08 * rng.standard_normal((n, d)), -1, 1
    )


# Conformance


@pytest.mark.parametrize("method", CLASSES, ids=lambda method: method.__name__)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_own_methods_conform(method):
    outcomes = conformance(method)
    assert len(outcomes) == len(CHECKS) * len(method.claims)
    assert [outcome for outcome in outcomes if outcome.error] == []


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_points_are_held_after_fit(name):
    """Private data die with their owner's last reference: no cache of the process holds them."""
    method = load_method(name)
    lower = np.full(2, -1.0)
    upper = np.ones(2)
    for variant in method.claims:
        estimator = method(n_clusters=2, random_state=0)
        if "variant" in estimator.get_params():
            estimator.set_params(variant=variant)
        X = blobs(seed=1)
        # Not the points of ``fit``: a cache that holds those would answer for equal ones.
        points, _ = Points.from_box(blobs(seed=2), lower, upper)
        held = [weakref.ref(X), weakref.ref(points), weakref.ref(points.rows)]
        estimator.fit(X)
        estimator.fit_batch(points, [0])
        del X, points
        gc.collect()
        assert [reference() for reference in held] == [None] * 3


class OrderDependent(FastLloyd):
    """Wrong: looks at the points' order."""

    def cluster(self, curator):
        centers, rounds = super().cluster(curator)
        return centers + int(curator._shards[0].rows[0, 0]), rounds


class Neighborly(FastLloyd):
    """Wrong: a replicate's result depends on the others."""

    def cluster(self, curator):
        centers, rounds = super().cluster(curator)
        return centers + curator.n_replicates, rounds


class FreeRider(FastLloyd):
    """Wrong: claims privacy and charges nothing."""

    def cluster(self, curator):
        return np.zeros((curator.n_replicates, self.n_clusters, curator.n_features), np.int64), 0


@pytest.mark.parametrize(
    ("method", "caught_by"),
    [
        (OrderDependent, "check_order_and_shards"),
        (Neighborly, "check_batch_is_loop"),
        (FreeRider, "check_ledger"),
    ],
)
def test_conformance_catches_a_broken_method(method, caught_by):
    assert caught_by in {outcome.check for outcome in conformance(method) if outcome.error}


def test_conformance_command(capsys):
    assert main(["pkm.methods.lloyd.GLloyd"]) == 0
    assert capsys.readouterr().out.count(" ok") == 2 * len(CHECKS)
    assert main([f"{__name__}.FreeRider"]) == 1
    assert main(["no.such.Method"]) == 2
    assert "known: KMeansPlusPlus" in capsys.readouterr().out


def test_an_overspending_method_is_stopped():
    class Greedy(FastLloyd):
        def schedule(self, n_points, n_features):
            return [*super().schedule(n_points, n_features)] * 2

    with pytest.raises(RuntimeError, match="the budget has delta"):
        Greedy(n_clusters=2).fit(blobs())


def test_a_foreign_method_needs_only_cluster():
    class Middle(PrivateKMeans):
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
            records = answer["counts"][:, :, None] / SCALE
            return np.rint(answer["sums"] / records).astype(np.int64), 1

    assert Middle(random_state=0).fit(blobs(100_000)).cluster_centers_.shape == (1, 2)


@pytest.mark.parametrize("target", ["Nope", "pkm.methods.lloyd.Nope", "nope.Nope", ""])
def test_unknown_methods_are_refused_with_the_known_ones(target):
    with pytest.raises(
        ValueError, match=r"is unknown .*known: KMeansPlusPlus, KMedian, Lloyd, SuLloyd"
    ):
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
        ({"n_iterations": True}, "n_iterations=True must be 'auto' or an integer"),
        ({"secure": "x"}, "secure='x' is unknown, choose one of True, False"),
        ({"bounds": (-np.inf, 1)}, "must be finite with lower < upper"),
        ({"n_iterations": 0}, "n_iterations=0 must be 'auto' or an integer of at least 1"),
        ({"epsilon": "much"}, "epsilon='much' must be a positive finite number"),
        ({"delta": 2}, r"delta=2 must be 'auto' or a number in \(0, 1\)"),
        ({"bounds": (1, -1)}, "must be finite with lower < upper"),
        ({"bounds": (0, 1, 2)}, r"bounds must be \(lower, upper\) or of shape \(2, 2\)"),
        ({"variant": "fast"}, "variant='fast' is unknown"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        FastLloyd(n_clusters=2).set_params(**parameters).fit(blobs())


@pytest.mark.parametrize("points", [[["a", "b"]], [1.0, 2.0], np.empty((0, 2))])
def test_points_that_are_no_matrix_are_refused(points):
    with pytest.raises(ValueError, match="X must"):
        FastLloyd(n_clusters=1).fit(points)


def test_bounds_are_the_units_of_the_data():
    """Shifting and stretching data and bounds together moves the centers along with them and
    nothing else.
    """
    points = blobs()
    unit = FastLloyd(4, random_state=2).fit(points)
    moved = FastLloyd(4, random_state=2, bounds=([3.0, -5.0], [11.0, 3.0])).fit(
        points * 4 + [7.0, -1.0]
    )
    np.testing.assert_allclose(
        moved.cluster_centers_, unit.cluster_centers_ * 4 + [7.0, -1.0], atol=1e-9
    )
    assert (moved.predict(points * 4 + [7.0, -1.0]) == unit.predict(points)).all()


def test_widest_bounds_do_not_overflow():
    model = FastLloyd(2, bounds=(-1e308, 1e308), random_state=0).fit(blobs())
    assert np.isfinite(model.cluster_centers_).all()


# Formulas of the paper


@pytest.mark.parametrize("n", [150, 5000, 48_842])
@pytest.mark.parametrize("d", [2, 4, 784])
@pytest.mark.parametrize("k", [2, 15, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_number_of_iterations_and_noise_follow_the_paper(n, d, k, epsilon):
    """Sec. 5.5 and App. B.1, written out here a second time."""
    if k > n:
        pytest.skip("more clusters than points")
    delta = 1 / (n * math.log(n))
    fast = FastLloyd(k, epsilon=epsilon, variant="published")
    sigma = 1 / gaussian_mu(epsilon, delta)
    eta = 0.8 * 2 * math.sqrt(d) / (2 * k ** (1 / d))
    bound = 4 * n**2 * 0.004 / (k**3 * eta**2 * sigma**2 * (1 + math.sqrt(4 * d)) ** 2)
    schedule = fast.schedule(n, d)
    assert len(schedule) == int(np.clip(bound, 2, 7))
    assert [this.radius for this in schedule] == pytest.approx(
        [math.sqrt(d)] + [eta] * (len(schedule) - 1)
    )
    for this in schedule:
        sums = this.sum_noise.scale / SCALE / this.radius
        counts = this.count_noise.scale / SCALE
        assert counts / sums == pytest.approx((4 * d) ** 0.25)
        assert 1 / sums**2 + 1 / counts**2 == pytest.approx(1 / (sigma**2 * len(schedule)))

    gaussian = GLloyd(k, epsilon=epsilon, variant="published").schedule(n, d)
    bound = 0.004 * n**2 / (k**3 * d * sigma**2 * (2 * RHO + math.sqrt(d)) ** 2)
    assert len(gaussian) == int(np.clip(bound, 2, 7))
    sums = gaussian[0].sum_noise.scale / SCALE / math.sqrt(d)
    counts = gaussian[0].count_noise.scale / SCALE
    assert counts / sums == pytest.approx(math.sqrt(math.sqrt(d) / (2 * RHO)))
    assert 1 / sums**2 + 1 / counts**2 == pytest.approx(1 / (sigma**2 * len(gaussian)))

    laplace = SuLloyd(k, epsilon=epsilon, variant="published").schedule(n, d)
    weight = (4 * d * RHO**2) ** (1 / 3)
    assert len(laplace) == int(
        np.clip(epsilon / math.sqrt(500 * k**3 / n**2 * (d + weight) ** 3), 2, 7)
    )
    for_sums = d / (laplace[0].sum_noise.scale / SCALE)
    for_counts = 1 / (laplace[0].count_noise.scale / SCALE)
    assert for_sums + for_counts == pytest.approx(epsilon / len(laplace))
    assert for_sums / for_counts == pytest.approx(d / weight)


@pytest.mark.parametrize("method", PRIVATE)
@pytest.mark.parametrize("variant", ["published", "sound"])
def test_charges_add_up_to_the_declared_budget(method, variant):
    """Recomputed from the log of actual charges by an independent accountant."""
    epsilon = 0.7
    run = method(3, epsilon=epsilon, variant=variant).fit_batch(snap(blobs()), [0])
    assert len(run.ledger.charges) == run.n_iter
    assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)
    if method is SuLloyd:
        total = sum(
            charge.details["sum_sensitivity"] / charge.details["sum_scale"]
            + 1 / charge.details["count_scale"]
            for charge in run.ledger.charges
        )
        assert total == pytest.approx(epsilon)
        return
    composed = None
    for charge in run.ledger.charges:
        ratios = (
            charge.details["sum_sensitivity"] / charge.details["sum_scale"],
            1 / charge.details["count_scale"],
        )
        for ratio in ratios:
            part = privacy_loss_distribution.from_gaussian_mechanism(
                1 / ratio, value_discretization_interval=1e-3
            )
            composed = part if composed is None else composed.compose(part)
    assert composed.get_epsilon_for_delta(run.ledger.budget.delta) == pytest.approx(
        epsilon, rel=1e-4
    )


def test_delta_of_the_variants():
    n = 3000
    assert GLloyd(variant="published").resolved_delta(n) == pytest.approx(1 / (n * math.log(n)))
    assert GLloyd(variant="sound").resolved_delta(n) == 1e-6
    assert GLloyd(delta=1e-9).resolved_delta(n) == 1e-9
    with pytest.raises(ValueError, match="needs n >= 3, got 2"):
        GLloyd(1, variant="published").fit(np.zeros((2, 1)))


def test_search_of_the_variants():
    """``published`` starts where the published code starts; ``sound`` packs as wide as it can."""
    halving = starting_centers([0], 3, 2, "packing", "halving") / SCALE
    np.testing.assert_allclose(halving[0, 0], [0.5542328, -0.0687564], atol=2.0**-17)
    points = snap(blobs())
    published = Lloyd(3, variant="published")
    assert (
        published.fit_batch(points, [0]).centers
        == Lloyd(3, variant="published", radius_search="halving").fit_batch(points, [0]).centers
    ).all()
    assert (
        Lloyd(3).fit_batch(points, [0]).centers
        == Lloyd(3, radius_search="bisection").fit_batch(points, [0]).centers
    ).all()
    uniform = starting_centers(range(200), 5, 2, "uniform", "bisection") / SCALE
    assert np.abs(uniform.mean()) < 5 / math.sqrt(3 * uniform.size)


# Post-processing


def reflect(x):
    while abs(x) > 1:
        x = 2 - x if x > 1 else -2 - x
    return x


@given(st.lists(st.integers(-20 * SCALE, 20 * SCALE), min_size=1, max_size=10))
def test_fold_is_reflection_at_the_borders(values):
    folded = fold(np.array(values))
    assert folded.tolist() == [round(reflect(value / SCALE) * SCALE) for value in values]
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
    assert truncated.tolist() == [min(max(value, -SCALE), SCALE) for value in values]


@given(st.lists(st.integers(-(2**30), 2**30), min_size=2, max_size=5), st.integers(1, 10 * SCALE))
def test_shorten_keeps_direction_and_bounds_length(step, longest):
    short = np.rint(np.array(step) * shortening(np.array(step), float(longest)))
    length = math.dist(step, [0] * len(step))
    if length <= longest:
        assert short.tolist() == step
    else:
        assert math.dist(short, [0] * len(step)) <= longest + math.sqrt(len(step))
        assert np.abs(short - np.array(step) * (longest / length)).max() <= 0.5 + 1e-6


@given(st.lists(st.integers(-SCALE, SCALE), min_size=2, max_size=5), st.data())
def test_moves_are_shortened_from_the_center(mean, data):
    center = data.draw(st.lists(st.integers(-SCALE, SCALE), min_size=len(mean), max_size=len(mean)))
    longest = data.draw(st.integers(1, 3 * SCALE))
    step = np.array(mean) - np.array(center)
    expected = center + np.rint(step * shortening(step, float(longest)))
    assert moved(center, mean, float(longest)).tolist() == expected.tolist()


# A straightforward second version


def loop_version(method, points, seed):
    """One replicate, one cluster, one point at a time, from the definitions; noise from the same
    streams.
    """
    n, d, k = *points.shape, method.n_clusters
    search = "halving" if method.variant == "published" else "bisection"
    centers = starting_centers([seed], k, d, "packing", search)[0].astype(float)
    streams = NoiseStreams([seed])
    for t, this in enumerate(method.schedule(n, d)):
        sums = np.zeros((k, d))
        counts = np.zeros(k)
        for x in points:
            squares = ((x - centers) ** 2).sum(axis=1)
            j = int(squares.argmin())
            if this.radius is None or squares[j] <= (this.radius * SCALE) ** 2:
                sums[j] += x - centers[j] if method.relative else x
                counts[j] += 1
        if this.sum_noise is not None:
            draw = streams.laplace if this.sum_noise.name == "laplace" else streams.normal
            key = ("sums_and_counts", t)
            sums += np.rint(this.sum_noise.scale * draw((*key, "sums"), (k, d))[0])
            counts += np.rint(this.count_noise.scale * draw((*key, "counts"), (k,))[0]) / SCALE
        for j in range(k):
            base = centers[j] if method.relative else 0.0
            if method.variant == "sound":
                moved = centers[j] if counts[j] < 1 else base + sums[j] / counts[j]
            else:
                moved = base + sums[j] / (counts[j] + 1e-9)
            limit = math.floor(math.sqrt(2**53 / d)) - SCALE - 1
            moved = np.clip(np.rint(moved), -limit, limit)
            if isinstance(method, FastLloyd):
                length = math.dist(moved, centers[j])
                if length > this.radius * SCALE:
                    moved = centers[j] + np.rint(
                        (moved - centers[j]) * (this.radius * SCALE / length)
                    )
            folds = isinstance(method, FastLloyd) or (
                method.variant == "sound" and this.sum_noise is not None
            )
            centers[j] = [round(reflect(v / SCALE) * SCALE) for v in moved] if folds else moved
    return centers.astype(np.int64)


@pytest.mark.parametrize("method", [Lloyd, *PRIVATE])
@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("d", [2, 7])
def test_batched_methods_equal_a_straightforward_loop(method, variant, d):
    points = snap(blobs(400, d))
    estimator = method(3, variant=variant)
    run = estimator.fit_batch(points, [0, 1, 2, 3])
    for i, seed in enumerate(run.seeds):
        assert (run.centers[i] == loop_version(estimator, points, seed)).all()


@pytest.mark.parametrize("method", [GLloyd, SuLloyd])
def test_without_noise_the_private_kin_is_lloyd(method):
    """At a huge budget the noise rounds to nothing, and the same rounds give the same centers bit
    for bit.
    """
    points = snap(blobs())
    huge = {"epsilon": 1e12} if method is SuLloyd else {"epsilon": 1e12, "delta": 0.5}
    private = method(4, n_iterations=5, postprocessing="none", **huge).fit_batch(points, [1, 2])
    assert (private.centers == Lloyd(4, n_iterations=5).fit_batch(points, [1, 2]).centers).all()


def test_more_budget_helps():
    points = snap(blobs(20_000))
    for method in PRIVATE:
        worse, better = (
            evaluate(
                points, method(4, epsilon=epsilon).fit_batch(points, range(60)).centers, ["nicv"]
            )["nicv"]
            for epsilon in (0.01, 2.0)
        )
        difference = worse - better
        assert difference.mean() > 5 * difference.std() / math.sqrt(60)


def test_secure_runs_differ_and_ignore_the_seed_of_the_noise():
    points = snap(blobs())
    one, other = (FastLloyd(2, secure=True).fit_batch(points, [0]).centers for _ in range(2))
    assert (one != other).any()


def test_k_means_is_scikit_learns():
    points = blobs()
    ours = KMeansPlusPlus(4, n_init=3, random_state=7).fit(points)
    theirs = KMeans(4, n_init=3, random_state=7).fit(snap(points) / SCALE)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, atol=2.0**-16)


@pytest.mark.parametrize(
    "method", [m for m in CLASSES if any(c.private for c in m.claims.values())]
)
def test_budgets_far_outside_practice_are_run_or_refused_by_name(method):
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (300, 2))
    for variant in method.claims:
        chosen = {"variant": variant} if "variant" in signature(method).parameters else {}
        for epsilon in (1e-12, 1e-8, 1e-6, 1e-4, 1e5):
            try:
                run = method(n_clusters=2, epsilon=epsilon, **chosen).fit_batch(points, [0])
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
                method(n_clusters=2, epsilon=epsilon, **chosen).fit_batch(points, [0])


@pytest.mark.parametrize("method", [m for m in CLASSES if "secure" in m.choices])
@pytest.mark.parametrize("n", [30, 3000])
def test_secure_noise_serves_every_schedule(method, n):
    """Whatever leaves, also nothing: few points at a small budget leave the questions after a
    threshold empty.
    """
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (n, 3))
    for variant in method.claims:
        chosen = {"variant": variant} if "variant" in signature(method).parameters else {}
        run = method(n_clusters=2, epsilon=1.0, secure=True, **chosen).fit_batch(points, [0])
        assert np.isfinite(run.centers).all()
