"""Records of a data set that serve as public data.

A study has no public data: a part of the records is treated as public, and the method
protects the others. The choice depends on the data set alone, so that all cells of a
data set share it. Costs are over all records, as for methods without public data.
"""

from dataclasses import replace

import numpy as np

from pkm.compute import SCALE, middle_and_half_width
from pkm.experiments.fit.inputs import PreparedData

#: Share of the records that is public.
PUBLIC_SHARE = 1 / 20
#: Odds of a record of the upper half against one of the other, for shifted public data.
SHIFT_ODDS = 9.0
SELECTION_SEED = 20250605


def choose_public(rows: np.ndarray, kind: str) -> np.ndarray:
    """Choose the records that are public.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    kind : {"same", "shifted"}
        ``same``: at random. ``shifted``: nine of ten, roughly, from the half of the
        records above the median of the column with the largest variance.

    Returns
    -------
    ndarray of shape (n,), bool

    Examples
    --------
    >>> rows = np.arange(4000.0)[:, None]
    >>> upper = np.arange(4000) >= 2000
    >>> [int(choose_public(rows, kind).sum()) for kind in ("same", "shifted")]
    [200, 200]
    >>> int(choose_public(rows, "shifted")[upper].sum()) > 150
    True
    """
    n = len(rows)
    weights = np.ones(n)
    if kind == "shifted":
        column = rows[:, rows.var(axis=0).argmax()]
        weights[column > np.median(column)] = SHIFT_ODDS
    generator = np.random.default_rng(SELECTION_SEED)
    odds = weights / weights.sum()
    indices = generator.choice(n, round(PUBLIC_SHARE * n), replace=False, p=odds)
    is_public = np.zeros(n, bool)
    is_public[indices] = True
    return is_public


def separate_public(
    prepared: PreparedData, kind: str
) -> tuple[PreparedData, np.ndarray]:
    """Split a data set into the method's private records and the public ones.

    Parameters
    ----------
    prepared : PreparedData
    kind : {"same", "shifted"}

    Returns
    -------
    private : PreparedData
        The private records for the method; metrics still see all points.
    public : ndarray of shape (m, d), float64
        The public records in raw units, rounded to the method's grid.
    """
    method_points = prepared.method_points
    is_public = choose_public(method_points.rows.astype(np.float64), kind)
    remainders = method_points.remainders
    rest = replace(
        method_points,
        rows=method_points.rows[~is_public],
        squared_norms=method_points.squared_norms[~is_public],
        remainders=None if remainders is None else remainders[~is_public],
    )
    middle, half_width = middle_and_half_width(*prepared.method_domain)
    public = method_points.rows[is_public].astype(np.float64) / SCALE
    return replace(prepared, method_points=rest), public * half_width + middle
