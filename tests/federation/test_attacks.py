"""Attacks on the protocol: a client with a tap, somebody in the middle, noise of public seeds."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pkm.compute import Points
from pkm.federation import (
    FederatedCurator,
    Identity,
    Masks,
    Network,
    ProtocolError,
    Ring,
    agreement,
    parties,
    run_in_threads,
    split_points,
)
from pkm.federation.keys import count_hello_bytes, sign_hello
from pkm.federation.links import SERVER, ThreadServerLink
from pkm.federation.masks import KeyStream
from pkm.federation.parties import run_client, run_server
from pkm.methods.lloyd.lloyd import FastLloyd, Lloyd
from pkm.privacy import SCALE, NoiseStreams

METHOD = FastLloyd(2, epsilon=1.0, secure=True, n_iterations=2)
N_WORDS = 2 * 3  # of a message


def random_points(n=60):
    rng = np.random.default_rng(0)
    return Points.prepare(rng.integers(-SCALE, SCALE + 1, (n, 2)))


# A client with a passive tap


@pytest.fixture
def tapped(monkeypatch):
    """What a run shows: exact values and messages of each client in the first round, on the wire
    and as the server reads them, and the keys of each client's masks.
    """
    seen = {"exact": {}, "wire": [], "server": [], "keys": {}}
    exchange = FederatedCurator._exchange
    gather = ThreadServerLink.gather
    aggregate = parties.aggregate

    def recording_exchange(self, exact):
        values = np.concatenate([exact["sums"], exact["counts"][:, :, None]], axis=2)
        seen["exact"].setdefault(self._session.link.client, values)
        return exchange(self, exact)

    def recording_gather(self, n_bytes, *args):
        messages, arrivals = gather(self, n_bytes, *args)
        if n_bytes == 8 * N_WORDS:
            seen["wire"].append([message.view(np.uint64).reshape(1, 2, 3) for message in messages])
        return messages, arrivals

    def recording_aggregate(ring, messages, noise):
        seen["server"].append(messages)
        return aggregate(ring, messages, noise)

    def recording_masks(client, pair_keys, group_key, ring):
        seen["keys"][client] = (pair_keys, group_key)
        return Masks(client, pair_keys, group_key, ring)

    monkeypatch.setattr(FederatedCurator, "_exchange", recording_exchange)
    monkeypatch.setattr(ThreadServerLink, "gather", recording_gather)
    monkeypatch.setattr(parties, "aggregate", recording_aggregate)
    monkeypatch.setattr(agreement, "Masks", recording_masks)
    return seen


def attack(messages, keys):
    """Everything that the first client can make of the others' messages of the first round with the
    keys that it has: each of them and their sum, with its streams added, subtracted or left out.
    """
    pair_keys, group_key = keys
    shape = messages[0].shape
    streams = [
        KeyStream(key).next(shape, np.dtype(np.uint64)) for key in (*pair_keys.values(), group_key)
    ]
    bases = [*messages[1:], np.sum(messages[1:], axis=0, dtype=np.uint64)]
    guesses = []
    for base in bases:
        signed = [base]
        for stream in streams:
            signed = [words + sign for words in signed for sign in (stream * 0, stream, 0 - stream)]
        guesses += signed
    return [Ring(8).decode(words) for words in guesses]


@pytest.mark.parametrize("n_clients", [2, 3, 4])
def test_client_with_a_tap_learns_nothing_about_the_others(tapped, n_clients):
    """Before messages to the server were encrypted, it read everybody's exact sums and counts."""
    parts = split_points(random_points(), n_clients, 0)
    run_in_threads(METHOD, parts, [0], network=Network(n_clients))

    others = [tapped["exact"][client] for client in range(2, n_clients + 1)]
    secrets = [*others, np.sum(others, axis=0)]
    guesses = attack(tapped["wire"][0], tapped["keys"][1])
    assert len(guesses) > 10
    for guess in guesses:
        for secret in secrets:
            assert not (guess == secret).any()

    # The attack is sound: on the messages without the encryption it finds the sum of the others,
    # and with one other client its very values.
    guesses = attack(tapped["server"][0], tapped["keys"][1])
    assert any((guess == secrets[-1]).all() for guess in guesses)


@pytest.mark.parametrize("n_clients", [2, 3])
def test_server_cannot_read_the_exact_sum(tapped, n_clients):
    """It knows the noise: the sum of all messages, without it, must not be that of the values."""
    parts = split_points(random_points(), n_clients, 0)
    run_in_threads(METHOD, parts, [0], network=Network(n_clients))
    total = np.sum(tapped["server"][0], axis=0, dtype=np.uint64)
    exact = np.sum(list(tapped["exact"].values()), axis=0)
    assert not (Ring(8).decode(total) == exact).any()
    # The clients' common stream is all that hides it.
    group = KeyStream(tapped["keys"][1][1]).next(total.shape, total.dtype)
    assert (Ring(8).decode(total - group) == exact).all()


# Somebody in the middle


