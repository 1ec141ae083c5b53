"""Privacy core: budget, claim, calibration, mechanisms, noise streams, ledger, curator."""

from pkm.privacy.budget import NO_CLAIM, Adjacency, Budget, PrivacyClaim
from pkm.privacy.calibration import gaussian_mu, gdp_delta, gdp_epsilon
from pkm.privacy.curator import Curator, Disclosure, noisy_sums_and_counts, prepare, shards_of
from pkm.privacy.grid import SCALE, snap, snap_centres, to_unit
from pkm.privacy.ledger import BudgetExceeded, Charge, Ledger, StreamReuse, largest_multiple
from pkm.privacy.mechanisms import BoundedLaplace, Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.partition import Grid, Partition
from pkm.privacy.selection import Exponential, SplitScore
from pkm.privacy.thresholding import Thresholded

__all__ = [
    "NO_CLAIM", "SCALE", "Adjacency", "BoundedLaplace", "Budget", "BudgetExceeded", "Charge", "Curator", "Disclosure",
    "Exponential", "Gaussian", "Grid", "Laplace", "Ledger", "NoiseStreams", "Partition", "PrivacyClaim", "SplitScore",
    "StreamReuse", "Thresholded", "gaussian_mu", "gdp_delta", "gdp_epsilon", "largest_multiple",
    "noisy_sums_and_counts", "prepare", "shards_of", "snap", "snap_centres", "to_unit",
]  # fmt: skip
