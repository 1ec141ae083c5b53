"""Radix sort against numpy's stable sort."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute.kernels.radix_sort import radix_argsort


@settings(max_examples=80, deadline=None)
@given(
    m=st.integers(0, 300),
    n_bits=st.integers(0, 63),
    n_distinct=st.integers(1, 300),
    seed=st.integers(0, 10**6),
)
def test_keys_are_sorted_and_equal_ones_keep_their_order(m, n_bits, n_distinct, seed):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, (1 << n_bits) - 1, n_distinct, endpoint=True)
    keys = generator.choice(values, m)
    expected = np.argsort(keys, kind="stable")
    order, sorted_keys = radix_argsort(keys.copy(), n_bits)
    assert order.tolist() == expected.tolist()
    assert sorted_keys.tolist() == keys[expected].tolist()


@pytest.mark.parametrize("n_bits", [1, 7, 8, 9, 16, 62, 63])
def test_the_largest_key_is_last(n_bits):
    keys = np.array([(1 << n_bits) - 1, 0, (1 << n_bits) - 1, 1])
    order, sorted_keys = radix_argsort(keys.copy(), n_bits)
    assert sorted_keys.tolist() == sorted(keys.tolist())
    assert order.tolist() == ([1, 3, 0, 2] if n_bits > 1 else [1, 0, 2, 3])
