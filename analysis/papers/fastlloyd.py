"""What the figures of the FastLloyd paper need beyond their figures.yaml.

Reductions of areas, Table 2, and time and bytes of the protocol.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.federation_costs import COSTS, PARTS, compare, costs, network, transports
from pkm.analysis.claims.reported import NOT_COMPARABLE, NOT_STORED, counts_text
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.frames import Frame
from pkm.analysis.figures.texts import DASH, count_text, gap_texts, interval_text
from pkm.analysis.render.style import shades
from pkm.analysis.tables.study import Study

REPORTED = read_claims("fastlloyd")["reported"]

# --- areas over epsilon -------------------------------------------------------------------------


def reductions(table: pd.DataFrame) -> pd.DataFrame:
    """Turn ratios of areas into percentages by which FastLloyd's are smaller."""
    ratio = table["panel"] == "improvement"
    percent = 100 * (1 - table["value"])
    known = table[["low", "high"]].mask(ratio)
    return table.assign(value=table["value"].mask(ratio, percent), **known)


# --- sizes of the data sets ---------------------------------------------------------------------


def sizes(study: Study, spec: FigureSpec) -> Frame:
    """Sizes of the data sets as stored and as the paper reports them."""
    stored = study.cells.drop_duplicates("dataset").set_index("dataset")[["n", "d", "k"]]
    # Sets with added outliers are not in the paper's table.
    stored = stored[~stored.index.str.contains(r"-o\d+$")]
    lines = []
    for row in REPORTED["table2"]:
        names = stored.index
        is_listed = (
            names.str.startswith(f"{row['dataset']}-") if row["family"] else names == row["dataset"]
        )
        listed = stored[is_listed]
        line = {"data set": row["title"]}
        line |= {f"{_symbol(name)} (paper)": row[name] for name in stored}
        line |= {f"{_symbol(name)} (here)": _range_text(listed[name]) for name in stored}
        lines.append(line | {"sets here": len(listed)})
    table = pd.DataFrame(lines)
    gaps = gap_texts(table.loc[table["sets here"] == 0, "data set"])
    return Frame(table, study.cells, gaps, printed=table)


def _symbol(name: str) -> str:
    return "N" if name == "n" else name


def _range_text(values: pd.Series) -> str:
    if not len(values):
        return DASH
    low, high = values.min(), values.max()
    return f"{low}" if low == high else f"{low}{DASH}{high}"


# --- time and bytes of the protocol -------------------------------------------------------------

TABLE3 = REPORTED["table3"]
TITLES = {cell["dataset"]: cell["title"] for cell in TABLE3["cells"]}
CLIENTS = (2, 4, 8)
LATENCIES = (0.25, 25.0)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SHAPE = ["n", "k", "d"]


def table3(study: Study, spec: FigureSpec) -> Frame:
    """Table 3: measured times and bytes, the reported ones and the quoted ones."""
    table = compare(study, TABLE3)
    stored = table[table["verdict"] != NOT_STORED]
    printed = pd.DataFrame([_table3_line(cell, table) for cell in TABLE3["cells"]])
    counts = {"times": "iteration_ms", "bytes": "bytes_per_iteration"}
    fields = {
        name: counts_text(stored.loc[stored["quantity"] == quantity, "verdict"], ", ")
        for name, quantity in counts.items()
    }
    fields["parties"] = transports(stored)
    reasons = dict.fromkeys(stored.loc[stored["verdict"] == NOT_COMPARABLE, "reason"])
    fields["reasons"] = "; ".join(reasons)
    present = set(stored["dataset"])
    gaps = gap_texts(title for name, title in TITLES.items() if name not in present)
    fields["runs"] = count_text(stored["seeds"], "runs")
    return Frame(table, gaps=gaps, fields=fields, printed=printed)


def _table3_line(cell: Mapping[str, Any], table: pd.DataFrame) -> dict[str, str]:
    """Lay out one line of Table 3."""
    quantities = table[table["dataset"] == cell["dataset"]].set_index("quantity")
    rounds = quantities["rounds"].iloc[0]
    return {
        "data set": cell["title"],
        "ms per iteration": _measured_and_reported(quantities, "iteration_ms", "{:.4g}"),
        "MohLloyd ms (quoted)": cell.get("cited_ms", DASH),
        "speed-up": _measured_and_reported(quantities, "speedup", "{:.4g}"),
        "bytes": _measured_and_reported(quantities, "bytes_per_iteration", "{:g}"),
        "MohLloyd bytes (quoted)": cell.get("cited_bytes", DASH),
        "reduction": _measured_and_reported(quantities, "reduction", "{:.3g}"),
        "rounds": DASH if np.isnan(rounds) else f"{rounds:g}",
        "transport": quantities["transport"].iloc[0] or DASH,
    }


def _measured_and_reported(quantities: pd.DataFrame, quantity: str, form: str) -> str:
    if quantity not in quantities.index:
        return DASH
    line = quantities.loc[quantity]
    if line["verdict"] == NOT_STORED:
        return f"{DASH} | {line['reported']}"
    measured = interval_text(line["mean"], line["half_width"], form).replace("e+0", "e")
    verdict = line["verdict"].replace(NOT_COMPARABLE, "n. c.")
    text = f"{measured} | {line['reported']}: {verdict}"
    if quantity == "iteration_ms":
        text += f", ×{line['ratio']:.2f} (without latency ×{line['ratio_without_latency']:.2f})"
    return text


