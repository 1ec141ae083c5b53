"""Placements of the record of a pair: where a query may treat it wrongly.

A query partitions the domain into cells by public rules: the points nearest to a
center, inside a radius, in a bucket of a hash, in a leaf of a tree. A fault often shows
only in a record that lies exactly on a border, or in the fullest or emptiest cell.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pkm.compute import SCALE, Points, middle_and_half_width
from pkm.privacy.queries.tree import PartitionTree

#: Maps points (m, d), in grid steps, to the codes of their cells, (m,) or (m, q). The
#: points of a cell have the same code.
Encoder = Callable[[np.ndarray], np.ndarray]
#: Fields of queries that hold positions, in grid steps; ``center`` is in half-widths.
POSITIONS = ("centers", "candidates", "origins", "center")
LARGEST_LEVEL = 19  # of a quadtree: level l has cells of 2**(19 - l) grid steps
N_PROBES = 64  # uniform points, among which empty cells are looked for
N_CORNERS = 8  # of the domain, which are farthest from centers


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of the domain into cells, as a query makes it.

    Attributes
    ----------
    rule : str
        What the cells are divided by: "nearest" (center), "radius", "sides", "ball",
        "grid", "bins", "table", "buckets", "tree", "users", or "whole" for one cell.
    encode : callable
        From points (m, d) to the codes of their cells.
    positions : ndarray of shape (p, d), int64
        Public ones in the domain, such as centers; none if there are none.
    domain : ndarray of shape (2, d), float64
        Bounds in the units of the data, which the grid steps represent.
    """

    rule: str
    encode: Encoder
    positions: np.ndarray
    domain: np.ndarray

    def codes(self, points: np.ndarray) -> np.ndarray:
        """Encode the cells of points: a row of codes for each."""
        return self.encode(points).reshape(len(points), -1)

    @classmethod
    def whole(cls, domain: np.ndarray) -> "Partition":
        """Take the domain as one cell."""
        nowhere = np.empty((0, domain.shape[1]), np.int64)
        return cls("whole", lambda points: np.zeros(len(points)), nowhere, domain)


def list_partitions(
    source: Any,
    query: Any,
    domain: np.ndarray,
) -> list[Partition]:
    """List the partitions of the domain that a query makes.

    Parameters
    ----------
    source : BaseCurator or View
        What answers the query. Only its public values are read.
    query : pkm.privacy.query.Query
    domain : ndarray of shape (2, d)
        Of the curator.
    """
    positions = _list_positions(query, domain.shape[1])
    rules = _list_rules(source, query, positions)
    # Centers may lie outside of the domain, where no record is.
    inside = np.clip(positions, -SCALE, SCALE)
    return [Partition(rule, encode, inside, domain) for rule, encode in rules]


def _list_positions(query: Any, n_features: int) -> np.ndarray:
    """List the positions among the arguments of a query, in grid steps."""
    positions = [np.empty((0, n_features), np.int64)]
    for name in POSITIONS:
        array = np.asarray(getattr(query, name, ()))
        if array.shape[-1:] != (n_features,):
            continue
        if name == "center":
            array = np.rint(array * SCALE).astype(np.int64)
        if array.dtype == np.int64:
            positions.append(array.reshape(-1, n_features))
    return np.concatenate(positions)


def _list_rules(
    source: Any,
    query: Any,
    positions: np.ndarray,
) -> Iterator[tuple[str, Encoder]]:
    """Yield the rules by which a query partitions the domain, each with its encoder."""
    n_features = positions.shape[1]
    origin = np.zeros((1, n_features), np.int64)
    places = positions if len(positions) else origin
    is_box = getattr(query, "box", False)
    if len(positions) > 1:
        yield "nearest", partial(find_nearest, positions)
    if getattr(query, "radius", None) is not None:
        limits = np.broadcast_to(np.ravel(query.radius), len(places))
        columns = limits[:, None] * SCALE
        yield "radius", partial(find_shells, places, columns)
    if hasattr(query, "radii") and query.label == "side_counts":
        radii = np.sort(query.radii) * SCALE
        yield "sides", partial(_find_sides, places[0], radii)
    elif hasattr(query, "radii"):
        shape = (len(places), len(query.radii))
        limits = np.broadcast_to(query.radii, shape) * SCALE
        yield "radius", partial(find_shells, places, limits, is_box=is_box)
    if getattr(source, "radius", math.inf) < math.sqrt(n_features):
        limits = np.full((1, 1), source.radius * SCALE)
        yield "ball", partial(find_shells, origin, limits)
    if hasattr(query, "intervals"):
        yield "grid", partial(_find_intervals, query.intervals)
    if hasattr(query, "thresholds"):
        yield "bins", partial(np.searchsorted, query.thresholds, side="right")
    if hasattr(query, "edges"):
        yield "table", partial(_find_table_cells, query.edges)
    if hasattr(query, "hashing"):
        yield "buckets", partial(_apply, query.hashing.codes)
    if hasattr(query, "rule"):
        yield "users", query.rule.cells
    if hasattr(query, "shifts"):
        yield "tree", partial(_find_quadtree_cells, query.shifts, query.levels)
    if isinstance(source, PartitionTree):
        yield "tree", partial(_find_leaves, source._code, tuple(source._splits))


