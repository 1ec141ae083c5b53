"""Queries that find where the points lie in a wide domain: shells about a center, clipped sums.

What one record changes, under zero-out or add-remove adjacency:

====================  =========================================================================
query                 change
====================  =========================================================================
:class:`ShellCounts`  one count by 1
:class:`SideCounts`   one count of every column by 1: sqrt(d) in L2, d in L1
:class:`ClippedSum`   the sum by the radius in L2, and by sqrt(d) times as much in L1
====================  =========================================================================

Centers and radii are released or public floats. They need not lie on the grid: what a record adds
is rounded to integers before it is added. The ledger does not name them: its charges are public
before the first draw.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pkm.compute import Points
from pkm.compute.kernels.shells import clipped_sum, shell_counts, side_counts
from pkm.compute.storage.blocks import Sums
from pkm.privacy.budget import Adjacency
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import Gaussian, Laplace
from pkm.privacy.queries.sums import ONE_COUNT
from pkm.privacy.query import Mechanisms, Query, Sensitivity


@dataclass(frozen=True, eq=False)
class ShellCounts(Query):
    """Numbers of points in shells about a center.

    Parameters
    ----------
    center : ndarray of shape (d,), float64
        In half-widths of the domain.
    radii : ndarray of shape (m,), float64
        Decreasing, in half-widths. Shell 0 is all that is farther than ``radii[1]``, shell j the
        points at distances from ``radii[j + 1]`` to ``radii[j]``, the last one the rest.
    box : bool, default=False
        Distances are the largest difference of a coordinate, so that shells are cubes.

    Notes
    -----
    Its part is ``counts`` (R, m), int64, in units of 2**-16 records. It serves one replicate.
    """

    label: ClassVar[str] = "shell_counts"
    mechanisms: ClassVar[Mechanisms] = {"counts": (Gaussian, Laplace)}

    center: np.ndarray
    radii: np.ndarray
    box: bool = False

    def check(self, view: Any) -> None:
        """Refuse more than one replicate, and a center or radii that are none."""
        view.check_single(self.label)
        _check_center(self.center, view)
        check_radii(self.radii)
        if not isinstance(self.box, bool):
            raise ValueError(f"box={self.box!r} must be True or False")

    def sensitivity(self, view: Any, adjacency: Adjacency) -> Mapping[str, Sensitivity]:
        """One record in one shell."""
        return {"counts": ONE_COUNT}

    def exact(self, view: Any) -> Mapping[str, np.ndarray]:
        """Exact counts over all shards."""
        count = partial(_shell_counts, center=self.center, radii=self.radii, box=self.box)
        (counts,) = view._shards.total(count)
        return {"counts": counts[None] * SCALE}


@dataclass(frozen=True, eq=False)
class SideCounts(Query):
    """Numbers of points on either side of a center, by distance, in every column separately.

    Parameters
    ----------
    center : ndarray of shape (d,), float64
        In half-widths of the domain.
    radii : ndarray of shape (m,), float64
        Decreasing, in half-widths, as for :class:`ShellCounts`.

    Notes
    -----
    Its part is ``counts`` (R, d, 2, m), int64, in units of 2**-16 records, the lower side first. It
    serves one replicate.
    """

    label: ClassVar[str] = "side_counts"
    mechanisms: ClassVar[Mechanisms] = {"counts": (Gaussian, Laplace)}

    center: np.ndarray
    radii: np.ndarray

    def check(self, view: Any) -> None:
        """Refuse more than one replicate, and a center or radii that are none."""
        view.check_single(self.label)
        _check_center(self.center, view)
        check_radii(self.radii)

    def sensitivity(self, view: Any, adjacency: Adjacency) -> Mapping[str, Sensitivity]:
        """One record in one cell of every column."""
        d = view.n_features
        return {"counts": Sensitivity(d * SCALE, math.sqrt(d) * SCALE, SCALE, d)}

    def exact(self, view: Any) -> Mapping[str, np.ndarray]:
        """Exact counts over all shards."""
        count = partial(_side_counts, center=self.center, radii=self.radii)
        (counts,) = view._shards.total(count)
        return {"counts": counts[None] * SCALE}


@dataclass(frozen=True, eq=False)
class ClippedSum(Query):
    """Sum of the differences of points and a center, each shortened to a radius.

    Parameters
    ----------
    center : ndarray of shape (d,), float64
        In half-widths of the domain.
    radius : float
        In half-widths.

    Notes
    -----
    Its part is ``sums`` (R, d), int64, in units of 2**-16 radii: a record adds a vector of at most
    2**16 in size. It serves one replicate.
    """

    label: ClassVar[str] = "clipped_sum"
    mechanisms: ClassVar[Mechanisms] = {"sums": (Gaussian, Laplace)}

    center: np.ndarray
    radius: float

    def check(self, view: Any) -> None:
        """Refuse more than one replicate, and a center or a radius that are none."""
        view.check_single(self.label)
        _check_center(self.center, view)
        if not 0 < self.radius < math.inf:
            raise ValueError(f"radius={self.radius} must be positive and finite, in half-widths")

    def sensitivity(self, view: Any, adjacency: Adjacency) -> Mapping[str, Sensitivity]:
        """One record: the radius, which is the unit."""
        return {"sums": Sensitivity(math.sqrt(view.n_features) * SCALE, SCALE, SCALE)}

    def exact(self, view: Any) -> Mapping[str, np.ndarray]:
        """Exact sum over all shards."""
        (sums,) = view._shards.total(partial(_clipped_sum, center=self.center, radius=self.radius))
        return {"sums": sums[None]}


def _shell_counts(points: Points, center: np.ndarray, radii: np.ndarray, box: bool) -> Sums:
    return (shell_counts(points, center, radii, box=box),)


def _side_counts(points: Points, center: np.ndarray, radii: np.ndarray) -> Sums:
    return (side_counts(points, center, radii),)


def _clipped_sum(points: Points, center: np.ndarray, radius: float) -> Sums:
    return (clipped_sum(points, center, radius),)


def _check_center(center: np.ndarray, view: Any) -> None:
    """Refuse a center of another width or with values that are not finite."""
    shape = (view.n_features,)
    if center.dtype != np.float64 or center.shape != shape or not np.isfinite(center).all():
        raise ValueError(
            f"center must be finite float64 of shape {shape}, got {center.dtype} of shape "
            f"{center.shape}; release it first"
        )


def check_radii(radii: np.ndarray) -> None:
    """Refuse radii that are no decreasing positive numbers."""
    is_list = radii.dtype == np.float64 and radii.ndim == 1 and len(radii) > 0
    if not is_list or not np.isfinite(radii).all() or radii[-1] <= 0 or (np.diff(radii) >= 0).any():
        raise ValueError(
            f"radii must be finite, positive and decreasing, float64 of shape (m,), got "
            f"{radii.dtype} of shape {radii.shape}"
        )
