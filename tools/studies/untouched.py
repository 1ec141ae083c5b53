"""Costs on tables and generated sets on which no method was run before.

All methods and constants were frozen, that is, committed, before the first run.
``tools/studies/untouched.yaml`` names the data. Its tables are in archives of the
package index, which ``pip download --no-deps`` gets; unpack them into one folder::

    python tools/studies/untouched.py tables FOLDER --rows tables.csv
    python tools/studies/untouched.py generated --rows generated.csv
    python tools/studies/untouched.py worst FOLDER --rows tables.csv
    python tools/studies/untouched.py exact FOLDER --rows exact.csv
"""

import argparse
import hashlib
import itertools
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import yaml
from exact import PARTS, exact_releases
from families import FAMILIES, Data, cost, fit_reference
from matplotlib.figure import Figure
from matplotlib.image import imread

from pkm.compute import middle_and_half_width
from pkm.methods import (
    DPM,
    Balcan,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    LSHSplits,
    PEMeans,
    PrivateKMeans,
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
N_STARTS = 10  # of k-means
COMPARED_ON_GENERATED = ["Kaplan-Stemmer with a zoom", "PE-means with a zoom"]
EXACT_SEEDS = 10  # per setting with exact parts


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


def scale(data: Data) -> np.ndarray:
    """Scale each column by its public bounds, because columns differ in their units."""
    middle, half_width = middle_and_half_width(*data.bounds)
    return (data.points - middle) / half_width


def configure(
    method: str,
    n_clusters: int,
    epsilon: float,
    seed: int,
) -> PrivateKMeans:
    """Configure a method for scaled points."""
    return METHODS[method].set_params(
        n_clusters=n_clusters,
        epsilon=epsilon,
        delta=SETTINGS["delta"],
        bounds=(-1, 1),
        random_state=seed,
    )


def measure(
    name: str,
    data: Data,
    methods: Iterable[str],
    synopsis_seeds: int = SETTINGS["seeds"],
) -> Iterator[dict]:
    """Yield costs of fits, and of the mean, over that of the best of ten k-means."""
    points = scale(data)
    _, best_cost = fit_reference(points, data.n_clusters, N_STARTS)
    mean = points.mean(axis=0, keepdims=True)
    mean_ratio = cost(points, mean) / best_cost
    for method, epsilon in itertools.product(methods, SETTINGS["epsilons"]):
        is_synopsis = method == "synopsis"
        seeds = synopsis_seeds if is_synopsis else SETTINGS["other_seeds"]
        for seed in range(seeds):
            model = configure(method, data.n_clusters, epsilon, seed)
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


def measure_exact(folder: Path) -> Iterator[dict]:
    """Measure the synopsis with one part of its releases exact."""
    for part in PARTS:
        for name, table in SETTINGS["tables"].items():
            data = read_table(folder, table)
            with exact_releases(part):
                for row in measure(name, data, ["synopsis"], EXACT_SEEDS):
                    yield row | {"exact": part}


def measure_tables(folder: Path) -> Iterator[dict]:
    """Measure all methods on all tables."""
    for name, table in SETTINGS["tables"].items():
        data = read_table(folder, table)
        yield from measure(name, data, METHODS)


def measure_generated() -> Iterator[dict]:
    """Measure the synopsis and methods with a zoom on sets of the family `anything`."""
    for number in range(SETTINGS["generated"]):
        seed = SETTINGS["first_generated"] + number
        rng = np.random.default_rng([seed])
        data = FAMILIES["anything"](rng)
        # Bounds of generated sets are cubes, which keep their shape.
        yield from measure(f"{number}", data, ["synopsis", *COMPARED_ON_GENERATED])


def print_means(medians: pd.Series, setting: list[str]) -> None:
    """Print geometric means over sets of medians over seeds, by setting and epsilon."""
    logs = np.log(medians).groupby(setting, sort=False)
    means = np.exp(logs.mean()).unstack()
    print("geometric mean of medians")
    print(means.round(3).to_string())


def summarize(rows: pd.DataFrame) -> None:
    """Print means of medians over sets, ranks, and quantiles over seeds."""
    setting = ["method", "epsilon"]
    cells = rows.groupby([*setting, "set"])
    medians = cells["ratio"].median()
    print_means(medians, setting)

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


def draw_worst(rows: pd.DataFrame, folder: Path) -> Figure:
    """Draw the centers of the synopsis on the three tables where it costs most.

    Of each table the worst setting is taken, and of this the run of median cost. The
    columns are the two in which the centers of k-means are farthest apart.
    """
    synopsis = rows[rows["method"] == "synopsis"]
    costs = synopsis.groupby(["set", "epsilon"])["ratio"].median()
    by_cost = costs.sort_values(ascending=False).reset_index()
    worst = by_cost.drop_duplicates("set").head(3)
    figure, panels = plt.subplots(
        1,
        3,
        figsize=(10, 3.4),
        layout="constrained",
    )
    for axes, setting in zip(panels, worst.to_numpy(), strict=True):
        name, epsilon, ratio = setting
        table = SETTINGS["tables"][name]
        data = read_table(folder, table)
        points = scale(data)
        reference, _ = fit_reference(points, data.n_clusters, N_STARTS)
        of_table = synopsis[synopsis["set"] == name]
        runs = of_table[of_table["epsilon"] == epsilon]
        distances = (runs["ratio"] - ratio).abs()
        seed = int(runs.loc[distances.idxmin(), "seed"])
        model = configure("synopsis", data.n_clusters, epsilon, seed)
        centers = model.fit(points).cluster_centers_

        # In the units of the table.
        middle, half_width = middle_and_half_width(*data.bounds)
        spread = reference.cluster_centers_.std(axis=0)
        x, y = np.sort(np.argsort(spread)[-2:])
        axes.scatter(data.points[:, x], data.points[:, y], s=1, c="0.75")
        for label, marker, values in (
            ("k-means", "o", reference.cluster_centers_),
            ("synopsis", "x", centers),
        ):
            placed = middle + half_width * values
            axes.scatter(
                placed[:, x],
                placed[:, y],
                marker=marker,
                label=label,
            )
        names = list(table["columns"])
        axes.set(
            title=f"{name}, epsilon {epsilon:g}: {ratio:.2f}",
            xlabel=names[x],
            ylabel=names[y],
        )
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside right upper",
    )
    return figure


def main() -> None:
    """Run what is asked for, write its rows and print tables, or draw a picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["tables", "generated", "exact", "worst"])
    parser.add_argument("folder", nargs="?", type=Path, help="unpacked archives")
    parser.add_argument("--rows", required=True, help="all ratios, in a CSV file")
    parser.add_argument("--out", default="untouched-worst.png", help="the picture")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RepeatableNoiseWarning)
    folder = options.folder
    if options.what != "generated" and folder is None:
        parser.error(f"{options.what} needs FOLDER, with the unpacked archives")
    if options.what == "worst":
        figure = draw_worst(pd.read_csv(options.rows), folder)
        figure.savefig(options.out, dpi=110)
        return
    if options.what == "generated":
        rows = measure_generated()
    elif options.what == "exact":
        rows = measure_exact(folder)
    else:
        rows = measure_tables(folder)
    table = pd.DataFrame(rows)
    table.to_csv(options.rows, index=False)
    if options.what == "exact":
        cells = table.groupby(["exact", "epsilon", "set"], sort=False)
        print_means(cells["ratio"].median(), ["exact", "epsilon"])
    else:
        summarize(table)


if __name__ == "__main__":
    main()
