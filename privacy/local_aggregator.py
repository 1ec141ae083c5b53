"""The aggregator of the local model: it collects one randomized report per user.

Users are partitioned into disjoint cohorts by public randomness. Each cohort answers
one query, and each of its users answers it with one report. Most queries have a public
rule that maps a point to a cell; it may depend on the answers of earlier cohorts. Exact
answers are never computed: answers are estimated from the reports.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pkm.compute import DIRECTION_SCALE, Points, labels
from pkm.compute.storage.points import make_slices
from pkm.privacy.base import BaseCurator, View
from pkm.privacy.budget import Adjacency
from pkm.privacy.checks import are_different_indices, check_positive, check_type
from pkm.privacy.grid import MAX_CELLS, SCALE
from pkm.privacy.ledger import Ledger, StreamKey
from pkm.privacy.mechanisms.noise import SPLIT
from pkm.privacy.mechanisms.randomizers import (
    FrequencyOracle,
    HadamardResponse,
    LocalDomain,
    LocalHashing,
    RandomizedResponse,
    Reports,
    SignedSums,
    UserCells,
    UserVectors,
    VectorRandomizer,
    check_epsilon,
)
from pkm.privacy.query import Answer, Mechanisms, Query, Sensitivities

# Users of a block, whose reports are drawn from one stream: public, so that streams do
# not depend on shards.
BLOCK_USERS = 1 << 15


class ReportReuseError(PermissionError):
    """A cohort was queried twice, or users were partitioned twice."""


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
        nearest = labels(Points.from_grid(points), self.centers[None])[0]
        return nearest.astype(np.int64)


@dataclass(frozen=True)
class Boxes:
    """Boxes between equal intervals along a few public directions.

    Parameters
    ----------
    directions : ndarray of shape (m, d), int64
        Orthonormal, in multiples of 2**-16.
    lower : ndarray of shape (m,), float64
        Start of the first interval of each direction, in half-widths about the domain's
        midpoint.
    width : float
        Width of an interval, in half-widths.
    intervals : int
        Number per direction. Points beyond the first or last belong to it.

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
                f"width={self.width} must be positive, intervals={self.intervals} at "
                f"least 1, and {len(self.directions)} directions may make at most "
                f"{MAX_CELLS} cells"
            )

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.intervals ** len(self.directions)

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.intervals,) * len(self.directions)

    def cells(self, points: np.ndarray) -> np.ndarray:
        """Cell of each point; the first direction is the most significant."""
        # Coordinates along the directions, in half-widths, then interval numbers.
        directions = self.directions.T.astype(np.float64)
        unit = float(SCALE) * DIRECTION_SCALE
        coordinates = points.astype(np.float64) @ directions / unit
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
        # Coordinates along the orthonormal directions, back to features.
        middles = self._corners(cells) + self.width / 2
        return middles @ (self.directions / DIRECTION_SCALE)

    def clip(
        self,
        cells: np.ndarray,
        points: np.ndarray,
    ) -> np.ndarray:
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
        # Only the components along the directions are clipped; the rest stays.
        basis = self.directions / DIRECTION_SCALE
        lower = self._corners(cells)
        coordinates = points @ basis.T
        clipped = np.clip(coordinates, lower, lower + self.width)
        return points + (clipped - coordinates) @ basis

    def _corners(self, cells: np.ndarray) -> np.ndarray:
        bins = np.stack(np.unravel_index(cells, self._shape), axis=-1)
        return self.lower + bins * self.width


#: Rules that map points to cells.
Rule = SingleCell | NearestCenter | Boxes
# No other rules are accepted: code of methods must not run on private points.
RULES = (SingleCell, NearestCenter, Boxes)


