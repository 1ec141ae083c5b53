"""Claims and figures run again from the command line."""

import shutil

import pytest

from pkm.experiments.applications.composition import load_config
from pkm.experiments.commands import verify
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store
from pkm.methods import KaplanStemmer

pytestmark = pytest.mark.integration
WORDS = ("paper=kaplan-stemmer", "profile=smoke")


@pytest.fixture(scope="module")
def plan():
    config = load_config([*WORDS, "tracking=none"])
    return make_plan(config.paper, config.profile)


@pytest.fixture(scope="module")
def stored(plan, tmp_path_factory):
    """Store of a sweep that one figure shows, which tests copy."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PKM_CACHE", str(folder / "cache"))
        patched.delenv("PKM_DATA", raising=False)
        store = Store(folder / "results")
        cells = [cell for sweep, cell in plan.sweep_cells if sweep == "selection"]
        verify.run_cells(cells, store, verify.Backend())
    return store.root


@pytest.fixture
def results(stored, tmp_path, cache):
    """Return a store of its own, and the words for the command line."""
    store = Store(shutil.copytree(stored, tmp_path / "results"))
    return store, ["profile=smoke", f"results={store.root}"]


@pytest.mark.slow
def test_figure_that_is_equal(results, capsys):
    store, words = results
    n_cells = len(store.keys())
    assert n_cells > 0
    assert verify.main(["kaplan-stemmer/selection", *words]) == 0
    out = capsys.readouterr().out
    assert f"in {n_cells} of {n_cells} cells" in out
    assert "numbers of the figure: equal" in out


@pytest.mark.slow
def test_changed_value_is_found(results, plan, capsys):
    store, words = results
    cell = next(cell for cell in plan.cells if store.status(cell.key) == "done")
    rows = store.read([cell.key], store.read_cell(cell.key).column_names)
    (metric, *_) = cell.metrics
    store.write(cell, rows.assign(**{metric: rows[metric] * (1 + 1e-15)}))
    assert verify.main(["kaplan-stemmer/selection", *words]) == 1
    assert f"{cell.label}: {metric}" in capsys.readouterr().out


@pytest.mark.slow
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


@pytest.mark.slow
def test_cell_that_fails_again_is_named(results, capsys, monkeypatch):
    store, words = results

    def fail(self, curator):
        raise RuntimeError("no luck")

    monkeypatch.setattr(KaplanStemmer, "cluster", fail)
    assert verify.main(["kaplan-stemmer/selection", *words]) == 1
    out = capsys.readouterr().out
    assert f"in 0 of {len(store.keys())} cells" in out
    assert "RuntimeError: no luck" in out
