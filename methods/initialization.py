"""Starting centers that do not depend on the data, so that they cost no privacy."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from pkm.compute import largest_packing
from pkm.privacy.grid import snap
from pkm.privacy.mechanisms.noise import INITIALIZATION, child


@lru_cache(maxsize=20_000)
def _starting_centers(
    seed: int,
    k: int,
    d: int,
    search: str,
) -> np.ndarray:
    """Starting centers of one replicate, the same for all methods."""
    generator = np.random.RandomState(np.random.MT19937(child(seed, INITIALIZATION)))
    if search == "uniform":
        centers = generator.uniform(-1, 1, (k, d))
    else:
        # The paper seeds a Mersenne Twister with the number of the run; the same seed
        # gives its centers.
        source = (
            np.random.RandomState(seed % 2**32) if search == "halving" else generator
        )
        centers = largest_packing(source, k, d, search)
    centers = snap(centers)
    centers.flags.writeable = False
    return centers


def starting_centers(
    seeds: Sequence[int],
    k: int,
    d: int,
    initialization: str,
    radius_search: str,
) -> np.ndarray:
    """Draw the starting centers of a batch of replicates.

    Parameters
    ----------
    seeds : sequence of int
    k, d : int
    initialization : {"packing", "uniform"}
        Centers of packed spheres (FastLloyd paper, Sec. 5.3.1), or uniform points.
    radius_search : {"halving", "bisection"}
        Search for the largest radius of the spheres.

    Returns
    -------
    ndarray of shape (R, k, d), int64
        On the grid.
    """
    search = "uniform" if initialization == "uniform" else radius_search
    return np.array([_starting_centers(seed, k, d, search) for seed in seeds])
