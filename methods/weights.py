"""Weights of rows: of given weights, and of persons who have several rows."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import SCALE
from pkm.compute.storage.persons import make_type_error
from pkm.compute.storage.points import RowWeights, multiply_units


def weigh_rows(
    n_rows: int,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    max_weight: float = 1.0,
) -> RowWeights | None:
    """Weight of every row, rounded down to a multiple of 2**-16 records.

    A row of a person with m rows weighs 1 / m of a record. What the rows add to a sum
    is then an average of what single records add: bounds on norms of one record hold
    for the person. Given weights are divided by their public bound.

    Parameters
    ----------
    n_rows : int
    groups : array-like of shape (n,), optional
        Person of every row: integers or texts. A null is a person of one row. Rows of a
        person with more than 2**16 rows weigh nothing.
    sample_weight : array-like of shape (n,), optional
        Clipped to the interval from 0 to the bound; NaN is 0.
    max_weight : float, default=1.0
        Public bound of the weights, positive.

    Returns
    -------
    RowWeights or None
        None without groups and weights.

    Raises
    ------
    ValueError
        If there are not n ids or n weights, ids are floats, or weights no numbers.

    Examples
    --------
    >>> weights = weigh_rows(4, ["ann", "bob", "ann", None])
    >>> (weights.units / SCALE).tolist(), weights.n_persons
    ([0.5, 1.0, 0.5, 1.0], 3)
    >>> (weigh_rows(2, sample_weight=[1, 4], max_weight=4).units / SCALE).tolist()
    [0.25, 1.0]
    """
    if groups is None and sample_weight is None:
        return None
    units = np.full(n_rows, SCALE, np.int32)
    n_persons = 0
    if groups is not None:
        codes, sizes = _number_persons(groups, n_rows)
        has_person = codes >= 0
        # Rounded down: all rows of a person together weigh one record at most.
        units[has_person] = SCALE // sizes[codes[has_person]]
        n_persons = len(sizes) + n_rows - int(has_person.sum())
    if sample_weight is not None:
        given_units = _read_units(sample_weight, n_rows, max_weight)
        units = multiply_units(units, given_units)
    return RowWeights(units, n_persons)


def _number_persons(groups: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Number the persons; return that of every row, -1 for a null, and their sizes."""
    ids = np.asarray(groups)
    if ids.dtype.kind in "fU" and not isinstance(groups, np.ndarray):
        # Of a list or a frame with nulls: integers become floats, and NaN a text.
        ids = np.asarray(groups, dtype=object)
    if ids.shape != (n_rows,):
        raise ValueError(
            f"groups has {len(ids)} ids for {n_rows} rows: give one for each row"
        )
    if ids.dtype.kind != "O":
        _refuse_float(ids.dtype.type)
        _, codes = np.unique(ids, return_inverse=True)
        return codes, np.bincount(codes)
    # One by one: texts and nulls cannot be sorted together, as np.unique would.
    numbers: dict[Any, int] = {}
    codes = np.full(n_rows, -1)
    for row, person in enumerate(ids):
        if not _is_null(person):
            _refuse_float(type(person))
            codes[row] = numbers.setdefault(person, len(numbers))
    return codes, np.bincount(codes[codes >= 0])


def _is_null(person: Any) -> bool:
    """Tell None, NaN, and nulls of pandas from other values."""
    is_nan = isinstance(person, float) and np.isnan(person)
    return person is None or is_nan or type(person).__name__ in ("NAType", "NaTType")


def _refuse_float(kind: type) -> None:
    if issubclass(kind, float | np.floating):
        raise make_type_error("groups", kind.__name__)


def _read_units(
    sample_weight: ArrayLike,
    n_rows: int,
    max_weight: float,
) -> np.ndarray:
    """Weights over their bound, in units of 2**-16 records, int32."""
    weights = np.asarray(sample_weight)
    if weights.shape != (n_rows,) or weights.dtype.kind not in "biuf":
        raise ValueError(
            f"sample_weight must be {n_rows} numbers, one for each row, got "
            f"{weights.dtype} of shape {weights.shape}"
        )
    if not (np.isfinite(max_weight) and max_weight > 0):
        raise ValueError(f"max_weight={max_weight!r} must be positive and finite")
    shares = weights / max_weight
    # NaN passes the clip, and becomes 0 after it.
    return (SCALE * np.nan_to_num(np.clip(shares, 0.0, 1.0))).astype(np.int32)
