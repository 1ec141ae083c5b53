"""Checks of arguments, whose errors name the argument, its value and the rule."""

import math
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def check_type(
    name: str,
    value: object,
    *expected: type,
) -> None:
    """Refuse an argument of another type; a subclass may override the code.

    Raises
    ------
    TypeError
        Naming the argument.
    """
    if type(value) not in expected:
        article = "a" if len(expected) == 1 else "one of"
        names = ", ".join(known.__name__ for known in expected)
        raise TypeError(f"{name}={value!r} must be {article} {names}, and no subclass")


def freeze_fields(instance: Any) -> None:
    """Replace the fields of a frozen dataclass by :func:`freeze` copies."""
    for field in fields(instance):
        name = field.name
        value = freeze(name, getattr(instance, name))
        object.__setattr__(instance, name, value)


def freeze(name: str, value: Any) -> Any:
    """Copy a public argument, so that it is the same when charged and when used.

    Numbers and arrays become exactly Python's and numpy's types. A subclass could
    change its value between two reads, and so could the owner of an array. Other
    objects are not copied.

    Parameters
    ----------
    name : str
        Name of the argument.
    value : object

    Returns
    -------
    object
        Arrays are read-only copies; lists become tuples.

    Raises
    ------
    TypeError
        If an array holds objects.

    Examples
    --------
    >>> freeze("sizes", [np.int64(2), True])
    (2, True)
    """
    if isinstance(value, np.ndarray):
        copy = np.array(value, copy=True, subok=False)
        if copy.dtype.kind not in "biuf":
            raise TypeError(f"{name}: an array of {copy.dtype} must hold real numbers")
        copy.flags.writeable = False
        return copy
    if isinstance(value, list | tuple):
        return tuple([freeze(name, item) for item in value])
    # Before integers, because a bool is one for Python.
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if isinstance(value, float | np.floating) else value


def check_positive(
    name: str,
    value: float,
    unit: str = "",
) -> None:
    """Refuse a number that is not positive and finite.

    Raises
    ------
    ValueError
        Naming the argument, its value and the rule.

    Examples
    --------
    >>> check_positive("radius", 0.0, ", in half-widths")
    Traceback (most recent call last):
    ValueError: radius=0.0 must be positive and finite, in half-widths
    """
    # NaN is refused, too: every comparison with it is false.
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value} must be positive and finite{unit}")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be True or False")


def check_grid_integers(
    name: str,
    array: np.ndarray,
    shape: Sequence[int | str],
    remedy: str = "",
) -> None:
    """Refuse an array that does not hold grid integers, or is of another shape.

    Parameters
    ----------
    name : str
        Name of the argument.
    array : ndarray
    shape : sequence of int and str
        A letter stands for any length.
    remedy : str, default=""
        End of the message: what to do.

    Raises
    ------
    ValueError
        Naming the argument, its type, its shape and the rule.

    Examples
    --------
    >>> check_grid_integers("origin", np.zeros(3, int), (2,))
    Traceback (most recent call last):
    ValueError: origin must be grid integers of shape (2,), got int64 of shape (3,)
    """
    is_integer = array.dtype.kind in "iu"
    _check_array(name, array, shape, is_integer, "grid integers", remedy)


def check_floats(
    name: str,
    array: np.ndarray,
    shape: Sequence[int | str],
    remedy: str = "",
) -> None:
    """Refuse an array that is not finite float64, or is of another shape.

    Its parameters and errors are those of :func:`check_grid_integers`.

    Examples
    --------
    >>> check_floats("sizes", np.array([1.0, np.nan]), ("m",))
    Traceback (most recent call last):
    ValueError: sizes must be finite float64 of shape (m,), got float64 of shape (2,)
    """
    is_finite = array.dtype == np.float64 and bool(np.isfinite(array).all())
    _check_array(name, array, shape, is_finite, "finite float64", remedy)


def _check_array(
    name: str,
    array: np.ndarray,
    shape: Sequence[int | str],
    is_valid: bool,
    rule: str,
    remedy: str,
) -> None:
    # A letter in the shape stands for any length.
    is_alike = array.ndim == len(shape) and all(
        isinstance(expected, str) or length == expected
        for length, expected in zip(array.shape, shape, strict=True)
    )
    if not (is_valid and is_alike):
        lengths = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(
            f"{name} must be {rule} of shape ({lengths}), got {array.dtype} of shape "
            f"{array.shape}{remedy}"
        )


def are_different_indices(indices: Collection[int], size: int) -> bool:
    """Whether indices are in ``range(size)``, and none occurs twice.

    Examples
    --------
    >>> are_different_indices([2, 0], 3), are_different_indices([2, 2], 3)
    (True, False)
    """
    # A set drops what occurs twice, the intersection what is out of range.
    return len(set(indices).intersection(range(size))) == len(indices)


def check_range(
    name: str,
    numbers: ArrayLike,
    low: float,
    high: float,
    remedy: str = "",
) -> None:
    """Refuse numbers that are not from ``low`` to ``high``, both ends included.

    Raises
    ------
    ValueError
        Naming the argument, its extremes and the rule.

    Examples
    --------
    >>> check_range("slots", [0, 5], 0, 4)
    Traceback (most recent call last):
    ValueError: slots must be from 0 to 4, got 0 to 5
    """
    numbers = np.asarray(numbers)
    # NaN makes both extremes NaN, and is refused as well.
    if numbers.size and not low <= numbers.min() <= numbers.max() <= high:
        raise ValueError(
            f"{name} must be from {low} to {high}, got {numbers.min()} to "
            f"{numbers.max()}{remedy}"
        )
