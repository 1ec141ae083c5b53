"""Command line: ``pkm data list | fetch NAME | verify | embeddings``."""

import argparse
import sys
import time
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from pkm.datasets import embeddings, generated, loading, registry, sources
from pkm.datasets.g2_hashes import G2_HASHES


@dataclass(frozen=True)
class Status:
    """State of one published data set on this machine.

    Attributes
    ----------
    origin : str
        Where `datasets.load` would take it from: bundled, cache, mirror or url, or the user, who has to get it; for
        embeddings cache or, until they are trained, training.
    hashes : str
        ok, missing, or what is wrong.
    size : int
        Bytes of its files at hand, as stored; of embeddings, those of the stored arrays.
    bad : bool
        Whether a file at hand is not the declared one.
    """

    origin: str
    hashes: str
    size: int
    bad: bool


def status(entry, mirror=None):
    """Find out where a published data set would come from and whether its files are the declared ones."""
    if entry.trained:
        return trained_status(entry, mirror)
    origins, missing, wrong, size = [], [], [], 0
    for file in entry.files:
        copies = list(sources.copies(file, mirror))
        if not copies:
            missing.append(file)
            continue
        origins.append(copies[0][2])
        size += copies[0][0].stat().st_size
        wrong += check_copies(file, mirror)
    if entry.bundled:
        try:
            loading.read_bundled(entry)
        except sources.ChecksumMismatch as error:
            wrong.append(str(error))
    absent = "url" if any(file.urls for file in missing) else "the user"
    origin = "bundled" if entry.bundled else absent if missing else "+".join(dict.fromkeys(origins))
    if wrong:
        hashes = f"wrong: {'; '.join(wrong)}"
    else:
        hashes = f"{len(missing)} missing" if missing and not entry.bundled else "ok"
    return Status(origin, hashes, size, bool(wrong))


def trained_status(entry, mirror=None):
    """Find out whether embeddings are trained and undamaged, and if not trained, whether their images are at hand."""
    try:
        return Status("cache", "ok", len(embeddings.read_bytes(entry)), False)
    except sources.ChecksumMismatch as error:
        return Status("cache", f"wrong: {error}", 0, True)
    except sources.DataUnavailable:
        absent = sum(not list(sources.copies(file, mirror)) for file in entry.files)
        images = f"{absent} image files missing" if absent else "images at hand"
        return Status("training", f"not trained, {images}: make embeddings", 0, False)


def check_copies(file, mirror=None):
    """Return what is wrong with any copy of a file at hand, an empty list if nothing is."""
    wrong = []
    for place, gzipped, _ in sources.copies(file, mirror):
        try:
            sources.read_checked(file, place, gzipped)
        except sources.ChecksumMismatch as error:
            wrong.append(str(error))
    return wrong


def list_data(console, mirror=None):
    """Print one line per data set and per family."""
    table = Table(title="data sets")
    table.add_column("name", no_wrap=True, overflow="fold")
    for column in ("n", "d", "k", "bytes here", "from", "files"):
        table.add_column(column)
    for entry in registry.ENTRIES:
        state = status(entry, mirror)
        shape = (f"{entry.n:,}", str(entry.d), str(entry.n_clusters))
        table.add_row(
            entry.name, *shape, f"{state.size:,}" if state.size else "", state.origin, state.hashes
        )
    for name in generated.ALIASES:
        recipe = generated.find(name)[1]
        table.add_row(
            name, f"{recipe.n:,}", str(recipe.d), str(recipe.n_clusters), "", "generated", "ok"
        )
    for family in generated.FAMILIES:
        published = [registry.g2_entry(name) for name in G2_HASHES] if family.name == "g2" else []
        states = [status(entry, mirror) for entry in published]
        here = [state for state in states if state.hashes == "ok"]
        origin = "generated"
        hashes = f"{len(family.members)} sets, ok"
        if published:
            origin = " / ".join(dict.fromkeys([*(state.origin for state in states), origin]))
            hashes = (
                f"{len(here)} of {len(published)} ok, {sum(state.bad for state in states)} wrong; "
                f"{len(set(family.members) - set(G2_HASHES))} generated"
            )
        size = sum(state.size for state in states)
        recipes = [generated.find(name)[1] for name in family.members]
        ranges = (
            _range([getattr(recipe, field) for recipe in recipes])
            for field in ("n", "d", "n_clusters")
        )
        # Square brackets in the form of the name are not markup.
        table.add_row(
            family.form.replace("[", "\\["), *ranges, f"{size:,}" if size else "", origin, hashes
        )
    table.add_row(loading.FILE, "", "", "", "", "path=...", "CSV, Parquet or NPY")
    console.print(table)


