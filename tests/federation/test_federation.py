"""Masked secure aggregation: rings, masks, keys, equality with the central run, obliviousness,
failures.

Statistical tests use fixed seeds where they can; keys and secure noise are fresh entropy, where
p-values of 1e-8 and seven standard errors leave all checks together less than one failure by
chance in a million runs.
"""

import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.compute import Points
from pkm.federation import (
    FederatedCurator,
    Identity,
    Masks,
    Network,
    ProtocolError,
    Ring,
    agreement,
    launch,
    mpi_available,
    mpirun,
    parties,
    run_in_threads,
    split_points,
)
from pkm.federation.agreement import agree_as_client, agree_as_server
from pkm.federation.curator import ClientSession
from pkm.federation.keys import TAG_BYTES, hello_bytes
from pkm.federation.links import ThreadServerLink
from pkm.federation.masks import SECRET_BYTES, KeyStream
from pkm.federation.parties import aggregate, check_schedule, encoded_noise, run_client, run_server
from pkm.methods.lloyd.lloyd import FastLloyd, GLloyd, Lloyd, Round, SuLloyd
from pkm.methods.trees.dpm import DPM
from pkm.privacy import SCALE, Gaussian, Laplace, NoiseStreams
from pkm.privacy.mechanisms.additive import BoundedLaplace
from pkm.privacy.queries.sums import CountsAndBoundedSums, GapPercentile, GridCounts
from pkm.privacy.queries.tree import CellCounts, PartitionTree

RINGS = [Ring(4), Ring(8)]
SEEDS = st.integers(0, 10**6)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT63 = st.integers(-(2**62), 2**62)
LLOYD_METHODS = [
    FastLloyd(3, epsilon=1.0),
    FastLloyd(3, epsilon=0.5, variant="published"),
    FastLloyd(3, epsilon=0.5, radius_schedule="constant", postprocessing="truncate"),
    SuLloyd(3, epsilon=1.0),
    SuLloyd(3, epsilon=0.5, variant="published"),
    GLloyd(3, epsilon=1.0),
    GLloyd(3, epsilon=0.5, variant="published"),
    Lloyd(3),
]


def random_points(seed=0, n=400, d=2):
    rng = np.random.default_rng(seed)
    return Points.prepare(rng.integers(-SCALE, SCALE + 1, (n, d)))


def split_by_sizes(points, sizes):
    """Parts of given sizes, and the remaining points as the last part."""
    rows = points.rows.astype(np.int64)
    parts = np.split(rows, np.cumsum(sizes))
    return [Points.prepare(part) for part in parts]


def identities_of(n_clients):
    """New identities of the server and of all clients, and their fingerprints."""
    identities = [Identity.generate() for _ in range(n_clients + 1)]
    fingerprints = tuple(identity.fingerprint for identity in identities)
    return identities, fingerprints


def masks_of(n_clients, ring, seed=0):
    """Masks of all clients, from the same keys for the same seed."""
    rng = np.random.default_rng(seed)
    group_key = rng.bytes(SECRET_BYTES)
    pair_keys = {client: {} for client in range(1, n_clients + 1)}
    for first in pair_keys:
        for second in range(first + 1, n_clients + 1):
            key = rng.bytes(SECRET_BYTES)
            pair_keys[first][second] = key
            pair_keys[second][first] = key
    masks = [Masks(client, keys, group_key, ring) for client, keys in pair_keys.items()]
    return masks, pair_keys, group_key


def run_threads(clients, server):
    """Run the clients in threads while the server runs; return what the server returned."""
    threads = [threading.Thread(target=client) for client in clients]
    for thread in threads:
        thread.start()
    result = server()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return result


def run_protocol(n_clients, client, server, network=None):
    """Run functions of links as the parties; return the clients' results (or exceptions) and the
    server's.
    """
    network = network or Network(n_clients, time_limit=20)
    server_link = ThreadServerLink(n_clients, network.latency, network.time_limit)
    results = {}

    def client_thread(number):
        client_link = server_link.client(number)
        try:
            results[number] = client(client_link)
        except Exception as error:
            results[number] = error
            client_link.abort(repr(error))

    def guarded_server():
        try:
            return server(server_link)
        except ProtocolError as error:
            server_link.abort(str(error))
            return error

    numbers = range(1, n_clients + 1)
    clients = [partial(client_thread, number) for number in numbers]
    server_result = run_threads(clients, guarded_server)
    client_results = [results[number] for number in numbers]
    return client_results, server_result


