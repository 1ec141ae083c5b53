"""YAML files read as OmegaConf reads them, ten times as fast if there is libyaml."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

FLOAT = "tag:yaml.org,2002:float"
TIMESTAMP = "tag:yaml.org,2002:timestamp"
#: Floats: those of YAML 1.1 (1:30.5 is in base 60), and numbers with an exponent alone
#: (1e-6).
FLOAT_PATTERN = re.compile(
    r"""^(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Plain values alone; dates are texts, and keys of equal type and text an error."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, Any]:
        """Read a mapping."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(
                    "while constructing a mapping",
                    node.start_mark,
                    f"found duplicate key {key.value}",
                    key.start_mark,
                )
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag not in (FLOAT, TIMESTAMP)
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(FLOAT, FLOAT_PATTERN, list("-+0123456789."))


def read_file(path: Path) -> Any:
    """Read a YAML file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    value
        None of an empty file.

    Raises
    ------
    yaml.MarkedYAMLError
        Naming the file and the line, if it is no YAML.
    """
    with path.open(encoding="utf-8") as file:
        # A subclass of SafeLoader: it constructs plain values alone.
        return yaml.load(file, Loader)


def read_value(text: str) -> Any:
    """Read a value that was typed in a shell; an empty text is None.

    A text that is no YAML is returned as it is. The rule on the value then refuses it.

    Examples
    --------
    >>> read_value("1e-6"), read_value("[0,1]"), read_value(""), read_value("[0")
    (1e-06, [0, 1], None, '[0')
    """
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError:
        return text
