"""Kaplan and Stemmer's method in the central model at a hundred thousand points: seconds and memory of one fit."""

import tracemalloc

import numpy as np

from pkm.benchmarks.measurement import Measurement, least_seconds
from pkm.compute import Points
from pkm.methods.balcan import Balcan
from pkm.methods.kaplan_stemmer import KaplanStemmer
from pkm.privacy import snap

N_POINTS, N_CLUSTERS = 100_000, 16


def kaplan_stemmer() -> list[Measurement]:
    """Fits of both choices of k centers and of Balcan et al., and the bytes that a fit holds beside the points."""
    rows = []
    for what, method, d, limit in (
        ("Kaplan-Stemmer", KaplanStemmer(N_CLUSTERS, radius=1.0), 10, 2),
        ("Kaplan-Stemmer", KaplanStemmer(N_CLUSTERS, radius=1.0), 100, 5),
        (
            "Kaplan-Stemmer, local search",
            KaplanStemmer(N_CLUSTERS, radius=1.0, select="local_search"),
            10,
            10,
        ),
        ("Balcan et al.", Balcan(N_CLUSTERS, radius=1.0), 10, 10),
    ):
        points = mixture(d)
        seconds = least_seconds(lambda m=method, p=points: m.fit_batch(p, [0]), 1)
        rows.append(
            Measurement(f"{what}, 100,000 x {d}, k = 16", seconds, "s CPU", limit, at_most=True)
        )
        if isinstance(method, KaplanStemmer) and method.select == "counts":
            tracemalloc.start()
            method.fit_batch(points, [0])
            extra = tracemalloc.get_traced_memory()[1] / (N_POINTS * d)
            tracemalloc.stop()
            name = f"{what}, 100,000 x {d}: extra memory"
            rows.append(Measurement(name, extra, "bytes a value", 32, at_most=True))
    return rows


def mixture(d: int) -> Points:
    """Sixteen Gaussian clusters in the unit ball."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((N_CLUSTERS, d))
    centers *= 0.8 / np.linalg.norm(centers, axis=1, keepdims=True)
    points = centers[rng.integers(N_CLUSTERS, size=N_POINTS)] + 0.15 / np.sqrt(
        d
    ) * rng.standard_normal((N_POINTS, d))
    return Points.prepare(
        snap(points / np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True)))
    )
