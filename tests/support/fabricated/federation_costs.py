"""Fabricated rows of FastLloyd's protocol between parties."""

import itertools
from functools import cache

import numpy as np

from fabricated.fastlloyd import SIZES, lloyd_cell
from fabricated.rows import join_cells
from pkm.analysis.claims.claim import read_claims

REPORTED = read_claims("fastlloyd")["reported"]["table3"]
TABLE3 = tuple(cell["dataset"] for cell in REPORTED["cells"])


def size_of(dataset):
    if dataset in SIZES:
        return SIZES[dataset]
    n, k, d = map(int, dataset.split("-")[1:])
    return n, d, k


def federated_cell(
    sweep,
    dataset,
    clients,
    *,
    latency_ms=0.25,
    method="fastlloyd_published",
    seeds=12,
    word_bytes=8,
    transport="mpi",
    speed=1.0,
):
    """One federated cell; times grow with points, clusters and, a little, dimensions."""
    n, d, k = size_of(dataset)
    cell = lloyd_cell(sweep, method, dataset, 0.1, seeds, size=(n, d, k), metrics=("nicv",))
    noise = np.random.default_rng([n, d, k, clients]).normal(1, 0.02, seeds)
    parts = {
        "client_ms": 1.2e-4 * n * k**0.5 * (1 + 0.02 * d) / clients**0.8 * noise / speed,
        "masking_ms": 0.05 + 1e-3 * k * d * noise,
        "server_ms": (0.02 + 0.01 * clients) * noise,
        "wire_ms": 2 * latency_ms + 0.1 * noise,
        "waiting_ms": 0.05 * clients * noise,
    }
    facts = {
        "clients": clients,
        "latency_ms": latency_ms,
        "word_bytes": word_bytes,
        "transport": transport,
    }
    suffix = f"-{clients}-{latency_ms}-{word_bytes}-{transport}"
    costs = {
        "cell": cell["cell"] + suffix,
        "noise_ms": 0.1 * noise,
        "split": "balanced",
        "iteration_ms": sum(parts.values()),
        "setup_ms": 1.0 + 4 * latency_ms,
        "bytes_per_iteration": 2.0 * clients * k * (d + 1) * word_bytes,
        "rounds_per_iteration": 1.0,
        "timing": True,
    }
    return cell | parts | facts | costs


@cache
def protocol_rows():
    """Rows of every federated sweep, and central ones of two data sets; copy before changing."""
    parts = [
        lloyd_cell("real", "fastlloyd_published", name, 0.1, 12, size=SIZES[name])
        for name in ("lsun", "s1")
    ]
    for dataset in TABLE3:
        parts.append(federated_cell("protocol", dataset, 2))
        parts += [federated_cell("parties", dataset, clients) for clients in (4, 8)]
        parts += [
            federated_cell("wide_area", dataset, clients, latency_ms=25.0) for clients in (2, 4, 8)
        ]
    for dataset in ("lsun", "s1", "timesynth-10000-2-2"):
        parts.append(federated_cell("narrow", dataset, 2, word_bytes=4))
    for method, dataset in itertools.product(
        ("sulloyd_published", "glloyd_published"), ("lsun", "s1")
    ):
        parts.append(federated_cell("baselines", dataset, 2, method=method))
    return join_cells(parts)
