"""Leaves beyond the linear part of a compressed grid: cells that are surely not noise.

On a linear scale such cells are large and far away. A single one that is noise would
draw a center, so that their counts must exceed all noise of their level.
"""

import functools
import math

import numpy as np

from pkm.methods.trees.leaves import Leaves, gather_leaves
from pkm.methods.trees.quadtree import average_with_children
from pkm.privacy import SCALE

#: Largest expected number of noise cells in a level: exp(-3) / 2, by a union bound.
MARGIN = 6.0


def beyond(linear_part: float, intervals: int, n_features: int) -> np.ndarray:
    """Cells (intervals, ..., intervals), bool, that lie beyond the linear part."""
    edges = np.linspace(-1, 1, intervals + 1)
    in_column = (edges[:-1] >= linear_part) | (edges[1:] <= -linear_part)
    return functools.reduce(np.logical_or.outer, [in_column] * n_features)


def significant_leaves(
    counts: list[np.ndarray],
    deviations: np.ndarray,
    linear_part: float,
    total: float,
) -> Leaves | None:
    """Smallest cells beyond the linear part whose counts exceed the noise."""
    d = counts[0].ndim
    counts = [level.copy() for level in counts]
    deviations = np.sqrt(average_with_children(counts, deviations**2))

    # Test the cells of every level.
    passed = []
    for level_counts, deviation in zip(counts, deviations, strict=True):
        is_beyond = beyond(linear_part, len(level_counts), d)
        n_tested = max(np.count_nonzero(is_beyond), 1)
        limit = (math.log(n_tested) + MARGIN) / math.sqrt(2) * deviation
        passed.append(is_beyond & (level_counts > limit))

    # Leaves have nothing significant below.
    grids = []
    has_finer = np.zeros_like(passed[-1])
    for level in range(len(passed) - 1, -1, -1):
        if level + 1 < len(passed):
            has_finer = any_child(passed[level + 1] | has_finer)
        is_leaf = passed[level] & ~has_finer
        positions = np.argwhere(is_leaf)
        grids.append((len(is_leaf), positions, counts[level][tuple(positions.T)]))
    if not any(len(weights) for _, _, weights in grids):
        return None
    return gather_leaves(grids, total)


def repeat_children(cells: np.ndarray) -> np.ndarray:
    for axis in range(cells.ndim):
        cells = cells.repeat(2, axis=axis)
    return cells


def any_child(cells: np.ndarray) -> np.ndarray:
    shape = np.ravel([(size // 2, 2) for size in cells.shape])
    return cells.reshape(shape).any(axis=tuple(range(1, len(shape), 2)))


def replace_tails(
    leaves: Leaves,
    counts: list[np.ndarray],
    deviations: np.ndarray,
    linear_part: float,
    total: float,
) -> Leaves:
    lower = np.abs(leaves.midpoints) - leaves.sides[:, None] / 2
    inside = leaves.take(np.flatnonzero((lower < linear_part * SCALE).all(axis=1)))
    # What lies beyond is counted apart: the rest of the cell represents its records.
    half = inside.sides[:, None] / 2
    limit = linear_part * SCALE
    low = np.clip(inside.midpoints - half, -limit, limit)
    high = np.clip(inside.midpoints + half, -limit, limit)
    inside = Leaves((low + high) / 2, (high - low).max(axis=1), inside.weights)
    tails = significant_leaves(counts, deviations, linear_part, total)
    if tails is None:
        return inside if len(inside.weights) else leaves
    return Leaves(
        np.concatenate([inside.midpoints, tails.midpoints]),
        np.concatenate([inside.sides, tails.sides]),
        np.concatenate([inside.weights, tails.weights]),
    )
