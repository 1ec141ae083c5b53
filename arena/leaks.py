"""Does a method use more of the points than its releases? A cell on other points.

The audit attacks a method on few points. A method may read points where there are many.
So a cell is run as it is and again on other points, and every release of the second run
gives what it gave in the first. Then nothing that a sound method does can differ: its
queries, its charges, its centers.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pkm.audit.replay import (
    Draw,
    RecordingStreams,
    ReplayMismatch,
    Trace,
    compare_traces,
    make_tracing_curator,
    observe,
)
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.inputs import resolve_cell


def find_leak(cell: Cell, data_dir: str | None = None) -> str:
    """Compare the first seed of a cell with a run on other points.

    Parameters
    ----------
    cell : Cell
    data_dir : str, optional
        Folder with original data files.

    Returns
    -------
    str
        What differs although all releases are equal; empty if nothing does, or if the
        method claims no privacy.
    """
    cell = replace(cell, seeds=cell.seeds[:1])
    if not resolve_cell(cell, data_dir).method.claim.private:
        return ""
    recorded = trace_cell(cell, data_dir)
    try:
        repeated = trace_cell(cell, data_dir, recorded.draws)
    except ReplayMismatch as mismatch:
        return str(mismatch)
    return compare_traces(recorded, repeated)


def trace_cell(
    cell: Cell,
    data_dir: str | None,
    recorded: Sequence[Draw] | None = None,
) -> Trace:
    """Run a cell and write down what it does.

    With `recorded` draws, which are forced, the points are others.
    """
    resolved = resolve_cell(cell, data_dir)
    method = resolved.method
    trace = Trace()
    curator = make_tracing_curator(method.curator, trace, recorded)
    method.curator = curator if recorded is None else move_points(curator)
    with observe(trace.observed):
        fits, _ = cell.kind.fit(resolved)
        # As bytes: a difference is reported without values.
        trace.observed["centers"] = b"".join(run.centers.tobytes() for run, _ in fits)
    return trace


def move_points(curator: type) -> type:
    """Derive a curator that holds other points than it gets, as many."""

    class MovingCurator(curator):
        """Moves the points of the whole domain, not those of views on it."""

        def __init__(
            self, shards: Any, ledger: Any, streams: Any, domain: Any = None
        ) -> None:
            if not isinstance(streams, RecordingStreams):
                shards = [move(shard) for shard in shards]
            super().__init__(shards, ledger, streams, domain)

    return MovingCurator


def move(points: Any) -> Any:
    """Mirror points on the grid at the middle of the domain, at half the distance."""
    rows = np.rint(points.rows / -2)
    return type(points).from_grid(rows, n_null=points.n_null)
