"""A round of a fit on workers of dask: CPU time of its places, and bytes between processes.

A round is the difference of two fits of a ``dask.array`` with unequal numbers of rounds, divided by
that of their rounds. The scheduler runs in the process that calls ``fit``, and each worker in one
of its own. What watches a cluster (the profile and the memory of workers, the clock of the
scheduler) is off: it takes CPU time for every second that passes, whether or not there is work.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pkm.methods import FastLloyd

ROUNDS = (1, 4)  # of two fits, whose difference is that of their rounds
WAIT = 0.02  # seconds: about what the work of a chunk of 32 MB takes
UNWATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}

#: From a chunk's number, its number of rows and of features to the chunk.
Maker = Callable[[int, int, int], object]
#: An address of this process and one of another, as connections have them.
Ends = tuple[str, str]
_written: Counter[Ends] = Counter()


@dataclass(frozen=True)
class Cost:
    """What a round takes.

    Attributes
    ----------
    caller : float
        CPU seconds of the process that calls ``fit``: tasks, scheduler, charges, noise, centers.
    worker : float
        CPU seconds of the worker that takes longest.
    clock : float
        Seconds.
    n_bytes : float
        Sent from one process to another.
    """

    caller: float
    worker: float
    clock: float
    n_bytes: float

    @property
    def cpu(self) -> float:
        """CPU seconds of a round, as if caller and workers never computed at the same time."""
        return self.caller + self.worker


@contextmanager
def cluster_of(n_workers: int) -> Iterator[Any]:
    """Client of a scheduler in this process and of workers, one thread each, that are processes."""
    import dask.config
    from distributed import Client, LocalCluster

    options = {
        "threads_per_worker": 1,
        "memory_limit": 0,
        "dashboard_address": ":0",
        "silence_logs": logging.CRITICAL,
    }
    count_bytes()
    with (
        dask.config.set(UNWATCHED),
        LocalCluster(n_workers=n_workers, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.run(count_bytes)
        yield client


def uniform_chunk(number: int, n_rows: int, d: int) -> np.ndarray:
    """Rows (n_rows, d), float32, between -1 and 1: the same for the same number."""
    return np.random.default_rng(number).random((n_rows, d), np.float32) * 2 - 1


@dataclass(frozen=True)
class WaitingChunk:
    """Rows that a task gets after a while, in which nothing is computed.

    The scheduler gets results one after the other then, as it does from tasks that compute; of
    tasks that take no time it gets several at once, and spends less on each.
    """

    rows: np.ndarray
    seconds: float

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Rows, after the wait."""
        time.sleep(self.seconds)
        return np.array(self.rows, dtype)


def waiting_chunk(number: int, n_rows: int, d: int) -> WaitingChunk:
    """Rows (n_rows, d) that come after :data:`WAIT` seconds."""
    return WaitingChunk(uniform_chunk(number, n_rows, d), WAIT)


def chunks_on_workers(client: Any, make: Maker, n_chunks: int, n_rows: int, d: int) -> Any:
    """Array of dask whose chunks lie on the workers, on each as many.

    Parameters
    ----------
    client : distributed.Client
    make : callable
        From the number of a chunk, `n_rows` and `d` to the chunk.
    n_chunks, n_rows, d : int
    """
    import dask.array as da
    from distributed import wait

    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    with client.as_current():
        futures = [
            client.submit(make, number, n_rows, d, workers=[workers[number % len(workers)]])
            for number in range(n_chunks)
        ]
        parts = [da.from_delayed(future, (n_rows, d), np.float32) for future in futures]
        # Chunks stay where they are, and tasks need nothing else.
        array = da.concatenate(parts).persist()
        wait(array)
    return array


class Rounds:
    """Fits of an array on a cluster, again and again, and what a round of them takes.

    Parameters
    ----------
    client : distributed.Client
    array : dask.array.Array
        In chunks that lie on the workers, between -1 and 1.
    k : int
        Number of centers.
    """

    def __init__(self, client: Any, array: Any, k: int) -> None:
        self.client = client
        self.array = array
        self.models = [FastLloyd(k, n_iterations=rounds, bounds=(-1, 1)) for rounds in ROUNDS]
        self.costs: list[list[np.ndarray]] = []
        # Workers load compiled code.
        self.turn()
        self.costs.clear()

    def turn(self) -> None:
        """Fit once with each number of rounds."""
        self.costs.append([self._costs_of(model) for model in self.models])

    def cost(self) -> Cost:
        """Difference of the least costs of either fit, of one round."""
        fewer, more = np.min(self.costs, axis=0)
        return Cost(*((more - fewer) / (ROUNDS[1] - ROUNDS[0])).tolist())

    def _costs_of(self, model: FastLloyd) -> np.ndarray:
        """What :class:`Cost` has, of a fit."""
        bytes_before = self._bytes()
        workers_before = self.client.run(time.process_time)
        caller = time.process_time()
        clock = time.perf_counter()
        with self.client.as_current():
            model.fit(self.array)
        clock = time.perf_counter() - clock
        caller = time.process_time() - caller
        workers = self.client.run(time.process_time)
        slowest = max(workers[name] - before for name, before in workers_before.items())
        return np.array([caller, slowest, clock, self._bytes() - bytes_before])

    def _bytes(self) -> int:
        """Bytes that went from one process of the cluster to another so far."""
        return sum(map(between_processes, [written(), *self.client.run(written).values()]))


# Bytes


@cache
def count_bytes() -> None:
    """From now on count what this process writes to connections of dask."""
    from distributed.comm.tcp import TCP

    write = TCP.write

    async def counted(
        self: TCP, msg: Any, serializers: Any = None, on_error: str = "message"
    ) -> int:
        n_bytes = await write(self, msg, serializers, on_error)
        _written[self.local_address, self.peer_address] += n_bytes
        return n_bytes

    TCP.write = counted


def written() -> dict[Ends, int]:
    """Bytes that this process has written to each connection, since it counts them."""
    return dict(_written)


def between_processes(written_bytes: Mapping[Ends, int]) -> int:
    """Bytes that a process wrote to others: to connections whose other end it has not itself.

    Examples
    --------
    >>> between_processes({("here", "there"): 5, ("here", "also"): 7, ("also", "here"): 2})
    5
    """
    return sum(
        n_bytes
        for (local, peer), n_bytes in written_bytes.items()
        if (peer, local) not in written_bytes
    )
