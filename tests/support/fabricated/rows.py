"""Fabricated rows as the store holds them, with every column that is not measured.

A cell is a mapping from columns to a value of all its seeds or an array with one for each. Cells
become rows together: a table for each of a thousand cells would take ten times as long.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps

import numpy as np
import pandas as pd
from styles import style_of

from pkm.arrow import make_nested
from pkm.schema import BY_NAME, COLUMNS

#: Values of columns that no test looks at.
NOTHING = {"text": "", "number": math.nan, "integer": 0}
UNMEASURED = {
    column.name: NOTHING[column.dtype]
    for column in COLUMNS
    if column.fill_value is None and column.dtype in NOTHING
}
#: Methods of whose former names the plain one was that of the published variant.
RENAMED = ("dpm", "dp_lloyd", "lsh_splits", "sulloyd", "dist_dp", "dist_dp_median")


def former_name(method: str) -> str:
    """Name that seeds a method's fabricated noise: the one under which golden records were made."""
    if method in RENAMED:
        return f"{method}_sound"
    return {"dist_dp_any": "dist_dp_sound_any"}.get(method, method.removesuffix("_published"))


def make_cell(
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
) -> dict:
    """One cell; see the module.

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
        Parameters of the method and what its ledger holds.
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
        "params": params or {},
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
        "charges": charges,
    }
    return UNMEASURED | row | {"seed": np.arange(seeds)} | columns


def join_cells(cells: Iterable[Mapping]) -> pd.DataFrame:
    """Rows of some cells, cell by cell; columns that a cell lacks are NaN in its rows."""
    cells = list(cells)
    columns = {}
    for name in dict.fromkeys(itertools.chain(*cells)):
        values = []
        for cell in cells:
            seeds = len(cell["seed"])
            value = cell.get(name, math.nan)
            is_each = isinstance(value, Iterable) and not isinstance(value, str)
            is_common = name in ("params", "charges") or not is_each
            values.extend(itertools.repeat(value, seeds) if is_common else value)
        is_nested = name in BY_NAME and BY_NAME[name].dtype not in (*NOTHING, "flag")
        if is_nested:
            values = make_nested(name, [None if value is math.nan else value for value in values])
        columns[name] = values
    return pd.DataFrame(columns)


def as_rows(make: Callable[..., Mapping]) -> Callable[..., pd.DataFrame]:
    """Let a function that makes a cell make the rows of it."""

    @wraps(make)
    def make_rows(*args, **values):
        return join_cells([make(*args, **values)])

    return make_rows


make_rows = as_rows(make_cell)


def fabricate(cell_of: Callable, sweep: str, methods, datasets, **values) -> Iterator[dict]:
    """Cells of a sweep: every method on every data set.

    Parameters
    ----------
    cell_of : callable
        Makes a cell of a paper.
    sweep : str
    methods : iterable of str
    datasets : iterable of tuple
        Name and size of each.
    **values
        Stated values, parameters and facts; a function is called with method and size.
    """
    for (dataset, size), method in itertools.product(datasets, methods):
        stated = {
            name: value(method, size) if callable(value) else value
            for name, value in values.items()
        }
        yield cell_of(sweep, method, dataset, size=size, **stated)


def with_charges(rows: pd.DataFrame, charges: Sequence[Mapping]) -> pd.DataFrame:
    """Copy of rows with the same charges in all of them."""
    return rows.assign(charges=make_nested("charges", [charges] * len(rows)))


def with_params(rows: pd.DataFrame, params: Mapping) -> pd.DataFrame:
    """Copy of rows with the same parameters in all of them."""
    return rows.assign(params=make_nested("params", [params] * len(rows)))


def change_charges(column: pd.Series, change: Callable[[list[dict]], object]):
    """Charges of some rows after a change to the list of flat records of each."""
    lists = []
    for records in column:
        flat = [
            {name: value for name, value in record.items() if name not in ("details", "group")}
            | {detail["name"]: detail["value"] for detail in record["details"]}
            for record in records
        ]
        change(flat)
        lists.append(flat)
    return make_nested("charges", lists)
