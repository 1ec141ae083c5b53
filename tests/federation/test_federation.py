"""Masked secure aggregation: rings, masks, keys, equality with the central run, obliviousness,
failures.

Statistical tests use fixed seeds where they can; keys and secure noise are fresh entropy, where
p-values of 1e-8 and seven standard errors leave all checks together less than one failure by
chance in a million runs.
"""

import os
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
    Masks,
    Network,
    ProtocolError,
    Ring,
    mpi_available,
    mpirun,
    run_in_threads,
    split_points,
)
from pkm.federation.curator import ClientSession
from pkm.federation.keys import BOX_BYTES, PUBLIC_BYTES, agree_on_secret, relay
from pkm.federation.links import ThreadServerLink
from pkm.federation.masks import SECRET_BYTES, KeyStream, derive_key
from pkm.federation.parties import aggregate, check_schedule, encoded_noise, run_client, run_server
from pkm.methods.dpm import DPM
from pkm.methods.lloyd import FastLloyd, GLloyd, Lloyd, Round, SuLloyd
from pkm.privacy import SCALE, BoxGrid, Gaussian, Laplace, NoiseStreams
from pkm.privacy.mechanisms import BoundedLaplace

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
        noise = mechanism.add(zeros, streams, ("x", 0))
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
    secret = os.urandom(SECRET_BYTES)
    shape = (2, 3)
    masks = masks_of_clients(secret, n_clients, ring)
    streams = [KeyStream(secret, number) for number in range(n_clients)]
    for _ in range(3):
        values = rng.integers(-(2**28), 2**28, (n_clients, *shape))
        messages = masked_messages(masks, values)
        total = np.sum(messages, axis=0, dtype=ring.dtype)
        for mask in masks:
            unmasked = mask.unmask(total)
            assert (unmasked == values.sum(axis=0)).all()

        # The masks alone determine every stream: they have as many free words as the streams.
        partial_sum = np.zeros(shape, ring.dtype)
        clients = list(zip(streams, messages, values, strict=True))
        for stream, message, value in reversed(clients):
            mask_words = message - ring.encode(value)
            partial_sum = partial_sum + mask_words
            assert (partial_sum == stream.next(shape, ring.dtype)).all()


def test_masks_are_fresh_for_every_message():
    secret = bytes(range(32))
    ring = Ring(8)
    zeros = np.zeros(64, np.int64)
    all_words = []
    for client in (1, 2, 3):
        masks = Masks(secret, client, 3, ring)
        for _ in range(4):
            words = masks.mask(zeros)
            all_words += words.tolist()
            masks.unmask(words)
    assert len(set(all_words)) == len(all_words)  # 768 words of 64 bits

    first_key = derive_key(secret, "mask stream 1")
    second_key = derive_key(secret, "mask stream 2")
    assert first_key != second_key
    assert second_key != derive_key(bytes(32), "mask stream 2")


def test_masks_out_of_order_are_refused():
    masks = Masks(bytes(32), 1, 2, Ring(8))
    with pytest.raises(RuntimeError, match="no masked message"):
        masks.unmask(np.zeros(3, np.uint64))
    masks.mask(np.zeros(3, np.int64))
    with pytest.raises(RuntimeError, match="not revealed yet"):
        masks.mask(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=r"client=4 must be one of 1 \.\. 3"):
        Masks(bytes(32), 4, 3, Ring(8))


# Keys


@pytest.mark.parametrize("n_clients", [1, 2, 5])
def test_secret_is_shared_fresh_and_hidden_from_server(n_clients):
    class RecordingLink(ThreadServerLink):
        def gather(self, *args, **kwargs):
            messages, times = super().gather(*args, **kwargs)
            received.extend(message.tobytes() for message in messages)
            return messages, times

    def agree(link, client, results):
        results[client] = agree_on_secret(link.client(client))

    secrets = []
    for _ in range(2):
        received = []
        link = RecordingLink(n_clients, 0.0, 20)
        results = {}
        numbers = range(1, n_clients + 1)
        clients = [partial(agree, link, number, results) for number in numbers]
        run_threads(clients, partial(relay, link))

        # All clients hold the same secret, which no message to the server contains.
        assert len(results) == n_clients
        assert len(set(results.values())) == 1
        secret = results[1]
        secrets.append(secret)
        assert len(secret) == SECRET_BYTES
        assert not any(secret in message for message in received)

        if n_clients > 1:
            box_bytes = (n_clients - 1) * BOX_BYTES
            assert link.bytes_received == n_clients * PUBLIC_BYTES + box_bytes
            assert link.bytes_sent == n_clients**2 * PUBLIC_BYTES + box_bytes
    assert secrets[0] != secrets[1]


