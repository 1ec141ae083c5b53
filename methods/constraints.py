"""Rules on the value of one parameter: objects that test a value and print themselves.

A class has a table of them by the names of its parameters, as scikit-learn's estimators
have in ``_parameter_constraints``. Rules on several values, or on data, are code.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from inspect import get_annotations
from typing import Any, ClassVar, Literal, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator

from pkm.scalars import is_integer, is_number


class Constraint(ABC):
    """A rule on a value. Its text follows "must be"; ``|`` joins alternatives."""

    @abstractmethod
    def allows(self, value: object) -> bool:
        """Tell whether a value keeps the rule."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> object:
        """Draw a typical value that keeps the rule, for tests."""

    @abstractmethod
    def __str__(self) -> str: ...

    def __or__(self, other: "Constraint") -> "Constraint":
        return AnyOf(self, other)

    def refuse(
        self,
        name: str,
        value: object,
    ) -> str:
        """Return the error message for a value that breaks the rule."""
        return f"{name}={value!r} must be {self}"


@dataclass(frozen=True)
class AnyOf(Constraint):
    """One of two rules.

    Examples
    --------
    >>> print(OneOf("auto") | Integer(1))
    'auto' or an integer of at least 1
    """

    first: Constraint
    second: Constraint

    def allows(self, value: object) -> bool:
        """Tell whether a value keeps one of the rules."""
        return self.first.allows(value) or self.second.allows(value)

    def draw(self, rng: np.random.Generator) -> object:
        """Draw a value by either rule."""
        if rng.random() < 0.5:
            return self.first.draw(rng)
        return self.second.draw(rng)

    def __str__(self) -> str:
        comma = "," if "," in str(self.first) else ""
        return f"{self.first}{comma} or {self.second}"


class OneOf(Constraint):
    """Some values, and no others.

    Examples
    --------
    >>> OneOf("packing", "uniform").refuse("initialization", "random")
    "initialization='random' is unknown, choose one of 'packing', 'uniform'"
    """

    def __init__(self, *values: object) -> None:
        self.values = values

    def allows(self, value: object) -> bool:
        """Tell whether a value is one of them."""
        return value in self.values

    def draw(self, rng: np.random.Generator) -> object:
        """Draw one of the values."""
        number = rng.integers(len(self.values))
        return self.values[number]

    def __str__(self) -> str:
        listed = ", ".join(map(repr, self.values))
        return listed if len(self.values) == 1 else f"one of {listed}"

    def refuse(
        self,
        name: str,
        value: object,
    ) -> str:
        """Return the error message, which lists the values."""
        listed = ", ".join(map(repr, self.values))
        return f"{name}={value!r} is unknown, choose one of {listed}"


FLAG = OneOf(True, False)
AUTO = OneOf("auto")
NONE = OneOf(None)


@dataclass(frozen=True)
class Integer(Constraint):
    """An integer in a closed range; flags are refused. The note is for messages."""

    low: int
    high: float = math.inf
    note: str = ""

    def allows(self, value: object) -> bool:
        """Tell whether a value is an integer of the range."""
        return is_integer(value) and self.low <= value <= self.high

    def draw(self, rng: np.random.Generator) -> int:
        """Draw one of the first five integers of the range."""
        high = int(min(self.low + 4, self.high))
        return int(rng.integers(self.low, high + 1))

    def __str__(self) -> str:
        bounds = f"from {self.low} to {self.high}"
        if self.high == math.inf:
            bounds = f"of at least {self.low}"
        note = f": {self.note}" if self.note else ""
        return f"an integer {bounds}{note}"


