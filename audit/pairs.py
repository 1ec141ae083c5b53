"""Neighboring data sets: those on which private code is known to fail, and random ones.

Every generator of data sets names one record. Under zero-out adjacency the neighbor has
a null record in its place, under add-remove adjacency it lacks the row. Under
rho-bounded adjacency the record moves by at most rho. In the local model any other
value replaces it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pkm.audit.placements import Partition, convert, draw_place
from pkm.compute import SCALE, Points, middle_and_half_width
from pkm.privacy import Adjacency
from pkm.privacy.query import ONE_RECORD_ADJACENCIES

Rng = np.random.Generator
#: Points, (n, d), and the index of the record among them in which neighbors differ.
RowsAndIndex = tuple[np.ndarray, int]
#: Draws n points in d columns.
RowGenerator = Callable[[Rng, int, int], RowsAndIndex]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighboring data sets on the grid.

    Attributes
    ----------
    name : str
        Name of the function that drew the data set, without ``draw_``.
    rows : ndarray of shape (n, d), int64
        Points, in grid steps; those outside of the bounds are clipped to them.
    index : int
        Of the record in which the two differ.
    replacement : ndarray of shape (d,), int64, or None
        What stands in its place in the neighbor; None for the null record.
    domain : ndarray of shape (2, d), float64
        Public bounds that the grid represents.
    is_reversed : bool, default=False
        Whether the two data sets are exchanged: `points`, `X` and `fit_arguments` are
        those of the neighbor then.
    is_shorter : bool, default=False
        Whether the neighbor lacks the record, and has no null record in its place.
    groups : ndarray of shape (n,), int64, or None
        Persons of the rows: the two differ in all rows of the record's person. None
        where each row is a record.
    sample_weight : ndarray of shape (n,), float64, or None
        Weights of the rows.
    is_missing : ndarray of shape (n, d), bool, or None
        Which entries of `X` are missing.
    """

    name: str
    rows: np.ndarray
    index: int
    replacement: np.ndarray | None
    domain: np.ndarray
    is_reversed: bool = False
    is_shorter: bool = False
    groups: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    is_missing: np.ndarray | None = None

    @property
    def reversed(self) -> "Pair":
        """The pair with its data sets exchanged: the neighbor comes first."""
        return replace(self, is_reversed=not self.is_reversed)

    @property
    def n_records(self) -> int:
        """Number of records: of persons, if rows have them."""
        return len(self.rows if self.groups is None else np.unique(self.groups))

    @property
    def points(self) -> Points:
        """The points of the first data set."""
        rows = np.clip(self.rows, -SCALE, SCALE)
        if not self.is_reversed:
            return Points.from_grid(rows)
        if self.replacement is None:
            fewer = np.delete(rows, self.index, axis=0)
            return Points.from_grid(fewer, n_null=0 if self.is_shorter else 1)
        rows[self.index] = self.replacement
        return Points.from_grid(rows)

    @property
    def X(self) -> np.ndarray:
        """The same in the units of the domain, (n, d); missing entries are NaN."""
        steps = self.rows.astype(np.float64)
        if self.is_missing is not None:
            steps[self.is_missing] = np.nan
        if self.is_reversed:
            changed = np.nan if self.replacement is None else self.replacement
            steps[self._changed_rows] = changed
        middle, half_width = middle_and_half_width(*self.domain)
        return middle + half_width * steps[self._kept_rows] / SCALE

    @property
    def fit_arguments(self) -> dict[str, np.ndarray]:
        """Arguments of ``fit`` besides `X`: persons and weights.

        The neighbor's weights of the record are NaN.
        """
        arguments = {}
        if self.groups is not None:
            arguments["groups"] = self.groups[self._kept_rows]
        if self.sample_weight is not None:
            weights = self.sample_weight.copy()
            weights[self._changed_rows] = np.nan if self.is_reversed else 1.0
            arguments["sample_weight"] = weights[self._kept_rows]
        return arguments

    @property
    def _changed_rows(self) -> np.ndarray:
        """Mask (n,) of the rows of the record."""
        if self.groups is None:
            return np.arange(len(self.rows)) == self.index
        return self.groups == self.groups[self.index]

    @property
    def _kept_rows(self) -> np.ndarray:
        """Mask (n,) of the rows that the first data set has."""
        return ~(self._changed_rows & self.is_reversed & self.is_shorter)


# Generators of rows. Coordinates are in half-widths until they are put on the grid.


def _round_to_grid(points: np.ndarray) -> np.ndarray:
    return np.rint(points * SCALE).astype(np.int64)


def _clip(rows: np.ndarray) -> np.ndarray:
    return np.clip(rows, -SCALE, SCALE)


