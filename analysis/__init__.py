"""Stored rows to tables, figures, verdicts on claims and one report."""

from importlib import import_module
from typing import Any

__all__ = ["figure"]


def __getattr__(name: str) -> Any:
    """Import `figure` from the command that draws it, when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("pkm.experiments.commands.figure"), name)