# Ring


@pytest.mark.parametrize("ring", RINGS)
@given(values=st.lists(INT32, min_size=1, max_size=20), data=st.data())
def test_words_add_like_integers_within_the_ring(ring, values, data):
    words = ring.encode(np.array(values))
    assert ring.decode(words).tolist() == values

    # Intermediate sums may wrap: what is added and subtracted leaves the sum.
    n_values = len(values)
    shift_lists = st.lists(INT63, min_size=n_values, max_size=n_values)
    shifts = np.array(data.draw(shift_lists))
    shifted = words + ring.encode(shifts) - ring.encode(shifts)
    assert shifted.dtype.itemsize == ring.word_bytes
    assert ring.decode(shifted).tolist() == values


def test_ring_capacity_is_half_its_size():
    noise = Gaussian(1000.0)
    n_max = (2**31 - 1 - noise.max_noise) // SCALE
    largest_sum = n_max * SCALE + noise.max_noise
    assert largest_sum < 2**31 <= largest_sum + SCALE
    Ring(4).check_capacity(n_max, None, noise, noise)

    message = r"word_bytes=4 is too few: a sum over n=\d+ points .* set word_bytes=8"
    with pytest.raises(ValueError, match=message):
        Ring(4).check_capacity(n_max + 1, None, noise, noise)
    # A small radius bounds the sums, not the counts.
    with pytest.raises(ValueError, match="a count over n="):
        Ring(4).check_capacity(n_max + 1, 0.01, noise, noise)
    with pytest.raises(ValueError, match=r"a sum over .*2\*\*31$|a sum over .*word_bytes=8"):
        Ring(4).check_capacity(10, None, Gaussian(2.0**30), None)

    Ring(8).check_capacity(10**9, None, noise, noise)
    with pytest.raises(ValueError, match="word_bytes=8 is too few"):
        Ring(8).check_capacity(2**47, None, noise, noise)
    with pytest.raises(ValueError, match="word_bytes=5 must be 4 or 8"):
        Ring(5)


@pytest.mark.parametrize("secure", [False, True])
def test_noise_stays_within_max_noise(secure):
    streams = NoiseStreams([3], secure=secure)
    zeros = np.zeros((1, 10**6), np.int64)
    for mechanism in (Gaussian(50.0), Laplace(50.0)):
        noise = streams.release(mechanism, zeros, ("x", 0))
        # The bound covers the rarest draw there is; a million draws pass a fifth of it except once
        # in 10^50.
        largest = np.abs(noise).max()
        assert 0.2 * mechanism.max_noise < largest <= mechanism.max_noise


# Masks


def masks_of_clients(secret, n_clients, ring):
    return [Masks(secret, client, n_clients, ring) for client in range(1, n_clients + 1)]


def masked_messages(masks, values):
    return [mask.mask(value) for mask, value in zip(masks, values, strict=True)]


@given(
    st.integers(1, 6),
    st.sampled_from(RINGS),
    SEEDS,
)
@settings(max_examples=40, deadline=None)
def test_masks_cancel_and_determine_their_streams(n_clients, ring, seed):
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    masks, pair_keys, group_key = masks_of(n_clients, ring, seed)
    streams = {
        (first, second): KeyStream(key)
        for first, keys in pair_keys.items()
        for second, key in keys.items()
        if first < second
    }
    group = KeyStream(group_key)
    for _ in range(3):
        values = rng.integers(-(2**28), 2**28, (n_clients, *shape))
        messages = masked_messages(masks, values)
        total = np.sum(messages, axis=0, dtype=ring.dtype)
        for mask in masks:
            unmasked = mask.unmask(total)
            assert (unmasked == values.sum(axis=0)).all()

        # The first of a pair adds its stream, the second subtracts it; the first client adds the
        # stream of the group.
        expected = [ring.encode(value) for value in values]
        for (first, second), stream in streams.items():
            words = stream.next(shape, ring.dtype)
            expected[first - 1] += words
            expected[second - 1] -= words
        expected[0] += group.next(shape, ring.dtype)
        assert (np.array(messages) == np.array(expected)).all()


