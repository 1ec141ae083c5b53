"""Where files come from: cache, mirror, URL; each checked against its SHA-256 before anybody reads it.

A file is kept either as it was published or gzipped with ``.gz`` added to its name (as a mirror may do); the registry
knows the hash of both forms, and a gzipped copy is checked before and after unpacking.
"""

import gzip
import hashlib
import os
import tempfile
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from pkm.files import atomic_write, cache_folder

MIRROR_VARIABLE = "PKM_DATA"
NOTES = "noted"
DOWNLOAD_VARIABLE = "PKM_DOWNLOAD"
TIMEOUT_SECONDS = 60


class DataUnavailable(FileNotFoundError):
    """A data set's file is not at hand: says which file, from which URLs it can be had and where to put it."""


class ChecksumMismatch(ValueError):
    """A file is not the one that the registry declares."""


@dataclass(frozen=True)
class File:
    """One file of the registry.

    Attributes
    ----------
    path : str
        Relative path in the cache and in a mirror, as published; a mirror may hold ``path + ".gz"`` instead.
    sha256 : str or None
        Of the published file. None where nobody here has seen that file: the first one read is taken, its hash is noted
        in the cache, and from then on the note stands for it.
    gz_sha256 : str or None
        Of the gzipped copy, where there is one.
    urls : tuple of str
        Tried in this order.
    member : str or None
        Name inside the archive, where the URLs lead to a ZIP archive.
    source : str
        Where no URL leads to the file: in words, where it can be had and in which form it is expected.
    """

    path: str
    sha256: str | None
    gz_sha256: str | None = None
    urls: tuple[str, ...] = ()
    member: str | None = None
    source: str = ""


@dataclass(frozen=True)
class Found:
    """A file at hand: its published bytes are known to be right.

    Attributes
    ----------
    content : bytes
        As published.
    place : pathlib.Path
    origin : str
        cache, mirror or url.
    """

    content: bytes
    place: Path
    origin: str


def mirror_folder(mirror=None):
    """Mirror folder: the argument, else PKM_DATA, else None.

    Raises
    ------
    ValueError
        If the folder does not exist.
    """
    given = mirror or os.environ.get(MIRROR_VARIABLE)
    if not given:
        return None
    folder = Path(given)
    if not folder.is_dir():
        raise ValueError(
            f"mirror={str(folder)!r} (argument or {MIRROR_VARIABLE}) should be an existing folder"
        )
    return folder


