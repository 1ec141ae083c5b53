"""Thresholds of cells that hold a part of a record, for every spread of it over cells."""

import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from pkm.privacy import SCALE, NoiseStreams, StabilityHistogram
from pkm.privacy.mechanisms.stability_histogram import OccupiedCells
from pkm.privacy.queries.sums import ONE_COUNT

ROUNDING = 1e-9  # relative
STDDEVS = (0.003, 0.1, 0.3, 1.0, 4.0, 6.0, 30.0, 1000.0)
DELTAS = (0.4, 1e-2, 1e-7, 1e-12)


def threshold_of(noise, count):
    """Smallest noisy count to release of a cell, both in units of 2**-16 records."""
    threshold = noise.find_threshold(count / SCALE)
    return threshold if math.isinf(threshold) else math.ceil(threshold * SCALE)


def exponents(noise, counts, thresholds):
    """Minus the logarithms of the probabilities that noisy counts are below thresholds."""
    margin = np.array(thresholds) - 0.5 - np.array(counts)
    return -log_ndtr(margin / (noise.stddev * SCALE))


def leaks(noise, counts, parts):
    """Exponents of parts of a record that cells of some counts get: of what only one neighbor
    can release.
    """
    before = [threshold_of(noise, count) for count in counts]
    counts = np.add(counts, parts)
    after = [threshold_of(noise, count) for count in counts]
    assert np.less_equal(after, before).all()
    return exponents(noise, counts, after) - exponents(noise, counts, before)


@pytest.mark.slow
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("stddev", STDDEVS)
@pytest.mark.parametrize("n_changed", [1, 2])
def test_every_spread_of_a_record_is_told_with_delta_at_most(stddev, delta, n_changed):
    """All ways to divide it into parts, each in the worst cell for it: empty or not."""
    n_parts = 24
    part = SCALE // n_parts
    noise = StabilityHistogram(stddev, delta, n_changed)
    counts = np.arange(2 * n_parts) * part
    worst = [leaks(noise, counts, [size * part] * len(counts)).max() for size in range(n_parts + 1)]
    largest = [0.0]
    for total in range(1, n_parts + 1):
        largest.append(max(largest[total - size] + worst[size] for size in range(1, total + 1)))
    assert largest[-1] <= -math.log1p(-delta) / n_changed * (1 + ROUNDING)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("stddev", STDDEVS)
def test_parts_of_few_units_are_told_in_proportion(stddev, delta):
    """Where thresholds are rounded to the grid: at 0 and 1, and at one record together."""
    noise = StabilityHistogram(stddev, delta)
    rng = np.random.default_rng(0)
    few = np.arange(1, 12)
    sizes = np.unique([*few, *SCALE - few, SCALE, *rng.integers(1, SCALE, 12)])
    counts, parts = (grid.ravel() for grid in np.meshgrid(np.append(sizes, 0), sizes))
    others = rng.integers(12, SCALE - 12, 60)
    counts = np.concatenate([counts, others])
    parts = np.concatenate([parts, SCALE - others + rng.integers(-2, 3, 60)])
    record = -math.log1p(-delta)
    assert (leaks(noise, counts, parts) <= parts / SCALE * record * (1 + ROUNDING)).all()


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("stddev", [0.1, 1.0, 10.0])
def test_a_cell_costs_what_its_noise_and_its_leak_do(stddev, epsilon):
    """The exact distance of the laws of both neighbors, against that of the charge."""
    noise = StabilityHistogram(stddev, 0.01)
    factor = math.exp(epsilon)
    for count in (0.0, 0.3, 0.9, 1.5):
        for part in (0.1, 0.7, 1.0):
            mu = part / stddev
            of_noise = ndtr(mu / 2 - epsilon / mu) - factor * ndtr(-mu / 2 - epsilon / mu)
            leak = -math.expm1(part * math.log1p(-noise.delta))
            charged = leak + (1 - leak) * of_noise

            # Released values differ where one neighbor has no density, or the ratio exceeds.
            counts = (count + part, count)
            lowest, highest = map(noise.find_threshold, counts)
            ratio_start = count + part / 2 + epsilon * stddev**2 / part
            start = max(highest, ratio_start)
            above = [ndtr((each - start) / stddev) for each in counts]
            hidden = [
                ndtr((threshold - each) / stddev)
                for threshold, each in zip((lowest, highest), counts, strict=True)
            ]
            between = ndtr((counts[0] - lowest) / stddev) - ndtr((counts[0] - highest) / stddev)
            realized = between + above[0] - factor * above[1]
            assert realized + max(0.0, hidden[0] - factor * hidden[1]) <= charged + 1e-12

            # The other way: the neighbor without the part releases less.
            ratio_end = count + part / 2 - epsilon * stddev**2 / part
            below = 0.0
            if ratio_end > highest:
                masses = [
                    ndtr((ratio_end - each) / stddev) - ndtr((highest - each) / stddev)
                    for each in counts
                ]
                below = masses[1] - factor * masses[0]
            assert below + max(0.0, hidden[1] - factor * hidden[0]) <= charged + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("n_cells", [1, 2, 64])
def test_a_record_in_several_new_cells_is_told_with_delta(n_cells, secure):
    noise = StabilityHistogram(10.0, 0.4)
    values = OccupiedCells(np.arange(n_cells), np.full(n_cells, SCALE // n_cells), count_factor=1)
    n_draws = 3000
    n_told = 0
    for seed in range(n_draws):
        streams = NoiseStreams([seed], secure)
        (released,) = noise.draw(values, streams, ("counts", 0), ONE_COUNT)
        n_told += len(released.cells) > 0
    expected = n_draws * noise.delta
    assert abs(n_told - expected) < 5 * math.sqrt(expected)


def test_cells_without_weight_are_never_released():
    noise = StabilityHistogram(1e-3, 0.4)
    values = OccupiedCells(np.arange(2), np.array([0, 3 * SCALE]), count_factor=1)
    (released,) = noise.draw(values, NoiseStreams([0]), ("counts", 0), ONE_COUNT)
    assert released.cells.tolist() == [1]
