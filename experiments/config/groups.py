"""Choices of the groups: the catalogue, data sets, defaults of classes."""

from collections.abc import Mapping
from typing import Any

from pkm import catalogue, datasets
from pkm.catalogue import SWEEPS
from pkm.datasets.loading import resolve
from pkm.experiments.config.errors import ConfigurationError, unknown
from pkm.experiments.config.method_parameters import RESERVED_PARAMETERS, presets

GROUPS = ("paper", "method", "dataset", "profile", "backend", "tracking")
#: Keys of the groups that have the same ones in every file.
GROUP_KEYS = {
    "backend": ("name", "jobs", "threads", "time_limit", "retries", "scheduler"),
    "dataset": ("name", "path", "bounds", "columns", "label", "decimal"),
    "profile": ("name", "seeds"),
    "tracking": ("name", "uri", "artifacts"),
}
#: Keys that a choice of a group must have.
NEEDED_KEYS = dict.fromkeys(GROUPS, ("name",)) | {
    "method": ("name", "_target_"),
    "paper": ("name", "sweeps"),
}
#: Choice of ``paper`` that stands for every paper.
ALL = "all"
#: What a missing value is in Hydra's YAML.
MISSING = "???"


def choices(group: str) -> list[str]:
    """List what a group offers: files, papers, declared methods, data sets."""
    declared = catalogue.current().choices(group)
    if group != "dataset":
        return declared
    return [*declared, *(name for name in datasets.names() if is_choice(group, name))]


def is_choice(group: str, name: str) -> bool:
    """Tell whether a group offers a choice; there are more than can be listed."""
    if name in catalogue.current().choices(group):
        return True
    if group == "dataset":
        try:
            resolve(name)
        except ValueError:
            return False
        return True
    return (group, name) == ("paper", ALL) or (group == "method" and ":" in name)


def read_entry(group: str, name: str) -> dict[str, Any]:
    """Return a choice of a group as Hydra composes it.

    Raises
    ------
    ConfigurationError
        If there is no such choice, its file cannot be read, or it lacks a key of its
        group.
    """
    if (group, name) == ("paper", ALL):
        return {"name": ALL}
    if not is_choice(group, name):
        raise ConfigurationError(unknown(group, name, choices(group)))
    if group == "dataset" and name not in catalogue.current().choices(group):
        return {"name": name} | dict.fromkeys(GROUP_KEYS["dataset"][1:])
    try:
        entry = catalogue.current().read(group, name)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    file = f"{group}/{name}/{SWEEPS}" if group == "paper" else f"{group}/{name}.yaml"
    for key in NEEDED_KEYS[group]:
        if key not in entry:
            raise ConfigurationError(f"{file}: the key {key} is missing")
    if group == "paper" and not isinstance(entry["sweeps"], dict):
        sweeps = entry["sweeps"]
        raise ConfigurationError(
            f"{file}: sweeps={sweeps!r} is not allowed: it must be a mapping"
        )
    return with_defaults(entry) if group == "method" else entry


def with_defaults(entry: Mapping) -> dict[str, Any]:
    """Fill in the parameters that a method's entry leaves to its class.

    An entry whose class is not known yet, cannot be imported or is none stays as it is.

    Examples
    --------
    >>> entry = {"name": "own", "_target_": "pkm.methods.Lloyd"}
    >>> list(with_defaults(entry))[:5]
    ['name', '_target_', 'zoom', 'require_zoom', 'variant']
    """
    target = entry.get("_target_", MISSING)
    if target == MISSING or not isinstance(target, str):
        return dict(entry)
    try:
        defaults = presets(target)
    except (ValueError, TypeError):
        return dict(entry)
    named = {key: entry[key] for key in ("name", "_target_") if key in entry}
    free = {
        name: value
        for name, value in defaults.items()
        if name not in RESERVED_PARAMETERS
    }
    return named | free | entry
