"""An entry: a folder with rows, an audit, the environment and a page about a method.

It is read without this project: rows are Parquet, all else JSON and Markdown.
"""

import json
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from pkm.arrow import check_table, to_frame, to_table
from pkm.experiments.config.settings import TEXT
from pkm.experiments.reports.crate import write_json
from pkm.experiments.store.store import REQUIRED
from pkm.files import sha256

ENTRY = "entry.json"
ROWS = "rows.parquet"
SOURCE = "source"
#: Folder of the source with the files of a program.
PROGRAM = "program"
#: Package of the methods of this project.
PROJECT = "pkm"
VERIFICATION = "verification.json"
#: Columns of the rows that are submitted.
COLUMNS = ("sweep", *REQUIRED, "nicv", "n_centers", "centers")
#: Largest size of a folder, in bytes.
MAX_SIZE = 5_000_000


@dataclass(frozen=True)
class Entry:
    """What is said about the rows of an entry.

    Parameters
    ----------
    method : mapping
        ``name``, ``_target_`` and parameters, as in ``conf/method``.
    suite, stage : str
    submitter : str
        Who submits it.
    created : str
        Moment of UTC.
    package : str
        Installed distribution with its version, `PROJECT` for methods of this project;
        empty where the folder holds the source.
    checks : list of dict
        Check, variant and error of the conformance suite.
    audit : mapping or None
        Record of the audit; None where the method claims no privacy.
    problems : list of str
        What failed, a line each.
    environment : mapping
        Versions and machine.
    claimed : mapping or None
        What a program claims of itself: ``notion``, ``adjacency``, ``unit``, and the
        budget. Nobody has checked it. None for other methods.
    files : mapping of str to str
        SHA-256 of each other file.
    """

    method: Mapping[str, Any]
    suite: str
    stage: str
    submitter: str
    created: str
    package: str
    checks: list[dict]
    audit: Mapping[str, Any] | None
    problems: list[str]
    environment: Mapping[str, Any]
    claimed: Mapping[str, Any] | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the method in tables."""
        return self.method["name"]


@contextmanager
def write_folder(target: Path) -> Iterator[Path]:
    """Make a folder of its name at the end of a block, or not at all.

    Raises
    ------
    FileExistsError
        If it is there already.
    """
    if target.exists():
        raise FileExistsError(
            f"out={str(target)!r} exists: an entry is not overwritten, remove it or "
            "name another folder"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".entry-", dir=target.parent) as temporary:
        folder = Path(temporary, "entry")
        folder.mkdir()
        yield folder
        folder.rename(target)


def write_rows(rows: pd.DataFrame, folder: Path) -> None:
    """Write the rows of an entry, packed well."""
    pq.write_table(to_table(rows), folder / ROWS, compression="zstd")


def read_rows(folder: Path, required: Collection[str] = ()) -> pd.DataFrame:
    """Read the rows of an entry.

    Parameters
    ----------
    folder : Path
    required : collection of str
        Columns that they must have.

    Raises
    ------
    ValueError
        If the file is missing or damaged, or has columns of another schema.
    """
    path = folder / ROWS
    try:
        table = pq.read_table(path)
        check_table(table, required)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return to_frame([table])


def list_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of an entry but its own and a verification's."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in (ENTRY, VERIFICATION):
            digests[name] = sha256(path.read_bytes())
    return digests


def check_size(folder: Path) -> list[str]:
    """Tell whether a folder is too large for an entry: no line, or one."""
    files = filter(Path.is_file, folder.rglob("*"))
    size = sum(path.stat().st_size for path in files)
    if size <= MAX_SIZE:
        return []
    return [f"the folder has {size:,} bytes: at most {MAX_SIZE:,} are allowed"]


def write_entry(entry: Entry, folder: Path) -> None:
    """Write ``entry.json`` last: it has the digests of the other files."""
    content = asdict(entry) | {"files": list_files(folder)}
    write_json(folder / ENTRY, content)


def read_entry(folder: Path) -> Entry:
    """Read ``entry.json``.

    Raises
    ------
    ValueError
        If the folder is no entry, or its file lacks a key.
    """
    path = folder / ENTRY
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        values = {item.name: content[item.name] for item in fields(Entry)}
        for name in ("name", "_target_"):
            TEXT.require(name, values["method"][name])
        return Entry(**values)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is no entry of the arena: {error}") from error


def copy_source(files: Mapping[str, Path], folder: Path) -> None:
    """Copy files, by their names in the source of an entry."""
    for name, path in files.items():
        target = folder / SOURCE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
