"""Points on the grid are quantized alike, whatever their layout, type and blocks."""

import numpy as np
import pytest
from random_points import draw

from pkm.compute import SCALE, Points, exact_limit
from pkm.compute.simd import threads
from pkm.compute.storage import points as points_module
from pkm.compute.storage.points import TILE


def test_exact_limit_refuses_too_many_features():
    with pytest.raises(ValueError, match="n_features=1000000 is too large"):
        exact_limit(1_000_000)


def test_points_are_equal_if_their_coordinates_are():
    points, _ = draw(20, 3, 1)
    prepared = Points.from_grid(points)
    assert prepared == Points.from_grid(points.copy())
    assert hash(prepared) == hash(Points.from_grid(points.copy()))
    assert prepared != Points.from_grid(points[::-1])
    assert prepared != Points.from_grid(points.reshape(15, 4))


def test_points_off_the_grid_are_refused():
    with pytest.raises(ValueError, match="points must lie in the domain"):
        Points.from_grid(np.array([[-SCALE - 1, 0]]))


@pytest.mark.parametrize("d", [2, 11])
def test_mapping_a_box_scales_clips_and_rounds(d):
    rng = np.random.default_rng(0)
    lower = rng.uniform(-5, 0, d)
    upper = rng.uniform(1, 9, d)
    points = rng.uniform(-6, 10, (300, d))
    mapped, outside = Points.quantize(points, lower, upper)
    assert outside

    midpoint = upper / 2 + lower / 2
    half_width = upper / 2 - lower / 2
    units = (points - midpoint) / half_width
    steps = np.clip(units, -1, 1) * SCALE
    rounded = np.rint(steps)
    assert (mapped.rows == rounded).all()
    assert (mapped.squared_norms == (rounded**2).sum(axis=1)).all()
    assert mapped.remainders == pytest.approx((steps - rounded) * SCALE, abs=0.6)

    # Points on the grid do not know what was rounded away.
    assert mapped != Points.from_grid(rounded.astype(np.int64))

    inside = np.clip(points, lower + 1e-9, upper - 1e-9)
    _, outside = Points.quantize(inside, lower, upper)
    assert not outside


@pytest.mark.parametrize("d", [1, 2, 7, 64])
def test_points_at_the_border_and_between_steps_are_inside(d):
    rng = np.random.default_rng(d)
    points = rng.uniform(-1, 1, (301, d))
    points[0] = 1.0
    points[1] = -1.0
    points[2] = np.nextafter(1.0, 0.0)
    points[3] = 0.5 / SCALE  # half a step
    quantized, outside = Points.quantize(points, -np.ones(d), np.ones(d))
    assert not outside
    rounded = np.rint(points * SCALE)
    assert np.array_equal(quantized.rows, rounded)
    assert np.array_equal(quantized.squared_norms, (rounded**2).sum(axis=1))
    remainders = np.rint((points * SCALE - rounded) * SCALE)
    assert np.array_equal(quantized.remainders, np.minimum(remainders, 2**15 - 1))


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("d", [1, 10, TILE + 1])
def test_points_are_entered_alike_in_any_layout_and_precision(d, is_inside):
    rng = np.random.default_rng(d)
    points = rng.uniform(-3, 3, (500, d)).astype(np.float32)
    if not is_inside:
        points[7] = 4.0
        points[11, 0] = np.nan
    upper = np.full(d, 3.0)
    expected, outside = Points.quantize(points.astype(np.float64), -upper, upper)
    assert outside != is_inside
    read_only = points.copy()
    read_only.flags.writeable = False
    strided = np.repeat(points, 2, axis=0)[::2]
    for array in (points, np.asfortranarray(points), read_only, strided):
        for keep_remainders in (True, False):
            quantized, _ = Points.quantize(array, -upper, upper, keep_remainders=keep_remainders)
            assert np.array_equal(quantized.rows, expected.rows)
            assert np.array_equal(quantized.squared_norms, expected.squared_norms)
            assert quantized.n_null == expected.n_null
            if keep_remainders:
                assert np.array_equal(quantized.remainders, expected.remainders)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.0 + 1e-12, -2.0])
