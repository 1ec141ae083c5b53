"""Fit the price law of the synopsis, and compare it with other costs.

Rows are those of ``tools/studies/families.py --rows``::

    python tools/studies/price_law.py --fit generated.csv --check real.csv
"""

import argparse
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from pkm.methods.synthetic.price import GRIDS, HASHING, PriceLaw, noise_budget
from pkm.methods.synthetic.synopsis import QUADTREE_FEATURES

# A lost cluster can cost a thousandfold. Errors of the logarithm count up to here.
LARGEST_ERROR = 1.0
STARTS = 4
SMALL_ERROR = 0.15


def read_medians(path: str) -> pd.DataFrame:
    """Median cost of each data set and epsilon, and its records times budget."""
    rows = pd.read_csv(path)
    keys = ["family", "set", "n", "d", "k", "epsilon", "mean"]
    medians = rows.groupby(keys, as_index=False)[["ratio", "missed"]].median()
    settings = medians[["d", "epsilon"]].itertuples(index=False)
    budget = np.array([noise_budget(d, epsilon) for d, epsilon in settings])
    return medians.assign(
        records=medians["n"] / medians["k"] * budget,
        variance_ratio=np.maximum(medians["mean"] - 1, 1e-3),
        missed=medians["missed"] * budget,
    )


def compute_errors(table: pd.DataFrame, law: PriceLaw) -> pd.Series:
    """Absolute errors of the logarithm of the cost ratio."""
    excess = law.excess(table["records"], table["d"], table["variance_ratio"])
    return (np.log1p(excess) - np.log(table["ratio"])).abs()


def fit(table: pd.DataFrame, law: PriceLaw) -> PriceLaw:
    """Fit the constants of the excess to least absolute errors."""

    def make_law(numbers: np.ndarray) -> PriceLaw:
        factor, columns, ratio = np.exp(numbers[0]), *numbers[1:]
        return replace(law, factor=factor, columns=columns, ratio=ratio)

    def loss(numbers: np.ndarray) -> float:
        errors = compute_errors(table, make_law(numbers))
        return errors.clip(upper=LARGEST_ERROR).mean()

    rng = np.random.default_rng(0)
    starts = [rng.normal([5, 1, 0.2], 0.4) for _ in range(STARTS)]
    fits = [minimize(loss, start, method="Nelder-Mead") for start in starts]
    best = min(fits, key=lambda result: result.fun)
    return make_law(best.x)


def summarize(errors: pd.Series) -> str:
    """Median error, and the share of errors that are small."""
    share = (errors <= SMALL_ERROR).mean()
    median = errors.median()
    return f"{len(errors)} settings, median error {median:.3f}, {share:.0%} are small"


def main() -> None:
    """Print the fitted constants, and errors of the constants in use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", help="rows to fit constants to")
    parser.add_argument("--check", help="rows to compare the constants in use with")
    parser.add_argument("--sizes", help="rows of the family all_sizes")
    options = parser.parse_args()
    for path in filter(None, (options.fit, options.check)):
        table = read_medians(path)
        few = table["d"] <= QUADTREE_FEATURES
        for part, law in ((table[few], GRIDS), (table[~few], HASHING)):
            print(path, law, summarize(compute_errors(part, law)))
            if path == options.fit:
                fitted = fit(part, law)
                print("fitted:", fitted, summarize(compute_errors(part, fitted)))
    if options.sizes:
        table = read_medians(options.sizes)
        few = table["d"] <= QUADTREE_FEATURES
        for part, law in ((table[few], GRIDS), (table[~few], HASHING)):
            ratio = part["missed"] / law.detected
            near = ratio.between(1 / 1.5, 1.5).mean()
            print(f"largest missed clusters of {len(part)} settings over the limit")
            print(f"median {ratio.median():.2f}, {near:.0%} within 1.5 times")
            print(f"{(ratio < 2).mean():.0%} below twice the limit")


if __name__ == "__main__":
    main()
