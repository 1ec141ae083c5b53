"""Errors about configurations, which name the nearest known word."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pkm.names import nearest


class ConfigurationError(ValueError):
    """A configuration requests what does not exist or is not allowed."""


def unknown(kind: str, name: Any, known: Sequence[str]) -> str:
    """Say that a name is unknown, what it may have been, and what is known.

    Examples
    --------
    >>> unknown("method", "loyd", ["lloyd", "packing"])
    "method='loyd' is unknown. Did you mean lloyd? Known: lloyd, packing"
    """
    hint = did_you_mean(str(name), known)
    return f"{kind}={name!r} is unknown.{hint} Known: {', '.join(known)}"


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
            raise ConfigurationError(unknown(kind, name, known))


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Say that a key is unknown, what it may have been, and what is known at its place.

    Examples
    --------
    >>> unknown_key("backend.job", ["jobs", "threads"])
    "key 'backend.job' is unknown. Did you mean backend.jobs? Known: jobs, threads"
    """
    prefix, dot, name = key.rpartition(".")
    hint = did_you_mean(name, known, prefix + dot)
    return f"key {key!r} is unknown.{hint} Known: {', '.join(known)}"


def did_you_mean(
    name: str,
    known: Sequence[str],
    prefix: str = "",
) -> str:
    """Name the known word that is nearest to a given one, if one is near.

    Examples
    --------
    >>> did_you_mean("Iris", ["iris", "wine"]), did_you_mean("eps", ["epsilon"])
    (' Did you mean iris?', ' Did you mean epsilon?')
    """
    near = nearest(name, known)
    return "" if near is None else f" Did you mean {prefix}{near}?"


def require_known(
    names: Iterable[str],
    known: Collection[str],
    prefix: str,
) -> None:
    """Refuse a name that is not among the known ones.

    Raises
    ------
    ConfigurationError
        Naming it, the nearest one and all.
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(unknown_key(f"{prefix}{name}", list(known)))
