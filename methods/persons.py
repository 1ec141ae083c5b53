"""Rows of persons: weights by which the rows of each add up to one record at most."""

from typing import Any

import numpy as np
import pandas as pd

from pkm.compute import SCALE


def person_weights(groups: Any, n_rows: int) -> tuple[np.ndarray, int]:
    """Weight of every row by its person, and the number of persons.

    A row of a person with m rows weighs 1 / m of a record, rounded down to a multiple
    of 2**-16. What the rows add to a sum is then an average of what single records add:
    bounds on norms of one record hold for the person.

    Parameters
    ----------
    groups : array-like of shape (n,)
        Person of every row: integers or texts. A null is a person of one row.
    n_rows : int

    Returns
    -------
    weights : ndarray of shape (n,), int32
        In units of 2**-16 records. Rows of a person with more than 2**16 rows weigh
        nothing.
    n_persons : int

    Raises
    ------
    ValueError
        If there are not n ids, or they are floats.

    Examples
    --------
    >>> weights, n_persons = person_weights(["ann", "bob", "ann", None], 4)
    >>> (weights / SCALE).tolist(), n_persons
    ([0.5, 1.0, 0.5, 1.0], 3)
    """
    ids = pd.Series(groups).reset_index(drop=True)
    if len(ids) != n_rows:
        raise ValueError(
            f"groups has {len(ids)} ids for {n_rows} rows: give one for each row"
        )
    if pd.api.types.is_float_dtype(ids.dtype):
        raise ValueError(
            f"groups are of type {ids.dtype}, and persons must be integers or texts: "
            "floats may be rounded, convert them"
        )
    codes, persons = pd.factorize(ids)
    sizes = np.bincount(codes[codes >= 0], minlength=len(persons))
    is_null = codes < 0
    weights = np.full(n_rows, SCALE, np.int32)
    weights[~is_null] = SCALE // sizes[codes[~is_null]]
    return weights, len(persons) + int(is_null.sum())
