"""Data sets that come with the code: one compact Parquet file each, in ``bundled/``.

A column is a feature, or the ``label``, ``client`` or ``person`` of each point. The
values are those that the parser makes of the published files, in the same order. The
registry has a digest of them, with which every reading is compared. ``pkm data bundle``
makes the files, and ``README.md`` beside them.
"""

import hashlib
from collections.abc import Iterable, Mapping
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pkm.datasets.entry import Entry
from pkm.datasets.sources import ChecksumMismatch

FOLDER = Path(__file__).with_name("bundled")
README = "README.md"
#: Columns that are no features, but codes: integers that stand for something.
CODES = ("label", "client", "person")
#: Types of a column of integers, the smallest first.
INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.int64)
ZSTD_LEVEL = 19
README_HEAD = """\
# Data sets in this folder

Real data sets, one Parquet file each: the features, and `label` or `client` where the
set has them. The values are those of the published files, in their order; a test
compares them. `pkm data bundle` writes this folder.

Each set keeps the license under which it was published. Cite its authors. The sets of
SIPU (University of Eastern Finland) and FCPS (University of Marburg) are published for
research and state no license.
"""


class Content(NamedTuple):
    """Points (float64), and labels, clients and persons (int64) or None."""

    points: np.ndarray
    labels: np.ndarray | None
    clients: np.ndarray | None = None
    groups: np.ndarray | None = None


def locate(name: str) -> Path:
    """Return the path of the file of a bundled set."""
    return FOLDER / f"{name}.parquet"


def digest(content: Content) -> str:
    """Hash points, labels, clients and persons: little-endian float64 and int64."""
    points, *all_codes = content
    state = hashlib.sha256(points.astype("<f8").tobytes())
    for codes in all_codes:
        if codes is not None:
            state.update(codes.astype("<i8").tobytes())
    return state.hexdigest()


def read(entry: Entry) -> Content:
    """Read a bundled set, checked against its digest.

    Raises
    ------
    ChecksumMismatch
        If the file is missing, is damaged, or holds other values.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = locate(entry.name)
    remedy = "restore it from the repository, or install the package again"
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException):
        raise ChecksumMismatch(f"{path} is missing or damaged: {remedy}") from None
    columns = {name: table[name].to_numpy() for name in table.column_names}
    codes = [columns.pop(name, None) for name in CODES]
    points = np.empty((table.num_rows, len(columns)))
    for column, values in enumerate(columns.values()):
        points[:, column] = values
    content = Content(points, *(c if c is None else c.astype(np.int64) for c in codes))
    actual = digest(content)
    if actual != entry.bundled_sha256:
        raise ChecksumMismatch(
            f"{path} holds points with SHA-256 {actual}, the registry declares "
            f"{entry.bundled_sha256}: {remedy}"
        )
    return content


def pack(entry: Entry, content: Content, record: Mapping[str, str]) -> bytes:
    """Pack a data set as a Parquet file that `read` gives back bit for bit.

    Parameters
    ----------
    entry : Entry
    content : Content
    record : mapping of str to str
        How the points were made, for embeddings; metadata of the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = entry.columns or [str(column) for column in range(entry.d)]
    columns = dict(zip(names, content.points.T, strict=True))
    codes = dict(zip(CODES, content[1:], strict=True))
    columns |= {name: values for name, values in codes.items() if values is not None}
    columns = {name: _narrow(values) for name, values in columns.items()}
    repeated = [name for name, values in columns.items() if _is_repeated(values)]
    stream = BytesIO()
    pq.write_table(
        pa.table(columns).replace_schema_metadata(record),
        stream,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=repeated,
        use_byte_stream_split=[name for name in columns if name not in repeated],
        write_statistics=False,
        # Without it metadata are not written.
        store_schema=bool(record),
    )
    return stream.getvalue()


def _narrow(values: np.ndarray) -> np.ndarray:
    """Return equal values of the smallest type, of integers if all of them are."""
    content = values.tobytes()
    for kind in (*INTEGERS, np.float32):
        with np.errstate(invalid="ignore", over="ignore"):
            narrow = values.astype(kind)
        # Bytes tell zeros of different signs apart.
        if narrow.astype(values.dtype).tobytes() == content:
            return narrow
    return values


def _is_repeated(values: np.ndarray) -> bool:
    """Tell whether a dictionary of the values takes less than their bytes apart."""
    if values.dtype.kind == "f":
        return 2 * len(np.unique(values)) <= len(values)
    return values.itemsize == 1


def describe(entries: Iterable[Entry], folder: Path = FOLDER) -> str:
    """Write the list of bundled sets, with licenses and citations, in Markdown."""
    parts = [README_HEAD]
    for (terms, citation), group in groupby(
        entries, key=lambda entry: (entry.license, entry.citation)
    ):
        members = list(group)
        names = dict.fromkeys((members[0].name, members[-1].name))
        lines = [f"## {' to '.join(names)}\n", f"License: {terms}. {citation}\n"]
        for entry in members:
            shape = f"{entry.n:,} points of {entry.d} columns, k = {entry.n_clusters}"
            record = _read_record(folder / locate(entry.name).name)
            lines.append(f"- `{entry.name}`: {entry.title}; {shape}{record}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _read_record(path: Path) -> str:
    """Say how the points of a bundled set were made; empty but for embeddings."""
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    facts = [f"{key.decode()} {value.decode()}" for key, value in metadata.items()]
    return f". Training: {', '.join(facts)}" if facts else ""