def failing_run(link, identities, fingerprints):
    """Run with two clients over a link; return the errors of the clients and of the server."""
    network = Network(2, fingerprints=fingerprints)
    parts = split_points(random_points(), 2, 0)
    errors = {}

    def run(party, function, *arguments):
        try:
            function(*arguments, network, identity=identities[party])
        except ProtocolError as error:
            errors[party] = str(error)
            (link if party == SERVER else link.client(party)).abort(str(error))

    def client(party):
        run(party, run_client, link.client(party), METHOD, parts[party - 1], 60, [0], None)

    threads = [parties.threading.Thread(target=client, args=(party,)) for party in (1, 2)]
    for thread in threads:
        thread.start()
    run(SERVER, run_server, link, METHOD, 60, 2, NoiseStreams([0], secure=True))
    for thread in threads:
        thread.join(20)
    return errors


class MiddleLink(ThreadServerLink):
    """Somebody between the first client and all others, who replaces the second client's hello."""

    def __init__(self, replacement):
        super().__init__(2, 0.0, 5)
        self.replacement = replacement

    def deliver(self, messages):
        size = count_hello_bytes(1)
        if len(messages[0]) == 3 * size:
            altered = as_words(messages[0]).copy()
            altered[2 * size :] = self.replacement(altered[2 * size :].tobytes())
            messages = [altered, messages[1]]
        super().deliver(messages)


@pytest.fixture
def identities():
    return [Identity.generate() for _ in range(3)]


def fingerprints_of(identities):
    return tuple(identity.fingerprint for identity in identities)


def as_words(message):
    return np.frombuffer(message, np.uint8)


def test_replaced_identity_is_noticed(identities):
    impostor = Identity.generate()
    message = sign_hello(impostor, 2, 2, [X25519PrivateKey.generate()])
    link = MiddleLink(lambda original: as_words(message))
    errors = failing_run(link, identities, fingerprints_of(identities))
    expected = (
        f"client 2 has the fingerprint {impostor.fingerprint}, not {identities[2].fingerprint}"
    )
    assert errors[1].startswith(expected)
    assert errors[SERVER] == f"client 1 stopped: {errors[1]}"
    assert link.bytes_received <= 3 * count_hello_bytes(1)  # no values


def test_replaced_key_is_noticed(identities):
    """The public identity is known to all: it can be shown, but not sign."""
    other_key = X25519PrivateKey.generate().public_key().public_bytes_raw()

    def replace_key(original):
        return as_words(original[:32] + other_key + original[64:])

    link = MiddleLink(replace_key)
    errors = failing_run(link, identities, fingerprints_of(identities))
    assert errors[1] == "client 2 sent keys that its identity did not sign"


def test_hello_of_another_party_or_run_is_noticed(identities):
    """What a party signed for another run or as another party opens nothing."""
    as_first = sign_hello(identities[2], 1, 2, [X25519PrivateKey.generate()])
    link = MiddleLink(lambda original: as_words(as_first))
    errors = failing_run(link, identities, fingerprints_of(identities))
    assert errors[1] == "client 2 sent keys that its identity did not sign"

    old = sign_hello(identities[2], 2, 2, [X25519PrivateKey.generate()])
    link = MiddleLink(lambda original: as_words(old))
    errors = failing_run(link, identities, fingerprints_of(identities))
    assert "sent a malformed box: it was not sealed for this client" in errors[SERVER]


@pytest.mark.parametrize("party", [SERVER, 1])
def test_impostor_is_refused(identities, party):
    """Somebody takes the place of the server, or of a client, with a key of its own."""
    fingerprints = fingerprints_of(identities)
    identities[party] = Identity.generate()
    link = ThreadServerLink(2, 0.0, 5)
    errors = failing_run(link, identities, fingerprints)
    name = "the server" if party == SERVER else "client 1"
    assert any(error.startswith(f"{name} has the fingerprint") for error in errors.values())
    assert link.bytes_received <= 2 * count_hello_bytes(1)


# Public noise


def test_noise_from_public_seeds_needs_a_simulation(identities):
    parts = split_points(random_points(), 2, 0)
    network = Network(2, fingerprints=fingerprints_of(identities))
    message = r"secure=False of \w+: .* set secure=True, or simulated=True"
    for method in (FastLloyd(2), Lloyd(2)):
        with pytest.raises(ValueError, match=message):
            run_in_threads(method, parts, [0], network=network)
        with pytest.raises(ValueError, match=message):
            run_client(None, method, parts[0], 60, [0], None, network, identity=identities[1])
        with pytest.raises(ValueError, match=message):
            noise = NoiseStreams([0], secure=True)
            run_server(None, method, 60, 2, noise, network, identity=identities[0])
    with pytest.raises(ValueError, match="secure=False of the noise must be True"):
        run_server(None, METHOD, 60, 2, NoiseStreams([0]), network, identity=identities[0])


def test_parties_need_fingerprints(identities):
    parts = split_points(random_points(), 2, 0)
    with pytest.raises(ValueError, match="fingerprints=None of the network must be those"):
        run_client(None, METHOD, parts[0], 60, [0], None, Network(2), identity=identities[1])
    noise = NoiseStreams([0], secure=True)
    with pytest.raises(ValueError, match="fingerprints=None of the network must be those"):
        run_server(None, METHOD, 60, 2, noise, Network(2), identity=identities[0])