def find_nearest(centers: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Find the number of the nearest center; ties go to the lower one."""
    differences = points[:, None] - centers[None]
    squares = (differences * differences).sum(axis=2)
    return squares.argmin(axis=1)


def find_shells(
    centers: np.ndarray,
    limits: np.ndarray,  # (k, q): of each center
    points: np.ndarray,
    *,
    is_box: bool = False,
) -> np.ndarray:
    """Count the limits that the distance to the nearest center exceeds."""
    nearest = find_nearest(centers, points)
    differences = (points - centers[nearest]).astype(float)
    order = np.inf if is_box else 2
    distances = np.linalg.norm(differences, ord=order, axis=1)
    exceeds = distances[:, None] > limits[nearest]
    return exceeds.sum(axis=1)


def _find_sides(
    center: np.ndarray,
    radii: np.ndarray,
    points: np.ndarray,
) -> np.ndarray:
    """Count the radii that each column's distance exceeds; the side is the sign."""
    differences = points - center
    shells = np.searchsorted(radii, np.abs(differences)) + 1
    return np.where(differences < 0, -shells, shells)


def _find_intervals(intervals: int, points: np.ndarray) -> np.ndarray:
    numbers = (points + SCALE) * intervals // (2 * SCALE)
    return np.minimum(numbers, intervals - 1)


def _find_table_cells(
    edges: Sequence[np.ndarray],
    points: np.ndarray,
) -> np.ndarray:
    columns = zip(edges, points.T, strict=True)
    cells = [np.searchsorted(inner, column, side="right") for inner, column in columns]
    return np.stack(cells, axis=1)


def _find_quadtree_cells(
    shifts: np.ndarray,
    levels: range,
    points: np.ndarray,
) -> np.ndarray:
    sides = [1 << LARGEST_LEVEL - level for level in levels]
    cells = [np.empty((len(points), 0), np.int64)]
    for shift in shifts:
        cells += [(points + shift) // side for side in sides]
    return np.concatenate(cells, axis=1)


def _find_leaves(
    code: Callable[[Points], np.ndarray],
    splits: Sequence[tuple[int, int, int]],
    points: np.ndarray,
) -> np.ndarray:
    """Find the cell of a tree that is not split."""
    codes = _apply(code, points).astype(np.int64)
    leaves = np.zeros(len(points), np.int64)
    for number, (cell, feature, boundary) in enumerate(splits):
        members = np.flatnonzero(leaves == cell)
        is_upper = codes[members, feature] >= boundary
        leaves[members] = 2 * number + 1 + is_upper
    return leaves


def _apply(
    function: Callable[[Points], np.ndarray],
    points: np.ndarray,
) -> np.ndarray:
    return function(Points.from_grid(points))


def convert(
    rows: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
) -> np.ndarray:
    """Convert grid steps of a domain to those of another one, inside of it."""
    middle, half_width = middle_and_half_width(*source)
    new_middle, new_half_width = middle_and_half_width(*target)
    values = rows / SCALE * half_width
    offsets = (values + (middle - new_middle)) / new_half_width
    inside = np.clip(offsets, -1.0, 1.0)
    steps = np.rint(inside * SCALE)
    return steps.astype(np.int64)


# Placements: functions of the other records (m, d), a partition and a generator, which
# return a place (d,). All are in grid steps of the domain of the partition.


def draw_border(
    rows: np.ndarray,
    partition: Partition,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a place on either side of a border, by bisection.

    The border lies between two records, positions or other points. Where the two are
    centers, the first point of the bisection is halfway between them.
    """
    positions = partition.positions
    elsewhere = _draw_probes(rows.shape[1], rng)
    ends = np.concatenate([positions, rows, elsewhere])
    inside = _draw_end(ends, positions, rng)
    is_other = _differ(partition, ends, inside)
    if not is_other.any():
        return inside
    other_positions = positions[is_other[: len(positions)]]
    outside = _draw_end(ends[is_other], other_positions, rng)
    while np.abs(outside - inside).max() > 1:
        middle = (inside + outside) // 2
        if _differ(partition, middle[None], inside)[0]:
            outside = middle
        else:
            inside = middle
    return inside if rng.random() < 0.5 else outside


def _draw_end(
    ends: np.ndarray,
    positions: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a position, if there is one, as often as any of the ends."""
    if len(positions) and rng.random() < 0.5:
        ends = positions
    return ends[rng.integers(len(ends))]


def _differ(
    partition: Partition,
    points: np.ndarray,
    point: np.ndarray,
) -> np.ndarray:
    """Tell which points are in another cell than one point."""
    codes = partition.codes(points)
    return (codes != partition.codes(point[None])).any(axis=1)


def _draw_by_size(
    rows: np.ndarray,
    partition: Partition,
    rng: np.random.Generator,
    choose: Callable[[np.ndarray], np.intp],
) -> np.ndarray:
    """Draw a point of the cell that is chosen by the cells' numbers of records."""
    elsewhere = _draw_probes(rows.shape[1], rng)
    probes = np.concatenate([partition.positions, rows, elsewhere])
    probes = rng.permutation(probes)
    codes = partition.codes(np.concatenate([probes, rows]))
    _, numbers = np.unique(codes, axis=0, return_inverse=True)
    numbers = numbers.ravel()
    of_probes = numbers[: len(probes)]
    of_rows = numbers[len(probes) :]
    sizes = np.bincount(of_rows, minlength=len(numbers))
    chosen = choose(sizes[of_probes])
    return probes[chosen]


#: Draw a place in the cell with most records; in one without a record, or with fewest.
draw_in_fullest = partial(_draw_by_size, choose=np.argmax)
draw_in_emptiest = partial(_draw_by_size, choose=np.argmin)


def draw_at_position(
    rows: np.ndarray,
    partition: Partition,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a position, such as a center, or a place a step from it."""
    places = partition.positions if len(partition.positions) else rows
    place = places[rng.integers(len(places))]
    step = rng.integers(-1, 2, len(place))
    return place + step


def draw_at_quantile(
    rows: np.ndarray,
    partition: Partition,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return a quantile of the records, the same in each column."""
    place = np.quantile(rows, rng.random(), axis=0)
    return place.astype(np.int64)


def draw_at_record(
    rows: np.ndarray,
    partition: Partition,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the place of another record."""
    return rows[rng.integers(len(rows))]


def draw_anywhere(
    rows: np.ndarray,
    partition: Partition,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a place anywhere in the domain."""
    return _draw_probes(rows.shape[1], rng)[0]


def _draw_probes(n_features: int, rng: np.random.Generator) -> np.ndarray:
    """Draw uniform points, then corners of the domain."""
    uniform = rng.integers(-SCALE, SCALE + 1, (N_PROBES, n_features))
    corners = rng.choice([-SCALE, SCALE], (N_CORNERS, n_features))
    return np.concatenate([uniform, corners])


#: Each placement with the share of the moves that it gets.
PLACEMENTS = {
    draw_border: 0.4,
    draw_in_fullest: 0.1,
    draw_in_emptiest: 0.1,
    draw_at_position: 0.15,
    draw_at_quantile: 0.1,
    draw_at_record: 0.1,
    draw_anywhere: 0.05,
}


def draw_place(
    rows: np.ndarray,
    partition: Partition,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw a placement, and by it a place for a record among others."""
    placements = list(PLACEMENTS)
    shares = list(PLACEMENTS.values())
    number = rng.choice(len(placements), p=shares)
    place = placements[number](rows, partition, rng)
    return np.clip(place, -SCALE, SCALE)
