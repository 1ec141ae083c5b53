"""The dashboard: what it refuses, and that MLflow's server answers."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from pkm.experiments.commands.dashboard import main

pytestmark = pytest.mark.integration


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def refusal(capsys, *words):
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("port", ["0", "99999", "-1"])
def test_a_port_out_of_range_is_refused(capsys, tmp_path, port):
    assert f"port={port} is not allowed" in refusal(capsys, f"--port={port}", f"results={tmp_path}")


def test_a_port_in_use_is_refused(capsys, tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        line = refusal(capsys, "--port", str(port), f"results={tmp_path}")
    assert f"port={port} is not allowed: port must be a free one" in line
    assert "--port" in line


def test_a_folder_that_cannot_be_written_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    line = refusal(capsys, "--port", str(free_port()), f"results={tmp_path / 'file'}")
    assert str(tmp_path / "file") in line


def test_a_damaged_database_is_refused(capsys, tmp_path):
    (tmp_path / "mlflow.db").write_text("no database")
    line = refusal(capsys, "--port", str(free_port()), f"results={tmp_path}")
    assert "delete the file" in line


@pytest.mark.parametrize("word", ["verb=run", "jobs=2"])
def test_keys_without_effect_are_refused(word, capsys, tmp_path):
    assert f"{word} has no effect on `pkm dashboard`" in refusal(
        capsys, word, f"results={tmp_path}"
    )


@pytest.mark.slow
def test_the_server_answers_and_ends_at_an_interrupt(tmp_path):
    port = free_port()
    command = [sys.executable, "-m", "pkm", "dashboard", "--port", str(port)]
    process = subprocess.Popen(
        [*command, f"results={tmp_path}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        # Said once the server answers.
        line = process.stdout.readline().decode()
        assert line.startswith(f"MLflow: http://127.0.0.1:{port}")
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
