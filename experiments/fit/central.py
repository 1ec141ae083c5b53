"""Cells without parties: seeds fitted as one batch or, to be timed, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pkm.experiments.cell.kind import FitResults, Kind
from pkm.experiments.config.settings import (
    Rule,
    checked_field,
    one_of,
    require,
    to_list,
)
from pkm.experiments.fit.timing import Timing, timer
from pkm.scalars import is_number

if TYPE_CHECKING:
    from pkm.experiments.cell.cell import Cell
    from pkm.experiments.fit.inputs import PreparedData, ResolvedCell
    from pkm.methods import PrivateKMeans, Run
    from pkm.privacy.ledger import Charge

FACTOR = Rule(
    lambda value: is_number(value) and 1 <= value <= 1e6,
    "a number from 1 to 1,000,000",
)
#: How the records are chosen that serve as public data.
PUBLIC_DATA = one_of("same", "shifted")


@dataclass(frozen=True)
class Central(Kind):
    """All points are with one curator.

    Parameters
    ----------
    bounds_factor : float, default=1
        Width of the method's bounds divided by that of the data set's own, about the
        same middle. Results are in half-widths of the data set's own bounds.
    """

    key = "bounds_factor"
    serves_persons = True

    bounds_factor: float = checked_field(1.0, FACTOR)

    @classmethod
    def from_sweep(cls, value: Any) -> list[Self]:
        """Read one factor or a list; this kind is the default."""
        return [cls(factor) for factor in to_list(1.0 if value is None else value)]

    def check_cell(self, cell: "Cell") -> None:
        """Refuse public data that are not part of a published data set."""
        public_data = cell.params.get("public_data")
        if public_data is not None:
            holds = PUBLIC_DATA.holds(public_data) and cell.dataset != "file"
            rule = f"null or {PUBLIC_DATA.text}; null for a file, which is private"
            require(holds, "public_data", public_data, rule)

    def fit(self, resolved: "ResolvedCell") -> FitResults:
        """Fit the seeds as one batch; in a cell that measures time, one by one."""
        from pkm.experiments.fit.public_records import separate_public

        cell, method, data = resolved.cell, resolved.method, resolved.data
        public_data = cell.params.get("public_data")
        if public_data is not None:
            data, public_points = separate_public(data, public_data)
            method.set_params(public_data=public_points)
        schedule = None
        if cell.account is not None:
            shape = data.points.n_records, data.points.shape[1]
            schedule = method.planned_run(*shape, resolved.seeds).schedule
        fits = fit_seeds(
            method,
            data,
            resolved.seeds,
            one_by_one=cell.timing,
            schedule=schedule,
        )
        return fits, {}


def fit_seeds(
    method: "PrivateKMeans",
    data: "PreparedData",
    seeds: Sequence[int],
    *,
    one_by_one: bool,
    schedule: "Sequence[Charge] | None" = None,
) -> "list[tuple[Run, Timing]]":
    """Fit all seeds, as one batch or one by one.

    Where n is secret, every replicate has charges of its own: they are fitted one by
    one, too.

    One by one, a first fit is discarded, so that compilation and first accesses to
    memory are not in the measured times. Each fit starts with an empty cache of the
    points.

    Returns
    -------
    list of (Run, Timing)
        One per call of the method.
    """
    # Whoever runs the cell has said where noise comes from.
    fit_batch = partial(
        method.fit_batch,
        data.method_points,
        domain=data.method_domain,
        secure=method.secure,
        schedule=schedule,
    )
    if one_by_one:
        fit_batch(seeds=seeds[:1])
    fits = []
    is_single = one_by_one or method.hides_n
    for batch in [(seed,) for seed in seeds] if is_single else [seeds]:
        if one_by_one:
            data.method_points.cache.clear()
        with timer() as elapsed:
            run = fit_batch(seeds=batch)
        fits.append((rescale_to_domain(run, data.bounds_factor), elapsed))
    return fits


def rescale_to_domain(run: "Run", bounds_factor: float) -> "Run":
    """Return a run with centers in grid steps of the data set's bounds."""
    from pkm.privacy import SCALE, snap_centers

    if bounds_factor == 1:
        return run
    centers = snap_centers(run.positions * (bounds_factor * SCALE))
    return replace(run, centers=centers, remainders=None)
