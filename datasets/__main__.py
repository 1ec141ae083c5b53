"""Command line: ``pkm data list | fetch NAME ... | verify | croissant | embeddings``."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pkm.arguments import Parser
from pkm.datasets import embeddings, generated, loading, registry, sources
from pkm.datasets.croissant import croissant
from pkm.datasets.fetching import fetch_missing, total_size
from pkm.datasets.registry import G2_HASHES, Entry
from pkm.datasets.sources import File
from pkm.files import atomic_write, cache_folder
from pkm.names import suggestion

#: Columns of the list; their largest widths where whole titles and licenses have no room.
COLUMNS = {"name": 20, "what it is": 27, "points": 20, "size": 7, "from": 20, "license": 12}
FULL_WIDTH = 220


@dataclass(frozen=True)
class Status:
    """State of a published data set on this machine.

    Attributes
    ----------
    origin : str
        Where `datasets.load` would take it from: bundled, cache, mirror or a download and its
        host, or the user, by hand; for embeddings cache or, until they are trained,
        training.
    hashes : str
        ok, missing, or what is wrong.
    bad : bool
        Whether an available file is not the declared one.
    """

    origin: str
    hashes: str
    bad: bool


def status(entry: Entry, mirror: str | None = None) -> Status:
    """Find out where a published data set would come from and whether its files are right."""
    if entry.trained:
        return trained_status(entry, mirror)
    origins = []
    missing = []
    errors = []
    for file in entry.files:
        copies = list(sources.copies(file, mirror))
        if not copies:
            missing.append(file)
            continue
        origins.append(copies[0][2])
        errors += copy_errors(file, mirror)
    errors += bundled_errors(entry)
    if entry.bundled:
        origin = "bundled"
    elif missing:
        by_hand = any(not file.urls for file in missing)
        origin = (
            "the user, by hand" if by_hand else f"download, {urlsplit(missing[0].urls[0]).netloc}"
        )
    else:
        origin = "+".join(dict.fromkeys(origins))
    if errors:
        hashes = f"wrong: {'; '.join(errors)}"
    else:
        hashes = f"{len(missing)} missing" if missing and not entry.bundled else "ok"
    return Status(origin, hashes, bool(errors))


def trained_status(entry: Entry, mirror: str | None = None) -> Status:
    """Find out whether embeddings are trained and undamaged, or their images available."""
    try:
        embeddings.read_bytes(entry)
        return Status("cache", "ok", False)
    except sources.ChecksumMismatch as error:
        return Status("cache", f"wrong: {error}", True)
    except sources.DataUnavailable:
        n_missing = sum(not list(sources.copies(file, mirror)) for file in entry.files)
        images = f"{n_missing} image files missing" if n_missing else "images available"
        return Status("training, make embeddings", f"not trained, {images}: make embeddings", False)


def copy_errors(file: File, mirror: str | None = None) -> list[str]:
    """Return what is wrong with the available copies of a file, an empty list if nothing is."""
    errors = []
    for path, gzipped, _ in sources.copies(file, mirror):
        try:
            sources.read_checked(file, path, gzipped)
        except sources.ChecksumMismatch as error:
            errors.append(str(error))
    return errors


def bundled_errors(entry: Entry) -> list[str]:
    """Return what is wrong with the bundled copy of a data set, an empty list if nothing is."""
    if entry.bundled:
        try:
            loading.read_bundled(entry)
        except sources.ChecksumMismatch as error:
            return [str(error)]
    return []


def list_data(console: Console, mirror: str | None = None) -> None:
    """Print one line per data set and per family, then what is wrong with files."""
    table = Table(box=SIMPLE_HEAD)
    for column, width in COLUMNS.items():
        limit = None if console.width >= FULL_WIDTH else width
        table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=limit)
    wrong = []
    for entry in registry.ENTRIES:
        state = status(entry, mirror)
        wrong += [state.hashes] if state.bad else []
        table.add_row(
            entry.name,
            entry.title,
            f"{entry.n:,} x {entry.d}, k {entry.n_clusters}",
            "" if entry.bundled else total_size(entry.files),
            "wrong files, see below" if state.bad else state.origin,
            entry.license,
        )
    for name in generated.ALIASES:
        family, recipe = _generation(name)
        points = f"{recipe.n:,} x {recipe.d}, k {recipe.n_clusters}"
        table.add_row(name, family.title, points, "", "generated", loading.GENERATED_LICENSE)
    for family in generated.FAMILIES:
        table.add_row(*_family_row(family, mirror))
    table.add_row(
        loading.FILE,
        "points of your own: text, Parquet, NPY or NPZ",
        "",
        "",
        "path=...",
        "your own",
    )
    console.print(table)
    for message in wrong:
        console.print(message, style="red", soft_wrap=True, markup=False)


def _family_row(family: generated.Family, mirror: str | None) -> list[str]:
    """Row of a family; of the G2 sets some are published files."""
    entries = published_g2() if family.name == "g2" else []
    states = [status(entry, mirror) for entry in entries]
    wrong = [state.hashes for state in states if state.bad]
    n_generated = len(set(family.members) - set(G2_HASHES))
    origins = dict.fromkeys(state.origin for state in states)
    if n_generated:
        origins["generated"] = None
    recipes = [_generation(name)[1] for name in family.members]
    return [
        # Square brackets in the form of the name are not markup.
        family.form.replace("[", "\\["),
        family.title,
        (
            f"{_range([recipe.n for recipe in recipes])} x "
            f"{_range([recipe.d for recipe in recipes])}, k "
            f"{_range([recipe.n_clusters for recipe in recipes])}"
        ),
        total_size([file for entry in entries for file in entry.files]) if entries else "",
        "wrong files" if wrong else " / ".join(origins),
        entries[0].license if entries else loading.GENERATED_LICENSE,
    ]


def _generation(name: str) -> tuple[generated.Family, generated.Recipe]:
    generation = generated.find(name)
    assert generation is not None
    return generation


def _range(values: Sequence[int]) -> str:
    smallest = min(values)
    largest = max(values)
    if largest == 0:
        return "drawn"
    return f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"


def published_g2() -> list[Entry]:
    """Entries of all published G2 files."""
    return [entry for entry in map(registry.g2_entry, G2_HASHES) if entry]


def fetch(console: Console, names: Sequence[str], mirror: str | None = None) -> int:
    """Download what is missing of data sets; return how many cannot be had.

    ``g2`` means all published files of that family.
    """
    chosen = []
    for name in names:
        chosen += [entry.name for entry in published_g2()] if name == "g2" else [name]
    reasons = {name: _needs_no_fetching(name) for name in chosen}

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False, highlight=False)

    result = fetch_missing(chosen, mirror, say)
    available = []
    for name, reason in reasons.items():
        if reason:
            say(f"{name}: {reason}, needs no fetching")
        elif name not in result.fetched and name not in result.unavailable:
            available.append(name)
    if available:
        say(f"available: {', '.join(available)}")
    if result.fetched:
        say(f"fetched into {cache_folder()}: {', '.join(result.fetched)}")
    for reason in dict.fromkeys(result.unavailable.values()):
        Console(stderr=True).print(f"error: {reason}", style="red", soft_wrap=True, markup=False)
    return len(result.unavailable)


def _needs_no_fetching(name: str) -> str:
    """Why a data set needs no download whatever files are there; empty if it may need one."""
    resolved = loading.resolve(name)
    if resolved.entry:
        return "bundled with scikit-learn" if resolved.entry.bundled else ""
    return "generated here" if resolved.family else "a file of your own"


def verify(console: Console, mirror: str | None = None) -> int:
    """Check every file in cache and mirror, and the bundled sets; return how many are wrong."""
    n_checked = 0
    errors = []
    for entry in (*registry.ENTRIES, *published_g2()):
        for file in entry.files:
            n_checked += len(list(sources.copies(file, mirror)))
            errors += copy_errors(file, mirror)
        if entry.bundled:
            n_checked += 1
            errors += bundled_errors(entry)
        if entry.trained:
            state = trained_status(entry, mirror)
            n_checked += state.origin == "cache"
            errors += [state.hashes] if state.bad else []
    for message in errors:
        console.print(message, style="red", soft_wrap=True)
    console.print(f"{n_checked} files and bundled sets checked, {len(errors)} wrong")
    return len(errors)


def export_croissant(
    console: Console, name: str | None, out: str | None, mirror: str | None = None
) -> None:
    """Write the Croissant metadata of a data set, or of all into a folder.

    Raises
    ------
    ValueError
        If no published data set has the name.
    DataUnavailable
        If the hash of one of its files is not known.
    """
    if name is None:
        folder = Path(out or "croissant")
        written = 0
        for entry in registry.ENTRIES:
            try:
                atomic_write(folder / f"{entry.name}.json", croissant_text(entry, mirror))
                written += 1
            except sources.DataUnavailable as error:
                console.print(f"{entry.name} is left out: {error}", soft_wrap=True, markup=False)
        console.print(f"{written} files in {folder}", soft_wrap=True)
        return
    entry = registry.find(name)
    if entry is None:
        known = suggestion(name, registry.BY_NAME)
        raise ValueError(f"no published data set is called {name!r}{known}")
    if out is None:
        print(croissant_text(entry, mirror).decode(), end="")
        return
    atomic_write(Path(out), croissant_text(entry, mirror))
    console.print(f"{name}: {out}", soft_wrap=True)


def croissant_text(entry: Entry, mirror: str | None = None) -> bytes:
    """Return the Croissant metadata of an entry as a file."""
    return (json.dumps(croissant(entry, mirror), indent=1, ensure_ascii=False) + "\n").encode()


def train(console: Console, names: Sequence[str], mirror: str | None = None) -> None:
    """Train the embeddings that are missing or damaged; print how well k-means clusters them."""
    entries = [entry for entry in registry.ENTRIES if entry.trained]
    known = [entry.name for entry in entries]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown embeddings {name!r}; known are {', '.join(known)}")
    for entry in entries:
        if names and entry.name not in names:
            continue
        path = embeddings.stored_paths(entry)[0]
        if trained_status(entry, mirror).hashes == "ok":
            console.print(f"{entry.name}: available in {path}", soft_wrap=True)
            continue
        start = time.perf_counter()
        points, labels = embeddings.train(
            entry, mirror, lambda line, name=entry.name: console.print(f"{name}: {line}")
        )
        seconds = time.perf_counter() - start
        accuracy, inertia = embeddings.quality(points, labels, entry.n_clusters)
        console.print(
            f"{entry.name}: {len(points):,} x {points.shape[1]} in {path} after {seconds:.0f} s; "
            f"k-means with ten starts: accuracy {accuracy:.3f}, inertia {inertia:.3g}",
            soft_wrap=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = Parser(prog="pkm data", description="The data sets of the bench.")
    parser.add_argument(
        "--mirror", help=f"folder with the original files (default: {sources.MIRROR_VARIABLE})"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "list", help="list the data sets, their sources, and whether the files are right"
    )
    fetching = commands.add_parser("fetch", help="download data sets into the cache")
    fetching.add_argument(
        "names",
        nargs="+",
        metavar="name",
        help="a name of the list, or g2 for all published files of the family",
    )
    commands.add_parser("verify", help="check every available file; exit status 1 if one is wrong")
    exporting = commands.add_parser(
        "croissant", help="write the Croissant metadata of a data set, or of all into a folder"
    )
    exporting.add_argument("name", nargs="?", help="a name of the list (default: all)")
    exporting.add_argument("--out", help="the file, or the folder (default: croissant)")
    training = commands.add_parser(
        "embeddings", help="train the embeddings that are not in the cache; needs torch"
    )
    training.add_argument("names", nargs="*", metavar="name", help="default: all")
    given = parser.parse_args(arguments)
    # A pipe has no width; eighty columns would cut the lines.
    console = Console() if sys.stdout.isatty() else Console(width=400)
    try:
        if given.command == "list":
            list_data(console, given.mirror)
        elif given.command == "fetch":
            return int(fetch(console, given.names, given.mirror) > 0)
        elif given.command == "croissant":
            export_croissant(console, given.name, given.out, given.mirror)
        elif given.command == "embeddings":
            train(console, given.names, given.mirror)
        elif verify(console, given.mirror):
            return 1
    except (sources.DataUnavailable, OSError, ValueError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", soft_wrap=True, markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
