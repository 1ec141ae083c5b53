"""Triangulation in min-fill order, against sets of neighbors."""

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.methods.synthetic.triangulation import count_cells_with, min_fill_cliques

D = 7
some_edges = st.sets(st.sampled_from(list(itertools.combinations(range(D), 2))))
some_sizes = st.lists(st.integers(1, 4), min_size=D, max_size=D)
some_tables = st.lists(st.tuples(*[st.integers(0, D - 1)] * 3), min_size=1, max_size=5)


def joined_by(edges):
    joined = np.eye(D, dtype=bool)
    for a, b in edges:
        joined[[a, b], [b, a]] = True
    return joined


def eliminate(joined, sizes):
    """Maximal cliques, by the definition: costs of all vertices anew in every step."""
    near = {h: set(np.flatnonzero(joined[h])) - {h} for h in range(D)}
    cliques = []
    while near:

        def cost(h):
            fill = sum(b not in near[a] for a, b in itertools.combinations(near[h], 2))
            return fill, math.prod(sizes[a] for a in {h, *near[h]}), h

        vertex = min(near, key=cost)
        clique = {vertex, *near.pop(vertex)}
        for a in clique - {vertex}:
            near[a] = (near[a] | clique) - {a, vertex}
        if not any(clique <= other for other in cliques):
            cliques.append(clique)
    return cliques


def count_cells(cliques, sizes):
    return sum(math.prod(sizes[h] for h in clique) for clique in cliques)


@settings(deadline=None)
@given(some_edges, some_sizes)
def test_cliques_are_those_of_elimination_by_sets(edges, sizes):
    joined = joined_by(edges)
    found = min_fill_cliques(joined, np.array(sizes, float))
    expected = sorted(map(sorted, eliminate(joined, sizes)))
    assert sorted(np.flatnonzero(clique).tolist() for clique in found) == expected
    assert (joined == joined_by(edges)).all()


@settings(deadline=None)
@given(some_edges, some_sizes, some_tables)
def test_cells_are_counted_with_each_table_alone(edges, sizes, tables):
    counts = count_cells_with(joined_by(edges), np.array(sizes, float), np.array(tables))
    for table, count in zip(tables, counts, strict=True):
        joined = joined_by(edges | set(itertools.combinations(table, 2)))
        assert count == count_cells(eliminate(joined, sizes), sizes)


def test_a_cycle_gets_the_chord_of_the_smallest_clique():
    joined = joined_by([(0, 1), (1, 2), (2, 3), (0, 3)])[:4, :4]
    found = min_fill_cliques(joined, np.array([2.0, 3.0, 2.0, 5.0]))
    assert [np.flatnonzero(clique).tolist() for clique in found] == [[0, 1, 2], [0, 2, 3]]
