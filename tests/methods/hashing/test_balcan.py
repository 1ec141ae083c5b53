"""Balcan et al.: lifted candidates, nested cubes, accounting, quality.

The tests of the curator cover its queries.

Statistical tests use fixed seeds and thresholds that are far from what is typical.
"""

import math

import numpy as np
import pytest
from scipy.special import expit, ndtri

from pkm.compute import DIRECTION_SCALE, Points, inertia, labels
from pkm.compute.kernels.hashing import Hash, orthonormal
from pkm.methods import KMeansPlusPlus
from pkm.methods.hashing.balcan import Balcan
from pkm.privacy import SCALE, BucketCounts, Curator, NoiseStreams, gaussian_mu, gdp_delta, snap
from pkm.privacy.budget import Budget
from pkm.privacy.ledger import Ledger


def clusters(n=20_000, d=3, seed=0):
    rng = np.random.default_rng(seed)
    corners = np.array([[-0.7, -0.7, 0.0], [0.7, 0.0, 0.7], [0.0, 0.7, -0.7]])
    centers = rng.permutation(corners @ np.eye(3, d))
    points = centers[np.arange(n) % 3] + 0.05 * rng.standard_normal((n, d))
    return Points.from_grid(snap(np.clip(points, -1, 1)))


def test_lifting_keeps_differences_of_squared_distances():
    """Squared distances to candidates in the span differ from those in the projection by a term
    that is the same for all candidates.
    """
    rng = np.random.default_rng(0)
    directions = orthonormal(rng, 3, 12)
    rows = rng.integers(-SCALE, SCALE + 1, (400, 12))
    candidates = rng.integers(-SCALE, SCALE + 1, (5, 3))
    basis = directions / DIRECTION_SCALE
    lifted = np.rint(candidates @ basis).astype(np.int64)
    projected = rows @ basis.T
    projected_squares = ((projected[:, None] - candidates) ** 2).sum(axis=2)

    # Rounding to the grid could swap candidates at nearly equal distances.
    ascending = np.sort(projected_squares, axis=1)
    clear = ascending[:, 1] - ascending[:, 0] > 1e-3 * SCALE**2
    assert clear.mean() > 0.9
    assigned = labels(Points.from_grid(rows), lifted[None])[0]
    assert (assigned == projected_squares.argmin(axis=1))[clear].all()

    squares = ((rows[:, None] - lifted) ** 2).sum(axis=2)
    differences = (squares - projected_squares).astype(float) / SCALE**2
    assert np.ptp(differences, axis=1).max() < 1e-2


def test_candidates_are_centers_of_large_nested_cubes():
    """Without noise: every cube with enough points, at every level of every shift, against plain
    counting.
    """
    points = clusters(3000, 2)
    ledger = Ledger(Budget(1e15, 1e-6))
    hashed = Curator(points, ledger, NoiseStreams([0])).clipped_points(1.0)
    method = Balcan(3, epsilon=1e15, shifts=2, depth=4)
    directions = orthonormal(np.random.default_rng(1), 2, 2)
    cubes = method.schedule(3000, 2).find(BucketCounts)
    candidates = method._candidates(hashed, directions, cubes, np.random.default_rng(2))

    generator = np.random.default_rng(2)
    expected = set()
    smallest = round(SCALE * DIRECTION_SCALE / 8)
    for _ in range(2):
        shift = generator.integers(0, 8 * smallest, 2)
        parent_codes = None
        for level in range(4):
            side = 8 * smallest >> level
            hashing = Hash(directions, shift % side, side)
            codes = hashing.codes(hashed._shards[0])
            if parent_codes is not None:
                # A cube lies in one cube of the level above.
                pairs = np.unique(np.stack([codes, parent_codes]), axis=1)
                assert len(np.unique(pairs[0])) == pairs.shape[1]
            parent_codes = codes
            for code, size in zip(*np.unique(codes, return_counts=True), strict=True):
                if size >= 3000 / 60:
                    centers = hashing.cell_centers(np.array([code]))
                    expected.add(tuple(hashed.clip(centers)[0]))
    assert {tuple(candidate) for candidate in candidates} == expected
    assert len(candidates) > 10
    assert [charge.label for charge in ledger.charges] == ["bucket_counts"] * 8


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_accounting_from_the_charges(epsilon):
    """Recomputed from scales and sensitivities alone."""
    ledger = Balcan(3, epsilon=epsilon, depth=5).fit_batch(clusters(2000), [0]).ledger
    expected_labels = ["bucket_counts"] * 10 + ["swaps"] * 3
    expected_labels += ["sets", "nearest_sums_and_counts"]
    assert [charge.label for charge in ledger.charges] == expected_labels

    squared_mus = {
        "bucket_counts": 0.0,
        "search": 0.0,
        "nearest_sums_and_counts": 0.0,
    }
    for charge in ledger.charges:
        details = charge.details
        if "choice_range" in details:
            squared_mus["search"] += (2 * ndtri(expit(details["choice_range"] / 2))) ** 2
        for kind in ("count", "sum"):
            if f"{kind}_scale" in details:
                ratio = details[f"{kind}_sensitivity"] / details[f"{kind}_scale"]
                squared_mus[charge.label] += ratio**2
    delta = math.fsum(charge.delta for charge in ledger.charges)
    mu = gaussian_mu(epsilon, 5e-7)
    shares = [value / mu**2 for value in squared_mus.values()]
    assert shares == pytest.approx([2 / 3, 1 / 12, 1 / 4])
    assert delta == pytest.approx(5e-7)
    total_mu = math.sqrt(sum(squared_mus.values()))
    assert gdp_delta(total_mu, epsilon) + delta <= 1e-6 * (1 + 1e-6)
    assert ledger.spent() == pytest.approx(epsilon)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "limit"), [(3, 1.5), (8, 2.0)])
