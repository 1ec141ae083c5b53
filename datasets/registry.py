"""The published data sets: `registry.toml`, read and checked.

An entry holds the files, their hashes, license, citation, parser, public domain and default k. A
public domain bounds each column by what is known without the data: the scale of the measurement,
the width of the field, or the parameters of the generator. Each entry gives the reason. A domain is
never the minimum and maximum of the points.
"""

import csv
import hashlib
import inspect
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pkm.datasets import bundled, embeddings, generated, parsers
from pkm.datasets.sources import File, known_sha256
from pkm.files import keyed_digest
from pkm.names import suggestion

REGISTRY = Path(__file__).with_name("registry.toml")
G2_URL = "https://cs.uef.fi/sipu/datasets/g2-txt.zip"

#: Keys of a data set, a run of columns and a file, with their types; the second part is optional.
NUMBER = (int, float)
REQUIRED = {
    "title": str,
    "n": int,
    "d": int,
    "k": int,
    "parser": str,
    "license": str,
    "citation": str,
    "domain": list,
    "files": list,
}
OPTIONAL = {
    "arguments": dict,
    "comparison": bool,
    "bundled": str,
    "bundled_sha256": str,
    "common_range": list,
    "common_range_is_private": bool,
    "training": dict,
    "prescaled": bool,
    "fitted": bool,
    "restricted": bool,
}
DOMAIN_REQUIRED = {"lower": NUMBER, "upper": NUMBER, "reason": str}
DOMAIN_OPTIONAL = {"columns": (int, list)}
FILE_REQUIRED = {"path": str}
FILE_OPTIONAL = {
    "sha256": str,
    "gz_sha256": str,
    "urls": list,
    "member": str,
    "source": str,
    "size": int,
    "convert": str,
    "max_bytes": int,
}


@dataclass(frozen=True)
class Entry:
    """What is known about a data set without reading it.

    Attributes
    ----------
    name : str
    n, d, n_clusters : int
        Shape and default number of clusters; the shape is checked when the data are read.
    files : tuple of File
        In the order in which the parser takes them.
    parse : callable
        From the files' published bytes to points and labels, and clients where there are any
        (`pkm.datasets.parsers`).
    lower, upper : tuple of float
        Public bounds per column.
    reasons : tuple of str
        Why these bounds are public, per column.
    license, citation : str
    title : str
        What the set is, in one line.
    columns : tuple of str
        Names of the columns; empty where they have none.
    comparison : bool
        Whether no paper here uses it: it is for comparisons of methods.
    bundled : callable or None
        Reader of a copy that an installed package brings along, equal to what the parser returns.
    bundled_sha256 : str or None
        `pkm.datasets.bundled.digest` of what that reader must return.
    common_range : (float, float) or None
        One range for all columns, where it is another than the domain's; see
        `pkm.datasets.Dataset`.
    common_range_is_private : bool
        Whether it was read off the points.
    trained : datasets.embeddings.Training or None
        Where the points are embeddings: how the network is trained on the files' images. Then n, d
        and the domain are those of the embeddings, and the set is looked for in the cache only.
    prescaled : bool
        Whether the points come, or are parsed, scaled by bounds read off them; see
        `pkm.datasets.Dataset`.
    fitted : bool
        Whether the points are the output of a map fitted to these very records; see
        `pkm.datasets.Dataset`.
    restricted : bool
        Whether the records are given on request only. Then the fingerprint is keyed
        (`pkm.files.keyed_digest`), and results are for the owner of the files alone.
    """

    name: str
    n: int
    d: int
    n_clusters: int
    files: tuple[File, ...]
    parse: Callable
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    reasons: tuple[str, ...]
    license: str
    citation: str
    title: str = ""
    columns: tuple[str, ...] = ()
    comparison: bool = False
    bundled: Callable | None = None
    bundled_sha256: str | None = None
    common_range: tuple[float, float] | None = None
    common_range_is_private: bool = False
    trained: embeddings.Training | None = None
    prescaled: bool = False
    fitted: bool = False
    restricted: bool = False

    def __post_init__(self) -> None:
        if not len(self.lower) == len(self.upper) == len(self.reasons) == self.d:
            raise ValueError(
                f"{self.name}: bounds of {len(self.lower)} and {len(self.upper)} columns with "
                f"{len(self.reasons)} reasons, d={self.d}"
            )

    @property
    def reason(self) -> str:
        """Why the bounds are public, each reason once."""
        return "; ".join(dict.fromkeys(self.reasons))

    def domain(self) -> np.ndarray:
        """Public bounds, (2, d) float64."""
        return np.array([self.lower, self.upper], dtype=np.float64)


