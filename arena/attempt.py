"""Code of an entry in a process of its own, which may write to one folder alone.

``run_attempt`` starts ``pkm.arena.phases`` there. Both sides exchange JSON files.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pkm.experiments.reports.crate import write_json
from pkm.files import read_last_line

REQUEST = "request.json"
ANSWER = "answer.json"
LOG = "output.txt"
#: Store of the cells that are run.
RESULTS = "results"
#: Seconds between two lines that say how many cells are done.
PROGRESS = 30.0


class AttemptFailed(RuntimeError):
    """The process ended without an answer."""


def run_attempt(
    phase: str,
    request: Mapping[str, Any],
    folder: Path,
    seconds: float,
    n_cells: int = 0,
) -> dict[str, Any]:
    """Run a phase in a confined process.

    Parameters
    ----------
    phase : str
        Of `pkm.arena.phases.PHASES`.
    request : mapping
        Arguments of the phase, as JSON.
    folder : Path
        Where it works; modules in its ``source`` can be imported.
    seconds : float
        Time after which the process and its children are killed.
    n_cells : int, default=0
        Number of cells that the phase runs, for lines of progress.

    Returns
    -------
    dict
        The answer.

    Raises
    ------
    AttemptFailed
        If there is none; the message has the last line of output.
    """
    write_json(folder / REQUEST, request)
    (folder / ANSWER).unlink(missing_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            # Without -P, modules in the folder would come before all others.
            [sys.executable, "-P", "-m", "pkm.arena.phases", phase],
            cwd=folder,
            env=os.environ | {"TMPDIR": str(temporary)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait(process, seconds, folder, n_cells)
        except subprocess.TimeoutExpired:
            raise AttemptFailed(f"{phase}: not done after {seconds:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode == 0 and (folder / ANSWER).is_file():
        return json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    reason = read_last_line(folder / LOG) or f"exit code {process.returncode}"
    raise AttemptFailed(f"{phase}: {reason}")


def wait(process: subprocess.Popen, seconds: float, folder: Path, n_cells: int) -> None:
    """Wait for a process, and print from time to time how many cells are done.

    Raises
    ------
    subprocess.TimeoutExpired
        If the time is over.
    """
    end = time.monotonic() + seconds
    n_shown = 0
    while True:
        left = end - time.monotonic()
        try:
            process.wait(min(left, PROGRESS))
            return
        except subprocess.TimeoutExpired:
            if left <= PROGRESS:
                raise
        n_done = sum(1 for _ in (folder / RESULTS).glob("cells/*/*.parquet"))
        if n_done > n_shown:
            print(f"    {n_done} of {n_cells} cells done", flush=True)
            n_shown = n_done
