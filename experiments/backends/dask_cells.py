"""Cells on a cluster of dask: workers send results back, and the caller stores them.

Workers need this code and the data sets, and no folder of the caller's.
"""

import contextlib
import itertools
import logging
import multiprocessing
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pkm
from pkm.datasets.sources import DataUnavailable
from pkm.datasets.user_files import content_digest
from pkm.experiments.backends.worker import Outcome, Runner, Worker, WorkerDied, serve
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.console.console import make_console, show
from pkm.experiments.store.store import Store
from pkm.source import subpackages_digest

#: Subpackages that workers must have in the same version: rows depend on them.
WORKER_PACKAGES = (
    "compute",
    "datasets",
    "experiments",
    "federation",
    "methods",
    "metrics",
    "privacy",
)
#: Pages that scheduler and workers would serve to everybody on this machine.
NO_HTTP_ROUTES: dict[str, list] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
#: Seconds to wait for a scheduler, and between two looks for workers that have joined.
CONNECT_SECONDS = 5
POLL_SECONDS = 1.0
#: Seconds to wait for a cluster without workers.
MAX_IDLE_SECONDS = 60.0
NO_TLS = (
    "scheduler=... without TLS: whoever reaches its port runs code as its owner, and "
    "sees all data. Use tls:// (dask's setting distributed.comm), or a network of your "
    "own"
)
#: A worker runs one cell at a time, whatever its number of threads.
CELL_LOCK = threading.Lock()
#: The process that runs cells for this worker, by the id of the run: at most one.
PROCESSES: "dict[str, CellProcess]" = {}


def check_cluster(backend: Backend) -> Backend:
    """Refuse a scheduler that does not answer, or whose workers have other code.

    Returns
    -------
    Backend
        Its `jobs` is the number of threads of the cluster.

    Raises
    ------
    ConfigurationError
        Naming the scheduler, what is wrong with it, and the remedy.
    """
    _import_distributed()
    if backend.scheduler is None:
        return backend
    with open_client(backend, 1) as client:
        if not backend.scheduler.startswith("tls://"):
            show(make_console(stderr=True), NO_TLS, "yellow")
        check_code(client.run(read_versions, on_error="return"), backend.scheduler)
        return replace(backend, jobs=_count_threads(client))


