"""Replay: fit one data set, write down every output, force it on a neighbor.

A replay calls ``fit`` as a user does, on points in their own units. With the outputs
forced, nothing may differ between the two fits but the exact answers behind the
releases. Queries must have the same arguments in the same order. Charges, attributes of
the estimator, warnings, printed text, logs and exceptions must be equal. At every
release both exact answers are known. What the pair costs is therefore computed
(:mod:`pkm.audit.laws`) and compared with what was charged. There is no sampling and no
question of power for a pair; a fault is missed only if no pair shows it.

Source of the idea: Re:cord-play (Cebere et al., PETS 2026).
"""

import copy
import gc
import io
import logging
import math
import pickle
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from pkm.audit.laws import Law, find_law
from pkm.audit.pairs import Pair
from pkm.audit.placements import Partition, list_partitions
from pkm.compute import Points
from pkm.privacy import Ledger, NoiseStreams, PrivacyAccountant, Unit
from pkm.privacy.ledger import Charge
from pkm.privacy.mechanisms.additive import BoundedValues, Cost
from pkm.privacy.queries.moved_records import SortedGaussian

SECOND_RECORD = "_second_record"  # of a release that is charged once for each record
UNCHARGED = Charge("", 0, "")  # of a draw that no charge names
NO_ARGUMENTS: Mapping[str, np.ndarray] = {}


class ReplayMismatch(Exception):
    """The run on the neighbor does something else although all outputs were equal."""


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
    output
        The random answer.
    is_secure : bool
        Whether the operating system's entropy decided.
    """

    mechanism: Any
    key: tuple
    sensitivity: Any
    values: Any
    output: Any
    is_secure: bool = False

    @property
    def law(self) -> Law:
        """The law that the output was drawn by."""
        return find_law(self.mechanism, self.sensitivity, self.is_secure)


#: Draws on the points, each paired with the same draw on the neighbor.
Draws = Sequence[tuple[Draw, Draw]]


@dataclass
class Trace:
    """What a run did.

    Attributes
    ----------
    queries : list of tuple
        Name and arguments of each query, in order.
    partitions : list of Partition
        Of the domain into cells, by the queries.
    draws : list of Draw
    ledgers : list of Ledger
        With the charges.
    observed : dict of str to object
        What the caller of ``fit`` sees at the end, by name: attributes, warnings,
        printed text, logs, an exception.
    """

    queries: list[tuple] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)
    observed: dict[str, Any] = field(default_factory=dict)


class RecordingStreams:
    """Noise streams that write down every draw.

    Parameters
    ----------
    streams : NoiseStreams
    trace : Trace
        Receives the draws.
    """

    def __init__(
        self,
        streams: NoiseStreams,
        trace: Trace,
    ) -> None:
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
        exact = freeze(values)
        draw = Draw(mechanism, key, sensitivity, exact, None, self.secure)
        draw, output = self._draw(draw)
        self._trace.draws.append(draw)
        return output

    def _draw(self, draw: Draw) -> tuple[Draw, Any]:
        """Return a draw with its output, and the output for the method."""
        output = self._streams.release(
            draw.mechanism,
            draw.values,
            draw.key,
            draw.sensitivity,
        )
        return replace(draw, output=copy.deepcopy(output)), output


class ReplayingStreams(RecordingStreams):
    """Noise streams that give the outputs of another run, whatever the exact answers.

    Parameters
    ----------
    streams : NoiseStreams
        Of which only the public attributes are used.
    trace : Trace
        Receives the draws of this run: its exact answers, the other run's outputs.
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
        """Take the recorded output of the next draw, if it is the same draw."""
        number = len(self._trace.draws)
        name = f"draw {number}, {draw.key},"
        if number >= len(self._recorded):
            raise ReplayMismatch(f"{name} has no counterpart: releases depend on data")
        recorded = self._recorded[number]
        if (draw.mechanism, draw.key) != (recorded.mechanism, recorded.key):
            raise ReplayMismatch(
                f"draw {number} is {draw.mechanism} of {draw.key} and was "
                f"{recorded.mechanism} of {recorded.key}: releases depend on data"
            )
        if not are_equal(draw.sensitivity, recorded.sensitivity):
            raise ReplayMismatch(f"{name} has another sensitivity: it depends on data")
        values, output = match_records(recorded, draw.values)
        return replace(recorded, values=values), output


