"""Run many cells, in this process or in several, with one outcome: the store filled."""

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass

import joblib
import numba
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from experiments.cell import Cell, is_int, is_real, require
from experiments.environment import git_commit
from experiments.execute import execute
from experiments.store import Store

#: A chunk of work handed to a worker is at most this long by the estimate, so that the bar keeps moving.
CHUNK_SECONDS = 20.0
#: Where the output is no terminal, a line of progress is printed this often.
LINE_SECONDS = 20.0
#: Seconds between repetitions of the alarm of a time limit.
ALARM_INTERVAL = 1.0


class TimeLimitExceeded(RuntimeError):
    """A cell took longer than the backend's time limit."""


class WorkerDied(RuntimeError):
    """A worker process ended without an answer, most often killed for want of memory."""


@dataclass(frozen=True)
class Backend:
    """How cells are run.

    Parameters
    ----------
    name : {"serial", "joblib"}
        In this process, or in `jobs` worker processes (in this one where ``jobs=1``).
    jobs : int, default=1
        Worker processes.
    threads : int, default=1
        Threads of BLAS, OpenMP and numba inside each process.
    time_limit : float, optional
        Seconds a cell may take. Checked between Python instructions: a compiled loop is interrupted when it returns.
    retries : int, default=1
        How often a failed cell is tried again within one run. A cell over its time limit is not.
    """

    name: str = "serial"
    jobs: int = 1
    threads: int = 1
    time_limit: float | None = None
    retries: int = 1

    def __post_init__(self):
        require(self.name in ("serial", "joblib"), "backend", self.name, "one of serial, joblib")
        for name, least in (("jobs", 1), ("threads", 1), ("retries", 0)):
            value = getattr(self, name)
            require(is_int(value) and value >= least, name, value, f"a whole number of at least {least}")
        limit = self.time_limit
        holds = limit is None or (is_real(limit) and limit > 0)
        require(holds, "time_limit", limit, "a number of seconds above 0, or null")


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: ``done`` or ``failed``, the seconds it took, and the error in one line."""

    key: str
    status: str
    seconds: float
    error: str = ""


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    backend: Backend,
    *,
    mirror: str | None = None,
    costs: Mapping[str, float] | None = None,
    console: Console | None = None,
) -> list[Outcome]:
    """Run cells and store their results; workers write, the caller only keeps count.

    Cells of one data set are run next to each other, so that it is loaded once per worker; the most expensive data sets
    come first, so that no long one is left for the end. Neither the order nor the number of workers changes a result.

    Parameters
    ----------
    cells : sequence of Cell
        What to run.
    store : Store
        Where results and failures go.
    backend : Backend
        How to run.
    mirror : str, optional
        Folder with the original data files.
    costs : mapping, optional
        Key to estimated seconds, for the order and the remaining time; equal ones by default.
    console : rich.console.Console, optional
        Where progress goes; nowhere by default.

    Returns
    -------
    list of Outcome
        One per cell, in the order they finished.

    Raises
    ------
    PermissionError
        If the results folder cannot be written; before anything is run.
    """
    store.check_writable()
    costs = {cell.key: max((costs or {}).get(cell.key, 1.0), 1e-6) for cell in cells}
    chunks = arrange(list(cells), costs, backend.jobs)
    parallel = backend.name == "joblib" and backend.jobs > 1 and len(chunks) > 0
    stream = in_workers if parallel else in_this_process
    outcomes = []
    with progress_of(costs, console) as advance:
        for outcome in stream(chunks, store, backend, mirror):
            outcomes.append(outcome)
            advance(outcome)
    return outcomes


def arrange(cells: list[Cell], costs: dict[str, float], jobs: int) -> list[list[Cell]]:
    """Group cells into chunks of one data set each, the dearest data set first and its dearest cells first.

    Parameters
    ----------
    cells : list of Cell
        What is to be run.
    costs : dict
        Key to estimated seconds.
    jobs : int
        Number of workers the chunks are meant for.

    Returns
    -------
    list of list of Cell
        Chunks, each no longer than a fair share of the whole where cells allow it.
    """
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.path, cell.bounds, cell.preprocessing, cell.clip), []).append(cell)
    limit = min(max(sum(costs.values()) / (4 * jobs), 0.5), CHUNK_SECONDS)
    chunks = []
    for group in sorted(groups.values(), key=lambda group: -sum(costs[cell.key] for cell in group)):
        chunk, filled = [], 0.0
        for cell in sorted(group, key=lambda cell: -costs[cell.key]):
            if chunk and filled + costs[cell.key] > limit:
                chunks.append(chunk)
                chunk, filled = [], 0.0
            chunk.append(cell)
            filled += costs[cell.key]
        chunks.append(chunk)
    return chunks


def in_this_process(chunks, store: Store, backend: Backend, mirror: str | None) -> Iterator[Outcome]:
    """Run chunks one after another here."""
    with pinned(backend.threads):
        for chunk in chunks:
            for cell in chunk:
                yield attempt(cell, store, backend, mirror)


def in_workers(chunks, store: Store, backend: Backend, mirror: str | None) -> Iterator[Outcome]:
    """Run chunks in worker processes.

    When a worker dies, joblib gives up the whole pool. Cells already stored are safe; the chunks that were under way
    are then run one cell at a time in a fresh worker, which tells the guilty cell from its neighbours.
    """
    waiting = list(chunks)
    while waiting:
        handed: list[list[Cell]] = []
        answered: set[int] = set()

        def tasks(batch=waiting, handed=handed):
            for number, chunk in enumerate(batch):
                handed.append(chunk)
                yield joblib.delayed(run_chunk)(number, chunk, store, backend, mirror)

        try:
            for number, outcomes in pool(backend, backend.jobs, tasks()):
                answered.add(number)
                yield from outcomes
            return
        except BrokenProcessPool:
            suspects = [chunk for number, chunk in enumerate(handed) if number not in answered]
            waiting = waiting[len(handed) :]
        for cell in (cell for chunk in suspects for cell in chunk):
            yield alone(cell, store, backend, mirror)


def alone(cell: Cell, store: Store, backend: Backend, mirror: str | None) -> Outcome:
    """Run one cell in a worker of its own, so that its death is known to be its own."""
    if store.status(cell.key) == "done":
        return Outcome(cell.key, "done", 0.0)
    started = time.perf_counter()
    try:
        ((_, (outcome,)),) = pool(backend, 2, [joblib.delayed(run_chunk)(0, [cell], store, backend, mirror)])
    except BrokenProcessPool as error:
        cause = WorkerDied("the worker process ended without an answer (killed? out of memory?)")
        cause.__cause__ = error
        store.write_failure(cell, cause, store.failure_record(cell.key).get("attempts", 0) + 1)
        return Outcome(cell.key, "failed", time.perf_counter() - started, f"WorkerDied: {cause}")
    return outcome


def pool(backend: Backend, jobs: int, tasks) -> Iterator:
    """Feed tasks to a pool of pinned workers and yield the answers as they come."""
    # The variables that size the thread pools must be set before a worker imports numpy: joblib hands them over.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=backend.threads):
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs)(
            tasks
        )


def run_chunk(number: int, chunk: list[Cell], store: Store, backend: Backend, mirror: str | None):
    """Run the cells of a chunk inside a worker; return the chunk's number and the outcomes."""
    with pinned(backend.threads):
        return number, [attempt(cell, store, backend, mirror) for cell in chunk]