def test_a_value_outside_is_noticed_at_any_position(bad):
    for position in range(0, 300, 7):
        points = np.zeros((100, 3))
        points.flat[position] = bad
        quantized, outside = Points.quantize(points, -np.ones(3), np.ones(3))
        assert outside == np.isfinite(bad)
        assert quantized.n_null == (not outside)


@pytest.mark.parametrize("n_threads", [2, 3, 7])
def test_points_are_entered_alike_by_any_number_of_threads(monkeypatch, n_threads):
    rng = np.random.default_rng(n_threads)
    points = rng.uniform(-1.1, 1.1, (5000, 10))
    points[rng.random(5000) < 0.3] = np.nan
    box = (-np.ones(10), np.ones(10))
    expected, outside = Points.quantize(points, *box)
    monkeypatch.setattr(points_module, "BLOCK_VALUES", 700)
    monkeypatch.setattr(threads, "THREADED_PRODUCTS", 0)
    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: n_threads)
    quantized, also_outside = Points.quantize(points, *box)
    assert quantized == expected
    assert quantized.n_null == expected.n_null > 0
    assert (quantized.squared_norms == expected.squared_norms).all()
    assert outside == also_outside


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_null_records(bad):
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (700, 3))
    without = np.delete(points, 2, axis=0)
    points[2, 1] = bad
    lower = np.full(3, -1.0)
    upper = np.full(3, 1.0)
    with_null, _ = Points.quantize(points, lower, upper)
    finite, _ = Points.quantize(without, lower, upper)
    assert with_null.n_null == 1
    assert with_null.n_records == 700
    assert with_null.shape == (699, 3)
    assert (with_null.rows == finite.rows).all()
    assert (with_null.squared_norms == finite.squared_norms).all()
    assert with_null != finite


@pytest.mark.parametrize("d", [1, 3, TILE + 1])
@pytest.mark.parametrize("with_null", [False, True])
def test_blocks_of_rows_are_entered_alike(monkeypatch, d, with_null):
    """Any number of rows at a time, in any order in memory, of any dtype: the same points."""
    rng = np.random.default_rng(d)
    points = rng.uniform(-1.2, 1.2, (500, d)).astype(np.float32)
    points[100:300] /= 2  # some blocks lie inside the box, others do not
    if with_null:
        points[[0, 1, 77, 250, 499], rng.integers(0, d, 5)] = [np.nan, np.inf, -np.inf, 9e9, np.nan]
    box = (np.full(d, -1.0), np.ones(d))
    whole, outside = Points.quantize(points.astype(np.float64), *box)
    assert outside
    assert whole.n_null == (4 if with_null else 0)
    for rows in (1, 7, 100, 499):
        monkeypatch.setattr("pkm.compute.storage.points.BLOCK_VALUES", rows * d)
        for array in (points, np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2]):
            quantized, outside = Points.quantize(array, *box)
            assert outside
            assert quantized == whole
            assert np.array_equal(quantized.squared_norms, whole.squared_norms)
            without, outside = Points.quantize(array, *box, keep_remainders=False)
            assert outside
            assert without.remainders is None
            assert without.n_null == whole.n_null
            assert np.array_equal(without.rows, whole.rows)
            assert np.array_equal(without.squared_norms, whole.squared_norms)


@pytest.mark.parametrize("width", [1e-3, 1.0, 1e300])
def test_any_finite_row_is_clipped(width):
    """Sums of clipped amounts overflowed for some rows and not for their neighbors."""
    largest = np.finfo(np.float64).max
    points = np.array([[1e306], [1e308], [-largest], [largest], [0.0]])
    quantized, outside = Points.quantize(points, np.array([0.0]), np.array([width]))
    assert outside
    assert quantized.n_null == 0
    assert quantized.rows[:, 0].tolist() == [SCALE, SCALE, -SCALE, SCALE, -SCALE]
