"""Reported numbers of a paper against stored ones: which differ by more than chance.

A claims file lists, under ``reported: <name>:``, the `sweep` of the measured runs (or
several), the number of `runs` of a reported mean, the `epsilon` of the private ones,
`cells` (cells of tables of the paper: table, data set, method, and for each metric
``"mean ± standard deviation"`` as reported), `not_comparable` and `notes` (which of
these cells they concern, and a `reason`).
Where `metric` is named, each cell has a number for each method; with `area` it is that
of the area over epsilon. A number without a deviation is taken to have that of the
stored runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import MIN_SEEDS, NOT_COMPARABLE, NOT_RUN
from pkm.analysis.tables.statistics import area, column_statistics
from pkm.analysis.tables.study import Study, matches, raw_units
from pkm.schema import higher_is_better

WITHIN = "within sampling error"
BETTER = "better"
WORSE = "worse"
FEW_SEEDS = "too few seeds"
#: Verdicts as tables have them, where they are written otherwise.
SHORT = {WITHIN: "within", NOT_COMPARABLE: "n. c."}
#: Verdicts of the numbers that can be compared.
JUDGED = (WITHIN, BETTER, WORSE)
#: Columns of the evidence of a claim that reported numbers are reproduced.
EVIDENCE = [
    "dataset",
    "method",
    "metric",
    "mean",
    "deviation",
    "seeds",
    "reported",
    "margin",
    "ratio",
    "verdict",
    "note",
]
#: Keys of a reported cell that are no metrics.
PLACE = ("table", "dataset", "method")
#: A difference of more standard errors is no sampling error, unless `standard_errors`
#: says so.
STANDARD_ERRORS = 2
#: Share of the reported mean that a measured one may differ by to be near it.
NEAR_SHARE = 0.1
# Silhouettes are means over one fixed sample, whose error is the same for all seeds:
# the standard deviation of a mean of 10,000 silhouettes that scatter by about 0.2
# (other samples of the same labels of k-means on Gas agree).
SAMPLE_ERRORS = {"silhouette": 0.2 / np.sqrt(10_000)}


@dataclass(frozen=True)
class ReportedNumber:
    """A reported ``mean ± standard deviation``.

    Attributes
    ----------
    mean, deviation : float
        The deviation is NaN where none is reported.
    digit, deviation_digit : float
        One unit of the last reported digit of each: 0.01 of ``"0.61"``.
    """

    mean: float
    deviation: float
    digit: float
    deviation_digit: float

    @property
    def largest_deviation(self) -> float:
        """The largest deviation that is reported like this one."""
        return self.deviation + self.deviation_digit / 2


#: Where the paper says that there is no number.
NO_NUMBER = ReportedNumber(np.nan, np.nan, np.nan, np.nan)


def parse(text: str) -> ReportedNumber:
    """Parse ``"0.61 ± 0.02"``, ``"0.61"`` or ``"N/A"``, which is no number.

    Raises
    ------
    ValueError
        If the text has another form.

    Examples
    --------
    >>> parse("1.4e06 ± 1.3e05")  # doctest: +ELLIPSIS
    ReportedNumber(mean=1400000.0, deviation=130000.0, digit=100000.0, ...)
    """
    if text == "N/A":
        return NO_NUMBER
    try:
        mean_text, sign, deviation_text = text.partition("±")
        mean, digit = parse_number(mean_text)
        deviation, deviation_digit = (
            parse_number(deviation_text) if sign else (np.nan, np.nan)
        )
    except (InvalidOperation, ValueError):
        raise ValueError(
            f"reported number {text!r} should be 'mean ± standard deviation', "
            "a mean or 'N/A'"
        ) from None
    return ReportedNumber(mean, deviation, digit, deviation_digit)


def parse_number(text: str) -> tuple[float, float]:
    """Parse one reported number: its value and one unit of its last digit.

    Examples
    --------
    >>> parse_number("1.33e6")
    (1330000.0, 10000.0)
    """
    value = Decimal(text.strip())
    exponent = value.as_tuple().exponent
    return float(value), float(Decimal(1).scaleb(exponent))


def list_reported_cells(reported: Mapping) -> list[Mapping]:
    """Return the reported cells, one for each data set and method; see the module."""
    if "metric" not in reported:
        return reported["cells"]
    return [
        {"dataset": cell["dataset"], "method": method, reported["metric"]: text}
        for cell in reported["cells"]
        for method, text in cell.items()
        if method != "dataset"
    ]


def compare_reported(
    study: Study,
    reported: Mapping,
) -> pd.DataFrame:
    """Compare every reported number with the stored one.

    Parameters
    ----------
    study : Study
    reported : mapping
        One entry of a claims file's `reported`; see the module.

    Returns
    -------
    DataFrame
        One row per reported number: `table`, `dataset`, `method`, `metric`, `mean`,
        `deviation` (n - 1), `seeds`, `reported`, `reported_mean`, `reported_deviation`,
        `margin` (some standard errors of both and half a reported digit, where the
        reported deviation is taken half a digit larger and the error of a fixed sample
        is counted in), `ratio` (measured over reported), `verdict`, `short` (the same
        in a table), `reason` (why it cannot be compared), `note`, `epsilon`,
        `epsilon_spent`, `adjacency`.
    """
    numbers = [
        {name: cell[name] for name in PLACE if name in cell}
        | {"metric": metric, "reported": text}
        for cell in list_reported_cells(reported)
        for metric, text in cell.items()
        if metric not in PLACE
    ]
    table = pd.DataFrame(numbers)
    metrics = table["metric"].unique()
    stored = pd.concat([_measure(study, reported, metric) for metric in metrics])
    table = table.merge(
        stored,
        on=["dataset", "method", "metric"],
        how="left",
    )
    table["reason"] = _find_reasons(table, reported.get("not_comparable", ()))
    table["note"] = _find_reasons(table, reported.get("notes", ()))
    known = set(zip(stored["dataset"], stored["method"], strict=True))
    judged = [
        _judge_number(row, (row["dataset"], row["method"]) in known, reported)
        for row in table.fillna({"seeds": 0}).to_dict("records")
    ]
    return pd.DataFrame(judged).astype({"seeds": int})


def _measure(
    study: Study,
    reported: Mapping,
    metric: str,
) -> pd.DataFrame:
    """Summarize each data set and method in raw units: mean, deviation, seeds."""
    matrix = study.matrix(reported["sweep"], metric)
    matrix = area(matrix) if reported.get("area") else raw_units(matrix)
    epsilon = matrix.cells["epsilon"].astype(float)
    is_near = np.isclose(epsilon, reported.get("epsilon", np.nan))
    matrix = matrix.take(epsilon.isna() | is_near)

    summary = column_statistics(matrix.values)
    columns = ["dataset", "method", "epsilon", "epsilon_spent", "adjacency"]
    cells = matrix.cells.reindex(columns=columns).assign(
        metric=metric, **summary[["mean", "deviation", "seeds"]]
    )
    return cells.drop_duplicates(["dataset", "method"], keep="last")


def _judge_number(
    row: dict,
    has_rows: bool,
    reported: Mapping,
) -> dict:
    """Compare one reported number with the measured one."""
    value = parse(row["reported"])
    mean = row["mean"]
    is_measured = np.isfinite(mean)
    # Standard errors of the reported mean, of the measured one and of a fixed sample.
    largest = value.largest_deviation
    deviation = row["deviation"] if np.isnan(largest) else largest
    errors = [
        deviation / np.sqrt(reported["runs"]),
        np.nan_to_num(row["deviation"]) / np.sqrt(max(row["seeds"], 1)),
        SAMPLE_ERRORS.get(row["metric"], 0.0),
    ]
    n_errors = reported.get("standard_errors", STANDARD_ERRORS)
    margin = n_errors * np.linalg.norm(errors) + value.digit / 2
    row = row | {
        "reported_mean": value.mean,
        "reported_deviation": value.deviation,
        "margin": margin if is_measured else np.nan,
        "ratio": mean / value.mean if value.mean else np.nan,
    }
    reason = row["reason"]
    if value is NO_NUMBER:
        reason = "the paper reports no number"
    if not has_rows or (value is not NO_NUMBER and not is_measured):
        judged = {"verdict": NOT_RUN, "reason": "no stored rows"}
    else:
        difference = mean - value.mean
        is_better = (difference > 0) == higher_is_better(row["metric"])
        verdict = BETTER if is_better else WORSE
        if abs(difference) <= margin:
            verdict = WITHIN
        judged = qualify(verdict, reason, row["seeds"])
    short = SHORT.get(judged["verdict"], judged["verdict"])
    return row | judged | {"short": short}


def qualify(
    verdict: str,
    reason: str,
    seeds: float,
) -> dict:
    """Return a verdict on a reported number, unless a reason or few seeds forbid."""
    if reason:
        verdict = NOT_COMPARABLE
    elif seeds < MIN_SEEDS:
        verdict = FEW_SEEDS
        reason = f"{seeds:.0f} seeds"
    return {"verdict": verdict, "reason": reason}


def _find_reasons(
    table: pd.DataFrame,
    rules: Sequence[Mapping],
) -> pd.Series:
    """Find the reason of the first rule that concerns each number.

    A rule without keys concerns all.
    """
    reasons = pd.Series("", table.index)
    for rule in reversed(rules):
        selector = {name: rule[name] for name in rule if name != "reason"}
        reasons[matches(table, selector)] = rule["reason"]
    return reasons


def with_means(
    table: pd.DataFrame,
    cells: Sequence[Mapping],
    metric: str,
) -> pd.DataFrame:
    """Add the reported means of a metric as `reported`, by data set and method."""
    keys = ["dataset", "method"]
    means = pd.DataFrame(cells)[keys]
    means["reported"] = [parse(cell[metric]).mean for cell in cells]
    return table.merge(
        means,
        on=keys,
        how="left",
    )


def counts_text(
    verdicts: pd.Series,
    separator: str = "; ",
) -> str:
    """Say how many numbers have each verdict."""
    counts = verdicts.value_counts()
    texts = [f"{count} {name}" for name, count in counts.items()]
    return separator.join(texts)


def is_near(row: Mapping) -> bool:
    """Tell whether a measured mean is near the reported one, or rounds to a zero."""
    reported_mean = row["reported_mean"]
    allowed = NEAR_SHARE * abs(reported_mean) or parse(row["reported"]).digit / 2
    return abs(row["mean"] - reported_mean) <= allowed
