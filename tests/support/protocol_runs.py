"""Parties of the masked protocol for tests: points, keys, masks, and runs in threads."""

import threading
from functools import partial

import numpy as np

from pkm.compute import Points
from pkm.federation import Identity, Masks, Network, ProtocolError
from pkm.federation.links import ThreadServerLink, view_bytes
from pkm.federation.masks import SECRET_BYTES
from pkm.federation.parties import run_client, run_server
from pkm.privacy import SCALE, NoiseStreams


def random_points(seed=0, n=400, d=2):
    rng = np.random.default_rng(seed)
    return Points.from_grid(rng.integers(-SCALE, SCALE + 1, (n, d)))


class CountingLink(ThreadServerLink):
    """Counts the bytes on the wire."""

    bytes_received = 0
    bytes_sent = 0

    def gather(self, n_bytes, *arguments):
        messages, arrivals = super().gather(n_bytes, *arguments)
        self.bytes_received += n_bytes * len(messages)
        return messages, arrivals

    def deliver(self, messages):
        self.bytes_sent += sum(view_bytes(message).size for message in messages)
        super().deliver(messages)


def make_identities(n_clients):
    """New identities of the server and of all clients, and their fingerprints."""
    identities = [Identity.generate() for _ in range(n_clients + 1)]
    fingerprints = tuple(identity.fingerprint for identity in identities)
    return identities, fingerprints


def make_masks(n_clients, ring, seed=0):
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


def mask_all(masks, values):
    return [mask.mask(value) for mask, value in zip(masks, values, strict=True)]


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
    server_link = CountingLink(n_clients, network.latency, network.time_limit)
    results = {}

    def client_thread(number):
        client_link = server_link.client(number)
        try:
            results[number] = client(client_link)
        except Exception as error:
            results[number] = error
            client_link.abort(error)

    def guarded_server():
        try:
            return server(server_link)
        except ProtocolError as error:
            server_link.abort(error)
            return error

    numbers = range(1, n_clients + 1)
    clients = [partial(client_thread, number) for number in numbers]
    server_result = run_threads(clients, guarded_server)
    client_results = [results[number] for number in numbers]
    return client_results, server_result


def run_two_parties(link, method, parts, n_points, seed, streams=None):
    """Run a method's protocol with two clients over a link; return the server's report."""
    identities, fingerprints = make_identities(2)
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
            allow_seeded_noise=True,
        )

    def server():
        noise = streams or NoiseStreams([seed])
        return run_server(
            link,
            method,
            n_points,
            2,
            noise,
            None,
            network,
            identity=identities[0],
            allow_seeded_noise=True,
        )

    clients = [partial(client, number) for number in (1, 2)]
    return run_threads(clients, server)
