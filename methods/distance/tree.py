"""Steps of DistDP: groups of noised points, cells of quadtrees, trees of hyperplanes.

Units: coordinates are grid steps; sizes and counts are records; radii, distances and
the noise on points are half-widths.
"""

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.random import Generator

from pkm.compute import DIRECTION_SCALE
from pkm.compute.kernels.nearest import nearest_of_many
from pkm.compute.kernels.quadtree import cell_centers, fullest_occupied_cells
from pkm.methods.distance.rho_bounded import MAX_NOISED, release_points
from pkm.methods.hashing.lsh_splits import SPLIT_RATIO, clip_to_ball
from pkm.privacy import SCALE, Charge, Gaussian, Laplace, StabilityHistogram
from pkm.privacy.mechanisms.stability_histogram import ReleasedCells
from pkm.privacy.queries.clipped_regions import ClippedRegions, RegionCounts, RegionSums
from pkm.privacy.queries.moved_records import QuadtreeCounts
from pkm.privacy.rho_bounded import RhoBoundedCurator

MAX_QUADTREE_SHIFT = 4 * SCALE

#: Tree, level, cells (m, d) and counts (m,) of one level of a shifted quadtree.
Histogram = tuple[int, int, np.ndarray, np.ndarray]
#: Points (m, d), in grid steps, and their weights (m,).
WeightedPoints = tuple[np.ndarray, np.ndarray]


# Noised points


def release_clipped_points(
    curator: RhoBoundedCurator,
    release: Charge,
) -> np.ndarray:
    """Release all points with noise, moved into [-2, 2]^d: int32, half the memory."""
    noised = release_points(curator, release)
    bound = int(MAX_NOISED * SCALE)
    np.clip(noised, -bound, bound, out=noised)
    return noised.astype(np.int32)


def group_points(
    noised: np.ndarray,
    centers: np.ndarray,
    far_distance: float,
    min_size: float,
) -> np.ndarray:
    """Nearest center (n,) of noised points; -1 for far points and small groups."""
    # Algorithm 1, lines 7-10.
    groups, distance = nearest_of_many(noised, centers)
    groups[distance > far_distance * SCALE] = -1
    sizes = np.bincount(groups[groups >= 0], minlength=len(centers))
    # Lines 13-14. Index -1 reads the size of the last group, and stays -1.
    groups[sizes[groups] < min_size] = -1
    return groups


def append_ungrouped(
    points: np.ndarray,
    weights: np.ndarray,
    noised: np.ndarray,
    groups: np.ndarray,
) -> WeightedPoints:
    """Append the noised points without a group, with weight 1, to weighted points."""
    ungrouped = noised[groups < 0]
    ones = np.ones(len(ungrouped))
    points = np.concatenate([points, ungrouped])
    return points, np.concatenate([weights, ones])


# Quadtrees


def draw_shifts(
    generator: Generator,
    n_quadtrees: int,
    n_features: int,
) -> np.ndarray:
    """Draw random shifts (n_quadtrees, d) of quadtrees, public."""
    return generator.integers(0, MAX_QUADTREE_SHIFT + 1, (n_quadtrees, n_features))


def find_fullest_cells(
    noised: np.ndarray,
    shifts: np.ndarray,
    last_level: int,
    n_fullest: int,
) -> np.ndarray:
    """Find centers (m, d), int64, of the cells with most noised points, by level."""
    histograms = fullest_occupied_cells(noised, shifts, last_level, n_fullest)
    return _select_fullest(histograms, shifts, n_fullest)


def release_fullest_cells(
    curator: RhoBoundedCurator,
    query: QuadtreeCounts,
    release: Charge,
    n_fullest: int,
) -> np.ndarray:
    """Release centers (m, d), int64, of the cells with most true points, by level."""
    # A move changes two counts of each histogram, by 1 each.
    n_histograms = len(query.shifts) * len(query.levels)
    noise = threshold_noise(release, 2 * n_histograms)
    (released,) = curator.release(query, counts=noise)["counts"]
    return _select_fullest(split_histograms(released), query.shifts, n_fullest)


def _select_fullest(
    histograms: Iterable[Histogram],
    shifts: np.ndarray,
    n_fullest: int,
) -> np.ndarray:
    # Algorithm 2, lines 12-13 and 17-18: the fullest cells of every level.
    d = shifts.shape[1]
    centers = [np.empty((0, d), np.int64)]
    for tree, level, cells, counts in histograms:
        order = np.argsort(-counts, kind="stable")
        fullest = cells[order[:n_fullest]]
        centers.append(cell_centers(fullest, shifts[tree], level))
    return np.concatenate(centers)


