"""Rows as Arrow tables: the types of their columns, checks, nested values.

Parameters of a method, charges of a ledger and the like are nested columns: lists of
records with typed fields, in memory as in files. `make_nested` makes such a column of
plain values; `read_parameters` and `pkm.analysis.tables.charges` read it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from pkm.schema import BY_NAME, Column, Dtype, names

#: A parameter has a value in the field of its type; it is None if all fields are null.
PARAMETER = pa.struct(
    {
        "name": "string",
        "flag": "bool",
        "integer": "int64",
        "number": "float64",
        "text": "string",
        "numbers": pa.list_(pa.float64()),
        "texts": pa.list_(pa.string()),
    }
)
#: A scale or sensitivity from which a charge was computed.
DETAIL = pa.struct({"name": "string", "value": "float64"})
CHARGE = pa.struct(
    {
        "mechanism": "string",
        "label": "string",
        "round": "int64",
        "mu": "float64",
        "epsilon": "float64",
        "delta": "float64",
        "group": "int64",
        "flaw": "string",
        "details": pa.list_(DETAIL),
    }
)
#: State of a model after some of the requests to remove points.
CHECKPOINT = pa.struct(
    {
        "request": "int64",
        "accumulated_s": "float64",
        "retrain_s": "float64",
        "loss_ratio": "float64",
    }
)
TYPES: dict[Dtype, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "flag": pa.bool_(),
    "integers": pa.list_(pa.int64()),
    "parameters": pa.list_(PARAMETER),
    "charges": pa.list_(CHARGE),
    "checkpoints": pa.list_(CHECKPOINT),
    "centers": pa.list_(pa.list_(pa.float64())),
}
#: Default values of the fields of a charge.
CHARGE_DEFAULTS = {
    "mechanism": "",
    "label": "",
    "round": 0,
    "mu": 0.0,
    "epsilon": 0.0,
    "delta": 0.0,
    "group": None,
    "flaw": "",
}


def make_parameter(name: str, value: object) -> dict:
    """Return a parameter as the record that rows hold.

    Examples
    --------
    >>> make_parameter("alpha", 0.8)
    {'name': 'alpha', 'number': 0.8}
    """
    record = {"name": name}
    # A bool is an int as well, and comes first.
    fields = {bool: "flag", int: "integer", float: "number", str: "text"}
    if isinstance(value, list | tuple):
        is_text = isinstance(value[0], str)
        record["texts" if is_text else "numbers"] = list(value)
    elif value is not None:
        field = next(fields[known] for known in fields if isinstance(value, known))
        record[field] = value
    return record


def make_charge(record: Mapping) -> dict:
    """Return a charge, flat as `pkm.privacy.Charge.to_dict` has it, as rows hold it."""
    stored = CHARGE_DEFAULTS | {"details": []}
    for name, value in record.items():
        if name in CHARGE_DEFAULTS:
            stored[name] = value
        else:
            stored["details"].append({"name": name, "value": value})
    return stored


def make_nested(
    name: str,
    values: Iterable,
) -> pd.api.extensions.ExtensionArray:
    """Return a nested column made of plain values.

    Parameters
    ----------
    name : str
        Name of the column.
    values : iterable
        One value for each row: a mapping for `params`, a list of flat records for
        `charges`, a list for other columns.

    Examples
    --------
    >>> rows = pd.DataFrame({"params": make_nested("params", [{"alpha": 0.8}, {}])})
    >>> read_parameters(rows)
    [{'alpha': 0.8}, {}]
    """
    dtype = BY_NAME[name].dtype
    if dtype == "parameters":
        values = [[make_parameter(*item) for item in value.items()] for value in values]
    elif dtype == "charges":
        values = [[make_charge(record) for record in value] for value in values]
    array = pa.array(list(values), type=TYPES[dtype])
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([array]))


def read_parameters(rows: pd.DataFrame) -> list[dict]:
    """Read the parameters of rows.

    Parameters
    ----------
    rows : DataFrame
        With the column `params`.

    Returns
    -------
    list of dict
        One for each row, names in their stored order.
    """
    column = pa.chunked_array(pa.array(rows["params"], type=TYPES["parameters"]))
    parameters = []
    for records in column.to_pylist():
        values = {}
        for record in records or ():
            name = record.pop("name")
            present = [value for value in record.values() if value is not None]
            values[name] = present[0] if present else None
        parameters.append(values)
    return parameters


def to_table(rows: pd.DataFrame) -> pa.Table:
    """Turn rows into a table with the types of their columns; None is null.

    Raises
    ------
    ValueError
        If a column is unknown, or a value has another type; the message names the
        column.
    """
    arrays = {}
    for name, values in rows.items():
        column = _find_column(name)
        # `to_frame` reads a null integer as NaN, which is null again here. NaN among
        # numbers stays NaN.
        is_null = column.dtype == "integer" and isinstance(column.fill_value, float)
        try:
            is_array = isinstance(values.dtype, np.dtype | pd.ArrowDtype)
            plain = values.array if is_array else values.to_numpy(object)
            arrow_type = TYPES[column.dtype]
            arrays[name] = pa.array(plain, type=arrow_type, from_pandas=is_null)
        except (pa.ArrowException, TypeError) as error:
            first = values.iloc[0]
            raise ValueError(
                f"column {name!r} must hold {column.dtype}: {first} ({error})"
            ) from error
    return pa.table(arrays)


def _find_column(name: str) -> Column:
    if name not in BY_NAME:
        raise ValueError(f"column {name!r} is not declared in pkm.schema")
    return BY_NAME[name]


def check_table(table: pa.Table, required: Collection[str] = ()) -> None:
    """Refuse a table whose columns are unknown, missing, or of other types.

    Raises
    ------
    ValueError
        Naming the first such column.
    """
    for name in required:
        if name not in table.schema.names:
            raise ValueError(f"column {name!r} is missing")
    for field in table.schema:
        expected = TYPES[_find_column(field.name).dtype]
        if field.type != expected:
            raise ValueError(
                f"column {field.name!r} holds {field.type}, not {expected}"
            )


def to_frame(
    tables: Sequence[pa.Table], columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Concatenate tables to rows.

    Parameters
    ----------
    tables : sequence of Table
        Tables that `check_table` accepts.
    columns : sequence of str, optional
        The columns of the result. By default these are the columns of the tables, and
        all of settings and style that have a fill value.

    Returns
    -------
    DataFrame
        Where a table lacks a column, its rows have the column's fill value.
    """
    table = pa.concat_tables(tables, promote_options="permissive")
    if columns is None:
        settings = names("setting", "style")
        optional = [name for name in settings if BY_NAME[name].fill_value is not None]
        columns = list(dict.fromkeys([*table.column_names, *optional]))
    values = {}
    for name in columns:
        column = BY_NAME[name]
        arrow_type = TYPES[column.dtype]
        is_nested = pa.types.is_nested(arrow_type)
        if name not in table.column_names:
            values[name] = None if is_nested else column.fill_value
            continue
        stored = table[name]
        if is_nested:
            # In one piece: rows are taken from many pieces slowly.
            whole = stored.combine_chunks().cast(arrow_type)
            values[name] = pd.arrays.ArrowExtensionArray(whole)
            continue
        if isinstance(column.fill_value, str | int):
            stored = stored.fill_null(column.fill_value)
        values[name] = stored.to_pandas()
    return pd.DataFrame(values, index=range(table.num_rows))
