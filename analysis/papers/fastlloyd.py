"""What the figures of the FastLloyd paper need beyond their figures.yaml.

Table 2, and time and bytes of the protocol, which are compared with those of Table 3.
Its entry in the claims file lists, under ``reported: table3:``, the `sweep` and
`method` of the measured runs, `slept_ms` (latency in a reported iteration) and `cells`:
data set, `title`, ``iteration_ms: "mean ± half-width"`` and `bytes_per_iteration` as
reported; where the paper quotes another protocol, `cited_ms` with the reported
`speedup`, and `cited_bytes` with the reported `reduction`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import NOT_COMPARABLE, NOT_RUN
from pkm.analysis.claims.reported import ReportedNumber, counts_text, parse, qualify
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.figure_data import FigureData
from pkm.analysis.figures.texts import (
    DASH,
    count_text,
    find_unstored,
    interval_text,
    not_run_texts,
)
from pkm.analysis.tables.statistics import column_statistics
from pkm.analysis.tables.study import Study, matches
from pkm.yaml_files import read_file

REPORTED = read_claims("fastlloyd")["reported"]
TABLE3 = REPORTED["table3"]
_NAMES = read_file(Path(__file__).with_suffix(".yaml"))
COSTS = _NAMES["costs"]
FASTER = "faster"
SLOWER = "slower"
NO_DIFFERENCE = "no difference shown"
EQUAL = "equal"
DIFFERENT = "differs"

# Sizes of the data sets


def sizes(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show sizes of the data sets as stored and as the paper reports them."""
    stored = study.cells.drop_duplicates("dataset")
    # Sets with added outliers are not in the paper's table.
    has_outliers = stored["dataset"].str.contains(r"-o\d+$")
    stored = stored[~has_outliers]
    rows = []
    for entry in REPORTED["table2"]:
        pattern = entry["dataset"]
        if entry["family"]:
            pattern += "-.*"
        is_listed = stored["dataset"].str.fullmatch(pattern)
        listed = stored[is_listed]
        no_sizes = dict.fromkeys(("n_here", "d_here", "k_here"), np.nan)
        row = entry | {"sets": len(listed)} | no_sizes
        if len(listed):
            ends = listed[["n", "d", "k"]].agg(["min", "max"]).astype(str)
            for name in ends:
                row[f"{name}_here"] = DASH.join(ends[name].unique())
        rows.append(row)
    table = pd.DataFrame(rows)
    missing = table.loc[table["sets"] == 0, "title"]
    return FigureData(table, study.cells, not_run_texts(missing))


# Time and bytes of the protocol


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


def compare_costs(study: Study) -> pd.DataFrame:
    """Compare every number of Table 3 with the measured one.

    Bytes must be equal in every run, a reduction to the reported digits. A time is
    *faster* or *slower* if it differs by more than both half-widths together (root of
    the sum of squares) and half a reported digit. That compares machines and code
    together, so no verdict calls a time reproduced. Times of threads are not
    comparable.

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
    selector = {"sweep": TABLE3["sweep"], "method": TABLE3["method"]}
    # Where a data set was run with both transports, processes come before threads.
    stored = (
        table[matches(table, selector)]
        .drop_duplicates("dataset")
        .set_index("dataset")
        .to_dict("index")
    )
    rows = [
        _judge_cost(quantity, cell, stored.get(cell["dataset"], {}))
        for cell in TABLE3["cells"]
        for quantity in _NAMES["quantities"]
        if quantity in cell
    ]
    table = pd.DataFrame(rows)
    return table.assign(ratio=table["mean"] / table["reported_mean"])


def _judge_cost(
    quantity: str,
    cell: Mapping,
    measured: Mapping,
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
        row |= _judge_time(printed, measured)
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
        "ratio_without_latency": without_latency / (value.mean - TABLE3["slept_ms"]),
        **qualify(verdict, reason, measured["seeds"]),
    }


CELLS = pd.DataFrame(TABLE3["cells"]).set_index("dataset")
TITLES = CELLS["title"].to_dict()
#: Columns of Table 3 on MohLloyd, which nobody ran, by what is measured and by hue.
MOHLLOYD = {
    "iteration_ms": {"model": "model_ms", "quoted": "cited_ms"},
    "bytes_per_iteration": {"model": "model_bytes", "quoted": "cited_bytes"},
}


def table3(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show Table 3: measured times and bytes, the reported ones and the quoted ones."""
    table = compare_costs(study)
    stored = table[table["verdict"] != NOT_RUN]
    verdicts = {
        name: counts_text(rows["verdict"], ", ")
        for name, rows in stored.groupby("quantity")
    }
    reasons = stored.loc[stored["verdict"] == NOT_COMPARABLE, "reason"].unique()
    fields = {
        "times": verdicts.get("iteration_ms", ""),
        "bytes": verdicts.get("bytes_per_iteration", ""),
        "parties": transports(stored),
        "reasons": "; ".join(reasons),
        "runs": count_text(stored["seeds"], "runs"),
    }
    # Measured numbers take the place of the reported ones.
    numbers = table.to_dict("records")
    texts = list(map(_measured_and_reported, numbers))
    measured = table.assign(text=texts)
    measured = measured.pivot(
        index="dataset",
        columns="quantity",
        values="text",
    )
    facts = table.query("quantity == 'iteration_ms'")
    facts = facts.set_index("dataset")[["rounds", "transport"]]
    facts = facts.replace("", DASH)
    lines = measured.combine_first(CELLS).join(facts)
    printed = lines.loc[list(TITLES)]
    missing = find_unstored(TITLES, stored)
    return FigureData(
        table,
        missing=missing,
        fields=fields,
        printed=printed,
    )


