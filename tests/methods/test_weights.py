"""Rows with weights: persons with several rows, and weights that are given."""

from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm import row_blocks
from pkm.compute import SCALE, Points
from pkm.compute.kernels.hashing import euclidean_hash
from pkm.methods import (
    DPM,
    EMMC,
    HST,
    AIMKMeans,
    Balcan,
    EUGkM,
    FastLloyd,
    FedDPKMeans,
    GLloyd,
    KaplanStemmer,
    KMeansPlusPlus,
    Lloyd,
    LocalMean,
    LSHSplits,
    MSTKMeans,
    NoisedPoints,
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
dask = pytest.importorskip("dask")

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
    DPM(2, epsilon=2.0, bounds=(-1, 1), random_state=1, depth=4),
    LSHSplits(2, epsilon=2.0, bounds=(-1, 1), random_state=1),
    HST(2, epsilon=2.0, bounds=(-1, 1), random_state=1, layers=4),
    MSTKMeans(2, epsilon=2.0, bounds=(-1, 1), random_state=1, n_init=1),
    AIMKMeans(2, epsilon=2.0, bounds=(-1, 1), random_state=1, n_init=1),
]
#: Kinds of ids: all with the first method, one with each of the others that read blocks.
KINDS = ("integers", "texts", "categories")
IN_BLOCKS = [method for method in METHODS[1:] if method.supports_chunks]
WITH_KINDS = [*product(METHODS[:1], KINDS), *zip(IN_BLOCKS, cycle(KINDS), strict=False)]
WIDE = np.hstack([X, -X, X])
WIDE_METHOD = SynopsisKMeans(2, epsilon=2.0, bounds=(-10, 10), random_state=1)
CASES = [pytest.param(method, X, id=repr(method)) for method in METHODS]
CASES.append(pytest.param(WIDE_METHOD, WIDE, id="SynopsisKMeans of six columns"))


def fit(method, points=X, **options):
    with pytest.warns(UserWarning, match="makes noise repeatable"):
        return method.fit(points, **options)


@settings(deadline=None)
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


def test_k_means_averages_over_persons():
    """Without privacy, too: a reference of the same objective."""
    rows = np.array([[0.0, 0.0], [0.5, 0.0], [1.0, 0.5]])
    model = KMeansPlusPlus(1, bounds=(-1, 1), random_state=0)
    center = model.fit(rows, groups=["ann", "ann", "bob"]).cluster_centers_
    np.testing.assert_allclose(center, [[0.625, 0.25]], atol=2 / SCALE)


@pytest.mark.slow
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


def make_ids(kind):
    """Ids of about 300 persons in no order, of which some are missing."""
    ids = pd.Series(np.random.default_rng(1).integers(300, size=len(X))).astype("Int64")
    if kind != "integers":
        ids = "user " + ids.astype("string")
    ids[::50] = pd.NA
    return ids.astype("category") if kind == "categories" else ids


def write_parts(folder, frame):
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        path = folder / f"{number}.parquet"
        frame.iloc[part].to_parquet(path, row_group_size=77, index=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), WITH_KINDS)
def test_a_column_of_ids_gives_the_bits_of_ids_in_memory(method, kind, tmp_path, monkeypatch):
    ids = make_ids(kind)
    weights = np.random.default_rng(2).uniform(-0.1, 1.1, len(X))
    expected = fit(method, groups=ids)
    weighted = fit(method, groups=ids, sample_weight=weights).cluster_centers_
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    frame.insert(1, "user", ids)
    folder = write_parts(tmp_path / "visits", frame)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    sources = [frame, table, str(folder), folder / "*.parquet", ds.dataset(folder)]
    cases = list(zip((600, 602, 1e9, 3001, 1000), sources, strict=True))
    for n_values, source in cases if method is METHODS[0] else cases[:2]:
        monkeypatch.setattr(row_blocks, "BLOCK_VALUES", int(n_values))
        model = fit(method, source, groups="user")
        assert (model.cluster_centers_ == expected.cluster_centers_).all()
        assert model.ledger_.charges == expected.ledger_.charges
        assert model.ledger_.budget.unit == "person"
        assert model.n_features_in_ == 2
        model = fit(method, source, groups="user", sample_weight=weights)
        assert (model.cluster_centers_ == weighted).all()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kind"), WITH_KINDS)
