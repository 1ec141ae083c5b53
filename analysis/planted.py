"""Curves over one quantity: costs on instances whose optimum is known, and the excess above it.

A check names a `sweep` (or several), a `metric`, a selector (`method`: a name, or column values),
what the curve runs `along` (``n``, ``k``, ``d``, ``epsilon``, a parameter, or ``small``, the size
of the one small ball), optionally `where` (other columns it must have) and what its `value` is:

* ``mean``: the metric itself, a cost per point;
* ``cost``: the metric times n;
* ``excess``: the cost less that of `optimum` (a selector, k-means by default) on the same data set;
  where all points of a ball coincide the optimum is 0;
* ``ratio``: the cost over that of `optimum`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pkm.analysis.findings import Context, Draws, MissingRows, check_type
from pkm.analysis.tables import (
    Panel,
    Study,
    matches,
    panel_of_sweeps,
    percentile_interval,
    resampled_means,
)

_NAME = re.compile(r"planted-(?:small-)?\d+-\d+-\d+-(?P<ball>0(?:\.\d+)?)(?:-(?P<small>\d+))?")
OPTIMUM = "kmeans"
#: Keys that select a curve.
CURVE = ("sweep", "metric", "method", "along", "where", "value", "optimum", "min_values", "reach")
VALUES = ("mean", "cost", "excess", "ratio")


@dataclass(frozen=True)
class Curve:
    """One value along one quantity.

    Attributes
    ----------
    along : str
    x : ndarray of shape (m,)
        Sorted.
    values : ndarray of shape (repeats + 1, m)
        Line 0 is the sample itself, the others are resamples of the seeds.
    cells : DataFrame
        One line per value of `x`.
    seeds : int
        Fewest seeds of a value.
    """

    along: str
    x: np.ndarray
    values: np.ndarray
    cells: pd.DataFrame
    seeds: int

    def slopes(self, logarithmic: bool = True) -> np.ndarray:
        """Slope of log(value) over log(x) or log(log(x)); NaN if a value is not positive."""
        centered = self._centered_x(logarithmic)
        return self._logs() @ centered / (centered @ centered)

    def residuals(self, logarithmic: bool = True) -> np.ndarray:
        """Root mean square of log(value) about the line that `slopes` fits, on every line."""
        logs = self._logs()
        fitted = np.outer(self.slopes(logarithmic), self._centered_x(logarithmic))
        errors = logs - logs.mean(axis=1, keepdims=True) - fitted
        return np.sqrt((errors**2).mean(axis=1))

    def _centered_x(self, logarithmic: bool) -> np.ndarray:
        x = np.log(self.x) if logarithmic else np.log(np.log(self.x))
        return x - x.mean()

    def _logs(self) -> np.ndarray:
        return np.log(np.where(self.values > 0, self.values, np.nan))

    def evidence(self) -> pd.DataFrame:
        """One line per value: `x` under the name `along`, value, 95 % interval."""
        low, high = percentile_interval(self.values)
        facts = self.cells[["method", "dataset"]].reset_index(drop=True)
        return facts.assign(**{self.along: self.x}, value=self.values[0], low=low, high=high)

    def missing_reach(self, reach: float) -> str:
        """Say that the curve ends before the value that a claim needs; empty where it does not."""
        last = self.x.max()
        if last >= reach * (1 - 1e-9):
            return ""
        return f"{self.along} up to {last:g} instead of {reach:g}"

    def draws(
        self, values: np.ndarray, name: str, check: Mapping, text: str = "", logs: bool = True
    ) -> Draws:
        """Return one value about the whole curve, for a check that may name its `reach`.

        A curve with a value that is not positive has no logarithms (`logs`), and decides nothing.
        """
        missing = self.missing_reach(check["reach"]) if "reach" in check else ""
        positive = self.values[0] > 0
        undecided = ""
        if logs and not positive.all():
            first = self.x[~positive][0]
            undecided = f"Not above zero at {self.along} = {first:g}, so there is no slope."
        return Draws(
            values[:, None],
            self.cells[["method"]].iloc[:1],
            self.seeds,
            missing,
            name,
            complete=np.array([not missing]),
            evidence=self.evidence(),
            text=text,
            undecided=undecided,
        )


def parse_planted_names(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the facts that the names of planted data sets encode.

    Returns
    -------
    DataFrame
        `cells` with `ball` (radius of the planted balls, NaN for other data) and `small` (points of
        the small one, NaN if none).

    Examples
    --------
    >>> names = ["planted-small-100-2-3-0.05-7", "s1"]
    >>> parse_planted_names(pd.DataFrame({"dataset": names})).values.tolist()
    [['planted-small-100-2-3-0.05-7', 0.05, 7.0], ['s1', nan, nan]]
    """
    parts = cells["dataset"].astype(str).str.extract(_NAME)
    return cells.assign(ball=parts["ball"].astype(float), small=parts["small"].astype(float))


