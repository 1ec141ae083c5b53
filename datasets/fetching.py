"""Download what is missing of some data sets; what cannot be had is listed, not raised."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from urllib.parse import urlsplit

from pkm.datasets import downloads, embeddings, loading, sources
from pkm.datasets.registry import Entry
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable, File
from pkm.files import CACHE_VARIABLE, cache_folder


@dataclass(frozen=True)
class Fetched:
    """What `fetch_missing` did.

    Attributes
    ----------
    fetched : tuple of str
        Data sets that were missing and can be loaded now.
    unavailable : dict of str
        Data sets that cannot be had, each with the reason in one line.
    """

    fetched: tuple[str, ...] = ()
    unavailable: dict[str, str] = field(default_factory=dict)


def missing_files(entry: Entry, mirror: str | PathLike | None = None) -> list[File]:
    """Files of a data set without a right copy in cache or mirror."""
    return [file for file in entry.files if not _is_available(file, mirror)]


def _is_available(file: File, mirror: str | PathLike | None) -> bool:
    try:
        return sources.find(file, mirror) is not None
    except ChecksumMismatch:
        # A right copy in the cache comes before a damaged one in the mirror.
        return False


def fetch_missing(
    names: Iterable[str],
    mirror: str | PathLike | None = None,
    say: Callable[[str], object] | None = None,
    progress: bool = True,
) -> Fetched:
    """Download the missing files of data sets into the cache.

    Sets that are bundled, generated, the user's own or available need none. A set of which a file
    has no declared hash is kept only if it parses to the declared shape.

    Parameters
    ----------
    names : iterable of str
    mirror : path-like, optional
    say : callable, optional
        Called before each group of downloads with a line on its size, source and license.
    progress : bool
        Show a bar for each download where there is a terminal.

    Returns
    -------
    Fetched

    Raises
    ------
    ValueError
        If a name is unknown, or the mirror does not exist.

    Examples
    --------
    >>> fetch_missing(["iris", "synth-2-2-0"])
    Fetched(fetched=(), unavailable={})
    """
    wanted = _wanted(names, mirror)
    unavailable = {
        entry.name: sources.missing(files[0], entry.name)
        for entry, files in wanted.items()
        if not all(file.urls for file in files)
    }
    wanted = {entry: files for entry, files in wanted.items() if entry.name not in unavailable}
    for line in announcement(wanted) if say else ():
        say(line)
    unavailable |= _without_room(wanted)
    earlier = downloads.Downloads(progress)
    fetched = []
    for entry, files in wanted.items():
        if entry.name in unavailable:
            continue
        try:
            for file in files:
                downloads.fetch(file, entry.name, earlier)
            _check_undeclared(entry, files, mirror)
            if entry.trained:
                embeddings.read_bytes(entry)
        except (DataUnavailable, ChecksumMismatch) as error:
            unavailable[entry.name] = str(error)
        else:
            fetched.append(entry.name)
    return Fetched(tuple(fetched), unavailable)


def _wanted(names: Iterable[str], mirror: str | PathLike | None) -> dict[Entry, list[File]]:
    """Published data sets with their missing files, where there are any."""
    wanted = {}
    for name in dict.fromkeys(names):
        entry = loading.resolve(name).entry
        if entry and not entry.bundled and not _is_trained(entry):
            files = missing_files(entry, mirror)
            if files or entry.trained:
                wanted[entry] = files
    return wanted


def _is_trained(entry: Entry) -> bool:
    return entry.trained is not None and all(map(Path.is_file, embeddings.stored_paths(entry)))


def announcement(wanted: dict[Entry, list[File]]) -> list[str]:
    """What will be downloaded, one line for all sets from the same archive.

    Examples
    --------
    >>> from pkm.datasets.registry import find
    >>> s2 = find("s2")
    >>> announcement({s2: list(s2.files)})[0].partition(";")[0]
    's2: 105 kB from cs.uef.fi, raw.githubusercontent.com'
    """
    groups: dict[tuple, list[tuple[Entry, list[File]]]] = {}
    for entry, files in wanted.items():
        urls = tuple(file.urls[0] for file in files)
        if urls:
            groups.setdefault((urls, entry.license), []).append((entry, files))
    return [_line(group) for group in groups.values()]


def _line(group: Sequence[tuple[Entry, list[File]]]) -> str:
    entry, first = group[0]
    name = f"{entry.name} and {len(group) - 1} more" if len(group) > 1 else entry.name
    # Sets of one file each may share that file.
    files = dict.fromkeys(file for _, files in group for file in files)
    hosts = dict.fromkeys(urlsplit(file.urls[0]).netloc for file in first)
    size = total_size(files) or "unknown size"
    return f"{name}: {size} from {', '.join(hosts)}; license: {entry.license}"


def total_size(files: Iterable[File]) -> str:
    """Size of files in words, empty where it is not known.

    Examples
    --------
    >>> total_size([File("a", None, size=1_500_000), File("b", None, size=40_000)])
    '1.5 MB'
    """
    sizes = [file.size for file in files]
    known = sum(size for size in sizes if size is not None)
    if None in sizes:
        return f"more than {in_words(known)}" if known else ""
    return in_words(known)


def in_words(size: int) -> str:
    """Bytes in decimal units, to a tenth below a hundred.

    Examples
    --------
    >>> in_words(12), in_words(105_144), in_words(31_400_000)
    ('12 B', '105 kB', '31.4 MB')
    """
    if size < 1000:
        return f"{size} B"
    value, unit = (size / 1e3, "kB") if size < 1e6 else (size / 1e6, "MB")
    return f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"


def _without_room(wanted: dict[Entry, list[File]]) -> dict[str, str]:
    """All sets, with the reason, where the cache's disk has no room for them together."""
    folder = cache_folder()
    existing = next((path for path in (folder, *folder.parents) if path.is_dir()), Path())
    free = shutil.disk_usage(existing).free
    needed = sum(file.size or 0 for files in wanted.values() for file in files)
    if needed <= free:
        return {}
    reason = (
        f"{needed:,} bytes are needed and {free:,} are free in {folder}: make room there, or set "
        f"{CACHE_VARIABLE} to another folder"
    )
    return {entry.name: reason for entry in wanted}


def _check_undeclared(entry: Entry, files: Sequence[File], mirror: str | PathLike | None) -> None:
    """Parse a set with files without a declared hash; remove them if its shape is another."""
    undeclared = [file for file in files if file.sha256 is None]
    if not undeclared:
        return
    try:
        loading.load(entry.name, mirror=mirror)
    except ValueError as error:
        for file in undeclared:
            (cache_folder() / file.path).unlink(missing_ok=True)
            sources.recorded_hash_path(file).unlink(missing_ok=True)
        raise ChecksumMismatch(
            f"what {undeclared[0].urls[0]} gives is not the set: {error}"
        ) from None
