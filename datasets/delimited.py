"""Text files of numbers as people write them: separator, decimal mark and header."""

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

BLANKS = "blanks"
SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas", BLANKS: BLANKS}
#: Names of the decimal marks, as `decimal=` takes them.
DECIMALS = {"point": ".", "comma": ","}
#: Lines from which the format is guessed.
SAMPLE_LINES = 1000
#: Texts of a missing number; the empty one is another.
MISSING = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None", "none")
NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)|", re.I
)
#: 1,234 or 1.234.567,8 or 1 234: digits in groups of three.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,' \u00a0\u202f]\d{3})+([.,]\d+)?")
#: A number with a comma that may be a decimal mark or may separate thousands.
AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")

#: Digits on both sides of a comma.
PAIR = re.compile(r"\d+,\d+")
#: A column: its name or, if columns have no names, its number from 0.
Column = str | int


@dataclass(frozen=True)
class Format:
    """How a text file is written.

    Attributes
    ----------
    separator : str
        One of `SEPARATORS`.
    decimal : str
        The decimal mark: point or comma.
    """

    separator: str
    decimal: str

    def is_number(self, field: str) -> bool:
        """Tell whether a field is a number; a missing one is, too."""
        text = field.strip()
        if text in MISSING:
            return True
        if self.decimal == ",":
            text = text.replace(".", "x").replace(",", ".")
        return NUMBER.fullmatch(text) is not None

    def split(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Split lines; yield the fields of those that are not blank.

        A blank line is a missing value where there is one column, and no record else.
        """
        if self.separator == BLANKS:
            rows = map(str.split, lines)
        else:
            rows = csv.reader(lines, delimiter=self.separator, skipinitialspace=True)
        for fields in rows:
            if len(fields) > 1 or "".join(fields).strip():
                yield [field.strip() for field in fields]


def guess(lines: Iterable[str], decimal: str | None = None) -> Format:
    r"""Guess the format of a text file from its first lines.

    Choose the one with the most numeric fields and the most lines as long as the first.
    Among equals prefer several columns, then the decimal point.

    Parameters
    ----------
    lines : iterable of str
    decimal : {"point", "comma"}, optional
        The decimal mark, if it is known.

    Examples
    --------
    >>> guess(["height;width", "1,5;2"])
    Format(separator=';', decimal=',')
    >>> guess(["1,5", "2,7"])
    Format(separator=',', decimal='.')
    """
    sample = list(itertools.islice(lines, SAMPLE_LINES))
    marks = DECIMALS.values() if decimal is None else [DECIMALS[decimal]]
    formats = itertools.starmap(Format, itertools.product(SEPARATORS, marks))
    return max(formats, key=lambda choice: _rate(sample, choice))


def _rate(sample: list[str], choice: Format) -> tuple[float, float, bool, bool]:
    """Rate how well lines fit a format, in the order of importance.

    Returns
    -------
    numeric_share : float
        Share of the fields below the first line that are numbers.
    equal_share : float
        Share of those lines that are as long as the first.
    without_header : bool
        Whether the first line is numbers, too.
    several : bool
        Whether it has several fields.
    """
    rows = list(choice.split(sample))
    # Tabs are blanks, too: one tab too many must not make all of them blanks.
    if not rows or (choice.separator == BLANKS and "\t" in sample[0]):
        return 0.0, 0.0, False, False
    first = rows[0]
    without_header = all(map(choice.is_number, first))
    several = len(first) > 1
    # A header of one name that has other separators in it belongs to another format.
    if not several and not without_header and set(first[0]) & set("\t;,"):
        return 0.0, 0.0, False, False
    body = rows[1:] or rows
    fields = list(itertools.chain(*body))
    # If commas separate fields, decimal commas are inside quotation marks.
    if choice.separator == choice.decimal and not any("," in text for text in fields):
        return 0.0, 0.0, False, False
    numeric_share = sum(map(choice.is_number, fields)) / len(fields)
    equal_share = sum(len(row) == len(first) for row in body) / len(body)
    return numeric_share, equal_share, without_header, several


def read(
    path: Path,
    decimal: str | None = None,
    ids: Column | None = None,
) -> "tuple[DataFrame, str]":
    """Read a text file, gzipped if its name ends in ``.gz``.

    Parameters
    ----------
    path : Path
    decimal : {"point", "comma"}, optional
        The decimal mark; by default it is guessed.
    ids : str or int, optional
        A column that stays text: by its type one id would change what others are.

    Returns
    -------
    rows : DataFrame
        Columns without names are numbered.
    layout : str
        In words, what was guessed of the format.

    Raises
    ------
    ValueError
        If it is empty, damaged, not UTF-8, has lines of different lengths, an ambiguous
        first line or ambiguous numbers. The points may be private: messages quote
        neither lines nor values.
    """
    import pandas as pd

    with _refuse_damaged(), _open(path) as stream:
        sample = list(itertools.islice(stream, SAMPLE_LINES))
        file_format = guess(sample, decimal)
        first = _check_lines(itertools.chain(sample, stream), file_format)
    if not first:
        raise ValueError("it is empty")
    has_header = not all(map(file_format.is_number, first))
    if decimal is None and file_format.decimal == ",":
        _check_commas(sample, file_format, is_list=len(first) == 1 and not has_header)
    if decimal is None and not has_header:
        _check_pairs(sample, file_format)
    _check_first_line(first, has_header, file_format)
    is_blank = file_format.separator == BLANKS
    n_leading_blanks = len(list(itertools.takewhile(str.isspace, sample)))
    read_rows = partial(
        pd.read_csv,
        sep=r"\s+" if is_blank else file_format.separator,
        decimal=file_format.decimal,
        header=0 if has_header else None,
        names=None if has_header else range(len(first)),
        skiprows=n_leading_blanks if has_header else 0,
        skipinitialspace=True,
        na_values=MISSING,
        skip_blank_lines=len(first) > 1,
        low_memory=False,
    )
    try:
        # Names as pandas has them, which may end in blanks.
        with _open(path) as stream:
            names = list(read_rows(stream, nrows=0))
        texts = find_columns(names, [] if ids is None else [ids])
        with _open(path) as stream:
            rows = read_rows(stream, dtype=dict.fromkeys(texts, "str"))
    except ValueError:
        raise ValueError(
            "a quotation mark has no second one, or a number is too long"
        ) from None
    # pandas leaves numbers as texts if one has more digits than 64 bits hold.
    for name in rows.select_dtypes("str").columns.difference(texts):
        if all(map(file_format.is_number, rows[name].dropna())):
            rows[name] = rows[name].str.replace(file_format.decimal, ".").astype(float)
    return rows, _describe(file_format, len(first), has_header)


def find_columns(
    names: Sequence[Column],
    columns: Iterable[Column],
) -> list[Column]:
    """Find columns by name, or by number where no name is that number.

    Those that are not there are left out.

    Examples
    --------
    >>> find_columns(["height", "width"], ["width", 0, "depth"])
    ['width', 'height']
    """
    by_text = {str(name): name for name in names}
    by_number = dict(enumerate(names))
    matches = [by_text.get(str(column), by_number.get(column)) for column in columns]
    return [name for name in matches if name is not None]


def read_texts(
    path: Path,
    columns: Iterable[str],
    block_rows: int,
) -> "Iterator[DataFrame]":
    """Read blocks of rows of texts, below a first line of names.

    Every line is a row, and is read by itself. A quotation mark without a second one
    ends with its line: an error would reveal that the line exists.

    Parameters
    ----------
    path : Path
    columns : iterable of str
        Public names of columns. The separator is the one that gives the first line most
        of them. It does not depend on the rows.
    block_rows : int

    Yields
    ------
    DataFrame
        A line of another length than the first is a row of nulls. Bytes that are not
        UTF-8 are written as escapes.

    Raises
    ------
    ValueError
        If the file is damaged, or its first line is not UTF-8.
    """
    import pandas as pd

    opener = _choose_opener(path)
    with _refuse_damaged(), opener(path, "rb") as stream:
        header = stream.readline().decode("utf-8-sig")
        formats = [Format(separator, ".") for separator in SEPARATORS]
        known = set(columns)

        def split_header(choice: Format) -> list[str]:
            return next(choice.split([header]), [])

        choice = max(formats, key=lambda other: len(known & {*split_header(other)}))
        names = split_header(choice)
        nulls = [None] * len(names)
        while lines := list(itertools.islice(stream, block_rows)):
            rows = (_split_line(line, choice) for line in lines)
            cells = [row if len(row) == len(names) else nulls for row in rows]
            block = pd.DataFrame(cells, columns=names, dtype=object)
            yield block.where(block != "", None)


def _split_line(line: bytes, file_format: Format) -> list[str]:
    """Split a line by itself; one that cannot be read, or is blank, has no fields."""
    text = line.decode("utf-8", "backslashreplace")
    try:
        return next(file_format.split([text]), [])
    except csv.Error:
        return []


@contextmanager
def _refuse_damaged() -> Iterator[None]:
    """Refuse a file that cannot be read as text; no message quotes it."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is not text in UTF-8 ({error.reason}); save it as UTF-8"
        ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, csv.Error):
        raise ValueError("it is damaged, or a field is too long") from None


