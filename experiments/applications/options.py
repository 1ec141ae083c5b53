"""The keys of ``pkm run`` and ``pkm reproduce``: types, defaults, and meanings.

``options.yaml`` declares them, except those of the kinds of cells.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

from pkm.experiments.config.groups import GROUPS, choices
from pkm.experiments.fit.kinds import KINDS
from pkm.yaml_files import read_file

DECLARED = read_file(Path(__file__).with_name("options.yaml"))
LOGGING = DECLARED["logging"]
#: Types of keys by their names in the file.
TYPES = {"flag": bool, "integer": int, "text": str, "text or null": str | None}
#: Keys of a schema that only Hydra reads.
HYDRA_KEYS = ("defaults", "hydra")
#: Width of the help text, and the column in which the meanings of keys begin.
WIDTH, INDENT = 96, 34


def make_schema(usage: str, keys: Mapping[str, Mapping]) -> type:
    """Make the schema of some keys, with a text on their use.

    A default may be the schema of nested keys, or a function that makes the default.
    """
    options = []
    for name, declared in keys.items():
        default = declared.get("default")
        value_type = TYPES.get(declared.get("type"), Any)
        if isinstance(default, type):
            value_type = default
        make_default = default if callable(default) else partial(copy, default)
        option = field(default_factory=make_default, metadata=declared)
        options.append((name, value_type, option))
    return make_dataclass("Options", options, namespace={"__doc__": usage})


def list_kind_keys(kind: type) -> dict[str, dict]:
    """List the settings of a kind of cells as keys, null by default."""
    return {
        setting.name: {
            "help": f"{setting.metadata['rule'].text}; null: {setting.default}"
        }
        for setting in fields(kind)
    }


def make_command_schema(
    command: str,
    others: Mapping[str, Mapping],
) -> type:
    """Make the schema of a command, with Hydra's settings and other keys."""
    declared = DECLARED[command]
    keys = DECLARED["common"] | {
        "defaults": {"default": declared["defaults"]},
        "hydra": {"default": partial(make_hydra_settings, command)},
    }
    return make_schema(declared["usage"], keys | declared["keys"] | others)


def make_hydra_settings(command: str) -> dict:
    """Return Hydra's settings for a command, with its help text."""
    schema = SCHEMAS[command]
    lines = [DECLARED[command]["usage"], "", "Keys (key=value, with their defaults):"]
    lines += [*list_help_lines(schema), "", "Groups (group=choice):"]
    for group in GROUPS:
        if group in list_keys(schema):
            lines.append(format_paragraph(group, ", ".join(choices(group))))
    lines += [
        "",
        "--cfg job prints what a command line makes; "
        "--hydra-help: Hydra's own options.",
    ]
    return DECLARED["hydra"] | {"help": {"template": "\n".join(lines)}}


#: Keys of `pkm run` for the kinds of cells.
RUN_KINDS = {
    kind.key: {"default": make_schema(kind.help, list_kind_keys(kind))}
    for kind in KINDS
    if kind.help
}
#: The keys of each command.
SCHEMAS = {
    "run": make_command_schema("run", RUN_KINDS),
    "reproduce": make_command_schema("reproduce", {}),
}


def list_keys(schema: type) -> dict[str, Any]:
    """Return the keys of a schema with their fields, without those of Hydra alone."""
    options = {option.name: option for option in fields(schema)}
    return {name: options[name] for name in options if name not in HYDRA_KEYS}


def list_help_lines(schema: type, prefix: str = "") -> list[str]:
    """Describe the keys of a schema, nested ones by their full name."""
    lines = []
    for name, option in list_keys(schema).items():
        if is_dataclass(option.type):
            lines += ["", f"{name}: {option.type.__doc__}"]
            lines += list_help_lines(option.type, f"{name}.")
        else:
            lines.append(format_paragraph(prefix + name, option.metadata["help"]))
    return lines


def format_paragraph(heading: str, text: str) -> str:
    """Format a text to the right of its heading."""
    first = f"  {heading:<{INDENT - 3}} "
    indent = " " * INDENT
    return fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