def test_masks_are_fresh_for_every_message():
    zeros = np.zeros(64, np.int64)
    all_words = []
    for masks in masks_of(3, Ring(8))[0]:
        for _ in range(4):
            words = masks.mask(zeros)
            all_words += words.tolist()
            masks.unmask(words)
    assert len(set(all_words)) == len(all_words)  # 768 words of 64 bits


def test_masks_out_of_order_are_refused():
    (masks, _), _, _ = masks_of(2, Ring(8))
    with pytest.raises(RuntimeError, match="no masked message"):
        masks.unmask(np.zeros(3, np.uint64))
    masks.mask(np.zeros(3, np.int64))
    with pytest.raises(RuntimeError, match="not revealed yet"):
        masks.mask(np.zeros(3, np.int64))


# Keys


def agree(n_clients, n_rounds=0, client_link=lambda link: link, **arguments):
    """Run the agreement on keys; return the links and masks of the clients (or their exceptions),
    those of the server, and the link that the messages passed.
    """
    identities, fingerprints = identities_of(n_clients)
    links = []

    def client(link):
        identity = identities[link.client]
        return agree_as_client(client_link(link), identity, fingerprints, n_rounds, Ring(8))

    def server(link):
        links.append(link)
        return agree_as_server(link, identities[0], fingerprints, n_rounds)

    clients, server_result = run_protocol(n_clients, client, server, **arguments)
    return clients, server_result, links[0]


@pytest.mark.parametrize("n_clients", [1, 2, 5])
@pytest.mark.parametrize("n_rounds", [0, 2])
def test_agreed_masks_cancel_and_links_are_sealed(n_clients, n_rounds):
    if n_rounds and n_clients < 3:
        return
    clients, (server_link, _), link = agree(n_clients, n_rounds)
    n_setup = n_clients * hello_bytes(1 + n_rounds)
    n_boxes = n_clients * (n_clients - 1) * (SECRET_BYTES + 64 * n_rounds + TAG_BYTES)
    assert link.bytes_received == n_setup + n_boxes
    assert link.bytes_sent == n_clients * (n_setup + hello_bytes(1)) + n_boxes

    # What the server gets is what a client sent, though not what was on the wire.
    message = np.arange(5)
    for client_link, _ in clients:
        client_link.send(message)
    received, _ = server_link.gather(message.nbytes)
    assert all((words.view(np.int64) == message).all() for words in received)
    for client_link, _ in clients:
        client_link.send(message)
    on_the_wire, _ = link.gather(message.nbytes)
    assert len({words.tobytes() for words in [*on_the_wire, message]}) == n_clients + 1

    # The clients' masks belong together.
    masks = [mask for _, mask in clients]
    total = np.sum([mask.mask(message) for mask in masks], axis=0, dtype=np.uint64)
    if not n_rounds:
        for mask in masks:
            assert (mask.unmask(total) == n_clients * message).all()


def test_altered_box_is_refused(monkeypatch):
    deliver = ThreadServerLink.deliver

    def altering_deliver(self, messages, clients=None):
        if len(messages[0]) == SECRET_BYTES + TAG_BYTES:
            messages = [message ^ np.uint8(1) for message in messages]
        deliver(self, messages, clients)

    monkeypatch.setattr(ThreadServerLink, "deliver", altering_deliver)
    (first, second), _, _ = agree(2)
    message = "client {} sent a malformed box: it was not sealed for this client"
    assert str(first) == message.format(2)
    assert str(second) == message.format(1)


