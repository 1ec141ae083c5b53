"""The rows of a cell, one per seed: their columns and values."""

import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from pkm.arrow import make_nested
from pkm.compute import SCALE
from pkm.experiments.cell.cell import STYLE, Cell
from pkm.experiments.fit.inputs import FITTED_POINTS, PreparedData, ResolvedCell
from pkm.experiments.fit.timing import Timing
from pkm.methods import Run
from pkm.metrics import REFERENCE_METRICS, reference_set


def make_rows(
    resolved: ResolvedCell,
    fits: Sequence[tuple[Run, Timing]],
    values: Mapping[str, np.ndarray],
    metric_time: Timing,
    measured: Mapping[str, Any],
    centers: np.ndarray,
) -> pd.DataFrame:
    """Make the rows of a cell from its results.

    Parameters
    ----------
    resolved : ResolvedCell
        What was run, on which data.
    fits : sequence of (Run, Timing)
        Results and times of the fits, all seeds in their order.
    values : mapping of str to ndarray
        Values of every metric, one per seed.
    metric_time : Timing
        Time of the evaluation, all seeds together.
    measured : mapping of str to ndarray or float
        Columns of the cell's kind, one value per seed, and of the whole run.
    centers : ndarray of shape (R, k, d)
        Released centers on the grid, of every replicate; `fits` has their numbers.

    Returns
    -------
    DataFrame
        One row per seed, in the order of ``cell.seeds``.
    """
    cell, data = resolved.cell, resolved.data
    replicates = len(cell.seeds)
    sizes = []
    if set(cell.metrics) & set(REFERENCE_METRICS):
        sizes = [len(centers) for centers in reference_set(data.points).centers]
    n_centers = np.concatenate([run.n_centers for run, _ in fits])
    columns = {
        **cell_columns(cell, data),
        **claim_columns(resolved),
        **style_columns(type(resolved.method), cell.variant, cell.style),
        **fit_columns(fits),
        **{name: np.asarray(values[name], dtype=np.float64) for name in cell.metrics},
        "n_centers": n_centers.astype(np.float64),
        "references": make_nested("references", [sizes] * replicates),
        **measured,
        "metric_seconds": metric_time.wall / replicates,
        "metric_cpu_seconds": metric_time.cpu / replicates,
        "code": cell.code,
        "data": cell.data,
        "host": platform.node(),
        "versions": list_versions(),
    }
    if cell.keep_centers:
        kept = to_raw_units(centers, n_centers, data.domain)
        columns["centers"] = make_nested("centers", kept)
    return pd.DataFrame(columns, index=range(replicates))


def cell_columns(cell: Cell, data: PreparedData) -> dict:
    """Return the columns that say what was run on which data."""
    columns = cell.planned_columns()
    return columns | {
        "params": make_nested("params", [columns["params"]] * len(cell.seeds)),
        "cell": cell.key,
        "private_bounds": data.private_bounds,
        "clipped": data.clipped,
        "bounds_factor": data.bounds_factor,
        "half_width": data.half_width,
        "n": data.points.n_records,
        "d": data.points.shape[1],
        "epsilon": math.nan if cell.epsilon is None else float(cell.epsilon),
        "seed": np.asarray(cell.seeds, dtype=np.int64),
    }


def claim_columns(resolved: ResolvedCell) -> dict[str, Any]:
    """Return the columns of the privacy claim: what is claimed, and its flaws.

    With secure noise, the drawn seeds of public randomness are among them.
    """
    claim = resolved.method.claim
    flaws = list(claim.flaws)
    if claim.private and resolved.data.is_transform_fitted:
        flaws.append(FITTED_POINTS)
    noise = resolved.cell.noise if claim.private else "none"
    columns = {} if noise != "secure" else {"public_seed": list(resolved.seeds)}
    return columns | {
        "noise": noise,
        "notion": str(claim.notion),
        "adjacency": str(claim.adjacency),
        "trust": str(claim.trust),
        "view": str(claim.view),
        "flaws": " ".join(flaws),
    }


def style_columns(
    method: type,
    variant: str,
    style: Mapping[str, str],
) -> dict[str, str]:
    """Return how figures draw a method: by its configuration, else by its class.

    The label of a sound variant gets the ending "(sound)" where the method has a
    published variant, too, and the label has no parentheses yet.
    """
    columns = {name: str(style.get(name, getattr(method, name, ""))) for name in STYLE}
    claims = getattr(method, "claims", {})
    sound = variant == "sound" and "published" in claims
    if sound and columns["label"] and "(" not in columns["label"]:
        columns["label"] += " (sound)"
    return columns


def fit_columns(fits: Sequence[tuple[Run, Timing]]) -> dict[str, Any]:
    """Return charges, iterations and times of the fits, one value per replicate."""
    rows = []
    for run, elapsed in fits:
        replicates = len(run.seeds)
        row = {
            **ledger_columns(run),
            "iterations": int(run.n_iter),
            "fit_seconds": elapsed.wall / replicates,
            "fit_cpu_seconds": elapsed.cpu / replicates,
        }
        rows += [row] * replicates
    columns = pd.DataFrame(rows).to_dict("list")
    return columns | {"charges": make_nested("charges", columns["charges"])}


def ledger_columns(run: Run) -> dict[str, Any]:
    """Return the charges of a run and their totals; none without a ledger."""
    ledger = run.ledger
    if ledger is None:
        totals = dict.fromkeys(("delta", "epsilon_spent", "epsilon_unspent"), math.nan)
        return totals | {"charges": []}
    return {
        "delta": float(ledger.budget.delta),
        "epsilon_spent": float(ledger.spent()),
        "epsilon_unspent": float(ledger.unspent()),
        "charges": [charge.to_dict() for charge in ledger.charges],
    }


def to_raw_units(
    centers: np.ndarray,
    n_centers: np.ndarray,
    domain: np.ndarray,
) -> list[list]:
    """Return the centers of each replicate in the raw units of the data."""
    lower, upper = domain
    raw = lower + (centers / SCALE + 1) / 2 * (upper - lower)
    pairs = zip(raw, n_centers, strict=True)
    return [replicate[:count].tolist() for replicate, count in pairs]


@lru_cache(maxsize=1)
def list_versions() -> str:
    """Return the versions a result may depend on, in one line."""
    packages = ("numpy", "scipy", "scikit-learn", "numba")
    installed = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return " ".join([f"python {platform.python_version()}", *installed])
