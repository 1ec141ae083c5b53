"""Federated clustering with exact removals: MUFC, DC-KMeans, and Q-k-means at clients.

Every client clusters its points; the server clusters the clients' centers. With seeding
by an exponential race (:mod:`pkm.methods.unlearning.clients`) the model is a function
of the remaining points and their arrival times. So a removal gives, bit for bit, the
model of a fit to the remaining points with the same arrival times, ids and bins. The
times are secret: without a seed they come from the operating system, and they cannot be
drawn again. No privacy is claimed.

Source: Pan et al., "Machine unlearning of federated clusters" (ICLR 2023), Alg. 1 and
3; DC-KMeans after Ginart et al. (2019), with clients as leaves. Units: the domain is
[-1, 1]^d; points lie on the 2^-16 grid.
"""

import math
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pkm.compute import SCALE, Points
from pkm.methods.constraints import AUTO, NONE, Integer, OneOf, Real, check_constraints
from pkm.methods.unlearning.clients import (
    LloydClient,
    QuantizedClient,
    SeedingClient,
    nearest_centers,
)
from pkm.methods.unlearning.server import RepairedServer
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import NO_CLAIM
from pkm.privacy.mechanisms.noise import INITIALIZATION, child

SERVER_STARTS = 10
CLIENTS = {"seeding": SeedingClient, "full": LloydClient, "quantized": QuantizedClient}
#: Positions (m, d) and weights (m,) of centers.
Message = tuple[np.ndarray, np.ndarray]
MAX_ID_FACTOR = 1000  # ids are below this many times the number of points


# Methods


