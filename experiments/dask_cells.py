"""Cells on a cluster of dask: workers send back what is stored, and the caller stores it.

Workers need this code and the data sets, and no folder of the caller's.
"""

import contextlib
import logging
import os
import pickle
import platform
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pkm
from pkm.datasets.sources import DataUnavailable
from pkm.datasets.user_files import content_digest
from pkm.experiments.backends import Backend, Outcome, Runner, WorkerDied, limit_of
from pkm.experiments.cell import Cell
from pkm.experiments.configuration import ConfigurationError
from pkm.experiments.store import Store
from pkm.experiments.timing import pinned
from pkm.source import subpackages_digest

if TYPE_CHECKING:
    from distributed import Client

#: Code that workers must have in the same version: all that decides rows.
CODE = ("compute", "datasets", "experiments", "federation", "methods", "metrics", "privacy")
#: Seconds to wait for a scheduler, and between two looks for workers that have joined.
CONNECT_SECONDS = 5
POLL_SECONDS = 1.0
#: Seconds after which a cluster without workers is given up.
PATIENCE_SECONDS = 60.0
REMEDY = "install the same version on all machines"
#: A worker runs one cell at a time, whatever its number of threads.
ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Task:
    """A cell as it is sent to a worker.

    Attributes
    ----------
    cell : Cell
        With its key.
    code : str
        Digest of the caller's code behind the result.
    file : str
        SHA-256 (hex) of the files of a cell on a file; else empty.
    backend, mirror
        As of `pkm.experiments.backends.run_cells`.
    """

    cell: Cell
    code: str
    file: str
    backend: Backend
    mirror: str | None


def checked_cluster(backend: Backend) -> Backend:
    """Refuse a scheduler that is not there or whose workers have other code, before work starts.

    Returns
    -------
    Backend
        With the number of threads of the cluster as `jobs`.

    Raises
    ------
    ConfigurationError
        Naming the scheduler, what is wrong with it, and the remedy.
    """
    _distributed()
    if backend.scheduler is None:
        return backend
    with connected(backend, 1) as client:
        # Another Python may not be able to read code that is sent to it.
        check_python(client.get_versions()["workers"], backend.scheduler)
        check_code(client.run(code_of_worker, on_error="return"), backend.scheduler)
        return replace(backend, jobs=sum(client.nthreads().values()))


@contextlib.contextmanager
def connected(backend: Backend, n_cells: int) -> Iterator["Client"]:
    """Connect to the scheduler, or start workers on this machine, at most one for each cell.

    Raises
    ------
    ConfigurationError
        If the scheduler is not there.
    """
    distributed = _distributed()
    if backend.scheduler is not None:
        try:
            client = distributed.Client(
                backend.scheduler, timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"scheduler={backend.scheduler!r} does not answer ({_first_line(error)}): start "
                "one with `dask scheduler`, or leave scheduler out for workers on this machine"
            ) from error
        with client:
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=min(backend.jobs, n_cells),
            threads_per_worker=1,
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def on_cluster(cells: Iterable[Cell], runner: Runner, client: "Client") -> Iterator[Outcome]:
    """Run cells on a cluster and store what the workers send back.

    There are never more cells on the way than threads, so that a cell that ends its worker takes no
    other one with it. Dask runs the cells of a dead worker again.

    Raises
    ------
    ConnectionError
        If the cluster is lost, or has had no worker for a while.
    ResultsNotWritable
        If a result cannot be stored.
    """
    waiting = deque(cells)
    finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pending: dict[Any, Cell] = {}
    seen = time.monotonic()
    try:
        while waiting or pending:
            # Workers may have joined or died since.
            n_threads = _n_threads(client)
            while waiting and len(pending) < n_threads:
                cell = waiting.popleft()
                future = client.submit(run_cell, task_of(cell, runner), pure=False)
                pending[future] = cell
                future.add_done_callback(finished.put)
            if n_threads:
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE_SECONDS:
                raise _lost(f"no worker for {PATIENCE_SECONDS:g} s")
            with contextlib.suppress(queue.Empty):
                future = finished.get(timeout=POLL_SECONDS)
                yield stored(future, pending.pop(future), runner)
    finally:
        with contextlib.suppress(OSError):
            client.cancel(list(pending))


def task_of(cell: Cell, runner: Runner) -> Task:
    """Make what a worker is sent of a cell."""
    # The key is computed here: that of a file is under a secret of this machine.
    assert cell.key
    return Task(cell, cell.code, file_digest(cell), runner.backend, runner.mirror)


def file_digest(cell: Cell) -> str:
    """SHA-256 (hex) of the files of a cell; empty without any, or where they are missing."""
    if cell.path is None:
        return ""
    with contextlib.suppress(DataUnavailable):
        return content_digest(cell.path).hex()
    return ""


def stored(future: Any, cell: Cell, runner: Runner) -> Outcome:
    """Store what a worker has sent back of a cell, or why it has sent nothing."""
    from distributed import KilledWorker

    if future.status == "cancelled":
        raise _lost("its tasks are gone")
    error = future.exception()
    if error is None:
        outcome, content = future.result()
        runner.store.adopt(cell, content, outcome.status)
        return outcome
    if isinstance(error, KilledWorker):
        cause = error
        error = WorkerDied(f"{cause.allowed_failures + 1} workers died while they ran this cell")
        error.__cause__ = cause
    return runner.fail(cell, error, 0.0)


