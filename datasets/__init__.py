"""Data sets: what they are, where they come from, how they are scaled.

Examples
--------
>>> from pkm import datasets
>>> iris = datasets.load("iris")
>>> iris.points.shape, iris.n_clusters
((150, 4), 3)
"""

from pkm.datasets.dataset import Dataset, check_domain, check_n_clusters, check_points
from pkm.datasets.fetching import Fetched, fetch_missing
from pkm.datasets.loading import (
    fingerprint,
    is_restricted,
    load,
    names,
    why_unavailable,
)
from pkm.datasets.scaling import PREPROCESSING, Scaled, scale
from pkm.datasets.sources import ChecksumMismatch, DataUnavailable
from pkm.datasets.user_files import FileOptions

__all__ = [
    "PREPROCESSING",
    "ChecksumMismatch",
    "DataUnavailable",
    "Dataset",
    "Fetched",
    "FileOptions",
    "Scaled",
    "check_domain",
    "check_n_clusters",
    "check_points",
    "fetch_missing",
    "fingerprint",
    "is_restricted",
    "load",
    "names",
    "scale",
    "why_unavailable",
]
