"""What the figures of the MUFC paper need beyond their figures.yaml.

Curves over requests, reported losses, speed-ups, what exactness costs, and secure
aggregation.
"""

from dataclasses import replace

import pandas as pd

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.figure_data import (
    FigureData,
    compare,
    compare_sizes,  # noqa: F401, of figures.yaml
    select,
    summarize,
)
from pkm.analysis.figures.texts import DASH, find_unstored, times_text
from pkm.analysis.tables.study import Study

REPORTED = read_claims("mufc")["reported"]
CASE = ["sweep", "dataset", "requests", "batch"]


def after_start(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the start of a run, which is no request, and settings without an x."""
    panels = table.query("x >= 0").groupby(
        "panel",
        sort=False,
        observed=True,
    )
    return pd.concat([rows.sort_values("x", kind="stable") for _, rows in panels])


# Tables of the paper


def reported_losses(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show losses of Table 1 or 2 as measured and as reported, with the verdict."""
    entry = REPORTED[spec.name]
    # Two kinds of server data share one reported number; Table 2 repeats two columns of
    # Table 1.
    cells = list(entry["cells"])
    points = {"method": "mufc_points"}
    cells += [cell | points for cell in cells if cell["method"] == "mufc"]
    if spec.name == "table2":
        first = REPORTED["table1"]["cells"]
        cells += [cell for cell in first if cell["method"] != "mufc"]
    sweeps = dict.fromkeys([*entry["sweep"], "table1"])
    changes = {"cells": cells, "sweep": list(sweeps)}
    table = reported.compare_reported(study, entry | changes)
    # Data sets down and methods across, as the paper prints them, with speed-ups.
    names = [*spec.titles, *spec.methods]
    order = {name: place for place, name in enumerate(names)}
    keys = ["dataset", "method"]
    table = table.sort_values(keys, key=lambda column: column.map(order))
    table = table.assign(table=int(spec.name[-1]))
    if spec.compare:
        measured = compare(study, spec).table
        times = measured.set_index("dataset")["value"]
        speedups = {}
        for name, value in REPORTED["speedups"].items():
            own = f"{times_text(times[name])}x" if name in times else DASH
            speedups[name] = f"{own} | {value}x"
        table = table.assign(speedup=table["dataset"].map(speedups))

    notes = [
        f"{spec.titles[note['dataset'][0]]}: {note['reason']}."
        for note in entry["notes"]
    ]
    fields = {
        "verdicts": reported.counts_text(table["verdict"]),
        "notes": " ".join(notes),
    }
    missing = find_unstored(spec.titles, table.query("seeds > 0"))
    return FigureData(
        table,
        study.cells,
        missing,
        fields,
    )


# Further figures


def speedups_by_definition(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show speed-ups by every definition, after the reported one."""
    columns = ["dataset", "definition", "value", "low", "high", "seeds"]
    selected = select(study, replace(spec, hue="method")).table
    measured = selected.rename(columns={"panel": "definition"})
    measured = measured.reindex(columns=columns)
    stored = in_order(measured["dataset"], spec.titles)
    numbers = REPORTED["speedups"].items()
    printed = pd.DataFrame(numbers, columns=["dataset", "value"])
    printed = printed[printed["dataset"].isin(stored)]
    printed = printed.assign(definition="reported")

    table = pd.concat([printed, measured], ignore_index=True)
    table = table.assign(
        group=pd.Categorical(table["dataset"], stored),
        hue=table["definition"],
        row=pd.Categorical(table["definition"], list(spec.styles)),
        text=table["value"].map(times_text),
    ).sort_values(["group", "row"])

    means = measured.groupby("definition", sort=False)["value"].mean()
    texts = [
        f"{spec.styles[name]['label']}: {times_text(mean)}"
        for name, mean in means.items()
    ]
    fields = {"means": "; ".join(texts), "n_sets": len(stored)}
    missing = find_unstored(spec.titles, measured)
    return FigureData(table, study.cells, missing, fields)


def removal_costs(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show means of all metrics of a cell in one row: times of requests.

    The extra columns of the specification are those that tell the cells apart.
    """
    table = summarize(study, spec).table
    columns = list(spec.extra_columns)
    lines = table.groupby(columns, dropna=False, observed=True)
    seeds = lines["seeds"].max().to_frame()
    means = table.pivot(
        index=columns,
        columns="metric",
        values="value",
    )
    means = means.reindex(columns=list(spec.metric))
    table = seeds.join(means).reset_index()
    datasets = in_order(table["dataset"], spec.titles)
    table = table.assign(dataset=pd.Categorical(table["dataset"], datasets))
    table = table.sort_values(["sweep", "dataset", "method"])
    table = table.astype({"dataset": str})
    return FigureData(table, study.cells, find_unstored(spec.titles, table))


def exact_and_lazy(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show the exact and the lazy server in one row, with the ratio of their times."""
    costs = removal_costs(study, spec).table
    exact, lazy = (costs[costs["method"] == name] for name in spec.methods)
    exact = exact.drop(columns=["label", "method"])
    lazy = lazy[[*CASE, *spec.metric]]
    # Of the first metric, the mean time of a request.
    ratios = compare(study, spec).table.rename(columns={"value": "ratio"})
    ratios = ratios[[*CASE, "ratio", "low", "high"]]
    both = exact.merge(
        lazy,
        on=CASE,
        suffixes=("", "_lazy"),
    )
    table = both.merge(ratios, on=CASE)
    return FigureData(table, study.cells, find_unstored(spec.titles, table))


def messages(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show bytes and times of secure aggregation, and times of requests without it."""
    costs = removal_costs(study, spec).table
    requests = costs[costs["sweep"] == "removals"].set_index("dataset")
    sparse = costs[costs["sweep"] == "sparse"].drop(columns="removal_mean_ms")
    request_ms = sparse["dataset"].map(requests["removal_mean_ms"])
    table = sparse.assign(request_ms=request_ms)
    return FigureData(table, study.cells, find_unstored(spec.titles, table))
