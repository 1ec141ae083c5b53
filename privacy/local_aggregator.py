"""The aggregator of the local model: it collects one randomized report per user.

Users are partitioned into disjoint cohorts by public randomness. Each cohort answers one query, and
each of its users answers it with a report that spends the whole epsilon. A query is a public rule
that maps a point to a cell; it may depend on what earlier cohorts have answered. Exact answers are
never computed: the sums here are sums of reports.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import DIRECTION_SCALE, Points, labels
from pkm.privacy.base import BaseCurator, PointsLike
from pkm.privacy.budget import Adjacency
from pkm.privacy.grid import MAX_CELLS, SCALE
from pkm.privacy.ledger import Ledger, StreamKey
from pkm.privacy.noise import SPLIT, NoiseStreams, child
from pkm.privacy.randomizers import SignedSums, VectorRandomizer, check_epsilon, frequency_oracle

# Number of users whose reports are drawn together: public, so that streams do not depend on shards.
CHUNK = 1 << 15


class ReportReuseError(PermissionError):
    """A cohort was queried twice, or users were partitioned twice: each user reports once."""


@dataclass(frozen=True)
class SingleCell:
    """One cell that holds all points."""

    size = 1

    def cells(self, points: np.ndarray) -> np.ndarray:
        """Zero for each point."""
        return np.zeros(len(points), np.int64)


@dataclass(frozen=True)
class NearestCenter:
    """Cells of the nearest centers; ties go to the lower index.

    Parameters
    ----------
    centers : ndarray of shape (k, d), int64
        On the grid; public or released.
    """

    centers: np.ndarray

    @property
    def size(self) -> int:
        """Number of centers."""
        return len(self.centers)

    def cells(self, points: np.ndarray) -> np.ndarray:
        """Index of each point's center."""
        nearest = labels(Points.prepare(points), self.centers[None])[0]
        return nearest.astype(np.int64)


