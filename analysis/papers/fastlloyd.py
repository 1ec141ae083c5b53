"""What the figures of the FastLloyd paper need beyond their figures.yaml.

Table 2, and time and bytes of the protocol.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import product

import numpy as np
import pandas as pd

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.federation_costs import (
    COSTS,
    compare_costs,
    costs,
    network,
    transports,
)
from pkm.analysis.claims.findings import NOT_COMPARABLE, NOT_RUN
from pkm.analysis.claims.reported import counts_text, parse, parse_number
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.frames import FigureData, number_text
from pkm.analysis.figures.texts import (
    DASH,
    count_text,
    find_unstored,
    interval_text,
    not_run_texts,
)
from pkm.analysis.render.style import shades
from pkm.analysis.tables.study import Study, matches

REPORTED = read_claims("fastlloyd")["reported"]

# Sizes of the data sets

SYMBOLS = {"n": "N", "d": "d", "k": "k"}


def sizes(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Sizes of the data sets as stored and as the paper reports them."""
    stored = study.cells.drop_duplicates("dataset")
    # Sets with added outliers are not in the paper's table.
    stored = stored[~stored["dataset"].str.contains(r"-o\d+$")]
    rows = []
    for entry in REPORTED["table2"]:
        pattern = entry["dataset"] + ("-.*" if entry["family"] else "")
        listed = stored[stored["dataset"].str.fullmatch(pattern)]
        row = {"data set": entry["title"]}
        row |= {f"{text} (paper)": entry[symbol] for symbol, text in SYMBOLS.items()}
        for symbol, text in SYMBOLS.items():
            values = sorted(set(listed[symbol]))
            ends = dict.fromkeys(values[:1] + values[-1:])
            row[f"{text} (here)"] = DASH.join(map(str, ends)) or DASH
        rows.append(row | {"sets here": len(listed)})

    table = pd.DataFrame(rows)
    missing = table.loc[table["sets here"] == 0, "data set"]
    return FigureData(table, study.cells, not_run_texts(missing), printed=table)


# Time and bytes of the protocol

TABLE3 = REPORTED["table3"]
TITLES = {cell["dataset"]: cell["title"] for cell in TABLE3["cells"]}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
#: Columns of Table 3, with the measured numbers as they are written.
QUANTITIES = {
    "iteration_ms": ("ms per iteration", "{:.4g}"),
    "cited_ms": ("MohLloyd ms (quoted)", ""),
    "speedup": ("speed-up", "{:.4g}"),
    "bytes_per_iteration": ("bytes", "{:g}"),
    "cited_bytes": ("MohLloyd bytes (quoted)", ""),
    "reduction": ("reduction", "{:.3g}"),
}
#: Headings of the model of MohLloyd's costs, with their quoted numbers.
MODELED = {
    "MohLloyd ms (model)": "cited_ms",
    "MohLloyd bytes (model)": "cited_bytes",
}


def fit_quoted_costs(name: str) -> tuple[float, list[float]]:
    """Fit a quoted cost as proportional to the comparisons of an iteration, N (k - 1).

    A point's nearest of k centers takes k - 1 of them, in ceil(log2 k) rounds.

    Returns
    -------
    factor : float
        Cost of a comparison: the geometric mean over the quoted cells.
    ratios : list of float
        Quoted costs over those of the model.
    """
    costs = [
        parse_number(cell[name])[0] / count_comparisons(cell)
        for cell in TABLE3["cells"]
        if name in cell
    ]
    factor = float(np.exp(np.log(costs).mean()))
    return factor, [cost / factor for cost in costs]


def count_comparisons(cell: Mapping) -> int:
    """Count the comparisons of distances in an iteration."""
    return cell["n"] * (cell["k"] - 1)


