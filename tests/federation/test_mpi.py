"""Parties that are processes: results, failures, recovery, and what the server's memory holds."""

import subprocess
import sys

import pytest

from pkm.federation import ProtocolError, mpi_available, mpirun

needs_mpi = pytest.mark.skipif(
    not mpi_available(), reason="mpi4py and mpirun are not installed: make protocol"
)


def run_program(tmp_path, body, n_ranks=3, time_limit=120, recover=False):
    """Run a program on some ranks, with this repository on their path."""
    program = tmp_path / "program.py"
    prologue = f"""
import os, signal, sys, time
import numpy as np
from pathlib import Path
from pkm.compute import Points
from pkm.federation import FederatedCurator, ProtocolError, Network
from pkm.federation.mpi import MPI, run_rank
from pkm.methods.lloyd.lloyd import FastLloyd, SuLloyd
from pkm.privacy import SCALE
out = Path({str(tmp_path)!r})
rank = MPI.COMM_WORLD.Get_rank()
points = Points.from_grid(np.random.default_rng(0).integers(-SCALE, SCALE + 1, (400, 2)))
method = FastLloyd(3, epsilon=1.0, n_iterations=5)
method.fit_batch(points, [0])
MPI.COMM_WORLD.Barrier()
"""
    program.write_text(prologue + body)
    # Under mpi4py's own runner a process that fails ends the job.
    mpirun(n_ranks, ["-m", "mpi4py", str(program)], time_limit, recover=recover)


@pytest.mark.slow
@needs_mpi
def test_processes_equal_the_central_run(tmp_path):
    run_program(
        tmp_path,
        """
for word_bytes in (4, 8):
    for lloyd in (method, SuLloyd(4, epsilon=2.0)):
        network = Network(3, word_bytes=word_bytes)
        run, measured = run_rank(
            lloyd, points, [0, 3], network=network, split="unbalanced", allow_seeded_noise=True
        )
        assert (run is None) == (rank != 1)
        if run is not None:
            central = lloyd.fit_batch(points, [0, 3])
            assert (run.centers == central.centers).all()
            assert run.ledger.charges == central.ledger.charges
            assert measured.bytes_per_iteration == 2 * 3 * 2 * lloyd.n_clusters * 3 * word_bytes
            (out / f"{type(lloyd).__name__}-{word_bytes}").touch()
""",
        n_ranks=4,
    )
    assert len(list(tmp_path.glob("*Lloyd-*"))) == 4


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("raise MemoryError('no room left')", "client 2 stopped: MemoryError: no room left"),
        ("time.sleep(6)", "client 2 sent nothing for 2 s"),
        (
            "link.send(np.zeros(71, np.uint8)); time.sleep(3)",
            "client 2 sent a malformed message: 87 bytes where 88 were due",
        ),
        (
            "[link.send(np.zeros(72, np.uint8)) for _ in range(2)]; link.receive(72)",
            "client 2 sent a message where none",
        ),
        # mpirun's message: a client's number is its rank.
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 2"),
    ],
)
def test_failing_process_is_named_and_releases_nothing(tmp_path, action, reason):
    with pytest.raises(ProtocolError, match="the job failed") as raised:
        run_program(
            tmp_path,
            f"""
exchange = FederatedCurator._exchange
def failing_exchange(self, exact):
    link = self._session.link
    if rank == 2 and self._session.timings.communication_rounds == 2:
        {action}
    return exchange(self, exact)
FederatedCurator._exchange = failing_exchange
network = Network(2, time_limit=2)
run, measured = run_rank(method, points, [0], network=network, allow_seeded_noise=True)
(out / "released").touch()
""",
        )
    assert reason in str(raised.value)
    assert not (tmp_path / "released").exists()


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize(
    ("moment", "victim", "recover"),
    [("message", 1, True), ("message", 2, False), ("shares", 1, False), ("shares", 2, True)],
)
def test_killed_process_and_recovery(tmp_path, moment, victim, recover):
    """With recovery the first client that is left has the result of the run without the victim."""
    body = f"""
from pkm.federation import split_points
from pkm.federation.masks import Masks
from pkm.federation.recovery import RecoverableMasks
from pkm.privacy import Curator
def die():
    if rank == {victim}:
        os.kill(os.getpid(), signal.SIGKILL)
exchange = FederatedCurator._exchange
def failing_exchange(self, exact):
    if {moment!r} == "message" and self._session.timings.communication_rounds == 2:
        die()
    return exchange(self, exact)
FederatedCurator._exchange = failing_exchange
for masks in (Masks, RecoverableMasks):
    def failing_shares(self, link, send_shares=masks.send_shares):
        self.number = getattr(self, "number", 0) + 1
        if {moment!r} == "shares" and self.number == 2:
            die()
        send_shares(self, link)
    masks.send_shares = failing_shares
network = Network(3, time_limit=2, recover={recover})
run, measured = run_rank(method, points, [0], network=network, allow_seeded_noise=True)
if run is not None:
    parts = split_points(points, 3, 0)
    class LosingCurator(Curator):
        def release_all(self, requests, source=None):
            if self._rounds[requests[0][0].label] == 2:
                del self._shards[{victim} - 1]
            return super().release_all(requests, source)
    central = method.fit_with(lambda *args: LosingCurator(parts, *args), 400, 2, [0])
    assert (run.centers == central.centers).all()
    assert measured.iterations == 5
    (out / f"released-{{rank}}").touch()
"""
    if recover:
        run_program(tmp_path, body, n_ranks=4, recover=True)
        first = 2 if victim == 1 else 1
        assert [path.name for path in tmp_path.glob("released-*")] == [f"released-{first}"]
    else:
        # mpirun leaves the others running, so that it is the server that names the client.
        with pytest.raises(ProtocolError, match=f"client {victim} sent nothing for 2 s"):
            run_program(tmp_path, body, n_ranks=4, recover=True)
        assert not list(tmp_path.glob("released-*"))


