"""The schema of a user's table: columns of all kinds on one public scale, and back."""

import inspect
import math
import re
import warnings
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin

from pkm.datasets.user_columns import KINDS, LENGTH, Column, read_cells
from pkm.datasets.user_files import IDENTIFIER
from pkm.names import suggestion
from pkm.yaml_files import read_file

#: Mark of what a draft leaves to a person.
OPEN = "?"
#: Value of `bounds` of a column whose bounds are to be found.
PRIVATE = "private"
#: Patterns of names with types, in small letters: the first that is found is the kind.
KIND_PATTERNS = {
    "flag": r" bool\w*$",
    "latitude": r"\blat(itude)?\b",
    "longitude": r"\b(lon|lng|longitude)\b",
    "cyclic": r"\b(hour|weekday|month)\b",
    "date": r"\b(date|birthday|since)\b| datetime64",
    "integer": r" u?int\d+\S*$",
    "number": r" (float|double|decimal)\S*$",
    "category": "",
}

#: Types of texts.
TEXTS = ("object", "str", "string")
#: Kinds whose cells may have a decimal mark.
NUMERIC = ("number", "cyclic", "latitude", "longitude")

Rules = Mapping[str, Mapping[str, Any]]


class Schema(TransformerMixin, BaseEstimator):
    """Columns of a table on one public scale, by rules that are known without the data.

    A stateless transformer: ``fit`` looks at no data, and ``transform`` maps every cell
    by itself. Every column comes to lie within `bounds`.

    Parameters
    ----------
    columns : dict of str to dict
        Name of a column to its rule, such as ``{"kind": "integer", "low": 18, "high":
        99}``. Other columns of a table are left out.

        ========= ================================ ===================================
        kind      parameters                       in the rows of `inverse_transform`
        ========= ================================ ===================================
        number    low, high, log, asinh, decimal   number
        integer   low, high, log, asinh, decimal   whole number
        ordered   levels                           nearest level
        category  levels                           share of each level, and of `other`
        flag                                       share of those that are true
        date      low, high, format                day
        cyclic    period, decimal                  from 0 to the period
        latitude  low, high, decimal               degrees
        longitude low, high, latitude, decimal     degrees
        ========= ================================ ===================================

        Numbers and dates beyond their bounds are clipped. A number or an integer of
        which nothing is known has ``bounds: private`` instead of low and high: the fit
        finds them, with a tenth of its budget. ``log: true`` or ``asinh:
        true`` is for money and counts. ``decimal`` is ``point`` (default) or ``comma``,
        of numbers that are texts, which may have separators of thousands and a sign of
        money. Hours may be times such as 17:30. ``format`` is one of ``strptime``, such
        as ``%d.%m.%Y``; default: ISO 8601. ``latitude`` names another column; all
        latitudes and longitudes share one scale.

        All kinds take ``weight``, a distance on the scale, 2 at most. Bounds, the first
        and the last level, and opposite points of a circle are 2 apart by default. Two
        categories, and true and false, are 1 apart. The widest range of latitudes or
        longitudes has the length 2.

        A cell that cannot be read, such as a text in the place of a number, is missing.
        An unknown level of a category is `other`.

    Examples
    --------
    >>> schema = Schema({
    ...     "age": {"kind": "integer", "low": 0, "high": 100},
    ...     "plan": {"kind": "category", "levels": ["free", "paid"]},
    ... })
    >>> table = pd.DataFrame({"age": [50, 120], "plan": ["paid", "trial"]})
    >>> schema.set_output(transform="pandas").transform(table).round(2)
       age  plan_free  plan_paid  plan_other
    0  0.0      -0.35       0.35       -0.35
    1  1.0      -0.35      -0.35        0.35
    >>> schema.inverse_transform([[0.1, 0.1, -0.1, -0.36]]).round(2)
       age  plan_free  plan_paid  plan_other
    0   55       0.64       0.36         0.0
    """

    def __init__(self, columns: Rules) -> None:
        self.columns = columns
        # A wrong rule is refused before data are read.
        _make_columns(columns)

    @property
    def bounds(self) -> tuple[float, float] | tuple[list[float], list[float]]:
        """Bounds of the columns of `transform`, for a method.

        One pair of numbers is for all columns. If the fit is to find some bounds, there
        is a pair of lists with a bound for each column: those to be found are infinite.
        """
        upper = [
            math.inf if column.is_open else 1.0
            for column in _make_columns(self.columns).values()
            for _ in column.suffixes
        ]
        if math.inf not in upper:
            return -1.0, 1.0
        return [-end for end in upper], upper

    @classmethod
    def from_yaml(cls, path: str | PathLike) -> Self:
        """Read a schema from a YAML file: a mapping of columns to their rules.

        Raises
        ------
        ValueError
            Naming the file, the column, its wrong parameter and what is right.

        Warns
        -----
        UserWarning
            If a bound has more than four digits, as extremes of data have.
        """
        try:
            schema = cls(read_file(Path(path)))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        precise = [
            repr(name)
            for name, rule in schema.columns.items()
            if rule["kind"] in ("number", "integer")
            if any(_has_many_digits(rule.get(end, 0)) for end in ("low", "high"))
        ]
        if precise:
            warnings.warn(
                f"{path}: bounds of {', '.join(precise)} have many digits, as if they "
                "were looked up in the data: such bounds are not private",
                stacklevel=2,
            )
        return schema

    @staticmethod
    def draft(
        dtypes: Mapping[str, Any],
        decimal: str = "point",
    ) -> dict[str, dict]:
        """Draft the rules of a table from names and types alone.

        Every bound and level is ``?``, which a schema refuses. Replace it by what is
        known without the data: bounds that are looked up in the data are not private.

        Parameters
        ----------
        dtypes : mapping of str to dtype
            Such as ``frame.dtypes``. Columns that are identifiers by their names are
            left out.
        decimal : {"point", "comma"}, default="point"
            Of numbers.

        Returns
        -------
        dict of str to dict

        Examples
        --------
        >>> Schema.draft({"customer_id": "int64", "spent": "float64"})
        {'spent': {'kind': 'number', 'low': '?', 'high': '?'}}
        """
        rules = {}
        for name, dtype in dtypes.items():
            if IDENTIFIER.fullmatch(str(name)):
                continue
            words = f"{name} {dtype}".lower().replace("_", " ")
            kind = next(
                kind
                for kind, pattern in KIND_PATTERNS.items()
                if re.search(pattern, words)
            )
            spec = inspect.getfullargspec(KINDS[kind])
            required = spec.args[: len(spec.args) - len(spec.defaults or ())]
            rules[name] = {"kind": kind, **dict.fromkeys(required, OPEN)}
            # A text was no number with this mark.
            is_text = str(dtype) in TEXTS
            if decimal != "point" and kind in NUMERIC and not is_text:
                rules[name]["decimal"] = decimal
        return rules

    def fit(self, X: object = None, y: object = None) -> Self:
        """Do nothing: the rules are given."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        """Map a table to the scale.

        Parameters
        ----------
        X : DataFrame
            Read it as texts, ``pd.read_csv(path, dtype=str)``: pandas chooses the type
            of a column by all of its rows.

        Returns
        -------
        ndarray of shape (n, d), float64
            Missing cells are NaN.

        Raises
        ------
        ValueError
            If the table lacks a column, or has it twice.
        """
        names = list(getattr(X, "columns", ()))
        blocks = []
        for name, column in _make_columns(self.columns).items():
            count = names.count(name)
            if count != 1:
                hint = suggestion(str(name), map(str, names)) if count == 0 else ""
                raise ValueError(
                    f"X must be a table with one column {name!r}, has {count}{hint}"
                )
            cells: Any = X[name]
            numbers = read_cells(column.read, cells)
            numbers = np.where(np.isinf(numbers), math.nan, numbers)
            blocks.append(column.encode(column.expand(numbers)))
        return np.column_stack(blocks)

    def inverse_transform(self, X: ArrayLike) -> pd.DataFrame:
        """Write places on the scale, such as centers, in the words of the table.

        Parameters
        ----------
        X : array-like of shape (k, d)
            Places beyond the bounds are clipped.

        Returns
        -------
        DataFrame with k rows
            One column for each of the schema, and of a category for each of its levels.
        """
        names = self.get_feature_names_out()
        # pandas refuses another number of columns.
        places = pd.DataFrame(np.asarray(X, np.float64), columns=names)
        rows = iter(places.to_numpy().T)
        blocks = []
        for name, column in _make_columns(self.columns).items():
            places_of_column = [next(rows) for _ in column.suffixes]
            cells = column.write(*column.decode(places_of_column))
            if not isinstance(cells, dict):
                cells = {"": cells}
            block = pd.DataFrame(cells)
            blocks.append(block.add_prefix(str(name)))
        return pd.concat(blocks, axis=1)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Name the columns of ``transform``, as ``plan_free`` and ``hour_cos``."""
        names = [
            f"{name}{suffix}"
            for name, column in _make_columns(self.columns).items()
            for suffix in column.suffixes
        ]
        return np.array(names, dtype=object)


