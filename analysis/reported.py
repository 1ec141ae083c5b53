"""Reported numbers of a paper beside stored ones: who is better by more than sampling error, and
what is comparable.

A claims file lists, under ``reported: <name>:``, the `sweeps` that hold our runs, the `runs` behind
a reported number, the `epsilon` they used, if any, `cells` (table, data set, method, and for each
metric ``"mean ± standard deviation"`` as reported), `not_comparable` and `notes` (which cells they
concern, and a `reason`).
"""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product

import numpy as np
import pandas as pd

from pkm.analysis.findings import MIN_SEEDS
from pkm.analysis.tables import (
    HIGHER_IS_BETTER,
    column_statistics,
    concatenate,
    raw_units,
    standard_deviations,
)

WITHIN, BETTER, WORSE = "within sampling error", "better", "worse"
NOT_COMPARABLE, FEW_SEEDS, NOT_STORED = "not comparable", "too few seeds", "not run"
JUDGED = (WITHIN, BETTER, WORSE)
STANDARD_ERRORS = 2
LOOSE = 0.1
# Silhouettes are means over one fixed sample, whose error no number of seeds averages away: the
# standard deviation of a mean of 10,000 silhouettes that scatter by about 0.2 (other samples of the
# same labels of k-means on Gas agree).
SAMPLE_ERRORS = {"silhouette": 0.2 / np.sqrt(10_000)}


@dataclass(frozen=True)
class ReportedNumber:
    """A reported ``mean ± standard deviation``.

    Attributes
    ----------
    mean, deviation : float
    unit, deviation_unit : float
        One unit of the last reported digit of each.
    """

    mean: float
    deviation: float
    unit: float
    deviation_unit: float

    @property
    def largest_deviation(self):
        """The largest deviation that is reported like this one."""
        return self.deviation + self.deviation_unit / 2


def parse(text):
    """Read ``"0.61 ± 0.02"``; None where the paper prints that there is no number.

    Raises
    ------
    ValueError
        If the text has another form.

    Examples
    --------
    >>> parse("1.4e06 ± 1.3e05")
    ReportedNumber(mean=1400000.0, deviation=130000.0, unit=100000.0, deviation_unit=10000.0)
    >>> parse("N/A") is None
    True
    """
    if text == "N/A":
        return None
    try:
        (mean, unit), (deviation, deviation_unit) = (number(part) for part in text.split("±"))
    except (InvalidOperation, ValueError):
        raise ValueError(
            f"reported number {text!r} should be 'mean ± standard deviation' or 'N/A'"
        ) from None
    return ReportedNumber(mean, deviation, unit, deviation_unit)


def number(text):
    """Read one reported number: its value and one unit of its last digit.

    Examples
    --------
    >>> number("1.33e6")
    (1330000.0, 10000.0)
    """
    value = Decimal(text.strip())
    return float(value), float(Decimal(1).scaleb(value.as_tuple().exponent))


def compare(study, reported):
    """Put every reported number beside the stored one.

    Parameters
    ----------
    study : analysis.tables.Study
    reported : mapping
        One entry of a claims file's `reported`; see the module.

    Returns
    -------
    DataFrame
        One line per reported number: `table`, `dataset`, `method`, `metric`, `mean`, `deviation` (n
        - 1), `seeds`, `reported`, `reported_mean`, `reported_deviation`, `margin` (two standard errors
        of both and half a reported digit, where the reported deviation is taken half a digit larger
        and the error of a fixed sample is counted in), `ratio` (ours over reported), `verdict`,
        `reason` (why it cannot be compared), `note`, `epsilon`, `epsilon_spent`, `adjacency`.
    """
    metrics = [name for name in dict.fromkeys(key for cell in reported["cells"] for key in cell)]
    metrics = [name for name in metrics if name not in ("table", "dataset", "method")]
    stored = {metric: _stored(study, reported, metric) for metric in metrics}
    known = {place for found in stored.values() for place in found}
    lines = []
    for cell, metric in product(reported["cells"], metrics):
        if metric not in cell:
            continue
        place = {
            "table": cell["table"],
            "dataset": cell["dataset"],
            "method": cell["method"],
            "metric": metric,
        }
        ours = stored[metric].get((cell["dataset"], cell["method"]))
        has_rows = (cell["dataset"], cell["method"]) in known
        lines.append(
            place | _compared(parse(cell[metric]), cell[metric], ours, has_rows, place, reported)
        )
    return pd.DataFrame(lines)