class Cohort(View):
    """Users who report together, once; made by :meth:`LocalAggregator.cohorts`.

    Parameters
    ----------
    aggregator : LocalAggregator
    number : int
        Number of the cohort, from 0.
    users : ndarray of shape (size,), int64
        Numbers of the users, increasing.
    radius : float
        Radius of the public ball that users clip to, in half-widths.

    Attributes
    ----------
    group : int
        The cohort's number, as the group of its charges: charges of disjoint cohorts
        compose in parallel.
    size, n_features : int
        Number of users, and of features of their points.
    radius : float
        Radius of the public ball that users clip to, in half-widths.
    key : int
        Public key of the users' hashes and signs.
    """

    def __init__(
        self,
        aggregator: "LocalAggregator",
        number: int,
        users: np.ndarray,
        radius: float,
    ) -> None:
        super().__init__(aggregator)
        self._aggregator = aggregator
        self._users = users
        # Public, and independent of the partition of the users: one sequence per
        # cohort.
        sequence = np.random.SeedSequence(
            aggregator.public_seeds[0], spawn_key=(SPLIT, 1 + number)
        )
        self.key = int(sequence.generate_state(1, np.uint64)[0])
        self.group = number
        self.size = len(users)
        self.radius = radius

    def check_unreported(self) -> None:
        """Refuse a cohort whose users have reported."""
        ledger = self._aggregator._ledger
        assert ledger is not None  # checked when the aggregator was made
        # Another aggregator on the same ledger could let a user report twice: it would
        # partition the same users differently.
        if _n_reports(ledger) != sum(self._aggregator._rounds.values()):
            raise ReportReuseError(
                "the ledger has reports of another aggregator; users who have "
                "reported do not report again"
            )
        if any(charge.group == self.group for charge in ledger.charges):
            raise ReportReuseError(
                f"cohort {self.group} has reported; a user reports once, query "
                "another cohort"
            )

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Users of each block and their points, clipped to the ball: private."""
        # Norm clipping, then rounding to the grid; a user does this alone.
        limit = self.radius * SCALE
        for block in make_slices(self.size, BLOCK_USERS):
            users = self._users[block]
            points = self._aggregator._rows(users)
            lengths = np.sqrt(np.einsum("ij,ij->i", points, points).astype(np.float64))
            # The least length of a grid point other than 0 is one step.
            factors = np.minimum(1.0, limit / np.maximum(lengths, 1.0))[:, None]
            clipped = np.where(factors < 1, np.rint(points * factors), points)
            yield users, clipped.astype(np.int64)


class CohortQuery(Query):
    """Base class of the queries on a cohort, whose users answer with one report each.

    Its answer has one part. The exact answer is an iterator over blocks of the users'
    values, which a mechanism turns into reports. Under local adjacency a user's
    neighbor may have any other value.
    """

    adjacencies = (Adjacency.LOCAL,)
    view = Cohort
    released_alone = True

    def check(self, source: Any) -> None:
        """Refuse a cohort that has reported."""
        source.check_unreported()

    def sensitivity(self, source: Any) -> Sensitivities:
        """By default a user may have any vector of the unit ball."""
        (part,) = self.mechanisms
        return {part: LocalDomain(source.n_features, source.radius)}

    def exact(self, source: Any) -> Answer:
        """The values of all users, block by block."""
        (part,) = self.mechanisms
        return {part: (self.values(source, *block) for block in source._blocks())}

    def values(self, source: Any, users: np.ndarray, points: np.ndarray) -> Any:
        """Values of a block of users, by their clipped points."""
        raise NotImplementedError(f"{type(self).__name__} must define values")

    def estimate(
        self,
        mechanism: Any,
        reports: Iterable[Reports],
    ) -> np.ndarray:
        """Estimate the answer from the reports of all users: post-processing."""
        raise NotImplementedError(f"{type(self).__name__} must define estimate")


@dataclass(frozen=True, eq=False)
class LocalCounts(CohortQuery):
    """Numbers of users in each cell of a public rule.

    Parameters
    ----------
    rule : SingleCell, NearestCenter or Boxes

    Notes
    -----
    Its part is ``counts`` (rule.size,), float64, in units of 2**-16 records: unbiased
    for this cohort's users; may be negative. The oracle may be for more values than
    there are cells. So the schedule can be public although the number of cells depends
    on the answers of earlier cohorts.
    """

    label = "local_counts"
    mechanisms: ClassVar[Mechanisms] = {
        "counts": (RandomizedResponse, LocalHashing, HadamardResponse)
    }

    rule: Rule

    def check(self, source: Any) -> None:
        """Refuse a rule that is not this module's."""
        super().check(source)
        check_type("rule", self.rule, *RULES)

    def sensitivity(self, source: Any) -> Sensitivities:
        """A user may be in any cell."""
        return {"counts": LocalDomain(self.rule.size)}

    def values(self, source: Any, users: np.ndarray, points: np.ndarray) -> UserCells:
        """The cell of each user."""
        return UserCells(users, self.rule.cells(points))

    def estimate(
        self, mechanism: FrequencyOracle, reports: Iterable[Reports]
    ) -> np.ndarray:
        """Unbiased counts."""
        return mechanism.estimate(reports)[: self.rule.size] * SCALE


