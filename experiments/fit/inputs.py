"""Inputs of a cell's fit: data on the integer grid, a configured method."""

import math
import secrets
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from pkm import datasets
from pkm.compute import Points, middle_and_half_width
from pkm.compute.storage.grid_file import is_grid_file, open_grid
from pkm.datasets.dataset import shared_range
from pkm.datasets.user_files import FileOptions
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.method_parameters import (
    RESERVED_PARAMETERS,
    get_method_class,
    get_parameter_names,
)
from pkm.experiments.config.settings import require
from pkm.methods.weights import weigh_rows
from pkm.privacy.query import ONE_RECORD_ADJACENCIES
from pkm.row_blocks import find_null, stacked

#: Flaws of any claim about points in bounds that were read off them, and about points
#: that come from a map fitted to the records (analysis/flaws.yaml).
PRIVATE_BOUNDS = "F-10"
FITTED_POINTS = "F-28"


@dataclass(frozen=True)
class PreparedData:
    """A data set as methods get it: on the integer grid, with the mapping to it.

    Parameters
    ----------
    points : Points
        Points on the 2^-16 grid, for the metrics.
    method_points : Points
        The same for the method, on the grid of bounds that are `bounds_factor` times as
        wide. With `missing`, a row that lacks only some values is no null record there.
    labels : ndarray of shape (n,) or None
        The points' classes, for the metrics alone; null records have none.
    clients : ndarray of shape (n,) or None
        Number of the client that holds each point, where the data set has a published
        split.
    domain : ndarray of shape (2, d)
        The bounds in raw units that are mapped to [-1, 1].
    private_bounds : bool
        Whether those bounds are the extremes of the points.
    clipped : int
        Number of points that lay outside of them.
    is_transform_fitted : bool
        Whether the points come from a map fitted to these very records.
    """

    points: Points
    method_points: Points
    bounds_factor: float
    labels: np.ndarray | None
    clients: np.ndarray | None
    domain: np.ndarray
    private_bounds: bool
    clipped: int
    is_transform_fitted: bool

    @property
    def method_domain(self) -> np.ndarray:
        """Bounds (2, d) in raw units that the method gets."""
        if self.bounds_factor == 1:
            return self.domain
        middle, half_width = middle_and_half_width(*self.domain)
        half_width *= self.bounds_factor
        return np.array([middle - half_width, middle + half_width])

    @property
    def flaws(self) -> list[str]:
        """Ids of the flaws that the data add to the claim of a run, for accounts.

        Rows name private bounds in a column of their own.
        """
        bounds = [PRIVATE_BOUNDS] * self.private_bounds
        return bounds + [FITTED_POINTS] * self.is_transform_fitted

    @property
    def half_width(self) -> float:
        """Half the range in raw units where all columns share one, else NaN."""
        lower, upper = shared_range(self.domain) or (math.nan, math.nan)
        return upper / 2 - lower / 2


#: Drawn seeds are exact in float64: readers of JSON and CSV often use it.
SEED_BITS = 53


@dataclass(frozen=True, eq=False)
class ResolvedCell:
    """A cell with its method, data and seeds, checked once.

    Parameters
    ----------
    cell : Cell
    method : estimator
        The configured, unfitted method.
    data : PreparedData
    seeds : tuple of int
        The cell's seeds. With secure noise they are drawn, and serve public randomness
        alone.
    data_dir : str or None
        Folder with the original files, for parties that are separate processes.
    """

    cell: Cell
    method: Any
    data: PreparedData
    seeds: tuple[int, ...]
    data_dir: str | None


def resolve_cell(
    cell: Cell,
    data_dir: str | None,
    seeds: tuple[int, ...] | None = None,
) -> ResolvedCell:
    """Build the method of a cell, load its data, and draw seeds if noise is secure.

    Parties that are processes share seeds, and pass them.

    Raises
    ------
    ValueError
        If k exceeds the number of points, the method refuses its parameters, or its
        adjacency does not define the null records of a file.
    datasets.DataUnavailable
        If the data cannot be had.
    """
    data = prepare_cell_data(cell, data_dir)
    method = build_method(cell)
    claim = method.claim
    n = data.points.n_records
    rule = f"at most n={n}, the number of points of {cell.dataset}"
    require(hides_n(method) or cell.k <= n, "k", cell.k, rule)
    defines_null = not claim.private or claim.adjacency in ONE_RECORD_ADJACENCIES
    rule = (
        f"a file without missing or infinite values for {cell.method}, private under "
        f"{claim.adjacency} adjacency: impute them or remove their rows"
    )
    require(defines_null or not data.points.n_null, "path", cell.file.path, rule)
    if seeds is None:
        seeds = cell.seeds
        if uses_secure_noise(cell, method):
            seeds = tuple(secrets.randbits(SEED_BITS) for _ in cell.seeds)
    return ResolvedCell(cell, method, data, seeds, data_dir)


def hides_n(method: Any) -> bool:
    """Tell whether n is secret: then no refusal may follow from it.

    Methods that remove points claim no privacy, and have no such property.
    """
    return getattr(method, "hides_n", False)


