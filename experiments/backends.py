"""Run many cells, in this process or in several, with one outcome: the store filled."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Self

import joblib
from joblib.externals.loky import get_reusable_executor
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pkm.experiments.cell import Cell
from pkm.experiments.environment import git_commit
from pkm.experiments.settings import TIME_LIMIT, require
from pkm.experiments.store import Store
from pkm.experiments.timing import pinned
from pkm.methods.base import is_integer

#: Estimated seconds of the longest chunk of work for a worker, so that the progress bar is updated
#: often.
CHUNK_SECONDS = 20.0
#: Seconds between two lines of progress where the output is no terminal.
LINE_SECONDS = 20.0


class TimeLimitExceeded(RuntimeError):
    """A cell took longer than its time limit."""


class WorkerDied(RuntimeError):
    """A worker process ended without a result, most often killed for lack of memory."""


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
        Seconds a cell may take that has no limit of its own. Loading its data and searching for
        reference clusterings are not counted. A cell with a limit is run in a process of its own,
        which is killed when the time is over.
    retries : int, default=1
        How often a failed cell is tried again within one run. A cell over its time limit is not.
    """

    name: str = "serial"
    jobs: int = 1
    threads: int = 1
    time_limit: float | None = None
    retries: int = 1

    def __post_init__(self) -> None:
        require(self.name in ("serial", "joblib"), "backend", self.name, "one of serial, joblib")
        for name, minimum in (("jobs", 1), ("threads", 1), ("retries", 0)):
            value = getattr(self, name)
            holds = is_integer(value) and value >= minimum
            require(holds, name, value, f"a whole number of at least {minimum}")
        require(TIME_LIMIT.holds(self.time_limit), "time_limit", self.time_limit, TIME_LIMIT.text)


@dataclass(frozen=True)
class Outcome:
    """Result of running a cell: ``done`` or ``failed``, its seconds, and the error in one line."""

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
    """Run cells and store their results; the process that runs a cell writes its rows.

    Cells of one data set are run next to each other, so that it is loaded once per worker; the most
    expensive data sets come first, so that no long one is left for the end. Neither the order nor
    the number of workers changes a result. Cells that measure running time come last, one at a time
    with nothing else running, whatever the backend.

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
    chunks = arrange([cell for cell in cells if not cell.timing], costs, backend.jobs)
    timed = arrange([cell for cell in cells if cell.timing], costs, 1)
    parallel = backend.name == "joblib" and backend.jobs > 1 and len(chunks) > 0
    stream = in_workers if parallel else in_this_process
    outcomes = []
    with progress_of(costs, console) as advance:
        for outcome in itertools.chain(
            stream(chunks, store, backend, mirror), in_this_process(timed, store, backend, mirror)
        ):
            outcomes.append(outcome)
            advance(outcome)
    return outcomes


def arrange(cells: list[Cell], costs: dict[str, float], jobs: int) -> list[list[Cell]]:
    """Group cells into chunks of one data set each, data sets and cells of highest cost first.

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
        data = (cell.dataset, cell.path, cell.bounds, cell.preprocessing, cell.clip)
        groups.setdefault(data, []).append(cell)

    # Every worker gets some four chunks, none of them too short or too long.
    limit = min(max(sum(costs.values()) / (4 * jobs), 0.5), CHUNK_SECONDS)
    chunks = []
    total_cost = {data: sum(costs[cell.key] for cell in group) for data, group in groups.items()}
    for data in sorted(groups, key=lambda data: -total_cost[data]):
        chunk: list[Cell] = []
        seconds = 0.0
        for cell in sorted(groups[data], key=lambda cell: -costs[cell.key]):
            if chunk and seconds + costs[cell.key] > limit:
                chunks.append(chunk)
                chunk = []
                seconds = 0.0
            chunk.append(cell)
            seconds += costs[cell.key]
        chunks.append(chunk)
    return chunks


def in_this_process(
    chunks: Sequence[list[Cell]], store: Store, backend: Backend, mirror: str | None
) -> Iterator[Outcome]:
    """Run chunks one after another in this process, which holds no points afterwards."""
    if not chunks:
        return
    # A plan does not need what executes cells: a quarter of a second of imports.
    from pkm.experiments.execute import forget_data

    try:
        with pinned(backend.threads), KillableWorker(store, backend, mirror) as worker:
            for chunk in chunks:
                for cell in chunk:
                    yield run_one(cell, store, backend, mirror, worker)
    finally:
        forget_data()


