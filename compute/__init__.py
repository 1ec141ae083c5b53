"""The few hot loops: plain arrays in, plain arrays out.

All coordinates are integers held in float64 and small enough that every product and sum below is exact
(see :func:`exact_limit`), so results do not depend on block size, order of points, or number of threads.
"""

from pkm.compute.grid_codes import (
    averaged_gaps,
    column_sums,
    divide,
    encode,
    forget,
    histogram,
    signs,
)
from pkm.compute.lloyd import weighted_lloyd
from pkm.compute.nearest import SCALE, Points, exact_limit, inertia, labels, sums_and_counts
from pkm.compute.packing import largest_packing
from pkm.compute.seeding import nearest_row, race
from pkm.compute.silhouette import cluster_means, distance_tiles, mean_silhouettes, mean_spreads

__all__ = [
    "SCALE",
    "Points", "averaged_gaps", "cluster_means", "column_sums", "distance_tiles", "divide", "encode", "exact_limit",
    "forget", "histogram", "inertia", "labels", "largest_packing", "mean_silhouettes", "mean_spreads",
    "nearest_row", "race", "signs", "sums_and_counts",
    "weighted_lloyd",
]  # fmt: skip
