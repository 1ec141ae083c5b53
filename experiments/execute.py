"""One cell to its rows: load, scale, snap, fit all seeds as one batch (or, to be timed, one by one), measure.

Cells that are run as a protocol between several parties are fitted by `pkm.experiments.federated`, those from whose models
points are removed by `pkm.experiments.removals`.
"""

import importlib
import importlib.metadata
import inspect
import json
import math
import platform
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numba
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from pkm import datasets
from pkm.compute import Points, forget
from pkm.experiments.cell import Cell, canonical, data_fingerprint, require, to_json
from pkm.methods import Run, load_method
from pkm.metrics import REFERENCE_METRICS, evaluate, prepare_metrics, reference_set

#: Constructor parameters that no configuration sets: the cell's own fields, and those of `fit`, which cells do not use.
OWN_PARAMETERS = ("n_clusters", "epsilon", "delta", "bounds", "clip", "random_state", "secure")
#: What is measured of every run of a protocol; the fields of `pkm.federation.Measured`, but for the iterations.
MEASURED = (
    "iteration_ms", "setup_ms", "bytes_per_iteration", "rounds_per_iteration", "client_ms", "masking_ms", "server_ms",
    "wire_ms", "waiting_ms", "noise_ms",
)  # fmt: skip
#: The columns of a protocol, with what they hold where there is none.
CENTRAL = {
    "clients": 0, "latency_ms": math.nan, "word_bytes": 0, "split": "", "transport": "",
    **dict.fromkeys(MEASURED, math.nan),
}  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """A data set as the methods see it: on the integer grid, with how it got there.

    Parameters
    ----------
    points : Points
        On the 2^-16 grid.
    labels : ndarray of shape (n,) or None
        The points' classes, for the metrics alone.
    clients : ndarray of shape (n,) or None
        Number of the client that holds each point, where the data came with such a split.
    domain : ndarray of shape (2, d)
        The bounds in raw units that [-1, 1] stands for.
    private_bounds : bool
        Whether those bounds were read off the points.
    clipped : int
        Number of points that lay outside of them.
    """

    points: Points
    labels: np.ndarray | None
    clients: np.ndarray | None
    domain: np.ndarray
    private_bounds: bool
    clipped: int

    @property
    def half_width(self) -> float:
        """Half the range in raw units where all columns share one, else NaN."""
        lower, upper = self.domain
        shared = np.all(lower == lower[0]) and np.all(upper == upper[0])
        return float(upper[0] / 2 - lower[0] / 2) if shared else math.nan


def prepare(cell: Cell, mirror: str | None) -> Prepared:
    """Load, scale and snap the data set of a cell; see `prepare_data`."""
    return prepare_data(cell.dataset, cell.path, cell.bounds, cell.preprocessing, cell.clip, mirror)


@lru_cache(maxsize=2)
def prepare_data(
    dataset: str,
    path: str | None,
    bounds: tuple | None,
    preprocessing: str,
    clip: bool,
    mirror: str | None,
) -> Prepared:
    """Load, scale and snap a data set; the last two asked for are kept.

    Parameters
    ----------
    dataset, path, bounds, preprocessing, clip
        As in `Cell`.
    mirror : str or None
        Folder with the original files.

    Returns
    -------
    Prepared
        Points on the 2^-16 grid, laid out for the kernels once for all cells.

    Raises
    ------
    ValueError
        If points lie outside the public domain and `clip` is false, or there is no such domain.
    """
    given = {"path": path, "bounds": to_json(bounds)} if dataset == "file" else {}
    scaled = datasets.scale(
        datasets.load(dataset, mirror=mirror, **given), preprocessing, clip=clip
    )
    return Prepared(
        points=Points.from_box(
            scaled.points, *np.array([[-1.0], [1.0]]).repeat(scaled.points.shape[1], axis=1)
        )[0],
        labels=scaled.labels,
        clients=scaled.clients,
        domain=np.array([scaled.lower, scaled.upper]),
        private_bounds=bool(scaled.uses_private_bounds),
        clipped=int(scaled.clipped),
    )


@cache
def method_class(target: str) -> type:
    """Find a method's class, once per process; see `methods.load_method`."""
    return load_method(target)


@cache
def parameters(target: str) -> tuple[str, ...]:
    """Return the names of a method's constructor parameters.

    Raises
    ------
    ValueError
        If the method cannot be found.
    """
    return tuple(inspect.signature(method_class(target)).parameters)