def _measured_and_reported(number: Mapping) -> str:
    if number["verdict"] == NOT_RUN:
        return f"{DASH} | {number['reported']}"
    measured = interval_text(number["mean"], number["half_width"])
    verdict = number["verdict"].replace(NOT_COMPARABLE, "n. c.")
    text = f"{measured} | {number['reported']}: {verdict}"
    if np.isfinite(number["ratio_without_latency"]):
        template = ", ×{ratio:.2f} (without latency ×{ratio_without_latency:.2f})"
        text += template.format(**number)
    return text


def parties(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show time and bytes of every federated cell by network and number of clients."""
    table = costs(study)
    datasets = table["dataset"]
    settings = table[["latency_ms", "clients"]].itertuples(index=False)
    table = table.assign(
        setting=[_setting(*setting) for setting in settings],
        title=datasets.replace(TITLES),
        dataset=pd.Categorical(datasets, in_order(datasets, TITLES)),
        word_bytes=table["word_bytes"].astype(int),
    )
    # Eight bytes a word come before four.
    order = ["method", "word_bytes", "dataset", "latency_ms", "clients"]
    table = table.sort_values(order, ascending=[True, False, True, True, True])
    of_paper = table[table["method"] == TABLE3["method"]]
    missing = _describe_missing(of_paper, product(*spec.expected.values()))
    columns = [*spec.extra_columns, "setting", "title"]
    for cost in COSTS:
        columns += [cost, f"{cost}_half_width"]
    values = {"iteration_ms": "value", "iteration_ms_half_width": "half_width"}
    table = table[columns].rename(columns=values)
    fields = {"parties": transports(table)}
    return FigureData(
        table,
        study.cells,
        missing,
        fields,
    )


def _setting(
    latency: float,
    clients: float,
) -> str:
    return f"{network(latency)}, {int(clients)} clients"


def _describe_missing(
    table: pd.DataFrame,
    wanted: Iterable[tuple[float, int]],
) -> tuple[str, ...]:
    """Say which of the paper's data sets have no rows, by latency and clients."""
    texts = []
    for latency, clients in wanted:
        selector = {"latency_ms": latency, "clients": clients}
        stored = set(table.loc[matches(table, selector), "dataset"])
        missing = [title for name, title in TITLES.items() if name not in stored]
        if missing:
            several = f"{len(missing)} of {len(TITLES)} data sets"
            names = several if len(missing) > 2 else "; ".join(missing)
            texts.append(f"{_setting(latency, clients)}, {names}")
    return not_run_texts(texts)


def iteration_costs(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show costs of iterations, and of their parts, by data set and clients."""
    table = costs(study)
    # Where a cell was run with both transports, processes come before threads.
    table = table[matches(table, spec.where)]
    table = table.drop_duplicates(["dataset", "clients", "latency_ms"])
    by_quantity = [
        table[list(spec.extra_columns)].assign(
            quantity=name, value=table[name], half_width=table[f"{name}_half_width"]
        )
        for name in spec.metric
    ]
    points = pd.concat(by_quantity, ignore_index=True)
    names = points["dataset"].replace(TITLES)
    titles = in_order(names, TITLES.values())
    printed = _means("iteration_ms")
    is_printed = (points["network"] == "LAN") & (points["clients"] == 2)
    points = points.assign(
        low=points["value"] - points["half_width"],
        high=points["value"] + points["half_width"],
        panel=points["network"],
        group=pd.Categorical(names, titles),
        row=points["clients"],
        x=points["clients"].astype(float),
        hue=points[spec.hue],
        reported=points["dataset"].map(printed).where(is_printed),
    )
    if table.empty:
        return FigureData(points, fields={"parties": ""})
    setting = ["latency_ms", "clients"]
    stored = table[setting].drop_duplicates().sort_values(setting)
    missing = _describe_missing(table, stored.itertuples(index=False))
    runs = count_text(table["seeds"], "runs")
    fields = {"parties": f"{transports(table)}; {runs} each"}
    return FigureData(
        points,
        missing=missing,
        fields=fields,
    )


def _means(column: str) -> pd.Series:
    """Return the numbers of a column of Table 3 by data set, of means the mean."""
    return CELLS[column].dropna().map(lambda text: parse(text).mean)


def parts_and_models(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show the parts of an iteration, and the whole beside MohLloyd's model."""
    data = iteration_costs(study, spec)
    tables = [data.table]
    for quantity, columns in MOHLLOYD.items():
        is_whole = data.table["quantity"] == quantity
        whole = data.table[is_whole].assign(panel=quantity)
        two = whole[whole["clients"] == 2]
        printed = two["dataset"].map(_means(quantity))
        tables.append(whole.assign(hue="measured", reported=printed))
        unknown = dict.fromkeys(["low", "high", "half_width", "reported"], np.nan)
        for hue, column in columns.items():
            values = two["dataset"].map(_means(column))
            tables.append(two.assign(hue=hue, value=values, **unknown))
    return replace(data, table=pd.concat(tables, ignore_index=True))
