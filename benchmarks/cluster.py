"""An example of a cluster: a scheduler and two workers of dask on this machine, and a fit on them.

    python -m pkm.benchmarks.cluster

A fit of a ``dask.array`` is compared with one in memory, then with one during which a worker is
killed. For a cluster of several machines start ``dask scheduler`` on one and ``dask worker
tcp://ADDRESS:8786`` on the others, all with this package, and give the address to ``Client``.
"""

import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np

from pkm.methods import FastLloyd

N_POINTS = 100_000
CHUNK = 10_000
N_WORKERS = 2


def kill_once(block: np.ndarray, path: str) -> np.ndarray:
    """Kill the worker that runs this, the first time; later return the block."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    return block


def main() -> int:
    """Compare fits in memory, on two workers, and on two of which one is killed.

    Returns
    -------
    int
        0 if all released the same centers to the bit, else 1.
    """
    import dask.array as da
    from distributed import Client, LocalCluster

    X = np.random.default_rng(0).normal(0, 0.4, (N_POINTS, 10)).astype(np.float32)
    # A seed, so that fits can be compared; leave it out for noise that nobody can repeat.
    model = FastLloyd(8, epsilon=1.0, bounds=(-1, 1), random_state=0)
    expected = model.fit(X).cluster_centers_
    options = {"n_workers": N_WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(**options) as cluster,
        Client(cluster),
    ):
        array = da.from_array(X, (CHUNK, 10))
        same = np.array_equal(model.fit(array).cluster_centers_, expected)
        print(f"two workers: {'the same bits' if same else 'other centers'}", flush=True)

        # The kill is in the middle of the first pass.
        killed = Path(folder) / "killed"
        dying = da.map_blocks(kill_once, array, path=str(killed), meta=X[:0])
        same_again = np.array_equal(model.fit(dying).cluster_centers_, expected)
        assert killed.exists(), "a worker was killed"
        print(f"one of them killed: {'the same bits' if same_again else 'other centers'}")
    return int(not (same and same_again))


if __name__ == "__main__":
    sys.exit(main())
