"""Building blocks of distance-based clustering: centers from quadtrees, trees of hyperplanes.

Units: coordinates are grid steps; sizes and counts are records; radii are half-widths.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pkm.compute import DIRECTION_SCALE
from pkm.compute.kernels.quadtree import cell_centers
from pkm.methods.distance.rho_bounded import MAX_NOISED
from pkm.methods.hashing.lsh_splits import BRANCH, clip_to_ball
from pkm.privacy import SCALE, Gaussian, Laplace
from pkm.privacy.mechanisms.stability_histogram import ReleasedCells
from pkm.privacy.queries.clipped_regions import ClippedRegions, RegionCounts, RegionSums

MAX_QUADTREE_SHIFT = 4 * SCALE

#: Tree, level, cells (m, d) and counts (m,) of one level of a shifted quadtree.
Histogram = tuple[int, int, np.ndarray, np.ndarray]


def draw_shifts(generator: np.random.Generator, n_quadtrees: int, n_features: int) -> np.ndarray:
    """Random shifts (n_quadtrees, d) of quadtrees: public."""
    return generator.integers(0, MAX_QUADTREE_SHIFT + 1, (n_quadtrees, n_features))


def fullest_cells(
    histograms: Iterable[Histogram], shifts: np.ndarray, n_fullest: int
) -> np.ndarray:
    """Centers (m, d), int64, of the cells with the highest counts of each level of each tree."""
    centers = [np.empty((0, shifts.shape[1]), np.int64)]
    for tree, level, cells, counts in histograms:
        fullest = np.argsort(-counts, kind="stable")[:n_fullest]
        centers.append(cell_centers(cells[fullest], shifts[tree], level))
    return np.concatenate(centers)


def clipped_noised(released: np.ndarray) -> np.ndarray:
    """Released points (n, d) in [-2, 2]^d: int32, half the memory."""
    clipped = np.empty(released.shape, np.int32)
    return np.clip(released, -MAX_NOISED, MAX_NOISED, out=clipped, casting="unsafe")


def released_histograms(released: ReleasedCells) -> list[Histogram]:
    """Separate the released cells of a :class:`QuadtreeCounts` by tree and level."""
    n_cells = len(released.cells)
    is_first = np.ones(n_cells, bool)
    is_first[1:] = (np.diff(released.cells[:, :2], axis=0) != 0).any(axis=1)
    ends = [*np.flatnonzero(is_first).tolist(), n_cells]
    histograms = []
    for start, stop in itertools.pairwise(ends):
        tree, level = released.cells[start, :2].tolist()
        counts = released.counts[start:stop] / SCALE
        histograms.append((tree, level, released.cells[start:stop, 2:], counts))
    return histograms


@dataclass(frozen=True)
class _Cells:
    """Cells of one level of the trees, as parallel arrays."""

    index: np.ndarray  # number of the cell among those of the regions
    region: np.ndarray
    size: np.ndarray  # released, in records
    min_size: np.ndarray  # of the parts of a split

    def select(self, rows: np.ndarray) -> "_Cells":
        """The cells that a mask or an index array selects."""
        return _Cells(
            index=self.index[rows],
            region=self.region[rows],
            size=self.size[rows],
            min_size=self.min_size[rows],
        )


@dataclass
class _Leaves:
    """Leaves of the trees, in the order in which they are found."""

    regions: list[int] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)  # cells that the leaf consists of

    def add(self, cells: _Cells, members: np.ndarray) -> None:
        """Add cells as leaves; ``members`` has a row for each."""
        self.regions += cells.region.tolist()
        self.sizes += cells.size.tolist()
        self.members += members.tolist()


class RegionTrees:
    """Trees of random hyperplanes, one per region, and weighted summaries of their leaves.

    The tree of LSH-Splits (:mod:`pkm.methods.hashing.lsh_splits`), grown for all regions at once.

    Parameters
    ----------
    regions : ClippedRegions
    centers : ndarray of shape (m, d), int64
        Of the regions.
    radius : float
        Of the regions, in half-widths.
    n_clusters : int
        Sets the smallest size of a cell, n / 2k.
    depth : int
        Largest number of levels.
    count_noise : Gaussian or Laplace
    sum_noise : Gaussian
        Its scale is per unit of the sums' sensitivity.
    """

    def __init__(
        self,
        regions: ClippedRegions,
        centers: np.ndarray,
        radius: float,
        *,
        n_clusters: int,
        depth: int,
        count_noise: Gaussian | Laplace,
        sum_noise: Gaussian,
    ):
        self._regions = regions
        self._centers = centers
        self._radius = radius
        self._n_clusters = n_clusters
        self._depth = depth
        self._count_noise = count_noise
        self._sum_noise = sum_noise

    def grow(
        self, roots: np.ndarray, sizes: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Split regions by hyperplanes through their centers while cells are large.

        Parameters
        ----------
        roots : ndarray of shape (r,), int64
            Regions to split.
        sizes : ndarray of shape (r,), float64
            Their released sizes.
        generator : numpy.random.Generator
            Of the hyperplanes: public randomness.

        Returns
        -------
        points : ndarray of shape (leaves, d), float64
            Noisy means of the leaves.
        weights : ndarray of shape (leaves,), float64
            Released sizes of the leaves.
        """
        n_features = self._centers.shape[1]
        directions = generator.standard_normal((self._depth, n_features)) * DIRECTION_SCALE
        cells = _Cells(
            index=roots.copy(),
            region=roots.copy(),
            size=sizes.copy(),
            min_size=self._min_sizes(sizes),
        )
        leaves = _Leaves()
        for normal in np.rint(directions).astype(np.int64):
            # A cell that is too small to be split is a leaf.
            large = cells.size >= BRANCH * cells.min_size
            small = cells.select(~large)
            leaves.add(small, small.index[:, None])
            cells = cells.select(large)

            # Split the others by the hyperplane, and count the records of both parts.
            parts = self._regions.split(cells.index, normal)
            query = RegionCounts(parts.ravel())
            released = self._regions.release(query, counts=self._count_noise)["counts"]
            counts = released.reshape(parts.shape) / SCALE

            # A cell of which neither part is large enough is a leaf of both parts.
            accepted = counts >= cells.min_size[:, None]
            whole = np.flatnonzero(~accepted.any(axis=1))
            leaves.add(cells.select(whole), parts[whole])

            # The parts that are large enough are the cells of the next level.
            parent, _ = np.nonzero(accepted)
            cells = _Cells(
                index=parts[accepted],
                region=cells.region[parent],
                size=counts[accepted],
                min_size=cells.min_size[parent],
            )
        leaves.add(cells, cells.index[:, None])
        return self._summarize(leaves)

    def _min_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Smallest size of a cell in each region: ten times the noise of a mean, at most n / 2k."""
        n_features = self._centers.shape[1]
        noise = self._sum_noise.scale * self._regions.sum_sensitivity / self._radius
        min_size = int(10 * math.sqrt(n_features) * noise)
        cluster_sizes = np.floor(sizes / (2 * self._n_clusters))
        return np.maximum(1.0, np.minimum(min_size, cluster_sizes))

    def _summarize(self, leaves: _Leaves) -> tuple[np.ndarray, np.ndarray]:
        """Noisy means (leaves, d) and sizes (leaves,) of the leaves."""
        # Sum the records of each leaf, relative to the center of its region.
        groups = np.full(self._regions.n_cells, -1, np.int64)
        for leaf, members in enumerate(leaves.members):
            groups[members] = leaf
        query = RegionSums(groups, len(leaves.members))
        sums = self._regions.release(query, sums=self._sum_noise)["sums"]

        # Clip the means to the ball of the region.
        weights = np.array(leaves.sizes, np.float64)
        means = sums / weights[:, None]
        means = clip_to_ball(means, self._radius * SCALE)
        return self._centers[np.array(leaves.regions, np.int64)] + means, weights
