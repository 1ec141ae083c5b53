"""The columns of a stored row: the page on them, and rows that fit them."""

from pathlib import Path

import pytest
from fabricated.studies import ROWS

from pkm import schema
from pkm.arrow import TYPES, check, to_table
from pkm.metrics import METRICS

PAGE = Path(__file__).parents[1] / "docs" / "schema.md"


def test_page_is_current():
    text = PAGE.read_text(encoding="utf-8")
    assert text == schema.page(text), "run: python -m pkm.schema docs/schema.md"


def test_columns_are_declared_once():
    assert len(schema.BY_NAME) == len(schema.COLUMNS)
    assert {column.dtype for column in schema.COLUMNS} == set(TYPES)
    assert set(schema.HEADINGS) == {column.kind for column in schema.COLUMNS}


def test_every_metric_has_a_column():
    assert set(METRICS) <= set(schema.names("metric", scope="all"))


@pytest.mark.parametrize("study", ROWS)
def test_fabricated_rows_fit_the_schema(study):
    required = [column.name for column in schema.COLUMNS if column.missing is None]
    for _, rows in ROWS[study]().groupby(["sweep", "method"]):
        # Concatenated, rows have NaN where their cell lacks a column.
        cell = rows[rows["cell"] == rows["cell"].iloc[0]]
        lacking = [name for name in cell if name not in required and cell[name].isna().all()]
        check(to_table(cell.drop(columns=lacking)), required)