@pytest.mark.slow
@needs_mpi
def test_processes_with_public_noise_need_a_simulation(tmp_path):
    with pytest.raises(ProtocolError, match="set secure=True, or allow_seeded_noise=True"):
        run_program(tmp_path, "run_rank(method, points, [0], network=Network(2))")
    run_program(
        tmp_path,
        """
secure = FastLloyd(3, epsilon=1.0, n_iterations=5, secure=True)
run, _ = run_rank(secure, points, [0], network=Network(2))
assert (run is None) == (rank != 1)
(out / f"released-{rank}").touch()
""",
    )
    assert len(list(tmp_path.glob("released-*"))) == 3


@pytest.mark.slow
@needs_mpi
def test_server_memory_does_not_hold_keys_of_masks(tmp_path):
    """After a run a client, who knows the keys of its masks, searches the server's whole writable
    memory for them.
    """
    run_program(
        tmp_path,
        """
from pkm.federation import agreement
Masks = agreement.Masks
keys = []
def recording_masks(client, pair_keys, group_key, ring):
    keys.extend([group_key, *pair_keys.values()])
    return Masks(client, pair_keys, group_key, ring)
agreement.Masks = recording_masks
run_rank(method, points, [0], network=Network(2), allow_seeded_noise=True)
server_pid = np.array([os.getpid()], np.int64)
# The server keeps the marker: the search must find it.
marker = np.frombuffer(os.urandom(32), np.uint8).copy()
MPI.COMM_WORLD.Bcast(server_pid, root=0)
if rank == 0:
    MPI.COMM_WORLD.Send([marker, MPI.BYTE], dest=1)
if rank == 1:
    MPI.COMM_WORLD.Recv([marker, MPI.BYTE], source=0)
    needles = [*keys, marker.tobytes()]
    matches = set()
    process = Path(f"/proc/{server_pid[0]}")
    with open(process / "maps") as maps, open(process / "mem", "rb", 0) as memory:
        for line in maps:
            addresses, rights = line.split()[:2]
            if rights.startswith("rw"):
                low, high = (int(end, 16) for end in addresses.split("-"))
                memory.seek(low)
                block = memory.read(high - low)
                matches |= {i for i, needle in enumerate(needles) if needle in block}
    (out / "matches").write_text(str(sorted(matches)))
MPI.COMM_WORLD.Barrier()
""",
    )
    assert (tmp_path / "matches").read_text() == "[2]"  # the marker alone


@pytest.mark.slow
def test_federation_imports_without_mpi(tmp_path):
    """Nothing but federation.mpi imports mpi4py."""
    code = (
        "import sys; sys.modules['mpi4py'] = None; "
        "import pkm.federation, pkm.experiments.fit.execute; "
        "print('pkm.federation.mpi' in sys.modules)"
    )
    imported = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert imported.returncode == 0, imported.stderr
    assert imported.stdout == "False\n"
