"""Speed of unlearning: removals per second, and fit time over removal time."""

import time
from collections.abc import Iterator

import numpy as np

from pkm.benchmarks.inputs import draw_mixture, load_points
from pkm.benchmarks.measurement import Measurement, min_seconds
from pkm.compute import Points
from pkm.methods.unlearning.unlearning import FederatedModel, Unlearning
from pkm.privacy import snap

N_CLIENTS = 100
N_POINTS = 1_000_000
N_REMOVALS = 300  # every third one removes a seed, a point chosen as initial center
#: Points of a request, and the least number that is removed in a second.
MIN_RATES = {1: 50, 100: 2000}
N_REQUESTS = 50
#: Numbers of points and of clusters.
SIZES = ((N_POINTS // 100, 4), (N_POINTS // 10, 10), (N_POINTS, 10))
#: Shares of all points that a request removes, and numbers of such requests.
SHARES = {0.0: 20, 0.001: 5, 0.01: 2}


def measure_unlearning(scale: float) -> Iterator[Measurement]:
    """Measure removals from the data set celltype, and from up to a million points."""
    yield from measure_removals(scale)
    for n, k in SIZES:
        yield from compare_with_fits(round(scale * n), k)
    n = round(scale * N_POINTS)
    model = Unlearning(4).fit(draw_clients(n, 4), 0)
    for size, at_least in MIN_RATES.items():
        rate = size / time_request(model, size, N_REQUESTS)
        title = f"{n:,} x 10: exact removals, {size} a request"
        yield Measurement(
            title,
            rate,
            "/ s CPU",
            at_least=at_least,
        )


def measure_removals(scale: float) -> Iterator[Measurement]:
    """Measure removals of single points, with and without seeding again."""
    X, label = load_points("celltype", (12_009, 10), scale)
    grids = np.array_split(snap(X), N_CLIENTS)
    model = Unlearning(4).fit([Points.from_grid(grid) for grid in grids], 0)
    generator = np.random.default_rng(0)
    quick = []
    slow = []
    for number in range(N_REMOVALS):
        others = np.setdiff1d(model.ids, model.seeds)
        point = generator.choice(others if number % 3 else model.seeds)
        start = time.process_time()
        removal = model.remove([point])
        if removal.n_reseeded:
            slow.append(1e3 * (time.process_time() - start))
        else:
            quick.append(1e3 * removal.client_seconds)
    title = f"{label}: a removal"
    yield Measurement(
        f"{title}, at the client",
        np.median(quick),
        "ms",
        at_most=0.1,
    )
    yield Measurement(
        f"{title} of a seed",
        np.median(slow),
        "ms CPU",
        at_most=10,
    )


def compare_with_fits(n: int, k: int) -> Iterator[Measurement]:
    """Measure a fit over exact removals (``server="repaired"``), by their size."""
    method = Unlearning(k, server="repaired")
    clients = draw_clients(n, k)
    fit_seconds = min_seconds(lambda: method.fit(clients, 0), 2)
    model = method.fit(clients, 0)
    for share, n_requests in SHARES.items():
        size = max(1, round(share * n))
        ratio = fit_seconds / time_request(model, size, n_requests)
        title = f"{n:,} x 10, k = {k}: a fit over an exact removal of {size:,}"
        at_least = 3.0 if size == 1 else None
        yield Measurement(
            title,
            ratio,
            "x CPU",
            at_least=at_least,
        )


def time_request(model: FederatedModel, size: int, n_requests: int) -> float:
    """Return the CPU seconds of a request that removes random points."""
    first, *ids = np.random.default_rng(1).permutation(model.ids)
    requests = np.reshape(ids[: n_requests * size], (n_requests, size))
    # Compiled code is loaded.
    model.remove([first])
    start = time.process_time()
    for request in requests:
        model.remove(request)
    return (time.process_time() - start) / n_requests


def draw_clients(n: int, k: int) -> list[Points]:
    """Draw the points of each client, of at most three of k clusters."""
    generator = np.random.default_rng(0)
    labels = []
    for _ in range(N_CLIENTS):
        clusters = generator.choice(k, 3, replace=False)
        labels.append(generator.choice(clusters, n // N_CLIENTS))
    grids = snap(draw_mixture(np.array(labels), 10, spread=0.1))
    return [Points.from_grid(grid) for grid in grids]
