"""DistDP: accounting, the published variant, quality and limits."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from moves import blobs, cost, kmeans_cost
from scipy import stats
from scipy.spatial.distance import cdist

from pkm.methods import DistDP, NoisedPoints
from pkm.methods.baselines.kmedian import KMedian
from pkm.methods.distance import dist_dp
from pkm.privacy import (
    SCALE,
    Budget,
    Charge,
    gaussian_mu,
    snap,
    to_half_widths,
)
from pkm.privacy.queries.clipped_regions import (
    ClippedRegions,
    RegionSizes,
)

CASES = [
    {"variant": "published"},
    {"variant": "published", "ball": "printed", "calibration": "analytic"},
    {"variant": "published", "regions": "noised", "least_region": 20},
    {"variant": "published", "epsilon": 4.0, "delta": 1e-9},
    {"variant": "published", "sizes": "noisy", "size_share": 0.2},
    {"variant": "published", "fine_counts": "split", "coreset_clusters": 1},
    {"variant": "published", "rho": "diagonal", "epsilon": 2.0},
    {"variant": "sound", "rho": 0.002},
    {"variant": "sound", "rho": 0.5},
    {"variant": "sound", "rho": 2.0, "epsilon": 0.3},
    {"variant": "sound", "rho": 2.0, "epsilon": 4.0, "quadtrees": 2},
    {"variant": "sound", "rho": "diagonal"},
]


def detail_of(charge, ending):
    """Return the only detail of a charge whose name has the ending."""
    (name,) = [name for name in charge.details if name.endswith(ending)]
    return charge.details[name]


def randomized_response_law(losses):
    """Return the law of the total loss of independent worst-case binary releases.

    ``losses`` counts how often each epsilon occurs; a release is right with odds
    exp(epsilon) : 1.
    """
    law = {0.0: 1.0}
    for loss, n_releases in losses.items():
        right = stats.binom(n_releases, 1 / (1 + math.exp(-loss)))
        composed = {}
        for total, probability in law.items():
            for n_right in range(n_releases + 1):
                composed_total = total + loss * (2 * n_right - n_releases)
                composed[composed_total] = probability * right.pmf(n_right)
        law = composed
    return law


def delta_of(charges, epsilon):
    """Compute delta of logged releases from their logged scales and sensitivities alone.

    A Laplace release is at worst randomized response that is right with odds exp(1 / scale) : 1,
    and the rest one Gaussian.
    """
    mu = 0.0
    laplace_losses = Counter()
    delta = 0.0
    for charge in charges:
        details = charge.details
        scale = detail_of(charge, "_scale")
        sensitivity = detail_of(charge, "_sensitivity")
        if charge.mechanism == "laplace":
            laplace_losses[sensitivity / scale] += 1
        else:
            mu = math.hypot(mu, sensitivity / scale)
        if charge.mechanism == "gaussian_threshold":
            # Every cell that can differ may exceed the threshold.
            cells = round(sensitivity**2)
            hidden = cells * stats.norm.logcdf((details["count_threshold"] - 1) / scale)
            delta += -math.expm1(hidden)
    for loss, probability in randomized_response_law(laplace_losses).items():
        rest = epsilon - loss
        upper = stats.norm.cdf(mu / 2 - rest / mu)
        lower = math.exp(rest) * stats.norm.cdf(-mu / 2 - rest / mu)
        delta += probability * max(upper - lower, 0.0)
    return delta


def test_recomputed_delta_agrees_with_an_accountant():
    """Of the Gaussian part, with dp-accounting; and of Laplace noise it is a bound."""
    details = {"sum_scale": 10.0, "sum_sensitivity": 1.0}
    charges = [Charge("a", i, "gaussian", mu=0.1, details=details) for i in range(3)]
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(10 / math.sqrt(3))
    expected = gaussian.get_delta_for_epsilon(0.7)
    assert delta_of(charges, 0.7) == pytest.approx(expected, rel=1e-3)

    details = {"count_scale": 5.0, "count_sensitivity": 1.0}
    charges += [Charge("b", i, "laplace", epsilon=0.2, details=details) for i in range(2)]
    laplace = privacy_loss_distribution.from_laplace_mechanism(5.0).self_compose(2)
    expected = gaussian.compose(laplace).get_delta_for_epsilon(0.7)
    bound = delta_of(charges, 0.7)
    assert expected < bound
    assert bound < 1.5 * expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_logged_scales_stay_within_the_budget(case):
    method = DistDP(4, **case)
    points = blobs(3000, d=2)
    if method.quadtrees == 2:
        points = np.tile(points, 3)  # six columns: adaptive cells
    run = method.fit_batch(snap(points), [0, 1])
    delta = 1e-6 if method.delta == "auto" else method.delta
    rho = method.rho
    if rho == "diagonal":
        rho = 2 * math.sqrt(points.shape[1])
    assert run.ledger.budget == Budget(method.epsilon, delta, "rho_bounded", rho)
    assert delta_of(run.ledger.charges, method.epsilon) <= delta * (1 + 1e-3)
    assert run.ledger.spent() <= method.epsilon * (1 + 1e-9)
    if method.quadtrees == 2:
        assert run.ledger.charges[0].label == "cell_counts"
    if method.variant == "sound":
        # All of the budget is used.
        assert run.ledger.spent() == pytest.approx(method.epsilon, rel=1e-5)


@pytest.mark.parametrize(
    "interpretation",
    [
        {},
        {"regions": "noised", "least_region": 20},
        {"ball": "printed"},
        {"sizes": "noisy"},
        {"fine_counts": "split"},
        {"sizes": "noisy", "size_share": 0.1, "fine_counts": "split"},
        {"size_share": 0.9, "coreset_clusters": 1},
    ],
    ids=str,
)
def test_published_spends_three_equal_parts(interpretation):
    """Points, fine cells, and regions with their summaries stay within a third of both parameters
    each.
    """
    method = DistDP(4, variant="published", **interpretation)
    charges = method.fit_batch(snap(blobs(3000, d=2)), [0]).ledger.charges
    parts = {"points": [], "cells": [], "regions": []}
    for charge in charges:
        kind = {"noised_points": "points", "cell_counts": "cells"}.get(charge.label, "regions")
        parts[kind].append(charge)
    joint = method.fine_counts == "joint"
    assert len(parts["points"]) == 1
    assert len(parts["cells"]) == (1 if joint else 25)
    assert len(parts["regions"]) == 43 + (method.regions == "true")
    for kind, part in parts.items():
        assert delta_of(part, 1 / 3) <= 1e-6 / 3 * (1 + 1e-3), kind

    # Classical noise leaves some of its part, and summaries are calibrated as randomized response;
    # cells use all of their part.
    n_shares = len(parts["cells"])
    for charge in parts["cells"]:
        cell_delta = delta_of([charge], 1 / 3 / n_shares)
        assert cell_delta == pytest.approx(1e-6 / 3 / n_shares, rel=1e-3)
    if method.regions == "true":
        # Sizes use up their share of the third part, and summaries stay within the rest.
        share = method.size_share
        (sizes, *summaries) = parts["regions"]
        assert sizes.label == "region_sizes"
        assert (sizes.delta == 0) == (method.sizes == "noisy")
        size_delta = delta_of([sizes], share / 3)
        assert size_delta == pytest.approx(share * 1e-6 / 3, rel=1e-3)
        summary_delta = delta_of(summaries, (1 - share) / 3)
        assert summary_delta <= (1 - share) * 1e-6 / 3 * (1 + 1e-3)


def test_published_scales_are_the_papers():
    rows = snap(blobs(3000, d=2))
    ledger = DistDP(4, variant="published", rho=0.1).fit_batch(rows, [0]).ledger
    points, cells, sizes = ledger.charges[:3]
    classical = math.sqrt(2 * math.log(1.25 / (1e-6 / 3))) * 3
    assert points.details["point_scale"] == pytest.approx(0.1 * classical, rel=1e-3)

    cell_mu = gaussian_mu(1 / 3, 1e-6 / 6)
    deviation = math.sqrt(50) / cell_mu
    threshold = 1 + deviation * stats.norm.ppf((1 - 1e-6 / 6) ** (1 / 50))
    assert cells.details["count_scale"] == pytest.approx(deviation)
    assert cells.details["count_threshold"] == pytest.approx(threshold, rel=1e-6)
    assert cells.mu == pytest.approx(cell_mu)
    assert cells.delta == pytest.approx(1e-6 / 6)

    assert sizes.label == "region_sizes"
    assert sizes.details["count_sensitivity"] == pytest.approx(math.sqrt(2))
    schedule = DistDP(4, variant="published", rho=0.1).schedule(3000, 2)
    assert schedule.far_distance == pytest.approx(0.1 * 33.8 * math.sqrt(2), rel=2e-3)


def test_noisy_sizes_have_no_threshold(monkeypatch):
    """Regions whose noisy size is not above zero are dropped."""
    rows = snap(blobs(3000, d=2))
    released = []
    summarized = []
    original_release = ClippedRegions.release
    original_grow = dist_dp.grow_trees

    def release(self, query, **noise):
        answer = original_release(self, query, **noise)
        if isinstance(query, RegionSizes):
            released.append((noise["counts"], self.n_cells, answer["counts"]))
        return answer

    def grow(regions, centers, radius, roots, *arguments, **options):
        summarized.append(roots)
        return original_grow(regions, centers, radius, roots, *arguments, **options)

    monkeypatch.setattr(ClippedRegions, "release", release)
    monkeypatch.setattr(dist_dp, "grow_trees", grow)
    method = DistDP(4, variant="published", sizes="noisy", size_share=0.25)
    run = method.fit_batch(rows, [0])
    ((noise, n_regions, noisy_sizes),) = released
    (kept,) = summarized
    # Noise for the whole delta of the share, on two sizes that change by one.
    (charge,) = (charge for charge in run.ledger.charges if charge.label == "region_sizes")
    assert charge.mu == pytest.approx(gaussian_mu(0.25 / 3, 0.25e-6 / 3))
    assert charge.delta == 0
    assert noise.scale / SCALE == pytest.approx(math.sqrt(2) / charge.mu)
    assert len(noisy_sizes) == n_regions
    assert (noisy_sizes <= 0).any()
    assert kept.tolist() == np.flatnonzero(noisy_sizes > 0).tolist()


@pytest.mark.parametrize(("coreset_clusters", "k"), [("auto", 4), (1, 1), (7, 7)])
def test_trees_use_coreset_clusters(coreset_clusters, k, monkeypatch):
    n_clusters = []
    original_grow = dist_dp.grow_trees

    def grow(*arguments, **options):
        n_clusters.append(options["n_clusters"])
        return original_grow(*arguments, **options)

    monkeypatch.setattr(dist_dp, "grow_trees", grow)
    method = DistDP(4, variant="published", coreset_clusters=coreset_clusters)
    run = method.fit_batch(snap(blobs(3000, d=2)), [0])
    assert n_clusters == [k]
    assert run.centers.shape == (1, 4, 2)


@pytest.mark.parametrize(
    "method",
    [
        DistDP(4, rho="diagonal"),
        DistDP(4, rho="diagonal", epsilon=0.2),
        NoisedPoints(4, rho="diagonal"),
    ],
)
@pytest.mark.parametrize("d", [2, 12])
def test_the_diagonal_protects_any_move(method, d):
    """No point moves farther, and every release has the noise that the largest possible change
    needs.
    """
    points = snap(np.tile(blobs(20_000, d=2), d // 2))
    charges = method.fit_batch(points, [0]).ledger.charges
    diagonal = 2 * math.sqrt(d)
    sensitivities = {
        "noised_points": diagonal,
        "total": diagonal,
        "cell_counts": math.sqrt(2 * 5 * 10),
        "region_counts": math.sqrt(2),
        "soft_counts": math.sqrt(2) + math.sqrt(2.0**d) / SCALE,
    }
    for charge in charges:
        # The curator's tests check that the sensitivity of sums is twice the radius.
        if charge.label != "region_sums":
            sensitivity = detail_of(charge, "_sensitivity")
            expected = sensitivities[charge.label]
            assert sensitivity == pytest.approx(expected, rel=1e-12), charge.label
    assert method.budget(len(points), d).rho == diagonal
    if isinstance(method, DistDP):
        run = replace(method, rho=diagonal).fit_batch(points, [0])
        assert run.ledger.charges == charges


def test_uncharged_replacement_is_a_named_flaw():
    """A moved record changes two regions; the flawed variant charges for one."""
    rows = snap(blobs(3000, d=2))
    charged = DistDP(4, variant="published", replacement="charged")
    uncharged = DistDP(4, variant="published", replacement="uncharged")
    assert charged.claim.flaws == ()
    assert uncharged.claim.flaws == ("F-17",)
    assert DistDP(4, variant="sound", replacement="uncharged").claim.flaws == ()

    charges = charged.fit_batch(rows, [0]).ledger.charges
    flawed_charges = uncharged.fit_batch(rows, [0]).ledger.charges
    assert {charge.flaw for charge in charges} == {""}
    flawed_labels = {charge.label for charge in flawed_charges if charge.flaw == "F-17"}
    assert flawed_labels == {"region_counts", "region_sums"}

    def count_scale(charges):
        counts = [charge for charge in charges if charge.label == "region_counts"]
        return counts[0].details["count_scale"]

    assert count_scale(charges) > 1.3 * count_scale(flawed_charges)
    # Two records at the scales that cover one: over the part's budget by far.
    first = flawed_charges[3:]
    second = [replace(charge, label=charge.label + "'", delta=0.0) for charge in first]
    assert delta_of([*first, *second], 1 / 6) > 5 * 1e-6 / 6


@pytest.mark.parametrize("variant", ["published", "sound"])
def test_tiny_rho_gives_plain_clustering(variant):
    """As rho goes to 0 nearly all points stay as they are, and the cost is scikit-learn's, or that
    of k-median.
    """
    rows = snap(blobs(2000, d=2, k=6, spread=0.05, seed=3))
    points = to_half_widths(rows)
    run = DistDP(6, variant=variant, rho=1e-6, n_init=5).fit_batch(rows, [0])
    private_cost = cost(points, to_half_widths(run.centers[0]))
    assert private_cost == pytest.approx(kmeans_cost(points, 6), rel=1e-4)

    median = KMedian(6, n_init=5).fit_batch(rows, [0])
    run = DistDP(6, variant=variant, p=1, rho=1e-6, n_init=5).fit_batch(rows, [0])
    exact_cost = cost(points, to_half_widths(median.centers[0]), 1)
    private_cost = cost(points, to_half_widths(run.centers[0]), 1)
    assert private_cost == pytest.approx(exact_cost, rel=1e-3)


def test_published_finds_dense_and_far_clusters():
    """A cluster large enough for regions, and far points that stay as they were released."""
    rng = np.random.default_rng(0)
    dense = 0.002 * rng.standard_normal((20_000, 2))
    points = np.concatenate([dense, [[0.8, 0.8]] * 40])
    run = DistDP(2, variant="published", rho=1e-4, n_init=3).fit_batch(snap(points), [0])
    centers = to_half_widths(run.centers[0])
    assert np.abs(centers - [[0, 0], [0.8, 0.8]]).max() < 0.05


@pytest.mark.parametrize("case", [*CASES[:3], {"variant": "published", "p": 1, "rho": 0.001}])
def test_order_and_shards_do_not_matter(case):
    points = snap(blobs(1500, d=3))
    method = DistDP(4, **case)
    centers = method.fit_batch(points, [5]).centers
    shuffled = np.random.default_rng(0).permutation(points)
    shards = [shuffled[:7], shuffled[7:8], shuffled[8:]]
    assert (method.fit_batch(shuffled, [5]).centers == centers).all()
    assert (method.fit_batch(shards, [5]).centers == centers).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rho": 0}, "rho=0 must be a positive finite number"),
        ({"rho": -0.1}, "rho=-0.1 must be"),
        ({"rho": math.nan}, "rho=nan must be"),
        ({"rho": math.inf}, "rho=inf must be"),
        (
            {"rho": "0.1"},
            "rho='0.1' must be a positive finite number, "
            "in half-widths of the domain, or 'diagonal'",
        ),
        ({"rho": 2.9}, "rho=2.9 must be at most the diagonal 2.82843"),
        ({"p": 3}, "p=3 is unknown, choose one of 1, 2"),
        ({"variant": "other"}, "variant='other' is unknown"),
        ({"regions": "both"}, "regions='both' is unknown"),
        (
            {"ball": 0},
            "ball=0 must be a positive finite number or one of 'capped', 'printed'",
        ),
        ({"ball": "big"}, "ball='big' must be"),
        ({"least_region": -1}, "least_region=-1 must be"),
        (
            {"sizes": "exact"},
            "sizes='exact' is unknown, choose one of 'thresholded', 'noisy'",
        ),
        (
            {"fine_counts": "even"},
            "fine_counts='even' is unknown, choose one of 'joint', 'split'",
        ),
        (
            {"coreset_clusters": 0},
            "coreset_clusters=0 must be 'auto' or an integer of at least 1",
        ),
        (
            {"coreset_clusters": 1.5},
            "coreset_clusters=1.5 must be 'auto' or an integer",
        ),
        (
            {"coreset_clusters": True},
            "coreset_clusters=True must be 'auto' or an integer",
        ),
        ({"size_share": 0}, r"size_share=0 must be a number in \(0, 1\)"),
        ({"size_share": 1.0}, r"size_share=1.0 must be a number in \(0, 1\)"),
        (
            {"size_share": "half"},
            r"size_share='half' must be a number in \(0, 1\)",
        ),
        ({"quadtrees": 0}, "quadtrees=0 must be an integer from 1 to 64"),
        ({"finest": 5}, "finest=5 must be above coarse=5"),
        ({"finest": 19}, "finest=19 must be an integer from 1 to 18"),
        ({"cells": 0}, "cells=0 must be 'auto' or an integer"),
        (
            {"points_share": 1.0},
            r"points_share=1.0 must be a number in \(0, 1\)",
        ),
        ({"n_init": 0}, "n_init=0 must be an integer of at least 1"),
        (
            {"n_clusters": 51},
            "n_clusters=51 must be at most the number of points n=50",
        ),
        (
            {"variant": "published", "epsilon": 60.0},
            "calibration='classical' gives too little noise",
        ),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    points = snap(blobs(50))
    method = DistDP(**{"n_clusters": 3, **parameters})
    with pytest.raises(ValueError, match=message):
        method.fit_batch(points, [0])


def test_values_that_are_not_finite_are_moved_into_the_domain():
    for value, place in ((math.nan, 0.0), (math.inf, 1.0), (-math.inf, -1.0)):
        points = blobs(50)
        points[3, 1] = value
        fitted = DistDP(3, random_state=0, bounds=(-1, 1)).fit(points)
        points[3, 1] = place
        expected = DistDP(3, random_state=0, bounds=(-1, 1)).fit(points)
        assert (fitted.cluster_centers_ == expected.cluster_centers_).all()


@pytest.mark.parametrize(
    "case",
    [
        {"variant": "published"},
        {"variant": "published", "sizes": "noisy"},
        {},
    ],
    ids=str,
)
def test_refusal_names_a_sufficient_budget(case):
    """Too few points or too little epsilon: the message names n and epsilon that suffice."""
    rows = snap(blobs(50))
    method = DistDP(3, epsilon=0.01, rho=1.0, **case)
    message = r"epsilon=0.01 with n=50 points and rho=1.0 is too little"
    with pytest.raises(ValueError, match=message) as refused:
        method.fit_batch(rows, [0])
    words = str(refused.value).split()
    n = int(float(words[words.index("n") + 2].rstrip(",")))
    epsilon = float(words[words.index("epsilon") + 2].rstrip(","))

    method.set_params(epsilon=epsilon).fit_batch(rows, [0])
    method.set_params(epsilon=epsilon / 1.1)
    with pytest.raises(ValueError, match="is too little"):
        method.fit_batch(rows, [0])
    method.set_params(epsilon=0.01).fit_batch(np.resize(rows, (n, 2)), [0])
    with pytest.raises(ValueError, match="is too little"):
        method.fit_batch(np.resize(rows, (n - 1, 2)), [0])


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("d", [2, 8])
def test_crude_centers_are_few_and_near(d, p, monkeypatch):
    """Theorem B.1: a bounded number for each cluster, and a cost near that of good centers."""
    found = []
    release = DistDP._release_crude_centers

    def keep(*arguments):
        found.append(release(*arguments))
        return found[-1]

    monkeypatch.setattr(DistDP, "_release_crude_centers", keep)
    points = blobs(20_000, d=d)
    method = DistDP(4, rho=0.01, variant="published", p=p, delta=1e-6, bounds=(-1, 1))
    method.fit(points)
    (centers,) = found
    assert len(centers) <= 220 * 4
    # The means of the blobs, four of them in turn.
    means = np.array([points[j::4].mean(axis=0) for j in range(4)])
    distances = [
        cdist(points, candidates).min(axis=1) ** p for candidates in (centers / SCALE, means)
    ]
    assert distances[0].mean() < 10 * distances[1].mean()
