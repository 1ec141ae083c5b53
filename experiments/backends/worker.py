"""Cells run one at a time, in this process or in one that may be killed."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from pkm.experiments.backends.server import PROCESSES, start_server
from pkm.experiments.cell.cell import Cell
from pkm.experiments.cell.environment import git_commit
from pkm.experiments.config.backend import Backend
from pkm.experiments.fit.threads import limit_threads
from pkm.experiments.store.store import ResultsNotWritable, Store
from pkm.source import subpackages_digest


class TimeLimitExceeded(RuntimeError):
    """A cell took longer than its time limit."""


class WorkerDied(RuntimeError):
    """A worker process ended without a result, most often killed for lack of memory."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a cell: ``done`` or ``failed``, its seconds, the error in a line."""

    key: str
    status: str
    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Runner:
    """What it takes to run a cell and to store its result; see `backends.run_cells`."""

    store: Store
    backend: Backend
    data_dir: str | None

    def run(
        self,
        cell: Cell,
        begin: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """Run one cell, again if it fails, and store what comes of it.

        `begin` is called when the data are loaded and the time of the cell starts.

        Raises
        ------
        ResultsNotWritable
            If the result cannot be stored, which ends the run.
        """
        # A plan does not need what executes cells: a quarter of a second of imports.
        from pkm.experiments.fit.execute import execute, preload

        started = time.perf_counter()
        before = self.store.read_failure(cell.key).get("attempts", 0)
        for trial in range(1, self.backend.retries + 2):
            try:
                with self.store.mark_running(cell.key):
                    preload(cell, self.data_dir)
                    begin()
                    rows = execute(cell, self.data_dir)
                    origin = {
                        "git": git_commit(),
                        "metrics_code": subpackages_digest("metrics"),
                    }
                    self.store.write(cell, rows.assign(**origin, finished=time.time()))
                return Outcome(cell.key, "done", time.perf_counter() - started)
            except ResultsNotWritable:
                raise
            # Any error of a method is recorded as the failure of this cell; other cells
            # go on.
            except Exception as error:
                self.store.write_failure(cell, error, before + trial)
                failure = f"{type(error).__name__}: {error}"
        return Outcome(cell.key, "failed", time.perf_counter() - started, failure)

    def ended(
        self,
        cell: Cell,
        exit_code: int | None,
        seconds: float,
    ) -> Outcome:
        """Say what became of a cell whose process ended; a failure is recorded."""
        self.store.unmark_running(cell.key)
        # The result may have been stored before the end.
        if self.store.status(cell.key) == "done":
            return Outcome(cell.key, "done", seconds)
        if exit_code == -signal.SIGALRM:
            limit = self.backend.find_limit(cell)
            return self.fail(
                cell,
                TimeLimitExceeded(f"time limit of {limit:g} s reached"),
                seconds,
            )
        error = WorkerDied(
            "the worker process ended without an answer (out of memory?)"
        )
        return self.fail(cell, error, seconds)

    def fail(
        self,
        cell: Cell,
        error: BaseException,
        seconds: float,
    ) -> Outcome:
        """Record the failure of a cell that no method raised."""
        attempts = self.store.read_failure(cell.key).get("attempts", 0)
        self.store.write_failure(cell, error, attempts + 1)
        return Outcome(cell.key, "failed", seconds, f"{type(error).__name__}: {error}")


class Worker:
    """A process that runs cells one at a time; another one replaces it when it dies.

    A compiled loop cannot be interrupted, but a process can be killed at any moment:
    for a cell with a time limit the process sets an alarm that it does not catch.
    """

    def __init__(self, runner: Runner):
        self.runner = runner
        self.start()

    def start(self) -> None:
        """Start the process; what it loads and compiles is kept from cell to cell."""
        self.connection, remote = PROCESSES.Pipe()
        self.process = PROCESSES.Process(
            target=serve,
            args=(remote, self.runner, dict(os.environ)),
            name="pkm worker",
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
        """Wait for the outcome of the cell: the process sends it, or ends."""
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
        """Kill the process, if it runs, and end what it has started."""
        if self.connection.closed:
            return
        # Terminated, not killed: only then does mpirun end the processes that it
        # started.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.kill()
        self.process.join()
        self.connection.close()


def serve(
    connection: Connection,
    runner: Runner,
    environment: dict[str, str],
) -> None:
    """Run the cells that a connection brings, in this process, until it is closed."""
    # The leader of a new process group, with the processes that a cell starts.
    os.setpgid(0, 0)
    # The server that forks has the environment of the time when it was started.
    os.environ.update(environment)
    # The default: under it numba's lock leaves nothing behind when this process is
    # killed.
    multiprocessing.set_start_method(None, force=True)
    # Not caught: the kernel ends the process even inside a compiled loop.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with (
        limit_threads(runner.backend.threads),
        contextlib.suppress(EOFError, ConnectionError),
    ):
        while True:
            cell = connection.recv()
            limit = runner.backend.find_limit(cell) or 0.0
            try:
                answer = runner.run(
                    cell,
                    partial(signal.setitimer, signal.ITIMER_REAL, limit),
                )
            except ResultsNotWritable as error:
                answer = error
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send(answer)