def test_degenerate_public_key_is_refused(monkeypatch):
    """The identity may well have signed it."""
    from pkm.federation import agreement, keys

    class NeutralKey:
        def public_key(self):
            return self

        def public_bytes_raw(self):
            return bytes(keys.PUBLIC_BYTES)

    def hello(identity, party, n_clients, own_keys):
        return keys.hello(identity, party, n_clients, [NeutralKey()] if party == 2 else own_keys)

    monkeypatch.setattr(agreement, "hello", hello)
    (client_error, _), server_error, _ = agree(2)
    assert isinstance(client_error, ProtocolError)
    assert "client 2 sent a malformed public key" in str(client_error)
    assert "client 2 sent a malformed public key" in str(server_error)


# Aggregation


@given(
    st.integers(1, 5),
    st.sampled_from(RINGS),
    SEEDS,
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_unmasked_aggregate_is_the_sum_plus_noise(n_clients, ring, seed, laplace):
    rng = np.random.default_rng(seed)
    r = 2
    k = 3
    d = 2
    shape = (r, k, d + 1)
    mechanism = Laplace if laplace else Gaussian
    public_round = Round(None, mechanism(1000.0), mechanism(3000.0))

    # Clients mask their sums and counts; the server adds the messages and the noise.
    masks, _, _ = masks_of(n_clients, ring, seed)
    values = rng.integers(-(2**24), 2**24, (n_clients, *shape))
    messages = masked_messages(masks, values)
    seeds = [seed, seed + 1]
    noise_words = encoded_noise(ring, shape, public_round, NoiseStreams(seeds), 4)
    reply = aggregate(ring, messages, noise_words)

    # The same sums with the same noise, in the clear.
    streams = NoiseStreams(seeds)
    total = values.sum(axis=0)
    key = ("sums_and_counts", 4)
    sums = streams.release(public_round.sum_noise, total[:, :, :d], (*key, "sums"))
    counts = streams.release(public_round.count_noise, total[:, :, d], (*key, "counts"))
    expected = np.concatenate([sums, counts[:, :, None]], axis=2)
    for mask in masks:
        assert (mask.unmask(reply) == expected).all()

    # Without noise, the reply is the plain sum of the messages.
    exact_round = Round(None, None, None)
    assert encoded_noise(ring, shape, exact_round, NoiseStreams([0, 1]), 0) is None
    plain_sum = np.sum(messages, axis=0, dtype=ring.dtype)
    assert (aggregate(ring, messages, None) == plain_sum).all()


@pytest.mark.parametrize("method", LLOYD_METHODS, ids=lambda m: f"{type(m).__name__}-{m.variant}")
@pytest.mark.parametrize("split", ["balanced", "unbalanced", "sorted"])
def test_federated_equals_central(method, split):
    points = random_points()
    seeds = [0, 7]
    central = method.fit_batch(points, seeds)
    for n_clients in (1, 2, 5):
        parts = split_points(points, n_clients, seed=n_clients, split=split)
        run, measured = run_in_threads(
            method, parts, seeds, network=Network(n_clients), simulated=True
        )
        assert (run.centers == central.centers).all()
        assert run.n_iter == central.n_iter
        assert run.seeds == central.seeds
        assert (run.ledger is None) == (central.ledger is None)
        assert run.ledger is None or run.ledger.charges == central.ledger.charges

        assert measured.rounds_per_iteration == 1.0
        n_words = len(seeds) * method.n_clusters * 3
        assert measured.bytes_per_iteration == 2 * n_clients * n_words * 8


@given(
    st.lists(st.integers(0, 150), min_size=1, max_size=5),
    st.sampled_from([4, 8]),
    st.integers(0, 100),
)
@settings(max_examples=20, deadline=None)
def test_centers_are_equal_for_all_splits_and_rings(sizes, word_bytes, seed):
    """Clients of any size, also without a point."""
    points = random_points(seed, n=sum(sizes) + 20, d=3)
    method = FastLloyd(4, epsilon=1.0)
    central = method.fit_batch(points, [seed])
    parts = split_by_sizes(points, sizes)
    network = Network(len(parts), word_bytes=word_bytes)
    run, measured = run_in_threads(method, parts, [seed], network=network, simulated=True)
    assert (run.centers == central.centers).all()
    assert measured.bytes_per_iteration == 2 * len(parts) * 4 * 4 * word_bytes


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ("balanced", [25, 25, 26, 25]),
        ("unbalanced", [10, 20, 31, 40]),
        ("sorted", [25, 25, 26, 25]),
    ],
)
def test_split_partitions_the_points(split, sizes):
    points = random_points(n=101)
    parts = split_points(points, 4, 3, split)
    rows = np.concatenate([part.rows for part in parts])
    assert sorted(rows.tolist()) == sorted(points.rows.tolist())
    part_sizes = [part.shape[0] for part in parts]
    assert np.abs(np.subtract(part_sizes, sizes)).max() <= 1

    repeated = split_points(points, 4, 3, split)
    for part, repeated_part in zip(parts, repeated, strict=True):
        assert (part.rows == repeated_part.rows).all()
    if split == "sorted":
        first_column = parts[0].rows[:, 0]
        next_column = parts[1].rows[:, 0]
        assert (first_column.max() <= next_column).all()


