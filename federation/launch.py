"""Starting a job of several processes with mpirun, where MPI is at hand."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pkm.federation.links import ProtocolError

#: Waiting processes yield their core: parties often outnumber cores.
SETTINGS = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,sm"}
LAST_WORDS = 2000  # characters
LAST_SECONDS = 20.0  # that a job may take to end when asked to


def find_mpirun() -> str | None:
    """Path of mpirun: beside this Python first, where its wheel puts it."""
    return shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")


def mpi_at_hand() -> bool:
    """Tell whether mpi4py and an mpirun can be found."""
    return importlib.util.find_spec("mpi4py") is not None and find_mpirun() is not None


def mpirun(n_ranks: int, arguments: Sequence[str], time_limit: float) -> None:
    """Run ``python <arguments>`` as a job of some processes on this machine, and wait for its end.

    Raises
    ------
    ProtocolError
        With what the processes said, if the job fails or exceeds the time limit; nothing of it is left running then.
    """
    command = [find_mpirun(), "-n", str(n_ranks), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    job = subprocess.Popen(
        [*command, sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | SETTINGS,
    )
    try:
        said, _ = job.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired:
        said = _stop(job)
        raise ProtocolError(
            f"the job did not end within {time_limit:g} s (time_limit): {said[-LAST_WORDS:]}"
        ) from None
    except BaseException:
        _stop(job)
        raise
    if job.returncode != 0:
        raise ProtocolError(
            f"the job failed with exit status {job.returncode}: {said[-LAST_WORDS:].strip()}"
        )


def _stop(job: subprocess.Popen) -> str:
    """End a job, return what it said. mpirun ends its processes when asked to; killed, it would leave them running."""
    job.terminate()
    try:
        said, _ = job.communicate(timeout=LAST_SECONDS)
    except subprocess.TimeoutExpired:
        job.kill()
        said, _ = job.communicate()
    return said
