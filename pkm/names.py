"""Known names for an unknown one."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the one known name that begins so, else the most similar, else None.

    Examples
    --------
    >>> nearest("eps", ["epsilon", "eta"]), nearest("Irsi", ["iris", "wine"])
    ('epsilon', 'iris')
    """
    typed = str(name).lower()
    lowered = {other.lower(): other for other in reversed(list(known))}
    begun = [other for other in lowered if len(typed) > 1 and other.startswith(typed)]
    near = begun if len(begun) == 1 else difflib.get_close_matches(typed, lowered, n=1)
    return lowered[near[0]] if near else None


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
    near = nearest(name, names)
    if near is None:
        return f"; known are {', '.join(names)}"
    return f"; did you mean {near!r}?"
