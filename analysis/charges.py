"""Charges of stored runs as a table: the only reader of the text that the rows keep them as."""

import json
import math

import pandas as pd

#: Columns that every charge has, with their value where a stored charge does not name them.
FIELDS = {
    "mechanism": "",
    "label": "",
    "round": 0,
    "mu": 0.0,
    "epsilon": 0.0,
    "delta": 0.0,
    "group": math.nan,
    "flaw": "",
}


def charges_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Read the charges of stored runs.

    Parameters
    ----------
    rows : DataFrame
        With a column `charges` (JSON text; empty for runs without a ledger) and a unique index.

    Returns
    -------
    DataFrame
        One line per charge, in the order of the releases, with the columns `FIELDS` and one for
        every detail, such as `count_scale` (NaN for charges without it). The index is that of the
        run in `rows`, so the charges of one run share it; runs without charges are not in it.

    Examples
    --------
    >>> text = '[{"mechanism": "gaussian", "label": "counts", "round": 0, "mu": 0.5, "scale": 2.0}]'
    >>> rows = pd.DataFrame({"n": [150, 178], "charges": ["[]", text]})
    >>> charges_of(rows)[["label", "mu", "epsilon", "scale"]]
        label   mu  epsilon  scale
    1  counts  0.5      0.0    2.0
    """
    index = []
    charges = []
    for run, text in rows["charges"].items():
        parsed = json.loads(text or "[]")
        index += [run] * len(parsed)
        charges += [FIELDS | charge for charge in parsed]
    return pd.DataFrame(
        charges,
        index=pd.Index(index, dtype=rows.index.dtype),
        columns=None if charges else list(FIELDS),
    )
