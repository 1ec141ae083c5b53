"""Stored rows as matrices: the values of a metric with seeds down and cells across."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from pkm import schema
from pkm.analysis.tables.inference import keep_finite
from pkm.arrow import read_parameters

#: Columns that are the same in all rows of a cell: those that every row has, and those
#: that rows may lack, with their value there.
DESCRIPTION = [
    column
    for column in schema.COLUMNS
    if column.topic in ("key", "identity", "privacy", "setting", "style")
    and column.name != "seed"
]
REQUIRED = [column.name for column in DESCRIPTION if column.fill_value is None]
DEFAULTS = {
    column.name: column.fill_value
    for column in DESCRIPTION
    if column.fill_value is not None
}
#: Column of `Study.cells` for the half-width of the domain: a summary has another
#: `half_width`.
DOMAIN_HALF_WIDTH = "domain_half_width"
_PLANTED = r"planted-(?:small-)?\d+-\d+-\d+-(?P<ball>0(?:\.\d+)?)(?:-(?P<small>\d+))?"


@dataclass(frozen=True)
class SeedMatrix:
    """The values of one metric.

    Attributes
    ----------
    metric : str
        Name of the metric, or ``"<metric>_area"``.
    cells : DataFrame
        One line per column of `values`: what the cell is (method, data set, epsilon,
        parameters).
    seeds : ndarray of shape (n_seeds,)
        The seed of every line of `values`.
    values : ndarray of shape (n_seeds, n_cells)
        float64; NaN where the seed was not run or the value is not finite.
    left_out : ndarray of shape (n_cells,)
        How many values of a cell are infinite (such as a Davies–Bouldin index).
    """

    metric: str
    cells: pd.DataFrame
    seeds: np.ndarray
    values: np.ndarray
    left_out: np.ndarray

    def take(
        self,
        columns: np.ndarray | Sequence[int],
    ) -> "SeedMatrix":
        """Return the matrix of some columns (mask or positions)."""
        columns = np.asarray(columns)
        if columns.dtype == bool and columns.all():
            return self
        cells = self.cells.iloc[columns]
        return replace(
            self,
            cells=cells.reset_index(drop=True),
            values=self.values[:, columns],
            left_out=self.left_out[columns],
        )

    def describe(
        self,
        **columns: object,
    ) -> "SeedMatrix":
        """Return the matrix with further columns of its cells."""
        cells = self.cells.assign(**columns)
        return replace(self, cells=cells)

    @property
    def epsilons(self) -> np.ndarray:
        """The epsilon grid: sorted declared epsilons of the private cells."""
        declared = self.cells["epsilon"].dropna()
        return np.unique(declared.to_numpy(dtype=float))

    def broadcast(self) -> "SeedMatrix":
        """Return the matrix with cells without epsilon repeated at each epsilon."""
        grid = self.epsilons
        constant = self.cells["epsilon"].isna().to_numpy()
        if not grid.size or not constant.any():
            return self
        private = np.flatnonzero(~constant)
        repeated = np.repeat(np.flatnonzero(constant), grid.size)
        matrix = self.take(np.append(private, repeated))

        declared = self.cells["epsilon"].to_numpy(dtype=float)
        tiled = np.tile(grid, constant.sum())
        epsilon = np.append(declared[private], tiled)
        return matrix.describe(epsilon=epsilon)


class Study:
    """Per-seed rows of one paper, indexed once by cell and seed.

    Parameters
    ----------
    rows : DataFrame
        One row per sweep, cell and seed, as the store gives them (see `pkm.schema`).

    Attributes
    ----------
    cells : DataFrame
        One line per sweep and cell, parameters of the method expanded into columns of
        their own.

    Raises
    ------
    ValueError
        If a column is missing, or a seed is repeated in one cell of one sweep.
    """

    def __init__(
        self,
        rows: pd.DataFrame,
    ):
        required = (*REQUIRED, "seed")
        absent = [name for name in required if name not in rows]
        if absent:
            raise ValueError(
                f"rows lack the columns {absent}; they must come from the cell store "
                "with a sweep column"
            )
        # A repeated seed would count double.
        identity = rows[["sweep", "cell", "seed"]]
        repeated = identity[identity.duplicated()]
        if len(repeated):
            sweep, cell, seed = repeated.iloc[0]
            raise ValueError(
                f"seed {seed} is repeated in cell {cell} of sweep {sweep!r}"
            )

        description = rows.filter([*REQUIRED, *DEFAULTS])
        firsts = description.drop_duplicates(["sweep", "cell"])
        self.cells = _describe_cells(firsts)
        # Text of the parameters, to group by.
        texts = self.cells[["cell", "params"]].drop_duplicates("cell")
        texts = texts.set_index("cell")["params"]
        self._rows = rows.assign(params=rows["cell"].map(texts))
        self._places = rows.groupby("sweep").indices
        self._sweep_matrix = cache(self._build)

    @property
    def sweeps(self) -> list[str]:
        """Names of the sweeps that have rows, sorted."""
        return sorted(self.cells["sweep"].unique())

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that some row has."""
        return [name for name in schema.names("metric") if name in self._rows]

    def matrix(
        self,
        sweeps: str | Sequence[str],
        metric: str,
    ) -> SeedMatrix:
        """Return the values of a metric in some sweeps; no columns if none is stored.

        The cells are in the order of the sweeps; seeds are matched.
        """
        names = [sweeps] if isinstance(sweeps, str) else sweeps
        matrices = [self._sweep_matrix(name, metric) for name in names]
        stored = [matrix for matrix in matrices if len(matrix.cells)]
        # A sweep without a name has no rows.
        return concatenate(stored) if stored else self._sweep_matrix("", metric)

    def rows_with(
        self,
        metrics: Sequence[str],
    ) -> pd.DataFrame:
        """Select rows that have all metrics (infinite values included), each once."""
        if not set(metrics) <= set(self._rows):
            return self._rows.iloc[:0]
        # Whole rows are taken once: they are wide.
        run = ["cell", "seed"]
        runs = self._rows[[*run, *metrics]].reset_index(drop=True)
        runs = runs.dropna().drop_duplicates(run)
        return self._rows.iloc[runs.index]

    def _build(
        self,
        sweep: str,
        metric: str,
    ) -> SeedMatrix:
        is_of_sweep = self.cells["sweep"] == sweep
        cells = self.cells[is_of_sweep].reset_index(drop=True)
        rows = self._rows.reindex(columns=["seed", "cell", metric])
        rows = rows.iloc[self._places.get(sweep, [])]
        table = rows.pivot(
            index="seed",
            columns="cell",
            values=metric,
        )
        measured = table.reindex(columns=cells["cell"]).to_numpy(dtype=float)

        # Drop seeds and cells without a value; cells with infinite values stay.
        used = np.isfinite(measured).any(axis=1)
        matrix = SeedMatrix(
            metric,
            cells,
            table.index.to_numpy()[used],
            keep_finite(measured[used]),
            np.isinf(measured).sum(axis=0),
        )
        return matrix.take(~np.isnan(measured).all(axis=0))


