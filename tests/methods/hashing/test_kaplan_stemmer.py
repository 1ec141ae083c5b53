"""Kaplan and Stemmer: hashing, restriction, queries on neighbors, accounting, quality.
Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6."""

import math
import re
from functools import cache

import numpy as np
import pytest
from hashed import (
    mixture,
    shortened,
    squared_distances,
)
from scipy.special import expit, ndtri

from pkm.audit.pairs import draw_pairs
from pkm.audit.replay import replay
from pkm.compute import Points, inertia
from pkm.compute.kernels.clipping import clip_norms
from pkm.compute.kernels.hashing import euclidean_hash
from pkm.methods import KMeansPlusPlus
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, gaussian_mu, gdp_delta, snap
from pkm.privacy.mechanisms.noise import INITIALIZATION, child, public_seed
from pkm.privacy.mechanisms.stability_histogram import quantile


def number_of_hashes(plan):
    return plan.rounds * len(plan.widths) * plan.repetitions


@cache
def best_cost(k=16, **kwargs):
    points, _ = mixture(k=k, **kwargs)
    exact = KMeansPlusPlus(k, n_init=5).fit_batch(points, [0])
    return inertia(points, exact.centers)[0]


@pytest.mark.parametrize(
    "parameters",
    [
        {"select": "local_search"},
        {"release": "candidates"},
        {"rounds": 3},
        {"step_radius": "released"},
    ],
)
def test_variants_keep_budget_ball_and_independence_of_shards(parameters):
    points, _ = mixture()
    rows = points.rows[:2000].astype(np.int64)
    method = KaplanStemmer(3, epsilon=4.0, radius=1.0, **parameters)
    run = method.fit_batch(rows, [1, 2])
    assert run.ledger.spent() <= 4.0 * (1 + 1e-9)
    shuffled = np.random.default_rng(0).permutation(rows)
    with_empty_shard = method.fit_batch([shuffled[:700], np.empty((0, 10), np.int64)], [1, 2])
    assert with_empty_shard.centers.shape[2] == 10
    sharded = method.fit_batch([shuffled[:700], shuffled[700:]], [1, 2])
    assert (run.centers == sharded.centers).all()
    assert (run.n_centers == sharded.n_centers).all()
    lengths = np.sqrt((run.centers.astype(float) ** 2).sum(axis=2))
    assert lengths.max() <= SCALE  # in the ball


@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize("release", ["centers", "candidates"])
@pytest.mark.parametrize(
    ("n", "epsilon", "step_radius"), [(8000, 0.5, "planned"), (2000, 4.0, "released")]
)
def test_accounting_from_the_charges(n, epsilon, step_radius, select, release):
    """Recomputed from scales and sensitivities alone."""
    points = mixture()[0].rows[:n].astype(np.int64)
    method = KaplanStemmer(16, epsilon=epsilon, radius=1.0, select=select, release=release)
    method.set_params(step_radius=step_radius)
    plan = method.schedule(n, 10)
    assert plan.rounds == 2
    ledger = method.fit_batch(points, [0]).ledger
    n_hashes = number_of_hashes(plan)
    per_round = n_hashes // plan.rounds
    of_round = ["bucket_counts"] * per_round + ["bucket_sums"] * 2 * per_round
    expected_labels = of_round * plan.rounds
    if release == "centers":
        expected_labels += ["nearest_counts"] if select == "counts" else ["swaps"] * 20 + ["sets"]
        expected_labels += ["nearest_shells"] if step_radius == "released" else []
        expected_labels.append("nearest_sums_and_counts")
    assert [charge.label for charge in ledger.charges] == expected_labels

    squared_mu = 0.0
    delta = 0.0
    for number, charge in enumerate(ledger.charges):
        details = charge.details
        is_filtered = plan.rounds > 1 and n_hashes * 3 // 2 <= number < n_hashes * 3
        if charge.label == "bucket_counts":
            expected = math.sqrt(2) if is_filtered else 1
            assert details["count_sensitivity"] == pytest.approx(expected)
            delta += charge.delta
        if charge.label == "bucket_sums":
            expected = (2 if is_filtered else 1) * details["radius"]
            assert details["sum_sensitivity"] == pytest.approx(expected)
        for kind in ("count", "sum"):
            if f"{kind}_scale" in details:
                ratio = details[f"{kind}_sensitivity"] / details[f"{kind}_scale"]
                squared_mu += ratio**2
        if "choice_range" in details:
            squared_mu += (2 * ndtri(expit(details["choice_range"] / 2))) ** 2
    mu = math.sqrt(squared_mu)
    assert delta == pytest.approx(5e-7)
    assert sum(charge.delta for charge in ledger.charges) == delta
    assert gdp_delta(mu, epsilon) + delta <= 1e-6 * (1 + 1e-6)
    assert mu == pytest.approx(gaussian_mu(epsilon, 5e-7))
    assert ledger.spent() == pytest.approx(epsilon)


