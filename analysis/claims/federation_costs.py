"""What federated runs cost, from per-seed rows: time in parts, bytes and rounds.

Costs are compared with the numbers that a paper reports. A claims file lists, under
``reported: <name>:``, the `sweep` and `method` of the measured runs, `slept_ms`
(latency in a reported iteration) and `cells`: data set, `title`, ``iteration_ms: "mean
± half-width"`` and `bytes_per_iteration` as reported; where the paper quotes another
protocol, `cited_ms` with the reported `speedup`, and `cited_bytes` with the reported
`reduction`.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import NOT_RUN
from pkm.analysis.claims.reported import ReportedNumber, parse, qualify
from pkm.analysis.tables.statistics import column_statistics
from pkm.analysis.tables.study import Study, matches
from pkm.yaml_files import read_file

_NAMES = read_file(Path(__file__).with_suffix(".yaml"))
COSTS = _NAMES["costs"]
FASTER = "faster"
SLOWER = "slower"
NO_DIFFERENCE = "no difference shown"
EQUAL = "equal"
DIFFERENT = "differs"


def network(latency_ms: float) -> str:
    """Name a simulated latency: LAN and WAN as in the paper, else milliseconds."""
    return _NAMES["networks"].get(latency_ms, f"{latency_ms:g} ms a send")


def costs(study: Study) -> pd.DataFrame:
    """Compute what an iteration costs in every federated cell, MPI before threads.

    Returns
    -------
    DataFrame
        The cells of all sweeps with `network`, `seeds` and, for each of `COSTS`, its
        mean and ``<name>_half_width`` (95 % Student t interval over runs).
    """
    cells = study.cells.query("clients > 0").sort_values("transport", kind="stable")
    cells = cells.assign(network=cells["latency_ms"].map(network))
    key = ["sweep", "cell"]
    sweeps = list(cells["sweep"].unique())
    measured = pd.DataFrame(index=pd.MultiIndex.from_frame(cells[key]))
    for cost in COSTS:
        matrix = study.matrix(sweeps, cost)
        summary = column_statistics(matrix.values)
        summary.index = pd.MultiIndex.from_frame(matrix.cells[key])
        measured[cost] = summary["mean"]
        measured[f"{cost}_half_width"] = summary["half_width"]
        if cost == "iteration_ms":
            measured["seeds"] = summary["seeds"]
    measured = measured.fillna({"seeds": 0}).astype({"seeds": int})
    return cells.join(measured, on=key).reset_index(drop=True)


def transports(table: pd.DataFrame) -> str:
    """Describe how the messages of some cells were sent."""
    names = sorted(table["transport"].unique())
    return " and ".join(_NAMES["transports"].get(name, name) for name in names)


def compare_costs(
    study: Study,
    reported: Mapping,
) -> pd.DataFrame:
    """Compare every reported number of the protocol with the measured one.

    Bytes must be equal in every run, a reduction to the reported digits. A time is
    *faster* or *slower* if it differs by more than both half-widths together (root of
    the sum of squares) and half a reported digit. That compares machines and code
    together, so no verdict calls a time reproduced. Times of threads are not
    comparable.

    Parameters
    ----------
    study : Study
    reported : mapping
        One entry of a claims file's `reported`; see the module.

    Returns
    -------
    DataFrame
        One row per reported number: `dataset`, `quantity` (`iteration_ms`, `speedup`,
        `bytes_per_iteration` or `reduction`), `mean`, `half_width` (95 %), `seeds`,
        `transport`, `rounds` (of an iteration), `cited` (of the other protocol),
        `reported`, `reported_mean`, `ratio` (measured over reported),
        `ratio_without_latency`, `verdict`, `reason`.
    """
    table = costs(study)
    selector = {"sweep": reported["sweep"], "method": reported["method"]}
    # Where a data set was run with both transports, processes come before threads.
    stored = (
        table[matches(table, selector)]
        .drop_duplicates("dataset")
        .set_index("dataset")
        .to_dict("index")
    )
    rows = [
        _judge_cost(quantity, cell, stored.get(cell["dataset"], {}), reported)
        for cell in reported["cells"]
        for quantity in _NAMES["quantities"]
        if quantity in cell
    ]
    table = pd.DataFrame(rows)
    return table.assign(ratio=table["mean"] / table["reported_mean"])


def _judge_cost(
    quantity: str,
    cell: Mapping,
    measured: Mapping,
    reported: Mapping,
) -> dict:
    """Compare a reported number with the measured cost that it rests on, if any."""
    cost, cited = _NAMES["quantities"][quantity]
    value = parse(cell[quantity])
    printed = parse(cell[cost])
    mean = measured.get(cost, np.nan)
    row = {
        "dataset": cell["dataset"],
        "quantity": quantity,
        "mean": mean,
        "half_width": np.nan,
        "rounds": measured.get("rounds_per_iteration", np.nan),
        "reported": cell[quantity],
        "reported_mean": value.mean,
        "cited": parse(cell[cited]).mean if cited else np.nan,
        "seeds": measured.get("seeds", 0),
        "transport": measured.get("transport", ""),
        "reason": "",
    }
    if not measured:
        return row | {"verdict": NOT_RUN, "reason": "no stored rows"}
    if cost == "iteration_ms":
        row |= _judge_time(printed, measured, reported["slept_ms"])
    else:
        # All runs must have the printed number of bytes.
        is_constant = not measured[f"{cost}_half_width"] > 0
        is_equal = is_constant and mean == printed.mean
        row["verdict"] = EQUAL if is_equal else DIFFERENT
    if cited:
        factor = row["cited"] / mean
        row["mean"] = factor
        row["half_width"] *= factor / mean
        row["ratio_without_latency"] = np.nan
        if row["verdict"] == EQUAL and abs(factor - value.mean) > value.digit / 2:
            row["verdict"] = DIFFERENT
    return row


def _judge_time(
    value: ReportedNumber,
    measured: Mapping,
    slept_ms: float,
) -> dict:
    mean = measured["iteration_ms"]
    half_width = measured["iteration_ms_half_width"]
    # Two sends an iteration, one up and one down.
    without_latency = mean - 2 * measured["latency_ms"]
    margin = np.hypot(half_width, value.largest_deviation) + value.digit / 2
    verdict = FASTER if mean < value.mean else SLOWER
    if abs(mean - value.mean) <= margin:
        verdict = NO_DIFFERENCE
    reason = _NAMES["threads"] if measured["transport"] == "threads" else ""
    return {
        "half_width": half_width,
        "ratio_without_latency": without_latency / (value.mean - slept_ms),
        **qualify(verdict, reason, measured["seeds"]),
    }
