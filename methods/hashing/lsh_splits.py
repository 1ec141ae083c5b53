"""LSH-Splits: k-means on a private coreset from a tree of random hyperplanes.

Chang et al. 2021. Points are centered by a private mean. Cells are split level by level
by the sign of a random projection while they are large enough. The noisy means of the
leaves, weighted by their noisy counts, are clustered. The accounting is that of the
library that the DPM paper ran: one Gaussian for the sums and depth + 1 Laplace counts,
calibrated together.
"""

import math
from typing import Literal

import numpy as np

from pkm.compute import DIRECTION_SCALE
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer, Real
from pkm.methods.deltas import inverse_n_root_n
from pkm.methods.schedule import Schedule, counting_noise, plan_release
from pkm.methods.trees.splitting import Node, count_children, count_root, find_origin
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    SCALE,
    CellCounts,
    CellSums,
    Curator,
    Gaussian,
    Laplace,
    PartitionTree,
    PrivacyClaim,
    gaussian_mu,
    largest_multiple,
    snap_centers,
)

# Shares of the centering's epsilon.
COUNT_SHARE = 0.2
SUM_SHARE = 0.8
# Scale of the counts' Laplace noise per unit of the sums' noise multiplier.
COUNTS_TO_SUM = 20
SPLIT_RATIO = 3  # smallest size of a cell that is split, over that of a child


