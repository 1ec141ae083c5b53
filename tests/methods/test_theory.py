"""The bounds and constants that docs/theory.md prints."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from pkm.methods import QuadtreeKMeans, SynopsisKMeans
from pkm.methods.synthetic.price import GRIDS, HASHING, detection_limit
from pkm.methods.trees.levels import average_with_children, nonnegative_cells
from pkm.privacy import gaussian_mu

PAGE = Path(__file__).parents[2].joinpath("docs", "theory.md").read_text(encoding="utf-8")


def printed(pattern):
    """The numbers of the one place of the page that has the pattern."""
    (found,) = re.findall(pattern, PAGE)
    return [float(number) for number in found]


def count_cells(points, intervals):
    """Exact counts of a grid on [-1, 1]^d."""
    d = points.shape[1]
    return np.histogramdd(points, bins=intervals, range=[(-1, 1)] * d)[0]


def grid_midpoints(positions, intervals):
    return (2 * positions + 1) / intervals - 1


def compute_cost(points, weights, centers):
    return weights @ cdist(points, centers, "sqeuclidean").min(axis=1)


def transport_bound(errors, n_points, n_features):
    """Bound on the distance that records move, from the l1 errors of the levels.

    In half-widths: the root of the sum of squares over records.
    """
    rounding = math.sqrt(n_points * n_features) * 2 ** -len(errors)
    moved = errors + 2 * np.append(0, np.cumsum(errors)[:-1])
    diameters = 2 * math.sqrt(n_features) * 2.0 ** -np.arange(len(errors))
    return rounding + np.sqrt(moved) @ diameters


def schedule_bound(n_points, n_features, epsilon):
    """The bound on the expected distance, from the schedule alone."""
    schedule = QuadtreeKMeans(1, epsilon=epsilon, step_share=0).schedule(n_points, n_features)
    counts = [np.zeros([level] * n_features) for level in schedule.intervals]
    variances = average_with_children(counts, 2 / np.array(schedule.epsilons) ** 2)
    cells = np.array([level.size for level in counts])
    return transport_bound(cells * np.sqrt(variances), n_points, n_features)


@pytest.mark.parametrize(("n", "d", "epsilon"), [(500, 1, 1.0), (3000, 2, 0.5), (3000, 3, 2.0)])
def test_costs_of_grids_are_within_the_bound(n, d, epsilon):
    """For all centers, the roots of the costs of records and of cells differ by the bound."""
    rng = np.random.default_rng(d)
    points = rng.normal(rng.uniform(-0.7, 0.7, (5, d)).repeat(n // 5, axis=0), 0.1).clip(-1, 1)
    schedule = QuadtreeKMeans(1, epsilon=epsilon, step_share=0).schedule(n, d)
    exact = [count_cells(points, intervals) for intervals in schedule.intervals]
    distances = []
    for _ in range(20):
        counts = [
            level + rng.laplace(0, 1 / level_epsilon, level.shape)
            for level, level_epsilon in zip(exact, schedule.epsilons, strict=True)
        ]
        average_with_children(counts, 2 / np.array(schedule.epsilons) ** 2)
        errors = np.array([abs(noisy - w).sum() for noisy, w in zip(counts, exact, strict=True)])
        positions, weights = nonnegative_cells(counts, float(n))

        # The error of the projected counts of each level.
        finest = np.zeros_like(exact[-1])
        finest[tuple(positions.T)] = weights
        assert abs(finest - exact[-1]).sum() <= 2 * errors.sum() * (1 + 1e-9)

        bound = transport_bound(errors, n, d)
        distances.append(bound)
        midpoints = grid_midpoints(positions, schedule.intervals[-1])
        for k in (1, 5, 20):
            centers = rng.uniform(-1, 1, (k, d))
            of_points = math.sqrt(compute_cost(points, np.ones(n), centers))
            of_cells = math.sqrt(compute_cost(midpoints, weights, centers))
            assert abs(of_points - of_cells) <= bound
    # The mean of twenty is below the bound on the expectation by far more than its error.
    assert np.mean(distances) <= schedule_bound(n, d, epsilon)


@pytest.mark.parametrize(
    ("law", "row"), [(GRIDS, "up to three"), (HASHING, "from four on")], ids=["grids", "hashing"]
)
def test_the_page_has_the_constants_of_the_law(law, row):
    constants = printed(rf"\| {row} \| (\S+) \| (\S+) \| (\S+) \|")
    assert constants == [law.factor, law.columns, law.ratio]


def test_the_page_has_the_detection_limits():
    limits = printed(r"(\d+) / epsilon records on up to three columns, and from\s+(\d+) / mu")
    assert limits == [GRIDS.detected, HASHING.detected]
    lower = printed(r"ten centers that is (\S+) / epsilon in two columns and (\S+) / mu in ten")
    bounds = least_group(1e6, 10, 1.0, pure=True), least_group(1e30, 10, 1.0, pure=False)
    assert lower == pytest.approx(bounds, abs=0.05)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_page_has_the_bounds_for_grids(d):
    row = printed(rf"\| d = {d} \| (\S+) \| (\S+) \| (\S+) \|")
    for n, value in zip((10**4, 10**6, 10**8), row, strict=True):
        bound = schedule_bound(n, d, 1.0) ** 2 / n
        # Numbers have two digits, or fewer decimals.
        assert value == pytest.approx(bound, rel=0.05, abs=0.0005)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_bound_vanishes_with_more_records(d):
    bounds = [schedule_bound(n, d, 1.0) ** 2 / n for n in (10**4, 10**6)]
    assert bounds[1] < bounds[0] / 5


def least_group(n_places, n_clusters, budget, *, pure):
    """Smallest group that a private method can find with a probability of 1/2."""
    chance = n_clusters / n_places
    if pure:
        return -math.log(2 * chance) / budget
    return -stats.norm.ppf(chance) / budget


def test_detection_limit_is_above_that_of_every_method():
    """A thousand places a column, ten centers, epsilon 1."""
    assert least_group(1e6, 10, 1.0, pure=True) < detection_limit(2, 1.0)
    mu = gaussian_mu(1.0, 1e-6)
    assert least_group(1e30, 10, mu, pure=False) < detection_limit(10, 1.0)


def quantile(m, *, pure):
    """Half-width, in scales of noise, that all of m intervals hold in 95 % of fits."""
    missed = 1 - 0.95 ** (1 / m)
    return -math.log(missed) if pure else stats.norm.ppf(1 - missed / 2)


@pytest.mark.parametrize("method", [QuadtreeKMeans, SynopsisKMeans])
def test_the_page_has_the_widths_of_intervals(method):
    k, d, share = 4, 3, 0.2
    pure = method is QuadtreeKMeans
    rng = np.random.default_rng(3)
    centers = 0.6 * np.eye(k, d) - 0.6 * np.eye(k, d, k=-1)
    X = np.repeat(centers, 20_000, axis=0) + 0.02 * rng.standard_normal((80_000, d))
    model = method(k, epsilon=1.0, report=share, bounds=(-1, 1), random_state=0).fit(X)
    radius = model.cost_limit_
    budget = share if pure else gaussian_mu(1.0, 1e-6) * math.sqrt(share)
    column = 1 if pure else 0
    sizes = printed(r"sizes of k clusters, in records \| (\S+) .*\| (\S+) ")[column]
    cost = printed(r"\| cost \| (\S+) .*\| (\S+) ")[column]
    means = printed(r"mean of its records \| (\S+) .*\| (\S+) ")[column]

    assert model.min_visible_size_ == pytest.approx(
        sizes * quantile(k, pure=pure) / budget, rel=0.01
    )
    half_width = np.ptp(model.cost_interval_) / 2
    expected = cost * quantile(1, pure=pure) * radius**2 / budget
    assert half_width == pytest.approx(expected, rel=0.01)
    # The noise of a count moves a mean, too, by its distance from the center.
    lengths = math.sqrt(d) if pure else 1.0
    expected = means * quantile(k * d, pure=pure) * lengths * radius / budget
    half_widths = np.ptp(model.centers_interval_, axis=2) / 2 * model.cluster_sizes_[:, None]
    np.testing.assert_allclose(half_widths, expected, rtol=0.05)


def test_the_page_has_the_widths_of_sizes_at_one():
    printed_widths = printed(r"knows a size to (\d+) records, a pure method to (\d+)")
    widths = (
        quantile(10, pure=False) / (gaussian_mu(1.0, 1e-6) * math.sqrt(0.15 * 0.1)),
        quantile(10, pure=True) / (0.15 * 0.1),
    )
    assert printed_widths == pytest.approx(widths, abs=0.5)


def test_groups_below_the_limit_are_lost():
    """Randomized response over places attains the bound within a factor of two."""
    n_places, budget = 10**6, 1.0
    group = least_group(n_places, 1, budget, pure=True)
    # The exponential mechanism on the number of records of each place, sensitivity 1.
    found = 1 / (1 + n_places * math.exp(-budget * group))
    assert found <= 0.5
    twice = 1 / (1 + n_places * math.exp(-budget * 2 * group))
    assert twice > 0.99
