"""What a person costs: check-ins of Gowalla in New York, by row and by person.

DATA is the folder of original data, which has ``gowalla/gowalla.nyc.tsv.gz``::

    python tools/studies/persons.py DATA
"""

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin_min

from pkm.methods import FastLloyd, QuadtreeKMeans, SynopsisKMeans
from pkm.methods.fitting import RepeatableNoiseWarning

BOUNDS = np.array([[40.47, -74.27], [40.93, -73.69]])
N_CLUSTERS = 10
METHODS = {
    "quadtree": QuadtreeKMeans(),
    "synopsis": SynopsisKMeans(delta=1e-6),
    "FastLloyd": FastLloyd(delta=1e-6),
}
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
SEEDS = 10


def weighted_cost(
    points: np.ndarray,
    weights: np.ndarray,
    centers: np.ndarray,
) -> float:
    """Weighted sum of squared distances to the nearest center."""
    _, distances = pairwise_distances_argmin_min(points, centers)
    return float(weights @ distances**2)


def main() -> None:
    """Print a row per method, unit and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    path = parser.parse_args().data / "gowalla" / "gowalla.nyc.tsv.gz"
    columns = ["user", "time", "lat", "lon", "place"]
    visits = pd.read_csv(path, sep="\t", header=None, names=columns)
    lower, upper = BOUNDS
    points = (visits[["lat", "lon"]] - (lower + upper) / 2) / (upper - lower) * 2
    points = points.to_numpy()
    users = visits["user"].to_numpy()
    warnings.simplefilter("ignore", RepeatableNoiseWarning)

    units = {
        "row": ({}, np.ones(len(points))),
        "person": ({"groups": users}, 1 / np.bincount(users)[users]),
    }
    for unit, (options, weights) in units.items():
        reference = KMeans(N_CLUSTERS, n_init=3, random_state=0)
        reference.fit(points, sample_weight=weights)
        least = weighted_cost(points, weights, reference.cluster_centers_)
        for (name, method), epsilon in itertools.product(METHODS.items(), EPSILONS):
            ratios = []
            for seed in range(SEEDS):
                method.set_params(
                    n_clusters=N_CLUSTERS,
                    epsilon=epsilon,
                    bounds=(-1, 1),
                    random_state=seed,
                )
                centers = method.fit(points, **options).cluster_centers_
                ratios.append(weighted_cost(points, weights, centers) / least)
            print(name, unit, epsilon, f"{np.median(ratios):.3f}", flush=True)


if __name__ == "__main__":
    main()
