"""Replay: run on one data set, write down every outcome, and force the same outcomes on a neighbor.

With the outcomes forced, nothing that a method does may differ between the two runs but the exact
answers behind its releases: the same queries with the same arguments in the same order, the same
charges, the same centers. At every release both exact answers are known, so that what the pair
costs is computed (:mod:`pkm.audit.losses`) and compared with what was charged. There is no sampling
and no question of power for a pair; a fault is missed only if no pair shows it.

Source of the idea: Re:cord-play (Cebere et al., PETS 2026).
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from pkm.audit.losses import loss, realized
from pkm.audit.pairs import Pair
from pkm.compute import Points
from pkm.privacy import Ledger, NoiseStreams
from pkm.privacy.mechanisms.additive import BoundedValues, Cost
from pkm.privacy.queries.moved_records import SortedGaussian

TOLERANCE = 1e-9  # relative: of sums of floats
REPLICATES = 8  # of a method that runs in batches: as many noises for nearly the time of one
SECOND_RECORD = "_second_record"  # of a release that is charged once for each of two records


class Divergence(Exception):
    """The run on the neighbor does something else although all outcomes were the same."""


@dataclass(frozen=True)
class Draw:
    """One draw: the mechanism, its key, what it was charged for, the exact answer, the outcome."""

    mechanism: Any
    key: tuple
    sensitivity: Any
    values: Any
    outcome: Any


@dataclass
class Trace:
    """What a run did: queries, draws and charges in order, and the centers at the end."""

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
    """

    def __init__(self, streams: NoiseStreams, trace: Trace) -> None:
        self.public_seeds = streams.public_seeds
        self.secure = streams.secure
        self._streams = streams
        self._trace = trace

    def release(self, mechanism: Any, values: Any, key: tuple, sensitivity: Any = None) -> Any:
        """Draw, and write down the draw; see :meth:`pkm.privacy.NoiseStreams.release`."""
        values = frozen(values)
        outcome = self._streams.release(mechanism, values, key, sensitivity)
        draw = Draw(mechanism, key, sensitivity, values, copy.deepcopy(outcome))
        self._trace.draws.append(draw)
        return outcome


class ReplayingStreams:
    """Noise streams that give the outcomes of another run, whatever the exact answers are.

    Parameters
    ----------
    streams : NoiseStreams
        Of which only the public attributes are used.
    recorded : sequence of Draw
        The draws of the other run.
    trace : Trace
        Receives the draws of this run: its exact answers, the other run's outcomes.
    """

    def __init__(self, streams: NoiseStreams, recorded: Sequence[Draw], trace: Trace) -> None:
        self.public_seeds = streams.public_seeds
        self.secure = streams.secure
        self._recorded = recorded
        self._trace = trace

    def release(self, mechanism: Any, values: Any, key: tuple, sensitivity: Any = None) -> Any:
        """Give the recorded outcome of the next draw, if it is the same draw."""
        number = len(self._trace.draws)
        if number >= len(self._recorded):
            raise Divergence(f"draw {number}, {key}, has no counterpart: releases depend on data")
        draw = self._recorded[number]
        if (mechanism, key) != (draw.mechanism, draw.key):
            raise Divergence(
                f"draw {number} is {mechanism} of {key} and was {draw.mechanism} of {draw.key}: "
                "releases depend on data"
            )
        if not same(sensitivity, draw.sensitivity):
            raise Divergence(f"draw {number}, {key}, has another sensitivity: it depends on data")
        values, outcome = matched(mechanism, draw, frozen(values))
        self._trace.draws.append(Draw(mechanism, key, sensitivity, values, draw.outcome))
        return outcome


def matched(mechanism: Any, draw: Draw, values: Any) -> tuple[Any, Any]:
    """Match the records of an exact answer with those of a recorded draw.

    Rows are released without their order, so the neighbor's must first be put into the order of the
    recorded ones: equal rows to equal rows, the moved record to the moved record.

    Returns
    -------
    values
        In the order of the recorded exact answer.
    outcome
        The recorded outcome, for the neighbor in its own order.
    """
    outcome = copy.deepcopy(draw.outcome)
    if not isinstance(mechanism, SortedGaussian):
        return values, outcome
    numbers: dict[bytes, list[int]] = {}
    for number, row in enumerate(values[0]):
        numbers.setdefault(row.tobytes(), []).append(number)
    number_of = [
        numbers[row.tobytes()].pop() if numbers.get(row.tobytes()) else -1 for row in draw.values[0]
    ]
    moved = sorted(number for rest in numbers.values() for number in rest)
    permutation = np.array(
        [number if number >= 0 else moved.pop(0) for number in number_of], np.int64
    )
    (released,) = outcome
    return values[:, permutation], [released._replace(order=permutation[released.order])]


