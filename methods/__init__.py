"""Clustering methods, each a scikit-learn estimator that reaches data only through a curator."""

import importlib
from importlib.metadata import entry_points

from methods.base import PrivateKMeans, Run
from methods.dp_lloyd import DPLloyd
from methods.dpm import DPM
from methods.em_mc import EMMC
from methods.kmeans import KMeansPlusPlus
from methods.lloyd import FastLloyd, GLloyd, Lloyd, SuLloyd
from methods.lsh_splits import LSHSplits
from methods.yardsticks import DataMean, PackingCentres

OWN = (
    KMeansPlusPlus, Lloyd, SuLloyd, GLloyd, FastLloyd, DPLloyd, DPM, EMMC, LSHSplits, DataMean, PackingCentres,
)  # fmt: skip
ENTRY_POINTS = "private_kmeans_bench.methods"

__all__ = [
    "DPM", "EMMC", "ENTRY_POINTS", "OWN", "DPLloyd", "DataMean", "FastLloyd", "GLloyd", "KMeansPlusPlus", "LSHSplits",
    "Lloyd", "PackingCentres", "PrivateKMeans", "Run", "SuLloyd", "load_method",
]  # fmt: skip


def load_method(target: str) -> type[PrivateKMeans]:
    """Find a method class.

    Parameters
    ----------
    target : str
        A class name of this package (``"FastLloyd"``), an import path (``"package.module.Class"``), or a name that an
        installed package declares under the entry-point group ``private_kmeans_bench.methods``.

    Returns
    -------
    type

    Raises
    ------
    ValueError
        If nothing of that name is found; the message lists what is known.

    Examples
    --------
    >>> load_method("methods.lloyd.FastLloyd").__name__
    'FastLloyd'
    """
    own = {method.__name__: method for method in OWN}
    if target in own:
        return own[target]
    declared = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if target in declared:
        return declared[target].load()
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join([*own, *declared])
        raise ValueError(f"method {target!r} is unknown ({error}); known: {known}, or package.module.Class") from error
