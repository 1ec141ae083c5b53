"""DPM beside methods of its paper: schedules, charges, constants, easy and odd data."""

import math

import numpy as np
import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.integrate import quad
from scipy.optimize import root_scalar
from scipy.stats import norm
from separated_blobs import blobs, box, cost

from pkm.compute import Points, inertia
from pkm.methods import DPM, DPLloyd, LSHSplits
from pkm.methods.trees.dpm import GAP_CONSTANT, Node, averaged_size, interval_width, level_budgets
from pkm.privacy import (
    SCALE,
    BoxGrid,
    CellCounts,
    Curator,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    gaussian_mu,
    gdp_epsilon,
)
from pkm.privacy.mechanisms.noise import public_seed

LARGE_EPSILON = 1e4  # the noise is negligible


# Constants


@pytest.mark.statistical
def test_gap_constant_equals_simulation():
    """Percentiles of gaps times n over 20 samples; their spread gives the standard error."""
    rng = np.random.default_rng(0)
    n = 50_000
    simulated = []
    for _ in range(20):
        gaps = np.diff(np.sort(rng.standard_normal(n)))
        simulated.append(n * np.percentile(gaps, 65))
    # Beyond the sampling error, a finite sample is off by its order in 1 / n: below 0.1 %.
    error = 5 * np.std(simulated, ddof=1) / math.sqrt(20) + 1e-3 * GAP_CONSTANT
    assert np.mean(simulated) == pytest.approx(GAP_CONSTANT, abs=error)


def gap_constant(percentile):
    """Percentile of the gaps between neighbors of n standard normal values, times n, for large n.

    The gap around a value z is exponentially distributed with mean 1 / (n density(z)); the mixture
    over z is solved for the percentile.
    """

    def excess(gap):
        def smaller_gaps(z):
            density = float(norm.pdf(z))
            return density * -math.expm1(-gap * density)

        fraction, _ = quad(smaller_gaps, -12, 12)
        return fraction - percentile / 100

    return root_scalar(excess, bracket=(0.1, 100), method="brentq", xtol=1e-10).root


@pytest.mark.slow
def test_tabulated_gap_constant_is_the_derived_one():
    """To the root finder's tolerance; on the machine that tabulated it, to the last bit."""
    assert gap_constant(65) == pytest.approx(GAP_CONSTANT, abs=1e-10)
    assert gap_constant(50) < GAP_CONSTANT < gap_constant(80)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 7.5, 29.5])
def test_interval_width_recovers_a_standard_deviation(sigma):
    gap = GAP_CONSTANT * sigma / 1e4
    assert interval_width(gap, 1e4) == sigma / 2


def test_interval_width_is_bounded():
    """It is defined for no points, too."""
    assert interval_width(5.0, 1e4) == 29.5 / 2
    assert interval_width(0.0, 1e4) == 0.25
    assert interval_width(1.0, -3.0) == 0.25


def test_level_budgets_minimize_the_noise():
    """Sum of 2^i / epsilon_i is stationary: its derivatives 2^i / epsilon_i^2 are all equal."""
    budgets = level_budgets(0.18, 8)
    assert math.fsum(budgets) == pytest.approx(0.18)
    slopes = [2**i / epsilon**2 for i, epsilon in enumerate(budgets)]
    assert slopes == pytest.approx([slopes[0]] * 8)
    # The published schedule at epsilon 1: first and last of eight levels.
    assert budgets[0] == pytest.approx(0.00497, rel=2e-3)
    assert budgets[-1] == pytest.approx(0.05624, rel=2e-3)


# Charges


def test_published_dpm_charges_its_shares():
    points, _ = blobs()
    ledger = DPM(variant="published").fit_batch(points, [0]).ledger
    delta = len(points) ** -1.5
    assert ledger.budget.delta == delta
    by_label = {}
    for charge in ledger.charges:
        by_label.setdefault(charge.label, []).append(charge)
    assert {label: len(charges) for label, charges in by_label.items()} == {
        "cell_counts": 8,
        "gap_percentile": 1,
        "splits": 7,
        "cell_sums": 1,
    }
    count_epsilons = [charge.epsilon for charge in by_label["cell_counts"]]
    split_epsilons = [charge.epsilon for charge in by_label["splits"]]
    (gap,) = by_label["gap_percentile"]
    (sums,) = by_label["cell_sums"]
    assert math.fsum(count_epsilons) == pytest.approx(0.18)
    assert math.fsum(split_epsilons) == pytest.approx(0.18)
    assert gap.epsilon == pytest.approx(0.04)
    assert gap.flaw == "F-13"
    assert sums.mu == pytest.approx(gaussian_mu(0.6, 0.8 * delta))
    total_delta = math.fsum(charge.delta for charge in ledger.charges)
    assert total_delta == pytest.approx(0.2 * delta * 7 / 8)
    # Composed tightly, the shares cost about a fifth less than they add up to.
    assert 0.7 < ledger.spent() < 0.85


