"""Files that benchmarks write."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from pkm.benchmarks import files, inputs
from pkm.compute import sums_and_counts
from pkm.compute.storage.grid_file import open_grid
from pkm.row_blocks import row_blocks, stacked


@pytest.mark.parametrize("kind", ["npy", "parquet", "grid"])
def test_a_file_has_the_rows_as_often_as_it_is_told(tmp_path, kind):
    tenth = inputs.draw_mixture(np.arange(1000) % files.K, files.D).astype(np.float32)
    path = tmp_path / f"points.{kind}"
    files.write_copies(path, tenth, 3)
    rows = open_grid(path).to_data_units() if kind == "grid" else row_blocks(path)
    # A grid is as exact as float32 tells.
    np.testing.assert_allclose(stacked(rows), np.tile(tenth, (3, 1)), atol=1e-6)

    # A pass over the file is three passes over the rows.
    centers = np.random.default_rng(2).integers(-30_000, 30_000, (1, files.K, files.D))
    once = tmp_path / f"once.{kind}"
    files.write_copies(once, tenth, 1)
    expected, sums = (
        files.open_blocks(file).map_reduce(lambda points: sums_and_counts(points, centers))
        for file in (once, path)
    )
    for times_one, times_three in zip(expected, sums, strict=True):
        np.testing.assert_array_equal(times_three, 3 * times_one)


@pytest.mark.parametrize("kind", files.ID_TYPES)
def test_each_file_has_the_same_points_and_its_kind_of_ids(tmp_path, kind):
    copy = np.arange(2000, dtype=np.float32).reshape(200, files.D)
    files.write_with_ids(tmp_path / "x.parquet", copy, kind)
    frame = pq.read_table(tmp_path / "x.parquet").to_pandas()
    points = frame.drop(columns="user")
    np.testing.assert_array_equal(points, np.tile(copy, (files.N_COPIES, 1)))
    assert isinstance(frame["user"][0], str) == (kind == "texts")
    n_persons = 200 * files.N_COPIES // files.ROWS_PER_PERSON
    # In another order in each part.
    assert n_persons * 0.99 < frame["user"].nunique() <= n_persons
    assert (frame["user"][:200].to_numpy() != frame["user"][200:400].to_numpy()).any()
    row = files.measure_memory_of_persons(tmp_path / "x.parquet", "")
    assert (row.value, row.is_met) == (12, True)
