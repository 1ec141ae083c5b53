"""The leaderboard and the advice, from fabricated entries."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pkm.arena import advise, leaderboard, ranks
from pkm.arena.advice import (
    ALWAYS,
    compute_excess,
    evaluate_advice,
    find_leaf,
    fit_leaves,
    make_matrix,
)
from pkm.arena.entry import ENTRY, ROWS, VERIFICATION, Entry, read_entry, write_entry, write_rows
from pkm.arena.scores import cpu_ratio, score_costs
from pkm.experiments.reports.crate import write_json
from pkm.files import sha256

SETS = {"iris": (150, 4), "s1": (5000, 2), "adult": (40_000, 6), "letters": (20_000, 16)}
EPSILONS = [0.25, 1.0, 4.0]
STAGES = {"full": 1.0, "wide": 10.0}


def make_rows(method, cost, notion="pure", seeds=2):
    """Rows of a method whose cost over the reference is a function of set and epsilon."""
    lines = []
    for sweep, factor in STAGES.items():
        for dataset, (n, d) in SETS.items():
            for name, epsilons in (("kmeans", [math.nan]), (method, EPSILONS)):
                for epsilon in epsilons:
                    ratio = 1.0 if name == "kmeans" else cost(dataset, epsilon) * factor
                    lines += [
                        {
                            "sweep": sweep,
                            "method": name,
                            "label": name.title(),
                            "dataset": dataset,
                            "epsilon": epsilon,
                            "seed": seed,
                            "nicv": 0.5 * ratio,
                            "n": n,
                            "d": d,
                            "k": 5,
                            "bounds_factor": factor,
                            "notion": "none" if name == "kmeans" else notion,
                            "adjacency": "zero_out",
                            "unit": "row",
                            "timing": False,
                            "fit_cpu_seconds": 0.1,
                        }
                        for seed in range(seeds)
                    ]
    rows = pd.DataFrame(lines)
    timed = rows[(rows["sweep"] == "full") & (rows["epsilon"] != 4.0)]
    seconds = np.where(timed["method"] == method, 0.3, 0.1)
    return pd.concat(
        [rows, timed.assign(sweep="times", timing=True, fit_cpu_seconds=seconds)],
        ignore_index=True,
    )


def make_entry(folder, rows, **changes):
    """Write an entry of some rows."""
    folder.mkdir(parents=True)
    write_rows(rows, folder)
    entry = Entry(
        method={"name": folder.name, "_target_": "pkm.methods.SuLloyd"},
        suite="2026-11",
        stage="full",
        submitter="Ada",
        created="2026-11-28T00:00:00+00:00",
        package="",
        checks=[],
        audit={"verdicts": {"replay": "consistent", "residuals": "consistent"}},
        problems=[],
        environment={},
    )
    write_entry(replace(entry, **changes), folder)
    return folder


COSTS = {
    "first": (lambda dataset, epsilon: 1.1 + 0.1 / epsilon, "pure"),
    "second": (lambda dataset, epsilon: 1.2 + 0.1 / epsilon, "approximate"),
    "third": (lambda dataset, epsilon: 1.3 + 0.1 / epsilon, "pure"),
    "fourth": (lambda dataset, epsilon: 3.0 if dataset == "s1" else 1.0, "pure"),
}


@pytest.fixture
def folders(tmp_path):
    return [
        make_entry(tmp_path / name, make_rows(name, cost, notion))
        for name, (cost, notion) in COSTS.items()
    ]


def test_costs_and_times_are_ratios_to_the_reference():
    rows = make_rows("mine", lambda dataset, epsilon: 1 + epsilon)
    scores = score_costs(rows, "kmeans")
    expected = (1 + scores["epsilon"]) * scores["bounds_factor"]
    np.testing.assert_allclose(scores["ratio"], expected, rtol=1e-12)
    assert set(scores["seeds"]) == {2}
    assert cpu_ratio(rows, "kmeans") == pytest.approx(3.0)


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


# Advice


@pytest.fixture
def matrix():
    """Costs of three methods on 40 sets: one is best for few columns, one for many."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(40):
        d = int(rng.integers(2, 50))
        for epsilon in EPSILONS:
            costs = {"narrow": 1 + d / 10, "synopsis": 3.0, "never": 9.0}
            lines += [
                {
                    "entry": name,
                    "dataset": f"set{number}",
                    "n": int(rng.integers(100, 10_000)) if name == "narrow" else None,
                    "d": d,
                    "k": 5,
                    "epsilon": epsilon,
                    "bounds_factor": 1.0,
                    "ratio": cost * math.exp(0.05 * rng.standard_normal()),
                }
                for name, cost in costs.items()
            ]
    scores = pd.DataFrame(lines)
    return make_matrix(scores.assign(n=scores["n"].ffill()))


