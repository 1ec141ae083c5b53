"""One cell to its rows: load, fit, evaluate, make rows."""

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import pandas as pd

from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.inputs import prepare_cell_data, prepare_data, resolve_cell
from pkm.experiments.fit.rows import make_rows
from pkm.experiments.fit.threads import limit_threads
from pkm.experiments.fit.timing import peak_memory, timer
from pkm.methods import Run
from pkm.metrics import evaluate, forget_points, prepare_metrics


def preload(cell: Cell, data_dir: str | None) -> None:
    """Load a cell's data and find reference clusterings, which are not timed."""
    prepare_metrics(prepare_cell_data(cell, data_dir).points, cell.metrics)


def forget_data() -> None:
    """Drop the data sets of this process, and what was computed from them."""
    prepare_data.cache_clear()
    forget_points()


def execute(cell: Cell, data_dir: str | None = None) -> pd.DataFrame:
    """Run a cell.

    Parameters
    ----------
    cell : Cell
        What to run.
    data_dir : str, optional
        Folder with the original data files.

    Returns
    -------
    DataFrame
        One row per seed, in the order of ``cell.seeds``. ``fit_seconds``,
        ``metric_seconds`` (wall clock) and ``fit_cpu_seconds``, ``metric_cpu_seconds``
        are each replicate's equal share of the batch, so that sums over rows are the
        cost of the cell. In a timing cell the first and the third are measured for each
        replicate. In a cell that is run as a protocol, ``fit_seconds`` counts from the
        first message to the last center, and ``fit_cpu_seconds`` is NaN, because the
        parties may be separate processes. ``peak_memory_mb`` is the process's peak
        while the cell ran.

    Raises
    ------
    ValueError
        If `k` exceeds the number of points.
    datasets.DataUnavailable
        If the data cannot be had.
    """
    preload(cell, data_dir)
    with peak_memory() as peak:
        resolved = resolve_cell(cell, data_dir)
        with limit_threads(1) if cell.timing else nullcontext():
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
    return make_rows(
        resolved,
        fits,
        values,
        metric_time,
        measured,
        peak.mebibytes,
        centers,
    )


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
    k = max(run.centers.shape[1] for run in runs)
    blocks = []
    for run in runs:
        n_missing = k - run.centers.shape[1]
        filling = np.repeat(run.centers[:, :1], n_missing, axis=1)
        blocks.append(np.concatenate([run.centers, filling], axis=1))
    return np.concatenate(blocks), n_centers
