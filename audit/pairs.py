"""Neighboring data sets on which private code is known to fail, random ones, a search for worse.

Every kind of data set names one record. Under zero-out adjacency the neighbor has a null record in
its place; under rho-bounded adjacency the record is moved by at most rho; in the local model it is
replaced by any other value.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pkm.compute import SCALE, Points
from pkm.privacy import Adjacency
from pkm.privacy.query import PRESENCE

Rows = np.ndarray
Kind = Callable[[np.random.Generator, int, int], tuple[Rows, int]]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighboring data sets on the grid.

    Attributes
    ----------
    name : str
        Kind of the data set.
    rows : ndarray of shape (n, d), int64
        Points, in grid steps.
    index : int
        Of the record in which the two differ.
    replacement : ndarray of shape (d,), int64, or None
        What stands in its place in the neighbor; None for the null record.
    domain : ndarray of shape (2, d), float64
        Public bounds that the grid represents.
    """

    name: str
    rows: np.ndarray
    index: int
    replacement: np.ndarray | None
    domain: np.ndarray

    @property
    def points(self) -> Points:
        """The points."""
        return Points.prepare(self.rows)

    @property
    def reversed(self) -> "Pair":
        """The pair with its data sets exchanged."""
        return _Reversed(self.name, self.rows, self.index, self.replacement, self.domain)

    @property
    def neighbor(self) -> Points:
        """The neighbor's points."""
        if self.replacement is None:
            return Points.prepare(np.delete(self.rows, self.index, axis=0), n_null=1)
        rows = self.rows.copy()
        rows[self.index] = self.replacement
        return Points.prepare(rows)


class _Reversed(Pair):
    """A pair with its data sets exchanged."""

    @property
    def points(self) -> Points:
        """The neighbor's points."""
        return super().neighbor

    @property
    def neighbor(self) -> Points:
        """The points."""
        return super().points


# Kinds of data sets. Coordinates are in half-widths until they are put on the grid.


def _on_grid(points: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(points, -1.0, 1.0) * SCALE).astype(np.int64)


