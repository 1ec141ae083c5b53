"""One cell to its rows: load, fit, evaluate, make rows."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy as np
import pandas as pd
from numba.core.event import install_timer

from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.inputs import prepare_data, resolve_cell
from pkm.experiments.fit.rows import make_rows
from pkm.experiments.fit.threads import limit_threads
from pkm.experiments.fit.timing import peak_memory, timer
from pkm.methods import Run
from pkm.metrics import clear_caches, evaluate, prepare_metrics


def forget_data() -> None:
    """Drop the data sets of this process, and what was computed from them."""
    prepare_data.cache_clear()
    clear_caches()


def execute(
    cell: Cell,
    data_dir: str | None = None,
    on_start: Callable[[], object] = lambda: None,
) -> pd.DataFrame:
    """Run a cell.

    Parameters
    ----------
    cell : Cell
        What to run.
    data_dir : str, optional
        Folder with the original data files.
    on_start : callable, optional
        Called when the data are loaded and the time of the cell starts.

    Returns
    -------
    DataFrame
        One row per seed, in the order of ``cell.seeds``. ``fit_seconds``,
        ``metric_seconds`` (wall clock) and ``fit_cpu_seconds``, ``metric_cpu_seconds``
        are each replicate's equal share of the batch, so that sums over rows are the
        cost of the cell. In a timing cell ``fit_seconds`` and ``fit_cpu_seconds`` are
        measured for each replicate. In a cell that is run as a protocol,
        ``fit_seconds`` counts from the first message to the last center, and
        ``fit_cpu_seconds`` is NaN, because the parties may be separate processes.
        ``peak_memory_mb`` is the process's peak while the cell ran.

    Raises
    ------
    ValueError
        If `k` exceeds the number of points.
    datasets.DataUnavailable
        If the data cannot be had.
    """
    resolved = resolve_cell(cell, data_dir)
    # Reference clusterings belong to the data: they are not timed.
    prepare_metrics(resolved.data.points, cell.metrics)
    on_start()
    compilations: list[float] = []
    with (
        peak_memory() as peak,
        install_timer("numba:compile", compilations.append),
        limit_threads(1) if cell.timing else nullcontext(),
    ):
        fits, measured = cell.kind.fit(resolved)
        centers, n_centers = stack_centers([run for run, _ in fits])
        with timer() as metric_time:
            values = evaluate(
                resolved.data.points,
                centers,
                cell.metrics,
                cell.k,
                labels_true=resolved.data.labels,
                n_centers=n_centers,
            )
    measured["compile_seconds"] = sum(compilations)
    measured["peak_memory_mb"] = peak.mebibytes
    return make_rows(resolved, fits, values, metric_time, measured, centers)


def stack_centers(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Stack the centers of several runs.

    Returns
    -------
    centers : ndarray of shape (R, k, d)
        A replicate with fewer centers than the largest is filled up with copies of its
        first one.
    n_centers : ndarray of shape (R,)
        How many each replicate released.
    """
    n_centers = np.concatenate([run.n_centers for run in runs])
    columns = np.arange(max(run.centers.shape[1] for run in runs))
    blocks = [
        run.centers[:, np.where(columns < run.centers.shape[1], columns, 0)]
        for run in runs
    ]
    return np.concatenate(blocks), n_centers
