"""Clients that drop out: at every moment of a run, with and without recovery."""

import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import Points
from pkm.federation import (
    FederatedCurator,
    Network,
    ProtocolError,
    Ring,
    parties,
    run_in_threads,
    split_points,
)
from pkm.federation.links import view_bytes
from pkm.federation.masks import KeyStream, add_pairwise
from pkm.federation.recovery import (
    PRIME,
    DropoutRecovery,
    RecoverableMasks,
    RoundSecrets,
    _derive_individual_stream,
    _derive_pair_streams,
    combine_shares,
    compute_threshold,
    split_secret,
)
from pkm.methods.lloyd.lloyd import FastLloyd, SuLloyd
from pkm.privacy import SCALE, Curator, to_shards

N_ROUNDS = 3
METHOD = FastLloyd(3, epsilon=1.0, n_iterations=N_ROUNDS)


def random_points(n=300):
    rng = np.random.default_rng(0)
    return Points.from_grid(rng.integers(-SCALE, SCALE + 1, (n, 2)))


# Runs


def run_with_losses(monkeypatch, losses, n_clients=3, method=METHOD, stall=0.0, **settings):
    """Run with clients that drop out before they send their message of a round, or their shares;
    ``losses`` maps a client to the round and the moment.
    """
    exchange = FederatedCurator._exchange
    send_shares = RecoverableMasks.send_shares

    def disappear(client, number, moment):
        if losses.get(client) == (number, moment):
            if stall:
                time.sleep(stall)
            else:
                raise MemoryError("no room left")

    def losing_exchange(self, exact):
        session = self._session
        disappear(session.link.client, session.timings.communication_rounds, "message")
        return exchange(self, exact)

    def losing_shares(self, link):
        disappear(self._client, self._round, "shares")
        return send_shares(self, link)

    monkeypatch.setattr(FederatedCurator, "_exchange", losing_exchange)
    monkeypatch.setattr(RecoverableMasks, "send_shares", losing_shares)
    parts = split_points(random_points(), n_clients, 0)
    network = Network(n_clients, **settings)
    return run_in_threads(method, parts, [0, 3], network=network, allow_seeded_noise=True)


def central_run(losses, n_clients=3, method=METHOD):
    """The central run on the points of the clients that are there in each round."""
    parts = split_points(random_points(), n_clients, 0)

    class LosingCurator(Curator):
        def release_all(self, requests, source=None):
            number = self._rounds[requests[0][0].label]
            present = [
                part
                for client, part in enumerate(parts, 1)
                if client not in losses or number < first_absent(losses[client])
            ]
            self._shards = to_shards(present)
            return super().release_all(requests, source)

    def curator(ledger, streams):
        return LosingCurator(parts, ledger, streams)

    return method.fit_with(curator, 300, 2, [0, 3])


def first_absent(loss):
    """First round that is without a client: its message has arrived before its shares are due."""
    number, moment = loss
    return number if moment == "message" else number + 1


