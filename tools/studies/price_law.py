"""Fit the price law of the synopsis, and compare it with other costs.

Rows are those of ``tools/studies/families.py --rows``::

    python tools/studies/price_law.py --fit generated.csv --check real.csv
"""

import argparse

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from pkm.methods.synthetic.price import (
    DETECTED,
    GRIDS,
    HASHING,
    PriceLaw,
    detection_limit,
)
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
    limits = [
        detection_limit(d, epsilon)
        for d, epsilon in medians[["d", "epsilon"]].itertuples(index=False)
    ]
    budget = DETECTED / np.array(limits)
    return medians.assign(
        records=medians["n"] / medians["k"] * budget,
        variance_ratio=np.maximum(medians["mean"] - 1, 1e-3),
        missed=medians["missed"] * budget,
    )


def compute_errors(table: pd.DataFrame, law: PriceLaw) -> pd.Series:
    """Absolute errors of the logarithm of the cost ratio."""
    excess = law.excess(table["records"], table["d"], table["variance_ratio"])
    return (np.log1p(excess) - np.log(table["ratio"])).abs()


def fit(table: pd.DataFrame) -> PriceLaw:
    """Fit the three constants to least absolute errors."""

    def loss(numbers: np.ndarray) -> float:
        law = PriceLaw(np.exp(numbers[0]), *numbers[1:])
        return compute_errors(table, law).clip(upper=LARGEST_ERROR).mean()

    rng = np.random.default_rng(0)
    starts = [rng.normal([5, 1, 0.2], 0.4) for _ in range(STARTS)]
    fits = [minimize(loss, start, method="Nelder-Mead") for start in starts]
    factor, columns, ratio = min(fits, key=lambda result: result.fun).x
    return PriceLaw(np.exp(factor), columns, ratio)


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
                fitted = fit(part)
                print("fitted:", fitted, summarize(compute_errors(part, fitted)))
    if options.sizes:
        table = read_medians(options.sizes)
        print("largest missed cluster, times budget")
        print(table.groupby("epsilon")["missed"].describe())


if __name__ == "__main__":
    main()
