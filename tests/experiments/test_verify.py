"""Claims and figures run again."""

import pandas as pd
import pytest

from pkm.experiments.commands.composition import load
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports import verify
from pkm.experiments.reports.verify import differing_columns, find, words_in
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration
WORDS = ("paper=kaplan-stemmer", "profile=smoke")


@pytest.fixture
def results(tmp_path, cache, monkeypatch):
    """Return the store of a sweep that one figure shows, and the words for the command line."""
    store = Store(tmp_path / "results")
    config = load([*WORDS, "tracking=none"])
    plan = make_plan(config.paper, config.profile)
    cells = [cell for sweep, cell in plan.entries if sweep == "selection"]
    verify.run_cells(cells, store, verify.Backend())
    return store, ["profile=smoke", f"results={store.root}"]


def test_figure_that_is_equal(results, capsys):
    store, words = results
    n_cells = len(store.keys())
    assert n_cells > 0
    assert verify.main(["kaplan-stemmer/selection", *words]) == 0
    out = capsys.readouterr().out
    assert f"in {n_cells} of {n_cells} cells" in out
    assert "numbers of the figure: equal" in out


def test_changed_value_is_found(results, capsys):
    store, words = results
    config = load([*WORDS, "tracking=none"])
    plan = make_plan(config.paper, config.profile)
    cell = next(cell for cell in plan.cells if store.status(cell.key) == "done")
    rows = store.read([cell.key], store.table(cell.key).column_names)
    (metric, *_) = cell.metrics
    store.write(cell, rows.assign(**{metric: rows[metric] * (1 + 1e-15)}))
    assert verify.main(["kaplan-stemmer/selection", *words]) == 1
    assert f"{cell.label}: {metric}" in capsys.readouterr().out


def test_refusals(results, capsys):
    _, words = results
    cases = {
        "kaplan-stemmer/selectoin": "did you mean 'kaplan-stemmer/selection'",
        "kaplan-stemer/selection": "did you mean 'kaplan-stemmer'",
        "selection": "must be PAPER/CLAIM or PAPER/FIGURE",
        "kaplan-stemmer/real": "lacks the cells of kaplan-stemmer/real (smoke)",
        "dpm/table1": "run pkm reproduce paper=dpm profile=smoke first",
    }
    for name, message in cases.items():
        assert verify.main([name, *words]) == 2, name
        assert message in capsys.readouterr().err
    assert verify.main(words) == 2
    assert "one claim or figure" in capsys.readouterr().err


def test_words_of_a_claim_include_its_sets():
    words = find("fastlloyd/real-fast-best-private").words
    assert {"real", "fastlloyd_published", "iris", "birch2"} <= words
    assert "synth" not in words
    assert set(words_in(("a b", {"c": ["d"]}, 3))) == {"a", "b", "c", "d"}


def test_times_are_left_out_and_bits_count():
    rows = pd.DataFrame(
        {"cell": ["a", "a", "b"], "seed": [0, 1, 0], "nicv": [0.0, float("nan"), 1.0]}
    ).assign(fit_seconds=1.0, iteration_ms=1.0)
    assert differing_columns(rows, rows.assign(fit_seconds=2.0, iteration_ms=2.0)) == {}
    other = rows.assign(nicv=[-0.0, float("nan"), 1.0])
    assert differing_columns(rows, other) == {"a": ["nicv"]}
    assert differing_columns(rows, rows[:2]) == {"b": []}
