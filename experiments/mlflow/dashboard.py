"""MLflow's interface on this machine, in a separate process."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pkm.experiments.config.settings import require
from pkm.experiments.console.console import show
from pkm.experiments.mlflow.tracking import TrackingError, is_server, open_client

if TYPE_CHECKING:
    from rich.console import Console

HOST = "127.0.0.1"
#: Seconds between two looks at the server.
POLL_SECONDS = 0.2
#: Of the interface, for the runs of an experiment: its own first page shows traces.
RUNS_PAGE = "{address}/#/experiments/{id}/runs?workflowType=machine_learning"
#: The latest experiments, whose pages are announced.
MAX_EXPERIMENTS = 10


def serve(
    uri: str,
    artifacts: str,
    port: int,
    log: Path,
    console: "Console",
) -> None:
    """Serve MLflow's interface until the process is interrupted.

    It listens on this machine alone, and prints into the file `log`. Its address, and
    that of each experiment's runs, are printed on the console once it answers. A
    tracking server has an interface already: only its addresses are printed.

    Raises
    ------
    ValueError
        If the port is not valid, or not free.
    TrackingError
        If the database or server cannot be used, or the interface ends.
    """
    if not is_server(uri):
        require(0 < port < 2**16, "port", port, "a number from 1 to 65535")
        rule = "a free one: choose another with --port, or make dashboard PORT="
        require(not is_open(port), "port", port, rule)
    # MLflow's own default experiment is empty.
    condition = "name != 'Default'"
    with open_client(uri) as client:
        experiments = client.search_experiments(
            filter_string=condition, max_results=MAX_EXPERIMENTS
        )
    address = uri.rstrip("/") if is_server(uri) else f"http://{HOST}:{port}"
    lines = [f"MLflow: {address} (Ctrl-C ends it)"]
    for experiment in experiments:
        page = RUNS_PAGE.format(address=address, id=experiment.experiment_id)
        lines.append(f"  {experiment.name}: {page}")
    announcement = "\n".join(lines)
    if is_server(uri):
        show(console, announcement)
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
        while process.poll() is None and not is_open(port):
            time.sleep(POLL_SECONDS)
        if process.poll() is None:
            show(console, announcement)
        # MLflow imports polars, whose handler of Ctrl-C lets a blocking wait go on.
        while process.poll() is None:
            time.sleep(POLL_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    raise TrackingError(f"MLflow's server has ended: see {log}")


def is_open(port: int) -> bool:
    """Tell whether a server listens to a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
