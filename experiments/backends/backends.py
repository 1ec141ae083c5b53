"""Run many cells, in this process or in several, with one outcome: the store filled."""

import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Literal

from rich.console import Console

from pkm.experiments.backends.progress import progress_of
from pkm.experiments.backends.server import PROCESSES, start_server
from pkm.experiments.cell.cell import Cell
from pkm.experiments.cell.environment import git_commit
from pkm.experiments.config.settings import TIME_LIMIT, require
from pkm.experiments.fit.timing import pinned
from pkm.experiments.store.store import ResultsNotWritable, Store
from pkm.scalars import is_integer
from pkm.source import subpackages_digest

#: The cheapest cells come first, up to so many estimated seconds in all.
FIRST_SECONDS = 10.0


class TimeLimitExceeded(RuntimeError):
    """A cell took longer than its time limit."""


class WorkerDied(RuntimeError):
    """A worker process ended without a result, most often killed for lack of memory."""


@dataclass(frozen=True)
class Backend:
    """How cells are run.

    Parameters
    ----------
    name : {"serial", "processes", "dask"}
        In this process, in `jobs` worker processes (in this one where ``jobs=1``), or on a cluster
        of dask (see `pkm.experiments.backends.dask_cells`).
    jobs : int, default=1
        Largest number of worker processes; there are never more than chunks of cells.
    threads : int, default=1
        Threads of BLAS, OpenMP and numba inside each process.
    time_limit : float, optional
        Seconds a cell may take that has no limit of its own. Loading its data and searching for
        reference clusterings are not counted. Cells with a limit are run in a worker process,
        which is killed when the time is over.
    retries : int, default=1
        How often a failed cell is tried again within one run. A cell over its time limit, or whose
        worker died, is not; dask runs the cells of a dead worker again, up to three times.
    scheduler : str, optional
        Address of a dask scheduler; by default dask starts `jobs` workers on this machine.
    """

    name: Literal["serial", "processes", "dask"] = "serial"
    jobs: int = 1
    threads: int = 1
    time_limit: float | None = None
    retries: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        names = ("serial", "processes", "dask")
        require(self.name in names, "backend", self.name, f"one of {', '.join(names)}")
        for name, minimum in (("jobs", 1), ("threads", 1), ("retries", 0)):
            value = getattr(self, name)
            holds = is_integer(value) and value >= minimum
            require(holds, name, value, f"a whole number of at least {minimum}")
        require(TIME_LIMIT.holds(self.time_limit), "time_limit", self.time_limit, TIME_LIMIT.text)
        if self.name != "dask":
            require(self.scheduler is None, "scheduler", self.scheduler, "null unless backend=dask")
        elif self.scheduler is not None:
            holds = isinstance(self.scheduler, str) and "://" in self.scheduler
            require(holds, "scheduler", self.scheduler, "an address such as tcp://192.0.2.1:8786")


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
    """Run cells and store their results.

    The process that runs a cell writes its rows; on a cluster of dask this process does.

    Cells of one data set are run next to each other, so that it is loaded once per worker. Neither
    the order (see `arrange`) nor the number of workers changes a result. Cells that measure running
    time come last, one at a time with nothing else running, whatever the backend.

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
    ResultsNotWritable
        If the results folder cannot be written: before anything is run, or when its disk is full.
    """
    store.check_writable()
    costs = {cell.key: max((costs or {}).get(cell.key, 1.0), 1e-6) for cell in cells}
    interrupted = store.interrupted()
    jobs = 1 if backend.name == "serial" else backend.jobs
    runner = Runner(store, backend, mirror)
    outcomes = []
    with progress_of(costs, console) as advance:
        for timing, most in ((False, jobs), (True, 1)):
            chosen = [cell for cell in cells if cell.timing == timing]
            if backend.name == "dask" and not timing:
                stream = on_dask(arrange(chosen, costs, most, interrupted), runner)
            elif most > 1:
                stream = in_workers(arrange(chosen, costs, most, interrupted), runner, most)
            else:
                # A worker takes as long to start as this process: only for cells with a limit.
                limited = [cell for cell in chosen if limit_of(cell, backend) is not None]
                free = [cell for cell in chosen if limit_of(cell, backend) is None]
                stream = itertools.chain(
                    in_this_process(arrange(free, costs, 1, interrupted), runner),
                    in_workers(arrange(limited, costs, 1, interrupted), runner, 1),
                )
            for outcome in stream:
                outcomes.append(outcome)
                advance(outcome)
    return outcomes


def checked_backend(backend: Backend) -> Backend:
    """Refuse a backend that cannot run cells, before anything is charged or run.

    Returns
    -------
    Backend
        With the number of workers that there are as `jobs`.

    Raises
    ------
    ConfigurationError
        If the scheduler of a dask backend is not there, or its workers have other code.
    """
    if backend.name != "dask":
        return backend
    from pkm.experiments.backends.dask_cells import checked_cluster

    return checked_cluster(backend)


