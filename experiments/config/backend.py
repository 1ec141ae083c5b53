"""Where and how cells are run, as a checked value."""

from dataclasses import dataclass
from typing import Any

from pkm.experiments.config.settings import (
    TIME_LIMIT,
    Rule,
    Settings,
    at_least,
    checked_field,
    one_of,
    require,
)

NAME = one_of("serial", "processes", "dask")
ADDRESS = Rule(
    lambda value: value is None or (isinstance(value, str) and "://" in value),
    "an address such as tcp://192.0.2.1:8786",
)


@dataclass(frozen=True)
class Backend(Settings):
    """How cells are run.

    Parameters
    ----------
    name : {"serial", "processes", "dask"}
        In this process, in `jobs` worker processes (in this one where ``jobs=1``), or
        on a cluster of dask (see `pkm.experiments.backends.dask_cells`).
    jobs : int, default=1
        Largest number of worker processes; there are never more than chunks of cells.
    threads : int, default=1
        Threads of BLAS, OpenMP and numba inside each process.
    time_limit : float, optional
        Seconds that a cell without a limit may take. Loading its data and searching for
        reference clusterings are not counted. Cells with a limit are run in a worker
        process, which is killed when the time is over.
    retries : int, default=1
        How often a failed cell is tried again within one run. A cell over its time
        limit, or whose worker died, is not; dask runs the cells of a dead worker again,
        up to three times.
    scheduler : str, optional
        Address of a dask scheduler; by default dask starts `jobs` workers on this
        machine.
    """

    name: str = "serial"
    jobs: int = checked_field(1, at_least(1))
    threads: int = checked_field(1, at_least(1))
    time_limit: float | None = checked_field(None, TIME_LIMIT)
    retries: int = checked_field(1, at_least(0))
    scheduler: str | None = checked_field(None, ADDRESS)

    def __post_init__(self) -> None:
        NAME.require("backend", self.name)
        super().__post_init__()
        holds = self.name == "dask" or self.scheduler is None
        rule = "left out unless backend=dask"
        require(holds, "scheduler", self.scheduler, rule)

    def find_limit(self, cell: Any) -> float | None:
        """Return the seconds that a cell may take: its limit, else the backend's."""
        return self.time_limit if cell.time_limit is None else cell.time_limit