def frozen(values: Any) -> Any:
    """Copy an exact answer, so that later changes in place do not reach the record.

    Iterators, which hand out one buffer again and again, become lists.
    """
    if isinstance(values, Iterator):
        return [np.array(value) for value in values]
    return copy.deepcopy(values)


def same(one: Any, another: Any) -> bool:
    """Whether two nested values are equal, arrays by shape, type and content."""
    if isinstance(one, np.ndarray) or isinstance(another, np.ndarray):
        one = np.asarray(one)
        another = np.asarray(another)
        if one.shape != another.shape or one.dtype != another.dtype:
            return False
        return bool(np.array_equal(one, another, equal_nan=one.dtype.kind == "f"))
    if isinstance(one, tuple | list) and isinstance(another, tuple | list):
        return len(one) == len(another) and all(map(same, one, another))
    if is_dataclass(one) and type(one) is type(another):
        return all(same(getattr(one, f.name), getattr(another, f.name)) for f in fields(one))
    return bool(one == another)


def traced(
    method: Any,
    points: Points,
    seeds: Sequence[int],
    domain: np.ndarray,
    streams_of: Callable[[NoiseStreams, Trace], Any],
    public_seeds: Sequence[int] | None = None,
) -> Trace:
    """Run a method on grid points, through streams of a kind.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans
    points : Points
    seeds : sequence of int
    domain : ndarray of shape (2, d)
    streams_of : callable
        From the method's noise streams and the trace to the streams that its curator gets.
    public_seeds : sequence of int, optional
        Default: from the seeds.

    Returns
    -------
    Trace
    """
    trace = Trace()
    curator_class = _tracing(method.curator, trace)

    def make_curator(ledger: Ledger | None, streams: NoiseStreams) -> Any:
        if ledger is not None:
            trace.ledgers.append(ledger)
        return curator_class([points], ledger, streams_of(streams, trace), domain)

    n_features = points.shape[1]
    run = method.fit_with(
        make_curator, points.n_records, n_features, seeds, public_seeds=public_seeds
    )
    trace.centers = run.centers
    return trace


def _tracing(curator_class: type, trace: Trace) -> type:
    """A curator that writes down the queries it is given."""

    class Tracing(curator_class):
        def release_from(self, view: Any, query: Any, noise: Any) -> Any:
            arguments = tuple(frozen(getattr(query, f.name)) for f in fields(query))
            trace.queries.append((type(query).__name__, *arguments))
            return super().release_from(view, query, noise)

    return Tracing


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
        return max(
            _ratio(cost, charged) for cost, charged in zip(self.cost, self.charged, strict=True)
        )


def _ratio(cost: float, charged: float) -> float:
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
        Exact privacy loss of the whole transcript, the largest of all replicates: infinite if the
        neighbor cannot produce it.
    divergence : str
        How the two runs differ although the outcomes were the same; empty if they do not.
    spent, delta : float
        Epsilon of a replicate at the budget's delta, and the sum of the deltas charged to all, by
        the ledger.
    refusal : Exception or None
        That the method raised on both data sets alike.
    """

    realized: tuple[Realized, ...]
    loss: float
    divergence: str
    spent: float = 0.0
    delta: float = 0.0
    refusal: Exception | None = None

    @property
    def groups(self) -> set[int]:
        """Groups of users to whose reports the record contributes."""
        return {each.group for each in self.realized if each.group is not None and any(each.cost)}


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
        Where the method refuses the data, both must be refused alike; nothing is realized then.
    """
    n_replicates = REPLICATES if method.batched else 1
    seeds = [n_replicates * seed + i for i in range(n_replicates)]
    try:
        recorded = traced(method, pair.points, seeds, pair.domain, RecordingStreams)
    except Exception as error:  # an exception is an outcome like any other
        return Replay((), 0.0, _other_outcome(method, pair, seeds, error), refusal=error)
    try:
        replayed = replayed_on_neighbor(method, pair, seeds, recorded)
    except Divergence as error:
        return Replay((), math.nan, str(error))
    except Exception as error:  # on one side alone it distinguishes the two
        return Replay((), math.nan, f"raises {type(error).__name__} on the neighbor: {error}")
    divergence = _difference(recorded, replayed)
    if divergence:
        return Replay((), math.nan, divergence)
    spent = max((ledger.spent() for ledger in recorded.ledgers), default=0.0)
    delta = math.fsum(charge.delta for ledger in recorded.ledgers for charge in ledger.charges)
    draws = list(zip(recorded.draws, replayed.draws, strict=True))
    costs = [_realized(recorded, _of_replicate(draws, i)) for i in range(n_replicates)]
    losses = losses_by_replicate(draws, n_replicates)
    worst = tuple(
        max(costs_of, key=lambda each: each.ratio) for costs_of in zip(*costs, strict=True)
    )
    return Replay(worst, max(losses), "", spent, n_replicates * delta)