@dataclass(frozen=True)
class Boxes:
    """Boxes between equal intervals along a few public directions.

    Parameters
    ----------
    directions : ndarray of shape (m, d), int64
        Orthonormal, in multiples of 2**-16.
    lower : ndarray of shape (m,), float64
        Start of the first interval of each direction, in half-widths about the domain's midpoint.
    width : float
        Of an interval, in half-widths.
    intervals : int
        Per direction. Points beyond the first or the last are counted there.

    Examples
    --------
    >>> boxes = Boxes(np.array([[65536, 0]]), np.array([-1.0]), 0.5, 4)
    >>> boxes.cells(np.array([[-65536, 0], [-1, 9], [0, 9], [65536, 0]])).tolist()
    [0, 1, 2, 3]
    """

    directions: np.ndarray
    lower: np.ndarray
    width: float
    intervals: int

    def __post_init__(self) -> None:
        if not self.width > 0 or self.intervals < 1 or self.size > MAX_CELLS:
            raise ValueError(
                f"width={self.width} must be positive, intervals={self.intervals} at least 1, and "
                f"{len(self.directions)} directions may make at most {MAX_CELLS} cells"
            )

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.intervals ** len(self.directions)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.intervals,) * len(self.directions)

    def cells(self, points: np.ndarray) -> np.ndarray:
        """Number of each point's cell; the first direction's interval is the most significant."""
        directions = self.directions.T.astype(np.float64)
        coordinates = points.astype(np.float64) @ directions / (float(SCALE) * DIRECTION_SCALE)
        intervals = np.floor((coordinates - self.lower) / self.width)
        bins = np.clip(intervals, 0, self.intervals - 1).astype(np.int64)
        return np.asarray(np.ravel_multi_index(tuple(bins.T), self._shape))

    def midpoints(self, cells: np.ndarray) -> np.ndarray:
        """Midpoint of each box, in the span of the directions.

        Returns
        -------
        ndarray of shape (len(cells), d), float64
            In half-widths.
        """
        return (self._corners(cells) + self.width / 2) @ (self.directions / DIRECTION_SCALE)

    def clip(self, cells: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Move points along the directions into their box.

        Parameters
        ----------
        cells : ndarray of shape (m,), int64
            The box of each point.
        points : ndarray of shape (m, d), float64
            In half-widths.

        Returns
        -------
        ndarray of shape (m, d), float64
            In half-widths.
        """
        basis = self.directions / DIRECTION_SCALE
        lower = self._corners(cells)
        coordinates = points @ basis.T
        return points + (np.clip(coordinates, lower, lower + self.width) - coordinates) @ basis

    def _corners(self, cells: np.ndarray) -> np.ndarray:
        bins = np.stack(np.unravel_index(cells, self._shape), axis=-1)
        return self.lower + bins * self.width


Rule = SingleCell | NearestCenter | Boxes
RULES = (SingleCell, NearestCenter, Boxes)  # the only rules: code of methods never runs on a point


class LocalAggregator(BaseCurator):
    """Users of the local model, one replicate.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        One point per user, on the grid. A user's number is the row in all shards together.
    ledger : Ledger
        Under local adjacency.
    streams : NoiseStreams
        Of one replicate: the randomness of the users.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1 and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public.
    epsilon : float
        Spent by every report.
    seeds : tuple of int
    domain : ndarray of shape (2, d), float64

    Raises
    ------
    ValueError
        If the ledger is not one of local adjacency, or there is more than one replicate.
    ReportReuseError
        If the ledger has reports of users already.
    """

    def __init__(
        self,
        points: PointsLike,
        ledger: Ledger | None,
        streams: NoiseStreams,
        domain: ArrayLike | None = None,
    ) -> None:
        if ledger is None or ledger.budget.adjacency is not Adjacency.LOCAL:
            adjacency = None if ledger is None else str(ledger.budget.adjacency)
            raise ValueError(
                f"adjacency={adjacency} is not supported by this aggregator: its users report "
                "under local adjacency"
            )
        if len(streams.seeds) != 1:
            raise ValueError(
                f"an aggregator serves one replicate at a time, not {len(streams.seeds)}: set "
                "batched = False"
            )
        if _n_reports(ledger):
            raise ReportReuseError(
                "the ledger has reports of users; users who have reported do not report again"
            )
        check_epsilon(ledger.budget.epsilon)
        super().__init__(points, ledger, streams, domain)
        self.epsilon = ledger.budget.epsilon
        self._is_partitioned = False

    def cohorts(self, shares: Sequence[float], radius: float | None = None) -> list["Cohort"]:
        """Partition the users into disjoint cohorts, once.

        Parameters
        ----------
        shares : sequence of float
            Positive; each cohort's share of the users.
        radius : float, optional
            Of a public ball around the midpoint of the domain, in half-widths: each user pulls the
            point into it. Default: half of the domain's diagonal, which holds all points.

        Returns
        -------
        list of Cohort

        Raises
        ------
        ReportReuseError
            If users have been partitioned before.
        ValueError
            If a cohort would have no user; the message says how many users are needed.

        Notes
        -----
        Users are assigned by a permutation of their numbers that the replicate's public seed
        determines.
        """
        if self._is_partitioned:
            raise ReportReuseError(
                "the users were partitioned into cohorts before; each of them reports once"
            )
        sizes = cohort_sizes(self.n_points, shares)
        half_diagonal = math.sqrt(self.n_features)
        radius = half_diagonal if radius is None else min(radius, half_diagonal)
        if not radius > 0:
            raise ValueError(f"radius={radius} must be positive")
        self._is_partitioned = True
        generator = np.random.default_rng(child(self.seeds[0], SPLIT))
        order = generator.permutation(self.n_points)
        members = np.split(order, np.cumsum(sizes)[:-1])
        return [
            Cohort(self, number, np.sort(users), radius) for number, users in enumerate(members)
        ]

    def _rows(self, users: np.ndarray) -> np.ndarray:
        """Points of users in increasing order, shape (m, d), int64."""
        rows = np.empty((len(users), self.n_features), np.int64)
        start = 0
        for shard in self._shards:
            stop = start + shard.shape[0]
            part = slice(*np.searchsorted(users, [start, stop]))
            rows[part] = shard.rows[users[part] - start]
            start = stop
        return rows

    def _charge_cohort(
        self, label: str, mechanism: str, details: dict[str, float | None], cohort: int
    ) -> StreamKey:
        """Charge the reports of a cohort and return their stream key."""
        assert self._ledger is not None  # checked when the aggregator was made
        # Another aggregator on the same ledger would partition the same users differently.
        if _n_reports(self._ledger) != self._rounds.total():
            raise ReportReuseError(
                "the ledger has reports of another aggregator; users who have reported do not "
                "report again"
            )
        return self._charge(label, mechanism, epsilon=self.epsilon, details=details, group=cohort)


class Cohort:
    """Users who report together, once; made by :meth:`LocalAggregator.cohorts`.

    Parameters
    ----------
    aggregator : LocalAggregator
    number : int
        Of the cohort.
    users : ndarray of shape (size,), int64
        Numbers of the users, increasing.
    radius : float

    Attributes
    ----------
    size, n_features : int
        Number of users, and of features of their points.
    radius : float
        Of the public ball that users pull their points into, in half-widths.
    """

    def __init__(
        self, aggregator: LocalAggregator, number: int, users: np.ndarray, radius: float
    ) -> None:
        self._aggregator = aggregator
        self._number = number
        self._users = users
        self._has_reported = False
        # Public, and independent of the partition of the users: one sequence per cohort.
        sequence = np.random.SeedSequence(aggregator.seeds[0], spawn_key=(SPLIT, 1 + number))
        self._public_key = int(sequence.generate_state(1, np.uint64)[0])
        self.size = len(users)
        self.n_features = aggregator.n_features
        self.radius = radius

    def counts(self, rule: Rule, domain_size: int | None = None) -> np.ndarray:
        """Estimate the number of users in each cell of a public rule.

        Parameters
        ----------
        rule : SingleCell, NearestCenter or Boxes
        domain_size : int, optional
            Of the frequency oracle, at least the number of cells: fixed beforehand where the number
            of cells is not known before earlier cohorts have answered, so that the schedule is.
            Default: the number of cells.

        Returns
        -------
        ndarray of shape (rule.size,), float64
            Unbiased numbers of this cohort's users; may be negative.

        Raises
        ------
        ReportReuseError
            If this cohort has reported.
        """
        self._check_rule(rule)
        size = rule.size if domain_size is None else domain_size
        if size < rule.size:
            raise ValueError(
                f"domain_size={domain_size} must be at least the number of cells, {rule.size}"
            )
        oracle = frequency_oracle(self._aggregator.epsilon, size, self._public_key)
        details: dict[str, float | None] = {
            "keep": oracle.p_true,
            "other": oracle.p_false,
            "symbols": oracle.symbols,
            "size": size,
        }
        key = self._charge("local_counts", oracle.name, details)
        tally = oracle.tally()
        streams = self._aggregator._streams
        for chunk, users, points in self._chunks():
            reports = oracle.report(users, rule.cells(points), streams, (*key, chunk))
            tally.add(users, reports)
        return tally.estimate()[: rule.size]

    def count_stddev(self, size: int) -> float:
        """Standard deviation of a small count among ``size`` cells, in users: public."""
        return frequency_oracle(self._aggregator.epsilon, size).stddev(self.size)

    def sums(
        self, rule: Rule, cells: ArrayLike, origins: np.ndarray, radii: ArrayLike
    ) -> np.ndarray:
        """Estimate the sums of the points of cells, each about an origin.

        Parameters
        ----------
        rule : SingleCell, NearestCenter or Boxes
        cells : ndarray of shape (m,), int64
            Cells to sum over.
        origins : ndarray of shape (m, d), int64
            Subtracted from the points of each cell, in grid steps.
        radii : ndarray of shape (m,), float64
            Positive; in half-widths. A user whose difference is longer shortens it to the radius.

        Returns
        -------
        ndarray of shape (m, d), float64
            Unbiased sums of those differences over this cohort's users, in grid steps.

        Notes
        -----
        A user of a cell that is not summed over reports the vector 0.
        """
        self._check_rule(rule)
        cells = np.asarray(cells, np.int64)
        radii = np.asarray(radii, np.float64)
        if not len(cells) or len(np.unique(cells)) < len(cells):
            raise ValueError(f"cells={cells.tolist()} must name one or more cells, once each")
        shape = (len(cells), self.n_features)
        if origins.shape != shape or radii.shape != cells.shape or not (radii > 0).all():
            raise ValueError(
                f"origins, of shape {origins.shape}, and positive radii must be given for "
                f"{len(cells)} cells"
            )
        randomizer = self._randomizer()
        signed = SignedSums(randomizer, self._public_key)
        key = self._charge("local_sums", randomizer.name, self._details(randomizer))

        # Position of each cell of the rule among those that are summed over, -1 for the others.
        positions = np.full(rule.size, -1)
        positions[cells] = np.arange(len(cells))
        totals = np.zeros(shape, np.int64)
        streams = self._aggregator._streams
        for chunk, users, points in self._chunks():
            user_cells = rule.cells(points)
            position = positions[user_cells][:, None]
            differences = points - origins[position[:, 0]]
            vectors = differences / (radii[position] * SCALE)
            vectors = np.where(position >= 0, vectors, 0.0)
            reports = signed.report(users, user_cells, vectors, streams, (*key, chunk))
            signed.add(totals, users, reports, cells)
        return signed.estimate(totals) * (radii * SCALE)[:, None]

    def sum_stddev(self, radius: float = 1.0) -> float:
        """Largest standard deviation of a sum's coordinate, in the unit of ``radius``: public."""
        return radius * math.sqrt(self.size) * self._randomizer().stddev

    def reports(self) -> tuple[np.ndarray, float]:
        """Noised points: one vector per user, unbiased for the point.

        Returns
        -------
        directions : ndarray of shape (size, d), int32
            In multiples of 2**-20.
        length : float
            Factor of the directions, in half-widths.
        """
        randomizer = self._randomizer()
        key = self._charge("local_points", randomizer.name, self._details(randomizer))
        directions = np.empty((self.size, self.n_features), np.int32)
        streams = self._aggregator._streams
        start = 0
        for chunk, users, points in self._chunks():
            vectors = points / (self.radius * SCALE)
            stop = start + len(users)
            directions[start:stop] = randomizer.report(vectors, streams, (*key, chunk))
            start = stop
        return directions, randomizer.length * self.radius

    def _randomizer(self) -> VectorRandomizer:
        return VectorRandomizer(self._aggregator.epsilon, self.n_features)

    def _details(self, randomizer: VectorRandomizer) -> dict[str, float | None]:
        return {
            "length": randomizer.length,
            "dimensions": randomizer.dimensions,
            "radius": self.radius,
        }

    def _check_rule(self, rule: Rule) -> None:
        if type(rule) not in RULES:
            names = ", ".join(known.__name__ for known in RULES)
            raise TypeError(f"rule={rule!r} must be one of {names}")

    def _charge(self, label: str, mechanism: str, details: dict[str, float | None]) -> StreamKey:
        """Charge this cohort's only query and return its stream key."""
        if self._has_reported:
            raise ReportReuseError(
                f"cohort {self._number} has reported; a user reports once, query another cohort"
            )
        key = self._aggregator._charge_cohort(label, mechanism, details, self._number)
        self._has_reported = True
        return key

    def _chunks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Number, users and points of each chunk; users have pulled their points into the ball."""
        limit = self.radius * SCALE
        for number, start in enumerate(range(0, self.size, CHUNK)):
            users = self._users[start : start + CHUNK]
            points = self._aggregator._rows(users)
            lengths = np.sqrt(np.einsum("ij,ij->i", points, points).astype(np.float64))
            factors = np.minimum(1.0, limit / np.maximum(lengths, 1.0))[:, None]
            pulled = np.where(factors < 1, np.rint(points * factors), points)
            yield number, users, pulled.astype(np.int64)


def _n_reports(ledger: Ledger) -> int:
    """Number of charges of cohorts."""
    return sum(charge.group is not None for charge in ledger.charges)


def cohort_sizes(n_users: int, shares: Sequence[float]) -> list[int]:
    """Numbers of users in each cohort; they add up to all users.

    Parameters
    ----------
    n_users : int
    shares : sequence of float
        Positive.

    Raises
    ------
    ValueError
        If a cohort would have no user; the message says how many users are needed.

    Examples
    --------
    >>> cohort_sizes(10, [0.3, 0.4, 0.3])
    [3, 4, 3]
    """
    if not len(shares) or not all(share > 0 and math.isfinite(share) for share in shares):
        raise ValueError(f"shares={list(shares)} must be one or more positive numbers")
    # Round the cumulated shares to whole users.
    cumulative = np.cumsum(shares) / math.fsum(shares)
    ends = np.floor(cumulative * n_users + 0.5).astype(int)
    sizes = np.diff(ends, prepend=0).tolist()
    if min(sizes) < 1:
        needed = math.floor(math.fsum(shares) / min(shares)) + 1
        raise ValueError(
            f"n={n_users} users are too few for {len(sizes)} disjoint cohorts of shares "
            f"{list(shares)}: a cohort would be empty; {needed} users are always enough"
        )
    return sizes
