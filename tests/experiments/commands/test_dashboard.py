"""The dashboard: what it refuses, and what it announces."""

import socket
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pkm.experiments.commands.dashboard import main
from pkm.experiments.mlflow import dashboard

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


def test_the_runs_of_each_experiment_have_an_address(capsys, tmp_path, monkeypatch):
    """An experiment's first page in MLflow shows no runs."""
    experiment = SimpleNamespace(name="fastlloyd", experiment_id="7")
    client = SimpleNamespace(search_experiments=lambda **arguments: [experiment])
    monkeypatch.setattr(dashboard, "open_client", lambda uri: nullcontext(client))
    assert main(["tracking.uri=http://127.0.0.1:5001/", f"results={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "MLflow: http://127.0.0.1:5001 (Ctrl-C ends it)",
        "  fastlloyd: http://127.0.0.1:5001/#/experiments/7/runs?workflowType=machine_learning",
    ]