def test_altered_box_is_refused():
    class AlteringLink(ThreadServerLink):
        def deliver(self, messages, clients=None):
            if len(messages[0]) == BOX_BYTES:
                messages = [message ^ np.uint8(1) for message in messages]
            super().deliver(messages, clients)

    link = AlteringLink(2, 0.0, 20)
    errors = []

    def first_client():
        agree_on_secret(link.client(1))

    def second_client():
        try:
            agree_on_secret(link.client(2))
        except ProtocolError as error:
            errors.append(str(error))

    run_threads([second_client, first_client], partial(relay, link))
    assert errors == ["client 1 sent a malformed box: it was not sealed for this client"]


def test_degenerate_public_key_is_refused():
    def client(link):
        if link.client == 1:
            return agree_on_secret(link)
        neutral_element = np.zeros(PUBLIC_BYTES, np.uint8)
        link.send(neutral_element)
        return None

    (client_error, _), server_error = run_protocol(2, client, relay)
    assert isinstance(client_error, ProtocolError)
    assert "client 2 sent a malformed public key" in str(client_error)
    assert "client 1 stopped" in str(server_error)


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
    secret = os.urandom(SECRET_BYTES)
    r = 2
    k = 3
    d = 2
    shape = (r, k, d + 1)
    mechanism = Laplace if laplace else Gaussian
    public_round = Round(None, mechanism(1000.0), mechanism(3000.0))

    # Clients mask their sums and counts; the server adds the messages and the noise.
    masks = masks_of_clients(secret, n_clients, ring)
    values = rng.integers(-(2**24), 2**24, (n_clients, *shape))
    messages = masked_messages(masks, values)
    seeds = [seed, seed + 1]
    noise_words = encoded_noise(ring, shape, public_round, NoiseStreams(seeds), 4)
    reply = aggregate(ring, messages, noise_words)

    # The same sums with the same noise, in the clear.
    streams = NoiseStreams(seeds)
    total = values.sum(axis=0)
    label = "sums_and_counts"
    exact_sums = total[:, :, :d]
    exact_counts = total[:, :, d]
    sums = public_round.sum_noise.add(exact_sums, streams, (label, 4, "sums"))
    counts = public_round.count_noise.add(exact_counts, streams, (label, 4, "counts"))
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
        run, measured = run_in_threads(method, parts, seeds, network=Network(n_clients))
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
    run, measured = run_in_threads(method, parts, [seed], network=network)
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


def server_view(points, n_runs=60):
    """All words that the server receives over some runs, and all that it sends."""
    received = []
    sent = []

    class RecordingLink(ThreadServerLink):
        def gather(self, n_bytes, clients=None):
            messages, times = super().gather(n_bytes, clients)
            if clients is None and n_bytes == n_words * 8:
                received.append([message.view(np.uint64) for message in messages])
            return messages, times

        def deliver(self, messages, clients=None):
            words = np.ravel(messages[0])
            if len(words) == n_words:
                sent.append(words.copy())
            super().deliver(messages, clients)

    method = FastLloyd(4, epsilon=1.0, n_iterations=4)
    n_points = points.shape[0]
    n_words = 4 * 3
    for seed in range(n_runs):
        parts = split_points(points, 2, seed)
        run_two_parties(RecordingLink(2, 0.0, 20), method, parts, n_points, seed)
    return np.array(received), np.array(sent)


def run_two_parties(link, method, parts, n_points, seed, streams=None):
    """Run a method's protocol with two clients over a link; return the server's report."""
    network = Network(2)

    def client(number):
        part = parts[number - 1]
        run_client(link.client(number), method, part, n_points, [seed], None, network)

    def server():
        noise = streams or NoiseStreams([seed])
        return run_server(link, method, n_points, 2, noise, network)

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
def test_server_view_is_uniform():
    """For two inputs at the largest distance: uniform words, independent of one another, with the
    same law for both inputs.
    """
    upper_corner = np.full((300, 2), SCALE)
    inputs = (-upper_corner, upper_corner)
    views = [server_view(Points.prepare(points)) for points in inputs]
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


