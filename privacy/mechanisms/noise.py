"""Random numbers for private releases.

Every release of every replicate has a separate stream.

Seeded streams (the default here; a method's ``fit`` has it only with a
``random_state``) make experiments repeatable and are therefore not private: whoever
knows the seed can subtract the noise. ``secure=True`` draws from the operating system's
entropy. Additive noise and choices then come from exact integer samplers
(:mod:`pkm.privacy.mechanisms.samplers`), everything else from float64 variates with
full precision near 0, down to 2**-65.
"""

import hashlib
import math
import os
import struct
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri

# Bounds on the absolute float variates. Uniforms have 53 bits (seeded) or end at 2**-65
# (secure), so logarithms stay below 37 or 45; the tail of the seeded normal is 3.66 + x
# with x^2 < 2 * 37. The exact samplers exceed them, as multiples of an integer scale,
# with probability below 2**-64.
MAX_VARIATE = {"normal": 13.0, "laplace": 45.0}

# What a replicate's seed is used for: spawn keys of its seed sequences.
DATA, SPLIT, INITIALIZATION, NOISE = range(4)

#: Key of a stream: label and round of a release, then what tells its draws apart, such
#: as the name of a part of the answer.
Key = tuple[object, ...]
Shape = tuple[int, ...]


def child(seed: int, purpose: int) -> np.random.SeedSequence:
    """Return the seed sequence of one purpose; those of two are independent."""
    return np.random.SeedSequence(seed, spawn_key=(purpose,))


@lru_cache(maxsize=4096)
def public_seed(seed: int) -> int:
    """Seed of a replicate's public randomness: starting centers, hashes, partitions.

    It is a hash of the replicate's seed. Methods get the hash and not the seed, which
    gives the noise. A small seed is found from its hash by trying all small seeds.
    Secure noise has no seed.

    Examples
    --------
    >>> public_seed(0) == public_seed(0), public_seed(0) == public_seed(1)
    (True, False)
    """
    digest = hashlib.blake2b(
        str(seed).encode(), digest_size=8, person=b"public seed"
    ).digest()
    return int.from_bytes(digest, "little") >> 1


@lru_cache(maxsize=4096)
def _philox_key(seed: int) -> tuple[int, ...]:
    return tuple(child(seed, NOISE).generate_state(2, np.uint64).tolist())


@lru_cache(maxsize=4096)
def _position(context: str, key: Key) -> tuple[int, ...]:
    """Upper half of the Philox counter at which the stream of a key begins."""
    # 128 bits of a hash: no two keys share a position, but for a collision. A stream
    # has the lower half of the counter, 2**128 blocks, to itself.
    digest = hashlib.blake2b(f"{context}{key!r}".encode(), digest_size=16).digest()
    return struct.unpack("=2Q", digest)