def _range(values):
    least, most = min(values), max(values)
    if most == 0:
        return "drawn"
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def fetch(console, name, mirror=None):
    """Download what is not at hand of a data set; the name of the family fetches all its published files."""
    if name == "g2":
        entries = [registry.g2_entry(each) for each in G2_HASHES]
    else:
        known = loading.resolve(name)
        if known.entry is None:
            console.print(f"{name}: nothing to download")
            return
        entries = [known.entry]
    for entry in entries:
        for file in entry.files:
            if list(sources.copies(file, mirror)) and not check_copies(file, mirror):
                console.print(f"{file.path}: at hand")
                continue
            found = sources.fetch(file, entry.name, progress=True)
            console.print(
                f"{file.path}: {len(found.content):,} bytes in {found.place}", soft_wrap=True
            )
        if entry.trained and trained_status(entry, mirror).hashes != "ok":
            console.print(
                f"{entry.name}: the images are at hand; {embeddings.mend(entry)}", soft_wrap=True
            )


def verify(console, mirror=None):
    """Check every file at hand, in cache and mirror, and the bundled sets; return how many are wrong."""
    checked, wrong = 0, []
    for entry in (*registry.ENTRIES, *(registry.g2_entry(name) for name in G2_HASHES)):
        for file in entry.files:
            checked += len(list(sources.copies(file, mirror)))
            wrong += check_copies(file, mirror)
        if entry.bundled:
            checked += 1
            try:
                loading.read_bundled(entry)
            except sources.ChecksumMismatch as error:
                wrong.append(str(error))
        if entry.trained:
            state = trained_status(entry, mirror)
            checked += state.origin == "cache"
            wrong += [state.hashes] if state.bad else []
    for message in wrong:
        console.print(message, style="red", soft_wrap=True)
    console.print(f"{checked} files and bundled sets checked, {len(wrong)} wrong")
    return len(wrong)


def train(console, names, mirror=None):
    """Train the embeddings that are not stored, or stored damaged, and say how k-means does on them."""
    entries = [entry for entry in registry.ENTRIES if entry.trained]
    known = [entry.name for entry in entries]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown embeddings {name!r}; known are {', '.join(known)}")
    for entry in entries:
        if names and entry.name not in names:
            continue
        place = embeddings.places(entry)[0]
        if trained_status(entry, mirror).hashes == "ok":
            console.print(f"{entry.name}: at hand in {place}", soft_wrap=True)
            continue
        began = time.perf_counter()
        points, labels = embeddings.train(
            entry, mirror, lambda line, name=entry.name: console.print(f"{name}: {line}")
        )
        seconds = time.perf_counter() - began
        accuracy, inertia = embeddings.quality(points, labels, entry.n_clusters)
        console.print(
            f"{entry.name}: {len(points):,} x {points.shape[1]} in {place} after {seconds:.0f} s; k-means with ten "
            f"starts: accuracy {accuracy:.3f}, inertia {inertia:.3g}",
            soft_wrap=True,
        )


def main(arguments=None):
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="pkm data", description="The data sets of the bench.")
    parser.add_argument(
        "--mirror", help=f"folder with the original files (default: {sources.MIRROR_VARIABLE})"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "list", help="what there is, where it would come from, whether the files are right"
    )
    fetching = commands.add_parser("fetch", help="download a data set into the cache")
    fetching.add_argument(
        "name", help="a name of the list, or g2 for all published files of the family"
    )
    commands.add_parser("verify", help="check every file at hand; exit status 1 if one is wrong")
    training = commands.add_parser(
        "embeddings", help="train the embeddings that are not in the cache; needs torch"
    )
    training.add_argument("names", nargs="*", metavar="name", help="default: all")
    given = parser.parse_args(arguments)
    # A pipe has no width of its own; eighty columns would break the names.
    console = Console() if sys.stdout.isatty() else Console(width=140)
    try:
        if given.command == "list":
            list_data(console, given.mirror)
        elif given.command == "fetch":
            fetch(console, given.name, given.mirror)
        elif given.command == "embeddings":
            train(console, given.names, given.mirror)
        elif verify(console, given.mirror):
            return 1
    except (sources.DataUnavailable, ValueError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", soft_wrap=True, markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
