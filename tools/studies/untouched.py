"""Costs on tables and generated sets on which no method was run before.

All methods and constants were frozen, that is, committed, before the first run.
``tools/studies/untouched.yaml`` names the data. Its tables are in archives of the
package index, which ``pip download --no-deps`` gets; unpack them into one folder::

    python tools/studies/untouched.py tables FOLDER --rows tables.csv
    python tools/studies/untouched.py generated --rows generated.csv
"""

import argparse
import hashlib
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from families import FAMILIES, Data, cost
from matplotlib.image import imread
from sklearn.cluster import KMeans

from pkm.methods import (
    DPM,
    Balcan,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    LSHSplits,
    PEMeans,
    SynopsisKMeans,
)
from pkm.methods.fitting import RepeatableNoiseWarning

SETTINGS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
METHODS = {
    "synopsis": SynopsisKMeans(),
    "Kaplan-Stemmer": KaplanStemmer(),
    "Kaplan-Stemmer with a zoom": KaplanStemmer(zoom=0.1),
    "PE-means": PEMeans(),
    "PE-means with a zoom": PEMeans(zoom=0.1),
    "FastLloyd": FastLloyd(),
    "GLloyd": GLloyd(),
    "LSH-Splits": LSHSplits(),
    "DPM, merged": DPM(merge=True),
    "Balcan": Balcan(),
}
COMPARED_ON_GENERATED = ["Kaplan-Stemmer with a zoom", "PE-means with a zoom"]


def read_table(folder: Path, table: dict) -> Data:
    """Read a table of an unpacked archive, whose file must be the declared one.

    Raises
    ------
    ValueError
        If the file has another checksum.
    """
    (path,) = folder.rglob(table["file"])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != table["sha256"]:
        raise ValueError(f"{path} has the checksum {digest}, not {table['sha256']}")
    if path.suffix == ".jpg":
        points = imread(path).reshape(-1, 3).astype(float)
    else:
        names = list(table["columns"])
        frame = pd.read_csv(path, usecols=names)
        points = frame[names].dropna().to_numpy(float)
    limits = list(table["columns"].values())
    bounds = np.array(limits, float).T
    inside = points.clip(*bounds)
    return Data(inside, bounds, table["n_clusters"])


def measure(
    name: str,
    data: Data,
    methods: list[str],
) -> Iterator[dict]:
    """Yield costs of fits, and of the mean, over that of the best of ten k-means."""
    # Columns have different units: each is scaled by its public bounds.
    lower, upper = data.bounds
    centered = data.points - (lower + upper) / 2
    points = centered / (upper - lower) * 2
    reference = KMeans(data.n_clusters, n_init=10, random_state=0)
    reference.fit(points)
    best_cost = cost(points, reference.cluster_centers_)
    mean = points.mean(axis=0, keepdims=True)
    mean_ratio = cost(points, mean) / best_cost
    for method, epsilon in itertools.product(methods, SETTINGS["epsilons"]):
        seeds = SETTINGS["seeds" if method == "synopsis" else "other_seeds"]
        for seed in range(seeds):
            model = METHODS[method].set_params(
                n_clusters=data.n_clusters,
                epsilon=epsilon,
                delta=SETTINGS["delta"],
                bounds=(-1, 1),
                random_state=seed,
            )
            centers = model.fit(points).cluster_centers_
            yield {
                "set": name,
                "n": len(points),
                "d": points.shape[1],
                "k": data.n_clusters,
                "method": method,
                "epsilon": epsilon,
                "seed": seed,
                "ratio": cost(points, centers) / best_cost,
                "mean": mean_ratio,
            }


def measure_tables(folder: Path) -> Iterator[dict]:
    """Measure all methods on all tables."""
    for name, table in SETTINGS["tables"].items():
        data = read_table(folder, table)
        yield from measure(name, data, list(METHODS))


def measure_generated() -> Iterator[dict]:
    """Measure the synopsis and methods with a zoom on sets of the family `anything`."""
    for number in range(SETTINGS["generated"]):
        seed = SETTINGS["first_generated"] + number
        rng = np.random.default_rng([seed])
        data = FAMILIES["anything"](rng)
        # Bounds of generated sets are cubes, which keep their shape.
        yield from measure(f"{number}", data, ["synopsis", *COMPARED_ON_GENERATED])


def summarize(rows: pd.DataFrame) -> None:
    """Print means of medians over sets, ranks, and quantiles over seeds."""
    setting = ["method", "epsilon"]
    cells = rows.groupby([*setting, "set"])
    medians = cells["ratio"].median()
    logs = np.log(medians).groupby(setting)
    means = np.exp(logs.mean()).unstack()
    print("geometric mean of medians")
    print(means.round(3).to_string())

    ranks = medians.unstack("method").rank(axis=1)
    mean_ranks = ranks.groupby("epsilon").mean().T
    print("mean rank")
    print(mean_ranks.round(2).to_string())

    of_synopsis = rows[rows["method"] == "synopsis"]
    sets = of_synopsis.groupby(["set", "epsilon"])
    ratios = sets["ratio"]
    quantiles = {"mean": ratios.mean()}
    for level in (0.5, 0.9, 0.99):
        quantiles[f"{level:.0%}"] = ratios.quantile(level)
    print("synopsis, over seeds")
    print(pd.DataFrame(quantiles).round(3).to_string())
    is_worse = ratios.median() > sets["mean"].first()
    print("above the mean:", list(is_worse[is_worse].index))


def main() -> None:
    """Run what is asked for, write its rows and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["tables", "generated"])
    parser.add_argument("folder", nargs="?", type=Path, help="unpacked archives")
    parser.add_argument("--rows", required=True, help="write all ratios to this CSV")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RepeatableNoiseWarning)
    is_tables = options.what == "tables"
    if is_tables and options.folder is None:
        parser.error("tables needs FOLDER, with the unpacked archives")
    rows = measure_tables(options.folder) if is_tables else measure_generated()
    table = pd.DataFrame(rows)
    table.to_csv(options.rows, index=False)
    summarize(table)


if __name__ == "__main__":
    main()
