"""The crowd: the door to users who trust nobody; what leaves a user is one randomized report.

Users are dealt out into disjoint groups by public randomness, every group is asked one question, and each of its users
answers it with a report that spends the whole epsilon. A question is a public rule that sends a point to a cell; it may
use what earlier groups have answered. Exact answers are never formed anywhere: what is summed here are reports.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pkm.compute import DIRECTION_SCALE, Points, labels
from pkm.privacy.budget import Adjacency
from pkm.privacy.base import shards_of
from pkm.privacy.grid import SCALE
from pkm.privacy.ledger import Charge, Ledger
from pkm.privacy.noise import SPLIT, NoiseStreams, child
from pkm.privacy.randomizers import SignedSums, VectorRandomizer, check_epsilon, frequency_oracle

CHUNK = (
    1 << 15
)  # users whose reports are drawn together: a public constant, so that streams do not depend on shards
MAX_CELLS = 1 << 22


class ReportReuseError(PermissionError):
    """A group was asked again, or users were dealt out again: each user reports once."""


@dataclass(frozen=True)
class SingleCell:
    """One cell that holds everything."""

    size = 1

    def cells(self, points):
        """Zero for each point."""
        return np.zeros(len(points), np.int64)


@dataclass(frozen=True)
class NearestCenter:
    """The nearest of some centers, the first of equals.

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

    def cells(self, points):
        """Index of each point's center."""
        return labels(Points.prepare(points), self.centers[None])[0].astype(np.int64)


@dataclass(frozen=True)
class Boxes:
    """Boxes between equal intervals along a few public directions.

    Parameters
    ----------
    directions : ndarray of shape (m, d), int64
        Orthonormal, in multiples of 2**-16.
    lower : ndarray of shape (m,), float64
        Where the first interval of each direction begins, in half-widths about the domain's middle.
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

    def __post_init__(self):
        if not self.width > 0 or self.intervals < 1 or self.size > MAX_CELLS:
            raise ValueError(
                f"width={self.width} must be positive and intervals={self.intervals} at least 1, and "
                f"{len(self.directions)} directions may make at most {MAX_CELLS} cells"
            )

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.intervals ** len(self.directions)

    def cells(self, points):
        """Number of each point's cell: that of the first direction's interval counts most."""
        along = (
            points.astype(np.float64)
            @ self.directions.T.astype(np.float64)
            / (float(SCALE) * DIRECTION_SCALE)
        )
        places = np.clip(np.floor((along - self.lower) / self.width), 0, self.intervals - 1).astype(
            np.int64
        )
        return np.ravel_multi_index(tuple(places.T), (self.intervals,) * len(self.directions))

    def midpoints(self, cells: np.ndarray) -> np.ndarray:
        """Middle of each box, in the span of the directions, shape (len(cells), d), float64, in half-widths."""
        return (self._corners(cells) + self.width / 2) @ (self.directions / DIRECTION_SCALE)

    def clip(self, cells: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Move points (len(cells), d), float64, in half-widths, along the directions into their box, if outside."""
        basis, lower = self.directions / DIRECTION_SCALE, self._corners(cells)
        along = points @ basis.T
        return points + (np.clip(along, lower, lower + self.width) - along) @ basis

    def _corners(self, cells: np.ndarray) -> np.ndarray:
        places = np.stack(
            np.unravel_index(cells, (self.intervals,) * len(self.directions)), axis=-1
        )
        return self.lower + places * self.width


RULES = SingleCell, NearestCenter, Boxes  # what may be asked: code of methods never runs on a point


