"""Replay: run on one data set, write down every outcome, force it on a neighbor.

With the outcomes forced, nothing that a method does may differ between the two runs but
the exact answers behind its releases. The queries must have the same arguments in the
same order, and the charges and centers must be equal. At every release both exact
answers are known. What the pair costs is therefore computed (:mod:`pkm.audit.laws`) and
compared with what was charged. There is no sampling and no question of power for a
pair; a fault is missed only if no pair shows it.

Source of the idea: Re:cord-play (Cebere et al., PETS 2026).
"""

import copy
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from pkm.audit.laws import Law, find_law
from pkm.audit.pairs import Pair
from pkm.compute import Points
from pkm.privacy import Ledger, NoiseStreams
from pkm.privacy.ledger import Charge
from pkm.privacy.mechanisms.additive import BoundedValues, Cost
from pkm.privacy.queries.moved_records import SortedGaussian

REPLICATES = 8  # of a method that runs in batches: they take little more time than one
SECOND_RECORD = "_second_record"  # of a release that is charged once for each record
UNCHARGED = Charge("", 0, "")  # of a draw that no charge names


class Divergence(Exception):
    """The run on the neighbor does something else although all outcomes were equal."""


@dataclass(frozen=True)
class Draw:
    """One draw of a run.

    Attributes
    ----------
    mechanism
    key : tuple
    sensitivity
        That it was charged for.
    values
        The exact answer.
    outcome
    """

    mechanism: Any
    key: tuple
    sensitivity: Any
    values: Any
    outcome: Any

    @property
    def law(self) -> Law:
        """The law that the outcome was drawn by."""
        return find_law(self.mechanism, self.sensitivity)


#: Draws on the points, each with the same draw on the neighbor.
Draws = Sequence[tuple[Draw, Draw]]


@dataclass
class Trace:
    """What a run did.

    Attributes
    ----------
    queries : list of tuple
        Name and arguments of each query, in order.
    draws : list of Draw
    ledgers : list of Ledger
        With the charges.
    centers : ndarray or None
        At the end.
    """

    queries: list[tuple] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)
    centers: np.ndarray | None = None


class RecordingStreams:
    """Noise streams that write down every draw.

    Parameters
    ----------
    streams : NoiseStreams
    trace : Trace
        Receives the draws.
    """

    def __init__(self, streams: NoiseStreams, trace: Trace) -> None:
        self.public_seeds = streams.public_seeds
        self.secure = streams.secure
        self._streams = streams
        self._trace = trace

    def release(
        self,
        mechanism: Any,
        values: Any,
        key: tuple,
        sensitivity: Any = None,
    ) -> Any:
        """See :meth:`pkm.privacy.NoiseStreams.release`."""
        draw = Draw(mechanism, key, sensitivity, freeze(values), None)
        draw, outcome = self._draw(draw)
        self._trace.draws.append(draw)
        return outcome

    def _draw(self, draw: Draw) -> tuple[Draw, Any]:
        """Return a draw with its outcome, and the outcome for the method."""
        outcome = self._streams.release(
            draw.mechanism,
            draw.values,
            draw.key,
            draw.sensitivity,
        )
        return replace(draw, outcome=copy.deepcopy(outcome)), outcome