def fingerprint(entry: Entry, mirror: str | PathLike | None = None) -> str:
    """SHA-256 of the files' declared hashes, the parser's source and the declared domain and range.

    The files themselves need not be read: `datasets.load` refuses any file whose hash is not the
    declared one, so equal declarations mean equal bytes, and equal bytes through an equal parser
    mean equal points. The same holds for a bundled copy, whose points and labels are checked
    against a declared hash of what the parser returns. For embeddings the
    recorded hash of the stored arrays is included; the arrays are not read either. For a file
    without a declared hash, the hash recorded when it was first read is used. The digest of
    restricted records is keyed.

    Raises
    ------
    DataUnavailable
        If the set is one of embeddings and has not been trained, or a file without a declared hash
        has never been available.
    """
    declared = {
        "files": [known_sha256(file, entry.name, mirror) for file in entry.files],
        "shape": [entry.n, entry.d],
        "domain": [entry.lower, entry.upper],
        "parser": parsers.source(entry.parse),
    }
    if entry.common_range is not None:
        declared["common range"] = [entry.common_range, entry.common_range_is_private]
    if entry.prescaled:
        declared["prescaled"] = True
    if entry.fitted:
        declared["fitted"] = True
    if entry.trained:
        declared["trained"] = [embeddings.key(entry), embeddings.stored_sha256(entry)]
    content = json.dumps(declared, sort_keys=True).encode()
    return keyed_digest(content) if entry.restricted else hashlib.sha256(content).hexdigest()


