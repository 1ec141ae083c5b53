"""Kinds of columns of a user's table: how cells are mapped to a public scale and back.

A cell is read by itself: no other row changes what it means. One that cannot be read is
missing, NaN, so that no row makes a private fit fail.
"""

import math
from collections.abc import Callable, Sequence
from datetime import date as Day
from datetime import datetime
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
EPOCH = Day(1970, 1, 1).toordinal()
ISO_DATE = "%Y-%m-%d"  # and what else `fromisoformat` reads


class Column(NamedTuple):
    """How cells become numbers, these places on the scale, and these cells again.

    Attributes
    ----------
    read : callable
        From a cell that is not null to a number; NaN if it cannot be read.
    encode : callable
        From numbers (n,) to places (n,) or (n, m); NaN stays.
    decode : callable
        From m arrays of places (k,) to cells (k,), or to several of them by suffixes.
    suffixes : sequence of str
        Added to the column's name for each of m places.
    """

    read: Callable[[Any], float]
    encode: Callable[[np.ndarray], np.ndarray]
    decode: Callable[..., Any]
    suffixes: Sequence[str] = ("",)


def number(
    low: float,
    high: float,
    log: bool = False,
    asinh: bool = False,
    decimal: str = "point",
    weight: float = LENGTH,
) -> Column:
    """Map numbers between bounds, on a stretched scale for money and counts."""
    are_numbers = is_number(low) and is_number(high)
    if not (are_numbers and -math.inf < low < high < math.inf):
        raise ValueError(
            f"low={low!r} must be below high={high!r}, both finite numbers"
        )
    if log and low <= 0:
        raise ValueError(f"log: true needs low above 0, got {low!r}; take asinh: true")
    if decimal not in DECIMALS:
        raise ValueError(f"decimal={decimal!r} must be {' or '.join(DECIMALS)}")
    if not (is_positive(weight) and weight <= LENGTH):
        raise ValueError(f"weight={weight!r} must be above 0, and {LENGTH:g} at most")

    def read(cell: Any) -> float:
        if isinstance(cell, str) and decimal == "comma":
            # A point separates thousands, and such texts are no numbers.
            cell = cell.replace(".", "x").replace(",", ".")
        try:
            return float(cell)
        except (TypeError, ValueError, OverflowError):
            return math.nan

    stretch = shrink = np.positive
    if log:
        stretch, shrink = np.log, np.exp
    elif asinh:
        stretch, shrink = np.arcsinh, np.sinh
    ends = stretch([low, high])
    reach = [-weight / 2, weight / 2]

    def encode(numbers: np.ndarray) -> np.ndarray:
        clipped = np.clip(numbers, low, high)
        return np.interp(stretch(clipped), ends, reach)

    def decode(places: np.ndarray) -> np.ndarray:
        return shrink(np.interp(places, reach, ends))

    return Column(read, encode, decode)


def integer(low: float, high: float, **options: Any) -> Column:
    """Map numbers that are written as whole ones."""
    column = number(low, high, **options)

    def decode(places: np.ndarray) -> Any:
        return pd.array(np.round(column.decode(places)), dtype="Int64")

    return column._replace(decode=decode)


def longitude(low: float, high: float, latitude: str, **options: Any) -> Column:
    """Map degrees east, at a latitude that is another column."""
    return number(low, high, **options)


def date(
    low: str | Day,
    high: str | Day,
    format: str = ISO_DATE,
    **options: Any,
) -> Column:
    """Map days, written in ISO 8601 or a format of `strptime`; times are dropped."""
    first, last = (_read_day(bound, ISO_DATE) for bound in (low, high))
    if not first < last:
        raise ValueError(
            f"low={low!r} must be a date before high={high!r}, such as 2025-12-31"
        )
    text = Day.fromordinal(int(first)).strftime(format)
    if _read_day(text, format) != first:
        raise ValueError(f"format={format!r} must have a full date, such as %d.%m.%Y")
    column = number(first, last, **options)

    def decode(places: np.ndarray) -> Any:
        return pd.to_datetime(np.round(column.decode(places)) - EPOCH, unit="D")

    return column._replace(read=lambda cell: _read_day(cell, format), decode=decode)


def flag(weight: float = 1.0) -> Column:
    """Map true and false; a center is the share of true."""
    column = number(0, 1, weight=weight)
    return column._replace(
        read=lambda cell: FLAGS.get(_as_text(cell).lower(), math.nan)
    )


def ordered(levels: Sequence[str | float], **options: Any) -> Column:
    """Map levels at equal distances; a center has the nearest one."""
    positions = _number_levels(levels)
    column = number(0, len(positions) - 1, **options)

    def decode(places: np.ndarray) -> Any:
        codes = np.nan_to_num(np.round(column.decode(places)), nan=-1).astype(int)
        return pd.Categorical.from_codes(codes, list(positions), ordered=True)

    return column._replace(
        read=lambda cell: positions.get(_as_text(cell), math.nan),
        decode=decode,
    )


def category(levels: Sequence[str | float], weight: float = 1.0) -> Column:
    """Map levels that are `weight` from each other; a center has the share of each."""
    positions = _number_levels(levels)
    other = positions.setdefault(OTHER, len(positions))
    suffixes = [f"_{text}" for text in positions]
    # One-hot rows differ in two places.
    column = number(0, 1, weight=weight / math.sqrt(2))

    def encode(codes: np.ndarray) -> np.ndarray:
        codes = codes[:, None]
        one_hot = codes == np.arange(len(positions))
        return column.encode(np.where(np.isnan(codes), codes, one_hot))

    def decode(*places: np.ndarray) -> dict[str, np.ndarray]:
        shares = column.decode(places)
        return dict(zip(suffixes, shares, strict=True))

    return Column(
        lambda cell: positions.get(_as_text(cell), other),
        encode,
        decode,
        suffixes,
    )


def cyclic(period: float, **options: Any) -> Column:
    """Map hours, weekdays and the like to a circle; a center has a direction there."""
    if not is_positive(period):
        raise ValueError(f"period={period!r} must be a number above 0")
    column = number(-1, 1, **options)

    def encode(numbers: np.ndarray) -> np.ndarray:
        angles = math.tau / period * numbers
        return column.encode(np.column_stack([np.cos(angles), np.sin(angles)]))

    def decode(cosines: np.ndarray, sines: np.ndarray) -> np.ndarray:
        return np.arctan2(sines, cosines) / math.tau % 1 * period

    return Column(column.read, encode, decode, ("_cos", "_sin"))


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


def _read_day(cell: Any, format: str) -> float:
    """Read a date or a text as a number of days."""
    try:
        if isinstance(cell, Day):
            day = cell
        elif format == ISO_DATE:
            day = datetime.fromisoformat(_as_text(cell))
        else:
            day = datetime.strptime(_as_text(cell), format)
        return float(day.toordinal())
    except ValueError:
        return math.nan


def _as_text(cell: object) -> str:
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
