"""Privacy core: budgets, claims, calibration, mechanisms, noise streams, ledger and curators."""

from pkm.privacy.base import BaseCurator, prepare, shards_of
from pkm.privacy.budget import NO_CLAIM, Adjacency, Budget, PrivacyClaim
from pkm.privacy.calibration import gaussian_mu, gdp_delta, gdp_epsilon
from pkm.privacy.curator import Curator, DisclosureError, noisy_sums_and_counts
from pkm.privacy.grid import MAX_CELLS, SCALE, snap, snap_centers, to_unit
from pkm.privacy.ledger import BudgetExceeded, Charge, Ledger, StreamReuseError, largest_multiple
from pkm.privacy.mechanisms import BoundedLaplace, Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.selection import Exponential, SplitScore
from pkm.privacy.stability_histogram import StabilityHistogram
from pkm.privacy.tree import BoxGrid, PartitionTree

__all__ = [
    "MAX_CELLS",
    "NO_CLAIM",
    "SCALE",
    "Adjacency",
    "BaseCurator",
    "BoundedLaplace",
    "BoxGrid",
    "Budget",
    "BudgetExceeded",
    "Charge",
    "Curator",
    "DisclosureError",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Ledger",
    "NoiseStreams",
    "PartitionTree",
    "PrivacyClaim",
    "SplitScore",
    "StabilityHistogram",
    "StreamReuseError",
    "gaussian_mu",
    "gdp_delta",
    "gdp_epsilon",
    "largest_multiple",
    "noisy_sums_and_counts",
    "prepare",
    "shards_of",
    "snap",
    "snap_centers",
    "to_unit",
]
