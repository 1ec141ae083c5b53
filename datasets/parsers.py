"""From the published bytes of a data set to points and labels.

Each parser takes the contents of its files in the order of the registry. It returns
points (float64) and labels (int64, from 0, in sorted order of the published class
names) or None. If the points were published as a split over clients, the number of
each point's client or None is third. If a person has several points, the person of each
point is fourth. Nothing is scaled, reordered or dropped unless the parser says so.
"""

import csv
import gzip
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np

from pkm.datasets.dataset import encode_classes
from pkm.datasets.scaling import divide_by_largest
from pkm.datasets.sources import MAX_BYTES, read_parts
from pkm.source import read_with_dependencies

Parsed = tuple[np.ndarray, np.ndarray]
Unlabeled = tuple[np.ndarray, None]
Split = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]
Grouped = tuple[np.ndarray, None, None, np.ndarray]

GZIP_MAGIC = b"\x1f\x8b"
ADULT_COLUMNS = (0, 2, 4, 10, 11, 12)
LETTERS_SEED = 42
LETTERS_PER_CLASS = 720
#: Columns that have the same value in every row of `covtype`.
CONSTANT_SOILS = ("Soil_Type7", "Soil_Type15")
POSTURES_MARKERS = 5
CHECKIN_COLUMNS = ("user", "time", "latitude", "longitude", "place")
POSITION = ["latitude", "longitude"]


def _read_numbers(content: bytes, separator: str | None = None) -> np.ndarray:
    """Read a table of numbers, gzipped or not."""
    if content.startswith(GZIP_MAGIC):
        content = gzip.decompress(content)
    return np.loadtxt(BytesIO(content), delimiter=separator, ndmin=2)


def table(
    *files: bytes,
    separator: str = ",",
    header: bool = False,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] = (),
    label: str | int | None = None,
    fill: float | None = None,
    logarithms: Sequence[int] = (),
) -> tuple[np.ndarray, np.ndarray | None]:
    r"""Read columns of text files with the same columns, one file after the other.

    Parameters
    ----------
    separator : str, default=","
        Regular expression if it is longer than a character: ``\s+`` for blanks.
    header : bool
        Whether the first line has the columns' names. Otherwise they are numbered from
        0.
    columns : sequence of str or int, optional
        The columns that are points, in this order. Default: all but `drop` and `label`.
    drop : sequence of str or int
        Columns that are no points.
    label : str or int, optional
        Column of the class.
    fill : float, optional
        Public constant in place of a missing value, which the file writes as ``?``.
    logarithms : sequence of int
        Columns of the points whose natural logarithm is taken, numbered from 0.

    Raises
    ------
    ValueError
        If a column is absent, or a value of the points is no number.
    """
    import pandas as pd

    tables = [
        pd.read_csv(
            BytesIO(content),
            sep=separator,
            header=0 if header else None,
            skipinitialspace=True,
            na_values="?",
        )
        for content in files
    ]
    rows = pd.concat(tables, ignore_index=True)
    if columns is None:
        columns = [name for name in rows if name != label and name not in drop]
    absent = [name for name in columns if name not in rows]
    if absent:
        raise ValueError(
            f"columns {absent} are absent; the table has {list(rows.columns)}"
        )
    points = rows[list(columns)].to_numpy(np.float64)
    if fill is not None:
        points[np.isnan(points)] = fill
    logged = list(logarithms)
    points[:, logged] = np.log(points[:, logged])
    return points, None if label is None else encode_classes(rows[label].to_numpy())


def numbers(data: bytes) -> Unlabeled:
    """Read blank-separated numbers, without a header and labels."""
    return _read_numbers(data), None


def numbers_with_labels(data: bytes, labels: bytes) -> Parsed:
    """Read blank-separated numbers; the reference partition is a second file.

    Its lines are integers.
    """
    return _read_numbers(data), encode_classes(_read_numbers(labels)[:, 0])


