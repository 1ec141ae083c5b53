"""Claims of the MUFC paper that need a view or a formula of their own: speed-ups, bins, curves over
requests, messages.

Orderings, bounds and trends are those of `pkm.analysis.verdicts`, on `pkm.analysis.removals.View`.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis import verdicts
from pkm.analysis.findings import INCONCLUSIVE, MissingRows, decide, exact, percent, within
from pkm.analysis.removals import READINGS, View, family, series, speedup_draws
from pkm.analysis.tables import Panel, resampled_means, resampling_weights

_STAGE = 8  # what k-means++ is off by in expectation, over ln K + 2
_ROUNDING = 1e-9


def _viewed(evaluator):
    """Let a check see stacked metrics, comparable settings, and all parts of a sweep as one."""

    def check_view(study, check, context):
        gaps = context.missing.assign(sweep=[family(sweep) for sweep in context.missing["sweep"]])
        return evaluator(View(study), check, replace(context, missing=gaps))

    check_view.__doc__ = evaluator.__doc__
    return check_view


def _absent(found, asked):
    gone = [name for name in asked if name not in set(found)]
    return f"no stored rows of {', '.join(gone)}" if gone else ""


def over_printed(study, check, context):
    """Check our speed-up (`reading`) over the printed one, on every data set that has both, against
    bounds.
    """
    asked = context.printed[check["printed"]]
    datasets, draws, seeds = speedup_draws(study, READINGS[check["reading"]])
    kept = [at for at, name in enumerate(datasets) if name in asked]
    if not kept:
        raise MissingRows(context.why([check["sweep"]]))
    keys = pd.DataFrame({"dataset": [datasets[at] for at in kept]})
    theirs = keys["dataset"].map(asked).to_numpy(dtype=float)
    ratios = draws[:, kept] / theirs
    evidence = keys.assign(ours=draws[0, kept], printed=theirs, ratio=ratios[0])
    numbers = ", ".join(
        f"{line.dataset} {line.ours:.4g} (printed {line.printed:g})"
        for line in evidence.itertuples()
    )
    return decide(
        within(ratios, check), keys, seeds, f"{numbers};", _absent(keys["dataset"], asked), evidence
    )


def steady(study, check, context):
    """Check the largest change of the mean loss ratio from its start, over the checkpoints of each
    data set.

    Of requests of one kind, one point each.
    """
    lines = series(study)
    mine = (
        (lines["method"] == check["method"])
        & (lines["requests"] == check["requests"])
        & (lines["batch"] == 1)
    )
    lines = lines[mine & lines["dataset"].isin(context.resolve(check["over"]["dataset"]))]
    if not len(lines):
        raise MissingRows(context.why([check["sweep"]]))
    starts = lines.drop_duplicates(["dataset", "seed"]).assign(
        request=-1, loss_ratio=lambda table: table["start"]
    )
    both = pd.concat([starts, lines[lines["request"] >= 0]])
    wide = both.pivot_table(
        index="seed", columns=["dataset", "request"], values="loss_ratio", dropna=False
    )
    wide = wide.loc[:, wide.notna().any()]
    cells = wide.columns.to_frame(index=False)
    panel = Panel(
        "loss_ratio", cells, wide.index.to_numpy(), wide.to_numpy(), np.zeros(len(cells), int)
    )
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    keys = pd.DataFrame({"dataset": cells["dataset"].unique()})
    apart, worst = [], []
    for name in keys["dataset"]:
        at = cells.index[cells["dataset"] == name]  # the start comes first
        change = np.abs(means[:, at[1:]] / means[:, at[:1]] - 1)
        apart.append(change.max(axis=1))
        worst.append(int(cells["request"][at[1:][change[0].argmax()]]))
    apart = np.column_stack(apart)
    evidence = keys.assign(largest_change=apart[0], at_request=worst)
    shown = ", ".join(
        f"{line.dataset} {percent(line.largest_change)}" for line in evidence.itertuples()
    )
    numbers = f"Largest change {shown} (asked: ≤ {percent(check['at_most'])});"
    lacking = _absent(keys["dataset"], context.resolve(check["over"]["dataset"]))
    seeds = int(np.isfinite(panel.values).sum(axis=0).min())
    return decide(within(apart, check), keys, seeds, numbers, lacking, evidence)


def _gamma_means(study, check, context, datasets):
    """Resampled means over the sides of bins of each data set, up to a factor from the default, and
    fewest seeds.
    """
    panel = View(study).panel("gamma", "loss_ratio")
    factor = panel.cells["gamma_factor"] if len(panel.cells) else pd.Series(dtype=float)
    near = factor.between(1 / check["reach"], check["reach"]) & (
        panel.cells["method"] == check["method"]
    )
    panel = panel.take((near & panel.cells["dataset"].isin(datasets)).to_numpy())
    if not len(panel.cells):
        raise MissingRows(context.why(["gamma"]))
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    found = {}
    for name in datasets:
        mine = panel.cells[panel.cells["dataset"] == name].sort_values("gamma_factor")
        if len(mine) > 1:
            found[name] = mine["gamma_factor"].to_numpy(), means[:, mine.index]
    if not found:
        raise MissingRows(f"several sides of bins are needed for {' or '.join(datasets)}")
    return found, int(np.isfinite(panel.values).sum(axis=0).min())


def _to_default(factors, means):
    """Means at the default side of bins; NaN where it is not stored."""
    return means[:, factors == 1].ravel() if (factors == 1).any() else np.full(len(means), np.nan)


def gamma_extent(study, check, context):
    """Check the largest mean loss ratio over the smallest, over all sides of bins, against bounds."""
    found, seeds = _gamma_means(study, check, context, [check["dataset"]])
    ((factors, means),) = found.values()
    extent = means.max(axis=1) / means.min(axis=1)
    evidence = pd.DataFrame({"gamma_factor": factors, "loss_ratio": means[0]})
    numbers = (
        f"Largest over smallest mean {extent[0]:.4g} from γ√n = {factors[0]:g} to {factors[-1]:g};"
    )
    one = evidence.iloc[:1]
    found = decide(within(extent, check)[:, None], one, seeds, numbers, "", one)
    return replace(found, evidence=evidence)


def gamma_default(study, check, context):
    """Check the mean loss ratio at the default side of bins over the smallest of all sides against
    bounds.
    """
    found, seeds = _gamma_means(study, check, context, check["datasets"])
    keys = pd.DataFrame({"dataset": list(found)})
    ratios = np.column_stack([_to_default(*of) / of[1].min(axis=1) for of in found.values()])
    evidence = keys.assign(
        ratio=ratios[0], best=[factors[means[0].argmin()] for factors, means in found.values()]
    )
    shown = ", ".join(
        f"{line.dataset} {line.ratio:.4g}, best at {line.best:g}" for line in evidence.itertuples()
    )
    numbers = f"Default over best {shown} (γ√n);"
    return decide(
        within(ratios, check),
        keys,
        seeds,
        numbers,
        _absent(keys["dataset"], check["datasets"]),
        evidence,
    )


def gamma_matters(study, check, context):
    """Check that on some of `others` means spread more than on `dataset`, and the widest bins lose
    to the default.
    """
    found, seeds = _gamma_means(study, check, context, [check["dataset"], *check["others"]])
    real = [name for name in check["others"] if name in found]
    if check["dataset"] not in found or not real:
        raise MissingRows(
            f"several sides of bins are needed for {check['dataset']} and one of {', '.join(check['others'])}"
        )
    extents = {name: means.max(axis=1) / means.min(axis=1) for name, (_, means) in found.items()}
    worse = {name: found[name][1][:, -1] / _to_default(*found[name]) for name in real}
    plain = extents[check["dataset"]]
    truth = np.column_stack([(extents[name] > plain) & (worse[name] > 1) for name in real])
    keys = pd.DataFrame({"dataset": real})
    evidence = keys.assign(
        extent=[extents[name][0] for name in real],
        extent_there=plain[0],
        widest_over_default=[worse[name][0] for name in real],
    )
    shown = ", ".join(
        f"{line.dataset} {line.extent:.4g}, widest over default {line.widest_over_default:.4g}"
        for line in evidence.itertuples()
    )
    numbers = f"Largest over smallest mean: {check['dataset']} {plain[0]:.4g}, {shown};"
    return decide(truth, keys, seeds, numbers, _absent(real, check["others"]), evidence, "some")


def approximation(study, check, context):
    """Mean loss of every cell against 64 (ln K + 2)² times the optimum and 16 n d γ² (ln K + 2)."""
    lines = []
    for sweep in check["sweeps"]:
        loss, optimum = (View(study).panel(sweep, name) for name in ("loss_ratio", "optimum"))
        chosen = (
            loss.cells[loss.cells["method"].isin(check["methods"])]
            if len(loss.cells)
            else loss.cells
        )
        best = dict(zip(optimum.cells["cell"], np.nanmean(optimum.values, axis=0), strict=True))
        for at, cell in chosen.iterrows():
            if cell["cell"] not in best or not np.isfinite(cell["gamma_factor"]):
                continue
            stage = _STAGE * (math.log(cell["k"]) + 2)
            rounding = (
                2 * stage * cell["d"] * cell["gamma_factor"] ** 2
            )  # n γ² is the factor squared
            allowed = stage**2 * best[cell["cell"]] + rounding
            expected = np.nanmean(loss.values[:, at]) * best[cell["cell"]]
            line = {"sweep": sweep, **cell[["method", "dataset", "gamma_factor"]], "loss": expected}
            lines.append(
                line
                | {"allowed": allowed, "share": expected / allowed, "agrees": expected <= allowed}
            )
    if not lines:
        raise MissingRows(context.why(check["sweeps"]))
    table = pd.DataFrame(lines)
    return exact(table, f"At most {percent(table['share'].max())} of what is allowed.")


def induced_above_nearest(study, check, context):
    """Loss by way of the clients is at least the nearest one in every row, and above it in some."""
    rows = study.rows_with(["loss_ratio", "loss_ratio_nearest"])
    if not len(rows):
        raise MissingRows("no stored row has both losses")
    rows = rows.assign(apart=rows["loss_ratio"] / rows["loss_ratio_nearest"] - 1)
    table = (
        rows.groupby(["method", "dataset"])["apart"]
        .agg(rows="size", least="min", most="max")
        .reset_index()
    )
    numbers = f"{len(rows)} rows; above by up to {percent(rows['apart'].max())}."
    found = exact(table.assign(agrees=table["least"] >= -_ROUNDING), numbers)
    if rows["apart"].max() <= _ROUNDING:
        return replace(found, verdict=INCONCLUSIVE, numbers=f"{found.numbers} They never differ.")
    return found


_VIEWING = ("ordering", "bound", "trend", "printed_values")
EVALUATORS = {name: _viewed(verdicts.EVALUATORS[name]) for name in _VIEWING} | {
    "over_printed": over_printed,
    "steady": steady,
    "gamma_extent": gamma_extent,
    "gamma_default": gamma_default,
    "gamma_matters": gamma_matters,
    "approximation": approximation,
    "induced_above_nearest": induced_above_nearest,
}
