"""The settings in which rows differ, as columns of their own."""

import pandas as pd

from pkm.arrow import read_parameters
from pkm.schema import names

#: Columns that every table of results shows.
ALWAYS_SHOWN = ("method", "target", "dataset", "n", "d", "k", "epsilon")
#: Settings that follow from the others and the data.
DERIVED = ("iterations", "half_width", "largest_client", "exact")


def varying_settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the settings in which some rows differ.

    `ALWAYS_SHOWN` and `DERIVED` are left out.

    Parameters
    ----------
    rows : DataFrame
        As stored, one per seed.

    Returns
    -------
    DataFrame
        With the index of `rows`: a column for every parameter of the method, then for
        every other setting, that has more than one value. None where a method has no
        such parameter.

    Examples
    --------
    >>> from pkm.arrow import make_nested
    >>> params = make_nested("params", [{"alpha": 0.4}, {"alpha": 0.8}])
    >>> columns = {"params": params, "preprocessing": "minmax", "clients": [2, 2]}
    >>> varying_settings(pd.DataFrame(columns))
      alpha
    0   0.4
    1   0.8
    """
    parameters = parameter_columns(rows)
    settings = [
        name
        for name in names("identity", "setting")
        if name in rows and name not in (*ALWAYS_SHOWN, *DERIVED, "params")
    ]
    columns = parameters.join(rows[settings])
    varied = [name for name in columns if columns[name].astype(str).nunique() > 1]
    return columns[varied]


def parameter_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the parameters of rows, a column for each, with the index of `rows`.

    None where a method has no such parameter.
    """
    parameters = read_parameters(rows)
    columns = dict.fromkeys(name for row in parameters for name in row)
    values = {name: [row.get(name) for row in parameters] for name in columns}
    return pd.DataFrame(values, rows.index, dtype=object)
