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
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.settings import require
from pkm.experiments.fit.inputs import (
    build_method,
    load_data,
    resolve_cell,
    uses_secure_noise,
)

#: Families of generated data sets whose columns share one range by their recipe.
RANGED_FAMILIES = ("g2", "blobs", "sklearn")


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before it is loaded; None where it is not.

    Of a file also, in one line for its owner, what was read.
    """

    n: int | None = None
    d: int | None = None
    k: int | None = None
    summary: str = ""


@lru_cache(maxsize=4096)
def find_facts(
    dataset: str,
    path: str | None = None,
    columns: tuple | None = None,
    label: str | int | None = None,
    decimal: str | None = None,
) -> Facts:
    """Return shape and default k of a data set; a file is read for them."""
    known = resolve(dataset)
    declared = known.entry or known.recipe
    if declared is not None:
        return Facts(declared.n or None, declared.d, declared.n_clusters)
    loaded = load_data(dataset, (path, columns, label, decimal))
    return Facts(*loaded.points.shape, summary=loaded.summary)


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
    facts = find_facts(
        source["name"],
        source["path"],
        source["columns"],
        source["label"],
        source["decimal"],
    )
    if None in ks and facts.k is None:
        raise ValueError(
            f"k=None is not allowed: data set {source['name']!r} has no number of its "
            "own, give k=..."
        )
    if facts.n is None and list(ks) != [None]:
        facts = replace(facts, n=drawn_points(source["name"]))
    return facts


def choose_preprocessing(source: Mapping, requested: str | None) -> str:
    """Return how a data set is scaled: as requested, else by its public domain.

    Only a file without bounds has none, unless it is packed.

    Raises
    ------
    ConfigurationError
        If `requested` is one that would pass over the bounds given.
    ValueError
        If a domain is needed, and there is none.
    """
    has_bounds = source["bounds"] is not None
    if has_bounds and requested in DATA_DEPENDENT:
        raise ConfigurationError(
            f"bounds={source['bounds']!r} is not allowed with "
            f"preprocessing={requested!r}, which scales by the data's extremes: use "
            "preprocessing=public, or leave bounds out"
        )
    has_domain = (
        has_bounds or source["name"] != FILE or is_grid_file(source["path"] or "")
    )
    rule = (
        "given for a file, [lower,upper] or [[lower,...],[upper,...]], from what is "
        "known without its points (preprocessing=minmax takes their private extremes, "
        "as papers do)"
    )
    require(has_domain or requested in DATA_DEPENDENT, "bounds", None, rule)
    return requested or "public"


def choose_noise(dataset: str, requested: str | None) -> str:
    """Return where noise comes from: as requested, else secure for restricted data."""
    return requested or ("secure" if datasets.is_restricted(dataset) else "seeded")


@lru_cache(maxsize=4096)
def why_unavailable(
    dataset: str,
    path: str | None,
    data_dir: str | None,
) -> str | None:
    """Tell why a data set cannot be had, once per process."""
    return datasets.why_unavailable(dataset, mirror=data_dir, path=path)


def available_source(source: dict, data_dir: str | None) -> tuple[dict, str | None]:
    """Return a data set that is available, or its fallback where it is not and has one.

    Returns
    -------
    source : dict
        From `dataset_entries`, under the name of the one to be used.
    reason : str or None
        Why that one is not available either.
    """
    reason = why_unavailable(source["name"], source["path"], data_dir)
    if reason and source["fallback"]:
        source = source | {"name": source["fallback"]}
        reason = why_unavailable(source["name"], None, data_dir)
    return source, reason


def check(cell: Cell, facts: Facts, data_dir: str | None) -> None:
    """Refuse a cell that cannot succeed, as far as that is known before running it.

    Raises
    ------
    ValueError
        If k exceeds the number of points, the method refuses its parameters, a file's
        content does not fit, a data set has no range that all columns share and is to
        be scaled by it, points lie outside a domain that may not clip them, or the
        method does not go with the kind.
    """
    rule = f"at most n={facts.n}, the points of {cell.dataset_name}"
    require(facts.n is None or cell.k <= facts.n, "k", cell.k, rule)
    method = build_method(cell)
    cell.kind.check_method(cell, method, facts.n, facts.d)
    are_numbers = cell.seeds == tuple(range(len(cell.seeds)))
    rule = "a number of replicates with secure noise, whose seeds are drawn"
    holds = are_numbers or not uses_secure_noise(cell, method)
    require(holds, "seeds", list(cell.seeds), rule)
    unclipped = cell.preprocessing not in DATA_DEPENDENT and not cell.clip
    ranged = cell.preprocessing == "range" and not has_common_range(cell.dataset)
    if cell.dataset == "file" or unclipped or ranged:
        resolve_cell(cell, data_dir)


@lru_cache(maxsize=4096)
def has_common_range(dataset: str) -> bool:
    """Tell whether all columns share one range, without reading the points."""
    known = resolve(dataset)
    if known.family is not None:
        return known.family.name in RANGED_FAMILIES
    entry = known.entry
    if entry is None:
        return False
    return entry.common_range is not None or shared_range(entry.domain()) is not None
