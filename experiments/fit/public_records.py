"""Records of a data set that take the part of public data.

A study has no public data of its own: a part of the records is taken for public, and
the method protects the others. Which records these are depends on the data set alone,
so that all cells of a data set share them. Costs are over all records, like those of
the methods without public data.
"""

from dataclasses import replace

import numpy as np

from pkm.compute import SCALE, middle_and_half_width
from pkm.experiments.fit.inputs import Prepared

SHARE = 1 / 20  # of the records
#: Of a record of one half against one of the other, where public data are shifted.
ODDS = 9.0
SEED = 20250605


def chosen(rows: np.ndarray, kind: str) -> np.ndarray:
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
    >>> [int(chosen(rows, kind).sum()) for kind in ("same", "shifted")]
    [200, 200]
    >>> int(chosen(rows, "shifted")[upper].sum()) > 150
    True
    """
    n = len(rows)
    weights = np.ones(n)
    if kind == "shifted":
        column = rows[:, rows.var(axis=0).argmax()]
        weights[column > np.median(column)] = ODDS
    generator = np.random.default_rng(SEED)
    indices = generator.choice(
        n,
        round(SHARE * n),
        replace=False,
        p=weights / weights.sum(),
    )
    is_public = np.zeros(n, bool)
    is_public[indices] = True
    return is_public


def separated(prepared: Prepared, kind: str) -> tuple[Prepared, np.ndarray]:
    """Take the public records out of what a method gets.

    Parameters
    ----------
    prepared : Prepared
    kind : {"same", "shifted"}

    Returns
    -------
    private : Prepared
        With the other records for the method; the points that metrics see are still
        all.
    public : ndarray of shape (m, d), float64
        In raw units, as fine as the method's grid.
    """
    wide = prepared.wide
    is_public = chosen(wide.rows.astype(np.float64), kind)
    rest = replace(
        wide,
        rows=wide.rows[~is_public],
        squared_norms=wide.squared_norms[~is_public],
        remainders=None if wide.remainders is None else wide.remainders[~is_public],
    )
    middle, half_width = middle_and_half_width(*prepared.wide_domain)
    public = wide.rows[is_public].astype(np.float64) / SCALE * half_width + middle
    return replace(prepared, wide=rest), public