Draws = Sequence[tuple[Draw, Draw]]
"""Draws on the points, each with the same draw on the neighbor."""


def replayed_on_neighbor(
    method: Any,
    pair: Pair,
    seeds: Sequence[int],
    recorded: Trace,
    public_seeds: Sequence[int] | None = None,
) -> Trace:
    """Run a method on the neighbor of a pair, with the outcomes of a recorded run forced.

    Raises
    ------
    Divergence
        If the method makes other draws than in the recorded run.
    """
    return traced(
        method,
        pair.neighbor,
        seeds,
        pair.domain,
        lambda streams, trace: ReplayingStreams(streams, recorded.draws, trace),
        public_seeds,
    )


def losses_by_replicate(draws: Draws, n_replicates: int) -> list[float]:
    """Exact privacy loss of the whole transcript of each replicate."""
    return [_transcript_loss(_of_replicate(draws, i)) for i in range(n_replicates)]


def _of_replicate(draws: Draws, number: int) -> Draws:
    """The draws of one replicate of a batch, on the points and on the neighbor."""
    if not draws or len(draws[0][0].outcome) == 1:
        return draws
    return [(_sliced(draw, number), _sliced(other, number)) for draw, other in draws]


def _sliced(draw: Draw, number: int) -> Draw:
    """One replicate's part of a draw of additive noise."""
    one = slice(number, number + 1)
    values = draw.values
    if isinstance(values, BoundedValues):
        values = BoundedValues(*(part[one] for part in values))
    else:
        values = values[one]
    return replace(draw, values=values, outcome=draw.outcome[one])


def _other_outcome(method: Any, pair: Pair, seeds: Sequence[int], error: Exception) -> str:
    """Divergence of a method that refuses a data set: the neighbor must be refused as well."""
    try:
        traced(method, pair.neighbor, seeds, pair.domain, RecordingStreams)
    except Exception as other:
        return "" if repr(other) == repr(error) else f"refuses otherwise: {error!r}; {other!r}"
    return f"refuses the data, {error!r}, and not the neighbor"


def _difference(recorded: Trace, replayed: Trace) -> str:
    """First difference of two traces besides their exact answers; empty if there is none."""
    if len(replayed.draws) < len(recorded.draws):
        return f"only {len(replayed.draws)} of {len(recorded.draws)} draws: releases depend on data"
    for number, (query, other) in enumerate(zip(recorded.queries, replayed.queries, strict=False)):
        if not same(query, other):
            return f"query {number}, {query[0]}, has other arguments: they depend on data"
    charges = [ledger.charges for ledger in recorded.ledgers]
    if not same(charges, [ledger.charges for ledger in replayed.ledgers]):
        return "charges differ: they depend on data"
    if not same(recorded.centers, replayed.centers):
        return "centers differ although all releases are equal: they depend on data directly"
    return ""


def _realized(recorded: Trace, draws: Draws) -> tuple[Realized, ...]:
    """Cost of every release on the pair: that of its draws together."""
    costs: dict[tuple, list[Cost]] = {}
    for draw, other in draws:
        cost = realized(draw.mechanism, draw.values, other.values, draw.sensitivity)
        costs.setdefault(draw.key[:2], []).append(cost)
    charged: dict[tuple, list[Cost]] = {}
    flaws: dict[tuple, str] = {}
    groups: dict[tuple, int | None] = {}
    for ledger in recorded.ledgers:
        for charge in ledger.charges:
            cost = Cost(charge.mu, charge.epsilon, charge.delta)
            label = charge.label.removesuffix(SECOND_RECORD)
            charged.setdefault((label, charge.round), []).append(cost)
            flaws[label, charge.round] = charge.flaw
            groups[label, charge.round] = charge.group
    return tuple(
        Realized(
            key[0],
            together(charged.get(key, [])),
            together(parts),
            flaws.get(key, ""),
            groups.get(key),
        )
        for key, parts in costs.items()
    )


def together(costs: Sequence[Cost]) -> Cost:
    """Compose costs simply: mu as the root of the sum of squares, the others as sums."""
    return Cost(
        math.hypot(*(cost.mu for cost in costs)),
        math.fsum(cost.epsilon for cost in costs),
        math.fsum(cost.delta for cost in costs),
    )


def _transcript_loss(draws: Draws) -> float:
    losses = [
        loss(draw.mechanism, draw.outcome, draw.values, other.values, draw.sensitivity)
        for draw, other in draws
    ]
    # A loss that no formula gives is NaN; one that the neighbor cannot have is infinite.
    return math.inf if math.inf in losses else sum(losses)
