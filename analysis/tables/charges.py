"""Charges of stored runs as a table: the only reader of the column that holds them."""

from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pkm.arrow import CHARGE_DEFAULTS, TYPES


def read_charges(rows: pd.DataFrame) -> pd.DataFrame:
    """Read the charges of stored runs.

    Parameters
    ----------
    rows : DataFrame
        With the column `charges` (see `pkm.arrow`) and a unique index.

    Returns
    -------
    DataFrame
        One line per charge, in the order of the releases, with the columns that every
        charge has and one for every detail, such as `count_scale` (NaN for charges
        without it). The index is that of the run in `rows`, so the charges of one run
        share it; runs without charges are not in it.

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
    lists = pa.array(rows["charges"], type=TYPES["charges"])
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    charges = flatten(lists, list(CHARGE_DEFAULTS))

    # A column for every detail, in the order of their first appearance.
    details = pc.struct_field(pc.list_flatten(lists), "details")
    details = flatten(details, ["name", "value"])
    wide = details.pivot(columns="name", values="value")
    names = details["name"].unique()
    index = rows.index[charges.index]
    charges = charges.reset_index(drop=True)
    charges = charges.join(wide[names])
    return charges.set_axis(index)


def flatten(
    lists: pa.Array,
    fields: Sequence[str],
) -> pd.DataFrame:
    """Return the records of an array of lists; the index says in which list one is."""
    structs = pc.list_flatten(lists)
    records = pa.Table.from_struct_array(structs).select(fields)
    places = pc.list_parent_indices(lists)
    return records.to_pandas().set_axis(places.to_numpy())
