"""Speed of unlearning: seeding, removals, exact deletions, and removals against refits."""

import time

import numpy as np

from pkm.benchmarks.inputs import scaled_points
from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.compute import SCALE, Points
from pkm.methods.unlearning.unlearning import mufc
from pkm.privacy import snap

N_CLIENTS = 100
N_CLUSTERS = 4
N_REQUESTS = 300  # every third one removes a seed
N_BATCHES = 50


def unlearning() -> list[Measurement]:
    """Removals from data of celltype's shape, deletions from a million points, repairs."""
    return [*removals(), *deletions(), *repairs()]


def removals() -> list[Measurement]:
    """Seeding and single removals, with and without seeding again, on data of celltype's shape."""
    raw, label = scaled_points("celltype", 12_009, 10)
    parts = [Points.prepare(part) for part in np.array_split(snap(raw), N_CLIENTS)]
    model = mufc(N_CLUSTERS).fit(parts, 0)
    seeding = min_seconds(lambda: [client.fit(model._row_of) for client in model._clients])

    client_seconds = []
    reseeding_seconds = []
    generator = np.random.default_rng(0)
    for request in range(N_REQUESTS):
        no_seeds = np.setdiff1d(model.ids, model.seeds)
        start = time.process_time()
        removal = model.remove([generator.choice(model.seeds if request % 3 == 0 else no_seeds)])
        if removal.n_reseeded:
            reseeding_seconds.append(time.process_time() - start)
        else:
            client_seconds.append(removal.client_seconds)
    bookkeeping = 1e3 * float(np.median(client_seconds))
    reseeding = 1e3 * float(np.median(reseeding_seconds))
    return [
        Measurement(f"{label}: seeding 100 clients", 1e3 * seeding, "ms CPU", at_most=8),
        Measurement(
            f"{label}: a removal without re-seeding, at the client", bookkeeping, "ms", at_most=0.1
        ),
        Measurement(
            f"{label}: a removal with re-seeding and the server's refit",
            reseeding,
            "ms CPU",
            at_most=10,
        ),
    ]


def deletions() -> list[Measurement]:
    """Exact deletions per second from a million points, one by one and in batches."""
    grid = np.random.default_rng(0).integers(-SCALE, SCALE + 1, (10_000, 10))
    model = mufc(N_CLUSTERS).fit([Points.prepare(grid)] * N_CLIENTS, 0)
    generator = np.random.default_rng(0)
    rows = []
    for size, target in ((1, 50), (100, 2000)):
        requests = generator.permutation(model.ids)[: N_BATCHES * size].reshape(N_BATCHES, size)
        start = time.process_time()
        for ids in requests:
            model.remove(ids)
        rate = requests.size / (time.process_time() - start)
        what = f"1,000,000 x 10, 100 clients: exact deletions, {size} a request"
        rows.append(Measurement(what, rate, "/ s", at_least=target))
    return rows


def repairs() -> list[Measurement]:
    """CPU time of a fit over that of an exact removal with a repaired server, by size of both."""
    rows = []
    for n, k in ((10_000, 4), (100_000, 10), (1_000_000, 10)):
        method = mufc(k, server="repaired")
        parts = [Points.prepare(grid) for grid in _client_grids(n, k)]
        fit_seconds = min_seconds(lambda method=method, parts=parts: method.fit(parts, 0), 2)
        model = method.fit(parts, 0)
        generator = np.random.default_rng(1)
        for share, n_requests in ((0.0, 20), (0.001, 5), (0.01, 2)):
            size = max(1, round(share * n))
            seconds = 0.0
            for _ in range(n_requests):
                ids = generator.choice(model.ids, size, replace=False)
                start = time.process_time()
                model.remove(ids)
                seconds += time.process_time() - start
            ratio = fit_seconds * n_requests / seconds
            what = f"{n:,} x 10, k = {k}, 100 clients: a fit over an exact removal of {size:,}"
            target = 3.0 if size == 1 else None
            rows.append(Measurement(what, ratio, "x CPU", at_least=target))
    return rows


def _client_grids(n: int, k: int) -> list[np.ndarray]:
    """Grids of 100 clients with points of at most three of k normal clusters each."""
    generator = np.random.default_rng(0)
    means = generator.uniform(-0.8, 0.8, (k, 10))
    grids = []
    for _ in range(N_CLIENTS):
        clusters = generator.choice(k, 3, replace=False)
        labels = generator.choice(clusters, n // N_CLIENTS)
        points = means[labels] + generator.normal(0, 0.1, (len(labels), 10))
        grids.append(snap(np.clip(points, -1, 1)))
    return grids