def match_records(draw: Draw, values: Any) -> tuple[Any, Any]:
    """Match the records of an exact answer with those of a recorded draw.

    Rows are released without their order. The neighbor's must therefore first be put
    into the order of the recorded ones: equal rows to equal rows, the moved record to
    the moved record.

    Returns
    -------
    values
        In the order of the recorded exact answer.
    output
        The recorded output, for the neighbor in its own order.
    """
    output = copy.deepcopy(draw.output)
    if not isinstance(draw.mechanism, SortedGaussian):
        return values, output
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
    (released,) = output
    return values[:, order], [released._replace(order=order[released.order])]


def freeze(values: Any) -> Any:
    """Copy an exact answer, so that later changes in place do not reach the record.

    Iterators, which hand out one buffer again and again, become lists.
    """
    if isinstance(values, Iterator):
        return [np.array(value) for value in values]
    return copy.deepcopy(values)


def are_equal(left: Any, right: Any) -> bool:
    """Compare two nested values, arrays by shape, type and content."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        left = np.asarray(left)
        right = np.asarray(right)
        if left.dtype != right.dtype:
            return False
        return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if is_dataclass(left) and type(left) is type(right):
        return are_equal(get_fields(left), get_fields(right))
    return bool(left == right)


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
        Draws of another run, whose outputs are forced. Default: fresh outputs.

    Returns
    -------
    Trace

    Raises
    ------
    ReplayMismatch
        If the method makes other draws than the recorded ones.
    """
    trace = Trace()
    curator = make_tracing_curator(method.curator, trace, recorded)

    def make_curator(ledger: Ledger | None, streams: NoiseStreams) -> Any:
        return curator([points], ledger, streams, domain)

    method.fit_with(
        make_curator,
        points.n_records,
        points.shape[1],
        seeds,
        public_seeds=public_seeds,
    )
    return trace


def trace_fit(
    method: Any,
    X: np.ndarray,
    recorded: Sequence[Draw] | None = None,
    account: PrivacyAccountant | None = None,
    fit_arguments: Mapping[str, np.ndarray] = NO_ARGUMENTS,
) -> Trace:
    """Fit a method to points in their own units, and write down what it does.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans
        With bounds and a random state. It is copied.
    X : ndarray of shape (n, d)
    recorded : sequence of Draw, optional
        Draws of another fit, whose outputs are forced. Default: fresh outputs.
    account : PrivacyAccountant, optional
        That is charged for the fit.
    fit_arguments : mapping
        Arguments of ``fit`` besides the points: persons and weights.

    Returns
    -------
    Trace

    Raises
    ------
    ReplayMismatch
        If the method makes other draws than the recorded ones.
    """
    trace = Trace()
    estimator: Any = clone(method)
    estimator.curator = make_tracing_curator(method.curator, trace, recorded)
    with observe(trace.observed):
        estimator.fit(X, account=account, **fit_arguments)
    attributes = vars(estimator).items()
    trace.observed |= {
        name: pickle.dumps(value) for name, value in attributes if name != "curator"
    }
    if account is not None:
        # Runs have the time of their charge.
        runs = [run.to_dict() | {"date": ""} for run in account.runs]
        trace.observed["account"] = repr(runs)
    return trace