def _describe(file_format: Format, n_columns: int, has_header: bool) -> str:
    """Say in words how a text was read."""
    (mark,) = (name for name in DECIMALS if DECIMALS[name] == file_format.decimal)
    separator = f"separated by {SEPARATORS[file_format.separator]}, "
    header = "a header" if has_header else "no header"
    return f"{separator if n_columns > 1 else ''}decimal {mark}, {header}"


def _choose_opener(path: Path) -> Callable[..., Any]:
    return gzip.open if path.suffix.lower() == ".gz" else open


def _open(path: Path) -> io.TextIOBase:
    opener = _choose_opener(path)
    return opener(path, "rt", newline="", encoding="utf-8-sig")


def _check_lines(lines: Iterable[str], file_format: Format) -> list[str]:
    """Return the fields of the first line; refuse lines that are longer or shorter.

    pandas would take the first fields of longer lines for row names and drop them from
    the points.
    """
    first: list[str] = []
    for fields in file_format.split(lines):
        first = first or fields
        if len(fields) != len(first):
            raise ValueError(
                f"a line has {len(fields)} fields, the first line has {len(first)}; "
                "give every line one value per column (they are read as separated by "
                f"{SEPARATORS[file_format.separator]})"
            )
    return first


def _check_commas(sample: list[str], file_format: Format, *, is_list: bool) -> None:
    """Refuse decimal commas that may as well separate thousands, or values."""
    fields = itertools.chain(*file_format.split(sample))
    numbers = [field for field in fields if "," in field]
    if numbers and all(map(AMBIGUOUS.fullmatch, numbers)):
        raise ValueError(
            "commas may be decimal marks or separate thousands: give decimal=comma, or "
            "write 1234 for 1,234"
        )
    if numbers and is_list:
        raise ValueError(
            "commas may be decimal marks or separate columns, of which some are "
            "missing: give decimal=comma or decimal=point"
        )


