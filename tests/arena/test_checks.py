"""What files say is checked without running anything; no content stops a check."""

import math

import pandas as pd
import pytest

from pkm.arena.checks import check_cells, check_charges, check_costs, check_files, check_settings
from pkm.arena.entry import Entry, read_entry, read_rows, write_entry
from pkm.arena.suite import make_stage_plan
from pkm.arrow import make_nested

ENTRY = Entry({"name": "mine", "_target_": "a.B"}, "tiny", "lite", "", "", "", [], None, [], {})
CELL = ("lite", "mine", "iris", 0.5)


def make_charged(charges, epsilon=1.0, delta=0.0, spent=0.5, notion="pure"):
    """A row with charges."""
    row = {
        "sweep": "lite", "method": "mine", "dataset": "iris", "seed": 0,
        "epsilon": epsilon, "delta": delta, "epsilon_spent": spent, "notion": notion,
    }  # fmt: skip
    return pd.DataFrame([row]).assign(charges=make_nested("charges", [charges]))


def charge(number, **costs):
    return {"mechanism": "laplace", "label": "sums", "round": number, **costs}


def test_charges_add_up():
    two = [charge(0, epsilon=0.25), charge(1, epsilon=0.25)]
    assert check_charges(make_charged(two)) == []
    gaussian = [charge(0, mu=0.2)]
    assert len(check_charges(make_charged(gaussian, delta=1e-6, notion="approximate"))) == 1


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        pytest.param({"spent": 0.4}, "the charges need epsilon=0.5, 0.4 is stated", id="spent"),
        pytest.param({"epsilon": 0.4}, "would need epsilon=0.5", id="budget"),
        pytest.param({"epsilon": math.nan}, "epsilon=nan", id="no epsilon"),
        pytest.param({"delta": 2.0}, "delta=2.0 must be in", id="delta"),
        pytest.param({"charges": [charge(0, epsilon=-0.5)]}, "epsilon=-0.5 of a charge", id="less"),
        pytest.param({"charges": [charge(0, epsilon=0.25)] * 2}, "was made before", id="twice"),
        pytest.param({"charges": []}, "the charges need epsilon=0, 0.5 is stated", id="none"),
    ],
)
def test_other_charges_are_found(row, finding):
    row = {"charges": [charge(0, epsilon=0.5)]} | row
    (found,) = check_charges(make_charged(**row))
    assert found.startswith("mine on iris")
    assert finding in found


def test_missing_charges_are_found():
    rows = make_charged([])
    rows["charges"] = pd.Series([None], dtype=rows["charges"].dtype)
    assert len(check_charges(rows)) == 1


def test_nothing_is_charged_without_a_claim():
    assert check_charges(make_charged([], notion="none")) == []


@pytest.mark.parametrize(
    ("stored", "problems", "finding"),
    [
        pytest.param({CELL: [0, 1]}, [], None, id="complete"),
        pytest.param({}, [], "left out, and no problem is named", id="left out"),
        pytest.param({}, ["mine on iris, epsilon=0.5 (lite): slow"], None, id="named"),
        pytest.param({}, ["mine on iris, epsilon=0.5 (wide): slow"], "left out", id="other name"),
        pytest.param({CELL: [0, 2]}, [], "seeds are not those", id="other seed"),
        pytest.param({CELL: [0]}, [], "seeds are not those", id="fewer seeds"),
        pytest.param({CELL: [0, 1, 1]}, [], "seeds are not those", id="a seed twice"),
    ],
)
def test_cells_are_those_of_the_suite(stored, problems, finding):
    entry = Entry(**vars(ENTRY) | {"problems": problems})
    found = check_cells(entry, {CELL: [0, 1]}, stored)
    assert bool(found) == bool(finding)
    assert not found or finding in found[0]


def test_an_added_cell_is_found():
    added = ("lite", "mine", "iris", 8.0)
    found = check_cells(ENTRY, {CELL: [0]}, {CELL: [0], added: [0]})
    assert found == ["mine on iris, epsilon=8 (lite): this is no cell of the suite"]


@pytest.fixture(scope="module")
def submitted(enter):
    """Return the rows of an entry, and the cells of the reference."""
    plan = make_stage_plan("tiny", "lite")
    cells = {(sweep, cell.dataset_name): cell for sweep, cell in plan.sweep_cells}
    return read_rows(enter("sulloyd")), cells


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("k", 4, id="k"),
        pytest.param("data", "0" * 64, id="data"),
        pytest.param("preprocessing", "minmax", id="preprocessing"),
        pytest.param("bounds_factor", 0.5, id="bounds"),
        pytest.param("metrics", "nicv", id="metrics"),
        pytest.param("unit", "person", id="unit"),
        pytest.param("timing", False, id="timing"),
    ],
)
def test_settings_are_those_of_the_suite(submitted, column, value):
    rows, cells = submitted
    assert check_settings(ENTRY, rows, cells) == []
    found = check_settings(ENTRY, rows.assign(**{column: value}), cells)
    assert any(f": {column} is not " in line for line in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "centers",
    [
        pytest.param(None, id="missing"),
        pytest.param([], id="none"),
        pytest.param([[0.0]], id="other columns"),
        pytest.param([[0.0, 0.0], [0.0]], id="ragged"),
        pytest.param([[math.nan] * 4], id="NaN"),
        pytest.param([[1e300] * 4], id="far out"),
        pytest.param([[5.0, 3.0, 4.0, 1.0]] * 4, id="more than k"),
    ],
)
def test_other_centers_have_no_true_cost(submitted, centers):
    rows, cells = submitted
    rows = rows[rows["dataset"] == "iris"].head(1).copy()
    assert check_costs(rows, cells, None) == []
    rows["centers"] = pd.Series([centers], dtype=rows["centers"].dtype, index=rows.index)
    found = check_costs(rows.assign(n_centers=float(len(centers or []))), cells, None)
    assert found == ["iris: 1 of 1 costs are not those of the centers"]


def test_records_and_columns_are_those_of_the_data(submitted):
    rows, cells = submitted
    for column in ("n", "d"):
        assert len(check_costs(rows.assign(**{column: 7}), cells, None)) == 3


def test_files_are_those_that_were_submitted(make_copy):
    folder = make_copy("sulloyd")
    entry = read_entry(folder)
    assert check_files(entry, folder) == []
    (folder / "README.md").unlink()
    (folder / "more.txt").write_text("more")
    found = check_files(entry, folder)
    assert [line.partition(":")[0] for line in found] == ["README.md", "more.txt"]


def test_a_large_folder_is_found(make_copy):
    folder = make_copy("sulloyd")
    (folder / "large").write_bytes(bytes(5_000_000))
    write_entry(read_entry(folder), folder)
    (found,) = check_files(read_entry(folder), folder)
    assert found.endswith("bytes: at most 5,000,000 are allowed")
