"""From raw units to the cube [-1, 1]^d that the methods work in."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pkm.datasets.dataset import Dataset, check_table, shared_range, show_short
from pkm.row_blocks import find_null

PREPROCESSING = ("minmax", "public", "range", "ball")
#: Preprocessing whose bounds are computed from the points: no budget pays for them.
DATA_DEPENDENT = ("minmax", "ball")
# Names of the bounds in messages.
_DECLARED = {"public": "domain", "range": "range"}


@dataclass(frozen=True)
class Scaled:
    """Points in the cube.

    Attributes
    ----------
    name : str
    points : ndarray of float64, shape (n, d)
        In [-1, 1]; missing values are NaN, null records throughout.
    labels : ndarray of int64, shape (n,), or None
    n_clusters : int or None
        Default number of clusters; None for a file without one.
    preprocessing : str
        One of :data:`PREPROCESSING`.
    uses_private_bounds : bool
        Whether the bounds were computed from the points, which no budget paid for.
    clipped : int
        Number of points with a coordinate that was outside the bounds and moved to
        them.
    lower, upper : ndarray of float64, shape (d,)
        The bounds used, in raw units.
    groups : Series or ndarray of shape (n,), or None
        Person of each row, see `Dataset`.
    clients : ndarray of int64, shape (n,), or None
        Published split, see `Dataset`.
    is_transform_fitted : bool
        Whether the points come from a map fitted to these records, see `Dataset`.
    """

    name: str
    points: np.ndarray
    labels: np.ndarray | None
    n_clusters: int | None
    preprocessing: str
    uses_private_bounds: bool
    clipped: int
    lower: np.ndarray
    upper: np.ndarray
    groups: ArrayLike | None = None
    clients: np.ndarray | None = None
    is_transform_fitted: bool = False


def scale(
    dataset: Dataset,
    preprocessing: str,
    *,
    clip: bool = True,
    keep_missing: bool = False,
) -> Scaled:
    """Scale a data set to [-1, 1]^d.

    Parameters
    ----------
    dataset : Dataset
    preprocessing : {"minmax", "public", "range", "ball"}
        ``minmax``: each column by its own minimum and maximum, as the papers do; a
        constant column becomes 0. ``ball``: columns are centered at their means, and
        all points divided by the largest norm, so that they fill the unit ball, as in
        the PE-means paper. Both set `uses_private_bounds`. ``public``: by the declared
        domain. ``range``: all columns by their common range, which keeps the shape of
        the clusters; sets `uses_private_bounds` if that range was computed from the
        points.
    clip : bool
        Whether points outside the domain or range are moved to its border (and counted)
        or refused.
    keep_missing : bool, default=False
        Whether a row of which only some values are NaN keeps the others.

    Returns
    -------
    Scaled

    Raises
    ------
    ValueError
        If the preprocessing is unknown, or no point is finite. If the data set lacks
        the public domain or the common range that is needed. If points lie outside and
        `clip` is False.

    Examples
    --------
    >>> from pkm import datasets
    >>> scaled = datasets.scale(datasets.load("iris"), "public")
    >>> scaled.points.shape, scaled.uses_private_bounds, scaled.clipped
    ((150, 4), False, 0)
    """
    if preprocessing not in PREPROCESSING:
        raise ValueError(
            f"preprocessing={preprocessing!r} should be one of "
            f"{', '.join(PREPROCESSING)}"
        )
    points = check_table(dataset.points, dataset.name, keep_missing)
    present = points[~find_null(points, keep_missing)]
    lower, upper = _find_bounds(dataset, present, preprocessing)
    outside = 0
    if preprocessing not in DATA_DEPENDENT:
        outside = int(np.any((points < lower) | (points > upper), axis=1).sum())
    if outside and not clip:
        shared = shared_range(np.array([lower, upper]))
        bounds = shared or (lower.tolist(), upper.tolist())
        raise ValueError(
            f"clip=False is not allowed: points of {dataset.name!r} lie outside the "
            f"declared {_DECLARED[preprocessing]}, bounds={show_short(bounds)}: widen "
            "the bounds or allow clipping"
        )
    return Scaled(
        name=dataset.name,
        points=_to_cube(np.clip(points, lower, upper), lower, upper),
        labels=dataset.labels,
        groups=dataset.groups,
        n_clusters=dataset.n_clusters,
        preprocessing=preprocessing,
        uses_private_bounds=(
            dataset.prescaled
            or preprocessing in DATA_DEPENDENT
            or (preprocessing == "range" and dataset.common_range_is_private)
        ),
        clipped=outside,
        lower=lower,
        upper=upper,
        clients=dataset.clients,
        is_transform_fitted=dataset.is_transform_fitted,
    )


def divide_by_largest(points: np.ndarray) -> np.ndarray:
    """Divide points by the largest of their values where that is above 1.

    This is the unlearning paper's preparation.

    Examples
    --------
    >>> divide_by_largest(np.array([[-1.0, 4.0], [2.0, 0.0]])).tolist()
    [[-0.25, 1.0], [0.5, 0.0]]
    """
    return points / max(float(points.max()), 1.0)


def _find_bounds(
    dataset: Dataset, points: np.ndarray, preprocessing: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper bounds of the columns in raw units."""
    if preprocessing == "minmax":
        return np.fmin.reduce(points), np.fmax.reduce(points)
    if preprocessing == "ball":
        center = np.nanmean(points, axis=0)
        radius = np.linalg.norm(np.nan_to_num(points - center), axis=1).max()
        return center - radius, center + radius
    if preprocessing == "public":
        if not np.all(np.isfinite(dataset.domain)):
            raise ValueError(
                f"preprocessing='public' needs a public domain, and {dataset.name!r} "
                "has none: give bounds=[lower, upper] (or bounds per column), or use "
                "preprocessing='minmax'"
            )
        return dataset.domain[0], dataset.domain[1]
    if dataset.common_range is None:
        raise ValueError(
            "preprocessing='range' needs one range that all columns share, and "
            f"{dataset.name!r} has none: give bounds=[lower, upper] with a file, or "
            "use preprocessing='public' or 'minmax'"
        )
    lower, upper = dataset.common_range
    return np.full(points.shape[1], lower), np.full(points.shape[1], upper)


def _to_cube(points: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Map lower to exactly -1 and upper to 1; a column without extent becomes 0.

    Null records stay null.
    """
    half_width = upper / 2 - lower / 2
    if half_width.max() > np.finfo(np.float64).max / 2:
        raise ValueError(
            f"column {half_width.argmax()} spans more than a float64 can hold; give it "
            "in larger units"
        )
    fraction = np.where(np.isnan(points), np.nan, 0.5)
    np.divide(points - lower, upper - lower, out=fraction, where=half_width > 0)
    return 2 * fraction - 1