@contextmanager
def observe(observed: dict[str, Any]) -> Iterator[None]:
    """Write down what a block of code lets its caller see.

    An exception is written down and goes no further, unless it is a `ReplayMismatch`.
    """
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    logger = logging.getLogger()
    logger.addHandler(handler)
    # Callers may have their logs at this level.
    level = logger.level
    logger.setLevel(logging.INFO)
    # Objects of other code warn or print when they are collected, in either fit.
    collects = gc.isenabled()
    gc.disable()
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            redirect_stdout(printed),
            redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            yield
    except ReplayMismatch:
        raise
    except Exception as error:  # an exception is observed like anything else
        observed["exception"] = error
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        if collects:
            gc.enable()
    messages = [f"{item.category.__name__}: {item.message}" for item in caught]
    observed["warnings"] = sorted(messages)
    observed["printed text"] = printed.getvalue()


def make_tracing_curator(
    curator: type,
    trace: Trace,
    recorded: Sequence[Draw] | None,
) -> type:
    """Derive a curator that writes down queries, draws and charges.

    Parameters
    ----------
    curator : type
        Of the method.
    trace : Trace
        Receives them.
    recorded : sequence of Draw or None
        Draws whose outputs are forced.
    """

    class TracingCurator(curator):
        """Writes down what it is asked and what it draws."""

        def __init__(
            self, shards: Any, ledger: Ledger | None, streams: Any, domain: Any = None
        ) -> None:
            # A curator of a smaller domain has the streams of the first one.
            if not isinstance(streams, RecordingStreams):
                if ledger is not None:
                    trace.ledgers.append(ledger)
                if recorded is None:
                    streams = RecordingStreams(streams, trace)
                else:
                    streams = ReplayingStreams(streams, trace, recorded)
            super().__init__(shards, ledger, streams, domain)

        def release_all(self, requests: Any, source: Any = None) -> Any:
            for query, _ in requests:
                arguments = map(freeze, get_fields(query))
                trace.queries.append((type(query).__name__, *arguments))
            answers = super().release_all(requests, source)
            view = self if source is None else source
            for query, _ in requests:
                trace.partitions += list_partitions(view, query, self.domain)
            return answers

    return TracingCurator


@dataclass(frozen=True)
class RealizedCost:
    """What one release cost on one pair, next to what was charged for it.

    Attributes
    ----------
    label : str
    charged, cost : Cost
    flaw : str
        Id of the registered flaw that the charge names; empty where it names none.
    group : int or None
        Number of the group of users, which is charged as disjoint from other groups.
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
    realized : tuple of RealizedCost
        One for each release, in order.
    loss : float
        Exact privacy loss of the whole transcript: infinite if the neighbor cannot
        produce it.
    mismatch : str
        How the two runs differ although the outputs were the same; empty if they do
        not.
    spent, delta : float
        Epsilon at the budget's delta, and the sum of the deltas charged, by the ledger.
    refusal : Exception or None
        That the method raised on both data sets alike.
    partitions : tuple of Partition
        Those of the queries. The search for a worse place of the record uses them.
    draws : tuple of Draw
        Those whose outputs lead to these partitions.
    """

    realized: tuple[RealizedCost, ...] = ()
    loss: float = math.nan
    mismatch: str = ""
    spent: float = 0.0
    delta: float = 0.0
    refusal: Exception | None = None
    partitions: tuple[Partition, ...] = ()
    draws: tuple[Draw, ...] = ()

    @property
    def ratio(self) -> float:
        """Largest finite ratio of realized over charged; 0 without a release."""
        ratios = [release.ratio for release in self.realized]
        return max(filter(math.isfinite, ratios), default=0.0)

    @property
    def groups(self) -> set[int]:
        """Groups of users to whose reports the record contributes."""
        return {
            release.group
            for release in self.realized
            if release.group is not None and any(release.cost)
        }


