"""From the command line and `conf/` to plain values that are checked."""

# Imports that a help text does not need are inside functions: they take seconds.
import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkm import datasets
from pkm.datasets.loading import FILE, resolve
from pkm.names import nearest
from pkm.scalars import is_integer

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from yaml import MarkedYAMLError

CONF = Path(__file__).resolve().parents[2] / "conf"
#: Databases that MLflow keeps its runs in.
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
GROUPS = ("paper", "method", "dataset", "profile", "backend", "tracking")
#: Keys of the groups that have the same ones in every file.
GROUP_KEYS = {
    "backend": ("name", "jobs", "threads", "time_limit", "retries", "scheduler"),
    "dataset": ("name", "path", "bounds", "columns", "label"),
    "profile": ("name", "seeds"),
    "tracking": ("name", "uri", "artifacts"),
}
#: Keys that a choice of a group must have; a paper has sweeps too.
NEEDED_KEYS = {"method": ("name", "_target_")} | dict.fromkeys(
    ("paper", "dataset", "profile", "backend", "tracking"), ("name",)
)
#: Choice of ``paper`` that stands for every paper.
ALL = "all"
#: What a missing value is in Hydra's YAML.
MISSING = "???"


class ConfigurationError(ValueError):
    """The command line or a file of `conf/` requests what does not exist or is not allowed."""


def choices(group: str) -> list[str]:
    """List what a group offers: files of `conf/`, folders of papers, data sets of the registry."""
    if group == "paper":
        return sorted(path.parent.name for path in (CONF / group).glob("*/sweeps.yaml"))
    if group == "dataset":
        return [name for name in datasets.names() if is_choice(group, name)]
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def is_choice(group: str, name: str) -> bool:
    """Tell whether a group offers a choice; there are more data sets than can be listed."""
    if group == "dataset":
        try:
            resolve(name)
        except ValueError:
            return False
        return True
    return name in choices(group) or (group, name) == ("paper", ALL)


def entry_of(group: str, name: str) -> dict:
    """Return a choice of a group as Hydra composes it, `defaults` lists included.

    Raises
    ------
    ConfigurationError
        If its file cannot be read as YAML, or holds no mapping.
    """
    if group == "dataset" and name != FILE:
        return {"name": name} | dict.fromkeys(GROUP_KEYS["dataset"][1:])
    if (group, name) == ("paper", ALL):
        return {"name": ALL}
    if group == "paper":
        return read_yaml(CONF / group / name / "sweeps.yaml", required=("name", "sweeps"))
    if group != "method":
        return read_yaml(CONF / group / f"{name}.yaml", required=("name",))
    entry = read_yaml(CONF / group / f"{name}.yaml", required=("name",))
    if "defaults" not in entry and "_target_" not in entry:
        raise ConfigurationError(f"{CONF / group / name}.yaml: the key _target_ is missing")
    return with_defaults(entry)


def read_yaml(path: Path, required: Collection[str] = ()) -> dict:
    """Read a file of `conf/`.

    Raises
    ------
    ConfigurationError
        Naming the file, and the line where there is one, if it is no YAML, no mapping or lacks a
        key.
    """
    import yaml

    try:
        content = copy.deepcopy(_loaded(path, path.stat().st_mtime_ns))
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError(yaml_problem(error)) from error
    if not isinstance(content, dict) or not content:
        raise ConfigurationError(f"{path}:1: the file must hold a mapping, key: value")
    for key in required:
        if key not in content:
            raise ConfigurationError(f"{path}: the key {key} is missing")
    sweeps = content.get("sweeps", {})
    if not isinstance(sweeps, dict):
        raise ConfigurationError(f"{path}: sweeps={sweeps!r} is not allowed: it must be a mapping")
    return content


@cache
def _loaded(path: Path, modified: int) -> Any:
    """Content of a file, read once until it is modified: Hydra asks for a paper three times."""
    from pkm.experiments.config.yaml_files import read_file

    return read_file(path)