def radius_charged(rows, radius, **parameters):
    """Return the radius of the Lloyd step of a run, in radii of the ball."""
    method = KaplanStemmer(1, radius=radius, step_radius="released", **parameters)
    charges = method.fit_batch(rows, [0]).ledger.charges
    (radius_of_step,) = [
        charge.details["radius"] for charge in charges if "sums_and" in charge.label
    ]
    return radius_of_step / radius


@pytest.mark.parametrize("spread", [0.1, 0.01])
def test_released_radius_is_the_smallest_that_holds_nearly_all(spread):
    """Points on a sphere, with noise of a count far below theirs: their distance to the center,
    which is next to its middle, is below the radius and above the next smaller one.
    """
    directions = np.random.default_rng(0).standard_normal((20_000, 20))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radius = radius_charged(snap(spread * directions), 1.0, epsilon=50.0)
    assert spread < radius < 1.5 * spread


def test_released_radius_is_never_above_the_planned_one():
    rows = np.random.default_rng(1).choice([-SCALE, SCALE], (2000, 20))
    planned = KaplanStemmer(1, epsilon=50.0).schedule(2000, 20).lloyd_radius
    assert radius_charged(rows, math.sqrt(20), epsilon=50.0) == pytest.approx(planned)


@pytest.mark.parametrize("d", [16, 17])
@pytest.mark.parametrize("radius", [1.0, "auto"])
def test_a_given_ball_counts_as_filled_beyond_sixteen_features(d, radius):
    rows = np.random.default_rng(1).choice([-SCALE, SCALE], (2000, d))
    size = math.sqrt(d) if radius == "auto" else radius
    filled = d > 16 and radius != "auto"
    plan = KaplanStemmer(1, epsilon=50.0).schedule(2000, d, in_ball=filled)
    method = KaplanStemmer(1, epsilon=50.0, radius=radius, step_radius="planned")
    radii = [charge.details.get("radius") for charge in method.fit_batch(rows, [0]).ledger.charges]
    assert radii[-1] == pytest.approx(plan.lloyd_radius * size)
    assert min(filter(None, radii[:-1])) == pytest.approx(
        max(min(plan.widths), plan.fine_radius) * size
    )


@pytest.mark.slow
@pytest.mark.statistical
def test_released_radius_pays_on_small_clusters():
    """16 clusters of standard deviation 0.01 in 32 columns: what noise of the step adds falls."""
    rng = np.random.default_rng(2)
    centers = rng.uniform(-0.9, 0.9, (16, 32))
    labels = rng.integers(16, size=50_000)
    rows = snap(np.clip(centers[labels] + 0.01 * rng.standard_normal((50_000, 32)), -1, 1))
    points = Points.from_grid(rows)
    best = inertia(points, KMeansPlusPlus(16, n_init=5).fit_batch(points, [0]).centers)[0]
    excess = {}
    for step_radius in ("planned", "released"):
        run = KaplanStemmer(16, epsilon=1.0, step_radius=step_radius).fit_batch(points, range(3))
        excess[step_radius] = np.array(inertia(points, run.centers)) / best - 1
    assert excess["released"].max() < 0.01
    assert excess["released"].max() < 0.2 * excess["planned"].min()


