"""Masked secure aggregation: rings, masks, keys, equality with the central run, obliviousness,
failures.

Statistical tests use fixed seeds where they can; keys and secure noise are fresh entropy, where
p-values of 1e-8 and seven standard errors leave all checks together less than one failure by
luck in a million runs.
"""

import os
import subprocess
import sys
import threading
import time

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
KIN = [
    FastLloyd(3, epsilon=1.0),
    FastLloyd(3, epsilon=0.5, variant="published"),
    FastLloyd(3, epsilon=0.5, radius_schedule="constant", postprocessing="truncate"),
    SuLloyd(3, epsilon=1.0),
    SuLloyd(3, epsilon=0.5, variant="published"),
    GLloyd(3, epsilon=1.0),
    GLloyd(3, epsilon=0.5, variant="published"),
    Lloyd(3),
]


def some_points(seed=0, n=400, d=2):
    rng = np.random.default_rng(seed)
    return Points.prepare(rng.integers(-SCALE, SCALE + 1, (n, d)))


def cut(points, sizes):
    """Parts of given sizes, the rest to the last."""
    return [
        Points.prepare(part.astype(np.int64)) for part in np.split(points.rows, np.cumsum(sizes))
    ]


def in_threads(n_clients, client, server, network=None):
    """Let functions of links play the parties; return what the clients returned (or raised) and
    what the server did.
    """
    network = network or Network(n_clients, time_limit=20)
    link = ThreadServerLink(n_clients, network.latency, network.time_limit)
    outcomes = {}

    def play(number):
        own = link.client(number)
        try:
            outcomes[number] = client(own)
        except Exception as error:
            outcomes[number] = error
            own.abort(repr(error))

    threads = [threading.Thread(target=play, args=(number,)) for number in range(1, n_clients + 1)]
    for thread in threads:
        thread.start()
    try:
        served = server(link)
    except ProtocolError as error:
        served = error
        link.abort(str(error))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return [outcomes[number] for number in sorted(outcomes)], served


# Ring


@pytest.mark.parametrize("ring", RINGS)
@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20), data=st.data())
def test_words_add_like_integers_as_long_as_the_sum_fits(ring, values, data):
    assert ring.decode(ring.encode(np.array(values))).tolist() == values
    shifts = np.array(
        data.draw(
            st.lists(st.integers(-(2**62), 2**62), min_size=len(values), max_size=len(values))
        )
    )
    # Whatever wraps in between: what is added and taken away leaves the sum.
    words = ring.encode(np.array(values)) + ring.encode(shifts) - ring.encode(shifts)
    assert words.dtype.itemsize == ring.word_bytes and ring.decode(words).tolist() == values


def test_a_ring_has_room_up_to_its_half_and_not_a_step_more():
    noise = Gaussian(1000.0)
    spare = 2**31 - 1 - noise.max_noise
    fits = spare // SCALE
    assert fits * SCALE + noise.max_noise < 2**31 <= (fits + 1) * SCALE + noise.max_noise
    Ring(4).check_capacity(fits, None, noise, noise)
    with pytest.raises(
        ValueError, match=r"word_bytes=4 is too few: a sum over n=\d+ points .* set word_bytes=8"
    ):
        Ring(4).check_capacity(fits + 1, None, noise, noise)
    with pytest.raises(
        ValueError, match="a count over n="
    ):  # a small radius bounds the sums, not the counts
        Ring(4).check_capacity(fits + 1, 0.01, noise, noise)
    with pytest.raises(ValueError, match=r"a sum over .*2\*\*31$|a sum over .*word_bytes=8"):
        Ring(4).check_capacity(10, None, Gaussian(2.0**30), None)
    Ring(8).check_capacity(10**9, None, noise, noise)
    with pytest.raises(ValueError, match="word_bytes=8 is too few"):
        Ring(8).check_capacity(2**47, None, noise, noise)
    with pytest.raises(ValueError, match="word_bytes=5 must be 4 or 8"):
        Ring(5)


