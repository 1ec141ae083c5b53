"""The columns of a stored row, and rows that fit them."""

import math

import pandas as pd
import pytest
from fabricated.studies import ROWS

from pkm import schema
from pkm.arrow import TYPES, check_table, to_frame, to_table
from pkm.metrics import METRICS


def test_columns_are_declared_once():
    assert len(schema.BY_NAME) == len(schema.COLUMNS)
    assert {column.dtype for column in schema.COLUMNS} == set(TYPES)


def test_every_metric_has_a_column():
    assert set(METRICS) <= set(schema.names("metric", scope="all"))


@pytest.mark.slow
@pytest.mark.parametrize("study", ROWS)
def test_fabricated_rows_fit_the_schema(study):
    required = [column.name for column in schema.COLUMNS if column.fill_value is None]
    for _, rows in ROWS[study]().groupby(["sweep", "method"]):
        # Concatenated, rows have NaN where their cell has no such column.
        cell = rows[rows["cell"] == rows["cell"].iloc[0]]
        empty = [name for name in cell if name not in required and cell[name].isna().all()]
        table = to_table(cell.drop(columns=empty))
        check_table(table, required)
        assert table.num_rows == len(cell)


def test_rows_read_without_a_column_can_be_stored_again():
    table = to_table(ROWS["mufc"]().iloc[:3][["seed", "k"]])
    rows = to_frame([table])
    assert rows["clusters_per_client"].isna().all()
    again = to_table(rows)
    assert again["clusters_per_client"].null_count == 3
    pd.testing.assert_frame_equal(to_frame([again]), rows)


def test_numbers_that_are_no_integers_are_refused():
    with pytest.raises(ValueError, match="column 'split_seed' must hold integer"):
        to_table(pd.DataFrame({"split_seed": [0.5]}))
    with pytest.raises(ValueError, match="column 'seed' must hold integer"):
        to_table(pd.DataFrame({"seed": [math.nan]}))
