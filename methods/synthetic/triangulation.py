"""Triangulation of small graphs by elimination of their vertices in min-fill order."""

import numpy as np
from numba import njit


@njit(cache=True)
def min_fill_cliques(joined: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Maximal cliques of a triangulated graph, in the order of elimination.

    Parameters
    ----------
    joined : ndarray of shape (d, d), bool
        Edges of the graph; every vertex is joined to itself.
    sizes : ndarray of shape (d,), float64
        Number of values of every vertex. The product over a clique is its number of
        cells.

    Returns
    -------
    ndarray of shape (n_cliques, d), bool
        No clique contains another one.
    """
    d = len(sizes)
    joined = joined.copy()
    is_left = np.ones(d, np.bool_)
    cliques = np.zeros((d, d), np.bool_)
    n_cliques = 0
    for _ in range(d):
        # Eliminate the vertex with fewest fill-in edges, and of those the smallest
        # clique. Vertices without fill-in edges give the same cliques in any order.
        vertex = -1
        fewest = d * d
        smallest = np.inf
        for h in range(d):
            if not is_left[h]:
                continue
            fill = 0
            n_cells = 1.0
            for a in range(d):
                if joined[h, a]:
                    n_cells *= sizes[a]
                    for b in range(a):
                        fill += joined[h, b] and not joined[a, b]
            if fill < fewest or (fill == fewest and n_cells < smallest):
                vertex = h
                fewest = fill
                smallest = n_cells
            if fill == 0:
                break
        # Join all its neighbors, and remove it.
        is_left[vertex] = False
        for a in range(d):
            if joined[vertex, a] and a != vertex:
                for b in range(d):
                    joined[a, b] |= joined[vertex, b]
                joined[a, vertex] = False
        # Keep maximal cliques.
        is_maximal = True
        for i in range(n_cliques):
            n_outside = 0
            for a in range(d):
                n_outside += joined[vertex, a] and not cliques[i, a]
            is_maximal &= n_outside > 0
        if is_maximal:
            cliques[n_cliques] = joined[vertex]
            n_cliques += 1
    return cliques[:n_cliques]


@njit(cache=True)
def count_cells_with(
    joined: np.ndarray,
    sizes: np.ndarray,
    tables: np.ndarray,
) -> np.ndarray:
    """Count the cells of all cliques of a graph that one more table is joined to.

    Parameters
    ----------
    joined : ndarray of shape (d, d), bool
    sizes : ndarray of shape (d,), float64
    tables : ndarray of shape (n_tables, m), int64
        Vertices of each table, which may be repeated.

    Returns
    -------
    ndarray of shape (n_tables,), float64
        One count for each table. Counts above 2^53 are rounded.
    """
    counts = np.zeros(len(tables))
    for i in range(len(tables)):
        candidate = joined.copy()
        for a in tables[i]:
            for b in tables[i]:
                candidate[a, b] = True
        cliques = min_fill_cliques(candidate, sizes)
        for j in range(len(cliques)):
            n_cells = 1.0
            for h in range(len(sizes)):
                if cliques[j, h]:
                    n_cells *= sizes[h]
            counts[i] += n_cells
    return counts