@dataclass(frozen=True)
class Real(Constraint):
    """A finite number in an interval; flags are refused.

    Parameters
    ----------
    low, high : float
        The ends; infinite for none.
    ends : {"()", "[)", "(]", "[]"}, default="()"
        Which ends belong to the interval.
    noun : str, default="a number"
        What the number is, for messages.
    unit : str, default=""
        Unit of the number, for messages.

    Examples
    --------
    >>> print(Real(0, 1, "[)"))
    a number in [0, 1)
    >>> print(Real(0, unit="half-widths"))
    a positive finite number, in half-widths
    """

    low: float = -math.inf
    high: float = math.inf
    ends: str = "()"
    noun: str = "a number"
    unit: str = ""

    def allows(self, value: object) -> bool:
        """Tell whether a value is a finite number of the interval."""
        if not is_number(value) or not math.isfinite(value):
            return False
        if value == self.low:
            return self.ends[0] == "["
        if value == self.high:
            return self.ends[1] == "]"
        return self.low < value < self.high

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number of the interval, or within 1 of its only end."""
        low = self.low
        if low == -math.inf:
            low = min(self.high, 1.0) - 1.0
        high = self.high
        if high == math.inf:
            high = low + 1.0
        return float(rng.uniform(low, high))

    def __str__(self) -> str:
        if self.low == -math.inf:
            text = self.noun
        elif self.high < math.inf:
            left, right = self.ends
            text = f"{self.noun} in {left}{self.low:g}, {self.high:g}{right}"
        elif self.ends[0] == "[":
            text = f"a finite number of at least {self.low:g}"
        else:
            text = "a positive finite number"
        return f"{text}, in {self.unit}" if self.unit else text


def check_constraints(
    constraints: Mapping[str, Constraint | None], parameters: Mapping[str, object]
) -> None:
    """Refuse the first parameter that breaks its rule.

    Parameters
    ----------
    constraints : mapping of str to Constraint or None
        By names of parameters. A parameter without a rule may have any value.
    parameters : mapping of str to object

    Raises
    ------
    ValueError
        If a value breaks its rule, or is a float of another precision than 64 bits. The
        message has the name, the value and the rule.

    Examples
    --------
    >>> check_constraints({"n_init": Integer(1)}, {"n_init": 0})
    Traceback (most recent call last):
    ...
    ValueError: n_init=0 must be an integer of at least 1
    """
    for name, value in parameters.items():
        rule = constraints.get(name)
        # Costs and scales would be computed in a parameter's own precision.
        if isinstance(value, np.floating) and not isinstance(value, float):
            raise ValueError(f"{name}={value!r} must have 64 bits: give float({name})")
        if rule is not None and not rule.allows(value):
            raise ValueError(rule.refuse(name, value))


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Parameters(BaseEstimator):
    """An estimator whose parameters are the fields that its class declares.

    A subclass that declares fields becomes a dataclass. Its fields are keyword
    parameters of its constructor. The fields here are no parameters until a subclass
    declares them.
    """

    #: Rule on the value of each parameter; None if code has it, as it has rules on
    #: combinations. A class declares those of its own parameters: inherited ones, and
    #: that of `variant` by `claims`, are added.
    constraints: ClassVar[dict[str, Constraint | None]] = {}

    epsilon: float = math.inf
    delta: float | Literal["auto"] = "auto"
    variant: str = "sound"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if get_annotations(cls):
            dataclass(eq=False, repr=False, kw_only=True)(cls)
        cls._own_constraints = vars(cls).get("constraints", {})
        cls.constraints = {"variant": OneOf(*getattr(cls, "claims", ()))}
        # Of two bases, the rule of the first counts that declares it.
        for base in reversed(cls.__mro__):
            declared = vars(base).get("constraints", {})  # of a mixin that is no method
            cls.constraints |= vars(base).get("_own_constraints", declared)

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """Read them from the constructor once: scikit-learn does for every copy."""
        return super()._get_param_names()

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of the constructor's parameters, in alphabetical order."""
        return {name: getattr(self, name) for name in self._get_param_names()}

    def check_values(self) -> None:
        """Refuse the first value that breaks its rule; see `check_constraints`."""
        check_constraints(self.constraints, self.parameters)
