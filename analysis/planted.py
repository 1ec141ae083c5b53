"""Curves over one quantity with resampled means: costs on instances whose optimum is known, and
what is paid above it.

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
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from pkm.analysis.findings import INCONCLUSIVE, Finding, MissingRows, decide, within
from pkm.analysis.tables import (
    concatenate,
    percentile_interval,
    resampled_means,
    resampling_weights,
)

_NAME = re.compile(r"planted-(?:small-)?\d+-\d+-\d+-(?P<ball>0(?:\.\d+)?)(?:-(?P<small>\d+))?")
OPTIMUM = "kmeans"
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
        One line per place.
    seeds : int
        Fewest seeds behind a place.
    """

    along: str
    x: np.ndarray
    values: np.ndarray
    cells: pd.DataFrame
    seeds: int

    def slopes(self, logarithmic=True):
        """Slope of log(value) over log(x), or over log(log(x)); NaN in lines with a value that is
        not positive.
        """
        x = np.log(self.x) if logarithmic else np.log(np.log(self.x))
        centerd = x - x.mean()
        return self._logs() @ centerd / (centerd @ centerd)

    def residuals(self, logarithmic=True):
        """Root mean square of log(value) about the line that `slopes` fits, on every line."""
        x = np.log(self.x) if logarithmic else np.log(np.log(self.x))
        logs, centerd = self._logs(), x - x.mean()
        apart = (
            logs - logs.mean(axis=1, keepdims=True) - np.outer(self.slopes(logarithmic), centerd)
        )
        return np.sqrt((apart**2).mean(axis=1))

    def _logs(self):
        return np.log(np.where(self.values > 0, self.values, np.nan))

    def evidence(self):
        """One line per place: `x` under its own name, value, 95 % interval, seeds."""
        low, high = percentile_interval(self.values)
        facts = self.cells[["method", "dataset"]].reset_index(drop=True)
        return facts.assign(**{self.along: self.x}, value=self.values[0], low=low, high=high)


def described(cells):
    """Add `ball` (radius of the planted balls, NaN for other data) and `small` (points of the small
    one, NaN if none).

    Examples
    --------
    >>> described(pd.DataFrame({"dataset": ["planted-small-100-2-3-0.05-7", "s1"]})).values.tolist()
    [['planted-small-100-2-3-0.05-7', 0.05, 7.0], ['s1', nan, nan]]
    """
    found = cells["dataset"].astype(str).str.extract(_NAME)
    return cells.assign(ball=found["ball"].astype(float), small=found["small"].astype(float))


def joined(study, sweeps, metric):
    """Panel of a metric over one or several sweeps, with `described` cells; no columns where
    nothing is stored.
    """
    sweeps = [sweeps] if isinstance(sweeps, str) else list(sweeps)
    found = [panel for name in sweeps if len((panel := study.panel(name, metric)).cells)]
    panel = concatenate(found) if found else study.panel(sweeps[0], metric)
    return type(panel)(
        panel.metric, described(panel.cells), panel.seeds, panel.values, panel.left_out
    )


def chosen(cells, selector):
    """Mask of the cells that a selector means: a method's name, or a mapping of columns to values
    or lists of them.
    """
    selector = {"method": selector} if isinstance(selector, str) else selector
    mask = np.ones(len(cells), dtype=bool)
    for name, value in selector.items():
        values = value if isinstance(value, list | tuple) else [value]
        mask &= cells[name].isin(values).to_numpy() if name in cells else False
    return mask


