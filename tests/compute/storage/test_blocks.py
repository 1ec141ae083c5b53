"""Points that are read in blocks give the bits of points in memory."""

import math
from collections import Counter
from functools import partial

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm import row_blocks as reading
from pkm.compute import Points, Symlog
from pkm.compute.kernels.hashing import merge_counts
from pkm.compute.storage.blocks import Blocks, Shards, add, map_reduce_all
from pkm.methods import (
    DPM,
    EMMC,
    HST,
    AIMKMeans,
    Balcan,
    DataMean,
    DPLloyd,
    EUGkM,
    FastLloyd,
    FedDPKMeans,
    GLloyd,
    KaplanStemmer,
    KMeansPlusPlus,
    Lloyd,
    LSHSplits,
    MSTKMeans,
    NoisyMean,
    PackingCenters,
    PEMeans,
    QuadtreeKMeans,
    SuLloyd,
    SynopsisKMeans,
)
from pkm.privacy import SCALE, BoxGrid, Budget, Curator, Ledger, NoiseStreams, PrivacyAccountant
from pkm.privacy.mechanisms.selection import SplitScore
from pkm.privacy.queries import tree
from pkm.privacy.queries.tree import Splits
from pkm.row_blocks import ChangedRows, RowBlocks

BY_BLOCKS = (
    FastLloyd,
    GLloyd,
    SuLloyd,
    DPLloyd,
    Lloyd,
    EUGkM,
    QuadtreeKMeans,
    MSTKMeans,
    AIMKMeans,
    DataMean,
    PackingCenters,
    NoisyMean,
    KaplanStemmer,
    Balcan,
    PEMeans,
    FedDPKMeans,
    SynopsisKMeans,
    DPM,
    LSHSplits,
)
#: Methods of many releases need more of a budget to find anything among few points.
LARGE_EPSILON = 30.0
IN_MANY_RELEASES = (KaplanStemmer, Balcan, PEMeans, SynopsisKMeans, DPM, LSHSplits)
BOUNDS = (-1.0, 1.0)


