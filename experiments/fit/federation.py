"""Cells as a protocol: every seed is a run between clients and a server."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pkm.experiments.cell.kind import FitResults, Kind
from pkm.experiments.config.settings import (
    Rule,
    at_least,
    checked_field,
    expand_settings,
    one_of,
    require,
)
from pkm.scalars import is_number

if TYPE_CHECKING:
    from pkm.experiments.cell.cell import Cell
    from pkm.experiments.fit.inputs import ResolvedCell

#: The names of `pkm.federation.SPLITS`, repeated so that help texts need no import.
SPLITS = ("balanced", "unbalanced", "sorted")
LATENCY = Rule(
    lambda value: is_number(value) and 0 <= value < 60_000,
    "a number of milliseconds, at least 0 and below 60000",
)
#: Seconds to start the process of a party, and the most iterations of the papers'
#: rules.
SECONDS_PER_PROCESS = 1.5
MAX_ITERATIONS = 7


@dataclass(frozen=True)
class Federation(Kind):
    """A protocol between clients and a server.

    Parameters
    ----------
    clients : int, default=2
    latency_ms : float, default=0.0
        Simulated latency of a message.
    word_bytes : {4, 8}, default=8
        Size of a word of masked messages.
    split : {"balanced", "unbalanced", "sorted"}, default="balanced"
        See `pkm.federation.split_points`.
    transport : {"auto", "threads", "mpi"}, default="auto"
        Parties are threads, or processes under MPI; a sweep replaces ``"auto"`` by what
        is installed.

    Examples
    --------
    >>> Federation(word_bytes=2)
    Traceback (most recent call last):
        ...
    ValueError: word_bytes=2 is not allowed: word_bytes must be one of 4, 8
    """

    key = "federation"
    help = (
        "Parties of a protocol; any value given makes a run one. "
        "One value or a list each."
    )

    clients: int = checked_field(2, at_least(1))
    latency_ms: float = checked_field(0.0, LATENCY)
    word_bytes: int = checked_field(8, one_of(4, 8))
    split: str = checked_field("balanced", one_of(*SPLITS))
    transport: str = checked_field("auto", one_of("auto", "threads", "mpi"))

    @classmethod
    def from_sweep(cls, value: Any) -> list[Self]:
        """Read a mapping of lists; transport auto becomes what is installed."""
        from pkm.federation import mpi_available

        installed = "mpi" if mpi_available() else "threads"
        return [
            replace(kind, transport=installed) if kind.transport == "auto" else kind
            for kind in expand_settings(cls.key, cls, value)
        ]

    def describe(self) -> list[str]:
        """Say how many clients there are, and the latency."""
        return [f"{self.clients} clients, {self.latency_ms:g} ms"]

    def unavailable(self) -> str | None:
        """Say what is missing to run parties as separate processes."""
        from pkm.federation import mpi_available

        if self.transport == "mpi" and not mpi_available():
            return "transport=mpi needs mpi4py and mpirun: make protocol"
        return None

    def check_cell(self, cell: "Cell") -> None:
        """Refuse transport auto, and a cell that does not measure time."""
        is_decided = self.transport != "auto"
        require(is_decided, "transport", self.transport, "threads or mpi in a cell")
        require(cell.timing, "timing", cell.timing, "true for a cell with federation")

    def check_method(
        self,
        cell: "Cell",
        method: Any,
        n: int | None,
        d: int | None,
    ) -> None:
        """Refuse a method whose messages do not fit into words of that size."""
        from pkm.experiments.fit.protocol import make_network
        from pkm.federation.parties import get_rounds

        super().check_method(cell, method, n, d)
        if n is not None and d is not None:
            get_rounds(method, n, d, make_network(self))

    def fit(self, resolved: "ResolvedCell") -> FitResults:
        """Run the seeds one by one, after a run of the first one that is discarded."""
        from pkm.experiments.fit.protocol import fit_seeds

        return fit_seeds(resolved, self)

    def fixed_seconds(self) -> float:
        """Estimate the seconds until all processes have started."""
        n_processes = self.clients + 1 if self.transport == "mpi" else 0
        return SECONDS_PER_PROCESS * n_processes

    def seconds_per_fit(self) -> float:
        """Estimate the seconds of a fit in which messages are in transit."""
        return MAX_ITERATIONS * 2 * self.latency_ms / 1000
