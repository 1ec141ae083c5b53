"""Rows with weights: persons with several rows, and weights that are given."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import SCALE, Points
from pkm.compute.kernels.hashing import euclidean_hash
from pkm.methods import (
    DPM,
    Balcan,
    EUGkM,
    FastLloyd,
    FedDPKMeans,
    GLloyd,
    KaplanStemmer,
    Lloyd,
    PEMeans,
    QuadtreeKMeans,
    SynopsisKMeans,
)
from pkm.methods.weights import weigh_rows
from pkm.privacy import (
    AccountError,
    BucketCounts,
    BucketSums,
    Budget,
    CandidateSets,
    ClippedSum,
    Curator,
    GridCounts,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    NoiseStreams,
    PrivacyAccountant,
    SecondMoments,
    ShellCounts,
    SideCounts,
    SumsAndCounts,
    Swaps,
)

da = pytest.importorskip("dask.array")

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(center, 0.05, (1000, 2)) for center in (-0.5, 0.5)])
METHODS = [
    FastLloyd(2, epsilon=2.0, bounds=(-1, 1), random_state=1),
    GLloyd(2, epsilon=2.0, bounds=(-10, 10), random_state=1, zoom=0.1),
    EUGkM(2, epsilon=2.0, bounds=(-1, 1), random_state=1),
    QuadtreeKMeans(2, epsilon=2.0, bounds=(-1, 1), random_state=1),
    SynopsisKMeans(2, epsilon=2.0, bounds=(-10, 10), random_state=1),
    KaplanStemmer(2, epsilon=2.0, bounds=(-1, 1), random_state=1, rounds=3),
    KaplanStemmer(2, epsilon=2.0, bounds=(-1, 1), random_state=1, select="local_search"),
    Balcan(2, epsilon=2.0, bounds=(-1, 1), random_state=1),
    PEMeans(2, epsilon=2.0, bounds=(-1, 1), random_state=1, finish=0.2),
    FedDPKMeans(2, epsilon=2.0, bounds=(-1, 1), random_state=1, dimensions=1),
]
WIDE = np.hstack([X, -X, X])
WIDE_METHOD = SynopsisKMeans(2, epsilon=2.0, bounds=(-10, 10), random_state=1)
CASES = [pytest.param(method, X, id=repr(method)) for method in METHODS]
CASES.append(pytest.param(WIDE_METHOD, WIDE, id="SynopsisKMeans of six columns"))


def fit(method, points=X, **options):
    with pytest.warns(UserWarning, match="makes noise repeatable"):
        return method.fit(points, **options)


@given(st.lists(st.integers(0, 5), min_size=1))
def test_weights_of_a_person_add_up_to_one_record_at_most(groups):
    weights, n_persons = weigh_rows(len(groups), groups)
    sums = np.bincount(groups, weights)
    sizes = np.bincount(groups)
    present = sizes > 0
    assert n_persons == present.sum()
    assert (sums[present] <= SCALE).all()
    assert (sums[present] > SCALE - sizes[present]).all()


@pytest.mark.parametrize(("method", "points"), CASES)
def test_one_row_a_person_gives_the_bits_of_the_row_level(method, points):
    by_row = fit(method, points)
    ids = RNG.permutation(len(X)).astype(str)
    by_person = fit(method, points, groups=ids)
    assert (by_person.cluster_centers_ == by_row.cluster_centers_).all()
    assert by_person.ledger_.charges == by_row.ledger_.charges
    assert by_person.ledger_.budget.unit == "person"


@pytest.mark.parametrize(("method", "points"), CASES)
def test_order_and_container_of_rows_change_no_bit(method, points, tmp_path):
    """Also in blocks, from a file, and with null ids, which are persons of their own."""
    groups = pd.Series(RNG.integers(300, size=len(X))).astype("Int64")
    groups[:7] = pd.NA
    order = RNG.permutation(len(X))
    np.save(tmp_path / "X.npy", points)
    centers = fit(method, points, groups=groups).cluster_centers_
    assert (fit(method, points[order], groups=groups[order]).cluster_centers_ == centers).all()
    if method.supports_chunks:
        array = da.from_array(points, (600, 1))
        for chunks in (tmp_path / "X.npy", array):
            assert (fit(method, chunks, groups=groups).cluster_centers_ == centers).all()


def test_a_person_counts_once_however_many_rows():
    """Half of the persons have 50 rows each on the left; centers are those of persons."""
    left = np.repeat(X[:1000], 50, axis=0)
    right = X[1000:]
    ids = np.concatenate([np.repeat(np.arange(1000), 50), np.arange(1000, 2000)])
    model = fit(
        QuadtreeKMeans(1, epsilon=20.0, bounds=(-1, 1), random_state=0),
        np.concatenate([left, right]),
        groups=ids,
    )
    np.testing.assert_allclose(model.cluster_centers_[0], X.mean(axis=0), atol=0.02)


@pytest.mark.parametrize("method", [DPM(2, bounds=(-1, 1)), Lloyd(2)], ids=repr)
def test_methods_without_a_bound_for_persons_refuse(method):
    with pytest.raises(ValueError, match="groups and sample_weight are not supported by"):
        method.fit(X, groups=np.arange(len(X)))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.arange(3), "groups has 3 ids for 2000 rows"),
        (np.arange(len(X)) / 2, "groups are of type float64"),
    ],
)
def test_bad_ids_are_refused_before_anything_is_charged(groups, message, tmp_path):
    account = PrivacyAccountant(Budget(1.0, 1e-6, unit="person"), tmp_path / "account.json")
    with pytest.raises(ValueError, match=message):
        FastLloyd(2, bounds=(-1, 1)).fit(X, groups=groups, account=account)
    assert not account.runs


def test_accounts_of_persons_and_of_rows_do_not_mix(tmp_path):
    groups = np.arange(len(X)) // 4
    method = FastLloyd(2, epsilon=1.0, bounds=(-1, 1))
    rows = PrivacyAccountant(Budget(2.0, 1e-5), tmp_path / "rows.json")
    with pytest.raises(AccountError, match="unit=person cannot be added to an account"):
        method.fit(X, groups=groups, account=rows)

    path = tmp_path / "persons.json"
    persons = PrivacyAccountant(Budget(2.0, 1e-5, unit="person"), path)
    method.fit(X, groups=groups, account=persons)
    assert PrivacyAccountant.open(path).budget.unit == "person"


@pytest.mark.parametrize(("method", "points"), CASES)
def test_weights_of_one_change_no_bit(method, points):
    plain = fit(method, points).cluster_centers_
    weights = np.ones(len(X))
    assert (fit(method, points, sample_weight=weights).cluster_centers_ == plain).all()
    # Outside of the interval they are clipped to it.
    clipped = fit(method, points, sample_weight=7 * weights)
    assert (clipped.cluster_centers_ == plain).all()
    assert clipped.ledger_.budget.unit == "row"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 1000))
def test_a_weight_is_worth_as_many_copies(copies, seed):
    """Exact answers of every query of weights, against rows that are repeated."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-1, 1, (len(copies), 2))
    domain = -np.ones(2), np.ones(2)
    weights = weigh_rows(len(rows), sample_weight=copies, max_weight=4)
    weighted, _ = Points.quantize(rows, *domain, weights=weights)
    repeated, _ = Points.quantize(np.repeat(rows, copies, axis=0), *domain)
    one, many = (Curator(points, None, NoiseStreams([0])) for points in (weighted, repeated))
    centers = rng.integers(-SCALE, SCALE, (1, 3, 2))
    radii = np.array([1.0, 0.5, 0.2])
    for query in [
        SumsAndCounts(centers, 0.5, relative=True),
        GridCounts(4),
        ShellCounts(np.zeros(2), radii),
        SideCounts(np.zeros(2), radii),
        ClippedSum(np.zeros(2), 0.3),
    ]:
        answer = query.exact(one)
        expected = query.exact(many)
        for part in query.mechanisms:
            # A row's part of a sum is rounded toward zero.
            rounding = 0 if part == "counts" else 4 * len(copies)
            assert np.abs(4 * answer[part] - expected[part]).max() <= rounding


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=30),
    st.integers(0, 1000),
    st.sampled_from([0, 1, 3, 8]),
)
@settings(deadline=None)
def test_a_weight_is_worth_as_many_copies_in_a_ball(copies, seed, n_kept):
    """Also among the farthest points, of which the last row is cut."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-SCALE, SCALE, (len(copies), 2))
    units = weigh_rows(len(rows), sample_weight=copies, max_weight=4).units
    weighted = replace(Points.from_grid(rows), weights=units)
    repeated = Points.from_grid(np.repeat(rows, copies, axis=0))
    one, many = (
        Curator([points], None, NoiseStreams([0])).clipped_points(1.2)
        for points in (weighted, repeated)
    )
    if n_kept:
        centers = rng.integers(-SCALE, SCALE, (2, 2))
        one.n_remaining, many.n_remaining = 2 * n_kept, 8 * n_kept
        for view in (one, many):
            view.filter_farthest(centers, 0.5)
    centers = rng.integers(-SCALE // 2, SCALE // 2, (3, 2))
    hashing = euclidean_hash(rng, 1, 2, 0.5)
    codes = np.arange(hashing.sizes[0])
    origins = rng.integers(-SCALE, SCALE, (len(codes), 2))
    for query in [
        NearestCounts(centers),
        NearestShells(centers, np.array([1.0, 0.5, 0.2])),
        NearestSumsAndCounts(centers, 0.3),
        BucketSums(hashing, codes, origins, 0.4),
    ]:
        answer = query.exact(one)
        expected = query.exact(many)
        for part in query.mechanisms:
            parts = [query.sensitivity(view)[part].parts for view in (one, many)]
            assert (4 * answer[part] * parts[1] == expected[part] * parts[0]).all()
    counts, expected = (BucketCounts(hashing).exact(view)["counts"] for view in (one, many))
    assert counts.cells.tolist() == expected.cells.tolist()
    assert (4 * counts.counts * counts.unit == expected.counts * expected.unit).all()
    for query in [
        Swaps(centers, np.array([0, 2]), [0, 1]),
        CandidateSets(centers, np.array([[0, 1], [1, 2]])),
    ]:
        (scores,), (expected,) = (query.exact(view)["choices"] for view in (one, many))
        np.testing.assert_allclose(4 * scores, expected, atol=8 * len(copies))
    moments, expected = (SecondMoments().exact(view)["moments"] for view in (one, many))
    # Coordinates are truncated, after the weight's root: by one step of 2**12 each.
    assert np.abs(4 * moments - expected).max() <= 4 * len(copies) * 4 * (1 << 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_weight": np.ones(3)}, "sample_weight must be 2000 numbers"),
        ({"sample_weight": ["1"] * len(X)}, "sample_weight must be 2000 numbers"),
        ({"sample_weight": np.ones(len(X)), "max_weight": 0}, "max_weight=0 must be positive"),
    ],
)
def test_bad_weights_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FastLloyd(2, bounds=(-1, 1)).fit(X, **options)


def test_a_weight_that_is_no_number_is_a_null_record():
    weights = np.ones(len(X))
    weights[3] = np.nan
    present, _ = weigh_rows(len(X), sample_weight=weights)
    assert present[3] == 0
    assert (np.delete(present, 3) == SCALE).all()


@pytest.mark.parametrize(
    "groups",
    [
        [3, 5, 3, None],
        ["a", "b", "a", None],
        np.array(["a", "b", "a", "c"]),
        pd.Series([3, 5, 3, pd.NA], dtype="Int64"),
        pd.Series([3, 5, 3, 7]),
        pd.Series(["a", "b", "a", None]),
        pd.Series(["a", "b", "a", "c"], dtype="category"),
        pd.Series([3, 5, 3, np.nan], dtype=object),
    ],
    ids=str,
)
def test_ids_of_any_kind_are_persons(groups):
    units, n_persons = weigh_rows(4, groups)
    assert (units / SCALE).tolist() == [0.5, 1.0, 0.5, 1.0]
    assert n_persons == 3