def attempt(cell: Cell, store: Store, backend: Backend, mirror: str | None) -> Outcome:
    """Run one cell, within the limits of the backend, and store what comes of it."""
    started = time.perf_counter()
    before = store.failure_record(cell.key).get("attempts", 0)
    for trial in range(1, backend.retries + 2):
        try:
            with time_limit(backend.time_limit):
                rows = execute(cell, mirror)
        # Whatever a method raises is this cell's failure, recorded below, and no reason to stop the others.
        except Exception as error:
            store.write_failure(cell, error, before + trial)
            failure = f"{type(error).__name__}: {error}"
            if isinstance(error, TimeLimitExceeded):
                break
        else:
            store.write(cell, rows.assign(git=git_commit(), finished=time.time()))
            return Outcome(cell.key, "done", time.perf_counter() - started)
    return Outcome(cell.key, "failed", time.perf_counter() - started, failure)


@contextmanager
def time_limit(seconds: float | None):
    """Raise `TimeLimitExceeded` in a block that runs longer than `seconds`.

    Raises
    ------
    RuntimeError
        If a limit is asked for outside a process's main thread, where no alarm can be received.
    """
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("time_limit works only in a process's main thread: set backend.time_limit=null here")

    def stop(signum, frame):
        raise TimeLimitExceeded(f"stopped after {seconds:g} s (backend.time_limit)")

    previous = signal.signal(signal.SIGALRM, stop)
    # Repeated, because an exception raised inside a callback from compiled code is dropped.
    signal.setitimer(signal.ITIMER_REAL, seconds, ALARM_INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def pinned(threads: int):
    """Hold the thread pools of BLAS, OpenMP and numba at `threads` during a block."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        with threadpool_limits(limits=threads):
            yield
    finally:
        numba.set_num_threads(before)


@contextmanager
def progress_of(costs: dict[str, float], console: Console | None):
    """Show how far a run has come; yields the function to call with each outcome.

    On a terminal a live bar whose length is estimated time, not cells, so that the remaining time is right although
    the big cells come first; elsewhere a line now and then.
    """
    if console is None or not costs:
        yield lambda outcome: None
        return
    total, state = len(costs), {"cells": 0, "failed": 0, "work": 0.0, "line": time.monotonic()}
    started, whole = time.monotonic(), sum(costs.values())

    def count(outcome: Outcome) -> None:
        state["cells"] += 1
        state["failed"] += outcome.status == "failed"
        state["work"] += costs[outcome.key]

    if not console.is_terminal:

        def line(outcome: Outcome) -> None:
            count(outcome)
            now = time.monotonic()
            if state["cells"] == total or now - state["line"] >= LINE_SECONDS:
                state["line"] = now
                left = (now - started) * (whole / state["work"] - 1)
                failed = f", {state['failed']} failed" if state["failed"] else ""
                console.print(f"{state['cells']}/{total} cells{failed}, about {duration(left)} left")

        yield line
        return
    columns = (
        TextColumn("cells"),
        BarColumn(),
        TextColumn("{task.fields[cells]}/{task.fields[of]}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=whole, cells=0, of=total, note="")

        def advance(outcome: Outcome) -> None:
            count(outcome)
            note = f"[red]{state['failed']} failed[/red]" if state["failed"] else ""
            bar.update(task, completed=state["work"], cells=state["cells"], note=note)

        yield advance


def duration(seconds: float) -> str:
    """Write a time span for people.

    Examples
    --------
    >>> duration(42), duration(95), duration(7300)
    ('42 s', '1 min 35 s', '2 h 02 min')
    """
    seconds = round(max(seconds, 0))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
