"""Base classes of curators and of their views: private points, ledger, noise.

A view is a form of a curator's private points on which some queries are asked, such as
a tree of cells or a projection. The curator charges and draws its releases.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import SCALE, Points, Symlog
from pkm.compute.storage.blocks import Blocks, Shards
from pkm.compute.storage.dask_points import DaskPoints
from pkm.privacy.budget import Adjacency, Unit
from pkm.privacy.charging import charge_release
from pkm.privacy.checks import check_type
from pkm.privacy.ledger import Charge, Ledger, StreamKey
from pkm.privacy.mechanisms.noise import INITIALIZATION, NoiseStreams, child
from pkm.privacy.query import ONE_RECORD_ADJACENCIES, Answer, Query, Sensitivities

PointsLike = np.ndarray | Points | Blocks | DaskPoints | Sequence[np.ndarray | Points]
"""Private points on the grid: one array, shards, blocks on disk, or a dask array.

:mod:`pkm.compute.storage.blocks` says what shards and blocks are.
"""

Request = tuple[Query, Mapping[str, Any]]
"""A query, and the mechanism of each part of its answer."""

PlannedCharges = tuple[Sensitivities, list[Charge]]
"""Sensitivities of the parts of a release, and what it will be charged."""


class DisclosureError(PermissionError):
    """An exact answer was requested under a privacy claim."""


class BaseCurator:
    """Holds the private points of a run, and releases and charges queries on them.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, whole or in shards.
    ledger : Ledger or None
        None for methods that claim no privacy.
    streams : NoiseStreams
        Noise streams of all replicates.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1
        and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public. ``n_points`` is the number of records; under add-remove adjacency the
        released one.
    adjacency : Adjacency or None
        Adjacency of the ledger's budget; None where no privacy is claimed.
    public_seeds : tuple of int
        One per replicate, for public randomness; the seeds of the noise are different.
    domain : ndarray of shape (2, d), float64
    radius : float
        Radius of a ball about the midpoint that holds all points, in half-widths:
        sqrt(d), or less if points were clipped to a smaller ball.
    scale : Symlog
        Map from lengths to lengths on the grid, linear up to the half-width. Longer
        ones are clipped, or compressed after a zoom.
    serves : tuple of type
        The types of the queries that it answers, those on its views included.
    adjacencies : tuple of Adjacency
        Adjacencies that its ledger may have; empty for any.
    needs_ledger : bool
        Whether methods that claim no privacy are refused.
    group : int or None
        Group of users that its charges concern; see :class:`pkm.privacy.Charge`.
    is_zoomed : bool
        Whether its points were quantized again, in a smaller domain, and no other
        curator reads them.
    count_factor : int
        Factor that turns counts of the kernels into units of 2**-16 records: 2**16, or
        1 where rows have weights.
    """

    serves: ClassVar[tuple[type[Query], ...]] = ()
    adjacencies: ClassVar[tuple[Adjacency, ...]] = ()
    needs_ledger: ClassVar[bool] = False
    group: int | None = None
    is_zoomed: bool = False

    def __init__(
        self,
        points: PointsLike,
        ledger: Ledger | None,
        streams: NoiseStreams,
        domain: ArrayLike | None = None,
    ) -> None:
        self._shards: Any = to_shards(points)
        self._ledger = ledger
        self._streams = streams
        # Number of releases so far, by label: the round of the next release.
        self._rounds: defaultdict[str, int] = defaultdict(int)
        self.adjacency: Any = None if ledger is None else ledger.budget.adjacency
        self._check_adjacency()
        # A secret n has no value until it is released: reading it is an error.
        is_secret = self.adjacency == Adjacency.ADD_REMOVE
        self._n_points = None if is_secret else self._shards.n_records
        self.n_features = self._shards.n_features
        self.count_factor = 1 if self._shards.has_weights else SCALE
        unit = Unit.of(self._shards.n_persons)
        # A client without a record has points of either unit.
        is_empty = not self._shards.n_records
        if ledger is not None and not is_empty and ledger.budget.unit != unit:
            raise ValueError(
                f"unit={ledger.budget.unit} of the ledger does not fit points of which "
                f"a record is a {unit}"
            )
        self.n_replicates = len(streams.public_seeds)
        self.public_seeds = streams.public_seeds
        self.domain = full_domain(domain, self.n_features)
        self.radius = math.sqrt(self.n_features)
        self.scale = Symlog(1.0, 0.0, by_norm=False)
        self._set_up()

    @property
    def n_points(self) -> int:
        """Number of records: exact, or released where it is secret.

        Raises
        ------
        DisclosureError
            Under add-remove adjacency, before it is released.
        """
        if self._n_points is None:
            raise DisclosureError(
                f"n_points is secret under {self.adjacency} adjacency: release "
                "RecordCount first"
            )
        return self._n_points

    @n_points.setter
    def n_points(self, number: int) -> None:
        self._n_points = number

    def _set_up(self) -> None:
        """Check and set attributes of a subclass; the constructor calls it last."""

    def public_rng(self, purpose: int = INITIALIZATION) -> np.random.Generator:
        """Return a generator of the only replicate's public randomness.

        Starting centers, hashes and partitions are drawn from it, and never noise.
        Every call returns a generator in the same state: call once and keep it.

        Parameters
        ----------
        purpose : int, default=INITIALIZATION
            ``INITIALIZATION`` or ``SPLIT`` of :mod:`pkm.privacy.mechanisms.noise`.
            Generators of two purposes are independent.

        Returns
        -------
        numpy.random.Generator

        Examples
        --------
        >>> curator = BaseCurator(np.zeros((1, 2), np.int64), None, NoiseStreams([7]))
        >>> curator.public_rng().integers(100) == curator.public_rng().integers(100)
        np.True_
        """
        self.check_single("public_rng")
        return np.random.default_rng(child(self.public_seeds[0], purpose))

    def release(
        self,
        query: Query,
        **noise: Any,
    ) -> dict[str, np.ndarray]:
        """Charge a query, compute its exact answer and add noise.

        A curator gives out information about its points in no other way, except to
        methods that claim no privacy.

        Parameters
        ----------
        query : Query
            Its arguments are functions of public values and earlier releases only.
        **noise : mechanism or None
            A mechanism for each part of the answer (a named array, such as the sums),
            by the part's name. None for all parts asks for the exact answer, which only
            methods that claim no privacy get.

        Returns
        -------
        dict of str to ndarray
            The parts of the answer, by name: sums in grid steps, counts in units of
            2**-16 records, choices as indices.

        Raises
        ------
        DisclosureError
            If an exact answer is requested under a ledger.
        BudgetExceeded
            If the release costs more than is left.
        TypeError
            If a mechanism does not fit the part.
        ValueError
            If an argument of the query is invalid, or a mechanism's scale out of range.
            Nothing is charged or drawn then.
        """
        return self.release_all([(query, noise)])[0]

    def release_all(
        self,
        requests: Sequence[Request],
        source: "BaseCurator | View | None" = None,
    ) -> list[dict[str, np.ndarray]]:
        """Release queries of which none depends on the answer of another.

        Costs, noise and answers are those of releases one by one. Points that are read
        in passes are read once for all queries that can share a pass.

        Parameters
        ----------
        requests : sequence of tuple
            One or more queries of one type, each with its mechanisms by part; see
            :meth:`release`.
        source : BaseCurator or View, optional
            What the queries are on. Default: this curator.

        Returns
        -------
        list of dict
            See :meth:`release`.

        Raises
        ------
        TypeError
            If the queries are not of one type; otherwise as :meth:`release`.
        ValueError
            If there are several queries of a type that is released alone.

        Examples
        --------
        >>> from pkm.privacy import Budget, Curator, GridCounts, Laplace
        >>> ledger = Ledger(Budget(1.0))
        >>> points = np.full((1000, 1), 40_000)
        >>> curator = Curator(points, ledger, NoiseStreams([0]))
        >>> noise = {"counts": Laplace(2 * SCALE)}
        >>> grids = [(GridCounts(intervals), noise) for intervals in (2, 4)]
        >>> halves, quarters = curator.release_all(grids)
        >>> quarters["counts"].shape, len(ledger.charges)
        ((1, 4), 2)
        """
        source = self if source is None else source
        # Queries of one type agree on how the results of blocks are combined.
        query_types = {type(query) for query, _ in requests}
        if len(query_types) != 1:
            names = ", ".join(sorted(known.__name__ for known in query_types)) or "none"
            raise TypeError(
                f"requests must be one or more queries of one type, got {names}: "
                "release those of each type together"
            )
        # All checks come first: a query that is refused costs nothing.
        checked = [
            (query, self._check(source, query, noise)) for query, noise in requests
        ]
        (query_type,) = query_types
        if query_type.released_alone and len(requests) > 1:
            raise ValueError(
                f"{query_type.__name__} is released alone, got {len(requests)} "
                "requests: the first release changes what may be asked"
            )
        planned = [
            self._plan_charges(source, *request, number)
            for number, request in enumerate(checked)
        ]
        # Charge all of them before anything private is computed.
        self._charge([plan for plan in planned if plan is not None])
        # Only now the private points are read.
        queries = [query for query, _ in checked]
        answers = query_type.exact_all(source, queries)
        return [
            self._finish(source, *request, exact, plan)
            for request, exact, plan in zip(checked, answers, planned, strict=True)
        ]

    def _check(
        self, source: "BaseCurator | View", query: Query, noise: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Refuse a query that cannot be released; return its mechanisms in order."""
        self._check_served(query)
        self._check_view(source, query)
        noise = checked_mechanisms(query, noise)
        query.check(source)
        return noise

    def _plan_charges(
        self,
        source: "BaseCurator | View",
        query: Query,
        noise: Mapping[str, Any],
        number: int,
    ) -> PlannedCharges | None:
        """Compute sensitivities and charges of a query, one of several by its number.

        None for an exact answer, of a method that claims no privacy.
        """
        # Only a method that claims no privacy gets an exact answer.
        if self._ledger is None or None in noise.values():
            self._refuse_disclosure(query, noise)
            return None
        # The round makes the key unique: no noise is used twice.
        key = (query.label, self._rounds[query.label] + number)
        return charge_release(key, query, source, noise)

    def _charge(self, plans: Sequence[PlannedCharges]) -> None:
        """Charge queries, all of whose checks they have passed: all, or none."""
        if self._ledger is None:
            return
        self._ledger.charge(*[charge for _, charges in plans for charge in charges])
        for _, charges in plans:
            self._rounds[charges[0].label] += 1

    def _finish(
        self,
        source: "BaseCurator | View",
        query: Query,
        noise: Mapping[str, Any],
        exact: Answer,
        plan: PlannedCharges | None,
    ) -> dict[str, np.ndarray]:
        """Add noise to the exact answer of a query that was charged."""
        # It was not charged: the method claims no privacy.
        if plan is None:
            return self._collect(query, exact)
        # What the view keeps of the outcomes is post-processing, too.
        sensitivities, charges = plan
        key = charges[0].label, charges[0].round
        outcomes = self._draw(
            query,
            exact,
            sensitivities,
            noise,
            key,
        )
        return query.postprocess(source, outcomes)

    def _draw(
        self,
        query: Query,
        exact: Answer,
        sensitivities: Sensitivities,
        noise: Mapping[str, Any],
        key: StreamKey,
    ) -> dict[str, np.ndarray]:
        """Draw the parts of a charged answer, each from its own noise stream."""
        released: dict[str, np.ndarray] = {}
        for part, mechanism in noise.items():
            # A part may depend on earlier parts: bounded sums on the noisy counts.
            values = query.mechanism_input(part, exact[part], released)
            # Parts need independent noise: with several, each has a stream of its own.
            part_key = key if len(noise) == 1 else (*key, part)
            released[part] = self._streams.release(
                mechanism, values, part_key, sensitivities[part]
            )
        return released

    def _collect(
        self,
        query: Query,
        exact: Answer,
    ) -> dict[str, np.ndarray]:
        """Return an exact answer, to a method that claims no privacy."""
        return dict(exact)

    def _check_adjacency(self) -> None:
        """Refuse a ledger under an adjacency that this curator does not support."""
        supported = self.adjacencies
        is_optional = self.adjacency is None and not self.needs_ledger
        if supported and self.adjacency not in supported and not is_optional:
            raise ValueError(
                f"adjacency={self.adjacency} is not supported by this curator: it "
                f"charges what {' and '.join(supported)} cost"
            )
        # A null record stands for a record that is not present; only these adjacencies
        # define it.
        allows_null = self.adjacency in (None, *ONE_RECORD_ADJACENCIES)
        if not allows_null and self._shards.has_null:
            raise ValueError(
                f"points have null records, which {self.adjacency} adjacency does not "
                "define"
            )

    def _check_served(self, query: Query) -> None:
        """Refuse a query whose exact type is not served, such as a subclass."""
        # Exact types: a subclass could override the sensitivity.
        if type(query) not in self.serves:
            names = ", ".join(served.__name__ for served in self.serves)
            raise TypeError(
                f"query={query!r} is not served by {type(self).__name__}: {names} are"
            )
        if self.adjacency is not None and self.adjacency not in query.adjacencies:
            raise ValueError(
                f"adjacency={self.adjacency} is not served by {query.label}: its "
                f"sensitivity is derived for {', '.join(query.adjacencies)}"
            )
        if self._shards.has_weights and not query.serves_weights:
            raise ValueError(
                f"weights and groups are not served by {query.label}: its sensitivity "
                "is derived for whole records"
            )

    def _check_view(
        self,
        source: "BaseCurator | View",
        query: Query,
    ) -> None:
        """Refuse a view of another curator, and a query on another view."""
        curator = source._curator if isinstance(source, View) else source
        if curator is not self:
            raise ValueError(
                f"source={type(source).__name__} is of another curator, whose ledger "
                "is to be charged: release its queries through the view"
            )
        # Queries without a view are asked on the curator itself.
        expected = type(self) if query.view is None else query.view
        if not isinstance(source, expected):
            raise TypeError(
                f"{query.label} is a query on {expected.__name__}, not on "
                f"{type(source).__name__}"
            )

    def check_single(self, query: str) -> None:
        """Refuse a query or view of one replicate where there are more."""
        if self.n_replicates != 1:
            raise ValueError(
                f"{query} serves one replicate at a time, not {self.n_replicates}: "
                "set batched = False"
            )

    def _refuse_disclosure(
        self,
        query: Query,
        noise: Mapping[str, Any],
    ) -> None:
        """Refuse exact answers under a ledger, and noise without one."""
        if self._ledger is not None:
            raise DisclosureError(
                f"{query.label} would return exact answers, but the method claims "
                f"privacy: give it noise for {', '.join(query.mechanisms)}"
            )
        # Without a ledger exact answers alone are possible, for methods that claim no
        # privacy.
        if set(noise.values()) != {None} or not query.exact_without_ledger:
            raise ValueError(
                f"{query.label} needs a ledger to be charged to, and this curator has "
                "none"
            )


