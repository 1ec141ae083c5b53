"""Claims of the Kaplan-Stemmer paper: bounds from some n on, fits in log n, captured balls."""

import math
from collections.abc import Mapping, Sequence
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
    Context,
    Finding,
    MissingRows,
    bounds_text,
    decide,
    decide_joint,
    exact,
    no_rows_of,
    percent,
    within,
)
from pkm.analysis.planted import (
    curve,
    excess_slope,
    not_positive,
    planted_panel,
    slope_table,
)
from pkm.analysis.tables import Study, matches, resampled_means

_TOLERANCE = 1e-6
_ROUNDING = 1e-12

# Table 1: factor and additive bound of every row, without logarithms, epsilon and constants, which
# the paper's table leaves out too.
BOUNDS = {
    "feldman2009": (lambda n, k, d: np.sqrt(d), lambda n, k, d: (k * d) ** (2.0 * d)),
    "nock2016": (lambda n, k, d: np.log(k), lambda n, k, d: n / np.log(n) ** 2),
    "feldman2017": (lambda n, k, d: k * np.log(n), lambda n, k, d: np.sqrt(d) * k**1.5),
    "balcan2017": (lambda n, k, d: np.log(n) ** 3, lambda n, k, d: d + k**2.0),
    "nissim_stemmer2018": (lambda n, k, d: k, lambda n, k, d: d**0.51 * k**1.51),
    "this_work": (lambda n, k, d: 1.0, lambda n, k, d: k**1.01 * d**0.51 + k**1.5),
}