def sha256(content):
    """SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def copies(file, mirror=None):
    """Existing copies of a file, the one to be used first.

    Yields
    ------
    place : pathlib.Path
    gzipped : bool
    origin : str
        cache or mirror.
    """
    for folder, origin in ((cache_folder(), "cache"), (mirror_folder(mirror), "mirror")):
        if folder is None:
            continue
        forms = [(folder / file.path, False)]
        if file.gz_sha256:
            forms.append((folder / f"{file.path}.gz", True))
        for place, gzipped in forms:
            if place.is_file():
                yield place, gzipped, origin


def read_checked(file, place, gzipped):
    """Return the published bytes of one copy.

    Raises
    ------
    ChecksumMismatch
        If the copy, or what it unpacks to, has another hash than declared or noted.
    """
    stored = place.read_bytes()
    if file.sha256 is None:
        _require_noted(file, stored, place)
        return stored
    _require_hash(stored, file.gz_sha256 if gzipped else file.sha256, place)
    if not gzipped:
        return stored
    content = gzip.decompress(stored)
    _require_hash(content, file.sha256, f"{place} (unpacked)")
    return content


def _require_hash(content, expected, what):
    got = sha256(content)
    if got != expected:
        raise ChecksumMismatch(
            f"{what} has SHA-256 {got}, the registry declares {expected}: the file is damaged or another version; "
            "delete it and fetch it again"
        )


def note_of(file):
    """Where the hash of a file is noted that has no declared one."""
    return cache_folder() / NOTES / f"{file.path}.sha256"


def _require_noted(file, content, place):
    note, got = note_of(file), sha256(content)
    if not note.is_file():
        atomic_write(note, got.encode())
    elif (noted := note.read_text()) != got:
        raise ChecksumMismatch(
            f"{place} has SHA-256 {got}, noted in {note} is {noted}: the file is not the one that was read first; "
            "bring that one back, or delete the note to take this one"
        )


def known_sha256(file, name, mirror=None):
    """SHA-256 of a published file, declared or noted; a file that nobody has read yet is read for it.

    Raises
    ------
    DataUnavailable
        If it is neither declared nor noted and the file is not at hand.
    """
    if file.sha256 is None and not note_of(file).is_file() and find(file, mirror) is None:
        raise DataUnavailable(missing(file, name))
    return file.sha256 or note_of(file).read_text()


def find(file, mirror=None):
    """Return the first copy at hand, checked; None if there is none.

    Raises
    ------
    ChecksumMismatch
        If that copy is a wrong one: it is never passed over in silence.
    """
    for place, gzipped, origin in copies(file, mirror):
        return Found(read_checked(file, place, gzipped), place, origin)
    return None


def obtain(file, name, mirror=None, download=None):
    """Return a file from cache or mirror, or from its URLs where downloads are allowed.

    Parameters
    ----------
    file : File
    name : str
        Data set it belongs to, for the error message.
    mirror : path-like, optional
    download : bool, optional
        Default: whether the environment variable PKM_DOWNLOAD is 1.

    Raises
    ------
    DataUnavailable
        If it is not at hand and may not or cannot be downloaded.
    ChecksumMismatch
        If a copy has the wrong hash.
    """
    found = find(file, mirror)
    if found:
        return found
    if download is None:
        download = os.environ.get(DOWNLOAD_VARIABLE) == "1"
    if not download:
        raise DataUnavailable(missing(file, name))
    return fetch(file, name)


def missing(file, name, failures=()):
    """Say which file is missing, where it is published and where to put it."""
    stored = f"{file.path} (or {file.path}.gz)" if file.gz_sha256 else file.path
    urls = ", ".join(file.urls) or file.source or "no public URL"
    inside = f", file {file.member} in the archive" if file.member else ""
    tried = f" Tried without success: {'; '.join(failures)}." if failures else ""
    fetching = (
        f", or run 'pkm data fetch {name}' where there is network access" if file.urls else ""
    )
    return (
        f"data set {name!r} needs the file {stored}, published at {urls}{inside}.{tried} Put it into "
        f"{cache_folder()} or into a mirror folder named by {MIRROR_VARIABLE} (same relative path){fetching}"
    )


def fetch(file, name, progress=False):
    """Download a file into the cache, check it, and only then give it its name.

    Parameters
    ----------
    file : File
    name : str
        Data set it belongs to, for the error message.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Found

    Raises
    ------
    DataUnavailable
        If no URL gives the file.
    ChecksumMismatch
        If what a URL gives is not the declared file and no other URL gives it.
    """
    target = cache_folder() / file.path
    failures, mismatch = [], None
    for url in file.urls:
        try:
            content = _published(url, file.member, progress)
            _require_hash(content, file.sha256, url)
        except ChecksumMismatch as error:
            mismatch = error
            failures.append(str(error))
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            failures.append(f"{url}: {error}")
        else:
            atomic_write(target, content)
            return Found(content, target, "url")
    if mismatch:
        raise ChecksumMismatch(f"data set {name!r}: {'; '.join(failures)}")
    raise DataUnavailable(missing(file, name, failures))


def _published(url, member, progress):
    """Bytes of the file that a URL leads to, taken out of its archive where there is one."""
    content = _download(url, progress)
    if member is None:
        return content
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return archive.read(member)


# The last download is kept, because several files come from one archive (adult two, G2 ninety).
@lru_cache(maxsize=1)
def _download(url, progress):
    # Imported here: only a download needs pooch, and importing it costs more than a plan's whole look-up.
    import pooch

    pooch.get_logger().setLevel("WARNING")
    with tempfile.TemporaryDirectory(prefix="private-kmeans-bench-") as folder:
        downloader = pooch.HTTPDownloader(progressbar=progress, timeout=TIMEOUT_SECONDS)
        return Path(
            pooch.retrieve(
                url, known_hash=None, fname="download", path=folder, downloader=downloader
            )
        ).read_bytes()