def curve(study, check, context, method=None):
    """Find the curve of a check; `method` replaces its selector.

    Raises
    ------
    analysis.findings.MissingRows
        If fewer than `places` places (2 unless said) are stored.
    """
    selector, along, value = method or check["method"], check["along"], check.get("value", "cost")
    if value not in VALUES:
        raise ValueError(f"value={value!r} is unknown; known: {VALUES}")
    sweeps = [check["sweep"]] if isinstance(check["sweep"], str) else list(check["sweep"])
    panel = joined(study, sweeps, check["metric"])
    cells = panel.cells
    if not len(cells) or along not in cells:
        raise MissingRows(context.why(sweeps))
    mine = np.flatnonzero(
        chosen(cells, selector) & chosen(cells, check.get("where", {})) & cells[along].notna()
    )
    order = np.argsort(cells[along].iloc[mine].to_numpy(dtype=float), kind="stable")
    mine = mine[order]
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    values, kept, seeds = [], [], []
    for at in mine:
        line = means[:, at].copy()
        used = [at]
        if value in ("excess", "ratio") and not (value == "excess" and cells["ball"][at] == 0):
            best = chosen(cells, check.get("optimum", OPTIMUM)) & (
                cells["dataset"] == cells["dataset"][at]
            )
            best = np.flatnonzero(best & (cells["k"] == cells["k"][at]))
            if not best.size:
                continue
            used.append(best[0])
            line = line - means[:, best[0]] if value == "excess" else line / means[:, best[0]]
        values.append(line if value in ("mean", "ratio") else line * cells["n"][at])
        kept.append(at)
        seeds.append(int(np.isfinite(panel.values[:, used]).all(axis=1).sum()))
    x = cells[along].iloc[kept].to_numpy(dtype=float)
    if len(set(x)) < check.get("places", 2):
        raise MissingRows(
            context.why(sweeps) if not kept else f"only {len(set(x))} values of {along} are stored"
        )
    if len(set(x)) < len(x):
        raise ValueError(
            f"selector {selector!r} matches several cells at one {along}: {x.tolist()}"
        )
    return Curve(
        along, x, np.column_stack(values), cells.iloc[kept].reset_index(drop=True), min(seeds)
    )


def not_positive(line):
    """Finding for a curve that has no logarithm, None for one that has."""
    if (line.values[0] > 0).all():
        return None
    at = line.x[np.flatnonzero(~(line.values[0] > 0))[0]]
    numbers = f"What is paid above the optimum is not above zero at {line.along} = {at:g}, so it has no slope."
    return Finding(INCONCLUSIVE, numbers, 1, line.seeds, "", line.evidence())


def spans(line, reach):
    """Say that a curve does not reach as far as the claim asks; empty where it does."""
    last = line.x.max()
    return "" if last >= reach * (1 - 1e-9) else f"{line.along} up to {last:g} instead of {reach:g}"


def asked(check):
    """Write the bounds of a check: ``≥ 1 and ≤ 2``."""
    signs = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}
    return " and ".join(f"{sign} {check[name]:g}" for name, sign in signs.items() if name in check)


def slope_table(lines, slopes):
    """One line per curve: method, ends, number of places, slope with its 95 % interval."""
    low, high = percentile_interval(np.column_stack(slopes))
    parts = zip(lines, slopes, low, high, strict=True)
    return pd.DataFrame(
        {
            "method": line.cells["method"].iloc[0],
            "from": line.x.min(),
            "to": line.x.max(),
            "values": line.x.size,
            "slope": slope[0],
            "low": bottom,
            "high": top,
        }
        for line, slope, bottom, top in parts
    )


def shown(slopes):
    """The lines of `slope_table` in words."""
    return "; ".join(
        f"{line.method} {line.slope:.3g} [{line.low:.3g}, {line.high:.3g}]"
        for line in slopes.itertuples()
    )


def excess_slope(study, check, context):
    """Check the slope of log(`value`) over log(`along`) against bounds.

    Options: `reach`, the last place that the claim asks for; what is stored to a smaller one is
    partial.
    """
    line = curve(study, check, context)
    if (found := not_positive(line)) is not None:
        return found
    slope = line.slopes()
    evidence = slope_table([line], [slope])
    numbers = (
        f"Slope over {line.along} from {line.x.min():g} to {line.x.max():g}: {shown(evidence)} "
    )
    numbers += f"(asked: {asked(check)});"
    lacking = spans(line, check["reach"]) if "reach" in check else ""
    found = decide(within(slope, check)[:, None], evidence, line.seeds, numbers, lacking, evidence)
    return replace(
        found, evidence=line.evidence().assign(outcome=found.evidence["outcome"].iloc[0])
    )
