"""Files with ids that benchmarks write."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from pkm.benchmarks import persons


@pytest.mark.parametrize("kind", persons.ID_TYPES)
def test_each_file_has_the_same_points_and_its_kind_of_ids(tmp_path, kind):
    copy = np.arange(2000, dtype=np.float32).reshape(200, persons.D)
    persons.write(tmp_path / "x.parquet", copy, kind)
    frame = pq.read_table(tmp_path / "x.parquet").to_pandas()
    points = frame.drop(columns="user")
    np.testing.assert_array_equal(points, np.tile(copy, (persons.N_COPIES, 1)))
    assert isinstance(frame["user"][0], str) == (kind == "texts")
    n_persons = 200 * persons.N_COPIES // persons.ROWS_PER_PERSON
    # In another order in each part.
    assert n_persons * 0.99 < frame["user"].nunique() <= n_persons
    assert (frame["user"][:200].to_numpy() != frame["user"][200:400].to_numpy()).any()
    row = persons.measure_memory_of_persons(tmp_path / "x.parquet", "")
    assert (row.value, row.is_met) == (12, True)
