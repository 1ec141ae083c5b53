"""Configurations of the commands, composed by Hydra and checked."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path

from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.pkm_cells import CellsLauncher
from pkm.experiments.applications.explanations import clean_message, explain_errors
from pkm.experiments.applications.options import LOGGING, SCHEMAS, list_keys
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.conf_source import ConfSearchPath, ConfSource
from pkm.experiments.config.errors import ConfigurationError, require_choices
from pkm.experiments.config.groups import ALL_PAPERS, GROUP_KEYS, GROUPS, REQUIRED_KEYS
from pkm.experiments.config.settings import Rule, at_least, one_of, require

URI_PATTERN = (
    r"https?://[^/].*|sqlite:///[^?].*|(sqlite\+|postgresql|mysql|mssql).*://.*"
)
#: Address of MLflow's runs: a server with a host, or a database.
URI = Rule(
    lambda value: isinstance(value, str) and bool(re.fullmatch(URI_PATTERN, value)),
    "sqlite:///FILE, a database such as postgresql://..., "
    "or a tracking server http://...",
)


@cache
def register_plugins() -> None:
    """Make configurations, the catalogue and the launcher of cells known to Hydra.

    The catalogue is all files of ``conf/`` and of further folders. It is registered
    here alone: as an installed plugin it would be part of every application. Hydra
    finds the launcher by itself, unless the project is installed editable.
    """
    for plugin in (ConfSource, ConfSearchPath, CellsLauncher):
        Plugins.instance().register(plugin)
    store = ConfigStore.instance()
    # Hydra copies the store for each of the hundred groups that a help text lists. This
    # is not needed: it copies each object that it loads from the store.
    vars(store)["__deepcopy__"] = lambda memo: store
    store.store(group="hydra/hydra_logging", name="pkm", node=LOGGING, provider="pkm")
    for command, schema in SCHEMAS.items():
        store.store(name=command, node=schema, provider="pkm")


def load_config(
    overrides: Sequence[str],
    command: str = "reproduce",
) -> DictConfig:
    """Compose the configuration of a command outside of Hydra's applications.

    Parameters
    ----------
    overrides : sequence of str
        Hydra overrides without sweeps.
    command : {"run", "reproduce"}
        The command, which determines the keys.

    Returns
    -------
    DictConfig
        Resolved and checked; see `check_configuration`.

    Raises
    ------
    ConfigurationError
        If an override names a key or a choice that does not exist; choices are listed.
    ValueError
        If a setting breaks its rule.
    """
    register_plugins()
    with (
        explain_errors(command),
        initialize(version_base="1.3", config_path=None, job_name=command),
    ):
        config = compose(command, list(overrides))
    return check_configuration(config, command)


def check_configuration(config: DictConfig, command: str) -> DictConfig:
    """Resolve a composed configuration, and refuse what would fail later or be ignored.

    Raises
    ------
    ConfigurationError
        If it has a key that the command does not have, or lacks one.
    ValueError
        If a setting breaks its rule.
    """
    check_keys(config, SCHEMAS[command])
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise ConfigurationError(clean_message(error)) from error
    check_settings(config)
    return config


def check_keys(
    config: DictConfig,
    schema: type,
    prefix: str = "",
) -> None:
    """Refuse keys that were added with a plus or removed with a tilde.

    Raises
    ------
    ConfigurationError
        Naming the key and the known ones.
    """
    known = list_keys(schema)
    require_choices("key", config, list(known), prefix)
    require_present(config, known, prefix)
    for name, option in known.items():
        if is_dataclass(option.type):
            check_keys(config[name], option.type, f"{name}.")
        elif name in GROUPS:
            check_group(name, config[name])


def check_group(group: str, config: DictConfig) -> None:
    """Refuse a group that has unknown keys or lacks required ones.

    Raises
    ------
    ConfigurationError
        Naming the group and the key.
    """
    if not OmegaConf.is_dict(config):
        raise ConfigurationError(f"{group}: its file must hold a mapping, key: value")
    known = GROUP_KEYS.get(group, list(config))
    require_choices("key", config, known, f"{group}.")
    if config != {"name": ALL_PAPERS}:
        require_present(config, REQUIRED_KEYS[group], f"{group}.")


def require_present(
    config: DictConfig,
    keys: Iterable[str],
    prefix: str,
) -> None:
    """Refuse a configuration that lacks a key.

    Raises
    ------
    ConfigurationError
        Naming the key.
    """
    # A value that is left to the user (???) is refused later, with the remedy.
    present = list(config)
    for key in keys:
        if key not in present:
            raise ConfigurationError(
                f"~{prefix}{key} is not allowed: the key is needed"
            )


def check_settings(config: DictConfig) -> None:
    """Refuse settings that would fail only after hours of work, or be ignored.

    Raises
    ------
    ValueError
        If a setting of the backend, of the tracking or of the data breaks its rule.
    """
    # The serial backend ignores it; a wrong value is refused anyway.
    at_least(1).require("jobs", config.jobs)
    backend = Backend(**config.backend)
    holds = config.scheduler is None or backend.name == "dask"
    rule = "left out unless backend=dask"
    require(holds, "scheduler", config.scheduler, rule)
    holds = config.jobs == 1 or backend.scheduler is None
    rule = "left out with a scheduler, whose workers they are"
    require(holds, "jobs", config.jobs, rule)
    data = config.data
    rule = "a folder that exists, with the original files (the default is PKM_DATA)"
    require(data is None or Path(data).is_dir(), "data", data, rule)

    tracking = config.tracking
    one_of("none", "mlflow").require("tracking.name", tracking.name)
    uri = tracking.uri
    if tracking.name == "none":
        require(uri is None, "tracking.uri", uri, "left out unless tracking=mlflow")
        return
    check_uri(uri)
    artifacts = tracking.artifacts
    require(isinstance(artifacts, str), "tracking.artifacts", artifacts, "a folder")


def check_uri(uri: str) -> None:
    """Refuse the address of a tracking store that is neither a server nor a database.

    Raises
    ------
    ValueError
        If it is malformed, its scheme is unknown, or the database's driver is not
        installed.
    """
    URI.require("tracking.uri", uri)
    # Python itself has the driver of SQLite.
    if uri.startswith(("http", "sqlite:")):
        return
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        message = f"tracking.uri={uri!r} cannot be used: {error}"
        raise ConfigurationError(message) from error
