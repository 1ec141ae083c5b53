"""From the published bytes of a data set to points and labels.

Each parser takes the contents of its files in the order of the registry and returns points
(float64) and labels (int64, from 0, in sorted order of the published class names) or None, and
third, where the points were published as a split over clients, the number of each point's client or
None. Nothing is scaled, reordered or dropped unless the parser says so.
"""

import csv
import gzip
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO

import numpy as np

from pkm.datasets.scaling import divide_by_largest
from pkm.source import code_of

#: Points and labels; points without labels; points with labels and clients where published.
Parsed = tuple[np.ndarray, np.ndarray]
Unlabeled = tuple[np.ndarray, None]
Split = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]

# Public constant in place of a missing score of `breast`: see `breast`.
BREAST_MISSING = "1"
LETTERS_SEED = 42
LETTERS_PER_CLASS = 720
# The same value in every row of `covtype`.
CONSTANT_SOILS = ("Soil_Type7", "Soil_Type15")
POSTURES_MARKERS = 5
CHECKIN_COLUMNS = ("user", "time", "latitude", "longitude", "place")
# The aggregates that no query lacks; the average beat is missing where a range holds no incident.
QUERY_COLUMNS = ("x", "y", "x_range", "y_range", "count", "sum_")


def _rows(content: bytes, separator: str | None = None) -> np.ndarray:
    """Non-empty lines split into stripped fields; array of str, shape (rows, columns)."""
    lines = [line for line in content.decode("ascii").splitlines() if line.strip()]
    return np.array([[field.strip() for field in line.split(separator)] for line in lines])


def _points(content: bytes, separator: str | None = None) -> np.ndarray:
    """Table of numbers only."""
    return np.loadtxt(BytesIO(content), delimiter=separator, ndmin=2)


def _codes(classes: np.ndarray) -> np.ndarray:
    """Class names to numbers from 0, in sorted order."""
    return np.unique(classes, return_inverse=True)[1].astype(np.int64)


def iris(data: bytes) -> Parsed:
    """Four lengths in centimeters; the class is the fifth field."""
    rows = _rows(data, ",")
    return rows[:, :4].astype(np.float64), _codes(rows[:, 4])


def wine(data: bytes) -> Parsed:
    """Thirteen measurements; the class comes first."""
    rows = _rows(data, ",")
    return rows[:, 1:].astype(np.float64), _codes(rows[:, 0])


def lsun(data: bytes, labels: bytes) -> Parsed:
    """Two coordinates; the reference partition is a second file. Both are published gzipped."""
    classes = _rows(gzip.decompress(labels))[:, 0].astype(np.int64)
    return _points(gzip.decompress(data)), _codes(classes)


def s1(data: bytes, labels: bytes) -> Parsed:
    """Two coordinates; the reference partition is published gzipped, one integer a line."""
    classes = _rows(gzip.decompress(labels))[:, 0].astype(np.int64)
    return _points(data), _codes(classes)


def numbers(data: bytes) -> Unlabeled:
    """Blank-separated numbers, no header, no labels."""
    return _points(data), None


def adult(data: bytes, test: bytes) -> Parsed:
    """Six numeric columns of both files, training rows first; the class is the income.

    They are age, fnlwgt, education-num, capital-gain, capital-loss and hours-per-week. The test
    file opens with a comment line, and its classes end in a full stop.
    """
    test = test.partition(b"\n")[2]
    rows = np.concatenate([_rows(data, ","), _rows(test, ",")])
    classes = np.char.rstrip(rows[:, 14], ".")
    return rows[:, [0, 2, 4, 10, 11, 12]].astype(np.float64), _codes(classes)