def in_workers(
    chunks: Sequence[list[Cell]], store: Store, backend: Backend, mirror: str | None
) -> Iterator[Outcome]:
    """Run chunks in worker processes.

    When a worker dies, joblib gives up the whole pool. Cells already stored are safe; the chunks
    that had been started are then run one cell at a time in a fresh worker, which identifies the
    cell that failed. The workers end with the chunks, and the points that they hold with them.
    """
    try:
        yield from in_pools(chunks, store, backend, mirror)
    finally:
        get_reusable_executor().shutdown(wait=True)


def in_pools(
    chunks: Sequence[list[Cell]], store: Store, backend: Backend, mirror: str | None
) -> Iterator[Outcome]:
    """Run chunks in a pool of workers, and in another one where that dies; see `in_workers`."""
    waiting = list(chunks)
    while waiting:
        started: list[list[Cell]] = []
        finished: set[int] = set()

        def tasks(
            batch: list[list[Cell]] = waiting, started: list[list[Cell]] = started
        ) -> Iterator:
            for number, chunk in enumerate(batch):
                started.append(chunk)
                yield joblib.delayed(run_chunk)(number, chunk, store, backend, mirror)

        try:
            for number, outcomes in pool(backend, backend.jobs, tasks()):
                finished.add(number)
                yield from outcomes
            return
        except BrokenProcessPool:
            suspects = [chunk for number, chunk in enumerate(started) if number not in finished]
            waiting = waiting[len(started) :]
        for chunk in suspects:
            for cell in chunk:
                yield run_alone(cell, store, backend, mirror)


def run_alone(cell: Cell, store: Store, backend: Backend, mirror: str | None) -> Outcome:
    """Run one cell in a separate worker, so that a dead worker is the failure of this cell."""
    if store.status(cell.key) == "done":
        return Outcome(cell.key, "done", 0.0)
    started = time.perf_counter()
    try:
        task = joblib.delayed(run_chunk)(0, [cell], store, backend, mirror)
        ((_, (outcome,)),) = pool(backend, 2, [task])
    except BrokenProcessPool as error:
        cause = WorkerDied("the worker process ended without an answer (killed? out of memory?)")
        cause.__cause__ = error
        attempts = store.failure_record(cell.key).get("attempts", 0) + 1
        store.write_failure(cell, cause, attempts)
        seconds = time.perf_counter() - started
        return Outcome(cell.key, "failed", seconds, f"WorkerDied: {cause}")
    return outcome


def pool(backend: Backend, jobs: int, tasks: Iterable) -> Iterator:
    """Feed tasks to a pool of pinned workers and yield the answers as they come."""
    # The variables that size the thread pools must be set before a worker imports numpy: joblib
    # hands them over.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=backend.threads):
        yield from joblib.Parallel(
            n_jobs=jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=2 * jobs
        )(tasks)


def run_chunk(
    number: int, chunk: list[Cell], store: Store, backend: Backend, mirror: str | None
) -> tuple[int, list[Outcome]]:
    """Run the cells of a chunk inside a worker; return the chunk's number and the outcomes."""
    with pinned(backend.threads), KillableWorker(store, backend, mirror) as worker:
        return number, [run_one(cell, store, backend, mirror, worker) for cell in chunk]


def limit_of(cell: Cell, backend: Backend) -> float | None:
    """Return the seconds that a cell may take: its own limit, else the backend's."""
    return backend.time_limit if cell.time_limit is None else cell.time_limit


def run_one(
    cell: Cell, store: Store, backend: Backend, mirror: str | None, worker: "KillableWorker"
) -> Outcome:
    """Run one cell: in this process, or in one that can be killed if the cell has a time limit."""
    limit = limit_of(cell, backend)
    return attempt(cell, store, backend, mirror) if limit is None else worker.run(cell, limit)


def attempt(
    cell: Cell,
    store: Store,
    backend: Backend,
    mirror: str | None,
    begin: Callable[[], object] = lambda: None,
) -> Outcome:
    """Run one cell, again if it fails, and store what comes of it.

    `begin` is called when the data are loaded and the time of the cell starts.
    """
    # A plan does not need what executes cells: a quarter of a second of imports.
    from pkm.experiments.execute import execute, make_ready

    started = time.perf_counter()
    before = store.failure_record(cell.key).get("attempts", 0)
    for trial in range(1, backend.retries + 2):
        try:
            make_ready(cell, mirror)
            begin()
            rows = execute(cell, mirror)
        # Any error of a method is recorded as the failure of this cell; other cells go on.
        except Exception as error:
            store.write_failure(cell, error, before + trial)
            failure = f"{type(error).__name__}: {error}"
        else:
            store.write(cell, rows.assign(git=git_commit(), finished=time.time()))
            return Outcome(cell.key, "done", time.perf_counter() - started)
    return Outcome(cell.key, "failed", time.perf_counter() - started, failure)


