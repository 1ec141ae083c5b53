"""Errors about configurations, which name the nearest known word."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pkm.names import find_nearest

#: How many known names are listed; of longer lists, so many similar ones are.
MAX_LISTED = 20
N_SIMILAR = 5
#: Commands that list all known names of a kind; all others are listed here.
LIST_COMMANDS = {"dataset": "pkm data list", "method": "pkm run --help"}


class ConfigurationError(ValueError):
    """A configuration requests what does not exist or is not allowed."""


def explain_unknown(
    kind: str,
    name: Any,
    known: Sequence[str],
    prefix: str = "",
) -> str:
    """Say that a name is unknown, suggest one, and list the known ones.

    Examples
    --------
    >>> explain_unknown("method", "loyd", ["lloyd", "packing"])
    "method='loyd' is unknown. Did you mean lloyd? Known: lloyd, packing"
    >>> explain_unknown("key", "job", ["jobs"], "backend.")
    "key='backend.job' is unknown. Did you mean backend.jobs? Known: jobs"
    """
    near = find_nearest(str(name), known)
    hint = "" if near is None else f" Did you mean {prefix}{near}?"
    listed = list_known(kind, str(name), known)
    full_name = f"{prefix}{name}" if prefix else name
    return f"{kind}={full_name!r} is unknown.{hint} {listed}"


def list_known(kind: str, name: str, known: Sequence[str]) -> str:
    """List the known names; of many, those that are similar to a given one.

    Examples
    --------
    >>> list_known("dataset", "irises", ["iris", *map(str, range(70))])
    'Similar: iris; `pkm data list` lists all 71'
    """
    command = LIST_COMMANDS.get(kind)
    if command is None or len(known) <= MAX_LISTED:
        return f"Known: {', '.join(known)}"
    similar = difflib.get_close_matches(name, known, N_SIMILAR, cutoff=0.5)
    listed = f"Similar: {', '.join(similar)}; " if similar else ""
    return f"{listed}`{command}` lists all {len(known)}"


def require_choices(
    kind: str,
    names: Iterable,
    known: Sequence[str],
    prefix: str = "",
) -> None:
    """Refuse a name that is not among the known ones.

    Raises
    ------
    ConfigurationError
        Naming it, the nearest one and all.
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(explain_unknown(kind, name, known, prefix))
