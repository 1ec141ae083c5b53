"""The settings in which rows differ, as columns of their own."""

import json

import pandas as pd

from pkm.schema import names

#: Columns that every table of results has anyway, and what a cell has as a result of its settings.
SHOWN = ("method", "target", "dataset", "n", "d", "k", "epsilon")
FOUND = ("iterations", "half_width", "largest_client", "exact")


def differing(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the settings in which some rows differ.

    Method, data set, k and epsilon are left out: every table of results shows them.

    Parameters
    ----------
    rows : DataFrame
        As stored, one per seed.

    Returns
    -------
    DataFrame
        With the index of `rows`: a column for every parameter of the method, then for every other
        setting, that has more than one value. None where a method has no such parameter.

    Examples
    --------
    >>> params = ['{"alpha":0.4}', '{"alpha":0.8}']
    >>> rows = pd.DataFrame({"params": params, "preprocessing": "minmax", "clients": [2, 2]})
    >>> differing(rows)
      alpha
    0   0.4
    1   0.8
    """
    parsed = {text: json.loads(text) for text in rows["params"].unique()}
    columns = {}
    for name in dict.fromkeys(name for params in parsed.values() for name in params):
        columns[name] = pd.Series(
            [parsed[text].get(name) for text in rows["params"]], rows.index, dtype=object
        )
    for name in names("identity", "setting"):
        if name in rows and name not in (*SHOWN, *FOUND, "params"):
            columns[name] = rows[name]
    varied = {name: values for name, values in columns.items() if values.astype(str).nunique() > 1}
    return pd.DataFrame(varied, rows.index)
