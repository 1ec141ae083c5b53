"""FedDP-KMeans: accounting, the private subspace, what public points do, what is refused."""

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
import pytest

from pkm.audit.conformance import conformance
from pkm.compute import Points, inertia
from pkm.methods import FedDPKMeans, KMeansPlusPlus
from pkm.methods.lloyd.feddp_kmeans import leading_directions
from pkm.privacy import (
    SCALE,
    Budget,
    Curator,
    Gaussian,
    NoiseStreams,
    PrivacyAccountant,
    SecondMoments,
    gaussian_mu,
    snap,
)


def blobs(n=3000, d=12, seed=0):
    """Three clusters in [-1, 1]^d, and their centers."""
    rng = np.random.default_rng(seed)
    centers = rng.choice([-0.5, 0.5], (3, d))
    return centers[np.arange(n) % 3] + 0.05 * rng.standard_normal((n, d)), centers


def add_nothing(self, values, streams, key, sensitivity=None):
    return np.asarray(values)


def cost(points, run):
    return np.array(inertia(points, run.centers), float)


@dataclass(eq=False, repr=False)
class InSubspace(FedDPKMeans):
    _: KW_ONLY
    dimensions: int | str = 2
    n_init: int = 1


def test_a_subspace_conforms():
    assert [outcome for outcome in conformance(InSubspace) if outcome.error] == []


@pytest.mark.parametrize("d", [2, 3, 4, 30])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_accounting_from_the_charges(d, epsilon):
    """Recomputed from scales and sensitivities alone; a subspace where there are more features."""
    run = FedDPKMeans(3, epsilon=epsilon).fit_batch(snap(blobs(400, d)[0]), [0])
    squared_mu = 0.0
    for charge in run.ledger.charges:
        for kind in ("moment", "count", "sum"):
            if f"{kind}_scale" in charge.details:
                ratio = charge.details[f"{kind}_sensitivity"] / charge.details[f"{kind}_scale"]
                squared_mu += ratio**2
    assert squared_mu == pytest.approx(gaussian_mu(epsilon, 1e-6) ** 2)
    assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)
    labels = ["second_moments"] * (d > 3) + ["nearest_counts"] + ["nearest_sums_and_counts"] * 2
    assert [charge.label for charge in run.ledger.charges] == labels


def test_shares_of_the_schedule():
    schedule = FedDPKMeans(5, epsilon=1.0).schedule(1000, 20)
    costs = np.array([release.mu for release in schedule.releases])
    np.testing.assert_allclose(costs**2 / gaussian_mu(1.0, 1e-6) ** 2, [0.3, 0.15, 0.3, 0.25])
    weights, recovery, _ = FedDPKMeans(5, epsilon=1.0).schedule(1000, 5).releases
    assert recovery.mu / weights.mu == pytest.approx(math.sqrt(2))


def test_charges_depend_on_neither_private_nor_public_points():
    points = snap(blobs(500)[0])
    public = blobs(40, seed=1)[0]
    ledgers = [
        FedDPKMeans(3, public_data=given).fit_batch(rows, [0]).ledger
        for rows in (points, np.zeros_like(points))
        for given in (None, public, 0 * public)
    ]
    assert all(ledger.charges == ledgers[0].charges for ledger in ledgers)