@pytest.mark.parametrize("secure", [False, True])
def test_no_noise_is_larger_than_the_bound_the_ring_is_checked_with(secure):
    streams = NoiseStreams([3], secure=secure)
    for noise in (Gaussian(50.0), Laplace(50.0)):
        drawn = noise.add(np.zeros((1, 10**6), np.int64), streams, ("x", 0))
        # The bound covers the rarest draw there is; a million draws pass a fifth of it but for once
        # in 10^50.
        assert 0.2 * noise.max_noise < np.abs(drawn).max() <= noise.max_noise


# Masks


@given(st.integers(1, 6), st.sampled_from(RINGS), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_masks_cancel_for_every_client_and_are_as_free_as_their_streams(n_clients, ring, seed):
    rng = np.random.default_rng(seed)
    secret = os.urandom(SECRET_BYTES)
    shape = (2, 3)
    masks = [Masks(secret, client, n_clients, ring) for client in range(1, n_clients + 1)]
    streams = [KeyStream(secret, number) for number in range(n_clients)]
    for _ in range(3):
        values = rng.integers(-(2**28), 2**28, (n_clients, *shape))
        messages = [mask.mask(value) for mask, value in zip(masks, values, strict=True)]
        total = np.sum(messages, axis=0, dtype=ring.dtype)
        for mask in masks:
            assert (mask.unmask(total) == values.sum(axis=0)).all()
        # From the masks alone every stream can be worked out: as many free words in as out.
        following = np.zeros(shape, ring.dtype)
        for stream, message, value in reversed(list(zip(streams, messages, values, strict=True))):
            following = following + (message - ring.encode(value))
            assert (following == stream.next(shape, ring.dtype)).all()


def test_masks_are_fresh_for_every_message_and_every_client():
    secret = bytes(range(32))
    ring = Ring(8)
    zeros = np.zeros(64, np.int64)
    seen = []
    for client in (1, 2, 3):
        masks = Masks(secret, client, 3, ring)
        for _ in range(4):
            words = masks.mask(zeros)
            seen += words.tolist()
            masks.unmask(words)
    assert len(set(seen)) == len(seen)  # 768 words of 64 bits
    assert (
        derive_key(secret, "mask stream 1")
        != derive_key(secret, "mask stream 2")
        != derive_key(bytes(32), "mask stream 2")
    )


def test_masks_out_of_step_are_refused():
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
def test_clients_agree_on_a_fresh_secret_that_the_server_does_not_see(n_clients):
    class Watched(ThreadServerLink):
        def gather(self, *args, **kwargs):
            messages, times = super().gather(*args, **kwargs)
            seen.extend(message.tobytes() for message in messages)
            return messages, times

    secrets = []
    for _ in range(2):
        seen = []
        link = Watched(n_clients, 0.0, 20)
        found = {}
        threads = [
            threading.Thread(
                target=lambda c=client, to=link, into=found: into.update(
                    {c: agree_on_secret(to.client(c))}
                )
            )
            for client in range(1, n_clients + 1)
        ]
        for thread in threads:
            thread.start()
        relay(link)
        for thread in threads:
            thread.join(20)
        assert len(found) == n_clients and len(set(found.values())) == 1
        secrets.append(found[1])
        assert len(found[1]) == SECRET_BYTES and not any(found[1] in message for message in seen)
        up = link.bytes_received
        down = link.bytes_sent
        if n_clients > 1:
            assert up == n_clients * PUBLIC_BYTES + (n_clients - 1) * BOX_BYTES
            assert down == n_clients**2 * PUBLIC_BYTES + (n_clients - 1) * BOX_BYTES
    assert secrets[0] != secrets[1]


def test_an_altered_box_and_a_degenerate_key_are_refused():
    class Altering(ThreadServerLink):
        def deliver(self, messages, clients=None):
            if len(messages[0]) == BOX_BYTES:
                messages = [message ^ np.uint8(1) for message in messages]
            super().deliver(messages, clients)

    link = Altering(2, 0.0, 20)
    raised = []

    def second():
        try:
            agree_on_secret(link.client(2))
        except ProtocolError as error:
            raised.append(str(error))

    threads = [
        threading.Thread(target=second),
        threading.Thread(target=lambda: agree_on_secret(link.client(1))),
    ]
    for thread in threads:
        thread.start()
    relay(link)
    for thread in threads:
        thread.join(20)
    assert raised == ["client 1 sent a malformed box: it was not sealed for this client"]

    def client(own):
        if own.client == 1:
            return agree_on_secret(own)
        own.send(np.zeros(PUBLIC_BYTES, np.uint8))  # the neutral element
        return None

    (first, _), served = in_threads(2, client, relay)
    assert isinstance(first, ProtocolError) and "client 2 sent a malformed public key" in str(first)
    assert "client 1 stopped" in str(served)


# Aggregation


@given(st.integers(1, 5), st.sampled_from(RINGS), st.integers(0, 10**6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_unmasked_aggregate_is_the_sum_plus_noise(n_clients, ring, seed, laplace):
    rng = np.random.default_rng(seed)
    secret = os.urandom(SECRET_BYTES)
    r = 2
    k = 3
    d = 2
    law = Laplace if laplace else Gaussian
    this = Round(None, law(1000.0), law(3000.0))
    masks = [Masks(secret, client, n_clients, ring) for client in range(1, n_clients + 1)]
    values = rng.integers(-(2**24), 2**24, (n_clients, r, k, d + 1))
    messages = [mask.mask(value) for mask, value in zip(masks, values, strict=True)]
    words = encoded_noise(ring, (r, k, d + 1), this, NoiseStreams([seed, seed + 1]), 4)
    reply = aggregate(ring, messages, words)
    streams = NoiseStreams([seed, seed + 1])
    sums = this.sum_noise.add(values.sum(axis=0)[:, :, :d], streams, ("sums_and_counts", 4, "sums"))
    counts = this.count_noise.add(
        values.sum(axis=0)[:, :, d], streams, ("sums_and_counts", 4, "counts")
    )
    for mask in masks:
        assert (mask.unmask(reply) == np.concatenate([sums, counts[:, :, None]], axis=2)).all()
    assert (
        encoded_noise(ring, (r, k, d + 1), Round(None, None, None), NoiseStreams([0, 1]), 0) is None
    )
    assert (aggregate(ring, messages, None) == np.sum(messages, axis=0, dtype=ring.dtype)).all()


@pytest.mark.parametrize("method", KIN, ids=lambda m: f"{type(m).__name__}-{m.variant}")
@pytest.mark.parametrize("split", ["balanced", "unbalanced", "sorted"])
def test_federated_equals_central(method, split):
    points = some_points()
    seeds = [0, 7]
    central = method.fit_batch(points, seeds)
    for n_clients in (1, 2, 5):
        parts = split_points(points, n_clients, seed=n_clients, split=split)
        run, measured = run_in_threads(method, parts, seeds, network=Network(n_clients))
        assert (
            (run.centers == central.centers).all()
            and run.n_iter == central.n_iter
            and run.seeds == central.seeds
        )
        assert (run.ledger is None) == (central.ledger is None)
        assert run.ledger is None or run.ledger.charges == central.ledger.charges
        assert measured.rounds_per_iteration == 1.0
        assert (
            measured.bytes_per_iteration == 2 * n_clients * len(seeds) * method.n_clusters * 3 * 8
        )


@given(
    st.lists(st.integers(0, 150), min_size=1, max_size=5),
    st.sampled_from([4, 8]),
    st.integers(0, 100),
)
@settings(max_examples=20, deadline=None)
def test_no_split_and_no_ring_changes_a_bit(sizes, word_bytes, seed):
    """Any sizes, clients without a point included."""
    points = some_points(seed, n=sum(sizes) + 20, d=3)
    method = FastLloyd(4, epsilon=1.0)
    central = method.fit_batch(points, [seed])
    parts = cut(points, sizes)
    network = Network(len(parts), word_bytes=word_bytes)
    run, measured = run_in_threads(method, parts, [seed], network=network)
    assert (run.centers == central.centers).all()
    assert measured.bytes_per_iteration == 2 * len(parts) * 4 * 4 * word_bytes


def test_parts_are_the_points_dealt_out():
    points = some_points(n=101)
    for split, sizes in (
        ("balanced", [25, 25, 26, 25]),
        ("unbalanced", [10, 20, 31, 40]),
        ("sorted", [25, 25, 26, 25]),
    ):
        parts = split_points(points, 4, 3, split)
        assert sorted(np.concatenate([p.rows for p in parts]).tolist()) == sorted(
            points.rows.tolist()
        )
        assert np.abs(np.subtract([p.shape[0] for p in parts], sizes)).max() <= 1
        again = split_points(points, 4, 3, split)
        assert all((a.rows == b.rows).all() for a, b in zip(parts, again, strict=True))
    assert (parts[0].rows[:, 0].max() <= parts[1].rows[:, 0]).all()
    assert not (split_points(points, 4, 4)[0].rows == split_points(points, 4, 3)[0].rows).all()
    assert [p.shape for p in split_points(some_points(n=1), 3, 0)].count((0, 2)) == 2
    with pytest.raises(ValueError, match="split='even' is unknown"):
        split_points(points, 2, 0, "even")


# Obliviousness


def seen_by_the_server(points, runs=60):
    """All words that the server receives over some runs, and what it sends."""
    received = []
    sent = []

    class Watched(ThreadServerLink):
        def gather(self, n_bytes, clients=None):
            messages, times = super().gather(n_bytes, clients)
            if clients is None and n_bytes == words * 8:
                received.append([message.view(np.uint64) for message in messages])
            return messages, times

        def deliver(self, messages, clients=None):
            if len(np.ravel(messages[0])) == words:
                sent.append(np.ravel(messages[0]).copy())
            super().deliver(messages, clients)

    method = FastLloyd(4, epsilon=1.0, n_iterations=4)
    words = 4 * 3
    for run in range(runs):
        parts = split_points(points, 2, run)
        link = Watched(2, 0.0, 20)
        threads = [
            threading.Thread(
                target=lambda n=number, p=part, to=link, r=run: run_client(
                    to.client(n), method, p, points.shape[0], [r], None, Network(2)
                )
            )
            for number, part in enumerate(parts, 1)
        ]
        for thread in threads:
            thread.start()
        run_server(link, method, points.shape[0], 2, NoiseStreams([run]), Network(2))
        for thread in threads:
            thread.join(20)
    return np.array(received), np.array(sent)


@pytest.mark.statistical
def test_what_the_server_sees_is_uniform():
    """For two inputs as far apart as they can be: uniform words, unrelated to one another, the same
    law for both.
    """
    ends = [Points.prepare(np.full((300, 2), sign * SCALE)) for sign in (-1, 1)]
    views = [seen_by_the_server(points) for points in ends]
    for received, sent in views:
        assert received.shape == (240, 2, 12) and sent.shape == (240, 12)
        first, second = (received[:, client].ravel() for client in (0, 1))
        for words in (first, second, first + second, first - second, sent.ravel()):
            for shift in (0, 24, 56):  # low, middle and high bytes
                observed = np.bincount(
                    ((words >> np.uint64(shift)) & np.uint64(255)).astype(int), minlength=256
                )
                assert stats.chisquare(observed).pvalue > 1e-8
            assert len(np.unique(words)) == len(words)
            after = np.corrcoef(words[:-12].astype(float), words[12:].astype(float))[
                0, 1
            ]  # the next round
            assert abs(after) < 7 / np.sqrt(len(words) - 12)
    for one, other in zip(*views, strict=True):
        assert stats.ks_2samp(one.ravel().astype(float), other.ravel().astype(float)).pvalue > 1e-8


def test_the_server_holds_nothing_from_which_masks_follow(monkeypatch):
    """Everything that hangs on the server's objects, searched for the secret, the keys, and a
    client's words.
    """
    from pkm.federation import parties

    secrets = []
    monkeypatch.setattr(
        parties,
        "agree_on_secret",
        lambda link: secrets.append(agree_on_secret(link)) or secrets[-1],
    )
    points = some_points()
    method = FastLloyd(3, epsilon=1.0)
    link = ThreadServerLink(2, 0.0, 20)
    noise = NoiseStreams([0])
    threads = [
        threading.Thread(
            target=lambda n=n, p=p: run_client(
                link.client(n), method, p, points.shape[0], [0], None, Network(2)
            )
        )
        for n, p in enumerate(split_points(points, 2, 0), 1)
    ]
    for thread in threads:
        thread.start()
    report = run_server(link, method, points.shape[0], 2, noise, Network(2))
    for thread in threads:
        thread.join(20)
    assert len(set(secrets)) == 1
    keys = [secrets[0], *(derive_key(secrets[0], f"mask stream {number}") for number in range(3))]
    held = bytes_held_by([link, noise, method, report])
    assert len(held) > 3 and not any(key in blob for key in keys for blob in held)
    assert any(
        key in blob
        for key in keys
        for blob in bytes_held_by([Masks(secrets[0], 1, 2, Ring(8)), secrets])
    )


def bytes_held_by(roots):
    """Contents of all bytes, integers and arrays that can be reached."""
    found = []
    seen = set()
    queue = list(roots)
    while queue:
        each = queue.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, bytes | bytearray):
            found.append(bytes(each))
        elif isinstance(each, int):
            found += [each.to_bytes(40, order, signed=True) for order in ("little", "big")]
        elif isinstance(each, np.ndarray):
            found.append(each.tobytes())
        elif isinstance(each, dict):
            queue += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            queue += each
        elif isinstance(each, np.random.Generator):
            queue.append(each.bit_generator.state)
        elif hasattr(each, "__dict__"):
            queue.append(vars(each))
    return found


@pytest.mark.statistical
def test_noise_of_sums_counts_rounds_and_runs_is_independent():
    """What clients get minus the exact answer, with secure noise: standardized, uncorrelated
    wherever one looks.
    """
    points = some_points(n=60)
    method = FastLloyd(2, epsilon=1.0, secure=True, n_iterations=3)
    noises = []
    for run in range(150):
        seen = []

        class Watched(FederatedCurator):
            def _release(self, sums, counts, sum_noise, count_noise, key, into=seen):
                answer = super()._release(sums, counts, sum_noise, count_noise, key)
                into.append(
                    np.concatenate(
                        [
                            ((answer[0] - sums) / sum_noise.scale).ravel(),
                            ((answer[1] - counts) / count_noise.scale).ravel(),
                        ]
                    )
                )
                return answer

        def client(link, watched=Watched, seed=run):
            member = ClientSession(link, Masks(agree_on_secret(link), 1, 1, Ring(8)), 60)
            return method.fit_with(
                lambda ledger, s: watched(points, ledger, s.seeds, None, member), 60, 2, [seed]
            )

        in_threads(
            1,
            client,
            lambda link: run_server(
                link, method, 60, 2, NoiseStreams([0], secure=True), Network(1)
            ),
        )
        noises.append(np.concatenate(seen))
    noises = np.array(noises)  # runs by (rounds, sums and counts)
    assert noises.shape == (150, 18)
    assert stats.kstest(noises.ravel(), stats.norm.cdf).pvalue > 1e-6
    correlations = np.corrcoef(noises.T)[np.triu_indices(18, 1)]
    assert np.abs(correlations).max() < 7 / np.sqrt(150)  # 153 pairs
    assert len(np.unique(noises[:, 0])) == 150  # no run repeats another's first draw


# Refusals


def test_what_does_not_fit_the_ring_is_refused_before_anything_is_sent():
    points = some_points(n=40_000)
    method = FastLloyd(2, epsilon=1.0)
    parts = split_points(points, 2, 0)
    with pytest.raises(ValueError, match="word_bytes=4 is too few"):
        run_in_threads(method, parts, [0], network=Network(2, word_bytes=4))

    class Untouched:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was called")

    for party in (
        lambda: run_server(
            Untouched(), method, 40_000, 2, NoiseStreams([0]), Network(2, word_bytes=4)
        ),
        lambda: run_client(
            Untouched(), method, parts[0], 40_000, [0], None, Network(2, word_bytes=4)
        ),
    ):
        with pytest.raises(ValueError, match="word_bytes=4 is too few"):
            party()


def test_a_client_with_more_points_than_there_are_is_refused():
    """The number of all points bounds the sums: were it too small, they could wrap unseen."""
    with pytest.raises(ValueError, match="n_points=100 must be at least this client's 400"):
        run_client(None, FastLloyd(2), some_points(n=400), 100, [0], None, Network(2))


def test_only_methods_with_a_public_schedule_run_as_a_protocol():
    with pytest.raises(ValueError, match="DPM cannot run as a protocol"):
        run_in_threads(DPM(), [some_points()], [0], network=Network(1))
    with pytest.raises(ValueError, match="n_clusters=500 must be at most"):
        check_schedule(FastLloyd(500), 400, 2, Network(1))
    with pytest.raises(ValueError, match="n_clients=3 must be the number of parts, which is 1"):
        run_in_threads(FastLloyd(), [some_points()], [0], network=Network(3))


def test_a_federated_curator_answers_sums_and_counts_alone():
    member = ClientSession(None, None, 400)
    curator = FederatedCurator(some_points(), None, (0,), None, member)
    assert curator.n_points == 400
    for ask in (
        lambda: curator.whole(),
        lambda: curator.partition(BoxGrid.of_intervals(0.5)),
        lambda: curator.hyperplanes(np.ones((1, 2), np.int64), np.zeros(2, np.int64)),
        lambda: curator.projection(np.ones((1, 2), np.int64), 1.0),
        lambda: curator.gap_percentile(50, 1.0),
        lambda: curator.disclose(),
        lambda: curator.grid_counts(4, Laplace(1.0)),
        lambda: curator.counts_and_bounded_sums(
            np.zeros((1, 1, 2), np.int64),
            count_noise=Laplace(1.0),
            sum_noise=BoundedLaplace(1.0, 2.0 * SCALE),
            origin=np.zeros(2, np.int64),
        ),
    ):
        with pytest.raises(ValueError, match="is not answered by a federated curator"):
            ask()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_clients": 0}, "n_clients=0 must be"),
        ({"n_clients": True}, "n_clients=True must be"),
        ({"n_clients": 2, "word_bytes": 3}, "word_bytes=3 must be 4 or 8"),
        ({"n_clients": 2, "latency": -1.0}, "latency=-1.0 must be"),
        ({"n_clients": 2, "latency": float("nan")}, "latency=nan must be"),
        ({"n_clients": 2, "time_limit": 0}, "time_limit=0 must be"),
    ],
)
def test_bad_settings_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Network(**given)