@cache
def presets(target: str) -> dict:
    """Return the parameters of a method's constructor that have a default value, with that value."""
    signature = inspect.signature(method_class(target)).parameters
    return {
        name: given.default
        for name, given in signature.items()
        if given.default is not inspect.Parameter.empty
    }


def accepts(target: str, parameter: str) -> bool:
    """Tell whether a method's constructor has a parameter of that name.

    Raises
    ------
    ValueError
        If the method cannot be found.
    """
    return parameter in parameters(target)


def build(cell: Cell):
    """Construct the method of a cell.

    Returns
    -------
    estimator
        The configured, unfitted method.

    Raises
    ------
    ValueError
        If the method has no parameter of a given name; the message lists those it has.
    """
    given = {name: to_json(value) for name, value in cell.params}
    known = [name for name in parameters(cell.target) if name not in OWN_PARAMETERS]
    unknown = sorted(set(given) - set(known))
    if unknown:
        listed = f"known are {', '.join(known)}" if known else "it has none"
        raise ValueError(f"{cell.method} has no parameter {', '.join(unknown)}: {listed}")
    given["n_clusters"] = cell.k
    if cell.epsilon is not None:
        given["epsilon"] = cell.epsilon
    if cell.delta not in (None, "auto"):
        given["delta"] = cell.delta
    return method_class(cell.target)(**given)


def make_ready(cell: Cell, mirror: str | None) -> None:
    """Do what is no part of a cell's own work: load its data, search for reference clusterings. Both are kept."""
    prepare_metrics(prepare(cell, mirror).points, cell.metrics)


def execute(cell: Cell, mirror: str | None = None) -> pd.DataFrame:
    """Run a cell.

    Parameters
    ----------
    cell : Cell
        What to run.
    mirror : str, optional
        Folder with the original data files.

    Returns
    -------
    DataFrame
        One row per seed, in the order of ``cell.seeds``. ``fit_seconds``, ``metric_seconds`` (wall clock) and
        ``fit_cpu_seconds``, ``metric_cpu_seconds`` are each replicate's equal share of the batch, so that sums over
        rows are the cell's own cost; in a timing cell the first and the third are the replicate's own. In a cell that
        is run as a protocol ``fit_seconds`` is the run's, from the first message to the last center, and
        ``fit_cpu_seconds`` is NaN, for the parties may be processes of their own.
        ``peak_memory_mb`` is the process's peak while the cell ran.

    Raises
    ------
    ValueError
        If `k` exceeds the number of points.
    datasets.DataUnavailable
        If the data cannot be had.
    """
    make_ready(cell, mirror)
    with peak_memory() as peak:
        prepared = prepare(cell, mirror)
        points = prepared.points
        n, d = points.shape
        require(cell.k <= n, "k", cell.k, f"at most n={n}, the number of points of {cell.dataset}")
        method = build(cell)
        with pinned(1) if cell.timing else nullcontext():
            if cell.harness is None:
                fits, measured = timed_fits(method, prepared, cell.seeds, alone=cell.timing), {}
            else:
                # By name, for `pkm.experiments.cell.closure` follows import statements: no other cell depends on it.
                fits, measured = importlib.import_module(cell.harness).fits_of(
                    cell, prepared, mirror
                )
        centers, n_centers = stacked([run for run, _ in fits])
        with timer() as metric_time:
            values = evaluate(
                points, centers, cell.metrics, cell.k, labels=prepared.labels, n_centers=n_centers
            )
    replicates = len(cell.seeds)
    claim = method.claim
    others = {name: to_json(value) for name, value in cell.params if name != "variant"}
    compared = reference_set(points).centers if set(cell.metrics) & set(REFERENCE_METRICS) else ()
    rows = {
        "cell": cell.key,
        "method": cell.method,
        "target": cell.target,
        "variant": cell.variant,
        "params": canonical(others),
        "dataset": cell.dataset_name,
        "preprocessing": cell.preprocessing,
        "private_bounds": prepared.private_bounds,
        "clipped": prepared.clipped,
        "half_width": prepared.half_width,
        "n": n,
        "d": d,
        "k": cell.k,
        "epsilon": math.nan if cell.epsilon is None else float(cell.epsilon),
        "seed": np.asarray(cell.seeds, dtype=np.int64),
        "notion": str(claim.notion),
        "adjacency": str(claim.adjacency),
        "trust": str(claim.trust),
        "view": str(claim.view),
        "flaws": " ".join(claim.flaws),
        **fit_columns(fits),
        **{name: np.asarray(values[name], dtype=np.float64) for name in cell.metrics},
        "n_centers": n_centers.astype(np.float64),
        "references": canonical([len(each) for each in compared]),
        "timing": cell.timing,
        **CENTRAL,
        **cell.identity().get("federation", {}),
        **cell.identity().get("unlearning", {}),
        **measured,
        "metric_seconds": metric_time.wall / replicates,
        "metric_cpu_seconds": metric_time.cpu / replicates,
        "peak_memory_mb": peak.mebibytes,
        "code": cell.code,
        "data": data_fingerprint(cell.dataset, cell.path),
        "host": platform.node(),
        "versions": versions(),
        "metrics_asked": " ".join(cell.metrics),
    }
    return pd.DataFrame(rows, index=range(replicates))


