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

from pkm.experiments.backends import Backend
from pkm.experiments.cell import require
from pkm.methods.base import is_integer

CONF = Path(__file__).resolve().parents[1] / "conf"
#: Databases that MLflow keeps its runs in.
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
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
    ValueError
        If a setting of the backend or of the tracking breaks its rule.
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
    check_settings(config)
    return config


def check_settings(config: DictConfig) -> None:
    """Refuse settings that would fail only after hours of work, or be passed over.

    Raises
    ------
    ValueError
        If a setting of the backend or of the tracking breaks its rule.
    """
    # The serial backend does not read it, which is no reason to let a wrong one pass.
    require(
        is_integer(config.jobs) and config.jobs >= 1,
        "jobs",
        config.jobs,
        "a whole number of at least 1",
    )
    try:
        Backend(**config.backend)
    except TypeError as error:
        raise ConfigurationError(f"backend: {error}") from error
    tracking = config.tracking
    require(tracking.name in ("none", "mlflow"), "tracking.name", tracking.name, "none or mlflow")
    if tracking.name == "none":
        require(
            tracking.uri is None, "tracking.uri", tracking.uri, "left out unless tracking=mlflow"
        )
        return
    check_uri(tracking.uri)
    require(
        isinstance(tracking.artifacts, str), "tracking.artifacts", tracking.artifacts, "a folder"
    )


def check_uri(uri: str) -> None:
    """Refuse the address of a tracking store that is neither a server nor a database that can be spoken to here.

    Raises
    ------
    ValueError
        If it is malformed, its scheme is unknown, or the database's driver is not installed.
    """
    rule = "sqlite:///FILE, a database such as postgresql://..., or a tracking server http://..."
    require(isinstance(uri, str) and "://" in uri, "tracking.uri", uri, rule)
    scheme, _, rest = uri.partition("://")
    if scheme in ("http", "https"):
        require(rest.strip("/") != "", "tracking.uri", uri, rule)
        return
    require(scheme.partition("+")[0] in DATABASES, "tracking.uri", uri, rule)
    # Imported here: a quarter of a second that a request without tracking need not pay.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        url = make_url(uri)
        url.get_dialect().import_dbapi()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise ConfigurationError(f"tracking.uri={uri!r} cannot be used: {error}") from error
    if scheme == "sqlite":
        require(not url.host and bool(url.database), "tracking.uri", uri, rule)


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