def test_chunks_of_ids_give_the_bits_of_ids_in_memory(method, kind):
    ids = make_ids(kind).astype(object).fillna(5 if kind == "integers" else "")
    ids = ids.to_numpy(np.int16 if kind == "integers" else np.str_)
    weights = np.random.default_rng(2).uniform(-0.1, 1.1, len(X))
    expected = fit(method, groups=ids).cluster_centers_
    weighted = fit(method, groups=ids, sample_weight=weights).cluster_centers_
    for size in (333, len(X)):
        array = da.from_array(X, (size, 1))
        groups = da.from_array(ids, size)
        assert (fit(method, array, groups=groups).cluster_centers_ == expected).all()
        model = fit(method, array, groups=groups, sample_weight=weights)
        assert (model.cluster_centers_ == weighted).all()


@pytest.mark.parametrize(("method", "kind"), WITH_KINDS[:2])
def test_ids_of_a_file_of_their_own_give_the_bits_of_ids_in_memory(method, kind, tmp_path):
    ids = np.random.default_rng(1).integers(300, size=len(X))
    np.save(tmp_path / "ids.npy", ids if kind == "integers" else ids.astype(str))
    np.save(tmp_path / "X.npy", X)
    weights = np.random.default_rng(2).uniform(-0.1, 1.1, len(X))
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    for options in ({}, {"sample_weight": weights}):
        expected = fit(method, groups=ids, **options)
        model = fit(method, tmp_path / "X.npy", groups=mapped, **options)
        assert (model.cluster_centers_ == expected.cluster_centers_).all()
        assert model.ledger_.budget.unit == "person"


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.arange(5), r"groups of shape \(5,\) must have one id for each of 2000 rows"),
        (np.ones(len(X)), "groups are of type double, and persons must be"),
    ],
)
def test_bad_files_of_ids_are_refused(ids, message, tmp_path):
    np.save(tmp_path / "ids.npy", ids)
    np.save(tmp_path / "X.npy", X)
    refuse(tmp_path / "X.npy", np.load(tmp_path / "ids.npy", mmap_mode="r"), message, tmp_path)


def test_a_file_of_ids_that_changes_is_refused(tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(len(X)))
    np.save(tmp_path / "X.npy", X)
    rows = row_blocks.row_blocks(tmp_path / "X.npy")
    rows = row_blocks.attach_ids(rows, np.load(tmp_path / "ids.npy", mmap_mode="r"))
    assert sum(map(len, rows.ids())) == len(X)
    np.save(tmp_path / "ids.npy", np.ones(len(X), np.int64))
    with pytest.raises(row_blocks.ChangedRows, match=r"ids.npy has changed"):
        list(rows.identified_blocks())


def test_names_of_features_are_without_the_ids():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"lon": X[:, 0], "user": np.arange(len(X)) // 3, "lat": X[:, 1]})
    for source in (frame, frame.to_pandas()):
        model = fit(METHODS[0], source, groups="user")
        assert model.feature_names_in_.tolist() == ["lon", "lat"]
        model.predict(source[["lon", "lat"]])


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


@pytest.mark.parametrize(
    "method",
    [
        DPM(2, variant="published", bounds=(-1, 1)),
        EMMC(2, bounds=(-1, 1)),
        Lloyd(2),
        LocalMean(1, bounds=(-1, 1)),
        NoisedPoints(2, bounds=(-1, 1)),
    ],
    ids=repr,
)
def test_methods_without_a_bound_for_persons_refuse(method, tmp_path):
    account = PrivacyAccountant(Budget(1.0, 1e-6, unit="person"), tmp_path / "account.json")
    with pytest.raises(ValueError, match="groups and sample_weight are not supported by"):
        method.fit(X, groups=np.arange(len(X)), account=account)
    assert not account.runs


def refuse(points, groups, message, folder, fit="fit"):
    """A fit is refused before its account is charged."""
    account = PrivacyAccountant(Budget(1.0, 1e-6, unit="person"), folder / "account.json")
    method = FastLloyd(2, bounds=(-1, 1))
    with pytest.raises(ValueError, match=message):
        getattr(method, fit)(points, groups=groups, account=account)
    assert not account.runs


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.arange(3), "groups has 3 ids for 2000 rows"),
        (np.arange(len(X)) / 2, "groups are of type float64"),
        ("user", "groups='user' should name a column of X, and X has no names"),
    ],
)
def test_bad_ids_are_refused_before_anything_is_charged(groups, message, tmp_path):
    refuse(X, groups, message, tmp_path)


@pytest.mark.parametrize("kind", ["frame", "table", "file", "dataset"])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("usr", r"groups='usr' should name .*lon, lat, user, weight"),
        ("weight", "are of type (double|float), and persons must be integers or texts"),
    ],
)
def test_bad_columns_of_ids_are_refused(kind, column, message, tmp_path):
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    frame = frame.assign(user=np.arange(len(X)), weight=0.5)
    frame.to_parquet(tmp_path / "x.parquet")
    source = {
        "frame": frame,
        "table": pa.Table.from_pandas(frame),
        "file": tmp_path / "x.parquet",
        "dataset": ds.dataset(tmp_path / "x.parquet"),
    }[kind]
    refuse(source, column, message, tmp_path)


