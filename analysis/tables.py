"""From per-seed rows to summaries: means with intervals, areas over epsilon, files to cite.

Everything downstream (figures, verdicts) reads a `Panel`: the values of one metric in one sweep as
a matrix with seeds down and cells across. Seeds are the replicate axis, so a paired comparison is a
difference of two columns and a paired bootstrap is one matrix product.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from pkm import schema
from pkm.arrow import parameters_of
from pkm.schema import COLUMNS

if TYPE_CHECKING:
    from pkm.analysis.removals import RemovalStudy

#: Columns that are the same in all rows of a cell: those that every row has, and those that rows
#: may lack, with their value there.
DESCRIPTION = [
    column
    for column in COLUMNS
    if column.kind in ("key", "identity", "privacy", "setting", "style") and column.name != "seed"
]
REQUIRED = [column.name for column in DESCRIPTION if column.missing is None]
DEFAULTS = {column.name: column.missing for column in DESCRIPTION if column.missing is not None}
#: Column of `Study.cells` for the half-width of the domain: a summary has another `half_width`.
DOMAIN_HALF_WIDTH = "domain_half_width"
BOOTSTRAP_REPEATS = 2000
_BOOTSTRAP_SEED = 20250601


@dataclass(frozen=True)
class Panel:
    """The values of one metric in one sweep.

    Attributes
    ----------
    metric : str
        Name of the metric, or ``"<metric>_area"``.
    cells : DataFrame
        One line per column of `values`: what the cell is (method, data set, epsilon, parameters).
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

    def take(self, columns: np.ndarray | Sequence[int]) -> "Panel":
        """Return the panel of some columns (mask or positions)."""
        columns = np.asarray(columns)
        positions = np.flatnonzero(columns) if columns.dtype == bool else columns.astype(int)
        return replace(
            self,
            cells=self.cells.iloc[positions].reset_index(drop=True),
            values=self.values[:, positions],
            left_out=self.left_out[positions],
        )

    @property
    def min_seeds(self) -> int:
        """Fewest seeds with a finite value behind a cell."""
        return int(np.isfinite(self.values).sum(axis=0).min())

    @property
    def epsilons(self) -> np.ndarray:
        """The epsilon grid: sorted declared epsilons of the private cells."""
        return np.unique(self.cells["epsilon"].dropna().to_numpy(dtype=float))

    def broadcast(self) -> "Panel":
        """Return the panel with every cell without epsilon repeated at each epsilon of the grid."""
        grid = self.epsilons
        constant = self.cells["epsilon"].isna().to_numpy()
        if not grid.size or not constant.any():
            return self
        private = np.flatnonzero(~constant)
        repeated = np.repeat(np.flatnonzero(constant), grid.size)
        panel = self.take(np.concatenate([private, repeated]))
        epsilon = panel.cells["epsilon"].to_numpy(dtype=float).copy()
        epsilon[private.size :] = np.tile(grid, constant.sum())
        return replace(panel, cells=panel.cells.assign(epsilon=epsilon))


