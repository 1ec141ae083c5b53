"""The entries that are in the repository: files, rows and charges, and what is made of them."""

from pathlib import Path

import pytest

from pkm.arena import leaderboard
from pkm.arena.advice import ADVICE, fit_advice, read_advice
from pkm.arena.checks import check_charges, check_costs, check_files, check_rows
from pkm.arena.entry import read_entry, read_rows
from pkm.arena.suite import make_stage_plan, read_suite
from pkm.experiments.config.groups import read_entry as read_choice

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted((ROOT / "entries").iterdir())


def find_cells(entry):
    """The cells of the reference, by data set."""
    reference = read_suite(entry.suite)["reference"]
    plan = make_stage_plan(entry.suite, entry.stage, read_choice("method", reference))
    return reference, {cell.dataset_name: cell for cell in plan.cells}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_entry_is_whole(folder):
    entry = read_entry(folder)
    rows = read_rows(folder)
    reference, cells = find_cells(entry)
    assert check_files(entry, folder) == []
    assert check_rows(entry, rows, reference, cells) == []
    assert check_charges(rows) == []


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_costs_of_an_entry_are_those_of_its_centers(folder):
    entry = read_entry(folder)
    rows = read_rows(folder)
    _, cells = find_cells(entry)
    assert check_costs(rows[rows["method"] == entry.name], cells, None) == []


def test_the_page_and_the_advice_are_those_of_the_entries(tmp_path):
    words = [*map(str, FOLDERS), f"out={tmp_path}", f"advice={tmp_path / ADVICE.name}"]
    assert leaderboard.main(words) == 0
    for name in (leaderboard.PAGE, leaderboard.TABLE):
        made = (tmp_path / name).read_text(encoding="utf-8")
        assert made == (ROOT / "docs" / name).read_text(encoding="utf-8"), (
            f"docs/{name} is old: run the command that it names"
        )
    _, scores = leaderboard.read_scores(FOLDERS)
    assert {"suite": read_advice()["suite"], **fit_advice(scores)} == read_advice()
