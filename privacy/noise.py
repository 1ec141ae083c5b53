"""Random numbers for private releases: every release of every replicate has a stream of its own.

Seeded streams (the default) make experiments repeatable and are therefore not private: who knows the seed can subtract
the noise. ``secure=True`` draws from the operating system's entropy.
"""

import hashlib
import os
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

DATA, PARTITION, INITIALISATION, NOISE = range(4)  # children of a replicate's seed, one per purpose


def child(seed: int, purpose: int) -> np.random.SeedSequence:
    """Return the seed sequence of one purpose of one replicate; purposes never share a stream."""
    return np.random.SeedSequence(seed, spawn_key=(purpose,))


@lru_cache(maxsize=4096)
def _noise_key(seed: int) -> np.ndarray:
    return child(seed, NOISE).generate_state(2, np.uint64)


def _secure_uniforms(size: int) -> np.ndarray:
    """Uniforms strictly inside (0, 1) with 53 random bits from the operating system."""
    bits = np.frombuffer(os.urandom(8 * size), np.uint64) >> np.uint64(11)
    return (bits + 0.5) * 2.0**-53


class NoiseStreams:
    """Standard normal and Laplace variates for a batch of replicates.

    Parameters
    ----------
    seeds : sequence of int
        One per replicate, all different: equal seeds would be one run counted twice.
    secure : bool, default=False
        Draw from the operating system's entropy; results are then not repeatable.

    Examples
    --------
    >>> streams = NoiseStreams([0, 1])
    >>> streams.normal(("counts", 0), (3,)).shape
    (2, 3)
    >>> bool((streams.normal(("counts", 0), (3,))[1] == NoiseStreams([1]).normal(("counts", 0), (3,))[0]).all())
    True
    """

    def __init__(self, seeds, secure: bool = False):
        self.seeds = tuple(int(seed) for seed in seeds)
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds={self.seeds} must be one or more different non-negative integers")
        self.secure = secure
        # Philox is counter based: a stream is a place in the counter's upper half, so one generator serves all keys.
        sources = [] if secure else [np.random.Philox(key=_noise_key(seed)) for seed in self.seeds]
        self._generators = [np.random.Generator(source) for source in sources]
        self._starts = [source.state for source in sources]  # with nothing buffered: only the counter is to be set

    def _seeded(self, key: tuple, shape: tuple[int, ...], draw) -> np.ndarray:
        digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
        counter = np.frombuffer(bytes(16) + digest, np.uint64)
        values = np.empty((len(self.seeds), *shape))
        for generator, start, into in zip(self._generators, self._starts, values, strict=True):
            start["state"]["counter"] = counter
            generator.bit_generator.state = start
            draw(generator, into)
        return values

    def normal(self, key: tuple, shape: tuple[int, ...]) -> np.ndarray:
        """Draw standard normal variates of shape (replicates, *shape) from the stream of ``key``."""
        if self.secure:
            shape = (len(self.seeds), *shape)
            return ndtri(_secure_uniforms(int(np.prod(shape)))).reshape(shape)
        return self._seeded(key, shape, lambda generator, into: generator.standard_normal(out=into))

    def laplace(self, key: tuple, shape: tuple[int, ...]) -> np.ndarray:
        """Draw Laplace variates of scale 1 and shape (replicates, *shape) from the stream of ``key``."""
        if self.secure:
            shape = (len(self.seeds), *shape)
            centred = _secure_uniforms(int(np.prod(shape))).reshape(shape) - 0.5
        else:
            centred = self._seeded(key, shape, lambda generator, into: generator.random(out=into)) - 0.5
            centred += 2.0**-54  # generator.random includes 0, which would map to minus infinity
        return -np.copysign(np.log1p(-2.0 * np.abs(centred)), centred)
