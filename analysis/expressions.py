"""Statistics as expressions: what a claim says of all compared means together.

Functions of a number of every case, given as an array of shape (lines, cases), and of a condition
on the cases: `largest`, `smallest`, `median` and `mean`. Without a condition there must be two
cases, with one some case that meets it. ``first(epsilon, value < 2, left == 'lloyd')`` is the
smallest epsilon at which the second argument holds among the cases that meet the third.
"""

from collections.abc import Callable, Mapping

import numpy as np

from pkm.analysis.findings import MissingRows


def evaluated(statistic: str, values: Mapping[str, object]) -> np.ndarray:
    """Evaluate an expression, as `where` and `rule` the project's own, in values by their names.

    Raises
    ------
    MissingRows
        If cases that it reduces to a number are not stored.

    Examples
    --------
    >>> values = {"value": np.array([[1.0, 4.0]]), "k": np.array([2, 3])}
    >>> evaluated("largest(value) / mean(value, k == 2)", values)
    array([4.])
    """
    functions = {
        "largest": _reduced(np.max, statistic),
        "smallest": _reduced(np.min, statistic),
        "median": _reduced(np.median, statistic),
        "mean": _reduced(np.mean, statistic),
        "abs": np.abs,
        "exp": np.exp,
        "log": np.log,
        "ends_with": np.char.endswith,
        "first": _first,
    }
    return eval(statistic, {"__builtins__": {}}, functions | dict(values))


def _first(column: np.ndarray, holds: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Smallest value of a column among the cases `where` something holds, infinite if nowhere."""
    if not where.any():
        raise MissingRows("none of the cases is stored in which something is first")
    return np.where(holds & where, column.astype(float), np.inf).min(axis=1)


def _reduced(reduce: Callable, statistic: str) -> Callable:
    def function(numbers: np.ndarray, where: np.ndarray | None = None) -> np.ndarray:
        if where is None and numbers.shape[1] < 2:
            raise MissingRows("only one case is stored")
        chosen = numbers if where is None else numbers[:, where]
        if not chosen.shape[1]:
            raise MissingRows(f"a case is not stored that {statistic} needs")
        return reduce(chosen, axis=1)

    return function
