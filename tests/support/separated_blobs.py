"""Well separated blobs on the grid, domains for them, and the cost of a run."""

import itertools

import numpy as np

from pkm.compute import Points, inertia
from pkm.privacy import SCALE, snap


def blobs(seed=0, n=4000, d=4, k=6, spread=0.02):
    """Return well separated blobs in [-1, 1]^d and their centers."""
    rng = np.random.default_rng(seed)
    corners = np.array(list(itertools.product([-0.6, 0.6], repeat=d)))
    chosen = corners[rng.choice(len(corners), k, replace=False)]
    centers = chosen + rng.uniform(-0.1, 0.1, (k, d))
    points = centers[np.arange(n) % k] + spread * rng.standard_normal((n, d))
    return snap(np.clip(points, -1, 1)), centers


def cost(points, run):
    inertias = inertia(Points.from_grid(points), run.centers)
    return np.array(inertias, float) / SCALE**2


def box(lower, upper, d):
    """Return the domain that has the same bounds in each of d columns."""
    return [[lower] * d, [upper] * d]