def _check_pairs(sample: list[str], file_format: Format) -> None:
    """Refuse lines such as 1,5 that may be two columns or one with decimal commas.

    Programs write no zero at the end of a decimal, unless all decimals are equally
    long. So there are two columns if some second numbers end in a zero and their
    lengths differ. Most tables of two columns of integers are of this kind.
    """
    if file_format.separator != ",":
        return
    lines = [line.strip() for line in sample if line.strip()]
    if not all(map(PAIR.fullmatch, lines)):
        return
    seconds = [line.partition(",")[2] for line in lines]
    have_zeros = any(len(text) > 1 and text.endswith("0") for text in seconds)
    if have_zeros and len(set(map(len, seconds))) > 1:
        return
    raise ValueError(
        "commas may separate two columns or be decimal marks of one: give "
        "decimal=point for two, decimal=comma for one, or name the columns in a first "
        "line"
    )


def _check_first_line(first: list[str], has_header: bool, file_format: Format) -> None:
    if has_header and "" in first:
        raise ValueError(
            f"column {first.index('')} (from 0) has no name in the header: if it is "
            "the index that DataFrame.to_csv writes, write with index=False, else name "
            "it"
        )
    if has_header and any(map(file_format.is_number, first)):
        raise ValueError(
            "the first line has numbers and texts: it may be a header or a point; name "
            "every column with a word, and encode texts of points as numbers"
        )
    # pandas writes that for unnamed columns. As a point it would change every result.
    if len(first) > 1 and first == [str(i) for i in range(len(first))]:
        raise ValueError(
            "the first line may be column numbers or a point; name the columns with "
            "words, or move that point to another line"
        )