class LocalAggregator:
    """Users of the local model, one replicate.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        One point per user, on the grid. A user is known by the place in the whole; shards make no difference.
    ledger : Ledger
        Under local adjacency.
    streams : NoiseStreams
        Of one replicate: the users' own randomness.
    domain : array-like of shape (2, d), optional
        Public bounds, in the data's own units, that the grid stands for. Default: -1 and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public.
    epsilon : float
        That every report spends.
    seeds : tuple of int
    domain : ndarray of shape (2, d), float64

    Raises
    ------
    ValueError
        If the ledger is not one of local adjacency, or there is more than one replicate.
    ReportReuseError
        If the ledger has reports of users already.
    """

    def __init__(self, points, ledger: Ledger | None, streams: NoiseStreams, domain=None):
        if ledger is None or ledger.budget.adjacency is not Adjacency.LOCAL:
            kind = None if ledger is None else str(ledger.budget.adjacency)
            raise ValueError(
                f"adjacency={kind} is not supported by this aggregator: its users report under local adjacency"
            )
        if len(streams.seeds) != 1:
            raise ValueError(
                f"an aggregator serves one replicate at a time, not {len(streams.seeds)}: set batched = False"
            )
        if any(charge.group is not None for charge in ledger.charges):
            raise ReportReuseError(
                "the ledger has reports of users; users who have reported are not asked again"
            )
        check_epsilon(ledger.budget.epsilon)
        self._shards = shards_of(points)
        self._ledger, self._streams = ledger, streams
        self._rounds, self._dealt = Counter(), False
        self.epsilon = ledger.budget.epsilon
        self.n_points = sum(shard.shape[0] for shard in self._shards)
        self.n_features = self._shards[0].shape[1]
        self.n_replicates, self.seeds = 1, streams.seeds
        self.domain = np.empty((2, self.n_features))
        self.domain[:] = [[-1.0], [1.0]] if domain is None else domain

    def cohorts(self, shares: Sequence[float], radius: float | None = None) -> list["Cohort"]:
        """Deal the users out into disjoint groups, once.

        Parameters
        ----------
        shares : sequence of float
            Positive; of the users that each group gets.
        radius : float, optional
            Of a public ball about the middle of the domain, in half-widths: users pull their own point into it.
            Default: half of the domain's diagonal, which holds all points.

        Returns
        -------
        list of Cohort

        Raises
        ------
        ReportReuseError
            If users have been dealt out before.
        ValueError
            If a group would have no user; the message says how many users are needed.

        Notes
        -----
        Who belongs to which group is a permutation of the users' numbers by the replicate's public seed.
        """
        if self._dealt:
            raise ReportReuseError(
                "the users were dealt out into groups before; each of them reports once"
            )
        sizes = cohort_sizes(self.n_points, shares)
        diagonal = math.sqrt(self.n_features)
        radius = diagonal if radius is None else min(radius, diagonal)
        if not radius > 0:
            raise ValueError(f"radius={radius} must be positive")
        self._dealt = True
        order = np.random.default_rng(child(self.seeds[0], SPLIT)).permutation(self.n_points)
        members = np.split(order, np.cumsum(sizes)[:-1])
        return [Cohort(self, number, np.sort(each), radius) for number, each in enumerate(members)]

    def _rows(self, users: np.ndarray) -> np.ndarray:
        """Points of users in increasing order, shape (m, d), int64."""
        rows, first = np.empty((len(users), self.n_features), np.int64), 0
        for shard in self._shards:
            here = slice(*np.searchsorted(users, [first, first + shard.shape[0]]))
            rows[here] = shard.rows[users[here] - first]
            first += shard.shape[0]
        return rows


