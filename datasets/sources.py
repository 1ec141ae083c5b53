"""Files from cache or data folder, checked against their SHA-256 before parsing.

A file is kept as it was published, or gzipped with ``.gz`` added to its name. The
registry knows the hash of both forms, and a gzipped copy is checked before and after
unpacking. The hash of an archive that holds a file is not known: its member is taken
out in parts, up to the size that the registry allows, and then checked.
"""

import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import IO

from pkm.files import OWNER_FILE, atomic_write, cache_folder, sha256

DATA_VARIABLE = "PKM_DATA"
#: Folder of the cache for recorded hashes, of files without a declared hash.
RECORDED_HASHES = "noted"
#: Largest size of a download or file, unless the registry gives another.
MAX_BYTES = 2**28
#: Size of the parts in which archives and files are unpacked.
PART_BYTES = 2**20


class DataUnavailable(FileNotFoundError):
    """A file is missing; the message says where it is published and where to put it."""


class ChecksumMismatch(ValueError):
    """A file is not the one that the registry declares."""


@dataclass(frozen=True)
class File:
    """A file of the registry.

    Attributes
    ----------
    path : str
        Relative path in the cache and in a data folder, as published; it may hold
        ``path + ".gz"`` instead.
    sha256 : str or None
        Of the published file. None if the published file was not available when the
        entry was written: the first one read is trusted, its hash recorded in the cache
        and required from then on.
    gz_sha256 : str or None
        Of the gzipped copy, if there is one.
    urls : tuple of str
        Tried in this order.
    member : str or None
        Name inside the archive of those URLs that lead to a ZIP archive.
    source : str
        If no URL leads to the file: in words, where it is available and in which form
        it is expected.
    size : int or None
        Bytes of the published file, if they are known.
    convert : callable or None
        Makes the bytes of this file from those of a URL or archive member.
    max_bytes : int
        Largest size of the file and of what it unpacks to; what is larger is refused
        before it is held in memory.
    folder : pathlib.Path or None
        Of the ``datasets.toml`` that declares it: it may lie there, too.
    """

    path: str
    sha256: str | None
    gz_sha256: str | None = None
    urls: tuple[str, ...] = ()
    member: str | None = None
    source: str = ""
    size: int | None = None
    convert: Callable[[bytes], bytes] | None = None
    max_bytes: int = MAX_BYTES
    folder: Path | None = None


@dataclass(frozen=True)
class CheckedFile:
    """A file whose bytes have been checked.

    Attributes
    ----------
    content : bytes
        As published.
    origin : str
        own folder, cache, data folder or url.
    """

    content: bytes
    origin: str


def data_folder(data_dir: str | PathLike | None = None) -> Path | None:
    """Return the data folder: the argument, else PKM_DATA, else None.

    Raises
    ------
    ValueError
        If the folder does not exist.
    """
    path = data_dir or os.environ.get(DATA_VARIABLE)
    if not path:
        return None
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(
            f"data_dir={str(folder)!r} (argument or {DATA_VARIABLE}) should be an "
            "existing folder"
        )
    return folder


def find_copies(
    file: File, data_dir: str | PathLike | None = None
) -> Iterator[tuple[Path, bool, str]]:
    """Find the existing copies of a file, in the order of preference.

    Yields
    ------
    path : pathlib.Path
    gzipped : bool
    origin : str
        own folder, cache or data folder.
    """
    folders = {
        "own folder": file.folder,
        "cache": cache_folder(),
        "data folder": data_folder(data_dir),
    }
    for origin, folder in folders.items():
        if folder is None:
            continue
        path = folder / file.path
        if path.is_file():
            yield path, False, origin
        packed = folder / f"{file.path}.gz"
        if file.gz_sha256 and packed.is_file():
            yield packed, True, origin


def read_checked(file: File, path: Path, gzipped: bool) -> bytes:
    """Return the published bytes of a copy.

    Raises
    ------
    ChecksumMismatch
        If the copy, or what it unpacks to, has another hash than declared or recorded,
        or is larger than allowed.
    """
    require_size(path.stat().st_size, file.max_bytes, path)
    stored = path.read_bytes()
    if file.sha256 is None:
        _require_recorded_hash(file, stored, path)
        return stored
    require_hash(stored, file.gz_sha256 if gzipped else file.sha256, path)
    if not gzipped:
        return stored
    unpacked = f"{path} (unpacked)"
    with gzip.GzipFile(fileobj=BytesIO(stored)) as stream:
        content = b"".join(read_parts(stream, file.max_bytes, unpacked))
    require_hash(content, file.sha256, unpacked)
    return content