def uses_secure_noise(cell: Cell, method: Any) -> bool:
    """Tell whether noise is drawn, and from the operating system."""
    return cell.noise == "secure" and method.claim.private


def prepare_cell_data(
    cell: Cell,
    data_dir: str | None,
) -> PreparedData:
    """Prepare the data set of a cell; see `prepare_data`."""
    bounds_factor = getattr(cell.kind, "bounds_factor", 1.0)
    return prepare_data(*cell.points, data_dir, bounds_factor)


@lru_cache(maxsize=2)
def prepare_data(
    dataset: str,
    file: FileOptions,
    bounds: tuple | None,
    preprocessing: str,
    clip: bool,
    data_dir: str | None,
    bounds_factor: float,
) -> PreparedData:
    """Load a data set, scale it and round it to the grid; the last two are cached.

    Parameters
    ----------
    dataset, file, bounds, preprocessing, clip
        As in `Cell`.
    data_dir : str or None
        Folder with the original files.
    bounds_factor : float
        As in `Central`.

    Returns
    -------
    PreparedData
        Points on the 2^-16 grid, prepared for the kernels once for all cells.

    Raises
    ------
    ValueError
        If points lie outside the public domain and `clip` is false, or there is no such
        domain.
    """
    loaded = load_data(dataset, file, bounds, data_dir)
    path = file.path
    if path and is_grid_file(path):
        rule = f"true: {path} was packed with points clipped to its bounds"
        require(clip or not open_grid(path).header.outside, "clip", clip, rule)
    keep_missing = file.missing is not None
    # A refusal names the file.
    named = replace(loaded, name=path or dataset)
    scaled = datasets.scale(named, preprocessing, clip=clip, keep_missing=keep_missing)
    complete = ~find_null(scaled.points)
    ones = np.ones(scaled.points.shape[1])
    weights = weigh_rows(len(complete), scaled.groups)
    points, _ = Points.quantize(scaled.points, -ones, ones, weights=weights)
    method_points = points
    if bounds_factor != 1 or keep_missing:
        wider = bounds_factor * ones
        method_points, _ = Points.quantize(
            scaled.points,
            -wider,
            wider,
            keep_missing=keep_missing,
            weights=weights,
        )
    return PreparedData(
        points=points,
        method_points=method_points,
        bounds_factor=float(bounds_factor),
        labels=None if scaled.labels is None else scaled.labels[complete],
        clients=scaled.clients,
        domain=np.array([scaled.lower, scaled.upper]),
        private_bounds=bool(scaled.uses_private_bounds),
        clipped=int(scaled.clipped),
        is_transform_fitted=scaled.is_transform_fitted,
    )


def load_data(
    dataset: str,
    file: FileOptions,
    bounds: tuple | None = None,
    data_dir: str | None = None,
) -> datasets.Dataset:
    """Load a data set; a grid file of `pkm pack` comes with its bounds.

    Raises
    ------
    ValueError
        If bounds, or how a text is read, are given for a grid file.
    """
    options = file._asdict()
    if dataset != "file":
        return datasets.load(dataset, data_dir=data_dir, **options)
    path = options.pop("path")
    settings: dict[str, Any] = {"bounds": bounds} | options
    if not is_grid_file(path or ""):
        return datasets.load(dataset, data_dir=data_dir, path=path, **settings)
    rule = f"left out for {path}, which was packed with its own"
    for name, value in settings.items():
        require(value is None, name, value, rule)
    grid = open_grid(path or "")
    null = np.full((grid.header.n_null, grid.n_columns), np.nan)
    return datasets.Dataset(
        name=dataset,
        points=np.concatenate([stacked(grid.to_data_units()), null]),
        labels=None,
        domain=np.array(grid.bounds),
        n_clusters=None,
        fingerprint=datasets.fingerprint(file=file),
        citation="",
        license="",
        origin="file",
    )


def build_method(cell: Cell):
    """Construct the method of a cell.

    Returns
    -------
    estimator
        The configured, unfitted method.

    Raises
    ------
    ValueError
        If the method has no parameter of a given name; the message lists those it has.
    """
    params = dict(cell.params)
    known = [
        name
        for name in get_parameter_names(cell.target)
        if name not in RESERVED_PARAMETERS
    ]
    unknown = sorted(set(params) - set(known))
    if unknown:
        listed = f"known are {', '.join(known)}" if known else "it has none"
        raise ValueError(
            f"{cell.method} has no parameter {', '.join(unknown)}: {listed}"
        )
    # `pkm.experiments.fit.central` passes points in place of this name.
    params.pop("public_data", None)
    missing = cell.file.missing
    if missing is not None:
        rule = f"null for {cell.method}, which has no such parameter"
        is_known = "missing" in get_parameter_names(cell.target)
        require(is_known, "missing", missing, rule)
        params["missing"] = missing
    params["n_clusters"] = cell.k
    if cell.epsilon is not None:
        params["epsilon"] = cell.epsilon
    if cell.delta not in (None, "auto"):
        params["delta"] = cell.delta
    method = get_method_class(cell.target)(**params)
    if uses_secure_noise(cell, method):
        # Constructors of classes outside the project may not have the parameter.
        method.secure = True
    return method
