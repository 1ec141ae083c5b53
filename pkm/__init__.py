"""Private k-means bench: private clustering methods and their claims, compared.

The subpackages are the repository's top-level folders (``pkm.methods`` is ``methods/``,
and so on). ``pkm.Schema`` maps a table with columns of all kinds to points, and
``pkm.load`` reads a saved model.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["Schema", "load"]
#: Where public names are defined.
_MODULES = {
    "Schema": "pkm.datasets.user_schema",
    "load": "pkm.methods.released",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: other uses need neither."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