def test_server_holds_neither_secret_nor_keys(monkeypatch):
    """Everything reachable from the server's objects, searched for the secret and the keys; the
    search finds them in a client's objects.
    """
    from pkm.federation import parties

    secrets = []

    def record_secret(link):
        secret = agree_on_secret(link)
        secrets.append(secret)
        return secret

    monkeypatch.setattr(parties, "agree_on_secret", record_secret)
    points = random_points()
    method = FastLloyd(3, epsilon=1.0)
    link = ThreadServerLink(2, 0.0, 20)
    streams = NoiseStreams([0])
    parts = split_points(points, 2, 0)
    report = run_two_parties(link, method, parts, points.shape[0], 0, streams)

    assert len(set(secrets)) == 1
    secret = secrets[0]
    stream_keys = [derive_key(secret, f"mask stream {number}") for number in range(3)]
    keys = [secret, *stream_keys]
    server_values = reachable_bytes([link, streams, method, report])
    assert len(server_values) > 3
    assert not any(key in value for key in keys for value in server_values)

    client_masks = Masks(secret, 1, 2, Ring(8))
    client_values = reachable_bytes([client_masks, secrets])
    assert any(key in value for key in keys for value in client_values)


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
        def _release(self, sums, counts, sum_noise, count_noise, key):
            answer = super()._release(sums, counts, sum_noise, count_noise, key)
            noisy_sums, noisy_counts = answer
            noise.append(((noisy_sums - sums) / sum_noise.scale).ravel())
            noise.append(((noisy_counts - counts) / count_noise.scale).ravel())
            return answer

    def client(link):
        masks = Masks(agree_on_secret(link), 1, 1, Ring(8))
        session = ClientSession(link, masks, 60)

        def curator(ledger, streams):
            return RecordingCurator(points, ledger, streams.seeds, None, session)

        return method.fit_with(curator, 60, 2, [seed])

    def server(link):
        streams = NoiseStreams([0], secure=True)
        return run_server(link, method, 60, 2, streams, Network(1))

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
        run_in_threads(method, parts, [0], network=network)

    class UnusedLink:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was called")

    link = UnusedLink()
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_server(link, method, 40_000, 2, NoiseStreams([0]), network)
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_client(link, method, parts[0], 40_000, [0], None, network)


def test_client_larger_than_the_total_is_refused():
    """The number of all points bounds the sums: were it too small, they could wrap unnoticed."""
    points = random_points(n=400)
    with pytest.raises(ValueError, match="n_points=100 must be at least this client's 400"):
        run_client(None, FastLloyd(2), points, 100, [0], None, Network(2))


def test_methods_without_a_public_schedule_are_refused():
    points = random_points()
    with pytest.raises(ValueError, match="DPM cannot run as a protocol"):
        run_in_threads(DPM(), [points], [0], network=Network(1))
    with pytest.raises(ValueError, match="n_clusters=500 must be at most"):
        check_schedule(FastLloyd(500), 400, 2, Network(1))
    with pytest.raises(ValueError, match="n_clients=3 must be the number of parts, which is 1"):
        run_in_threads(FastLloyd(), [points], [0], network=Network(3))


