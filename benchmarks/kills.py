"""``python -m pkm.benchmarks.kills --kills 100 reproduce run paper=fastlloyd profile=quick``.

Runs a command of ``pkm`` twice on empty results: once to its end, and once killed with all its
processes (SIGKILL) at random moments and started again each time, until all kills are spent or no
cell is left; then to its end. Prints how many of the killed lives stored a cell, and compares the
rows: all but times, memory and what depends on the moment have to be equal bit for bit. On a busy
machine ``--cpu`` counts the seconds that the processes get, so that the load decides nothing.

The exit status is 1 if rows differ, or if fewer than a third of the killed lives stored a cell; 2
if the command fails by itself.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from pkm.experiments.store.store import Store
from pkm.schema import COLUMNS

#: Columns that differ from run to run: what it takes, on which machine and when.
PASSING = {"deletions_per_second", "host", "versions", "git", "finished"} | {
    column.name
    for column in COLUMNS
    if column.kind == "resource" or (column.kind == "metric" and column.unit == "ms")
}
#: Fields of a checkpoint of removals that are times.
PASSING_OF_CHECKPOINTS = {"accumulated_s", "retrain_s"}
#: The least share of killed lives that have to store a cell.
LEAST_SHARE = 1 / 3


@dataclass(frozen=True)
class Life:
    """What a start of the command has come to: its seconds and the cells that it stored.

    The seconds are those until the kill, on the clock or of CPU.
    """

    seconds: float
    cells: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        Exit code.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pkm.benchmarks.kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument(
        "--after",
        type=float,
        nargs=2,
        default=(3.0, 9.0),
        metavar=("FIRST", "LAST"),
        help="seconds after the start between which a kill comes (default: 3 9)",
    )
    parser.add_argument(
        "--cpu", action="store_true", help="the seconds are of CPU, of all processes together"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="words that follow `pkm`")
    given = parser.parse_args(arguments)
    moments = np.random.default_rng(given.seed).uniform(*given.after, given.kills)
    with tempfile.TemporaryDirectory() as folder:
        expected = Store(Path(folder) / "uninterrupted")
        if start(given.command, expected).wait():
            return 2
        store = Store(Path(folder) / "killed")
        lives = []
        for life in killed_lives(given.command, store, moments, given.cpu):
            lives.append(life)
            unit = "s of CPU" if given.cpu else "s"
            print(f"killed after {life.seconds:.1f} {unit}: {life.cells} new cells", flush=True)
        start(given.command, store).wait()
        different = differences(store, expected)
        n_cells = len(expected.keys())
    fruitful = sum(life.cells > 0 for life in lives)
    print(f"{len(lives)} lives were killed, {fruitful} of them stored some of the {n_cells} cells")
    print(f"columns that differ from an uninterrupted run: {', '.join(different) or 'none'}")
    return int(bool(different) or fruitful < LEAST_SHARE * len(lives))


def start(command: Sequence[str], store: Store) -> subprocess.Popen:
    """Start a command of ``pkm`` on a results folder, without a projection to MLflow."""
    words = [*command, f"results={store.root}", "tracking=none"]
    return subprocess.Popen([sys.executable, "-m", "pkm", *words], stdout=subprocess.DEVNULL)


def killed_lives(
    command: Sequence[str], store: Store, moments: Iterable[float], cpu: bool = False
) -> Iterator[Life]:
    """Start a command again and again and kill it; ends early when it comes to its end.

    Parameters
    ----------
    command : sequence of str
        Words that follow ``pkm``.
    store : Store
        Where the cells go.
    moments : iterable of float
        Seconds from each start to the kill.
    cpu : bool, default=False
        Count seconds of CPU, not of the clock.

    Yields
    ------
    Life
    """
    for seconds in moments:
        before = len(store.keys())
        process = start(command, store)
        if ends_within(process, seconds, cpu):
            return
        kill(process)
        yield Life(seconds, len(store.keys()) - before)


def ends_within(process: subprocess.Popen, seconds: float, cpu: bool) -> bool:
    """Wait until a process has ended or has had its seconds, and tell whether it has ended."""
    started = time.perf_counter()
    while process.poll() is None:
        if (cpu_seconds(process.pid) if cpu else time.perf_counter() - started) >= seconds:
            return False
        # To look for descendants goes through all processes of the machine.
        time.sleep(0.05 if cpu else 0.01)
    return True


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used, with its descendants."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for each in [parent, *parent.children(recursive=True)]:
            used = each.cpu_times()
            # Of its children, those that have ended.
            total += used.user + used.system + used.children_user + used.children_system
    return total


def kill(process: subprocess.Popen) -> None:
    """Kill a process and all that it has started, as a machine that goes down does."""
    parent = psutil.Process(process.pid)
    # Stopped first, so that nothing is started in the meantime.
    parent.suspend()
    descendants = parent.children(recursive=True)
    for each in [parent, *descendants]:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
    psutil.wait_procs(descendants)


def differences(store: Store, expected: Store) -> list[str]:
    """Name the columns in which the rows of two stores differ; "cells" if the cells do."""
    keys = sorted(expected.keys())
    if sorted(store.keys()) != keys:
        return ["cells"]
    rows = without_times(store.read(keys))
    others = without_times(expected.read(keys))
    names = [name for name in others.columns if name not in PASSING]
    return [name for name in names if name not in rows or not rows[name].equals(others[name])]


def without_times(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave the times out of the checkpoints of those rows that have any."""
    if "series" not in rows:
        return rows
    series = rows["series"].astype(object)
    for row, checkpoints in series.dropna().items():
        series.at[row] = [
            {name: value for name, value in each.items() if name not in PASSING_OF_CHECKPOINTS}
            for each in checkpoints
        ]
    return rows.assign(series=series)


if __name__ == "__main__":
    sys.exit(main())
