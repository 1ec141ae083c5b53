"""Parties that are processes: results, failures, recovery, and what the server's memory holds."""

import pytest

from pkm.federation import ProtocolError, mpi_available, mpirun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not mpi_available(), reason="mpi4py and mpirun are not installed: make protocol"
    ),
]
#: What every process has. It takes seconds to import: pandas, which scikit-learn can do without, is
#: left out.
PROLOGUE = """
import sys
sys.modules["pandas"] = None
import os, signal, time
import numpy as np
from pathlib import Path
from pkm.compute import Points
from pkm.federation import FederatedCurator, ProtocolError, Network
from pkm.federation.mpi import MPI, run_rank
from pkm.methods.lloyd.lloyd import FastLloyd, SuLloyd
from pkm.privacy import SCALE
out = Path(sys.argv[1])
rank = MPI.COMM_WORLD.Get_rank()
points = Points.from_grid(np.random.default_rng(0).integers(-SCALE, SCALE + 1, (400, 2)))
method = FastLloyd(3, epsilon=1.0, n_iterations=5)
method.fit_batch(points, [0])
def wait_for_all():
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(0.01)
exchange = FederatedCurator._exchange
def misbehave(victim, action, moment=2):
    def failing_exchange(self, exact):
        if rank == victim and self._session.timings.communication_rounds == moment:
            action(self._session.link)
        return exchange(self, exact)
    FederatedCurator._exchange = failing_exchange
wait_for_all()
"""
#: Scenarios in which no process ends, one after another. What a process raised is in a file.
SCENARIOS = """
def equal_central():
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
                size = 2 * 3 * 2 * lloyd.n_clusters * 3 * word_bytes
                assert measured.bytes_per_iteration == size
                (out / f"{type(lloyd).__name__}-{word_bytes}").touch()

def have_seeded_noise():
    run_rank(method, points, [0], network=Network(3))

def have_secure_noise():
    secure = FastLloyd(3, epsilon=1.0, n_iterations=5, secure=True)
    run, _ = run_rank(secure, points, [0], network=Network(3))
    assert (run is None) == (rank != 1)

def search_memory():
    from pkm.federation import agreement
    masks = agreement.Masks
    keys = []
    def recording_masks(client, pair_keys, group_key, ring):
        keys.extend([group_key, *pair_keys.values()])
        return masks(client, pair_keys, group_key, ring)
    agreement.Masks = recording_masks
    run_rank(method, points, [0], network=Network(3), allow_seeded_noise=True)
    agreement.Masks = masks
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
        (out / "matches").write_text(f"{sorted(matches)} of {len(needles)}")

def end_after(victim, action):
    misbehave(victim, action)
    network = Network(3, time_limit=2)
    run_rank(method, points, [0], network=network, allow_seeded_noise=True)

def wait_too_long():
    end_after(2, lambda link: time.sleep(4))

def send_too_little():
    end_after(2, lambda link: (link.send(np.zeros(71, np.uint8)), time.sleep(3)))

def send_too_much():
    message = np.zeros(72, np.uint8)
    end_after(2, lambda link: (link.send(message), link.send(message), link.receive(72)))

for scenario in (
    equal_central, have_seeded_noise, have_secure_noise, search_memory,
    wait_too_long, send_too_little, send_too_much,
):
    outcome = "released"
    try:
        scenario()
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    FederatedCurator._exchange = exchange
    (out / f"{scenario.__name__}-{rank}").write_text(outcome)
    wait_for_all()
"""


