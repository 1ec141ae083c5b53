"""Partitions of points into clients: at random, along a feature, or by clusters.

The splits by clusters (:func:`split_iid`, :func:`split_noniid`) take the points of a
cluster in their order, without a shuffle.

Source of `split_iid` and `split_noniid`: the preparation published with Pan et al.,
"Machine unlearning of federated clusters" (ICLR 2023), App. M.
"""

import numpy as np

from pkm.compute import Points
from pkm.privacy.mechanisms.noise import SPLIT, child

SPLITS = ("balanced", "unbalanced", "sorted")
MAX_ATTEMPTS = 2000


def split_points(
    points: Points, n_clients: int, seed: int, split: str = "balanced"
) -> list[Points]:
    """Partition points into clients.

    Parameters
    ----------
    points : Points
        Rows without weights.
    n_clients : int
    seed : int
        Seed of the replicate: partitioning has a separate random stream.
    split : {"balanced", "unbalanced", "sorted"}
        Balanced: at random, in equal sizes. Unbalanced: at random, in sizes 1 : 2 :
        3 ... Sorted: along the first feature, in equal sizes; clients are then far from
        identically distributed.

    Returns
    -------
    list of Points
        One per client; some may be empty.
    """
    if points.weights is not None:
        raise ValueError(
            "points of persons cannot be split by rows, some of which may be of one "
            "person: split the persons, and give run_in_threads the parts"
        )
    if split not in SPLITS:
        raise ValueError(
            f"split={split!r} is unknown, choose one of {', '.join(map(repr, SPLITS))}"
        )
    # Order the points at random, or along the first feature.
    n = points.shape[0]
    if split == "sorted":
        order = np.argsort(points.rows[:, 0], kind="stable")
    else:
        order = np.random.default_rng(child(seed, SPLIT)).permutation(n)

    # Cut that order where the sizes say.
    weights = np.ones(n_clients)
    if split == "unbalanced":
        weights = np.arange(1, n_clients + 1)
    fractions = np.cumsum(weights)[:-1] / weights.sum()
    ends = np.rint(fractions * n).astype(int)
    # Null records have no row to order by: the first client has them.
    n_null = [points.n_null] + [0] * (n_clients - 1)
    return [
        Points.from_grid(points.rows[rows].astype(np.int64), null)
        for rows, null in zip(np.split(order, ends), n_null, strict=True)
    ]


def split_iid(labels: np.ndarray, n_clients: int) -> np.ndarray:
    """Split every cluster evenly; the last client also gets the remainders.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Cluster of each point.
    n_clients : int

    Returns
    -------
    ndarray of int64, shape (n,)
        Client of each point, from 0.

    Raises
    ------
    ValueError
        If the clusters are too small to give every client a point.

    Examples
    --------
    >>> split_iid(np.array([0, 0, 0, 1, 1, 1, 1]), 3).tolist()
    [0, 1, 2, 0, 1, 2, 2]
    """
    clusters = _group_rows(labels)
    largest = max(len(rows) for rows in clusters)
    if not 1 <= n_clients <= largest:
        raise ValueError(
            f"n_clients={n_clients} must be at least 1 and at most {largest}, the size "
            "of the largest cluster"
        )
    clients = np.full(len(labels), n_clients - 1, np.int64)
    for rows in clusters:
        n_each = len(rows) // n_clients
        n_even = n_each * n_clients
        clients[rows[:n_even]] = np.repeat(np.arange(n_clients), n_each)
    return clients


def split_noniid(
    labels: np.ndarray, n_clients: int, max_clusters_per_client: int, seed: int
) -> np.ndarray:
    """Split so that every client holds points of few clusters.

    No client holds points of more than `max_clusters_per_client` clusters.

    All clients but the last are filled in turn, up to n / n_clients points each. A
    client draws clusters at random among those that have points left. From each it
    takes a random number of points, at most those left and those that it still needs.
    The last client gets all remaining points, usually far more than the others. Where
    these are of more clusters than allowed, everything is drawn again, with the next of
    the seed's streams. The split is therefore a function of the arguments.

    Parameters
    ----------
    labels : ndarray of int, shape (n,)
        Cluster of each point.
    n_clients : int
    max_clusters_per_client : int
        Maximal number of clusters that a client may hold points of.
    seed : int

    Returns
    -------
    ndarray of int64, shape (n,)
        Client of each point, from 0; every client has points.

    Raises
    ------
    ValueError
        If a number breaks its rule, or none of 2,000 draws leaves the last client with
        as few clusters as allowed.

    Examples
    --------
    >>> split_noniid(np.array([0, 0, 0, 0, 1, 1, 2, 2]), 4, 2, seed=0).tolist()
    [0, 2, 3, 3, 1, 2, 0, 1]
    """
    clusters = _group_rows(labels)
    n = len(labels)
    if n_clients < 1 or 2 * n_clients > n:
        raise ValueError(
            f"n_clients={n_clients} must be at least 1 and at most half of n={n}"
        )
    if not 1 <= max_clusters_per_client <= len(clusters):
        raise ValueError(
            f"max_clusters_per_client={max_clusters_per_client} must be at least 1 and "
            f"at most {len(clusters)}, the number of clusters"
        )
    for attempt in range(MAX_ATTEMPTS):
        generator = np.random.default_rng([seed, attempt])
        clients = _draw_clients(
            clusters, n, n_clients, max_clusters_per_client, generator
        )
        clusters_of_last = np.unique(labels[clients == n_clients - 1])
        if len(clusters_of_last) <= max_clusters_per_client:
            return clients
    raise ValueError(
        f"max_clusters_per_client={max_clusters_per_client} cannot be kept: in "
        f"{MAX_ATTEMPTS} draws the last of n_clients={n_clients} always got points of "
        "more clusters; take fewer clients, more clusters per client or another seed"
    )


def _group_rows(labels: np.ndarray) -> list[np.ndarray]:
    """Group the rows by their clusters, in order."""
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _draw_clients(
    clusters: list[np.ndarray],
    n: int,
    n_clients: int,
    max_clusters_per_client: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Draw a split; the last client may get points of any number of clusters."""
    clients = np.full(n, n_clients - 1, np.int64)
    capacity = n // n_clients
    # At least one point, so that no client is without points where parts are small.
    min_taken = max(capacity // max_clusters_per_client - 1, 1)
    sizes = np.array([len(rows) for rows in clusters])
    n_used = np.zeros(len(clusters), np.int64)  # points of each that clients have got

    for client in range(n_clients - 1):
        # Fill the client from random clusters that have points left.
        available = np.flatnonzero(n_used < sizes)
        n_needed = capacity
        for cluster in generator.permutation(available)[:max_clusters_per_client]:
            wanted = generator.integers(min_taken, capacity)
            start = n_used[cluster]
            n_taken = min(wanted, n_needed, sizes[cluster] - start)
            clients[clusters[cluster][start : start + n_taken]] = client
            n_used[cluster] += n_taken
            n_needed -= n_taken
            if not n_needed:
                break
    return clients