def test_leaves_divide_all_features(matrix):
    leaves = fit_leaves(matrix)
    assert sum(leaf["cells"] for leaf in leaves) == len(matrix)
    rng = np.random.default_rng(1)
    for _ in range(200):
        features = {
            "n_epsilon_per_k": float(10 ** rng.uniform(-3, 8)),
            "d": float(rng.integers(1, 1000)),
            "bounds_factor": float(rng.choice([1.0, 10.0])),
        }
        holding = [
            leaf
            for leaf in leaves
            if all(low < features[name] <= high for name, (low, high) in leaf["bounds"].items())
        ]
        assert len(holding) == 1 and holding[0] is find_leaf(leaves, features)


def test_a_leaf_has_the_geometric_mean_of_its_cells(matrix):
    cells = matrix.index.to_frame(index=False)
    for leaf in fit_leaves(matrix):
        inside = np.full(len(cells), True)
        values = {"d": cells["d"], "n_epsilon_per_k": cells["n"] * cells["epsilon"] / cells["k"]}
        for name, (low, high) in leaf["bounds"].items():
            inside &= ((values[name] > low) & (values[name] <= high)).to_numpy()
        assert inside.sum() == leaf["cells"]
        means = np.exp(np.log(matrix[inside]).mean())
        for name, (cost, low, high) in leaf["costs"].items():
            assert cost == pytest.approx(means[name], rel=1e-3)
            assert low <= cost <= high


def test_advice_beats_a_fixed_choice_where_methods_differ(matrix):
    regret = evaluate_advice(matrix)
    assert regret["advice"][0] < 0.1 < regret["synopsis"][1]
    narrow = find_leaf(
        fit_leaves(matrix), {"n_epsilon_per_k": 1000.0, "d": 3, "bounds_factor": 1.0}
    )
    ranked = list(narrow["costs"])
    assert ranked[0] == "narrow" and ranked[-1] == "never"


def test_a_method_is_not_advised_where_it_has_no_result(matrix):
    """A gap counts as the worst cost; costs and intervals are of the other cells."""
    lacking = matrix.copy()
    is_wide = lacking.index.get_level_values("d") > 25
    lacking.loc[is_wide, "synopsis"] = np.nan
    for leaf in fit_leaves(lacking):
        low, high = leaf["bounds"].get("d", [0.0, 1e300])
        ranked = list(leaf["costs"])
        if low >= 25:
            assert "synopsis" not in ranked
        elif high <= 25:
            assert ranked.index("synopsis") < ranked.index("never")
    excess = compute_excess(lacking)
    assert (excess.min(axis=1) == 1).all() and (excess >= 1).all(axis=None)
    assert (excess.loc[is_wide, "synopsis"] == excess.loc[is_wide, "never"]).all()


def test_a_method_that_is_always_best_leaves_no_regret(matrix):
    best = matrix.assign(synopsis=0.5)
    assert evaluate_advice(best) == {"advice": [0.0, 0.0], "synopsis": [0.0, 0.0]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["n=0", "d=2", "k=3", "epsilon=1"], "n='0' is not allowed"),
        (["n=10", "d=2", "k=3"], "epsilon='' is not allowed"),
        (["n=10", "d=2", "k=3", "epsilon=nan"], "epsilon='nan' is not allowed"),
        (["n=10", "d=2", "k=3", "epsilon=1", "bounds=huge"], "bounds='huge'"),
        (["n=10", "d=2", "k=3", "epsilon=1", "unit=group"], "unit='group'"),
        (["n=10", "d=2", "k=3", "epsilon=1", "size=3"], "option='size'"),
        (["n=10", "k=3", "epsilon=1", "schema=none.yaml"], "schema='none.yaml' is not allowed"),
        (["n=10", "d=2", "k=3", "epsilon=1", f"schema={__file__}"], "d='2' is not allowed"),
    ],
)
def test_bad_numbers_are_refused(words, message, capsys):
    assert advise.main(words) == 2
    assert message in capsys.readouterr().err


def test_a_schema_has_the_number_of_columns(tmp_path, capsys):
    path = tmp_path / "schema.yaml"
    rules = ("age: {kind: number, low: 0, high: 100}", "plan: {kind: category, levels: [a, b]}")
    path.write_text("\n".join(rules))
    answers = []
    # Two values of the plan, and any other.
    for word in ("d=4", f"schema={path}"):
        assert advise.main(["n=500", word, "k=3", "epsilon=1"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_methods_that_others_entered_are_not_said_to_serve_persons():
    assert advise.serves_persons("fastlloyd", 1000, 3)
    assert not advise.serves_persons("method_of_others", 1000, 3)
