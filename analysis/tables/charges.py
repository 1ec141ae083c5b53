"""Charges of stored runs as a table: the only reader of the column that holds them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pkm.arrow import CHARGE_DEFAULTS, TYPES

#: Columns that every charge has.
FIELDS = tuple(CHARGE_DEFAULTS)


def read_charges(rows: pd.DataFrame) -> pd.DataFrame:
    """Read the charges of stored runs.

    Parameters
    ----------
    rows : DataFrame
        With the column `charges` (see `pkm.arrow`) and a unique index.

    Returns
    -------
    DataFrame
        One line per charge, in the order of the releases, with the columns `FIELDS` and
        one for every detail, such as `count_scale` (NaN for charges without it). The
        index is that of the run in `rows`, so the charges of one run share it; runs
        without charges are not in it.

    Examples
    --------
    >>> from pkm.arrow import make_nested
    >>> charge = {"mechanism": "gaussian", "label": "counts", "mu": 0.5, "scale": 2.0}
    >>> charges = make_nested("charges", [[], [charge]])
    >>> rows = pd.DataFrame({"n": [150, 178], "charges": charges})
    >>> read_charges(rows)[["label", "mu", "epsilon", "scale"]]
        label   mu  epsilon  scale
    1  counts  0.5      0.0    2.0
    """
    column = pa.array(rows["charges"], type=TYPES["charges"])
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    charges = pc.list_flatten(lists)
    values = {name: pc.struct_field(charges, name).to_pandas() for name in FIELDS}

    # A column for every detail, in the order of their first appearance.
    details = pc.struct_field(charges, "details")
    charge = pc.list_parent_indices(details).to_numpy()
    detail = pc.list_flatten(details)
    detail_names = pc.struct_field(detail, "name").to_pandas()
    detail_values = pc.struct_field(detail, "value").to_numpy(zero_copy_only=False)
    for name in detail_names.unique():
        mask = (detail_names == name).to_numpy()
        values[name] = np.full(len(charges), np.nan)
        values[name][charge[mask]] = detail_values[mask]

    run = pc.list_parent_indices(lists).to_numpy()
    return pd.DataFrame(values).set_axis(rows.index[run])
