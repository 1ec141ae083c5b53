"""Honest entries are verified, or run again where seeds do not decide."""

import json

import pytest

from pkm.arena.entry import ENTRY, VERIFICATION, read_entry
from pkm.arena.verify import choose_cells, main, require_package, verify
from pkm.files import sha256

CELLS = {("full", "mine", name, 1.0): [0, 1] for name in "abcdefghij"}
CELLS |= {("full", "kmeans", name, None): [0, 1] for name in "abcdefghij"}
TIMED = {("times", "mine", "a", 1.0): [0], ("times", "kmeans", "a", None): [0]}


def test_an_honest_entry_is_verified(make_copy):
    folder = make_copy("sulloyd")
    found = verify(folder, share=1.0, jobs=1, verifier="Ada")
    assert (found.status, found.findings) == ("verified", [])
    assert found.equal == len(found.cells) == 11
    stored = json.loads((folder / VERIFICATION).read_text())
    assert stored["verifier"] == "Ada"
    assert stored["entry"] == sha256((folder / ENTRY).read_bytes())


@pytest.mark.slow
def test_an_unseeded_method_is_run_again(make_copy):
    found = verify(make_copy("lying_methods:Unseeded"), share=1.0, jobs=1)
    assert (found.status, found.findings) == ("re-run", [])
    assert found.equal == 4  # those of the reference


@pytest.mark.slow
def test_a_failure_that_is_named_and_repeats_is_no_lie(make_copy):
    folder = make_copy("lying_methods:FailsOnWine")
    assert sum("on wine, " in line for line in read_entry(folder).problems) == 2
    found = verify(folder, share=1.0, jobs=1)
    assert (found.status, found.findings) == ("verified", [])


def test_an_entry_without_rows_is_refused(make_copy):
    folder = make_copy("sulloyd")
    (folder / "rows.parquet").unlink()
    with pytest.raises(ValueError, match=r"rows\.parquet cannot be read"):
        verify(folder)


def test_a_package_must_be_the_one_that_was_run():
    require_package("")
    require_package("pkm 0.0.1")
    with pytest.raises(ValueError, match=r"pip install numpy==0\.1"):
        require_package("numpy 0.1")
    with pytest.raises(ValueError, match="pip install no-such-package==1"):
        require_package("no-such-package 1")


def test_a_tenth_is_chosen_with_its_reference():
    chosen = choose_cells("mine", CELLS | TIMED, CELLS | TIMED, share=0.1)
    sets = [dataset for _, method, dataset, _ in chosen if method == "mine"]
    assert len(set(sets)) == 4
    assert {name[2] for name in chosen if name[1] == "kmeans"} == set(sets)
    assert {name[0] for name in chosen} == {"full"}


def test_what_has_no_rows_is_always_chosen():
    stored = {name: seeds for name, seeds in CELLS.items() if name[2] not in "ab"}
    for _ in range(5):
        chosen = choose_cells("mine", CELLS, stored, share=0.1)
        assert {("full", "mine", "a", 1.0), ("full", "mine", "b", 1.0)} <= set(chosen)


def test_every_cell_can_be_chosen():
    """A cell is missed a hundred times with a probability below 1e-22."""
    chosen = [choose_cells("mine", CELLS, CELLS, share=0.1) for _ in range(100)]
    assert {name for names in chosen for name in names} == set(CELLS)


def test_the_exit_code_tells_a_refuted_entry(make_copy, capsys):
    folder = make_copy("sulloyd")
    assert main([str(folder), "share=1", "jobs=1"]) == 0
    (folder / "README.md").write_text("Best of all.")
    assert main([str(folder), "share=1", "jobs=1"]) == 1
    output = capsys.readouterr().out
    assert "README.md: the file is not the one" in output
    cells = json.loads((folder / VERIFICATION).read_text())["cells"]
    assert output.count("run again: ") == 2 * len(cells)
    assert main([str(folder / "nowhere")]) == 2
    assert main([str(folder), "share=2"]) == 2