def eventually(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that a curve is at most `at_most` at its last value, and never exceeds it again.

    Once a value is at most `at_most`, all later ones must be.
    """
    line = curve(study, check, context)
    below = line.values <= check["at_most"]
    reached = below.any(axis=1)
    n_values = below.shape[1]
    first = np.where(reached, below.argmax(axis=1), n_values)
    before_first = np.arange(n_values) < first[:, None]
    stays = (below | before_first).all(axis=1)
    truth = reached & stays
    since = f"from {line.along} = {line.x[first[0]]:g} on" if reached[0] else "nowhere"
    on_sample = line.values[0]
    numbers = f"Between {on_sample.min():.4g} and {on_sample.max():.4g}, at most "
    numbers += f"{check['at_most']:g} {since};"
    missing = line.missing_reach(check["reach"])
    return decide_joint(truth, line.seeds, numbers, missing, line.evidence())


def polylogarithmic(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that a (log x)^c fits a curve no worse than a x^b.

    Its error, that of the curve's logarithm, may be larger by the share `slack`. A curve that does
    not rise is within any such bound, whatever fits it.
    """
    line = curve(study, check | {"min_values": 3}, context)
    if (finding := not_positive(line)) is not None:
        return finding
    power_error = line.residuals()
    polylog_error = line.residuals(logarithmic=False)
    powers = line.slopes()
    exponents = line.slopes(logarithmic=False)
    fits = polylog_error <= (1 + check["slack"]) * power_error
    truth = fits | (powers <= 0)
    evidence = slope_table([line], [powers]).assign(
        exponent_of_log=exponents[0], error_power=power_error[0], error_polylog=polylog_error[0]
    )
    numbers = f"Power {powers[0]:.3g} with error {power_error[0]:.3g}, power of log "
    numbers += f"{exponents[0]:.3g} with error {polylog_error[0]:.3g} (of the natural logarithm);"
    missing = line.missing_reach(check["reach"])
    return decide(truth[:, None], line.seeds, numbers, missing, evidence)


def mean_cost(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the mean cost of some cells (`where`) against bounds."""
    panel = planted_panel(study, check["sweep"], check["metric"])
    selected = matches(panel.cells, check["method"])
    selected &= matches(panel.cells, check.get("where", {}))
    if not selected.any():
        raise MissingRows(context.why(check["sweep"]))
    panel = panel.take(selected)
    cost = resampled_means(panel) * panel.cells["n"].to_numpy()
    evidence = panel.cells[["method", "dataset", "n", "k", "epsilon"]].assign(cost=cost[0])
    numbers = f"Mean cost {cost[0].min():.4g} to {cost[0].max():.4g} "
    numbers += f"(required: {bounds_text(check)});"
    return decide(within(cost, check), panel.min_seeds, numbers, "", evidence)


# --- the small ball -------------------------------------------------------------------------------


def capture_shares(study: Study, check: Mapping) -> tuple[pd.DataFrame, np.ndarray, int]:
    """Share of runs in which every ball has a candidate within `factor` (r + 1/n) of its mean.

    Returns
    -------
    DataFrame, ndarray of shape (repeats + 1, cells), int
        Cells with `share`; resampled shares; fewest seeds. Cells are sorted by method, n and size
        of the small ball.
    """
    panel = planted_panel(study, check["sweep"], check["metric"])
    with_small = panel.cells["small"].notna() & panel.cells["method"].isin(check["methods"])
    panel = panel.take(with_small.to_numpy())
    if not len(panel.cells):
        return panel.cells.assign(large=[], reach=[], share=[]), np.empty((1, 0)), 0

    # Sort by the number of points in all other balls, then by the size of the small one.
    large = panel.cells["n"] - panel.cells["small"]
    panel = replace(panel, cells=panel.cells.assign(large=large))
    order = panel.cells.sort_values(["method", "large", "small"]).index
    panel = panel.take(order.to_numpy())

    # A run captures all balls if the one farthest from all candidates is within reach.
    cells = panel.cells
    reach = check["factor"] * (cells["ball"] + 1 / cells["n"]).to_numpy()
    captured = np.where(np.isfinite(panel.values), panel.values <= reach, np.nan)
    panel = replace(panel, values=captured)
    shares = resampled_means(panel)
    return cells.assign(reach=reach, share=shares[0]), shares, panel.min_seeds


def smallest_captured(
    cells: pd.DataFrame, shares: np.ndarray, level: float
) -> tuple[pd.DataFrame, np.ndarray]:
    """Smallest size of the small ball from which on the share is at least `level`.

    Returns
    -------
    DataFrame, ndarray of shape (repeats + 1, groups)
        One line per method and n with `captured` (that size), `smallest` and `largest` (sizes
        stored); the captured size in every resample, infinite where the largest stored ball is not
        captured.
    """
    lines = []
    captured_sizes = []
    for (method, large), group in cells.groupby(["method", "large"], sort=True):
        sizes = group["small"].to_numpy()
        captured = shares[:, group.index.to_numpy()] >= level - _ROUNDING

        # Captured at a size and at all larger ones.
        from_largest = np.logical_and.accumulate(captured[:, ::-1], axis=1)
        captured_onwards = from_largest[:, ::-1]
        first = sizes[captured_onwards.argmax(axis=1)]
        size = np.where(captured_onwards.any(axis=1), first, np.inf)
        captured_sizes.append(size)
        lines.append(
            {
                "method": method,
                "n": large,
                "captured": size[0],
                "smallest": sizes[0],
                "largest": sizes[-1],
            }
        )
    by_group = np.column_stack(captured_sizes) if captured_sizes else np.empty((1, 0))
    return pd.DataFrame(lines), by_group


def _captured(
    study: Study, check: Mapping, context: Context
) -> tuple[pd.DataFrame, np.ndarray, int]:
    """Captured sizes of a check, see `smallest_captured`, and the fewest seeds of a cell."""
    cells, shares, seeds = capture_shares(study, check)
    if not len(cells):
        raise MissingRows(context.why(check["sweep"]))
    table, sizes = smallest_captured(cells, shares, check["level"])
    return table, sizes, seeds


def capture_growth(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the slope of the smallest captured size over n, on logarithmic axes, against bounds."""
    table, sizes, seeds = _captured(study, check, context)
    of_method = (table["method"] == check["methods"][0]).to_numpy()
    table = table[of_method].reset_index(drop=True)
    sizes = sizes[:, of_method]
    if len(table) < 3:
        raise MissingRows("sizes at three values of n are needed")
    texts = ", ".join(f"n = {line.n:g}: {line.captured:g}" for line in table.itertuples())
    if not np.isfinite(sizes[0]).all():
        numbers = f"Smallest captured size at {texts}: not captured at all within the stored sizes."
        return Finding(INCONCLUSIVE, numbers, len(table), seeds, "larger balls are needed", table)

    # Fit a line to the logarithms; resamples without a captured size have no slope.
    x = np.log(table["n"].to_numpy(dtype=float))
    centered = x - x.mean()
    with np.errstate(invalid="ignore"):
        slope = np.log(sizes) @ centered / (centered @ centered)
    numbers = f"Smallest size captured in {percent(check['level'])} of the runs at {texts}; slope "
    numbers += f"{slope[0]:.3g} (required: {bounds_text(check)});"
    missing = _missing_n(table, check["reach"])
    finding = decide_joint(within(slope, check), seeds, numbers, missing, table)
    if (table["captured"] == table["smallest"]).all():
        text = "All are the smallest that is stored, so nothing is known of the growth."
        return replace(finding, verdict=INCONCLUSIVE, numbers=f"{finding.numbers} {text}")
    return finding


def _missing_n(table: pd.DataFrame, reach: float) -> str:
    """Say that the largest stored n is smaller than a claim needs; empty where it is not."""
    largest = table["n"].max()
    return "" if largest >= reach else f"n up to {largest:g} instead of {reach:g}"


def capture_smaller(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the first method captures balls no larger than the second, for every n."""
    table, sizes, seeds = _captured(study, check, context)
    first, second = check["methods"]

    # Columns of both methods at every n that they share.
    columns = {}
    for name in (first, second):
        of_method = table[table["method"] == name]
        columns[name] = dict(zip(of_method["n"], of_method.index, strict=True))
    shared = [n for n in columns[first] if n in columns[second]]
    if not shared:
        raise MissingRows(context.why(check["sweep"]))
    first_sizes = sizes[:, [columns[first][n] for n in shared]]
    second_sizes = sizes[:, [columns[second][n] for n in shared]]

    evidence = pd.DataFrame({"n": shared, first: first_sizes[0], second: second_sizes[0]})
    texts = [
        f"n = {n:g}: {first_size:g} against {second_size:g}"
        for n, first_size, second_size in evidence.itertuples(index=False)
    ]
    numbers = f"Smallest captured size, {first} against {second}: {'; '.join(texts)};"
    missing = _missing_n(evidence, check["reach"])
    finding = decide(first_sizes <= second_sizes, seeds, numbers, missing, evidence)
    neither = np.isinf(first_sizes[0]) & np.isinf(second_sizes[0])
    if neither.any() and finding.verdict != FAILS:
        text = f"{finding.numbers} Neither captures the largest stored ball."
        return replace(finding, verdict=INCONCLUSIVE, numbers=text)
    return finding


# --- counts, ledger, reported bounds ---


def candidate_count(study: Study, check: Mapping, context: Context) -> Finding:
    """Number of candidates in every stored row against epsilon n log(k / beta)."""
    rows = study.rows_with(["n_centers"])
    rows = rows[rows["method"].isin(check["methods"])]
    if not len(rows):
        raise MissingRows(context.why(check["sweep"]))
    allowed = rows["epsilon"] * rows["n"] * np.log(rows["k"] / check["beta"])
    keys = ["method", "dataset", "n", "k", "epsilon"]
    rows = rows[keys].assign(candidates=rows["n_centers"], allowed=allowed)
    table = rows.groupby(keys)[["candidates", "allowed"]].max().reset_index()
    table["agrees"] = table["candidates"] <= table["allowed"]
    share = (table["candidates"] / table["allowed"]).max()
    numbers = f"At most {table['candidates'].max():g} candidates, {percent(share)} of what is "
    return exact(table, f"{numbers}allowed.")


def ledger_total(study: Study, check: Mapping, context: Context) -> Finding:
    """Epsilon and delta in the ledger of every stored cell, against those declared.

    The ledger is about a record left out. The finding also states the epsilon of the same releases
    at the same delta where a record is replaced, see `replacement_cost`.
    """
    cells = study.cells[study.cells["method"].isin(check["methods"])].drop_duplicates("cell")
    if not len(cells):
        raise MissingRows(no_rows_of(check["methods"], ()))

    # The ledger's totals against the declared ones.
    spent = cells["epsilon_spent"] / cells["epsilon"]
    epsilon_fits = spent <= 1 + _TOLERANCE
    delta_fits = cells["delta"] <= check["delta"] * (1 + _TOLERANCE)

    # Epsilon of the same releases where a record is replaced.
    charges = charges_of(cells)
    epsilons = []
    for index, delta in cells["delta"].items():
        of_cell = charges[charges.index == index]
        epsilons.append(replacement_epsilon(of_cell.to_dict("records"), delta))
    replaced = np.array(epsilons)

    facts = ["sweep", "method", "dataset", "epsilon", "epsilon_spent", "delta"]
    table = cells[facts].assign(epsilon_replaced=replaced, agrees=epsilon_fits & delta_fits)
    numbers = f"The ledger needs {spent.min():.4f} to {spent.max():.4f} of the declared ε if a "
    numbers += "record is left out. "
    known = np.isfinite(replaced)
    if known.any():
        ratio = (replaced / cells["epsilon"])[known]
        numbers += f"The same releases need {ratio.min():.3g} to {ratio.max():.3g} times that ε, "
        numbers += f"at the same δ, if a record is replaced (median {ratio.median():.3g}). "
    if not known.all():
        numbers += f"For {np.count_nonzero(~known)} of {known.size} cells that cannot be computed "
        numbers += "from what is stored. "
    missing = "no audit was made: no lower bound on ε is measured"
    return exact(table.reset_index(drop=True), f"{numbers}Accounting only.", missing)


def replacement_cost(charges: Sequence[Mapping]) -> tuple[float, float]:
    """Gaussian cost and delta of stored charges if a record is replaced, not left out.

    Both the old record and the new one change what is released. Two counts change by 1; a sum
    changes by twice the radius (two sums by less); a threshold may fail for two buckets; costs in
    the exponential mechanism move up and down, so that its exponents range over twice as much.
    Passes over the farthest points are charged for a replacement already, and the replacement of a
    record replaces one of these points.

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
    if not charges:
        return math.nan, math.nan
    square = 0.0
    delta = 0.0
    for charge in charges:
        label = charge["label"]
        failure = charge["delta"]
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
            square += (2 * special.ndtri(special.expit(charge["choice_range"]))) ** 2
        else:
            return math.nan, math.nan
        delta += failure
    return math.sqrt(square), delta


def replacement_epsilon(charges: Sequence[Mapping], delta: float) -> float:
    """Smallest epsilon of stored charges at `delta` if a record is replaced; NaN if not known."""
    mu, failure = replacement_cost(charges)
    return gaussian_epsilon(mu, delta - failure) if mu > 0 else math.nan


def passes(study: Study, check: Mapping, context: Context) -> Finding:
    """Passes ceil(log2 log2 n): at the sizes of `expected`, and of the stored runs."""
    lines = [
        {"what": "formula", "n": n, "passes": published_passes(n), "expected": count}
        for n, count in check["expected"].items()
    ]
    cells = study.cells[study.cells["method"].isin(check["methods"])]
    stored = []
    if "rounds" in cells:
        runs = cells[["n", "rounds"]].dropna().astype(int).drop_duplicates()
        stored = runs.to_numpy().tolist()
    lines += [
        {"what": "runs", "n": n, "passes": rounds, "expected": published_passes(n)}
        for n, rounds in stored
    ]
    table = pd.DataFrame(lines)
    table["agrees"] = table["passes"] == table["expected"]
    numbers = "ceil(log2(log2(n)))."
    if stored:
        rounds = sorted({rounds for _, rounds in stored})
        numbers += f" Stored runs made {' or '.join(map(str, rounds))} passes."
    return exact(table, numbers)


def published_passes(n: float) -> int:
    """Number of passes in the paper, with logarithms to base 2."""
    return math.ceil(math.log2(math.log2(n)))


def same_rounds(study: Study, check: Mapping, context: Context) -> Finding:
    """Rounds of every stored cell of a method: one number, whatever n, k and d."""
    cells = study.cells[study.cells["method"] == check["method"]].drop_duplicates("cell")
    if not len(cells):
        raise MissingRows(f"no stored rows of {check['method']}")
    rounds = cells["iterations"].astype(int)
    table = cells[["dataset", "n", "d", "k", "epsilon"]].assign(
        rounds=rounds, agrees=rounds == rounds.iloc[0]
    )
    ranges = [f"{name} {cells[name].min():g} to {cells[name].max():g}" for name in ("n", "k", "d")]
    numbers = f"{', '.join(map(str, sorted(set(rounds))))} rounds over {', '.join(ranges)}."
    return exact(table.reset_index(drop=True), numbers)


def unassigned(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the number of points without a near candidate against the bound 2 k w n_i^0.1.

    After one pass and after all: `methods` maps each method to the number of its last pass;
    n_i = n keep^(i - 1) points take part in pass i. A share 1 - beta of the runs must be within the
    bound. Sizes at which it is n or more, and so no restriction, are left out.
    """
    panel = planted_panel(study, check["sweep"], check["metric"])
    panel = panel.take(panel.cells["method"].isin(list(check["methods"])).to_numpy())
    cells = panel.cells
    if not len(cells):
        raise MissingRows(context.why(check["sweep"]))

    # The bound of every size, where it is below n.
    n_passes = cells["method"].map(check["methods"])
    n_left = cells["n"] * cells["keep"].astype(float) ** (n_passes - 1)
    weights = [weight(cell, check["constant"], check["beta"]) for cell in cells.to_dict("records")]
    cells = cells.assign(allowed=2 * cells["k"] * np.array(weights) * n_left**0.1)
    informative = (cells["allowed"] < cells["n"]).to_numpy()
    if not informative.any():
        raise MissingRows(
            f"the bound is n or more at all {len(cells)} stored sizes: larger n are needed"
        )
    panel = replace(panel, cells=cells).take(informative)
    cells = panel.cells

    # The share of runs within it.
    is_within = panel.values <= cells["allowed"].to_numpy()
    is_within = np.where(np.isfinite(panel.values), is_within, np.nan)
    shares = resampled_means(replace(panel, values=is_within))
    table = cells[["method", "dataset", "n", "d", "k", "epsilon", "allowed"]].assign(
        mean=np.nanmean(panel.values, axis=0),
        largest=np.nanmax(panel.values, axis=0),
        share_within=shares[0],
    )
    share_of_n = table["allowed"] / table["n"]
    numbers = f"The bound, its unknown constant set to {check['constant']:g}, is "
    numbers += f"{percent(share_of_n.min())} to {percent(share_of_n.max())} of n at {len(table)} "
    numbers += "sizes"
    if not informative.all():
        numbers += f" and says nothing at {np.count_nonzero(~informative)} more"
    by_method = table.groupby("method", sort=False)
    sides = by_method.agg(average=("mean", "mean"), largest=("largest", "max"))
    texts = [
        f"{side.Index} {side.average:.3g} on average, {side.largest:g} at most"
        for side in sides.itertuples()
    ]
    numbers += f". Number of points without a near candidate: {'; '.join(texts)};"
    truth = shares >= 1 - check["beta"] - _ROUNDING
    return decide(truth, panel.min_seeds, numbers, "", table)


def weight(cell: Mapping, constant: float, beta: float) -> float:
    """The paper's w, the smallest size of a cluster that is found, for a value of its constant.

    Logarithms are natural.
    """
    loglog = math.log(math.log(cell["n"]))
    per_cluster = math.log(cell["k"] / beta)
    noise = constant * math.sqrt(cell["d"]) * loglog / cell["epsilon"] * per_cluster
    return noise * math.sqrt(math.log(loglog / cell["delta"]))


def sufficient(study: Study, check: Mapping, context: Context) -> Finding:
    """Judge `judged`, a sufficient condition of the claim: if it fails, nothing is decided."""
    judged = check["judged"]
    finding = (verdicts.EVALUATORS | EVALUATORS)[judged["type"]](study, judged, context)
    if finding.verdict != FAILS:
        return finding
    return replace(finding, verdict=INCONCLUSIVE, numbers=f"{finding.numbers} {check['but']}")


EVALUATORS = {
    "eventually": eventually,
    "excess_slope": excess_slope,
    "polylogarithmic": polylogarithmic,
    "mean_cost": mean_cost,
    "capture_growth": capture_growth,
    "capture_smaller": capture_smaller,
    "candidate_count": candidate_count,
    "ledger_total": ledger_total,
    "passes": passes,
    "same_rounds": same_rounds,
    "unassigned": unassigned,
    "sufficient": sufficient,
}