def matrix(n=400, d=3, seed=0):
    """Points of which some lie outside of the bounds and some are null records."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 0.4, (n, d)).astype(np.float32)
    X[rng.integers(0, n, 5)] *= 10
    X[rng.integers(0, n, 5), rng.integers(0, d, 5)] = np.nan
    X[rng.integers(0, n), 0] = np.inf
    return X


def in_blocks(X, sizes):
    """The same rows in blocks of given sizes, repeated as often as needed."""

    def read():
        start = 0
        turn = 0
        while start < len(X):
            size = sizes[turn % len(sizes)]
            yield X[start : start + size]
            start += size
            turn += 1

    return RowBlocks(*X.shape, read)


def released(model, X):
    """All that a fit releases."""
    model.fit(X)
    charges = None if model.ledger_ is None else model.ledger_.charges
    return model.cluster_centers_.tolist(), model.n_iter_, charges, model.domain_.tolist()


def private(method, **parameters):
    """A method with a budget, if it takes one, and points that suit its claim."""
    given = {"bounds": BOUNDS, "random_state": 3, "n_clusters": 3}
    X = matrix()
    if method.claims["sound"].private:
        given["epsilon"] = LARGE_EPSILON if method in IN_MANY_RELEASES else 2.0
    else:
        X = X[np.isfinite(X).all(axis=1)]
    if method is FedDPKMeans:
        given["public_data"] = np.random.default_rng(9).normal(0, 0.4, (40, 3))
    return method(**given | parameters), X


@pytest.mark.slow
@pytest.mark.parametrize("method", BY_BLOCKS)
def test_blocks_give_the_bits_of_memory(method):
    model, X = private(method)
    expected = released(model, X)
    for sizes in ([len(X)], [1, 7], [64], [131, 2]):
        assert released(model, in_blocks(X, sizes)) == expected, sizes


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 90), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_neither_sizes_nor_order_of_rows_matter(sizes, random):
    X = matrix(120)
    model = FastLloyd(3, epsilon=3.0, bounds=BOUNDS, random_state=0)
    expected = released(model, X)
    order = list(range(len(X)))
    random.shuffle(order)
    assert released(model, in_blocks(X[order], sizes)) == expected


@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("method", [FastLloyd, GLloyd, SuLloyd, DPLloyd])
def test_variants_give_the_bits_of_memory(method, variant):
    model, X = private(method, variant=variant)
    assert released(model, in_blocks(X, [50])) == released(model, X)


@pytest.mark.slow
@pytest.mark.parametrize("method", [FastLloyd, SuLloyd, EUGkM, QuadtreeKMeans, MSTKMeans])
def test_a_zoom_gives_the_bits_of_memory(method):
    model, _ = private(method, bounds=(-50, 50), zoom=0.2, epsilon=20.0)
    X = matrix(4000)
    expected = released(model, X)
    assert model.zoom_ is not None
    assert released(model, in_blocks(X, [333])) == expected


def test_threads_do_not_matter():
    model, X = private(FastLloyd)
    expected = released(model, in_blocks(X, [10]))
    threads = numba.get_num_threads()
    try:
        for n_threads in range(1, min(4, numba.config.NUMBA_NUM_THREADS) + 1):
            numba.set_num_threads(n_threads)
            assert released(model, in_blocks(X, [10])) == expected
    finally:
        numba.set_num_threads(threads)


def test_files_and_tables_give_the_bits_of_memory(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setattr(reading, "BLOCK_VALUES", 100)
    model, X = private(FastLloyd)
    expected = released(model, X)
    table = pa.table({f"x{h}": X[:, h] for h in range(3)})
    np.save(tmp_path / "x.npy", X)
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=70)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for source in (tmp_path / "x.npy", tmp_path / "x.parquet", table, mapped, mapped[::1]):
        assert released(model, source) == expected


def test_predict_reads_blocks():
    model, X = private(FastLloyd)
    finite = X[np.isfinite(X).all(axis=1)]
    model.fit(X)
    np.testing.assert_array_equal(model.predict(in_blocks(finite, [17])), model.predict(finite))


def test_bounds_of_a_method_without_privacy_are_found_in_blocks():
    model, X = private(Lloyd, bounds=None)
    assert released(model, in_blocks(X, [30])) == released(model, X)


def test_bad_values_are_refused_as_in_memory():
    X = matrix()
    model, _ = private(Lloyd)
    for source in (X, in_blocks(X, [40])):
        with pytest.raises(ValueError, match=r"X has \d+ rows with NaN or infinite values"):
            model.fit(source)
    model, _ = private(FastLloyd, clip=False)
    for source in (X, in_blocks(X, [40])):
        with pytest.raises(ValueError, match=r"points lie outside bounds=\(-1\.0, 1\.0\)"):
            model.fit(source)
    inside = np.clip(X, -1, 1)
    assert released(model, in_blocks(inside, [40])) == released(model, inside)
    with pytest.raises(ValueError, match="bounds=None: a private fit needs"):
        FastLloyd().fit(in_blocks(X, [40]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", [{"release": "candidates"}, {"rounds": 3}, {"select": "counts"}]
)
@pytest.mark.parametrize("copies", [1, 60])
def test_releases_on_the_farthest_points_give_the_bits_of_memory(variant, copies):
    """Also where most of the farthest are copies of few points."""
    rng = np.random.default_rng(5)
    X = np.repeat(np.clip(rng.normal(0, 0.4, (1200 // copies, 3)), -1, 1), copies, axis=0)
    model = KaplanStemmer(3, epsilon=30.0, bounds=BOUNDS, random_state=1, **variant)
    expected = released(model, X)
    for sizes in ([1, 500], [77]):
        assert released(model, in_blocks(rng.permutation(X), sizes)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [BOUNDS, (-50, 50)])
@pytest.mark.parametrize("d", [1, 3, 12])
def test_all_kinds_of_a_synopsis_give_the_bits_of_memory(d, bounds):
    X = matrix(3000, d)
    for epsilon in (0.1, 1.0, 30.0):
        model = SynopsisKMeans(3, epsilon=epsilon, bounds=bounds, random_state=2)
        assert released(model, in_blocks(X, [700])) == released(model, X), epsilon


def test_cells_of_a_tree_that_are_counted_in_parts_give_the_same_splits(monkeypatch):
    model, X = private(DPM)
    expected = released(model, in_blocks(X, [50]))
    monkeypatch.setattr(tree, "MAX_BIN_COUNTS", 1)
    assert released(model, in_blocks(X, [50])) == expected


def test_coresets_of_blocks_are_those_of_memory():
    model, X = private(KaplanStemmer)
    expected = model.coreset(X)
    found = model.coreset(in_blocks(X, [60]))
    assert found.points.tolist() == expected.points.tolist()
    assert found.weights.tolist() == expected.weights.tolist()


@pytest.mark.parametrize("method", [partial(DPM, variant="published"), EMMC, HST, KMeansPlusPlus])
def test_methods_that_need_all_points_say_so_before_they_read(method, tmp_path):
    def read():
        raise AssertionError("rows must not be read")
        yield

    model = method(2, bounds=BOUNDS)
    assert not model.supports_chunks
    with pytest.raises(ValueError, match=f"{type(model).__name__} needs all points at once"):
        model.fit(RowBlocks(10, 2, read))
    np.save(tmp_path / "x.npy", np.zeros((10, 2)))
    with pytest.raises(ValueError, match="FastLloyd"):
        model.fit(str(tmp_path / "x.npy"))


def test_methods_that_need_all_points_take_tables_and_mapped_arrays(tmp_path):
    X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    np.save(tmp_path / "x.npy", X)
    model = KMeansPlusPlus(2, bounds=BOUNDS, random_state=0)
    expected = released(model, X)
    assert released(model, np.load(tmp_path / "x.npy", mmap_mode="r")) == expected
    assert released(model, pa.table({"a": X[:, 0], "b": X[:, 1]})) == expected


def test_an_account_is_charged_as_in_memory():
    model, X = private(FastLloyd)
    model.set_params(secure=True)
    spent = []
    for source in (X, in_blocks(X, [40])):
        account = PrivacyAccountant(Budget(10.0, 1e-3, "zero_out"))
        model.fit(source, account=account)
        spent.append((account.spent(), len(account.runs)))
    assert spent[0] == spent[1]


def test_rows_that_change_between_passes_end_the_fit():
    X = matrix()
    passes = iter([X, X[1:]])
    model, _ = private(FastLloyd)
    with pytest.raises(ChangedRows, match="all passes must read the same rows"):
        model.fit(RowBlocks(*X.shape, lambda: iter([next(passes)])))


def test_null_records_of_blocks_are_refused_under_other_adjacencies():
    from pkm.privacy.rho_bounded import RhoBoundedCurator

    bounds = (-np.ones(3), np.ones(3))
    blocks = Blocks.quantize(in_blocks(matrix(), [99]), *bounds)
    assert blocks.has_null
    assert not Blocks.quantize(in_blocks(np.zeros((4, 3)), [3]), *bounds).has_null
    ledger = Ledger(Budget(1.0, 1e-6, "rho_bounded", 0.5))
    with pytest.raises(ValueError, match="null records"):
        RhoBoundedCurator(blocks, ledger, NoiseStreams([0]))


def test_a_block_is_computed_on_by_one_thread_and_few_are_in_memory():
    X = np.zeros((1000, 2))
    alive = 0
    most = 0

    def read():
        nonlocal alive, most
        for start in range(0, 1000, 10):
            alive += 1
            most = max(most, alive)
            yield X[start : start + 10]

    def count(points):
        nonlocal alive
        assert numba.get_num_threads() == 1
        alive -= 1
        return (np.array([points.shape[0]]),)

    blocks = Blocks.quantize(RowBlocks(1000, 2, read), -np.ones(2), np.ones(2))
    (total,) = blocks.map_reduce(count)
    assert total == [1000]
    assert most <= numba.get_num_threads() + 2


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 7, 8, 13])
def test_results_are_combined_in_the_order_of_the_blocks(n_blocks):
    """Each a few times, not once for every later block."""
    X = np.arange(n_blocks)[:, None] / 16
    blocks = Blocks.quantize(in_blocks(X, [1]), -np.ones(1), np.ones(1))
    sizes = []

    def joined(first, second):
        sizes.append(len(first[0]) + len(second[0]))
        return (np.concatenate([first[0], second[0]]),)

    (rows,) = blocks.map_reduce(lambda points: (points.rows[:, 0],), joined)
    np.testing.assert_array_equal(rows / SCALE, X[:, 0])
    assert sum(sizes) <= n_blocks * (1 + math.log2(n_blocks))


def test_counts_of_a_tree_hold_more_records_than_32_bits(monkeypatch):
    """As if each record stood for so many: bins of a cell do not wrap around."""
    X = np.array([[-0.9], [-0.5], [-0.5], [0.2], [0.7], [0.9]])
    times = 1 << 31

    def scores(factor):
        rows = in_blocks(X, [2])
        blocks = Blocks.quantize(rows, -np.ones(1), np.ones(1))
        curator = Curator(blocks, Ledger(Budget(1.0, 1e-6)), NoiseStreams([0]))
        curator.n_points = factor * len(X)
        grown = curator.partition(BoxGrid.of_intervals(0.25))
        query = Splits([0], [float(factor * len(X))], SplitScore(0.3, 0.1, 5.0, True))
        (found,) = query.exact(grown)["choices"]
        return found.copy()

    expected = scores(1)

    def repeated(codes, order, weights, counts):
        once = np.zeros(counts.shape, np.int64)
        histogram(codes, order, weights, once)
        counts += (times * once).astype(counts.dtype)

    histogram = tree.histogram
    monkeypatch.setattr(tree, "histogram", repeated)
    np.testing.assert_allclose(scores(times), expected, rtol=1e-9)


def test_an_error_in_a_block_ends_the_pass():
    def fail(points):
        raise RuntimeError("in a thread")

    blocks = Blocks.quantize(in_blocks(np.zeros((10, 2)), [3]), -np.ones(2), np.ones(2))
    with pytest.raises(RuntimeError, match="in a thread"):
        blocks.map_reduce(fail)


def test_shards_and_blocks_have_the_same_totals():
    X = matrix()
    bounds = (-np.ones(3), np.ones(3))
    whole = Points.quantize(X, *bounds)[0]
    shards = Shards(Points.quantize(part, *bounds)[0] for part in np.array_split(X, 3))
    blocks = Blocks.quantize(in_blocks(X, [57]), *bounds)

    def sums(points):
        return (points.rows.astype(np.int64).sum(axis=0), np.array([points.n_records]))

    rescale = partial(
        Points.rescale, center=np.full(3, 0.1), half_width=0.3, scale=Symlog(9.0, 0.5, by_norm=True)
    )
    for source in (Shards([whole]), shards, blocks):
        assert source.n_records == len(X)
        assert source.n_features == 3
        assert source.has_null
        inner = source.map(rescale)
        for points in (source, inner):
            totals = points.map_reduce(sums)
            expected = (
                Shards([whole]) if points is source else Shards([whole]).map(rescale)
            ).map_reduce(sums)
            for total, part in zip(totals, expected, strict=True):
                np.testing.assert_array_equal(total, part)


@pytest.mark.parametrize("combine", [add, merge_counts])
def test_several_functions_share_a_pass(combine):
    """Their totals are those of passes of their own, over any blocks."""
    X = matrix()
    bounds = (-np.ones(3), np.ones(3))
    n_passes = 0

    def read(sizes):
        nonlocal n_passes
        n_passes += 1
        return in_blocks(X, sizes).read()

    def counted(points, h):
        if combine is add:
            return points.rows.sum(axis=0).astype(int), np.array([h])
        return np.unique(points.rows[:, h].astype(int) // 5000, return_counts=True)

    functions = [partial(counted, h=h) for h in (2, 0, 1)]
    whole = Shards([Points.quantize(X, *bounds)[0]])
    for sizes in ([len(X)], [9], [1, 130]):
        rows = RowBlocks(*X.shape, partial(read, sizes))
        blocks = Blocks.quantize(rows, *bounds)
        n_passes = 0
        together = map_reduce_all(blocks, functions, combine)
        assert n_passes == 1
        alone = [blocks.map_reduce(function, combine) for function in functions]
        assert [list(map(np.ndarray.tolist, arrays)) for arrays in together] == [
            list(map(np.ndarray.tolist, arrays)) for arrays in alone
        ]
        if combine is merge_counts:
            expected = map_reduce_all(whole, functions, combine)
            for arrays, others in zip(together, expected, strict=True):
                assert [array.tolist() for array in arrays] == [array.tolist() for array in others]


@pytest.mark.parametrize("d", [2, 5])
def test_releases_of_a_synopsis_share_passes(d):
    """All levels of a tree are counted in one pass, all hashes of a round in three."""
    X = matrix(20_000, d)
    n_passes = 0

    def read():
        nonlocal n_passes
        n_passes += 1
        return in_blocks(X, [5000]).read()

    model = SynopsisKMeans(3, epsilon=30.0, bounds=BOUNDS, random_state=2)
    model.fit(RowBlocks(*X.shape, read))
    numbers = Counter(charge.label for charge in model.ledger_.charges)
    if d == 2:
        shared = {"grid_counts": 1}
    else:
        assert numbers["bucket_counts"] == 8
        # Two passes find the farthest half, without a release.
        shared = {"bucket_counts": 2, "bucket_sums": 4}
        n_passes -= 2
    assert n_passes == sum((numbers | shared).values())


def test_a_progress_bar_counts_the_rows_of_every_pass(monkeypatch):
    shown = []

    class Bar:
        def __init__(self, total, **_):
            shown.append([total, 0])

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, n_rows):
            shown[-1][1] += n_rows

    monkeypatch.setattr("tqdm.tqdm", Bar)
    model, X = private(SuLloyd, n_iterations=2)
    model.fit(in_blocks(X, [100]))
    assert shown == []
    model.fit(in_blocks(X, [100]), progress=True)
    assert shown == [[400, 400]] * 2


def test_curators_of_blocks_disclose_no_points():
    blocks = Blocks.quantize(in_blocks(np.zeros((4, 3)), [3]), -np.ones(3), np.ones(3))
    curator = Curator(blocks, None, NoiseStreams([0]))
    with pytest.raises(TypeError):
        curator.disclose()