@pytest.mark.parametrize("method", [DPM(), LSHSplits(), DPM(depth=3, emptiness_weight=1.0)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_sound_variants_spend_exactly_the_budget(method, epsilon):
    points, _ = blobs(n=1000)
    ledger = method.set_params(epsilon=epsilon).fit_batch(points, [0]).ledger
    assert ledger.spent() == pytest.approx(epsilon, rel=1e-4)
    assert ledger.spent() <= epsilon * (1 + 1e-9)
    assert not any(charge.flaw for charge in ledger.charges)


def test_schedules_do_not_depend_on_the_points():
    """Replicates, and very different data of the same shape, are charged alike."""
    points, _ = blobs(n=500)
    corner = np.full_like(points, SCALE)
    for method in (
        DPM(variant="published"),
        DPM(),
        LSHSplits(variant="published"),
        LSHSplits(),
    ):
        charges = method.fit_batch(points, [0, 1, 2]).ledger.charges
        corner_charges = method.fit_batch(corner, [7]).ledger.charges
        assert charges == corner_charges


def test_a_data_dependent_schedule_is_refused(monkeypatch):
    """The scale of the noise differs between the replicates."""

    def cluster(self, curator: Curator):
        cells = [0] if curator.public_seeds[0] == public_seed(0) else []
        noise = Laplace((2 - len(cells)) * 9e5)
        tree = curator.partition(BoxGrid.of_intervals(1.0))
        tree.release(CellCounts(cells), counts=noise)
        return np.zeros((1, 1, curator.n_features), int), 1

    monkeypatch.setattr(DPM, "cluster", cluster)
    with pytest.raises(RuntimeError, match="charged differently"):
        DPM().fit_batch(np.zeros((9, 2), int), [0, 1])


# Centers


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_dpm_finds_separated_blobs_without_noise(variant):
    points, centers = blobs()
    method = DPM(variant=variant, epsilon=LARGE_EPSILON, depth=4)
    run = method.fit_batch(points, [0, 1, 2], box(-60.0, 60.0, 4))
    for i in range(3):
        released = run.centers[i, : run.n_centers[i]] / SCALE
        distances = np.abs(released[:, None] - centers).max(axis=2)
        # Every blob has a center nearby: at most the blob's spread away, for a leaf may hold only
        # a part of it.
        assert distances.min(axis=0).max() < 0.06


def test_lsh_splits_and_dp_lloyd_cluster_separated_blobs():
    points, _ = blobs()
    within = 4000 * 4 * 0.02**2  # squared distances to the blobs' centers
    between = 4000 * 4 * 0.36  # of the blobs' centers about the domain's
    run = LSHSplits(n_clusters=6, epsilon=LARGE_EPSILON).fit_batch(points, range(5))
    assert np.median(cost(points, run)) < 1.5 * within
    for variant in ("published", "sound"):
        method = DPLloyd(n_clusters=6, epsilon=LARGE_EPSILON, variant=variant)
        run = method.fit_batch(points, range(5))
        assert np.median(cost(points, run)) < between


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_number_of_centers_is_bounded(variant):
    """Centers that only pad a replicate attract no point."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (3000, 2))
    method = DPM(variant=variant, epsilon=4.0, depth=3)
    run = method.fit_batch(points, range(8), box(-40.0, 40.0, 2))
    assert run.n_centers.max() <= 2**3
    assert run.centers.shape[1] == run.n_centers.max()
    padded_costs = cost(points, run)
    for i, n_centers in enumerate(run.n_centers):
        unpadded = run.centers[i : i + 1, :n_centers]
        total = inertia(Points.from_grid(points), unpadded)[0]
        assert total / SCALE**2 == padded_costs[i]


def test_merging_releases_n_clusters_centers(shared_noise):
    """Merging is post-processing: it is not charged."""
    points, _ = blobs()
    whole = DPM(epsilon=20.0, depth=5).fit_batch(points, [3])
    merged = DPM(n_clusters=4, epsilon=20.0, depth=5, merge=True).fit_batch(points, [3])
    assert merged.ledger.charges == whole.ledger.charges
    assert whole.n_centers[0] > 4
    assert merged.n_centers[0] == 4
    assert cost(points, merged)[0] > cost(points, whole)[0]

    unmerged = DPM(n_clusters=1000, epsilon=20.0, depth=5, merge=True).fit_batch(points, [3])
    whole_centers = whole.centers[0, : whole.n_centers[0]]
    assert sorted(unmerged.centers[0].tolist()) == sorted(whole_centers.tolist())


def test_only_sound_centers_stay_in_the_domain():
    points = np.full((300, 3), SCALE)
    sound = DPM(epsilon=0.05).fit_batch(points, range(20))
    published = DPM(variant="published", epsilon=0.05).fit_batch(points, range(20))
    assert np.abs(sound.centers).max() <= SCALE
    assert np.abs(published.centers).max() > SCALE


def test_published_noise_grows_with_the_distance_from_zero():
    """Without noise the domain's position changes nothing but the origin; noise scales with its
    distance.
    """
    points = np.random.default_rng(1).integers(-SCALE, SCALE, (2000, 2))
    method = DPM(variant="published", epsilon=0.5, depth=1)
    far = method.fit_batch(points, range(40), box(990.0, 1010.0, 2))
    near = method.fit_batch(points, range(40), box(-10.0, 10.0, 2))
    # Radius 1010 against 10 in the same half-width of 10: a hundred times the noise.
    assert np.std(far.centers[:, 0]) > 20 * np.std(near.centers[:, 0])


# Degenerate data and bad parameters


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("method", [DPM, LSHSplits, DPLloyd])
def test_degenerate_data_have_defined_results(method, variant):
    rng = np.random.default_rng(0)
    zeros = np.zeros(200, int)
    data = {
        "a single point": np.array([[5, -7, SCALE]]),
        "two points": np.array([[-SCALE] * 3, [SCALE] * 3]),
        "identical": np.full((50, 3), 1234),
        "ties everywhere": (rng.integers(0, 3, (200, 3)) - 1) * SCALE,
        "one column varies": np.column_stack([np.arange(-100, 100), zeros, zeros]),
    }
    delta = {} if method is DPLloyd else {"delta": 1e-6}
    for points in data.values():
        for epsilon in (1e-3, 1.0, 100.0):
            estimator = method(n_clusters=1, variant=variant, epsilon=epsilon, **delta)
            run = estimator.fit_batch(points, range(4))
            assert np.isfinite(run.centers).all()
            assert (run.n_centers >= 1).all()
            assert run.ledger.spent() <= run.ledger.budget.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("domain", [(-1e-3, 1e-3), (-1e7, 1e7), (5.0, 6.0)])
def test_interval_sizes_fit_domains_of_any_size(domain):
    """The paper's interval sizes are 0.25 to 14.75 in data units, whatever those are."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (400, 2))
    method = DPM(variant="published", epsilon=5.0)
    run = method.fit_batch(points, range(3), box(*domain, 2))
    assert np.isfinite(run.centers).all()


@pytest.mark.parametrize("method", [DPM, LSHSplits])
def test_published_methods_scale_unequal_columns_to_the_cube(method, shared_noise):
    cube = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    lower = np.array([0.0, -3.0])
    upper = np.array([1.0, 5.0])
    raw = lower + (cube + 1) / 2 * (upper - lower)
    parameters = {"variant": "published", "epsilon": 4.0, "random_state": 3}
    raw_centers = method(bounds=(lower, upper), **parameters).fit(raw).cluster_centers_
    cube_centers = method(bounds=(-1, 1), **parameters).fit(cube).cluster_centers_
    scaled = (raw_centers - lower) / (upper - lower) * 2 - 1
    np.testing.assert_allclose(scaled, cube_centers, atol=1e-3)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"shares": "equal"},
            "shares='equal' must be 'auto' or four numbers",
        ),
        ({"shares": (0.5, 0.5)}, "four numbers"),
        ({"shares": (0.0, 0.5, 0.3, 0.3)}, "add up to 1"),
        ({"shares": (0.04, 0.18, 0.18, 0.6)}, "first must be 0"),
        (
            {"variant": "published", "shares": (0.0, 0.2, 0.2, 0.6)},
            "must be positive",
        ),
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
def test_dpm_refuses_bad_parameters(parameters, message):
    points = np.random.default_rng(0).uniform(0, 1, (50, 2))
    with pytest.raises(ValueError, match=message):
        DPM(n_clusters=2, **{"bounds": (-1, 1)} | parameters).fit(points)


