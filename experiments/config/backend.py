"""Where and how cells are run, as a checked value."""

from dataclasses import dataclass
from typing import Any, Literal

from pkm.experiments.config.settings import TIME_LIMIT, require
from pkm.scalars import is_integer


@dataclass(frozen=True)
class Backend:
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
        Seconds a cell may take that has no limit of its own. Loading its data and
        searching for reference clusterings are not counted. Cells with a limit are run
        in a worker process, which is killed when the time is over.
    retries : int, default=1
        How often a failed cell is tried again within one run. A cell over its time
        limit, or whose worker died, is not; dask runs the cells of a dead worker again,
        up to three times.
    scheduler : str, optional
        Address of a dask scheduler; by default dask starts `jobs` workers on this
        machine.
    """

    name: Literal["serial", "processes", "dask"] = "serial"
    jobs: int = 1
    threads: int = 1
    time_limit: float | None = None
    retries: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        names = ("serial", "processes", "dask")
        require(self.name in names, "backend", self.name, f"one of {', '.join(names)}")
        for name, minimum in (("jobs", 1), ("threads", 1), ("retries", 0)):
            value = getattr(self, name)
            holds = is_integer(value) and value >= minimum
            require(holds, name, value, f"a whole number of at least {minimum}")
        require(
            TIME_LIMIT.holds(self.time_limit),
            "time_limit",
            self.time_limit,
            TIME_LIMIT.text,
        )
        if self.name != "dask":
            require(
                self.scheduler is None,
                "scheduler",
                self.scheduler,
                "null unless backend=dask",
            )
        elif self.scheduler is not None:
            holds = isinstance(self.scheduler, str) and "://" in self.scheduler
            require(
                holds,
                "scheduler",
                self.scheduler,
                "an address such as tcp://192.0.2.1:8786",
            )

    def limit_of(self, cell: Any) -> float | None:
        """Return the seconds that a cell may take: its limit, else the backend's."""
        return self.time_limit if cell.time_limit is None else cell.time_limit