class ReplayingStreams(RecordingStreams):
    """Noise streams that give the outcomes of another run, whatever the exact answers.

    Parameters
    ----------
    streams : NoiseStreams
        Of which only the public attributes are used.
    trace : Trace
        Receives the draws of this run: its exact answers, the other run's outcomes.
    recorded : sequence of Draw
        The draws of the other run.
    """

    def __init__(
        self,
        streams: NoiseStreams,
        trace: Trace,
        recorded: Sequence[Draw],
    ) -> None:
        super().__init__(streams, trace)
        self._recorded = recorded

    def _draw(self, draw: Draw) -> tuple[Draw, Any]:
        """Take the recorded outcome of the next draw, if it is the same draw."""
        number = len(self._trace.draws)
        name = f"draw {number}, {draw.key},"
        if number >= len(self._recorded):
            raise Divergence(f"{name} has no counterpart: releases depend on data")
        recorded = self._recorded[number]
        if (draw.mechanism, draw.key) != (recorded.mechanism, recorded.key):
            raise Divergence(
                f"draw {number} is {draw.mechanism} of {draw.key} and was "
                f"{recorded.mechanism} of {recorded.key}: releases depend on data"
            )
        if not are_equal(draw.sensitivity, recorded.sensitivity):
            raise Divergence(f"{name} has another sensitivity: it depends on data")
        values, outcome = match_records(recorded, draw.values)
        return replace(recorded, values=values), outcome


def match_records(draw: Draw, values: Any) -> tuple[Any, Any]:
    """Match the records of an exact answer with those of a recorded draw.

    Rows are released without their order. The neighbor's must therefore first be put
    into the order of the recorded ones: equal rows to equal rows, the moved record to
    the moved record.

    Returns
    -------
    values
        In the order of the recorded exact answer.
    outcome
        The recorded outcome, for the neighbor in its own order.
    """
    outcome = copy.deepcopy(draw.outcome)
    if not isinstance(draw.mechanism, SortedGaussian):
        return values, outcome
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for number, row in enumerate(values[0]):
        numbers[row.tobytes()].append(number)

    # Equal rows first, then the moved ones in order.
    rows = [row.tobytes() for row in draw.values[0]]
    permutation = [numbers[row].pop() if numbers[row] else -1 for row in rows]
    moved = iter(sorted(number for rest in numbers.values() for number in rest))
    order = np.array(
        [next(moved) if number < 0 else number for number in permutation],
        np.int64,
    )
    (released,) = outcome
    return values[:, order], [released._replace(order=order[released.order])]


def freeze(values: Any) -> Any:
    """Copy an exact answer, so that later changes in place do not reach the record.

    Iterators, which hand out one buffer again and again, become lists.
    """
    if isinstance(values, Iterator):
        return [np.array(value) for value in values]
    return copy.deepcopy(values)


def are_equal(one: Any, another: Any) -> bool:
    """Compare two nested values, arrays by shape, type and content."""
    if isinstance(one, np.ndarray) or isinstance(another, np.ndarray):
        one = np.asarray(one)
        another = np.asarray(another)
        if one.dtype != another.dtype:
            return False
        return np.array_equal(one, another, equal_nan=one.dtype.kind == "f")
    if isinstance(one, tuple | list) and isinstance(another, tuple | list):
        return len(one) == len(another) and all(map(are_equal, one, another))
    if is_dataclass(one) and type(one) is type(another):
        return are_equal(get_fields(one), get_fields(another))
    return bool(one == another)


def get_fields(value: Any) -> list[Any]:
    """Get the values of the fields of a dataclass."""
    return [getattr(value, item.name) for item in fields(value)]


def trace_run(
    method: Any,
    points: Points,
    seeds: Sequence[int],
    domain: np.ndarray,
    public_seeds: Sequence[int] | None = None,
    recorded: Sequence[Draw] | None = None,
) -> Trace:
    """Run a method on grid points, and write down what it does.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans
    points : Points
    seeds : sequence of int
    domain : ndarray of shape (2, d)
    public_seeds : sequence of int, optional
        Default: from the seeds.
    recorded : sequence of Draw, optional
        Draws of another run, whose outcomes are forced. Default: fresh outcomes.

    Returns
    -------
    Trace

    Raises
    ------
    Divergence
        If the method makes other draws than the recorded ones.
    """
    trace = Trace()

    class TracingCurator(method.curator):
        """Writes down the queries that it is asked."""

        def release_from(self, view: Any, query: Any, noise: Any) -> Any:
            arguments = map(freeze, get_fields(query))
            trace.queries.append((type(query).__name__, *arguments))
            return super().release_from(view, query, noise)

    def make_curator(ledger: Ledger | None, streams: NoiseStreams) -> Any:
        if ledger is not None:
            trace.ledgers.append(ledger)
        tracing = RecordingStreams(streams, trace)
        if recorded is not None:
            tracing = ReplayingStreams(streams, trace, recorded)
        return TracingCurator([points], ledger, tracing, domain)

    run = method.fit_with(
        make_curator,
        points.n_records,
        points.shape[1],
        seeds,
        public_seeds=public_seeds,
    )
    trace.centers = run.centers
    return trace


