"""Operations on vector registers."""

import numpy as np
from numba import njit

from pkm.compute.simd.lanes import LANES, broadcast, load, multiply_add, store, transpose


@njit
def _transposed(rows, columns):
    transpose(rows, 0, LANES + 1, columns, 0, LANES)


def test_a_tile_is_transposed():
    rows = np.arange(LANES * (LANES + 1), dtype=np.float32)
    columns = np.empty(LANES * LANES, np.float32)
    _transposed(rows, columns)
    expected = rows.reshape(LANES, LANES + 1)[:, :LANES].T
    assert np.array_equal(columns.reshape(LANES, LANES), expected)


@njit
def _multiplied_and_added(a, c, result):
    store(result, 0, multiply_add(load(a, 0), load(a, 0), broadcast(c)))


def test_a_product_and_a_sum_are_rounded_once():
    """(1 + e)^2 - 1 keeps e^2, which rounding the product would lose."""
    e = np.float32(2.0**-13)
    result = np.empty(LANES, np.float32)
    _multiplied_and_added(np.full(LANES, 1 + e, np.float32), np.float32(-1.0), result)
    assert (result == np.float32(2.0 * e + e * e)).all()
