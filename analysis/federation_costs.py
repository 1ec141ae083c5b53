"""What federated runs cost, from per-seed rows: time in parts, bytes and rounds, beside the numbers
a paper prints.

A claims file lists, under ``reported: <name>:``, the `sweep` and `method` that hold our runs,
`slept_ms` (latency in a reported iteration) and `cells`: data set, `title`, ``iteration_ms: "mean ±
half-width"`` and `bytes_per_iteration` as reported; where the paper quotes another protocol,
`cited_ms` with the reported `speedup`, and `cited_bytes` with the reported `reduction`.
"""

import numpy as np
import pandas as pd

from pkm.analysis.findings import MIN_SEEDS
from pkm.analysis.reported import FEW_SEEDS, NOT_COMPARABLE, NOT_STORED, number, parse
from pkm.analysis.tables import column_statistics

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
FASTER, SLOWER, LEVEL = "faster", "slower", "no difference shown"
EQUAL, DIFFERENT = "equal", "differs"
THREADS = (
    "our parties were threads of one process: they share an interpreter, and no message leaves it"
)


def network(latency_ms):
    """Name a simulated latency: LAN and WAN as in the paper, else its milliseconds."""
    return NETWORKS.get(latency_ms, f"{latency_ms:g} ms a send")


def federated(table):
    """Lines of cells or rows that ran as a protocol; none of a table from before there was one."""
    return table[table["clients"] > 0] if "clients" in table else table.iloc[:0]


def costs(study):
    """What an iteration costs in every federated cell.

    Returns
    -------
    DataFrame
        The cells of all sweeps with `network`, `seeds` and, for each of `COSTS`, its mean and
        ``<name>_half_width`` (95 % Student t interval over runs).
    """
    cells = federated(study.cells).reset_index(drop=True)
    found = {
        name: np.full(len(cells), np.nan) for cost in COSTS for name in (cost, f"{cost}_half_width")
    }
    seeds = np.zeros(len(cells), dtype=int)
    for sweep, name in ((sweep, name) for sweep in cells["sweep"].unique() for name in COSTS):
        panel = study.panel(sweep, name)
        place = cells.index[cells["sweep"] == sweep]
        place = pd.Series(place, index=cells.loc[place, "cell"])
        kept = panel.cells["cell"].isin(place.index).to_numpy()
        at = place[panel.cells.loc[kept, "cell"]].to_numpy()
        mean, half_width, _, count = column_statistics(panel.values[:, kept])
        found[name][at], found[f"{name}_half_width"][at] = mean, half_width
        if name == "iteration_ms":
            seeds[at] = count
    return cells.assign(
        network=[network(value) for value in cells["latency_ms"]], seeds=seeds, **found
    )


def transports(table):
    """Say in words what carried the messages of some cells."""
    names = sorted(table["transport"].unique())
    return " and ".join(TRANSPORTS.get(name, name) for name in names)


def compare(study, asked):
    """Put every reported number of the protocol beside ours.

    Bytes must be equal in every run, a reduction to the reported digits. A time is *faster* or
    *slower* if it differs by more than both half-widths together (root of the sum of squares) and
    half a reported digit. That compares machines and code together, so no verdict calls a time
    reproduced. Times of threads are not comparable.

    Parameters
    ----------
    study : analysis.tables.Study
    asked : mapping
        One entry of a claims file's `reported`; see the module.

    Returns
    -------
    DataFrame
        One line per reported number: `dataset`, `quantity` (`iteration_ms`, `speedup`,
        `bytes_per_iteration` or `reduction`), `mean`, `half_width` (95 %), `seeds`, `transport`,
        `rounds` (of an iteration), `cited` (of the other protocol), `reported`, `reported_mean`,
        `ratio` (ours over reported), `ratio_without_latency`, `verdict`, `reason`.
    """
    table = costs(study)
    table = table[(table["sweep"] == asked["sweep"]) & (table["method"] == asked["method"])]
    # Where a data set was run both ways, processes come before threads.
    stored = (
        table.sort_values("transport", kind="stable")
        .drop_duplicates("dataset")
        .set_index("dataset")
    )
    lines = []
    for cell in asked["cells"]:
        ours = stored.loc[cell["dataset"]] if cell["dataset"] in stored.index else None
        for quantity, (judge, other) in _JUDGES.items():
            if quantity not in cell:
                continue
            cited = number(cell[other])[0] if other else np.nan
            line = {
                "dataset": cell["dataset"],
                "quantity": quantity,
                "reported": cell[quantity],
                "cited": cited,
            }
            line |= {"reported_mean": number(cell[quantity].split("±")[0])[0]}
            if ours is None:
                facts = {
                    "mean": np.nan,
                    "half_width": np.nan,
                    "verdict": NOT_STORED,
                    "reason": "no stored rows",
                }
                line |= facts | {"seeds": 0, "transport": "", "rounds": np.nan}
            else:
                line |= {
                    "seeds": ours["seeds"],
                    "transport": ours["transport"],
                    "rounds": ours["rounds_per_iteration"],
                }
                line |= judge(cell, line, ours, asked)
            lines.append(line | {"ratio": line["mean"] / line["reported_mean"]})
    return pd.DataFrame(lines)


def _time(cell, line, ours, asked):
    reported = parse(cell["iteration_ms"])
    mean, half_width = ours["iteration_ms"], ours["iteration_ms_half_width"]
    margin = np.hypot(half_width, reported.largest_deviation) + reported.unit / 2
    verdict, reason = (
        LEVEL
        if abs(mean - reported.mean) <= margin
        else FASTER
        if mean < reported.mean
        else SLOWER,
        "",
    )
    if ours["transport"] == "threads":
        verdict, reason = NOT_COMPARABLE, THREADS
    elif ours["seeds"] < MIN_SEEDS:
        verdict, reason = FEW_SEEDS, f"{ours['seeds']} seeds"
    # Two sends an iteration, one up and one down.
    bare = (mean - 2 * ours["latency_ms"]) / (reported.mean - asked["slept_ms"])
    facts = {"mean": mean, "half_width": half_width, "ratio_without_latency": bare}
    return facts | {"verdict": verdict, "reason": reason}


def _speedup(cell, line, ours, asked):
    time = _time(cell, line, ours, asked)
    mean = line["cited"] / time["mean"]
    half_width = mean * time["half_width"] / time["mean"]
    return time | {"mean": mean, "half_width": half_width, "ratio_without_latency": np.nan}


def _bytes(cell, line, ours, asked):
    mean, scattered = ours["bytes_per_iteration"], ours["bytes_per_iteration_half_width"] > 0
    agrees = mean == line["reported_mean"] and not scattered
    return {
        "mean": mean,
        "half_width": np.nan,
        "verdict": EQUAL if agrees else DIFFERENT,
        "reason": "",
    }


def _reduction(cell, line, ours, asked):
    size = _bytes(cell, {"reported_mean": number(cell["bytes_per_iteration"])[0]}, ours, asked)
    _, unit = number(line["reported"])
    mean = line["cited"] / size["mean"]
    agrees = size["verdict"] == EQUAL and abs(mean - line["reported_mean"]) <= unit / 2
    return size | {"mean": mean, "verdict": EQUAL if agrees else DIFFERENT}


# How each reported quantity is judged, and the cited number that it rests on.
_JUDGES = {
    "iteration_ms": (_time, None),
    "speedup": (_speedup, "cited_ms"),
    "bytes_per_iteration": (_bytes, None),
    "reduction": (_reduction, "cited_bytes"),
}
