"""Fit the price law of the synopsis, and compare it with other costs.

The law (`pkm.methods.synthetic.price.PriceLaw`) says by how much the cost of a private
fit exceeds that of k-means. Rows are those of ``tools/studies/families.py --rows``::

    python tools/studies/price_law.py --fit generated.csv --check real.csv
"""

import argparse
import math
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from pkm.methods.synthetic.price import GRIDS, HASHING, PriceLaw, noise_budget
from pkm.methods.synthetic.synopsis import QUADTREE_FEATURES

# Errors of the logarithm are cut off at this one, because a cluster without a center
# can cost a thousandfold.
LARGEST_ERROR = 1.0
SMALL_ERROR = 0.15
NEAR = 1.5  # a factor of the detection limit
LEAST_RATIO = 1e-3
# Logarithm of the factor, and the exponents, near which the fits begin.
START = (5.0, 1.0, 0.2)
N_STARTS = 4


def read_medians(path: str) -> pd.DataFrame:
    """Read the median cost of each data set and epsilon, with records times budget."""
    rows = pd.read_csv(path)
    keys = ["family", "set", "n", "d", "k", "epsilon", "mean"]
    values = ["ratio", "missed"]
    medians = rows.groupby(keys, as_index=False)[values].median()
    settings = medians[["d", "epsilon"]].itertuples(index=False)
    budget = np.array([noise_budget(d, epsilon) for d, epsilon in settings])
    excess_of_mean = medians["mean"] - 1
    return medians.assign(
        records=medians["n"] / medians["k"] * budget,
        variance_ratio=np.maximum(excess_of_mean, LEAST_RATIO),
        missed=medians["missed"] * budget,
    )


def compute_errors(
    table: pd.DataFrame,
    law: PriceLaw,
) -> pd.Series:
    """Compute absolute errors of the logarithm of the cost ratio."""
    excess = law.excess(
        table["records"],
        table["d"],
        table["variance_ratio"],
    )
    errors = np.log1p(excess) - np.log(table["ratio"])
    return errors.abs()


def fit(
    table: pd.DataFrame,
    law: PriceLaw,
) -> PriceLaw:
    """Fit the constants of the excess to least absolute errors."""

    def make_law(numbers: np.ndarray) -> PriceLaw:
        log_factor, columns, ratio = numbers
        return replace(
            law,
            factor=math.exp(log_factor),
            columns=columns,
            ratio=ratio,
        )

    def loss(numbers: np.ndarray) -> float:
        errors = compute_errors(table, make_law(numbers))
        return errors.clip(upper=LARGEST_ERROR).mean()

    rng = np.random.default_rng(0)
    starts = [rng.normal(START, 0.4) for _ in range(N_STARTS)]
    fits = [minimize(loss, start, method="Nelder-Mead") for start in starts]
    best = min(fits, key=lambda result: result.fun)
    return make_law(best.x)


def print_errors(errors: pd.Series) -> None:
    """Print the median error, and the share of errors that are small."""
    share = (errors <= SMALL_ERROR).mean()
    print(f"{len(errors)} settings")
    print(f"median error {errors.median():.3f}")
    print(f"{share:.0%} at most {SMALL_ERROR}")


def print_limits(
    table: pd.DataFrame,
    law: PriceLaw,
) -> None:
    """Print how well the detection limit holds."""
    ratio = table["missed"] / law.detected
    is_near = ratio.between(1 / NEAR, NEAR)
    print(f"largest missed clusters of {len(table)} settings over the limit")
    print(f"median {ratio.median():.2f}")
    print(f"{is_near.mean():.0%} within {NEAR} times")
    print(f"{(ratio < 2).mean():.0%} below twice the limit")


def main() -> None:
    """Print the fitted constants, and errors of the constants in use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", help="rows to fit constants to")
    parser.add_argument("--check", help="rows to compare the constants in use with")
    parser.add_argument("--sizes", help="rows of the family all_sizes")
    options = parser.parse_args()
    paths = options.fit, options.check, options.sizes
    for path in filter(None, paths):
        table = read_medians(path)
        has_few = table["d"] <= QUADTREE_FEATURES
        parts = (table[has_few], GRIDS), (table[~has_few], HASHING)
        for rows, law in parts:
            print(path, law)
            if path == options.sizes:
                print_limits(rows, law)
                continue
            print_errors(compute_errors(rows, law))
            if path == options.fit:
                fitted = fit(rows, law)
                print("fitted:", fitted)
                print_errors(compute_errors(rows, fitted))


if __name__ == "__main__":
    main()
