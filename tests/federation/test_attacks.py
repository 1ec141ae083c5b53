"""Attacks on the protocol: a client with a tap, somebody in the middle, noise of public seeds."""

import re
import threading
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from protocol_runs import CountingLink, make_identities, run_threads
from sklearn.base import clone

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
from pkm.federation.keys import (
    SIGNATURE_BYTES,
    TAG_BYTES,
    count_hello_bytes,
    digest_terms,
    sign_hello,
)
from pkm.federation.links import ABORT, SERVER, ThreadServerLink, ThreadTransport
from pkm.federation.masks import KeyStream
from pkm.federation.parties import list_terms, run_client, run_server
from pkm.methods.lloyd.lloyd import FastLloyd, GLloyd, Lloyd
from pkm.privacy import SCALE, NoiseStreams, Unit

METHOD = FastLloyd(2, epsilon=1.0, secure=True, n_iterations=2)
N_WORDS = 2 * 3  # of a message
TERMS = list_terms(METHOD, 60, 2, 1, None, Network(2))
HELLO_BYTES = count_hello_bytes(1, len(TERMS))


def random_points(n=60, d=2):
    rng = np.random.default_rng(0)
    return Points.from_grid(rng.integers(-SCALE, SCALE + 1, (n, d)))


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
        if n_bytes == 8 * N_WORDS + TAG_BYTES:
            seen["wire"].append(
                [message[:-TAG_BYTES].view(np.uint64).reshape(1, 2, 3) for message in messages]
            )
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
            (link if party == SERVER else link.client(party)).abort(error)

    def client(party):
        run(party, run_client, link.client(party), METHOD, parts[party - 1], 60, [0], None)

    threads = [parties.threading.Thread(target=client, args=(party,)) for party in (1, 2)]
    for thread in threads:
        thread.start()
    run(SERVER, run_server, link, METHOD, 60, 2, NoiseStreams([0], secure=True), None)
    for thread in threads:
        thread.join(20)
    return errors


class MiddleLink(CountingLink):
    """Somebody between the first client and all others, who replaces the second client's hello."""

    def __init__(self, replacement):
        super().__init__(2, 0.0, 5)
        self.replacement = replacement

    def deliver(self, messages):
        size = HELLO_BYTES
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
    message = sign_hello(impostor, 2, 2, TERMS, [X25519PrivateKey.generate()])
    link = MiddleLink(lambda original: as_words(message))
    errors = failing_run(link, identities, fingerprints_of(identities))
    expected = (
        f"client 2 has the fingerprint {impostor.fingerprint}, not {identities[2].fingerprint}"
    )
    assert errors[1].startswith(expected)
    assert errors[SERVER] == f"client 1 stopped: {errors[1]}"
    assert link.bytes_received <= 3 * HELLO_BYTES  # no values


def test_replaced_key_is_noticed(identities):
    """The public identity is known to all: it can be shown, but not sign."""
    other_key = X25519PrivateKey.generate().public_key().public_bytes_raw()

    def replace_key(original):
        n_before = len(original) - SIGNATURE_BYTES - len(other_key)
        return as_words(original[:n_before] + other_key + original[-SIGNATURE_BYTES:])

    link = MiddleLink(replace_key)
    errors = failing_run(link, identities, fingerprints_of(identities))
    assert errors[1] == "client 2 sent a hello that its identity did not sign"


def test_hello_of_another_party_or_run_is_noticed(identities):
    """What a party signed for another run or as another party opens nothing."""
    as_first = sign_hello(identities[2], 1, 2, TERMS, [X25519PrivateKey.generate()])
    link = MiddleLink(lambda original: as_words(as_first))
    errors = failing_run(link, identities, fingerprints_of(identities))
    assert errors[1] == "client 2 sent a hello that its identity did not sign"

    old = sign_hello(identities[2], 2, 2, TERMS, [X25519PrivateKey.generate()])
    link = MiddleLink(lambda original: as_words(old))
    errors = failing_run(link, identities, fingerprints_of(identities))
    assert "sent a malformed message: not encrypted for this client" in errors[SERVER]


@pytest.mark.parametrize("party", [SERVER, 1])
def test_impostor_is_refused(identities, party):
    """Somebody takes the place of the server, or of a client, with a key of its own."""
    fingerprints = fingerprints_of(identities)
    identities[party] = Identity.generate()
    link = CountingLink(2, 0.0, 5)
    errors = failing_run(link, identities, fingerprints)
    name = "the server" if party == SERVER else "client 1"
    assert any(error.startswith(f"{name} has the fingerprint") for error in errors.values())
    assert link.bytes_received <= 2 * HELLO_BYTES


