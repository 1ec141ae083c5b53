"""From the command line and `conf/` to plain values, with the errors of both made readable."""

# Imports that a help text does not need are inside functions: they take seconds.
import difflib
import itertools
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

CONF = Path(__file__).resolve().parents[1] / "conf"
#: Databases that MLflow keeps its runs in.
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
GROUPS = ("paper", "method", "dataset", "profile", "backend", "tracking")


class ConfigurationError(ValueError):
    """The command line or a file of `conf/` requests what does not exist or is not allowed."""


def choices(group: str) -> list[str]:
    """List what a group of `conf/` offers; a paper is a folder."""
    if group == "paper":
        return sorted(path.parent.name for path in (CONF / group).glob("*/sweeps.yaml"))
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
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        # Of two overrides of one key the later one counts.
        variants = {override.get_key_element(): variants_of(override) for override in parsed}
    except HydraException as error:
        raise ConfigurationError(tidy(error)) from error
    return [list(job) for job in itertools.product(*variants.values())]


def variants_of(override: "Override") -> list[str]:
    """Write an override once for each value of its sweep, or once if it is none.

    Raises
    ------
    ConfigurationError
        If it sweeps over an interval, which has no list of values.
    """
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        rule = "a sweep must list its values: a,b,c, choice(...), range(...) or glob(...)"
        raise ConfigurationError(f"{override.input_line} is not allowed: {rule}")
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def load(overrides: Sequence[str]) -> "DictConfig":
    """Compose the configuration of one job.

    Two additions to plain Hydra: ``dataset=NAME`` takes any name of the registry, and
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
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    overrides = list(overrides)
    for position, override in enumerate(overrides):
        name, _, value = override.partition("=")
        if name == "dataset" and value not in choices("dataset"):
            overrides[position] = "dataset=registered"
            overrides.append(f"dataset.name={value}")
        elif name in GROUPS and value not in choices(name):
            raise ConfigurationError(unknown(name, value, choices(name)))
        elif name == "paper":
            overrides[position] = f"paper={value}/sweeps"
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


def check_settings(config: "DictConfig") -> None:
    """Refuse settings that would fail only after hours of work, or be ignored.

    Raises
    ------
    ValueError
        If a setting of the backend or of the tracking breaks its rule.
    """
    from pkm.experiments.backends import Backend
    from pkm.experiments.cell import require
    from pkm.methods.base import is_integer

    # The serial backend ignores it; a wrong value is refused all the same.
    jobs = config.jobs
    require(is_integer(jobs) and jobs >= 1, "jobs", jobs, "a whole number of at least 1")
    try:
        Backend(**config.backend)
    except TypeError as error:
        raise ConfigurationError(f"backend: {error}") from error
    tracking = config.tracking
    require(tracking.name in ("none", "mlflow"), "tracking.name", tracking.name, "none or mlflow")
    uri = tracking.uri
    if tracking.name == "none":
        require(uri is None, "tracking.uri", uri, "left out unless tracking=mlflow")
        return
    check_uri(uri)
    artifacts = tracking.artifacts
    require(isinstance(artifacts, str), "tracking.artifacts", artifacts, "a folder")


def check_uri(uri: str) -> None:
    """Refuse the address of a tracking store that is neither a server nor a known database.

    Raises
    ------
    ValueError
        If it is malformed, its scheme is unknown, or the database's driver is not installed.
    """
    from pkm.experiments.cell import require

    rule = "sqlite:///FILE, a database such as postgresql://..., or a tracking server http://..."
    require(isinstance(uri, str) and "://" in uri, "tracking.uri", uri, rule)
    scheme, _, rest = uri.partition("://")
    if scheme in ("http", "https"):
        require(rest.strip("/") != "", "tracking.uri", uri, rule)
        return
    require(scheme.partition("+")[0] in DATABASES, "tracking.uri", uri, rule)
    if scheme == "sqlite":
        # No host before the third slash, and a file after it; the driver is Python's own.
        file = rest.partition("?")[0]
        require(file.startswith("/") and file != "/", "tracking.uri", uri, rule)
        return
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise ConfigurationError(f"tracking.uri={uri!r} cannot be used: {error}") from error


@cache
def method_entry(name: str) -> dict:
    """Return a file of ``conf/method`` as a dict.

    Raises
    ------
    ConfigurationError
        If there is no such file; the known ones are listed.
    """
    from omegaconf import OmegaConf

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
