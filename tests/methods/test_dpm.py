"""DPM, LSH-Splits and DP-Lloyd: schedules and charges, the papers' constants, behaviour on easy and
on absurd data.
"""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

from pkm.compute import Points, inertia
from pkm.methods import DPM, DPLloyd, LSHSplits, SuLloyd
from pkm.methods.dpm import GAP_CONSTANT, Node, gap_constant, interval_width, level_budgets
from pkm.methods.lsh_splits import clip_to_ball
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    BoxGrid,
    Curator,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    gaussian_mu,
    gdp_epsilon,
    snap,
)

EASY = 1e4  # an epsilon so large that noise is no matter


def blobs(seed=0, n=4000, d=4, k=6, spread=0.02):
    """Well separated blobs in [-1, 1]^d and their centers."""
    rng = np.random.default_rng(seed)
    corners = np.array(list(itertools.product([-0.6, 0.6], repeat=d)))
    centers = corners[rng.choice(len(corners), k, replace=False)] + rng.uniform(-0.1, 0.1, (k, d))
    points = centers[np.arange(n) % k] + spread * rng.standard_normal((n, d))
    return snap(np.clip(points, -1, 1)), centers


def cost(points, run):
    return np.array(inertia(Points.prepare(points), run.centers), float) / SCALE**2


# Constants


@pytest.mark.statistical
def test_gap_constant_is_what_simulation_gives():
    """Percentiles of gaps times n over 20 samples; their spread gives the standard error."""
    rng = np.random.default_rng(0)
    n = 50_000
    found = [n * np.percentile(np.diff(np.sort(rng.standard_normal(n))), 65) for _ in range(20)]
    # Beyond the sampling error, a finite sample is off by its order in 1 / n: below 0.1 %.
    error = 5 * np.std(found, ddof=1) / math.sqrt(20) + 1e-3 * GAP_CONSTANT
    assert np.mean(found) == pytest.approx(GAP_CONSTANT, abs=error)


def test_tabulated_gap_constant_is_the_derived_one():
    """To the root finder's tolerance; on the machine that tabulated it, to the last bit."""
    assert gap_constant() == pytest.approx(GAP_CONSTANT, abs=1e-10)
    assert gap_constant(50) < GAP_CONSTANT < gap_constant(80)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 7.5, 29.5])
def test_interval_width_reads_a_standard_deviation_back(sigma):
    assert interval_width(GAP_CONSTANT * sigma / 1e4, 1e4) == sigma / 2


def test_interval_width_is_capped_and_defined_for_no_points():
    assert (
        interval_width(5.0, 1e4) == 29.5 / 2
        and interval_width(0.0, 1e4) == 0.25
        and interval_width(1.0, -3.0) == 0.25
    )


def test_levels_minimize_the_noise_at_a_fixed_total():
    """Sum of 2^i / epsilon_i is stationary: its derivatives 2^i / epsilon_i^2 are all equal."""
    shares = level_budgets(0.18, 8)
    assert math.fsum(shares) == pytest.approx(0.18)
    slopes = [2**i / share**2 for i, share in enumerate(shares)]
    assert slopes == pytest.approx([slopes[0]] * 8)
    # The published schedule at epsilon 1: first and last of eight levels.
    assert (shares[0], shares[-1]) == pytest.approx((0.00497, 0.05624), rel=2e-3)


# Charges


def test_published_dpm_charges_its_shares():
    points, _ = blobs()
    ledger = DPM(variant="published").fit_batch(points, [0]).ledger
    delta = len(points) ** -1.5
    assert ledger.budget.delta == delta
    by_label = {}
    for charge in ledger.charges:
        by_label.setdefault(charge.label, []).append(charge)
    assert {label: len(found) for label, found in by_label.items()} == {
        "cell_counts": 8, "gap_percentile": 1, "splits": 7, "cell_sums": 1,
    }  # fmt: skip
    assert math.fsum(c.epsilon for c in by_label["cell_counts"]) == pytest.approx(0.18)
    assert math.fsum(c.epsilon for c in by_label["splits"]) == pytest.approx(0.18)
    assert by_label["gap_percentile"][0].epsilon == pytest.approx(0.04)
    assert by_label["gap_percentile"][0].flaw == "F-13"
    assert by_label["cell_sums"][0].mu == pytest.approx(gaussian_mu(0.6, 0.8 * delta))
    assert math.fsum(c.delta for c in ledger.charges) == pytest.approx(0.2 * delta * 7 / 8)
    # Composed tightly, the shares cost about a fifth less than they add up to.
    assert 0.7 < ledger.spent() < 0.85