def test_split_depends_on_its_seed():
    points = random_points(n=101)
    first_parts = [split_points(points, 4, seed)[0] for seed in (3, 4)]
    assert not (first_parts[0].rows == first_parts[1].rows).all()

    parts = split_points(random_points(n=1), 3, 0)
    shapes = [part.shape for part in parts]
    assert shapes.count((0, 2)) == 2
    with pytest.raises(ValueError, match="split='even' is unknown"):
        split_points(points, 2, 0, "even")


# Obliviousness


def server_view(monkeypatch, points, n_runs=60):
    """All words that the server receives over some runs, and all that it sends."""
    received = []
    sent = []

    def record(ring, messages, noise):
        total = aggregate(ring, messages, noise)
        received.append([message.ravel() for message in messages])
        sent.append(total.ravel())
        return total

    method = FastLloyd(4, epsilon=1.0, n_iterations=4)
    n_points = points.shape[0]
    monkeypatch.setattr(parties, "aggregate", record)
    for seed in range(n_runs):
        parts = split_points(points, 2, seed)
        run_two_parties(ThreadServerLink(2, 0.0, 20), method, parts, n_points, seed)
    return np.array(received), np.array(sent)


def run_two_parties(link, method, parts, n_points, seed, streams=None):
    """Run a method's protocol with two clients over a link; return the server's report."""
    identities, fingerprints = identities_of(2)
    network = Network(2, fingerprints=fingerprints)

    def client(number):
        run_client(
            link.client(number),
            method,
            parts[number - 1],
            n_points,
            [seed],
            None,
            network,
            identity=identities[number],
            simulated=True,
        )

    def server():
        noise = streams or NoiseStreams([seed])
        return run_server(
            link, method, n_points, 2, noise, network, identity=identities[0], simulated=True
        )

    clients = [partial(client, number) for number in (1, 2)]
    return run_threads(clients, server)


def assert_uniform(words):
    """Low, middle and high bytes are uniform, no word repeats, and rounds are uncorrelated."""
    for shift in (0, 24, 56):
        bits = (words >> np.uint64(shift)) & np.uint64(255)
        observed = np.bincount(bits.astype(int), minlength=256)
        assert stats.chisquare(observed).pvalue > 1e-8
    assert len(np.unique(words)) == len(words)

    values = words.astype(float)
    correlation = np.corrcoef(values[:-12], values[12:])[0, 1]
    assert abs(correlation) < 7 / np.sqrt(len(words) - 12)


@pytest.mark.statistical
def test_server_view_is_uniform(monkeypatch):
    """For two inputs at the largest distance: uniform words, independent of one another, with the
    same law for both inputs.
    """
    inputs = [Points.prepare(np.full((300, 2), sign * SCALE)) for sign in (-1, 1)]
    views = [server_view(monkeypatch, points) for points in inputs]
    for received, sent in views:
        assert received.shape == (240, 2, 12)
        assert sent.shape == (240, 12)
        first = received[:, 0].ravel()
        second = received[:, 1].ravel()
        for words in (first, second, first + second, first - second, sent.ravel()):
            assert_uniform(words)

    for first, second in zip(*views, strict=True):
        first_words = first.ravel().astype(float)
        second_words = second.ravel().astype(float)
        assert stats.ks_2samp(first_words, second_words).pvalue > 1e-8


