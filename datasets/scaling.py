"""From raw units to the cube [-1, 1]^d that the methods work in."""

from dataclasses import dataclass

import numpy as np

from .dataset import Dataset, check_points

PREPROCESSING = ("minmax", "public")


@dataclass(frozen=True)
class Scaled:
    """Points in the cube.

    Attributes
    ----------
    name : str
    points : ndarray of float64, shape (n, d)
        In [-1, 1].
    labels : ndarray of int64, shape (n,), or None
    n_clusters : int or None
        Default number of clusters; None for a file without one.
    preprocessing : str
        minmax or public.
    uses_private_bounds : bool
        True where the bounds were read off the points: private facts that no budget paid for.
    clipped : int
        Number of points with a coordinate that was outside the public domain and moved to its border.
    lower, upper : ndarray of float64, shape (d,)
        The bounds used, in raw units.
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


def scale(dataset: Dataset, preprocessing: str, *, clip: bool = True) -> Scaled:
    """Scale a data set to [-1, 1]^d.

    Parameters
    ----------
    dataset : Dataset
    preprocessing : {"minmax", "public"}
        ``minmax``: each column by its own minimum and maximum, as the papers do; a constant column becomes 0. The
        result is flagged, because those bounds are private. ``public``: by the declared domain.
    clip : bool
        Whether points outside the public domain are moved to its border (and counted) or refused.

    Returns
    -------
    Scaled

    Raises
    ------
    ValueError
        If the preprocessing is unknown, the data set has no public domain, a point is not finite, or points lie outside
        the domain and `clip` is False.

    Examples
    --------
    >>> import datasets
    >>> scaled = datasets.scale(datasets.load("iris"), "public")
    >>> scaled.points.shape, scaled.uses_private_bounds, scaled.clipped
    ((150, 4), False, 0)
    """
    points = check_points(dataset.points, dataset.name)
    if preprocessing == "minmax":
        lower, upper = points.min(axis=0), points.max(axis=0)
    elif preprocessing == "public":
        lower, upper = dataset.domain
        if not np.all(np.isfinite(dataset.domain)):
            raise ValueError(
                f"preprocessing='public' needs a public domain, and {dataset.name!r} has none: give "
                "bounds=[lower, upper] (or bounds per column), or use preprocessing='minmax'"
            )
    else:
        raise ValueError(f"preprocessing={preprocessing!r} should be one of {', '.join(PREPROCESSING)}")
    outside = int(np.any((points < lower) | (points > upper), axis=1).sum())
    if outside and not clip:
        raise ValueError(
            f"{outside} of {len(points)} points of {dataset.name!r} lie outside the declared domain: widen the bounds "
            "or allow clipping"
        )
    return Scaled(
        name=dataset.name,
        points=_to_cube(np.clip(points, lower, upper), lower, upper),
        labels=dataset.labels,
        n_clusters=dataset.n_clusters,
        preprocessing=preprocessing,
        uses_private_bounds=preprocessing == "minmax",
        clipped=outside,
        lower=lower,
        upper=upper,
    )


def _to_cube(points, lower, upper):
    """Map lower to exactly -1 and upper to exactly 1; a column without extent becomes 0."""
    half = upper / 2 - lower / 2
    if half.max() > np.finfo(np.float64).max / 2:
        raise ValueError(f"column {half.argmax()} spans more than a float64 can hold; give it in larger units")
    share = np.divide(points - lower, upper - lower, out=np.full_like(points, 0.5), where=half > 0)
    return 2 * share - 1
