"""Classes of methods and the parameters that configurations may set."""

import inspect
from functools import cache

from pkm.methods import load_method

#: Constructor parameters that no configuration sets: fields of the cell, and those that
#: only `fit` uses.
RESERVED_PARAMETERS = (
    "n_clusters",
    "max_clusters",
    "epsilon",
    "delta",
    "bounds",
    "clip",
    "random_state",
    "secure",
    "missing",
)


@cache
def get_method_class(target: str) -> type:
    """Find a method's class, once per process; see `methods.load_method`."""
    return load_method(target)


@cache
def get_defaults(target: str) -> dict:
    """Return the defaults of a method's constructor, by parameter.

    Raises
    ------
    ValueError
        If the method cannot be found.
    """
    signature = inspect.signature(get_method_class(target)).parameters
    return {
        name: parameter.default
        for name, parameter in signature.items()
        if parameter.default is not inspect.Parameter.empty
    }


@cache
def get_parameter_names(target: str) -> tuple[str, ...]:
    """Return the names of a method's constructor parameters.

    Raises
    ------
    ValueError
        If the method cannot be found.
    """
    return tuple(inspect.signature(get_method_class(target)).parameters)


def accepts_parameter(target: str, parameter: str) -> bool:
    """Tell whether a method's constructor has a parameter of that name."""
    return parameter in get_parameter_names(target)