def adult(data: bytes, test: bytes) -> Parsed:
    """Read six numeric columns of both files, training rows first.

    They are age, fnlwgt, education-num, capital-gain, capital-loss and hours-per-week.
    The class is the income. The test file opens with a comment line, and its classes
    end in a full stop.
    """
    rows = test.partition(b"\n")[2].replace(b"K.", b"K")
    return table(data, rows, columns=ADULT_COLUMNS, label=14)


def letters_resampled(data: bytes) -> Parsed:
    """Draw 720 rows of each letter with replacement, and shuffle all 18,720 rows.

    The letters are drawn in the order of the alphabet. One generator of numpy with the
    seed 42 draws everything, so the rows are always the same. Rows repeat: one person's
    row may occur several times.
    """
    points, labels = table(data, label=0)
    generator = np.random.default_rng(LETTERS_SEED)
    drawn = []
    for letter in range(labels.max() + 1):
        rows = np.flatnonzero(labels == letter)
        drawn.append(rows[generator.integers(0, len(rows), size=LETTERS_PER_CLASS)])
    resampled = generator.permutation(np.concatenate(drawn))
    return points[resampled], labels[resampled]


def gas_with_years(*files: bytes, first_year: int) -> Unlabeled:
    """Read eleven sensors behind the year, a file with a header line for each year."""
    tables = [table(file, header=True)[0] for file in files]
    years = np.repeat(first_year + np.arange(len(tables)), [len(t) for t in tables])
    return np.column_stack([years, np.concatenate(tables)]), None


def mnist(images: bytes, labels: bytes) -> Parsed:
    """Read images of 28 x 28 bytes, row by row.

    Both files are published gzipped in the IDX format.
    """
    pixels = np.frombuffer(gzip.decompress(images), dtype=np.uint8, offset=16)
    classes = np.frombuffer(gzip.decompress(labels), dtype=np.uint8, offset=8)
    return pixels.reshape(-1, 28 * 28).astype(np.float64), classes.astype(np.int64)


def g2(data: bytes) -> Parsed:
    """Read integers in columns, the rows of the first cluster, then of the second."""
    points = _read_numbers(data)
    return points, np.repeat(np.array([0, 1], dtype=np.int64), len(points) // 2)


def labeled_archive(data: bytes) -> Parsed:
    """Read numpy's archive of `X` (n, d) and `y` (n,)."""
    with np.load(BytesIO(data), allow_pickle=False) as archive:
        return archive["X"].astype(np.float64), encode_classes(archive["y"])


def regional_checkins(*regions: bytes) -> Unlabeled:
    """Read latitude and longitude of each user, users in ascending order; no labels.

    A line of a region's file holds user, latitude and longitude between commas. Of
    users in several files the first one counts.
    """
    rows = np.concatenate([_read_numbers(region, ",") for region in regions])
    _, first = np.unique(rows[:, 0], return_index=True)
    return rows[first, 1:], None


def arrays(data: bytes) -> Split:
    """Read numpy's archive of `data` (n, d) and, if present, `label` and `client` (n,).

    The points are divided by their largest value if that is above 1.

    Raises
    ------
    ValueError
        If it is no such archive.
    """
    try:
        with np.load(BytesIO(data), allow_pickle=False) as archive:
            names = [name for name in ("data", "label", "client") if name in archive]
            members = {name: archive[name] for name in names}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"cannot be read as a .npz file without pickles: {error}"
        ) from error
    if "data" not in members or members["data"].ndim != 2:
        raise ValueError(
            "a .npz file should hold an array 'data' of two dimensions, (n, d)"
        )
    points = divide_by_largest(members.pop("data").astype(np.float64))
    for name, codes in members.items():
        if codes.shape != points.shape[:1] or codes.dtype.kind not in "iu":
            raise ValueError(
                f"array {name!r} of shape {codes.shape} and type {codes.dtype} should "
                f"hold n={len(points)} integers"
            )
        members[name] = encode_classes(codes)
    return points, members.get("label"), members.get("client")