class KillableWorker:
    """A worker process for cells with a time limit, started for the first one.

    A compiled loop cannot be interrupted, but a process can be killed at any moment: the worker
    sets an alarm that it does not catch. It stores its results itself, atomically, and reports
    the outcome of each cell. It runs until an alarm ends it or the block is left, so that data and
    compiled code are loaded once.

    Parameters
    ----------
    store, backend, mirror
        As for `run_cells`.
    """

    def __init__(self, store: Store, backend: Backend, mirror: str | None):
        self.store = store
        self.backend = backend
        self.mirror = mirror
        self.process: subprocess.Popen | None = None
        self.connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def run(self, cell: Cell, limit: float) -> Outcome:
        """Run a cell in the worker, which is killed if the cell takes over `limit` seconds.

        Returns
        -------
        Outcome
            The worker's, or a failure: the time limit was reached, or the worker ended.
        """
        started = time.perf_counter()
        if self.process is None:
            self.begin()
        assert self.process is not None and self.connection is not None
        try:
            self.connection.send((cell, limit))
            return self.connection.recv()
        except (EOFError, ConnectionError) as cause:
            if self.process.wait() == -signal.SIGALRM:
                error = TimeLimitExceeded(f"time limit of {limit:g} s reached")
            else:
                error = WorkerDied(
                    "the worker process ended without an answer (killed? out of memory?)"
                )
            error.__cause__ = cause
        self.end()
        seconds = time.perf_counter() - started
        # The worker may have stored the result before it ended.
        if self.store.status(cell.key) == "done":
            return Outcome(cell.key, "done", seconds)
        attempts = self.store.failure_record(cell.key).get("attempts", 0)
        self.store.write_failure(cell, error, attempts + 1)
        return Outcome(cell.key, "failed", seconds, f"{type(error).__name__}: {error}")

    def begin(self) -> None:
        """Start the worker: a fresh interpreter, because a fork of one with threads may hang."""
        self.connection, remote = Pipe()
        # The current path: methods outside the project may be in a folder that was added to it.
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        command = f"from pkm.experiments.backends import serve; serve({remote.fileno()})"
        with remote:
            # The leader of a new process group, with the processes that a cell starts; an interrupt
            # at the keyboard does not reach it.
            self.process = subprocess.Popen(
                [sys.executable, "-c", command],
                env=os.environ | {"PYTHONPATH": path},
                pass_fds=[remote.fileno()],
                process_group=0,
            )
        self.connection.send((self.store, self.backend, self.mirror))

    def end(self) -> None:
        """Kill the worker, if there is one, and end what it has started."""
        if self.process is None or self.connection is None:
            return
        # Terminated, not killed: only then does mpirun end the processes that it started.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.kill()
        self.process.wait()
        self.connection.close()
        self.process = None
        self.connection = None


def serve(descriptor: int) -> None:
    """Run the cells of a `KillableWorker` in this process, until the connection is closed."""
    connection = Connection(descriptor)
    store, backend, mirror = connection.recv()
    # Not caught: the kernel ends the process even inside a compiled loop.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with pinned(backend.threads):
        while True:
            try:
                cell, limit = connection.recv()
            except EOFError:
                return
            set_alarm = partial(signal.setitimer, signal.ITIMER_REAL, limit)
            outcome = attempt(cell, store, backend, mirror, set_alarm)
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send(outcome)


@contextmanager
def progress_of(
    costs: dict[str, float], console: Console | None
) -> Iterator[Callable[[Outcome], None]]:
    """Show the progress of a run; yields the function to call with each outcome.

    On a terminal a live bar whose length is estimated time, not cells, so that the remaining time
    is right although the big cells come first; elsewhere a line every `LINE_SECONDS`.
    """
    if console is None or not costs:
        yield lambda outcome: None
        return
    total = len(costs)
    total_work = sum(costs.values())
    started = time.monotonic()
    state = {"cells": 0, "failed": 0, "work": 0.0, "line": started}

    def count(outcome: Outcome) -> None:
        state["cells"] += 1
        state["failed"] += outcome.status == "failed"
        state["work"] += costs[outcome.key]

    if not console.is_terminal:

        def line(outcome: Outcome) -> None:
            count(outcome)
            moment = time.monotonic()
            if state["cells"] == total or moment - state["line"] >= LINE_SECONDS:
                state["line"] = moment
                remaining = (moment - started) * (total_work / state["work"] - 1)
                failed = f", {state['failed']} failed" if state["failed"] else ""
                done = f"{state['cells']}/{total} cells{failed}"
                console.print(f"{done}, about {duration(remaining)} left")

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
        task = bar.add_task("", total=total_work, cells=0, of=total, note="")

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
    ('42 s', '1 min 35 s', '2 h 01 min')
    """
    seconds = round(max(seconds, 0))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
