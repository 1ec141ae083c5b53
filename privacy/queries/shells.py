"""Queries that locate the points in a wide domain: shells, clipped sums.

A shell is the set of points between two distances from a center.

Sensitivities under zero-out or add-remove adjacency:

- :class:`ShellCounts`: one count by 1.
- :class:`SideCounts`: one count of every column by 1, which is sqrt(d) in L2 for d
  columns.
- :class:`ClippedSum`: the sum by the radius in L2, and by sqrt(d) times as much in L1.

Centers and radii are released or public floats. They need not lie on the grid, because
each record's contribution is rounded to integers before it is added. The ledger does
not record them: its charges are known before the first draw.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pkm.compute import Points
from pkm.compute.kernels.shells import clipped_sum, shell_counts, side_counts
from pkm.compute.storage.blocks import total_array
from pkm.privacy.checks import check_flag, check_floats, check_positive
from pkm.privacy.grid import SCALE
from pkm.privacy.queries.sums import (
    SUMS,
    CountQuery,
    entries_sensitivity,
    vector_sensitivity,
)
from pkm.privacy.query import Answer, Query, Sensitivities


@dataclass(frozen=True, eq=False)
class _AboutCenter(Query):
    """Base class of the queries about a center, of one replicate."""

    serves_weights = True

    center: np.ndarray

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and a center that is not finite float64."""
        source.check_single(self.label)
        shape = (source.n_features,)
        check_floats("center", self.center, shape, "; release it first")

    def _total(self, source: Any, kernel: Callable[..., np.ndarray]) -> np.ndarray:
        """Sum of a kernel over all shards; its arguments are the query's fields.

        Missing entries have the coordinates of the center.
        """
        about_center = partial(_about_center, kernel=kernel)
        return total_array(source._shards, about_center, **vars(self))


def _about_center(
    points: Points,
    center: np.ndarray,
    kernel: Callable[..., np.ndarray],
    **arguments: Any,
) -> np.ndarray:
    return kernel(points.fill(center), center, **arguments)


@dataclass(frozen=True, eq=False)
class ShellCounts(_AboutCenter, CountQuery):
    """Numbers of points in shells about a center.

    Parameters
    ----------
    center : ndarray of shape (d,), float64
        In half-widths of the domain.
    radii : ndarray of shape (m,), float64
        Decreasing, in half-widths. Shell 0: distance > ``radii[1]`` (``radii[0]`` is
        not used). Shell j: ``radii[j + 1]`` < distance <= ``radii[j]``. Last shell:
        distance <= ``radii[-1]``.
    box : bool, default=False
        Whether distances are Chebyshev (the largest difference of a coordinate): shells
        are then cubes.

    Notes
    -----
    Its part is ``counts`` (R, m), int64, in units of 2**-16 records. It serves one
    replicate.
    """

    label = "shell_counts"

    radii: np.ndarray
    box: bool = False

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and invalid centers or radii."""
        super().check(source)
        check_radii(self.radii)
        check_flag("box", self.box)

    def count(self, source: Any) -> np.ndarray:
        """Count over all shards."""
        return self._total(source, shell_counts)


@dataclass(frozen=True, eq=False)
class SideCounts(_AboutCenter, CountQuery):
    """Numbers of points by side of a center and distance to it, in every column.

    Parameters
    ----------
    center : ndarray of shape (d,), float64
        In half-widths of the domain.
    radii : ndarray of shape (m,), float64
        Decreasing, in half-widths, as for :class:`ShellCounts`.
    columns : tuple of int, optional
        Increasing numbers of the columns that are counted. Default: all.

    Notes
    -----
    Its part is ``counts`` (R, c, 2, m), int64, in units of 2**-16 records, for c
    columns, the lower side first. A missing entry is not counted. It serves one
    replicate.
    """

    label = "side_counts"

    radii: np.ndarray
    columns: tuple[int, ...] | None = None

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and invalid centers, radii or columns."""
        super().check(source)
        check_radii(self.radii)
        columns = self._list_columns(source)
        # A column that is counted twice would change by more.
        known = set(range(source.n_features))
        if not columns or list(columns) != sorted(set(columns) & known):
            raise ValueError(
                f"columns={self.columns!r} must be increasing numbers of columns, "
                f"below {source.n_features}"
            )

    def sensitivity(self, source: Any) -> Sensitivities:
        """One record in one cell of every column."""
        return {"counts": entries_sensitivity(len(self._list_columns(source)))}

    def count(self, source: Any) -> np.ndarray:
        """Count over all shards."""
        # Missing entries are not filled in: they would be at the center.
        counts = total_array(
            source._shards,
            side_counts,
            center=self.center,
            radii=self.radii,
        )
        return counts[list(self._list_columns(source))]

    def _list_columns(self, source: Any) -> tuple[int, ...]:
        if self.columns is None:
            return tuple(range(source.n_features))
        return self.columns


@dataclass(frozen=True, eq=False)
class ClippedSum(_AboutCenter):
    """Sum of the differences of points and a center, each clipped in norm to a radius.

    Parameters
    ----------
    center : ndarray of shape (d,), float64
        In half-widths of the domain.
    radius : float
        In half-widths.

    Notes
    -----
    Its part is ``sums`` (R, d), int64, in units of 2**-16 radii: a record adds a vector
    of at most 2**16 in size. It serves one replicate.
    """

    label = "clipped_sum"
    mechanisms = SUMS

    radius: float

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and an invalid center or radius."""
        super().check(source)
        check_positive("radius", self.radius, ", in half-widths")

    def sensitivity(self, source: Any) -> Sensitivities:
        """One record adds at most the radius in L2, which is the unit."""
        return {"sums": vector_sensitivity(SCALE, source.n_features)}

    def exact(self, source: Any) -> Answer:
        """Exact sum over all shards."""
        return {"sums": self._total(source, clipped_sum)[None]}


def check_radii(radii: np.ndarray) -> None:
    """Refuse radii that are not positive, finite and decreasing."""
    is_list = radii.dtype == np.float64 and radii.ndim == 1 and len(radii) > 0
    is_finite = is_list and np.isfinite(radii).all()
    # With 0 at the end, the last radius must be above it.
    if not is_finite or (np.diff(radii, append=0.0) >= 0).any():
        raise ValueError(
            "radii must be finite, positive and decreasing, float64 of shape (m,), "
            f"got {radii.dtype} of shape {radii.shape}"
        )
