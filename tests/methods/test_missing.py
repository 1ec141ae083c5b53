"""Absent entries: rows with holes, in sums relative to centers and in the search for a domain."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_faults import broken, find_labels

from pkm.audit import pairs, report
from pkm.compute import SCALE, Points
from pkm.compute.storage.grid_file import open_grid, pack
from pkm.federation import Network, run_in_threads
from pkm.methods import (
    DPLloyd,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    Lloyd,
    QuadtreeKMeans,
    SuLloyd,
    SynopsisKMeans,
)
from pkm.methods.weights import weigh_rows
from pkm.privacy import (
    ClippedSum,
    CountsAndBoundedSums,
    Curator,
    NoiseStreams,
    ShellCounts,
    SideCounts,
    SumsAndCounts,
)
from pkm.row_blocks import row_blocks

da = pytest.importorskip("dask.array")
BOX = -np.ones(3), np.ones(3)
FAMILY = (Lloyd, SuLloyd, GLloyd, FastLloyd, DPLloyd)


def fit(method, points, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return method.fit(points, **options).cluster_centers_


def mixture(n, d, seed=0, share=0.2):
    """Three clusters, complete and with a share of the entries missing."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.7, 0.7, (3, d))
    complete = centers[rng.integers(3, size=n)] + 0.05 * rng.standard_normal((n, d))
    return complete, np.where(rng.random((n, d)) < share, np.nan, complete)


def draw_rows(rng, n=12):
    rows = rng.uniform(-1, 1, (n, 3))
    rows[rng.random((n, 3)) < 0.4] = np.nan
    rows[0] = rng.choice([np.inf, np.nan])
    return rows


def curator_of(rows, groups=None):
    weights = weigh_rows(len(rows), groups)
    points, _ = Points.quantize(rows, *BOX, keep_missing=True, weights=weights)
    return Curator(points, None, NoiseStreams([0]))