def read_registry(path: Path = REGISTRY) -> tuple[Entry, ...]:
    """Read the entries of a registry file.

    Raises
    ------
    ValueError
        If the file is no TOML, or a key or value of a data set is unknown, missing or wrong; the
        message names the file, the data set and the key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for name, table in tables.items():
            if isinstance(table, dict) and "based_on" in table:
                base = _choice(table.pop("based_on"), tables, f"[{name}] based_on")
                tables[name] = base | table
        return tuple(_entry(name, table) for name, table in tables.items())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _entry(name: str, table: object) -> Entry:
    where = f"[{name}]"
    checked = _checked(table, REQUIRED, OPTIONAL, where)
    runs = [
        _checked(run, DOMAIN_REQUIRED, DOMAIN_OPTIONAL, f"{where} domain")
        for run in checked["domain"]
    ]
    widths = [_width(run.get("columns", checked["d"])) for run in runs]
    names = [run["columns"] for run in runs if isinstance(run.get("columns"), list)]
    training = checked.get("training")
    flags = {key: checked.get(key, False) for key, kind in OPTIONAL.items() if kind is bool}
    return Entry(
        name=name,
        n=checked["n"],
        d=checked["d"],
        n_clusters=checked["k"],
        files=tuple(_file(file, f"{where} files") for file in checked["files"]),
        parse=_parser(checked["parser"], checked.get("arguments", {}), where),
        lower=_repeated((float(run["lower"]) for run in runs), widths),
        upper=_repeated((float(run["upper"]) for run in runs), widths),
        reasons=_repeated((run["reason"] for run in runs), widths),
        license=checked["license"],
        citation=checked["citation"],
        title=checked["title"],
        columns=tuple(chain(*names)) if len(names) == len(runs) else (),
        bundled=_choice(checked.get("bundled"), vars(bundled), f"{where} bundled"),
        bundled_sha256=checked.get("bundled_sha256"),
        common_range=tuple(checked["common_range"]) if "common_range" in checked else None,
        trained=None if training is None else embeddings.Training(**training),
        **flags,
    )


def _checked(table: object, required: Mapping, optional: Mapping, where: str) -> dict:
    """Return a table, refusing unknown and missing keys and values of another type."""
    if not isinstance(table, dict):
        raise ValueError(f"{where}: {table!r} should be a table of keys")
    kinds = {**required, **optional}
    for key, value in table.items():
        _choice(key, kinds, f"{where} key")
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) != (kinds[key] is bool)):
            expected = kinds[key] if isinstance(kinds[key], tuple) else (kinds[key],)
            names = " or ".join(kind.__name__ for kind in expected)
            raise ValueError(f"{where}: {key}={value!r} should be of type {names}")
    missing = [key for key in required if key not in table]
    if missing:
        raise ValueError(f"{where}: {', '.join(missing)} missing")
    return table


def _choice(name: str | None, known: Mapping, where: str) -> Any:
    """Return what a name stands for, None for no name."""
    if name is None:
        return None
    if name not in known:
        raise ValueError(f"{where}: unknown {name!r}{suggestion(name, known)}")
    return known[name]


def _width(columns: int | list) -> int:
    return columns if isinstance(columns, int) else len(columns)


def _repeated(values: Iterable, widths: list[int]) -> tuple:
    """Each value as often as its run has columns."""
    return tuple(chain(*([value] * width for value, width in zip(values, widths, strict=True))))


def _file(table: object, where: str) -> File:
    checked = _checked(table, FILE_REQUIRED, FILE_OPTIONAL, where)
    urls = tuple(checked.get("urls", ()))
    if not urls and not checked.get("source"):
        raise ValueError(f"{where}: {checked['path']!r} should have urls or a source")
    if "sha256" not in checked and not all(url.startswith("https://") for url in urls):
        raise ValueError(f"{where}: {checked['path']!r} has no sha256: its urls should be https")
    convert = _choice(checked.get("convert"), parsers.CONVERSIONS, f"{where} convert")
    return File(**{"sha256": None} | checked | {"urls": urls, "convert": convert})


def _parser(name: str, arguments: dict, where: str) -> Callable:
    parser = _choice(name, parsers.PARSERS, f"{where} parser")
    if not arguments:
        return parser
    for key in arguments:
        _choice(key, inspect.signature(parser).parameters, f"{where} arguments")
    return partial(parser, **arguments)


ENTRIES = read_registry()
BY_NAME = {entry.name: entry for entry in ENTRIES}


def read_g2_hashes() -> dict[str, tuple[str, str, int]]:
    """Read SHA-256 of a mirror's gzipped copy and of the file, and its size, of each G2 file."""
    with Path(__file__).with_name("g2.csv").open(newline="", encoding="ascii") as file:
        return {
            row["name"]: (row["gz_sha256"], row["sha256"], int(row["size"]))
            for row in csv.DictReader(file)
        }


G2_HASHES = read_g2_hashes()


def g2_entry(name: str) -> Entry | None:
    """Entry of a published G2 file whose hash is known, else None (then the set is generated)."""
    if name not in G2_HASHES:
        return None
    gz_sha256, sha256, size = G2_HASHES[name]
    d, sd = (int(number) for number in name.split("-")[1:])
    lower, upper = generated.g2_domain(sd, d)
    reason = (
        "the family's published centers, 500 and 600, and five of its published standard "
        "deviations around them"
    )
    return Entry(
        name=name,
        n=2 * generated.G2_CLUSTER_SIZE,
        d=d,
        n_clusters=2,
        files=(File(f"g2/{name}.txt", sha256, gz_sha256, (G2_URL,), f"{name}.txt", size=size),),
        parse=parsers.g2,
        lower=tuple(lower.tolist()),
        upper=tuple(upper.tolist()),
        reasons=(reason,) * d,
        license="public, no license stated (SIPU)",
        citation=generated.G2_CITATION,
        title=f"two normal clusters of standard deviation {sd}",
    )


def find(name: str) -> Entry | None:
    """Entry of a published data set, else None."""
    return BY_NAME.get(name) or g2_entry(name)
