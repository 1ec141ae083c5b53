"""Reported numbers of a paper against stored ones: which differ by more than sampling error.

A claims file lists, under ``reported: <name>:``, the `sweeps` of the measured runs, the number of
`runs` of a reported mean, the `epsilon` of the private ones, `cells` (table, data set, method, and
for each metric ``"mean ± standard deviation"`` as reported), `not_comparable` and `notes` (which
cells they concern, and a `reason`). Where `metric` is named, each cell has a number for each
method; with `area` it is that of the area over epsilon. A number without a deviation is taken to
have that of the stored runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import MIN_SEEDS
from pkm.analysis.tables.statistics import area, column_statistics
from pkm.analysis.tables.study import Study, raw_units
from pkm.schema import higher_is_better

WITHIN = "within sampling error"
BETTER = "better"
WORSE = "worse"
NOT_COMPARABLE = "not comparable"
FEW_SEEDS = "too few seeds"
NOT_STORED = "not run"
#: Verdicts of the numbers that can be compared.
JUDGED = (WITHIN, BETTER, WORSE)
#: Columns of the evidence of a claim that reported numbers are reproduced.
EVIDENCE = [
    "dataset", "method", "metric", "mean", "deviation", "seeds", "reported", "margin", "ratio",
    "verdict", "note",
]  # fmt: skip
#: Keys of a reported cell that are no metrics.
PLACE = ("table", "dataset", "method")
#: A difference of more standard errors is no sampling error, unless `standard_errors` says so.
STANDARD_ERRORS = 2
#: Share of the reported mean that a measured one may differ by to be near it.
NEAR_SHARE = 0.1
# Silhouettes are means over one fixed sample, whose error is the same for all seeds: the
# standard deviation of a mean of 10,000 silhouettes that scatter by about 0.2 (other samples of the
# same labels of k-means on Gas agree).
SAMPLE_ERRORS = {"silhouette": 0.2 / np.sqrt(10_000)}


@dataclass(frozen=True)
class ReportedNumber:
    """A reported ``mean ± standard deviation``.

    Attributes
    ----------
    mean, deviation : float
        The deviation is NaN where none is reported.
    unit, deviation_unit : float
        One unit of the last reported digit of each.
    """

    mean: float
    deviation: float
    unit: float
    deviation_unit: float

    @property
    def largest_deviation(self) -> float:
        """The largest deviation that is reported like this one."""
        return self.deviation + self.deviation_unit / 2


def parse(text: str) -> ReportedNumber | None:
    """Parse ``"0.61 ± 0.02"`` or ``"0.61"``; None where the paper says that there is no number.

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
        mean_text, sign, deviation_text = text.partition("±")
        mean, unit = number(mean_text)
        deviation, deviation_unit = number(deviation_text) if sign else (np.nan, np.nan)
    except (InvalidOperation, ValueError):
        raise ValueError(
            f"reported number {text!r} should be 'mean ± standard deviation', a mean or 'N/A'"
        ) from None
    return ReportedNumber(mean, deviation, unit, deviation_unit)


def number(text: str) -> tuple[float, float]:
    """Parse one reported number: its value and one unit of its last digit.

    Examples
    --------
    >>> number("1.33e6")
    (1330000.0, 10000.0)
    """
    value = Decimal(text.strip())
    unit = Decimal(1).scaleb(value.as_tuple().exponent)
    return float(value), float(unit)


def list_cells(reported: Mapping) -> list[Mapping]:
    """Return the reported cells, one for each data set and method; see the module."""
    if "metric" not in reported:
        return reported["cells"]
    return [
        {"dataset": cell["dataset"], "method": method, reported["metric"]: text}
        for cell in reported["cells"]
        for method, text in cell.items()
        if method != "dataset"
    ]


def compare(study: Study, reported: Mapping) -> pd.DataFrame:
    """Compare every reported number with the stored one.

    Parameters
    ----------
    study : analysis.tables.study.Study
    reported : mapping
        One entry of a claims file's `reported`; see the module.

    Returns
    -------
    DataFrame
        One line per reported number: `table`, `dataset`, `method`, `metric`, `mean`, `deviation`
        (n - 1), `seeds`, `reported`, `reported_mean`, `reported_deviation`, `margin` (some standard
        errors of both and half a reported digit, where the reported deviation is taken half a digit
        larger and the error of a fixed sample is counted in), `ratio` (measured over reported),
        `verdict`, `reason` (why it cannot be compared), `note`, `epsilon`, `epsilon_spent`,
        `adjacency`.
    """
    cells = list_cells(reported)
    names = dict.fromkeys(key for cell in cells for key in cell)
    metrics = [name for name in names if name not in PLACE]
    stored = {metric: _stored(study, reported, metric) for metric in metrics}
    known = {pair for cells in stored.values() for pair in cells}
    lines = []
    for cell, metric in product(cells, metrics):
        if metric in cell:
            pair = (cell["dataset"], cell["method"])
            key = {name: cell[name] for name in PLACE if name in cell} | {"metric": metric}
            measured = stored[metric].get(pair)
            lines.append(key | _compared(cell[metric], measured, pair in known, key, reported))
    return pd.DataFrame(lines)