@pytest.mark.parametrize("method", [DPM(), LSHSplits(), DPM(depth=3, emptiness_weight=1.0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_sound_variants_spend_the_budget_and_no_more(method, epsilon):
    points, _ = blobs(n=1000)
    ledger = method.set_params(epsilon=epsilon).fit_batch(points, [0]).ledger
    assert ledger.spent() == pytest.approx(epsilon, rel=1e-4) and ledger.spent() <= epsilon * (
        1 + 1e-9
    )
    assert not any(charge.flaw for charge in ledger.charges)


def test_published_lsh_splits_meets_the_librarys_calibration():
    """Letters: n = 18,720. The library's noise multiplier is 5.02, its counts' epsilon 0.0100; at n
    = 100,000 5.57.
    """
    for n, multiplier, count_epsilon in ((18_720, 5.02, 0.0100), (100_000, 5.57, 0.0090)):
        points = np.zeros((n, 1), int)
        ledger = LSHSplits(variant="published").fit_batch(points, [0]).ledger
        sums = [charge for charge in ledger.charges if charge.label == "cell_sums"]
        counts = [charge for charge in ledger.charges if charge.label == "cell_counts"]
        assert len(sums) == 2 and len(counts) == 22  # the mean's and the tree's
        assert 1 / sums[1].mu == pytest.approx(multiplier, rel=2e-3)
        assert counts[1].epsilon == pytest.approx(count_epsilon, abs=6e-5)
        assert sums[0].mu == pytest.approx(gaussian_mu(0.08, 0.1 * n**-1.5))
        assert counts[0].epsilon == pytest.approx(0.02)
        assert ledger.spent() < 1.0


@pytest.mark.parametrize(("d", "overspend"), [(16, 1.412), (11, 1.249), (10, 1.212), (100, 2.663)])
def test_published_dp_lloyd_overspends_by_its_swapped_shares(d, overspend):
    points = np.zeros((5000, d), int)
    ledger = DPLloyd(n_clusters=3, variant="published").fit_batch(points, [0]).ledger
    assert ledger.spent() == pytest.approx(overspend, rel=1e-3)
    assert ledger.budget.epsilon == pytest.approx(ledger.spent())
    assert "F-26" in DPLloyd(variant="published").claim.flaws


def test_sound_dp_lloyd_is_sulloyd():
    points, _ = blobs()
    one, other = (
        m(n_clusters=4, epsilon=0.7).fit_batch(points, [1, 2]) for m in (DPLloyd, SuLloyd)
    )
    assert (
        one.centers == other.centers
    ).all() and one.ledger.spent() == other.ledger.spent() == pytest.approx(0.7)


def test_schedules_do_not_depend_on_the_points():
    """Replicates, and very different data of the same shape, are charged alike."""
    points, _ = blobs(n=500)
    for method in (DPM(variant="published"), DPM(), LSHSplits(variant="published"), LSHSplits()):
        one = method.fit_batch(points, [0, 1, 2])
        other = method.fit_batch(np.full_like(points, SCALE), [7])
        assert one.ledger.charges == other.ledger.charges


def test_a_schedule_that_follows_the_data_is_caught(monkeypatch):
    def peeking(self, curator: Curator):
        cells = [0] if curator.seeds[0] == 0 else []
        curator.partition(BoxGrid.of_intervals(1.0)).counts(cells, Laplace((2 - len(cells)) * 9e5))
        return np.zeros((1, 1, curator.n_features), int), 1

    monkeypatch.setattr(DPM, "cluster", peeking)
    with pytest.raises(RuntimeError, match="charged differently"):
        DPM().fit_batch(np.zeros((9, 2), int), [0, 1])


# What comes out


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_dpm_finds_separated_blobs_when_noise_is_no_matter(variant):
    points, centers = blobs()
    run = DPM(variant=variant, epsilon=EASY, depth=4).fit_batch(
        points, [0, 1, 2], [[-60.0] * 4, [60.0] * 4]
    )
    for i in range(3):
        released = run.centers[i, : run.n_centers[i]] / SCALE
        # Every blob has a center nearby: at most its own spread away, for a leaf may hold only a
        # part of it.
        assert np.abs(released[:, None] - centers).max(axis=2).min(axis=0).max() < 0.06


def test_lsh_splits_and_dp_lloyd_cluster_separated_blobs_when_noise_is_no_matter():
    points, _ = blobs()
    best = 4000 * 4 * 0.02**2  # the blobs' own spread
    assert (
        np.median(cost(points, LSHSplits(n_clusters=6, epsilon=EASY).fit_batch(points, range(5))))
        < 1.5 * best
    )
    spread = 4000 * 4 * 0.36  # of the blobs' middles about the domain's
    for variant in ("published", "sound"):
        run = DPLloyd(n_clusters=6, epsilon=EASY, variant=variant).fit_batch(points, range(5))
        assert np.median(cost(points, run)) < spread


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_the_number_of_centers_is_bounded_and_padding_wins_no_point(variant):
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (3000, 2))
    run = DPM(variant=variant, epsilon=4.0, depth=3).fit_batch(
        points, range(8), [[-40.0] * 2, [40.0] * 2]
    )
    assert run.n_centers.max() <= 2**3 and run.centers.shape[1] == run.n_centers.max()
    padded = cost(points, run)
    for i, n in enumerate(run.n_centers):
        alone = inertia(Points.prepare(points), run.centers[i : i + 1, :n])[0] / SCALE**2
        assert alone == padded[i]


def test_merging_is_post_processing_to_the_number_asked_for():
    points, _ = blobs()
    whole = DPM(epsilon=20.0, depth=5).fit_batch(points, [3])
    merged = DPM(n_clusters=4, epsilon=20.0, depth=5, merge=True).fit_batch(points, [3])
    assert merged.ledger.charges == whole.ledger.charges
    assert whole.n_centers[0] > 4 == merged.n_centers[0]
    assert cost(points, merged)[0] > cost(points, whole)[0]
    few = DPM(n_clusters=1000, epsilon=20.0, depth=5, merge=True).fit_batch(points, [3])
    assert sorted(few.centers[0].tolist()) == sorted(
        whole.centers[0, : whole.n_centers[0]].tolist()
    )


def test_sound_centers_stay_in_the_domain_and_published_ones_need_not():
    points = np.full((300, 3), SCALE)
    assert np.abs(DPM(epsilon=0.05).fit_batch(points, range(20)).centers).max() <= SCALE
    assert (
        np.abs(DPM(variant="published", epsilon=0.05).fit_batch(points, range(20)).centers).max()
        > SCALE
    )


def test_published_averages_are_about_the_units_origin():
    """With noise of no matter the domain's position changes nothing but the origin; noise scales
    with its distance.
    """
    points = np.random.default_rng(1).integers(-SCALE, SCALE, (2000, 2))
    far, near = (
        DPM(variant="published", epsilon=0.5, depth=1).fit_batch(
            points, range(40), [[low] * 2, [low + 20.0] * 2]
        )
        for low in (990.0, -10.0)
    )
    # Radius 1010 against 10 in the same half-width of 10: a hundred times the noise.
    assert np.std(far.centers[:, 0]) > 20 * np.std(near.centers[:, 0])


# Absurd data and parameters


@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("method", [DPM, LSHSplits, DPLloyd])
def test_results_are_defined_whatever_the_data(method, variant):
    rng = np.random.default_rng(0)
    ties = (rng.integers(0, 3, (200, 3)) - 1) * SCALE
    cases = {
        "a single point": np.array([[5, -7, SCALE]]),
        "two points": np.array([[-SCALE] * 3, [SCALE] * 3]),
        "identical": np.full((50, 3), 1234),
        "ties everywhere": ties,
        "one column varies": np.column_stack(
            [np.arange(-100, 100), np.zeros(200, int), np.zeros(200, int)]
        ),
    }
    for points in cases.values():
        delta = {} if method is DPLloyd else {"delta": 1e-6}
        for epsilon in (1e-3, 1.0, 100.0):
            run = method(n_clusters=1, variant=variant, epsilon=epsilon, **delta).fit_batch(
                points, range(4)
            )
            assert np.isfinite(run.centers).all() and (run.n_centers >= 1).all()
            assert run.ledger.spent() <= run.ledger.budget.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("domain", [(-1e-3, 1e-3), (-1e7, 1e7), (5.0, 6.0)])
def test_interval_sizes_beyond_the_range_or_far_below_it_are_defined(domain):
    """The paper's interval sizes are 0.25 to 14.75 in data units, whatever those are."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (400, 2))
    run = DPM(variant="published", epsilon=5.0).fit_batch(
        points, range(3), [[domain[0]] * 2, [domain[1]] * 2]
    )
    assert np.isfinite(run.centers).all()


@pytest.mark.parametrize("method", [DPM, LSHSplits])
def test_published_methods_see_columns_with_ranges_of_their_own_as_scaled_to_the_cube(method):
    cube = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    lower = np.array([0.0, -3.0])
    upper = np.array([1.0, 5.0])
    raw = lower + (cube + 1) / 2 * (upper - lower)
    setting = {"variant": "published", "epsilon": 4.0, "random_state": 3}
    one = method(bounds=(lower, upper), **setting).fit(raw).cluster_centers_
    other = method(bounds=(-1, 1), **setting).fit(cube).cluster_centers_
    np.testing.assert_allclose((one - lower) / (upper - lower) * 2 - 1, other, atol=1e-3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shares": "equal"}, "shares='equal' must be 'auto' or four numbers"),
        ({"shares": (0.5, 0.5)}, "four numbers"),
        ({"shares": (0.0, 0.5, 0.3, 0.3)}, "add up to 1"),
        ({"shares": (0.04, 0.18, 0.18, 0.6)}, "first must be 0"),
        ({"variant": "published", "shares": (0.0, 0.2, 0.2, 0.6)}, "must be positive"),
        ({"t": 0.1, "q": 0.2}, "2 q <= t"),
        ({"q": "a"}, "q='a' must be a number"),
        ({"emptiness_weight": 0.0}, "emptiness_weight=0.0 must be positive"),
        ({"depth": 0}, "depth=0 must be an integer from 1 to 12"),
        ({"merge": 3}, "merge=3 is unknown"),
        ({"variant": "best"}, "variant='best' is unknown"),
        (
            {"variant": "published", "bounds": (5000, 5001)},
            "more than 1000 times their half-width from zero",
        ),
    ],
)
def test_dpm_refuses(parameters, message):
    with pytest.raises(ValueError, match=message):
        DPM(n_clusters=2, **parameters).fit(np.random.default_rng(0).uniform(0, 1, (50, 2)))


@pytest.mark.parametrize(
    "parameters", [{"depth": 0}, {"centering_share": 1.0}, {"centering_share": 0}, {"n_init": 0}]
)
def test_lsh_splits_refuses(parameters):
    (name,) = parameters
    with pytest.raises(ValueError, match=f"{name}="):
        LSHSplits(n_clusters=2, **parameters).fit(np.random.default_rng(0).uniform(0, 1, (50, 2)))


# Weighted k-means


def test_weights_are_copies():
    rng = np.random.default_rng(2)
    points = rng.uniform(-1, 1, (7, 2))
    weights = rng.integers(1, 5, 7)
    copies = np.repeat(points, weights, axis=0)

    def loss(centers):
        return (((copies[:, None] - centers) ** 2).sum(axis=2)).min(axis=1).sum()

    weighted = weighted_kmeans(points, weights.astype(float), 3, 20, 0)
    copied = weighted_kmeans(copies, np.ones(len(copies)), 3, 20, 0)
    assert loss(weighted) == pytest.approx(loss(copied))


def test_weighted_kmeans_finds_the_optimum_of_tiny_cases():
    """All partitions of six points into two parts, by brute force."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        points = rng.uniform(-1, 1, (6, 2))
        weights = rng.uniform(0.5, 4, 6)
        best = math.inf
        for choice in range(1, 2**5):
            mask = np.array([choice >> i & 1 for i in range(6)], bool)
            parts = [(points[m], weights[m]) for m in (mask, ~mask)]
            best = min(best, sum((w @ ((p - w @ p / w.sum()) ** 2)).sum() for p, w in parts))
        centers = weighted_kmeans(points, weights, 2, 50, seed)
        assert ((points[:, None] - centers) ** 2).sum(axis=2).min(
            axis=1
        ) @ weights == pytest.approx(best)


def test_weighted_kmeans_returns_all_distinct_points_if_they_are_few():
    points = np.array([[1.0], [1.0], [0.0]])
    assert weighted_kmeans(points, np.ones(3), 2, 1, 0).tolist() == [[0.0], [1.0]]


def test_the_domain_reaches_the_method_in_fit():
    """Bounds (0, 15): the published averages are about zero, at the domain's lower end."""
    X = np.repeat([[2.0, 3.0], [12.0, 11.0]], 3000, axis=0)
    model = DPM(variant="published", bounds=(0, 15), epsilon=50.0, random_state=0).fit(X)
    assert np.abs(model.cluster_centers_[:, None] - X[[0, -1]]).max(axis=2).min(axis=0).max() < 0.5
    assert isinstance(model.ledger_, Ledger) and gdp_epsilon(0.0, 0.5) == 0


# The schedules themselves, worked out again by another accountant from what the charges say was
# drawn


def spent_again(ledger, d):
    """Epsilon of the releases by dp-accounting, from scales and sensitivities, not from the
    ledger's own costs.
    """
    delta = ledger.budget.delta - math.fsum(charge.delta for charge in ledger.charges)
    nothing = common.DifferentialPrivacyParameters(0.0, 0.0)
    composed = pld.from_privacy_parameters(nothing, value_discretization_interval=1e-4)
    for charge in ledger.charges:
        details = charge.details
        if charge.label == "cell_counts" and charge.mechanism == "laplace":
            part = pld.from_laplace_mechanism(
                details["count_scale"], value_discretization_interval=1e-4
            )
        elif charge.label == "cell_counts":
            part = pld.from_gaussian_mechanism(
                details["count_scale"], value_discretization_interval=1e-4
            )
        elif charge.label == "cell_sums":
            part = pld.from_gaussian_mechanism(
                details["multiplier"], value_discretization_interval=1e-4
            )
        else:
            pure = common.DifferentialPrivacyParameters(charge.epsilon, 0.0)
            part = pld.from_privacy_parameters(pure, value_discretization_interval=1e-4)
        composed = composed.compose(part)
    return composed.get_epsilon_for_delta(delta)


@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("method", [DPM, LSHSplits])
def test_another_accountant_finds_no_more_than_the_ledger(method, variant):
    points, _ = blobs(n=2000)
    ledger = method(variant=variant, delta=1e-6).fit_batch(points, [0]).ledger
    again = spent_again(ledger, 4)
    # Its grid rounds 16 to 24 small losses up by as much as 1e-4 each.
    assert again <= ledger.spent() + 24e-4
    assert (
        again >= 0.95 * ledger.spent()
    )  # a Laplace release is slightly cheaper than the coin it is charged as


def test_published_dp_lloyd_draws_what_it_is_charged_for():
    points, _ = blobs(n=3000)
    ledger = DPLloyd(n_clusters=2, variant="published", epsilon=0.9).fit_batch(points, [0]).ledger
    c = (4 * 4 * 0.225**2) ** (1 / 3)
    for charge in ledger.charges:
        unit = 0.9 / len(ledger.charges) / (4 + c)
        assert 1 / charge.details["count_scale"] == pytest.approx(unit)
        assert charge.details["sum_epsilon"] == pytest.approx(c * unit)
        assert charge.epsilon == pytest.approx(unit + 4 * c * unit)


def test_published_margins_are_the_papers():
    """Lambda of level 0 is 4077 at n = 100,000, and 3571 at n = 18,720 (epsilon 1)."""
    for n, margin in ((100_000, 4077), (18_720, 3571)):
        ledger = DPM(variant="published").fit_batch(np.zeros((n, 1), int), [0]).ledger
        margins = [
            charge.details["margin"] for charge in ledger.charges if charge.label == "splits"
        ]
        assert margins[0] == pytest.approx(margin, abs=1) and margins[-1] == pytest.approx(
            margin / 8, rel=1e-3
        )


def test_rejected_parts_count_with_their_own_weight():
    """The inverse-variance mean of a count and of the sum of its parts' counts."""
    noise = [None, Gaussian(2.0 * SCALE), Gaussian(1.0 * SCALE)]
    node = Node(0, 100.0)
    sides = [Node(1, 70.0), Node(2, 36.0)]
    combined = DPM()._leaf_size(node, sides, noise, 1)
    assert combined == pytest.approx((100 / 4 + 106 / 2) / (1 / 4 + 1 / 2))
    assert (
        DPM()._leaf_size(node, sides, noise, 0) == 100.0
    )  # the public number of points needs no help
    assert DPM(variant="published")._leaf_size(node, sides, noise, 1) == 100.0


def test_interval_width_goes_to_the_nearest_half():
    unit = GAP_CONSTANT / 1e4
    assert [interval_width(unit * s, 1e4) for s in (3.2, 3.3, 3.7, 3.8)] == [1.5, 1.75, 1.75, 2.0]


def test_lsh_splits_branches_from_three_times_the_least_size():
    """One column, noise of no matter: with a least size of 100 cells split from 300 on, and parts
    below 100 drop.
    """
    for sizes, leaves in (((100, 199), [299]), ((101, 201), [101, 201]), ((90, 300), [300])):
        points = np.repeat([[-SCALE // 2], [SCALE // 2]], sizes, axis=0)
        method = LSHSplits(n_clusters=1, epsilon=1e9, depth=1)
        curator = Curator(points, Ledger(method.budget(sum(sizes), 1)), NoiseStreams([0]))
        partition = curator.hyperplanes(np.array([[SCALE]]), np.array([0]))
        _, found = method._grow(partition, 10.0, Gaussian(1e-3 * SCALE), curator)
        assert np.sort(found) == pytest.approx(leaves, abs=0.1)


def test_lsh_splits_radius_reaches_the_farthest_corner_and_no_further():
    points = np.random.default_rng(0).integers(SCALE // 2, SCALE, (5000, 3))
    ledger = LSHSplits(epsilon=1e4)
    about, radius, _, _ = ledger._sound_centering(
        Curator(points, Ledger(ledger.budget(5000, 3)), NoiseStreams([0]), [[-1.0] * 3, [1.0] * 3])
    )
    corner = np.linalg.norm(SCALE + np.abs(about)) / SCALE
    assert (
        radius == pytest.approx(corner) and np.abs(about - points.mean(axis=0)).max() < SCALE / 50
    )


def test_coreset_points_are_pulled_into_the_ball():
    assert clip_to_ball(np.array([[3.0, 4.0], [30.0, 40.0]]), 10.0).tolist() == [
        [3.0, 4.0],
        [6.0, 8.0],
    ]


def test_published_dp_lloyd_reaches_the_means_when_noise_is_no_matter():
    points = snap(np.repeat([[-0.5, 0.25], [0.5, 0.5]], 2000, axis=0))
    run = DPLloyd(n_clusters=2, variant="published", epsilon=1e6).fit_batch(
        points, range(5), [[0.0] * 2, [10.0] * 2]
    )
    assert min(cost(points, run)) == pytest.approx(0, abs=1)


def test_ranges_far_from_zero_are_refused_where_averages_are_about_zero():
    with pytest.raises(ValueError, match="times their half-width from zero"):
        DPM(variant="published", bounds=(1e6, 1e6 + 1)).fit(np.full((50, 2), 1e6 + 0.5))
    for shares in (0.5, None, {1, 2, 3, 4}):
        with pytest.raises(ValueError, match="four numbers"):
            DPM(shares=shares).fit(np.zeros((50, 2)))
