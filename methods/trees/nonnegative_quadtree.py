"""Quadtrees for few records of each center: nonnegative counts, trimmed means.

Post-processing of the releases of :mod:`.quadtree`. Noise of counts is about as large
as the counts here, so that what is known of them without looking matters: none is
negative, and those of the children of a cell sum to that of the cell.
"""

import itertools
import math

import numpy as np
from scipy.spatial.distance import cdist

from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.methods.trees.quadtree import average_with_children
from pkm.privacy import snap_centers

# Chosen on generated sets and on s1: the factors at the freeze of nonnegative counts,
# the trimming at that of finer trees (docs/studies/synopsis.md).
OPEN_FACTOR = 0.1  # a cell of less is a leaf; of the noise of all children
# A leaf of less is left out above the finest level; of a count's noise.
LEAF_FACTOR = 0.5
TRIM_FACTOR = 3.0  # leaves that are farther do not count; of the median distance
TRIM_ROUNDS = 3


def project_onto_simplices(
    values: np.ndarray,
    totals: np.ndarray,
) -> np.ndarray:
    """The nearest rows without negative entries that have given sums.

    Parameters
    ----------
    values : ndarray of shape (m, c), float64
    totals : ndarray of shape (m,), float64
        Positive.

    Returns
    -------
    ndarray of shape (m, c), float64
        Each row less a number of its own, and zero where that is negative.

    References
    ----------
    Duchi, J., Shalev-Shwartz, S., Singer, Y. and Chandra, T. (2008). Efficient
    projections onto the l1-ball for learning in high dimensions. ICML, 272-279, figure
    1.

    Examples
    --------
    >>> values = np.array([[5.0, 3.0, -1.0], [1.0, 1.0, 1.0]])
    >>> project_onto_simplices(values, np.array([4.0, 6.0])).tolist()
    [[3.0, 1.0, 0.0], [2.0, 2.0, 2.0]]
    """
    # What the j largest entries exceed the total by, for each of them.
    descending = -np.sort(-values, axis=1)
    n_largest = np.arange(1, values.shape[1] + 1)
    excess = np.cumsum(descending, axis=1) - totals[:, None]
    excess /= n_largest

    # As many remain positive as exceed what is taken off them.
    n_positive = (descending > excess).sum(axis=1)
    taken_off = np.take_along_axis(excess, n_positive[:, None] - 1, axis=1)
    return np.maximum(values - taken_off, 0.0)


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
        Cells that are not open below open ones, and those of the finest level. A cell
        is open if its count exceeds ``OPEN_FACTOR`` of the noise of its children.

    Notes
    -----
    From the finest level up, counts are averaged with the sums of their children, as
    for :func:`pkm.methods.trees.quadtree.consistent_levels`. From the coarsest down,
    the counts of the children of an open cell are projected onto the simplex of its
    count: noise about an empty place is cut off by as much as the children exceed their
    parent.

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

    # The domain is open; its children are the cells of the first level.
    open_cells = np.zeros((1, d), np.int64)
    open_counts = np.array([total])
    for level, level_counts in enumerate(counts):
        # Children of open cells, of the coarsest level all of them.
        children = 2 * open_cells[:, None, :] + corners
        children = children.reshape(-1, d)
        noisy = level_counts[tuple(children.T)].reshape(-1, 2**d)
        child_counts = project_onto_simplices(noisy, open_counts).ravel()

        # Those that are not open are leaves, unless they are large and hold too little.
        is_open = np.zeros(len(children), bool)
        least = 0.0
        if level < len(counts) - 1:
            noise_of_children = math.sqrt(2**d) * deviations[level + 1]
            is_open = child_counts > OPEN_FACTOR * noise_of_children
            least = LEAF_FACTOR * deviations[level]
        is_leaf = ~is_open & (child_counts > least)
        leaves = children[is_leaf], child_counts[is_leaf]
        grids.append((len(level_counts), *leaves))
        open_cells = children[is_open]
        open_counts = child_counts[is_open]
    return gather_leaves(grids, total)


def trimmed_means(
    centers: np.ndarray,
    leaves: Leaves,
) -> np.ndarray:
    """Means of clusters of leaves without those that are far from the center.

    Parameters
    ----------
    centers : ndarray of shape (k, d), int64
        In grid steps.
    leaves : Leaves

    Returns
    -------
    ndarray of shape (k, d), int64
        After three rounds. In each, leaves are assigned to their nearest center, and
        those count that are at most three times as far from it as the median record of
        the cluster. What is farther from a tight cluster is noise that would draw its
        center away. A center without leaves stays.

    Examples
    --------
    >>> midpoints = np.array([[0.0], [20.0], [900.0]])
    >>> leaves = Leaves(midpoints, np.ones(3), np.array([4.0, 4.0, 1.0]))
    >>> trimmed_means(np.array([[50]]), leaves).tolist()
    [[10]]
    """
    # Mean squared distance of records, uniform in their leaf, from its midpoint.
    within = centers.shape[1] * leaves.sides**2 / 12
    means = centers.astype(np.float64)
    for _ in range(TRIM_ROUNDS):
        # Assign leaves to their nearest center.
        squares = cdist(leaves.midpoints, means, "sqeuclidean")
        nearest = squares.argmin(axis=1)
        distances = np.sqrt(squares.min(axis=1) + within)
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
    return snap_centers(means)
