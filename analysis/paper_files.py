"""Files of a paper's folder, ``conf/paper/<paper>/<file>.yaml``, with their checks.

An entry is one mapping in such a file: a figure, a claim, or a part of one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pkm import catalogue, schema
from pkm.names import suggestion

#: What is named: the keys of figures and checks that name it.
NAMES = {
    "sweep": ("sweep",),
    "metric": ("metric",),
    "method": ("method", "methods", "curves", "left", "right", "relative_to"),
}


def read(
    paper: str,
    file: str,
    required: Mapping[str, type],
    optional: Iterable[str],
) -> tuple[dict, str]:
    """Read one file of a paper; only its own keys are checked, not what they hold.

    Parameters
    ----------
    paper, file : str
        Names of the folder, and of the file in it.
    required : mapping of str to type
        Keys that the file must have, and what their values are.
    optional : iterable of str
        Further keys.

    Returns
    -------
    content : dict
    location : str
        The file's name in messages, from the folder of configurations on.

    Raises
    ------
    ValueError
        If there is no such file, it cannot be read, a key is unknown or absent, or a
        value is of another type. The error begins with the file's place in the project.
    """
    path = catalogue.current().folder(paper) / file
    location = "/".join(path.parts[-4:])
    if not path.is_file():
        raise ValueError(f"{location} is absent; docs/extending.md says what it holds")
    content = catalogue.read_mapping(path)
    refuse_unknown(content, [*required, *optional], location)
    for key, value_type in required.items():
        value = content.get(key)
        if not isinstance(value, value_type):
            raise ValueError(
                f"{location}: {key}={value!r} must be a {value_type.__name__}"
            )
    return dict(content), location


def refuse_unknown(
    names: Iterable,
    known: Iterable[str],
    location: str,
) -> None:
    """Raise an error for the first name that is not known, with the nearest known one.

    Examples
    --------
    >>> refuse_unknown(["at_mots"], ["at_most", "at_least"], "check bound")
    Traceback (most recent call last):
    ...
    ValueError: check bound: 'at_mots' is unknown; did you mean 'at_most'?
    """
    known = sorted(known)
    for name in names:
        if name not in known:
            advice = suggestion(name, known)
            raise ValueError(f"{location}: {name!r} is unknown{advice}")


_read_hints = cache(get_type_hints)


def parse_entry(
    dataclass: type,
    entry: Mapping,
    location: str,
) -> Any:
    """Make an instance of a dataclass from an entry.

    Raises
    ------
    ValueError
        If a key is unknown or absent, or a value has another type than its field.
    """
    values = parse_fields(dataclass, entry, location)
    try:
        signature(dataclass).bind(**values)
    except TypeError as error:
        raise ValueError(f"{location}: {error}") from None
    return dataclass(**values)


def parse_fields(
    dataclass: type,
    entry: Mapping,
    location: str,
) -> dict[str, Any]:
    """Return the values of an entry with the types of the fields of a dataclass.

    Examples
    --------
    >>> from pkm.analysis.figures.figure import FigureSpec
    >>> parse_fields(FigureSpec, {"sweep": "real", "share_y": True}, "figure a")
    {'sweep': ('real',), 'share_y': True}
    """
    hints = _read_hints(dataclass)
    refuse_unknown(entry, hints, location)
    return {
        name: _convert(value, hints[name], f"{location}: {name}")
        for name, value in entry.items()
    }


def _convert(
    value: Any,
    hint: Any,
    location: str,
) -> Any:
    """Check a value by the type of its field; one name stands for a tuple of it."""
    value_type = get_origin(hint) or hint
    if value_type is Literal:
        refuse_unknown([value], get_args(hint), location)
    if value_type in (Any, Literal):
        return value
    if value_type is tuple:
        is_one = isinstance(value, str) or not isinstance(value, Sequence)
        items = [value] if is_one else value
        return tuple(_convert(item, get_args(hint)[0], location) for item in items)
    expected = (int, float) if value_type is float else value_type
    is_flag = isinstance(value, bool) and value_type is not bool
    if is_flag or not isinstance(value, expected):
        raise ValueError(f"{location}={value!r} must be of type {value_type.__name__}")
    return value


class KnownNames:
    """Names that the figures and claims of a paper may refer to.

    Parameters
    ----------
    paper : str
    derived : iterable of str, default=()
        Sweeps, methods and metrics that functions of the paper make: no rows are stored
        of them.
    """

    def __init__(
        self,
        paper: str,
        derived: Iterable[str] = (),
    ) -> None:
        sweeps = catalogue.current().read("paper", paper)
        methods = {*catalogue.current().choices("method"), *_names_of_entries(sweeps)}
        self._known = {
            "sweep": {*sweeps["sweeps"], *derived},
            "metric": {*schema.BY_NAME, *derived},
            "method": {*methods, *derived},
        }

    def check(
        self,
        entry: Mapping,
        location: str,
    ) -> None:
        """Refuse an unknown sweep, metric or method; name the nearest known one."""
        for named, keys in NAMES.items():
            for key in keys:
                names = _names_in(entry.get(key, ()))
                refuse_unknown(names, self._known[named], f"{location}: {key}")


def _names_of_entries(paper: Mapping) -> set[str]:
    """Return the names of entries of methods in sweeps, and those of their classes."""
    specs = filter(None, paper["sweeps"].values())
    entries = [entry for spec in specs for entry in spec.get("methods", ())]
    names = {
        entry["name"]
        for entry in entries
        if isinstance(entry, Mapping) and "name" in entry
    }
    classes = [entry for entry in entries if isinstance(entry, str) and ":" in entry]
    read = catalogue.current().read
    return names | {read("method", entry)["name"] for entry in classes}


def _names_in(value: Any) -> Iterator[str]:
    """Yield the names in the value of a key: one, several, or those of selectors."""
    if isinstance(value, str):
        # What follows a comma is which part of a method is meant.
        yield value.partition(",")[0]
    elif isinstance(value, Mapping):
        yield from _names_in(value.get("method", ()))
    elif isinstance(value, Iterable):
        for item in value:
            yield from _names_in(item)
