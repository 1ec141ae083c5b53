"""The entries that are in the repository: files, rows and charges, and what is made of them."""

import json
from functools import cache
from pathlib import Path

import pytest

from pkm.arena import checks, leaderboard
from pkm.arena.advice import ADVICE, read_advice
from pkm.arena.entry import COLUMNS, read_entry, read_rows
from pkm.arena.suite import CURRENT, make_stage_plan

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted((ROOT / "entries").iterdir())
RANKED = sorted((ROOT / "entries").glob(f"{CURRENT}-full-*"))


@cache
def find_cells(suite, stage):
    """The cells of the reference, by sweep and data set."""
    plan = make_stage_plan(suite, stage)
    return {(sweep, cell.dataset_name): cell for sweep, cell in plan.sweep_cells}


@pytest.fixture(scope="module")
def shared_points():
    """Prepare points once for all entries of a suite."""
    prepare = checks.prepare_cell_data
    prepared = {}

    def prepare_once(cell, data_dir):
        if cell.key not in prepared:
            prepared[cell.key] = prepare(cell, data_dir)
        return prepared[cell.key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "prepare_cell_data", prepare_once)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_entry_is_whole(folder):
    entry = read_entry(folder)
    rows = read_rows(folder, COLUMNS)
    expected = checks.list_suite_cells(entry, rows)
    stored = checks.list_stored_cells(rows)
    assert checks.check_files(entry, folder) == []
    assert checks.check_cells(entry, expected, stored) == []
    assert checks.check_settings(entry, rows, find_cells(entry.suite, entry.stage)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("shared_points")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_costs_and_epsilon_follow_from_what_was_released(folder):
    entry = read_entry(folder)
    rows = read_rows(folder, COLUMNS)
    own = rows[rows["method"] == entry.name]
    # One run of each cell, which all have the same charges: `pkm arena verify` reads every run.
    first = own.groupby("cell").head(1)
    assert checks.check_costs(first, find_cells(entry.suite, entry.stage), None) == []
    assert checks.check_charges(first) == []


@pytest.mark.slow
def test_the_page_and_the_advice_are_those_of_the_entries(tmp_path):
    words = [*map(str, RANKED), f"out={tmp_path}", f"advice={tmp_path / ADVICE.name}"]
    assert leaderboard.main(words) == 0
    for name in (leaderboard.PAGE, leaderboard.TABLE, leaderboard.SIZE_TABLE):
        made = (tmp_path / name).read_text(encoding="utf-8")
        assert made == (ROOT / "docs" / name).read_text(encoding="utf-8"), (
            f"docs/{name} is old: run the command that it names"
        )
    made = json.loads((tmp_path / ADVICE.name).read_text(encoding="utf-8"))
    assert made == read_advice()
    median, most = made["regret"]["advice"]
    assert median <= 0.05 and most <= 0.15