def test_fit_passes_the_bounds_to_the_method():
    """Bounds (0, 15): the published averages are about zero, at the domain's lower end."""
    X = np.repeat([[2.0, 3.0], [12.0, 11.0]], 3000, axis=0)
    model = DPM(variant="published", bounds=(0, 15), epsilon=50.0, random_state=0).fit(X)
    distances = np.abs(model.cluster_centers_[:, None] - X[[0, -1]]).max(axis=2)
    assert distances.min(axis=0).max() < 0.5
    assert isinstance(model.ledger_, Ledger)
    assert gdp_epsilon(0.0, 0.5) == 0


# The schedules, recomputed by an independent accountant from the scales that the charges record


def recomputed_epsilon(ledger):
    """Compose the releases by dp-accounting, from scales and sensitivities.

    The costs that the ledger records are not used, except for pure releases.
    """
    delta = ledger.budget.delta - math.fsum(charge.delta for charge in ledger.charges)
    grid = {"value_discretization_interval": 1e-4}
    no_loss = common.DifferentialPrivacyParameters(0.0, 0.0)
    composed = pld.from_privacy_parameters(no_loss, **grid)
    for charge in ledger.charges:
        details = charge.details
        if charge.label == "cell_counts" and charge.mechanism == "laplace":
            loss = pld.from_laplace_mechanism(details["count_scale"], **grid)
        elif charge.label == "cell_counts":
            loss = pld.from_gaussian_mechanism(details["count_scale"], **grid)
        elif charge.label == "cell_sums":
            assert details["sum_sensitivity"] == 1.0  # the scale is the noise multiplier
            loss = pld.from_gaussian_mechanism(details["sum_scale"], **grid)
        else:
            pure = common.DifferentialPrivacyParameters(charge.epsilon, 0.0)
            loss = pld.from_privacy_parameters(pure, **grid)
        composed = composed.compose(loss)
    return composed.get_epsilon_for_delta(delta)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("method", [DPM, LSHSplits])
