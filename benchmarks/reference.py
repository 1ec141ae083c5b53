"""FastLloyd and its kin, and DPM, written as one would at first: one replicate, one cluster at a time, plain numpy.

The yardstick of the speed measurements. It follows the same schedules and draws as much noise, but from one generator
and without the grid.
"""

import math

import numpy as np

from pkm.methods import FastLloyd
from pkm.methods.dpm import GAP_CONSTANT, PERCENTILE, level_budgets
from pkm.methods.initialization import starting_centers
from pkm.privacy import SCALE, gaussian_mu


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
    centers = starting_centers([seed], k, d, "packing", "halving")[0] / SCALE
    generator = np.random.default_rng(seed)
    for this in method.schedule(n, d):
        squares = np.empty((n, k))
        for j in range(k):
            squares[:, j] = ((points - centers[j]) ** 2).sum(axis=1)
        label = squares.argmin(axis=1)
        near = (
            np.ones(n, bool)
            if this.radius is None
            else squares[np.arange(n), label] <= this.radius**2
        )
        moved = np.empty_like(centers)
        for j in range(k):
            members = points[(label == j) & near]
            reference = centers[j] if method.relative else 0.0
            total, count = (members - reference).sum(axis=0), float(len(members))
            if this.sum_noise is not None:
                draw = generator.laplace if this.sum_noise.name == "laplace" else generator.normal
                total = total + draw(0.0, this.sum_noise.scale / SCALE, d)
                count = count + draw(0.0, this.count_noise.scale / SCALE)
            moved[j] = reference + total / (count + 1e-9)
        centers = np.clip(moved, -1, 1) if isinstance(method, FastLloyd) else moved
    return centers


def nicv(points: np.ndarray, centers: np.ndarray) -> float:
    """Mean squared distance to the nearest center."""
    return float(
        np.mean(np.min([((points - center) ** 2).sum(axis=1) for center in centers], axis=0))
    )


def separate(
    points: np.ndarray, lower: float, upper: float, seed: int, epsilon: float = 1.0
) -> np.ndarray:
    """Run DPM as published once, sorting every node in every dimension.

    Parameters
    ----------
    points : ndarray of shape (n, d), float64
        In their own units, inside the range.
    lower, upper : float
        The common range.
    seed : int
    epsilon : float, default=1.0

    Returns
    -------
    ndarray of shape (k, d), float64
    """
    n, d = points.shape
    depth, t, q, weight, delta = 7, 0.3, 1 / 12, 5.0, n**-1.5
    generator = np.random.default_rng(seed)
    counts, splits = level_budgets(0.18 * epsilon, depth + 1), level_budgets(0.18 * epsilon, depth)
    size = n + generator.laplace(0, 1 / counts[0])
    least = size / 2**depth
    gaps = np.mean([np.diff(np.sort(column)) for column in points.T], axis=0)
    sigma = np.clip(
        np.round(np.percentile(gaps, PERCENTILE) * n / GAP_CONSTANT * 2) / 2, 0.5, 29.5
    )
    middles = lower + (np.arange(max(1, int((upper - lower) / (sigma / 2)))) + 0.5) * sigma / 2
    edges = np.append(middles - sigma / 4, middles[-1] + sigma / 4)

    def score(members, size):
        rows = []
        for column in members.T:
            rank = np.searchsorted(np.sort(column), middles)
            inside = np.histogram(column, edges)[0]
            h = size / 2 - np.abs(rank - size / 2)
            inner = (t - 2 * q) / (1 - 2 * q) + h * (1 - t) / (size / 2 - size * q)
            rows.append(
                np.where(h <= size * q, h * t / (size * q), inner)
                + weight * np.clip(1 - inside / size, 0, 1)
            )
        return np.array(rows)

    def grow(members, size, level):
        if level == depth:
            return [(members, size)]
        bound = (t / q + weight) / max(
            1.0, size + math.log(2 * 0.2 * delta / (depth + 1)) / counts[level]
        )
        exponents = splits[level] * score(members, size) / (2 * bound)
        feature, index = divmod(
            int((exponents + generator.gumbel(size=exponents.shape)).argmax()), len(middles)
        )
        left = members[:, feature] <= middles[index]
        sides = members[left], members[~left]
        sizes = [len(side) + generator.laplace(0, 1 / counts[level + 1]) for side in sides]
        if min(sizes) <= least:
            return [(members, size)]
        return grow(sides[0], sizes[0], level + 1) + grow(sides[1], sizes[1], level + 1)

    noise = max(abs(lower), abs(upper)) * math.sqrt(d) / gaussian_mu(0.6 * epsilon, 0.8 * delta)
    leaves = grow(points, size, 0)
    return np.array(
        [(members.sum(axis=0) + generator.normal(0, noise, d)) / size for members, size in leaves]
    )
