"""Files that benchmarks write."""

import numpy as np
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