def test_independent_accountant_agrees_with_the_ledger(method, variant):
    points, _ = blobs(n=2000)
    ledger = method(variant=variant, delta=1e-6).fit_batch(points, [0]).ledger
    epsilon = recomputed_epsilon(ledger)
    # Its grid rounds 16 to 24 small losses up by as much as 1e-4 each.
    assert epsilon <= ledger.spent() + 24e-4
    # A Laplace release is slightly cheaper than the randomized response that it is charged as.
    assert epsilon >= 0.95 * ledger.spent()


@pytest.mark.parametrize(("n", "margin"), [(100_000, 4077), (18_720, 3571)])
def test_published_margins_are_the_papers(n, margin):
    """Lambda of level 0 at epsilon 1."""
    ledger = DPM(variant="published").fit_batch(np.zeros((n, 1), int), [0]).ledger
    splits = [charge for charge in ledger.charges if charge.label == "splits"]
    margins = [charge.details["margin"] for charge in splits]
    assert margins[0] == pytest.approx(margin, abs=1)
    assert margins[-1] == pytest.approx(margin / 8, rel=1e-3)


def test_leaf_size_is_the_inverse_variance_mean():
    """Of a count and of the sum of the counts of its rejected parts."""
    combined = averaged_size(100.0, Gaussian(2.0 * SCALE), 106.0, Gaussian(1.0 * SCALE))
    assert combined == pytest.approx((100 / 4 + 106 / 2) / (1 / 4 + 1 / 2))


@pytest.mark.parametrize(("variant", "size"), [("sound", 100.0), ("published", None)])
def test_a_rejected_root_keeps_its_count(variant, size):
    """The public number of points has no noise; the published variant combines no counts."""
    method = DPM(variant=variant, epsilon=1e5, depth=1)
    points = np.zeros((100, 1), np.int64)
    curator = Curator(points, Ledger(method.budget(100, 1)), NoiseStreams([0]))
    schedule = method.schedule(100, 1)
    tree = curator.partition(BoxGrid.of_intervals(0.5, inside_cell=True))
    (leaf,) = method._grow(tree, size or 97.0, schedule)
    assert leaf == Node(0, size or 97.0)


def test_interval_width_goes_to_the_nearest_half():
    gap = GAP_CONSTANT / 1e4
    widths = [interval_width(gap * sigma, 1e4) for sigma in (3.2, 3.3, 3.7, 3.8)]
    assert widths == [1.5, 1.75, 1.75, 2.0]


def test_published_dpm_refuses_bounds_far_from_zero():
    """Its averages are about zero, so their noise would exceed the domain."""
    method = DPM(variant="published", bounds=(1e6, 1e6 + 1))
    with pytest.raises(ValueError, match="times their half-width from zero"):
        method.fit(np.full((50, 2), 1e6 + 0.5))


@pytest.mark.parametrize("shares", [0.5, None, {1, 2, 3, 4}])
def test_shares_that_are_not_four_numbers_are_refused(shares):
    with pytest.raises(ValueError, match="four numbers"):
        DPM(shares=shares, bounds=(-1, 1)).fit(np.zeros((50, 2)))