def _make_columns(rules: Rules) -> dict[str, Column]:
    """Make the columns of rules; latitudes and longitudes share one scale."""
    if not isinstance(rules, Mapping) or not rules:
        raise ValueError("a schema must map names of columns to their rules")
    unfinished = [name for name in rules if repr(OPEN) in repr(rules[name])]
    if unfinished:
        raise ValueError(
            f"columns {', '.join(map(repr, unfinished))} have {OPEN!r}: replace it by "
            "bounds and levels that are known without the data"
        )
    columns = {name: _make_column(name, rule) for name, rule in rules.items()}
    widths = _measure_degrees(rules)
    for name, width in widths.items():
        weight = LENGTH * width / max(widths.values())
        columns[name] = _make_column(name, {**rules[name], "weight": weight})
    return columns


def _make_column(
    name: str,
    rule: Mapping[str, Any],
) -> Column:
    parameters = dict(rule) if isinstance(rule, Mapping) else {}
    kind = str(parameters.pop("kind", None))
    if kind not in KINDS:
        hint = suggestion(kind, KINDS)
        raise ValueError(f"column {name!r}: unknown kind {kind!r}{hint}")
    if kind in ("number", "integer") and parameters.get("bounds") == PRIVATE:
        del parameters["bounds"]
        parameters |= {"low": -math.inf, "high": math.inf}
    try:
        return KINDS[kind](**parameters)
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {name!r}: {error}") from None


def _has_many_digits(bound: float) -> bool:
    """Tell whether a number has more digits than a person would choose.

    Examples
    --------
    >>> _has_many_digits(10_000), _has_many_digits(2025), _has_many_digits(9813.22)
    (False, False, True)
    """
    return float(f"{bound:.4g}") != bound


def _measure_degrees(rules: Rules) -> dict[str, float]:
    """Measure the bounds of latitudes and longitudes, in degrees of a great circle.

    A degree east is shorter by the cosine of the middle latitude, which is near enough
    for a city or a country.
    """
    widths = {}
    for name, rule in rules.items():
        if rule["kind"] in ("latitude", "longitude"):
            widths[name] = rule["high"] - rule["low"]
        if rule["kind"] == "longitude":
            partner = rule["latitude"]
            north = rules.get(partner, {})
            if north.get("kind") != "latitude":
                raise ValueError(
                    f"column {name!r}: latitude={partner!r} must be a column of kind "
                    "latitude"
                )
            middle = (north["low"] + north["high"]) / 2
            widths[name] *= math.cos(math.radians(middle))
    return widths
