"""The rows of a cell, one per seed: which columns they have and how these are filled."""

import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from pkm.compute import Points
from pkm.experiments.cell import STYLE, Cell, canonical, data_fingerprint
from pkm.experiments.prepared import Prepared, build, method_class
from pkm.experiments.timing import Timing
from pkm.methods import Run
from pkm.metrics import REFERENCE_METRICS, reference_set
from pkm.schema import names

#: What is measured of every run of a protocol; fields of `pkm.federation.FederationCosts`.
MEASURED = names("metric", scope="federation")
#: Flaw of any claim about points that come from a map fitted to the records (analysis/flaws.yaml).
FITTED_POINTS = "F-28"
#: The columns of a protocol, with their values for cells without one.
CENTRAL = {
    "clients": 0, "latency_ms": math.nan, "word_bytes": 0, "split": "", "transport": "",
    **dict.fromkeys(MEASURED, math.nan),
}  # fmt: skip


def rows_of(
    cell: Cell,
    prepared: Prepared,
    fits: Sequence[tuple[Run, Timing]],
    values: Mapping[str, np.ndarray],
    metric_time: Timing,
    measured: Mapping[str, np.ndarray],
    peak_mib: float,
) -> pd.DataFrame:
    """Lay out the results of a cell.

    Parameters
    ----------
    cell : Cell
        What was run.
    prepared : Prepared
        On which data.
    fits : sequence of (Run, Timing)
        Results and times of the fits, all seeds in their order.
    values : mapping of str to ndarray
        Values of every metric, one per seed.
    metric_time : Timing
        Time of the evaluation, all seeds together.
    measured : mapping of str to ndarray
        Columns of the cell's harness, one value per seed.
    peak_mib : float
        Peak memory of the process while the cell ran.

    Returns
    -------
    DataFrame
        One row per seed, in the order of ``cell.seeds``.
    """
    replicates = len(cell.seeds)
    columns = {
        **cell_columns(cell, prepared),
        **claim_columns(cell, prepared),
        **style_columns(cell.target, cell.variant, cell.style),
        **fit_columns(fits),
        **{name: np.asarray(values[name], dtype=np.float64) for name in cell.metrics},
        "n_centers": np.concatenate([run.n_centers for run, _ in fits]).astype(np.float64),
        "references": canonical(reference_sizes(cell, prepared.points)),
        "timing": cell.timing,
        **CENTRAL,
        **cell.settings,
        **measured,
        "metric_seconds": metric_time.wall / replicates,
        "metric_cpu_seconds": metric_time.cpu / replicates,
        "peak_memory_mb": peak_mib,
        **origin_columns(cell),
        "metrics": " ".join(cell.metrics),
    }
    return pd.DataFrame(columns, index=range(replicates))


def cell_columns(cell: Cell, prepared: Prepared) -> dict:
    """Return the columns that say what was run on which data."""
    n, d = prepared.points.shape
    params = {name: value for name, value in cell.params.items() if name != "variant"}
    return {
        "cell": cell.key,
        "method": cell.method,
        "target": cell.target,
        "variant": cell.variant,
        "params": canonical(params),
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
    }


def claim_columns(cell: Cell, prepared: Prepared) -> dict[str, str]:
    """Return the columns that say which privacy the method claims, and what is wrong with that."""
    claim = build(cell).claim
    flaws = list(claim.flaws)
    if claim.private and prepared.fitted:
        flaws.append(FITTED_POINTS)
    return {
        "notion": str(claim.notion),
        "adjacency": str(claim.adjacency),
        "trust": str(claim.trust),
        "view": str(claim.view),
        "flaws": " ".join(flaws),
    }


def style_columns(target: str, variant: str, style: Mapping[str, str]) -> dict[str, str]:
    """Return how figures draw a method: as its class says, unless its configuration differs.

    The label of a sound variant says so where a method has a published variant as well; a label
    with parentheses names a variation already.
    """
    method = method_class(target)
    columns = {name: str(style.get(name, getattr(method, name, ""))) for name in STYLE}
    claims = getattr(method, "claims", {})
    sound = variant == "sound" and "published" in claims and claims["sound"].private
    if sound and columns["label"] and "(" not in columns["label"]:
        columns["label"] += " (sound)"
    return columns


def fit_columns(fits: Sequence[tuple[Run, Timing]]) -> dict[str, np.ndarray]:
    """Return the columns of the fits, one value per replicate: charges, iterations and times."""
    tables = []
    for run, elapsed in fits:
        replicates = len(run.seeds)
        columns = {
            **ledger_columns(run),
            "iterations": int(run.n_iter),
            "fit_seconds": elapsed.wall / replicates,
            "fit_cpu_seconds": elapsed.cpu / replicates,
        }
        tables.append(pd.DataFrame(columns, index=range(replicates)))
    table = pd.concat(tables, ignore_index=True)
    return {name: table[name].to_numpy() for name in table}


def ledger_columns(run: Run) -> dict[str, float | str]:
    """Return the charges of a run and their totals; no charges where it has no ledger."""
    ledger = run.ledger
    if ledger is None:
        return {
            "delta": math.nan,
            "epsilon_spent": math.nan,
            "epsilon_unspent": math.nan,
            "charges": "[]",
        }
    return {
        "delta": float(ledger.budget.delta),
        "epsilon_spent": float(ledger.spent()),
        "epsilon_unspent": float(ledger.unspent()),
        "charges": json.dumps([charge.to_dict() for charge in ledger.charges]),
    }


def reference_sizes(cell: Cell, points: Points) -> list[int]:
    """Return the sizes of the reference clusterings, where a metric of the cell needs them."""
    if not set(cell.metrics) & set(REFERENCE_METRICS):
        return []
    return [len(centers) for centers in reference_set(points).centers]


def origin_columns(cell: Cell) -> dict[str, str]:
    """Return the code, the data, the machine and the versions of a cell's run."""
    return {
        "code": cell.code,
        "data": data_fingerprint(cell.dataset, cell.path),
        "host": platform.node(),
        "versions": versions(),
    }


@lru_cache(maxsize=1)
def versions() -> str:
    """Return the versions a result may depend on, as JSON."""
    packages = ("numpy", "scipy", "scikit-learn", "numba")
    installed = {name: importlib.metadata.version(name) for name in packages}
    return json.dumps({"python": platform.python_version(), **installed})
