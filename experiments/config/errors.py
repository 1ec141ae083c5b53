"""Errors about configurations, which name the nearest known word."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pkm.names import find_nearest

#: How many known names are listed; of longer lists, so many similar ones are.
MAX_LISTED = 20
N_SIMILAR = 5
#: Commands that list all known names of a kind; all others are in the help.
LIST_COMMANDS = {"dataset": "pkm data list"}


class ConfigurationError(ValueError):
    """A configuration requests what does not exist or is not allowed."""


def explain_unknown(
    kind: str,
    name: Any,
    known: Sequence[str],
) -> str:
    """Say that a name is unknown, suggest one, and list the known ones.

    Examples
    --------
    >>> explain_unknown("method", "loyd", ["lloyd", "packing"])
    "method='loyd' is unknown. Did you mean lloyd? Known: lloyd, packing"
    """
    hint = suggest_nearest(str(name), known)
    listed = list_known(kind, str(name), known)
    return f"{kind}={name!r} is unknown.{hint} {listed}"


def list_known(kind: str, name: str, known: Sequence[str]) -> str:
    """List the known names; of many, those that are similar to a given one.

    Examples
    --------
    >>> list_known("dataset", "irises", ["iris", *map(str, range(70))])
    'Similar: iris; `pkm data list` lists all 71'
    """
    if len(known) <= MAX_LISTED:
        return f"Known: {', '.join(known)}"
    similar = difflib.get_close_matches(name, known, N_SIMILAR, cutoff=0.5)
    command = LIST_COMMANDS.get(kind, "pkm run --help")
    listed = f"Similar: {', '.join(similar)}; " if similar else ""
    return f"{listed}`{command}` lists all {len(known)}"


def require_choices(
    kind: str,
    names: Iterable,
    known: Sequence[str],
) -> None:
    """Refuse a name that is not among the known ones.

    Raises
    ------
    ConfigurationError
        Naming it, the nearest one and all.
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(explain_unknown(kind, name, known))


def explain_unknown_key(key: str, known: Sequence[str]) -> str:
    """Say that a key is unknown, suggest one, and list the known ones.

    Examples
    --------
    >>> explain_unknown_key("backend.job", ["jobs", "threads"])
    "key 'backend.job' is unknown. Did you mean backend.jobs? Known: jobs, threads"
    """
    prefix, dot, name = key.rpartition(".")
    hint = suggest_nearest(name, known, prefix + dot)
    return f"key {key!r} is unknown.{hint} Known: {', '.join(known)}"


def suggest_nearest(
    name: str,
    known: Sequence[str],
    prefix: str = "",
) -> str:
    """Suggest the known word that is nearest to a given one, if one is near.

    Examples
    --------
    >>> suggest_nearest("Iris", ["iris", "wine"])
    ' Did you mean iris?'
    """
    near = find_nearest(name, known)
    return "" if near is None else f" Did you mean {prefix}{near}?"


def require_known_keys(
    names: Iterable[str],
    known: Collection[str],
    prefix: str,
) -> None:
    """Refuse a key that is not among the known ones.

    Raises
    ------
    ConfigurationError
        Naming it, the nearest one and all.
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(
                explain_unknown_key(f"{prefix}{name}", list(known))
            )
