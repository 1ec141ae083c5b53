"""Checks before a cell runs: shapes, what is available, what cannot work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pkm import datasets
from pkm.compute.storage.grid_file import is_grid_file
from pkm.datasets.dataset import shared_range
from pkm.datasets.loading import FILE, resolve
from pkm.datasets.scaling import DATA_DEPENDENT
from pkm.datasets.user_files import FileOptions
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.settings import require
from pkm.experiments.fit.inputs import (
    build_method,
    hides_n,
    load_data,
    resolve_cell,
    uses_secure_noise,
)

#: Families of generated data sets whose columns share one range by their recipe.
COMMON_RANGE_FAMILIES = ("g2", "blobs", "sklearn")


@dataclass(frozen=True)
class DatasetInfo:
    """Shape of a data set before it is loaded, and its k; None where unknown.

    `summary` says in one line how a file was read.
    """

    n: int | None = None
    d: int | None = None
    k: int | None = None
    summary: str = ""


@lru_cache(maxsize=4096)
def find_dataset_info(
    dataset: str,
    file: FileOptions,
    bounds: tuple | None,
) -> DatasetInfo:
    """Return shape and default k of a data set; for a file this reads it."""
    known = resolve(dataset)
    declared = known.entry or known.recipe
    if declared is not None:
        return DatasetInfo(declared.n or None, declared.d, declared.n_clusters)
    loaded = load_data(dataset, file, bounds)
    return DatasetInfo(*loaded.points.shape, summary=loaded.summary)


@lru_cache(maxsize=4096)
def count_generated(dataset: str) -> int:
    """Count the points of a generated data set whose size is drawn."""
    return len(datasets.load(dataset).points)


def find_sweep_info(source: Mapping, ks: Sequence) -> DatasetInfo:
    """Return the info of a data set that the k of a sweep need.

    Raises
    ------
    ValueError
        If a k is to be the data set's own, which has none.
    """
    resolve(source["name"]).check_groups(source["name"], source["groups"])
    info = find_dataset_info(source["name"], source["file"], source["bounds"])
    if None in ks and info.k is None:
        raise ValueError(
            f"k=None is not allowed: data set {source['name']!r} has no number of its "
            "own, give k=..."
        )
    if info.n is None and list(ks) != [None]:
        info = replace(info, n=count_generated(source["name"]))
    return info


def choose_preprocessing(
    source: Mapping,
    requested: str | None,
) -> str:
    """Return how a data set is scaled: as requested, else by its public domain.

    Every data set has a domain, except a file without bounds that is not packed.

    Raises
    ------
    ConfigurationError
        If `requested` would ignore the given bounds.
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
    is_packed = is_grid_file(source["path"] or "")
    has_domain = has_bounds or source["name"] != FILE or is_packed
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
    """Tell why a data set is not available, once per process."""
    return datasets.why_unavailable(dataset, data_dir=data_dir, path=path)


def choose_source(
    source: dict,
    data_dir: str | None,
) -> tuple[dict, str | None]:
    """Choose a data set, or its fallback if the data set is not available.

    Returns
    -------
    source : dict
        From `expand_datasets`, with the name of the chosen one.
    reason : str or None
        Why that one is not available.
    """
    reason = why_unavailable(source["name"], source["path"], data_dir)
    if reason and source["fallback"]:
        source = source | {"name": source["fallback"]}
        reason = why_unavailable(source["name"], None, data_dir)
    return source, reason


def check_cell(
    cell: Cell,
    info: DatasetInfo,
    data_dir: str | None,
) -> None:
    """Refuse a cell that cannot succeed, as far as that is known before running it.

    Raises
    ------
    ValueError
        If k exceeds the number of points, the method refuses its parameters or the
        kind, or a file's content does not fit. Also if preprocessing=range has no
        common range, points lie outside a domain with clip=false, or the kind serves
        no persons or missing values.
    """
    method = build_method(cell)
    rule = f"at most n={info.n}, the points of {cell.dataset_name}"
    is_unknown = info.n is None or hides_n(method)
    require(is_unknown or cell.k <= info.n, "k", cell.k, rule)
    cell.kind.check_method(cell, method, info.n, info.d)
    are_numbers = cell.seeds == tuple(range(len(cell.seeds)))
    rule = "a number of replicates with secure noise, whose seeds are drawn"
    holds = are_numbers or not uses_secure_noise(cell, method)
    require(holds, "seeds", list(cell.seeds), rule)
    rule = f"null with {cell.kind.key}, where a record is a complete row"
    for name in ("groups", "missing"):
        value = getattr(cell.file, name)
        require(value is None or cell.kind.serves_persons, name, value, rule)
    public_data = cell.params.get("public_data")
    rule = f"null for {cell.dataset!r}, whose records are not public"
    holds = public_data is None or not cell.restricted
    require(holds, "public_data", public_data, rule)
    unclipped = cell.preprocessing not in DATA_DEPENDENT and not cell.clip
    ranged = cell.preprocessing == "range" and not has_common_range(cell.dataset)
    if cell.dataset == "file" or unclipped or ranged:
        resolve_cell(cell, data_dir)
    if cell.file.groups is not None:
        method.refuse_unweighted(info.n, info.d)


@lru_cache(maxsize=4096)
def has_common_range(dataset: str) -> bool:
    """Tell whether all columns share one range, without reading the points."""
    known = resolve(dataset)
    if known.family is not None:
        return known.family.name in COMMON_RANGE_FAMILIES
    entry = known.entry
    if entry is None:
        return False
    return entry.common_range is not None or shared_range(entry.domain()) is not None
