"""Claims of the MUFC paper: speed-ups, bins, losses over requests.

Orderings, bounds and trends are those of `pkm.analysis.verdicts`, on `pkm.analysis.removals.View`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis import verdicts
from pkm.analysis.findings import (
    INCONCLUSIVE,
    Context,
    Finding,
    MissingRows,
    decide,
    decide_joint,
    exact,
    no_rows_of,
    percent,
    within,
)
from pkm.analysis.removals import SPEEDUP_DEFINITIONS, View, family, series, speedup_draws
from pkm.analysis.tables import Panel, Study, matches, resampled_means

#: Approximation factor of k-means++ in expectation, over ln K + 2.
_SEEDING_FACTOR = 8
_ROUNDING = 1e-9


def _viewed(evaluator: Callable) -> Callable:
    """Evaluate a check on a `View` of the study, with the gaps of all parts of a sweep."""

    def check_view(study: Study, check: Mapping, context: Context) -> Finding:
        gaps = context.missing.assign(sweep=[family(sweep) for sweep in context.missing["sweep"]])
        return evaluator(View(study), check, replace(context, missing=gaps))

    check_view.__doc__ = evaluator.__doc__
    return check_view


def over_reported(study: Study, check: Mapping, context: Context) -> Finding:
    """Check measured over reported speed-ups (`speedup`), where a data set has both."""
    values = context.reported[check["reported"]]
    datasets, draws, seeds = speedup_draws(study, SPEEDUP_DEFINITIONS[check["speedup"]])
    columns = [column for column, name in enumerate(datasets) if name in values]
    if not columns:
        raise MissingRows(context.why(check["sweep"]))
    draws = draws[:, columns]
    evidence = pd.DataFrame({"dataset": [datasets[column] for column in columns]})
    reported = evidence["dataset"].map(values).to_numpy(dtype=float)
    ratios = draws / reported
    evidence = evidence.assign(measured=draws[0], reported=reported, ratio=ratios[0])
    texts = [
        f"{line.dataset} {line.measured:.4g} (reported {line.reported:g})"
        for line in evidence.itertuples()
    ]
    missing = no_rows_of(values, evidence["dataset"])
    return decide(within(ratios, check), seeds, f"{', '.join(texts)};", missing, evidence)


def steady(study: Study, check: Mapping, context: Context) -> Finding:
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
        column = later[change[0].argmax()]
        requests.append(int(cells["request"][column]))
    changes = np.column_stack(largest)
    evidence = pd.DataFrame(
        {"dataset": stored, "largest_change": changes[0], "at_request": requests}
    )
    texts = [f"{line.dataset} {percent(line.largest_change)}" for line in evidence.itertuples()]
    numbers = f"Largest change {', '.join(texts)} (required: ≤ {percent(check['at_most'])});"
    missing = no_rows_of(datasets, stored)
    return decide(within(changes, check), panel.min_seeds, numbers, missing, evidence)


def _gamma_means(
    study: Study, check: Mapping, context: Context, datasets: Sequence[str]
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], int]:
    """Mean loss ratios by the side of the bins, for each data set with several sides.

    Returns
    -------
    dict of str to (ndarray of shape (m,), ndarray of shape (repeats + 1, m))
        Sides over the default, at most a factor `reach` from it, and resampled means.
    int
        Fewest seeds of a mean.
    """
    panel = View(study).panel("gamma", "loss_ratio")
    if len(panel.cells):
        near = panel.cells["gamma_factor"].between(1 / check["reach"], check["reach"]).to_numpy()
        selector = {"method": check["method"], "dataset": list(datasets)}
        panel = panel.take(near & matches(panel.cells, selector))
    if not len(panel.cells):
        raise MissingRows(context.why("gamma"))
    means = resampled_means(panel)
    by_dataset = {}
    for name in datasets:
        cells = panel.cells[panel.cells["dataset"] == name].sort_values("gamma_factor")
        if len(cells) > 1:
            by_dataset[name] = cells["gamma_factor"].to_numpy(), means[:, cells.index]
    if not by_dataset:
        raise MissingRows(f"several sides of bins are needed for {' or '.join(datasets)}")
    return by_dataset, panel.min_seeds


def _default_mean(factors: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Means at the default side of bins; NaN where it is not stored."""
    is_default = factors == 1
    if not is_default.any():
        return np.full(len(means), np.nan)
    return means[:, is_default].ravel()