def test_finds_separated_clusters(d, limit):
    """With an ample budget; centers that ignore the data cost many times as much."""
    points = clusters(d=d)
    exact = KMeansPlusPlus(3, n_init=5).fit_batch(points, [0])
    best = inertia(points, exact.centers)[0]
    method = Balcan(3, epsilon=8.0, search_rounds=12, n_dimensions=3, radius=1.3)
    private = method.fit_batch(points, range(5))
    assert np.median(inertia(points, private.centers)) < limit * best


@pytest.mark.parametrize(("n", "epsilon"), [(50, 0.5), (50, 1e-3), (2000, 0.01)])
def test_falls_back_to_packed_candidates(n, epsilon):
    """Where no cube can pass nothing is refused: the candidates then ignore the data, and the
    budget is kept.
    """
    method = Balcan(4, epsilon=epsilon, radius=1.0)
    directions = np.eye(3, dtype=np.int64) * DIRECTION_SCALE
    cubes = method.schedule(n, 3).find(BucketCounts)
    candidates = []
    for coordinate in (-0.4, 0.5):
        points = Points.from_grid(snap(np.full((n, 3), coordinate)))
        ledger = Ledger(Budget(epsilon, 1e-6))
        hashed = Curator(points, ledger, NoiseStreams([0])).clipped_points(1.0)
        generator = np.random.default_rng(1)
        candidates.append(method._candidates(hashed, directions, cubes, generator))

        run = method.fit_batch(points, range(3))
        assert run.centers.shape == (3, 4, 3)
        assert run.n_centers.tolist() == [4] * 3
        norms = np.sqrt((run.centers.astype(float) ** 2).sum(axis=2))
        assert norms.max() <= SCALE
        assert run.ledger.spent() <= epsilon * (1 + 1e-9)
    first, second = candidates
    assert first.shape == (4, 3)
    assert (first == second).all()
    assert len(np.unique(first, axis=0)) == 4


def test_dimensions_of_the_projection():
    method = Balcan()
    assert method.dimensions(1, 20) == 1
    assert method.dimensions(5000, 20) == 4
    assert method.dimensions(10**5, 20) == 5
    assert method.dimensions(10**6, 20) == 6
    assert method.dimensions(10**5, 5) == 5
    assert Balcan(n_dimensions=7).dimensions(10, 4) == 4


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
@pytest.mark.parametrize(
    ("rows", "k"),
    [
        (np.full((50, 7), SCALE), 4),
        (np.full((50, 3), -SCALE), 1),
        (np.zeros((7, 1), int), 7),
        (np.eye(12, dtype=int) * SCALE, 12),
        (np.array([[SCALE, 0]]), 1),
    ],
)
def test_degenerate_data_have_defined_results(rows, k, epsilon):
    run = Balcan(k, epsilon=epsilon, depth=3).fit_batch(rows, [0, 1])
    assert run.centers.shape == (2, k, rows.shape[1])
    assert np.abs(run.centers).max() <= SCALE


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"radius": -1},
            "radius=-1 must be 'auto' or a positive finite number",
        ),
        (
            {"n_dimensions": 0},
            "n_dimensions=0 must be 'auto' or an integer of at least 1",
        ),
        ({"search_rounds": 0.5}, "search_rounds=0.5"),
        ({"shifts": 0}, "shifts=0 must be an integer of at least 1"),
        ({"depth": 13}, "depth=13 must be an integer from 1 to 12"),
        ({"moves": "none"}, "moves='none'"),
        ({"epsilon": 0.0}, r"epsilon=0\.0"),
        ({"n_clusters": 101}, "n_clusters=101"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        Balcan(**parameters).fit_batch(np.zeros((100, 2), np.int64), [0])
