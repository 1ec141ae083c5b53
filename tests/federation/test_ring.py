"""Ring elements, and the sums that the ring can hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pkm.federation import Ring
from pkm.privacy import SCALE, Gaussian, Laplace, NoiseStreams

RINGS = [Ring(4), Ring(8)]
INT32 = st.integers(-(2**31), 2**31 - 1)
INT63 = st.integers(-(2**62), 2**62)


@pytest.mark.parametrize("ring", RINGS)
@given(values=st.lists(INT32, min_size=1, max_size=20), data=st.data())
def test_words_add_like_integers_within_the_ring(ring, values, data):
    words = ring.encode(np.array(values))
    assert ring.decode(words).tolist() == values

    # Intermediate sums may wrap: what is added and subtracted leaves the sum.
    n_values = len(values)
    shift_lists = st.lists(INT63, min_size=n_values, max_size=n_values)
    shifts = np.array(data.draw(shift_lists))
    shifted = words + ring.encode(shifts) - ring.encode(shifts)
    assert shifted.dtype.itemsize == ring.word_bytes
    assert ring.decode(shifted).tolist() == values


def test_ring_capacity_is_half_its_size():
    noise = Gaussian(1000.0)
    n_max = (2**31 - 1 - noise.max_noise) // SCALE
    largest_sum = n_max * SCALE + noise.max_noise
    assert largest_sum < 2**31 <= largest_sum + SCALE
    Ring(4).check_capacity(n_max, None, noise, noise)

    message = r"word_bytes=4 is too few: a sum over n=\d+ points .* set word_bytes=8"
    with pytest.raises(ValueError, match=message):
        Ring(4).check_capacity(n_max + 1, None, noise, noise)
    # A small radius bounds the sums, not the counts.
    with pytest.raises(ValueError, match="a count over n="):
        Ring(4).check_capacity(n_max + 1, 0.01, noise, noise)
    with pytest.raises(ValueError, match=r"a sum over .*2\*\*31$|a sum over .*word_bytes=8"):
        Ring(4).check_capacity(10, None, Gaussian(2.0**30), None)

    Ring(8).check_capacity(10**9, None, noise, noise)
    with pytest.raises(ValueError, match="word_bytes=8 is too few"):
        Ring(8).check_capacity(2**47, None, noise, noise)
    with pytest.raises(ValueError, match="word_bytes=5 must be 4 or 8"):
        Ring(5)


@pytest.mark.parametrize("secure", [False, True])
def test_noise_stays_within_max_noise(secure):
    streams = NoiseStreams([3], secure=secure)
    zeros = np.zeros((1, 10**6), np.int64)
    for mechanism in (Gaussian(50.0), Laplace(50.0)):
        noise = streams.release(mechanism, zeros, ("x", 0))
        # The bound covers the rarest draw there is; a million draws pass a fifth of it except once
        # in 10^50.
        largest = np.abs(noise).max()
        assert 0.2 * mechanism.max_noise < largest <= mechanism.max_noise
