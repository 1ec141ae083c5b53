"""NumPy versions of the Lloyd methods, whose times are compared with this project's.

They run one replicate and one cluster at a time. They follow the same schedules and
draw as much noise, but from one generator and without the grid.
"""

import numpy as np

from pkm.methods import FastLloyd, GLloyd, Lloyd, SuLloyd
from pkm.methods.initialization import starting_centers
from pkm.privacy import SCALE

LloydMethod = Lloyd | SuLloyd | GLloyd | FastLloyd


def cluster(method: LloydMethod, points: np.ndarray, seed: int) -> np.ndarray:
    """Run one replicate.

    Parameters
    ----------
    method : estimator of methods.lloyd, variant ``published``
    points : ndarray of shape (n, d), float64
        In [-1, 1]^d.
    seed : int

    Returns
    -------
    ndarray of shape (k, d), float64
    """
    n, d = points.shape
    k = method.n_clusters
    starts = starting_centers([seed], k, d, "packing", "halving")
    centers = starts[0] / SCALE
    generator = np.random.default_rng(seed)
    for iteration in method.schedule(n, d).rounds:
        # Assign every point to its nearest center.
        squares = squared_distances(points, centers)
        labels = squares.argmin(axis=0)
        is_near = np.ones(n, bool)
        if iteration.radius is not None:
            is_near = squares.min(axis=0) <= iteration.radius**2

        # Move every center to the noisy mean of its points.
        moved = np.empty_like(centers)
        for j in range(k):
            origin = centers[j] if method.relative else np.zeros(d)
            members = points[(labels == j) & is_near]
            total = (members - origin).sum(axis=0)
            count = float(len(members))
            if iteration.sum_noise is not None:
                draw = generator.normal
                if iteration.sum_noise.name == "laplace":
                    draw = generator.laplace
                total += draw(0.0, iteration.sum_noise.scale / SCALE, d)
                count += draw(0.0, iteration.count_noise.scale / SCALE)
            moved[j] = origin + total / (count + 1e-9)
        centers = moved
        if isinstance(method, FastLloyd):
            centers = np.clip(moved, -1, 1)
    return centers


def squared_distances(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the squared distances (k, n) between centers and points."""
    squares = np.empty((len(centers), len(points)))
    for j, center in enumerate(centers):
        squares[j] = ((points - center) ** 2).sum(axis=1)
    return squares


def nicv(points: np.ndarray, centers: np.ndarray) -> float:
    """Return the mean squared distance to the nearest center."""
    squares = squared_distances(points, centers)
    return float(squares.min(axis=0).mean())
