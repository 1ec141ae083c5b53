"""Audits on disk: one JSON line for each method and variant, which reports read."""

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


def make_record(
    report: AuditReport,
    method: Any,
) -> dict[str, Any]:
    """Turn a report into values of JSON, with the path and the code of its method.

    Numbers that JSON lacks become text (``"inf"``), those that are unknown null. Rows
    name a variant only where their configuration does, so a record says whether it is
    the default.
    """
    by_default = type(method)(n_clusters=method.n_clusters).variant
    return {
        "target": import_path(type(method)),
        "default": method.variant == by_default,
        "label": getattr(method, "label", ""),
        **_simplify(asdict(report)),
        "subpackages": list(SUBPACKAGES),
        "code": subpackages_digest(*SUBPACKAGES),
    }


def _simplify(value: Any) -> Any:
    """Replace what JSON lacks, inside nested values."""
    if isinstance(value, Mapping):
        return {name: _simplify(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [_simplify(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def write(
    records: Iterable[Mapping[str, Any]],
    folder: str | Path,
) -> Path:
    """Write records to the file of a folder, in place of older ones of the variants.

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
        If the folder cannot be written, or the file in it is damaged.
    """
    path = Path(folder) / FILE
    lines: dict[tuple[str, str], str] = {}
    try:
        stored = []
        if path.exists():
            stored = path.read_text(encoding="utf-8").splitlines()
        for record in [*map(json.loads, stored), *records]:
            line = json.dumps(record, allow_nan=False)
            lines[record["target"], record["variant"]] = f"{line}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, "".join(lines.values()).encode())
    except OSError as error:
        folder = str(folder)
        raise ValueError(
            f"results={folder!r} cannot be written: {error.strerror}"
        ) from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged, remove it: {error}") from error
    return path