# Public noise


def test_noise_from_public_seeds_needs_a_simulation(identities):
    parts = split_points(random_points(), 2, 0)
    network = Network(2, fingerprints=fingerprints_of(identities))
    message = r"secure=False of \w+: .* set secure=True, or allow_seeded_noise=True"
    for method in (FastLloyd(2), Lloyd(2)):
        with pytest.raises(ValueError, match=message):
            run_in_threads(method, parts, [0], network=network)
        with pytest.raises(ValueError, match=message):
            run_client(None, method, parts[0], 60, [0], None, network, identity=identities[1])
        with pytest.raises(ValueError, match=message):
            noise = NoiseStreams([0], secure=True)
            run_server(None, method, 60, 2, noise, None, network, identity=identities[0])
    with pytest.raises(ValueError, match="secure=False of the noise must be True"):
        run_server(None, METHOD, 60, 2, NoiseStreams([0]), None, network, identity=identities[0])


def test_parties_need_fingerprints(identities):
    parts = split_points(random_points(), 2, 0)
    with pytest.raises(ValueError, match="fingerprints=None of the network must be those"):
        run_client(None, METHOD, parts[0], 60, [0], None, Network(2), identity=identities[1])
    noise = NoiseStreams([0], secure=True)
    with pytest.raises(ValueError, match="fingerprints=None of the network must be those"):
        run_server(None, METHOD, 60, 2, noise, None, Network(2), identity=identities[0])


# Altered messages

N_FLIPS = 100
#: What a party says that received an altered message.
NOTICED = (
    r"has the fingerprint|did not sign|malformed message: not encrypted|was altered on its way|"
    r"malformed public key|sent keys"
)


class FlippedBit:
    """Flips one bit of the message of a number, in the order in which messages are sent."""

    def __init__(self, number, seed):
        self.number = number
        self.rng = np.random.default_rng(seed)
        self.n_sent = 0
        self.lock = threading.Lock()

    def patch(self, monkeypatch):
        put = ThreadTransport.put

        def flipping_put(transport, receiver, header, message):
            if header == ABORT:
                return put(transport, receiver, header, message)
            with self.lock:
                number = self.n_sent
                self.n_sent += 1
            if number == self.number:
                message = as_words(message).copy()
                message[self.rng.integers(len(message))] ^= 1 << int(self.rng.integers(8))
            return put(transport, receiver, header, message)

        monkeypatch.setattr(ThreadTransport, "put", flipping_put)


@cache
def parts_of(n_clients):
    """Points of each client, put on the grid once for thousands of runs."""
    return split_points(random_points(), n_clients, 0)


def run_flipped(monkeypatch, number, seed, recover=False):
    """Run with one bit flipped; return the number of messages, and the error or None."""
    flipped = FlippedBit(number, seed)
    parts = parts_of(3 if recover else 2)
    network = Network(len(parts), time_limit=5, recover=recover)
    error = None
    wait_for_clients()
    with monkeypatch.context() as patch:
        flipped.patch(patch)
        try:
            run_in_threads(METHOD, parts, [0], network=network)
        except ProtocolError as raised:
            error = str(raised)
        wait_for_clients()
    return flipped.n_sent, error


def wait_for_clients():
    """Wait for clients of runs that have failed: they may send a last message."""
    for thread in threading.enumerate():
        if thread.name.startswith("client "):
            thread.join(20)


def check_flips(monkeypatch, n_flips, recover):
    """Every bit that is flipped on the wire ends the run, and the error says why."""
    n_messages, error = run_flipped(monkeypatch, -1, 0, recover)
    assert error is None
    # Hellos and secrets, then rounds: a message up and a result down; with recovery also who
    # has arrived, and shares.
    n_exchanges = 2 + METHOD.n_iterations * (2 if recover else 1)
    assert n_messages == (3 if recover else 2) * 2 * n_exchanges
    for seed in range(n_flips):
        _, error = run_flipped(monkeypatch, seed % n_messages, seed, recover)
        assert error is not None, seed
        assert re.search(NOTICED, error), (seed, error)


@pytest.mark.slow
@pytest.mark.parametrize("recover", [False, True])
def test_flipped_bit_ends_the_run(monkeypatch, recover):
    """An altered message is no loss that a run recovers from, be it the last one."""
    check_flips(monkeypatch, N_FLIPS, recover)


