"""What the commands share: consoles, choices for help texts, and which errors are refusals."""

import sys
from typing import TYPE_CHECKING

from pkm import datasets
from pkm.experiments.configuration import GROUPS, choices

if TYPE_CHECKING:
    from rich.console import Console

#: Errors that the user can mend: shown as one line, without a traceback.
REFUSALS = (ValueError, PermissionError, datasets.DataUnavailable)


def consoles() -> tuple["Console", "Console"]:
    """Make the consoles for output and errors, wide enough for a table outside a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 160
    return Console(width=width), Console(width=width, stderr=True, soft_wrap=True)


def known_choices() -> str:
    """List the choices of every configuration group, for the help text."""
    lines = [f"  {group}: {', '.join(choices(group))}" for group in GROUPS]
    return "\n".join(["choices:", *lines, f"  dataset names: {', '.join(datasets.names())}"])
