"""Known names for an unknown one."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Words to append to an error about an unknown name: the nearest known one, else all.

    Examples
    --------
    >>> suggestion("irsi", ["iris", "wine"])
    "; did you mean 'iris'?"
    >>> suggestion("shapes", ["iris", "wine"])
    '; known are iris, wine'
    """
    names = list(known)
    lowered = {other.lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(str(name).lower(), lowered, n=1)
    if close:
        return f"; did you mean {lowered[close[0]]!r}?"
    return f"; known are {', '.join(names)}"