# Failures


def failing_run(monkeypatch, misbehave, n_clients=3, time_limit=1.0):
    """Run with a second client that does something else in its third round; return what the run
    raised.
    """
    release = FederatedCurator._release

    def odd(self, *args):
        if self._session.link.client == 2 and self._session.timings.exchanges == 2:
            return misbehave(self._session.link)
        return release(self, *args)

    monkeypatch.setattr(FederatedCurator, "_release", odd)
    points = some_points()
    method = FastLloyd(3, epsilon=1.0, n_iterations=5)
    method.fit_batch(points, [0])  # compiled before the clock runs
    with pytest.raises(ProtocolError) as raised:
        run_in_threads(
            method,
            split_points(points, n_clients, 0),
            [0],
            network=Network(n_clients, time_limit=time_limit),
        )
    return str(raised.value)


def test_a_client_that_dies_is_named(monkeypatch):
    def die(link):
        raise MemoryError("no room left")

    assert failing_run(monkeypatch, die) == "client 2 stopped: MemoryError: no room left"


def test_a_client_that_stalls_is_named(monkeypatch):
    assert (
        failing_run(monkeypatch, lambda link: time.sleep(3))
        == "client 2 sent nothing for 1 s (time_limit)"
    )


@pytest.mark.parametrize("n_bytes", [0, 71, 73, 720])
def test_a_client_that_sends_a_malformed_message_is_named(monkeypatch, n_bytes):
    said = failing_run(monkeypatch, lambda link: link.send(np.zeros(n_bytes, np.uint8)))
    assert said == f"client 2 sent a malformed message: {n_bytes} bytes where 72 were due"