def parties(study: Study, spec: FigureSpec) -> Frame:
    """Every federated cell: time and bytes by network and number of clients."""
    table = costs(study)
    if not len(table):
        return Frame(table, gaps=gap_texts([spec.title]), fields={"parties": ""})
    pairs = zip(table["latency_ms"], table["clients"], strict=True)
    table = table.assign(
        setting=[_setting(*pair) for pair in pairs],
        title=[TITLES.get(name, name) for name in table["dataset"]],
        dataset=pd.Categorical(table["dataset"], in_order(table["dataset"], TITLES)),
        word_bytes=table["word_bytes"].astype(int),
    )
    order = ["method", "word_bytes", "dataset", "latency_ms", "clients"]
    table = table.sort_values(order, ascending=[True, False, True, True, True], kind="stable")
    wanted = [(latency, clients) for latency in LATENCIES for clients in CLIENTS]
    gaps = _lacking(table[table["method"] == TABLE3["method"]], wanted)
    names = ["sweep", "method", "dataset", *SHAPE, "epsilon", "clients", "network", "latency_ms"]
    names += ["setting", "title", "word_bytes", "split", "transport", "iterations", "seeds"]
    names += [name for cost in COSTS for name in (cost, f"{cost}_half_width")]
    printed = {"iteration_ms": "value", "iteration_ms_half_width": "half_width"}
    shown = table[names].rename(columns=printed)
    return Frame(shown, study.cells, gaps, {"parties": transports(table)})


def _setting(latency: float, clients: float) -> str:
    return f"{network(latency)}, {int(clients)} clients"


def _lacking(table: pd.DataFrame, wanted: Iterable[tuple[float, int]]) -> tuple[str, ...]:
    """Say which of the paper's data sets lack which network and number of clients."""
    gaps = []
    for latency, clients in wanted:
        stored = (table["latency_ms"] == latency) & (table["clients"] == clients)
        present = set(table.loc[stored, "dataset"])
        absent = [title for name, title in TITLES.items() if name not in present]
        if absent:
            several = f"{len(absent)} of {len(TITLES)} data sets"
            names = several if len(absent) > 2 else "; ".join(absent)
            gaps.append(f"{_setting(latency, clients)}, {names}")
    return gap_texts(gaps)


def iteration_costs(study: Study, spec: FigureSpec) -> Frame:
    """Milliseconds of FastLloyd's iterations with words of 8 bytes, whole and in parts."""
    table = costs(study)
    table = table[
        (table["method"] == TABLE3["method"])
        & (table["word_bytes"] == 8)
        & (table["split"] == "balanced")
    ]
    # Where a cell was run with both transports, processes come before threads.
    table = table.sort_values("transport", kind="stable")
    table = table.drop_duplicates(["dataset", "clients", "latency_ms"])
    quantities = [name for name in (*PARTS, "iteration_ms", "noise_ms") if name in spec.facts]
    facts = ["sweep", "dataset", *SHAPE, "clients", "network", "latency_ms", "transport", "seeds"]
    long = table.melt(facts, quantities, "quantity", "value")
    half_width = pd.concat([table[f"{name}_half_width"] for name in quantities]).to_numpy()
    long = long.assign(
        low=long["value"] - half_width, high=long["value"] + half_width, half_width=half_width
    )
    titles = [TITLES.get(name, name) for name in in_order(long["dataset"], TITLES)]
    named = [TITLES.get(name, name) for name in long["dataset"]]
    long = long.assign(
        panel=long["network"],
        group=pd.Categorical(named, titles),
        row=long["clients"],
        x=long["clients"].astype(float),
    )
    long = long.assign(hue=long[spec.hue])
    stored = sorted(set(zip(table["latency_ms"], table["clients"].astype(int), strict=True)))
    gaps = _lacking(table, stored) if stored else gap_texts([spec.title])
    how = f"{transports(table)}; {count_text(table['seeds'], 'runs')} each" if stored else ""
    return Frame(long, gaps=gaps, fields={"parties": how})


def dataset_styles(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Styles of data sets: color by number of points, marker by clusters and dimensions."""
    points = sorted(table["n"].unique())
    colors = dict(zip(points, shades(len(points), 0.78), strict=True))
    shapes = sorted(set(zip(table["k"], table["d"], strict=True)))
    markers = {shape: MARKERS[i % len(MARKERS)] for i, shape in enumerate(shapes)}
    facts = table.drop_duplicates("dataset").set_index("dataset")
    styles = {}
    for name in in_order(facts.index, TITLES):
        n, k, d = facts.loc[name, SHAPE]
        size = "" if name.startswith("timesynth-") else f" (N {n:,})"
        styles[name] = {
            "color": colors[n],
            "marker": markers[k, d],
            "label": TITLES.get(name, name) + size,
        }
    return styles
