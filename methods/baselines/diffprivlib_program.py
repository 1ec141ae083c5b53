"""Program in diffprivlib's environment: run its KMeans on the points of this folder.

Nothing of this project is imported here; see `pkm.methods.baselines.program` for the
files.
"""

import json
import warnings
from pathlib import Path


def main() -> None:
    """Read points and request, fit once per seed, write centers and claim."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from diffprivlib.models import KMeans  # pyright: ignore[reportMissingImports]

    table = pq.read_table("points.parquet")
    points = np.column_stack([column.to_numpy() for column in table.columns])
    request = json.loads(Path("request.json").read_text())
    n_features = points.shape[1]
    centers = []
    for replicate, seed in enumerate(request["seeds"]):
        model = KMeans(
            request["n_clusters"],
            epsilon=request["epsilon"],
            bounds=(-np.ones(n_features), np.ones(n_features)),
            random_state=seed,
        )
        # It warns that a fit with a seed repeats itself, which is what is wanted here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.fit(points).cluster_centers_
        numbers = dict(zip(table.column_names, found.T, strict=True))
        centers.append(pa.table({"replicate": [replicate] * len(found), **numbers}))
    pq.write_table(pa.concat_tables(centers), "centers.parquet")
    # It names no neighbors: its sensitivities are those of a record more or less.
    claim = {"notion": "pure", "adjacency": "add_remove", "unit": "row"}
    amounts = {"epsilon": request["epsilon"], "delta": 0.0}
    Path("claim.json").write_text(json.dumps(claim | amounts))


if __name__ == "__main__":
    main()
