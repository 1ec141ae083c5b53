"""Masked secure aggregation: clients keep their points, the server gets masked sums."""

from pkm.federation.curator import FederatedCurator
from pkm.federation.keys import Identity
from pkm.federation.launch import mpi_available, mpirun
from pkm.federation.links import ProtocolError
from pkm.federation.masks import Masks
from pkm.federation.parties import FederationCosts, Network, run_in_threads
from pkm.federation.ring import Ring
from pkm.federation.splits import SPLITS, split_points

__all__ = [
    "SPLITS",
    "FederatedCurator",
    "FederationCosts",
    "Identity",
    "Masks",
    "Network",
    "ProtocolError",
    "Ring",
    "mpi_available",
    "mpirun",
    "run_in_threads",
    "split_points",
]