def draw_heavy_clusters(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw heavy clusters of duplicates, and a record half a domain away from them."""
    centers = rng.uniform(-0.5, 0.5, (2, d))
    points = centers[np.arange(n) % 2]
    points[0] = centers[0] + np.where(centers[0] > 0, -0.5, 0.5)
    return points, 0


def draw_lone_record(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw all points in one corner, and the record in the opposite one."""
    points = np.full((n, d), -0.9)
    points += 0.02 * rng.standard_normal((n, d))
    points[0] = 1.0
    return points, 0


def draw_far_record(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw clusters about the middle, and a record at a corner of the domain."""
    points = 0.2 * _draw_clusters(rng, n, d)
    points[0] = rng.choice([-1.0, 1.0], d)
    return points, 0


def draw_staggered_gaps(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw points whose gaps grow in one feature and shrink in the next.

    One record shifts all ranks.
    """
    gap = 2.0 / (n * (n + 1) / 2)
    steps = np.cumsum(np.arange(1, n + 1)) * gap - 1.0
    columns = [steps if h % 2 else -steps[::-1] for h in range(d)]
    return np.stack(columns, axis=1), 0


def draw_on_a_border(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw points mirrored at the middle of the domain, and a record on it."""
    half = rng.uniform(0.2, 0.8, (n // 2 + 1, d))
    points = np.concatenate([half, -half])[:n]
    points[0] = 0.0
    return points, 0


def draw_duplicates(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw all records at one point."""
    point = rng.uniform(-1, 1, d)
    return np.tile(point, (n, 1)), 0


def draw_blobs(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw three Gaussian clusters, and choose one of their records."""
    points = _draw_clusters(rng, n, d)
    return points, int(rng.integers(n))


def draw_uniform(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw uniform points, and choose one of them."""
    points = rng.uniform(-1, 1, (n, d))
    return points, int(rng.integers(n))


def draw_outside(
    rng: Rng,
    n: int,
    d: int,
) -> RowsAndIndex:
    """Draw points within once or twice the bounds, and a record far outside."""
    width = rng.choice([1.0, 2.0])
    points = width * rng.uniform(-1.0, 1.0, (n, d))
    corner = rng.choice([-1.0, 1.0], d)
    points[0] = corner * 10.0 ** rng.uniform(0, 6)
    return points, 0


def _draw_clusters(
    rng: Rng,
    n: int,
    d: int,
) -> np.ndarray:
    """Draw points of three Gaussian clusters."""
    centers = rng.uniform(-0.7, 0.7, (3, d))
    labels = rng.integers(3, size=n)
    return centers[labels] + 0.08 * rng.standard_normal((n, d))


PAIR_GENERATORS: tuple[RowGenerator, ...] = (
    draw_heavy_clusters,
    draw_lone_record,
    draw_far_record,
    draw_staggered_gaps,
    draw_on_a_border,
    draw_duplicates,
    draw_blobs,
    draw_uniform,
    draw_outside,
)


FEATURES = (1, 2, 3, 4, 8)
MANY_FEATURES = (16,)  # of one pair in twenty: some methods clip to a ball then


def draw_pairs(
    adjacency: Adjacency,
    n_pairs: int,
    seed: int | tuple[int, ...],
    *,
    n_points: tuple[int, int] = (4, 60),
    rho: float | None = None,
    first: int = 0,
) -> Iterator[Pair]:
    """Draw pairs of neighbors by each of `PAIR_GENERATORS` in turn.

    Parameters
    ----------
    adjacency : Adjacency
    n_pairs : int
    seed : int or tuple of int
    n_points : (int, int), default=(4, 60)
        Smallest and largest number of records: small ones lie on either side of every
        threshold.
    rho : float, optional
        In half-widths; of rho-bounded adjacency.
    first : int, default=0
        Position in `PAIR_GENERATORS` of the first generator.

    Yields
    ------
    Pair
    """
    rng = np.random.default_rng(seed)
    for number in range(first, first + n_pairs):
        generator = PAIR_GENERATORS[number % len(PAIR_GENERATORS)]
        sizes = MANY_FEATURES if number % 20 == 13 else FEATURES
        d = int(rng.choice(sizes))
        n = int(rng.integers(n_points[0], n_points[1] + 1))
        pair = draw_pair(generator, adjacency, rng, n, d, rho)
        # Bounds that do not always hold the origin.
        lower = rng.choice([-1.0, -1.0, 0.0, 0.5, -4.0], 1)
        upper = lower + rng.choice([2.0, 2.0, 1.0, 8.0], 1)
        bounds = np.stack([lower, upper])
        domain = np.broadcast_to(bounds, (2, d))
        yield replace(pair, domain=domain.copy())


def draw_pair(
    generator: RowGenerator,
    adjacency: Adjacency,
    rng: Rng,
    n: int,
    d: int,
    rho: float | None = None,
) -> Pair:
    """Draw a pair by a generator of its rows, with bounds of -1 and 1."""
    points, index = generator(rng, n, d)
    rows = _round_to_grid(points)
    if adjacency is Adjacency.RHO_BOUNDED:
        # A move by rho is one inside the bounds.
        rows = _clip(rows)
    replacement = _draw_replacement(adjacency, rng, rows[index], rho)
    domain = np.array([[-1.0] * d, [1.0] * d])
    name = generator.__name__.removeprefix("draw_")
    return Pair(
        name,
        rows,
        index,
        replacement,
        domain,
        is_shorter=adjacency is Adjacency.ADD_REMOVE,
    )


def _draw_replacement(
    adjacency: Adjacency,
    rng: Rng,
    row: np.ndarray,
    rho: float | None,
) -> np.ndarray | None:
    """Draw the value of the record in the neighbor."""
    if adjacency in ONE_RECORD_ADJACENCIES:
        return None
    d = len(row)
    if adjacency is Adjacency.RHO_BOUNDED:
        # The longest move inside the grid and rho, in a random direction or along one
        # feature.
        if rng.random() < 0.5:
            direction = rng.standard_normal(d)
        else:
            direction = np.eye(d)[rng.integers(d)]
        assert rho is not None, "rho-bounded adjacency has it"
        length = math.sqrt(float(direction @ direction))
        step = np.trunc(direction / length * rho * SCALE).astype(np.int64)
        return _clip(row + step)
    if rng.random() < 0.5:
        return _round_to_grid(rng.choice([-1.0, 1.0], d))
    return _round_to_grid(rng.uniform(-1, 1, d))


def perturb(
    pair: Pair,
    rng: Rng,
    rho: float | None = None,
) -> Pair:
    """Change a pair a little, for a search for worse ones.

    The record moves, or another one moves or takes the record's place.
    """
    rows = pair.rows.copy()
    n, d = rows.shape
    target = pair.index
    if rng.random() >= 0.5:
        target = int(rng.integers(n))
    change = rng.random()
    if change < 0.4:
        step = 0.2 * rng.standard_normal(d)
        rows[target] = _clip(rows[target] + _round_to_grid(step))
    elif change < 0.7:
        place = rng.choice([-1.0, 0.0, 1.0], d)
        rows[target] = _round_to_grid(place)
    else:
        rows[rng.integers(n)] = rows[pair.index]
    return _replace_rows(pair, rows, rng, rho)


def move_record(
    pair: Pair,
    partitions: Sequence[Partition],
    rng: Rng,
    rho: float | None = None,
) -> Pair:
    """Move the record of a pair to where a query may treat it wrongly.

    Parameters
    ----------
    pair : Pair
    partitions : sequence of Partition
        Of the queries of a run. The record is placed by one of them.
    rng : numpy.random.Generator
    rho : float, optional
        Of rho-bounded adjacency.
    """
    chosen = Partition.whole(pair.domain)
    if partitions:
        chosen = partitions[int(rng.integers(len(partitions)))]
    others = np.delete(pair.rows, pair.index, axis=0)
    others = convert(others, pair.domain, chosen.domain)
    place = draw_place(others, chosen, rng)
    rows = pair.rows.copy()
    rows[pair.index] = convert(place, chosen.domain, pair.domain)
    return _replace_rows(pair, rows, rng, rho)


def add_persons(pair: Pair, rng: Rng) -> Pair:
    """Give the rows of a pair persons, weights, or both.

    Most persons have one row or a few. At times the person of the record has about half
    of all rows. At times the rows of this person lie anywhere, so in many cells.
    """
    n = len(pair.rows)
    rows = pair.rows
    groups = None
    if rng.random() < 0.8:
        groups = rng.integers(n, size=n)
        is_own = rng.random(n) < rng.choice([0.0, 0.5])
        groups[is_own] = groups[pair.index]
        if pair.is_shorter:
            # No data set is without a row: there is another person.
            groups[pair.index - 1] = n
    sample_weight = None
    if groups is None or rng.random() < 0.3:
        sample_weight = rng.choice([0.0, 0.3, 1.0, rng.random()], n)
    if groups is not None and rng.random() < 0.25:
        scattered = rng.integers(-SCALE, SCALE, rows.shape)
        is_own = groups == groups[pair.index]
        rows = np.where(is_own[:, None], scattered, rows)
    return replace(pair, rows=rows, groups=groups, sample_weight=sample_weight)


def add_missing(pair: Pair, rng: Rng) -> Pair:
    """Make entries of the rows of a pair missing, at times of the record alone."""
    is_missing = rng.random(pair.rows.shape) < rng.choice([0.2, 0.6])
    if rng.random() < 0.3:
        is_other = np.arange(len(is_missing)) != pair.index
        is_missing[is_other] = False
    return replace(pair, is_missing=is_missing)


def _replace_rows(
    pair: Pair,
    rows: np.ndarray,
    rng: Rng,
    rho: float | None,
) -> Pair:
    """Give a pair other points, and the record another replacement, if it has one."""
    replacement = pair.replacement
    if replacement is not None:
        adjacency = Adjacency.LOCAL if rho is None else Adjacency.RHO_BOUNDED
        replacement = _draw_replacement(adjacency, rng, rows[pair.index], rho)
    return replace(pair, rows=rows, replacement=replacement)