def test_server_does_not_hold_keys_of_masks(monkeypatch):
    """Everything reachable from the server's objects, searched for the keys of the masks; the
    search finds them in a client's objects.
    """
    keys = set()
    made = []

    def recording_masks(client, pair_keys, group_key, ring):
        keys.update([group_key, *pair_keys.values()])
        made.append([dict(pair_keys), group_key])
        return Masks(client, pair_keys, group_key, ring)

    monkeypatch.setattr(agreement, "Masks", recording_masks)
    points = random_points()
    method = FastLloyd(3, epsilon=1.0)
    link = ThreadServerLink(2, 0.0, 20)
    streams = NoiseStreams([0])
    parts = split_points(points, 2, 0)
    sealed_links = []
    agree_with_clients = parties.agree_as_server

    def recording_agreement(*args):
        result = agree_with_clients(*args)
        sealed_links.append(result)
        return result

    monkeypatch.setattr(parties, "agree_as_server", recording_agreement)
    report = run_two_parties(link, method, parts, points.shape[0], 0, streams)

    # Both clients have the same two keys, of their pair and of the group.
    assert len(made) == 2
    assert len(keys) == 2
    server_values = reachable_bytes([link, sealed_links, streams, method, report])
    assert len(server_values) > 3
    assert not any(key in value for key in keys for value in server_values)
    client_values = reachable_bytes(made)
    assert all(any(key in value for value in client_values) for key in keys)


def reachable_bytes(roots):
    """Contents of all bytes, integers and arrays that can be reached from some objects."""
    contents = []
    visited = set()
    queue = list(roots)
    while queue:
        value = queue.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, bytes | bytearray):
            contents.append(bytes(value))
        elif isinstance(value, int):
            for order in ("little", "big"):
                contents.append(value.to_bytes(40, order, signed=True))
        elif isinstance(value, np.ndarray):
            contents.append(value.tobytes())
        elif isinstance(value, dict):
            queue += value.keys()
            queue += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            queue += value
        elif isinstance(value, np.random.Generator):
            queue.append(value.bit_generator.state)
        elif hasattr(value, "__dict__"):
            queue.append(vars(value))
    return contents


def standardized_noise(points, method, seed):
    """Secure noise of one run with one client: answers minus exact values, over the scale."""
    noise = []

    class RecordingCurator(FederatedCurator):
        def _draw(self, query, exact, sensitivities, mechanisms, key):
            answer = super()._draw(query, exact, sensitivities, mechanisms, key)
            for part, mechanism in mechanisms.items():
                noise.append(((answer[part] - exact[part]) / mechanism.scale).ravel())
            return answer

    identities, fingerprints = identities_of(1)

    def client(link):
        sealed, masks = agree_as_client(link, identities[1], fingerprints, 0, Ring(8))
        session = ClientSession(sealed, masks, 60, method.schedule(60, 2).rounds)

        def curator(ledger, streams):
            return RecordingCurator(points, ledger, streams.public_seeds, None, session)

        return method.fit_with(curator, 60, 2, [seed])

    def server(link):
        streams = NoiseStreams([0], secure=True)
        network = Network(1, fingerprints=fingerprints)
        return run_server(link, method, 60, 2, streams, network, identity=identities[0])

    run_protocol(1, client, server)
    return np.concatenate(noise)


@pytest.mark.statistical
def test_secure_noise_is_normal_and_independent():
    """Between sums and counts, columns, rounds and runs."""
    points = random_points(n=60)
    method = FastLloyd(2, epsilon=1.0, secure=True, n_iterations=3)
    # One row a run; its columns are the sums and counts of all rounds.
    runs = [standardized_noise(points, method, seed) for seed in range(150)]
    noise = np.array(runs)
    assert noise.shape == (150, 18)
    assert stats.kstest(noise.ravel(), stats.norm.cdf).pvalue > 1e-6

    pairs = np.triu_indices(18, 1)
    correlations = np.corrcoef(noise.T)[pairs]
    assert np.abs(correlations).max() < 7 / np.sqrt(150)  # 153 pairs
    assert len(np.unique(noise[:, 0])) == 150  # no run repeats the first draw of another run


