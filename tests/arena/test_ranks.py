"""Ranks of entries, tables by size, and what a verification is of."""

import pytest
from arena_entries import COSTS, SETS, STAGES, make_entry, make_rows

from pkm.arena import ranks
from pkm.arena.entry import ENTRY, VERIFICATION
from pkm.experiments.reports.crate import write_json
from pkm.files import sha256


def test_entries_are_ranked_by_their_cost_on_every_set(folders):
    entries, scores = ranks.read_scores(folders)
    scores = scores[scores["bounds_factor"] == 1]
    ranked = ranks.rank_entries(entries, scores).set_index("method")["mean_rank"]
    # The fourth is best on three sets and worst on one.
    expected = {"first": 7 / 4, "second": 11 / 4, "third": 15 / 4, "fourth": 7 / 4}
    assert ranked.to_dict() == pytest.approx(expected)


def test_a_set_without_a_result_is_ranked_last(folders, tmp_path):
    cost, _ = COSTS["first"]
    rows = make_rows("lacking", lambda dataset, epsilon: 0.9 * cost(dataset, epsilon))
    is_missing = (rows["dataset"] == "iris") & (rows["epsilon"] == 1.0)
    folder = make_entry(tmp_path / "lacking", rows[~is_missing].reset_index(drop=True))
    entries, scores = ranks.read_scores([*folders, folder])
    scores = scores[scores["bounds_factor"] == 1]
    ranked = ranks.rank_entries(entries, scores).set_index("method")["mean_rank"]
    others = [2, 2, 1]  # behind the fourth on two sets, before all on one
    assert ranked["lacking"] == pytest.approx((5 + sum(others)) / 4)
    table = ranks.make_table(entries, scores, {}).set_index("entry")
    assert table.loc["lacking", "sets"] == len(SETS) - 1
    assert table.loc["first", "sets"] == len(SETS)


def test_costs_by_size_are_those_of_the_sets_of_this_size(folders):
    entries, scores = ranks.read_scores(folders)
    table = ranks.make_size_table(entries, scores)
    # Two sets in each of two classes: iris and s1, adult and letters.
    keys = ["columns", "records", "bounds", "entry"]
    costs = table.set_index(keys)["cost"]
    assert len(table) == 2 * len(STAGES) * len(folders)
    assert costs["up to 4", "up to 5,000", "as declared", "fourth"] == pytest.approx(3**0.5)
    assert costs["up to 16", "up to 50,000", "wide", "fourth"] == pytest.approx(10)
    # The page's script offers words for choice that begin with a letter.
    words = {*table["columns"], *table["records"], *table["bounds"]}
    assert all(word[0].isalpha() for word in words)


def test_a_verification_is_of_the_entry_as_it_is(folders):
    folder = folders[0]
    record = {
        "entry": sha256((folder / ENTRY).read_bytes()),
        "status": "verified",
        "verifier": "Grace",
        "created": "2026-11-28T10:00:00+00:00",
    }
    write_json(folder / VERIFICATION, record)
    assert ranks.read_status(folder) == "verified by Grace, 2026-11-28"
    (folder / ENTRY).write_text((folder / ENTRY).read_text() + "\n")
    assert ranks.read_status(folder) == "self-reported"


def test_a_verification_is_of_the_files_as_they_are(folders):
    folder = folders[1]
    entry = sha256((folder / ENTRY).read_bytes())
    record = {"entry": entry, "status": "verified", "verifier": "", "created": "2026-11-28"}
    write_json(folder / VERIFICATION, record)
    assert ranks.read_status(folder) == "verified, 2026-11-28"
    (folder / "more").write_text("more")
    assert ranks.read_status(folder) == "self-reported"
