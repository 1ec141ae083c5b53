"""What the figures of the MUFC paper need beyond their figures.yaml.

Curves over requests, reported losses, speed-ups, what exactness costs, and secure aggregation.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.frames import Frame, compare, number_text, summarize
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import DASH, gap_texts, times_text
from pkm.analysis.tables.removals import RemovalStudy
from pkm.analysis.tables.study import Study

REPORTED = read_claims("mufc")["reported"]
CASE = ["sweep", "dataset", "requests", "batch"]
SETTING = ["n", "d", "k", "clients"]


def unlearning(study: Study, spec: FigureSpec) -> pd.DataFrame:
    """Select rows of the sweeps as `RemovalStudy` puts them together; no settings without an x."""
    table = summarize(RemovalStudy(study), spec).table
    # The start of a run is no request.
    return table[table["x"] >= 0].sort_values("x") if spec.kind == "lines" else table


# --- tables of the paper ------------------------------------------------------------------------


def reported_losses(study: Study, spec: FigureSpec) -> Frame:
    """Losses of Table 1 or 2 as measured and as reported, with the verdict on their difference."""
    entry = REPORTED[spec.name]
    first = REPORTED["table1"]["cells"]
    # Two kinds of server data share one reported number; Table 2 repeats two columns of Table 1.
    ours = [cell for cell in entry["cells"] if cell["method"] == "mufc"]
    cells = [*entry["cells"], *(cell | {"method": "mufc_points"} for cell in ours)]
    if spec.name == "table2":
        cells += [cell for cell in first if cell["method"] != "mufc"]
    sweeps = list(dict.fromkeys([*entry["sweeps"], "table1"]))
    table = reported.compare(RemovalStudy(study), entry | {"cells": cells, "sweeps": sweeps})
    table = table.assign(table=int(spec.name[-1]), text=table.apply(_loss_text, axis=1))
    texts = table.pivot(index="dataset", columns="method", values="text")
    styles = MethodStyles(study.cells)
    printed = pd.DataFrame({"data set": spec.titles.values()})
    for method in spec.methods:
        printed[styles.label(method)] = texts.loc[list(spec.titles), method].to_numpy()
    if spec.name == "table1":
        best = compare(RemovalStudy(study), spec).table.set_index("dataset")["value"]
        printed["speed-up of MUFC, no seed touched"] = [
            f"{f'{times_text(best[name])}x' if name in best else DASH} | {value}x"
            for name, value in REPORTED["speedups"].items()
        ]
    fields = {
        "verdicts": reported.counts_text(table["verdict"]),
        "notes": " ".join(
            f"{spec.titles[note['datasets'][0]]}: {note['reason']}." for note in entry["notes"]
        ),
    }
    stored = table.loc[table["seeds"] > 0, "dataset"]
    return Frame(table.drop(columns="text"), study.cells, _gaps(stored, spec), fields, printed)


def _loss_text(line: pd.Series) -> str:
    short = {reported.WITHIN: "within", reported.NOT_STORED: "not run"}
    verdict = short.get(line["verdict"], line["verdict"])
    measured = number_text("{mean:.3f} ± {deviation:.3f}", line)
    return f"{measured} | {line['reported']}: {verdict}"


def _gaps(stored: pd.Series, spec: FigureSpec) -> tuple[str, ...]:
    return gap_texts(title for name, title in spec.titles.items() if name not in set(stored))


def sizes(study: Study, spec: FigureSpec) -> Frame:
    """Data sets as reported and as stored."""
    cells = RemovalStudy(study).matrix("table1", "loss_ratio").cells.drop_duplicates("dataset")
    columns = ["dataset", *SETTING, "largest_client"]
    table = pd.DataFrame(REPORTED["sizes"]).drop(columns="title")
    table = table.merge(cells[columns], on="dataset", how="left", suffixes=("_reported", ""))
    return Frame(table, study.cells, _gaps(cells["dataset"], spec))


# --- further figures ----------------------------------------------------------------------------


def speedups_by_definition(study: Study, spec: FigureSpec) -> Frame:
    """Speed-ups by every definition, after the reported one."""
    view = RemovalStudy(study)
    parts = [
        compare(view, replace(spec.part(name), hue="method")).table.assign(definition=name)
        for name in spec.panels
    ]
    columns = ["dataset", "definition", "value", "low", "high", "seeds"]
    measured = pd.concat(parts, ignore_index=True).reindex(columns=columns)
    stored = in_order(measured["dataset"], spec.titles)
    known = [(name, value) for name, value in REPORTED["speedups"].items() if name in stored]
    given = pd.DataFrame(known, columns=["dataset", "value"]).assign(definition="reported")
    table = pd.concat([given, measured], ignore_index=True)
    table = table.assign(
        group=pd.Categorical(table["dataset"], stored),
        hue=table["definition"],
        row=pd.Categorical(table["definition"], list(spec.styles)),
        text=[times_text(value) for value in table["value"]],
    )
    table = table.sort_values(["group", "row"])
    means = measured.groupby("definition", sort=False)["value"].mean()
    texts = [f"{spec.styles[name]['label']}: {times_text(value)}" for name, value in means.items()]
    fields = {"means": "; ".join(texts), "n_sets": len(stored)}
    return Frame(table, study.cells, _gaps(measured["dataset"], spec), fields)


def losses_of_methods(table: pd.DataFrame) -> pd.DataFrame:
    """Name the rows, K-FED with fewer clusters separately, and add the reported losses."""
    few = table["sweep"] == "client_clusters"
    cells = [*REPORTED["table1"]["cells"], *REPORTED["table2"]["cells"]]
    losses = {(cell["dataset"], cell["method"]): cell["loss_ratio"] for cell in cells}
    texts = map(losses.get, zip(table["dataset"], table["method"], strict=True))
    numbers = np.array([reported.parse(text).mean if text else np.nan for text in texts])
    return table.assign(
        row=table["row"].mask(few, table["row"] + " (K' a client)"),
        reported=np.where(few, np.nan, numbers),
    )


def _costs(study: Study, spec: FigureSpec) -> pd.DataFrame:
    """Means of all metrics of a cell in one line."""
    table = summarize(RemovalStudy(study), replace(spec, facts=(*CASE, *SETTING))).table
    order = pd.CategoricalDtype(list(dict.fromkeys([*spec.titles, *table["dataset"]])))
    keys = [*CASE, "method", "label", *SETTING]
    table = table.astype({"dataset": order})
    table = table.assign(seeds=table.groupby(keys, observed=True)["seeds"].transform("max"))
    wide = table.pivot_table(
        index=[*keys, "seeds"], columns="metric", values="value", observed=True
    )
    wide = wide.reindex(columns=list(spec.metric)).reset_index().rename_axis(columns=None)
    return wide.sort_values(["sweep", "dataset", "method"]).astype({"dataset": str})


def removal_costs(study: Study, spec: FigureSpec) -> Frame:
    """Time of a request, by kind of request."""
    table = _costs(study, spec)
    return Frame(table, study.cells, _gaps(table["dataset"], spec))


def exact_and_lazy(study: Study, spec: FigureSpec) -> Frame:
    """Exact and lazy server in one line, with the ratio of their times."""
    table = _costs(study, spec)
    exact, lazy = (table[table["method"] == name].drop(columns="label") for name in spec.methods)
    lazy = lazy.drop(columns=[*SETTING, "method", "seeds"])
    table = exact.drop(columns="method").merge(lazy, on=CASE, suffixes=("", "_lazy"))
    # The times of both over each other, in every case.
    times = replace(spec, metric=("removal_mean_ms",), facts=tuple(CASE))
    ratios = compare(RemovalStudy(study), times).table.rename(columns={"value": "ratio"})
    table = table.merge(ratios[[*CASE, "ratio", "low", "high"]], on=CASE)
    return Frame(table, study.cells, _gaps(table["dataset"], spec))


def messages(study: Study, spec: FigureSpec) -> Frame:
    """Bytes and times of secure aggregation, and the time of a request without it."""
    table = _costs(study, spec)
    requests = table[table["sweep"] == "removals"].set_index("dataset")["removal_mean_ms"]
    table = table[table["sweep"] == "sparse"].drop(columns="removal_mean_ms")
    table = table.assign(
        literal_bytes=[literal_bytes(*line) for line in table[SETTING].itertuples(index=False)],
        sparse_over_plain=table["sparse_bytes"] / table["plain_bytes"],
        request_ms=table["dataset"].map(requests),
    )
    return Frame(table, study.cells, _gaps(table["dataset"], spec))


def literal_bytes(n: int, d: int, n_clusters: int, n_clients: int) -> float:
    """Bytes of the literal construction: 2 K L words of a prime above n and the number of bins.

    Examples
    --------
    >>> literal_bytes(12_009, 10, 4, 100)
    7800.0
    """
    # An axis has 2/γ + 1 bins.
    bins = d * math.log2(2 * math.floor(n**0.5 + 0.5) + 1)
    bits = math.ceil(max(bins, math.log2(n)))
    return 2 * n_clusters * n_clients * bits / 8
