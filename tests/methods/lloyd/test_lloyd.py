"""The Lloyd family: formulas of the papers, charges, a second version written as a loop."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from estimators import blobs, reflect

from pkm.methods import (
    FastLloyd,
    GLloyd,
    Lloyd,
    SuLloyd,
)
from pkm.methods.initialization import starting_centers
from pkm.metrics import evaluate
from pkm.privacy import SCALE, gaussian_mu, snap

RHO = 0.225
PRIVATE = (SuLloyd, GLloyd, FastLloyd)


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


@pytest.mark.slow
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
        budget["delta"] = 0.4
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