@pytest.mark.slow
def test_replay_with_a_released_radius():
    """Queries, charges and centers depend on released values alone, and cost what is charged."""
    method = KaplanStemmer(2, epsilon=400.0, step_radius="released")
    for number, pair in enumerate(draw_pairs("zero_out", 16, 6, n_points=(40, 60))):
        outcome = replay(method, pair, number)
        assert not outcome.mismatch
        assert outcome.refusal is None
        assert all(each.ratio <= 1 + 1e-9 for each in outcome.realized)


def noiseless_version(points, k, radius, plan, seed):
    """Run the method without any noise, in plain numpy."""
    generator = np.random.default_rng(child(public_seed(seed), INITIALIZATION))
    d = points.shape[1]
    kept = points
    candidates = np.empty((0, d), np.int64)

    def clip(positions):
        return np.clip(clip_norms(positions, radius * SCALE), -SCALE, SCALE)

    for number in range(plan.rounds):
        # Restrict to the half that is farthest from the candidates.
        if number:
            squares = squared_distances(kept, candidates).min(axis=1)
            order = np.lexsort((*kept.T[::-1], -squares))
            kept = kept[order[: len(kept) // 2]]

        # The average of every large bucket, in two steps from its center, is a candidate.
        for width in plan.widths:
            for _ in range(plan.repetitions):
                hashing = euclidean_hash(generator, 4, d, width * radius)
                cells = (kept @ hashing.directions.T + hashing.shifts) // hashing.width
                _, bucket, sizes = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
                bucket = bucket.ravel()
                codes = hashing.codes(Points.from_grid(kept))
                for b in np.flatnonzero(sizes >= plan.threshold):
                    members = kept[bucket == b]
                    center = clip(hashing.cell_centers(codes[bucket == b][:1]))
                    for step_radius in (
                        0.5 * radius,
                        min(max(width, plan.fine_radius), 0.5) * radius,
                    ):
                        steps = shortened(members - center, step_radius)
                        center = clip(center + steps.sum(axis=0) / len(members))
                    candidates = np.concatenate([candidates, center])
        candidates = np.unique(candidates, axis=0)

    # Cluster the candidates, weighted by the points nearest to them.
    nearest = squared_distances(points, candidates).argmin(axis=1)
    sizes = np.bincount(nearest, minlength=len(candidates))
    used = sizes > 0
    kmeans_seed = int(generator.integers(2**32))
    centers = weighted_kmeans(
        candidates[used].astype(float),
        sizes[used].astype(float),
        k,
        10,
        kmeans_seed,
    )
    centers = clip(centers)

    # One Lloyd step.
    nearest = squared_distances(points, centers).argmin(axis=1)
    for j in range(k):
        steps = shortened(points[nearest == j] - centers[j], plan.lloyd_radius * radius)
        mean = centers[j] + steps.sum(axis=0) / max(len(steps), 1)
        centers[j] = clip(mean[None])[0]
    return centers


@pytest.mark.slow
def test_without_noise_equals_a_plain_version():
    points, _ = mixture()
    rows = points.rows[:1500].astype(np.int64)
    method = KaplanStemmer(16, epsilon=1e15, radius=1.0)
    plan = method.schedule(1500, 10)
    assert plan.rounds == 2
    assert plan.repetitions == 2
    assert plan.threshold < 1.01
    for seed in (0, 1):
        run = method.fit_batch(rows, [seed])
        assert (run.centers[0] == noiseless_version(rows, 16, 1.0, plan, seed)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "limit"), [(1.0, 1.3), (4.0, 1.05)])
def test_close_to_k_means_on_separated_clusters(epsilon, limit):
    points, _ = mixture()
    run = KaplanStemmer(16, epsilon=epsilon, radius=1.0).fit_batch(points, range(5))
    assert max(inertia(points, run.centers)) < limit * best_cost()


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 4, 8, 16, 32, 64, 128])
def test_close_to_k_means_in_any_number_of_features(d):
    """Widths of buckets follow the projections of the domain, which get shorter with d.

    Separated clusters in the unit cube, whose ball has the radius sqrt(d): medians of three seeds
    over the cost of the planted centers.
    """
    rng = np.random.default_rng(d)
    centers = rng.uniform(-0.7, 0.7, (16, d))
    distances = np.linalg.norm(centers[:, None] - centers, axis=2) + 9 * np.eye(16)
    spread = min(0.05, distances.min() / 8)
    rows = centers[np.arange(30_000) % 16] + spread * rng.standard_normal((30_000, d))
    points = Points.from_grid(snap(np.clip(rows, -1, 1)))
    run = KaplanStemmer(16, epsilon=3.3).fit_batch(points, range(3))
    planted = inertia(points, snap(centers)[None])[0]
    assert np.median(inertia(points, run.centers)) <= 1.05 * planted


