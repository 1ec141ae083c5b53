"""Tests whether values are numbers; a bool is not."""

import math
import numbers
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a real number; a bool is not."""
    # The check by an abstract class takes twenty times as long.
    if type(value) is float:
        return True
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Tell whether a value is an integer; a bool is not."""
    if type(value) is int:
        return True
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_positive(value: object) -> TypeGuard[float]:
    """Tell whether a value is a positive finite number."""
    return is_number(value) and 0 < value < math.inf