def replay(
    method: Any,
    pair: Pair,
    seed: int,
    *,
    with_account: bool = False,
    forced: Sequence[Draw] | None = None,
) -> Replay:
    """Fit a method to points, and again to a neighbor with all outputs forced.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans
        Claiming privacy.
    pair : Pair
        Neighbors under the claim's adjacency.
    seed : int
    with_account : bool, default=False
        Charge an account for each of the fits.
    forced : sequence of Draw, optional
        Draws of a run on other points, whose outputs are forced on both fits. A record
        that was placed by the partitions of that run then meets them. Default: fresh
        outputs.

    Returns
    -------
    Replay
        Where the method refuses the data, both must be refused alike.
    """
    configured: Any = clone(method)
    configured.set_params(bounds=pair.domain, random_state=seed)
    if with_account:
        configured.set_params(secure=True)  # it refuses other noise
    try:
        budget = configured.budget(pair.n_records, pair.rows.shape[1])
    except ValueError as error:  # the shape is public
        return Replay(loss=0.0, refusal=error)

    def open_account() -> PrivacyAccountant | None:
        unit = Unit.ROW if pair.groups is None else Unit.PERSON
        terms = replace(budget, unit=unit)
        return PrivacyAccountant(terms) if with_account else None

    refusal = None
    neighbor = pair.reversed
    try:
        recorded = trace_fit(
            configured, pair.X, forced, open_account(), pair.fit_arguments
        )
        refusal = recorded.observed.get("exception")
        replayed = trace_fit(
            configured,
            neighbor.X,
            recorded.draws,
            open_account(),
            neighbor.fit_arguments,
        )
        mismatch = compare_traces(recorded, replayed)
    except ReplayMismatch as error:
        mismatch = str(error)
    if mismatch:
        return Replay(mismatch=mismatch, refusal=refusal)
    if refusal is not None:
        return Replay(loss=0.0, refusal=refusal)
    draws = list(zip(recorded.draws, replayed.draws, strict=True))
    ledgers = recorded.ledgers
    return Replay(
        tuple(_measure_realized(recorded, draws)),
        # Forced outputs were not drawn for these points: their likelihood says nothing.
        loss=measure_losses(draws, 1)[0] if forced is None else 0.0,
        spent=max((ledger.spent() for ledger in ledgers), default=0.0),
        delta=math.fsum(
            charge.delta for ledger in ledgers for charge in ledger.charges
        ),
        partitions=tuple(recorded.partitions),
        draws=tuple(recorded.draws),
    )


def measure_losses(draws: Draws, n_replicates: int) -> list[float]:
    """Measure the exact privacy loss of the whole transcript of each replicate."""
    totals = []
    for i in range(n_replicates):
        losses = [
            draw.law.measure_loss(draw.output, draw.values, other.values)
            for draw, other in _select_replicate(draws, i)
        ]
        # A loss that no formula gives is NaN; one that the neighbor cannot have is
        # infinite.
        totals.append(math.inf if math.inf in losses else sum(losses))
    return totals


def _select_replicate(draws: Draws, number: int) -> Draws:
    """Select the draws of one replicate of a batch."""
    if not draws or len(draws[0][0].output) == 1:
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
    return replace(draw, values=values, output=draw.output[one])


def compare_traces(recorded: Trace, replayed: Trace) -> str:
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
    for name in recorded.observed | replayed.observed:
        one = recorded.observed.get(name)
        other = replayed.observed.get(name)
        if repr(one) != repr(other):
            values = "" if isinstance(one, bytes) else f", {one!r} and {other!r}"
            return (
                f"{name} differs although all releases are equal{values}: it depends "
                "on data directly"
            )
    return ""


def _measure_realized(recorded: Trace, draws: Draws) -> list[RealizedCost]:
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
        release = RealizedCost(
            key[0],
            compose(charged),
            compose(realized),
            charged[-1].flaw,
            charged[-1].group,
        )
        releases.append(release)
    return releases


def compose(costs: Sequence[Charge | Cost]) -> Cost:
    """Compose costs simply: mu as the root of the sum of squares, others as sums."""
    return Cost(
        math.hypot(*(cost.mu for cost in costs)),
        math.fsum(cost.epsilon for cost in costs),
        math.fsum(cost.delta for cost in costs),
    )