@pytest.mark.parametrize("late", [1, 2])
def test_a_message_too_many_is_never_taken_for_the_next_rounds(late):
    """Whether it comes before or after the other client's message; its sender goes on as if nothing
    had happened.
    """

    def client(link):
        for number in range(3):
            if link.client == late:
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

    _, served = in_threads(2, client, server)
    assert str(served) == "client 2 sent a message where none was due"


def test_the_other_clients_hear_why():
    def client(link):
        if link.client == 2:
            raise OSError("disk on fire")
        return link.receive(8)

    (first, _, third), served = in_threads(3, client, lambda link: link.gather(8))
    assert str(served) == "client 2 stopped: OSError('disk on fire')"
    assert str(first) == str(third) == f"the server ended the run: {served}"


# Time


def test_measured_times_add_up_and_cover_the_latency():
    points = some_points()
    latency = 0.003
    _, measured = run_in_threads(
        FastLloyd(3), split_points(points, 2, 0), [0], network=Network(2, latency=latency)
    )
    parts = ("client_ms", "masking_ms", "server_ms", "wire_ms", "waiting_ms")
    assert sum(getattr(measured, part) for part in parts) == pytest.approx(
        measured.iteration_ms, rel=1e-9
    )
    assert min(getattr(measured, part) for part in parts) >= 0
    assert measured.wire_ms >= 2e3 * latency and measured.setup_ms >= 3e3 * latency


