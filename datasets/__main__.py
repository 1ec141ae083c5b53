"""Command line: ``pkm data list | fetch | verify | croissant | bundle``."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from pkm.arguments import Parser
from pkm.datasets import bundled, croissant, embeddings, loading, registry, sources
from pkm.datasets.entry import Entry
from pkm.datasets.fetching import fetch_missing, total_size
from pkm.datasets.generated import families
from pkm.datasets.generated.families import Family
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable
from pkm.files import atomic_write, cache_folder
from pkm.names import suggestion

#: Columns of the list, with their largest widths on a narrow terminal.
COLUMNS = {
    "name": 20,
    "what it is": 27,
    "points": 20,
    "size": 8,
    "from": 20,
    "license": 12,
}
FULL_WIDTH = 220


@dataclass(frozen=True)
class Status:
    """State of a published data set on this machine.

    Attributes
    ----------
    origin : str
        Where `datasets.load` takes it from: bundled, cache, data folder or a download
        and its host, or the user, by hand.
    n_copies : int
        Number of available files.
    errors : list of str
        What is wrong with them.
    """

    origin: str
    n_copies: int
    errors: list[str]


def find_status(entry: Entry, data_dir: str | None = None) -> Status:
    """Find out where a set would come from, and whether its files are right."""
    origins = {}
    missing = []
    checks = []
    for file in entry.files:
        copies = list(sources.find_copies(file, data_dir))
        for path, gzipped, _ in copies:
            checks.append(partial(sources.read_checked, file, path, gzipped))
        if copies:
            origins[copies[0][2]] = None
        else:
            missing.append(file)
    if entry.bundled_sha256:
        checks.append(partial(bundled.read, entry))
        origin = "bundled"
    elif not all(file.urls for file in missing):
        origin = "the user, by hand"
    elif missing:
        origin = f"download, {urlsplit(missing[0].urls[0]).netloc}"
    else:
        origin = "+".join(origins)

    errors = []
    for check in checks:
        try:
            check()
        except ChecksumMismatch as error:
            errors.append(str(error))
    return Status(origin, len(checks), errors)


def list_data(console: Console, data_dir: str | None = None) -> None:
    """Print one line per data set and per family, then what is wrong with files."""
    table = Table(box=SIMPLE_HEAD)
    for column, width in COLUMNS.items():
        limit = None if console.width >= FULL_WIDTH else width
        table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=limit)
    errors = []
    for entry in registry.list_entries():
        state = find_status(entry, data_dir)
        errors += state.errors
        table.add_row(
            entry.name,
            entry.title,
            f"{entry.n:,} x {entry.d}, k {entry.n_clusters}",
            "" if entry.bundled_sha256 else total_size(entry.files),
            "wrong files, see below" if state.errors else state.origin,
            entry.license,
        )
    for name in families.ALIASES:
        family = loading.resolve(name).family
        assert family is not None
        table.add_row(name, *_describe_family(family, [name], data_dir))
    for family in families.FAMILIES:
        # Square brackets in the template of the name are not markup.
        template = family.name_template.replace("[", "\\[")
        table.add_row(template, *_describe_family(family, family.members, data_dir))
    title = "points of your own: text, Parquet, NPY or NPZ"
    table.add_row(loading.FILE, title, "", "", "path=...", "your own")
    console.print(table)
    for error in errors:
        _say(console, error, "red")


def _describe_family(
    family: Family,
    names: Sequence[str],
    data_dir: str | None,
) -> list[str]:
    """Describe a family in a row of the list; some G2 sets are published files."""
    entries = list(registry.G2_ENTRIES.values()) if family.name == "g2" else []
    states = [find_status(entry, data_dir) for entry in entries]
    origins = dict.fromkeys(state.origin for state in states)
    if len(names) > len(entries):
        origins["generated"] = None
    is_wrong = any(state.errors for state in states)
    recipes = [generated[1] for generated in map(families.find, names) if generated]
    n = _describe_range([recipe.n for recipe in recipes])
    d = _describe_range([recipe.d for recipe in recipes])
    k = _describe_range([recipe.n_clusters for recipe in recipes])
    return [
        family.title,
        f"{n} x {d}, k {k}",
        total_size(file for entry in entries for file in entry.files)
        if entries
        else "",
        "wrong files" if is_wrong else " / ".join(origins),
        entries[0].license if entries else loading.GENERATED_LICENSE,
    ]


def _describe_range(values: Sequence[int]) -> str:
    smallest = min(values)
    largest = max(values)
    if largest == 0:
        return "drawn"
    return f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"


def fetch(
    console: Console,
    names: Sequence[str],
    data_dir: str | None = None,
) -> int:
    """Download missing files of data sets; return how many sets stay unavailable.

    ``g2`` means all published files of that family.
    """
    wanted = []
    for name in names:
        is_family = name == "g2"
        wanted += registry.G2_ENTRIES if is_family else [name]
    reasons = {name: _explain_no_fetching(name) for name in wanted}

    say = partial(_say, console)
    result = fetch_missing(wanted, data_dir, say)
    handled = {*result.fetched, *result.unavailable}
    for name, reason in reasons.items():
        if reason:
            say(f"{name}: {reason}, needs no fetching")
            handled.add(name)
    available = [name for name in reasons if name not in handled]
    if available:
        say(f"available: {', '.join(available)}")
    if result.fetched:
        say(f"fetched into {cache_folder()}: {', '.join(result.fetched)}")
    for reason in dict.fromkeys(result.unavailable.values()):
        print_error(reason)
    return len(result.unavailable)


def _explain_no_fetching(name: str) -> str:
    """Say why a data set never needs a download; empty if it may need one."""
    resolved = loading.resolve(name)
    if resolved.entry:
        return "bundled" if resolved.entry.bundled_sha256 else ""
    return "generated here" if resolved.family else "a file of your own"


def verify(console: Console, data_dir: str | None = None) -> int:
    """Check files in cache and data folder, and bundled sets; count wrong ones."""
    entries = (*registry.list_entries(), *registry.G2_ENTRIES.values())
    states = [find_status(entry, data_dir) for entry in entries]
    errors = [message for state in states for message in state.errors]
    for error in errors:
        _say(console, error, "red")
    n_copies = sum(state.n_copies for state in states)
    console.print(f"{n_copies} files and bundled sets checked, {len(errors)} wrong")
    return len(errors)


def export_croissant(
    console: Console,
    name: str | None,
    out: str | None,
    data_dir: str | None = None,
) -> None:
    """Write the Croissant metadata of a data set, or of all into a folder.

    Raises
    ------
    ValueError
        If no published data set has the name.
    DataUnavailable
        If the hash of one of its files is not known.
    """

    def describe(entry: Entry) -> str:
        description = croissant.describe(entry, data_dir)
        return json.dumps(description, indent=1, ensure_ascii=False) + "\n"

    if name is None:
        folder = Path(out or "croissant")
        written = 0
        for entry in registry.ENTRIES:
            try:
                text = describe(entry)
            except DataUnavailable as error:
                _say(console, f"{entry.name} is left out: {error}")
                continue
            atomic_write(folder / f"{entry.name}.json", text.encode())
            written += 1
        _say(console, f"{written} files in {folder}")
        return
    entry = _find_entry(name)
    if out is None:
        print(describe(entry), end="")
        return
    atomic_write(Path(out), describe(entry).encode())
    _say(console, f"{name}: {out}")


def bundle(
    console: Console,
    names: Sequence[str],
    out: str,
    data_dir: str | None = None,
) -> None:
    """Make the bundled files of data sets, or of all with the list of them.

    Raises
    ------
    ValueError
        If no published data set has one of the names.
    DataUnavailable
        If a published file, or torch, is missing.
    """
    report = partial(_say, console)
    for name in names or [entry.name for entry in registry.list_bundled()]:
        entry = _find_entry(name)
        if entry.trained:
            content, record = embeddings.train(entry, data_dir, report)
        else:
            content, _ = loading.read_files(entry, data_dir)
            record = {}
        packed = bundled.pack(entry, content, record)
        atomic_write(Path(out) / bundled.locate(name).name, packed)
        digest = bundled.digest(content)
        state = "as declared" if digest == entry.bundled_sha256 else "not declared"
        report(f"{name}: {decimal(len(packed))}, bundled_sha256 {digest} {state}")
    if not names:
        text = bundled.describe(registry.list_bundled(), Path(out))
        atomic_write(Path(out) / bundled.README, text.encode())


def _find_entry(name: str) -> Entry:
    """Find a published data set, or refuse its name."""
    entry = registry.find(name)
    if entry is None:
        known = suggestion(name, registry.BY_NAME)
        raise ValueError(f"no published data set is called {name!r}{known}")
    return entry


def _say(console: Console, line: str, style: str = "") -> None:
    """Print a line as it is, however long."""
    console.print(line, style=style, soft_wrap=True, markup=False, highlight=False)


def print_error(message: object) -> None:
    """Print an error in one line."""
    _say(Console(stderr=True), f"error: {message}", "red")


def make_parser() -> Parser:
    """Make the parser of the command line."""
    parser = Parser(prog="pkm data", description="The data sets of the bench.")
    variable = sources.DATA_VARIABLE
    parser.add_argument(
        "--data", help=f"folder with the original files (default: {variable})"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "list",
        help="list the data sets, their sources, and whether the files are right",
    )
    fetching = commands.add_parser("fetch", help="download data sets into the cache")
    fetching.add_argument(
        "names",
        nargs="+",
        metavar="name",
        help="a name of the list, or g2 for all published files of the family",
    )
    commands.add_parser(
        "verify", help="check every available file; exit status 1 if one is wrong"
    )
    exporting = commands.add_parser(
        "croissant",
        help="write the Croissant metadata of a data set, or of all into a folder",
    )
    exporting.add_argument(
        "name",
        nargs="?",
        help="a name of the list (default: all)",
    )
    exporting.add_argument("--out", help="the file, or the folder (default: croissant)")
    bundling = commands.add_parser(
        "bundle",
        help="make the bundled files from the published ones; embeddings need torch",
    )
    bundling.add_argument(
        "names", nargs="*", metavar="name", help="default: all, and their README.md"
    )
    bundling.add_argument(
        "--out",
        default="bundled",
        help="the folder (default: bundled)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = make_parser().parse_args(arguments)
    # A pipe has no width; eighty columns would cut the lines.
    console = Console() if sys.stdout.isatty() else Console(width=400)
    n_wrong = 0
    try:
        if options.command == "list":
            list_data(console, options.data)
        elif options.command == "fetch":
            n_wrong = fetch(console, options.names, options.data)
        elif options.command == "croissant":
            export_croissant(console, options.name, options.out, options.data)
        elif options.command == "bundle":
            bundle(console, options.names, options.out, options.data)
        else:
            n_wrong = verify(console, options.data)
    except (OSError, ValueError) as error:
        print_error(error)
        return 2
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
