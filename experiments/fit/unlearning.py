"""Cells as federated clustering with exact removals."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pkm.experiments.cell.kind import FitResults, Kind
from pkm.experiments.config.settings import (
    FLAG,
    at_least,
    checked_field,
    expand_settings,
    one_of,
    require,
)

if TYPE_CHECKING:
    from pkm.experiments.cell.cell import Cell
    from pkm.experiments.fit.inputs import ResolvedCell

CLIENT_SPLITS = ("published", "noniid", "iid")
REQUESTS = ("random", "adversarial", "clients")
#: Seconds of a model, and of each request to remove points, with its measurements.
SECONDS_PER_MODEL = 0.1
SECONDS_PER_REQUEST = 0.05


@dataclass(frozen=True)
class Unlearning(Kind):
    """Federated clustering, and requests to remove points.

    Parameters
    ----------
    clients : int, default=100
    split : {"published", "noniid", "iid"}, default="noniid"
        The data set's own, or see `pkm.federation.splits`.
    clusters_per_client : int, default=3
        Clusters that a client's points are from, where the split is noniid.
    split_seed : int, default=0
    removals : int, default=0
        Requests to remove points, one after the other.
    batch : int, default=1
        Points of a request, or clients where these are requested.
    requests : {"random", "adversarial", "clients"}, default="random"
        Which points are requested: any of a client, those of highest cost, or all
        points of random clients.
    sparse : bool, default=False
        Whether sparse aggregation is measured.
    """

    key = "unlearning"
    help = (
        "Clients and removals; any value given makes a run one. "
        "One value or a list each."
    )

    clients: int = checked_field(100, at_least(1))
    split: str = checked_field("noniid", one_of(*CLIENT_SPLITS))
    clusters_per_client: int = checked_field(3, at_least(1))
    split_seed: int = checked_field(0, at_least(0))
    removals: int = checked_field(0, at_least(0))
    batch: int = checked_field(1, at_least(1))
    requests: str = checked_field("random", one_of(*REQUESTS))
    sparse: bool = checked_field(False, FLAG)

    @classmethod
    def from_sweep(cls, value: Any) -> list[Self]:
        """Read a mapping of lists."""
        return expand_settings(cls.key, cls, value)

    def describe(self) -> list[str]:
        """Say how points are split, and how many are removed."""
        removals = f", {self.removals} {self.requests} removals of {self.batch}"
        return [f"{self.split} clients" + (removals if self.removals else "")]

    def check_cell(self, cell: "Cell") -> None:
        """Refuse removals in a cell that does not measure time."""
        holds = cell.timing or not self.removals
        require(holds, "timing", cell.timing, "true for a cell with removals")

    def check_method(
        self,
        cell: "Cell",
        method: Any,
        n: int | None,
        d: int | None,
    ) -> None:
        """Refuse a method that cannot do what is requested."""
        from pkm.experiments.fit.clients import check_method

        check_method(self, cell.method, method, n)

    def fit(self, resolved: "ResolvedCell") -> FitResults:
        """Fit and serve removals seed by seed, after a fit that is discarded."""
        from pkm.experiments.fit.clients import fit_seeds

        return fit_seeds(resolved, self)

    def seconds_per_fit(self) -> float:
        """Estimate the seconds of a model and of its requests."""
        return SECONDS_PER_MODEL + SECONDS_PER_REQUEST * self.removals