def gamma_extent(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the largest mean loss ratio over the smallest, over all sides of bins."""
    by_dataset, seeds = _gamma_means(study, check, context, [check["dataset"]])
    ((factors, means),) = by_dataset.values()
    extent = means.max(axis=1) / means.min(axis=1)
    evidence = pd.DataFrame({"gamma_factor": factors, "loss_ratio": means[0]})
    numbers = f"Largest over smallest mean {extent[0]:.4g} from γ√n = {factors[0]:g} to "
    numbers += f"{factors[-1]:g};"
    return decide_joint(within(extent, check), seeds, numbers, "", evidence)


def gamma_default(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the mean loss ratio at the default side of bins over the smallest of all sides."""
    by_dataset, seeds = _gamma_means(study, check, context, check["datasets"])
    columns = []
    best = []
    for factors, means in by_dataset.values():
        smallest = means.min(axis=1)
        columns.append(_default_mean(factors, means) / smallest)
        best.append(factors[means[0].argmin()])
    ratios = np.column_stack(columns)
    evidence = pd.DataFrame({"dataset": list(by_dataset), "ratio": ratios[0], "best": best})
    texts = [
        f"{line.dataset} {line.ratio:.4g}, best at {line.best:g}" for line in evidence.itertuples()
    ]
    numbers = f"Default over best {', '.join(texts)} (γ√n);"
    missing = no_rows_of(check["datasets"], by_dataset)
    return decide(within(ratios, check), seeds, numbers, missing, evidence)


def gamma_matters(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that on some of `others` the side of bins matters more than on `dataset`.

    The largest mean over the smallest is larger there, and the widest bins lose to the default.
    """
    reference = check["dataset"]
    by_dataset, seeds = _gamma_means(study, check, context, [reference, *check["others"]])
    stored = [name for name in check["others"] if name in by_dataset]
    if reference not in by_dataset or not stored:
        names = f"{reference} and one of {', '.join(check['others'])}"
        raise MissingRows(f"several sides of bins are needed for {names}")

    _, reference_means = by_dataset[reference]
    reference_extent = reference_means.max(axis=1) / reference_means.min(axis=1)
    truth = []
    lines = []
    for name in stored:
        factors, means = by_dataset[name]
        extent = means.max(axis=1) / means.min(axis=1)
        widest_over_default = means[:, -1] / _default_mean(factors, means)
        truth.append((extent > reference_extent) & (widest_over_default > 1))
        lines.append(
            {
                "dataset": name,
                "extent": extent[0],
                "extent_of_dataset": reference_extent[0],
                "widest_over_default": widest_over_default[0],
            }
        )
    evidence = pd.DataFrame(lines)
    texts = [
        f"{line.dataset} {line.extent:.4g}, widest over default {line.widest_over_default:.4g}"
        for line in evidence.itertuples()
    ]
    numbers = f"Largest over smallest mean: {reference} {reference_extent[0]:.4g}, "
    numbers += f"{', '.join(texts)};"
    missing = no_rows_of(check["others"], stored)
    return decide(np.column_stack(truth), seeds, numbers, missing, evidence, "some")


def approximation(study: Study, check: Mapping, context: Context) -> Finding:
    """Mean loss of every cell against 64 (ln K + 2)² times the optimum and 16 n d γ² (ln K + 2)."""
    lines = []
    for sweep in check["sweeps"]:
        loss = View(study).panel(sweep, "loss_ratio")
        optimum = View(study).panel(sweep, "optimum")
        optima = dict(zip(optimum.cells["cell"], np.nanmean(optimum.values, axis=0), strict=True))
        cells = loss.cells[loss.cells["method"].isin(check["methods"])]
        for column, cell in cells.iterrows():
            if cell["cell"] not in optima or not np.isfinite(cell["gamma_factor"]):
                continue
            best = optima[cell["cell"]]

            # Two stages of seeding, and the rounding to bins: n γ² is the factor squared.
            seeding = _SEEDING_FACTOR * (math.log(cell["k"]) + 2)
            rounding = 2 * seeding * cell["d"] * cell["gamma_factor"] ** 2
            allowed = seeding**2 * best + rounding

            mean_loss = np.nanmean(loss.values[:, column]) * best
            line = {"sweep": sweep, **cell[["method", "dataset", "gamma_factor"]]}
            line["loss"] = mean_loss
            line["allowed"] = allowed
            line["share"] = mean_loss / allowed
            line["agrees"] = mean_loss <= allowed
            lines.append(line)
    if not lines:
        raise MissingRows(context.why(check["sweeps"]))
    table = pd.DataFrame(lines)
    return exact(table, f"At most {percent(table['share'].max())} of what is allowed.")


def induced_above_nearest(study: Study, check: Mapping, context: Context) -> Finding:
    """Induced loss is at least that of nearest centers in every row, and above it in some."""
    rows = study.rows_with(["loss_ratio", "loss_ratio_nearest"])
    if not len(rows):
        raise MissingRows("no stored row has both losses")
    rows = rows.assign(excess=rows["loss_ratio"] / rows["loss_ratio_nearest"] - 1)
    grouped = rows.groupby(["method", "dataset"])["excess"]
    table = grouped.agg(rows="size", smallest="min", largest="max").reset_index()
    table["agrees"] = table["smallest"] >= -_ROUNDING
    largest = rows["excess"].max()
    finding = exact(table, f"{len(rows)} rows; above by up to {percent(largest)}.")
    if largest <= _ROUNDING:
        text = f"{finding.numbers} They never differ."
        return replace(finding, verdict=INCONCLUSIVE, numbers=text)
    return finding


_VIEWING = ("ordering", "bound", "trend", "reported_values")
EVALUATORS = {name: _viewed(verdicts.EVALUATORS[name]) for name in _VIEWING} | {
    "over_reported": over_reported,
    "steady": steady,
    "gamma_extent": gamma_extent,
    "gamma_default": gamma_default,
    "gamma_matters": gamma_matters,
    "approximation": approximation,
    "induced_above_nearest": induced_above_nearest,
}
