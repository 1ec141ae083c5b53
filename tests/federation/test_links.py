"""Failures that the server notices, and names."""

import time

import numpy as np
import pytest
from protocol_runs import random_points, run_protocol

from pkm.federation import FederatedCurator, Network, ProtocolError, run_in_threads, split_points
from pkm.federation.keys import TAG_BYTES
from pkm.methods.lloyd.lloyd import FastLloyd


def error_of_failing_run(monkeypatch, misbehave, n_clients=3, time_limit=1.0):
    """Run with a second client that calls a function in its third round; return the message of the
    error that the run raises.
    """
    exchange = FederatedCurator._exchange

    def failing_exchange(self, exact):
        session = self._session
        if session.link.client == 2 and session.timings.communication_rounds == 2:
            return misbehave(session.link)
        return exchange(self, exact)

    monkeypatch.setattr(FederatedCurator, "_exchange", failing_exchange)
    points = random_points()
    method = FastLloyd(3, epsilon=1.0, n_iterations=5)
    method.fit_batch(points, [0])  # compiles the kernels before the time limit applies
    parts = split_points(points, n_clients, 0)
    network = Network(n_clients, time_limit=time_limit)
    with pytest.raises(ProtocolError) as raised:
        run_in_threads(method, parts, [0], network=network, allow_seeded_noise=True)
    return str(raised.value)


def test_crashed_client_is_named(monkeypatch):
    def crash(link):
        raise MemoryError("no room left")

    error = error_of_failing_run(monkeypatch, crash)
    assert error == "client 2 stopped: MemoryError: no room left"


def test_stalled_client_is_named(monkeypatch):
    error = error_of_failing_run(monkeypatch, lambda link: time.sleep(3))
    assert error == "client 2 sent nothing for 1 s (time_limit)"


@pytest.mark.parametrize("n_bytes", [0, 71, 73, 720])
def test_sender_of_a_malformed_message_is_named(monkeypatch, n_bytes):
    message = np.zeros(n_bytes, np.uint8)
    error = error_of_failing_run(monkeypatch, lambda link: link.send(message))
    on_wire = n_bytes + TAG_BYTES
    expected = f"client 2 sent a malformed message: {on_wire} bytes where {72 + TAG_BYTES} were due"
    assert error == expected


@pytest.mark.parametrize("late_client", [1, 2])
def test_extra_message_is_not_used_for_the_next_round(late_client):
    """Whether it comes before or after the other client's message; its sender continues as if
    nothing had happened.
    """

    def client(link):
        for number in range(3):
            if link.client == late_client:
                time.sleep(0.05)
            link.send(np.full(8, number, np.uint8))
            if link.client == 2 and number == 1:
                link.send(np.full(8, 99, np.uint8))
            link.receive(8)

    def server(link):
        for number in range(3):
            messages, _ = link.gather(8)
            assert [message[0] for message in messages] == [number] * 2
            link.deliver([np.zeros(8, np.uint8)] * 2)

    _, server_error = run_protocol(2, client, server)
    assert str(server_error) == "client 2 sent a message where none was due"


def test_reason_of_failure_reaches_all_clients():
    def client(link):
        if link.client == 2:
            raise OSError("disk on fire")
        return link.receive(8)

    client_errors, server_error = run_protocol(3, client, lambda link: link.gather(8))
    first, _, third = client_errors
    assert str(server_error) == "client 2 stopped: OSError: disk on fire"
    assert str(first) == str(third) == f"the server ended the run: {server_error}"
