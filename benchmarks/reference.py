"""Plain numpy versions of FastLloyd's family and of DPM, the reference of the speed measurements.

They run one replicate and one cluster at a time. They follow the same schedules and draw as much
noise, but from one generator and without the grid.
"""

import math

import numpy as np

from pkm.methods import FastLloyd, GLloyd, Lloyd, SuLloyd
from pkm.methods.initialization import starting_centers
from pkm.methods.trees.dpm import GAP_CONSTANT, PERCENTILE, level_budgets
from pkm.privacy import SCALE, gaussian_mu

DEPTH = 7  # of DPM's tree
CENTRALITY = 0.3  # score at the quantile, t of the paper
QUANTILE = 1 / 12
EMPTINESS_WEIGHT = 5.0


def cluster(
    method: Lloyd | SuLloyd | GLloyd | FastLloyd, points: np.ndarray, seed: int
) -> np.ndarray:
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
    centers = starting_centers([seed], k, d, "packing", "halving")[0] / SCALE
    generator = np.random.default_rng(seed)
    for iteration in method.schedule(n, d):
        # Assign every point to its nearest center.
        squares = np.empty((n, k))
        for j in range(k):
            squares[:, j] = ((points - centers[j]) ** 2).sum(axis=1)
        label = squares.argmin(axis=1)
        near = np.ones(n, bool)
        if iteration.radius is not None:
            near = squares[np.arange(n), label] <= iteration.radius**2

        # Move every center to the noisy mean of its points.
        moved = np.empty_like(centers)
        for j in range(k):
            members = points[(label == j) & near]
            origin = centers[j] if method.relative else 0.0
            total = (members - origin).sum(axis=0)
            count = float(len(members))
            if iteration.sum_noise is not None:
                is_laplace = iteration.sum_noise.name == "laplace"
                draw = generator.laplace if is_laplace else generator.normal
                total = total + draw(0.0, iteration.sum_noise.scale / SCALE, d)
                count = count + draw(0.0, iteration.count_noise.scale / SCALE)
            moved[j] = origin + total / (count + 1e-9)
        centers = np.clip(moved, -1, 1) if isinstance(method, FastLloyd) else moved
    return centers


def nicv(points: np.ndarray, centers: np.ndarray) -> float:
    """Mean squared distance to the nearest center."""
    squares = [((points - center) ** 2).sum(axis=1) for center in centers]
    return float(np.mean(np.min(squares, axis=0)))


def separate(
    points: np.ndarray, lower: float, upper: float, seed: int, epsilon: float = 1.0
) -> np.ndarray:
    """Run one replicate of DPM as published, sorting every node in every dimension.

    Parameters
    ----------
    points : ndarray of shape (n, d), float64
        In raw units, inside the range.
    lower, upper : float
        The common range.
    seed : int
    epsilon : float, default=1.0

    Returns
    -------
    ndarray of shape (k, d), float64
    """
    n, d = points.shape
    delta = n**-1.5
    count_budgets = level_budgets(0.18 * epsilon, DEPTH + 1)
    split_budgets = level_budgets(0.18 * epsilon, DEPTH)
    generator = np.random.default_rng(seed)
    noisy_size = n + generator.laplace(0, 1 / count_budgets[0])
    min_size = noisy_size / 2**DEPTH
    candidates, edges = split_candidates(points, lower, upper)

    def grow(members: np.ndarray, size: float, level: int) -> list[tuple[np.ndarray, float]]:
        """Leaves below a node, with their points and noisy sizes."""
        if level == DEPTH:
            return [(members, size)]

        # Choose the split by the exponential mechanism.
        margin = math.log(2 * 0.2 * delta / (DEPTH + 1)) / count_budgets[level]
        sensitivity = (CENTRALITY / QUANTILE + EMPTINESS_WEIGHT) / max(1.0, size + margin)
        scores = split_scores(members, size, candidates, edges)
        exponents = split_budgets[level] * scores / (2 * sensitivity)
        best = int((exponents + generator.gumbel(size=exponents.shape)).argmax())
        feature, index = divmod(best, len(candidates))

        # Stop where a side would be too small.
        is_left = members[:, feature] <= candidates[index]
        left = members[is_left]
        right = members[~is_left]
        left_size = len(left) + generator.laplace(0, 1 / count_budgets[level + 1])
        right_size = len(right) + generator.laplace(0, 1 / count_budgets[level + 1])
        if min(left_size, right_size) <= min_size:
            return [(members, size)]
        return grow(left, left_size, level + 1) + grow(right, right_size, level + 1)

    leaves = grow(points, noisy_size, 0)

    # Release the noisy mean of every leaf.
    mu = gaussian_mu(0.6 * epsilon, 0.8 * delta)
    scale = max(abs(lower), abs(upper)) * math.sqrt(d) / mu
    centers = [
        (members.sum(axis=0) + generator.normal(0, scale, d)) / size for members, size in leaves
    ]
    return np.array(centers)


def split_candidates(
    points: np.ndarray, lower: float, upper: float
) -> tuple[np.ndarray, np.ndarray]:
    """Candidate splits, and the edges of the intervals around them, by the gaps between values."""
    gaps = np.mean([np.diff(np.sort(column)) for column in points.T], axis=0)
    gap = np.percentile(gaps, PERCENTILE)
    sigma = np.clip(np.round(gap * len(points) / GAP_CONSTANT * 2) / 2, 0.5, 29.5)
    n_candidates = max(1, int((upper - lower) / (sigma / 2)))
    candidates = lower + (np.arange(n_candidates) + 0.5) * sigma / 2
    edges = np.append(candidates - sigma / 4, candidates[-1] + sigma / 4)
    return candidates, edges


def split_scores(
    members: np.ndarray, size: float, candidates: np.ndarray, edges: np.ndarray
) -> np.ndarray:
    """Score of every candidate in every dimension: its centrality and its emptiness."""
    scores = []
    for column in members.T:
        rank = np.searchsorted(np.sort(column), candidates)
        inside = np.histogram(column, edges)[0]
        depth = size / 2 - np.abs(rank - size / 2)
        outer = depth * CENTRALITY / (size * QUANTILE)
        inner = (CENTRALITY - 2 * QUANTILE) / (1 - 2 * QUANTILE) + depth * (1 - CENTRALITY) / (
            size / 2 - size * QUANTILE
        )
        centrality = np.where(depth <= size * QUANTILE, outer, inner)
        scores.append(centrality + EMPTINESS_WEIGHT * np.clip(1 - inside / size, 0, 1))
    return np.array(scores)
