"""A cell to its rows: each step once, and compilation apart."""

import numba
import pytest
from small_cells import BASE, CELLS

from pkm.experiments.backends import backends
from pkm.experiments.backends.backends import run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.fit import execute, inputs
from pkm.experiments.fit.central import Central
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration


def test_a_cell_enters_each_step_once_and_its_clock_starts_with_the_fit(tmp_path, monkeypatch):
    calls = []

    def recording(module, name):
        function = getattr(module, name)

        def recorded(*arguments, **options):
            calls.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, recorded)

    for name in ("resolve_cell", "prepare_metrics", "evaluate", "make_rows"):
        recording(execute, name)
    recording(inputs, "prepare_cell_data")
    recording(Central, "fit")
    runner = backends.Runner(Store(tmp_path), Backend(), None)
    runner.run(BASE, lambda: calls.append("start"))
    loading = ["resolve_cell", "prepare_cell_data", "prepare_metrics"]
    assert calls == [*loading, "start", "fit", "evaluate", "make_rows"]


def test_compilation_is_stored_with_the_cell(monkeypatch, tmp_path):
    """Times of a cell that compiled are told from those of the next one."""
    evaluate = execute.evaluate

    @numba.njit
    def double(x):
        return 2 * x

    def compile_and_evaluate(*arguments, **options):
        double(1)
        return evaluate(*arguments, **options)

    monkeypatch.setattr(execute, "evaluate", compile_and_evaluate)
    store = Store(tmp_path)
    run_cells(CELLS[:1], store, Backend())
    run_cells(CELLS[1:2], store, Backend())
    cold, warm = (store.read([cell.key])["compile_seconds"].unique() for cell in CELLS[:2])
    assert cold > 0
    assert warm == 0
