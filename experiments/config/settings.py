"""Rules of settings, and errors that name setting, value and rule."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pkm.experiments.config.errors import ConfigurationError, unknown
from pkm.scalars import is_integer, is_number, is_positive

S = TypeVar("S", bound="Settings")


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
        lambda value: is_integer(value) and value >= lowest,
        f"a whole number of at least {lowest}",
    )


def one_of(*legal: str | int) -> Rule:
    """Return the rule of a setting with few values."""
    # True equals 1, and is none of the numbers.
    return Rule(
        lambda value: value in legal and not isinstance(value, bool),
        f"one of {', '.join(map(str, legal))}",
    )


FLAG = Rule(lambda value: isinstance(value, bool), "true or false")
TIME_LIMIT = Rule(
    lambda value: value is None or is_positive(value),
    "a number of seconds above 0, or null",
)


def as_list(value: object) -> list:
    """Return a list as it is, and any other value as a list of one item."""
    return list(value) if isinstance(value, list | tuple) else [value]


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
        for declared in fields(self):
            value = getattr(self, declared.name)
            rule = declared.metadata["rule"]
            require(rule.holds(value), declared.name, value, rule.text)
            # 25 and 25.0 are the same setting.
            if declared.type is float:
                object.__setattr__(self, declared.name, float(value))


def expand(name: str, kind: type[S], value: object) -> list[S]:
    """Read a sweep's key that is a mapping of lists: every combination.

    Parameters
    ----------
    name : str
        The key, for messages.
    kind : type
        The class of the settings.
    value : mapping or None
        Some of its fields, each a value or a list of values; None for no settings at
        all.

    Raises
    ------
    ConfigurationError
        If it has an unknown key.
    ValueError
        If it is no mapping, or a value breaks its rule.
    """
    if value is None:
        return []
    known = [declared.name for declared in fields(kind)]
    require(
        isinstance(value, Mapping),
        name,
        value,
        f"null or a mapping of {', '.join(known)}",
    )
    for key in value:
        if key not in known:
            raise ConfigurationError(unknown(f"{name}: key", key, known))

    # Fields in their own order: the first one varies slowest, however they were given.
    lists = {key: as_list(value[key]) for key in known if key in value}
    combinations = itertools.product(*lists.values())
    return [kind(**dict(zip(lists, values, strict=True))) for values in combinations]


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
    require(
        isinstance(params, Mapping), "params", params, "a mapping of names to values"
    )
    for name, value in params.items():
        require_text("the name of a parameter", name)
        items = value if isinstance(value, list | tuple) else []
        plain = value is None or isinstance(value, bool | int | float | str)
        are_numbers = all(map(is_number, items))
        holds = plain or (
            items and (are_numbers or all(isinstance(item, str) for item in items))
        )
        rule = "a flag, a number, a text, null, or a list of numbers or of texts"
        require(bool(holds), name, value, rule)


def require_budget(epsilon: object, delta: object) -> None:
    """Refuse an epsilon or a delta that breaks its rule.

    Raises
    ------
    ValueError
        If epsilon is neither None nor positive, or delta neither None nor ``"auto"``
        nor between 0 and 1.
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
    require(
        holds, "seeds", seeds, "at least one whole number, none negative, none twice"
    )
