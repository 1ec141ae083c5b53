"""Progress of a run: the time that is said to be left."""

import io
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from pkm.experiments.backends import progress
from pkm.experiments.backends.progress import ProgressCounter, show_progress


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = time.monotonic()

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def outcome(key, status="done"):
    return SimpleNamespace(key=key, status=status)


def remaining(clock, *, jobs, startup, seconds, n_cells, estimate):
    """Seconds said to be left after each cell, beside the true ones."""
    counter = ProgressCounter(dict.fromkeys(range(n_cells), estimate), jobs)
    clock.now += startup
    told = []
    for number in range(n_cells):
        counter.add(outcome(number))
        told.append(counter.remaining_seconds())
        clock.now += seconds / jobs
    true = [(n_cells - 1 - number) * seconds / jobs for number in range(n_cells)]
    return told, true


@pytest.mark.parametrize("jobs", [1, 2])
def test_imports_before_the_first_cell_do_not_count(clock, jobs):
    """Thirty seconds of imports and compilation, then cells as estimated."""
    told, true = remaining(clock, jobs=jobs, startup=30.0, seconds=1.0, n_cells=50, estimate=1.0)
    assert told == pytest.approx(true)


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_wrong_estimates_are_corrected_by_the_measured_speed(clock, factor):
    """Estimates that are ten times off: right within a half from a tenth on."""
    told, true = remaining(
        clock, jobs=2, startup=5.0, seconds=2.0, n_cells=100, estimate=2.0 * factor
    )
    assert told[0] == pytest.approx(true[0] * factor)
    assert all(told[n] == pytest.approx(true[n], rel=0.5) for n in range(10, 99))
    assert told[-1] == 0


def test_lines_name_cells_failures_and_the_time_left(clock):
    output = io.StringIO()
    console = Console(file=output, width=80)
    with show_progress(dict.fromkeys("abc", 10.0), 1, console) as add:
        add(outcome("a"))
        clock.now += 25
        add(outcome("b", "failed"))
        clock.now += 1
        add(outcome("c"))
    first, last = output.getvalue().splitlines()
    assert first.startswith("2/3 cells, 1 failed, about ")
    assert last == "3/3 cells, 1 failed, about 0 s left"
