"""Private k-means bench: private clustering methods and their claims, compared.

The subpackages are the repository's top-level folders (``pkm.methods`` is ``methods/``,
and so on). ``pkm.Schema`` maps a table with columns of all kinds to points.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["Schema"]


def __getattr__(name: str) -> Any:
    """Import the schema, and pandas with it, when it is first used."""
    if name != "Schema":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.datasets.user_schema").Schema
