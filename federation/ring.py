"""Integers modulo 2^32 or 2^64: the ring that masked messages live in, and what fits it."""

from dataclasses import dataclass

import numpy as np

from pkm.privacy import SCALE


@dataclass(frozen=True)
class Ring:
    """Words of a few bytes, added modulo their number.

    Parameters
    ----------
    word_bytes : {4, 8}
        The paper's text names 4, its table counts 8.

    Examples
    --------
    >>> ring = Ring(4)
    >>> ring.signed(ring.words(np.array([-3])) + ring.words(np.array([1]))).tolist()
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

    def words(self, values: np.ndarray) -> np.ndarray:
        """Residues of int64 values: a new array of words."""
        return values.astype(self.dtype)

    def signed(self, words: np.ndarray) -> np.ndarray:
        """Residues of least size, int64."""
        return words.view(f"<i{self.word_bytes}").astype(np.int64)

    def check_room(self, n_points: int, radius: float | None, sum_noise, count_noise) -> None:
        """Refuse a query whose answer might not fit, so that nothing can wrap.

        Parameters
        ----------
        n_points : int
            Of all clients together.
        radius : float or None
            What bounds a record's coordinate of a relative sum, in half-widths; None for absolute sums.
        sum_noise, count_noise : Gaussian, Laplace or None

        Raises
        ------
        ValueError
            If the largest sum or count with the largest noise is half the ring or more.
        """
        share = SCALE if radius is None else int(radius * SCALE) + 1
        for name, each, noise in (("sum", share, sum_noise), ("count", SCALE, count_noise)):
            largest = n_points * each + (0 if noise is None else noise.largest)
            if largest >= 1 << (8 * self.word_bytes - 1):
                raise ValueError(
                    f"word_bytes={self.word_bytes} is too few: a {name} over n={n_points} points may reach "
                    f"{largest:.3g} grid steps, noise included, and must stay below 2**{8 * self.word_bytes - 1}"
                    + ("; set word_bytes=8" if self.word_bytes == 4 else "")
                )
