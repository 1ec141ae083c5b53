"""Errors of Hydra and OmegaConf as one line that says what is wrong."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hydra.errors import (
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import ListConfig
from omegaconf.errors import OmegaConfBaseException, ValidationError

from pkm import datasets
from pkm.datasets.user_files import SUFFIXES
from pkm.experiments.applications.options import SCHEMAS, list_keys
from pkm.experiments.config.errors import (
    ConfigurationError,
    explain_unknown,
)
from pkm.experiments.config.groups import GROUPS

#: What OmegaConf calls a type, and what the message says that a value must be.
TYPE_RULES = {"Integer": "a whole number", "bool": "true or false", "str": "a text"}


@contextmanager
def explain_errors(command: str) -> Iterator[None]:
    """Raise errors of Hydra in a block as one line each.

    Raises
    ------
    ConfigurationError
        From an error of Hydra.
    """
    try:
        yield
    except HydraException as error:
        raise ConfigurationError(explain(error, command)) from error


def explain(error: Exception, command: str) -> str:
    """Say in one line what is wrong with a command line that Hydra refuses.

    Parameters
    ----------
    error : HydraException
        Raised while composing.
    command : str
        Name of the command, to tell which other one has a key.
    """
    if isinstance(error, OverrideParseException):
        return explain_unreadable(error.override, command)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.partition("/")
        if group in GROUPS:
            return explain_unknown_choice(group, name, error.options or ())
        return clean_message(error)
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        return explain_wrong_type(cause)
    is_config_error = isinstance(cause, OmegaConfBaseException)
    if is_config_error and cause.full_key and cause.parent_node:
        key = cause.full_key
        if isinstance(cause.parent_node, ListConfig):
            override = str(error).removeprefix("Error merging override ")
            return (
                f"{override} is not allowed: {key} must be a value or a list of values"
            )
        known = [str(name) for name in cause.parent_node if name != "hydra"]
        group, dot, name = key.rpartition(".")
        unknown = explain_unknown("key", name, known, group + dot)
        return unknown + hint_at_other_key(key, command)
    listed = re.match("Ambiguous value for argument '(.*)'", str(error))
    if listed:
        key, _, values = listed[1].partition("=")
        # A group has one choice; a key may have a list.
        a_list = "" if key in GROUPS else f"give a list, {key}=[{values}], or "
        return f"{listed[1]} lists values: {a_list}add -m to sweep over them"
    group = re.match("Could not override '([^'@]+)", str(error))
    if group and group[1] in GROUPS:
        hint = hint_at_other_key(group[1], command)
        return f"{group[1]} is no group of `pkm {command}`{hint}"
    return clean_message(cause if is_config_error else error)


def explain_unreadable(override: str, command: str) -> str:
    """Say how a value that Hydra's grammar does not read is quoted."""
    key, sign, value = override.partition("=")
    if not sign:
        return f"{override!r} cannot be read: give key=value, as --help shows"
    if value.startswith("{"):
        option = list_keys(SCHEMAS[command]).get(key)
        rule = option.metadata["help"] if option else "as --help shows"
        return f"{override!r} cannot be read: {key} must be {rule}"
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    # The names of a list are quoted one by one.
    example = f'{key}=["a, b","c"]' if value.startswith("[") else f'{key}="{quoted}"'
    return (
        f"{override!r} cannot be read: "
        "a value with ( ) [ ] { } , : = ~ or a blank needs quotes "
        f"inside the shell's, '{example}'"
    )


def explain_unknown_choice(
    group: str,
    name: str,
    known: Sequence[str],
) -> str:
    """Say that a group has no such choice, or how a file is given as a data set."""
    if group == "backend":
        known = [*known, "submitit"]
    if group == "dataset":
        if name.lower().endswith(SUFFIXES):
            return (
                f"dataset={name!r} is unknown. A file is given so: dataset=file "
                f"path={name}"
            )
        # Families have more data sets than Hydra lists.
        known = datasets.names()
    return explain_unknown(group, name, known)


def explain_wrong_type(error: ValidationError) -> str:
    """Say which value is of the wrong type, and what it must be."""
    pattern = (
        r"Value '(.*)' (?:of type '\w+' could not be converted to|is not a valid) (\w+)"
    )
    match = re.match(pattern, str(error), re.DOTALL)
    if match is None:
        return f"{error.full_key}: {clean_message(error)}"
    rule = TYPE_RULES.get(match[2], match[2])
    return (
        f"{error.full_key}={match[1]!r} is not allowed: {error.full_key} must be {rule}"
    )


def hint_at_other_key(key: str, command: str) -> str:
    """Say what to do with a key of another command, or with another name."""
    if key == "method.secure":
        return "; noise=secure draws noise from the operating system"
    others = [
        name for name in SCHEMAS if name != command and key in list_keys(SCHEMAS[name])
    ]
    if not others or key in list_keys(SCHEMAS[command]):
        return ""
    hint = f"; it is a key of `pkm {others[0]}`"
    if others == ["run"]:
        hint += (
            ", and the sweeps of a paper have their own "
            "(paper.sweeps.NAME.KEY=... changes one)"
        )
    return hint


def clean_message(error: BaseException) -> str:
    """Return the message of a Hydra error without empty and internal lines."""
    internal = ("full_key:", "object_type=", "See https", "reference_")
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(internal))
