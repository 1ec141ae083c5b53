"""Entries of the registry as Croissant metadata: ``pkm data croissant NAME``.

Akhtar et al. (2024). Croissant: a metadata format for ML-ready datasets. DEEM '24, 1-6;
format 1.0.
"""

import mimetypes
import re
import tomllib
from collections.abc import Iterable
from itertools import groupby
from os import PathLike
from pathlib import Path

import pkm
from pkm.datasets.entry import Entry
from pkm.datasets.sources import File, known_sha256

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
CONTEXT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def describe(entry: Entry, data_dir: str | PathLike | None = None) -> dict:
    """Describe a published data set as JSON-LD, with the hashes of its files.

    A file without a declared hash is read once. If it has never been available,
    `DataUnavailable` is raised.

    Examples
    --------
    >>> from pkm.datasets.registry import BY_NAME
    >>> description = describe(BY_NAME["iris"])
    >>> description["name"], description["distribution"][0]["sha256"][:8]
    ('iris', '6f608b71')
    """
    year = re.search(r"\((\d{4})\)", entry.citation)
    files = [
        _describe_file(file, known_sha256(file, entry.name, data_dir))
        for file in entry.files
    ]
    return _drop_empty(
        {
            "@context": CONTEXT,
            "@type": "sc:Dataset",
            "conformsTo": CONFORMS_TO,
            "name": entry.name,
            "description": f"{entry.title}: {entry.n} points of {entry.d} columns, by "
            f"default {entry.n_clusters} clusters. Public bounds: {entry.reason}.",
            "license": entry.license,
            "conditionsOfAccess": entry.restricted and "given on request only",
            # Data have no version of their own: the registry says how to read them.
            "version": pkm.__version__,
            "citeAs": entry.citation,
            "datePublished": year and year[1],
            "url": next((url for file in entry.files for url in file.urls), None),
            "distribution": files,
            "variableMeasured": list(_describe_columns(entry)),
        }
    )


def _describe_file(file: File, sha256: str) -> dict:
    """Describe a file by a URL with its exact bytes, or its path in a data folder."""
    direct = [url for url in file.urls if is_direct(file, url)]
    others = " or ".join(url for url in file.urls if url not in direct)
    way = f"the member {file.member} of" if file.member else "made of"
    return _drop_empty(
        {
            "@type": "cr:FileObject",
            "@id": file.path,
            "name": file.path,
            "contentUrl": direct[0] if direct else file.path,
            "contentSize": file.size and f"{file.size} B",
            "encodingFormat": mimetypes.guess_type(file.path)[0] or "text/plain",
            "sha256": sha256,
            "description": f"{way} {others}" if others else file.source,
        }
    )


def is_direct(file: File, url: str) -> bool:
    """Tell whether an address gives the published bytes themselves."""
    is_archive = file.member is not None and url.endswith(".zip")
    return not is_archive and file.convert is None


def _describe_columns(entry: Entry) -> Iterable[dict]:
    """Describe the columns with their bounds; equal ones without names as one."""
    names = entry.columns or range(1, entry.d + 1)
    columns = zip(names, entry.lower, entry.upper, entry.reasons, strict=True)
    for (lower, upper, reason), run in groupby(columns, key=lambda column: column[1:]):
        members = [name for name, *_ in run]
        if not entry.columns:
            members = [f"column {members[0]} to {members[-1]}"]
        for name in members:
            yield {
                "@type": "PropertyValue",
                "name": name,
                "minValue": lower,
                "maxValue": upper,
                "description": reason,
            }


def _drop_empty(description: dict) -> dict:
    return {key: value for key, value in description.items() if value}
