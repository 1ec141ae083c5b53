"""Configurations of the commands, composed by Hydra and checked."""

from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path

from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hydra_plugins.pkm_cells import CellsLauncher
from pkm.experiments.commands.explanations import explained, tidy
from pkm.experiments.commands.options import LOGGING, OPTIONS, keys_of
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.conf_source import ConfSearchPath, ConfSource
from pkm.experiments.config.errors import ConfigurationError, require_known
from pkm.experiments.config.groups import ALL, GROUP_KEYS, NEEDED_KEYS
from pkm.experiments.config.settings import require
from pkm.scalars import is_integer

#: Databases that MLflow keeps its runs in.
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


@cache
def register() -> None:
    """Make the commands' configurations, the catalogue and the launcher of cells known to Hydra.

    The catalogue is registered here alone: as an installed plugin it would be part of
    every application. Hydra finds the launcher by itself, unless the project is
    installed editable.
    """
    for plugin in (ConfSource, ConfSearchPath, CellsLauncher):
        Plugins.instance().register(plugin)
    store = ConfigStore.instance()
    # Hydra copies the store for each of the hundred groups that a help text lists. It
    # need not: whatever it loads from the store is copied by itself.
    vars(store)["__deepcopy__"] = lambda memo: store
    store.store(group="hydra/hydra_logging", name="pkm", node=LOGGING, provider="pkm")
    for command, schema in OPTIONS.items():
        store.store(name=command, node=schema, provider="pkm")


def load(overrides: Sequence[str], command: str = "reproduce") -> DictConfig:
    """Compose the configuration of a command outside of Hydra's applications.

    Parameters
    ----------
    overrides : sequence of str
        Hydra overrides without sweeps.
    command : {"run", "reproduce"}
        Whose keys there are.

    Returns
    -------
    DictConfig
        Resolved and checked; see `checked`.

    Raises
    ------
    ConfigurationError
        If an override names a key or a choice that does not exist; choices are listed.
    ValueError
        If a setting breaks its rule.
    """
    register()
    try:
        with initialize(version_base="1.3", config_path=None, job_name=command):
            config = compose(command, list(overrides))
    except HydraException as error:
        raise ConfigurationError(explained(error, command)) from error
    return checked(config, command)


def checked(config: DictConfig, command: str) -> DictConfig:
    """Resolve a composed configuration, and refuse what would fail later or be ignored.

    Raises
    ------
    ConfigurationError
        If it has a key that the command has not, or lacks one.
    ValueError
        If a setting breaks its rule.
    """
    check_needed(config)
    check_keys(config, OPTIONS[command])
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise ConfigurationError(tidy(error)) from error
    check_settings(config)
    return config


def check_needed(config: DictConfig) -> None:
    """Refuse a group whose needed keys were taken away.

    Raises
    ------
    ConfigurationError
        Naming the group and the key.
    """
    for group, keys in NEEDED_KEYS.items():
        if group not in config or config[group] == {"name": ALL}:
            continue
        if not OmegaConf.is_dict(config[group]):
            raise ConfigurationError(
                f"{group}: its file must hold a mapping, key: value"
            )
        # A value that is left to the user (???) is refused later, with the remedy.
        present = list(config[group])
        for key in keys:
            if key not in present:
                raise ConfigurationError(
                    f"{group}: the key {key} is missing in its file"
                )


def check_keys(config: DictConfig, schema: type, prefix: str = "") -> None:
    """Refuse keys that were added with a plus or taken away with a tilde.

    Raises
    ------
    ConfigurationError
        Naming the key and those that there are.
    """
    known = keys_of(schema)
    require_known(config, known, prefix)
    for name, given in known.items():
        if name not in config:
            raise ConfigurationError(
                f"~{prefix}{name} is not allowed: the key is needed"
            )
        if is_dataclass(given.type):
            check_keys(config[name], given.type, f"{prefix}{name}.")
        elif name in GROUP_KEYS:
            require_known(config[name], GROUP_KEYS[name], f"{name}.")


def check_settings(config: DictConfig) -> None:
    """Refuse settings that would fail only after hours of work, or be ignored.

    Raises
    ------
    ValueError
        If a setting of the backend, of the tracking or of the mirror breaks its rule.
    """
    # The serial backend ignores it; a wrong value is refused all the same.
    jobs = config.jobs
    require(
        is_integer(jobs) and jobs >= 1, "jobs", jobs, "a whole number of at least 1"
    )
    backend = Backend(**config.backend)
    given = config.scheduler
    require(
        given is None or backend.name == "dask",
        "scheduler",
        given,
        "left out unless backend=dask",
    )
    rule = "left out with a scheduler, whose workers they are"
    require(jobs == 1 or backend.scheduler is None, "jobs", jobs, rule)
    mirror = config.data
    rule = (
        "a folder that exists, with the original data files (the default is PKM_DATA)"
    )
    require(mirror is None or Path(mirror).is_dir(), "data", mirror, rule)
    tracking = config.tracking
    require(
        tracking.name in ("none", "mlflow"),
        "tracking.name",
        tracking.name,
        "none or mlflow",
    )
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
        If it is malformed, its scheme is unknown, or the database's driver is not
        installed.
    """
    rule = "sqlite:///FILE, a database such as postgresql://..., or a tracking server http://..."
    require(isinstance(uri, str) and "://" in uri, "tracking.uri", uri, rule)
    scheme, _, rest = uri.partition("://")
    if scheme in ("http", "https"):
        require(rest.strip("/") != "", "tracking.uri", uri, rule)
        return
    require(scheme.partition("+")[0] in DATABASES, "tracking.uri", uri, rule)
    if scheme == "sqlite":
        # No host before the third slash, and a file after it; the driver is Python's
        # own.
        file = rest.partition("?")[0]
        require(file.startswith("/") and file != "/", "tracking.uri", uri, rule)
        return
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise ConfigurationError(
            f"tracking.uri={uri!r} cannot be used: {error}"
        ) from error