def test_federated_curator_refuses_other_queries():
    """It answers sums and counts alone."""
    session = ClientSession(None, None, 400)
    curator = FederatedCurator(random_points(), None, (0,), None, session)
    assert curator.n_points == 400

    normals = np.ones((1, 2), np.int64)
    origin = np.zeros(2, np.int64)
    bounded_sums = partial(
        curator.counts_and_bounded_sums,
        np.zeros((1, 1, 2), np.int64),
        count_noise=Laplace(1.0),
        sum_noise=BoundedLaplace(1.0, 2.0 * SCALE),
        origin=origin,
    )
    for query in (
        lambda: curator.whole(),
        lambda: curator.partition(BoxGrid.of_intervals(0.5)),
        lambda: curator.hyperplanes(normals, origin),
        lambda: curator.projection(normals, 1.0),
        lambda: curator.gap_percentile(50, 1.0),
        lambda: curator.disclose(),
        lambda: curator.grid_counts(4, Laplace(1.0)),
        bounded_sums,
    ):
        with pytest.raises(ValueError, match="is not answered by a federated curator"):
            query()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clients": 0}, "n_clients=0 must be"),
        ({"n_clients": True}, "n_clients=True must be"),
        ({"n_clients": 2, "word_bytes": 3}, "word_bytes=3 must be 4 or 8"),
        ({"n_clients": 2, "latency": -1.0}, "latency=-1.0 must be"),
        ({"n_clients": 2, "latency": float("nan")}, "latency=nan must be"),
        ({"n_clients": 2, "time_limit": 0}, "time_limit=0 must be"),
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
    release = FederatedCurator._release

    def failing_release(self, *args):
        session = self._session
        if session.link.client == 2 and session.timings.exchanges == 2:
            return misbehave(session.link)
        return release(self, *args)

    monkeypatch.setattr(FederatedCurator, "_release", failing_release)
    points = random_points()
    method = FastLloyd(3, epsilon=1.0, n_iterations=5)
    method.fit_batch(points, [0])  # compiles the kernels before the time limit applies
    parts = split_points(points, n_clients, 0)
    network = Network(n_clients, time_limit=time_limit)
    with pytest.raises(ProtocolError) as raised:
        run_in_threads(method, parts, [0], network=network)
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
    _, measured = run_in_threads(FastLloyd(3), parts, [0], network=network)
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


def run_program(tmp_path, body, n_ranks=3, time_limit=120):
    """Run a program on some ranks, with this repository on their path."""
    program = tmp_path / "program.py"
    prologue = f"""
import os, signal, sys, time
import numpy as np
from pathlib import Path
from pkm.compute import Points
from pkm.federation import FederatedCurator, ProtocolError, Network
from pkm.federation.mpi import MPI, run_rank
from pkm.methods.lloyd import FastLloyd, SuLloyd
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
    mpirun(n_ranks, ["-m", "mpi4py", str(program)], time_limit)


@pytest.mark.slow
@needs_mpi
def test_processes_equal_the_central_run(tmp_path):
    run_program(
        tmp_path,
        """
for word_bytes in (4, 8):
    for lloyd in (method, SuLloyd(4, epsilon=2.0)):
        network = Network(3, word_bytes=word_bytes)
        run, measured = run_rank(lloyd, points, [0, 3], network=network, split="unbalanced")
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
release = FederatedCurator._release
def failing_release(self, *args):
    link = self._session.link
    if rank == 2 and self._session.timings.exchanges == 2:
        {action}
    return release(self, *args)
FederatedCurator._release = failing_release
run, measured = run_rank(method, points, [0], network=Network(2, time_limit=2))
(out / "released").touch()
""",
        )
    assert reason in str(raised.value)
    assert not (tmp_path / "released").exists()


@pytest.mark.slow
@needs_mpi
def test_server_memory_does_not_hold_the_secret(tmp_path):
    """After a run a client, who knows the secret, searches the server's whole writable memory for
    it and its keys.
    """
    run_program(
        tmp_path,
        """
from pkm.federation import parties
from pkm.federation.keys import agree_on_secret
from pkm.federation.masks import derive_key
secrets = []
parties.agree_on_secret = lambda link: secrets.append(agree_on_secret(link)) or secrets[-1]
run_rank(method, points, [0], network=Network(2))
server_pid = np.array([os.getpid()], np.int64)
# The server keeps the marker: the search must find it.
marker = np.frombuffer(os.urandom(32), np.uint8).copy()
MPI.COMM_WORLD.Bcast(server_pid, root=0)
if rank == 0:
    MPI.COMM_WORLD.Send([marker, MPI.BYTE], dest=1)
if rank == 1:
    MPI.COMM_WORLD.Recv([marker, MPI.BYTE], source=0)
    streams = [derive_key(secrets[0], f"mask stream {number}") for number in range(3)]
    needles = [secrets[0], *streams, marker.tobytes()]
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
    assert (tmp_path / "matches").read_text() == "[4]"  # the marker alone


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
        "import sys; sys.modules['mpi4py'] = None; import pkm.federation, pkm.experiments.execute"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