@dataclass(frozen=True)
class Unlearning:
    """Federated clustering with removals, as a method and its parameters.

    Parameters
    ----------
    n_clusters : int
        Clusters of every client and of the server.
    client : {"seeding", "full", "quantized"}, default="seeding"
        Centers of a client: its k-means++ seeds, which are points (the paper's MUFC),
        or means after Lloyd's algorithm. With ``quantized`` they are rounded to bins
        after each of its steps (Q-k-means, the paper's App. G); one client that holds
        all points is central Q-k-means.
    gamma : float, "auto" or None, default="auto"
        Side of the bins that clients round their centers to, in half-widths (Alg. 1,
        line 3). ``auto`` is 1 / sqrt(n), n the number of points at the fit; None does
        not round (the simplified protocol of App. I).
    weights : {"sizes", "unit"}, default="sizes"
        Weight of a client's center: the size of its cluster, or 1.
    server_data : {"centers", "points"}, default="centers"
        What the server clusters: weighted bin centers, or uniform points in the bins,
        one for each point (the paper's).
    arrival_times : {"kept", "fresh"}, default="kept"
        Arrival times of seeds that are drawn again after a removal: those of the fit,
        or new ones. ``fresh`` is the paper's Alg. 3: the model has the same
        distribution as that of a fit, but is not the same model.
    server : {"refit", "repaired", "lazy"}, default="refit"
        ``repaired`` keeps the intermediate results of the server's fit, and computes
        only those again that have changed: exact, and faster than a fit from scratch.
        ``lazy`` keeps the server's centers if no seed was removed, as the published
        code does: **not exact**.

    Raises
    ------
    ValueError
        Naming the parameter, its value and the rule.

    See Also
    --------
    KFed : One round, without removals; for comparison.
    KMeansPlusPlus : All points in one place.

    References
    ----------
    Pan, C., Sima, J., Prakash, S., Rana, V. and Milenkovic, O. (2023). Machine
    unlearning of federated clusters. ICLR.
    """

    label = "MUFC"
    color = "#009e73"
    marker = "o"
    claim = NO_CLAIM
    constraints = {
        "n_clusters": Integer(1),
        "client": OneOf(*CLIENTS),
        "gamma": AUTO | NONE | Real(0, 1, "(]"),
        "weights": OneOf("sizes", "unit"),
        "server_data": OneOf("centers", "points"),
        "arrival_times": OneOf("kept", "fresh"),
        "server": OneOf("refit", "repaired", "lazy"),
    }

    n_clusters: int
    client: str = "seeding"
    gamma: float | Literal["auto"] | None = "auto"
    weights: str = "sizes"
    server_data: str = "centers"
    arrival_times: str = "kept"
    server: str = "refit"

    def __post_init__(self):
        check_constraints(self.constraints, vars(self))
        has_bins = self.gamma is not None
        draws_points = self.server_data == "points"
        if draws_points and not (has_bins and self.weights == "sizes"):
            raise ValueError(
                "server_data='points' needs bins (gamma) and weights='sizes'"
            )
        if self.server == "repaired" and (draws_points or not has_bins):
            raise ValueError(
                "server='repaired' needs bins (gamma) and server_data='centers'"
            )
        if self.client == "quantized" and not has_bins:
            raise ValueError("client='quantized' needs bins (gamma)")

    @property
    def exact(self) -> bool:
        """Whether a removal gives the model of a fit without the points.

        With fresh arrival times it gives a model of the same distribution.
        """
        return self.server != "lazy"

    def fit(
        self,
        client_points: Sequence[Points],
        seed: int | None = None,
        *,
        ids: Sequence[np.ndarray] | None = None,
    ) -> "FederatedModel":
        """Cluster the clients' points.

        Parameters
        ----------
        client_points : sequence of Points
            One per client.
        seed : int, optional
            Seed of a repeatable experiment. The model is marked `repeatable`: whoever
            knows or guesses the seed can draw the arrival times of removed points
            again. Without a seed they come from the operating system's entropy.
        ids : sequence of ndarray of int64, optional
            Identifiers of the points, all different. Default: consecutive, client by
            client.

        Returns
        -------
        FederatedModel
        """
        sizes = [points.shape[0] for points in client_points]
        if not sum(sizes):
            raise ValueError("client_points must hold at least one point")
        if ids is None:
            ids = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        n_ids = _check_ids(ids, sizes)
        # A point's arrival times depend on its id alone, not on the other points.
        shape = (n_ids, self.n_clusters)
        if seed is None:
            times = secret_exponentials(shape)
            server_seed = secrets.randbits(32)
            generator = None
        else:
            sequences = child(seed, INITIALIZATION).spawn(3)
            times = np.random.default_rng(sequences[0]).standard_exponential(shape)
            # Keep numbers instead of the sequences, which hold the seed.
            server_seed = int(sequences[1].generate_state(1)[0])
            fresh_seed = int(sequences[2].generate_state(1, np.uint64)[0])
            generator = np.random.default_rng(fresh_seed)

        # Alg. 1, line 2: the clients, each with its points and their arrival times.
        gamma = 1 / math.sqrt(sum(sizes)) if self.gamma == "auto" else self.gamma
        bin_side = (gamma or 0.0) * SCALE
        clients = [
            CLIENTS[self.client](
                points.rows.copy(), own_ids.astype(np.int64), times[own_ids], bin_side
            )
            for points, own_ids in zip(client_points, ids, strict=True)
        ]
        return FederatedModel(self, gamma, server_seed, generator, clients, n_ids)


def secret_exponentials(shape: tuple[int, ...]) -> np.ndarray:
    """Standard exponential variates from the operating system's entropy.

    Each has 52 random bits of its own. Without a common generator, the variates of the
    remaining points reveal nothing about those of removed points.
    """
    entropy = os.urandom(8 * math.prod(shape))
    words = np.frombuffer(entropy, np.uint64).reshape(shape)
    # Uniform on the odd multiples of 2**-53 in (0, 1).
    mantissa = (words >> np.uint64(12)).astype(np.float64)
    uniform = (mantissa + 0.5) * 2.0**-52
    return -np.log(uniform)


def _check_ids(ids: Sequence[np.ndarray], sizes: Sequence[int]) -> int:
    """Refuse ids that do not identify the points; return a bound above all of them."""
    all_ids = np.concatenate(ids)
    n_points = sum(sizes)
    is_integer = np.issubdtype(all_ids.dtype, np.integer)
    is_complete = [len(own_ids) for own_ids in ids] == list(sizes)
    if not (is_integer and is_complete and len(np.unique(all_ids)) == n_points):
        raise ValueError("ids must be different integers, one for each point")
    smallest = all_ids.min()
    largest = all_ids.max()
    if smallest < 0 or largest >= MAX_ID_FACTOR * n_points:
        raise ValueError(
            f"ids from {smallest} to {largest} must be at least 0 and less than "
            f"{MAX_ID_FACTOR} times the number of points: arrival times are drawn for "
            "all ids up to the largest; number the points consecutively"
        )
    return largest + 1


