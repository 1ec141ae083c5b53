"""MLflow's interface on this machine, in a separate process."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pkm.experiments.config.settings import require
from pkm.experiments.mlflow.tracking import (
    TrackingError,
    is_server,
    open_client,
)

HOST = "127.0.0.1"
#: Seconds within which the server must answer, and must end after a signal.
START_SECONDS = 90
STOP_SECONDS = 10


def serve(
    uri: str,
    artifacts: str,
    port: int,
    log: Path,
    announce: Callable[[str], None],
) -> None:
    """Serve MLflow's interface until the process is interrupted.

    Parameters
    ----------
    uri : str
        The database that it shows. A tracking server has an interface already.
    artifacts : str
        Folder of the artifacts.
    port : int
        Port on which it listens, on this machine alone.
    log : Path
        File for what it prints.
    announce : callable
        Called with the address, once it answers.

    Raises
    ------
    ValueError
        If the port is not valid, or not free.
    TrackingError
        If the database or server cannot be used, or the interface ends.
    """
    if not is_server(uri):
        require_free(port)
    with open_client(uri) as client:
        client.search_experiments(max_results=1)
    if is_server(uri):
        announce(uri)
        return
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", HOST, "--port", str(port), "--backend-store-uri", uri]
    command += ["--default-artifact-root", Path(artifacts).resolve().as_uri()]
    # MLflow's background jobs score traces: there are none here.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    # The server and its workers form a process group, so that they end together.
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    try:
        wait_for_answer(process, port, log)
        announce(f"http://{HOST}:{port}")
        # MLflow imports polars, whose handler of Ctrl-C lets a blocking wait go on.
        while process.poll() is None:
            time.sleep(0.2)
    finally:
        stop(process)
    raise TrackingError(f"MLflow's server has ended: see {log}")


def require_free(port: int) -> None:
    """Refuse a port that is not valid, or that another server listens to."""
    require(0 < port < 2**16, "port", port, "a number from 1 to 65535")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            advice = "choose another one with --port, or make dashboard PORT="
            message = f"port={port} is not free ({error.strerror}): {advice}"
            raise ValueError(message) from error


def wait_for_answer(
    process: subprocess.Popen,
    port: int,
    log: Path,
) -> None:
    """Wait until the server answers; `TrackingError` if it ends or takes too long."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TrackingError(f"MLflow's server did not start on port {port}: see {log}")


def stop(process: subprocess.Popen) -> None:
    """End the server and its workers; those that do not end in time are killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
