"""Privacy core: budgets, claims, calibration, mechanisms, noise streams, ledger and curators."""

from pkm.privacy.account import Account, AccountedRun, AccountError
from pkm.privacy.base import BaseCurator, DisclosureError, prepare, shards_of
from pkm.privacy.budget import NO_CLAIM, Adjacency, Budget, PrivacyClaim
from pkm.privacy.calibration import gaussian_mu, gdp_delta, gdp_epsilon
from pkm.privacy.curator import Curator
from pkm.privacy.grid import MAX_CELLS, SCALE, snap, snap_centers, to_unit
from pkm.privacy.hashed_points import (
    BucketCounts,
    BucketSums,
    CandidateSets,
    HashedPoints,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    SecondMoments,
    Swaps,
)
from pkm.privacy.ledger import (
    BudgetExceeded,
    Charge,
    Ledger,
    ScheduleError,
    StreamReuseError,
    largest_multiple,
    remaining_epsilon,
)
from pkm.privacy.marginals import DependentColumns, Marginals, WorstApproximated
from pkm.privacy.mechanisms import BoundedLaplace, Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.projection import (
    CoverPicks,
    MaximumCover,
    ProjectedCounts,
    ProjectedPoints,
    ProjectedSumsAndCounts,
)
from pkm.privacy.queries import (
    CountsAndBoundedSums,
    GapPercentile,
    GridCounts,
    SumsAndCounts,
    mirrored,
)
from pkm.privacy.query import Query, Sensitivity
from pkm.privacy.selection import Exponential, Percentile, SplitScore, selection_epsilon
from pkm.privacy.shells import ClippedSum, ShellCounts, SideCounts
from pkm.privacy.stability_histogram import StabilityHistogram
from pkm.privacy.tree import BoxGrid, CellCounts, CellSums, PartitionTree, Splits

__all__ = [
    "MAX_CELLS",
    "NO_CLAIM",
    "SCALE",
    "Account",
    "AccountError",
    "AccountedRun",
    "Adjacency",
    "BaseCurator",
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
    "ClippedSum",
    "CountsAndBoundedSums",
    "CoverPicks",
    "Curator",
    "DependentColumns",
    "DisclosureError",
    "Exponential",
    "GapPercentile",
    "Gaussian",
    "GridCounts",
    "HashedPoints",
    "Laplace",
    "Ledger",
    "Marginals",
    "MaximumCover",
    "NearestCounts",
    "NearestShells",
    "NearestSumsAndCounts",
    "NoiseStreams",
    "PartitionTree",
    "Percentile",
    "PrivacyClaim",
    "ProjectedCounts",
    "ProjectedPoints",
    "ProjectedSumsAndCounts",
    "Query",
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
    "WorstApproximated",
    "gaussian_mu",
    "gdp_delta",
    "gdp_epsilon",
    "largest_multiple",
    "mirrored",
    "prepare",
    "remaining_epsilon",
    "selection_epsilon",
    "shards_of",
    "snap",
    "snap_centers",
    "to_unit",
]
