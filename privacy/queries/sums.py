"""Queries on the points of a curator: sums, counts and the percentile of gaps.

Sensitivities under zero-out or add-remove adjacency, in records and half-widths:

- :class:`SumsAndCounts`: one count by 1, and one sum by sqrt(d) in L2; with relative
  sums, by the radius of its center.
- :class:`CountsAndBoundedSums`: one count by 1, and each coordinate of its sum.
- :class:`GridCounts`, :class:`RecordCount`: one count by 1.
- :class:`GapPercentile`: its paper's claim, which is wrong for two or more features.

Cells are disjoint and one record lies in one cell. So the cost of a query is that of
its most expensive cell (parallel composition).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pkm.compute import Points, averaged_gaps, cell_counts, exact_limit
from pkm.compute.kernels.clipping import sums_about
from pkm.compute.storage.blocks import Arrays, one_array
from pkm.privacy.budget import Adjacency
from pkm.privacy.checks import (
    check_flag,
    check_floats,
    check_grid_integers,
    check_positive,
    check_range,
)
from pkm.privacy.grid import MAX_CELLS, SCALE
from pkm.privacy.mechanisms.additive import (
    BoundedLaplace,
    BoundedValues,
    Gaussian,
    Laplace,
)
from pkm.privacy.mechanisms.selection import (
    Exponential,
    OrderStatistics,
    Percentile,
    ScoreSensitivity,
)
from pkm.privacy.mechanisms.stability_histogram import StabilityHistogram
from pkm.privacy.query import (
    Answer,
    BlockQuery,
    Details,
    Mechanisms,
    Query,
    Sensitivities,
    Sensitivity,
)
from pkm.scalars import is_integer

# Parts that answers of several queries have, with the mechanisms that may release them.
COUNTS: Mechanisms = {"counts": (Gaussian, Laplace)}
SUMS: Mechanisms = {"sums": (Gaussian, Laplace)}
GAUSSIAN_COUNTS: Mechanisms = {"counts": (Gaussian,)}
GAUSSIAN_SUMS: Mechanisms = {"sums": (Gaussian,)}
GAUSSIAN_SUMS_AND_COUNTS: Mechanisms = {**GAUSSIAN_SUMS, **GAUSSIAN_COUNTS}
LARGE_COUNTS: Mechanisms = {"counts": (StabilityHistogram,)}
CHOICES: Mechanisms = {"choices": (Exponential,)}


def entries_sensitivity(n_entries: int, change: float = SCALE) -> Sensitivity:
    """Sensitivity of an answer of which some entries change by at most ``change`` each.

    The default is one record, in counts in units of 2**-16 records.

    Examples
    --------
    >>> entries_sensitivity(4, 3.0)[:4]
    (12.0, 6.0, 3.0, 4)
    """
    l2 = math.sqrt(n_entries) * change
    return Sensitivity(n_entries * change, l2, change, n_entries)


def vector_sensitivity(
    length: float,
    n_entries: int,
    unit: Any = 1.0,
    resolution: int = 1,
) -> Sensitivity:
    """Sensitivity of an answer that changes by a vector of L2 norm at most ``length``.

    Examples
    --------
    >>> vector_sensitivity(3.0, 4)[:3]
    (6.0, 3.0, 3.0)
    """
    # L1 is at most sqrt(n) times L2, by the Cauchy-Schwarz inequality.
    l1 = math.sqrt(n_entries) * length
    return Sensitivity(l1, length, length, unit=unit, resolution=resolution)


ONE_COUNT = entries_sensitivity(1)
"""Sensitivity of counts if one of them changes by one record."""

TWO_COUNTS = entries_sensitivity(2)
"""Sensitivity of counts if one of them falls and another rises by one record."""


class CountQuery(Query):
    """Base class of queries that count; by default a record lies in one cell."""

    mechanisms = COUNTS

    def sensitivity(self, source: Any) -> Sensitivities:
        """A record changes one count by 1."""
        return {"counts": ONE_COUNT}

    def exact(self, source: Any) -> Answer:
        """Exact counts, in units of 2**-16 records."""
        return self.replicate(source, self.count(source))

    def replicate(self, source: Any, counts: np.ndarray) -> Answer:
        """Repeat counts for all replicates, in units of 2**-16 records."""
        # They do not depend on the replicate; its noise does.
        counts = counts[None] * source.count_factor
        return {"counts": np.repeat(counts, source.n_replicates, axis=0)}

    def count(self, source: Any) -> np.ndarray:
        """Count the records of each cell, int64, before the factor of the source."""
        raise NotImplementedError(f"{type(self).__name__} must define count")


@dataclass(frozen=True, eq=False)
class SumsAndCounts(Query):
    """Sums and counts of the points nearest to each center.

    Parameters
    ----------
    centers : ndarray of shape (R, k, d), int64
        Released or public centers on the grid, one set per replicate.
    radius : float or ndarray of shape (R, k), optional
        In half-widths of the domain: points farther than this from their nearest center
        are left out. An array has one for each center, from released values only.
    relative : bool, default=False
        Sum ``x - center`` instead of ``x``; needs a radius, which then bounds what one
        record adds.
    fill : bool, default=False
        Whether a record with missing entries has its center's coordinates there. The
        center is the nearest by the other entries, and the weight of the record is the
        cube of their share. By default they are the middle of the domain.

    Notes
    -----
    Its parts are ``sums`` (R, k, d), int64, in grid steps, and ``counts`` (R, k),
    int64, in units of 2**-16 records. With one radius for each center, relative sums
    have the radius of their center as unit. The scale of their noise is in multiples of
    it, and a record changes a sum by at most 1 in these units, whatever the radii.
    """

    label = "sums_and_counts"
    mechanisms: ClassVar[Mechanisms] = {**SUMS, **COUNTS}
    exact_without_ledger = True
    serves_weights = True

    centers: np.ndarray
    radius: float | np.ndarray | None = None
    relative: bool = False
    fill: bool = False

    def check(self, source: Any) -> None:
        """Refuse centers off the grid, and relative sums without a radius."""
        check_centers(self.centers, source)
        check_flag("fill", self.fill)
        if isinstance(self.radius, np.ndarray):
            shape = self.centers.shape[:2]
            check_floats("radius", self.radius, shape, ", one for each center")
            check_positive("radius", self.radius.min(initial=1.0), " for each center")
        elif self.radius is not None:
            check_positive("radius", self.radius, ", or None")
        if self.relative and self.radius is None:
            raise ValueError(
                "relative sums need a radius: without one a record's contribution is "
                "not bounded"
            )

    def sensitivity(self, source: Any) -> Sensitivities:
        """A record changes one count by 1 and one sum by its bounded contribution."""
        d = source.n_features
        # Absolute sums: a point of the domain has at most 1 per coordinate, in
        # half-widths.
        radius = self.radius if self.relative else None
        if radius is None:
            sums = entries_sensitivity(d)
        elif isinstance(radius, np.ndarray):
            sums = vector_sensitivity(1.0, d, radius[:, :, None] * SCALE)
        else:
            sums = vector_sensitivity(radius * SCALE, d)
        return {"sums": sums, "counts": ONE_COUNT}

    def exact(self, source: Any) -> Answer:
        """Exact sums and counts over all shards."""
        limit = None if self.radius is None else (self.radius * SCALE) ** 2
        origins = self.centers if self.relative else np.zeros_like(self.centers)
        return nearest_sums_and_counts(
            source, self.centers, origins, limit, fill=self.fill
        )

    def details(self) -> Details:
        """The radius; an array is left out, because replicates differ in it."""
        return {} if isinstance(self.radius, np.ndarray) else {"radius": self.radius}


@dataclass(frozen=True, eq=False)
class CountsAndBoundedSums(Query):
    """Counts of the points nearest to each center, and sums bounded by noisy counts.

    Parameters
    ----------
    centers : ndarray of shape (R, k, d), int64
    origin : ndarray of shape (d,), int64
        Subtracted from each point, in grid steps.
    fill : bool, default=False
        As of :class:`SumsAndCounts`.

    Notes
    -----
    Its parts are ``counts`` (R, k), int64, in units of 2**-16 records, and ``sums`` (R,
    k, d), int64, in grid steps. Each sum lies between the :func:`mirrored` noisy count
    times the domain's ends, relative to the origin.
    """

    label = "counts_and_bounded_sums"
    mechanisms: ClassVar[Mechanisms] = {"counts": (Laplace,), "sums": (BoundedLaplace,)}

    centers: np.ndarray
    origin: np.ndarray
    fill: bool = False

    def check(self, source: Any) -> None:
        """Refuse centers and an origin off the grid."""
        check_centers(self.centers, source)
        check_grid_integers("origin", self.origin, (source.n_features,))
        check_flag("fill", self.fill)

    def sensitivity(self, source: Any) -> Sensitivities:
        """One record in one cell, at most as far from the origin as the far end."""
        # A coordinate of the domain differs from the origin's by at most 1 +
        # |origin_h|.
        farthest = float(SCALE + np.abs(self.origin).max())
        sums = entries_sensitivity(source.n_features, farthest)
        return {"counts": ONE_COUNT, "sums": sums}

    def exact(self, source: Any) -> Answer:
        """Exact counts, and sums about the origin."""
        origins = np.broadcast_to(self.origin, self.centers.shape)
        return nearest_sums_and_counts(source, self.centers, origins, fill=self.fill)

    def mechanism_input(
        self, part: str, exact: Any, released: Mapping[str, np.ndarray]
    ) -> Any:
        """Bound the sums by the noisy counts times the domain's ends."""
        if part == "counts":
            return exact
        # Post-processing: the bounds depend on the released counts alone.
        records = mirrored(released["counts"])[:, :, None] / SCALE
        return BoundedValues(
            exact, records * (-SCALE - self.origin), records * (SCALE - self.origin)
        )