@pytest.mark.slow
def test_local_search_also_finds_clusters():
    points, _ = mixture(k=4, d=3)
    method = KaplanStemmer(4, epsilon=4.0, radius=1.0, select="local_search")
    run = method.fit_batch(points, range(3))
    assert np.median(inertia(points, run.centers)) < 1.3 * best_cost(k=4, d=3)


def test_candidates_capture_planted_clusters():
    """A candidate within the smallest width of every planted center, in 95 of 100 cases or more."""
    points, planted = mixture()
    method = KaplanStemmer(16, epsilon=1.0, radius=1.0, release="candidates")
    run = method.fit_batch(points, range(8))
    width = min(method.schedule(20_000, 10, result="candidates").widths)
    captured = []
    for centers, n_centers in zip(run.centers, run.n_centers, strict=True):
        candidates = centers[:n_centers] / SCALE
        distances = np.linalg.norm(candidates[:, None] - planted, axis=2)
        captured.append(distances.min(axis=0) < width)
    assert np.mean(captured) >= 0.95
    assert run.n_centers.min() >= 16


def test_second_round_finds_clusters_missed_by_the_first():
    """In the first round a small cluster shares buckets with a large one nearby, and their average
    is near the large one. The second round uses the farthest half of the points.
    """
    rng = np.random.default_rng(0)
    center = np.full(8, 0.0)
    center[0] = 0.6
    large = 0.1 * rng.standard_normal((19_700, 8))
    small = center + 0.01 * rng.standard_normal((300, 8))
    points = snap(np.concatenate([large, small]))
    n_finding = {}
    for rounds in (1, 2):
        method = KaplanStemmer(
            8,
            epsilon=8.0,
            radius=1.0,
            rounds=rounds,
            widths=(0.5,),
            repetitions=1,
            release="candidates",
        )
        run = method.fit_batch(points, range(12))
        found = [
            np.linalg.norm(centers / SCALE - center, axis=1).min() < 0.1 for centers in run.centers
        ]
        n_finding[rounds] = sum(found)
    assert n_finding == {1: 5, 2: 8}


@pytest.mark.parametrize(
    ("n", "d", "k", "epsilon", "schedule"),
    [
        (20_000, 16, 16, 1.0, (2, (0.25, 0.125), 2)),
        (20_000, 16, 16, 0.1, (1, (0.125,), 1)),
        (10**6, 16, 64, 1.0, (2, (0.25, 0.125, 0.0625), 2)),
        (10**6, 2, 4, 1.0, (2, (0.25, 0.125), 2)),
        (5000, 2, 15, 0.25, (1, (1 / 6,), 1)),
    ],
)
def test_schedule_follows_the_public_rule(n, d, k, epsilon, schedule):
    plan = KaplanStemmer(k, epsilon=epsilon).schedule(n, d)
    assert (plan.rounds, plan.widths, plan.repetitions) == schedule


def test_schedule_follows_the_parameters():
    method = KaplanStemmer(4, epsilon=1.0, rounds=3, widths=[0.3], repetitions=5)
    plan = method.schedule(10**6, 10)
    assert plan.rounds == 3
    assert plan.widths == (0.3,)
    assert plan.repetitions == 5
    assert (plan.fine_radius, plan.lloyd_radius) == (0.0, 0.6)


