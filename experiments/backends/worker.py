"""Cells run one at a time, in this process or in one that may be killed."""

import contextlib
import fcntl
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
    """Outcome of a cell: ``done`` or ``failed``, and the error in a line."""

    key: str
    status: str
    error: str = ""


@dataclass(frozen=True)
class Runner:
    """Runs cells and stores their results; see `backends.run_cells`."""

    store: Store
    backend: Backend
    data_dir: str | None

    def run(
        self,
        cell: Cell,
        on_start: Callable[[], object] = lambda: None,
    ) -> Outcome:
        """Run one cell, again if it fails, and store its result.

        `on_start` is called when the data are loaded and the time of the cell starts.

        Raises
        ------
        ResultsNotWritable
            If the result cannot be stored, which ends the run.
        """
        # A plan does not need what executes cells: a quarter of a second of imports.
        from pkm.experiments.fit.execute import execute

        for _ in range(self.backend.retries + 1):
            try:
                with self.store.mark_running(cell.key):
                    rows = execute(cell, self.data_dir, on_start)
                    rows = rows.assign(
                        git=git_commit(),
                        metrics_code=subpackages_digest("metrics"),
                        finished=time.time(),
                    )
                    self.store.write(cell, rows)
                return Outcome(cell.key, "done")
            except ResultsNotWritable:
                raise
            # Any error of a method is recorded as the failure of this cell alone.
            except Exception as error:
                outcome = self.record_failure(cell, error)
        return outcome

    def record_exit(self, cell: Cell, exit_code: int | None) -> Outcome:
        """Return the outcome of a cell whose process ended, and record a failure."""
        self.store.unmark_running(cell.key)
        # The result may have been stored before the end.
        if self.store.status(cell.key) == "done":
            return Outcome(cell.key, "done")
        error: Exception = WorkerDied(
            "the worker process ended without an answer (out of memory?)"
        )
        if exit_code == -signal.SIGALRM:
            limit = self.backend.find_limit(cell)
            error = TimeLimitExceeded(f"time limit of {limit:g} s reached")
        return self.record_failure(cell, error)

    def record_failure(self, cell: Cell, error: BaseException) -> Outcome:
        """Record a failure of a cell."""
        self.store.write_failure(cell, error)
        return Outcome(cell.key, "failed", f"{type(error).__name__}: {error}")


class Worker:
    """A process that runs cells one at a time; another one replaces it when it dies.

    A compiled loop cannot be interrupted, but a process can be killed at any moment:
    for a cell with a time limit the process sets an alarm that it does not catch.
    """

    def __init__(self, runner: Runner):
        self.runner = runner
        self.start()

    def start(self) -> None:
        """Start the process, which keeps what it loads and compiles between cells."""
        self.connection, remote = PROCESSES.Pipe()
        self.process = PROCESSES.Process(
            target=serve,
            args=(remote, self.runner, dict(os.environ)),
            name="pkm worker",
        )
        start_server()
        self.process.start()
        remote.close()

    def submit(self, cell: Cell) -> None:
        """Send a cell to the process."""
        self.cell = cell
        if self.connection.closed:
            self.start()
        # If the process has died, `wait_for_outcome` notices.
        with contextlib.suppress(ConnectionError):
            self.connection.send(cell)

    def wait_for_outcome(self) -> Outcome:
        """Wait until the process sends the outcome of the cell, or ends."""
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionError):
            self.close()
            return self.runner.record_exit(self.cell, self.process.exitcode)
        if isinstance(answer, ResultsNotWritable):
            raise answer
        return answer

    def close(self) -> None:
        """Kill the process, if it runs, and end what it has started."""
        if self.connection.closed:
            return
        # SIGTERM lets mpirun end the processes that it started; SIGKILL would not.
        group = self.process.pid
        assert group is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGTERM)
        self.process.kill()
        self.process.join()
        self.connection.close()


def serve(
    connection: Connection,
    runner: Runner,
    environment: dict[str, str],
) -> None:
    """Run the cells that a connection brings, in this process, until it is closed."""
    # Lead a new process group, which has the processes that a cell starts.
    os.setpgid(0, 0)
    end_with_parent()
    # The server that forks keeps the environment of its start.
    os.environ.update(environment)
    # Use the default method: with it, numba's lock leaves nothing behind at a kill.
    multiprocessing.set_start_method(None, force=True)
    # Do not catch it: the kernel ends the process even inside a compiled loop.
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


def end_with_parent() -> None:
    """Let the kernel end this process group when the command has ended.

    It does so even inside a compiled loop. A closed connection would be noticed only
    after the current cell, as it is on systems without this call.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, signal.SIGTERM)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, os.O_ASYNC)
