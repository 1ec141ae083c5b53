"""Privacy core: budget, claim, calibration, mechanisms, noise streams, ledger, curator."""

from privacy.budget import NO_CLAIM, Adjacency, Budget, PrivacyClaim
from privacy.calibration import gaussian_mu, gdp_delta, gdp_epsilon
from privacy.curator import Curator, Disclosure, noisy_sums_and_counts, prepare, shards_of
from privacy.grid import SCALE, snap, snap_centres, to_unit
from privacy.ledger import BudgetExceeded, Charge, Ledger, StreamReuse, largest_multiple
from privacy.mechanisms import BoundedLaplace, Gaussian, Laplace
from privacy.noise import NoiseStreams
from privacy.partition import Grid, Partition
from privacy.selection import Exponential, SplitScore
from privacy.thresholding import Thresholded

__all__ = [
    "NO_CLAIM", "SCALE", "Adjacency", "BoundedLaplace", "Budget", "BudgetExceeded", "Charge", "Curator", "Disclosure",
    "Exponential", "Gaussian", "Grid", "Laplace", "Ledger", "NoiseStreams", "Partition", "PrivacyClaim", "SplitScore",
    "StreamReuse", "Thresholded", "gaussian_mu", "gdp_delta", "gdp_epsilon", "largest_multiple",
    "noisy_sums_and_counts", "prepare", "shards_of", "snap", "snap_centres", "to_unit",
]  # fmt: skip
