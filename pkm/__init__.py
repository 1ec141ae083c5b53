"""Private k-means bench: private clustering methods and their claims, compared.

The subpackages are the repository's top-level folders (``pkm.methods`` is ``methods/``,
and so on).
"""

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `load` when it is first used: other uses need no method."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("pkm.methods.released").load
