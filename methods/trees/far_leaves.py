"""Leaves far out on a compressed grid: cells whose counts are surely not noise alone.

On a linear scale such a cell is large and far away, so that one of noise alone would
draw a center. Its count must exceed all noise that is expected in its level.
"""

import functools
import math

import numpy as np

from pkm.compute import Symlog
from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.methods.trees.levels import sum_children
from pkm.privacy import SCALE

# Chosen on the families of tools/studies/families.py.
# Cells are far from this distance on, in half-widths of the linear part of the grid.
FAR = 1.5
# The count of a far cell is noise alone with a probability of about exp(-5) / 2 in a
# level, by a union bound over its cells.
MARGIN = 5.0


def find_far_leaves(
    counts: list[np.ndarray],
    deviations: np.ndarray,
    scale: Symlog,
) -> Leaves:
    """Find the smallest far cells whose counts exceed the noise.

    Parameters
    ----------
    counts : list of ndarray, float64
        Noisy, level j, from 1, of shape (2**j, ..., 2**j).
    deviations : ndarray of shape (levels,)
        Standard deviation of one count of each level.
    scale : Symlog
        Scale of the grid, by column.

    Returns
    -------
    Leaves
        None of them lies in another. Empty on a grid that is linear.

    Examples
    --------
    >>> counts = [np.array([70.0, 30.0]), np.array([30.0, 40.0, 30.0, 0.0])]
    >>> scale = Symlog(100.0, 0.5, by_norm=False)
    >>> leaves = find_far_leaves(counts, np.array([1.0, 1.0]), scale)
    >>> (leaves.midpoints / SCALE).ravel().tolist(), leaves.weights.round(1).tolist()
    ([-0.75], [30.0])
    """
    limit = _far_limit(scale)
    d = counts[0].ndim
    if limit >= 1:
        return Leaves(np.empty((0, d)), np.empty(0), np.empty(0))

    # From the finest level up: cells above the noise, of which none is in another.
    grids = []
    has_leaf = np.zeros(counts[-1].shape, bool)
    for level_counts, deviation in zip(counts[::-1], deviations[::-1], strict=True):
        if grids:
            has_leaf = sum_children(has_leaf) > 0
        is_far = _far_cells(limit, len(level_counts), d)
        # By a union bound, Laplace noise of any of m cells exceeds log m + MARGIN
        # scales with probability exp(-MARGIN) / 2 at most.
        bound = math.log(max(np.count_nonzero(is_far), 1)) + MARGIN
        above_noise = is_far & (level_counts > bound / math.sqrt(2) * deviation)
        positions = np.argwhere(above_noise & ~has_leaf)
        weights = level_counts[tuple(positions.T)]
        grids.append((len(level_counts), positions, weights))
        has_leaf |= above_noise
    return gather_leaves(grids)


def cut_far_part(leaves: Leaves, scale: Symlog) -> Leaves:
    """Leave out far leaves, and cut the far part off those that reach beyond."""
    limit = _far_limit(scale) * SCALE
    if limit >= SCALE:
        return leaves
    half_sides = leaves.sides[:, None] / 2
    is_near = np.abs(leaves.midpoints) - half_sides < limit
    near = leaves.take(np.flatnonzero(is_near.all(axis=1)))
    half_sides = near.sides[:, None] / 2
    lower = np.clip(near.midpoints - half_sides, -limit, limit)
    upper = np.clip(near.midpoints + half_sides, -limit, limit)
    return Leaves((lower + upper) / 2, (upper - lower).max(axis=1), near.weights)


def _far_limit(scale: Symlog) -> float:
    """Where cells begin to be far, in half-widths of the grid; 1 if it is linear."""
    if scale.softness == 0:
        return 1.0
    return float(scale.compress(np.full((1, 1), FAR))[0, 0])


def _far_cells(
    limit: float,
    intervals: int,
    n_features: int,
) -> np.ndarray:
    """Cells (intervals, ..., intervals), bool, that are far in some column."""
    edges = np.linspace(-1, 1, intervals + 1)
    is_far = (edges[:-1] >= limit) | (edges[1:] <= -limit)
    return functools.reduce(np.logical_or.outer, [is_far] * n_features)