@dataclass(frozen=True)
class Realized:
    """What one charge cost on one pair, next to what was charged.

    Attributes
    ----------
    label : str
    charged, cost : Cost
    flaw : str
        That the charge names.
    group : int or None
        Of users that are charged as disjoint from other groups.
    """

    label: str
    charged: Cost
    cost: Cost
    flaw: str = ""
    group: int | None = None

    @property
    def ratio(self) -> float:
        """Largest of realized over charged, for mu, epsilon and delta."""
        return max(map(_divide, self.cost, self.charged))


def _divide(cost: float, charged: float) -> float:
    if cost <= 0:
        return 0.0
    return cost / charged if charged > 0 else math.inf


@dataclass(frozen=True)
class Replay:
    """Outcome of the replay of one pair.

    Attributes
    ----------
    realized : tuple of Realized
        One for each release, in order, of the replicate in which it cost most.
    loss : float
        Exact privacy loss of the whole transcript, the largest of all replicates:
        infinite if the neighbor cannot produce it.
    divergence : str
        How the two runs differ although the outcomes were the same; empty if they do
        not.
    spent, delta : float
        Epsilon of a replicate at the budget's delta, and the sum of the deltas charged
        to all, by the ledger.
    refusal : Exception or None
        That the method raised on both data sets alike.
    """

    realized: tuple[Realized, ...] = ()
    loss: float = math.nan
    divergence: str = ""
    spent: float = 0.0
    delta: float = 0.0
    refusal: Exception | None = None

    @property
    def groups(self) -> set[int]:
        """Groups of users to whose reports the record contributes."""
        return {
            release.group
            for release in self.realized
            if release.group is not None and any(release.cost)
        }


def replay(method: Any, pair: Pair, seed: int) -> Replay:
    """Run a method on points, and again on a neighbor with all outcomes forced.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans
        Claiming privacy.
    pair : Pair
        Neighbors under the claim's adjacency.
    seed : int

    Returns
    -------
    Replay
        Where the method refuses the data, both must be refused alike; nothing is
        realized then.
    """
    n_replicates = REPLICATES if method.batched else 1
    seeds = [n_replicates * seed + i for i in range(n_replicates)]
    try:
        recorded = trace_run(method, pair.points, seeds, pair.domain)
    except Exception as error:  # an exception is an outcome like any other
        divergence = _compare_refusals(method, pair, seeds, error)
        return Replay(loss=0.0, divergence=divergence, refusal=error)
    try:
        replayed = trace_run(
            method,
            pair.neighbor,
            seeds,
            pair.domain,
            recorded=recorded.draws,
        )
        divergence = _compare_traces(recorded, replayed)
    except Divergence as error:
        divergence = str(error)
    except Exception as error:  # on one side alone it distinguishes the two
        divergence = f"raises {type(error).__name__} on the neighbor: {error}"
    if divergence:
        return Replay(divergence=divergence)
    draws = list(zip(recorded.draws, replayed.draws, strict=True))
    costs = [
        _realize(recorded, _select_replicate(draws, i)) for i in range(n_replicates)
    ]
    worst = [
        max(releases, key=attrgetter("ratio")) for releases in zip(*costs, strict=True)
    ]
    ledgers = recorded.ledgers
    deltas = [charge.delta for ledger in ledgers for charge in ledger.charges]
    return Replay(
        tuple(worst),
        max(measure_losses(draws, n_replicates)),
        spent=max((ledger.spent() for ledger in ledgers), default=0.0),
        delta=n_replicates * math.fsum(deltas),
    )


