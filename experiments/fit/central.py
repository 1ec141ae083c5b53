"""A cell without parties: seeds fitted as one batch or, to be timed, one by one."""

from collections.abc import Sequence
from dataclasses import replace

from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.inputs import Prepared, build
from pkm.experiments.fit.public_records import separated
from pkm.experiments.fit.timing import Timing, timer
from pkm.methods import PrivateKMeans, Run
from pkm.privacy import SCALE, snap_centers


def fits_of(
    cell: Cell, prepared: Prepared, mirror: str | None
) -> tuple[list[tuple[Run, Timing]], dict]:
    """Fit a cell's seeds.

    Parameters
    ----------
    cell : Cell
        One with neither `federation` nor `unlearning`.
    prepared : Prepared
        Its data.
    mirror : str or None
        Not used: the data are loaded.

    Returns
    -------
    fits : list of (Run, Timing)
        One per call of the method.
    columns : dict
        Empty.
    """
    method = build(cell)
    if cell.public_data is not None:
        prepared, public = separated(prepared, cell.public_data)
        method.set_params(public_data=public)
    return timed_fits(method, prepared, cell.seeds, alone=cell.timing), {}


def timed_fits(
    method: PrivateKMeans, prepared: Prepared, seeds: Sequence[int], *, alone: bool
) -> list[tuple[Run, Timing]]:
    """Fit all seeds, as one batch or each alone.

    Before fits alone a first one is made and discarded, so that compilation and first accesses to
    memory are not in the measured times; what is cached of the points is dropped before each fit.

    Returns
    -------
    list of (Run, Timing)
        One per call of the method.
    """
    if alone:
        method.fit_batch(prepared.wide, seeds[:1], domain=prepared.wide_domain)
    fits = []
    batches = [(seed,) for seed in seeds] if alone else [seeds]
    for batch in batches:
        if alone:
            prepared.wide.derived.clear()
        with timer() as elapsed:
            run = method.fit_batch(prepared.wide, batch, domain=prepared.wide_domain)
        fits.append((in_own_bounds(run, prepared.bounds_factor), elapsed))
    return fits


def in_own_bounds(run: Run, bounds_factor: float) -> Run:
    """Return a run with its centers in grid steps of the data set's own bounds."""
    if bounds_factor == 1:
        return run
    centers = snap_centers(run.positions * (bounds_factor * SCALE))
    return replace(run, centers=centers, remainders=None)
