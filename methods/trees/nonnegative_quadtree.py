"""Quadtrees at a low signal-to-noise ratio: nonnegative counts, trimmed means.

Post-processing of the releases of :mod:`.quadtree`. Where noise is as large as the
counts, two constraints lower it: no count is negative, and the counts of the children
of a cell sum to the count of the cell.
"""

import itertools
import math

import numpy as np
from scipy.spatial.distance import cdist

from pkm.methods.coreset import project_onto_simplex
from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.methods.trees.levels import average_with_children

# Chosen on generated sets and on s1: the factors at the freeze of nonnegative counts,
# the trimming at that of finer trees (docs/studies/synopsis.md).
# Smallest count of a cell that is split: in standard deviations of its children's sum.
SPLIT_FACTOR = 0.1
# Smallest count of a leaf above the finest level: in standard deviations of a count.
MIN_LEAF_FACTOR = 0.5
TRIM_FACTOR = 3.0  # largest distance of a leaf that is averaged, in median distances
TRIM_ROUNDS = 3


def nonnegative_leaves(
    counts: list[np.ndarray],
    deviations: np.ndarray,
    total: float,
) -> Leaves:
    """Select the leaves of a tree of nonnegative counts that sum to their parent.

    Parameters
    ----------
    counts : list of ndarray, float64
        Released, level j, from 1, of shape (2**j, ..., 2**j); overwritten.
    deviations : ndarray of shape (levels,)
        Standard deviation of one count of each level.
    total : float
        The public number of records.

    Returns
    -------
    Leaves
        Children of split cells that are not split, and those of the finest level. A
        cell is split if its count exceeds ``SPLIT_FACTOR`` of the noise of its
        children.

    Notes
    -----
    From the finest level up, counts are averaged with the sums of their children, as
    for :func:`pkm.methods.trees.levels.consistent_levels`. From the coarsest down,
    the counts of a split cell's children are projected onto the simplex of its count.
    Small noisy counts become zero.

    Examples
    --------
    >>> from pkm.privacy import SCALE
    >>> counts = [np.array([60.0, -4.0]), np.array([1.0, 55.0, -3.0, 2.0])]
    >>> leaves = nonnegative_leaves(counts, np.array([3.0, 3.0]), 60.0)
    >>> (leaves.midpoints / SCALE).ravel().tolist(), leaves.weights.round(1).tolist()
    ([-0.75, -0.25], [3.0, 57.0])
    """
    d = counts[0].ndim
    deviations = np.sqrt(average_with_children(counts, deviations**2))
    corners = list(itertools.product((0, 1), repeat=d))
    grids = []

    # The domain is split; its children are the cells of the first level.
    split_cells = np.zeros((1, d), np.int64)
    split_counts = np.array([total])
    for level, level_counts in enumerate(counts):
        # Children of split cells, with nonnegative counts that sum to their parents'.
        children = 2 * split_cells[:, None, :] + corners
        children = children.reshape(-1, d)
        noisy = level_counts[tuple(children.T)].reshape(-1, 2**d)
        child_counts = project_onto_simplex(noisy, split_counts).ravel()

        # Those that are not split are leaves, unless they are large with few records.
        is_split = np.zeros(len(children), bool)
        least = 0.0
        if level < len(counts) - 1:
            noise_of_children = math.sqrt(2**d) * deviations[level + 1]
            is_split = child_counts > SPLIT_FACTOR * noise_of_children
            least = MIN_LEAF_FACTOR * deviations[level]
        is_leaf = ~is_split & (child_counts > least)
        leaves = children[is_leaf], child_counts[is_leaf]
        grids.append((len(level_counts), *leaves))
        split_cells = children[is_split]
        split_counts = child_counts[is_split]
    return gather_leaves(grids).or_domain(total)


def trimmed_means(
    centers: np.ndarray,
    leaves: Leaves,
) -> np.ndarray:
    """Means of clusters of leaves, without leaves that are far from the center.

    Parameters
    ----------
    centers : ndarray of shape (k, d), float64
        In grid steps.
    leaves : Leaves

    Returns
    -------
    ndarray of shape (k, d), float64
        After three rounds. In each, leaves are assigned to their nearest center. Leaves
        are averaged if they are at most three times as far from it as the cluster's
        median record; others are mostly noise. A center without leaves does not move.

    Examples
    --------
    >>> midpoints = np.array([[0.0], [20.0], [900.0]])
    >>> leaves = Leaves(midpoints, np.ones(3), np.array([4.0, 4.0, 1.0]))
    >>> trimmed_means(np.array([[50.0]]), leaves).tolist()
    [[10.0]]
    """
    # Variance of a record that is uniform in its leaf.
    within_cell = centers.shape[1] * leaves.sides**2 / 12
    means = centers.copy()
    for _ in range(TRIM_ROUNDS):
        # Assign leaves to their nearest center.
        squares = cdist(leaves.midpoints, means, "sqeuclidean")
        nearest = squares.argmin(axis=1)
        distances = np.sqrt(squares.min(axis=1) + within_cell)
        for cluster in np.unique(nearest):
            # Find the distance of the cluster's median record.
            members = np.flatnonzero(nearest == cluster)
            members = members[np.argsort(distances[members], kind="stable")]
            cumulated = np.cumsum(leaves.weights[members])
            middle = np.searchsorted(cumulated, cumulated[-1] / 2)
            farthest = TRIM_FACTOR * distances[members[middle]]

            # Average the leaves that are not much farther.
            near = leaves.take(np.sort(members[distances[members] <= farthest]))
            means[cluster] = np.average(near.midpoints, axis=0, weights=near.weights)
    return means
