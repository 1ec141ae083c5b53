"""Queries that locate the points in a wide domain: shells, clipped sums.

Sensitivities under zero-out or add-remove adjacency:

- :class:`ShellCounts`: one count by 1.
- :class:`SideCounts`: one count of every column by 1, which is sqrt(d) in L2.
- :class:`ClippedSum`: the sum by the radius in L2, and by sqrt(d) times as much in L1.

Centers and radii are released or public floats. They need not lie on the grid, because
each record's contribution is rounded to integers before it is added. The ledger does
not record them: its charges are known before the first draw.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pkm.compute.kernels.shells import clipped_sum, shell_counts, side_counts
from pkm.compute.storage.blocks import total_array
from pkm.privacy.checks import check_positive
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import Gaussian, Laplace
from pkm.privacy.queries.sums import COUNTS, DisjointCounts
from pkm.privacy.query import Answer, Mechanisms, Query, Sensitivities, Sensitivity


@dataclass(frozen=True, eq=False)
class _AboutCenter(Query):
    """Base class of the queries about a center, of one replicate."""

    center: np.ndarray

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and a center that is not finite float64."""
        source.check_single(self.label)
        center = self.center
        shape = (source.n_features,)
        if (
            center.dtype != np.float64
            or center.shape != shape
            or not np.isfinite(center).all()
        ):
            raise ValueError(
                f"center must be finite float64 of shape {shape}, got {center.dtype} "
                f"of shape {center.shape}; release it first"
            )


@dataclass(frozen=True, eq=False)
class ShellCounts(_AboutCenter, DisjointCounts):
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
        if not isinstance(self.box, bool):
            raise ValueError(f"box={self.box!r} must be True or False")

    def exact(self, source: Any) -> Answer:
        """Exact counts over all shards."""
        arguments = {"center": self.center, "radii": self.radii, "box": self.box}
        counts = total_array(source._shards, shell_counts, **arguments)
        return {"counts": counts[None] * SCALE}


@dataclass(frozen=True, eq=False)
class SideCounts(_AboutCenter):
    """Numbers of points by side of a center and distance to it, in every column.

    Parameters
    ----------
    center : ndarray of shape (d,), float64
        In half-widths of the domain.
    radii : ndarray of shape (m,), float64
        Decreasing, in half-widths, as for :class:`ShellCounts`.

    Notes
    -----
    Its part is ``counts`` (R, d, 2, m), int64, in units of 2**-16 records, the lower
    side first. It serves one replicate.
    """

    label = "side_counts"
    mechanisms = COUNTS

    radii: np.ndarray

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and invalid centers or radii."""
        super().check(source)
        check_radii(self.radii)

    def sensitivity(self, source: Any) -> Sensitivities:
        """One record in one cell of every column."""
        # d counts by 1 each: d in L1, sqrt(d) in L2.
        d = source.n_features
        return {"counts": Sensitivity(d * SCALE, math.sqrt(d) * SCALE, SCALE, d)}

    def exact(self, source: Any) -> Answer:
        """Exact counts over all shards."""
        arguments = {"center": self.center, "radii": self.radii}
        counts = total_array(source._shards, side_counts, **arguments)
        return {"counts": counts[None] * SCALE}


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
    mechanisms: ClassVar[Mechanisms] = {"sums": (Gaussian, Laplace)}

    radius: float

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and an invalid center or radius."""
        super().check(source)
        check_positive("radius", self.radius, ", in half-widths")

    def sensitivity(self, source: Any) -> Sensitivities:
        """One record adds at most the radius in L2, which is the unit."""
        # L1 is at most sqrt(d) times L2, by the Cauchy-Schwarz inequality.
        return {"sums": Sensitivity(math.sqrt(source.n_features) * SCALE, SCALE, SCALE)}

    def exact(self, source: Any) -> Answer:
        """Exact sum over all shards."""
        arguments = {"center": self.center, "radius": self.radius}
        sums = total_array(source._shards, clipped_sum, **arguments)
        return {"sums": sums[None]}


def check_radii(radii: np.ndarray) -> None:
    """Refuse radii that are not positive, finite and decreasing."""
    is_list = radii.dtype == np.float64 and radii.ndim == 1 and len(radii) > 0
    if (
        not is_list
        or not np.isfinite(radii).all()
        or radii[-1] <= 0
        or (np.diff(radii) >= 0).any()
    ):
        raise ValueError(
            "radii must be finite, positive and decreasing, float64 of shape (m,), "
            f"got {radii.dtype} of shape {radii.shape}"
        )
