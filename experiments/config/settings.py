"""Rules for settings, and errors that name setting, value and rule."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

from pkm.experiments.config.errors import require_choices
from pkm.scalars import is_integer, is_number, is_positive

S = TypeVar("S", bound="Settings")


def require(
    holds: bool,
    name: str,
    value: object,
    rule: str,
) -> None:
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
    """A rule for the values of a setting, as a function and in words."""

    holds: Callable[[Any], bool]
    text: str

    def require(self, name: str, value: object) -> None:
        """Refuse a value that breaks the rule, as `require` does."""
        require(self.holds(value), name, value, self.text)


def at_least(lowest: int) -> Rule:
    """Return the rule of a whole number with a smallest value."""
    return Rule(
        lambda value: is_integer(value) and value >= lowest,
        f"a whole number of at least {lowest}",
    )


def one_of(*legal: str | int) -> Rule:
    """Return the rule of a setting with few values."""
    # True equals 1, but is not a number here.
    return Rule(
        lambda value: value in legal and not isinstance(value, bool),
        f"one of {', '.join(map(str, legal))}",
    )


def is_parameter(value: object) -> bool:
    """Tell whether a row can hold the value of a parameter."""
    if isinstance(value, list | tuple):
        is_text = all(isinstance(item, str) for item in value)
        return len(value) > 0 and (is_text or all(map(is_number, value)))
    return value is None or isinstance(value, bool | int | float | str)


def are_seeds(seeds: tuple) -> bool:
    """Tell whether seeds are distinct whole numbers, none negative, at least one."""
    distinct = len(set(seeds)) == len(seeds) >= 1
    return distinct and all(is_integer(seed) and seed >= 0 for seed in seeds)


FLAG = Rule(lambda value: isinstance(value, bool), "true or false")
TEXT = Rule(lambda value: isinstance(value, str) and value != "", "a text")
PATH = Rule(lambda value: value is None or isinstance(value, str), "a text, or null")
FILE = Rule(lambda value: Path(value).is_file(), "an existing file")
RESULTS = Rule(
    lambda value: Path(value).is_dir(),
    "a folder with stored cells, which pkm run and pkm reproduce make",
)
NOISE = one_of("secure", "seeded")
EPSILON = Rule(
    lambda value: value is None or is_positive(value),
    "a finite number above 0",
)
TIME_LIMIT = Rule(EPSILON.holds, "a number of seconds above 0, or null")
#: Larger ones are refused by all methods.
DELTA = Rule(
    lambda value: value in (None, "auto") or (is_number(value) and 0 < value < 0.5),
    'a number in (0, 0.5) or "auto"',
)
SEEDS = Rule(are_seeds, "at least one whole number, none negative, none twice")
METRICS = Rule(lambda value: len(value) >= 1, "at least one metric")
PARAMETER = Rule(
    is_parameter,
    "a flag, a number, a text, null, or a list of numbers or of texts",
)


def require_params(params: Mapping[str, Any]) -> None:
    """Refuse parameters of a method that a row cannot hold.

    Raises
    ------
    ValueError
        Naming the first such parameter, its value and the rule.
    """
    rule = "a mapping of names to values"
    require(isinstance(params, Mapping), "params", params, rule)
    for name, value in params.items():
        TEXT.require("the name of a parameter", name)
        PARAMETER.require(name, value)


def to_list(value: object) -> list:
    """Return a list as it is, and any other value as a list of one item."""
    return list(value) if isinstance(value, list | tuple) else [value]


def checked_field(default: Any, rule: Rule, **options: Any) -> Any:
    """Declare a field with its default and its rule; `MISSING` for no default."""
    return field(default=default, metadata={"rule": rule}, **options)


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
            if "rule" in declared.metadata:
                declared.metadata["rule"].require(declared.name, value)
            # 25 and 25.0 are the same setting.
            is_float = float in (declared.type, *get_args(declared.type))
            if is_float and is_number(value):
                object.__setattr__(self, declared.name, float(value))


def expand_grid(grid: Mapping) -> list[dict]:
    """Combine the values of all keys, each a value or a list, the first key slowest.

    Examples
    --------
    >>> expand_grid({"a": [1, 2], "b": 3})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    lists = {key: to_list(grid[key]) for key in grid}
    combinations = itertools.product(*lists.values())
    return [dict(zip(lists, values, strict=True)) for values in combinations]


def expand_settings(name: str, kind: type[S], value: Any) -> list[S]:
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
    rule = f"null or a mapping of {', '.join(known)}"
    require(isinstance(value, Mapping), name, value, rule)
    require_choices(f"{name}: key", value, known)

    # Fields in their own order: the first one varies slowest, however they were given.
    grid = {key: value[key] for key in known if key in value}
    return [kind(**values) for values in expand_grid(grid)]
