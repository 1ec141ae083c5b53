"""Claims of the DPM paper that follow from a formula: they are computed here, not read off the rows, unless said."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pandas as pd
from scipy import optimize, stats

from pkm.analysis.accounting import composed_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.findings import MissingRows, exact

SHARES = (0.04, 0.18, 0.18, 0.6)
DEPTH = 7
_TOLERANCE = 1e-9


def min_emptiness(study, check, context):
    """Emptiness of the fullest interval of width sigma / 2 on one normal distribution, against the printed digits."""
    value = 1 - (stats.norm.cdf(0.25) - stats.norm.cdf(-0.25))
    digits = 10 ** -check["places"]
    truncated = math.floor(value / digits) * digits
    line = {
        "computed": value,
        "printed": check["printed"],
        "agrees": math.isclose(truncated, check["printed"], abs_tol=_TOLERANCE),
    }
    return exact(
        pd.DataFrame([line]),
        f"1 - (Φ(1/4) - Φ(-1/4)) = {value:.8f}; the printed digits are cut, not rounded.",
    )


def emptiness_range(study, check, context):
    """Range of the emptiness over candidates where all clusters are normal with the interval's deviation, and weighted.

    A mixture's share of an interval is an average of its clusters', so none is larger than the fullest of one cluster.
    """
    value = stats.norm.cdf(0.25) - stats.norm.cdf(-0.25)
    weighted = check["weight"] * value
    line = {
        "largest_difference": value,
        "asked_at_most": check["at_most"],
        "weight": check["weight"],
    }
    line["weighted_range"] = weighted
    line["agrees"] = value <= check["at_most"] and abs(weighted - 1) <= check["margin"]
    numbers = f"Emptiness lies between {1 - value:.4f} and 1, its weighted range is {weighted:.4f}; centreness has 1."
    return exact(pd.DataFrame([line]), numbers)


def half_sigma(study, check, context):
    """Mass of a normal distribution within half a standard deviation, against the printed share."""
    value = stats.norm.cdf(0.5) - stats.norm.cdf(-0.5)
    line = {
        "computed": value,
        "printed": check["printed"],
        "agrees": abs(value - check["printed"]) < check["margin"],
    }
    return exact(pd.DataFrame([line]), f"Φ(1/2) - Φ(-1/2) = {value:.4f}.")


def level_budgets(study, check, context):
    """Shares that minimize sum 2^i / eps_i at a fixed sum, found numerically, against the paper's sqrt(2)^i."""
    lines = []
    for levels in check["levels"]:
        weights = 2.0 ** np.arange(levels)
        claimed = np.sqrt(weights) / np.sqrt(weights).sum()
        # The last share is what the others leave; the logarithms keep all of them positive.
        found = optimize.minimize(
            lambda x, w=weights: np.log((w * np.exp(-(x - np.logaddexp.reduce(x)))).sum()),
            np.zeros(levels),
            tol=1e-14,
        )
        best = np.exp(found.x - np.logaddexp.reduce(found.x))
        apart = float(np.abs(best - claimed).max())
        lines.append(
            {"levels": levels, "largest_difference_of_shares": apart, "agrees": apart < 1e-5}
        )
    linear = "The printed objective, the sum of 2^i eps_i, is linear: its minimum gives everything to level 0."
    return exact(pd.DataFrame(lines), linear)


def underestimates(study, check, context):
    """Chance that a Laplace count less its margin exceeds the exact count, at every level and for several n."""
    lines = []
    weights = np.sqrt(2.0 ** np.arange(DEPTH + 1))
    for n in check["n"]:
        delta = 0.2 * n**-1.5 / (DEPTH + 1)
        for level, epsilon in enumerate(SHARES[1] * weights / weights.sum()):
            margin = -math.log(2 * delta) / epsilon
            chance = stats.laplace.sf(margin, scale=1 / epsilon)
            line = {
                "n": n,
                "level": level,
                "epsilon": epsilon,
                "margin": margin,
                "delta": delta,
                "chance": chance,
            }
            lines.append(line | {"agrees": chance <= delta * (1 + 1e-6)})
    table = pd.DataFrame(lines)
    return exact(
        table, f"Margins from {table['margin'].min():.0f} to {table['margin'].max():.0f} points."
    )