def yaml_problem(error: "MarkedYAMLError") -> str:
    """Say in which file and line there is no YAML, and why."""
    mark = error.problem_mark or error.context_mark
    return f"{mark.name}:{mark.line + 1}: {error.problem}" if mark else str(error.problem)


def with_defaults(entry: Mapping) -> dict:
    """Fill in the parameters that an entry of ``conf/method`` leaves to its class.

    An entry whose class is not known yet, cannot be imported or is none stays as it is.

    Examples
    --------
    >>> entry = {"name": "own", "_target_": "pkm.methods.Lloyd", "radius_search": "halving"}
    >>> list(with_defaults(entry))[:5]
    ['name', '_target_', 'zoom', 'require_zoom', 'variant']
    """
    target = entry.get("_target_", MISSING)
    if target == MISSING or not isinstance(target, str):
        return dict(entry)
    from pkm.experiments.fit.inputs import RESERVED_PARAMETERS, presets

    try:
        given = presets(target)
    except (ValueError, TypeError):
        return dict(entry)
    named = {key: entry[key] for key in ("name", "_target_") if key in entry}
    free = {name: value for name, value in given.items() if name not in RESERVED_PARAMETERS}
    return named | free | entry


@cache
def method_entry(name: str) -> dict:
    """Return a method of ``conf/method`` with all its parameters, as Hydra composes it.

    A file may name the file that it changes: ``defaults: [base, _self_]``.

    Raises
    ------
    ConfigurationError
        If there is no such file; the known ones are listed.
    """
    if name not in choices("method"):
        raise ConfigurationError(unknown("method", name, choices("method")))
    entry = entry_of("method", name)
    bases = [base for base in entry.pop("defaults", []) if base != "_self_"]
    for base in bases:
        entry = method_entry(base) | entry
    return entry


def load(overrides: Sequence[str], command: str = "reproduce") -> "DictConfig":
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
    from hydra import compose, initialize
    from hydra.errors import HydraException

    from pkm.experiments.config.explanations import explained
    from pkm.experiments.config.options import register

    register()
    try:
        with initialize(version_base="1.3", config_path=None, job_name=command):
            config = compose(command, list(overrides))
    except HydraException as error:
        raise ConfigurationError(explained(error, command)) from error
    return checked(config, command)


def checked(config: "DictConfig", command: str) -> "DictConfig":
    """Resolve a composed configuration, and refuse what would fail later or be ignored.

    Raises
    ------
    ConfigurationError
        If it has a key that the command has not, or lacks one.
    ValueError
        If a setting breaks its rule.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from pkm.experiments.config.explanations import tidy
    from pkm.experiments.config.options import OPTIONS

    check_groups(config)
    check_keys(config, OPTIONS[command])
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise ConfigurationError(tidy(error)) from error
    if command == "reproduce":
        check_paper(config.paper, config.profile.name)
    check_settings(config)
    return config


def check_groups(config: "DictConfig") -> None:
    """Refuse files of a folder of the user's that lack what every file of their group has.

    Raises
    ------
    ConfigurationError
        Naming the group and what is missing.
    """
    from omegaconf import OmegaConf

    for group, keys in NEEDED_KEYS.items():
        if group not in config:
            continue
        if not OmegaConf.is_dict(config[group]):
            raise ConfigurationError(f"{group}: its file must hold a mapping, key: value")
        # A value that is left to the user (???) is refused later, with the remedy.
        present = list(config[group])
        for key in keys:
            if key not in present:
                raise ConfigurationError(f"{group}: the key {key} is missing in its file")
    paper = config.get("paper", {"name": ALL})
    if paper["name"] != ALL and not OmegaConf.is_dict(paper.get("sweeps")):
        raise ConfigurationError("paper: the key sweeps of its file must be a mapping")


def check_keys(config: "DictConfig", schema: type, prefix: str = "") -> None:
    """Refuse keys that were added with a plus or taken away with a tilde.

    Raises
    ------
    ConfigurationError
        Naming the key and those that there are.
    """
    from pkm.experiments.config.options import keys_of

    known = keys_of(schema)
    require_known(config, known, prefix)
    for name, given in known.items():
        if name not in config:
            raise ConfigurationError(f"~{prefix}{name} is not allowed: the key is needed")
        if is_dataclass(given.type):
            check_keys(config[name], given.type, f"{prefix}{name}.")
        elif name in GROUP_KEYS:
            require_known(config[name], GROUP_KEYS[name], f"{name}.")


def require_known(names: Iterable[str], known: Collection[str], prefix: str) -> None:
    """Refuse a name that is not among the known ones.

    Raises
    ------
    ConfigurationError
        Naming it, the nearest one and all.
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(unknown_key(f"{prefix}{name}", list(known)))


