"""The benchmarks of files and clusters run, small, and compare what they say they compare."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from pkm.benchmarks import files
from pkm.compute.storage.grid_file import open_grid
from pkm.methods import GLloyd
from pkm.row_blocks import row_blocks, stacked


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(files, "SHARD", 1000)


def test_the_sum_of_the_shards_is_that_of_a_pass(small_shards, capsys):
    assert files.main(["2500"]) == 0
    assert "equal to the sum of the shards" in capsys.readouterr().out


def test_a_wrong_pass_is_noticed(small_shards, monkeypatch):
    right = files.sums_of
    # One call, of whichever thread is first: a pass computes its blocks in several.
    calls = itertools.count()

    def wrong(points, centers):
        sums, counts = right(points, centers)
        return sums + (next(calls) == 0), counts

    monkeypatch.setattr(files, "sums_of", wrong)
    with pytest.raises(AssertionError, match="a pass is the sum of its shards"):
        files.main(["2500"])


@pytest.mark.parametrize("name", ["points.parquet", "points.npy", "points.grid"])
def test_the_file_holds_the_generated_rows_and_is_fitted(tmp_path, capsys, monkeypatch, name):
    """Of two shards, as another process writes it."""
    monkeypatch.setattr(files, "ROUNDS", 1)
    monkeypatch.setattr(files, "PART", 100_000)
    path = tmp_path / name
    n_rows = files.SHARD + 100_000
    assert files.main([str(n_rows), f"file={path}"]) == 0
    assert f"passes over n={n_rows:,}" in capsys.readouterr().out
    assert files.blocks_of(path.with_name(f"part-{name}")).n_records == files.PART
    given = stacked(files.generated(n_rows))
    if name.endswith(".grid"):
        # As exactly as float32 tells.
        np.testing.assert_allclose(stacked(open_grid(path).in_units()), given, atol=1e-6)
        return
    rows = row_blocks(path)
    assert rows is not None
    np.testing.assert_array_equal(stacked(rows), given)


def test_methods_are_fitted_and_their_passes_counted(tmp_path, capfd):
    path = tmp_path / "points.npy"
    X = stacked(files.generated(3000))
    np.save(path, X)
    n_iter = GLloyd(files.K, bounds=(-files.BOUND, files.BOUND)).fit(X).n_iter_
    assert files.main(["3000", f"file={path}", "methods=GLloyd,DPM"]) == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first.startswith(f"GLloyd, a fit of n=3,000: {n_iter} passes, ")
    assert second.startswith("DPM, a fit of n=3,000: ")
    for arguments in (["methods=Lloid"], ["DPM"]):
        with pytest.raises(SystemExit):
            files.main(["3000", f"file={path}", *arguments])


def test_repeated_rows_are_as_many_and_the_same():
    rows = files.Repeated(files.generated(300), 3)
    assert (rows.n_rows, rows.n_columns) == (900, files.D)
    once = stacked(files.generated(300))
    np.testing.assert_array_equal(np.concatenate(list(rows.blocks())), np.tile(once, (3, 1)))


@pytest.mark.slow
def test_a_cluster_gives_the_same_bits_also_when_a_worker_is_killed():
    pytest.importorskip("distributed")
    program = [sys.executable, "-m", "pkm.benchmarks.cluster"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "two workers: the same bits\none of them killed: the same bits" in done.stdout
