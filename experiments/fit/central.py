"""Cells without parties: seeds fitted as one batch or, to be timed, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pkm.experiments.cell.kind import Fits, Kind
from pkm.experiments.config.settings import Rule, as_list, one_of, require, setting
from pkm.experiments.fit.timing import Timing, timer
from pkm.scalars import is_number

if TYPE_CHECKING:
    from pkm.experiments.cell.cell import Cell
    from pkm.experiments.fit.inputs import Prepared, ResolvedCell
    from pkm.methods import PrivateKMeans, Run

FACTOR = Rule(
    lambda value: is_number(value) and 1 <= value <= 1e6,
    "a number from 1 to 1,000,000",
)
#: Which records of a data set take the part of public data.
PUBLIC_DATA = one_of("same", "shifted")


@dataclass(frozen=True)
class Central(Kind):
    """Fits by one curator of all points.

    Parameters
    ----------
    bounds_factor : float, default=1
        How many times as wide as the data set's bounds those are that the method gets,
        about the same middle. Results are in half-widths of the data set's own.
    """

    key = "bounds_factor"

    bounds_factor: float = setting(1.0, FACTOR)

    @classmethod
    def expand(cls, value: Any) -> list[Self]:
        """Read one factor or a list; a sweep that asks for no kind gets this one."""
        return [cls(factor) for factor in as_list(1.0 if value is None else value)]

    def check_cell(self, cell: "Cell") -> None:
        """Refuse public data that are no part of a published data set."""
        public_data = cell.params.get("public_data")
        if public_data is not None:
            holds = PUBLIC_DATA.holds(public_data) and cell.dataset != "file"
            rule = f"null or {PUBLIC_DATA.text}; null for a file, which is private"
            require(holds, "public_data", public_data, rule)

    def fit(self, resolved: "ResolvedCell") -> Fits:
        """Fit the seeds as one batch; in a cell that measures time, one by one."""
        from pkm.experiments.fit.public_records import separated

        cell, method, data = resolved.cell, resolved.method, resolved.data
        public_data = cell.params.get("public_data")
        if public_data is not None:
            data, public_points = separated(data, public_data)
            method.set_params(public_data=public_points)
        return fit_seeds(method, data, resolved.seeds, alone=cell.timing), {}


def fit_seeds(
    method: "PrivateKMeans",
    data: "Prepared",
    seeds: Sequence[int],
    *,
    alone: bool,
) -> "list[tuple[Run, Timing]]":
    """Fit all seeds, as one batch or each alone.

    Before fits alone a first one is made and discarded, so that compilation and first
    accesses to memory are not in the measured times; what is cached of the points is
    dropped before each fit.

    Returns
    -------
    list of (Run, Timing)
        One per call of the method.
    """
    # Whoever runs the cell has said where noise comes from.
    fit_batch = partial(
        method.fit_batch, data.wide, domain=data.wide_domain, secure=method.secure
    )
    if alone:
        fit_batch(seeds=seeds[:1])
    fits = []
    batches = [(seed,) for seed in seeds] if alone else [seeds]
    for batch in batches:
        if alone:
            data.wide.cache.clear()
        with timer() as elapsed:
            run = fit_batch(seeds=batch)
        fits.append((in_own_bounds(run, data.bounds_factor), elapsed))
    return fits


def in_own_bounds(run: "Run", bounds_factor: float) -> "Run":
    """Return a run with its centers in grid steps of the data set's own bounds."""
    from pkm.privacy import SCALE, snap_centers

    if bounds_factor == 1:
        return run
    centers = snap_centers(run.positions * (bounds_factor * SCALE))
    return replace(run, centers=centers, remainders=None)