def check_settings(config: "DictConfig") -> None:
    """Refuse settings that would fail only after hours of work, or be ignored.

    Raises
    ------
    ValueError
        If a setting of the backend, of the tracking or of the mirror breaks its rule.
    """
    from pkm.experiments.backends.backends import Backend
    from pkm.experiments.config.settings import require

    # The serial backend ignores it; a wrong value is refused all the same.
    jobs = config.jobs
    require(is_integer(jobs) and jobs >= 1, "jobs", jobs, "a whole number of at least 1")
    backend = Backend(**config.backend)
    given = config.scheduler
    require(
        given is None or backend.name == "dask", "scheduler", given, "left out unless backend=dask"
    )
    rule = "left out with a scheduler, whose workers they are"
    require(jobs == 1 or backend.scheduler is None, "jobs", jobs, rule)
    mirror = config.data
    rule = "a folder that exists, with the original data files (the default is PKM_DATA)"
    require(mirror is None or Path(mirror).is_dir(), "data", mirror, rule)
    tracking = config.tracking
    require(tracking.name in ("none", "mlflow"), "tracking.name", tracking.name, "none or mlflow")
    uri = tracking.uri
    if tracking.name == "none":
        require(uri is None, "tracking.uri", uri, "left out unless tracking=mlflow")
        return
    check_uri(uri)
    artifacts = tracking.artifacts
    require(isinstance(artifacts, str), "tracking.artifacts", artifacts, "a folder")


def check_paper(paper: Mapping, profile: str) -> None:
    """Refuse keys of a paper that neither its file has nor any sweep, and profiles that are none.

    Raises
    ------
    ConfigurationError
        Naming the key or the profile, and those that there are.
    """
    from pkm.experiments.plan.sweep import SWEEP_KEYS

    profiles = sorted({*choices("profile"), profile})
    require_known(paper.get("profiles") or {}, profiles, "paper.profiles.")
    if is_choice("paper", paper["name"]):
        known = dict.fromkeys([*entry_of("paper", paper["name"]), *SWEEP_KEYS])
        require_known(paper, known, "paper.")


def check_uri(uri: str) -> None:
    """Refuse the address of a tracking store that is neither a server nor a known database.

    Raises
    ------
    ValueError
        If it is malformed, its scheme is unknown, or the database's driver is not installed.
    """
    from pkm.experiments.config.settings import require

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


def unknown(kind: str, name: Any, known: Sequence[str]) -> str:
    """Say that a name is unknown, what it may have been, and what is known.

    Examples
    --------
    >>> unknown("method", "loyd", ["lloyd", "packing"])
    "method='loyd' is unknown. Did you mean lloyd? Known: lloyd, packing"
    """
    return f"{kind}={name!r} is unknown.{did_you_mean(str(name), known)} Known: {', '.join(known)}"


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


def did_you_mean(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Name the known word that is nearest to a given one, if one is near.

    Examples
    --------
    >>> did_you_mean("Iris", ["iris", "wine"]), did_you_mean("eps", ["epsilon"])
    (' Did you mean iris?', ' Did you mean epsilon?')
    """
    near = nearest(name, known)
    return "" if near is None else f" Did you mean {prefix}{near}?"