def draw_queries(rng):
    """Centers are in the domain or outside of it, as those of published variants."""
    centers = rng.integers(-2 * SCALE, 2 * SCALE, (1, 3, 3))
    radius = float(rng.uniform(0.1, 3.0))
    center = rng.uniform(-1, 1, 3)
    radii = np.array([2.0, 1.0, 0.5, 0.1])
    return [
        SumsAndCounts(centers, fill=True),
        SumsAndCounts(centers, radius, relative=True, fill=True),
        SumsAndCounts(centers, radius, relative=True),
        CountsAndBoundedSums(centers, rng.integers(-SCALE, SCALE, 3), fill=True),
        ShellCounts(center, radii),
        SideCounts(center, radii),
        ClippedSum(center, radius),
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_holes_change_no_sensitivity(seed):
    """Random neighbors, of records or of persons: answers differ by at most what is charged."""
    rng = np.random.default_rng(seed)
    rows = draw_rows(rng)
    groups = rng.integers(5, size=len(rows)) if seed % 2 else np.arange(len(rows))
    neighbor = rows.copy()
    neighbor[groups == groups[-1]] = np.nan
    by_person = groups if seed % 2 else None
    curator, other = (curator_of(points, by_person) for points in (rows, neighbor))
    for query in draw_queries(rng):
        exact = query.exact(curator)
        other_exact = query.exact(other)
        for part, sensitivity in query.sensitivity(curator).items():
            change = (exact[part] - other_exact[part]).astype(float).ravel()
            assert np.abs(change).max(initial=0) <= sensitivity.linf * (1 + 1e-12)
            assert np.linalg.norm(change) <= sensitivity.l2 * (1 + 1e-12)
            assert np.abs(change).sum() <= sensitivity.l1 * (1 + 1e-12)


def test_missing_entries_are_on_no_side():
    rng = np.random.default_rng(0)
    rows = draw_rows(rng)
    center = rng.uniform(-1, 1, 3)
    counts = SideCounts(center, np.array([2.0, 0.5])).exact(curator_of(rows))["counts"]
    present = np.isfinite(rows[np.isfinite(rows).any(axis=1)]).sum(axis=0)
    np.testing.assert_array_equal(counts[0].sum(axis=(1, 2)), present * SCALE)


@pytest.mark.parametrize("relative", [False, True])
def test_sums_are_those_of_filled_rows(relative):
    """Brute force: the nearest center by the present entries fills in the missing ones.

    Rows weigh the cube of the share of the present entries.
    """
    rng = np.random.default_rng(0)
    rows = np.rint(draw_rows(rng, 200) * SCALE) / SCALE
    centers = rng.integers(-SCALE, SCALE, (1, 4, 3))
    radius = 0.6
    query = SumsAndCounts(centers, radius, relative, fill=True)
    sums = np.zeros((4, 3))
    counts = np.zeros(4)
    for row in rows[1:]:
        present = ~np.isnan(row)
        squares = ((row * SCALE - centers[0])[:, present] ** 2).sum(axis=1)
        nearest = squares.argmin()
        if present.any() and squares[nearest] <= (radius * SCALE) ** 2:
            filled = np.where(present, row * SCALE, centers[0, nearest])
            weight = SCALE * present.sum() ** 3 // 3**3
            sums[nearest] += np.trunc((filled - relative * centers[0, nearest]) * (weight / SCALE))
            counts[nearest] += weight
    exact = query.exact(curator_of(rows))
    assert exact["sums"][0].tolist() == sums.tolist()
    assert exact["counts"][0].tolist() == counts.tolist()


def test_null_records_and_holes_of_quantized_rows():
    nan = np.nan
    rows = np.array([[0.5, nan, 0.5], [nan, nan, nan], [np.inf, nan, 0.0], [0.25, 0.5, 1.0]])
    points, _ = Points.quantize(rows, *BOX, keep_missing=True)
    assert (points.rows / SCALE).tolist() == [[0.5, 0.0, 0.5], [0.25, 0.5, 1.0]]
    assert points.is_missing.tolist() == [[False, True, False], [False] * 3]
    assert (points.n_null, points.n_records) == (2, 4)
    default, _ = Points.quantize(rows, *BOX)
    assert (default.is_missing, default.n_null) == (None, 3)
    complete, _ = Points.quantize(rows[3:], *BOX, keep_missing=True)
    assert complete.is_missing is None


@pytest.mark.parametrize("method", [*FAMILY, QuadtreeKMeans, SynopsisKMeans, KaplanStemmer])
def test_without_holes_no_bit_changes(method):
    complete, _ = mixture(500, 3)
    missing = "k-pod" if method in FAMILY else "middle"
    for zoom in [{}, {"zoom": 0.3}] if method().claim.private else [{}]:
        options = {"bounds": (-1, 1), "random_state": 0, **zoom}
        expected = fit(method(3, **options), complete)
        assert (fit(method(3, missing=missing, **options), complete) == expected).all()


@pytest.mark.slow
@pytest.mark.parametrize("zoom", [None, 0.1])
@pytest.mark.parametrize(
    ("method", "missing"), [(FastLloyd, "k-pod"), (SuLloyd, "k-pod"), (QuadtreeKMeans, "middle")]
)
def test_containers_and_blocks_change_no_bit(method, missing, zoom, tmp_path):
    """A zoom keeps the holes, which are in the middle of its domain then."""
    _, holes = mixture(3000, 3)
    np.save(tmp_path / "X.npy", holes)
    options = {"bounds": (-20, 20), "random_state": 0, "zoom": zoom, "missing": missing}
    centers = fit(method(3, epsilon=4.0, **options), holes)
    chunks = da.from_array(holes, (700, 2))
    for source in (holes[::-1], holes.astype(object), tmp_path / "X.npy", chunks):
        assert (fit(method(3, epsilon=4.0, **options), source) == centers).all()


@pytest.mark.parametrize(("d", "method"), [(2, FastLloyd), (6, FastLloyd), (6, SynopsisKMeans)])
def test_a_zoom_leaves_holes_out(d, method):
    """In bounds whose middle is far from all points: the domain is as small as without holes."""
    missing = "k-pod" if method is FastLloyd else "middle"
    widths = []
    for points in mixture(20_000, d):
        model = method(3, bounds=(-4, 60), zoom=0.2, missing=missing, random_state=0)
        fit(model, 50 + points)
        lower, upper = model.domain_
        assert ((lower < 50) & (upper > 50)).all()
        widths.append((upper - lower).max())
    assert widths[1] < 1.5 * widths[0] < 9


def test_holes_cost_less_than_null_records_in_many_columns():
    """At n epsilon / k of 1,000 and more. Fixed seeds; the optimum is the same within a percent."""
    costs = {"complete": [], "holes": [], "null": []}
    for seed in range(6):
        complete, holes = mixture(6000, 8, seed)
        options = {"bounds": (-1, 1), "random_state": seed, "zoom": 0.1}
        filled = FastLloyd(3, missing="k-pod", **options)
        default = FastLloyd(3, **options)
        runs = {"complete": (default, complete), "holes": (filled, holes), "null": (default, holes)}
        for name, (method, points) in runs.items():
            centers = fit(method, points)
            squares = ((complete[:, None] - centers) ** 2).sum(axis=2)
            costs[name].append(squares.min(axis=1).mean())
    complete, filled, null = (np.exp(np.log(values).mean()) for values in costs.values())
    assert filled <= 1.1 * complete
    assert null > 1.1 * filled


@pytest.mark.slow
@pytest.mark.parametrize("method", [FastLloyd, SuLloyd, QuadtreeKMeans])
def test_replay_with_holes_finds_nothing(method):
    """Of one pair in six entries are missing, and then the method has ``missing``."""
    _, findings = report.replay_pairs(method(2, bounds=(-1, 1)), 24, 0)
    assert not findings


def test_pairs_with_holes_differ_in_one_record():
    rng = np.random.default_rng(0)
    for pair in pairs.draw_pairs(pairs.Adjacency.ZERO_OUT, 9, 0):
        pair = pairs.add_missing(pair, rng)
        neighbor_X = pair.reversed.X
        same = np.isnan(pair.X) & np.isnan(neighbor_X) | (pair.X == neighbor_X)
        assert (same.all(axis=1) | (np.arange(len(same)) == pair.index)).all()
        assert np.isnan(neighbor_X[pair.index]).all()


class CodedHoles(SumsAndCounts):
    """A fault: the code of a missing entry is added up as if it were a coordinate."""

    def exact(self, view):
        exact = super().exact(view)
        for shard in view._shards:
            if shard.is_missing is not None:
                exact["sums"] += 9 * SCALE * shard.is_missing.sum(axis=0)
        return exact


def test_a_hole_that_reveals_its_column_is_found():
    method = broken(GLloyd, queries=[CodedHoles])(2, bounds=(-1, 1))
    assert find_labels(method, 24) == {"sums_and_counts"}


@pytest.mark.parametrize(
    ("method", "missing", "message"),
    [
        (QuadtreeKMeans, "k-pod", "missing='k-pod' must be None or 'middle'"),
        (FastLloyd, "middle", "missing='middle' must be None or 'k-pod'"),
    ],
)
def test_treatments_that_a_method_does_not_have_are_refused(method, missing, message):
    with pytest.raises(ValueError, match=message):
        method(2, missing=missing, bounds=(-1, 1)).fit(np.zeros((9, 2)))


def test_sources_without_holes_are_refused(tmp_path):
    complete, _ = mixture(100, 2)
    np.save(tmp_path / "X.npy", complete)
    file = tmp_path / "X.grid"
    pack(row_blocks(tmp_path / "X.npy"), file, -np.ones(2), np.ones(2))
    method = FastLloyd(2, missing="k-pod", bounds=(-1, 1))
    with pytest.raises(ValueError, match=r"missing='k-pod' is not supported for .*\.grid"):
        method.fit(open_grid(file))
    points, _ = Points.quantize(complete, -np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="missing='k-pod' needs rows with missing entries"):
        run_in_threads(method, [points, points], [0], network=Network(2), allow_seeded_noise=True)


def test_without_privacy_bounds_come_from_the_entries_that_are_there():
    rows = np.array([[0.0, np.nan], [1.0, 5.0], [np.nan, 4.0], [1.0, 4.0]])
    method = Lloyd(1, missing="k-pod", random_state=0)
    centers = fit(method, rows)
    assert ((centers > [0, 4]) & (centers < [1, 5])).all()
    assert (fit(method, da.from_array(rows, (2, 2))) == centers).all()
    with pytest.raises(ValueError, match="1 rows with NaN"):
        Lloyd(1, missing="k-pod").fit(np.append(rows, [[np.nan, np.nan]], axis=0))
