"""Fabricated rows as the store holds them, with every column that is not measured."""

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from styles import style_of


def make_rows(
    sweep: str,
    cell: str,
    method: str,
    dataset: str,
    *,
    size: tuple[int, int, int],
    seeds: int,
    epsilon: float | None = None,
    delta: float = 0.0,
    params: Mapping | None = None,
    charges: Sequence[Mapping] = (),
    **columns,
) -> pd.DataFrame:
    """Rows of one cell, one per seed.

    Parameters
    ----------
    sweep, cell, method, dataset
        What was run.
    size : tuple of int
        Numbers of points, columns and clusters.
    seeds : int
        Number of rows.
    epsilon : float, optional
        Budget, all of it spent; without one the method is not private.
    delta : float
        The budget's, where there is one.
    params, charges
        Parameters of the method and what its ledger holds; written as JSON.
    **columns
        Metrics, and facts other than the default ones.
    """
    n, d, k = size
    private = epsilon is not None
    row = {
        "sweep": sweep,
        "cell": cell,
        "method": method,
        "target": f"pkm.methods.{method}",
        "variant": "",
        "params": json.dumps(params or {}, sort_keys=True),
        "dataset": dataset,
        "preprocessing": "public",
        "private_bounds": False,
        "n": n,
        "d": d,
        "k": k,
        "epsilon": epsilon if private else math.nan,
        "delta": delta if private else math.nan,
        "notion": ("approximate" if delta else "pure") if private else "none",
        "adjacency": "zero_out",
        "trust": "central" if private else "none",
        "view": "transcript",
        "flaws": "",
        **style_of(method),
        "epsilon_spent": epsilon if private else math.nan,
        "epsilon_unspent": 0.0 if private else math.nan,
        "iterations": 1,
        "charges": json.dumps(list(charges)),
    }
    return pd.DataFrame(row | columns, index=range(seeds)).assign(seed=np.arange(seeds))