Measured = tuple[float, float, int, dict]


def _stored(study: Study, reported: Mapping, metric: str) -> dict[tuple[str, str], Measured]:
    """Mean, deviation, seeds and cell of each data set and method, in raw units."""
    matrix = study.matrix(reported["sweeps"], metric)
    if not len(matrix.cells):
        return {}
    matrix = area(matrix) if reported.get("area") else raw_units(matrix)
    epsilon = matrix.cells["epsilon"]
    near = np.isclose(epsilon, reported.get("epsilon", np.nan))
    matrix = matrix.take((epsilon.isna() | near).to_numpy())
    mean, _, _, deviation, count = column_statistics(matrix.values)
    cells = matrix.cells.to_dict("records")
    return {
        (cell["dataset"], cell["method"]): (mean[i], deviation[i], int(count[i]), cell)
        for i, cell in enumerate(cells)
    }


def _compared(
    text: str, measured: Measured | None, has_rows: bool, key: Mapping, reported: Mapping
) -> dict:
    """Compare one reported number (None where the paper reports none) with the measured one."""
    value = parse(text)
    mean, deviation, seeds, cell = measured or (np.nan, np.nan, 0, {})
    facts = {name: cell.get(name, np.nan) for name in ("epsilon", "epsilon_spent", "adjacency")}
    line = {
        "mean": mean,
        "deviation": deviation,
        "seeds": seeds,
        "reported": text,
        "reported_mean": np.nan if value is None else value.mean,
        "reported_deviation": np.nan if value is None else value.deviation,
        "margin": np.nan,
        "ratio": np.nan,
        "note": _reason(reported.get("notes", ()), key),
        **facts,
    }
    if value is not None and np.isfinite(mean):
        # Standard errors of the reported mean, of the measured one and of a fixed sample.
        errors = [
            np.nan_to_num(value.largest_deviation, nan=deviation) / np.sqrt(reported["runs"]),
            np.nan_to_num(deviation) / np.sqrt(seeds),
            SAMPLE_ERRORS.get(key["metric"], 0.0),
        ]
        allowed = reported.get("standard_errors", STANDARD_ERRORS)
        line["margin"] = allowed * np.linalg.norm(errors) + value.unit / 2
        line["ratio"] = mean / value.mean if value.mean else np.nan

    # Give the reason where the two cannot be compared.
    if not has_rows or (value is not None and not np.isfinite(mean)):
        return line | {"verdict": NOT_STORED, "reason": "no stored rows"}
    if value is None:
        return line | {"verdict": NOT_COMPARABLE, "reason": "the paper reports no number"}
    reason = _reason(reported.get("not_comparable", ()), key)
    if reason:
        return line | {"verdict": NOT_COMPARABLE, "reason": reason}
    if seeds < MIN_SEEDS:
        return line | {"verdict": FEW_SEEDS, "reason": f"{seeds} seeds"}
    sign = 1 if higher_is_better(key["metric"]) else -1
    gain = sign * (mean - value.mean)
    outside = BETTER if gain > 0 else WORSE
    verdict = WITHIN if abs(gain) <= line["margin"] else outside
    return line | {"verdict": verdict, "reason": ""}


def _reason(rules: Sequence[Mapping], key: Mapping) -> str:
    """Text of the first rule that concerns a cell; a rule without a key concerns all its values."""
    for rule in rules:
        concerned = [
            f"{name}s" not in rule or key[name] in rule[f"{name}s"]
            for name in ("dataset", "method", "metric")
        ]
        if all(concerned):
            return rule["reason"]
    return ""


def counts_text(verdicts: pd.Series, separator: str = "; ") -> str:
    """Say how many numbers have each verdict."""
    return separator.join(f"{count} {name}" for name, count in verdicts.value_counts().items())


def near(line: Mapping) -> bool:
    """Tell whether a measured mean is within a tenth of the reported one, or rounds to a zero."""
    value = parse(line["reported"])
    assert value is not None, "only reported numbers are judged"
    allowed = NEAR_SHARE * abs(line["reported_mean"]) or value.unit / 2
    return abs(line["mean"] - line["reported_mean"]) <= allowed