def require_size(size: int, max_bytes: int, source: str | Path) -> None:
    """Refuse what is larger than a declared file can be."""
    if size > max_bytes:
        raise ChecksumMismatch(
            f"{source}: size={size} bytes or more is above max_bytes={max_bytes}: it "
            "is not the declared file"
        )


def read_parts(
    stream: IO[bytes] | gzip.GzipFile, max_bytes: int, source: str | Path
) -> Iterator[bytes]:
    """Read a stream in parts; refuse what is longer than allowed."""
    size = 0
    while content := stream.read(PART_BYTES):
        size += len(content)
        require_size(size, max_bytes, source)
        yield content


def _require_unpacked_size(content: bytes, max_bytes: int, path: Path) -> None:
    """Refuse a gzipped file or an archive that unpacks to more than allowed."""
    unpacked = f"{path} (unpacked)"
    try:
        if content.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=BytesIO(content)) as stream:
                for _ in read_parts(stream, max_bytes, unpacked):
                    pass
        elif content.startswith(b"PK"):
            # Members are read up to the sizes that the directory states, no further.
            with zipfile.ZipFile(BytesIO(content)) as archive:
                size = sum(member.file_size for member in archive.infolist())
            require_size(size, max_bytes, unpacked)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile):
        # No such file, or a damaged one: its parser says so.
        return


def require_hash(content: bytes, expected: str | None, source: str | Path) -> None:
    """Refuse bytes that are not the declared ones."""
    actual = sha256(content)
    if actual != expected:
        raise ChecksumMismatch(
            f"{source} has SHA-256 {actual}, the registry declares {expected}: the "
            "file is damaged or another version; delete it and fetch it again"
        )


def locate_record(file: File) -> Path:
    """Return where the hash of a file that has no declared hash is recorded."""
    # Files of different folders may have the same path.
    path = f"{file.folder or ''}/{file.path}.sha256".lstrip("/")
    return cache_folder() / RECORDED_HASHES / path


def _require_recorded_hash(file: File, content: bytes, path: Path) -> None:
    """Record the hash of a file that is read for the first time; later compare with it.

    Only its owner can read the file of the hash, because the data may be confidential.
    """
    record = locate_record(file)
    actual = sha256(content)
    if not record.is_file():
        _require_unpacked_size(content, file.max_bytes, path)
        atomic_write(record, actual.encode(), OWNER_FILE)
        return
    recorded = record.read_text()
    if recorded != actual:
        raise ChecksumMismatch(
            f"{path} has SHA-256 {actual}, recorded in {record} is {recorded}: the "
            "file is not the one that was read first; restore that file, or delete the "
            "record to accept this one"
        )


def known_sha256(file: File, name: str, data_dir: str | PathLike | None = None) -> str:
    """Return the SHA-256 of a published file, declared or recorded.

    A file that has not been read yet is read for it.

    Raises
    ------
    DataUnavailable
        If it is neither declared nor recorded and the file is not available.
    """
    if file.sha256 is not None:
        return file.sha256
    record = locate_record(file)
    # Reading the file records its hash.
    if not record.is_file() and find(file, data_dir) is None:
        raise DataUnavailable(explain_missing(file, name))
    return record.read_text()


def find(file: File, data_dir: str | PathLike | None = None) -> CheckedFile | None:
    """Return the first available copy, checked; None if there is none.

    Raises
    ------
    ChecksumMismatch
        If that copy has the wrong hash: it is never skipped silently.
    """
    for path, gzipped, origin in find_copies(file, data_dir):
        return CheckedFile(read_checked(file, path, gzipped), origin)
    return None


def explain_missing(file: File, name: str, failures: Sequence[str] = ()) -> str:
    """Say which file is missing, its source, what failed, and where to put it."""
    stored = f"{file.path} (or {file.path}.gz)" if file.gz_sha256 else file.path
    fetching = ""
    if failures:
        where = f". Tried without success: {'; '.join(failures)}"
    else:
        inside = f", file {file.member} in the archive" if file.member else ""
        where = f", published at {', '.join(file.urls) or file.source}{inside}"
        if file.urls:
            fetching = f", or run 'pkm data fetch {name}' where there is network access"
    own = f"{file.folder}, " if file.folder else ""
    return (
        f"data set {name!r} needs the file {stored}{where}. Put it into "
        f"{own}{cache_folder()} or into a data folder named by {DATA_VARIABLE} (same "
        f"relative path){fetching}"
    )
