"""What is known before a cell runs: shapes, what is available, what cannot work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pkm import datasets
from pkm.compute.storage.grid_file import is_grid_file
from pkm.datasets.dataset import shared_range
from pkm.datasets.loading import FILE, resolve
from pkm.datasets.scaling import DATA_DEPENDENT
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.errors import ConfigurationError, unknown
from pkm.experiments.fit.inputs import build, load_data, prepare

#: Families of generated data sets whose columns share one range by their recipe.
RANGED_FAMILIES = ("g2", "blobs", "sklearn")


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before it is loaded; None where it is not."""

    n: int | None
    d: int | None
    k: int | None


@lru_cache(maxsize=4096)
def facts_of(
    dataset: str,
    path: str | None = None,
    columns: tuple | None = None,
    label: str | int | None = None,
) -> Facts:
    """Return shape and default k of a data set; a file is read for them."""
    known = resolve(dataset)
    declared = known.entry or known.recipe
    if declared is not None:
        return Facts(declared.n or None, declared.d, declared.n_clusters)
    n, d = load_data(dataset, path, columns=columns, label_column=label).points.shape
    return Facts(n, d, None)


@lru_cache(maxsize=4096)
def drawn_points(dataset: str) -> int:
    """Return the number of points of a generated data set that draws it."""
    return len(datasets.load(dataset).points)


def sweep_facts(source: Mapping, ks: Sequence) -> Facts:
    """Return what is known of a data set before it is loaded, for a sweep's k.

    Raises
    ------
    ValueError
        If a k is to be the data set's own, which has none.
    """
    facts = facts_of(source["name"], source["path"], source["columns"], source["label"])
    if None in ks and facts.k is None:
        raise ValueError(
            f"k=None is not allowed: data set {source['name']!r} has no number of its "
            "own, give k=..."
        )
    if facts.n is None and list(ks) != [None]:
        facts = replace(facts, n=drawn_points(source["name"]))
    return facts


def preprocessing_of(source: Mapping, requested: str | None) -> str:
    """Return how a data set is scaled: as requested, else by its public domain.

    Only a file without bounds has none, unless it is packed; it is scaled by
    ``minmax``.

    Raises
    ------
    ConfigurationError
        If `requested` is unknown, or is one that would pass over the bounds given.
    """
    if requested not in (None, *datasets.PREPROCESSING):
        raise ConfigurationError(
            unknown("preprocessing", requested, datasets.PREPROCESSING)
        )
    given = source["bounds"] is not None
    if given and requested in DATA_DEPENDENT:
        raise ConfigurationError(
            f"bounds={source['bounds']!r} is not allowed with "
            f"preprocessing={requested!r}, which scales by the data's extremes: use "
            "preprocessing=public, or leave bounds out"
        )
    has_domain = given or source["name"] != FILE or is_grid_file(source["path"] or "")
    return requested or ("public" if has_domain else "minmax")


@lru_cache(maxsize=4096)
def obtainable(dataset: str, path: str | None, mirror: str | None) -> str | None:
    """Tell why a data set cannot be had, once per process."""
    return datasets.obtainable(dataset, mirror=mirror, path=path)


def available_source(source: dict, mirror: str | None) -> tuple[dict, str | None]:
    """Return a data set that is available, or its fallback where it is not and has one.

    Returns
    -------
    source : dict
        From `dataset_entries`, under the name of the one to be used.
    reason : str or None
        Why that one is not available either.
    """
    reason = obtainable(source["name"], source["path"], mirror)
    if reason and source["fallback"]:
        source = source | {"name": source["fallback"]}
        reason = obtainable(source["name"], None, mirror)
    return source, reason


def check(cell: Cell, facts: Facts, mirror: str | None) -> None:
    """Refuse a cell that cannot succeed, as far as that is known before running it.

    Raises
    ------
    ValueError
        If k exceeds the number of points, the method refuses its parameters, a file's
        content does not fit, a data set has no range that all columns share and is to
        be scaled by it, points lie outside a domain that may not clip them, or the
        method does not go with the kind.
    """
    if facts.n is not None and cell.k > facts.n:
        raise ValueError(
            f"k={cell.k} is not allowed: k must be at most n={facts.n}, "
            f"the points of {cell.dataset_name}"
        )
    cell.kind.check_method(cell, build(cell), facts.n, facts.d)
    unclipped = cell.preprocessing not in DATA_DEPENDENT and not cell.clip
    ranged = cell.preprocessing == "range" and not has_common_range(cell.dataset)
    if cell.dataset == "file" or unclipped or ranged:
        prepare(cell, mirror)


@lru_cache(maxsize=4096)
def has_common_range(dataset: str) -> bool:
    """Tell whether all columns share one range, without reading the points."""
    known = resolve(dataset)
    if known.family is not None:
        return known.family.name in RANGED_FAMILIES
    entry = known.entry
    return entry is not None and (
        entry.common_range is not None or shared_range(entry.domain()) is not None
    )