def mirrored(counts: np.ndarray) -> np.ndarray:
    """Reflect noisy counts below one half at one half: all are then positive."""
    return np.where(counts < SCALE // 2, SCALE - counts, counts)


@dataclass(frozen=True, eq=False)
class GridCounts(BlockQuery, CountQuery):
    """Numbers of points in all cells of a public grid.

    Parameters
    ----------
    intervals : int
        Number of equal intervals per feature, at least 1. Interval i of m goes from
        ``-1 + 2 i / m`` to ``-1 + 2 (i + 1) / m`` in half-widths of the domain.

    Notes
    -----
    Its part is ``counts`` (R, intervals, ..., intervals), int64: one axis per feature,
    in units of 2**-16 records.
    """

    label = "grid_counts"
    serves_weights = True

    intervals: int

    def check(self, source: Any) -> None:
        """Refuse too many cells."""
        fits = (
            is_integer(self.intervals)
            and self.intervals >= 1
            and self.intervals**source.n_features <= MAX_CELLS
        )
        if not fits:
            raise ValueError(
                f"intervals={self.intervals} must be at least 1 and, in "
                f"{source.n_features} features, make at most {MAX_CELLS} cells; take "
                "fewer, or a method for more features"
            )

    def of_block(self, source: Any) -> Callable[[Points], Arrays]:
        """Count the points; the domain's upper end belongs to the last interval."""
        return one_array(cell_counts, intervals=self.intervals)

    def answer(self, source: Any, totals: Arrays) -> Answer:
        """Counts with an axis for each feature."""
        # Cells are numbered in C order, so one reshape makes the axes.
        shape = (self.intervals,) * source.n_features
        return self.replicate(source, totals[0].reshape(shape))

    def details(self) -> Details:
        """The number of intervals."""
        return {"intervals": self.intervals}


@dataclass(frozen=True, eq=False)
class RecordCount(CountQuery):
    """Number of records, null ones included, where it is secret.

    Notes
    -----
    Its part is ``counts`` (R, 1), int64, in units of 2**-16 records. Rounded, and at
    least 1, it is the curator's ``n_points`` from then on. It serves one replicate.
    """

    label = "record_count"
    adjacencies = (Adjacency.ADD_REMOVE,)
    serves_weights = True

    def check(self, source: Any) -> None:
        """Refuse more than one replicate."""
        source.check_single(self.label)

    def count(self, source: Any) -> np.ndarray:
        """Count the records; all rows of a person together are one."""
        # A record is 2**16 units where the kernels count weights, and one elsewhere.
        return np.array([source._shards.n_records * (SCALE // source.count_factor)])

    def postprocess(
        self,
        source: Any,
        outcomes: dict[str, Any],
    ) -> dict[str, Any]:
        """Make the released number the curator's ``n_points``."""
        # At least 1: methods divide by the number of records.
        source.n_points = max(1, round(outcomes["counts"].item() / SCALE))
        return outcomes


@dataclass(frozen=True, eq=False)
class GapPercentile(Query):
    """Percentile of the gaps between neighboring values, averaged over features.

    Parameters
    ----------
    percent : float
        Between 0 and 100.

    Notes
    -----
    Its part is ``gap`` (R,), float64, in grid steps. It is not private for two or more
    features. A record shifts the ranks of different features differently, so the
    claimed rank sensitivity of 2 (Algorithm 2 and Lemma 1 of the DPM paper) does not
    hold. The charge is marked with that flaw.
    """

    label = "gap_percentile"
    mechanisms: ClassVar[Mechanisms] = {"gap": (Percentile,)}

    percent: float

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and a percentage out of range."""
        source.check_single(self.label)
        if not 0 <= self.percent <= 100:
            raise ValueError(f"percent={self.percent} must be between 0 and 100")

    def sensitivity(self, source: Any) -> Sensitivities:
        """A record changes a rank by 2, as the paper claims, and a difference by 4."""
        return {"gap": ScoreSensitivity(4.0)}

    def exact(self, source: Any) -> Answer:
        """All averaged gaps, and the rank of the percentile."""
        # Rank (n - 1) p / 100 of the sorted gaps; gaps lie between 0 and 2 half-widths.
        gaps = averaged_gaps(tuple(source._shards))
        rank = self.percent / 100 * (source.n_points - 1)
        return {"gap": OrderStatistics(gaps, rank, 2.0 * SCALE)}

    def flaw(self, source: Any) -> str:
        """The flaw of the claimed sensitivity, which holds for one feature only."""
        return "F-13" if source.n_features > 1 else ""


def nearest_sums_and_counts(
    source: Any,
    centers: np.ndarray,
    origins: np.ndarray,
    limit: float | np.ndarray | None = None,
    *,
    fill: bool = False,
) -> Answer:
    """Exact sums about origins (R, k, d), in grid steps, and counts (R, k)."""
    # Ties go to the lower index, for neighbors alike: a record lies in one cell.
    add_up = partial(
        sums_about,
        centers=centers,
        origins=origins,
        max_squared_distance=limit,
        fill=fill,
    )
    sums, counts = source._shards.map_reduce(add_up)
    return {"sums": sums, "counts": counts}


def check_centers(centers: np.ndarray, source: Any) -> None:
    """Refuse centers that are no grid integers near the domain, a set per replicate."""
    # Integer noise would not hide the fractional parts of sums relative to other
    # centers: they depend on the exact counts.
    n_replicates = source.n_replicates
    shape = (n_replicates, "k", source.n_features)
    remedy = f", for {n_replicates} replicates; release them through snap_centers"
    check_grid_integers("centers", centers, shape, remedy)
    # Squared distances are exact up to the limit.
    limit = exact_limit(source.n_features)
    check_range("centers", centers, -limit, limit, remedy)
