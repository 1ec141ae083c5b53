"""Claims of the Kaplan-Stemmer paper: bounds from some n on, fits in log n, captured balls, printed
bounds.
"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import special

from pkm.analysis import verdicts
from pkm.analysis.accounting import gaussian_epsilon
from pkm.analysis.charges import charges_of
from pkm.analysis.findings import (
    FAILS,
    INCONCLUSIVE,
    Finding,
    MissingRows,
    decide,
    exact,
    percent,
    within,
)
from pkm.analysis.planted import (
    asked,
    chosen,
    curve,
    excess_slope,
    joined,
    not_positive,
    slope_table,
    spans,
)
from pkm.analysis.tables import resampled_means, resampling_weights

_TOLERANCE = 1e-6
NEVER = math.inf


# Table 1: factor and additive bound of every row; logarithms, epsilon and constants are left out,
# as they are there.
BOUNDS = {
    "feldman2009": (lambda n, k, d: np.sqrt(d), lambda n, k, d: (k * d) ** (2.0 * d)),
    "nock2016": (lambda n, k, d: np.log(k), lambda n, k, d: n / np.log(n) ** 2),
    "feldman2017": (lambda n, k, d: k * np.log(n), lambda n, k, d: np.sqrt(d) * k**1.5),
    "balcan2017": (lambda n, k, d: np.log(n) ** 3, lambda n, k, d: d + k**2.0),
    "nissim_stemmer2018": (lambda n, k, d: k, lambda n, k, d: d**0.51 * k**1.51),
    "this_work": (lambda n, k, d: 1.0, lambda n, k, d: k**1.01 * d**0.51 + k**1.5),
}


def eventually(study, check, context):
    """Check that a curve stays at most `at_most` from the first place on where it is (the last at
    the latest).
    """
    line = curve(study, check, context)
    below = line.values <= check["at_most"]
    first = np.where(below.any(axis=1), below.argmax(axis=1), below.shape[1])
    places = np.arange(below.shape[1])
    truth = below.any(axis=1) & (below | (places < first[:, None])).all(axis=1)
    evidence = line.evidence()
    since = f"from {line.along} = {line.x[first[0]]:g} on" if first[0] < line.x.size else "nowhere"
    numbers = f"Between {line.values[0].min():.4g} and {line.values[0].max():.4g}, at most {check['at_most']:g} {since};"
    one = evidence.iloc[:1]
    found = decide(truth[:, None], one, line.seeds, numbers, spans(line, check["reach"]), one)
    return replace(found, evidence=evidence)


def polylogarithmic(study, check, context):
    """Check that a (log x)^c fits a curve no worse than a x^b, up to `slack` of the error of the
    logarithm.

    A curve that does not rise keeps below any such bound, whatever fits it.
    """
    line = curve(study, check | {"places": 3}, context)
    if (found := not_positive(line)) is not None:
        return found
    power, polylog = line.residuals(), line.residuals(logarithmic=False)
    truth = (polylog <= (1 + check["slack"]) * power) | (line.slopes() <= 0)
    evidence = slope_table([line], [line.slopes()]).assign(
        exponent_of_log=line.slopes(logarithmic=False)[0],
        error_power=power[0],
        error_polylog=polylog[0],
    )
    numbers = f"Power {evidence['slope'][0]:.3g} with error {power[0]:.3g}, power of log "
    numbers += f"{evidence['exponent_of_log'][0]:.3g} with error {polylog[0]:.3g} (of the natural logarithm);"
    return decide(
        truth[:, None], evidence, line.seeds, numbers, spans(line, check["reach"]), evidence
    )


def paid(study, check, context):
    """Check the mean cost of one place (`where`) against bounds."""
    panel = joined(study, check["sweep"], check["metric"])
    mine = chosen(panel.cells, check["method"]) & chosen(panel.cells, check.get("where", {}))
    if not mine.any():
        raise MissingRows(
            context.why([check["sweep"]] if isinstance(check["sweep"], str) else check["sweep"])
        )
    panel = panel.take(mine)
    cost = (
        resampled_means(panel, resampling_weights(len(panel.seeds))) * panel.cells["n"].to_numpy()
    )
    evidence = panel.cells[["method", "dataset", "n", "k", "epsilon"]].assign(cost=cost[0])
    numbers = f"Mean cost {cost[0].min():.4g} to {cost[0].max():.4g} (asked: {asked(check)});"
    seeds = int(np.isfinite(panel.values).sum(axis=0).min())
    return decide(within(cost, check), evidence, seeds, numbers, "", evidence)


# --- the small ball -------------------------------------------------------------------------------


def capture_shares(study, check):
    """Share of runs in which no ball is farther than `factor` (r + 1/n) from all candidates.

    Returns
    -------
    DataFrame, ndarray of shape (repeats + 1, cells), int
        Cells with `share`; resampled shares; fewest seeds. Cells are sorted by method, n and size
        of the small ball.
    """
    panel = joined(study, check["sweep"], check["metric"])
    panel = panel.take(
        (panel.cells["small"].notna() & panel.cells["method"].isin(check["methods"])).to_numpy()
    )
    if not len(panel.cells):
        return panel.cells.assign(large=[], reach=[], share=[]), np.empty((1, 0)), 0
    large = panel.cells["n"] - panel.cells["small"]  # of the points in all other balls
    panel = replace(panel, cells=panel.cells.assign(large=large))
    panel = panel.take(panel.cells.sort_values(["method", "large", "small"]).index.to_numpy())
    reach = check["factor"] * (panel.cells["ball"] + 1 / panel.cells["n"]).to_numpy()
    near = np.where(np.isfinite(panel.values), panel.values <= reach, np.nan)
    shares = resampled_means(replace(panel, values=near), resampling_weights(len(panel.seeds)))
    return (
        panel.cells.assign(reach=reach, share=shares[0]),
        shares,
        int(np.isfinite(near).sum(axis=0).min()),
    )


def least_captured(cells, shares, level):
    """Smallest size of the small ball from which on the share is at least `level`, for each method
    and n.

    Returns
    -------
    DataFrame, ndarray of shape (repeats + 1, groups)
        Groups with `least` and `largest` (size stored); the same sizes under every resample,
        infinite where the largest stored ball is not captured.
    """
    lines, least = [], []
    for (method, large), inside in cells.groupby(["method", "large"], sort=True):
        at, sizes = inside.index.to_numpy(), inside["small"].to_numpy()
        kept = shares[:, at] >= level - 1e-12
        onwards = np.flip(np.logical_and.accumulate(np.flip(kept, axis=1), axis=1), axis=1)
        found = np.where(onwards.any(axis=1), sizes[onwards.argmax(axis=1)], NEVER)
        least.append(found)
        lines.append(
            {
                "method": method,
                "n": large,
                "least": found[0],
                "smallest": sizes[0],
                "largest": sizes[-1],
            }
        )
    return pd.DataFrame(lines), np.column_stack(least) if least else np.empty((1, 0))


def _captured(study, check, context):
    cells, shares, seeds = capture_shares(study, check)
    if not len(cells):
        raise MissingRows(context.why([check["sweep"]]))
    return *least_captured(cells, shares, check["level"]), seeds


def capture_growth(study, check, context):
    """Check the slope of the smallest captured size over n, on logarithmic axes, against bounds."""
    table, least, seeds = _captured(study, check, context)
    mine = (table["method"] == check["methods"][0]).to_numpy()
    table, least = table[mine].reset_index(drop=True), least[:, mine]
    if len(table) < 3:
        raise MissingRows("sizes at three values of n are needed")
    told = ", ".join(f"n = {line.n:g}: {line.least:g}" for line in table.itertuples())
    if not np.isfinite(least[0]).all():
        numbers = f"Smallest captured size at {told}: not captured at all within the stored sizes."
        return Finding(INCONCLUSIVE, numbers, len(table), seeds, "larger balls are needed", table)
    x = np.log(table["n"].to_numpy(dtype=float))
    centerd = x - x.mean()
    with np.errstate(invalid="ignore"):
        slope = np.log(least) @ centerd / (centerd @ centerd)
    flat = (table["least"] == table["smallest"]).all()
    numbers = f"Smallest size captured in {percent(check['level'])} of the runs at {told}; slope {slope[0]:.3g} "
    numbers += f"(asked: {asked(check)});"
    one = table.iloc[:1]
    found = decide(
        within(slope, check)[:, None], one, seeds, numbers, spans_of(table, check["reach"]), one
    )
    if flat:
        text = f"{found.numbers} All are the smallest that is stored, so nothing is known of the growth."
        return replace(found, verdict=INCONCLUSIVE, numbers=text, evidence=table)
    return replace(found, evidence=table)


def spans_of(table, reach):
    """Say that the stored n do not reach as far as the claim asks."""
    return "" if table["n"].max() >= reach else f"n up to {table['n'].max():g} instead of {reach:g}"


def capture_smaller(study, check, context):
    """Check that the first method captures balls no larger than the second needs, for every n."""
    table, least, seeds = _captured(study, check, context)
    sides = [table[table["method"] == name].set_index("n") for name in check["methods"]]
    shared = [n for n in sides[0].index if n in sides[1].index]
    if not shared:
        raise MissingRows(context.why([check["sweep"]]))
    places = [
        [table.index[(table["method"] == name) & (table["n"] == n)][0] for n in shared]
        for name in check["methods"]
    ]
    truth = least[:, places[0]] <= least[:, places[1]]
    keys = pd.DataFrame(
        {"n": shared}
        | {name: least[0, at] for name, at in zip(check["methods"], places, strict=True)}
    )
    lost = ~np.isfinite(least[0, places[0]]) & ~np.isfinite(least[0, places[1]])
    told = "; ".join(
        f"n = {line[0]:g}: {line[1]:g} against {line[2]:g}" for line in keys.itertuples(index=False)
    )
    numbers = (
        f"Smallest captured size, {check['methods'][0]} against {check['methods'][1]}: {told};"
    )
    found = decide(truth, keys, seeds, numbers, spans_of(keys, check["reach"]), keys)
    if lost.any() and found.verdict != FAILS:
        return replace(
            found,
            verdict=INCONCLUSIVE,
            numbers=f"{found.numbers} Neither captures the largest stored ball.",
        )
    return found


# --- counts, ledger, printed bounds ---------------------------------------------------------------


def candidate_count(study, check, context):
    """Number of candidates in every stored row against epsilon n log(k / beta)."""
    rows = study.rows_with(["n_centers"])
    rows = rows[rows["method"].isin(check["methods"])]
    if not len(rows):
        raise MissingRows(context.why([check["sweep"]]))
    allowed = rows["epsilon"] * rows["n"] * np.log(rows["k"] / check["beta"])
    table = rows[["method", "dataset", "n", "k", "epsilon"]].assign(
        candidates=rows["n_centers"], allowed=allowed
    )
    table = (
        table.groupby(["method", "dataset", "n", "k", "epsilon"])[["candidates", "allowed"]]
        .max()
        .reset_index()
    )
    table["agrees"] = table["candidates"] <= table["allowed"]
    share = (table["candidates"] / table["allowed"]).max()
    return exact(
        table,
        f"At most {table['candidates'].max():g} candidates, {percent(share)} of what is allowed.",
    )


def ledger_total(study, check, context):
    """Epsilon and delta that the ledger has for every stored cell, against those declared.

    The ledger is about a record left out. Beside it stands what the same releases need at the same
    delta where a record is replaced, see `replacement_cost`.
    """
    cells = study.cells[study.cells["method"].isin(check["methods"])].drop_duplicates("cell")
    if not len(cells):
        raise MissingRows(f"no stored rows of {', '.join(check['methods'])}")
    spent = cells["epsilon_spent"] / cells["epsilon"]
    charges = charges_of(cells)
    replaced = np.array(
        [
            replacement_epsilon(charges[charges.index == index].to_dict("records"), delta)
            for index, delta in cells["delta"].items()
        ]
    )
    table = cells[["sweep", "method", "dataset", "epsilon", "epsilon_spent", "delta"]].assign(
        epsilon_replaced=replaced,
        agrees=(spent <= 1 + _TOLERANCE) & (cells["delta"] <= check["delta"] * (1 + _TOLERANCE)),
    )
    numbers = f"The ledger needs {spent.min():.4f} to {spent.max():.4f} of the declared ε if a record is left out. "
    known = np.isfinite(replaced)
    if known.any():
        ratio = (replaced / cells["epsilon"])[known]
        numbers += f"The same releases need {ratio.min():.3g} to {ratio.max():.3g} times that ε, at the same δ, if a "
        numbers += f"record is replaced (median {ratio.median():.3g}). "
    if not known.all():
        numbers += f"For {np.count_nonzero(~known)} of {known.size} cells that cannot be computed from what is stored. "
    return exact(
        table.reset_index(drop=True),
        f"{numbers}Accounting only.",
        "no audit was made: no lower bound on ε is measured",
    )


def replacement_cost(charges):
    """Gaussian cost and delta of stored charges if a record is replaced by another one, not left
    out.

    Both the old record and the new one change what is released. Two counts change by 1; a sum
    changes by twice the radius (two sums by less); a threshold may fail for two buckets; costs in
    the exponential mechanism move up and down, so that its exponents range over twice as much.
    Passes over the farthest points are charged like this already, and a replacement changes the set
    of these points by one replacement.

    Parameters
    ----------
    charges : list of dict
        Lines of `pkm.analysis.charges.charges_of`.

    Returns
    -------
    tuple of float
        mu and delta; NaN where a charge is of a kind that this function does not know, or where
        there is none.
    """
    square, delta = (0.0, 0.0) if charges else (math.nan, math.nan)
    for charge in charges:
        label, failure = charge["label"], charge["delta"]
        if label == "bucket_counts":
            if charge["count_sensitivity"] <= 1:
                failure = 1 - (1 - failure) ** 2
            square += 2 / charge["count_scale"] ** 2
        elif label == "bucket_sums":
            square += (2 * charge["radius"] / charge["sum_scale"]) ** 2
        elif label == "nearest_counts":
            square += 2 / charge["count_scale"] ** 2
        elif label == "nearest_sums_and_counts":
            # Within one part only its sum changes; between two, both sums by a radius and both
            # counts.
            sums = (charge["radius"] / charge["sum_scale"]) ** 2
            square += max(4 * sums, 2 * sums + 2 / charge["count_scale"] ** 2)
        elif label in ("swaps", "sets"):
            square += (2 * special.ndtri(special.expit(charge["range"]))) ** 2
        else:
            return math.nan, math.nan
        delta += failure
    return math.sqrt(square), delta


def replacement_epsilon(charges, delta):
    """Smallest epsilon of stored charges at `delta` if a record is replaced; NaN where it cannot be
    told.
    """
    mu, failure = replacement_cost(charges)
    return gaussian_epsilon(mu, delta - failure) if mu > 0 else math.nan


def passes(study, check, context):
    """Passes ceil(log2 log2 n): the arithmetic at the sizes of `asked`, and what the stored runs
    made.
    """
    lines = [
        {"what": "formula", "n": n, "passes": wanted_passes(n), "asked": count}
        for n, count in check["asked"].items()
    ]
    cells = study.cells
    mine = cells[cells["method"].isin(check["methods"])] if "rounds" in cells else cells.iloc[:0]
    stored = (
        mine[["n", "rounds"]].dropna().astype(int).drop_duplicates().to_numpy().tolist()
        if len(mine)
        else []
    )
    lines += [
        {"what": "runs", "n": n, "passes": made, "asked": wanted_passes(n)} for n, made in stored
    ]
    table = pd.DataFrame(lines)
    table["agrees"] = table["passes"] == table["asked"]
    made = sorted({rounds for _, rounds in stored})
    told = f" Stored runs made {' or '.join(map(str, made))} passes." if made else ""
    return exact(table, f"ceil(log2(log2(n))).{told}")


def wanted_passes(n):
    """Passes that the paper asks for, with logarithms to base 2."""
    return math.ceil(math.log2(math.log2(n)))


def same_rounds(study, check, context):
    """Rounds of every stored cell of a method: one number, whatever n, k and d."""
    cells = study.cells[study.cells["method"] == check["method"]].drop_duplicates("cell")
    if not len(cells):
        raise MissingRows(f"no stored rows of {check['method']}")
    rounds = cells["iterations"].astype(int)
    table = cells[["dataset", "n", "d", "k", "epsilon"]].assign(
        rounds=rounds, agrees=rounds == rounds.iloc[0]
    )
    sizes = {name: f"{cells[name].min():g} to {cells[name].max():g}" for name in ("n", "k", "d")}
    told = ", ".join(f"{name} {text}" for name, text in sizes.items())
    return exact(
        table.reset_index(drop=True),
        f"{', '.join(map(str, sorted(set(rounds))))} rounds over {told}.",
    )


def unassigned(study, check, context):
    """Check the points without a near candidate, after one pass and after all, against the bound 2
    k w n_i^0.1.

    `methods` maps each method to the number of its last pass; n keep^(i - 1) points take part in
    pass i. A share 1 - beta of the runs must keep the bound. Sizes at which it is as large as n, so
    that it says nothing, are left out.
    """
    panel = joined(study, check["sweep"], check["metric"])
    panel = (
        panel.take(panel.cells["method"].isin(list(check["methods"])).to_numpy())
        if len(panel.cells)
        else panel
    )
    cells = panel.cells
    if not len(cells):
        raise MissingRows(context.why(check["sweep"]))
    left = cells["n"] * cells["keep"].astype(float) ** (cells["method"].map(check["methods"]) - 1)
    weights = np.array(
        [weight(cell, check["constant"], check["beta"]) for cell in cells.to_dict("records")]
    )
    cells = cells.assign(allowed=2 * cells["k"] * weights * left**0.1)
    told = (cells["allowed"] < cells["n"]).to_numpy()
    if not told.any():
        raise MissingRows(
            f"the bound is n or more at all {len(cells)} stored sizes: larger n are needed"
        )
    panel = replace(panel, cells=cells).take(told)
    cells = panel.cells
    kept = np.where(np.isfinite(panel.values), panel.values <= cells["allowed"].to_numpy(), np.nan)
    shares = resampled_means(replace(panel, values=kept), resampling_weights(len(panel.seeds)))
    table = cells[["method", "dataset", "n", "d", "k", "epsilon", "allowed"]].assign(
        mean=np.nanmean(panel.values, axis=0), most=np.nanmax(panel.values, axis=0), kept=shares[0]
    )
    part = table["allowed"] / table["n"]
    numbers = f"The bound, its unknown constant set to {check['constant']:g}, is {percent(part.min())} to "
    numbers += f"{percent(part.max())} of n at {len(table)} sizes"
    numbers += f" and says nothing at {np.count_nonzero(~told)} more. " if not told.all() else ". "
    sides = table.groupby("method", sort=False).agg(average=("mean", "mean"), most=("most", "max"))
    lines = [
        f"{side.Index} {side.average:.3g} on average, {side.most:g} at most"
        for side in sides.itertuples()
    ]
    numbers += f"Points without a near candidate: {'; '.join(lines)};"
    seeds = int(np.isfinite(panel.values).sum(axis=0).min())
    return decide(shares >= 1 - check["beta"] - 1e-12, table, seeds, numbers, "", table)


def weight(cell, constant, beta):
    """The paper's w, the size from which on a cluster is found, with its constant given (natural
    logarithms).
    """
    loglog = math.log(math.log(cell["n"]))
    first = constant * math.sqrt(cell["d"]) * loglog / cell["epsilon"] * math.log(cell["k"] / beta)
    return first * math.sqrt(math.log(loglog / cell["delta"]))


def sufficient(study, check, context):
    """Judge `judged`, which suffices for the claim and is not needed for it: its failure leaves the
    claim open.
    """
    judged = check["judged"]
    found = (verdicts.EVALUATORS | EVALUATORS)[judged["type"]](study, judged, context)
    if found.verdict != FAILS:
        return found
    return replace(found, verdict=INCONCLUSIVE, numbers=f"{found.numbers} {check['but']}")


EVALUATORS = {
    "eventually": eventually,
    "excess_slope": excess_slope,
    "polylogarithmic": polylogarithmic,
    "paid": paid,
    "capture_growth": capture_growth,
    "capture_smaller": capture_smaller,
    "candidate_count": candidate_count,
    "ledger_total": ledger_total,
    "passes": passes,
    "same_rounds": same_rounds,
    "unassigned": unassigned,
    "sufficient": sufficient,
}