def measure_losses(draws: Draws, n_replicates: int) -> list[float]:
    """Measure the exact privacy loss of the whole transcript of each replicate."""
    totals = []
    for i in range(n_replicates):
        losses = [
            draw.law.measure_loss(draw.outcome, draw.values, other.values)
            for draw, other in _select_replicate(draws, i)
        ]
        # A loss that no formula gives is NaN; one that the neighbor cannot have is
        # infinite.
        totals.append(math.inf if math.inf in losses else sum(losses))
    return totals


def _select_replicate(draws: Draws, number: int) -> Draws:
    """Select the draws of one replicate of a batch."""
    if not draws or len(draws[0][0].outcome) == 1:
        return draws
    return [(_slice(draw, number), _slice(other, number)) for draw, other in draws]


def _slice(draw: Draw, number: int) -> Draw:
    """Cut one replicate out of a draw of additive noise."""
    one = slice(number, number + 1)
    values = draw.values
    if isinstance(values, BoundedValues):
        values = BoundedValues(*(array[one] for array in values))
    else:
        values = values[one]
    return replace(draw, values=values, outcome=draw.outcome[one])


def _compare_refusals(
    method: Any,
    pair: Pair,
    seeds: Sequence[int],
    error: Exception,
) -> str:
    """Compare a refusal with that of the neighbor, which must be the same."""
    try:
        trace_run(method, pair.neighbor, seeds, pair.domain)
    except Exception as other:
        is_same = repr(other) == repr(error)
        return "" if is_same else f"refuses otherwise: {error!r}; {other!r}"
    return f"refuses the data, {error!r}, and not the neighbor"


def _compare_traces(recorded: Trace, replayed: Trace) -> str:
    """Name the first difference of two traces besides their exact answers."""
    n_draws = len(recorded.draws)
    if len(replayed.draws) < n_draws:
        return f"only {len(replayed.draws)} of {n_draws} draws: releases depend on data"
    queries = zip(recorded.queries, replayed.queries, strict=False)
    for number, (query, other) in enumerate(queries):
        if not are_equal(query, other):
            return (
                f"query {number}, {query[0]}, has other arguments: they depend on data"
            )
    charges = [ledger.charges for ledger in recorded.ledgers]
    if not are_equal(charges, [ledger.charges for ledger in replayed.ledgers]):
        return "charges differ: they depend on data"
    if not are_equal(recorded.centers, replayed.centers):
        return (
            "centers differ although all releases are equal: they depend on data "
            "directly"
        )
    return ""


def _realize(recorded: Trace, draws: Draws) -> list[Realized]:
    """Compute the cost of every release on the pair: that of its draws together."""
    costs: dict[tuple, list[Cost]] = defaultdict(list)
    for draw, other in draws:
        cost = draw.law.measure_cost(draw.values, other.values)
        costs[draw.key[:2]].append(cost)
    charges: dict[tuple, list[Charge]] = defaultdict(list)
    for ledger in recorded.ledgers:
        for charge in ledger.charges:
            label = charge.label.removesuffix(SECOND_RECORD)
            charges[label, charge.round].append(charge)
    releases = []
    for key, realized in costs.items():
        charged = charges[key] or [UNCHARGED]
        release = Realized(
            key[0],
            _compose(charged),
            _compose(realized),
            charged[-1].flaw,
            charged[-1].group,
        )
        releases.append(release)
    return releases


def _compose(costs: Sequence[Charge | Cost]) -> Cost:
    """Compose costs simply: mu as the root of the sum of squares, others as sums."""
    return Cost(
        math.hypot(*(cost.mu for cost in costs)),
        math.fsum(cost.epsilon for cost in costs),
        math.fsum(cost.delta for cost in costs),
    )
