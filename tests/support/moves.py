"""Curators under rho-bounded adjacency, moves of a record, and exact answers to queries."""

import itertools

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.methods.distance.tree import split_histograms
from pkm.privacy import (
    SCALE,
    Budget,
    Gaussian,
    Ledger,
    NoiseStreams,
    StabilityHistogram,
    snap,
    to_half_widths,
)
from pkm.privacy.queries.clipped_regions import (
    LargeRegions,
    RegionCounts,
    RegionSizes,
    RegionSums,
)
from pkm.privacy.queries.moved_records import (
    AllPoints,
    QuadtreeCounts,
    SortedGaussian,
)
from pkm.privacy.rho_bounded import RhoBoundedCurator

NEGLIGIBLE = 1e-3  # grid steps: noise that is always rounded to zero


def blobs(n, d=2, k=4, spread=0.03, seed=0):
    rng = np.random.default_rng(seed)
    lattice = np.array(list(itertools.product((-0.6, 0.0, 0.6), repeat=d)))
    centers = lattice[rng.choice(len(lattice), k, replace=False)]
    points = centers[np.arange(n) % k] + spread * rng.standard_normal((n, d))
    return np.clip(points, -1, 1)


def curator(points, rho=0.05, epsilon=1.0, delta=1e-6, seed=0):
    ledger = Ledger(Budget(epsilon, delta, "rho_bounded", rho))
    return RhoBoundedCurator(points, ledger, NoiseStreams([seed]))


def exact(points, rho=0.05):
    """Return a curator whose budget suffices for noise that rounds to zero."""
    return curator(points, rho, epsilon=1e20, delta=0.5)


def draw_move(rng, d, rho, n=12):
    """Return grid points, the index of a record, and a point that it can move to.

    The move is within rho in the domain before both were rounded.
    """
    rows = rng.uniform(-1, 1, (n, d))
    i = rng.integers(n)
    step = rng.standard_normal(d)
    step *= rho * rng.choice([1.0, rng.random()]) / np.linalg.norm(step)
    moved = np.clip(rows[i] + step, -1, 1)
    return snap(rows), i, snap(moved)


def with_move(rows, i, moved):
    return np.concatenate([np.delete(rows, i, axis=0), moved[None]])


def after_move(original, row, moved):
    """Return the neighbor's curator: the same releases so far, with one record elsewhere."""
    neighbor = exact(original._rows, rho=original._ledger.budget.rho)
    neighbor._rows = original._rows.copy()
    neighbor._released = original._released
    (index,) = np.flatnonzero((original._rows == row).all(axis=1))[:1]
    neighbor._rows[index] = moved
    return neighbor


def points_of(holder, scale):
    return holder.release(AllPoints(), points=SortedGaussian(scale))["points"][0]


def counts_of(regions, cells, noise):
    """Noisy counts of cells, in records."""
    return regions.release(RegionCounts(np.asarray(cells)), counts=noise)["counts"] / SCALE


def sizes_of(regions, noise):
    """Noisy sizes of all regions, in records."""
    return regions.release(RegionSizes(), counts=noise)["counts"] / SCALE


def large_sizes_of(regions, n_regions):
    """Exact sizes of the regions above the threshold, in records, and 0 for the others."""
    noise = StabilityHistogram(1e-9, 1e-6, 2)
    released = regions.release(LargeRegions(), counts=noise)["counts"]
    return np.bincount(released.cells, released.counts / SCALE, minlength=n_regions)


def sums_of(regions, groups, n_groups, multiplier):
    return regions.release(RegionSums(groups, n_groups), sums=Gaussian(multiplier))["sums"]


def cells_of(holder, shifts, levels, noise):
    """Released cells of quadtrees: tree, level, cells and counts, in records, of each histogram."""
    (released,) = holder.release(QuadtreeCounts(shifts, levels), counts=noise)["counts"]
    return list(split_histograms(released))


def cost(points, centers, p=2):
    distances = cdist(points, centers).min(axis=1)
    return float((distances**p).sum())


def kmeans_cost(points, k, n_init=5):
    return KMeans(k, n_init=n_init, random_state=0).fit(points).inertia_


def median_cost(points, run):
    return np.median([cost(points, to_half_widths(centers)) for centers in run.centers])