@contextlib.contextmanager
def open_client(backend: Backend, n_cells: int) -> Iterator[Any]:
    """Connect to the scheduler, or start workers here, at most one for each cell.

    Whoever can connect to a worker runs code as its owner. A single worker is in this
    process, without a port. Several accept connections with the certificate of this
    run alone.

    Raises
    ------
    ConfigurationError
        If the scheduler does not answer.
    """
    distributed = _import_distributed()
    if backend.scheduler is not None:
        try:
            client = distributed.Client(
                backend.scheduler,
                timeout=CONNECT_SECONDS,
                set_as_default=False,
            )
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"scheduler={backend.scheduler!r} does not answer "
                f"({_get_first_line(error)}): start one with `dask scheduler`, "
                "or leave scheduler out for workers on this machine"
            ) from error
        with client:
            yield client
        return

    from dask import config

    n_workers = min(backend.jobs, n_cells)
    is_alone = n_workers == 1
    with (
        config.set(NO_HTTP_ROUTES),
        distributed.LocalCluster(
            n_workers=n_workers,
            processes=not is_alone,
            threads_per_worker=1,
            memory_limit=None,
            security=None if is_alone else True,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def run_on_cluster(
    chunks: list[list[Cell]],
    runner: Runner,
) -> Iterator[Outcome]:
    """Run chunks on a cluster, cell by cell, and store what the workers send back.

    At most as many cells are submitted as there are threads, so that a cell that ends
    its worker ends no other one. Dask runs the cells of a dead worker again.

    Raises
    ------
    ConnectionError
        If the cluster is lost, or has had no worker for a while.
    ResultsNotWritable
        If a result cannot be stored.
    """
    waiting = deque(itertools.chain.from_iterable(chunks))
    if not waiting:
        return
    run = uuid.uuid4().hex
    done_futures: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pending: dict[Any, Cell] = {}
    with open_client(runner.backend, len(waiting)) as client:
        last_worker_time = time.monotonic()
        try:
            while waiting or pending:
                # Workers may have joined or died since.
                n_threads = _count_threads(client)
                while waiting and len(pending) < n_threads:
                    cell = waiting.popleft()
                    # Compute and keep the key here: that of a file depends on a secret
                    # of this machine.
                    _ = cell.key
                    future = client.submit(
                        run_cell,
                        cell,
                        cell.code,
                        hash_files(cell),
                        run,
                        runner.backend,
                        runner.data_dir,
                        pure=False,
                    )
                    pending[future] = cell
                    future.add_done_callback(done_futures.put)
                if n_threads:
                    last_worker_time = time.monotonic()
                elif time.monotonic() - last_worker_time > MAX_IDLE_SECONDS:
                    raise _make_lost_error(f"no worker for {MAX_IDLE_SECONDS:g} s")
                with contextlib.suppress(queue.Empty):
                    future = done_futures.get(timeout=POLL_SECONDS)
                    yield store_result(future, pending.pop(future), runner)
        finally:
            # A cluster that is lost has no tasks to cancel.
            with contextlib.suppress(OSError):
                client.cancel(list(pending))
                client.run(close_process, run, on_error="ignore")


def hash_files(cell: Cell) -> str:
    """Hash the files of a cell (SHA-256, hex); empty where there are none."""
    if cell.file.path is None:
        return ""
    with contextlib.suppress(DataUnavailable):
        return content_digest(cell.file.path).hex()
    return ""


def store_result(future: Any, cell: Cell, runner: Runner) -> Outcome:
    """Store what a worker has sent back, or the reason why it has sent nothing."""
    from distributed import KilledWorker

    if future.status == "cancelled":
        raise _make_lost_error("its tasks are gone")
    error = future.exception()
    if error is None:
        outcome, content = future.result()
        runner.store.write_file(cell, content, outcome.status)
        return outcome
    if isinstance(error, KilledWorker):
        cause = error
        error = WorkerDied(
            f"{cause.allowed_failures + 1} workers died while they ran this cell"
        )
        error.__cause__ = cause
    return runner.record_failure(cell, error)


def run_cell(
    cell: Cell,
    code: str,
    file: str,
    run: str,
    backend: Backend,
    data_dir: str | None,
) -> tuple[Outcome, bytes]:
    """Run a cell on a worker.

    Parameters
    ----------
    cell : Cell
        The cell with its key.
    code : str
        Digest of the caller's code behind the result.
    file : str
        SHA-256 (hex) of the files of a cell on a file; else empty.
    run : str
        Id of the run, which its cells share.
    backend, data_dir
        As for `pkm.experiments.backends.backends.run_cells`.

    Returns
    -------
    outcome : Outcome
    content : bytes
        The file of the cell in a store: its rows, or the record of its failure.

    Raises
    ------
    ConfigurationError
        If this worker has other code, or another file at the path of the cell.
    """
    if cell.code != code:
        raise ConfigurationError(
            f"{cell.label}: the code of this worker is not that of the caller: install "
            "the same version of pkm and Python on both"
        )
    if file and hash_files(cell) != file:
        raise ConfigurationError(
            f"path={cell.file.path!r} is not the same file on this worker: copy it to "
            "the same path on all machines"
        )
    if data_dir is not None and not Path(data_dir).is_dir():
        data_dir = os.environ.get("PKM_DATA")
    with CELL_LOCK:
        if run not in PROCESSES:
            for other in list(PROCESSES):
                close_process(other)
            PROCESSES[run] = CellProcess(backend, data_dir)
        worker = PROCESSES[run]
        worker.submit(cell)
        outcome = worker.wait_for_outcome()
        return outcome, worker.runner.store.pop_file(cell.key, outcome.status)


class CellProcess(Worker):
    """The process of a dask worker that runs its cells, with results in its own folder.

    It is a subprocess: processes of multiprocessing may start no others in a worker.
    """

    def __init__(self, backend: Backend, data_dir: str | None):
        self.folder = tempfile.TemporaryDirectory()
        super().__init__(Runner(Store(self.folder.name), backend, data_dir))

    def start(self) -> None:
        """Start the process; it ends when this one has ended."""
        self.connection, remote = multiprocessing.Pipe()
        descriptor = remote.fileno()
        module = "pkm.experiments.backends.dask_cells"
        command = f"from {module} import serve_pipe; serve_pipe({descriptor})"
        self.process = ProcessProgram(
            [sys.executable, "-c", command],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[descriptor],
        )
        remote.close()
        # If the process has died, `wait_for_outcome` notices.
        with contextlib.suppress(ConnectionError):
            self.connection.send(self.runner)


class ProcessProgram(subprocess.Popen):
    """A subprocess with the interface of a process of multiprocessing."""

    @property
    def exitcode(self) -> int | None:
        """Exit code; the negative number of the signal that ended it."""
        return self.returncode

    def join(self) -> None:
        """Wait for its end."""
        self.wait()


def serve_pipe(descriptor: int) -> None:
    """Receive a runner from a pipe, then run the cells that follow, until it closes."""
    connection = Connection(descriptor)
    serve(connection, connection.recv(), {})


def close_process(run: str) -> None:
    """Close the process that runs cells of a run for this worker."""
    if run in PROCESSES:
        PROCESSES.pop(run).close()


def read_versions() -> tuple[str, str, str]:
    """Return the versions of Python and pkm in this process, and the code's digest."""
    # The last number of Python's version changes no code.
    python = platform.python_version().rpartition(".")[0]
    return python, pkm.__version__, subpackages_digest(*WORKER_PACKAGES)


def check_code(workers: Mapping[str, Any], scheduler: str) -> None:
    """Refuse a cluster without workers, and workers with other code than this process.

    Parameters
    ----------
    workers : mapping
        Address of a worker to the result of `read_versions`, or to its error.
    scheduler : str
        Its address, for the message.
    """
    if not workers:
        raise ConfigurationError(
            f"scheduler={scheduler!r} has no worker: start some with "
            f"`dask worker {scheduler}`"
        )
    local_code = read_versions()
    local_python, local_version, _ = local_code
    for address, code in workers.items():
        if code == local_code:
            continue
        if isinstance(code, BaseException):
            difference = f"cannot import pkm ({_get_first_line(code)})"
        elif code[0] != local_python:
            difference = f"has Python {code[0]}, this process {local_python}"
        elif code[1] != local_version:
            difference = f"has pkm {code[1]}, this process {local_version}"
        else:
            difference = f"has pkm {code[1]} with other code than this process"
        raise ConfigurationError(
            f"scheduler={scheduler!r}: worker {address} {difference}: install the same "
            "version on all machines"
        )


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ConfigurationError(
            "backend=dask needs the package distributed: install "
            "private-kmeans-bench[scale], or take backend=processes"
        ) from error
    return distributed


def _count_threads(client: Any) -> int:
    try:
        return sum(client.nthreads().values())
    except OSError as error:
        raise _make_lost_error(_get_first_line(error)) from error


def _make_lost_error(reason: str) -> ConnectionError:
    return ConnectionError(
        f"the cluster of backend=dask is lost ({reason}): finished cells are "
        "stored, and the same command goes on from there"
    )


def _get_first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
