"""Clustering methods, each a scikit-learn estimator that reaches data only through a curator."""

import importlib
from importlib.metadata import entry_points

from pkm.methods.balcan import Balcan
from pkm.methods.base import PrivateKMeans, Run
from pkm.methods.baselines import DataMean, PackingCenters
from pkm.methods.dist_dp import DistDP, NoisedPoints
from pkm.methods.dp_lloyd import DPLloyd
from pkm.methods.dpm import DPM
from pkm.methods.em_mc import EMMC
from pkm.methods.eugkm import EUGkM
from pkm.methods.kaplan_stemmer import KaplanStemmer
from pkm.methods.kaplan_stemmer_local import KaplanStemmerLocal
from pkm.methods.kmeans import KMeansPlusPlus
from pkm.methods.kmedian import KMedian
from pkm.methods.lloyd import FastLloyd, GLloyd, Lloyd, SuLloyd
from pkm.methods.local_dp import LocalLloyd, LocalMean, NoisedReports
from pkm.methods.lsh_splits import LSHSplits

OWN = (
    KMeansPlusPlus, KMedian, Lloyd, SuLloyd, GLloyd, FastLloyd, DPLloyd, DPM, EMMC, LSHSplits, EUGkM, Balcan,
    KaplanStemmer, DistDP, NoisedPoints, KaplanStemmerLocal, LocalLloyd, NoisedReports, LocalMean, DataMean,
    PackingCenters,
)  # fmt: skip
ENTRY_POINTS = "private_kmeans_bench.methods"

__all__ = [
    "DPM", "EMMC", "ENTRY_POINTS", "OWN", "Balcan", "DPLloyd", "DataMean", "DistDP", "EUGkM", "FastLloyd", "GLloyd",
    "KMeansPlusPlus", "KMedian", "KaplanStemmer", "KaplanStemmerLocal", "LSHSplits", "Lloyd", "LocalLloyd", "LocalMean",
    "NoisedPoints", "NoisedReports", "PackingCenters", "PrivateKMeans", "Run", "SuLloyd", "load_method",
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
    >>> load_method("pkm.methods.lloyd.FastLloyd").__name__
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
        raise ValueError(
            f"method {target!r} is unknown ({error}); known: {known}, or package.module.Class"
        ) from error
