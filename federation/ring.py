"""Integers modulo 2^32 or 2^64: the ring of the masked messages."""

from dataclasses import dataclass

import numpy as np

from pkm.privacy import SCALE, Gaussian, Laplace


@dataclass(frozen=True)
class Ring:
    """The integers modulo 2^(8 word_bytes).

    Parameters
    ----------
    word_bytes : {4, 8}
        Element size in bytes. The FastLloyd paper says 4 in the text and uses 8 in its
        table.

    Examples
    --------
    >>> ring = Ring(4)
    >>> total = ring.encode(np.array([-3])) + ring.encode(np.array([1]))
    >>> ring.decode(total).tolist()
    [-2]
    """

    word_bytes: int = 8

    def __post_init__(self):
        if self.word_bytes not in (4, 8):
            raise ValueError(f"word_bytes={self.word_bytes!r} must be 4 or 8")

    @property
    def dtype(self) -> np.dtype:
        """Little-endian words, whatever the machine."""
        return np.dtype(f"<u{self.word_bytes}")

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Encode int64 values as ring elements: a new array of unsigned words."""
        return values.astype(self.dtype)

    def decode(self, elements: np.ndarray) -> np.ndarray:
        """Decode ring elements to int64: the upper half of the ring is negative."""
        return elements.view(f"<i{self.word_bytes}").astype(np.int64)

    def check_capacity(
        self,
        n_points: int,
        radius: float | None,
        sum_noise: Gaussian | Laplace | None,
        count_noise: Gaussian | Laplace | None,
    ) -> None:
        """Raise ValueError if the largest sum with its noise could overflow the ring.

        Parameters
        ----------
        n_points : int
            Number of records of all clients together.
        radius : float or None
            Bound on the coordinates of a record in a relative sum, in half-widths; None
            for absolute sums.
        sum_noise, count_noise : Gaussian, Laplace or None

        Raises
        ------
        ValueError
            If the largest sum or count with the largest noise is half the ring or more.
        """
        # The largest contribution of a record to a coordinate of a sum, in grid steps;
        # sums must stay below half the ring, because the upper half is negative.
        max_coordinate = SCALE if radius is None else int(radius * SCALE) + 1
        bits = 8 * self.word_bytes - 1
        remedy = "; set word_bytes=8" if self.word_bytes == 4 else ""
        for name, max_term, noise in (
            ("sum", max_coordinate, sum_noise),
            ("count", SCALE, count_noise),
        ):
            largest = n_points * max_term
            if noise is not None:
                largest += noise.max_noise
            if largest >= 1 << bits:
                raise ValueError(
                    f"word_bytes={self.word_bytes} is too few: a {name} over "
                    f"n={n_points} points may reach {largest:.3g} grid steps, noise "
                    f"included, and must stay below 2**{bits}{remedy}"
                )