def arrange(
    cells: Sequence[Cell],
    costs: Mapping[str, float],
    jobs: int,
    interrupted: Sequence[str] = (),
) -> list[list[Cell]]:
    """Group cells into chunks of one data set each: a few cheap ones first, then the longest.

    The cheapest cells come first, a few seconds of work, so that a run that is killed over
    and over again stores some each time. Of the others the data sets and cells of highest cost come
    first, so that no long one is left for the end. Cells that an earlier run has begun and not
    ended come last: they may take longer than a run lives.

    Parameters
    ----------
    cells : list of Cell
        What is to be run.
    costs : dict
        Key to estimated seconds.
    jobs : int
        Number of workers the chunks are meant for.
    interrupted : sequence of str
        Keys of cells that were begun and have not ended, in the order in which they are to be run.

    Returns
    -------
    list of list of Cell
        Chunks, each no longer than a fair share of the whole where cells allow it.
    """
    begun = {cell.key: cell for cell in cells if cell.key in interrupted}
    last = [begun[key] for key in interrupted if key in begun]
    fresh = [cell for cell in cells if cell.key not in begun]
    first = cheapest(fresh, costs)
    first_keys = {cell.key for cell in first}
    rest = [cell for cell in fresh if cell.key not in first_keys]
    data_costs: Counter[tuple] = Counter()
    for cell in rest:
        data_costs[data_of(cell)] += costs[cell.key]
    rest.sort(key=lambda cell: (data_costs[data_of(cell)], costs[cell.key]), reverse=True)

    # Every worker gets some four chunks, none of them too short.
    limit = max(sum(costs[cell.key] for cell in cells) / (4 * jobs), 0.5)
    chunks = chunks_of(first, costs, limit) + chunks_of(rest, costs, limit)
    return chunks + [[cell] for cell in last]


def cheapest(cells: Sequence[Cell], costs: Mapping[str, float]) -> list[Cell]:
    """Return the cheapest cells, up to `FIRST_SECONDS` in all but at least one, in that order."""
    ascending = sorted(cells, key=lambda cell: costs[cell.key])
    totals = itertools.accumulate(costs[cell.key] for cell in ascending)
    return ascending[: max(1, sum(total <= FIRST_SECONDS for total in totals))]


def chunks_of(cells: Sequence[Cell], costs: Mapping[str, float], limit: float) -> list[list[Cell]]:
    """Cut cells into chunks of one data set, each of one cell or of at most `limit` seconds."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(data_of(cell), []).append(cell)
    chunks: list[list[Cell]] = []
    for group in groups.values():
        seconds = math.inf
        for cell in group:
            seconds += costs[cell.key]
            if seconds > limit:
                chunks.append([])
                seconds = costs[cell.key]
            chunks[-1].append(cell)
    return chunks


def data_of(cell: Cell) -> tuple:
    """Return what the points of a cell are a function of."""
    chosen = (cell.path, cell.columns, cell.label_column)
    return cell.dataset, chosen, cell.bounds, cell.preprocessing, cell.clip


@dataclass(frozen=True)
class Runner:
    """What it takes to run a cell and to store its result; parameters as of `run_cells`."""

    store: Store
    backend: Backend
    mirror: str | None

    def run(self, cell: Cell, begin: Callable[[], object] = lambda: None) -> Outcome:
        """Run one cell, again if it fails, and store what comes of it.

        `begin` is called when the data are loaded and the time of the cell starts.

        Raises
        ------
        ResultsNotWritable
            If the result cannot be stored, which ends the run.
        """
        # A plan does not need what executes cells: a quarter of a second of imports.
        from pkm.experiments.fit.execute import execute, make_ready

        started = time.perf_counter()
        before = self.store.failure_record(cell.key).get("attempts", 0)
        for trial in range(1, self.backend.retries + 2):
            try:
                with self.store.begun(cell.key):
                    make_ready(cell, self.mirror)
                    begin()
                    rows = execute(cell, self.mirror)
                    origin = {"git": git_commit(), "metrics_code": subpackages_digest("metrics")}
                    self.store.write(cell, rows.assign(**origin, finished=time.time()))
                return Outcome(cell.key, "done", time.perf_counter() - started)
            except ResultsNotWritable:
                raise
            # Any error of a method is recorded as the failure of this cell; other cells go on.
            except Exception as error:
                self.store.write_failure(cell, error, before + trial)
                failure = f"{type(error).__name__}: {error}"
        return Outcome(cell.key, "failed", time.perf_counter() - started, failure)

    def ended(self, cell: Cell, exit_code: int | None, seconds: float) -> Outcome:
        """Say what became of a cell during which its process ended; a failure is recorded."""
        self.store.unmark(cell.key)
        # The result may have been stored before the end.
        if self.store.status(cell.key) == "done":
            return Outcome(cell.key, "done", seconds)
        if exit_code == -signal.SIGALRM:
            limit = limit_of(cell, self.backend)
            return self.fail(cell, TimeLimitExceeded(f"time limit of {limit:g} s reached"), seconds)
        error = WorkerDied("the worker process ended without an answer (out of memory?)")
        return self.fail(cell, error, seconds)

    def fail(self, cell: Cell, error: BaseException, seconds: float) -> Outcome:
        """Record the failure of a cell that no method raised."""
        attempts = self.store.failure_record(cell.key).get("attempts", 0)
        self.store.write_failure(cell, error, attempts + 1)
        return Outcome(cell.key, "failed", seconds, f"{type(error).__name__}: {error}")


def limit_of(cell: Cell, backend: Backend) -> float | None:
    """Return the seconds that a cell may take: its own limit, else the backend's."""
    return backend.time_limit if cell.time_limit is None else cell.time_limit