# Models


@dataclass
class Removal:
    """Report of a removal.

    Attributes
    ----------
    n_points, n_reseeded : int
        Removed points; clients whose seeds were drawn again, or that were refitted.
    client_seconds : float
        Time of the slowest client: clients work in parallel.
    server_seconds : float
    """

    n_points: int
    n_reseeded: int
    client_seconds: float
    server_seconds: float


class FederatedModel:
    """A fitted model, from which points can be removed; made by :meth:`Unlearning.fit`.

    Attributes
    ----------
    method : Unlearning
    gamma : float or None
        Side of the bins, in half-widths.
    centers : ndarray of shape (at most k, d), float64
        The server's, in half-widths.
    fit_seconds : (float, float)
        Times of the slowest client and of the server.
    """

    def __init__(
        self,
        method: Unlearning,
        gamma: float | None,
        server_seed: int,
        generator: np.random.Generator | None,
        clients: Sequence[SeedingClient],
        n_ids: int,
    ):
        self.method = method
        self.gamma = gamma
        self._server_seed = server_seed
        self._generator = generator
        self._clients = clients
        self._client_of = np.full(n_ids, -1, np.int32)  # by id; -1 for removed points
        self._row_of = np.zeros(n_ids, np.int32)

        # The clients' fits; they would run in parallel.
        slowest = 0.0
        for number, client in enumerate(clients):
            self._client_of[client.ids] = number
            started = time.perf_counter()
            client.fit(self._row_of)
            slowest = max(slowest, time.perf_counter() - started)

        # The server's fit.
        started = time.perf_counter()
        self._repaired: RepairedServer | None = None
        if method.server == "repaired":
            bins, weights = self._aggregate()
            self._repaired = RepairedServer(
                method.n_clusters,
                bins - self._central_bin,
                weights,
                server_seed,
                capacity=len(clients) * method.n_clusters,
            )
            self.centers = self._repaired.centers * gamma
        else:
            self._refit()
        self.fit_seconds = (slowest, time.perf_counter() - started)

    @property
    def repeatable(self) -> bool:
        """Whether arrival times come from a seed, which can draw them again."""
        return self._generator is not None

    @property
    def ids(self) -> np.ndarray:
        """Ids of the remaining points, in order."""
        return np.flatnonzero(self._client_of >= 0)

    @property
    def seeds(self) -> np.ndarray:
        """Ids of the points that are seeds of their clients, in order."""
        seed_ids = [client.seed_ids for client in self._clients]
        return np.sort(np.concatenate(seed_ids))

    @property
    def sizes(self) -> list[int]:
        """Numbers of remaining points of the clients."""
        return [client.n for client in self._clients]

    @property
    def received(self) -> tuple[np.ndarray, np.ndarray]:
        """Last input of the server: distinct positions (or bins), and weights."""
        if self._repaired is None:
            return self._received
        bins, weights = self._repaired.received
        return bins + self._central_bin, weights

    def find_clients(self, ids: np.ndarray) -> np.ndarray:
        """Client of each given point; -1 for those that were removed."""
        return self._client_of[ids]

    def n_seeds(self, client: int) -> int:
        """Number of seeds of a client: its distinct points, at most k."""
        return self._clients[client].n_seeds

    def members(self, client: int) -> np.ndarray:
        """Ids of a client's points, in order."""
        owner = self._clients[client]
        return np.sort(owner.ids[: owner.n])

    # Removals

    def remove(self, ids: npt.ArrayLike) -> Removal:
        """Remove points; the model becomes that of a fit without them.

        Parameters
        ----------
        ids : sequence of int

        Returns
        -------
        Removal

        Raises
        ------
        ValueError
            If an id is not in the model or given twice, or if no point would be left;
            nothing is removed then.
        """
        requested = self._check_removal(ids)

        # Alg. 3 at the clients that hold the points; collect the changes of their
        # messages.
        draw = self._fresh_times if self.method.arrival_times == "fresh" else None
        client_of = self._client_of[requested]
        self._client_of[requested] = -1
        slowest = 0.0
        n_reseeded = 0
        changes = []
        for number in np.unique(client_of).tolist():
            started = time.perf_counter()
            client = self._clients[number]
            positions, weights = self._message(client)
            points = requested[client_of == number].tolist()
            n_reseeded += client.remove(points, self._row_of, draw)
            changes += [(positions, -weights), self._message(client)]
            slowest = max(slowest, time.perf_counter() - started)

        # Alg. 1, lines 5-7, at the server: cluster the new sum of messages.
        started = time.perf_counter()
        if self._repaired is not None:
            positions = np.concatenate([positions for positions, _ in changes])
            weights = np.concatenate([weights for _, weights in changes])
            bins, weights = _add_up(positions, weights)
            self._repaired.change(bins - self._central_bin, weights)
            self.centers = self._repaired.centers * self.gamma
        elif self.method.exact or n_reseeded:
            self._refit()
        seconds = time.perf_counter() - started
        return Removal(len(requested), n_reseeded, slowest, seconds)

    def remove_clients(self, clients: Sequence[int]) -> Removal:
        """Remove all points of given clients; see :meth:`remove`."""
        n_clients = len(self._clients)
        if not clients or not set(clients) <= set(range(n_clients)):
            raise ValueError(
                f"clients={clients} must be one or more of the {n_clients} clients"
            )
        members = np.concatenate([self.members(client) for client in {*clients}])
        return self.remove(members) if len(members) else Removal(0, 0, 0.0, 0.0)

    def _fresh_times(self, shape: tuple[int, ...]) -> np.ndarray:
        """Arrival times for seeds that are drawn again."""
        if self._generator is None:
            return secret_exponentials(shape)
        return self._generator.standard_exponential(shape)

    def _check_removal(self, ids: npt.ArrayLike) -> np.ndarray:
        """Refuse bad ids of a removal; return them as an array."""
        requested = np.atleast_1d(np.asarray(ids))
        is_integer = np.issubdtype(requested.dtype, np.integer)
        if not is_integer or requested.ndim != 1 or not len(requested):
            raise ValueError(f"ids={ids!r} must be one or more integers")
        valid = (requested >= 0) & (requested < len(self._client_of))
        present = valid & (self._client_of[np.where(valid, requested, 0)] >= 0)
        if not present.all():
            absent = requested[~present][:5].tolist()
            raise ValueError(
                f"ids={absent} are not in the model: unknown, or removed already"
            )
        if len(np.unique(requested)) < len(requested):
            raise ValueError(f"ids={requested.tolist()} must name each point once")
        if len(requested) == sum(self.sizes):
            raise ValueError(
                "ids name all points that are left: there is no model of none; delete "
                "it instead"
            )
        return requested

    # Messages of the clients

    def messages(self) -> list[Message]:
        """Positions and weights of each client's centers; the server needs their sum.

        Positions are bins (see :attr:`n_bins`), or centers that are not rounded.
        """
        return [self._message(client) for client in self._clients]

    def _message(self, client: SeedingClient) -> Message:
        """Positions of a client's centers, and their weights."""
        return self._positions(client.centers), self._weights(client)

    def _weights(self, client: SeedingClient) -> np.ndarray:
        """Weights of a client's centers: the sizes of its clusters, or at most 1."""
        most = 1 if self.method.weights == "unit" else client.n
        return np.minimum(client.sizes[: len(client.centers)], most)

    @property
    def n_bins(self) -> int:
        """Bins per coordinate: numbered from 0, symmetric about the domain's midpoint.

        Raises
        ------
        ValueError
            If centers are not rounded to bins.
        """
        if self.gamma is None:
            raise ValueError("gamma=None: centers are not rounded, there are no bins")
        return 2 * self._central_bin + 1

    @property
    def _central_bin(self) -> int:
        """Number of the bin about the midpoint of the domain."""
        assert self.gamma is not None, "there are bins"
        return math.floor(1 / self.gamma + 0.5)

    def _positions(self, centers: np.ndarray) -> np.ndarray:
        """Bins of centers in grid steps (Alg. 1, line 3); centers without rounding."""
        if self.gamma is None:
            return centers
        bins = np.floor(centers / (self.gamma * SCALE) + 0.5).astype(np.int64)
        return bins + self._central_bin

    def _coordinates(self, positions: np.ndarray) -> np.ndarray:
        """Coordinates of positions, in half-widths."""
        if self.gamma is None:
            return positions / SCALE
        return (positions - self._central_bin) * self.gamma

    # The server

    def _aggregate(self) -> tuple[np.ndarray, np.ndarray]:
        """Sum of the clients' messages (Alg. 1, line 5): sorted positions, weights."""
        # Concatenate before rounding: this is faster, and part of the latency of a
        # removal.
        weights = np.concatenate([self._weights(client) for client in self._clients])
        centers = np.concatenate([client.centers for client in self._clients])
        return _add_up(self._positions(centers), weights)

    def _refit(self) -> None:
        """Compute the server's centers from its input and its public randomness."""
        self._received = positions, weights = self._aggregate()

        # Alg. 1, line 6: weighted bin centers, or uniform points in the bins.
        data = self._coordinates(positions)
        if self.method.server_data == "points":
            assert self.gamma is not None, "points are drawn in bins"
            generator = np.random.default_rng(self._server_seed)
            data = np.repeat(data, weights, axis=0)
            data += self.gamma * (generator.random(data.shape) - 0.5)
            weights = np.ones(len(data))

        # Line 7: k-means with k-means++ seeding.
        k = self.method.n_clusters
        self.centers = weighted_kmeans(
            data, weights, k, SERVER_STARTS, self._server_seed
        )

    def induced(self) -> tuple[np.ndarray, np.ndarray]:
        """Squared distance of every point to its induced global center (Def. 3.1).

        This is the global center nearest to the client's center of the point.

        Returns
        -------
        ids : ndarray of shape (n,), int64
        squares : ndarray of shape (n,), float64
            In squared half-widths.
        """
        # The global cluster of each position that the server received.
        positions, _ = self.received
        coordinates = self._coordinates(positions)
        labels = nearest_centers(coordinates, self.centers)
        keys = map(bytes, np.ascontiguousarray(positions))
        label_of = dict(zip(keys, labels.tolist(), strict=True))

        ids = []
        squares = []
        for client in self._clients:
            if client.n:
                ids.append(client.ids[: client.n])
                squares.append(self._induced_squares(client, label_of))
        return np.concatenate(ids), np.concatenate(squares)

    def _induced_squares(
        self, client: SeedingClient, label_of: dict[bytes, int]
    ) -> np.ndarray:
        """Squared distances of a client's points to their induced global centers."""
        # The global cluster of each of the client's centers. A lazy server may not have
        # received a center, which then has the nearest one.
        positions = np.ascontiguousarray(self._positions(client.centers))
        global_labels = [label_of.get(bytes(position)) for position in positions]
        for number, label in enumerate(global_labels):
            if label is None:
                differences = self.centers - client.centers[number] / SCALE
                global_labels[number] = (differences**2).sum(axis=1).argmin()

        # The global center of each point: that of its nearest client center.
        rows = client.rows[: client.n].astype(np.float64)
        local_labels = nearest_centers(rows, client.centers)
        assigned = self.centers[np.array(global_labels)[local_labels]]
        differences = rows / SCALE - assigned
        return (differences**2).sum(axis=1)


def _add_up(positions: np.ndarray, weights: np.ndarray) -> Message:
    """Sum the weights of equal positions; leave out sums of 0."""
    distinct, index = np.unique(positions, axis=0, return_inverse=True)
    totals = np.zeros(len(distinct), np.int64)
    np.add.at(totals, index.ravel(), weights)
    return distinct[totals != 0], totals[totals != 0]