class View:
    """Private points of a curator in a form that some queries need; see the module.

    Parameters
    ----------
    curator : BaseCurator
        Curator of one replicate. It charges and draws all releases of the view.

    Attributes
    ----------
    n_points, n_features, count_factor : int
        Those of the curator: public.
    group : int or None
        Group of users whose points these are; see :class:`pkm.privacy.Charge`.
    """

    n_replicates = 1
    group: int | None = None

    def __init__(self, curator: BaseCurator) -> None:
        curator.check_single(type(self).__name__)
        self._curator = curator
        self.n_points = curator.n_points
        self.n_features = curator.n_features
        self.count_factor = curator.count_factor

    def release(
        self,
        query: Query,
        **noise: Any,
    ) -> dict[str, Any]:
        """Release a query on this view; see :meth:`pkm.privacy.BaseCurator.release`.

        Answers have no axis of replicates.
        """
        return self.release_all([(query, noise)])[0]

    def release_all(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Release several queries; see :meth:`pkm.privacy.BaseCurator.release_all`."""
        answers = self._curator.release_all(requests, self)
        # A view has one replicate: drop the axis of replicates.
        return [
            {part: released[0] for part, released in answer.items()}
            for answer in answers
        ]


def checked_mechanisms(
    query: Query,
    noise: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the mechanism of each part, in the order in which parts are drawn.

    Only the project's own types are accepted. A subclass could override what is drawn
    or charged.
    """
    if noise.keys() != query.mechanisms.keys():
        raise TypeError(
            f"noise for {', '.join(noise) or 'nothing'} was given, but {query.label} "
            f"releases {', '.join(query.mechanisms)}: give one mechanism for each"
        )
    for part, allowed in query.mechanisms.items():
        if noise[part] is not None:
            check_type(part, noise[part], *allowed)
    return {part: noise[part] for part in query.mechanisms}


def full_domain(domain: ArrayLike | None, n_features: int) -> np.ndarray:
    """Bounds of every feature, (2, d), of a domain whose default is -1 and 1."""
    bounds = np.empty((2, n_features))
    bounds[:] = [[-1.0], [1.0]] if domain is None else domain
    return bounds


def to_shards(points: PointsLike) -> Shards | Blocks | DaskPoints:
    """Convert points in memory to Shards; leave blocks and chunks as they are."""
    if isinstance(points, Shards | Blocks | DaskPoints):
        return points
    arrays = [points] if isinstance(points, Points | np.ndarray) else points
    shards = Shards(
        array if isinstance(array, Points) else to_points(array) for array in arrays
    )
    if len({shard.shape[1] for shard in shards}) != 1:
        shapes = [shard.shape for shard in shards]
        raise ValueError(
            f"points must be one or more shards of one width, got {shapes}"
        )
    return shards


def to_points(points: np.ndarray) -> Points:
    """Convert grid points (n, d) to Points, once for the curators of many runs."""
    points = np.asarray(points)
    if not np.issubdtype(points.dtype, np.integer) or points.ndim != 2:
        raise ValueError(
            f"points must be an (n, d) array of grid integers, got {points.dtype} of "
            f"shape {points.shape}"
        )
    return Points.from_grid(points)
