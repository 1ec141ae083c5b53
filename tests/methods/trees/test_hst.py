"""HST: its cuts, the dynamic program, released boxes, cost and quality."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noiseless import add_nothing, draw

from pkm import datasets
from pkm.methods.baselines.kmeans import KMeansPlusPlus
from pkm.methods.trees.hst import HST, Box, best_leaves, random_cuts, release_tree
from pkm.metrics import evaluate
from pkm.privacy import SCALE, Budget, Curator, Gaussian, Ledger, NoiseStreams, gaussian_mu, snap

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 6), st.integers(1, 4))
def test_boxes_are_cut_in_their_middle_third_at_one_fraction(seed, layers, d):
    cuts = random_cuts(np.random.default_rng(seed), layers, d)
    for feature in range(d):
        ends = np.array([-SCALE, SCALE])
        for layer, positions in enumerate(cuts):
            widths = np.diff(ends)
            fractions = (positions[feature] - ends[:-1]) / widths
            assert positions.shape == (d, 2**layer)
            # Positions are rounded down to the grid, by less than a step.
            least = fractions.max()
            most = (fractions + 1 / widths).min()
            assert 1 / 3 <= most
            assert least <= 2 / 3
            assert least < most + 1e-12
            ends = np.sort(np.concatenate([ends, positions[feature]]))


def random_tree(rng, n_leaves):
    """A tree of random counts and diameters, some parts of which are missing."""
    children = {0: ()}
    while sum(not parts for parts in children.values()) < n_leaves:
        leaf = rng.choice([i for i, parts in children.items() if not parts])
        n_parts = rng.choice([1, 2, 2, 2])
        children[int(leaf)] = tuple(range(len(children), len(children) + n_parts))
        children |= {i: () for i in children[int(leaf)]}
    return [
        Box(np.zeros(1, np.int64), rng.uniform(0.1, 3), rng.uniform(0, 100), children[i])
        for i in range(len(children))
    ]


def cost_of(nodes, i, chosen):
    """Cost of the box of node i with the chosen leaves as centers, by the definition."""
    node = nodes[i]
    below = [i]
    for j in below:
        below += nodes[j].children
    if not chosen & set(below):
        return 2 * node.count * node.diameter**2
    if not node.children:
        return node.count * node.diameter**2
    missing = max(0.0, node.count - sum(nodes[part].count for part in node.children))
    parts = sum(cost_of(nodes, part, chosen) for part in node.children)
    return parts + 2 * missing * node.diameter**2


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 8), st.integers(1, 5))
def test_chosen_leaves_are_the_best_of_all(seed, n_leaves, k):
    nodes = random_tree(np.random.default_rng(seed), n_leaves)
    leaves = [i for i, node in enumerate(nodes) if not node.children]
    chosen = best_leaves(nodes, k)
    assert 1 <= len(chosen) <= k
    assert set(chosen) <= set(leaves)
    best = min(
        cost_of(nodes, 0, set(some))
        for size in range(1, min(k, len(leaves)) + 1)
        for some in itertools.combinations(leaves, size)
    )
    assert cost_of(nodes, 0, set(chosen)) == pytest.approx(best)


def test_without_noise_boxes_count_their_records(monkeypatch):
    monkeypatch.setattr(Gaussian, "draw", add_nothing)
    points = draw(3000, 2)
    curator = Curator(points, Ledger(Budget(50.0, 1e-6)), NoiseStreams([0]))
    cuts = random_cuts(np.random.default_rng(1), 3, 2)
    nodes = release_tree(curator, cuts, 5, gaussian_mu(50.0, 1e-6) / math.sqrt(6), 1e-6)
    assert len(nodes) > 20
    ends = [np.sort(np.concatenate([[-SCALE - 1, SCALE], *[c[h] for c in cuts]])) for h in (0, 1)]
    for node in nodes:
        # Half the extent of a box from its midpoint, by the ends that lie about it.
        if not node.children and node.count < 3000:
            inside = np.ones(len(points), bool)
            for h in (0, 1):
                upper = np.searchsorted(ends[h], node.midpoint[h])
                low, high = ends[h][upper - 1], ends[h][upper]
                inside &= (points[:, h] > low) & (points[:, h] <= high)
            assert node.count == inside.sum()
        if node.children:
            parts = [nodes[i] for i in node.children]
            assert sum(part.count for part in parts) <= node.count
            assert all(part.diameter < node.diameter for part in parts)


@pytest.mark.parametrize("epsilon", [0.4, 2.0])
def test_charges_add_up_to_the_declared_budget(epsilon):
    """Recomputed from the noise scales of the charges: one for each level, one for the step."""
    d = 3
    run = HST(n_clusters=2, epsilon=epsilon, layers=4).fit_batch(draw(2000, d), [0, 5])
    *levels, step = run.ledger.charges
    assert len(levels) == 4 * d
    mu = gaussian_mu(epsilon, 1e-6)
    tree = sum(1 / charge.details["count_scale"] ** 2 for charge in levels)
    sums = step.details["sum_sensitivity"] / step.details["sum_scale"]
    assert tree == pytest.approx(mu**2 / 2, rel=1e-9)
    assert sums**2 + 1 / step.details["count_scale"] ** 2 == pytest.approx(mu**2 / 2, rel=1e-9)
    assert run.ledger.spent() == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.statistical
def test_finds_separated_clusters():
    points = snap(datasets.load("planted-20000-8-8-0.05").points)
    run = HST(n_clusters=8, epsilon=1.0).fit_batch(points, range(5))
    reference = KMeansPlusPlus(n_clusters=8, n_init=10).fit_batch(points, [0])
    best = evaluate(points, reference.centers, ["nicv"])["nicv"][0]
    assert np.median(evaluate(points, run.centers, ["nicv"])["nicv"]) < 1.5 * best


def test_hardly_any_records_give_one_center():
    run = HST(n_clusters=4, epsilon=0.01).fit_batch(draw(50, 2), [0])
    assert run.n_centers.tolist() == [1]


@pytest.mark.parametrize("layers", [0, 16, 2.5, True])
def test_layers_out_of_range_are_refused(layers):
    with pytest.raises(ValueError, match=r"layers=.* must be an integer from 1 to 15"):
        HST(n_clusters=2, layers=layers).fit_batch(draw(20, 2), [0])


def test_too_many_features_are_refused():
    most = 65_535 // (2**10 - 1)
    with pytest.raises(ValueError, match=f"d={most + 1} features are too many for layers=10"):
        HST(n_clusters=2).fit_batch(draw(20, most + 1), [0])
    assert math.isfinite(HST(2, layers=1).budget(20, most + 1).epsilon)
