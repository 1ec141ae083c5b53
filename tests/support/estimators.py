"""Private methods, blobs to fit them to, and centers that move as the Lloyd family's do."""

import math

import numpy as np

from pkm.compute.kernels.center_moves import KEEP, move_centers
from pkm.methods import METHODS, load_method
from pkm.privacy import SCALE


def private_methods():
    """Every variant of every method that claims privacy, by name."""
    built = {}
    for name in METHODS:
        for variant, claim in load_method(name).claims.items():
            if claim.private:
                method = load_method(name)(n_clusters=3)
                if "variant" in method.get_params():
                    method.set_params(variant=variant)
                built[f"{name} {variant}"] = method
    return built


def blobs(n=3000, d=2, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.7, 0.7, (4, d))
    noise = 0.08 * rng.standard_normal((n, d))
    points = centers[np.arange(n) % 4] + noise
    return np.clip(points, -1, 1)


def reflect(coordinate):
    while abs(coordinate) > 1:
        border = 2 if coordinate > 1 else -2
        coordinate = border - coordinate
    return coordinate


def moved(center, mean, longest=math.inf, outside=KEEP):
    """Move one center by ``move_centers`` to the mean of its only point."""
    centers = np.array([[center]])
    sums = np.array([[mean]])
    counts = np.array([[SCALE]])
    limit = 40.0 * SCALE
    return move_centers(centers, sums, counts, False, True, longest, limit, outside)[0, 0]
