"""Points of a dask.array give the bits of points in memory, on any cluster."""

import numpy as np
import pytest
from trouble import kill_once

from pkm.compute.storage.blocks import add
from pkm.compute.storage.dask_points import FAN_IN, _combine_results
from pkm.methods import (
    DPM,
    EMMC,
    EUGkM,
    FastLloyd,
    KaplanStemmer,
    Lloyd,
    MSTKMeans,
    SuLloyd,
    SynopsisKMeans,
)
from pkm.row_blocks import ChangedRows, row_blocks

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")


def matrix(n=3000):
    """Points of which some lie outside of the bounds and some are null records."""
    X = np.random.default_rng(0).normal(0, 0.4, (n, 3)).astype(np.float32)
    X[5] = np.nan
    X[70] = 30
    return X


def released(model, X):
    """All that a fit releases."""
    model.fit(X)
    charges = None if model.ledger_ is None else model.ledger_.charges
    return model.cluster_centers_.tolist(), model.n_iter_, charges


@pytest.mark.slow
@pytest.mark.parametrize("zoom", [None, 0.2])
@pytest.mark.parametrize(
    "method", [FastLloyd, SuLloyd, EUGkM, MSTKMeans, KaplanStemmer, DPM, SynopsisKMeans]
)
def test_chunks_give_the_bits_of_memory(method, zoom):
    X = matrix()
    model = method(3, epsilon=8.0, bounds=(-30, 30), random_state=2, zoom=zoom)
    expected = released(model, X)
    for chunks in (
        (3000, 3),
        (1000, 2),
        ((1, 1999, 1000), (1, 1, 1)),
        (3000 // (FAN_IN**2 + 1), 3),
    ):
        with dask.config.set(scheduler="synchronous"):
            assert released(model, da.from_array(X, chunks)) == expected, chunks


def test_results_of_tasks_stay_as_they_are():
    """A task's result may be read again, after a worker has died."""
    parts = [((np.array([1, 2]),), 3), ((np.array([4, 5]),), 1)]
    for _ in range(2):
        (total,), n_records = _combine_results(parts, add)
        assert (total.tolist(), n_records) == ([5, 7], 4)


def test_methods_without_privacy_check_the_rows_first():
    X = matrix()
    with pytest.raises(ValueError, match="X has 1 rows with NaN"):
        Lloyd(3).fit(da.from_array(X, (500, 3)))
    finite = X[6:]
    model = Lloyd(3, random_state=0)
    assert released(model, da.from_array(finite, (500, 3))) == released(model, finite)
    predicted = model.predict(da.from_array(finite, (500, 3)))
    np.testing.assert_array_equal(predicted, model.predict(finite))


def test_unknown_and_wrong_shapes_are_refused():
    array = da.from_array(matrix(), (500, 3))
    with pytest.raises(ValueError, match=r"known shape .*compute_chunk_sizes"):
        row_blocks(array[array[:, 0] > 0])
    wrong = da.map_blocks(lambda block: block[1:], array, chunks=array.chunks, dtype=array.dtype)
    with pytest.raises(ChangedRows, match="n=3000 rows, but its chunks have 2994"):
        FastLloyd(3, bounds=(-1, 1), random_state=0).fit(wrong)
    with pytest.raises(ValueError, match="EMMC needs all points at once"):
        EMMC(2, bounds=(-1, 1)).fit(array)


@pytest.mark.parametrize(
    "change",
    [
        lambda block: np.repeat(block, 2, axis=1),
        lambda block: block[:, 0],
        lambda block: block.astype(str),
        lambda block: block.astype(complex),
    ],
)
def test_chunks_of_another_width_or_kind_are_refused(change):
    array = da.from_array(matrix(), (500, 3))
    wrong = da.map_blocks(change, array, chunks=array.chunks, dtype=array.dtype)
    rule = r"X must be read as blocks of shape \(m, 3\) of real numbers, got"
    with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match=rule):
        FastLloyd(3, bounds=(-1, 1), random_state=0).fit(wrong)


def test_masked_entries_of_chunks_are_nan():
    X = matrix()
    masked = np.ma.masked_array(np.nan_to_num(X), np.isnan(X))
    model = FastLloyd(3, bounds=(-30, 30), random_state=0)
    with dask.config.set(scheduler="synchronous"):
        assert released(model, da.from_array(masked, (500, 3))) == released(model, X)


@pytest.mark.slow
def test_a_cluster_gives_the_bits_of_memory_also_when_a_worker_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed")
    X = matrix(20_000)
    model = FastLloyd(3, bounds=(-1, 1), random_state=0)
    expected = released(model, X)
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=2, **options) as cluster,
        distributed.Client(cluster),
    ):
        array = da.from_array(X, (2000, 3))
        assert released(model, array) == expected

        # The kill is in the middle of the first pass.
        killed = tmp_path / "killed"
        dying = da.map_blocks(kill_once, array, path=str(killed), meta=X[:0])
        assert released(model, dying) == expected
    assert killed.exists()
