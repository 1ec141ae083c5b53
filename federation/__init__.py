"""Masked secure aggregation: the same methods, run by clients that keep their points and a server that sees nothing."""

from pkm.federation.curator import FederatedCurator
from pkm.federation.launch import mpi_at_hand, mpirun
from pkm.federation.links import ProtocolError
from pkm.federation.masks import Masks
from pkm.federation.parties import Measured, Setting, run_in_threads
from pkm.federation.ring import Ring
from pkm.federation.splits import SPLITS, parts_of

__all__ = [
    "SPLITS", "FederatedCurator", "Masks", "Measured", "ProtocolError", "Ring", "Setting", "mpi_at_hand", "mpirun",
    "parts_of", "run_in_threads",
]  # fmt: skip