def test_released_radius_is_a_twentieth_of_the_steps():
    planned = KaplanStemmer(8, lloyd_steps=3, step_radius="planned").schedule(10_000, 10)
    released = KaplanStemmer(8, lloyd_steps=3, step_radius="released").schedule(10_000, 10)
    steps = 3 * planned.lloyd_mu**2
    assert planned.shells_mu == 0
    assert released.shells_mu**2 == pytest.approx(steps / 20)
    assert 3 * released.lloyd_mu**2 == pytest.approx(steps * 19 / 20)
    assert (released.histogram_mu, released.delta) == (planned.histogram_mu, planned.delta)
    without_steps = KaplanStemmer(8, lloyd_steps=0, step_radius="released").schedule(10_000, 10)
    assert without_steps.shells_mu == without_steps.lloyd_mu == 0
    coreset = KaplanStemmer(8, step_radius="released").schedule(10_000, 10, result="coreset")
    assert coreset.shells_mu == 0


@pytest.mark.parametrize(
    ("n", "d", "chosen"),
    [(6500, 10, "planned"), (7000, 10, "released"), (7000, 4, "released"), (7000, 3, "planned")],
)
def test_radius_is_released_with_200_records_for_each_of_many_features(n, d, chosen):
    k = 8
    records = n * gaussian_mu(1.0, 1e-6) / k
    assert (records >= 200 and d > 3) == (chosen == "released")
    assert KaplanStemmer(k).schedule(n, d) == KaplanStemmer(k, step_radius=chosen).schedule(n, d)


