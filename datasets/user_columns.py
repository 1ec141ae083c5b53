"""Kinds of columns of a user's table: how cells are mapped to a public scale and back.

A cell is read by itself: no other row changes what it means. One that cannot be read is
missing, NaN, so that no row makes a private fit fail.
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import date as Day
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pkm.datasets.delimited import DECIMALS
from pkm.scalars import is_number, is_positive

#: Length of the scale, from -1 to 1: the largest weight of a column.
LENGTH = 2.0
#: Level of all cells that have none of the levels of a category.
OTHER = "other"
#: Texts of a flag, in small letters.
FLAGS = {
    "true": 1.0,
    "yes": 1.0,
    "1": 1.0,
    "false": 0.0,
    "no": 0.0,
    "0": 0.0,
}
#: What may stand before or after a number.
SIGNS = " \u00a0\u202f€$£¥%"
#: Digits in groups of three, as of 1.234 where the decimal mark is a comma.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,'’ \u00a0\u202f]\d{3})+")
EPOCH = Day(1970, 1, 1).toordinal()
ISO_DATE = "%Y-%m-%d"  # and what else `fromisoformat` reads


class Column(NamedTuple):
    """How cells become places on the scale, and places become cells.

    Attributes
    ----------
    read : callable
        From a cell to a number; see `read_cell`.
    encode : callable
        From numbers to places; NaN stays.
    decode : callable
        From places to numbers.
    write : callable
        From m arrays of numbers (k,) to cells (k,), or to several of them by suffixes.
    expand : callable
        From numbers (n,) to what is encoded: these, or (n, m), one for each level of a
        category.
    suffixes : sequence of str
        Added to the name of the column for each of the m.
    is_open : bool
        The bounds of its numbers are infinite: a fit finds them.
    """

    read: Callable[[Any], float]
    encode: Callable[[np.ndarray], np.ndarray]
    decode: Callable[[np.ndarray], np.ndarray]
    write: Callable[..., Any] = np.positive
    expand: Callable[[np.ndarray], np.ndarray] = np.positive
    suffixes: Sequence[str] = ("",)
    is_open: bool = False


def number(
    low: float,
    high: float,
    log: bool = False,
    asinh: bool = False,
    decimal: str = "point",
    weight: float = LENGTH,
) -> Column:
    """Map numbers between bounds, on a stretched scale for money and counts.

    Between minus and plus infinity their places are the numbers on that scale.
    """
    are_numbers = is_number(low) and is_number(high)
    is_open = are_numbers and low == -math.inf and high == math.inf
    if not is_open and not (are_numbers and -math.inf < low < high < math.inf):
        raise ValueError(
            f"low={low!r} must be below high={high!r}, both finite numbers"
        )
    if log and (asinh or low <= 0):
        raise ValueError(f"log: true needs low={low!r} above 0; else take asinh alone")
    if decimal not in DECIMALS:
        raise ValueError(f"decimal={decimal!r} must be {' or '.join(DECIMALS)}")
    if not (is_positive(weight) and weight <= LENGTH):
        raise ValueError(f"weight={weight!r} must be above 0, and {LENGTH:g} at most")
    stretch = shrink = np.positive
    if log:
        stretch, shrink = np.log, np.exp
    elif asinh:
        stretch, shrink = np.arcsinh, np.sinh
    read = partial(_read_number, decimal=decimal)
    if is_open:
        if weight != LENGTH:
            raise ValueError(f"weight={weight!r} needs bounds that are public")
        return Column(read, stretch, shrink, is_open=True)
    ends = stretch([low, high])
    reach = [-weight / 2, weight / 2]
    return Column(
        read,
        lambda numbers: np.interp(stretch(np.clip(numbers, low, high)), ends, reach),
        lambda places: shrink(np.interp(places, reach, ends)),
    )


def integer(
    low: float,
    high: float,
    **options: Any,
) -> Column:
    """Map numbers that are written as whole ones."""
    column = number(low, high, **options)
    return column._replace(
        write=lambda numbers: pd.array(np.round(numbers), dtype="Int64")
    )


def longitude(
    low: float,
    high: float,
    latitude: str,
    **options: Any,
) -> Column:
    """Map degrees east, at a latitude that is another column."""
    return number(low, high, **options)


def date(
    low: str | Day,
    high: str | Day,
    format: str = ISO_DATE,
    **options: Any,
) -> Column:
    """Map days, written in ISO 8601 or a format of `strptime`; times are dropped."""
    first = read_cell(_read_day, low)
    last = read_cell(_read_day, high)
    if not first < last:
        raise ValueError(
            f"low={low!r} must be a date before high={high!r}, such as 2025-12-31"
        )
    read = partial(_read_day, format=format)
    text = Day.fromordinal(int(first)).strftime(format)
    if read_cell(read, text) != first:
        raise ValueError(f"format={format!r} must have a full date, such as %d.%m.%Y")
    column = number(first, last, **options)
    return column._replace(
        read=read,
        write=lambda days: pd.to_datetime(np.round(days) - EPOCH, unit="D"),
    )


def flag(weight: float = 1.0) -> Column:
    """Map true and false; a center is the share of true."""
    column = number(0, 1, weight=weight)
    return column._replace(
        read=lambda cell: FLAGS.get(_as_text(cell).lower(), math.nan)
    )


def ordered(
    levels: Sequence[str | float],
    **options: Any,
) -> Column:
    """Map levels at equal distances; a center has the nearest one."""
    positions = _number_levels(levels)

    def write(numbers: np.ndarray) -> pd.Categorical:
        codes = np.nan_to_num(np.round(numbers), nan=-1).astype(int)
        return pd.Categorical.from_codes(codes, list(positions), ordered=True)

    column = number(0, len(positions) - 1, **options)
    return column._replace(
        read=lambda cell: positions.get(_as_text(cell), math.nan),
        write=write,
    )


def category(
    levels: Sequence[str | float],
    weight: float = 1.0,
) -> Column:
    """Map levels that are `weight` from each other; a center has the share of each."""
    positions = _number_levels(levels)
    other = positions.setdefault(OTHER, len(positions))
    suffixes = [f"_{text}" for text in positions]
    # One-hot rows differ in two places.
    column = number(0, 1, weight=weight / math.sqrt(2))

    def expand(codes: np.ndarray) -> np.ndarray:
        codes = codes[:, None]
        return np.where(np.isnan(codes), codes, codes == np.arange(len(positions)))

    return column._replace(
        read=lambda cell: positions.get(_as_text(cell), other),
        write=lambda *shares: dict(zip(suffixes, shares, strict=True)),
        expand=expand,
        suffixes=suffixes,
    )


def cyclic(period: float, **options: Any) -> Column:
    """Map hours, weekdays and the like to a circle; a center has a direction there."""
    if not is_positive(period):
        raise ValueError(f"period={period!r} must be a number above 0")

    def expand(numbers: np.ndarray) -> np.ndarray:
        angles = math.tau / period * numbers
        return np.column_stack([np.cos(angles), np.sin(angles)])

    column = number(-1, 1, **options)
    decimal = options.get("decimal", "point")
    return column._replace(
        read=partial(_read_time, decimal=decimal),
        write=lambda x, y: np.arctan2(y, x) / math.tau % 1 * period,
        expand=expand,
        suffixes=("_cos", "_sin"),
    )


#: Kinds as schemas name them.
KINDS: dict[str, Callable[..., Column]] = {
    "number": number,
    "integer": integer,
    "ordered": ordered,
    "category": category,
    "flag": flag,
    "date": date,
    "cyclic": cyclic,
    "latitude": number,
    "longitude": longitude,
}


def read_cells(
    read: Callable[[Any], float],
    cells: pd.Series,
) -> np.ndarray:
    """Read the cells of a column (n,), float64, each by itself; see `read_cell`."""
    # Numbers are themselves: to read them one by one takes long.
    reads_numbers = getattr(read, "func", None) in (_read_number, _read_time)
    if reads_numbers and cells.dtype.kind in "iuf":
        return cells.to_numpy(np.float64, na_value=math.nan)
    return np.array([read_cell(read, cell) for cell in cells])


def read_cell(
    read: Callable[[Any], float],
    cell: Any,
) -> float:
    """Read a cell; NaN if it is null or cannot be read."""
    try:
        # All nulls but None differ from themselves.
        is_null = cell is None or cell != cell
        return math.nan if is_null else float(read(cell))
    # The last is of a time of pandas that is beyond the year 9999.
    except (ArithmeticError, TypeError, ValueError, NotImplementedError):
        return math.nan


def _read_number(
    cell: Any,
    decimal: str,
) -> float:
    """Read a number; a text may have a sign of money and separators of thousands."""
    if not isinstance(cell, str):
        return float(cell)
    whole, mark, fraction = cell.strip(SIGNS).partition(DECIMALS[decimal])
    if THOUSANDS.fullmatch(whole):
        whole = re.sub(r"[^\d+-]", "", whole)
    # What is left of another mark makes it no number.
    text = whole.replace(".", "x")
    return float(f"{text}.{fraction}" if mark else text)


def _read_time(
    cell: Any,
    decimal: str,
) -> float:
    """Read a number, or a time of day such as 17:30 as hours."""
    texts = str(cell).split(":")
    if len(texts) == 1:
        return _read_number(cell, decimal)
    return math.fsum(float(text) / 60**power for power, text in enumerate(texts))


def _read_day(
    cell: Any,
    format: str = ISO_DATE,
) -> float:
    """Read a date or a text as a number of days."""
    if isinstance(cell, Day):
        return cell.toordinal()
    text = _as_text(cell)
    if format == ISO_DATE:
        return datetime.fromisoformat(text).toordinal()
    return datetime.strptime(text, format).toordinal()


def _as_text(cell: Any) -> str:
    """Write a cell as a text; 1.0 is '1'."""
    is_whole = is_number(cell) and float(cell).is_integer()
    return str(int(cell) if is_whole else cell).strip()


def _number_levels(levels: Sequence[str | float]) -> dict[str, int]:
    """Number the texts of levels from 0."""
    # YAML has bools for yes and no.
    is_list = isinstance(levels, list | tuple) and bool not in map(type, levels)
    texts = [_as_text(level) for level in levels] if is_list else []
    if not 2 <= len(texts) == len(set(texts)):
        raise ValueError(
            f"levels={levels!r} must be a list of different texts or numbers, two at "
            "least; put yes and no in quotation marks, or take kind: flag"
        )
    return {text: position for position, text in enumerate(texts)}