# Between processes

needs_mpi = pytest.mark.skipif(
    not mpi_available(), reason="mpi4py and mpirun are not installed: make protocol"
)


def job(tmp_path, body, n_ranks=3, time_limit=120):
    """Run a program on some ranks, in this repository's path; return what its ranks wrote."""
    program = tmp_path / "program.py"
    start = f"""
import os, signal, sys, time
import numpy as np
from pathlib import Path
from pkm.compute import Points
from pkm.federation import FederatedCurator, ProtocolError, Network
from pkm.federation.mpi import MPI, run_rank
from pkm.methods.lloyd import FastLloyd, SuLloyd
from pkm.privacy import SCALE
out, rank = Path({str(tmp_path)!r}), MPI.COMM_WORLD.Get_rank()
points = Points.prepare(np.random.default_rng(0).integers(-SCALE, SCALE + 1, (400, 2)))
method = FastLloyd(3, epsilon=1.0, n_iterations=5)
method.fit_batch(points, [0])
MPI.COMM_WORLD.Barrier()
"""
    program.write_text(start + body)
    # Under mpi4py's own runner a process that fails ends the job.
    mpirun(n_ranks, ["-m", "mpi4py", str(program)], time_limit)


@pytest.mark.slow
@needs_mpi
def test_processes_equal_the_central_run(tmp_path):
    job(
        tmp_path,
        """
for word_bytes in (4, 8):
    for each in (method, SuLloyd(4, epsilon=2.0)):
        network = Network(3, word_bytes=word_bytes)
        run, measured = run_rank(each, points, [0, 3], network=network, split="unbalanced")
        assert (run is None) == (rank != 1)
        if run is not None:
            central = each.fit_batch(points, [0, 3])
            assert (run.centers == central.centers).all()
            assert run.ledger.charges == central.ledger.charges
            assert measured.bytes_per_iteration == 2 * 3 * 2 * each.n_clusters * 3 * word_bytes
            (out / f"{type(each).__name__}-{word_bytes}").touch()
""",
        n_ranks=4,
    )
    assert len(list(tmp_path.glob("*Lloyd-*"))) == 4


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize(
    ("action", "named"),
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
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "rank 2",
        ),  # mpirun's words: a client's number is its rank
    ],
)
def test_a_process_that_fails_is_named_and_nothing_is_released(tmp_path, action, named):
    with pytest.raises(ProtocolError, match="the job failed") as raised:
        job(
            tmp_path,
            f"""
release = FederatedCurator._release
def odd(self, *args):
    link = self._session.link
    if rank == 2 and self._session.timings.exchanges == 2:
        {action}
    return release(self, *args)
FederatedCurator._release = odd
run, measured = run_rank(method, points, [0], network=Network(2, time_limit=2))
(out / "released").touch()
""",
        )
    assert named in str(raised.value)
    assert not (tmp_path / "released").exists()


