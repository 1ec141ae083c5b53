"""Claims of the FastLloyd paper that are formulas: compared with the ledger's charges and the stored iterations."""

import json
import math

import numpy as np
import pandas as pd
from scipy import optimize, stats

from analysis.verdicts import Absent, exact

DEFAULT_ALPHA = 0.8
SILHOUETTE_SAMPLE = 10_000
_TOLERANCE = 1e-6


def gaussian_delta(mu, epsilon):
    """Delta of a mu-GDP mechanism at epsilon (Dong, Roth and Su, corollary 1), own form to check the ledger by."""
    return stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * stats.norm.cdf(-epsilon / mu - mu / 2)


def noise_multiplier(epsilon, delta):
    """Smallest sigma for which a query of sensitivity one is (epsilon, delta)-private."""
    mu = optimize.brentq(lambda value: gaussian_delta(value, epsilon) - delta, 1e-6, 100.0, xtol=1e-14)
    return 1 / mu


def iteration_bound(n, d, k, epsilon, delta, alpha=DEFAULT_ALPHA):
    """Number of iterations by the error bound of section 5.5, cut to [2, 7] and rounded down."""
    sigma = noise_multiplier(epsilon, delta)
    radius = alpha * math.sqrt(d) / k ** (1 / d)
    bound = 4 * n**2 * 0.004 / (k**3 * radius**2 * sigma**2 * (1 + math.sqrt(4 * d)) ** 2)
    return int(min(max(math.floor(bound), 2), 7))


def _fastlloyd_cells(study):
    """Distinct published FastLloyd cells, whichever sweeps they stand in."""
    cells = study.cells
    mine = (cells["target"].str.rsplit(".", n=1).str[-1] == "FastLloyd") & (cells["variant"] == "published")
    chosen = cells[mine].drop_duplicates("cell").reset_index(drop=True)
    if not len(chosen):
        raise Absent("no stored rows of the published FastLloyd")
    return chosen


def _parameter(cell, name, default):
    value = cell.get(name)
    return default if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _identity(cell):
    return {name: cell[name] for name in ("sweep", "method", "dataset", "n", "d", "k", "epsilon")}


def iterations(study, check, context):
    """T of every cell against the formula, where T was not fixed by hand."""
    lines = []
    for cell in _fastlloyd_cells(study).to_dict("records"):
        if _parameter(cell, "n_iterations", "auto") != "auto":
            continue
        alpha = _parameter(cell, "alpha", DEFAULT_ALPHA)
        asked = iteration_bound(cell["n"], cell["d"], cell["k"], cell["epsilon"], cell["delta"], alpha)
        lines.append(
            _identity(cell)
            | {"formula": asked, "stored": int(cell["iterations"]), "agrees": asked == cell["iterations"]}
        )
    table = pd.DataFrame(lines)
    if not len(table):
        raise Absent("no stored FastLloyd cell leaves T to the error bound")
    spread = f"T from {table['stored'].min()} to {table['stored'].max()}."
    return exact(table, spread)


def _charges(cell):
    charges = json.loads(cell["charges"] or "[]")
    return [charge for charge in charges if charge["label"] == "sums_and_counts"]


def noise_split(study, check, context):
    """Multipliers of sums and counts: ratio (4d)^(1/4), and together the mu charged for the round."""
    lines = []
    for cell in _fastlloyd_cells(study).to_dict("records"):
        for charge in _charges(cell):
            sums = charge["sum_scale"] / charge["sum_sensitivity"]
            counts = charge["count_scale"] / charge["count_sensitivity"]
            ratio, asked = counts / sums, (4 * cell["d"]) ** 0.25
            together = math.hypot(1 / sums, 1 / counts)
            agrees = math.isclose(ratio, asked, rel_tol=_TOLERANCE) and math.isclose(
                together, charge["loss"], rel_tol=_TOLERANCE
            )
            lines.append(
                _identity(cell)
                | {
                    "round": charge["round"],
                    "ratio": ratio,
                    "formula": asked,
                    "mu_of_both": together,
                    "mu_charged": charge["loss"],
                    "agrees": agrees,
                }
            )
    return exact(
        pd.DataFrame(lines), "Read from the ledger's charges, one line per round." if lines else "no charges stored"
    )