def _describe_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Describe cells by one row of each, with a column for every parameter.

    Columns of `DEFAULTS` that rows lack are filled in; `params` becomes text, to group
    by.
    """
    absent = {name: value for name, value in DEFAULTS.items() if name not in rows}
    # Rows with and without such a column may be mixed; NaN, which cannot be filled in,
    # stays.
    known = {name: value for name, value in DEFAULTS.items() if value == value}
    cells = rows.assign(**absent)[[*REQUIRED, *DEFAULTS]]
    cells = cells.reset_index(drop=True).fillna(known)
    cells = cells.rename(columns={"half_width": DOMAIN_HALF_WIDTH})

    parameters = read_parameters(cells)
    names = set().union(*parameters)
    columns = {}
    for name in sorted(names.difference(cells)):
        values = [_plain(entry.get(name)) for entry in parameters]
        columns[name] = pd.Series(values, dtype=object)
    texts = [json.dumps(entry, sort_keys=True) for entry in parameters]
    return parse_planted_names(cells.assign(**columns, params=texts))


def parse_planted_names(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the facts that the names of planted data sets encode.

    Returns
    -------
    DataFrame
        `cells` with `ball` (radius of the planted balls, NaN for other data) and
        `small` (points of the small one, NaN if none).

    Examples
    --------
    >>> names = ["planted-small-100-2-3-0.05-7", "s1"]
    >>> parse_planted_names(pd.DataFrame({"dataset": names})).values.tolist()
    [['planted-small-100-2-3-0.05-7', 0.05, 7.0], ['s1', nan, nan]]
    """
    facts = cells["dataset"].astype(str).str.extract(_PLANTED)
    return cells.assign(**facts.astype(float))


def _plain(value: object) -> object:
    """Make a parameter comparable: floats are rounded, lists become text."""
    if isinstance(value, float):
        return round(value, 10)
    return json.dumps(value) if isinstance(value, list | dict) else value


def parse_parameters(cells: pd.DataFrame) -> list[dict]:
    """Return the parameters of each cell; its `params` are their text."""
    return [json.loads(text or "{}") for text in cells["params"]]


def as_columns(selector: str | Mapping) -> Mapping:
    """Return a selector as columns with their values; a text is a method's name."""
    return {"method": selector} if isinstance(selector, str) else selector


def matches(
    cells: pd.DataFrame,
    selector: str | Mapping,
) -> np.ndarray:
    """Return a mask of the cells that a selector matches; none if it lacks a column.

    Parameters
    ----------
    cells : DataFrame
        Cells of a matrix or of a study.
    selector : str or mapping
        A method's name, or columns with their value or a list of values.
    """
    mask = np.ones(len(cells), dtype=bool)
    for name, value in as_columns(selector).items():
        if name not in cells:
            return np.zeros(len(cells), dtype=bool)
        values = value if isinstance(value, list | tuple) else [value]
        mask &= cells[name].isin(values).to_numpy()
    return mask


def raw_units(matrix: SeedMatrix) -> SeedMatrix:
    """Return the matrix in the raw units of the data.

    Values are NaN where the columns of the data share no range. Metrics that have no
    unit, such as scores and counts, stay as they are.
    """
    power = schema.raw_power(matrix.metric)
    if not power:
        return matrix
    half_width = matrix.cells[DOMAIN_HALF_WIDTH].to_numpy(dtype=float)
    return replace(matrix, values=matrix.values * half_width**power)


def concatenate(matrices: Sequence[SeedMatrix]) -> SeedMatrix:
    """Concatenate the cells of matrices of one metric; absent values are NaN."""
    if len(matrices) == 1:
        return matrices[0]
    tables = [pd.DataFrame(matrix.values, matrix.seeds) for matrix in matrices]
    table = pd.concat(tables, axis=1).sort_index()
    cells = [matrix.cells for matrix in matrices]
    left_out = [matrix.left_out for matrix in matrices]
    return SeedMatrix(
        matrices[0].metric,
        pd.concat(cells, ignore_index=True),
        table.index.to_numpy(),
        np.ascontiguousarray(table),
        np.concatenate(left_out),
    )