def breast(data: bytes) -> Parsed:
    """Nine scores from 1 to 10; the identifier comes first, the class last.

    Sixteen rows have no score for bare nuclei. They are kept (the paper counts 699 rows) with the
    lowest score, 1, that of a normal cell: a public constant, so that no row's value
    depends on other rows. How the paper filled them is not known. (1 is also the median of the rows
    that have the score.)
    """
    rows = _rows(data, ",")
    scores = np.where(rows[:, 1:10] == "?", BREAST_MISSING, rows[:, 1:10])
    return scores.astype(np.float64), _codes(rows[:, 10])


def yeast(data: bytes) -> Parsed:
    """Eight scores; the protein's name comes first, its location in the cell last."""
    rows = _rows(data)
    return rows[:, 1:9].astype(np.float64), _codes(rows[:, 9])


def letters(data: bytes) -> Parsed:
    """Sixteen integers from 0 to 15; the letter comes first, as in A to Z."""
    rows = _rows(data, ",")
    return rows[:, 1:].astype(np.float64), _codes(rows[:, 0])


def letters_resampled(data: bytes) -> Parsed:
    """Of each letter 720 rows drawn with replacement, all 18,720 rows shuffled.

    The letters are drawn in the order of the alphabet. One generator of numpy with the seed 42
    draws everything, so the rows are always the same. Rows repeat: one person's row may occur
    several times.
    """
    points, labels = letters(data)
    generator = np.random.default_rng(LETTERS_SEED)
    drawn = []
    for letter in range(labels.max() + 1):
        rows = np.flatnonzero(labels == letter)
        drawn.append(rows[generator.integers(0, len(rows), size=LETTERS_PER_CLASS)])
    drawn = np.concatenate(drawn)
    drawn = drawn[generator.permutation(len(drawn))]
    return points[drawn], labels[drawn]


def gas(*files: bytes, first_year: int | None = None) -> Unlabeled:
    """Eleven sensors, a file with a header line per year, in the order of the years; no labels.

    With a first year the year is a column before them.
    """
    years = [_points(data.partition(b"\n")[2], ",") for data in files]
    if first_year is not None:
        years = [np.insert(year, 0, first_year + i, axis=1) for i, year in enumerate(years)]
    return np.concatenate(years), None


def mnist(images: bytes, labels: bytes) -> Parsed:
    """Images of 28 x 28 bytes, row by row; both files are published gzipped in the IDX format."""
    pixels = np.frombuffer(gzip.decompress(images), dtype=np.uint8, offset=16)
    classes = np.frombuffer(gzip.decompress(labels), dtype=np.uint8, offset=8)
    return pixels.reshape(-1, 28 * 28).astype(np.float64), classes.astype(np.int64)