class Study:
    """Per-seed rows of one paper, indexed once by cell and seed.

    Parameters
    ----------
    rows : DataFrame
        One row per sweep, cell and seed, as the store gives them (see `pkm.schema`).

    Attributes
    ----------
    cells : DataFrame
        One line per sweep and cell, parameters of the method expanded into columns of their own.

    Raises
    ------
    ValueError
        If a column is missing, or a seed is repeated in one cell of one sweep.
    """

    def __init__(self, rows: pd.DataFrame):
        absent = [name for name in (*REQUIRED, "seed") if name not in rows.columns]
        if absent:
            raise ValueError(
                f"rows lack the columns {absent}; they must come from the cell store with a sweep "
                "column"
            )
        # A repeated seed would count double.
        identity = ["sweep", "cell", "seed"]
        is_repeated = rows.duplicated(identity).to_numpy()
        if is_repeated.any():
            sweep_name, cell_key, seed = rows.loc[is_repeated, identity].iloc[0]
            raise ValueError(f"seed {seed} is repeated in cell {cell_key} of sweep {sweep_name!r}")

        first_rows = rows.drop_duplicates(["sweep", "cell"])
        self.cells = _expand_parameters(_described_cells(first_rows))
        # Text of the parameters, to group by.
        texts = self.cells.drop_duplicates("cell").set_index("cell")["params"]
        self._rows = rows.assign(params=rows["cell"].map(texts))
        self._rows_of_sweep = dict(tuple(self._rows.groupby("sweep")))
        self._panels: dict[tuple[str, str], Panel] = {}

    @property
    def sweeps(self) -> list[str]:
        """Names of the sweeps that have rows, sorted."""
        return sorted(self.cells["sweep"].unique())

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics that some row has."""
        return [name for name in schema.names("metric") if name in self._rows.columns]

    def panel(self, sweep: str, metric: str) -> Panel:
        """Return the panel of one metric in one sweep; no columns if nothing was measured."""
        if (sweep, metric) not in self._panels:
            self._panels[sweep, metric] = self._build(sweep, metric)
        return self._panels[sweep, metric]

    def rows_with(self, metrics: Sequence[str]) -> pd.DataFrame:
        """Rows that have all of the named metrics (infinite values included), each cell once."""
        rows = self._rows
        if any(name not in rows.columns for name in metrics):
            return rows.iloc[:0]
        has_all = rows[list(metrics)].notna().all(axis=1)
        return rows[has_all].drop_duplicates(["cell", "seed"])

    def _build(self, sweep: str, metric: str) -> Panel:
        cells = self.cells[self.cells["sweep"] == sweep].reset_index(drop=True)
        rows = self._rows_of_sweep.get(sweep, self._rows.iloc[:0])
        if metric not in rows:
            rows = rows.iloc[:0].assign(**{metric: np.nan})
        wide = rows.pivot(index="seed", columns="cell", values=metric)
        measured = wide.reindex(columns=cells["cell"]).to_numpy(dtype=float)

        # Drop seeds and cells without a value; cells with infinite values stay.
        finite = np.isfinite(measured)
        used = finite.any(axis=1)
        left_out = np.isinf(measured).sum(axis=0)
        values = np.where(finite, measured, np.nan)[used]
        panel = Panel(metric, cells, wide.index.to_numpy()[used], values, left_out)
        return panel.take(finite.any(axis=0) | (left_out > 0))


def _described_cells(rows: pd.DataFrame) -> pd.DataFrame:
    """Describe cells by one row of each; columns of `DEFAULTS` that rows lack are filled in."""
    stored = [name for name in DEFAULTS if name in rows.columns]
    cells = rows[[*REQUIRED, *stored]].reset_index(drop=True)
    cells = cells.assign(**{name: DEFAULTS[name] for name in DEFAULTS if name not in stored})
    # Rows with and without such a column may be mixed; NaN, which cannot be filled in, stays.
    cells = cells.fillna({name: value for name, value in DEFAULTS.items() if value == value})
    return cells.rename(columns={"half_width": DOMAIN_HALF_WIDTH})


def _expand_parameters(cells: pd.DataFrame) -> pd.DataFrame:
    """Add one column per constructor parameter; `params` becomes text, to group by."""
    parameters = parameters_of(cells)
    names = {name for given in parameters for name in given}
    columns: dict[str, object] = {
        name: pd.Series([_plain(given.get(name)) for given in parameters], dtype=object)
        for name in sorted(names - set(cells.columns))
    }
    columns["params"] = [json.dumps(given, sort_keys=True) for given in parameters]
    return cells.assign(**columns)


def given_parameters(cells: pd.DataFrame) -> list[dict]:
    """Return the parameters of each cell, as they were given; its `params` are their text."""
    return [json.loads(text or "{}") for text in cells["params"]]


def _plain(value: object) -> object:
    """Make a parameter comparable: floats are rounded, lists become text."""
    if isinstance(value, float):
        return round(value, 10)
    return json.dumps(value) if isinstance(value, list | dict) else value


def matches(cells: pd.DataFrame, selector: str | Mapping) -> np.ndarray:
    """Mask of the cells that a selector matches; none if a column that it names does not exist.

    Parameters
    ----------
    cells : DataFrame
        Cells of a panel or of a study.
    selector : str or mapping
        A method's name, or columns with their value or a list of values.
    """
    columns = {"method": selector} if isinstance(selector, str) else selector
    mask = np.ones(len(cells), dtype=bool)
    for name, value in columns.items():
        values = value if isinstance(value, list | tuple) else [value]
        mask &= cells[name].isin(values).to_numpy() if name in cells else False
    return mask


def raw_units(panel: Panel) -> Panel:
    """Return the panel in the raw units of the data; NaN where its columns share no range.

    Metrics that have no unit, such as scores and counts, stay as they are.
    """
    power = schema.raw_power(panel.metric)
    if not power:
        return panel
    half_width = panel.cells[DOMAIN_HALF_WIDTH].to_numpy(dtype=float)
    return replace(panel, values=panel.values * half_width**power)


def panel_of_sweeps(
    study: "Study | RemovalStudy", sweeps: str | Sequence[str], metric: str
) -> Panel:
    """Panel of a metric over one or several sweeps; without columns where nothing is stored."""
    names = [sweeps] if isinstance(sweeps, str) else list(sweeps)
    panels = [study.panel(name, metric) for name in names]
    stored = [panel for panel in panels if len(panel.cells)]
    return concatenate(stored) if stored else panels[0]


def concatenate(panels: Sequence[Panel]) -> Panel:
    """Concatenate the cells of panels of one metric; seeds are matched, absent values are NaN."""
    seeds = np.unique(np.concatenate([panel.seeds for panel in panels]))
    n_cells = sum(panel.values.shape[1] for panel in panels)
    values = np.full((seeds.size, n_cells), np.nan)
    start = 0
    for panel in panels:
        stop = start + panel.values.shape[1]
        values[np.searchsorted(seeds, panel.seeds), start:stop] = panel.values
        start = stop
    cells = pd.concat([panel.cells for panel in panels], ignore_index=True)
    left_out = np.concatenate([panel.left_out for panel in panels])
    return Panel(panels[0].metric, cells, seeds, values, left_out)


def summarize(panel: Panel) -> pd.DataFrame:
    """Summarize a panel over its seeds.

    Returns
    -------
    DataFrame
        The cells with `mean`, `half_width` (95 % Student t interval of the mean; NaN below two
        seeds), `median`, `seeds` (finite values used) and `left_out` (values that are not finite).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> cells = pd.DataFrame({"method": ["a"], "epsilon": [1.0]})
    >>> one = Panel("nicv", cells, np.arange(3), np.array([[1.0], [2.0], [3.0]]), np.array([0]))
    >>> summarize(one)[["mean", "median", "seeds"]].values.tolist()
    [[2.0, 2.0, 3.0]]
    """
    found = column_statistics(panel.values)
    return panel.cells.assign(
        metric=panel.metric,
        mean=found.mean,
        half_width=found.half_width,
        median=found.median,
        seeds=found.count,
        left_out=panel.left_out,
    )


def optimum_columns(cells: pd.DataFrame, optimum: str) -> np.ndarray:
    """Position of the cell with the optimum of each cell's data set and k; -1 without one.

    Parameters
    ----------
    cells : DataFrame
        Of a panel.
    optimum : str
        The method whose cost stands for the optimum.

    Returns
    -------
    ndarray of shape (n_cells,), int
    """
    keys = pd.Series(list(zip(cells["dataset"], cells["k"], strict=True)), dtype=object)
    positions = np.flatnonzero(matches(cells, optimum))
    first = {keys[position]: position for position in positions[::-1]}
    return keys.map(lambda key: first.get(key, -1)).to_numpy(dtype=int)


class ColumnStatistics(NamedTuple):
    """Statistics of the finite values of each column of a matrix of seeds by cells.

    Attributes
    ----------
    mean, half_width, median, deviation : ndarray of shape (n_columns,)
        The half-width is that of the 95 % Student t interval of the mean, the deviation has n - 1;
        both are NaN below two values.
    count : ndarray of shape (n_columns,)
    """

    mean: np.ndarray
    half_width: np.ndarray
    median: np.ndarray
    deviation: np.ndarray
    count: np.ndarray


def column_statistics(values: np.ndarray) -> ColumnStatistics:
    """Mean with its interval, median, standard deviation and number of finite values.

    Examples
    --------
    >>> found = column_statistics(np.array([[1.0], [3.0], [np.nan]]))
    >>> float(found.mean[0]), float(found.median[0]), int(found.count[0])
    (2.0, 2.0, 2)
    """
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    known = np.where(finite, values, np.nan)
    with warnings.catch_warnings():
        # Columns that have too few values.
        warnings.filterwarnings("ignore", "Mean of empty|All-NaN|Degrees of freedom")
        mean = np.nanmean(known, axis=0)
        median = np.nanmedian(known, axis=0)
        deviation = np.nanstd(known, axis=0, ddof=1)
    quantile = stats.t.ppf(0.975, np.maximum(count - 1, 1))
    half_width = quantile * deviation / np.sqrt(np.maximum(count, 1))
    return ColumnStatistics(mean, half_width, median, deviation, count)


def area(panel: Panel) -> Panel:
    """Area under a metric over epsilon, per seed (trapezoids; FastLloyd paper, section 6.2.1).

    The grid is that of the whole panel. A curve that lacks one of its epsilons has no area and is
    left out rather than integrated over fewer points, because areas over different grids cannot be
    compared. A non-private cell repeats its value at every epsilon. Since the area is linear, the
    mean over seeds equals the area under the means.

    Returns
    -------
    Panel
        One column per curve; no columns if the grid has fewer than two epsilons.
    """
    grid = panel.epsilons
    curves = _curves(panel.cells) if grid.size > 1 else []
    epsilon = panel.cells["epsilon"].to_numpy(dtype=float)
    first_cells = []
    values = []
    left_out = []
    for columns in curves:
        epsilons = epsilon[columns]
        if columns.size == 1 and np.isnan(epsilons[0]):
            under = panel.values[:, columns[0]] * (grid[-1] - grid[0])
        elif columns.size == grid.size and np.array_equal(np.sort(epsilons), grid):
            in_order = columns[np.argsort(epsilons)]
            under = np.trapezoid(panel.values[:, in_order], grid, axis=1)
        else:
            continue
        first_cells.append(columns[0])
        values.append(under)
        left_out.append(panel.left_out[columns].sum())
    collapsed = panel.take(np.array(first_cells, dtype=int))
    has_epsilon = collapsed.cells["epsilon"].notna()
    cells = collapsed.cells.assign(private=has_epsilon, epsilon=np.nan)
    matrix = np.column_stack(values) if values else np.empty((len(panel.seeds), 0))
    return Panel(f"{panel.metric}_area", cells, panel.seeds, matrix, np.array(left_out, dtype=int))


def _curves(cells: pd.DataFrame) -> list[np.ndarray]:
    """Positions of the cells that differ in epsilon alone, in the order of their first one."""
    if not len(cells):
        return []
    identity = cells[["sweep", *schema.names("identity")]].astype(str).agg("\x1f".join, axis=1)
    curve, _ = pd.factorize(identity)
    return list(pd.Series(np.arange(len(curve))).groupby(curve).indices.values())


def resampling_weights(n_seeds: int, repeats: int = BOOTSTRAP_REPEATS) -> np.ndarray:
    """Bootstrap counts of each seed, the first line being the sample itself.

    One draw of seeds serves every method, data set and epsilon, so whatever the replicates share
    (initialization, data stream) stays paired. The generator is fixed: a report built twice from
    the same rows is the same.

    Returns
    -------
    ndarray of shape (repeats + 1, n_seeds)
        float64 counts; every line sums to `n_seeds`.
    """
    rng = np.random.default_rng([_BOOTSTRAP_SEED, n_seeds])
    counts = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=repeats)
    return np.vstack([np.ones(n_seeds), counts])


def resampled_means(panel: Panel, weights: np.ndarray | None = None) -> np.ndarray:
    """Mean of every column in the sample and in every resample of its seeds.

    Parameters
    ----------
    panel : Panel
    weights : ndarray of shape (n_lines, n_seeds), optional
        By default `resampling_weights` for all seeds of the panel.

    Returns
    -------
    ndarray of shape (n_lines, n_cells)
        NaN where a resample holds no finite value.
    """
    if weights is None:
        weights = resampling_weights(len(panel.seeds))
    finite = np.isfinite(panel.values)
    total = weights @ np.where(finite, panel.values, 0.0)
    if finite.all():
        count = np.full(total.shape, float(len(panel.seeds)))
    else:
        count = weights @ finite.astype(float)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def percentile_interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """95 % percentile interval of each column; the first line is the sample and does not count."""
    resamples = resampled[1:]
    low = np.full(resampled.shape[1], np.nan)
    high = np.full(resampled.shape[1], np.nan)
    known = np.isfinite(resamples).all(axis=0)
    if known.any():
        low[known], high[known] = np.quantile(resamples[:, known], [0.025, 0.975], axis=0)
    return low, high


def latex(table: pd.DataFrame, caption: str, label: str) -> str:
    """Set a table in LaTeX with booktabs rules; special characters are escaped."""
    texts = table.map(_latex_cell).rename(columns=lambda name: _latex_escape(str(name)))
    text = texts.to_latex(index=False, caption=_latex_escape(caption), label=label)
    return text.replace(r"\caption", "\\centering\\small\n\\caption", 1)


def _latex_cell(value: object) -> str:
    return _latex_escape(f"{value:.4g}" if isinstance(value, float) else str(value))


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "α": r"$\alpha$",
    "–": "--",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "²": r"$^2$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "×": r"$\times$",
}


def _latex_escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def write(
    table: pd.DataFrame,
    folder: Path,
    name: str,
    *,
    formatted: pd.DataFrame | None = None,
    caption: str = "",
) -> tuple[Path, Path]:
    """Write one table as ``<name>.csv`` (full precision) and ``<name>.tex`` (booktabs).

    Parameters
    ----------
    table : DataFrame
        The numbers, one observation per line.
    folder : Path
        Must exist.
    name : str
        File name without ending; also the LaTeX label.
    formatted : DataFrame, optional
        The same content laid out for print; `table` itself by default.
    caption : str
        Caption of the LaTeX table.

    Returns
    -------
    tuple of Path
        The CSV and the LaTeX file.
    """
    csv = Path(folder) / f"{name}.csv"
    tex = Path(folder) / f"{name}.tex"
    table.to_csv(csv, index=False)
    typeset = table if formatted is None else formatted
    tex.write_text(latex(typeset, caption, f"tab:{name}"), encoding="utf-8")
    return csv, tex
