"""EM-MC: the parameters of the paper, accounting, separated clusters, refusals.
Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from pkm.compute import Points, inertia
from pkm.methods import KMeansPlusPlus
from pkm.methods.trees.em_mc import EMMC, cluster_candidates, find_repeated
from pkm.privacy import SCALE, gaussian_mu, snap


def test_published_follows_the_paper():
    method = EMMC(n_clusters=26, epsilon=1.0, variant="published")
    schedule = method.schedule(18_720, 16)
    delta = 18_720**-1.5
    assert method.resolved_delta(18_720) == delta
    assert method.dimensions(18_720) == 4
    assert method.n_picks == 19  # 26 ln 2 = 18.02
    assert schedule.cover.weight == 0.2 / (2 * math.log(math.e / (delta / 2)))
    assert schedule.cover.delta == delta / 2
    assert schedule.candidate_epsilon == 0.2
    mu = math.hypot(schedule.sum_mu, schedule.count_mu)
    assert mu == pytest.approx(gaussian_mu(0.6, delta / 2))


@pytest.mark.parametrize(
    ("n", "dimensions"),
    [
        (1, 1),
        (600, 2),
        (36_733, 4),
        (82_000, 5),
        (100_000, 5),
        (10**9, 6),
    ],
)
def test_number_of_dimensions(n, dimensions):
    assert EMMC().dimensions(n) == dimensions


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_accounting_from_the_charges(variant, epsilon):
    """Composes the releases, from scales and weights alone, with an independent accountant."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (500, 4))
    method = EMMC(n_clusters=2, epsilon=epsilon, variant=variant, smallest_radius=0.2)
    ledger = method.fit_batch(points, [0]).ledger
    cover, counts, averages = ledger.charges
    assert cover.label == "maximum_cover"
    assert counts.label == "projected_counts"
    assert averages.label == "projected_sums_and_counts"
    delta = method.resolved_delta(500)
    assert cover.delta == delta / 2
    assert counts.delta == 0
    assert averages.delta == 0

    count_scale = counts.details["count_scale"]
    cover_loss = math.expm1(cover.details["pick_weight"]) * math.log(2 / delta)
    sum_law = privacy_loss_distribution.from_gaussian_mechanism(averages.details["sum_scale"] / 2)
    size_law = privacy_loss_distribution.from_gaussian_mechanism(averages.details["count_scale"])
    count_law = privacy_loss_distribution.from_laplace_mechanism(count_scale)
    # The cover is no worse than randomized response.
    cover_law = privacy_loss_distribution.from_laplace_mechanism(1 / cover_loss)
    composed = sum_law.compose(size_law).compose(count_law).compose(cover_law)
    assert composed.get_delta_for_epsilon(epsilon) <= delta / 2 * (1 + 1e-6)
    assert ledger.spent() <= epsilon * (1 + 1e-9)
    if variant == "sound":
        # Up to the grid of the ledger's accountant.
        assert ledger.spent() == pytest.approx(epsilon, rel=0.02)
    else:
        assert cover_loss <= 0.2 * epsilon
        assert 1 / count_scale == pytest.approx(0.2 * epsilon)


@pytest.mark.slow
def test_finds_separated_clusters():
    """An ample budget comes close to k-means; a cover whose draws ignore the data does not."""
    rng = np.random.default_rng(0)
    centers = np.array([[-0.7, -0.7, 0.0], [0.7, 0.0, 0.7], [0.0, 0.7, -0.7]])
    noise = 0.05 * rng.standard_normal((20_000, 3))
    rows = centers[np.arange(20_000) % 3] + noise
    points = Points.from_grid(snap(np.clip(rows, -1, 1)))
    exact = KMeansPlusPlus(3, n_init=5).fit_batch(points, [0])
    private = EMMC(3, epsilon=4.0).fit_batch(points, range(3))
    best = inertia(points, exact.centers)[0]
    assert np.median(inertia(points, private.centers)) < 1.1 * best


@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
@pytest.mark.parametrize(
    ("rows", "k"),
    [
        (np.full((50, 3), SCALE), 4),
        (np.full((50, 3), -SCALE), 1),
        (np.zeros((7, 1), int), 7),
        (np.eye(12, dtype=int) * SCALE, 12),
    ],
)
def test_degenerate_data_have_defined_results(rows, k, variant, epsilon):
    """Small data: counts are mostly noise, negative ones included."""
    run = EMMC(k, epsilon=epsilon, variant=variant).fit_batch(rows, [0, 1])
    assert run.centers.shape == (2, k, rows.shape[1])
    assert np.abs(run.centers).max() <= SCALE


def test_one_point():
    centers = EMMC(1, epsilon=1.0).fit_batch(np.array([[SCALE, 0]]), range(3)).centers
    assert centers.shape == (3, 1, 2)
    assert np.abs(centers).max() <= SCALE
    with pytest.raises(ValueError, match="needs n >= 2, got 1"):
        EMMC(1, variant="published").fit_batch(np.array([[SCALE, 0]]), [0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"smallest_radius": 0.001},
            r"smallest_radius=0.001 must be 'auto' or a number in \[0.002, 1\]",
        ),
        ({"smallest_radius": 1.5}, "smallest_radius=1.5"),
        ({"smallest_radius": "fine"}, "smallest_radius='fine'"),
        (
            {"n_dimensions": 0},
            "n_dimensions=0 must be 'auto' or an integer from 1 to 6",
        ),
        ({"n_dimensions": 7}, "n_dimensions=7"),
        ({"variant": "fast"}, "variant='fast'"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"n_clusters": 101}, "n_clusters=101"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        EMMC(**parameters).fit_batch(np.zeros((100, 2), np.int64), [0])


def test_too_fine_grids_are_refused():
    with pytest.raises(ValueError, match="too small in 6 dimensions"):
        EMMC(n_dimensions=6, smallest_radius=0.002).check_parameters(10_000)


def test_candidates_without_weight():
    candidates = np.array([[0.0, 0.1], [0.5, 0.0], [0.0, 0.1], [0.2, 0.2]])
    assert find_repeated(candidates).tolist() == [False, False, True, False]
    generator = np.random.RandomState(0)
    chosen = cluster_candidates(candidates, np.array([0.0, 3.0, 0.0, 5.0]), 3, generator)
    assert chosen.tolist() == [[0.2, 0.2], [0.5, 0.0], [0.0, 0.1]]
    assert len(cluster_candidates(candidates[:2], np.zeros(2), 4, generator)) == 4


def test_secure_noise_is_fresh():
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (300, 2))
    method = EMMC(3, secure=True)
    first = method.fit_batch(points, [0]).centers
    second = method.fit_batch(points, [0]).centers
    assert (first != second).any()
