"""MLflow's server answers, and ends with its command."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from pkm.experiments.mlflow.tracking import open_client

pytestmark = pytest.mark.integration


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.slow
def test_the_server_answers_and_ends_at_an_interrupt(tmp_path):
    port = free_port()
    with open_client(f"sqlite:///{tmp_path / 'mlflow.db'}") as client:
        number = client.create_experiment("fastlloyd")
    command = [sys.executable, "-m", "pkm", "dashboard", "--port", str(port)]
    process = subprocess.Popen(
        [*command, f"results={tmp_path}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        # Said once the server answers.
        line = process.stdout.readline().decode()
        assert line.startswith(f"MLflow: http://127.0.0.1:{port}")
        page = f"http://127.0.0.1:{port}/#/experiments/{number}/runs?"
        assert process.stdout.readline().decode().startswith(f"  fastlloyd: {page}")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10)
                break
            except OSError:
                time.sleep(0.5)
        assert answer.status == 200
    finally:
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
    # Quiet: what MLflow says is in its file.
    assert process.stdout.read() == b""
    assert (tmp_path / "mlflow.log").stat().st_size > 0
