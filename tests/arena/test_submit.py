"""An entry names what failed, and has the rest; what cannot begin is refused in a line."""

import json
from importlib import metadata

import pandas as pd
import pytest

from pkm import __version__
from pkm.arena import submit as submitting
from pkm.arena.attempt import AttemptFailed
from pkm.arena.entry import read_entry, read_rows
from pkm.arena.submit import find_source, main, refuse_rows, submit
from pkm.experiments.config.groups import read_choice


def test_an_honest_method_has_no_problem(enter):
    entry = read_entry(enter("sulloyd"))
    assert entry.problems == []
    assert entry.package == f"pkm {__version__}"
    assert {line["error"] for line in entry.checks} == {None}
    page = (enter("sulloyd") / "README.md").read_text()
    assert "| conformance | 13 of 13 checks passed |" in page
    assert "| audit | replay consistent, residuals consistent |" in page


@pytest.mark.slow
def test_what_fails_is_named_and_the_rest_goes_on(enter):
    folder = enter("lying_methods:FailsOnWine")
    problems = read_entry(folder).problems
    reason = "failed: RuntimeError: 13 columns are too many"
    assert problems == [
        f"failsonwine on wine, epsilon={epsilon:g} (lite): {reason}" for epsilon in (0.5, 4.0)
    ]
    own = read_rows(folder).query("method == 'failsonwine'")
    assert set(own["dataset"]) == {"iris", "lsun"}
    page = (folder / "README.md").read_text()
    assert all(problem in page for problem in problems)


@pytest.mark.slow
def test_a_fault_is_found_at_once(enter):
    """Half the noise shows in the residuals, and a peek in the replay."""
    quieter = read_entry(enter("lying_methods:Quieter"))
    assert any(line.startswith("residuals: ") for line in quieter.problems)
    peeking = read_entry(enter("planted_faults:BestOfThree"))
    assert any("it depends on data directly" in line for line in peeking.problems)
    assert peeking.audit["verdicts"]["replay"] == "violated"


def test_the_source_comes_with_the_entry(enter):
    folder = enter("lying_methods:Quieter")
    assert read_entry(folder).package == ""
    assert "class Quieter" in (folder / "source" / "lying_methods.py").read_text()


def test_a_package_of_an_index_is_named_with_its_version(monkeypatch):
    installed = {"lying_methods": ["numpy"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: installed)
    found = find_source({"_target_": "lying_methods.Quieter"})
    assert found == (f"numpy {metadata.version('numpy')}", {})


def test_an_entry_without_a_result_says_so(tmp_path, monkeypatch):
    def fail(phase, request, folder, seconds, n_cells):
        raise AttemptFailed(f"{phase}: not done after {seconds:g} s")

    monkeypatch.setattr(submitting, "run_attempt", fail)
    out = tmp_path / "entry"
    method = read_choice("method", "sulloyd")
    entry = submit(method, out, suite="tiny", jobs=1)
    assert entry.problems == ["check: not done after 600 s", "run: not done after 86400 s"]
    page = (out / "README.md").read_text()
    assert "There is no result" in page
    assert "- check: not done after 600 s" in page
    assert read_entry(out).problems == entry.problems


def test_an_entry_that_is_too_large_is_written_with_this_problem(phases, tmp_path, monkeypatch):
    monkeypatch.setattr("pkm.arena.entry.MAX_SIZE", 10_000)
    method = read_choice("method", "sulloyd")
    entry = submit(method, tmp_path / "entry", suite="tiny", jobs=1)
    (problem,) = entry.problems
    assert problem.endswith("bytes: at most 10,000 are allowed")


ROWS = pd.DataFrame(
    {
        "cell": ["a", "a", "b", "b", "c", "c", "d", "d", "r"],
        "sweep": "lite",
        "method": ["mine"] * 8 + ["kmeans"],
        "dataset": ["iris"] * 2 + ["wine"] * 2 + ["lsun"] * 2 + ["s1"] * 2 + ["iris"],
        "epsilon": [1.0] * 8 + [float("nan")],
        "epsilon_spent": [1.0] * 5 + [1.1] + [1.0] * 2 + [float("nan")],
        "n_centers": [3.0, 3, 3, 4, 3, 3, 3, 3, 3],
        "k": 3,
        "nicv": [0.1] * 7 + [float("nan"), 0.1],
    }
)


def test_cells_that_break_a_rule_are_dropped_as_a_whole():
    """Otherwise a method could leave out its worst seeds."""
    kept, problems = refuse_rows(ROWS)
    assert kept["cell"].tolist() == ["a", "a", "r"]
    assert problems == [
        "mine on wine, epsilon=1 (lite): more centers than k",
        "mine on s1, epsilon=1 (lite): a cost that is not finite",
        "mine on lsun, epsilon=1 (lite): more epsilon than the budget",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param([], "method='' is not allowed", id="no method"),
        pytest.param(["sulloyd", "dpm"], "must be one method", id="two methods"),
        pytest.param(["suloyd"], "method='suloyd' is unknown", id="unknown method"),
        pytest.param(["no_module:Method"], "No module named 'no_module'", id="no module"),
        pytest.param(["planted_faults:None"], "has no attribute 'None'", id="no class"),
        pytest.param(["planted_faults:SkipsEmpty"], "a subclass of PrivateKMeans", id="no method"),
        pytest.param(["k_fed"], "this one needs the sweep's key unlearning", id="another kind"),
        pytest.param(["sulloyd", "stage=all"], "stage must be one of lite, full", id="stage"),
        pytest.param(["sulloyd", "suite=2020-01"], "suite must be one of", id="suite"),
        pytest.param(["sulloyd", "jobs=0"], "jobs must be a whole number", id="jobs"),
        pytest.param(["sulloyd", "seeds=3"], "option must be stage or", id="option"),
        pytest.param(["sulloyd", "out=there"], "an entry is not overwritten", id="folder"),
    ],
)
def test_what_cannot_begin_is_refused_in_a_line(words, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(submitting, "run_attempt", None)
    assert main(words if "suite=2020-01" in words else [*words, "suite=tiny"]) == 2
    error = capsys.readouterr().err.strip()
    assert reason in error
    assert "\n" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_module_that_does_not_import_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_module.py").write_text("import pkm_no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["broken_module:Method", "suite=tiny"]) == 2
    assert "No module named 'pkm_no_such_module'" in capsys.readouterr().err
    assert not (tmp_path / "entries").exists()


def test_the_crate_has_the_submitter(phases, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sulloyd", "suite=tiny", "jobs=1", "by=Ada Lovelace", "out=ada"]) == 0
    assert "ada: no problems" in capsys.readouterr().out
    crate = json.loads((tmp_path / "ada" / "ro-crate-metadata.json").read_text())
    assert "Ada Lovelace" in {line.get("name") for line in crate["@graph"]}
    assert "Submitted by Ada Lovelace on " in (tmp_path / "ada" / "README.md").read_text()