def _stored(study, reported, metric):
    """Mean, deviation, seeds and cell of each data set and method, in raw units."""
    panels = [
        panel for name in reported["sweeps"] if len((panel := study.panel(name, metric)).cells)
    ]
    if not panels:
        return {}
    panel = raw_units(concatenate(panels))
    epsilon = panel.cells["epsilon"]
    panel = panel.take(
        (epsilon.isna() | np.isclose(epsilon, reported.get("epsilon", np.nan))).to_numpy()
    )
    mean, _, _, count = column_statistics(panel.values)
    deviation = standard_deviations(panel.values)
    cells = panel.cells.to_dict("records")
    return {
        (cell["dataset"], cell["method"]): (mean[i], deviation[i], int(count[i]), cell)
        for i, cell in enumerate(cells)
    }


def _compared(asked, text, ours, has_rows, place, reported):
    mean, deviation, seeds, cell = ours or (np.nan, np.nan, 0, {})
    line = {
        "mean": mean,
        "deviation": deviation,
        "seeds": seeds,
        "reported": text,
        "reported_mean": np.nan if asked is None else asked.mean,
        "reported_deviation": np.nan if asked is None else asked.deviation,
        "margin": np.nan,
        "ratio": np.nan,
        "note": _reason(reported.get("notes", ()), place),
        **{name: cell.get(name, np.nan) for name in ("epsilon", "epsilon_spent", "adjacency")},
    }
    reason = _reason(reported.get("not_comparable", ()), place)
    if asked is not None and np.isfinite(mean):
        errors = [
            asked.largest_deviation / np.sqrt(reported["runs"]),
            np.nan_to_num(deviation) / np.sqrt(seeds),
        ]
        errors.append(SAMPLE_ERRORS.get(place["metric"], 0.0))
        line["margin"] = STANDARD_ERRORS * np.linalg.norm(errors) + asked.unit / 2
        line["ratio"] = mean / asked.mean if asked.mean else np.nan
    if not has_rows or (asked is not None and not np.isfinite(mean)):
        return line | {"verdict": NOT_STORED, "reason": "no stored rows"}
    if asked is None:
        return line | {"verdict": NOT_COMPARABLE, "reason": "the paper prints no number"}
    if reason:
        return line | {"verdict": NOT_COMPARABLE, "reason": reason}
    if seeds < MIN_SEEDS:
        return line | {"verdict": FEW_SEEDS, "reason": f"{seeds} seeds"}
    off = (mean - asked.mean) * (1 if place["metric"] in HIGHER_IS_BETTER else -1)
    verdict = WITHIN if abs(off) <= line["margin"] else BETTER if off > 0 else WORSE
    return line | {"verdict": verdict, "reason": ""}


def _reason(rules, place):
    """Text of the first rule that concerns a cell; a key that a rule lacks concerns all."""
    for rule in rules:
        if all(
            place[name] in rule.get(f"{name}s", (place[name],))
            for name in ("dataset", "method", "metric")
        ):
            return rule["reason"]
    return ""


def near(line):
    """Tell whether our mean lies within a tenth of the reported one, or rounds to it where that is
    0.
    """
    allowed = LOOSE * abs(line["reported_mean"]) or parse(line["reported"]).unit / 2
    return abs(line["mean"] - line["reported_mean"]) <= allowed
