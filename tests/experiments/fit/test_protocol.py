"""Runs between parties: the central result, failures, time limits."""

import dataclasses
import time

import numpy as np
import psutil
import pytest
from protocol_cells import CENTRAL_CELL, TRANSPORTS, protocol

from pkm.experiments.backends.backends import run_cells
from pkm.experiments.config.backend import Backend
from pkm.experiments.fit.inputs import resolve_cell
from pkm.experiments.store.store import Store

pytestmark = pytest.mark.integration
#: Methods whose second client fails, and whose clients never end.
MISBEHAVING_METHODS = """
import os
import threading
import time

from pkm.methods.lloyd.lloyd import FastLloyd


class Broken(FastLloyd):
    def cluster(self, curator):
        rank = os.environ.get("OMPI_COMM_WORLD_RANK")
        if rank == "2" or threading.current_thread().name == "client 2":
            raise ValueError("the second client failed")
        return super().cluster(curator)


class Endless(FastLloyd):
    def cluster(self, curator):
        time.sleep(600)
"""


@pytest.fixture
def misbehaving_cell(tmp_path, monkeypatch):
    (tmp_path / "misbehaving_methods.py").write_text(MISBEHAVING_METHODS)
    monkeypatch.syspath_prepend(tmp_path)

    def cell(name, **setting):
        central = dataclasses.replace(CENTRAL_CELL, target=f"misbehaving_methods.{name}")
        return protocol(central, **setting)

    return cell


UNBALANCED = {"clients": 3, "split": "unbalanced", "word_bytes": 4}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_protocol_equals_the_central_run(transport):
    check_equality(protocol(transport=transport, **UNBALANCED))


def test_balanced_protocol_equals_the_central_run():
    check_equality(protocol())


def check_equality(cell):
    central, _ = CENTRAL_CELL.kind.fit(resolve_cell(CENTRAL_CELL, None))
    parties, _ = cell.kind.fit(resolve_cell(cell, None))
    for (central_fit, _), (protocol_fit, _) in zip(central, parties, strict=True):
        np.testing.assert_array_equal(central_fit.centers, protocol_fit.centers)
        assert central_fit.seeds == protocol_fit.seeds
        assert central_fit.n_iter == protocol_fit.n_iter
        assert central_fit.ledger.charges == protocol_fit.ledger.charges


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_failure_of_a_party_fails_the_cell(misbehaving_cell, tmp_path, transport):
    cell = misbehaving_cell("Broken", transport=transport)
    store = Store(tmp_path / "results")
    (outcome,) = run_cells([cell], store, Backend(retries=0))
    assert outcome.status == "failed"
    expected = "ProtocolError: client 2 stopped: ValueError: the second client failed"
    assert outcome.error == expected
    assert store.read_failure(cell.key)["error"] == expected


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_time_limit_ends_all_parties(misbehaving_cell, tmp_path, transport):
    cell = dataclasses.replace(misbehaving_cell("Endless", transport=transport), time_limit=5.0)
    store = Store(tmp_path / "results")
    run_cells([cell], store, Backend())
    assert store.read_failure(cell.key)["error"] == "TimeLimitExceeded: time limit of 5 s reached"

    def running_commands():
        processes = psutil.process_iter(["cmdline"])
        commands = [" ".join(process.info["cmdline"] or ()) for process in processes]
        # The server that workers are forked from, and they, have its path as well.
        parties = [line for line in commands if str(tmp_path) in line and "forkserver" not in line]
        workers = [worker for child in psutil.Process().children() for worker in child.children()]
        return [*parties, *workers]

    # The folder of the method is in the command of every process of the job.
    deadline = time.monotonic() + 20
    while running_commands() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running_commands() == []
