"""Runs of all parties: equality with the central run, obliviousness, refusals, times.

Statistical tests use fixed seeds where they can; keys and secure noise are fresh entropy, where
p-values of 1e-8 and seven standard errors leave all checks together less than one failure by
chance in a million runs.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import (
    make_identities,
    make_masks,
    mask_all,
    random_points,
    run_protocol,
    run_two_parties,
)
from scipy import stats

from pkm.compute import Points
from pkm.federation import (
    FederatedCurator,
    Masks,
    Network,
    ProtocolError,
    Ring,
    agreement,
    parties,
    run_in_threads,
    split_points,
)
from pkm.federation.agreement import agree_as_client
from pkm.federation.curator import ClientSession
from pkm.federation.links import ThreadServerLink
from pkm.federation.parties import (
    aggregate,
    check_equal_centers,
    draw_noise,
    get_rounds,
    list_terms,
    run_client,
    run_server,
)
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer
from pkm.methods.lloyd.lloyd import FastLloyd, GLloyd, Lloyd, Round, SuLloyd
from pkm.methods.trees.dpm import DPM
from pkm.methods.weights import weigh_rows
from pkm.privacy import SCALE, Gaussian, Laplace, NoiseStreams

RINGS = [Ring(4), Ring(8)]
SEEDS = st.integers(0, 10**6)
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


def split_by_sizes(points, sizes):
    """Parts of given sizes, and the remaining points as the last part."""
    rows = points.rows.astype(np.int64)
    parts = np.split(rows, np.cumsum(sizes))
    return [Points.from_grid(part) for part in parts]


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
    masks, _, _ = make_masks(n_clients, ring, seed)
    values = rng.integers(-(2**24), 2**24, (n_clients, *shape))
    messages = mask_all(masks, values)
    seeds = [seed, seed + 1]
    noise_words = draw_noise(ring, shape, public_round, NoiseStreams(seeds), 4)
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
    assert draw_noise(ring, shape, exact_round, NoiseStreams([0, 1]), 0) is None
    plain_sum = np.sum(messages, axis=0, dtype=ring.dtype)
    assert (aggregate(ring, messages, None) == plain_sum).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", LLOYD_METHODS, ids=lambda m: f"{type(m).__name__}-{m.variant}")
@pytest.mark.parametrize("split", ["balanced", "unbalanced", "sorted"])
def test_federated_equals_central(method, split):
    points = random_points()
    seeds = [0, 7]
    central = method.fit_batch(points, seeds)
    for n_clients in (1, 2, 5):
        parts = split_points(points, n_clients, seed=n_clients, split=split)
        run, measured = run_in_threads(
            method, parts, seeds, network=Network(n_clients), allow_seeded_noise=True
        )
        assert (run.centers == central.centers).all()
        assert run.n_iter == central.n_iter
        assert run.seeds == central.seeds
        assert (run.ledger is None) == (central.ledger is None)
        assert run.ledger is None or run.ledger.charges == central.ledger.charges

        assert measured.rounds_per_iteration == 1.0
        n_words = len(seeds) * method.n_clusters * 3
        assert measured.bytes_per_iteration == 2 * n_clients * n_words * 8


def parts_of_persons(points, clients):
    """All points and those of each client, with weights of the rows of persons.

    A client has whole persons; it weighs them by itself.
    """
    persons = np.random.default_rng(0).integers(70, size=len(points.rows))
    parts = [
        replace(
            Points.from_grid(points.rows[rows].astype(np.int64)),
            weights=weigh_rows(rows.sum(), persons[rows]).units,
            n_persons=len(np.unique(persons[rows])),
        )
        for rows in [persons >= 0, *(np.isin(persons % 7, client) for client in clients)]
    ]
    return parts[0], parts[1:]


SERVING_PERSONS = [method for method in LLOYD_METHODS if not method.find_unweighted(70, 2)]


@pytest.mark.parametrize("method", SERVING_PERSONS, ids=lambda m: f"{type(m).__name__}-{m.variant}")
def test_clients_that_weigh_their_own_persons_give_the_central_result(method):
    """Also where a client has no row."""
    points, parts = parts_of_persons(random_points(), [[0], [1, 2, 3, 4], [], [5, 6]])
    central = method.fit_batch(points, [0, 7])
    run, _ = run_in_threads(method, parts, [0, 7], network=Network(4), allow_seeded_noise=True)
    assert (run.centers == central.centers).all()
    assert run.ledger.charges == central.ledger.charges
    assert run.ledger.budget == central.ledger.budget
    assert run.ledger.budget.unit == "person"
    assert (run.centers != method.fit_batch(random_points(), [0, 7]).centers).any()


def test_parties_of_other_units_are_refused():
    points, parts = parts_of_persons(random_points(), [[0, 1], [2, 3, 4, 5, 6]])
    mixed = [parts[0], random_points()]
    message = "unit=person of the network must be that of the points, of which a record is a row"
    with pytest.raises(ValueError, match=message):
        run_in_threads(FastLloyd(3, secure=True), mixed, [0], network=Network(2))
    message = "points of persons cannot be split by rows.* run_in_threads"
    with pytest.raises(ValueError, match=message):
        split_points(points, 2, seed=0)


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
    run, measured = run_in_threads(method, parts, [seed], network=network, allow_seeded_noise=True)
    assert (run.centers == central.centers).all()
    assert measured.bytes_per_iteration == 2 * len(parts) * 4 * 4 * word_bytes


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


@pytest.mark.slow
@pytest.mark.statistical
def test_server_view_is_uniform(monkeypatch):
    """For two inputs at the largest distance: uniform words, independent of one another, with the
    same law for both inputs.
    """
    inputs = [Points.from_grid(np.full((300, 2), sign * SCALE)) for sign in (-1, 1)]
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
    encrypted_links = []
    agree_with_clients = parties.agree_as_server

    def recording_agreement(*args):
        result = agree_with_clients(*args)
        encrypted_links.append(result)
        return result

    monkeypatch.setattr(parties, "agree_as_server", recording_agreement)
    report = run_two_parties(link, method, parts, points.shape[0], 0, streams)

    # Both clients have the same two keys, of their pair and of the group.
    assert len(made) == 2
    assert len(keys) == 2
    server_values = reachable_bytes([link, encrypted_links, streams, method, report])
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

    identities, fingerprints = make_identities(1)

    def client(link):
        terms = list_terms(method, 60, 2, 1, None, Network(1))
        encrypted, masks = agree_as_client(link, identities[1], fingerprints, terms, 0, Ring(8))
        session = ClientSession(encrypted, masks, 60, method.schedule(60, 2).rounds)

        def curator(ledger, streams):
            return RecordingCurator(points, ledger, streams.public_seeds, None, session)

        return method.fit_with(curator, 60, 2, [seed])

    def server(link):
        streams = NoiseStreams([0], secure=True)
        network = Network(1, fingerprints=fingerprints)
        return run_server(link, method, 60, 2, streams, None, network, identity=identities[0])

    run_protocol(1, client, server)
    return np.concatenate(noise)


@pytest.mark.slow
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
        run_in_threads(method, parts, [0], network=network, allow_seeded_noise=True)

    class UnusedLink:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was called")

    link = UnusedLink()
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_server(link, method, 40_000, 2, NoiseStreams([0]), None, network, identity=None)
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_client(link, method, parts[0], 40_000, [0], None, network, identity=None)


def test_client_larger_than_the_total_is_refused():
    """The number of all points bounds the sums: were it too small, they could wrap unnoticed."""
    points = random_points(n=400)
    with pytest.raises(ValueError, match="n_points=100 must be at least this client's 400"):
        network = Network(2, fingerprints=make_identities(2)[1])
        points = random_points(n=400)
        method = FastLloyd(2, secure=True)
        run_client(None, method, points, 100, [0], None, network, identity=None)


def test_methods_without_a_public_schedule_are_refused():
    points = random_points()
    with pytest.raises(ValueError, match="DPM cannot run as a protocol"):
        run_in_threads(DPM(), [points], [0], network=Network(1), allow_seeded_noise=True)
    with pytest.raises(ValueError, match="KaplanStemmer cannot run as a protocol"):
        get_rounds(KaplanStemmer(2), 40_000, 2, Network(1))
    with pytest.raises(ValueError, match="adjacency=add_remove needs a curator that counts all"):
        get_rounds(FastLloyd(2, adjacency="add_remove"), 40_000, 2, Network(1))
    with pytest.raises(ValueError, match=r"zoom=0\.1 needs a curator that holds all points"):
        get_rounds(FastLloyd(2, zoom=0.1), 40_000, 2, Network(1))
    with pytest.raises(ValueError, match=r"report=0\.1 needs a curator that holds all points"):
        get_rounds(FastLloyd(2, report=0.1), 40_000, 2, Network(1))
    with pytest.raises(ValueError, match=r"bounds=.*inf.* are infinite; .* declare finite bounds"):
        get_rounds(FastLloyd(2, bounds=(-np.inf, np.inf)), 40_000, 2, Network(1))
    with pytest.raises(ValueError, match="n_clusters=500 must be at most"):
        get_rounds(FastLloyd(500), 400, 2, Network(1))
    with pytest.raises(ValueError, match="n_clients=3 must be the number of parts, which is 1"):
        run_in_threads(FastLloyd(), [points], [0], network=Network(3), allow_seeded_noise=True)


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


# Time


def test_measured_times_add_up_and_cover_the_latency():
    latency = 0.003
    network = Network(2, latency=latency)
    parts = split_points(random_points(), 2, 0)
    _, measured = run_in_threads(FastLloyd(3), parts, [0], network=network, allow_seeded_noise=True)
    names = ("client_ms", "masking_ms", "server_ms", "wire_ms", "waiting_ms")
    times = [getattr(measured, name) for name in names]
    assert sum(times) == pytest.approx(measured.iteration_ms, rel=1e-9)
    assert min(times) >= 0
    assert measured.wire_ms >= 2e3 * latency
    assert measured.setup_ms >= 3e3 * latency


@pytest.mark.parametrize("split", ["balanced", "unbalanced", "sorted"])
def test_a_null_record_counts_in_the_protocol(split):
    """Its presence must not show in n: delta and the schedule are computed from it."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-SCALE, SCALE + 1, (40, 2))
    points = Points.from_grid(rows[1:], 1)
    method = FastLloyd(4, variant="published")
    parts = split_points(points, 3, 0, split)
    assert sum(part.n_records for part in parts) == 40
    run, _ = run_in_threads(method, parts, [0], network=Network(3), allow_seeded_noise=True)
    central = method.fit_batch(points, [0])
    assert (run.centers == central.centers).all()
    assert run.ledger.budget.delta == 1 / (40 * math.log(40))


def test_a_client_does_not_release_what_the_server_does_not_noise():
    """The server draws by the schedule; the ledger would price a client's own mechanism."""

    class Understated(FastLloyd):
        def cluster(self, curator):
            release = curator.release

            def quiet(query, **noise):
                return release(query, **{part: Gaussian(2.0**40) for part in noise})

            curator.release = quiet
            return super().cluster(curator)

    points = Points.from_grid(np.zeros((40, 2), np.int64))
    parts = split_points(points, 2, 0, "balanced")
    with pytest.raises(Exception, match="the server draws noise by the schedule"):
        run_in_threads(Understated(2), parts, [0], network=Network(2), allow_seeded_noise=True)


def test_other_centers_are_those_of_a_client_that_remains():
    check_equal_centers({2: b"a", 3: b"a"})
    with pytest.raises(ProtocolError, match="client 3 computed other centers than client 2"):
        check_equal_centers({2: b"a", 3: b"b"})