def planted_panel(study: Study, sweeps: str | Sequence[str], metric: str) -> Panel:
    """Panel of a metric over one or several sweeps, with the columns of `parse_planted_names`."""
    panel = panel_of_sweeps(study, sweeps, metric)
    return replace(panel, cells=parse_planted_names(panel.cells))


def curve(
    study: Study, check: Mapping, context: Context, method: str | Mapping | None = None
) -> Curve:
    """Find the curve of a check; `method` replaces its selector.

    Raises
    ------
    analysis.findings.MissingRows
        If fewer values than the check's `min_values` (2 by default) are stored.
    ValueError
        If the check's `value` is unknown, or its selector matches several cells at one `x`.
    """
    selector = method or check["method"]
    along = check["along"]
    value = check.get("value", "cost")
    if value not in VALUES:
        raise ValueError(f"value={value!r} is unknown; known: {VALUES}")
    panel = planted_panel(study, check["sweep"], check["metric"])
    cells = panel.cells
    if not len(cells) or along not in cells:
        raise MissingRows(context.why(check["sweep"]))

    # Select the cells of the curve, in the order of `along`.
    selected = matches(cells, selector) & matches(cells, check.get("where", {}))
    positions = np.flatnonzero(selected & cells[along].notna())
    x = cells[along].iloc[positions].to_numpy(dtype=float)
    positions = positions[np.argsort(x, kind="stable")]

    # Take each cell's value, relative to that of the optimum where the check says so.
    means = resampled_means(panel)
    is_optimum = matches(cells, check.get("optimum", OPTIMUM))
    columns = []
    values = []
    seeds = []
    for position in positions:
        cell = cells.loc[position]
        used = [position]
        line = means[:, position].copy()
        # The optimum is 0 where all points of a ball coincide.
        needs_optimum = value == "ratio" or (value == "excess" and cell["ball"] != 0)
        if needs_optimum:
            same_instance = (cells["dataset"] == cell["dataset"]) & (cells["k"] == cell["k"])
            optima = np.flatnonzero(is_optimum & same_instance)
            if not optima.size:
                continue
            used.append(optima[0])
            optimum = means[:, optima[0]]
            line = line - optimum if value == "excess" else line / optimum
        if value in ("cost", "excess"):
            line = line * cell["n"]
        paired = np.isfinite(panel.values[:, used]).all(axis=1)
        columns.append(position)
        values.append(line)
        seeds.append(np.count_nonzero(paired))

    x = cells[along].iloc[columns].to_numpy(dtype=float)
    n_values = len(set(x))
    if n_values < check.get("min_values", 2):
        few = f"only {n_values} values of {along} are stored"
        raise MissingRows(few if columns else context.why(check["sweep"]))
    if n_values < len(x):
        raise ValueError(
            f"selector {selector!r} matches several cells at one {along}: {x.tolist()}"
        )
    cells = cells.iloc[columns].reset_index(drop=True)
    return Curve(along, x, np.column_stack(values), cells, min(seeds))


@check_type(*CURVE)
def excess_slope(study: Study, check: Mapping, context: Context) -> Draws:
    """Check the slope of log(`value`) over log(`along`) against bounds.

    A curve that ends before `reach`, the last value that the claim is about, is partial.
    """
    line = curve(study, check, context)
    text = f"from {line.along} = {line.x.min():g} to {line.x.max():g}"
    return line.draws(line.slopes(), f"Slope over {line.along}", check, text)
