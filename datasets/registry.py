"""Data sets with fixed names: `registry.toml` and one's own `datasets.toml`, checked.

An entry holds the files, their hashes, license, citation, parser, public domain and
default k. A public domain bounds each column by what is known without the data: the
scale of the measurement, the width of the field, or the parameters of the generator.
Each entry gives the reason. A domain is never the minimum and maximum of the points.
"""

import csv
import inspect
import json
import tomllib
from collections.abc import Callable, Mapping
from functools import cache, partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

from pkm import catalogue
from pkm.catalogue import CatalogueError
from pkm.datasets import parsers
from pkm.datasets.entry import Entry, Training
from pkm.datasets.generated import families
from pkm.datasets.generated.samplers import bound_g2
from pkm.datasets.sources import File, known_sha256
from pkm.files import keyed_digest, sha256
from pkm.names import suggestion

REGISTRY = Path(__file__).with_name("registry.toml")
#: The same in a folder of the search path, with data sets of its owner.
OWN = "datasets.toml"
G2_URL = "https://cs.uef.fi/sipu/datasets/g2-txt.zip"

#: Keys of a data set, a run of columns (consecutive columns with the same bounds) and a
#: file, with their types.
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
    "person": str,
    "bundled_sha256": str,
    "common_range": list,
    "common_range_is_private": bool,
    "training": dict,
    "prescaled": bool,
    "is_transform_fitted": bool,
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


def fingerprint(entry: Entry, data_dir: str | PathLike | None = None) -> str:
    """Hash the declaration of a data set: files, parser, domain and range (SHA-256).

    The files themselves need not be read: `datasets.load` refuses any file whose hash
    is not the declared one. Equal declarations therefore mean equal bytes, and equal
    bytes through an equal parser mean equal points. The same holds for a bundled copy,
    whose content is checked against a declared hash of what the parser returns. For
    embeddings that hash is included. For a file without a declared hash, the hash
    recorded when it was first read is used. The digest of restricted records is keyed.

    Raises
    ------
    DataUnavailable
        If a file without a declared hash has never been available.
    """
    declared = {
        "files": [known_sha256(file, entry.name, data_dir) for file in entry.files],
        "shape": [entry.n, entry.d],
        "domain": [entry.lower, entry.upper],
        "parser": parsers.describe(entry.parse),
    }
    if entry.common_range is not None:
        declared["common range"] = [entry.common_range, entry.common_range_is_private]
    if entry.prescaled:
        declared["prescaled"] = True
    if entry.is_transform_fitted:
        declared["fitted"] = True
    if entry.trained:
        declared["trained"] = [entry.bundled_sha256, "dithered"]
    content = json.dumps(declared, sort_keys=True).encode()
    if entry.restricted:
        return keyed_digest(content)
    return sha256(content)


