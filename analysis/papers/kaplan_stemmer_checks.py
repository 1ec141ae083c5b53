"""Claims of the Kaplan-Stemmer paper: bounds from some n on, fits in log n, captured balls."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy import special

from pkm.analysis.accounting import gaussian_epsilon
from pkm.analysis.charges import charges_of
from pkm.analysis.exact import absent_cells
from pkm.analysis.findings import (
    Agreement,
    Context,
    Draws,
    MissingRows,
    check_type,
    no_rows_of,
    percent,
)
from pkm.analysis.planted import CURVE, Curve, curve, planted_panel
from pkm.analysis.tables import Study, resampled_means

_TOLERANCE = 1e-6
_ROUNDING = 1e-12
_CAPTURE = ("sweep", "metric", "methods", "factor", "level", "reach")

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


@check_type(*CURVE)
def eventually(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that a curve is at most `at_most` at its last value, and never exceeds it again.

    Once a value is at most `at_most`, all later ones must be.
    """
    line = curve(study, check, context)
    below = line.values <= check["at_most"]
    stays = below[:, -1] & (np.diff(below.astype(int), axis=1) >= 0).all(axis=1)
    since = f"from {line.along} = {line.x[below[0].argmax()]:g} on" if below[0].any() else "nowhere"
    text = f"Between {line.values[0].min():.4g} and {line.values[0].max():.4g}, at most "
    return line.draws(stays, "", check, f"{text}{check['at_most']:g} {since}", logs=False)


