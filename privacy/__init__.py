"""Budgets, calibration, mechanisms, noise streams, queries, ledger and curators."""

from pkm.privacy.accountant import AccountedRun, AccountError, PrivacyAccountant
from pkm.privacy.base import BaseCurator, DisclosureError, to_points, to_shards
from pkm.privacy.budget import NO_CLAIM, Adjacency, Budget, PrivacyClaim, Unit
from pkm.privacy.calibration import gaussian_mu, gdp_delta, gdp_epsilon
from pkm.privacy.curator import Curator
from pkm.privacy.grid import MAX_CELLS, SCALE, snap, snap_centers, to_half_widths
from pkm.privacy.ledger import (
    BudgetExceeded,
    Charge,
    Ledger,
    ScheduleError,
    StreamReuseError,
    largest_multiple,
    remaining_epsilon,
)
from pkm.privacy.mechanisms.additive import (
    BoundedLaplace,
    Gaussian,
    Laplace,
    NoiseScaleError,
)
from pkm.privacy.mechanisms.noise import NoiseStreams
from pkm.privacy.mechanisms.selection import (
    Exponential,
    Percentile,
    SplitScore,
    selection_epsilon,
)
from pkm.privacy.mechanisms.stability_histogram import StabilityHistogram
from pkm.privacy.queries.clipped_points import ClippedPoints
from pkm.privacy.queries.clipped_queries import (
    BucketCounts,
    BucketSums,
    CandidateSets,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    SecondMoments,
    Swaps,
)
from pkm.privacy.queries.marginals import DependentColumns, Marginals, WorstApproximated
from pkm.privacy.queries.projection import (
    CoverPicks,
    MaximumCover,
    ProjectedCounts,
    ProjectedPoints,
    ProjectedSumsAndCounts,
)
from pkm.privacy.queries.shells import ClippedSum, ShellCounts, SideCounts
from pkm.privacy.queries.summary import ClusterSummary
from pkm.privacy.queries.sums import (
    CountQuery,
    CountsAndBoundedSums,
    GapPercentile,
    GridCounts,
    RecordCount,
    SumsAndCounts,
    entries_sensitivity,
    mirrored,
)
from pkm.privacy.queries.tree import (
    BoxGrid,
    CellCounts,
    CellSums,
    PartitionTree,
    Splits,
)
from pkm.privacy.query import BlockQuery, Query, Sensitivity

__all__ = [
    "MAX_CELLS",
    "NO_CLAIM",
    "SCALE",
    "AccountError",
    "AccountedRun",
    "Adjacency",
    "BaseCurator",
    "BlockQuery",
    "BoundedLaplace",
    "BoxGrid",
    "BucketCounts",
    "BucketSums",
    "Budget",
    "BudgetExceeded",
    "CandidateSets",
    "CellCounts",
    "CellSums",
    "Charge",
    "ClippedPoints",
    "ClippedSum",
    "ClusterSummary",
    "CountQuery",
    "CountsAndBoundedSums",
    "CoverPicks",
    "Curator",
    "DependentColumns",
    "DisclosureError",
    "Exponential",
    "GapPercentile",
    "Gaussian",
    "GridCounts",
    "Laplace",
    "Ledger",
    "Marginals",
    "MaximumCover",
    "NearestCounts",
    "NearestShells",
    "NearestSumsAndCounts",
    "NoiseScaleError",
    "NoiseStreams",
    "PartitionTree",
    "Percentile",
    "PrivacyAccountant",
    "PrivacyClaim",
    "ProjectedCounts",
    "ProjectedPoints",
    "ProjectedSumsAndCounts",
    "Query",
    "RecordCount",
    "ScheduleError",
    "SecondMoments",
    "Sensitivity",
    "ShellCounts",
    "SideCounts",
    "SplitScore",
    "Splits",
    "StabilityHistogram",
    "StreamReuseError",
    "SumsAndCounts",
    "Swaps",
    "Unit",
    "WorstApproximated",
    "entries_sensitivity",
    "gaussian_mu",
    "gdp_delta",
    "gdp_epsilon",
    "largest_multiple",
    "mirrored",
    "remaining_epsilon",
    "selection_epsilon",
    "snap",
    "snap_centers",
    "to_half_widths",
    "to_points",
    "to_shards",
]
