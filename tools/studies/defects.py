"""Costs of the synopsis where it is bad, with variants that show why.

Sets are generated, by other random states than those on which constants were chosen.
Costs are over those of the best of five k-means. Parts are in defects.yaml:
``python tools/studies/defects.py e consistent`` prints two; all without their names.
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from exact import exact_releases
from families import (
    FAMILIES,
    any_shape,
    blobs,
    cost,
    fit_reference,
    replaced_constant,
    widen,
)

from pkm.methods import PEMeans, SynopsisKMeans

SETTINGS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
GRID = np.geomspace(0.1, 4, 40).tolist()
COLUMNS = ["family", "set", "variant", "epsilon", "ratio"]


def clusters(
    rng,
    k,
    size,
    columns,
    spread,
    widths,
):
    """Draw clusters of one size, and bounds that are too wide."""
    k = int(rng.integers(*k))
    sizes = np.full(k, rng.integers(*size))
    d = int(rng.choice(columns))
    points = blobs(rng, sizes, d, spread=spread)
    factor = float(rng.choice(widths))
    return widen(rng, points, factor, k)


DRAWS = FAMILIES | {"any_shape": any_shape, "clusters": clusters}


def draw(
    seed,
    family,
    numbers,
    most,
):
    """Draw a set of at most so many records."""
    rng = np.random.default_rng(seed)
    while True:
        data = DRAWS[family](rng, **numbers)
        if len(data.points) <= most:
            return data


def measure(
    name,
    part,
):
    """Yield the cost of each fit of a part."""
    epsilons = part.get("epsilons", GRID)
    seeds = range(part["seeds"])
    settings = list(product(part["variants"], epsilons, seeds))
    most = part.get("at_most", 1e6)
    sets = range(part["sets"])
    for family, number in product(enumerate(part["families"]), sets):
        kind, drawn = family
        seed = [2027, number, kind, *name.encode()]
        data = draw(seed, *drawn, most)
        points = data.points
        k = data.n_clusters
        _, best = fit_reference(points, k)
        unit = k / len(points) if "of_a_cluster" in part else 1
        for variant, epsilon, seed in settings:
            parameters = dict(SETTINGS["variants"][variant])
            constant = parameters.pop("constant", "")
            exact = parameters.pop("exact", "nothing")
            parameters.setdefault("n_clusters", k)
            bounds = data.bounds
            if variant == "bounds that fit":
                bounds = points.min(axis=0), points.max(axis=0)
            method = PEMeans if variant == "PE-means" else SynopsisKMeans
            model = method(
                epsilon=epsilon * unit,
                bounds=tuple(bounds),
                clip=True,
                random_state=seed,
                **parameters,
            )
            with replaced_constant(constant), exact_releases(exact):
                model.fit(points)
            ratio = cost(points, model.cluster_centers_) / best
            yield kind, number, variant, epsilon, ratio


for name in sys.argv[1:] or SETTINGS["parts"]:
    rows = measure(name, SETTINGS["parts"][name])
    table = pd.DataFrame(rows, columns=COLUMNS)
    of_sets = table.groupby(COLUMNS[:-1], sort=False)["ratio"]
    medians = of_sets.median()
    tails = of_sets.quantile(0.99) / medians
    setting = ["variant", "epsilon"]
    summary = medians.groupby(setting, sort=False).describe(percentiles=[0.5, 0.9])
    summary["geometric mean"] = np.exp(np.log(medians).groupby(setting).mean())
    summary["tails above 1.5"] = (tails > 1.5).groupby(setting).sum()
    print(name, summary.round(3).to_string(), sep="\n")
    # Cost of a set over its cost at the next smaller epsilon.
    steps = medians / medians.groupby(COLUMNS[:3]).shift()
    print("largest increases of the cost with epsilon", steps.nlargest(6), sep="\n")
