"""FastLloyd and its kin written as one would at first: one replicate, one cluster at a time, plain numpy.

The yardstick of the speed measurements. It follows the same schedule and draws as much noise, but from one generator
and without the grid.
"""

import numpy as np

from methods import FastLloyd
from methods.initialisation import starting_centres
from privacy import SCALE


def cluster(method, points: np.ndarray, seed: int) -> np.ndarray:
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
    (n, d), k = points.shape, method.n_clusters
    centres = starting_centres([seed], k, d, "packing", "halving")[0] / SCALE
    generator = np.random.default_rng(seed)
    for this in method.schedule(n, d):
        squares = np.empty((n, k))
        for j in range(k):
            squares[:, j] = ((points - centres[j]) ** 2).sum(axis=1)
        label = squares.argmin(axis=1)
        near = np.ones(n, bool) if this.radius is None else squares[np.arange(n), label] <= this.radius**2
        moved = np.empty_like(centres)
        for j in range(k):
            members = points[(label == j) & near]
            reference = centres[j] if method.relative else 0.0
            total, count = (members - reference).sum(axis=0), float(len(members))
            if this.sum_noise is not None:
                draw = generator.laplace if this.sum_noise.name == "laplace" else generator.normal
                total = total + draw(0.0, this.sum_noise.scale / SCALE, d)
                count = count + draw(0.0, this.count_noise.scale / SCALE)
            moved[j] = reference + total / (count + 1e-9)
        centres = np.clip(moved, -1, 1) if isinstance(method, FastLloyd) else moved
    return centres


def nicv(points: np.ndarray, centres: np.ndarray) -> float:
    """Mean squared distance to the nearest centre."""
    return float(np.mean(np.min([((points - centre) ** 2).sum(axis=1) for centre in centres], axis=0)))
