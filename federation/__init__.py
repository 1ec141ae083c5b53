"""Masked secure aggregation: the same methods, run by clients that keep their points and a server that sees nothing."""

from federation.curator import FederatedCurator
from federation.launch import mpi_at_hand, mpirun
from federation.links import ProtocolError
from federation.masks import Masks
from federation.parties import Measured, Setting, run_in_threads
from federation.ring import Ring
from federation.splits import SPLITS, parts_of

__all__ = [
    "SPLITS", "FederatedCurator", "Masks", "Measured", "ProtocolError", "Ring", "Setting", "mpi_at_hand", "mpirun",
    "parts_of", "run_in_threads",
]  # fmt: skip
