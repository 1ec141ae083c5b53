"""Settings of cells: types, defaults, legal values and rules, each in one place."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pkm.scalars import is_integer, is_number, is_positive

#: How points are split over the parties of a protocol (the names of `pkm.federation.SPLITS`, which
#: no central cell shall depend on), and over the clients of federated clustering.
SPLITS = ("balanced", "unbalanced", "sorted")
CLIENT_SPLITS = ("published", "noniid", "iid")


def require(holds: bool, name: str, value: object, rule: str) -> None:
    """Refuse a value, naming the parameter, the value got and the rule.

    Raises
    ------
    ValueError
        If `holds` is false.
    """
    if not holds:
        raise ValueError(f"{name}={value!r} is not allowed: {name} must be {rule}")


@dataclass(frozen=True)
class Rule:
    """What the values of a setting must be, as a function and in words."""

    holds: Callable[[object], bool]
    text: str


def at_least(lowest: int) -> Rule:
    """Return the rule of a whole number with a smallest value."""
    return Rule(
        lambda value: is_integer(value) and value >= lowest, f"a whole number of at least {lowest}"
    )


def one_of(*legal: str | int) -> Rule:
    """Return the rule of a setting with few values."""
    # True equals 1, and is none of the numbers.
    return Rule(
        lambda value: value in legal and not isinstance(value, bool),
        f"one of {', '.join(map(str, legal))}",
    )


FLAG = Rule(lambda value: isinstance(value, bool), "true or false")
LATENCY = Rule(
    lambda value: is_number(value) and 0 <= value < 60_000,
    "a number of milliseconds, at least 0 and below 60000",
)
WIDER = Rule(lambda value: is_number(value) and 1 <= value <= 1e6, "a number from 1 to 1,000,000")
#: Which records of a data set take the part of public data, as in
#: `pkm.experiments.fit.public_records`.
PUBLIC_DATA = one_of("same", "shifted")
TIME_LIMIT = Rule(
    lambda value: value is None or is_positive(value),
    "a number of seconds above 0, or null",
)


def setting(default: Any, rule: Rule) -> Any:
    """Declare a field with its default and its rule."""
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True)
class Settings:
    """Values that are checked by the rules of their fields.

    Raises
    ------
    ValueError
        If a value breaks its rule; the message names setting, value and rule.
    """

    def __post_init__(self) -> None:
        for declared in dataclasses.fields(self):
            value = getattr(self, declared.name)
            rule = declared.metadata["rule"]
            require(rule.holds(value), declared.name, value, rule.text)
            # 25 and 25.0 are the same setting.
            if declared.type is float:
                object.__setattr__(self, declared.name, float(value))


@dataclass(frozen=True)
class Federation(Settings):
    """How a cell is run as a protocol between clients and a server.

    Parameters
    ----------
    clients : int, default=2
    latency_ms : float, default=0.0
        Simulated latency of a message.
    word_bytes : {4, 8}, default=8
        Size of a word of masked messages.
    split : {"balanced", "unbalanced", "sorted"}, default="balanced"
        See `pkm.federation.split_points`.
    transport : {"auto", "threads", "mpi"}, default="auto"
        Parties are threads, or processes under MPI; a sweep replaces ``"auto"`` by what is
        installed.

    Examples
    --------
    >>> Federation(word_bytes=2)
    Traceback (most recent call last):
        ...
    ValueError: word_bytes=2 is not allowed: word_bytes must be one of 4, 8
    """

    clients: int = setting(2, at_least(1))
    latency_ms: float = setting(0.0, LATENCY)
    word_bytes: int = setting(8, one_of(4, 8))
    split: str = setting("balanced", one_of(*SPLITS))
    transport: str = setting("auto", one_of("auto", "threads", "mpi"))


@dataclass(frozen=True)
class Unlearning(Settings):
    """How points are split over the clients of federated clustering and removed again.

    Parameters
    ----------
    clients : int, default=100
    split : {"published", "noniid", "iid"}, default="noniid"
        The data set's own, or see `pkm.federation.splits`.
    clusters_per_client : int, default=3
        Clusters that a client's points are from, where the split is noniid.
    split_seed : int, default=0
    removals : int, default=0
        Requests to remove points, one after the other.
    batch : int, default=1
        Points of a request.
    requests : {"random", "adversarial"}, default="random"
        Which points are requested: any of a client, or those of highest cost.
    sparse : bool, default=False
        Whether sparse aggregation is measured.
    """

    clients: int = setting(100, at_least(1))
    split: str = setting("noniid", one_of(*CLIENT_SPLITS))
    clusters_per_client: int = setting(3, at_least(1))
    split_seed: int = setting(0, at_least(0))
    removals: int = setting(0, at_least(0))
    batch: int = setting(1, at_least(1))
    requests: str = setting("random", one_of("random", "adversarial"))
    sparse: bool = setting(False, FLAG)


def require_text(name: str, value: object) -> None:
    """Refuse a value that is no text, or an empty one.

    Raises
    ------
    ValueError
        If it breaks that rule.
    """
    require(isinstance(value, str) and value != "", name, value, "a text")


def require_params(params: Mapping[str, Any]) -> None:
    """Refuse parameters of a method that a row cannot hold.

    Raises
    ------
    ValueError
        Naming the first such parameter, its value and the rule.
    """
    require(isinstance(params, Mapping), "params", params, "a mapping of names to values")
    for name, value in params.items():
        require_text("the name of a parameter", name)
        items = value if isinstance(value, list | tuple) else []
        plain = value is None or isinstance(value, bool | int | float | str)
        are_numbers = all(map(is_number, items))
        holds = plain or (items and (are_numbers or all(isinstance(item, str) for item in items)))
        rule = "a flag, a number, a text, null, or a list of numbers or of texts"
        require(bool(holds), name, value, rule)


def require_budget(epsilon: object, delta: object) -> None:
    """Refuse an epsilon or a delta that breaks its rule.

    Raises
    ------
    ValueError
        If epsilon is neither None nor positive, or delta neither None nor ``"auto"`` nor between 0
        and 1.
    """
    holds = epsilon is None or is_positive(epsilon)
    require(holds, "epsilon", epsilon, "a finite number above 0")
    holds = delta is None or delta == "auto" or (is_number(delta) and 0 < delta < 1)
    require(holds, "delta", delta, 'a number in (0, 1) or "auto"')


def require_seeds(seeds: tuple) -> None:
    """Refuse seeds that are no whole numbers, negative, repeated or none at all.

    Raises
    ------
    ValueError
        If they break that rule.
    """
    distinct = len(set(seeds)) == len(seeds) >= 1
    holds = distinct and all(is_integer(seed) and seed >= 0 for seed in seeds)
    require(holds, "seeds", seeds, "at least one whole number, none negative, none twice")


def require_kind(
    timing: bool,
    federation: Federation | None,
    unlearning: Unlearning | None,
    coreset: bool = False,
) -> None:
    """Refuse settings of a protocol, of removals or of coresets that do not go together.

    Raises
    ------
    ValueError
        Naming what is wrong, its value and the rule.
    """
    if federation is not None:
        holds = isinstance(federation, Federation)
        require(holds, "federation", federation, "settings.Federation, or null")
        transport = federation.transport
        require(transport != "auto", "transport", transport, "threads or mpi in a cell")
        require(timing, "timing", timing, "true for a cell with federation")
    if coreset:
        for name, given in (("federation", federation), ("unlearning", unlearning)):
            require(given is None, name, given, "null for a cell with coreset")
    if unlearning is not None:
        require(federation is None, "federation", federation, "null for a cell with unlearning")
        holds = isinstance(unlearning, Unlearning)
        require(holds, "unlearning", unlearning, "settings.Unlearning, or null")
        holds = timing or not unlearning.removals
        require(holds, "timing", timing, "true for a cell with removals")
