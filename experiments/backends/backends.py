"""Run many cells, in this process or in several, and store their results."""

import contextlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import wait

from rich.console import Console

from pkm.experiments.backends import dask_cells
from pkm.experiments.backends.progress import show_progress
from pkm.experiments.backends.worker import Outcome, Runner, Worker
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.backend import Backend
from pkm.experiments.fit.threads import limit_threads
from pkm.experiments.store.store import Store

#: The cheapest cells come first, up to so many estimated seconds in all.
FIRST_SECONDS = 10.0


def run_cells(
    cells: Sequence[Cell],
    store: Store,
    backend: Backend,
    *,
    data_dir: str | None = None,
    costs: Mapping[str, float] | None = None,
    console: Console | None = None,
) -> list[Outcome]:
    """Run cells and store their results.

    The process that runs a cell writes its rows; on a cluster of dask this process
    does.

    Cells of one data set are run next to each other, so that it is loaded once per
    worker. Neither the order (see `order_chunks`) nor the number of workers changes a
    result. Cells that measure running time come last, one at a time with nothing else
    running, whatever the backend.

    Parameters
    ----------
    cells : sequence of Cell
        What to run.
    store : Store
        Where results and failures go.
    backend : Backend
        How to run.
    data_dir : str, optional
        Folder with the original data files.
    costs : mapping, optional
        Key of a cell to its estimated seconds, for the order and the remaining time;
        equal ones by default.
    console : rich.console.Console, optional
        Where progress goes; nowhere by default.

    Returns
    -------
    list of Outcome
        One per cell, in the order they finished.

    Raises
    ------
    ResultsNotWritable
        If the results folder cannot be written: before anything is run, or when its
        disk is full.
    """
    store.check_writable()
    known = costs or {}
    costs = {cell.key: max(known.get(cell.key, 1.0), 1e-6) for cell in cells}
    interrupted = store.list_interrupted()
    jobs = 1 if backend.name == "serial" else backend.jobs
    outcomes = []
    with show_progress(costs, jobs, console) as advance:
        for timing, n_workers in ((False, jobs), (True, 1)):
            runner = Runner(store, replace(backend, jobs=n_workers), data_dir)
            selected = [cell for cell in cells if cell.timing == timing]
            batches = [(run_in_workers, selected)]
            if backend.name == "dask" and not timing:
                batches = [(dask_cells.run_on_cluster, selected)]
            elif n_workers == 1:
                # A worker takes as long to start as this process: only for cells with
                # a limit.
                limited = [cell for cell in selected if backend.find_limit(cell)]
                others = [cell for cell in selected if not backend.find_limit(cell)]
                batches = [(run_in_process, others), (run_in_workers, limited)]
            for run, batch in batches:
                chunks = order_chunks(batch, costs, n_workers, interrupted)
                for outcome in run(chunks, runner):
                    outcomes.append(outcome)
                    advance(outcome)
    return outcomes


def check_backend(backend: Backend) -> Backend:
    """Refuse a backend that cannot run cells, before anything is charged or run.

    Returns
    -------
    Backend
        Its `jobs` is the number of workers that there are.

    Raises
    ------
    ConfigurationError
        If the scheduler of a dask backend does not answer, or its workers have other
        code.
    """
    return dask_cells.check_cluster(backend) if backend.name == "dask" else backend


def order_chunks(
    cells: Sequence[Cell],
    costs: Mapping[str, float],
    jobs: int,
    interrupted: Sequence[str] = (),
) -> list[list[Cell]]:
    """Group cells into chunks of one data set: some cheap ones first, then the longest.

    The cheapest cells come first, a few seconds of work, so that a run that is killed
    again and again stores some each time. Then come the data sets and cells of highest
    cost, so that no long cell is left for the end. Cells that were interrupted come
    last: they may take longer than a run lasts.

    Parameters
    ----------
    cells : list of Cell
        What is to be run.
    costs : dict
        Key to estimated seconds.
    jobs : int
        Number of workers the chunks are meant for.
    interrupted : sequence of str
        Keys of the interrupted cells, in the order in which they are run.

    Returns
    -------
    list of list of Cell
        Chunks. Where cells allow it, each is at most a quarter of a worker's share of
        the costs, or half a second.
    """
    waiting = {cell.key: cell for cell in cells}
    last = [[waiting.pop(key)] for key in interrupted if key in waiting]
    first = select_cheapest(list(waiting.values()), costs)
    for cell in first:
        del waiting[cell.key]
    data_costs: dict[tuple, float] = defaultdict(float)
    for cell in waiting.values():
        data_costs[cell.points] += costs[cell.key]
    rest = sorted(
        waiting.values(),
        key=lambda cell: (data_costs[cell.points], costs[cell.key]),
        reverse=True,
    )

    # Every worker gets some four chunks, none of them too short.
    limit = max(sum(costs[cell.key] for cell in cells) / (4 * jobs), 0.5)
    return make_chunks(first, costs, limit) + make_chunks(rest, costs, limit) + last


def select_cheapest(
    cells: Sequence[Cell],
    costs: Mapping[str, float],
) -> list[Cell]:
    """Return the cheapest cells, at least one, up to `FIRST_SECONDS` together."""
    ascending = sorted(cells, key=lambda cell: costs[cell.key])
    totals = itertools.accumulate(costs[cell.key] for cell in ascending)
    return ascending[: max(1, sum(total <= FIRST_SECONDS for total in totals))]


def make_chunks(
    cells: Sequence[Cell],
    costs: Mapping[str, float],
    limit: float,
) -> list[list[Cell]]:
    """Cut cells into chunks of one data set and at most `limit` seconds."""
    groups: dict[tuple, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.points].append(cell)
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


def run_in_process(
    chunks: list[list[Cell]],
    runner: Runner,
) -> Iterator[Outcome]:
    """Run chunks one by one in this process, and forget the points afterwards."""
    if not chunks:
        return
    from pkm.experiments.fit.execute import forget_data

    try:
        with limit_threads(runner.backend.threads):
            for cell in itertools.chain.from_iterable(chunks):
                yield runner.run(cell)
    finally:
        forget_data()


def run_in_workers(
    chunks: list[list[Cell]],
    runner: Runner,
) -> Iterator[Outcome]:
    """Run chunks in the backend's worker processes, each with one cell at a time."""
    waiting = iter(chunks)
    with contextlib.ExitStack() as workers:
        # The cells that each worker has left of its chunk, after the current one.
        queues: dict[Worker, list[Cell]] = {}
        for chunk in itertools.islice(waiting, runner.backend.jobs):
            worker = workers.enter_context(contextlib.closing(Worker(runner)))
            worker.submit(chunk[0])
            queues[worker] = chunk[1:]
        while queues:
            ready = wait([worker.connection for worker in queues])
            for worker in [worker for worker in queues if worker.connection in ready]:
                yield worker.wait_for_outcome()
                cells = queues.pop(worker) or next(waiting, None)
                if cells is None:
                    worker.close()
                else:
                    worker.submit(cells[0])
                    queues[worker] = cells[1:]
