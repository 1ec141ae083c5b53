"""Rows as Arrow tables: the types of their columns, what fits them, and nested values.

Parameters of a method, charges of a ledger and the like are nested columns: lists of
records with typed fields, in memory as in files. `nested` makes such a column of plain
values, `parameters_of` and `pkm.analysis.tables.charges` read it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pkm.schema import BY_NAME, Dtype, names

#: A parameter has a value in the one field that is of its type, or in none: then it is
#: None.
PARAMETER = pa.struct(
    [
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("integer", pa.int64()),
        ("number", pa.float64()),
        ("text", pa.string()),
        ("numbers", pa.list_(pa.float64())),
        ("texts", pa.list_(pa.string())),
    ]
)
#: Scales and sensitivities behind a charge, by name.
DETAIL = pa.struct([("name", pa.string()), ("value", pa.float64())])
CHARGE = pa.struct(
    [
        ("mechanism", pa.string()),
        ("label", pa.string()),
        ("round", pa.int64()),
        ("mu", pa.float64()),
        ("epsilon", pa.float64()),
        ("delta", pa.float64()),
        ("group", pa.int64()),
        ("flaw", pa.string()),
        ("details", pa.list_(DETAIL)),
    ]
)
#: State of a model after some of the requests to remove points.
CHECKPOINT = pa.struct(
    [
        ("request", pa.int64()),
        ("accumulated_s", pa.float64()),
        ("retrain_s", pa.float64()),
        ("loss_ratio", pa.float64()),
    ]
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
#: What a charge holds where nothing else is said.
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


def parameter(name: str, value: object) -> dict:
    """Return a parameter as the record that rows hold.

    Examples
    --------
    >>> parameter("alpha", 0.8)
    {'name': 'alpha', 'number': 0.8}
    """
    if value is None:
        return {"name": name}
    if isinstance(value, list | tuple):
        field = "texts" if isinstance(value[0], str) else "numbers"
        return {"name": name, field: list(value)}
    fields = {bool: "flag", int: "integer", float: "number", str: "text"}
    field = next(field for kind, field in fields.items() if isinstance(value, kind))
    return {"name": name, field: value}


def charge(record: Mapping) -> dict:
    """Return a charge, given flat as `pkm.privacy.Charge.to_dict` does, as rows hold it."""
    details = [
        {"name": name, "value": value}
        for name, value in record.items()
        if name not in CHARGE_DEFAULTS
    ]
    own = {name: value for name, value in record.items() if name in CHARGE_DEFAULTS}
    return CHARGE_DEFAULTS | own | {"details": details}


def nested(name: str, values: Iterable) -> pd.api.extensions.ExtensionArray:
    """Return a nested column made of plain values.

    Parameters
    ----------
    name : str
        Of the column.
    values : iterable
        One value for each row: of `params` a mapping, of `charges` a list of flat
        records, of other columns lists.

    Examples
    --------
    >>> rows = pd.DataFrame({"params": nested("params", [{"alpha": 0.8}, {}])})
    >>> parameters_of(rows)
    [{'alpha': 0.8}, {}]
    """
    dtype = BY_NAME[name].dtype
    if dtype == "parameters":
        values = [[parameter(*item) for item in value.items()] for value in values]
    elif dtype == "charges":
        values = [[charge(record) for record in value] for value in values]
    array = pa.array(list(values), type=TYPES[dtype])
    return pd.arrays.ArrowExtensionArray(pa.chunked_array([array]))


def parameters_of(rows: pd.DataFrame) -> list[dict]:
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
    return [
        {record["name"]: parameter_value(record) for record in records or ()}
        for records in column.to_pylist()
    ]


def parameter_value(record: Mapping) -> object:
    """Return the value of a parameter from the record that rows hold."""
    given = (
        value for name, value in record.items() if name != "name" and value is not None
    )
    return next(given, None)


def to_table(rows: pd.DataFrame) -> pa.Table:
    """Turn rows into a table with the types of their columns; None is null.

    Raises
    ------
    ValueError
        If a column is unknown, or a value has another type; the message names the
        column.
    """
    arrays = []
    for name, values in rows.items():
        if name not in BY_NAME:
            raise ValueError(f"column {name!r} is not declared in pkm.schema")
        dtype = BY_NAME[name].dtype
        # `to_frame` writes a null integer as NaN; of numbers, NaN stays NaN.
        is_null = dtype == "integer" and isinstance(BY_NAME[name].missing, float)
        try:
            is_array = isinstance(values.dtype, np.dtype | pd.ArrowDtype)
            plain = values.array if is_array else values.to_numpy(object)
            arrays.append(pa.array(plain, type=TYPES[dtype], from_pandas=is_null))
        except (pa.ArrowException, TypeError) as error:
            first = values.iloc[0]
            raise ValueError(
                f"column {name!r} must hold {dtype}: {first} ({error})"
            ) from error
    return pa.table(dict(zip(rows.columns, arrays, strict=True)))


def check(table: pa.Table, required: Collection[str] = ()) -> None:
    """Refuse a table whose columns are unknown, of other types than declared, or missing.

    Raises
    ------
    ValueError
        Naming the first such column.
    """
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    for name in required:
        if name not in types:
            raise ValueError(f"column {name!r} is missing")
    for name, kind in types.items():
        if name not in BY_NAME:
            raise ValueError(f"column {name!r} is not declared in pkm.schema")
        expected = TYPES[BY_NAME[name].dtype]
        if kind != expected:
            raise ValueError(f"column {name!r} holds {kind}, not {expected}")


def to_frame(
    tables: Sequence[pa.Table], columns: Sequence[str] | None = None
) -> pd.DataFrame:
    """Concatenate tables to rows.

    Parameters
    ----------
    tables : sequence of Table
        That `check` accepts.
    columns : sequence of str, optional
        The columns of the result; by default all that are there, and every setting.

    Returns
    -------
    DataFrame
        Where a table lacks a column, its rows have the column's missing value.
    """
    table = pa.concat_tables(tables, promote_options="permissive")
    if columns is None:
        optional = [
            name
            for name in names("setting", "style")
            if BY_NAME[name].missing is not None
        ]
        columns = list(dict.fromkeys([*table.column_names, *optional]))
    values = {}
    for name in columns:
        column = BY_NAME[name]
        kind = TYPES[column.dtype]
        if name not in table.column_names:
            values[name] = None if pa.types.is_nested(kind) else column.missing
        elif pa.types.is_nested(kind):
            # In one piece: rows are taken from many pieces slowly.
            values[name] = pd.arrays.ArrowExtensionArray(
                table[name].combine_chunks().cast(kind)
            )
        elif table[name].null_count and isinstance(column.missing, str | int):
            values[name] = pc.fill_null(table[name], column.missing).to_pandas()
        else:
            values[name] = table[name].to_pandas()
    return pd.DataFrame(values, index=range(table.num_rows))
