"""Points in a ball for the tests of hashing and of what is built on it."""

from collections import Counter
from functools import cache

import numpy as np

from pkm.compute import Points
from pkm.privacy import SCALE, Budget, Curator, Ledger, NoiseStreams, snap


def grid_points(n, d, seed, kind="spread"):
    rng = np.random.default_rng(seed)
    if kind == "tied":  # few values: many equal distances and equal points
        return rng.integers(-1, 2, (n, d)) * SCALE // 2
    if kind == "extreme":
        return rng.choice([-SCALE, SCALE, 0, 77], (n, d))
    return rng.integers(-SCALE, SCALE + 1, (n, d))


def squared_distances(points, centers):
    return ((points[:, None] - centers) ** 2).sum(axis=2)


def norms(vectors):
    return np.linalg.norm(vectors, axis=1, keepdims=True)


def ample_ledger():
    """Return a ledger with more budget than any test spends."""
    return Ledger(Budget(1e20, 0.999))


def hashed(rows, n_points=None, radius=1.0, seed=0, ledger=None):
    """Return ClippedPoints of rows; the public number of records may be larger, the others
    contribute nothing.
    """
    if ledger is None:
        ledger = ample_ledger()
    owner = Curator(rows, ledger, NoiseStreams([seed]))
    if n_points is not None:
        owner.n_points = n_points
    return owner.clipped_points(radius)


def counts_of(shards, found):
    """Coordinates of the points that are the farthest, and how often each is among them, or with
    what weight.
    """
    kept = Counter()
    for shard in shards:
        mask = np.ones(len(shard.rows), bool) if found is None else found.mask(shard)
        weights = np.ones(len(shard.rows), int) if shard.weights is None else shard.weights
        for row, weight in zip(shard.rows[mask], weights[mask], strict=True):
            kept[tuple(row.astype(int).tolist())] += int(weight)
    if found is not None:
        for row, count in zip(found.tied_rows, found.tied_counts, strict=True):
            kept[tuple(row.astype(int).tolist())] += int(count)
    return +kept


def swaps_by_definition(rows, candidates, current, slots):
    costs = np.empty((len(slots), len(candidates)), object)
    for row, slot in enumerate(slots):
        remaining = np.delete(current, slot)
        for j in range(len(candidates)):
            chosen = candidates[[*remaining, j]]
            costs[row, j] = int(squared_distances(rows, chosen).min(axis=1).sum())
    return costs


def curator(points, epsilon=1.0, delta=1e-6, seeds=(0,)):
    return Curator(points, Ledger(Budget(epsilon, delta)), NoiseStreams(seeds))


@cache
def mixture(n=20_000, d=10, k=16, seed=0, sd=0.05):
    """Return points and centers of separated Gaussian clusters in the unit ball.

    Sizes are in proportion to the roots of 1 .. k.
    """
    rng = np.random.default_rng(seed)
    centers = []
    separation = 1.0
    while len(centers) < k:
        direction = rng.standard_normal(d)
        candidate = direction / np.linalg.norm(direction) * rng.random() ** (1 / d) * 0.8
        if all(np.linalg.norm(candidate - center) > separation for center in centers):
            centers.append(candidate)
        else:
            separation *= 0.999
    centers = np.array(centers)
    shares = np.sqrt(np.arange(1, k + 1))
    classes = rng.choice(k, n, p=shares / shares.sum())
    points = centers[classes] + sd * rng.standard_normal((n, d))
    points = points / np.maximum(1, norms(points))
    return Points.from_grid(snap(np.clip(points, -1, 1))), centers


def shortened(steps, radius):
    """Return steps cut to a length of the radius."""
    lengths = norms(steps)
    factors = radius * SCALE / np.maximum(lengths, 1) * (1 - 2.0**-48)
    factors = np.where(lengths <= radius * SCALE, 1.0, factors)
    return np.trunc(steps * factors).astype(np.int64)