@pytest.mark.parametrize("n", [1000, 10_000, 100_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_schedule_spends_the_budget(n, epsilon):
    plan = KaplanStemmer(8, epsilon=epsilon).schedule(n, 10)
    n_hashes = number_of_hashes(plan)
    mu = gaussian_mu(epsilon, 5e-7)
    threshold = 1 + quantile(5e-7 / n_hashes) * math.sqrt(n_hashes / 0.25) / mu
    # Exact noise has a scale of whole grid steps, up to three more.
    rounding = 4 * quantile(5e-7 / n_hashes) / SCALE
    assert threshold <= plan.threshold <= threshold + rounding
    assert plan.threshold <= n / 24 or n_hashes == 1
    candidates = n_hashes * (plan.histogram_mu**2 + plan.average_mu**2)
    total = candidates + plan.selection_mu**2 + plan.lloyd_mu**2 + plan.shells_mu**2
    assert math.sqrt(total) == pytest.approx(mu)
    assert n_hashes * plan.delta == 5e-7


@pytest.mark.parametrize(
    ("result", "steps"),
    [
        ("centers", 0),
        ("centers", 3),
        ("coreset", 1),
        ("candidates", 1),
    ],
)
def test_unused_parts_of_the_budget_are_redistributed(result, steps):
    plan = KaplanStemmer(8, lloyd_steps=steps).schedule(10_000, 10, result=result)
    candidates = number_of_hashes(plan) * (plan.histogram_mu**2 + plan.average_mu**2)
    total = candidates + plan.selection_mu**2 + plan.shells_mu**2 + steps * plan.lloyd_mu**2
    assert math.sqrt(total) == pytest.approx(gaussian_mu(1.0, 5e-7))
    assert (plan.selection_mu == 0) == (result == "candidates")


@pytest.mark.parametrize(
    ("release", "parameters"),
    [
        ("fit_batch", {"release": "candidates"}),
        ("fit_batch", {"widths": [0.5], "repetitions": 1}),
        ("draw_coreset", {}),
    ],
)
def test_refusal_names_a_sufficient_budget(release, parameters):
    """Too few records or too little epsilon: the message names n and epsilon that suffice."""

    def spent(n, epsilon):
        points = np.zeros((n, 2), np.int64)
        seeds = [0] if release == "fit_batch" else 0
        method = KaplanStemmer(2, epsilon=epsilon, **parameters)
        return getattr(method, release)(points, seeds).ledger.spent()

    message = (
        r"epsilon=0.5 is too little for one release from n=50 records: "
        r".* about n=(\d+) or epsilon=([\d.]+) would suffice"
    )
    with pytest.raises(ValueError, match=message) as refusal:
        spent(50, 0.5)
    n, epsilon = re.search(message, str(refusal.value)).groups()
    largest = max(0.5, float(epsilon)) * (1 + 1e-9)
    assert spent(int(n), 0.5) <= largest
    assert spent(50, float(epsilon)) <= largest


def test_a_coreset_of_one_record_is_refused():
    method = KaplanStemmer(1, epsilon=1.0, bounds=(-1, 1))
    message = r"n=1 records are too few for one release: n=\d+ would suffice"
    with pytest.raises(ValueError, match=message):
        method.coreset(np.zeros((1, 2)))


@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize(("n", "epsilon"), [(50, 0.5), (50, 1e-3), (2000, 0.01)])
def test_falls_back_to_packed_centers(n, epsilon, select):
    """Where no bucket can pass the threshold."""
    noise = 0.05 * np.random.default_rng(0).standard_normal((n, 3))
    rows = snap(np.clip(0.3 + noise, -1, 1))
    method = KaplanStemmer(4, epsilon=epsilon, radius=1.0, select=select)
    plan = method.schedule(n, 3)
    assert plan.threshold > n
    run = method.fit_batch(rows, range(5))
    assert run.centers.shape == (5, 4, 3)
    assert run.n_centers.tolist() == [4] * 5
    lengths = np.sqrt((run.centers.astype(float) ** 2).sum(axis=2))
    assert lengths.max() <= SCALE
    assert run.ledger.spent() <= epsilon * (1 + 1e-9)
    # Empty histograms are charged all the same: the ledger does not depend on the data.
    n_histograms = sum(charge.label == "bucket_counts" for charge in run.ledger.charges)
    assert n_histograms == number_of_hashes(plan)
    with pytest.raises(ValueError, match="is too little for one release"):
        method.draw_coreset(rows, 0)
    with pytest.raises(ValueError, match="is too little for one release"):
        method.set_params(release="candidates").fit_batch(rows, [0])


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
@pytest.mark.parametrize("select", ["counts", "local_search"])
@pytest.mark.parametrize(
    ("rows", "k"),
    [
        (np.full((50, 3), SCALE), 4),
        (np.full((50, 3), -SCALE), 1),
        (np.zeros((7, 1), int), 7),
        (np.eye(12, dtype=int) * SCALE, 12),
        (np.array([[SCALE, 0]]), 1),
    ],
)
def test_degenerate_data_have_defined_results(rows, k, select, epsilon):
    run = KaplanStemmer(k, epsilon=epsilon, select=select).fit_batch(rows, [0, 1])
    assert run.centers.shape == (2, k, rows.shape[1])
    assert np.abs(run.centers).max() <= SCALE
    assert run.ledger.spent() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"radius": 0.0},
            "radius=0.0 must be 'auto' or a positive finite number",
        ),
        ({"radius": "wide"}, "radius='wide'"),
        ({"step_radius": "wide"}, "step_radius='wide' is unknown"),
        ({"rounds": 0}, "rounds=0 must be an integer of at least 1"),
        ({"search_rounds": 0}, "search_rounds=0"),
        ({"projections": 2.5}, "projections=2.5"),
        ({"keep": 1.0}, r"keep=1.0 must be a number in \(0, 1\)"),
        (
            {"lloyd_steps": -1},
            "lloyd_steps=-1 must be an integer of at least 0",
        ),
        (
            {"widths": []},
            r"widths=\[\] must be 'auto' or one or more positive finite numbers",
        ),
        ({"widths": [0.5, -1]}, "widths="),
        ({"widths": "fine"}, "widths='fine'"),
        (
            {"repetitions": 0},
            "repetitions=0 must be 'auto' or an integer of at least 1",
        ),
        ({"select": "best"}, "select='best'"),
        ({"release": "all"}, "release='all'"),
        ({"moves": "none"}, "moves='none'"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"n_clusters": 101}, "n_clusters=101"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        KaplanStemmer(**parameters).fit_batch(np.zeros((100, 2), np.int64), [0])
