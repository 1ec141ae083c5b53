"""Masks that cancel, their streams, and their order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_runs import make_masks, mask_all

from pkm.federation import Ring
from pkm.federation.masks import KeyStream

RINGS = [Ring(4), Ring(8)]
SEEDS = st.integers(0, 10**6)


@given(
    st.integers(1, 6),
    st.sampled_from(RINGS),
    SEEDS,
)
@settings(max_examples=40, deadline=None)
def test_masks_cancel_and_determine_their_streams(n_clients, ring, seed):
    rng = np.random.default_rng(seed)
    shape = (2, 3)
    masks, pair_keys, group_key = make_masks(n_clients, ring, seed)
    streams = {
        (first, second): KeyStream(key)
        for first, keys in pair_keys.items()
        for second, key in keys.items()
        if first < second
    }
    group = KeyStream(group_key)
    for _ in range(3):
        values = rng.integers(-(2**28), 2**28, (n_clients, *shape))
        messages = mask_all(masks, values)
        total = np.sum(messages, axis=0, dtype=ring.dtype)
        for mask in masks:
            unmasked = mask.unmask(total)
            assert (unmasked == values.sum(axis=0)).all()

        # The first of a pair adds its stream, the second subtracts it; the first client adds the
        # stream of the group.
        expected = [ring.encode(value) for value in values]
        for (first, second), stream in streams.items():
            words = stream.next(shape, ring.dtype)
            expected[first - 1] += words
            expected[second - 1] -= words
        expected[0] += group.next(shape, ring.dtype)
        assert (np.array(messages) == np.array(expected)).all()


def test_masks_are_fresh_for_every_message():
    zeros = np.zeros(64, np.int64)
    all_words = []
    for masks in make_masks(3, Ring(8))[0]:
        for _ in range(4):
            words = masks.mask(zeros)
            all_words += words.tolist()
            masks.unmask(words)
    assert len(set(all_words)) == len(all_words)  # 768 words of 64 bits


def test_masks_out_of_order_are_refused():
    (masks, _), _, _ = make_masks(2, Ring(8))
    with pytest.raises(RuntimeError, match="no masked message"):
        masks.unmask(np.zeros(3, np.uint64))
    masks.mask(np.zeros(3, np.int64))
    with pytest.raises(RuntimeError, match="not unmasked yet"):
        masks.mask(np.zeros(3, np.int64))