def read_registry(
    path: Path = REGISTRY,
    folder: Path | None = None,
) -> tuple[Entry, ...]:
    """Read the entries of a registry file.

    Parameters
    ----------
    path : Path
    folder : Path, optional
        Of a file with data sets of its owner. They are restricted unless it says
        otherwise, and their files may lie there.

    Raises
    ------
    CatalogueError
        If the file is no TOML, or a key or value of a data set is unknown, missing or
        wrong; the message names the file, the data set and the key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for name, table in tables.items():
            if isinstance(table, dict) and "based_on" in table:
                base = _look_up(table.pop("based_on"), tables, f"[{name}] based_on")
                tables[name] = base | table
        return tuple(_make_entry(*item, folder) for item in tables.items())
    except (TypeError, ValueError) as error:
        raise CatalogueError(f"{path}: {error}") from error


def _make_entry(name: str, table: object, folder: Path | None) -> Entry:
    where = f"[{name}]"
    keys = _check(table, REQUIRED, OPTIONAL, where)
    keys.setdefault("restricted", folder is not None)
    # Columns of equal bounds are declared together: by their names or their number.
    blocks = [
        _check(block, DOMAIN_REQUIRED, DOMAIN_OPTIONAL, f"{where} domain")
        for block in keys.pop("domain")
    ]
    columns = [block.get("columns", keys["d"]) for block in blocks]
    named = all(isinstance(names, tuple) for names in columns)
    bounds = []
    for block, names in zip(blocks, columns, strict=True):
        n_columns = names if isinstance(names, int) else len(names)
        bound = (float(block["lower"]), float(block["upper"]), block["reason"])
        bounds += [bound] * n_columns
    lower, upper, reasons = zip(*bounds, strict=True)

    training = keys.pop("training", None)
    files = [_make_file(file, f"{where} files", folder) for file in keys.pop("files")]
    return Entry(
        name=name,
        n_clusters=keys.pop("k"),
        files=tuple(files),
        parse=_make_parser(keys.pop("parser"), keys.pop("arguments", {}), where),
        lower=lower,
        upper=upper,
        reasons=reasons,
        columns=tuple(chain(*columns)) if named else (),
        trained=training and Training(**training),
        **keys,
    )


def _check(table: object, required: Mapping, optional: Mapping, where: str) -> dict:
    """Return a table with tuples for lists, refusing wrong keys and values.

    Unknown and missing keys and values of another type are wrong.
    """
    if not isinstance(table, dict):
        raise ValueError(f"{where}: {table!r} should be a table of keys")
    kinds = {**required, **optional}
    for key, value in table.items():
        kind = _look_up(key, kinds, f"{where} key")
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            expected = kind if isinstance(kind, tuple) else (kind,)
            names = " or ".join(kind.__name__ for kind in expected)
            raise ValueError(f"{where}: {key}={value!r} should be of type {names}")
    missing = [key for key in required if table.get(key, []) == []]
    if missing:
        raise ValueError(f"{where}: {', '.join(missing)} missing")
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in table.items()
    }


def _look_up(name: str | None, known: Mapping, where: str) -> Any:
    """Return what a name stands for, None for no name."""
    if name is None:
        return None
    if name not in known:
        raise ValueError(f"{where}: unknown {name!r}{suggestion(name, known)}")
    return known[name]


def _make_file(table: object, where: str, folder: Path | None) -> File:
    keys = {"sha256": None} | _check(table, FILE_REQUIRED, FILE_OPTIONAL, where)
    if Path(keys["path"]).is_absolute() or ".." in Path(keys["path"]).parts:
        raise ValueError(f"{where}: path={keys['path']!r} should stay in its folder")
    urls = keys.get("urls", ())
    if not urls and not keys.get("source"):
        raise ValueError(f"{where}: {keys['path']!r} should have urls or a source")
    if not keys["sha256"] and not all(url.startswith("https://") for url in urls):
        raise ValueError(
            f"{where}: {keys['path']!r} has no sha256: its urls should be https"
        )
    convert = keys.pop("convert", None)
    conversion = _look_up(convert, parsers.CONVERSIONS, f"{where} convert")
    return File(**keys, convert=conversion, folder=folder)


def _make_parser(name: str, arguments: dict, where: str) -> Callable:
    parser = _look_up(name, parsers.PARSERS, f"{where} parser")
    for key in arguments:
        _look_up(key, inspect.signature(parser).parameters, f"{where} arguments")
    return partial(parser, **arguments) if arguments else parser


ENTRIES = read_registry()
BY_NAME = {entry.name: entry for entry in ENTRIES}


def read_g2() -> dict[str, Entry]:
    """Read the entries of the published G2 files whose hash is known."""
    path = Path(__file__).with_name("g2.csv")
    with path.open(newline="", encoding="ascii") as stream:
        return {row["name"]: _make_g2(**row) for row in csv.DictReader(stream)}


def _make_g2(
    name: str, gz_sha256: str, sha256: str, size: str, bundled_sha256: str
) -> Entry:
    d, sd = (int(number) for number in name.split("-")[1:])
    family = families.BY_NAME["g2"]
    lower, upper = bound_g2(sd, d)
    text = f"{name}.txt"
    file = File(f"g2/{text}", sha256, gz_sha256, (G2_URL,), text, size=int(size))
    reason = (
        "the family's published centers, 500 and 600, and five of its published "
        "standard deviations around them"
    )
    return Entry(
        name=name,
        n=family.numbers["n"],
        d=d,
        n_clusters=2,
        files=(file,),
        parse=parsers.g2,
        lower=tuple(lower.tolist()),
        upper=tuple(upper.tolist()),
        reasons=(reason,) * d,
        license="public, no license stated (SIPU)",
        citation=family.citation,
        title=f"two normal clusters of standard deviation {sd}",
        bundled_sha256=bundled_sha256 or None,
    )


#: By name. The other sets of the family are generated.
G2_ENTRIES = read_g2()


def find(name: str) -> Entry | None:
    """Find the entry of a data set with a fixed name, if there is one."""
    own = read_own()
    return own.get(name) or BY_NAME.get(name) or G2_ENTRIES.get(name)


def list_entries() -> list[Entry]:
    """List the entries of the registry, then those of one's own folders."""
    return [*ENTRIES, *read_own().values()]


def read_own() -> dict[str, Entry]:
    """Read the data sets that folders of the search path declare, by name.

    Raises
    ------
    CatalogueError
        If a table is wrong, or a name is declared elsewhere, too.
    """
    return _read_own(catalogue.current().search_path)


@cache
def _read_own(folders: tuple[Path, ...]) -> dict[str, Entry]:
    places: dict[str, object] = dict.fromkeys([*BY_NAME, *G2_ENTRIES], REGISTRY)
    for folder in folders:
        places |= {path.stem: path for path in folder.glob("dataset/*.yaml")}
    own = {}
    for path in (folder / OWN for folder in folders):
        entries = read_registry(path, path.parent) if path.is_file() else ()
        for entry in entries:
            name = entry.name
            generated = families.find(name) and families.__name__
            place = places.setdefault(name, generated or path)
            if place != path:
                raise CatalogueError(
                    f"dataset={name} is declared twice: {place}, {path}; rename one"
                )
            own[name] = entry
    return own


def list_bundled() -> list[Entry]:
    """List the entries of the data sets that come with the code.

    Examples
    --------
    >>> [entry.name for entry in list_bundled()][:3]
    ['iris', 'lsun', 's1']
    """
    published = (*ENTRIES, *G2_ENTRIES.values())
    return [entry for entry in published if entry.bundled_sha256]