def run_program(folder, body, n_ranks=4, recover=False):
    """Run a program on some ranks."""
    program = folder / "program.py"
    program.write_text(PROLOGUE + body)
    # Under mpi4py's own runner a process that fails ends the job.
    arguments = ["-m", "mpi4py", str(program), str(folder)]
    mpirun(n_ranks, arguments, time_limit=300, recover=recover)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Folder of what the processes of the scenarios have written."""
    folder = tmp_path_factory.mktemp("scenarios")
    run_program(folder, SCENARIOS)
    return folder


def outcomes(results, scenario):
    """What became of the scenario in the server and in the three clients."""
    return [(results / f"{scenario}-{rank}").read_text() for rank in range(4)]


def test_processes_equal_the_central_run(results):
    assert outcomes(results, "equal_central") == ["released"] * 4
    assert len(list(results.glob("*Lloyd-*"))) == 4


def test_processes_with_public_noise_need_a_simulation(results):
    for outcome in outcomes(results, "have_seeded_noise"):
        assert "set secure=True, or allow_seeded_noise=True" in outcome
    assert outcomes(results, "have_secure_noise") == ["released"] * 4


def test_server_memory_does_not_hold_keys_of_masks(results):
    """After a run a client, who knows the keys of its masks, searches the server's whole writable
    memory for them.
    """
    assert outcomes(results, "search_memory") == ["released"] * 4
    # A key of all clients, and one of each pair. The marker alone is there.
    assert (results / "matches").read_text() == "[3] of 4"


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [
        ("wait_too_long", "client 2 sent nothing for 2 s"),
        ("send_too_little", "client 2 sent a malformed message: 87 bytes where 88 were due"),
        ("send_too_much", "client 2 sent a message where none"),
    ],
)
def test_misbehaving_process_is_named_and_nothing_is_released(results, scenario, reason):
    for outcome in outcomes(results, scenario):
        assert outcome.startswith("ProtocolError: ")
        assert reason in outcome


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("raise MemoryError('no room left')", "client 2 stopped: MemoryError: no room left"),
        # mpirun's message: a client's number is its rank.
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 2"),
    ],
)
def test_failing_process_ends_the_job_and_releases_nothing(tmp_path, action, reason):
    body = f"""
def fail(link):
    {action}
misbehave(2, fail)
network = Network(2, time_limit=2)
run, measured = run_rank(method, points, [0], network=network, allow_seeded_noise=True)
(out / "released").touch()
"""
    with pytest.raises(ProtocolError, match="the job failed") as raised:
        run_program(tmp_path, body, n_ranks=3)
    assert reason in str(raised.value)
    assert not (tmp_path / "released").exists()


@pytest.mark.parametrize(
    ("moment", "victim", "recover"),
    [("message", 1, True), ("message", 2, False), ("shares", 1, False), ("shares", 2, True)],
)
def test_killed_process_and_recovery(tmp_path, moment, victim, recover):
    """With recovery the first client that is left has the result of the run without the victim."""
    n_clients = 3 if recover else 2
    body = f"""
from pkm.federation import split_points
from pkm.federation.masks import Masks
from pkm.federation.recovery import RecoverableMasks
from pkm.privacy import Curator
def die():
    if rank == {victim}:
        os.kill(os.getpid(), signal.SIGKILL)
if {moment!r} == "message":
    misbehave({victim}, lambda link: die())
for masks in (Masks, RecoverableMasks):
    def failing_shares(self, link, send_shares=masks.send_shares):
        self.number = getattr(self, "number", 0) + 1
        if {moment!r} == "shares" and self.number == 2:
            die()
        send_shares(self, link)
    masks.send_shares = failing_shares
network = Network({n_clients}, time_limit=2, recover={recover})
run, measured = run_rank(method, points, [0], network=network, allow_seeded_noise=True)
if run is not None:
    parts = split_points(points, {n_clients}, 0)
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
        run_program(tmp_path, body, recover=True)
        first = 2 if victim == 1 else 1
        assert [path.name for path in tmp_path.glob("released-*")] == [f"released-{first}"]
    else:
        # mpirun leaves the others running, so that it is the server that names the client.
        with pytest.raises(ProtocolError, match=f"client {victim} sent nothing for 2 s"):
            run_program(tmp_path, body, n_ranks=3, recover=True)
        assert not list(tmp_path.glob("released-*"))