@dataclass(frozen=True, eq=False)
class LocalSums(CohortQuery):
    """Sums of the points of cells, each about an origin.

    Parameters
    ----------
    rule : SingleCell, NearestCenter or Boxes
    cells : ndarray of shape (m,), int64
        Cells to sum over.
    origins : ndarray of shape (m, d), int64
        Subtracted from the points of each cell, in grid steps.
    radii : ndarray of shape (m,), float64
        Positive; in half-widths. Users clip the difference to the radius in norm.

    Notes
    -----
    Its part is ``sums`` (m, d), float64, in grid steps: unbiased sums of those
    differences over this cohort's users. A user of a cell that is not summed over
    reports the vector 0.
    """

    label = "local_sums"
    mechanisms: ClassVar[Mechanisms] = {"sums": (SignedSums,)}

    rule: Rule
    cells: np.ndarray
    origins: np.ndarray
    radii: np.ndarray

    def check(self, source: Any) -> None:
        """Refuse another rule, cells named twice, and bad origins or radii."""
        super().check(source)
        check_type("rule", self.rule, *RULES)
        cells = self.cells.tolist()
        if not cells or not are_different_indices(cells, self.rule.size):
            raise ValueError(
                f"cells={cells} must name one or more cells, once each, of the "
                f"{self.rule.size}"
            )
        # One origin and one radius for each cell.
        shape = (len(cells), source.n_features)
        is_positive = self.radii.shape == self.cells.shape and (self.radii > 0).all()
        if self.origins.shape != shape or not is_positive:
            raise ValueError(
                f"origins, of shape {self.origins.shape}, and positive radii must be "
                f"given for {len(cells)} cells"
            )

    def values(self, source: Any, users: np.ndarray, points: np.ndarray) -> UserVectors:
        """The cell of each user, and the difference from its origin, in radii."""
        # Position of each cell of the rule among those summed over, -1 for the others.
        # Users of the others report the vector 0, so that all users report alike.
        positions = np.full(self.rule.size, -1)
        positions[self.cells] = np.arange(len(self.cells))
        user_cells = self.rule.cells(points)
        position = positions[user_cells][:, None]
        differences = points - self.origins[position[:, 0]]
        vectors = differences / (self.radii[position] * SCALE)
        return UserVectors(users, user_cells, np.where(position >= 0, vectors, 0.0))

    def estimate(
        self,
        mechanism: SignedSums,
        reports: Iterable[Reports],
    ) -> np.ndarray:
        """Unbiased sums."""
        # From radii of each cell to grid steps.
        sums = mechanism.estimate(reports, self.cells)
        return sums * (self.radii * SCALE)[:, None]


@dataclass(frozen=True, eq=False)
class LocalPoints(CohortQuery):
    """Noisy points: one vector per user, unbiased for the point.

    Notes
    -----
    Its part is ``points`` (size, d), int32: directions in multiples of 2**-20, times
    the randomizer's ``length`` in radii of the cohort's ball. Users are in the order of
    their numbers.
    """

    label = "local_points"
    mechanisms: ClassVar[Mechanisms] = {"points": (VectorRandomizer,)}

    def values(self, source: Any, users: np.ndarray, points: np.ndarray) -> UserVectors:
        """The point of each user, in radii; all are in one cell."""
        # Points are clipped, then rounded to the grid: a vector may be slightly longer
        # than 1. The randomizer takes it for one of length 1 (flip_probability).
        vectors = points / (source.radius * SCALE)
        return UserVectors(users, np.zeros(len(users), np.int64), vectors)

    def estimate(
        self, mechanism: VectorRandomizer, reports: Iterable[Reports]
    ) -> np.ndarray:
        """The reports of all users."""
        return np.concatenate([directions for _, directions in reports])


