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
from pkm.analysis.planted import CURVE, curve, planted_panel
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
        onwards = np.logical_and.accumulate(captured[:, ::-1], axis=1)[:, ::-1]
        size = np.where(onwards.any(axis=1), sizes[onwards.argmax(axis=1)], np.inf)
        captured_sizes.append(size)
        line = {"method": method, "n": large, "captured": size[0]}
        lines.append(line | {"smallest": sizes[0], "largest": sizes[-1]})
    by_group = np.column_stack(captured_sizes) if captured_sizes else np.empty((1, 0))
    return pd.DataFrame(lines), by_group


def _captured(
    study: Study, check: Mapping, context: Context
) -> tuple[dict[str, tuple[pd.DataFrame, np.ndarray]], int]:
    """Captured sizes of every method, see `smallest_captured`, and the fewest seeds of a cell."""
    cells, shares, seeds = capture_shares(study, check)
    if not len(cells):
        raise MissingRows(context.why(check["sweep"]))
    table, sizes = smallest_captured(cells, shares, check["level"])
    positions = {name: np.flatnonzero(table["method"] == name) for name in check["methods"]}
    return {
        name: (table.iloc[columns].reset_index(drop=True), sizes[:, columns])
        for name, columns in positions.items()
    }, seeds


def _short(table: pd.DataFrame, reach: float) -> str:
    """Say that the largest stored n is smaller than a claim needs; empty where it is not."""
    largest = table["n"].max()
    return "" if largest >= reach else f"n up to {largest:g} instead of {reach:g}"


@check_type(*_CAPTURE)
def capture_growth(study: Study, check: Mapping, context: Context) -> Draws:
    """Check the slope of the smallest captured size over n, on logarithmic axes, against bounds."""
    by_method, seeds = _captured(study, check, context)
    ((table, sizes),) = by_method.values()
    if len(table) < 3:
        raise MissingRows("sizes at three values of n are needed")

    # Fit a line to the logarithms; resamples without a captured size have no slope.
    centered = np.log(table["n"].to_numpy(dtype=float))
    centered -= centered.mean()
    with np.errstate(invalid="ignore"):
        slope = np.log(sizes) @ centered / (centered @ centered)
    undecided = ""
    if not np.isfinite(sizes[0]).all():
        undecided = "Not captured at all within the stored sizes: larger balls are needed."
    elif (table["captured"] == table["smallest"]).all():
        undecided = "All are the smallest that is stored, so nothing is known of the growth."
    texts = ", ".join(f"n = {line.n:g}: {line.captured:g}" for line in table.itertuples())
    missing = _short(table, check["reach"])
    return Draws(
        slope[:, None],
        table[["method"]].iloc[:1],
        seeds,
        missing,
        f"Smallest size captured in {percent(check['level'])} of the runs at {texts}; slope",
        complete=np.array([not missing]),
        evidence=table,
        undecided=undecided,
    )


@check_type(*_CAPTURE)
def capture_smaller(study: Study, check: Mapping, context: Context) -> Draws:
    """Check that the first method captures balls no larger than the second, for every n."""
    by_method, seeds = _captured(study, check, context)
    (left, left_sizes), (right, right_sizes) = by_method.values()
    both = left.reset_index().merge(right.reset_index(), on="n")
    if not len(both):
        raise MissingRows(context.why(check["sweep"]))
    first = left_sizes[:, both["index_x"]]
    second = right_sizes[:, both["index_y"]]
    sizes = zip(both["n"], first[0], second[0], strict=True)
    texts = [f"n = {n:g}: {left:g} against {right:g}" for n, left, right in sizes]
    neither = np.isinf(first[0]) & np.isinf(second[0])
    violated = (first[0] > second[0]).any()
    undecided = "Neither captures the largest stored ball."
    return Draws(
        first <= second,
        both[["n"]],
        seeds,
        _short(both, check["reach"]),
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


# --- ledger and passes ----------------------------------------------------------------------------


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


@check_type("methods", "expected")
def passes(study: Study, check: Mapping, context: Context) -> Agreement:
    """Passes ceil(log2 log2 n): at the sizes of `expected`, and of the stored runs."""
    lines = [("formula", n, published_passes(n), count) for n, count in check["expected"].items()]
    cells = study.cells[study.cells["method"].isin(check["methods"])]
    if "rounds" in cells:
        runs = cells[["n", "rounds"]].dropna().astype(int).drop_duplicates()
        lines += [("runs", n, rounds, published_passes(n)) for n, rounds in runs.to_numpy()]
    table = pd.DataFrame(lines, columns=["what", "n", "passes", "expected"])
    table["agrees"] = table["passes"] == table["expected"]
    runs = " or ".join(map(str, sorted(set(table["passes"][table["what"] == "runs"]))))
    return Agreement(table, f"ceil(log2(log2(n))). Stored runs made {runs or 'no'} passes.")


def published_passes(n: float) -> int:
    """Number of passes in the paper, with logarithms to base 2."""
    return math.ceil(math.log2(math.log2(n)))
