"""From the published bytes of a data set to points and labels.

Each parser takes the contents of its files in the order of the registry and returns points (float64) and labels (int64,
from 0, in sorted order of the published class names) or None, and third, where the points were published as a split
over clients, the number of each point's client or None. Nothing is scaled, reordered or dropped unless the parser says
so.
"""

import csv
import gzip
import zipfile
from io import BytesIO

import numpy as np

from pkm.datasets.scaling import largest_one
from pkm.source import code_of

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


def _rows(content, separator=None):
    """Non-empty lines split into stripped fields; array of str, shape (rows, columns)."""
    lines = content.decode("ascii").splitlines()
    return np.array(
        [[field.strip() for field in line.split(separator)] for line in lines if line.strip()]
    )


def _points(content, separator=None):
    """Table of numbers only."""
    return np.loadtxt(BytesIO(content), delimiter=separator, ndmin=2)


def _codes(classes):
    """Class names to numbers from 0, in sorted order."""
    return np.unique(classes, return_inverse=True)[1].astype(np.int64)


def iris(data):
    """Four lengths in centimetres; the class is the fifth field."""
    rows = _rows(data, ",")
    return rows[:, :4].astype(np.float64), _codes(rows[:, 4])


def wine(data):
    """Thirteen measurements; the class comes first."""
    rows = _rows(data, ",")
    return rows[:, 1:].astype(np.float64), _codes(rows[:, 0])


def lsun(data, labels):
    """Two coordinates; reference partition in a file of its own. Both files are published gzipped."""
    return _points(gzip.decompress(data)), _codes(
        _rows(gzip.decompress(labels))[:, 0].astype(np.int64)
    )


def s1(data, labels):
    """Two coordinates; the reference partition is published gzipped, one integer a line."""
    return _points(data), _codes(_rows(gzip.decompress(labels))[:, 0].astype(np.int64))


def numbers(data):
    """Blank-separated numbers, no header, no labels."""
    return _points(data), None


def adult(data, test):
    """Six numeric columns of both files, training rows first; the class is the income.

    They are age, fnlwgt, education-num, capital-gain, capital-loss and hours-per-week. The test file opens with a
    comment line, and its classes end in a full stop.
    """
    test = test.partition(b"\n")[2]
    rows = np.concatenate([_rows(data, ","), _rows(test, ",")])
    return rows[:, [0, 2, 4, 10, 11, 12]].astype(np.float64), _codes(
        np.char.rstrip(rows[:, 14], ".")
    )


def breast(data):
    """Nine scores from 1 to 10; the identifier comes first, the class last.

    Sixteen rows have no score for bare nuclei. They are kept (the paper counts 699 rows) with the lowest score, 1,
    which stands for a normal cell: a public constant, so that no row's value depends on other rows. How the paper
    filled them is not known. (1 is also the median of the rows that have the score.)
    """
    rows = _rows(data, ",")
    scores = np.where(rows[:, 1:10] == "?", BREAST_MISSING, rows[:, 1:10])
    return scores.astype(np.float64), _codes(rows[:, 10])


def yeast(data):
    """Eight scores; the protein's name comes first, its place in the cell last."""
    rows = _rows(data)
    return rows[:, 1:9].astype(np.float64), _codes(rows[:, 9])


def letters(data):
    """Sixteen integers from 0 to 15; the letter comes first, as in A to Z."""
    rows = _rows(data, ",")
    return rows[:, 1:].astype(np.float64), _codes(rows[:, 0])