def covtype(data: bytes) -> Parsed:
    """Read cartographic variables, each scaled to [0, 1] by its extremes.

    The identifier and the two constant variables are dropped.
    """
    drop = ("Id", *CONSTANT_SOILS)
    points, labels = table(data, header=True, drop=drop, label="Cover_Type")
    return (points - points.min(axis=0)) / np.ptp(points, axis=0), labels


def postures(data: bytes) -> Parsed:
    """Read positions of the first five markers, divided by the largest value.

    Rows that lack one of these positions are dropped. The class comes first, the user
    second. The first row of the file, of class 0, is all zeros and is dropped as well.
    """
    columns = (0, *range(2, 2 + 3 * POSTURES_MARKERS))
    rows, _ = table(data.partition(b"\n")[2], columns=columns)
    kept = rows[(rows[:, 0] != 0) & ~np.isnan(rows).any(axis=1)]
    return divide_by_largest(kept[:, 1:]), encode_classes(kept[:, 0])


def checkins(data: bytes) -> Unlabeled:
    """Read latitude and longitude of each user's last check-in.

    Users are in ascending order. The file is published gzipped. Of check-ins at the
    same second the first line counts: a user's lines are published newest first.
    """
    # Times are written with the year first and all parts in full width: their order as
    # text is that in time.
    newest_first = _read_checkins(data).sort_values(
        ["user", "time"], ascending=[True, False], kind="stable"
    )
    last = newest_first.drop_duplicates("user")
    return last[POSITION].to_numpy(), None


def visits(data: bytes) -> Grouped:
    """Read latitude and longitude of all check-ins; the person is the user."""
    rows = _read_checkins(data)
    return rows[POSITION].to_numpy(), None, None, rows["user"].to_numpy()


def _read_checkins(data: bytes) -> Any:
    """Read user, time, latitude and longitude of check-ins, gzipped or not.

    A line holds them and the place, between tabs. Lines without a time or a position
    are left out.

    Raises
    ------
    ValueError
        If it is no such file.
    """
    import pandas as pd

    try:
        rows = pd.read_csv(
            BytesIO(gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data),
            sep="\t",
            header=None,
            names=CHECKIN_COLUMNS,
            usecols=CHECKIN_COLUMNS[:4],
            dtype={"user": int, "time": str, "latitude": float, "longitude": float},
            quoting=csv.QUOTE_NONE,
        )
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(
            f"expected are lines of {', '.join(CHECKIN_COLUMNS)} between tabs, gzipped "
            f"or not, and they are not read as such: {error}"
        ) from error
    return rows.dropna()


def locate_nodes(data: bytes) -> bytes:
    """Keep latitude and longitude, as they are written, of the nodes that have both.

    The table has a header with these columns among others.
    """
    import pandas as pd

    nodes = pd.read_csv(BytesIO(data), usecols=POSITION, dtype=str).dropna()
    return nodes[POSITION].to_csv(index=False).encode()


def unpack(data: bytes) -> bytes:
    """Unpack a gzipped file."""
    with gzip.GzipFile(fileobj=BytesIO(data)) as stream:
        return b"".join(read_parts(stream, MAX_BYTES, "a gzipped file"))


#: Conversions of the bytes of a URL, before they are checked and stored.
CONVERSIONS = {"locate_nodes": locate_nodes, "unpack": unpack}
PARSERS = {
    parser.__name__: parser
    for parser in (
        table,
        numbers,
        numbers_with_labels,
        adult,
        letters_resampled,
        gas_with_years,
        mnist,
        labeled_archive,
        regional_checkins,
        arrays,
        covtype,
        postures,
        checkins,
        visits,
    )
}


def describe(parse: Callable) -> str:
    """Return the text that determines what a parser returns: its code and arguments."""
    if isinstance(parse, partial):
        return f"{read_with_dependencies(parse.func)}{parse.keywords}"
    return read_with_dependencies(parse)
