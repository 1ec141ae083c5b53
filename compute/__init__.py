"""Compiled kernels, and functions of arrays and of points on the grid.

Coordinates of points are integers in float32. Sums, counts and squared distances are
computed exactly if all coordinates are integers within :func:`exact_limit`. They then
do not depend on block size, order of points, or number of threads. Other numbers are
rounded, such as those of shells, projections, weighted Lloyd's steps and silhouettes.
"""

from pkm.compute import compilation as compilation
from pkm.compute.kernels.grid_codes import (
    averaged_gaps,
    cell_counts,
    digitize,
    histogram,
    hyperplane_sides,
    stable_partition,
)
from pkm.compute.kernels.lloyd import converged_lloyd, weighted_lloyd
from pkm.compute.kernels.nearest import (
    inertia,
    labels,
    sums_and_counts,
)
from pkm.compute.kernels.rounding import add_rounded
from pkm.compute.kernels.seeding import exponential_race, largest_packing
from pkm.compute.kernels.silhouette import (
    cluster_means,
    distance_tiles,
    mean_silhouettes,
    mean_within_distances,
)
from pkm.compute.storage.points import (
    DIRECTION_SCALE,
    SCALE,
    Points,
    exact_limit,
    middle_and_half_width,
)
from pkm.compute.storage.symlog import Symlog

__all__ = [
    "DIRECTION_SCALE",
    "SCALE",
    "Points",
    "Symlog",
    "add_rounded",
    "averaged_gaps",
    "cell_counts",
    "cluster_means",
    "converged_lloyd",
    "digitize",
    "distance_tiles",
    "exact_limit",
    "exponential_race",
    "histogram",
    "hyperplane_sides",
    "inertia",
    "labels",
    "largest_packing",
    "mean_silhouettes",
    "mean_within_distances",
    "middle_and_half_width",
    "stable_partition",
    "sums_and_counts",
    "weighted_lloyd",
]