class LSHSplits(PrivateKMeans):
    """k-means on a private coreset from a tree of random hyperplanes.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1 / (n sqrt(n)) for ``published`` and 1e-6 for ``sound``.
    variant : {"published", "sound"}, default="sound"
        ``published`` adds up the shares of the budget. Its mean is about the origin of
        the data's units, and its radius is the largest bound, as seen from the mean,
        times sqrt(d). ``sound`` has Gaussian noise throughout, scaled so that the
        ledger's total is the budget, and the public number of points. Its mean is about
        the domain's midpoint, and its radius reaches the farthest corner.
    centering_share : float, default=0.1
        Share of the budget, in (0, 1), for the private mean, which the hyperplanes pass
        through.
    depth : int, default=20
        Maximum number of levels of the tree, from 1 to 60. The counts of all levels are
        charged.
    n_init : int, default=1
        Starts of the k-means on the coreset; they cost no privacy.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`. Where features have different bounds,
        ``published`` takes the cube [-1, 1]^d for the data's units.

    See Also
    --------
    KaplanStemmer : Averages of the large buckets of several hashes.
    DPM : Splits along the features, through sparse regions.
    SynopsisKMeans : Picks grids or hashing by the number of features.

    Notes
    -----
    Noise of counts is Gaussian in `sound`; in `published` it is Laplace on the grid,
    which is discrete in the library. Normal vectors are rounded to multiples of 2**-16,
    so that the side of every point is exact.

    References
    ----------
    Chang, A., Ghazi, B., Kumar, R. and Manurangsi, P. (2021). Locally private k-means
    in one round. ICML, 1441-1451.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = LSHSplits(n_clusters=2, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "LSH-Splits"
    color = "#56b4e9"
    marker = "P"
    claims = {
        "published": PrivacyClaim("approximate", flaws=("F-09",)),
        "sound": PrivacyClaim("approximate"),
    }
    constraints = {
        "centering_share": Real(0, 1),
        "depth": Integer(1, 60),
        "n_init": Integer(1),
    }
    batched = False
    supports_chunks = True
    published_delta = staticmethod(inverse_n_root_n)

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    variant: str = "sound"
    centering_share: float = 0.1
    depth: int = 20
    n_init: int = 1

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        share = self.centering_share
        delta = self.resolved_delta(n_points)
        if self.variant == "published":
            # The mean is a noisy sum over a noisy count, with a share of epsilon and
            # delta.
            epsilon = share * self.epsilon
            root = plan_release(CellCounts, Laplace, epsilon=COUNT_SHARE * epsilon)
            mean_mu = gaussian_mu(SUM_SHARE * epsilon, share * delta)

            # The tree spends the rest: one Gaussian for the sums and depth + 1 Laplace
            # counts.
            epsilons = [1 / COUNTS_TO_SUM] * (self.depth + 1)
            rest = (1 - share) * self.epsilon, (1 - share) * delta
            sum_mu = largest_multiple([1.0], epsilons, *rest)
            first = [root]
            count = plan_release(CellCounts, Laplace, epsilon=sum_mu / COUNTS_TO_SUM)
        else:
            # All releases are Gaussian: mu^2 adds up. The tree's share is halved
            # between its sums and its counts.
            mu = gaussian_mu(self.epsilon, delta)
            mean_mu = mu * math.sqrt(share)
            sum_mu = mu * math.sqrt((1 - share) / 2)
            first = []
            count = plan_release(
                CellCounts, Gaussian, mu=sum_mu / math.sqrt(self.depth + 1)
            )
        return Schedule(
            *first,
            plan_release(CellSums, Gaussian, mu=mean_mu),
            *[count] * (self.depth + 1),
            plan_release(CellSums, Gaussian, mu=sum_mu),
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Center, grow the tree, cluster leaves; see :meth:`PrivateKMeans.cluster`."""
        # Center the points by a private mean.
        d = curator.n_features
        schedule = self.schedule(curator.n_points, d)
        mean, radius = self._center(curator, schedule)

        # Draw one hyperplane through the mean for each level of the tree.
        generator = curator.public_rng()
        normals = generator.standard_normal((self.depth, d)) * DIRECTION_SCALE
        tree = curator.hyperplanes(np.rint(normals).astype(np.int64), mean)

        # Split while cells are large; the multiplier is the sums' noise, in radii.
        multiplier = 1 / schedule.find(CellSums)[-1].mu
        count = schedule.find(CellCounts)[-1]
        cells, sizes = self._grow(tree, multiplier, counting_noise(count), d)

        # The coreset: noisy means of the leaves, weighted by their noisy counts.
        origins = np.tile(mean, (len(cells), 1))
        query = CellSums(cells, origins, radius)
        sums = tree.release(query, sums=Gaussian(multiplier))["sums"]
        coreset = clip_to_ball(sums / sizes[:, None], radius * SCALE)

        # Cluster the coreset.
        k = self.n_clusters
        centers = weighted_kmeans(coreset, sizes, k, self.n_init, generator)
        centers += mean
        if self.variant == "sound":
            centers = np.clip(centers, -SCALE, SCALE)
        return snap_centers(centers)[None], 1

    def _center(
        self,
        curator: Curator,
        schedule: Schedule,
    ) -> tuple[np.ndarray, float]:
        """Release the mean (d,) of all points, and find a radius that holds them."""
        # Sum about the origin of the data's units, or about the domain's midpoint.
        is_published = self.variant == "published"
        if is_published:
            origin, _ = find_origin(curator.domain)
            size = max(count_root(curator, schedule), 1.0)
        else:
            origin = np.zeros(curator.n_features, np.int64)
            size = float(curator.n_points)
        noise = Gaussian(1 / schedule.find(CellSums)[0].mu)
        query = CellSums([0], origin[None])
        total = curator.whole().release(query, sums=noise)["sums"][0]
        mean = np.rint(origin + total / size)
        mean = np.clip(mean, -SCALE, SCALE).astype(np.int64)

        # The radius: to the farthest corner; the published one takes the largest
        # distance to an end of the domain for all features.
        distances = SCALE + np.abs(mean)
        if is_published:
            return mean, math.sqrt(len(mean)) * float(distances.max()) / SCALE
        return mean, math.sqrt((distances**2).sum()) / SCALE

    def _grow(
        self,
        tree: PartitionTree,
        multiplier: float,
        noise: Laplace | Gaussian,
        n_features: int,
    ) -> tuple[list[int], np.ndarray]:
        """Split while cells are large; return leaves and their released counts."""
        # Smallest size of a child: ten times the noise of its sum, in radii, but at
        # most half of an average cluster.
        count = tree.release(CellCounts([0]), counts=noise)["counts"][0] / SCALE
        size = max(count, 1.0)
        noise_size = int(10 * math.sqrt(n_features) * multiplier)
        cluster_size = int(size / (2 * self.n_clusters))
        min_size = float(max(1, min(noise_size, cluster_size)))

        nodes = [Node(0, size)]
        leaves: list[Node] = []
        for level in range(self.depth):
            # Split cells of at least SPLIT_RATIO times that size by the level's
            # hyperplane, and count both children.
            leaves += [node for node in nodes if node.size < SPLIT_RATIO * min_size]
            large = [node for node in nodes if node.size >= SPLIT_RATIO * min_size]
            pairs = [tree.split(node.cell, level) for node in large]
            counted = count_children(tree, pairs, noise)

            # Keep the children that are large enough; a cell with none is a leaf.
            nodes = []
            for node, children in zip(large, counted, strict=True):
                kept = [child for child in children if child.size >= min_size]
                nodes += kept
                leaves += [node] * (not kept)
        leaves += nodes
        return [leaf.cell for leaf in leaves], np.array([leaf.size for leaf in leaves])


def clip_to_ball(points: np.ndarray, radius: float) -> np.ndarray:
    """Clip the norms of vectors (m, d) to a radius; both in grid steps."""
    length = np.sqrt((points * points).sum(axis=1, keepdims=True))
    return points * np.minimum(1.0, radius / np.maximum(length, 1.0))