# Refusals


def test_ring_overflow_is_refused_before_sending():
    points = random_points(n=40_000)
    method = FastLloyd(2, epsilon=1.0)
    parts = split_points(points, 2, 0)
    network = Network(2, word_bytes=4)
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_in_threads(method, parts, [0], network=network, simulated=True)

    class UnusedLink:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was called")

    link = UnusedLink()
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_server(link, method, 40_000, 2, NoiseStreams([0]), network, identity=None)
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_client(link, method, parts[0], 40_000, [0], None, network, identity=None)


def test_client_larger_than_the_total_is_refused():
    """The number of all points bounds the sums: were it too small, they could wrap unnoticed."""
    points = random_points(n=400)
    with pytest.raises(ValueError, match="n_points=100 must be at least this client's 400"):
        network = Network(2, fingerprints=identities_of(2)[1])
        points = random_points(n=400)
        method = FastLloyd(2, secure=True)
        run_client(None, method, points, 100, [0], None, network, identity=None)


def test_methods_without_a_public_schedule_are_refused():
    points = random_points()
    with pytest.raises(ValueError, match="DPM cannot run as a protocol"):
        run_in_threads(DPM(), [points], [0], network=Network(1), simulated=True)
    with pytest.raises(ValueError, match="n_clusters=500 must be at most"):
        check_schedule(FastLloyd(500), 400, 2, Network(1))
    with pytest.raises(ValueError, match="n_clients=3 must be the number of parts, which is 1"):
        run_in_threads(FastLloyd(), [points], [0], network=Network(3), simulated=True)


def test_federated_curator_refuses_other_queries():
    """It answers sums and counts alone."""
    session = ClientSession(None, None, 400, [])
    curator = FederatedCurator(random_points(), None, (0,), None, session)
    assert curator.n_points == 400

    centers = np.zeros((1, 1, 2), np.int64)
    origin = np.zeros(2, np.int64)
    bounded = BoundedLaplace(1.0, 2.0 * SCALE)
    queries = (
        (GridCounts(4), {"counts": Laplace(1.0)}),
        (GapPercentile(50), {"percentile": None}),
        (CountsAndBoundedSums(centers, origin), {"counts": Laplace(1.0), "sums": bounded}),
    )
    for query, noise in queries:
        with pytest.raises(TypeError, match="is not served by FederatedCurator: SumsAndCounts"):
            curator.release(query, **noise)
    with pytest.raises(TypeError, match="is not served by FederatedCurator: SumsAndCounts"):
        PartitionTree.whole(curator).release(CellCounts([0]), counts=Laplace(1.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clients": 0}, "n_clients=0 must be"),
        ({"n_clients": True}, "n_clients=True must be"),
        ({"n_clients": 2, "word_bytes": 3}, "word_bytes=3 must be 4 or 8"),
        ({"n_clients": 2, "latency": -1.0}, "latency=-1.0 must be"),
        ({"n_clients": 2, "latency": float("nan")}, "latency=nan must be"),
        ({"n_clients": 2, "time_limit": 0}, "time_limit=0 must be"),
        ({"n_clients": 2, "recover": True}, "n_clients=2 must be at least 3 with recover=True"),
        ({"n_clients": 2, "fingerprints": ("a", "b")}, "fingerprints=.* must be n_clients"),
    ],
)
def test_network_refuses_bad_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        Network(**arguments)


# Failures


