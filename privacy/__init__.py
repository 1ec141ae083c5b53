"""Privacy core: budget, claim, calibration, mechanisms, noise streams, ledger, curator."""

from privacy.budget import NO_CLAIM, Adjacency, Budget, PrivacyClaim
from privacy.calibration import gaussian_mu, gdp_delta, gdp_epsilon
from privacy.curator import Curator, Disclosure, prepare, shards_of
from privacy.grid import SCALE, snap, snap_centres, to_unit
from privacy.ledger import BudgetExceeded, Charge, Ledger, StreamReuse
from privacy.mechanisms import Gaussian, Laplace
from privacy.noise import NoiseStreams

__all__ = [
    "NO_CLAIM", "SCALE", "Adjacency", "Budget", "BudgetExceeded", "Charge", "Curator", "Disclosure", "Gaussian",
    "Laplace", "Ledger", "NoiseStreams", "PrivacyClaim", "StreamReuse", "gaussian_mu", "gdp_delta", "gdp_epsilon",
    "prepare", "shards_of", "snap", "snap_centres", "to_unit",
]  # fmt: skip