def letters_resampled(data):
    """Of each letter, in the order of the alphabet, 720 rows drawn with replacement; then all 18,720 rows shuffled.

    One generator of numpy with the seed 42 draws everything, so the rows are always the same. Rows repeat: one person's
    row may stand in the data several times.
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


def gas(*years):
    """Eleven sensors, one file per year with a header line, in the order of the years; no labels."""
    return np.concatenate([_points(year.partition(b"\n")[2], ",") for year in years]), None


def mnist(images, labels):
    """Images of 28 x 28 bytes, row by row; both files are published gzipped in the IDX format."""
    pixels = np.frombuffer(gzip.decompress(images), dtype=np.uint8, offset=16)
    classes = np.frombuffer(gzip.decompress(labels), dtype=np.uint8, offset=8)
    return pixels.reshape(-1, 28 * 28).astype(np.float64), classes.astype(np.int64)


def g2(data):
    """Integers in columns, no header; the first 1,024 rows are the first cluster, the others the second."""
    points = _points(data)
    return points, np.repeat(np.array([0, 1], dtype=np.int64), len(points) // 2)


def arrays(data):
    """Numpy's archive of `data` (n, d) and, where there are such, `label` and `client` (n,).

    The points are divided by their largest value where that is above 1.

    Raises
    ------
    ValueError
        If it is no such archive.
    """
    try:
        with np.load(BytesIO(data), allow_pickle=False) as stored:
            found = {name: stored[name] for name in ("data", "label", "client") if name in stored}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"cannot be read as a .npz file without pickles: {error}") from error
    if found.keys() < {"data"} or found["data"].ndim != 2:
        raise ValueError("a .npz file should hold an array 'data' of two dimensions, (n, d)")
    points = largest_one(found.pop("data").astype(np.float64))
    for name, numbers in found.items():
        if numbers.shape != points.shape[:1] or numbers.dtype.kind not in "iu":
            raise ValueError(
                f"array {name!r} of shape {numbers.shape} and type {numbers.dtype} should hold n={len(points)} integers"
            )
    return points, *(_codes(found[name]) if name in found else None for name in ("label", "client"))


def covtype(data):
    """Cartographic variables without the two constant ones, each scaled to [0, 1] by its own extremes; class last.

    The identifier, which comes first, is dropped.
    """
    header, _, body = data.partition(b"\n")
    names = header.decode("ascii").strip().split(",")
    table = _points(body, ",")
    points = table[:, [i for i in range(1, len(names) - 1) if names[i] not in CONSTANT_SOILS]]
    least, most = points.min(axis=0), points.max(axis=0)
    return (points - least) / (most - least), _codes(table[:, -1].astype(np.int64))


def postures(data):
    """Places of the first five markers where none of them is missing, divided by the largest value; the class is first.

    The user comes second. The first row of the file is all zeros, and dropped: it belongs to no class.
    """
    width = 2 + 3 * POSTURES_MARKERS
    lines = data.decode("ascii").splitlines()[1:]
    rows = np.array([line.split(",")[:width] for line in lines if line.strip()])
    rows = rows[(rows[:, 0] != "0") & (rows[:, 2:] != "?").all(axis=1)]
    return largest_one(rows[:, 2:].astype(np.float64)), _codes(rows[:, 0])


def shuttle(*parts):
    """Nine integers of the training rows, then of the test rows; the class comes last."""
    table = np.concatenate([_points(part) for part in parts])
    return table[:, :-1], _codes(table[:, -1])


def shuttle_with_class(*parts):
    """All ten columns, the class among them as a number from 1 to 7, as papers have used the set."""
    table = np.concatenate([_points(part) for part in parts])
    return table, _codes(table[:, -1])


def skin(data):
    """Blue, green and red as bytes; the class comes last."""
    table = _points(data)
    return table[:, :-1], _codes(table[:, -1])


def skin_with_class(data):
    """All four columns, the class among them as 1 or 2, as papers have used the set."""
    table = _points(data)
    return table, _codes(table[:, -1])


def checkins(data):
    """Latitude and longitude of each user's last check-in, users in ascending order; no labels.

    The file is published gzipped: a line holds user, time, latitude, longitude and place, between tabs. Lines without a
    time or a position are left out. Of check-ins at the same second the first line counts: a user's lines are published
    newest first.

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
            f"expected are gzipped lines of {', '.join(CHECKIN_COLUMNS)} between tabs, not read as such: {error}"
        ) from error
    # Times are written with the year first and all parts in full width: their order as text is that in time.
    known = table.dropna().sort_values(["user", "time"], ascending=[True, False], kind="stable")
    return known.drop_duplicates("user")[["latitude", "longitude"]].to_numpy(), None


def range_queries(data):
    """Center, half-widths, number of incidents and number of arrests of rectangles on a map; no labels.

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


def source(parser):
    """Text that decides what a parser returns: its own code and that of the shared steps."""
    shared = (_rows, _points, _codes)
    text = (
        "".join(code_of(function) for function in (*shared, parser))
        + f"BREAST_MISSING={BREAST_MISSING}"
    )
    if parser is letters_resampled:
        text += f"{code_of(letters)}{LETTERS_SEED=}{LETTERS_PER_CLASS=}"
    if parser in (arrays, covtype, postures):
        text += f"{code_of(largest_one)}{CONSTANT_SOILS=}{POSTURES_MARKERS=}"
    if parser in (checkins, range_queries):
        text += f"{CHECKIN_COLUMNS=}{QUERY_COLUMNS=}"
    return text
