"""Quadtrees for few records of each center: counts that are not negative, means without far leaves.

Post-processing of the releases of :mod:`.quadtree`. Noise of counts is about as large
as the counts here, so that what is known of them without looking matters: none is
negative, and those of the children of a cell sum to that of the cell.
"""

import itertools
import math

import numpy as np
from scipy.spatial.distance import cdist

from pkm.methods.trees.quadtree import Leaves, average_with_children
from pkm.privacy import SCALE, snap_centers

# These constants were chosen on generated sets and on s1.

OPEN_FACTOR = 0.1  # of the noise of all children: a cell with less is a leaf
LEAF_FACTOR = (
    0.5  # of the noise of a count: a leaf above the finest level with less is left out
)
TRIM_FACTOR = (
    3.0  # of the median distance: leaves of a cluster that are farther do not count
)
TRIM_ROUNDS = 3


def project_onto_simplices(values: np.ndarray, totals: np.ndarray) -> np.ndarray:
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
    excess = (np.cumsum(descending, axis=1) - totals[:, None]) / n_largest

    # As many remain positive as exceed what is taken off them.
    n_positive = (descending > excess).sum(axis=1)
    taken_off = np.take_along_axis(excess, n_positive[:, None] - 1, axis=1)
    return np.maximum(values - taken_off, 0.0)


def nonnegative_leaves(
    counts: list[np.ndarray], deviations: np.ndarray, total: float
) -> Leaves:
    """Leaves of the tree of nonnegative counts: children are the nearest that sum to their parent.

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
    >>> counts = [np.array([60.0, -4.0]), np.array([1.0, 55.0, -3.0, 2.0])]
    >>> leaves = nonnegative_leaves(counts, np.array([3.0, 3.0]), 60.0)
    >>> (leaves.midpoints / SCALE).ravel().tolist(), leaves.weights.round(1).tolist()
    ([-0.75, -0.25], [3.0, 57.0])
    """
    d = counts[0].ndim
    deviations = np.sqrt(average_with_children(counts, deviations**2))
    corners = np.array(list(itertools.product((0, 1), repeat=d)))
    midpoints = []
    sides = []
    weights = []

    # The domain is open; its children are the cells of the first level.
    open_cells = np.zeros((1, d), np.int64)
    open_counts = np.array([total])
    for level, level_counts in enumerate(counts):
        # Children of open cells, of the coarsest level all of them.
        children = (2 * open_cells[:, None, :] + corners).reshape(-1, d)
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
        n_intervals = level_counts.shape[0]
        midpoints.append(
            (2 * children[is_leaf] + 1 - n_intervals) * (SCALE / n_intervals)
        )
        sides.append(np.full(int(is_leaf.sum()), 2.0 * SCALE / n_intervals))
        weights.append(child_counts[is_leaf])
        open_cells = children[is_open]
        open_counts = child_counts[is_open]

    if not sum(map(len, weights)):
        return Leaves(np.zeros((1, d)), np.array([2.0 * SCALE]), np.array([total]))
    return Leaves(
        np.concatenate(midpoints), np.concatenate(sides), np.concatenate(weights)
    )


def trimmed_means(centers: np.ndarray, leaves: Leaves) -> np.ndarray:
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
    >>> leaves = Leaves(np.array([[0.0], [20.0], [900.0]]), np.ones(3), np.array([4.0, 4.0, 1.0]))
    >>> trimmed_means(np.array([[50]]), leaves).tolist()
    [[10]]
    """
    d = centers.shape[1]
    within = (
        d * leaves.sides**2 / 12
    )  # mean squared distance of records from their leaf's midpoint
    means = centers.astype(np.float64)
    for _ in range(TRIM_ROUNDS):
        squares = cdist(leaves.midpoints, means, "sqeuclidean")
        nearest = squares.argmin(axis=1)
        distances = np.sqrt(squares.min(axis=1) + within)
        for cluster in np.unique(nearest):
            members = np.flatnonzero(nearest == cluster)
            by_distance = members[np.argsort(distances[members], kind="stable")]
            cumulated = np.cumsum(leaves.weights[by_distance])
            median = distances[
                by_distance[np.searchsorted(cumulated, cumulated[-1] / 2)]
            ]
            near = members[distances[members] <= TRIM_FACTOR * median]
            means[cluster] = np.average(
                leaves.midpoints[near], axis=0, weights=leaves.weights[near]
            )
    return snap_centers(means)