def radius(study, check, context):
    """Radius of the last round against alpha sqrt(d) / k^(1/d); the Step rule starts at sqrt(d)."""
    lines = []
    for cell in _fastlloyd_cells(study).to_dict("records"):
        charges = _charges(cell)
        if not charges:
            continue
        asked = _parameter(cell, "alpha", DEFAULT_ALPHA) * math.sqrt(cell["d"]) / cell["k"] ** (1 / cell["d"])
        step = _parameter(cell, "radius_schedule", "step") == "step"
        first = math.sqrt(cell["d"]) if step else asked
        late = asked if len(charges) > 1 else first
        agrees = math.isclose(charges[-1]["radius"], late, rel_tol=_TOLERANCE) and math.isclose(
            charges[0]["radius"], first, rel_tol=_TOLERANCE
        )
        lines.append(
            _identity(cell)
            | {
                "first": charges[0]["radius"],
                "last": charges[-1]["radius"],
                "formula": late,
                "share_of_k_1": cell["k"] ** (-1 / cell["d"]),
                "agrees": agrees,
            }
        )
    table = pd.DataFrame(lines)
    if not len(table):
        raise Absent("no charges stored")
    high = table.loc[table["d"].idxmax()]
    return exact(
        table, f"At d = {high['d']} the bound for k = {high['k']} is {high['share_of_k_1']:.3f} of that for k = 1."
    )


def composition(study, check, context):
    """All rounds together: delta at the declared epsilon by the closed form, and the ledger's own epsilon."""
    lines = []
    for cell in _fastlloyd_cells(study).to_dict("records"):
        charges = _charges(cell)
        if not charges:
            continue
        mu = math.sqrt(math.fsum(charge["loss"] ** 2 for charge in charges))
        delta = gaussian_delta(mu, cell["epsilon"])
        agrees = (
            math.isclose(cell["epsilon_spent"], cell["epsilon"], rel_tol=_TOLERANCE)
            and math.isclose(delta, cell["delta"], rel_tol=1e-4)
            and delta <= cell["delta"] * (1 + _TOLERANCE)
        )
        lines.append(
            _identity(cell)
            | {
                "rounds": len(charges),
                "mu": mu,
                "delta_recomputed": delta,
                "delta": cell["delta"],
                "epsilon_spent": cell["epsilon_spent"],
                "agrees": agrees,
            }
        )
    table = pd.DataFrame(lines)
    if not len(table):
        raise Absent("no charges stored")
    rounds = f"{table['rounds'].min()} to {table['rounds'].max()} rounds."
    return exact(
        table, rounds + " Accounting only.", "the empirical audit (a lower bound on epsilon) is not part of this sweep"
    )


def single_cluster(study, check, context):
    """Rows with one non-empty cluster have silhouette -1 and an infinite Davies–Bouldin index, and no others have."""
    needed = ("empty_clusters", "silhouette", "davies_bouldin")
    rows = study.rows_with(needed)
    # The yardstick has one centre by definition, so it has no clusters to lose.
    rows = rows[~rows["target"].str.endswith("DataMean")]
    if not len(rows):
        raise Absent("no stored rows have empty clusters, silhouette and Davies–Bouldin index together")
    single = (rows["empty_clusters"] == rows["k"] - 1).to_numpy()
    low, infinite = (rows["silhouette"] == -1).to_numpy(), np.isinf(rows["davies_bouldin"].to_numpy(dtype=float))
    if not single.any():
        raise Absent(f"none of {len(rows)} stored rows ended with a single cluster")
    # Above 10,000 points the silhouette is taken on a sample, which may miss a small second cluster.
    low = low & (single | (rows["n"] <= SILHOUETTE_SAMPLE).to_numpy())
    table = rows.loc[single | low | infinite, ["method", "dataset", "epsilon", "seed", *needed]].assign(
        agrees=(single == low)[single | low | infinite] & (single == infinite)[single | low | infinite]
    )
    return exact(table.reset_index(drop=True), f"{single.sum()} of {len(rows)} rows ended with one cluster.")


EVALUATORS = {
    "iterations": iterations,
    "noise_split": noise_split,
    "radius": radius,
    "composition": composition,
    "single_cluster": single_cluster,
}
