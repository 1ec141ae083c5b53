"""Stored rows to tables, figures, verdicts on claims and one report."""

from importlib import import_module
from typing import Any

__all__ = ["figure"]


def __getattr__(name: str) -> Any:
    """Import `figure` when it is first used: matplotlib takes a moment."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.render.draw"), name)
