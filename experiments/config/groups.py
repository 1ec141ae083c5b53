"""Choices of Hydra's groups: the catalogue, data sets, defaults of classes."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pkm import catalogue, datasets
from pkm.catalogue import SWEEPS
from pkm.datasets.loading import resolve
from pkm.experiments.config.errors import ConfigurationError, explain_unknown
from pkm.experiments.config.method_parameters import (
    RESERVED_PARAMETERS,
    get_defaults,
    get_method_class,
)

GROUPS = ("paper", "method", "dataset", "profile", "backend", "tracking")
#: Keys of a data set that is read from a file.
FILE_KEYS = ("path", "bounds", "columns", "label", "decimal", "missing")
#: Keys of the groups that have the same ones in every file.
GROUP_KEYS = {
    "backend": ("name", "jobs", "threads", "time_limit", "retries", "scheduler"),
    "dataset": ("name", *FILE_KEYS, "groups"),
    "profile": ("name", "seeds"),
    "tracking": ("name", "uri", "artifacts"),
}
#: Keys that a choice of a group must have.
REQUIRED_KEYS = dict.fromkeys(GROUPS, ("name",)) | {
    "method": ("name", "_target_"),
    "paper": ("name", "sweeps"),
}
#: Choice of ``paper`` that stands for every paper.
ALL_PAPERS = "all"
#: A missing value in Hydra's YAML.
MISSING = "???"


def choices(group: str) -> list[str]:
    """List the choices of a group: files, papers, declared methods, data sets."""
    declared = catalogue.current().choices(group)
    if group != "dataset":
        return declared
    return [*declared, *(name for name in datasets.names() if is_choice(group, name))]


def is_choice(group: str, name: str) -> bool:
    """Tell whether a group has a choice; there are more than `choices` lists."""
    if name in catalogue.current().choices(group):
        return True
    if group == "dataset":
        with suppress(ValueError):
            return bool(resolve(name))
    return (group, name) == ("paper", ALL_PAPERS) or (group == "method" and ":" in name)


def read_choice(group: str, name: str) -> dict[str, Any]:
    """Return a choice of a group as Hydra composes it.

    Raises
    ------
    ConfigurationError
        If there is no such choice, its file cannot be read, or it lacks a key of its
        group.
    """
    if (group, name) == ("paper", ALL_PAPERS):
        return {"name": ALL_PAPERS}
    if not is_choice(group, name):
        raise ConfigurationError(explain_unknown(group, name, choices(group)))
    if group == "dataset" and name not in catalogue.current().choices(group):
        return {"name": name} | dict.fromkeys(GROUP_KEYS["dataset"][1:])
    try:
        config = catalogue.current().read(group, name)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    file = f"{group}/{name}/{SWEEPS}" if group == "paper" else f"{group}/{name}.yaml"
    for key in REQUIRED_KEYS[group]:
        if key not in config:
            raise ConfigurationError(f"{file}: the key {key} is missing")
    if group == "paper" and not isinstance(config["sweeps"], dict):
        sweeps = config["sweeps"]
        raise ConfigurationError(
            f"{file}: sweeps={sweeps!r} is not allowed: it must be a mapping"
        )
    return fill_defaults(config) if group == "method" else config


def fill_defaults(config: Mapping) -> dict[str, Any]:
    """Add the defaults of a method's class to its configuration, and its identity.

    If the class is not given or cannot be imported, the configuration stays unchanged.

    Examples
    --------
    >>> config = {"name": "own", "_target_": "pkm.methods.Lloyd"}
    >>> list(fill_defaults(config))[:6]
    ['name', '_target_', 'zoom', 'require_zoom', 'report', 'adjacency']
    """
    target = config.get("_target_", MISSING)
    if target == MISSING or not isinstance(target, str):
        return dict(config)
    try:
        defaults = get_defaults(target)
    except (ValueError, TypeError):
        return dict(config)
    named = {key: config[key] for key in ("name", "_target_") if key in config}
    free = {
        name: value
        for name, value in defaults.items()
        if name not in RESERVED_PARAMETERS
    }
    filled = named | free | dict(config)
    # A cell's key does not cover the files of a program; `identify` gives their digest.
    identify = getattr(get_method_class(target), "identify", None)
    return filled if identify is None else filled | identify(filled)