@pytest.mark.slow
@needs_mpi
def test_the_memory_of_the_server_process_does_not_hold_the_secret(tmp_path):
    """After a run a client, who knows the secret, searches the server's whole writable memory for
    it and its keys.
    """
    job(
        tmp_path,
        """
from pkm.federation import parties
from pkm.federation.keys import agree_on_secret
from pkm.federation.masks import derive_key
secrets = []
parties.agree_on_secret = lambda link: secrets.append(agree_on_secret(link)) or secrets[-1]
run_rank(method, points, [0], network=Network(2))
facts = np.array([os.getpid()], np.int64)
mark = np.frombuffer(os.urandom(32), np.uint8).copy()  # the server keeps it: what is there is found
MPI.COMM_WORLD.Bcast(facts, root=0)
if rank == 0:
    MPI.COMM_WORLD.Send([mark, MPI.BYTE], dest=1)
if rank == 1:
    MPI.COMM_WORLD.Recv([mark, MPI.BYTE], source=0)
    streams = [derive_key(secrets[0], f"mask stream {number}") for number in range(3)]
    needles = [secrets[0], *streams, mark.tobytes()]
    found = set()
    with open(f"/proc/{facts[0]}/maps") as maps, open(f"/proc/{facts[0]}/mem", "rb", 0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            if rights.startswith("rw"):
                low, high = (int(end, 16) for end in place.split("-"))
                memory.seek(low)
                block = memory.read(high - low)
                found |= {i for i, needle in enumerate(needles) if needle in block}
    (out / "found").write_text(str(sorted(found)))
MPI.COMM_WORLD.Barrier()
""",
    )
    assert (tmp_path / "found").read_text() == "[4]"  # the mark alone


@pytest.mark.slow
@needs_mpi
def test_a_job_that_does_not_end_is_stopped():
    began = time.perf_counter()
    with pytest.raises(ProtocolError, match="did not end within 3 s"):
        mpirun(2, ["-c", "import time; time.sleep(60)"], 3)
    assert time.perf_counter() - began < 30


def test_the_project_runs_without_mpi(tmp_path):
    """Nothing but federation.mpi imports mpi4py."""
    code = (
        "import sys; sys.modules['mpi4py'] = None; import pkm.federation, pkm.experiments.execute"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