def g2(data: bytes) -> Parsed:
    """Integers in columns, no header; 1,024 rows of the first cluster, then those of the second."""
    points = _points(data)
    return points, np.repeat(np.array([0, 1], dtype=np.int64), len(points) // 2)


def table(
    *parts: bytes,
    header: bool = False,
    columns: Sequence[str] | None = None,
    drop: Sequence[str | int] = (),
    label: str | int | None = None,
    logarithms: Sequence[int] = (),
) -> tuple[np.ndarray, np.ndarray | None]:
    """Columns of files of comma-separated values, one file after the other.

    Parameters
    ----------
    header : bool
        Whether the first line has the columns' names. They are numbered from 0 otherwise.
    columns : sequence of str, optional
        The columns that are points, in this order; default: all others than `drop` and `label`.
    drop : sequence of str or int
        Columns that are no points.
    label : str or int, optional
        Column of the class.
    logarithms : sequence of int
        Points' columns, numbered from 0, of which the natural logarithm is taken.
    """
    import pandas as pd

    tables = [
        pd.read_csv(BytesIO(part), header=0 if header else None, skipinitialspace=True)
        for part in parts
    ]
    rows = pd.concat(tables, ignore_index=True)
    if columns is None:
        columns = [name for name in rows.columns if name != label and name not in drop]
    points = rows[list(columns)].to_numpy(np.float64)
    taken = list(logarithms)
    points[:, taken] = np.log(points[:, taken])
    return points, None if label is None else _codes(rows[label].to_numpy())


def labeled_archive(data: bytes) -> Parsed:
    """Numpy's archive of `X` (n, d) and `y` (n,)."""
    with np.load(BytesIO(data), allow_pickle=False) as stored:
        return stored["X"].astype(np.float64), _codes(stored["y"])


def regional_checkins(*regions: bytes) -> Unlabeled:
    """Latitude and longitude of each user, users in ascending order; no labels.

    A line of a region's file holds user, latitude and longitude between commas. Of users in several
    files the first one counts.
    """
    rows = np.concatenate([_points(region, ",") for region in regions])
    _, first = np.unique(rows[:, 0], return_index=True)
    return rows[first, 1:], None


def arrays(data: bytes) -> Split:
    """Numpy's archive of `data` (n, d) and, where present, `label` and `client` (n,).

    The points are divided by their largest value where that is above 1.

    Raises
    ------
    ValueError
        If it is no such archive.
    """
    try:
        with np.load(BytesIO(data), allow_pickle=False) as stored:
            names = [name for name in ("data", "label", "client") if name in stored]
            members = {name: stored[name] for name in names}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot be read as a .npz file without pickles: {error}") from error
    if "data" not in members or members["data"].ndim != 2:
        raise ValueError("a .npz file should hold an array 'data' of two dimensions, (n, d)")
    points = divide_by_largest(members.pop("data").astype(np.float64))
    for name, numbers in members.items():
        if numbers.shape != points.shape[:1] or numbers.dtype.kind not in "iu":
            raise ValueError(
                f"array {name!r} of shape {numbers.shape} and type {numbers.dtype} should hold "
                f"n={len(points)} integers"
            )
    codes = {name: _codes(numbers) for name, numbers in members.items()}
    return points, codes.get("label"), codes.get("client")


def covtype(data: bytes) -> Parsed:
    """Cartographic variables without the two constant ones, each scaled to [0, 1] by its extremes.

    The identifier, which comes first, is dropped; the class comes last.
    """
    header, _, body = data.partition(b"\n")
    names = header.decode("ascii").strip().split(",")
    table = _points(body, ",")
    columns = [i for i in range(1, len(names) - 1) if names[i] not in CONSTANT_SOILS]
    points = table[:, columns]
    lower = points.min(axis=0)
    upper = points.max(axis=0)
    return (points - lower) / (upper - lower), _codes(table[:, -1].astype(np.int64))


def postures(data: bytes) -> Parsed:
    """Positions of the first five markers where none is missing, divided by the largest value.

    The class comes first, the user second. The first row of the file is all zeros, and
    dropped: it belongs to no class.
    """
    width = 2 + 3 * POSTURES_MARKERS
    lines = data.decode("ascii").splitlines()[1:]
    rows = np.array([line.split(",")[:width] for line in lines if line.strip()])
    rows = rows[(rows[:, 0] != "0") & (rows[:, 2:] != "?").all(axis=1)]
    return divide_by_largest(rows[:, 2:].astype(np.float64)), _codes(rows[:, 0])


def shuttle(*parts: bytes) -> Parsed:
    """Nine integers of the training rows, then of the test rows; the class comes last."""
    table = np.concatenate([_points(part) for part in parts])
    return table[:, :-1], _codes(table[:, -1])


def shuttle_with_class(*parts: bytes) -> Parsed:
    """All ten columns, the class among them as a number from 1 to 7, as papers use the set."""
    table = np.concatenate([_points(part) for part in parts])
    return table, _codes(table[:, -1])


def skin(data: bytes) -> Parsed:
    """Blue, green and red as bytes; the class comes last."""
    table = _points(data)
    return table[:, :-1], _codes(table[:, -1])


def skin_with_class(data: bytes) -> Parsed:
    """All four columns, the class among them as 1 or 2, as papers use the set."""
    table = _points(data)
    return table, _codes(table[:, -1])


def checkins(data: bytes) -> Unlabeled:
    """Latitude and longitude of each user's last check-in, users in ascending order; no labels.

    The file is published gzipped: a line holds user, time, latitude, longitude and place, between
    tabs. Lines without a time or a position are left out. Of check-ins at the same second the first
    line counts: a user's lines are published newest first.

    Raises
    ------
    ValueError
        If it is no such file.
    """
    import pandas as pd

    try:
        table = pd.read_csv(
            BytesIO(gzip.decompress(data)),
            sep="\t",
            header=None,
            names=CHECKIN_COLUMNS,
            usecols=CHECKIN_COLUMNS[:4],
            dtype={"user": np.int64, "time": str, "latitude": np.float64, "longitude": np.float64},
            quoting=csv.QUOTE_NONE,
        )
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(
            f"expected are gzipped lines of {', '.join(CHECKIN_COLUMNS)} between tabs, not read "
            f"as such: {error}"
        ) from error
    # Times are written with the year first and all parts in full width: their order as text is that
    # in time.
    located = table.dropna().sort_values(["user", "time"], ascending=[True, False], kind="stable")
    return located.drop_duplicates("user")[["latitude", "longitude"]].to_numpy(), None


def range_queries(data: bytes) -> Unlabeled:
    """Center, half-widths, numbers of incidents and of arrests of rectangles on a map; no labels.

    Raises
    ------
    ValueError
        If the table lacks one of these columns.
    """
    import pandas as pd

    table = pd.read_csv(BytesIO(data))
    absent = [name for name in QUERY_COLUMNS if name not in table]
    if absent:
        raise ValueError(f"columns {absent} are absent; the table has {list(table.columns)}")
    return table[list(QUERY_COLUMNS)].to_numpy(np.float64), None


def located_nodes(data: bytes) -> bytes:
    """Latitude and longitude, as they are written, of the nodes that have both.

    From a table with a header that has these columns among others to one of these two alone.
    """
    lines = data.decode("ascii").splitlines()
    names = lines[0].split(",")
    latitude = names.index("latitude")
    longitude = names.index("longitude")
    rows = [line.split(",") for line in lines[1:]]
    located = [(row[latitude], row[longitude]) for row in rows if row[latitude] and row[longitude]]
    return "".join(f"{x},{y}\n" for x, y in [("latitude", "longitude"), *located]).encode()


#: What may be made of the bytes at a URL before they are checked and kept.
CONVERSIONS = {"located_nodes": located_nodes}
PARSERS = {
    parser.__name__: parser
    for parser in (
        iris, wine, lsun, s1, numbers, adult, breast, yeast, letters, letters_resampled, gas, mnist,
        g2, table, labeled_archive, regional_checkins, arrays, covtype, postures, shuttle,
        shuttle_with_class, skin, skin_with_class, checkins, range_queries,
    )
}  # fmt: skip


def source(parse: Callable) -> str:
    """Text that determines what a parser returns: its code, its arguments and the shared steps."""
    arguments = parse.keywords if isinstance(parse, partial) else {}
    parser = parse.func if isinstance(parse, partial) else parse
    functions = (_rows, _points, _codes, parser)
    text = "".join(code_of(function) for function in functions)
    text += f"BREAST_MISSING={BREAST_MISSING}"
    if parser is letters_resampled:
        text += f"{code_of(letters)}{LETTERS_SEED=}{LETTERS_PER_CLASS=}"
    if parser in (arrays, covtype, postures):
        text += f"{code_of(divide_by_largest)}{CONSTANT_SOILS=}{POSTURES_MARKERS=}"
    if parser in (checkins, range_queries):
        text += f"{CHECKIN_COLUMNS=}{QUERY_COLUMNS=}"
    if arguments:
        text += f"{arguments=}"
    return text
