"""Program in diffprivlib's environment: run its KMeans on points in a folder.

Nothing of this project is imported here, and nothing imports this file; see
:mod:`pkm.methods.baselines.diffprivlib`.
"""

import json
import sys
import warnings
from pathlib import Path


def main(folder: Path) -> None:
    """Read points and arguments, fit once per seed, write the centers."""
    import numpy as np
    from diffprivlib.models import KMeans  # pyright: ignore[reportMissingImports]

    points = np.load(folder / "points.npy")
    arguments = json.loads((folder / "arguments.json").read_text())
    n_features = points.shape[1]
    centers = []
    for seed in arguments["seeds"]:
        model = KMeans(
            arguments["n_clusters"],
            epsilon=arguments["epsilon"],
            bounds=(-np.ones(n_features), np.ones(n_features)),
            random_state=seed,
        )
        # It warns that a fit with a seed repeats itself, which is what is wanted here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            centers.append(model.fit(points).cluster_centers_)
    np.save(folder / "centers.npy", np.stack(centers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