def total_budget(study, check, context):
    """Stored published cells spend no more than declared: shares that add up to one, pure charges, ledger and δ.

    What declares δ is 1/(n √n). The charges' own δ and that of their Gaussian noise, at the share of ε meant for it,
    are summed, and the δ of the ledger is checked as well.
    """
    cells = study.cells
    published = cells["target"].str.endswith(".DPM") & (cells["variant"] == "published")
    cells = cells[published].drop_duplicates("cell")
    charges = charges_of(cells)
    lines = []
    for index, cell in cells.iterrows():
        shares = _shares(cell)
        of_cell = charges[charges.index == index]
        pure = math.fsum(of_cell["epsilon"])
        declared = cell["n"] ** -1.5
        delta = composed_delta(of_cell, cell["epsilon"] * shares[3])
        allowed = cell["epsilon"] * (1 - shares[3])
        line = {name: cell[name] for name in ("sweep", "dataset", "epsilon", "epsilon_spent")}
        line |= {
            "shares": str(shares),
            "sum": math.fsum(shares),
            "pure_charges": pure,
            "pure_allowed": allowed,
        }
        line |= {"delta_ledger": cell["delta"], "delta_charges": delta, "delta_declared": declared}
        # Noise is a whole number of steps, so a cost may exceed its share by rounding.
        costs = [(pure, allowed), (cell["epsilon_spent"], cell["epsilon"])]
        costs += [(cell["delta"], declared), (delta, declared)]
        fits = all(cost <= most * (1 + 1e-6) for cost, most in costs)
        lines.append(line | {"agrees": abs(line["sum"] - 1) <= _TOLERANCE and fits})
    table = pd.DataFrame(lines)
    if not len(table):
        raise MissingRows("no stored rows of the published DPM")
    spent = table["epsilon_spent"] / table["epsilon"]
    return exact(
        table,
        f"Composed tightly the ledger needs {spent.min():.3f} to {spent.max():.3f} of the declared ε, counting the "
        "interval size at the cost that the paper claims for it. The charges' δ add up to "
        f"{(table['delta_charges'] / table['delta_declared']).max():.3f} of the declared one at most.",
    )


def _shares(cell):
    given = cell.get("shares")
    return tuple(json.loads(given)) if isinstance(given, str) and given.startswith("[") else SHARES


def centreness(rank, size, t, q):
    """Centreness of a split with `rank` points below, in a node of released `size` (exact arithmetic, not clamped)."""
    inner = Fraction(size) / 2 - abs(rank - Fraction(size) / 2)
    if inner <= size * q:
        return inner * t / (size * q)
    return (t - 2 * q) / (1 - 2 * q) + inner * (1 - t) / (Fraction(size) / 2 - size * q)


def emptiness(count, size):
    """Share of a node of released `size` that is not in the interval, between 0 and 1."""
    return min(max(1 - Fraction(count, size), Fraction(0)), Fraction(1))


def score_sensitivity(study, check, context):
    """Largest change of the score over all ranks and counts of small nodes, in exact arithmetic, against the bound.

    A record more moves the rank by 0 or 1 and the count of the interval by 0 or 1, independently; the released size is
    the same for both neighbors. Replacing one moves each by -1, 0 or 1.
    """
    lines = []
    alpha = 5
    for t, q in check["t_and_q"]:
        t, q = Fraction(str(t)), Fraction(str(q))
        for size in check["sizes"]:
            position = [centreness(rank, size, t, q) for rank in range(2 * size + 2)]
            empty = [alpha * emptiness(count, size) for count in range(2 * size + 2)]
            moved = max(abs(b - a) for a, b in itertools.pairwise(position))
            emptied = max(abs(b - a) for a, b in itertools.pairwise(empty))
            exactly = moved + emptied
            bound = (t / q + alpha) / size
            line = {
                "t": float(t),
                "q": float(q),
                "released_size": size,
                "largest_change": float(exactly),
            }
            lines.append(line | {"bound_without_margin": float(bound), "agrees": exactly <= bound})
    numbers = "The bound holds with the released size itself: the margin that the paper subtracts is not needed."
    return exact(pd.DataFrame(lines), numbers)


def averaged_gaps(points):
    """Gaps between sorted neighbors in each dimension, averaged over the dimensions by rank."""
    return np.diff(np.sort(points, axis=0), axis=0).mean(axis=1)


