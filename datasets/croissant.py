"""Entries of the registry as Croissant metadata: ``pkm data croissant NAME``.

Files have their SHA-256 and the address at which exactly these bytes are; where they are inside an
archive, or come from their owner, the path in a mirror and the way there in words. Columns are
listed with their public bounds.

References
----------
Akhtar et al. (2024). Croissant: a metadata format for ML-ready datasets. DEEM '24, 1-6; format 1.0.
"""

import mimetypes
import re
from collections.abc import Iterable
from itertools import groupby
from os import PathLike
from urllib.parse import urlsplit

import pkm
from pkm.datasets.registry import Entry
from pkm.datasets.sources import File, known_sha256

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataBiases": "cr:dataBiases",
    "dataCollection": "cr:dataCollection",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "personalSensitiveInformation": "cr:personalSensitiveInformation",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def croissant(entry: Entry, mirror: str | PathLike | None = None) -> dict:
    """Describe a published data set.

    Parameters
    ----------
    entry : Entry
    mirror : path, optional
        Folder with original files. Where the registry has no hash of a file it is read, once.

    Returns
    -------
    dict
        JSON-LD, ready for `json.dumps`.

    Raises
    ------
    DataUnavailable
        If a file without a declared hash has never been available: the format requires one.

    Examples
    --------
    >>> from pkm.datasets.registry import BY_NAME
    >>> described = croissant(BY_NAME["iris"])
    >>> described["name"], described["distribution"][0]["sha256"][:8]
    ('iris', '6f608b71')
    """
    year = re.search(r"\((\d{4})\)", entry.citation)
    urls = [url for file in entry.files for url in file.urls]
    described = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": entry.name,
        "description": f"{entry.title}: {entry.n} points of {entry.d} columns, by default "
        f"{entry.n_clusters} clusters. Public bounds: {entry.reason}.",
        "license": entry.license,
        # Data are published without one: that of the registry, which says how they are read.
        "version": pkm.__version__,
        "citeAs": entry.citation,
        "distribution": [
            file_object(file, known_sha256(file, entry.name, mirror)) for file in entry.files
        ],
        "variableMeasured": list(variables(entry)),
    }
    if urls:
        described["url"] = urls[0]
    if year:
        described["datePublished"] = year[1]
    if entry.restricted:
        described["conditionsOfAccess"] = "given on request only"
    return described


def file_object(file: File, sha256: str) -> dict:
    """Describe a file: its address where it is published as it is, else its path in a mirror."""
    as_it_is = [url for url in file.urls if is_direct(file, url)]
    others = [url for url in file.urls if url not in as_it_is]
    ways = []
    if others and file.member:
        ways.append(f"the member {file.member} of {' or '.join(others)}")
    elif others:
        ways.append(f"made of {' or '.join(others)}")
    if file.source:
        ways.append(file.source)
    kind = mimetypes.guess_type(file.path)[0] or "text/plain"
    described = {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path,
        "contentUrl": as_it_is[0] if as_it_is else file.path,
        "encodingFormat": kind,
        "sha256": sha256,
    }
    if file.size:
        described["contentSize"] = f"{file.size} B"
    if ways:
        described["description"] = "; ".join(ways)
    return described


def is_direct(file: File, url: str) -> bool:
    """Tell whether an address gives the published bytes themselves."""
    is_archive = file.member is not None and urlsplit(url).path.endswith(".zip")
    return not is_archive and file.convert is None


def variables(entry: Entry) -> Iterable[dict]:
    """List the columns with their public bounds; equal ones that follow each other as one."""
    names = entry.columns or tuple(f"column {number}" for number in range(1, entry.d + 1))
    columns = zip(names, entry.lower, entry.upper, entry.reasons, strict=True)
    for (lower, upper, reason), group in groupby(columns, key=lambda column: column[1:]):
        members = [name for name, *_ in group]
        shown = members if entry.columns else [f"{members[0]} to {members[-1].split()[-1]}"]
        for name in shown:
            yield {
                "@type": "PropertyValue",
                "name": name,
                "minValue": lower,
                "maxValue": upper,
                "description": reason,
            }
