"""Federated clustering that can forget: MUFC and DC-KMeans, with exact removal of points and of whole clients.

Every client clusters its own points; the server clusters the clients' centers. With seeding by a race (see
:mod:`pkm.compute.seeding`) the model is a function of the remaining points and of clocks that belong to them, so that
removing points gives, bit for bit, the model that a fit of the others gives: with the same seed, their old names and
the old side of the bins. No privacy is claimed.

Source: Pan et al., "Machine unlearning of federated clusters" (ICLR 2023), Alg. 1 and 3; DC-KMeans after Ginart et al.
(2019), with clients as leaves. Units: the domain is [-1, 1]^d; points lie on the 2^-16 grid.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pkm.compute import SCALE, Points, nearest_row, race
from pkm.methods.base import is_integer, is_number
from pkm.methods.client_lloyd import local_lloyd
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import NO_CLAIM, PrivacyClaim
from pkm.privacy.noise import INITIALIZATION, child

SERVER_STARTS = 10
MAX_IDS = 1000


@dataclass(frozen=True)
class Unlearning:
    """What kind of federated clustering.

    Parameters
    ----------
    n_clusters : int
        Of every client and of the server.
    client : {"seeding", "full"}, default="seeding"
        Centers of a client: its k-means++ seeds, which are points (the paper's), or means after Lloyd's algorithm.
    gamma : float, "auto" or None, default="auto"
        Side of the bins that clients round their centers to, in half-widths; ``auto`` is 1 / sqrt(n) with the n of the
        fit; None does not round.
    weights : {"sizes", "unit"}, default="sizes"
        Whether a client's center counts as often as it has points.
    server_data : {"centers", "points"}, default="centers"
        What the server clusters: weighted bin centers, or uniform points in the bins, one for each point (the paper's).
    clocks : {"kept", "fresh"}, default="kept"
        What decides the seeds that are made anew after a removal: the clocks that the points have had from the start,
        or fresh ones, which is the paper's Alg. 3: exact in law, but not the same model that a fit would give.
    server : {"refit", "lazy"}, default="refit"
        ``lazy`` keeps the server's centers where no seed was removed, as the published code does: **not exact**.

    Raises
    ------
    ValueError
        Naming the parameter, its value and the rule.
    """

    claim: ClassVar[PrivacyClaim] = NO_CLAIM

    n_clusters: int
    client: str = "seeding"
    gamma: float | str | None = "auto"
    weights: str = "sizes"
    server_data: str = "centers"
    clocks: str = "kept"
    server: str = "refit"

    def __post_init__(self):
        if not (is_integer(self.n_clusters) and self.n_clusters >= 1):
            raise ValueError(f"n_clusters={self.n_clusters!r} must be an integer of at least 1")
        for name, known in (
            ("client", ("seeding", "full")),
            ("weights", ("sizes", "unit")),
            ("server_data", ("centers", "points")),
            ("clocks", ("kept", "fresh")),
            ("server", ("refit", "lazy")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is unknown, choose one of {', '.join(map(repr, known))}"
                )
        if not (
            self.gamma is None
            or self.gamma == "auto"
            or (is_number(self.gamma) and 0 < self.gamma <= 1)
        ):
            raise ValueError(f"gamma={self.gamma!r} must be 'auto', None or a number in (0, 1]")
        if self.server_data == "points" and (self.gamma is None or self.weights == "unit"):
            raise ValueError("server_data='points' needs bins (gamma) and weights='sizes'")

    @property
    def exact(self) -> bool:
        """Whether a removal gives what a fit without the removed points gives: the model, or (fresh clocks) its law."""
        return self.server == "refit"

    def fit(
        self, parts: Sequence[Points], seed: int, *, ids: Sequence[np.ndarray] | None = None
    ) -> "FederatedModel":
        """Cluster the clients' points.

        Parameters
        ----------
        parts : sequence of Points
            One per client.
        seed : int
            Of the replicate; secret, and not chosen by who asks for removals.
        ids : sequence of ndarray of int64, optional
            Names of the points, each once. Default: counted through, client by client.

        Returns
        -------
        FederatedModel
        """
        sizes = [part.shape[0] for part in parts]
        if not sum(sizes):
            raise ValueError("parts must hold at least one point")
        if ids is None:
            ids = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        everything = np.concatenate(ids)
        integers = np.issubdtype(everything.dtype, np.integer)
        if (
            not integers
            or [len(each) for each in ids] != sizes
            or len(np.unique(everything)) < len(everything)
        ):
            raise ValueError("ids must be different integers, one for each point")
        if everything.min() < 0 or everything.max() >= MAX_IDS * sum(sizes):
            raise ValueError(
                f"ids={everything.max()} must be at least 0 and less than {MAX_IDS} times the number of points: "
                "clocks are drawn for all names up to the largest; count the points through"
            )
        gamma = 1 / math.sqrt(sum(sizes)) if self.gamma == "auto" else self.gamma
        clocks, server, fresh = child(seed, INITIALIZATION).spawn(3)
        # A point's clocks depend on its name alone: they are the same whoever else is there.
        drawn = np.random.default_rng(clocks).standard_exponential(
            (everything.max() + 1, self.n_clusters)
        )
        clients = [
            _Client(part.rows.copy(), each.astype(np.int64), drawn[each])
            for part, each in zip(parts, ids, strict=True)
        ]
        server_seed = int(server.generate_state(1)[0])
        # From a number, not from the sequence: that holds the seed, from which removed points' clocks would follow.
        redrawn = np.random.default_rng(int(fresh.generate_state(1, np.uint64)[0]))
        return FederatedModel(self, gamma, server_seed, redrawn, clients, everything.max() + 1)


class _Client:
    """A client's state: its points, their names and clocks, and its centers."""

    def __init__(self, rows: np.ndarray, ids: np.ndarray, clocks: np.ndarray):
        self.rows, self.ids, self.clocks = rows, ids, clocks
        self.n = len(ids)
        k = clocks.shape[1]
        self.seeds, self.sizes, self.n_seeds = np.zeros(k, np.int64), np.zeros(k, np.int64), 0
        self.centers = np.empty((0, rows.shape[1]))

    def seed(self, first: int) -> None:
        """Choose seeds from a step on."""
        n = self.n
        self.n_seeds = race(
            self.rows[:n], self.clocks[:n], self.ids[:n], self.seeds, first, self.sizes
        )
        self.centers = self.rows[self.seeds[: self.n_seeds]].astype(np.float64)

    def train(self) -> None:
        """Lloyd's algorithm from the seeds."""
        # In the order of names: sums of floats then come out alike however the rows have been moved about.
        order = np.argsort(self.ids[: self.n])
        for held in (self.rows, self.ids, self.clocks):
            held[: self.n] = held[order]
        self.seed(0)
        self.centers, labels = local_lloyd(self.rows[: self.n].astype(np.float64), self.centers)
        self.sizes[:] = np.bincount(labels, minlength=len(self.sizes))

    def drop(self, row: int) -> int:
        """Take a row out: the last takes its place, and what was last is overwritten. Return the id that moved."""
        last = self.n - 1
        for held in (self.rows, self.ids, self.clocks):
            held[row] = held[last]
            held[last] = 0
        self.seeds[: self.n_seeds][self.seeds[: self.n_seeds] == last] = row
        self.n = last
        return int(self.ids[row]) if row < last else -1


@dataclass
class Removal:
    """What a removal took.

    Attributes
    ----------
    n_points, n_reseeded : int
        Points removed, clients whose seeds (or training) were made anew.
    client_seconds : float
        Of the slowest client: clients work side by side.
    server_seconds : float
    """

    n_points: int
    n_reseeded: int
    client_seconds: float
    server_seconds: float


@dataclass(frozen=True)
class _Server:
    """The server's state: what it was told, its centers, and the cluster of each place."""

    places: np.ndarray
    weights: np.ndarray
    centers: np.ndarray
    cluster_of: dict


class FederatedModel:
    """A fitted model, from which points can be removed; made by :meth:`Unlearning.fit`.

    Attributes
    ----------
    kind : Unlearning
    centers : ndarray of shape (at most k, d), float64
        The server's, in half-widths.
    fit_seconds : (float, float)
        Of the slowest client and of the server.
    """

    def __init__(
        self,
        kind: Unlearning,
        gamma: float | None,
        server_seed: int,
        fresh: np.random.Generator,
        clients: list[_Client],
        most_ids: int,
    ):
        self.kind, self.gamma, self._clients = kind, gamma, clients
        self._server_seed, self._fresh = server_seed, fresh
        self._client_of, self._row_of = (
            np.full(most_ids, -1, np.int32),
            np.zeros(most_ids, np.int32),
        )
        slowest = 0.0
        for number, client in enumerate(clients):
            self._client_of[client.ids], self._row_of[client.ids] = number, np.arange(client.n)
            began = time.perf_counter()
            self._retrain(client, 0)
            slowest = max(slowest, time.perf_counter() - began)
        began = time.perf_counter()
        self._refit()
        self.fit_seconds = slowest, time.perf_counter() - began

    @property
    def centers(self) -> np.ndarray:
        """The server's centers."""
        return self._server.centers

    @property
    def ids(self) -> np.ndarray:
        """Names of the points that are left, in order."""
        return np.flatnonzero(self._client_of >= 0)

    @property
    def seeds(self) -> np.ndarray:
        """Names of the points that are seeds of their clients, in order."""
        return np.sort(
            np.concatenate([client.ids[client.seeds[: client.n_seeds]] for client in self._clients])
        )

    @property
    def sizes(self) -> list[int]:
        """Numbers of points that the clients have left."""
        return [client.n for client in self._clients]

    @property
    def told(self) -> tuple[np.ndarray, np.ndarray]:
        """What the server was last told: distinct places (bins, where centers are rounded), and their weights."""
        return self._server.places, self._server.weights

    def clients_of(self, ids: np.ndarray) -> np.ndarray:
        """Client of each of some points; -1 for those that were removed."""
        return self._client_of[ids]

    def n_seeds(self, client: int) -> int:
        """Number of seeds of a client: fewer than asked for where it has fewer distinct points."""
        return self._clients[client].n_seeds

    def members(self, client: int) -> np.ndarray:
        """Names of a client's points, in order."""
        return np.sort(self._clients[client].ids[: self._clients[client].n])

    def remove(self, ids) -> Removal:
        """Forget points: as if they had never been there.

        Parameters
        ----------
        ids : sequence of int

        Returns
        -------
        Removal

        Raises
        ------
        ValueError
            If an id is not there or named twice, or if no point would be left; nothing is removed then.
        """
        asked = np.atleast_1d(np.asarray(ids))
        if not np.issubdtype(asked.dtype, np.integer) or asked.ndim != 1 or not len(asked):
            raise ValueError(f"ids={ids!r} must be one or more integers")
        known = (asked >= 0) & (asked < len(self._client_of))
        gone = asked[~known | (self._client_of[np.where(known, asked, 0)] < 0)]
        if len(gone):
            raise ValueError(
                f"ids={gone[:5].tolist()} are not in the model: unknown, or removed already"
            )
        if len(np.unique(asked)) < len(asked):
            raise ValueError(f"ids={asked.tolist()} must name each point once")
        if len(asked) == sum(self.sizes):
            raise ValueError(
                "ids name all points that are left: there is no model of none; delete it instead"
            )
        slowest, n_reseeded = 0.0, 0
        for number in np.unique(self._client_of[asked]).tolist():
            began = time.perf_counter()
            n_reseeded += self._forget(
                self._clients[number], asked[self._client_of[asked] == number].tolist()
            )
            slowest = max(slowest, time.perf_counter() - began)
        began = time.perf_counter()
        if self.kind.exact or n_reseeded:
            self._refit()
        return Removal(len(asked), n_reseeded, slowest, time.perf_counter() - began)

    def remove_clients(self, clients) -> Removal:
        """Forget all points of some clients; see :meth:`remove`. No other client has anything to do."""
        numbers = sorted(set(clients))
        if not numbers or not all(0 <= number < len(self._clients) for number in numbers):
            raise ValueError(
                f"clients={list(clients)} must be one or more of the {len(self._clients)} that there are"
            )
        members = np.concatenate([self.members(number) for number in numbers])
        return self.remove(members) if len(members) else Removal(0, 0, 0.0, 0.0)

    def _forget(self, client: _Client, ids: list[int]) -> bool:
        """Remove points of one client; tell whether its seeds had to be made anew."""
        chosen = client.ids[client.seeds[: client.n_seeds]].tolist()
        asked = set(ids)
        hit = [step for step, each in enumerate(chosen) if each in asked]
        for each in ids:
            row = int(self._row_of[each])
            if not hit and self.kind.client == "seeding":
                client.sizes[
                    nearest_row(client.rows[row], client.rows, client.seeds, client.n_seeds)
                ] -= 1
            moved = client.drop(row)
            self._client_of[each], self._row_of[each] = -1, 0
            if moved >= 0:
                self._row_of[moved] = row
        if hit or self.kind.client == "full":
            # Seeds before the first removed one stay, the race is run again from there (Alg. 3).
            first = min(hit, default=0)
            if self.kind.clocks == "fresh":
                later = client.clocks[: client.n, first:]
                later[:] = self._fresh.standard_exponential(later.shape)
            self._retrain(client, first)
        return bool(hit) or self.kind.client == "full"

    def _retrain(self, client: _Client, first: int) -> None:
        if client.n == 0:
            client.n_seeds, client.centers = 0, np.empty((0, client.rows.shape[1]))
            client.seeds[:], client.sizes[:] = 0, 0
        elif self.kind.client == "seeding":
            client.seed(first)
        else:
            client.train()
            self._row_of[client.ids[: client.n]] = np.arange(client.n)

    def messages(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """What each client tells: where its centers are and what they count; summed, all the server needs.

        Places are bins (see :attr:`n_bins`), or the centers themselves where they are not rounded.
        """
        return [(self._places(client.centers), self._weights(client)) for client in self._clients]

    def _weights(self, client: _Client) -> np.ndarray:
        """How much each of a client's centers counts: its points, or one where it has any."""
        sizes = client.sizes[: len(client.centers)]
        return sizes.copy() if self.kind.weights == "sizes" else (sizes > 0).astype(np.int64)

    @property
    def n_bins(self) -> int:
        """Bins per coordinate: numbered from 0, symmetric about the middle of the domain.

        Raises
        ------
        ValueError
            If centers are not rounded to bins.
        """
        if self.gamma is None:
            raise ValueError("gamma=None: centers are not rounded, there are no bins")
        return 2 * self._offset + 1

    @property
    def _offset(self) -> int:
        return math.floor(1 / self.gamma + 0.5)

    def _places(self, centers: np.ndarray) -> np.ndarray:
        if self.gamma is None:
            return centers
        return np.floor(centers / (self.gamma * SCALE) + 0.5).astype(np.int64) + self._offset

    def _told(self) -> tuple[np.ndarray, np.ndarray]:
        """Places and weights that the server gets: a function of the sum over clients, in a canonical order."""
        # What the messages hold, in one piece: a request waits for this.
        each = np.concatenate([self._weights(client) for client in self._clients])
        places = self._places(
            np.concatenate([client.centers for client in self._clients])[each > 0]
        )
        distinct, which = np.unique(places, axis=0, return_inverse=True)
        return distinct, np.bincount(which.ravel(), weights=each[each > 0])

    def _refit(self) -> None:
        """The server's centers, a function of what it is told and of its public randomness."""
        told, weights = self._told()
        places = told / SCALE if self.gamma is None else (told - self._offset) * self.gamma
        data, each = places, weights
        if self.kind.server_data == "points":
            generator = np.random.default_rng(self._server_seed)
            data = np.repeat(places, weights.astype(int), axis=0)
            data = data + self.gamma * (generator.random(data.shape) - 0.5)
            each = np.ones(len(data))
        centers = weighted_kmeans(
            data, each, self.kind.n_clusters, SERVER_STARTS, self._server_seed
        )
        labels = ((places[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        cluster_of = dict(zip(map(bytes, np.ascontiguousarray(told)), labels.tolist(), strict=True))
        self._server = _Server(told, weights, centers, cluster_of)

    def induced(self) -> tuple[np.ndarray, np.ndarray]:
        """Global cluster of every point by way of its client's, and squared distance to that center.

        Returns
        -------
        ids : ndarray of shape (n,), int64
        squares : ndarray of shape (n,), float64
            In squared half-widths.
        """
        ids, squares = [], []
        for client in self._clients:
            if not client.n:
                continue
            rows = client.rows[: client.n].astype(np.float64)
            local = ((rows[:, None] - client.centers[None]) ** 2).sum(axis=2).argmin(axis=1)
            places = np.ascontiguousarray(self._places(client.centers))
            known = [self._server.cluster_of.get(bytes(place)) for place in places]
            nearest = [
                ((self.centers - center / SCALE) ** 2).sum(axis=1).argmin()
                if label is None
                else label
                for label, center in zip(known, client.centers, strict=True)
            ]
            assigned = self.centers[np.array(nearest)[local]]
            ids.append(client.ids[: client.n])
            squares.append(((rows / SCALE - assigned) ** 2).sum(axis=1))
        return np.concatenate(ids), np.concatenate(squares)


def mufc(n_clusters: int, **changes) -> Unlearning:
    """MUFC: seeds of the clients, rounded, with their sizes."""
    return Unlearning(n_clusters, **changes)


def dc_kmeans(n_clusters: int, **changes) -> Unlearning:
    """DC-KMeans with clients as leaves: Lloyd's algorithm at every leaf, its means clustered with unit weights."""
    return Unlearning(
        n_clusters, **({"client": "full", "gamma": None, "weights": "unit"} | changes)
    )