@pytest.mark.parametrize("word_bytes", [4, 8])
@pytest.mark.parametrize("method", [METHOD, SuLloyd(3, epsilon=1.0)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("n_clients", [3, 5])
def test_recoverable_run_without_losses_equals_central(monkeypatch, n_clients, method, word_bytes):
    run, measured = run_with_losses(
        monkeypatch, {}, n_clients, method, recover=True, word_bytes=word_bytes
    )
    assert (run.centers == method.fit_batch(random_points(), [0, 3]).centers).all()
    assert measured.rounds_per_iteration == 2.0
    # The sums, and n_clients shares and flags for each client.
    n_bytes = 2 * 2 * 3 * 3 * word_bytes + n_clients * 32 + n_clients
    assert measured.bytes_per_iteration == n_clients * n_bytes


@pytest.mark.parametrize("client", [1, 2, 3])
@pytest.mark.parametrize("moment", ["message", "shares"])
@pytest.mark.parametrize("number", range(N_ROUNDS))
def test_run_without_a_client_equals_central_without_it(monkeypatch, number, moment, client):
    losses = {client: (number, moment)}
    run, _ = run_with_losses(monkeypatch, losses, recover=True, time_limit=20)
    central = central_run(losses)
    assert (run.centers == central.centers).all()
    assert run.ledger.charges == central.ledger.charges
    is_last = losses[client] == (N_ROUNDS - 1, "shares")
    complete = METHOD.fit_batch(random_points(), [0, 3])
    assert (run.centers == complete.centers).all() == is_last


@pytest.mark.parametrize(
    "losses",
    [
        {1: (0, "message"), 2: (0, "message")},
        {1: (1, "message"), 4: (1, "shares")},
        {5: (0, "shares"), 1: (1, "message")},
        {2: (0, "message"), 3: (2, "shares")},
    ],
)
@pytest.mark.parametrize("word_bytes", [4, 8])
def test_several_clients_may_drop_out(monkeypatch, losses, word_bytes):
    run, _ = run_with_losses(
        monkeypatch, losses, 5, recover=True, time_limit=20, word_bytes=word_bytes
    )
    assert (run.centers == central_run(losses, 5).centers).all()


@pytest.mark.parametrize("moment", ["message", "shares"])
def test_stalled_client_is_left_behind(monkeypatch, moment):
    """What it sends when it wakes up is not used."""
    METHOD.fit_batch(random_points(), [0, 3])  # compiles the kernels before the limit applies
    losses = {2: (1, moment)}
    run, _ = run_with_losses(monkeypatch, losses, stall=1.0, recover=True, time_limit=0.5)
    assert (run.centers == central_run(losses).centers).all()


@pytest.mark.parametrize(
    "losses",
    [
        {1: (0, "message"), 3: (0, "message")},
        {1: (0, "message"), 3: (2, "message")},
        {1: (0, "shares"), 3: (0, "message")},
        {1: (1, "shares"), 3: (1, "shares")},
    ],
)
def test_half_of_the_clients_do_not_suffice(monkeypatch, losses):
    with pytest.raises(ProtocolError) as raised:
        run_with_losses(monkeypatch, losses, recover=True, time_limit=20)
    error = str(raised.value)
    for client in losses:
        assert f"client {client} stopped: MemoryError: no room left" in error
    assert error.endswith("1 of n_clients=3 remain, and 2 must")


@pytest.mark.parametrize("number", range(N_ROUNDS))
def test_without_recovery_a_loss_ends_the_run(monkeypatch, number):
    with pytest.raises(ProtocolError, match="client 2 stopped: MemoryError: no room left"):
        run_with_losses(monkeypatch, {2: (number, "message")})


def test_loss_before_the_first_round_ends_the_run(monkeypatch):
    """Keys and shares must be those of all clients."""
    agree = parties.agree_as_client

    def losing_agree(link, *args):
        if link.client == 2:
            raise MemoryError("no room left")
        return agree(link, *args)

    monkeypatch.setattr(parties, "agree_as_client", losing_agree)
    with pytest.raises(ProtocolError, match="client 2 stopped: MemoryError: no room left"):
        run_with_losses(monkeypatch, {}, recover=True)


# Shares


@given(st.integers(0, PRIME - 1), st.integers(1, 6), st.data())
@settings(max_examples=40, deadline=None)
def test_shares_of_a_threshold_determine_the_secret(secret, n_shares, data):
    threshold = data.draw(st.integers(1, n_shares))
    shares = dict(enumerate(split_secret(secret, n_shares, threshold), 1))
    for numbers in combinations(shares, threshold):
        assert combine_shares({number: shares[number] for number in numbers}) == secret
    assert combine_shares(shares) == secret


def test_fewer_shares_tell_nothing():
    """They go with every secret: a further share completes them to any."""
    first, second = split_secret(42, 3, 3)[:2]
    for secret in (0, 1, 42, PRIME - 1):
        # The third share by interpolation through 0, 1 and 2.
        third = (secret - 3 * first + 3 * second) % PRIME
        assert combine_shares({1: first, 2: second, 3: third}) == secret
    assert split_secret(42, 3, 3)[:2] != [first, second]


@pytest.mark.parametrize(("n_clients", "threshold"), [(3, 2), (4, 3), (5, 3), (8, 5)])
def test_threshold_is_more_than_half(n_clients, threshold):
    assert compute_threshold(n_clients) == threshold


# What the server can do


class Reveal:
    """A link on which the server names the clients whose messages have arrived."""

    def __init__(self, n_clients, arrived):
        self.n_clients = n_clients
        self.present = np.zeros(n_clients, np.uint8)
        self.present[np.array(arrived, int) - 1] = 1
        self.sent = []

    def receive(self, n_bytes):
        assert n_bytes == self.n_clients
        return self.present

    def send(self, message):
        self.sent.append(message)


class Shares:
    """The server's end of a link on which all shares arrive."""

    def __init__(self, n_clients, lost, sent):
        self.n_clients = n_clients
        self.dropped = dict.fromkeys(lost, "lost")
        self.remaining = sorted({*range(1, n_clients + 1)} - {*lost})
        self.sent = sent

    def deliver(self, messages):
        assert set(self.remaining) == set(self.sent)

    def gather(self, n_bytes, recover):
        return [view_bytes(self.sent[client]) for client in self.remaining], None


def recoverable_masks(n_clients=3, n_rounds=2, word_bytes=8):
    """Masks of all clients, and the server's part."""
    clients = range(1, n_clients + 1)
    secrets = {client: RoundSecrets.draw(n_rounds) for client in clients}
    keys = {
        client: [key.public_key() for key in own.derive_keys()] for client, own in secrets.items()
    }
    shares = {client: own.share(n_clients) for client, own in secrets.items()}
    salt = bytes(32)
    masks = {
        client: RecoverableMasks(
            client,
            own,
            keys,
            {sender: shares[sender][client] for sender in clients},
            bytes(range(32)),
            salt,
            Ring(word_bytes),
        )
        for client, own in secrets.items()
    }
    return masks, DropoutRecovery(keys, salt), keys


def test_late_message_stays_masked():
    """The server has the key of the pairwise masks of a client without message; when the message
    arrives after all, the client's own mask is still on it, and the stream of the group.
    """
    masks, recovery, keys = recoverable_masks()
    values = {client: np.full((1, 2, 3), 1000 * client) for client in masks}
    messages = {client: mask.mask(values[client]) for client, mask in masks.items()}
    sent = {}
    for client in (1, 2):
        link = Reveal(3, [1, 2])
        masks[client].send_shares(link)
        (sent[client],) = link.sent
    recovery.collect_shares(Shares(3, [3], sent))
    total = messages[1] + messages[2]
    recovery.unmask(total)
    for client in (1, 2):
        assert (masks[client].unmask(total) == values[1] + values[2]).all()

    # The server cannot read the sum, nor the late message.
    assert not (Ring(8).decode(total) == values[1] + values[2]).any()
    late = messages[3].copy()
    streams = _derive_pair_streams(recovery._seeds[3], {1: keys[1][0], 2: keys[2][0]}, bytes(32))
    words = [(peer, 0 - stream.next(late.shape, late.dtype)) for peer, stream in streams.items()]
    add_pairwise(late, 3, words)
    assert not (Ring(8).decode(late) == values[3]).any()
    # The group's stream, which a client that colludes could tell, is not all that is left.
    group = masks[3]._group_words[3]
    assert not (Ring(8).decode(late - group) == values[3]).any()
    own = _derive_individual_stream(masks[3]._own.mask_seeds[0]).next(late.shape, late.dtype)
    assert (Ring(8).decode(late - group - own) == values[3]).all()


def test_client_reveals_once_per_round_and_for_enough_clients():
    values = np.zeros((1, 2, 3), np.int64)
    for arrived in ([1], [2, 3], []):
        masks, _, _ = recoverable_masks()
        masks[1].mask(values)
        link = Reveal(3, arrived)
        with pytest.raises(ProtocolError, match="the server sent a malformed message"):
            masks[1].send_shares(link)
        assert not link.sent
        with pytest.raises(RuntimeError, match="no masked message whose shares"):
            masks[1].send_shares(Reveal(3, [1, 2, 3]))

    masks, _, _ = recoverable_masks()
    with pytest.raises(RuntimeError, match="no masked message whose shares"):
        masks[1].send_shares(Reveal(3, [1, 2, 3]))
    masks[1].mask(values)
    masks[1].send_shares(Reveal(3, [1, 2]))
    with pytest.raises(RuntimeError, match="no masked message whose shares"):
        masks[1].send_shares(Reveal(3, [1, 2, 3]))
    masks[1].unmask(np.zeros((1, 2, 3), np.uint64))

    # A client that has left does not come back.
    masks[1].mask(values)
    with pytest.raises(ProtocolError, match="the server sent a malformed message"):
        masks[1].send_shares(Reveal(3, [1, 2, 3]))


def test_masks_of_rounds_are_independent():
    """The key of one round, which the server may get, is not that of another."""
    masks, _, keys = recoverable_masks()
    first, second = (
        _derive_pair_streams(seed, {2: keys[2][i]}, bytes(32))[2].next((4,), np.dtype(np.uint64))
        for i, seed in enumerate(masks[1]._own.key_seeds)
    )
    assert not (first == second).any()
    assert isinstance(_derive_individual_stream(1), KeyStream)
    assert len(set(masks[1]._own.mask_seeds + masks[1]._own.key_seeds)) == 4