def run_cell(task: Task) -> tuple[Outcome, bytes]:
    """Run a cell on a worker.

    Returns
    -------
    outcome : Outcome
    content : bytes
        The file that a store has of it: its rows, or the record of its failure.

    Raises
    ------
    ConfigurationError
        If this worker has other code, or another file at the path of the cell.
    """
    cell, backend = task.cell, task.backend
    if cell.code != task.code:
        raise ConfigurationError(
            f"{cell.label}: the code of this worker is not that of the caller: install the same "
            "version of pkm and Python on both"
        )
    if task.file and file_digest(cell) != task.file:
        raise ConfigurationError(
            f"path={cell.path!r} is not the same file on this worker: copy it to the same path on "
            "all machines"
        )
    mirror = task.mirror
    if mirror is not None and not Path(mirror).is_dir():
        mirror = os.environ.get("PKM_DATA")
    with tempfile.TemporaryDirectory() as folder, ONE_AT_A_TIME:
        runner = Runner(Store(folder), backend, mirror)
        if limit_of(cell, backend) is None:
            with pinned(backend.threads):
                outcome = runner.run(cell)
        else:
            outcome = run_in_child(cell, runner)
        content = runner.store.content(cell.key, outcome.status)
    return outcome, content


def run_in_child(cell: Cell, runner: Runner) -> Outcome:
    """Run a cell with a time limit in a process of its own, which ends itself when it is over.

    It is no process of multiprocessing: those of a worker may start none.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "from pkm.experiments.dask_cells import child; child()"],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    process.communicate(pickle.dumps((cell, runner)))
    seconds = time.perf_counter() - started
    if process.returncode == 0:
        status = runner.store.status(cell.key)
        error = runner.store.failure_record(cell.key).get("error", "")
        return Outcome(cell.key, status, seconds, error)
    # Processes that the cell has started.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    return runner.ended(cell, process.returncode, seconds)


def child() -> None:
    """Run the cell that standard input brings, and no longer than its time limit."""
    cell, runner = pickle.load(sys.stdin.buffer)
    limit = limit_of(cell, runner.backend) or 0.0
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with pinned(runner.backend.threads):
        runner.run(cell, partial(signal.setitimer, signal.ITIMER_REAL, limit))


def forget_points(client: "Client") -> None:
    """Let workers that live on drop the points that they hold."""
    from pkm.experiments.execute import forget_data

    # A worker that is gone holds none.
    with contextlib.suppress(OSError):
        client.run(forget_data, on_error="ignore")


def code_of_worker() -> tuple[str, str]:
    """Version of pkm in this process, and the digest of its code."""
    return pkm.__version__, subpackages_digest(*CODE)


def check_python(workers: Mapping[str, Mapping], scheduler: str) -> None:
    """Refuse a cluster without workers, and workers with another Python.

    Parameters
    ----------
    workers : mapping
        Address of a worker to its versions, as dask tells them.
    scheduler : str
        Its address, for the message.
    """
    if not workers:
        raise ConfigurationError(
            f"scheduler={scheduler!r} has no worker: start some with `dask worker {scheduler}`"
        )
    own = platform.python_version()
    for address, versions in workers.items():
        found = ".".join(str(versions["host"]["python"]).split(".")[:3])
        # The last number changes no code.
        if found.rpartition(".")[0] != own.rpartition(".")[0]:
            raise ConfigurationError(
                f"scheduler={scheduler!r}: worker {address} has Python {found}, this process "
                f"{own}: {REMEDY}"
            )


def check_code(workers: Mapping[str, Any], scheduler: str) -> None:
    """Refuse workers without pkm, or with another version of it than this process.

    Parameters
    ----------
    workers : mapping
        Address of a worker to what `code_of_worker` returned, or the error that it raised.
    scheduler : str
        Its address, for the message.
    """
    version, code = code_of_worker()
    for address, found in workers.items():
        if isinstance(found, BaseException):
            difference = f"cannot import pkm ({_first_line(found)})"
        elif found[0] != version:
            difference = f"has pkm {found[0]}, this process {version}"
        elif found[1] != code:
            difference = f"has pkm {version} with other code than this process"
        else:
            continue
        raise ConfigurationError(
            f"scheduler={scheduler!r}: worker {address} {difference}: {REMEDY}"
        )


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ConfigurationError(
            "backend=dask needs the package distributed: install private-kmeans-bench[scale], or "
            "take backend=processes"
        ) from error
    return distributed


def _n_threads(client: "Client") -> int:
    try:
        return sum(client.nthreads().values())
    except OSError as error:
        raise _lost(_first_line(error)) from error


def _lost(reason: str) -> ConnectionError:
    return ConnectionError(
        f"the cluster of backend=dask is lost ({reason}): finished cells are stored, and the same "
        "command goes on from there"
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