def interleaved(n):
    """Points of two dimensions whose gaps alternate, 0 and 2 in one dimension and 2 and 0 in the other.

    The first point is the smallest in one dimension and the largest in the other.
    """
    first = np.concatenate([[0.0], np.cumsum(np.arange(n - 1) % 2 * 2.0)])
    second = np.concatenate([[0.0], np.cumsum((np.arange(n - 1) + 1) % 2 * 2.0)])
    return np.column_stack([first, second[::-1]])


def rank_change(points):
    """Largest change of the rank of any value among the averaged gaps when the first point leaves."""
    before, after = np.sort(averaged_gaps(points)), np.sort(averaged_gaps(points[1:]))
    values = np.unique(np.concatenate([before, after]))
    return max(
        int(
            np.abs(
                np.searchsorted(before, values, side=side)
                - np.searchsorted(after, values, side=side)
            ).max()
        )
        for side in ("left", "right")
    )


def percentile_sensitivity(study, check, context):
    """Rank change between neighbors: random points of one dimension, and a counterexample of two."""
    rng = np.random.default_rng(0)
    lines = []
    for trial in range(check["trials"]):
        points = rng.permutation(rng.normal(size=(check["n"], 1)))
        lines.append(
            {"d": 1, "points": f"normal, draw {trial}", "rank_change": rank_change(points)}
        )
    lines.append(
        {"d": 2, "points": "alternating gaps", "rank_change": rank_change(interleaved(check["n"]))}
    )
    table = pd.DataFrame(lines).assign(claimed=2)
    table["agrees"] = table["rank_change"] <= table["claimed"]
    one, two = (int(table.loc[table["d"] == d, "rank_change"].max()) for d in (1, 2))
    return exact(table, f"n = {check['n']}: at most {one} in one dimension, {two} in two.")


def blind_metrics(study, check, context):
    """Inertia, labels and accuracy with and without centers that win no point, and both distances to the references."""
    rng = np.random.default_rng(0)
    references = rng.uniform(-50, 50, (check["k"], 2))
    classes = np.repeat(np.arange(check["k"]), check["points"])
    points = references[classes] + rng.normal(size=(classes.size, 2))
    centers = np.array([points[classes == label].mean(axis=0) for label in range(check["k"])])
    far = np.vstack([centers, np.full((1, 2), 1e4), np.full((1, 2), -1e4)])
    values = [
        _standard_metrics(points, classes, released, references) for released in (centers, far)
    ]
    lines = [
        {"metric": name, "without": values[0][name], "with": values[1][name], "expected": expected}
        for name, expected in (
            ("labels", "equal"),
            ("inertia", "equal"),
            ("accuracy", "equal"),
            ("kmeans_distance", "larger"),
            ("reverse_kmeans_distance", "equal"),
        )
    ]
    table = pd.DataFrame(lines)
    equal = [str(line["without"]) == str(line["with"]) for line in lines]
    larger = [line["expected"] == "larger" and line["with"] > line["without"] for line in lines]
    table["agrees"] = np.where(table["expected"] == "equal", equal, larger)
    numbers = "The silhouette score depends on points and labels alone. The reverse distance is as blind as the others."
    return exact(table.astype({"without": str, "with": str}), numbers)


def _standard_metrics(points, classes, centers, references):
    squares = ((points[:, None] - centers) ** 2).sum(axis=2)
    labels = squares.argmin(axis=1)
    right = sum(np.bincount(classes[labels == label]).max() for label in np.unique(labels))
    apart = np.sqrt(((centers[:, None] - references) ** 2).sum(axis=2))
    return {
        "labels": hash(tuple(labels.tolist())),
        "inertia": float(squares.min(axis=1).sum()),
        "accuracy": right / len(points),
        "kmeans_distance": float(apart.min(axis=1).mean()),
        "reverse_kmeans_distance": float(apart.min(axis=0).mean()),
    }


EVALUATORS = {
    "min_emptiness": min_emptiness,
    "emptiness_range": emptiness_range,
    "half_sigma": half_sigma,
    "level_budgets": level_budgets,
    "underestimates": underestimates,
    "total_budget": total_budget,
    "score_sensitivity": score_sensitivity,
    "percentile_sensitivity": percentile_sensitivity,
    "blind_metrics": blind_metrics,
}