def threshold_noise(
    release: Charge,
    n_changes: int,
) -> StabilityHistogram:
    """Noise and threshold of counts, of which a move changes ``n_changes`` by 1."""
    return StabilityHistogram(
        math.sqrt(n_changes) / release.mu, release.delta, n_changes
    )


def split_histograms(released: ReleasedCells) -> Iterator[Histogram]:
    """Separate the released cells of a :class:`QuadtreeCounts` by tree and level."""
    # Cells are sorted by tree and level, the first two columns.
    levels = released.cells[:, :2]
    is_first = np.diff(levels, axis=0, prepend=-1).any(axis=1)
    starts = np.flatnonzero(is_first).tolist()
    for start, stop in itertools.pairwise([*starts, len(levels)]):
        tree, level = levels[start].tolist()
        counts = released.counts[start:stop] / SCALE
        yield tree, level, released.cells[start:stop, 2:], counts


# Trees of hyperplanes


def grow_trees(
    regions: ClippedRegions,
    centers: np.ndarray,
    radius: float,
    roots: np.ndarray,
    root_sizes: np.ndarray,
    generator: Generator,
    *,
    n_clusters: int,
    depth: int,
    count_noise: Gaussian | Laplace,
    sum_noise: Gaussian,
) -> WeightedPoints:
    """Split regions by hyperplanes while cells are large; summarize the leaves.

    The tree of LSH-Splits (:mod:`pkm.methods.hashing.lsh_splits`), grown for all
    regions at once.

    Parameters
    ----------
    regions : ClippedRegions
    centers : ndarray of shape (m, d), int64
        Centers of the regions; all hyperplanes of a region pass through its center.
    radius : float
        Radius of the regions' balls.
    roots : ndarray of shape (r,), int64
        Regions to split.
    root_sizes : ndarray of shape (r,), float64
        Their released sizes.
    generator : numpy.random.Generator
        Draws the hyperplanes: public randomness.
    n_clusters : int
        A cell needs up to n / (2 n_clusters) records, n the size of its region.
    depth : int
        Largest number of levels.
    count_noise : Gaussian or Laplace
    sum_noise : Gaussian
        With its scale as a multiple of the sums' sensitivity.

    Returns
    -------
    points : ndarray of shape (leaves, d), float64
        Noisy means of the leaves.
    weights : ndarray of shape (leaves,), float64
        Released sizes of the leaves.
    """
    n_features = centers.shape[1]
    normals = generator.standard_normal((depth, n_features)) * DIRECTION_SCALE

    # Region and released size of every cell; the first cells are the regions.
    region = np.arange(len(centers))
    size = np.zeros(len(centers))
    size[roots] = root_sizes

    # Smallest size of a cell in each region: ten times the noise of a sum, in radii, at
    # most n / 2k.
    noise = sum_noise.scale * regions.sum_sensitivity / radius
    noise_size = int(10 * math.sqrt(n_features) * noise)
    cluster_size = np.floor(size / (2 * n_clusters))
    min_size = np.maximum(1.0, np.minimum(noise_size, cluster_size))

    cells = roots
    leaves = []
    split_leaves = []  # leaves that have been split, and their children
    for normal in np.rint(normals).astype(np.int64):
        # A cell that is too small to be split is a leaf.
        is_large = size[cells] >= SPLIT_RATIO * min_size[region[cells]]
        leaves.append(cells[~is_large])
        cells = cells[is_large]

        # Split the others by the hyperplane, and count the records of both children.
        children = regions.split(cells, normal)
        query = RegionCounts(children.ravel())
        counts = regions.release(query, counts=count_noise)["counts"] / SCALE
        regions_of_children = np.repeat(region[cells], 2)
        region = np.append(region, regions_of_children)
        size = np.append(size, counts)

        # A cell of which no child is large enough is a leaf.
        is_accepted = size[children] >= min_size[region[children]]
        is_leaf = ~is_accepted.any(axis=1)
        leaves.append(cells[is_leaf])
        split_leaves.append((cells[is_leaf], children[is_leaf]))

        # The children that are large enough are the cells of the next level.
        cells = children[is_accepted]
    leaf_cells = np.concatenate([*leaves, cells])

    # Number the leaves; the records of a split leaf are in its children.
    groups = np.full(regions.n_cells, -1, np.int64)
    groups[leaf_cells] = np.arange(len(leaf_cells))
    for split, children in split_leaves:
        groups[children] = groups[split][:, None]
        groups[split] = -1

    # Sum the records of each leaf about the center of its region, and clip the means.
    query = RegionSums(groups, len(leaf_cells))
    sums = regions.release(query, sums=sum_noise)["sums"]
    weights = size[leaf_cells]
    means = clip_to_ball(sums / weights[:, None], radius * SCALE)
    return centers[region[leaf_cells]] + means, weights
