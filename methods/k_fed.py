"""K-FED: one-shot federated clustering (Dennis, Li, Smith, "Heterogeneity for the win", 2021), for comparison.

Clients cluster in a projection to few dimensions, then in all of them; the server takes the first client's centers,
goes on with the farthest ones, and makes one step of Lloyd's algorithm over the clients' centers. It claims no privacy
and cannot forget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pkm.compute import SCALE, Points
from pkm.methods.base import is_integer
from pkm.methods.client_lloyd import local_lloyd
from pkm.privacy import NO_CLAIM, PrivacyClaim
from pkm.privacy.noise import INITIALIZATION, child

NEAR = 3.0  # a point belongs to the core of a seed that is this many times nearer than any other


@dataclass(frozen=True)
class KFed:
    """One-shot federated clustering.

    Parameters
    ----------
    n_clusters : int
        Of the server.
    client_clusters : int, optional
        Of each client; default the same, as the unlearning paper runs it. With as many the server's start is the first
        client's centers, whatever the others have.

    Raises
    ------
    ValueError
        If a number is not a positive integer.
    """

    claim: ClassVar[PrivacyClaim] = NO_CLAIM

    n_clusters: int
    client_clusters: int | None = None

    def __post_init__(self):
        own = self.n_clusters if self.client_clusters is None else self.client_clusters
        for name, value in (("n_clusters", self.n_clusters), ("client_clusters", own)):
            if not (is_integer(value) and value >= 1):
                raise ValueError(f"{name}={value!r} must be an integer of at least 1")

    def fit(self, parts: Sequence[Points], seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Cluster the clients' points.

        Parameters
        ----------
        parts : sequence of Points
            One per client.
        seed : int

        Returns
        -------
        centers : ndarray of shape (at most k, d), float64
            In half-widths.
        labels : ndarray of shape (n,), int64
            Of every point, client by client, by way of its client's center.
        """
        generators = [
            np.random.default_rng(each) for each in child(seed, INITIALIZATION).spawn(len(parts))
        ]
        local = [
            client_centers(
                part.rows.astype(np.float64) / SCALE,
                self.client_clusters or self.n_clusters,
                generator,
            )
            for part, generator in zip(parts, generators, strict=True)
            if part.shape[0]
        ]
        sent = np.concatenate([centers for centers, _ in local])
        start = list(local[0][0][: self.n_clusters])
        while len(start) < min(self.n_clusters, len(np.unique(sent, axis=0))):
            start.append(sent[_squares(sent, np.array(start)).min(axis=1).argmax()])
        labels = _squares(sent, np.array(start)).argmin(axis=1)
        centers = np.array(
            [
                sent[labels == j].mean(axis=0) if (labels == j).any() else c
                for j, c in enumerate(start)
            ]
        )
        places = np.split(labels, np.cumsum([len(each) for each, _ in local])[:-1])
        return centers, np.concatenate(
            [place[own] for place, (_, own) in zip(places, local, strict=True)]
        )


def client_centers(
    points: np.ndarray, k: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Centers of one client and the label of each of its points.

    A seed whose core is empty stands for itself.
    """
    k = min(k, len(np.unique(points, axis=0)))
    rank = min(k, *points.shape)
    _, _, axes = np.linalg.svd(points, full_matrices=False)
    projected = points @ axes[:rank].T
    seeds = [int(generator.integers(len(points)))]
    while len(seeds) < k:
        squares = _squares(projected, projected[seeds]).min(axis=1)
        if not squares.any():
            break
        seeds.append(int(generator.choice(len(points), p=squares / squares.sum())))
    distances = np.sqrt(_squares(projected, projected[seeds]))
    others = np.where(np.eye(len(seeds), dtype=bool)[None], np.inf, distances[:, None, :]).min(
        axis=2
    )
    cores = NEAR * distances <= others
    centers = np.array(
        [
            points[core].mean(axis=0) if core.any() else points[s]
            for core, s in zip(cores.T, seeds, strict=True)
        ]
    )
    return local_lloyd(points, centers)


def _squares(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    return ((points[:, None] - centers) ** 2).sum(axis=2)
