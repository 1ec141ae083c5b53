"""Planned cells without rows: why, and which command supplies them."""

import re

import pandas as pd

from pkm.names import list_names

#: How many data sets one line names.
NAMED = 12
COLUMNS = ["datasets", "cells", "reason", "brief", "command"]
#: A command in the text of a reason.
COMMAND = re.compile(r"'((?:pkm|make) [^']+)'")


def missing_table(
    missing: pd.DataFrame,
    paper: str,
    profile: str,
) -> pd.DataFrame:
    """Group planned cells without rows by what they lack.

    Parameters
    ----------
    missing : DataFrame
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`.
    paper, profile : str
        What was planned; for the commands.

    Returns
    -------
    DataFrame
        One line per reason: one per missing data set, as a reason names it. Columns:
        `datasets`, `cells`, `reason`, `brief` (its first part) and `command` (empty
        where none supplies them).

    Examples
    --------
    >>> names = ("iris", "wine", "iris")
    >>> lines = [("real", "dpm", name, 1.0, "not run") for name in names]
    >>> columns = ["sweep", "method", "dataset", "epsilon", "reason"]
    >>> missing = pd.DataFrame(lines, columns=columns)
    >>> missing_table(missing, "dpm", "quick").iloc[0].to_dict()
    ... # doctest: +NORMALIZE_WHITESPACE
    {'datasets': 'iris, wine', 'cells': 3, 'reason': 'not run', 'brief': 'not run',
     'command': 'make reproduce PAPER=dpm PROFILE=quick'}
    """
    # The last line of a traceback says what went wrong.
    reasons = missing["reason"].astype(str).str.strip().str.split("\n").str[-1]
    lines = [
        {
            "datasets": list_names(list(datasets.unique()), NAMED),
            "cells": len(datasets),
            "reason": reason,
            "brief": re.split(r", | \(or ", reason, maxsplit=1)[0],
            "command": command(reason, paper, profile),
        }
        for reason, datasets in missing["dataset"].groupby(reasons, sort=False)
    ]
    table = pd.DataFrame(lines, columns=COLUMNS)
    return table.sort_values(
        "cells",
        ascending=False,
        kind="stable",
        ignore_index=True,
    )


def command(
    reason: str,
    paper: str,
    profile: str,
) -> str:
    """Return the command that supplies what is missing for a reason; empty without any.

    Examples
    --------
    >>> command("needs the file a.txt, or run 'pkm data fetch a' where", "dpm", "quick")
    'pkm data fetch a'
    >>> command("failed: MemoryError", "dpm", "paper")
    'make retry PAPER=dpm PROFILE=paper'
    """
    named = COMMAND.search(reason)
    if named:
        return named[1]
    verbs = {"failed": "retry", "not run": "reproduce"}
    for start, verb in verbs.items():
        if reason.startswith(start):
            return f"make {verb} PAPER={paper} PROFILE={profile}"
    return ""
