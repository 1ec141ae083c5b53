"""Claims of the MUFC paper: bins, losses over requests, the approximation bound.

All its claims are checked on `pkm.analysis.removals.RemovalStudy`.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.findings import (
    Agreement,
    Context,
    Draws,
    MissingRows,
    check_type,
    no_rows_of,
    percent,
)
from pkm.analysis.removals import RemovalStudy, family, series
from pkm.analysis.tables import Panel, Study, matches, resampled_means

#: Approximation factor of k-means++ in expectation, over ln K + 2.
_SEEDING_FACTOR = 8


def prepare(study: Study, context: Context) -> tuple[RemovalStudy, Context]:
    """Return what all checks of the paper see: a view, and the gaps of all parts of a sweep."""
    gaps = context.missing.assign(sweep=[family(sweep) for sweep in context.missing["sweep"]])
    return RemovalStudy(study), replace(context, missing=gaps)


@check_type("sweep", "method", "requests", "over")
def steady(study: RemovalStudy, check: Mapping, context: Context) -> Draws:
    """Check the largest change of the mean loss ratio from its start, for each data set.

    Over the checkpoints of requests of one kind, one point each.
    """
    datasets = context.resolve(check["over"]["dataset"])
    lines = series(study)
    selector = {"method": check["method"], "requests": check["requests"], "batch": 1}
    lines = lines[matches(lines, selector | {"dataset": datasets})]
    if not len(lines):
        raise MissingRows(context.why(check["sweep"]))

    # A panel of loss ratios: one column per checkpoint, the start as request -1.
    starts = lines.drop_duplicates(["dataset", "seed"])
    starts = starts.assign(request=-1, loss_ratio=starts["start"])
    checkpoints = pd.concat([starts, lines[lines["request"] >= 0]])
    wide = checkpoints.pivot_table(
        index="seed", columns=["dataset", "request"], values="loss_ratio", dropna=False
    )
    wide = wide.loc[:, wide.notna().any()]
    cells = wide.columns.to_frame(index=False)
    no_left_out = np.zeros(len(cells), int)
    panel = Panel("loss_ratio", cells, wide.index.to_numpy(), wide.to_numpy(), no_left_out)

    # The largest change of each data set, and at which request it is on the sample itself.
    means = resampled_means(panel)
    largest = []
    requests = []
    stored = list(cells["dataset"].unique())
    for name in stored:
        start, *later = cells.index[cells["dataset"] == name]
        change = np.abs(means[:, later] / means[:, [start]] - 1)
        largest.append(change.max(axis=1))
        requests.append(int(cells["request"][later[change[0].argmax()]]))
    return Draws(
        np.column_stack(largest),
        pd.DataFrame({"dataset": stored}),
        panel.min_seeds,
        no_rows_of(datasets, stored),
        "Largest change",
        facts={"at_request": requests},
    )


@check_type("sweeps", "methods")
def approximation(study: RemovalStudy, check: Mapping, context: Context) -> Agreement:
    """Mean loss of every cell against 64 (ln K + 2)² times the optimum and 16 n d γ² (ln K + 2)."""
    tables = []
    for sweep in check["sweeps"]:
        loss = study.panel(sweep, "loss_ratio")
        optimum = study.panel(sweep, "optimum")
        optima = dict(zip(optimum.cells["cell"], np.nanmean(optimum.values, axis=0), strict=True))
        means = np.nanmean(loss.values, axis=0) if len(loss.cells) else []
        tables.append(loss.cells.assign(best=loss.cells["cell"].map(optima), ratio=means))
    cells = pd.concat(tables)
    cells = cells[cells["method"].isin(check["methods"]) & cells["best"].notna()]
    cells = cells[np.isfinite(cells["gamma_factor"].astype(float))] if len(cells) else cells
    if not len(cells):
        raise MissingRows(context.why(check["sweeps"]))

    # Two stages of seeding, and the rounding to bins: n γ² is the factor squared.
    seeding = _SEEDING_FACTOR * (np.log(cells["k"].astype(float)) + 2)
    rounding = 2 * seeding * cells["d"] * cells["gamma_factor"] ** 2
    allowed = seeding**2 * cells["best"] + rounding
    loss = cells["ratio"] * cells["best"]
    table = cells[["sweep", "method", "dataset", "gamma_factor"]].assign(
        loss=loss, allowed=allowed, share=loss / allowed, agrees=loss <= allowed
    )
    text = f"At most {percent(table['share'].max())} of what is allowed."
    missing = context.absent_cells(check["methods"], check["sweeps"])
    return Agreement(table.reset_index(drop=True), text, missing)