@check_type(*CURVE, "slack")
def polylogarithmic(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that a (log x)^c fits a curve no worse than a x^b.

    Its error, that of the curve's logarithm, may be larger by the share `slack`. A curve that does
    not rise is within any such bound, whatever fits it.
    """
    line = curve(study, check | {"min_values": 3}, context)
    power_error = line.residuals()
    log_error = line.residuals(logarithmic=False)
    powers = line.slopes()
    truth = (log_error <= (1 + check["slack"]) * power_error) | (powers <= 0)
    exponent = line.slopes(logarithmic=False)[0]
    text = f"Power {powers[0]:.3g} with error {power_error[0]:.3g}, power of log {exponent:.3g} "
    text += f"with error {log_error[0]:.3g} (of the natural logarithm)"
    return line.draws(truth, "", check, text)


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
    cells: pd.DataFrame, shares: np.ndarray, seeds: int, level: float
) -> dict[str, Curve]:
    """Smallest size of the small ball from which on the share is at least `level`.

    Returns
    -------
    dict of str to Curve
        For each method this size along n, the points in all other balls, with the `smallest` and
        the `largest` size stored. It is infinite where the largest stored ball is not captured.
    """
    found = {}
    for method, of_method in cells.groupby("method"):
        captured_sizes = []
        by_n = of_method.groupby("large")["small"]
        for _, small in by_n:
            # Captured at a size and at all larger ones.
            captured = shares[:, small.index] >= level - _ROUNDING
            onwards = np.logical_and.accumulate(captured[:, ::-1], axis=1)[:, ::-1]
            size = np.where(onwards.any(axis=1), small.to_numpy()[onwards.argmax(axis=1)], np.inf)
            captured_sizes.append(size)
        sizes = np.column_stack(captured_sizes)
        stored = by_n.agg(smallest="first", largest="last").reset_index(names="n")
        stored = stored.assign(method=method, captured=sizes[0])
        found[method] = Curve("n", stored["n"].to_numpy(dtype=float), sizes, stored, seeds)
    return found


def _captured(study: Study, check: Mapping, context: Context) -> list[Curve]:
    """Smallest captured sizes of the methods of a check; see `smallest_captured`."""
    found = smallest_captured(*capture_shares(study, check), check["level"])
    if not set(check["methods"]) <= set(found):
        raise MissingRows(context.why(check["sweep"]))
    return [found[name] for name in check["methods"]]


@check_type(*_CAPTURE)
def capture_growth(study: Study, check: Mapping, context: Context) -> Draws:
    """Check the slope of the smallest captured size over n, on logarithmic axes, against bounds."""
    (line,) = _captured(study, check, context)
    if len(line.x) < 3:
        raise MissingRows("sizes at three values of n are needed")

    # Resamples without a captured size have no slope.
    with np.errstate(invalid="ignore"):
        slopes = line.slopes()
    sizes = line.values[0]
    undecided = ""
    if not np.isfinite(sizes).all():
        undecided = "Not captured at all within the stored sizes: larger balls are needed."
    elif (sizes == line.cells["smallest"]).all():
        undecided = "All are the smallest that is stored, so nothing is known of the growth."
    texts = ", ".join(f"n = {n:g}: {size:g}" for n, size in zip(line.x, sizes, strict=True))
    name = f"Smallest size captured in {percent(check['level'])} of the runs at {texts}; slope"
    return replace(line.draws(slopes, name, check), undecided=undecided)


@check_type(*_CAPTURE)
def capture_smaller(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that the first method captures balls no larger than the second, for every n."""
    left, right = _captured(study, check, context)
    n, left_columns, right_columns = np.intersect1d(left.x, right.x, return_indices=True)
    if not n.size:
        raise MissingRows(context.why(check["sweep"]))
    first = left.values[:, left_columns]
    second = right.values[:, right_columns]
    sizes = zip(n, first[0], second[0], strict=True)
    texts = [f"n = {n:g}: {left:g} against {right:g}" for n, left, right in sizes]
    neither = np.isinf(first[0]) & np.isinf(second[0])
    violated = (first[0] > second[0]).any()
    undecided = "Neither captures the largest stored ball."
    short = f"n up to {n.max():g} instead of {check['reach']:g}"
    return Draws(
        first <= second,
        pd.DataFrame({"n": n}),
        left.seeds,
        short if n.max() < check["reach"] else "",
        facts=dict(zip(check["methods"], (first[0], second[0]), strict=True)),
        text=f"Smallest captured size, {' against '.join(check['methods'])}: {'; '.join(texts)}",
        undecided=undecided if neither.any() and not violated else "",
    )


@check_type("sweep", "metric", "methods", "constant", "beta")
def unassigned(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that few points without a near candidate are left: at most 2 k w n_i^0.1.

    After one pass and after all: `methods` maps each method to the number of its last pass;
    n_i = n keep^(i - 1) points take part in pass i. The value is the share of runs within the
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
    allowed = 2 * cells["k"] * np.array(weights) * n_left**0.1
    informative = (allowed < cells["n"]).to_numpy()
    if not informative.any():
        raise MissingRows(
            f"the bound is n or more at all {len(cells)} stored sizes: larger n are needed"
        )
    panel = replace(panel, cells=cells.assign(allowed=allowed)).take(informative)
    cells = panel.cells

    # The share of runs within it.
    fits = np.where(np.isnan(panel.values), np.nan, panel.values <= cells["allowed"].to_numpy())
    shares = resampled_means(replace(panel, values=fits))
    share_of_n = cells["allowed"] / cells["n"]
    text = f"the bound, its unknown constant set to {check['constant']:g}, is "
    text += f"{percent(share_of_n.min())} to {percent(share_of_n.max())} of n at {len(cells)} "
    text += f"sizes and says nothing at {np.count_nonzero(~informative)} more"
    facts = {"allowed": cells["allowed"], "mean": np.nanmean(panel.values, axis=0)}
    facts |= {"largest": np.nanmax(panel.values, axis=0)}
    cases = cells[["method", "dataset", "n", "d", "k", "epsilon"]]
    name = "Share of runs within the bound"
    missing = absent_cells(context, check["methods"], check["sweep"])
    return Draws(shares, cases, panel.min_seeds, missing, name, facts=facts, text=text)


def weight(cell: Mapping, constant: float, beta: float) -> float:
    """The paper's w, the smallest size of a cluster that is found, for a value of its constant.

    Logarithms are natural.
    """
    loglog = math.log(math.log(cell["n"]))
    per_cluster = math.log(cell["k"] / beta)
    noise = constant * math.sqrt(cell["d"]) * loglog / cell["epsilon"] * per_cluster
    return noise * math.sqrt(math.log(loglog / cell["delta"]))


# --- ledger ---------------------------------------------------------------------------------------


@check_type("methods", "delta")
def ledger_total(study: Study, check: Mapping, context: Context) -> Agreement:
    """Epsilon and delta in the ledger of every stored cell, against those declared.

    The ledger is about a record left out. The finding also states the epsilon of the same releases
    at the same delta where a record is replaced, see `replacement_cost`.
    """
    cells = study.cells[study.cells["method"].isin(check["methods"])].drop_duplicates("cell")
    if not len(cells):
        raise MissingRows(no_rows_of(check["methods"], ()))
    spent = cells["epsilon_spent"] / cells["epsilon"]
    fits = (spent <= 1 + _TOLERANCE) & (cells["delta"] <= check["delta"] * (1 + _TOLERANCE))

    # Epsilon of the same releases where a record is replaced.
    charges = charges_of(cells)
    of_cells = [charges[charges.index == index].to_dict("records") for index in cells.index]
    pairs = zip(of_cells, cells["delta"], strict=True)
    replaced = np.array([replacement_epsilon(*pair) for pair in pairs])
    ratio = pd.Series(replaced / cells["epsilon"]).dropna()

    facts = ["sweep", "method", "dataset", "epsilon", "epsilon_spent", "delta"]
    table = cells[facts].assign(epsilon_replaced=replaced, agrees=fits)
    text = f"The ledger needs {spent.min():.4f} to {spent.max():.4f} of the declared ε if a "
    text += "record is left out. "
    if len(ratio):
        text += f"The same releases need {ratio.min():.3g} to {ratio.max():.3g} times that ε, "
        text += f"at the same δ, if a record is replaced (median {ratio.median():.3g}). "
    if len(ratio) < len(cells):
        text += f"For {len(cells) - len(ratio)} of {len(cells)} cells that cannot be computed "
        text += "from what is stored. "
    text += "Accounting only: no audit was made, no lower bound on ε is measured."
    missing = absent_cells(context, check["methods"])
    return Agreement(table.reset_index(drop=True), text, missing)


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
