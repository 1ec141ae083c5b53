"""Starting a job of several processes with mpirun, where MPI is available."""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pkm.federation.links import ProtocolError

#: Waiting processes yield their core: parties often outnumber cores.
ENVIRONMENT = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl": "self,sm"}
#: MPI ends with a barrier of all processes. It may wait forever for a killed one.
WITHOUT_BARRIER = {"MPI4PY_RC_FINALIZE": "0"}
MAX_OUTPUT = 2000  # characters of a failed job's output that the error repeats
#: Last line of a traceback; what another process printed may come before it.
ERROR_LINE = re.compile(r"[\w.]+(?:Error|Exception): .*")
TERMINATION_LIMIT = 20.0  # seconds that a job may take to end after SIGTERM


def find_mpirun() -> str | None:
    """Find mpirun: next to this Python first, where its wheel puts it."""
    folder = Path(sys.executable).parent
    return shutil.which("mpirun", path=str(folder)) or shutil.which("mpirun")


def mpi_available() -> bool:
    """Tell whether mpi4py and an mpirun can be found."""
    has_library = importlib.util.find_spec("mpi4py") is not None
    return has_library and find_mpirun() is not None


def mpirun(
    n_ranks: int, arguments: Sequence[str], time_limit: float, *, recover: bool = False
) -> None:
    """Run ``python <arguments>`` as processes on this machine, and wait for their end.

    Parameters
    ----------
    n_ranks : int
    arguments : sequence of str
    time_limit : float
        Seconds.
    recover : bool, default=False
        Let the others go on when a process is killed.

    Raises
    ------
    ProtocolError
        With the output of the processes, if the job fails or exceeds the time limit.
        They are ended, unless mpirun ignores SIGTERM for 20 seconds.
    """
    command = [find_mpirun() or "mpirun", "-n", str(n_ranks)]
    command += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none"]
    environment = os.environ | ENVIRONMENT
    if recover:
        command.append("--enable-recovery")
        environment |= WITHOUT_BARRIER
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    job = subprocess.Popen(
        [*command, sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    try:
        output, _ = job.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired:
        end = _terminate(job)[-MAX_OUTPUT:]
        raise ProtocolError(
            f"the job did not end within {time_limit:g} s (time_limit): {end}"
        ) from None
    except BaseException:
        _terminate(job)
        raise
    if job.returncode != 0:
        errors = _summarize_errors(output)
        raise ProtocolError(
            f"the job failed with exit status {job.returncode}: {errors}"
        )


def _summarize_errors(output: str) -> str:
    """Join the errors that the processes of a job have printed, and the output's end.

    The processes print at the same time: an error may be far from the end, or in it.
    """
    end = output[-MAX_OUTPUT:].strip()
    lines = dict.fromkeys(ERROR_LINE.findall(output))
    return "\n".join([*(line for line in lines if line not in end), end])


def _terminate(job: subprocess.Popen[str]) -> str:
    """End a job and return its output.

    After SIGTERM mpirun ends its processes; killed, it would leave them running.
    """
    job.terminate()
    try:
        output, _ = job.communicate(timeout=TERMINATION_LIMIT)
    except subprocess.TimeoutExpired:
        job.kill()
        # Processes that are left hold the pipe open, perhaps for ever.
        output = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            output, _ = job.communicate(timeout=TERMINATION_LIMIT)
    return output
