"""What federated runs cost, from per-seed rows: time in parts, bytes and rounds.

Costs are compared with the numbers that a paper reports.

A claims file lists, under ``reported: <name>:``, the `sweep` and `method` of the measured runs,
`slept_ms` (latency in a reported iteration) and `cells`: data set, `title`, ``iteration_ms: "mean ±
half-width"`` and `bytes_per_iteration` as reported; where the paper quotes another protocol,
`cited_ms` with the reported `speedup`, and `cited_bytes` with the reported `reduction`.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import MIN_SEEDS
from pkm.analysis.claims.reported import FEW_SEEDS, NOT_COMPARABLE, NOT_STORED, number, parse
from pkm.analysis.tables.statistics import column_statistics
from pkm.analysis.tables.study import Study

PARTS = ("client_ms", "masking_ms", "server_ms", "wire_ms", "waiting_ms")
COSTS = (
    "iteration_ms",
    "setup_ms",
    "bytes_per_iteration",
    "rounds_per_iteration",
    *PARTS,
    "noise_ms",
)
NETWORKS = {0.25: "LAN", 25.0: "WAN"}
TRANSPORTS = {
    "mpi": "MPI processes on one host",
    "threads": "threads of one process, without MPI",
}
#: Reported quantities: the cost that each rests on, and the cited number that this one divides.
QUANTITIES = {
    "iteration_ms": ("iteration_ms", None),
    "speedup": ("iteration_ms", "cited_ms"),
    "bytes_per_iteration": ("bytes_per_iteration", None),
    "reduction": ("bytes_per_iteration", "cited_bytes"),
}
FASTER = "faster"
SLOWER = "slower"
NO_DIFFERENCE = "no difference shown"
EQUAL = "equal"
DIFFERENT = "differs"
THREADS = (
    "the measured parties were threads of one process: they share an interpreter, and no message "
    "leaves it"
)


def network(latency_ms: float) -> str:
    """Name a simulated latency: LAN and WAN as in the paper, milliseconds for all others."""
    return NETWORKS.get(latency_ms, f"{latency_ms:g} ms a send")


def federated(table: pd.DataFrame) -> pd.DataFrame:
    """Lines of cells or rows that ran as a protocol; none where no column says so."""
    return table[table["clients"] > 0] if "clients" in table else table.iloc[:0]


def costs(study: Study) -> pd.DataFrame:
    """What an iteration costs in every federated cell.

    Returns
    -------
    DataFrame
        The cells of all sweeps with `network`, `seeds` and, for each of `COSTS`, its mean and
        ``<name>_half_width`` (95 % Student t interval over runs).
    """
    cells = federated(study.cells).reset_index(drop=True)
    cells = cells.assign(network=[network(value) for value in cells["latency_ms"]])
    keys = ["sweep", "cell"]
    for cost in COSTS:
        matrix = study.matrix(study.sweeps, cost)
        found = column_statistics(matrix.values)
        columns = {cost: found.mean, f"{cost}_half_width": found.half_width}
        if cost == "iteration_ms":
            columns["seeds"] = found.count
        cells = cells.merge(matrix.cells[keys].assign(**columns), on=keys, how="left")
    return cells.assign(seeds=cells["seeds"].fillna(0).astype(int))


def transports(table: pd.DataFrame) -> str:
    """Describe how the messages of some cells were sent."""
    names = sorted(table["transport"].unique())
    return " and ".join(TRANSPORTS.get(name, name) for name in names)


def time_conditions(study: Study, sweep: str) -> str:
    """Describe under which conditions the times of a sweep were measured."""
    cells = study.cells[study.cells["sweep"] == sweep]
    latencies = sorted(cells["latency_ms"].dropna().unique())
    latency = " or ".join(f"{value:g}" for value in latencies)
    return f"Measured times: {transports(cells)}, {latency} ms of simulated latency a send."


def compare(study: Study, reported: Mapping) -> pd.DataFrame:
    """Compare every reported number of the protocol with the measured one.

    Bytes must be equal in every run, a reduction to the reported digits. A time is *faster* or
    *slower* if it differs by more than both half-widths together (root of the sum of squares) and
    half a reported digit. That compares machines and code together, so no verdict calls a time
    reproduced. Times of threads are not comparable.

    Parameters
    ----------
    study : analysis.tables.study.Study
    reported : mapping
        One entry of a claims file's `reported`; see the module.

    Returns
    -------
    DataFrame
        One line per reported number: `dataset`, `quantity` (`iteration_ms`, `speedup`,
        `bytes_per_iteration` or `reduction`), `mean`, `half_width` (95 %), `seeds`, `transport`,
        `rounds` (of an iteration), `cited` (of the other protocol), `reported`, `reported_mean`,
        `ratio` (measured over reported), `ratio_without_latency`, `verdict`, `reason`.
    """
    table = costs(study)
    table = table[(table["sweep"] == reported["sweep"]) & (table["method"] == reported["method"])]
    # Where a data set was run with both transports, processes come before threads.
    table = table.sort_values("transport", kind="stable").drop_duplicates("dataset")
    stored = {line["dataset"]: line for line in table.to_dict("records")}
    lines = []
    for cell in reported["cells"]:
        measured = stored.get(cell["dataset"])
        for quantity, (_, cited) in QUANTITIES.items():
            if quantity not in cell:
                continue
            line = {
                "dataset": cell["dataset"],
                "quantity": quantity,
                "reported": cell[quantity],
                "cited": number(cell[cited])[0] if cited else np.nan,
                "reported_mean": number(cell[quantity].split("±")[0])[0],
            }
            if measured is None:
                line |= _NOT_MEASURED
            else:
                line |= {name: measured[name] for name in ("seeds", "transport")}
                line |= {"rounds": measured["rounds_per_iteration"]}
                line |= _compared(quantity, cell, line, measured, reported)
            lines.append(line)
    table = pd.DataFrame(lines)
    return table.assign(ratio=table["mean"] / table["reported_mean"])


_NOT_MEASURED = {
    "verdict": NOT_STORED,
    "reason": "no stored rows",
    "seeds": 0,
    "transport": "",
    **dict.fromkeys(("mean", "half_width", "rounds"), np.nan),
}


def _compared(
    quantity: str, cell: Mapping, line: Mapping, measured: Mapping, reported: Mapping
) -> dict:
    """Compare a reported number with the measured cost that it rests on."""
    cost, cited = QUANTITIES[quantity]
    mean = measured[cost]
    half_width = measured[f"{cost}_half_width"]
    judge = _time if cost == "iteration_ms" else _bytes
    compared = {"mean": mean, "half_width": half_width} | judge(cell, measured, reported)
    if not cited:
        return compared
    factor = line["cited"] / mean
    compared |= {"mean": factor, "half_width": compared["half_width"] * factor / mean}
    compared["ratio_without_latency"] = np.nan
    _, unit = number(cell[quantity])
    if compared["verdict"] == EQUAL and abs(factor - line["reported_mean"]) > unit / 2:
        compared["verdict"] = DIFFERENT
    return compared


def _time(cell: Mapping, measured: Mapping, reported: Mapping) -> dict:
    value = parse(cell["iteration_ms"])
    assert value is not None, "every data set has a reported time"
    mean = measured["iteration_ms"]
    margin = np.hypot(measured["iteration_ms_half_width"], value.largest_deviation) + value.unit / 2
    verdict = FASTER if mean < value.mean else SLOWER
    reason = ""
    if measured["transport"] == "threads":
        verdict = NOT_COMPARABLE
        reason = THREADS
    elif measured["seeds"] < MIN_SEEDS:
        verdict = FEW_SEEDS
        reason = f"{measured['seeds']} seeds"
    elif abs(mean - value.mean) <= margin:
        verdict = NO_DIFFERENCE
    # Two sends an iteration, one up and one down.
    mean_without_latency = mean - 2 * measured["latency_ms"]
    ratio = mean_without_latency / (value.mean - reported["slept_ms"])
    return {"ratio_without_latency": ratio, "verdict": verdict, "reason": reason}


def _bytes(cell: Mapping, measured: Mapping, reported: Mapping) -> dict:
    is_constant = not measured["bytes_per_iteration_half_width"] > 0
    is_equal = measured["bytes_per_iteration"] == number(cell["bytes_per_iteration"])[0]
    verdict = EQUAL if is_equal and is_constant else DIFFERENT
    return {"half_width": np.nan, "verdict": verdict, "reason": ""}
