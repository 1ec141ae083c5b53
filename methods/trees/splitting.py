"""Steps of methods that split cells: counts of children, and the origin of sums."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pkm.compute import middle_and_half_width
from pkm.methods.schedule import Schedule, counting_noise
from pkm.privacy import SCALE, CellCounts, Curator, Gaussian, Laplace, PartitionTree

MAX_ORIGIN_DISTANCE = 1000  # half-widths of the range


class Node(NamedTuple):
    """A cell of a tree and its released count, in records."""

    cell: int
    size: float


def count_children(
    tree: PartitionTree,
    pairs: Sequence[tuple[int, int]],
    noise: Laplace | Gaussian,
) -> list[tuple[Node, Node]]:
    """Release the counts of both children of every split cell, in one query."""
    # Cells of one query are disjoint: a record changes one count by 1.
    cells = [cell for pair in pairs for cell in pair]
    counts = tree.release(CellCounts(cells), counts=noise)["counts"] / SCALE
    nodes = list(map(Node, cells, counts))
    return list(zip(nodes[::2], nodes[1::2], strict=True))


def count_root(
    curator: Curator,
    schedule: Schedule,
) -> float:
    """Release the number of all points, the first count of a schedule."""
    noise = counting_noise(schedule.find(CellCounts)[0])
    answer = curator.whole().release(CellCounts([0]), counts=noise)
    return float(answer["counts"][0] / SCALE)


def find_origin(domain: np.ndarray) -> tuple[np.ndarray, float]:
    """Find the origin of the data's units, in grid steps, and their half-width.

    Published methods average about it. Features of different ranges are scaled
    separately before such a method runs: the origin is then 0, and the half-width 1.

    Raises
    ------
    ValueError
        If the range is so far from the origin that averages about it are too coarse on
        the grid.
    """
    lower, upper = domain
    midpoint, half_width = middle_and_half_width(lower, upper)
    if np.ptp(lower) > 0 or np.ptp(upper) > 0:
        return np.zeros(len(lower), np.int64), 1.0
    if abs(midpoint[0]) > MAX_ORIGIN_DISTANCE * half_width[0]:
        raise ValueError(
            f"bounds=({lower[0]}, {upper[0]}) are more than {MAX_ORIGIN_DISTANCE} "
            "times their half-width from zero, about which variant='published' "
            "averages: shift the data, or take variant='sound'"
        )
    # 0 in the data's units, as seen from the midpoint of the domain.
    origin = np.rint(-midpoint / half_width * SCALE).astype(np.int64)
    return origin, float(half_width[0])