def in_this_process(chunks: list[list[Cell]], runner: Runner) -> Iterator[Outcome]:
    """Run chunks one after another in this process, which holds no points afterwards."""
    if not chunks:
        return
    from pkm.experiments.fit.execute import forget_data

    try:
        with pinned(runner.backend.threads):
            for cell in itertools.chain.from_iterable(chunks):
                yield runner.run(cell)
    finally:
        forget_data()


def on_dask(chunks: list[list[Cell]], runner: Runner) -> Iterator[Outcome]:
    """Run chunks on a cluster of dask, cell by cell."""
    cells = list(itertools.chain.from_iterable(chunks))
    if not cells:
        return
    # Imported here: dask takes a second.
    from pkm.experiments.backends import dask_cells

    with dask_cells.connected(runner.backend, len(cells)) as client:
        yield from dask_cells.on_cluster(cells, runner, client)


def in_workers(chunks: list[list[Cell]], runner: Runner, jobs: int) -> Iterator[Outcome]:
    """Run chunks in at most `jobs` worker processes, each of which has one cell at a time."""
    waiting = iter(chunks)
    with contextlib.ExitStack() as workers:
        # The cells that each worker is still to run of its chunk, after the one it is at.
        queues: dict[Worker, list[Cell]] = {}
        for chunk in itertools.islice(waiting, jobs):
            worker = workers.enter_context(contextlib.closing(Worker(runner)))
            worker.begin(chunk[0])
            queues[worker] = chunk[1:]
        while queues:
            ready = wait([worker.connection for worker in queues])
            for worker in [worker for worker in queues if worker.connection in ready]:
                yield worker.outcome()
                cells = queues.pop(worker) or next(waiting, None)
                if cells is None:
                    worker.close()
                else:
                    worker.begin(cells[0])
                    queues[worker] = cells[1:]


class Worker:
    """A process that runs cells one at a time, and another one in its place when it has died.

    A compiled loop cannot be interrupted, but a process can be killed at any moment: for a cell
    with a time limit the process sets an alarm that it does not catch.
    """

    def __init__(self, runner: Runner):
        self.runner = runner
        self.start()

    def start(self) -> None:
        """Start the process; what it loads and compiles is kept from cell to cell."""
        self.connection, remote = PROCESSES.Pipe()
        self.process = PROCESSES.Process(
            target=serve, args=(remote, self.runner, dict(os.environ)), name="pkm worker"
        )
        start_server()
        self.process.start()
        remote.close()

    def begin(self, cell: Cell) -> None:
        """Hand a cell to the process."""
        self.cell = cell
        self.started = time.perf_counter()
        if self.connection.closed:
            self.start()
        # If it has died since, reading its answer finds out.
        with contextlib.suppress(ConnectionError):
            self.connection.send(cell)

    def outcome(self) -> Outcome:
        """Wait for what has become of the cell: the process says so, or its end does."""
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionError):
            self.close()
            seconds = time.perf_counter() - self.started
            return self.runner.ended(self.cell, self.process.exitcode, seconds)
        if isinstance(answer, ResultsNotWritable):
            raise answer
        return answer

    def close(self) -> None:
        """Kill the process and end what it has started; without one there is nothing to do."""
        if self.connection.closed:
            return
        # Terminated, not killed: only then does mpirun end the processes that it started.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.kill()
        self.process.join()
        self.connection.close()


def serve(connection: Connection, runner: Runner, environment: dict[str, str]) -> None:
    """Run the cells that a connection brings, in this process, until it is closed."""
    # The leader of a new process group, with the processes that a cell starts.
    os.setpgid(0, 0)
    # The server that forks has the environment of the time when it was started.
    os.environ.update(environment)
    # The default: under it numba's lock leaves nothing behind when this process is killed.
    multiprocessing.set_start_method(None, force=True)
    # Not caught: the kernel ends the process even inside a compiled loop.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with pinned(runner.backend.threads), contextlib.suppress(EOFError, ConnectionError):
        while True:
            cell = connection.recv()
            limit = limit_of(cell, runner.backend) or 0.0
            try:
                answer = runner.run(cell, partial(signal.setitimer, signal.ITIMER_REAL, limit))
            except ResultsNotWritable as error:
                answer = error
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send(answer)