def test_ids_that_are_a_feature_are_refused(tmp_path):
    polars = pytest.importorskip("polars")
    frame = pd.DataFrame(X, columns=["lon", "lat"]).assign(user=np.arange(len(X)) // 3)
    message = "groups is the column 'user' of X, which is then a feature, too: drop it"
    for source in (frame, polars.from_pandas(frame)):
        refuse(source, source["user"], message, tmp_path)
        refuse(source, "user", "call fit, then predict", tmp_path, "fit_predict")


def test_ids_in_some_files_alone_are_refused(tmp_path):
    frame = pd.DataFrame(X, columns=["lon", "lat"])
    folder = write_parts(tmp_path / "visits", frame)
    frame.assign(user=1).to_parquet(folder / "0.parquet")
    refuse(folder, "user", r"1.parquet has other columns .*\(user\)", tmp_path)


@pytest.mark.parametrize("name", ["x.npy", "mapped", "rows", "chunks"])
def test_rows_without_names_have_no_column_of_ids(name, tmp_path):
    np.save(tmp_path / "x.npy", X)
    source = {
        "x.npy": tmp_path / "x.npy",
        "mapped": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "rows": row_blocks.RowBlocks(len(X), 2, lambda: iter([X])),
        "chunks": da.from_array(X, (500, 2)),
    }[name]
    message = r"groups='user' should name a column, and .* has no names: give the ids"
    refuse(source, "user", message, tmp_path)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        pytest.param(
            da.from_array(np.arange(len(X)), len(X)),
            r"\(2000,\) in 1 chunks must have the chunks of the rows, 2000 in 4: give groups.rech",
            id="one chunk",
        ),
        pytest.param(da.arange(1500, chunks=500), r"\(1500,\) in 3 chunks", id="shorter"),
        pytest.param(da.ones((len(X), 1), chunks=500), r"\(2000, 1\) in 4 chunks", id="matrix"),
        pytest.param(da.ones(len(X), chunks=500), "groups are of type float64", id="floats"),
        pytest.param(
            da.ones(len(X), chunks=500).astype(object),
            "groups are of type double, and persons must be",
            id="objects",
        ),
        pytest.param(
            da.arange(len(X), chunks=500).map_blocks(lambda ids: ids[1:]),
            r"groups has a chunk of shape \(499,\) for 500 rows",
            id="short chunks",
        ),
    ],
)
def test_bad_chunks_of_ids_are_refused(groups, message, tmp_path):
    with dask.config.set(scheduler="synchronous"):
        refuse(da.from_array(X, (500, 1)), groups, message, tmp_path)


def test_a_method_that_needs_all_points_refuses_a_column_of_ids(tmp_path):
    table = pa.table({"x": X[:, 0], "user": np.arange(len(X))})
    message = "groups='user' is read in blocks, and EMMC needs all points at once"
    with pytest.raises(ValueError, match=message):
        EMMC(2, bounds=(-1, 1)).fit(table, groups="user")


def test_ids_that_change_between_passes_are_refused():
    tables = [pa.table({"x": X[:, 0], "user": np.arange(len(X)) + offset}) for offset in (0, 1)]
    streams = iter([tables[0]] * 3 + [tables[1]] * 9)

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return next(streams).__arrow_c_stream__(requested_schema)

    model = FastLloyd(2, bounds=(-1, 1), random_state=0)
    with pytest.raises(row_blocks.ChangedRows, match="groups has other ids"):
        fit(model, Stream(), groups="user")


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


@settings(deadline=None)
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
            resolutions = [query.sensitivity(view)[part].resolution for view in (one, many)]
            assert (4 * answer[part] * resolutions[1] == expected[part] * resolutions[0]).all()
    counts, expected = (BucketCounts(hashing).exact(view)["counts"] for view in (one, many))
    assert counts.cells.tolist() == expected.cells.tolist()
    assert (
        4 * counts.counts * counts.count_factor == expected.counts * expected.count_factor
    ).all()
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
        ["ann", "bob", "ann", np.nan],
    ],
    ids=str,
)
def test_ids_of_any_kind_are_persons(groups):
    units, n_persons = weigh_rows(4, groups)
    assert (units / SCALE).tolist() == [0.5, 1.0, 0.5, 1.0]
    assert n_persons == 3