class LocalAggregator(BaseCurator):
    """Aggregator of the local model: the users of one replicate.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        One point per user, on the grid. Users are numbered by rows over all shards.
    ledger : Ledger
        Under local adjacency.
    streams : NoiseStreams
        Streams of one replicate: the randomness of the users.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1
        and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public.
    epsilon : float
        Budget of every report.
    public_seeds : tuple of int
    domain : ndarray of shape (2, d), float64

    Raises
    ------
    ValueError
        If the ledger is not one of local adjacency, or there is more than one
        replicate.
    ReportReuseError
        If the ledger has reports of users already.
    """

    adjacencies = (Adjacency.LOCAL,)
    needs_ledger = True
    serves = (LocalCounts, LocalSums, LocalPoints)

    def _set_up(self) -> None:
        self.check_single("an aggregator")
        ledger = self._ledger
        assert ledger is not None  # checked before
        if _n_reports(ledger):
            raise ReportReuseError(
                "the ledger has reports of users: who has reported does not report "
                "again"
            )
        # Every user reports once, so each report may cost the whole budget.
        check_epsilon(ledger.budget.epsilon)
        self.epsilon = ledger.budget.epsilon
        self._is_partitioned = False

    def cohorts(
        self, shares: Sequence[float], radius: float | None = None
    ) -> list["Cohort"]:
        """Partition the users into disjoint cohorts, once.

        Parameters
        ----------
        shares : sequence of float
            Positive; each cohort's share of the users.
        radius : float, optional
            Radius of a public ball around the domain's midpoint, in half-widths; users
            clip their points to it. Default: half of the domain's diagonal; that ball
            holds all points.

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
        Users are assigned by a permutation of their numbers that the replicate's public
        seed determines.
        """
        if self._is_partitioned:
            raise ReportReuseError(
                "the users were partitioned into cohorts before; each of them "
                "reports once"
            )
        sizes = cohort_sizes(self.n_points, shares)
        # In half-widths: a ball of this radius holds the whole domain.
        half_diagonal = math.sqrt(self.n_features)
        radius = half_diagonal if radius is None else min(radius, half_diagonal)
        check_positive("radius", radius)
        self._is_partitioned = True
        # The partition is public and does not depend on the points.
        generator = self.public_rng(SPLIT)
        order = generator.permutation(self.n_points)
        members = np.split(order, np.cumsum(sizes)[:-1])
        return [
            Cohort(self, number, np.sort(users), radius)
            for number, users in enumerate(members)
        ]

    def _rows(self, users: np.ndarray) -> np.ndarray:
        """Points of users in increasing order, shape (m, d), int64."""
        # Invariant: ``start`` is the number of the first user of the shard.
        rows = np.empty((len(users), self.n_features), np.int64)
        start = 0
        for shard in self._shards:
            stop = start + shard.shape[0]
            in_shard = slice(*np.searchsorted(users, [start, stop]))
            rows[in_shard] = shard.rows[users[in_shard] - start]
            start = stop
        return rows

    def _draw(
        self,
        query: Query,
        exact: Answer,
        sensitivities: Sensitivities,
        noise: Mapping[str, Any],
        key: StreamKey,
    ) -> dict[str, np.ndarray]:
        """Draw the users' reports, and estimate the answer from them alone."""
        assert isinstance(query, CohortQuery)  # no other is served
        ((part, mechanism),) = noise.items()

        def draw_blocks() -> Iterator[Reports]:
            # Each block of users has its own stream.
            for number, values in enumerate(exact[part]):
                block_key = (*key, number)
                reports = self._streams.release(
                    mechanism, values, block_key, sensitivities[part]
                )
                yield values.users, reports[0]

        return {part: query.estimate(mechanism, draw_blocks())[None]}


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
    if not len(shares) or not all(0 < share < math.inf for share in shares):
        raise ValueError(f"shares={list(shares)} must be one or more positive numbers")
    # Round the cumulative shares to whole users: the sizes then add up to all.
    cumulative = np.cumsum(shares) / math.fsum(shares)
    ends = np.floor(cumulative * n_users + 0.5).astype(int)
    sizes = np.diff(ends, prepend=0).tolist()
    if min(sizes) < 1:
        needed = math.floor(math.fsum(shares) / min(shares)) + 1
        raise ValueError(
            f"n={n_users} users are too few for {len(sizes)} disjoint cohorts of "
            f"shares {list(shares)}: a cohort would be empty; {needed} users are "
            "always enough"
        )
    return sizes