class Cohort:
    """Users who report together, once; made by :meth:`LocalAggregator.groups`.

    Attributes
    ----------
    size, n_features : int
        Number of users, and of columns of their points.
    radius : float
        Of the public ball that they pull their points into, in half-widths.
    """

    def __init__(self, crowd: LocalAggregator, number: int, users: np.ndarray, radius: float):
        self._crowd, self._number, self._users = crowd, number, users
        self._asked = False
        # Public, and apart from what deals the users out: a sequence of its own per group.
        words = np.random.SeedSequence(
            crowd.seeds[0], spawn_key=(SPLIT, 1 + number)
        ).generate_state(1, np.uint64)
        self._public_key = int(words[0])
        self.size, self.n_features, self.radius = len(users), crowd.n_features, radius

    def counts(self, rule: SingleCell | NearestCenter | Boxes, domain_size: int | None = None) -> np.ndarray:
        """Count users by the cell of a public rule.

        Parameters
        ----------
        rule : SingleCell, NearestCenter or Boxes
        domain_size : int, optional
            Size of the oracle's domain, at least that of the rule: fixed beforehand where the rule's is not known
            before other groups have answered, so that the schedule is. Default: the rule's.

        Returns
        -------
        ndarray of shape (rule.size,), float64
            Unbiased numbers of this group's users; may be negative.

        Raises
        ------
        ReportReuseError
            If this group has reported.
        """
        self._check_rule(rule)
        size = rule.size if domain_size is None else domain_size
        if size < rule.size:
            raise ValueError(f"domain_size={domain_size} must be at least the number of cells, {rule.size}")
        oracle = frequency_oracle(self._crowd.epsilon, size, self._public_key)
        details = {
            "keep": oracle.p_true,
            "other": oracle.p_false,
            "symbols": oracle.symbols,
            "size": size,
        }
        key = self._ask("local_counts", oracle.name, details)
        tally = oracle.tally()
        for number, users, points in self._chunks():
            tally.add(
                users,
                oracle.report(users, rule.cells(points), self._crowd._streams, (*key, number)),
            )
        return tally.estimate()[: rule.size]

    def count_stddev(self, size: int) -> float:
        """Standard deviation of a small count among ``size`` cells, in users: public."""
        return frequency_oracle(self._crowd.epsilon, size).stddev(self.size)

    def sums(
        self,
        rule: SingleCell | NearestCenter | Boxes,
        asked: np.ndarray,
        about: np.ndarray,
        radii: np.ndarray,
    ) -> np.ndarray:
        """Sum the points of some cells about references.

        Parameters
        ----------
        rule : SingleCell, NearestCenter or Boxes
        asked : ndarray of shape (m,), int64
            Cells to sum over.
        about : ndarray of shape (m, d), int64
            What is subtracted from the points of each cell, in grid steps.
        radii : ndarray of shape (m,), float64
            Positive; in half-widths. A user whose difference is longer shortens it to that.

        Returns
        -------
        ndarray of shape (m, d), float64
            Unbiased sums of those differences over this group's users, in grid steps.

        Notes
        -----
        A user of a cell that is not asked for reports the vector 0.
        """
        self._check_rule(rule)
        asked, radii = np.asarray(asked, np.int64), np.asarray(radii, np.float64)
        if not len(asked) or len(np.unique(asked)) < len(asked):
            raise ValueError(f"asked={asked.tolist()} must name one or more cells, once each")
        if (
            about.shape != (len(asked), self._crowd.n_features)
            or radii.shape != asked.shape
            or not (radii > 0).all()
        ):
            raise ValueError(
                f"about, of shape {about.shape}, and positive radii must be given for {len(asked)} cells"
            )
        randomizer = self._randomizer()
        signed = SignedSums(randomizer, self._public_key)
        key = self._ask("local_sums", randomizer.name, self._details(randomizer))
        places = np.full(rule.size, -1)
        places[asked] = np.arange(len(asked))
        totals = np.zeros((len(asked), self._crowd.n_features), np.int64)
        for number, users, points in self._chunks():
            cells = rule.cells(points)
            place = places[cells]
            vectors = np.where(
                place[:, None] >= 0, (points - about[place]) / (radii[place] * SCALE)[:, None], 0.0
            )
            reports = signed.report(users, cells, vectors, self._crowd._streams, (*key, number))
            signed.add(totals, users, reports, asked)
        return signed.estimate(totals) * (radii * SCALE)[:, None]

    def sum_stddev(self, radius: float = 1.0) -> float:
        """Largest standard deviation of a sum's coordinate, in units of ``radius``'s: public."""
        return radius * math.sqrt(self.size) * self._randomizer().stddev

    def reports(self) -> tuple[np.ndarray, float]:
        """Noised points: one vector per user, unbiased for the point.

        Returns
        -------
        directions : ndarray of shape (size, d), int32
            In multiples of 2**-20.
        length : float
            What directions are to be multiplied by, in half-widths.
        """
        randomizer = self._randomizer()
        key = self._ask("local_points", randomizer.name, self._details(randomizer))
        directions = np.empty((self.size, self._crowd.n_features), np.int32)
        first = 0
        for number, users, points in self._chunks():
            vectors = points / (self.radius * SCALE)
            directions[first : first + len(users)] = randomizer.report(
                vectors, self._crowd._streams, (*key, number)
            )
            first += len(users)
        return directions, randomizer.length * self.radius

    def _randomizer(self) -> VectorRandomizer:
        return VectorRandomizer(self._crowd.epsilon, self._crowd.n_features)

    def _details(self, randomizer: VectorRandomizer) -> dict:
        return {
            "length": randomizer.length,
            "dimensions": randomizer.dimensions,
            "radius": self.radius,
        }

    def _check_rule(self, rule) -> None:
        if type(rule) not in RULES:
            raise TypeError(
                f"rule={rule!r} must be one of {', '.join(each.__name__ for each in RULES)}"
            )

    def _ask(self, label: str, mechanism: str, details: dict) -> tuple[str, int]:
        """Charge this group's only question and return its stream key."""
        if self._asked:
            raise ReportReuseError(
                f"group {self._number} has reported; a user reports once, ask another group"
            )
        crowd = self._crowd
        # Another crowd on the same ledger would deal the same users out another way.
        if (
            sum(charge.group is not None for charge in crowd._ledger.charges)
            != crowd._rounds.total()
        ):
            raise ReportReuseError(
                "the ledger has reports of another aggregator; users who have reported are not asked again"
            )
        key = label, crowd._rounds[label]
        charge = Charge(*key, mechanism, epsilon=crowd.epsilon, details=details, group=self._number)
        crowd._ledger.charge(charge)
        crowd._rounds[label] += 1
        self._asked = True
        return key

    def _chunks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Number, users and points of each chunk; users have pulled their points into the ball."""
        limit = self.radius * SCALE
        for number, first in enumerate(range(0, self.size, CHUNK)):
            users = self._users[first : first + CHUNK]
            points = self._crowd._rows(users)
            lengths = np.sqrt(np.einsum("ij,ij->i", points, points).astype(np.float64))
            factor = np.minimum(1.0, limit / np.maximum(lengths, 1.0))[:, None]
            yield (
                number,
                users,
                np.where(factor < 1, np.rint(points * factor), points).astype(np.int64),
            )


def cohort_sizes(n_users: int, shares: Sequence[float]) -> list[int]:
    """Numbers of users that groups get, all of them together.

    Parameters
    ----------
    n_users : int
    shares : sequence of float
        Positive.

    Raises
    ------
    ValueError
        If a group would have no user; the message says how many users are needed.

    Examples
    --------
    >>> cohort_sizes(10, [0.3, 0.4, 0.3])
    [3, 4, 3]
    """
    if not len(shares) or not all(share > 0 and math.isfinite(share) for share in shares):
        raise ValueError(f"shares={list(shares)} must be one or more positive numbers")
    ends = np.floor(np.cumsum(shares) / math.fsum(shares) * n_users + 0.5).astype(int)
    sizes = np.diff(ends, prepend=0).tolist()
    if min(sizes) < 1:
        needed = math.floor(math.fsum(shares) / min(shares)) + 1
        raise ValueError(
            f"n={n_users} users are too few for {len(sizes)} disjoint groups of shares {list(shares)}: a group would "
            f"be empty; {needed} users are needed for certain"
        )
    return sizes
