"""A data set with what is publicly known about it, and the checks of its parts."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pkm.row_blocks import ENCODING, find_null
from pkm.scalars import is_integer


@dataclass(frozen=True)
class Dataset:
    """Points in their raw units, with what is known about them.

    Attributes
    ----------
    name : str
    points : ndarray of float64, shape (n, d)
        In raw units, finite; rows of a file may be null records, NaN throughout.
    labels : ndarray of int64, shape (n,), or None
        Reference partition; -1 marks outliers.
    domain : ndarray of float64, shape (2, d)
        Public lower and upper bound of each column. They are declared from what the
        column means and never taken from the points. They are infinite if nothing is
        publicly known (a file given without bounds).
    n_clusters : int or None
        Default number of clusters; None for a file given without one.
    fingerprint : str
        Digest that changes when the points, the labels or the domain may have changed;
        see `datasets.fingerprint`.
    citation, license : str
    origin : str
        Where the points came from: bundled, generated, own folder, cache, data folder,
        url or file.
    common_range : (float, float) or None
        Lower and upper bound that all columns share. By default they are those of the
        domain if all its columns have the same, else None.
    common_range_is_private : bool
        Whether that range was read off the points.
    groups : Series or ndarray of shape (n,), or None
        Person of each row, where they were asked for; None where each row is a record.
    clients : ndarray of int64, shape (n,), or None
        Number of the client that holds each point, from 0, where such a split was
        published with the points.
    prescaled : bool
        Whether the points come scaled by bounds that were read off them: then all
        results use private bounds.
    is_transform_fitted : bool
        Whether the points are the output of a map fitted to these very records: a
        network trained on their labels, principal components. Then one record moves
        every point, and no budget pays for it.
    layout : str
        In words, what was found out about a text file; else empty.
    """

    name: str
    points: np.ndarray
    labels: np.ndarray | None
    domain: np.ndarray
    n_clusters: int | None
    fingerprint: str
    citation: str
    license: str
    origin: str
    common_range: tuple[float, float] | None = None
    common_range_is_private: bool = False
    groups: ArrayLike | None = None
    clients: np.ndarray | None = None
    prescaled: bool = False
    is_transform_fitted: bool = False
    layout: str = ""

    def __post_init__(self) -> None:
        common = self.common_range
        if common is None:
            common = shared_range(self.domain)
        if common is not None:
            common = check_common_range(common, self.name)
        object.__setattr__(self, "common_range", common)

    @property
    def summary(self) -> str:
        """What was read, in one line for the owner of the points.

        Examples
        --------
        >>> from pkm import datasets
        >>> datasets.load("iris").summary
        '150 rows, 4 columns'
        """
        n, d = self.points.shape
        n_null = int(find_null(self.points, keep_missing=True).sum())
        layout = f", {self.layout}" if self.layout else ""
        null = ""
        if n_null:
            null = f"; {n_null} rows lack a value: null records (number not protected)"
        bounds = ""
        is_known = np.isfinite(self.domain).all()
        if d == 2 and is_known and shared_range(self.domain) is None:
            # Two lists are lower and upper bounds, and look like pairs by column.
            first, second = self.domain.T
            bounds = (
                f"; bounds {first[0]:g} to {first[1]:g}, {second[0]:g} to {second[1]:g}"
            )
        return f"{n} rows, {d} columns{layout}{bounds}{null}"


def shared_range(domain: np.ndarray) -> tuple[float, float] | None:
    """Return the bounds that all columns of a domain share, if they are finite.

    Examples
    --------
    >>> shared_range(np.array([[0.0, 0.0], [15.0, 15.0]]))
    (0.0, 15.0)
    >>> shared_range(np.array([[0.0, 0.0], [15.0, 9.0]])) is None
    True
    """
    lower, upper = domain[:, 0].tolist()
    is_shared = np.all(domain == domain[:, :1])
    return (lower, upper) if is_shared and np.isfinite(domain).all() else None


def check_common_range(common_range: Sequence[float], name: str) -> tuple[float, float]:
    """Return a range as two floats, refusing one that is not finite or not ascending.

    Examples
    --------
    >>> check_common_range([0, 15], "letters")
    (0.0, 15.0)
    """
    try:
        lower, upper = (float(bound) for bound in common_range)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: common_range={common_range!r} should be (lower, upper)"
        ) from error
    if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise ValueError(
            f"{name}: common_range={common_range!r} should be finite, the lower "
            "bound below the upper one"
        )
    return lower, upper


def check_points(points: ArrayLike, name: str) -> np.ndarray:
    """Refuse anything but a non-empty, finite, numeric table.

    As `check_table`, without null records.

    Raises
    ------
    ValueError
        If the array is no such table.
    """
    points = check_table(points, name)
    if np.isnan(points).any():
        raise ValueError(f"{name}: values are NaN or infinite; remove or impute them")
    return points


def check_table(
    points: ArrayLike,
    name: str,
    keep_missing: bool = False,
) -> np.ndarray:
    """Refuse anything but a non-empty, numeric table; mark its null records.

    Points may be private: messages show neither their values nor their rows.

    Parameters
    ----------
    points : array_like
    name : str
        What the points are called in the error message.
    keep_missing : bool, default=False
        Whether a row of which only some values are NaN keeps the others.

    Returns
    -------
    ndarray of float64, shape (n, d)
        C-contiguous. Another row with NaN or an infinite value is a null record: NaN
        throughout.

    Raises
    ------
    ValueError
        If the array is not two-dimensional, is empty, is not numeric, or has no finite
        row.
    """
    points = np.asarray(points)
    if points.ndim != 2:
        raise ValueError(
            f"{name}: points of shape {points.shape} should have two dimensions, (n, d)"
        )
    if 0 in points.shape:
        raise ValueError(
            f"{name}: points of shape {points.shape} should have at least one row "
            "and one column"
        )
    if points.dtype.kind not in "iufb":
        raise ValueError(
            f"{name}: points of type {points.dtype} should be real numbers; {ENCODING}"
        )
    points = np.ascontiguousarray(points, dtype=np.float64)
    if find_null(points).all():
        raise ValueError(
            f"{name}: every row has a missing or infinite value; leave out columns "
            "without values"
        )
    null = find_null(points, keep_missing)
    return np.where(null[:, None], np.nan, points) if null.any() else points


def check_domain(bounds: ArrayLike, n_dimensions: int, name: str) -> np.ndarray:
    """Bring bounds to shape (2, d), refusing wrong ones.

    Parameters
    ----------
    bounds : pair of floats, pair of sequences of length d, or array of shape (2, d)
        Lower and upper bounds, for all columns or per column.
    n_dimensions : int
    name : str
        What the data set is called in the error message.

    Returns
    -------
    ndarray of float64, shape (2, d)

    Raises
    ------
    ValueError
        If the bounds have another shape, are not finite, or a lower one is not below
        its upper one.

    Examples
    --------
    >>> check_domain([0, 1], 3, "points.csv").tolist()
    [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    """
    rule = (
        f"{name}: bounds should be [lower, upper] or [[lower, ...], [upper, ...]] "
        f"with d={n_dimensions} columns"
    )
    try:
        domain = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{rule}; got {show_short(bounds)}") from error
    if domain.shape == (2,):
        domain = np.repeat(domain[:, None], n_dimensions, axis=1)
    if domain.shape != (2, n_dimensions):
        raise ValueError(f"{rule}; got {show_short(bounds)}")
    if not np.all(np.isfinite(domain)):
        raise ValueError(f"{name}: bounds should be finite; got {domain.tolist()}")
    wrong = np.flatnonzero(domain[0] >= domain[1])
    if len(wrong):
        column = wrong[0]
        raise ValueError(
            f"{name}: bounds of column {column} are lower={domain[0, column]:g}, "
            f"upper={domain[1, column]:g}; the lower one should be below the upper one"
        )
    return domain


def show_short(value: object) -> str:
    """Show a value in one line, long lists by their first items.

    Examples
    --------
    >>> show_short([0] * 100)
    '[0, 0, 0, 0, 0, 0, ...]'
    """
    return " ".join(reprlib.repr(value).split())


def encode_classes(classes: np.ndarray) -> np.ndarray:
    """Replace classes by numbers from 0, in sorted order.

    Examples
    --------
    >>> encode_classes(np.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    """
    return np.unique(classes, return_inverse=True)[1].astype(np.int64)


def check_n_clusters(n_clusters: object, n: int, name: str) -> int:
    """Return the number of clusters as int, refusing all but integers from 1 to n.

    Examples
    --------
    >>> check_n_clusters(3, 150, "iris")
    3
    """
    if not is_integer(n_clusters):
        raise ValueError(f"{name}: n_clusters={n_clusters!r} should be an integer")
    if not 1 <= n_clusters <= n:
        raise ValueError(
            f"{name}: n_clusters={n_clusters} should be at least 1 and at most n={n}"
        )
    return int(n_clusters)
