"""Download missing files of data sets; failures are listed, not raised."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from urllib.parse import urlsplit

from rich.filesize import decimal

from pkm.datasets import downloads, loading, sources
from pkm.datasets.entry import Entry
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, File
from pkm.files import CACHE_VARIABLE, cache_folder

#: Missing files of data sets.
Missing = dict[Entry, list[File]]


@dataclass(frozen=True)
class Fetched:
    """What `fetch_missing` did.

    Attributes
    ----------
    fetched : tuple of str
        Data sets that were missing and can be loaded now.
    unavailable : dict of str
        Data sets that could not be downloaded, with the reason in one line.
    """

    fetched: tuple[str, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)


def _is_available(file: File, data_dir: str | PathLike | None) -> bool:
    """Tell whether the cache or the data folder has a right copy of a file."""
    try:
        return sources.find(file, data_dir) is not None
    except ChecksumMismatch:
        # A right copy in the cache comes before a damaged one in the data folder.
        return False


def fetch_missing(
    names: Iterable[str],
    data_dir: str | PathLike | None = None,
    report: Callable[[str], object] | None = None,
) -> Fetched:
    """Download the missing files of data sets into the cache.

    Bundled, generated and available sets and the user's own files are skipped. Files
    without a declared hash are kept only if they parse to the declared shape.

    Parameters
    ----------
    names : iterable of str
    data_dir : path-like, optional
    report : callable, optional
        Called before each group of downloads with a line on its size, source and
        license.

    Returns
    -------
    Fetched

    Raises
    ------
    ValueError
        If a name is unknown, or the data folder does not exist.

    Examples
    --------
    >>> fetch_missing(["iris", "synth-2-2-0"])
    Fetched(fetched=(), unavailable={})
    """
    missing = find_missing(names, data_dir)
    unavailable = {
        entry.name: sources.explain_missing(files[0], entry.name)
        for entry, files in missing.items()
        if not all(file.urls for file in files)
    }
    wanted = {
        entry: files
        for entry, files in missing.items()
        if entry.name not in unavailable
    }
    if report is not None:
        for line in describe_downloads(wanted):
            report(line)
    reason = _explain_full_disk(wanted)
    if reason:
        unavailable |= {entry.name: reason for entry in wanted}
        wanted = {}
    session = downloads.Downloads(progress=True)
    fetched = []
    for entry, files in wanted.items():
        try:
            for file in files:
                downloads.fetch(file, entry.name, session)
            _check_undeclared(entry, files, data_dir)
        except (DataUnavailable, ChecksumMismatch) as error:
            unavailable[entry.name] = str(error)
        else:
            fetched.append(entry.name)
    return Fetched(tuple(fetched), unavailable)


def find_missing(names: Iterable[str], data_dir: str | PathLike | None) -> Missing:
    """Find the data sets to download, with the files that each of them lacks.

    Bundled, generated and available sets and the user's own files are skipped.

    Examples
    --------
    >>> find_missing(["iris", "synth-2-2-0"], None)
    {}
    """
    missing = {}
    for name in dict.fromkeys(names):
        entry = loading.resolve(name).entry
        if entry is None or entry.bundled_sha256:
            continue
        files = [file for file in entry.files if not _is_available(file, data_dir)]
        if files:
            missing[entry] = files
    return missing


def describe_downloads(wanted: Missing) -> list[str]:
    """Say what will be downloaded, one line for all sets from the same archive.

    Examples
    --------
    >>> from pkm.datasets.registry import find
    >>> s2 = find("s2")
    >>> describe_downloads({s2: list(s2.files)})[0].partition(";")[0]
    's2: 105.1 kB from cs.uef.fi, raw.githubusercontent.com'
    """
    groups: dict[tuple, list[tuple[Entry, list[File]]]] = {}
    for entry, files in wanted.items():
        urls = tuple(file.urls[0] for file in files)
        if urls:
            groups.setdefault((urls, entry.license), []).append((entry, files))
    lines = []
    for (urls, terms), group in groups.items():
        name = group[0][0].name
        if len(group) > 1:
            name = f"{name} and {len(group) - 1} more"
        hosts = ", ".join(dict.fromkeys(urlsplit(url).netloc for url in urls))
        # Sets of one file each may share that file.
        files = dict.fromkeys(file for _, files in group for file in files)
        size = total_size(files) or "unknown size"
        lines.append(f"{name}: {size} from {hosts}; license: {terms}")
    return lines


def total_size(files: Iterable[File]) -> str:
    """Write the size of files in words, empty if it is not known.

    Examples
    --------
    >>> total_size([File("a", None, size=1_500_000), File("b", None, size=40_000)])
    '1.5 MB'
    """
    sizes = [file.size for file in files]
    known = sum(size for size in sizes if size is not None)
    if None not in sizes:
        return decimal(known)
    return f"more than {decimal(known)}" if known else ""


def _explain_full_disk(wanted: Missing) -> str:
    """Say that the disk of the cache has too little space; empty if it has enough."""
    folder = cache_folder()
    folders = (folder, *folder.parents)
    existing = next((path for path in folders if path.is_dir()), Path())
    free = shutil.disk_usage(existing).free
    needed = sum(file.size or 0 for files in wanted.values() for file in files)
    if needed <= free:
        return ""
    return (
        f"{needed:,} bytes are needed and {free:,} are free in {folder}: make room "
        f"there, or set {CACHE_VARIABLE} to another folder"
    )


def _check_undeclared(
    entry: Entry, files: Sequence[File], data_dir: str | PathLike | None
) -> None:
    """Parse a set with files without a declared hash; remove files that do not fit."""
    undeclared = [file for file in files if file.sha256 is None]
    if not undeclared:
        return
    try:
        loading.load(entry.name, data_dir=data_dir)
    except ValueError as error:
        for file in undeclared:
            (cache_folder() / file.path).unlink(missing_ok=True)
            sources.locate_record(file).unlink(missing_ok=True)
        raise ChecksumMismatch(
            f"what {undeclared[0].urls[0]} gives is not the set: {error}"
        ) from None