def _secure_tails(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Random signs, and tail probabilities: uniforms in (0, 1/2], precise near 0.

    The binary exponent is geometric (leading zeros of a random word), and the mantissa
    has 52 random bits. So inverse distribution functions reach far tails without gaps.
    Values below 2**-65 are cut off.
    """
    words = np.frombuffer(os.urandom(16 * size), np.uint64).reshape(2, size)
    mantissa = 1.0 + (words[0] >> np.uint64(12)) * 2.0**-52

    # The exponent of a 64-bit word is geometric. The lowest bit is set, so that no word
    # is zero. Conversion may round the largest words up to the next power of two.
    _, exponent = np.frexp((words[1] | np.uint64(1)).astype(np.float64))

    signs = np.where(words[0] & np.uint64(1), 1.0, -1.0)
    return signs, np.ldexp(mantissa, np.minimum(exponent, 64) - 66)


class _StreamGenerator(threading.local):
    """One generator for the streams of all seeds and keys.

    Philox is counter based. A stream is a replicate's Philox key and an upper half of
    the counter; both are set before every draw.
    """

    def __init__(self) -> None:
        self.bit_generator = np.random.Philox(0)
        self.generator = np.random.Generator(self.bit_generator)
        self.start: dict[str, tuple[int, ...]] = {}
        self.state: Any = {
            "bit_generator": "Philox",
            "state": self.start,
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,  # nothing is buffered
            "has_uint32": 0,
            "uinteger": 0,
        }

    def at(
        self, philox_key: tuple[int, ...], position: tuple[int, ...]
    ) -> np.random.Generator:
        """Return the generator at the start of a stream."""
        # A stream counts in the lower half, from 0.
        self.start["key"] = philox_key
        self.start["counter"] = (0, 0, *position)
        self.bit_generator.state = self.state
        return self.generator


_stream_generator = _StreamGenerator()  # of each thread


class NoiseStreams:
    """Standard variates for a batch of replicates; a key names each replicate's stream.

    Parameters
    ----------
    seeds : sequence of int
        One per replicate, all different: equal seeds would repeat a run.
    secure : bool, default=False
        Draw from the operating system's entropy; results are then not repeatable.
    context : str, default=""
        Text that identifies the run, such as its method and parameters; it is hashed
        with every key. Runs that differ in it have independent noise. Noise that two
        runs share would cancel in their difference.
    public_seeds : sequence of int, optional
        One per replicate. Default: :func:`public_seed` of each seed.

    Attributes
    ----------
    seeds : tuple of int
        Seeds of the noise: secret.
    public_seeds : tuple of int
        Seeds of public randomness.
    secure : bool

    Examples
    --------
    >>> streams = NoiseStreams([0, 1])
    >>> both = streams.normal(("counts", 0), (3,))
    >>> both.shape
    (2, 3)
    >>> bool((both[1] == NoiseStreams([1]).normal(("counts", 0), (3,))[0]).all())
    True
    """

    def __init__(
        self,
        seeds: Sequence[int],
        secure: bool = False,
        context: str = "",
        public_seeds: Sequence[int] | None = None,
    ) -> None:
        self.seeds = tuple([int(seed) for seed in seeds])
        is_repeated = len(set(self.seeds)) < len(self.seeds)
        if not self.seeds or min(self.seeds) < 0 or is_repeated:
            raise ValueError(
                f"seeds={self.seeds} must be one or more different non-negative "
                "integers"
            )
        self.secure = secure
        if public_seeds is None:
            public_seeds = [public_seed(seed) for seed in self.seeds]
        self.public_seeds = tuple([int(seed) for seed in public_seeds])
        if len(self.public_seeds) != len(self.seeds):
            raise ValueError(
                f"public_seeds must be one for each of the {len(self.seeds)} seeds, "
                f"got {len(self.public_seeds)}"
            )
        self._context = context
        self._philox_keys = [] if secure else [_philox_key(seed) for seed in self.seeds]

    def by_replicate(self) -> list["NoiseStreams"]:
        """Return separate objects, each with the streams of one replicate."""
        return [
            NoiseStreams([seed], self.secure, self._context, [public])
            for seed, public in zip(self.seeds, self.public_seeds, strict=True)
        ]

    def release(
        self, mechanism: Any, values: Any, key: Key, sensitivity: Any = None
    ) -> Any:
        """Draw the outcome of a mechanism; no other draw reads private values.

        Parameters
        ----------
        mechanism
            One of the project's mechanisms.
        values
            Its input: for additive noise int64 of shape (replicates, ...), in grid
            steps.
        key : tuple
            Key of a release that has been charged.
        sensitivity : Sensitivity, optional
            The one by which the release was charged.

        Returns
        -------
        The mechanism's outcome.
        """
        return mechanism.draw(values, self, key, sensitivity)

    def normal(self, key: Key, shape: Shape) -> np.ndarray:
        """Standard normal variates (replicates, *shape) from the stream of ``key``."""
        if self.secure:
            signs, tails = self._secure(shape)
            return signs * -ndtri(tails)
        return self._seeded(key, shape, np.random.Generator.standard_normal)

    def normal_blocks(self, key: Key) -> Callable[[int], np.ndarray]:
        """Return a function that draws :meth:`normal` block by block.

        It takes the size of a block, and serves one seeded replicate. All blocks
        concatenated equal one draw.

        Examples
        --------
        >>> streams = NoiseStreams([0])
        >>> draw = streams.normal_blocks(("counts", 0))
        >>> blocks = np.concatenate([draw(2), draw(3)])
        >>> bool((blocks == streams.normal(("counts", 0), (5,))[0]).all())
        True
        """
        if len(self.seeds) != 1:
            raise ValueError(
                f"normal_blocks serves one replicate, not {len(self.seeds)}"
            )
        # A separate generator: other draws reset that of the thread.
        position = _position(self._context, key)
        return _StreamGenerator().at(self._philox_keys[0], position).standard_normal

    def laplace(self, key: Key, shape: Shape) -> np.ndarray:
        """Laplace variates of scale 1, (replicates, *shape), from ``key``'s stream."""
        if self.secure:
            signs, tails = self._secure(shape)
            return signs * -np.log(2.0 * tails)
        # Inversion: -sign(u) log(1 - 2 |u|) of a uniform u about 0, in place.
        centered = 0.5 - self._seeded(key, shape, np.random.Generator.random)
        # Generator.random includes 0, which would map to minus infinity.
        centered -= 2.0**-54
        tails = np.abs(centered)
        tails *= -2.0
        return np.copysign(np.log1p(tails, out=tails), centered, out=tails)

    def uniform(self, key: Key, shape: Shape) -> np.ndarray:
        """Uniform variates in (0, 1), (replicates, *shape), from ``key``'s stream."""
        if self.secure:
            signs, tails = self._secure(shape)
            # 1 - 2**-54 would be rounded to 1.
            return np.where(signs > 0, tails, np.minimum(1.0 - tails, 1.0 - 2.0**-53))
        variates = self._seeded(key, shape, np.random.Generator.random)
        # Generator.random includes 0 and leaves out 1.
        return np.maximum(variates, 2.0**-54)

    def gumbel(self, key: Key, shape: Shape) -> np.ndarray:
        """Standard Gumbel variates (replicates, *shape) from the stream of ``key``."""
        if self.secure:
            # Large variates, which decide choices, come from small tails: full
            # precision.
            signs, tails = self._secure(shape)
            exponential = np.where(signs > 0, -np.log(tails), -np.log1p(-tails))
        else:
            exponential = self._seeded(
                key, shape, np.random.Generator.standard_exponential
            )
        # Minus the logarithm of a standard exponential variate is standard Gumbel.
        tiny = np.finfo(np.float64).tiny
        np.log(np.maximum(exponential, tiny, out=exponential), out=exponential)
        return np.negative(exponential, out=exponential)

    def _seeded(
        self, key: Key, shape: Shape, draw: Callable[..., object]
    ) -> np.ndarray:
        """Fill an array (replicates, *shape) from the seeded streams of ``key``."""
        # One position for all replicates; their Philox keys differ.
        position = _position(self._context, key)
        values = np.empty((len(self.seeds), *shape))
        for r, philox_key in enumerate(self._philox_keys):
            draw(_stream_generator.at(philox_key, position), out=values[r])
        return values

    def _secure(self, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
        """Signs and tails (replicates, *shape) from the operating system."""
        shape = (len(self.seeds), *shape)
        signs, tails = _secure_tails(math.prod(shape))
        return signs.reshape(shape), tails.reshape(shape)