def test_second_moments_are_those_of_numpy():
    """Of points on multiples of 2^-12, which are not cut; the same in shards."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-4096, 4097, (500, 5)) * 16
    answers = [
        SecondMoments().exact(Curator(shards, None, NoiseStreams([0])).clipped_points(math.sqrt(5)))
        for shards in (rows, [rows[:7], rows[7:]])
    ]
    x = rows / SCALE
    np.testing.assert_array_equal(SecondMoments.matrix(answers[0]["moments"][0]), x.T @ x)
    np.testing.assert_array_equal(answers[0]["moments"], answers[1]["moments"])


def test_noise_of_the_released_matrix_has_the_declared_deviation():
    """Off the diagonal that of a release of the whole matrix, averaged over both entries.

    20 replicates of 1,225 and 50 entries: six standard errors of a standard deviation, relative,
    are 6 / sqrt(2 m).
    """
    d = 50
    mu = 0.5
    rows = np.zeros((1, d), np.int64)
    matrices = []
    for seed in range(20):
        points = Curator(rows, None, NoiseStreams([seed])).clipped_points(math.sqrt(d))
        sensitivity = SecondMoments().sensitivity(points)["moments"]
        exact = SecondMoments().exact(points)["moments"]
        drawn = Gaussian(SCALE / mu).draw(exact, NoiseStreams([seed]), ("x", 0), sensitivity)
        matrices.append(SecondMoments.matrix(drawn[0]))
    diagonal = np.array([np.diag(matrix) for matrix in matrices])
    upper = np.array([matrix[np.triu_indices(d, 1)] for matrix in matrices])
    for values, expected in ((diagonal, d / mu), (upper, d / mu / math.sqrt(2))):
        relative = values.std() / expected
        assert abs(relative - 1) < 6 / math.sqrt(2 * values.size)


@pytest.mark.parametrize(("d", "m"), [(1, 1), (5, 2), (30, 30)])
def test_leading_directions_span_the_largest_eigenvalues(d, m):
    rng = np.random.default_rng(d)
    x = rng.standard_normal((200, d)) * np.arange(1, d + 1)
    directions = leading_directions(x.T @ x, m)
    np.testing.assert_allclose(directions @ directions.T, np.eye(m), atol=d * 2.0**-15)
    _, singular_values, rows = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(np.abs((directions * rows[:m]).sum(axis=1)), 1, atol=d * 2.0**-15)
    np.testing.assert_allclose(
        np.linalg.norm(x @ directions.T, axis=0), singular_values[:m], rtol=d * 2.0**-15
    )
    # Signs, on which libraries differ, decide nothing.
    assert (directions[np.arange(m), np.abs(directions).argmax(axis=1)] > 0).all()


# Public points


@pytest.mark.parametrize("dimensions", ["auto", 40])
def test_without_noise_the_centers_are_those_of_k_means(monkeypatch, dimensions):
    """From a public point near each center, and many far away, in a subspace and without one."""
    monkeypatch.setattr(Gaussian, "draw", add_nothing)
    X, centers = blobs()
    rng = np.random.default_rng(1)
    public = np.concatenate([centers + 0.1, rng.uniform(-1, 1, (50, 12))])
    points = Points.from_grid(snap(X))
    best = cost(points, KMeansPlusPlus(3, n_init=5).fit_batch(points, [0]))
    method = FedDPKMeans(3, public_data=public, dimensions=dimensions)
    assert cost(points, method.fit_batch(points, [0]))[0] == pytest.approx(best[0], rel=1e-3)


def test_public_points_are_in_the_units_of_the_bounds(monkeypatch):
    """An affine map of the points, the bounds and the public points maps the centers."""
    monkeypatch.setattr(Gaussian, "draw", add_nothing)
    X, centers = blobs(900)
    factors = 2.0 ** np.arange(-3, 9)  # exact, as are the shifts
    fits = []
    for scale, shift in ((1.0, 0.0), (factors, 64.0 * factors)):
        model = FedDPKMeans(
            3,
            public_data=(centers + 0.25) * scale + shift,
            bounds=np.array([-np.ones(12), np.ones(12)]) * scale + shift,
        )
        fits.append((model.fit(X * scale + shift).cluster_centers_ - shift) / scale)
    np.testing.assert_allclose(fits[0], fits[1], atol=3e-4)


def test_public_points_help_where_the_data_fill_little_of_the_domain():
    """Uniform points are nearest to many clusters at once, and one of them gets all records."""
    rng = np.random.default_rng(0)
    centers = 0.5 + rng.uniform(-0.2, 0.2, (12, 3))
    points = Points.from_grid(
        snap(centers[np.arange(20_000) % 12] + 0.01 * rng.standard_normal((20_000, 3)))
    )
    near = FedDPKMeans(12, public_data=centers + 0.02).fit_batch(points, range(9))
    uniform = FedDPKMeans(12).fit_batch(points, range(9))
    assert np.median(cost(points, near)) < 0.5 * np.median(cost(points, uniform))


def test_a_zoom_takes_public_points_into_its_domain():
    X, centers = blobs(20_000)
    model = FedDPKMeans(
        3, public_data=centers + 0.1, epsilon=4.0, bounds=(-100, 100), zoom=0.1, random_state=0
    )
    with pytest.warns(UserWarning, match="repeatable"):
        model.fit(X)
    distances = np.linalg.norm(model.cluster_centers_[:, None] - centers, axis=2)
    assert distances.min(axis=0).max() < 0.1
    assert model.zoom_ is not None


def test_other_public_points_have_other_noise():
    method = FedDPKMeans(3, public_data=np.zeros((5, 2)))
    other = FedDPKMeans(3, public_data=np.ones((5, 2)))
    streams = [each.noise_streams([0], 100, 2) for each in (method, other)]
    nothing = np.zeros((1, 4), np.int64)
    draws = [Gaussian(1e6).draw(nothing, each, ("x", 0)) for each in streams]
    assert (draws[0] != draws[1]).all()


def test_an_account_is_written_with_public_points(tmp_path):
    account = PrivacyAccountant(Budget(2.0, 1e-5), path=tmp_path / "account.json")
    FedDPKMeans(3, public_data=blobs(30)[0], bounds=(-1, 1)).fit(blobs(300)[0], account=account)
    assert account.spent() == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"public_data": np.zeros((50, 11))}, "public_data of 11 features must have the 12"),
        ({"public_data": np.full((50, 12), np.nan)}, "public_data has 50 rows with NaN"),
        (
            {"public_data": np.full((50, 12), np.inf)},
            "public_data has 50 rows with NaN or infinite",
        ),
        ({"public_data": np.zeros((2, 12))}, "has 2 points, which must be at least n_clusters=3"),
        ({"public_data": np.zeros(12)}, "must be None or an array of numbers of shape"),
        ({"public_data": "same"}, "public_data='same' must be None or an array of numbers"),
        ({"public_data": np.full((5, 12), "a")}, "must be None or an array of numbers"),
        ({"public_data": np.full((5, 12), 2.0), "clip": False}, "public_data has 5 points outside"),
        ({"n_init": 0}, "n_init=0 must be"),
        ({"dimensions": 0}, "dimensions=0 must be 'auto' or an integer"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        FedDPKMeans(3, **{"bounds": (-1, 1), **parameters}).fit(blobs(50)[0])


def test_public_points_outside_the_bounds_are_clipped():
    outside = np.linspace(-3, 3, 60).reshape(5, 12)
    points = snap(blobs(300)[0])
    fits = [
        FedDPKMeans(3, public_data=rows).public_positions(
            Curator(points, None, NoiseStreams([0])), np.random.default_rng(0)
        )
        for rows in (outside, np.clip(outside, -1, 1))
    ]
    np.testing.assert_array_equal(*fits)
