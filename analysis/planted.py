"""Curves over one quantity: costs on instances whose optimum is known, and the excess above it.

A check names a `sweep` (or several), a `metric`, a selector (`method`: a name, or column values),
what the curve runs `along` (``n``, ``k``, ``d``, ``epsilon``, a parameter, or ``small``, the size
of the one small ball) and what its `value` is:

* ``mean``: the metric itself, a cost per point;
* ``cost``: the metric times n;
* ``excess``: the cost less that of k-means, taken for the optimum, on the same data set;
  where all points of a ball coincide the optimum is 0;
* ``ratio``: the cost over that of the optimum.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pkm.analysis.findings import Context, Draws, MissingRows, check_type, join_texts
from pkm.analysis.tables import (
    Panel,
    Study,
    matches,
    optimum_columns,
    panel_of_sweeps,
    percentile_interval,
    resampled_means,
)

_NAME = re.compile(r"planted-(?:small-)?\d+-\d+-\d+-(?P<ball>0(?:\.\d+)?)(?:-(?P<small>\d+))?")
OPTIMUM = "kmeans"
#: Keys that select a curve.
CURVE = (
    "sweep", "metric", "method", "along", "value", "min_values", "expected", "reach", "needs",
)  # fmt: skip
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
        facts = self.cells.filter(["method", "dataset", "smallest", "largest"])
        return facts.assign(**{self.along: self.x}, value=self.values[0], low=low, high=high)

    def draws(
        self, values: np.ndarray, name: str, check: Mapping, text: str = "", logs: bool = True
    ) -> Draws:
        """Return one value about the whole curve.

        A check may name the last value (`reach`) and the number of values (`expected`) that the
        claim is about, and the value below which nothing is decided (`needs`). A curve with a value
        that is not positive has no logarithms (`logs`), and decides nothing either.
        """
        last = self.x.max() * (1 + 1e-9)
        n_values = len(self.x)
        n_expected = check.get("expected", n_values)
        missing = ""
        if n_values < n_expected:
            missing = f"{n_values} of {n_expected} values of {self.along}"
        if last < check.get("reach", last):
            short = f"{self.along} up to {self.x.max():g} instead of {check['reach']:g}"
            missing = join_texts(short, missing)
        undecided = ""
        if last < check.get("needs", last):
            undecided = f"Sizes up to {self.along} = {check['needs']:g} are needed for a verdict."
        is_positive = self.values[0] > 0
        if logs and not is_positive.all():
            first = self.x[~is_positive][0]
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

    # The cells of the curve, by x.
    means, seeds, known = relative_means(panel, value)
    selected = matches(cells, selector) & cells[along].notna().to_numpy() & known
    of_curve = cells[selected]
    # Of the curve alone: without a cell pandas would take over all of a longer column.
    of_curve = of_curve.assign(x=of_curve[along].astype(float)).sort_values("x", kind="stable")
    x = of_curve["x"].to_numpy()
    n_values = len(set(x))
    if n_values < check.get("min_values", 2):
        few = f"only {n_values} values of {along} are stored"
        raise MissingRows(few if n_values else context.why(check["sweep"]))
    if n_values < len(x):
        raise ValueError(
            f"selector {selector!r} matches several cells at one {along}: {x.tolist()}"
        )

    values = means[:, of_curve.index]
    if value in ("cost", "excess"):
        values = values * of_curve["n"].to_numpy()
    fewest = int(seeds[of_curve.index].min())
    return Curve(along, x, values, of_curve.reset_index(drop=True), fewest)


def relative_means(
    panel: Panel, value: str, optimum: str = OPTIMUM
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Resampled means of the cells of a panel, relative to those of the optimum where asked.

    Parameters
    ----------
    panel : Panel
        Its cells have the columns of `parse_planted_names`.
    value : str
        ``"excess"``: less the optimum on the same data set, which is 0 where all points of a ball
        coincide; ``"ratio"``: over it; any other: as they are.
    optimum : str
        The method whose cost stands for the optimum.

    Returns
    -------
    means : ndarray of shape (repeats + 1, n_cells)
        NaN where there is no optimum.
    seeds : ndarray of shape (n_cells,), int
        Those that the optimum has, too.
    known : ndarray of shape (n_cells,), bool
        Where there is one.
    """
    is_relative = np.full(len(panel.cells), value == "ratio")
    if value == "excess":
        is_relative = (panel.cells["ball"] != 0).to_numpy()
    optima = optimum_columns(panel.cells, optimum)
    known = ~is_relative | (optima >= 0)
    base = np.where(is_relative & known, optima, np.arange(len(optima)))
    means = resampled_means(panel)
    if value == "ratio":
        means = means / means[:, base]
    elif value == "excess":
        means = means - np.where(is_relative, means[:, base], 0.0)
    finite = np.isfinite(panel.values)
    return np.where(known, means, np.nan), (finite & finite[:, base]).sum(axis=0), known


@check_type(*CURVE, "other")
def slope(study: Study, check: Mapping, context: Context) -> Draws:
    """Check the slope of log(`value`) over log(`along`) against bounds.

    With `other`, a selector, the slope less that of this one. A curve that ends before `reach` is
    partial.
    """
    names = [name for name in ("method", "other") if name in check]
    lines = [curve(study, check, context, check[name]) for name in names]
    slopes = [line.slopes() for line in lines]
    line = lines[0]
    name = f"Slope over {line.along}"
    text = f"from {line.along} = {line.x.min():g} to {line.x.max():g}"
    if len(lines) > 1:
        name = f"Difference of slopes over {line.along}"
        methods = [each.cells["method"].iloc[0] for each in lines]
        single = [f"{each[0]:.3g} ({method})" for each, method in zip(slopes, methods, strict=True)]
        text = f"of {' and '.join(single)}, {text}"
    values = slopes[0] - (slopes[1] if len(lines) > 1 else 0)
    draws = [each.draws(values, name, check, text) for each in lines]
    return replace(
        draws[0],
        seeds=min(each.seeds for each in draws),
        evidence=pd.concat([each.evidence for each in draws], ignore_index=True),
        undecided=next(filter(None, (each.undecided for each in draws)), ""),
    )
