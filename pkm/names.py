"""Names in messages: the nearest known name of an unknown one, and lists of many."""

import difflib
from collections.abc import Iterable, Sequence


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the only known name with this beginning, else the most similar name.

    It is None if no name is similar.

    Examples
    --------
    >>> find_nearest("eps", ["epsilon", "eta"])
    'epsilon'
    >>> find_nearest("Irsi", ["iris", "wine"])
    'iris'
    """
    prefix = str(name).lower()
    names = {other.lower(): other for other in reversed(list(known))}
    matches = [other for other in names if len(prefix) > 1 and other.startswith(prefix)]
    if len(matches) != 1:
        matches = difflib.get_close_matches(prefix, names, n=1)
    return names[matches[0]] if matches else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Write the end of an error about an unknown name: the nearest one, else all.

    Examples
    --------
    >>> suggestion("irsi", ["iris", "wine"])
    "; did you mean 'iris'?"
    >>> suggestion("shapes", ["iris", "wine"])
    '; known are iris, wine'
    """
    names = list(known)
    match = find_nearest(name, names)
    if match is None:
        return f"; known are {', '.join(names)}"
    return f"; did you mean {match!r}?"


def list_names(
    names: Sequence[str],
    most: int,
    separator: str = ", ",
) -> str:
    """List the first names, and say how many more there are.

    Examples
    --------
    >>> list_names(["iris", "wine", "yeast"], 2)
    'iris, wine and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more
