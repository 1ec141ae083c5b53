"""A method that does something bad on each set, entered and verified by the commands."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from tiny_suite import SUITE

from pkm.arena.entry import read_entry, read_rows

pytestmark = [pytest.mark.integration, pytest.mark.slow]

METHOD = '''
import os, socket, time
from pathlib import Path

import numpy as np

from pkm.methods import SuLloyd
from pkm.privacy import Budget


class Misbehaving(SuLloyd):
    """It is known what it does by the number of records."""

    def budget(self, n_points, n_features):
        factor = 4 if n_points == 4597 else 1
        return Budget(factor * self.epsilon)

    def cluster(self, curator):
        n = curator.n_points
        if n == 17898:  # htru2
            time.sleep(3600)
        if n == 20867:  # avila
            np.ones((1 << 33, 8))
        if n == 699:  # breast
            for _ in range(1 << 10):
                print("x" * (1 << 20), flush=True)
        if n == 1484:  # yeast
            Path(os.environ["OUTSIDE"], "file").write_text("x")
        if n == 9366:  # quakes
            socket.create_connection(("127.0.0.1", 9), timeout=5)
        if n == 6500:  # unbalance
            os.kill(os.getpid(), 9)
        if n == 4597:  # spambase
            return SuLloyd(self.n_clusters, epsilon=4 * self.epsilon).cluster(curator)
        centers, n_iter = super().cluster(curator)
        if n == 1837:  # house
            return np.full(centers.shape, np.nan), n_iter
        if n == 5000:  # s1
            return np.repeat(centers, 2, axis=1), n_iter
        return centers, n_iter
'''
REASONS = {
    "htru2": "TimeLimitExceeded: time limit of 10 s reached",
    "avila": "MemoryError: ",
    "breast": "OSError: [Errno 27] File too large",
    "yeast": "PermissionError: [Errno 13] Permission denied",
    "quakes": "PermissionError: [Errno 13] Permission denied",
    "unbalance": "WorkerDied: ",
    "house": "failed: ",
    "s1": "more centers than k",
    "spambase": "more epsilon than the budget",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs a command in a folder with the method and a suite."""
    folder = tmp_path_factory.mktemp("misbehaving")
    (folder / "misbehaving.py").write_text(METHOD)
    (folder / "outside").mkdir()
    (folder / "conf" / "suite").mkdir(parents=True)
    sweep = {
        "datasets": ["iris", *REASONS], "epsilon": [4.0], "seeds": 2, "time_limit": 10,
    }  # fmt: skip
    suite = SUITE | {
        "name": "bad",
        "stages": {"lite": ["lite", "times"], "full": ["lite", "times"]},
        "sweeps": {"lite": sweep, "times": SUITE["sweeps"]["times"]},
    }
    (folder / "conf" / "suite" / "bad.yaml").write_text(yaml.safe_dump(suite))

    def run_command(*words):
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"PYTHONPATH": path, "OUTSIDE": str(folder / "outside")}
        return subprocess.run(
            [sys.executable, "-m", "pkm", *words, "--config-dir", "conf"],
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    run_command.folder = folder
    return run_command


@pytest.fixture(scope="module")
def entered(run):
    finished = run("submit", "misbehaving:Misbehaving", "suite=bad", "out=entry")
    assert finished.returncode == 1, finished.stderr
    return run.folder / "entry"


@pytest.mark.parametrize("dataset", REASONS)
def test_what_a_method_does_is_named(entered, dataset):
    (problem,) = [
        line
        for line in read_entry(entered).problems
        if line.startswith(f"misbehaving on {dataset}, epsilon=4 (lite): ")
    ]
    assert REASONS[dataset] in problem


def test_the_rest_goes_on(entered):
    own = read_rows(entered).query("method == 'misbehaving'")
    assert set(own["dataset"]) == {"iris"}
    assert set(read_rows(entered).query("method == 'kmeans'")["dataset"]) == {"iris", *REASONS}


def test_nothing_was_written_outside(entered):
    assert list((entered.parent / "outside").iterdir()) == []
    names = {"conf", "entry", "misbehaving.py", "outside", "__pycache__"}
    assert {path.name for path in entered.parent.iterdir()} <= names


def test_the_honest_entry_of_such_a_method_is_verified(run, entered):
    """All that failed is run again, and fails again."""
    finished = run("arena", "verify", "entry", "by=Ada", "share=1")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    stored = json.loads((entered / "verification.json").read_text())
    assert (stored["status"], stored["findings"]) == ("verified", [])
    assert stored["equal"] == len(stored["cells"]) == 2 * (1 + len(REASONS))