def timed_fits(
    method, prepared: Prepared, seeds: Sequence[int], *, alone: bool
) -> list[tuple[Run, "Timing"]]:
    """Fit all seeds, as one batch or each alone.

    Before the first fit on its own another one is made and thrown away, so that compiling and first touches of memory
    are not in the measured times; what is kept of the points from one fit to the next is dropped before each.

    Returns
    -------
    list of (Run, Timing)
        One per call of the method.
    """
    if alone:
        method.fit_batch(prepared.points, seeds[:1], domain=prepared.domain)
    fits = []
    for batch in [(seed,) for seed in seeds] if alone else [seeds]:
        if alone:
            forget()
        with timer() as elapsed:
            run = method.fit_batch(prepared.points, batch, domain=prepared.domain)
        fits.append((run, elapsed))
    return fits


def fit_columns(fits: list[tuple[Run, "Timing"]]) -> dict[str, np.ndarray]:
    """Return the columns that a fit decides, one value per replicate: what its ledger holds, and its time."""
    tables = []
    for run, elapsed in fits:
        replicates, ledger = len(run.seeds), run.ledger
        columns = {
            "delta": math.nan if ledger is None else float(ledger.budget.delta),
            "epsilon_spent": math.nan if ledger is None else float(ledger.spent()),
            "epsilon_unspent": math.nan if ledger is None else float(ledger.unspent()),
            "charges": "[]"
            if ledger is None
            else json.dumps([charge.to_dict() for charge in ledger.charges]),
            "iterations": int(run.n_iter),
            "fit_seconds": elapsed.wall / replicates,
            "fit_cpu_seconds": elapsed.cpu / replicates,
        }
        tables.append(pd.DataFrame(columns, index=range(replicates)))
    together = pd.concat(tables, ignore_index=True)
    return {name: together[name].to_numpy() for name in together}


def stacked(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Return the centers of several runs as one array, filled up with copies of each first one, and their numbers."""
    n_centers = np.concatenate([run.n_centers for run in runs])
    most = max(run.centers.shape[1] for run in runs)
    centers = [
        np.concatenate(
            [run.centers, np.repeat(run.centers[:, :1], most - run.centers.shape[1], axis=1)],
            axis=1,
        )
        for run in runs
    ]
    return np.concatenate(centers), n_centers


@contextmanager
def pinned(threads: int):
    """Hold the thread pools of BLAS, OpenMP and numba at `threads` during a block."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        with threadpool_limits(limits=threads):
            yield
    finally:
        numba.set_num_threads(before)


@lru_cache(maxsize=1)
def versions() -> str:
    """Return the versions a result may depend on, as JSON."""
    found = {
        name: importlib.metadata.version(name)
        for name in ("numpy", "scipy", "scikit-learn", "numba")
    }
    return json.dumps({"python": platform.python_version(), **found})


@dataclass
class Timing:
    """Seconds between entering and leaving a `timer`: wall clock and CPU of all threads."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def timer():
    """Measure the wall-clock and CPU seconds of a block."""
    elapsed = Timing()
    wall, cpu = time.perf_counter(), time.process_time()
    yield elapsed
    elapsed.wall, elapsed.cpu = time.perf_counter() - wall, time.process_time() - cpu


@dataclass
class Peak:
    """Peak resident memory of the process, in MiB."""

    mebibytes: float = 0.0


@contextmanager
def peak_memory():
    """Measure the peak resident memory of the process during a block.

    Linux lets a process reset its own high-water mark; elsewhere the peak since the process began is reported.
    """
    peak = Peak()
    status = Path("/proc/self/status")
    resettable = reset_high_water_mark()
    yield peak
    if resettable:
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        peak.mebibytes = int(line.split()[1]) / 1024
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        peak.mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def reset_high_water_mark() -> bool:
    """Reset the process's peak resident memory; tell whether that was possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