def _blobs(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Points of three Gaussian clusters."""
    centers = rng.uniform(-0.7, 0.7, (3, d))
    labels = rng.integers(3, size=n)
    return centers[labels] + 0.08 * rng.standard_normal((n, d))


def heavy_clusters(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """P1: heavy clusters of duplicates, and a record half a domain away from the nearest."""
    centers = rng.uniform(-0.5, 0.5, (2, d))
    points = centers[np.arange(n) % 2]
    points[0] = centers[0] + np.where(centers[0] > 0, -0.5, 0.5)
    return _on_grid(points), 0


def lone_record(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """P2: all points in one corner, one in the opposite: a cluster that is empty without it."""
    points = np.full((n, d), -0.9) + 0.02 * rng.standard_normal((n, d))
    points[0] = 1.0
    return _on_grid(points), 0


def far_record(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """P3: clusters about the middle, and a record at a corner of the domain."""
    points = 0.2 * _blobs(rng, n, d)
    points[0] = rng.choice([-1.0, 1.0], d)
    return _on_grid(points), 0


def staggered_gaps(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """P4: gaps that grow in one feature and shrink in the next: one record shifts all ranks."""
    steps = np.cumsum(np.arange(1, n + 1)) * (2.0 / (n * (n + 1) / 2)) - 1.0
    columns = [steps if h % 2 else -steps[::-1] for h in range(d)]
    return _on_grid(np.stack(columns, axis=1)), 0


def on_a_border(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """P6: points mirrored at the middle of the domain, and a record on it."""
    half = rng.uniform(0.2, 0.8, (n // 2 + 1, d))
    points = np.concatenate([half, -half])[:n]
    points[0] = 0.0
    return _on_grid(points), 0


def duplicates(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """P7: all records at one point."""
    return _on_grid(np.tile(rng.uniform(-1, 1, d), (n, 1))), 0


def blobs(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """Three Gaussian clusters, and one of their records."""
    return _on_grid(_blobs(rng, n, d)), int(rng.integers(n))


def uniform(rng: np.random.Generator, n: int, d: int) -> tuple[Rows, int]:
    """Uniform points, and one of them."""
    return _on_grid(rng.uniform(-1, 1, (n, d))), int(rng.integers(n))


KINDS: tuple[Kind, ...] = (
    heavy_clusters,
    lone_record,
    far_record,
    staggered_gaps,
    on_a_border,
    duplicates,
    blobs,
    uniform,
)


def pairs(
    adjacency: Adjacency,
    n_pairs: int,
    seed: int | tuple[int, ...],
    *,
    n_points: tuple[int, int] = (4, 60),
    rho: float | None = None,
    first: int = 0,
    common_range: bool = True,
) -> Iterator[Pair]:
    """Draw pairs of neighbors, kind after kind.

    Parameters
    ----------
    adjacency : Adjacency
    n_pairs : int
    seed : int or tuple of int
    n_points : (int, int), default=(4, 60)
        Smallest and largest number of records (P5: sizes on either side of every small threshold).
    rho : float, optional
        In half-widths; of rho-bounded adjacency.
    first : int, default=0
        Number of the first kind.
    common_range : bool, default=True
        Whether all features have the same bounds.

    Yields
    ------
    Pair
    """
    rng = np.random.default_rng(seed)
    for number in range(first, first + n_pairs):
        kind = KINDS[number % len(KINDS)]
        d = int(rng.choice([1, 2, 3, 4, 8]))
        n = int(rng.integers(n_points[0], n_points[1] + 1))
        rows, index = kind(rng, n, d)
        replacement = replacement_of(adjacency, rng, rows[index], rho)
        yield Pair(kind.__name__, rows, index, replacement, _domain(rng, d, common_range))


def _domain(rng: np.random.Generator, d: int, common_range: bool) -> np.ndarray:
    """Bounds that do not always hold the origin (P10)."""
    lower = rng.choice([-1.0, -1.0, 0.0, 0.5, -4.0], 1 if common_range else d)
    width = rng.choice([2.0, 2.0, 1.0, 8.0], 1 if common_range else d)
    return np.broadcast_to(np.stack([lower, lower + width]), (2, d)).copy()


def replacement_of(
    adjacency: Adjacency, rng: np.random.Generator, row: np.ndarray, rho: float | None
) -> np.ndarray | None:
    """Value of the record in the neighbor."""
    if adjacency in PRESENCE:
        return None
    d = len(row)
    if adjacency is Adjacency.RHO_BOUNDED:
        # P9: the longest move, in a random direction or along one feature; inside the grid and rho.
        direction = rng.standard_normal(d) if rng.random() < 0.5 else np.eye(d)[rng.integers(d)]
        assert rho is not None, "rho-bounded adjacency has it"
        step = direction / math.sqrt(float(direction @ direction)) * rho * SCALE
        return np.clip(row + np.trunc(step).astype(np.int64), -SCALE, SCALE)
    return _on_grid(rng.choice([-1.0, 1.0], d) if rng.random() < 0.5 else rng.uniform(-1, 1, d))


def mutated(pair: Pair, rng: np.random.Generator, rho: float | None = None) -> Pair:
    """Change a pair a little: for a search for worse ones.

    The record is moved, or another one is moved, or put where the record is.
    """
    rows = pair.rows.copy()
    n, d = rows.shape
    target = pair.index if rng.random() < 0.5 else int(rng.integers(n))
    change = rng.random()
    if change < 0.4:
        rows[target] = _on_grid(rows[target] / SCALE + 0.2 * rng.standard_normal(d))
    elif change < 0.7:
        rows[target] = _on_grid(rng.choice([-1.0, 0.0, 1.0], d))
    else:
        rows[int(rng.integers(n))] = rows[pair.index]
    replacement = pair.replacement
    if replacement is not None:
        adjacency = Adjacency.LOCAL if rho is None else Adjacency.RHO_BOUNDED
        replacement = replacement_of(adjacency, rng, rows[pair.index], rho)
    return Pair(pair.name, rows, pair.index, replacement, pair.domain)
