"""The comparison of two runs: its error probability is exact, and nothing is waved through."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from pkm.arena.comparison import (
    CPU_FACTOR,
    compare_times,
    compute_p_value,
)


def deal(costs, n_first):
    """All ways to deal the costs of a cell to two runs."""
    for chosen in itertools.combinations(range(len(costs)), n_first):
        rest = [i for i in range(len(costs)) if i not in chosen]
        yield costs[list(chosen)], costs[rest]


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([[1.0, 2, 3, 4, 5, 6]], id="one cell"),
        pytest.param([[1.0, 2, 2, 2, 3, 3]], id="ties"),
        pytest.param([[5.0, 1, 4, 2], [0.1, 0.3, 0.2, 9]], id="two cells"),
        pytest.param([[5.0, 1, 4, 2], [7.0, 7, 7, 7]], id="a constant cell"),
        pytest.param([[1.0, np.nan, np.inf, 2, 3]], id="no number"),
    ],
)
def test_the_error_probability_is_at_most_the_p_value(cells):
    """If all deals are equally likely, p is at most t in a share t of them, for every t."""
    deals = itertools.product(*[list(deal(np.array(costs), 2)) for costs in cells])
    values = np.array([compute_p_value(samples) for samples in deals])
    for level in values:
        assert np.mean(values <= level + 1e-12) <= level + 1e-12


def test_two_sided_p_value_by_hand():
    """Of C(6, 3) = 20 deals, one has all better costs in the first run, and one all worse."""
    better, worse = np.array([1.0, 2, 3]), np.array([4.0, 5, 6])
    assert compute_p_value([(better, worse)]) == pytest.approx(2 / 20)
    assert compute_p_value([(worse, better)] * 2) == pytest.approx(2 / 400)
    assert compute_p_value([]) == 1.0


def test_four_cells_of_five_seeds_can_refute():
    """The smallest number of cells that are run again has power."""
    costs = np.arange(10.0)
    assert compute_p_value([(costs[:5], costs[5:])] * 4) < 1e-6


@pytest.mark.no_cover  # other tests run the same code
def test_many_seeds_are_compared_exactly():
    """Of C(60, 30) deals, one is as extreme on each side."""
    costs = np.arange(60.0)
    assert compute_p_value([(costs[:30], costs[30:])]) == pytest.approx(2 / math.comb(60, 30))


def timed(own, reference):
    return pd.DataFrame(
        {
            "method": ["mine", "kmeans"],
            "dataset": "iris",
            "timing": True,
            "fit_cpu_seconds": [own, reference],
        }
    )


@pytest.mark.parametrize(
    ("own", "reference", "is_found"),
    [
        pytest.param(1.0, 1.0, False, id="equal"),
        pytest.param(1.0, 0.3, False, id="slower reference"),
        pytest.param(1.01 / CPU_FACTOR, 1.0, False, id="another machine"),
        pytest.param(0.99 / CPU_FACTOR, 1.0, True, id="own times edited"),
        pytest.param(1.0, 1.01 * CPU_FACTOR, True, id="times of the reference edited"),
        pytest.param(0.0, 1.0, True, id="no time"),
        pytest.param(np.nan, 1.0, True, id="no number"),
    ],
)
def test_times_are_compared_as_ratios(own, reference, is_found):
    found = compare_times(timed(own, reference), timed(1.0, 1.0), "kmeans")
    assert bool(found) == is_found


def test_times_that_nobody_has_are_no_lie():
    failed = timed(np.nan, 1.0)
    assert compare_times(failed, failed, "kmeans") == []
    assert compare_times(timed(1.0, 1.0), failed, "kmeans") != []
