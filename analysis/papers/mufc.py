"""What the figures of the MUFC paper need beyond their figures.yaml.

Curves over requests, reported losses, speed-ups, what exactness costs, and secure
aggregation.
"""

import math
from dataclasses import replace

import pandas as pd

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.frames import FigureData, compare, number_text, summarize
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import DASH, gap_texts, times_text
from pkm.analysis.tables.study import Study

REPORTED = read_claims("mufc")["reported"]
CASE = ["sweep", "dataset", "requests", "batch"]
SETTING = ["n", "d", "k", "clients"]
#: How printed tables write verdicts that are long.
SHORT_VERDICTS = {reported.WITHIN: "within"}


def after_start(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the start of a run, which is no request, and settings without an x."""
    panels = table[table["x"] >= 0].groupby("panel", sort=False, observed=True)
    return pd.concat([lines.sort_values("x", kind="stable") for _, lines in panels])


# Tables of the paper


def reported_losses(study: Study, spec: FigureSpec) -> FigureData:
    """Losses of Table 1 or 2 as measured and as reported, with the verdict."""
    entry = REPORTED[spec.name]
    cells = list(entry["cells"])
    # Two kinds of server data share one reported number; Table 2 repeats two columns of
    # Table 1.
    ours = [cell for cell in cells if cell["method"] == "mufc"]
    cells += [cell | {"method": "mufc_points"} for cell in ours]
    if spec.name == "table2":
        first = REPORTED["table1"]["cells"]
        cells += [cell for cell in first if cell["method"] != "mufc"]
    sweeps = list(dict.fromkeys([*entry["sweeps"], "table1"]))
    table = reported.compare(study, entry | {"cells": cells, "sweeps": sweeps})
    table = table.assign(table=int(spec.name[-1]))

    texts = table.assign(text=table.apply(_loss_text, axis=1))
    texts = texts.pivot(index="dataset", columns="method", values="text")
    printed = texts.loc[list(spec.titles), list(spec.methods)]
    styles = MethodStyles(study.cells)
    printed = printed.rename(columns=styles.label)
    printed.insert(0, "data set", spec.titles.values())
    if spec.compare:
        best = compare(study, spec).table.set_index("dataset")["value"]
        printed["speed-up of MUFC, no seed touched"] = [
            f"{f'{times_text(best[name])}x' if name in best else DASH} | {value}x"
            for name, value in REPORTED["speedups"].items()
        ]
    notes = [
        f"{spec.titles[note['datasets'][0]]}: {note['reason']}."
        for note in entry["notes"]
    ]
    fields = {
        "verdicts": reported.counts_text(table["verdict"]),
        "notes": " ".join(notes),
    }
    gaps = _gaps(table.loc[table["seeds"] > 0, "dataset"], spec)
    return FigureData(table, study.cells, gaps, fields, printed.reset_index(drop=True))


def _loss_text(line: pd.Series) -> str:
    verdict = SHORT_VERDICTS.get(line["verdict"], line["verdict"])
    measured = number_text("{mean:.3f} ± {deviation:.3f}", line)
    return f"{measured} | {line['reported']}: {verdict}"


def _gaps(stored: pd.Series, spec: FigureSpec) -> tuple[str, ...]:
    titles = spec.titles.items()
    return gap_texts(title for name, title in titles if name not in set(stored))


def sizes(study: Study, spec: FigureSpec) -> FigureData:
    """Data sets as reported and as stored."""
    cells = study.matrix("table1", "loss_ratio").cells.drop_duplicates("dataset")
    stored = cells[["dataset", *SETTING, "largest_client"]]
    table = pd.DataFrame(REPORTED["sizes"]).drop(columns="title")
    table = table.merge(stored, on="dataset", how="left", suffixes=("_reported", ""))
    return FigureData(table, study.cells, _gaps(cells["dataset"], spec))


# Further figures


def speedups_by_definition(study: Study, spec: FigureSpec) -> FigureData:
    """Speed-ups by every definition, after the reported one."""
    tables = []
    for name in spec.panels:
        panel_spec = replace(spec.part(name), hue="method")
        tables.append(compare(study, panel_spec).table.assign(definition=name))
    columns = ["dataset", "definition", "value", "low", "high", "seeds"]
    measured = pd.concat(tables, ignore_index=True).reindex(columns=columns)
    stored = in_order(measured["dataset"], spec.titles)
    printed = pd.Series(REPORTED["speedups"], name="value").reindex(stored).dropna()
    printed = printed.rename_axis("dataset").reset_index().assign(definition="reported")
    table = pd.concat([printed, measured], ignore_index=True)
    table = table.assign(
        group=pd.Categorical(table["dataset"], stored),
        hue=table["definition"],
        row=pd.Categorical(table["definition"], list(spec.styles)),
        text=table["value"].map(times_text),
    )
    means = measured.groupby("definition", sort=False)["value"].mean()
    texts = [
        f"{spec.styles[name]['label']}: {times_text(value)}"
        for name, value in means.items()
    ]
    fields = {"means": "; ".join(texts), "n_sets": len(stored)}
    gaps = _gaps(measured["dataset"], spec)
    return FigureData(table.sort_values(["group", "row"]), study.cells, gaps, fields)


def losses_of_methods(table: pd.DataFrame) -> pd.DataFrame:
    """Name K-FED with fewer clusters separately, and add the reported losses."""
    cells = [*REPORTED["table1"]["cells"], *REPORTED["table2"]["cells"]]
    table = reported.with_means(table, cells, "loss_ratio")
    is_few = table["sweep"] == "client_clusters"
    return table.assign(
        row=table["row"].mask(is_few, table["row"] + " (K' a client)"),
        reported=table["reported"].mask(is_few),
    )


def removal_costs(study: Study, spec: FigureSpec) -> FigureData:
    """Means of all metrics of a cell in one line: time of a request, by its kind."""
    table = summarize(study, replace(spec, extra_columns=(*CASE, *SETTING))).table
    order = list(dict.fromkeys([*spec.titles, *table["dataset"]]))
    table = table.astype({"dataset": pd.CategoricalDtype(order)})
    keys = [*CASE, "method", "label", *SETTING]
    seeds = table.groupby(keys, observed=True)["seeds"].transform("max")
    wide = table.assign(seeds=seeds).pivot_table(
        index=[*keys, "seeds"], columns="metric", values="value", observed=True
    )
    wide = wide.reindex(columns=list(spec.metric)).reset_index()
    wide = wide.rename_axis(columns=None).sort_values(["sweep", "dataset", "method"])
    gaps = _gaps(wide["dataset"], spec)
    return FigureData(wide.astype({"dataset": str}), study.cells, gaps)


def exact_and_lazy(study: Study, spec: FigureSpec) -> FigureData:
    """Exact and lazy server in one line, with the ratio of their times."""
    frame = removal_costs(study, spec)
    by_method = dict(tuple(frame.table.groupby("method")))
    without_rows = frame.table.iloc[:0]
    exact, lazy = (by_method.get(name, without_rows) for name in spec.methods)
    exact = exact.drop(columns=["label", "method"])
    lazy = lazy.drop(columns=["label", "method", *SETTING, "seeds"])
    table = exact.merge(lazy, on=CASE, suffixes=("", "_lazy"))
    # The times of both over each other, in every case.
    times = replace(spec, metric=("removal_mean_ms",), extra_columns=tuple(CASE))
    ratios = compare(study, times).table.rename(columns={"value": "ratio"})
    table = table.merge(ratios[[*CASE, "ratio", "low", "high"]], on=CASE)
    return replace(frame, table=table, gaps=_gaps(table["dataset"], spec))


def messages(study: Study, spec: FigureSpec) -> FigureData:
    """Bytes and times of secure aggregation, and the time of a request without it."""
    frame = removal_costs(study, spec)
    by_sweep = frame.table.set_index("sweep")
    requests = by_sweep.query("sweep == 'removals'").set_index("dataset")
    table = by_sweep.query("sweep == 'sparse'").reset_index()
    settings = table[SETTING].itertuples(index=False)
    table = table.drop(columns="removal_mean_ms").assign(
        literal_bytes=[literal_bytes(*setting) for setting in settings],
        sparse_over_plain=table["sparse_bytes"] / table["plain_bytes"],
        request_ms=table["dataset"].map(requests["removal_mean_ms"]),
    )
    return replace(frame, table=table, gaps=_gaps(table["dataset"], spec))


def literal_bytes(
    n: int,
    d: int,
    n_clusters: int,
    n_clients: int,
) -> float:
    """Bytes of the literal construction: 2 K L words of a prime above n and all bins.

    Examples
    --------
    >>> literal_bytes(12_009, 10, 4, 100)
    7800.0
    """
    # An axis has 2/γ + 1 bins.
    bins = d * math.log2(2 * math.floor(n**0.5 + 0.5) + 1)
    bits = math.ceil(max(bins, math.log2(n)))
    return 2 * n_clusters * n_clients * bits / 8
