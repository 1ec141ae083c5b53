"""Leaves of a quadtree of nonnegative counts.

Post-processing of the releases of :mod:`.quadtree`. Where noise is as large as the
counts, two constraints lower it: no count is negative, and the counts of the children
of a cell sum to the count of the cell.
"""

import itertools
import math

import numpy as np

from pkm.methods.coreset import project_onto_simplex
from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.methods.trees.levels import average_with_children

# Chosen on generated sets and on s1 (docs/studies/synopsis.md).
# Smallest count of a cell that is split: in standard deviations of its children's sum.
SPLIT_FACTOR = 0.1
# Smallest count of a leaf above the finest level: in standard deviations of a count.
MIN_LEAF_FACTOR = 0.5


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
    From the finest level up, counts are averaged with the sums of their children by
    inverse variance (Hay, Rastogi, Miklau and Suciu 2010, section 4). From the coarsest
    down, the counts of a split cell's children are projected onto the simplex of its
    count. Small noisy counts become zero.

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
