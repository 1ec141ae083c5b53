"""Audits on disk: one JSON line for each method and variant, which the report of a paper reads."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pkm.audit.report import AuditReport
from pkm.files import atomic_write
from pkm.methods import import_path
from pkm.source import subpackages_digest

FILE = "audit.jsonl"  # in a folder of results
SUBPACKAGES = ("audit", "privacy", "compute", "methods")  # what an audit depends on


def record_of(report: AuditReport, method: Any) -> dict[str, Any]:
    """Return a report as values of JSON, with the import path and the code of its method.

    Numbers that JSON lacks are written as text (``"inf"``), those that are unknown as null. Rows
    name a variant only where their configuration does, so a record says whether it is the default.
    """
    by_default = type(method)(n_clusters=method.n_clusters).variant
    return {
        "target": import_path(type(method)),
        "default": method.variant == by_default,
        "label": getattr(method, "label", ""),
        **_plain(asdict(report)),
        "subpackages": list(SUBPACKAGES),
        "code": subpackages_digest(*SUBPACKAGES),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def write(records: Iterable[Mapping[str, Any]], folder: str | Path) -> Path:
    """Write records to the file of a folder, in place of older ones of the same variants.

    Parameters
    ----------
    records : iterable of mapping
    folder : path
        Created where missing.

    Returns
    -------
    Path
        Of the file, which is replaced in one step.

    Raises
    ------
    ValueError
        If the folder cannot be written, or the file that is there is damaged.
    """
    path = Path(folder) / FILE
    try:
        stored = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        by_method = {_key(record): record for record in map(json.loads, stored)}
        by_method |= {_key(record): record for record in records}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(record, allow_nan=False) + "\n" for record in by_method.values()]
        atomic_write(path, "".join(lines).encode())
    except OSError as error:
        raise ValueError(f"results={str(folder)!r} cannot be written: {error.strerror}") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged, remove it: {error}") from error
    return path


def _key(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["target"], record["variant"]
