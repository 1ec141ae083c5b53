"""From the command line and `conf/` to plain values, with the errors of both made readable."""

import difflib
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

CONF = Path(__file__).resolve().parents[1] / "conf"
GROUPS = ("paper", "method", "dataset", "profile", "backend", "tracking")


class ConfigurationError(ValueError):
    """The command line or a file of `conf/` asks for something that does not exist or is not allowed."""


def choices(group: str) -> list[str]:
    """List what a group of `conf/` offers."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Expand the sweeps of a Hydra multirun: ``epsilon=0.1,1.0`` becomes two jobs.

    Parameters
    ----------
    overrides : sequence of str
        Command-line overrides, some of them sweeps.

    Returns
    -------
    list of list of str
        The overrides of each job, the last sweep varying fastest.

    Raises
    ------
    ConfigurationError
        If an override cannot be parsed.

    Examples
    --------
    >>> expand(["k=3", "epsilon=0.1,1.0"])
    [['k=3', 'epsilon=0.1'], ['k=3', 'epsilon=1.0']]
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        return [list(job) for batch in BasicSweeper.split_arguments(parsed, None) for job in batch]
    except HydraException as error:
        raise ConfigurationError(tidy(error)) from error


def load(overrides: Sequence[str]) -> DictConfig:
    """Compose the configuration of one job.

    Two comforts over plain Hydra: ``dataset=NAME`` takes any name of the registry, and
    ``method._target_=package.Class`` alone chooses ``method=external``.

    Parameters
    ----------
    overrides : sequence of str
        Hydra overrides without sweeps.

    Returns
    -------
    DictConfig
        Resolved configuration.

    Raises
    ------
    ConfigurationError
        If an override names a key or a choice that does not exist; choices are listed.
    """
    overrides = list(overrides)
    for position, override in enumerate(overrides):
        name, _, value = override.partition("=")
        if name == "dataset" and value not in choices("dataset"):
            overrides[position] = "dataset=registered"
            overrides.append(f"dataset.name={value}")
        elif name in GROUPS and value not in choices(name):
            raise ConfigurationError(unknown(name, value, choices(name)))
    names = {override.partition("=")[0] for override in overrides}
    if "method._target_" in names and "method" not in names:
        overrides.insert(0, "method=external")
    logging.getLogger("hydra").setLevel(logging.ERROR)
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", overrides)
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(tidy(error)) from error
    return config


@cache
def method_entry(name: str) -> dict:
    """Return a file of ``conf/method`` as a dict.

    Raises
    ------
    ConfigurationError
        If there is no such file; the known ones are listed.
    """
    if name not in choices("method"):
        raise ConfigurationError(unknown("method", name, choices("method")))
    return OmegaConf.to_container(OmegaConf.load(CONF / "method" / f"{name}.yaml"))


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Say that a name is unknown, what it may have been, and what is known.

    Examples
    --------
    >>> unknown("method", "loyd", ["lloyd", "packing"])
    "method='loyd' is unknown. Did you mean lloyd? Known: lloyd, packing"
    """
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"{kind}={name!r} is unknown.{hint} Known: {', '.join(known)}"


def tidy(error: Exception) -> str:
    """Return the message of a Hydra error without its frame of empty and internal lines."""
    internal = ("full_key:", "object_type=", "See https", "reference_")
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(internal))
