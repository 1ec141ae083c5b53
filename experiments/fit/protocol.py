"""Runs of a protocol for the seeds of a cell.

Parties are threads of this process, or processes under mpirun.
"""

import math
import pickle
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pkm.experiments.cell.kind import FitResults
from pkm.experiments.fit.inputs import ResolvedCell, resolve_cell
from pkm.experiments.fit.threads import limit_threads
from pkm.experiments.fit.timing import Timing
from pkm.federation import (
    FederationCosts,
    Network,
    ProtocolError,
    mpirun,
    run_in_threads,
    split_points,
)
from pkm.methods import Run
from pkm.schema import names

#: Seconds that a failed party waits before it ends the job, so that others can report.
REPORT_SECONDS = 1.0
#: Time limits of a message that a job of processes gets to start and to end.
STARTUP_ALLOWANCE = 10


def make_network(kind: Any) -> Network:
    """Make the network settings that all parties of a cell's runs share."""
    return Network(
        kind.clients,
        word_bytes=kind.word_bytes,
        latency=kind.latency_ms / 1000,
    )


def fit_seeds(resolved: ResolvedCell, kind: Any) -> FitResults:
    """Run a cell's seeds one by one, after a run of the first one that is discarded.

    Returns
    -------
    fits : list of (Run, Timing)
        One per seed; wall clock from the first message to the last center, no CPU time.
    columns : dict of str to list
        What was measured, one value per seed.

    Raises
    ------
    federation.ProtocolError
        Naming the party that failed.
    ValueError
        If the method cannot be run as a protocol.
    """
    run_parties = run_with_processes if kind.transport == "mpi" else run_with_threads
    outcomes = run_parties(resolved, kind)
    fits = []
    for run, costs in outcomes:
        milliseconds = costs.setup_ms + costs.iterations * costs.iteration_ms
        fits.append((run, Timing(milliseconds / 1000, math.nan)))
    columns = {
        name: [float(getattr(costs, name)) for _, costs in outcomes]
        for name in names("metric", scope="federation")
    }
    return fits, columns


def run_with_threads(
    resolved: ResolvedCell, kind: Any
) -> list[tuple[Run, FederationCosts]]:
    """Run a cell's seeds with the parties as threads of this process."""
    data = resolved.data
    network = make_network(kind)
    outcomes = []
    for seed in add_warm_up(resolved):
        parts = split_points(data.points, network.n_clients, seed, kind.split)
        outcome = run_in_threads(
            resolved.method,
            parts,
            [seed],
            data.domain,
            network=network,
            allow_seeded_noise=True,
        )
        outcomes.append(outcome)
    return outcomes[1:]


def add_warm_up(resolved: ResolvedCell) -> tuple[int, ...]:
    """Return the seeds of a cell, the first one twice: its first run is a warm-up."""
    return (resolved.seeds[0], *resolved.seeds)


def run_with_processes(
    resolved: ResolvedCell,
    kind: Any,
) -> list[tuple[Run, FederationCosts]]:
    """Run a cell's seeds as one job of processes; every party loads the data."""
    cell = resolved.cell
    network = make_network(kind)
    # Keep the current path: it may have folders of methods outside the project.
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        "from pkm.experiments.fit.protocol import run_party; run_party(sys.argv[1])"
    )
    seconds = network.time_limit * (len(cell.seeds) + STARTUP_ALLOWANCE)
    with TemporaryDirectory(prefix="protocol-") as name:
        folder = Path(name)
        job = cell, resolved.data_dir, resolved.seeds
        (folder / "job").write_bytes(pickle.dumps(job))
        try:
            # Under mpi4py's runner a process that fails ends the job; otherwise the
            # others would wait for it.
            arguments = ["-m", "mpi4py", "-c", code, name]
            mpirun(network.n_clients + 1, arguments, seconds)
        except ProtocolError as error:
            # The server's report comes first: it names the client.
            for report in sorted(folder.glob("error-*")):
                raise ProtocolError(report.read_text()) from error
            raise
        return pickle.loads((folder / "outcomes").read_bytes())


def run_party(folder: str) -> None:
    """Take part in a job as one of its processes: rank 0 is the server.

    Rank 1 is the client that writes the outcomes.
    """
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]

    from pkm.federation.mpi import run_rank

    files = Path(folder)
    rank = MPI.COMM_WORLD.Get_rank()
    outcomes = []
    try:
        resolved = resolve_cell(*pickle.loads((files / "job").read_bytes()))
        kind: Any = resolved.cell.kind
        network = make_network(kind)
        with limit_threads(1):
            for seed in add_warm_up(resolved):
                outcome = run_rank(
                    resolved.method,
                    resolved.data.points,
                    [seed],
                    resolved.data.domain,
                    network=network,
                    split=kind.split,
                    allow_seeded_noise=True,
                )
                outcomes.append(outcome)
        if rank == 1:
            (files / "outcomes").write_bytes(pickle.dumps(outcomes[1:]))
    except Exception as error:
        name = "" if isinstance(error, ProtocolError) else f"{type(error).__name__}: "
        (files / f"error-{rank}").write_text(f"{name}{error}")
        time.sleep(REPORT_SECONDS)
        raise