def table3(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Table 3: measured times and bytes, the reported ones and the quoted ones."""
    table = compare_costs(study, TABLE3)
    stored = table[table["verdict"] != NOT_RUN]
    verdicts = {
        name: counts_text(rows["verdict"], ", ")
        for name, rows in stored.groupby("quantity")
    }
    reasons = stored.loc[stored["verdict"] == NOT_COMPARABLE, "reason"].unique()
    # What a comparison costs in the model, and how quoted costs differ from it.
    models = []
    for heading, name in MODELED.items():
        factor, ratios = fit_quoted_costs(name)
        unit = heading.split()[1]
        span = f"{min(ratios):.2f} to {max(ratios):.2f}"
        models.append(f"{factor:.3g} {unit} (quoted: {span} times that)")
    fields = {
        "times": verdicts.get("iteration_ms", ""),
        "bytes": verdicts.get("bytes_per_iteration", ""),
        "parties": transports(stored),
        "reasons": "; ".join(reasons),
        "runs": count_text(stored["seeds"], "runs"),
        "model": " and ".join(models),
    }
    missing = find_unstored(TITLES, stored)
    printed = pd.DataFrame([_table3_row(cell, table) for cell in TABLE3["cells"]])
    return FigureData(
        table,
        missing=missing,
        fields=fields,
        printed=printed,
    )


def _table3_row(
    cell: Mapping,
    table: pd.DataFrame,
) -> dict[str, str]:
    """Lay out one row of Table 3."""
    rows = table[table["dataset"] == cell["dataset"]]
    measured = rows.set_index("quantity").to_dict("index")
    texts = {"data set": cell["title"]}
    for name, (heading, form) in QUANTITIES.items():
        texts[heading] = cell.get(name, DASH)
        if name in measured:
            texts[heading] = _measured_and_reported(measured[name], form)
    time = measured["iteration_ms"]
    texts["rounds"] = number_text("{rounds:g}", time)
    texts["transport"] = time["transport"] or DASH
    for heading, name in MODELED.items():
        factor, _ = fit_quoted_costs(name)
        texts[heading] = f"{factor * count_comparisons(cell):.3g}".replace("e+0", "e")
    texts["MohLloyd rounds (model)"] = str(math.ceil(math.log2(cell["k"])))
    return texts


def _measured_and_reported(
    number: Mapping,
    form: str,
) -> str:
    if number["verdict"] == NOT_RUN:
        return f"{DASH} | {number['reported']}"
    measured = interval_text(number["mean"], number["half_width"], form)
    verdict = number["verdict"].replace(NOT_COMPARABLE, "n. c.")
    text = f"{measured.replace('e+0', 'e')} | {number['reported']}: {verdict}"
    if np.isfinite(number["ratio_without_latency"]):
        template = ", ×{ratio:.2f} (without latency ×{ratio_without_latency:.2f})"
        text += template.format(**number)
    return text


def parties(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Every federated cell: time and bytes by network and number of clients."""
    table = costs(study)
    if not len(table):
        missing = not_run_texts([spec.title])
        return FigureData(table, missing=missing, fields={"parties": ""})
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
    is_ascending = [name != "word_bytes" for name in order]
    table = table.sort_values(order, kind="stable", ascending=is_ascending)
    of_paper = table[table["method"] == TABLE3["method"]]
    missing = _describe_missing(of_paper, product(*spec.expected.values()))
    measured = [name for cost in COSTS for name in (cost, f"{cost}_half_width")]
    values = {"iteration_ms": "value", "iteration_ms_half_width": "half_width"}
    shown = [*spec.extra_columns, "setting", "title", *measured]
    table = table[shown].rename(columns=values)
    return FigureData(table, study.cells, missing, {"parties": transports(table)})


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
    """Milliseconds of FastLloyd's iterations with 8-byte words, whole and in parts."""
    table = costs(study)
    selector = {"method": TABLE3["method"], "split": "balanced", "word_bytes": 8}
    selector |= spec.where
    # Where a cell was run with both transports, processes come before threads.
    table = (
        table[matches(table, selector)]
        .sort_values("transport", kind="stable")
        .drop_duplicates(["dataset", "clients", "latency_ms"])
    )
    by_quantity = [
        table[list(spec.extra_columns)].assign(
            quantity=name, value=table[name], half_width=table[f"{name}_half_width"]
        )
        for name in spec.metric
    ]
    points = pd.concat(by_quantity, ignore_index=True)
    names = points["dataset"].replace(TITLES)
    order = in_order(points["dataset"], TITLES)
    titles = [TITLES.get(name, name) for name in order]
    printed = {
        cell["title"]: parse(cell["iteration_ms"]).mean for cell in TABLE3["cells"]
    }
    is_printed = (points["network"] == "LAN") & (points["clients"] == 2)
    points = points.assign(
        low=points["value"] - points["half_width"],
        high=points["value"] + points["half_width"],
        panel=points["network"],
        group=pd.Categorical(names, titles),
        row=points["clients"],
        x=points["clients"].astype(float),
        hue=points[spec.hue],
        reported=names.map(printed).where(is_printed),
    )
    if not len(table):
        missing = not_run_texts([spec.title])
        return FigureData(points, missing=missing, fields={"parties": ""})
    setting = ["latency_ms", "clients"]
    stored = table[setting].drop_duplicates().sort_values(setting)
    missing = _describe_missing(table, stored.itertuples(index=False))
    runs = count_text(table["seeds"], "runs")
    how = f"{transports(table)}; {runs} each"
    return FigureData(points, missing=missing, fields={"parties": how})


def dataset_styles(table: pd.DataFrame) -> dict[str, dict]:
    """Styles of data sets: colors of points, markers of clusters and columns."""
    points = sorted(table["n"].unique())
    colors = dict(zip(points, shades(len(points), 0.78), strict=True))
    shapes = sorted(set(zip(table["k"], table["d"], strict=True)))
    markers = dict(zip(shapes, 2 * MARKERS, strict=False))

    datasets = table.drop_duplicates("dataset").set_index("dataset")
    styles = {}
    for name in in_order(datasets.index, TITLES):
        n, k, d = datasets.loc[name, ["n", "k", "d"]]
        size = "" if name.startswith("timesynth-") else f" (N {n:,})"
        styles[name] = {
            "color": colors[n],
            "marker": markers[k, d],
            "label": TITLES.get(name, name) + size,
        }
    return styles