def error_of_failing_run(monkeypatch, misbehave, n_clients=3, time_limit=1.0):
    """Run with a second client that calls a function in its third round; return the message of the
    error that the run raises.
    """
    exchange = FederatedCurator._exchange

    def failing_exchange(self, exact):
        session = self._session
        if session.link.client == 2 and session.timings.exchanges == 2:
            return misbehave(session.link)
        return exchange(self, exact)

    monkeypatch.setattr(FederatedCurator, "_exchange", failing_exchange)
    points = random_points()
    method = FastLloyd(3, epsilon=1.0, n_iterations=5)
    method.fit_batch(points, [0])  # compiles the kernels before the time limit applies
    parts = split_points(points, n_clients, 0)
    network = Network(n_clients, time_limit=time_limit)
    with pytest.raises(ProtocolError) as raised:
        run_in_threads(method, parts, [0], network=network, simulated=True)
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
    assert error == f"client 2 sent a malformed message: {n_bytes} bytes where 72 were due"


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
    assert str(server_error) == "client 2 stopped: OSError('disk on fire')"
    assert str(first) == str(third) == f"the server ended the run: {server_error}"


# Time


def test_measured_times_add_up_and_cover_the_latency():
    latency = 0.003
    network = Network(2, latency=latency)
    parts = split_points(random_points(), 2, 0)
    _, measured = run_in_threads(FastLloyd(3), parts, [0], network=network, simulated=True)
    names = ("client_ms", "masking_ms", "server_ms", "wire_ms", "waiting_ms")
    times = [getattr(measured, name) for name in names]
    assert sum(times) == pytest.approx(measured.iteration_ms, rel=1e-9)
    assert min(times) >= 0
    assert measured.wire_ms >= 2e3 * latency
    assert measured.setup_ms >= 3e3 * latency


# Between processes

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
points = Points.prepare(np.random.default_rng(0).integers(-SCALE, SCALE + 1, (400, 2)))
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
            lloyd, points, [0, 3], network=network, split="unbalanced", simulated=True
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
            "client 2 sent a malformed message: 71 bytes where 72 were due",
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
    if rank == 2 and self._session.timings.exchanges == 2:
        {action}
    return exchange(self, exact)
FederatedCurator._exchange = failing_exchange
run, measured = run_rank(method, points, [0], network=Network(2, time_limit=2), simulated=True)
(out / "released").touch()
""",
        )
    assert reason in str(raised.value)
    assert not (tmp_path / "released").exists()


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("victim", [1, 2])
@pytest.mark.parametrize("moment", ["message", "shares"])
def test_killed_process_and_recovery(tmp_path, recover, victim, moment):
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
    if {moment!r} == "message" and self._session.timings.exchanges == 2:
        die()
    return exchange(self, exact)
FederatedCurator._exchange = failing_exchange
for masks in (Masks, RecoverableMasks):
    def failing_reveal(self, link, reveal=masks.reveal):
        self.number = getattr(self, "number", 0) + 1
        if {moment!r} == "shares" and self.number == 2:
            die()
        reveal(self, link)
    masks.reveal = failing_reveal
network = Network(3, time_limit=2, recover={recover})
run, measured = run_rank(method, points, [0], network=network, simulated=True)
if run is not None:
    parts = split_points(points, 3, 0)
    class LosingCurator(Curator):
        def release_from(self, view, query, noise):
            if self._rounds[query.label] == 2:
                del self._shards[{victim} - 1]
            return super().release_from(view, query, noise)
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
    with pytest.raises(ProtocolError, match="set secure=True, or simulated=True"):
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
run_rank(method, points, [0], network=Network(2), simulated=True)
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
@needs_mpi
def test_job_past_its_time_limit_is_stopped():
    start = time.perf_counter()
    with pytest.raises(ProtocolError, match="did not end within 3 s"):
        mpirun(2, ["-c", "import time; time.sleep(60)"], 3)
    assert time.perf_counter() - start < 30


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


def test_error_of_a_job_repeats_what_its_processes_raised(tmp_path, monkeypatch):
    program = tmp_path / "mpirun"
    program.write_text(
        "#!/bin/sh\necho 'ProtocolError: client 2 stopped'\nyes | head -3000\nexit 3\n"
    )
    program.chmod(0o700)
    monkeypatch.setattr(launch, "find_mpirun", lambda: str(program))
    with pytest.raises(ProtocolError) as raised:
        mpirun(2, ["-c", ""], 20)
    error = str(raised.value)
    assert error.startswith("the job failed with exit status 3: ProtocolError: client 2 stopped\n")
    assert len(error) < 3000
