"""Starting centres that do not depend on the data, hence cost no privacy; shared by all methods of a seed."""

from functools import lru_cache

import numpy as np

from pkm.compute import largest_packing
from pkm.privacy.grid import snap
from pkm.privacy.noise import INITIALISATION, child


@lru_cache(maxsize=20_000)
def _starting_centres(seed: int, k: int, d: int, search: str) -> np.ndarray:
    generator = np.random.RandomState(np.random.MT19937(child(seed, INITIALISATION)))
    if search == "uniform":
        centres = generator.uniform(-1, 1, (k, d))
    else:
        # The paper's runs seed a Mersenne Twister with the run's number; with the same, their centres are met exactly.
        source = np.random.RandomState(seed % 2**32) if search == "halving" else generator
        centres = largest_packing(source, k, d, search)
    centres = snap(centres)
    centres.flags.writeable = False
    return centres


def starting_centres(seeds, k: int, d: int, initialisation: str, radius_search: str) -> np.ndarray:
    """Starting centres of a batch of replicates.

    Parameters
    ----------
    seeds : sequence of int
    k, d : int
    initialisation : {"packing", "uniform"}
    radius_search : {"halving", "bisection"}
        How ``packing`` looks for the largest radius.

    Returns
    -------
    ndarray of shape (R, k, d), int64
        On the grid.
    """
    search = "uniform" if initialisation == "uniform" else radius_search
    return np.stack([_starting_centres(seed, k, d, search) for seed in seeds])
