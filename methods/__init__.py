"""Clustering methods: scikit-learn estimators that reach data through a curator alone.

A class is imported when it is first used: ``from pkm.methods import FastLloyd`` loads
what FastLloyd needs, and nothing else. For static tools ``__init__.pyi`` imports all.
"""

import importlib
from typing import Any

from pkm.catalogue import declared_methods
from pkm.names import suggestion

#: Class of every method of this package, in the order of the tables, to its module.
METHODS = {
    "KMeansPlusPlus": "baselines.kmeans",
    "KMedian": "baselines.kmedian",
    "Lloyd": "lloyd.lloyd",
    "SuLloyd": "lloyd.lloyd",
    "GLloyd": "lloyd.lloyd",
    "FastLloyd": "lloyd.lloyd",
    "DPLloyd": "lloyd.dp_lloyd",
    "DPM": "trees.dpm",
    "EMMC": "trees.em_mc",
    "LSHSplits": "hashing.lsh_splits",
    "EUGkM": "trees.eugkm",
    "GaussianEUGkM": "trees.eugkm",
    "HybridKMeans": "trees.eugkm",
    "GaussianHybridKMeans": "trees.eugkm",
    "QuadtreeKMeans": "trees.quadtree",
    "HST": "trees.hst",
    "MSTKMeans": "synthetic.mst",
    "AIMKMeans": "synthetic.aim",
    "SynopsisKMeans": "synthetic.synopsis",
    "Balcan": "hashing.balcan",
    "PEMeans": "lloyd.pe_means",
    "FedDPKMeans": "lloyd.feddp_kmeans",
    "KaplanStemmer": "hashing.kaplan_stemmer",
    "DistDP": "distance.dist_dp",
    "NoisedPoints": "distance.rho_bounded",
    "KaplanStemmerLocal": "local.kaplan_stemmer",
    "LocalLloyd": "local.local_dp",
    "NoisedReports": "local.local_dp",
    "LocalMean": "local.local_dp",
    "DiffprivlibKMeans": "baselines.diffprivlib",
    "PublicKMeans": "baselines.public_data",
    "NoisyMean": "baselines.baselines",
    "DataMean": "baselines.baselines",
    "PackingCenters": "baselines.baselines",
}
#: Federated clustering with exact removals, which has a contract of its own.
FEDERATED = {"Unlearning": "unlearning.unlearning", "KFed": "unlearning.k_fed"}
#: Base class and result of every method, and a method that is a program: for authors of
#: new methods.
CONTRACT = {
    "PrivateKMeans": "base",
    "Run": "fitting",
    "ProgramKMeans": "baselines.program",
}

__all__ = ["METHODS", "import_path", "load_method", *CONTRACT, *METHODS, *FEDERATED]


def __getattr__(name: str) -> Any:
    """Import a class when it is first used."""
    module = (CONTRACT | METHODS | FEDERATED).get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def import_path(method: type) -> str:
    """Return the path that imports a method class: its public one, if it has one.

    Examples
    --------
    >>> import_path(load_method("FastLloyd"))
    'pkm.methods.FastLloyd'
    """
    module, name = method.__module__, method.__qualname__
    is_public = module == f"{__name__}.{(CONTRACT | METHODS | FEDERATED).get(name)}"
    return f"{__name__ if is_public else module}.{name}"


def load_method(target: str) -> type:
    """Find a method class.

    Parameters
    ----------
    target : str
        A class name of this package (``"FastLloyd"``), an import path
        (``"package.module:Class"``, or with a dot), or a name that an installed package
        declares under the entry-point group ``pkm.methods``.

    Returns
    -------
    type

    Raises
    ------
    ValueError
        If nothing of that name is found. The message lists the known names, or says
        what an import path lacks.

    Examples
    --------
    >>> load_method("pkm.methods.FastLloyd").__name__
    'FastLloyd'
    """
    if target in METHODS:
        return __getattr__(target)
    declared = declared_methods()
    if target in declared:
        return declared[target].load()
    module, _, name = target.replace(":", ".").rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        if not module:
            hint = suggestion(target, [*METHODS, *declared, "package.module:Class"])
            raise ValueError(f"method {target!r} is unknown{hint}") from error
        reason = f"method {target!r} is unknown ({error})"
        if isinstance(error, ImportError):
            reason += "; is its folder on PYTHONPATH?"
        raise ValueError(reason) from error
