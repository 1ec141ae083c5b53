"""The leaderboard, from fabricated entries."""

import json

import numpy as np
import pandas as pd
import pytest
from arena_entries import COSTS, make_entry, make_rows

from pkm.arena import leaderboard, ranks
from pkm.arena.advice import ALWAYS
from pkm.arena.entry import ENTRY, ROWS, VERIFICATION, read_entry, write_entry
from pkm.experiments.reports.crate import write_json
from pkm.files import sha256


def test_the_page_has_an_accounting_each(folders, tmp_path):
    assert leaderboard.main([*map(str, folders), f"out={tmp_path / 'board'}"]) == 0
    page = (tmp_path / "board" / "leaderboard.md").read_text()
    _, pure, approximate = page.partition("## (epsilon")[0], *page.split("## ")[1:3]
    assert "Second" not in pure and "Second" in approximate
    for key in ranks.ACCOUNTINGS:
        picture = tmp_path / "board" / "figures" / f"leaderboard-{key}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
    record = json.loads((tmp_path / "board" / "leaderboard.json").read_text())
    for file, lines in zip(record["distribution"], record["recordSet"], strict=True):
        content = (tmp_path / "board" / file["name"]).read_bytes()
        assert file["sha256"] == sha256(content)
        names = [field["name"] for field in lines["field"]]
        assert names == list(pd.read_csv(tmp_path / "board" / file["name"]))
    table = pd.read_csv(tmp_path / "board" / "leaderboard.csv", index_col="entry")
    np.testing.assert_allclose(table["wide bounds"] / table["cost"], 10)
    assert table["mean_rank_pure"].isna().to_dict() == {
        name: notion == "approximate" for name, (_, notion) in COSTS.items()
    }
    # All three of Nemenyi's critical difference, on four sets.
    differences = table["critical_difference_pure"].dropna()
    assert set(differences) == {differences.iloc[0]} and len(differences) == 3


def refute(folder):
    """Write a verification that refutes an entry."""
    entry = sha256((folder / ENTRY).read_bytes())
    record = {"entry": entry, "status": "refuted", "verifier": "", "created": "2026-11-28"}
    write_json(folder / VERIFICATION, record)


VIOLATED = {"verdicts": {"replay": "consistent", "residuals": "violated"}}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        pytest.param({"audit": VIOLATED}, "violated", id="violated"),
        pytest.param({"audit": None}, "no audit", id="program"),
        pytest.param({"checks": [{"error": "it moves"}]}, "breaks the contract", id="contract"),
        pytest.param({}, "refuted, 2026-11-28", id="refuted"),
        pytest.param({"rows": "reference"}, "0", id="no result"),
        pytest.param({"rows": "none"}, "0", id="no rows"),
    ],
)
def test_what_was_not_attacked_or_fell_is_listed_without_a_rank(
    folders, tmp_path, changes, word, monkeypatch
):
    """The ranks of the others are those without it, and the advice knows it not."""
    rows = make_rows("best", lambda dataset, epsilon: 0.5)
    kept = {"reference": rows[rows["method"] == "kmeans"]}
    monkeypatch.setattr(leaderboard, "draw_ranks", lambda ranked, path: None)
    compared = make_entry(tmp_path / ALWAYS, make_rows(ALWAYS, lambda dataset, epsilon: 2.0))
    folders = [*folders, compared]
    changes = dict(changes)
    kind = changes.pop("rows", "all")
    folder = make_entry(tmp_path / "best", kept.get(kind, rows).reset_index(drop=True), **changes)
    if kind == "none":
        (folder / ROWS).unlink()
        write_entry(read_entry(folder), folder)
    if word.startswith("refuted"):
        refute(folder)
    words = [*map(str, folders), f"out={tmp_path}"]
    pages = []
    for more in ([], [str(folder), f"advice={tmp_path / 'advice.json'}"]):
        assert leaderboard.main([*words, *more]) == 0
        pages.append((tmp_path / "leaderboard.md").read_text())
    ranked, _, rest = pages[1].partition("## Not ranked")
    assert ranked.strip() == pages[0].partition("## By the size")[0].strip()
    assert f"| {word} |" in rest.partition("## By the size")[0]
    assert "best" not in json.loads((tmp_path / "advice.json").read_text())["methods"]


def test_advice_without_a_fixed_choice_is_refused(folders, tmp_path, capsys):
    words = [*map(str, folders), f"out={tmp_path / 'board'}", "advice=advice.json"]
    assert leaderboard.main(words) == 2
    assert "advice='advice.json' is not allowed" in capsys.readouterr().err
    assert not (tmp_path / "board").exists()


def test_entries_without_any_result_are_refused(tmp_path, capsys):
    rows = make_rows("best", lambda dataset, epsilon: 0.5)
    folder = make_entry(tmp_path / "best", rows[rows["method"] == "kmeans"])
    assert leaderboard.main([str(folder), f"out={tmp_path / 'board'}"]) == 2
    assert "one has a result" in capsys.readouterr().err


def test_a_single_entry_has_a_table(folders, tmp_path):
    assert leaderboard.main([str(folders[0]), f"out={tmp_path}"]) == 0
    assert "| entry | mean rank |" in (tmp_path / "leaderboard.md").read_text()
    assert not [*(tmp_path / "figures").iterdir()]


@pytest.mark.slow
def test_the_order_of_folders_does_not_matter(folders, tmp_path):
    pages = []
    for number, order in enumerate((folders, folders[::-1])):
        out = tmp_path / f"board{number}"
        leaderboard.main([*map(str, order), f"out={out}"])
        pages.append((out / "leaderboard.md").read_text())
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({}, "different names"), ({"stage": "lite"}, "the same in all entries")],
)
def test_entries_that_do_not_belong_together_are_refused(
    folders, tmp_path, changes, message, capsys
):
    name = "first" if not changes else "other"
    other = make_entry(tmp_path / "more" / name, make_rows(name, COSTS["first"][0]), **changes)
    out = tmp_path / "board"
    assert leaderboard.main([*map(str, folders), str(other), f"out={out}"]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()