@pytest.mark.slow
@pytest.mark.parametrize("recover", [False, True])
def test_a_thousand_flipped_bits_end_the_run(monkeypatch, recover):
    check_flips(monkeypatch, 1_000, recover)


# Parties that were configured differently


class OtherSchedule(FastLloyd):
    """The same by name and parameters, with one round less."""

    __module__ = FastLloyd.__module__
    __qualname__ = FastLloyd.__qualname__

    def schedule(self, n_points, n_features):
        planned = super().schedule(n_points, n_features)
        return replace(planned, rounds=planned.rounds[:-1])


#: The method of a party that runs another version of this package.
OF_OTHER_VERSION = clone(METHOD)
OTHER = {
    "epsilon": {"method": clone(METHOD).set_params(epsilon=2.0)},
    "n_clusters": {"method": clone(METHOD).set_params(n_clusters=3)},
    "delta": {"method": clone(METHOD).set_params(delta=1e-3)},
    "method": {"method": GLloyd(2, epsilon=1.0, secure=True, n_iterations=2)},
    "parameters": {"method": clone(METHOD).set_params(n_iterations=3)},
    "n_points": {"n_points": 61},
    "domain": {"domain": [[-1, -1], [1, 1]]},
    "number of seeds": {"seeds": [0, 1]},
    "word_bytes": {"word_bytes": 4},
    "unit": {"unit": Unit.PERSON},
    "schedule": {"method": OtherSchedule(2, epsilon=1.0, secure=True, n_iterations=2)},
    "n_features": {"n_features": 3},
    "recover": {"recover": True},
    "version of pkm": {"method": OF_OTHER_VERSION},
}


def test_every_term_is_tested():
    assert OTHER.keys() == TERMS.keys()


def list_terms_of_version(method, *arguments):
    terms = list_terms(method, *arguments)
    return terms | {"version of pkm": "0.0"} if method is OF_OTHER_VERSION else terms


@pytest.mark.parametrize("term", OTHER)
@pytest.mark.parametrize("party", [SERVER, 1, 2])
def test_parties_with_other_terms_stop_before_they_send_values(monkeypatch, term, party):
    monkeypatch.setattr(parties, "list_terms", list_terms_of_version)
    errors = {}
    # A run that recovers takes three clients.
    link = CountingLink(3, 0.0, 5)
    identities, fingerprints = make_identities(3)

    def run(own):
        other = OTHER[term] if own == party else {}
        seeds = other.get("seeds", [0])
        method = other.get("method", METHOD)
        n_points = other.get("n_points", 60)
        domain = other.get("domain")
        word_bytes = other.get("word_bytes", 8)
        unit = other.get("unit", Unit.ROW)
        recover = other.get("recover", False)
        n_features = other.get("n_features", 2)
        network = Network(3, word_bytes, recover=recover, fingerprints=fingerprints, unit=unit)
        own_link = link if own == SERVER else link.client(own)
        try:
            if own == SERVER:
                noise = NoiseStreams(seeds, secure=True)
                arguments = (method, n_points, n_features, noise, domain, network)
                run_server(own_link, *arguments, identity=identities[own])
            else:
                parts = split_points(random_points(d=n_features), 3, 0)
                points = parts[own - 1]
                if unit == Unit.PERSON:
                    weights = np.full(20, SCALE, np.int32)
                    points = replace(points, weights=weights, n_persons=20)
                arguments = (method, points, n_points, seeds, domain, network)
                run_client(own_link, *arguments, identity=identities[own])
        except ProtocolError as error:
            errors[own] = str(error)
            own_link.abort(error)

    run_threads([partial(run, client) for client in (1, 2, 3)], partial(run, SERVER))
    assert set(errors) == {SERVER, 1, 2, 3}
    message = rf"was started with .*another {term}\b"
    if term == "recover":
        # Hellos of such a run hold keys for each round: they have another length.
        message = r"malformed message: \d+ bytes where \d+ were due"
    assert any(re.search(message, error) for error in errors.values())
    assert link.bytes_received <= 3 * HELLO_BYTES


def test_terms_hold_every_digit_and_entry_of_an_array():
    bounds = np.stack([-np.ones(2000), np.ones(2000)])
    other_bounds = bounds.copy()
    other_bounds[1, 1000] += 1e-12
    digests = {
        digest_terms(
            list_terms(clone(METHOD).set_params(bounds=end), 60, 2000, 1, None, Network(2))
        )
        for end in (bounds, other_bounds)
    }
    assert len(digests) == 2
