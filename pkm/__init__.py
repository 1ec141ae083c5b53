"""Private k-means bench: private clustering methods and their claims, compared.

The subpackages are the repository's top-level folders (``pkm.methods`` is ``methods/``,
and so on).
"""

__version__ = "0.1.0"
