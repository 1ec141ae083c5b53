"""Noisy Lloyd steps, a program that knows nothing of the bench but its four files.

Each of three steps releases noisy counts and sums of the points nearest to each center.
A record more or less changes one count by 1 and d sums by at most 1, so that Laplace
noise of scale 3 (d + 1) / epsilon makes all steps epsilon-private. Noise of numpy's
floats is good enough for a comparison, and not for a release.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STEPS = 3

with open("request.json") as file:
    request = json.load(file)
table = pq.read_table("points.parquet")
points = np.column_stack([column.to_numpy() for column in table.columns])
d = points.shape[1]
k = request["n_clusters"]
scale = STEPS * (d + 1) / request["epsilon"]

parts = []
for replicate, seed in enumerate(request["seeds"]):
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-1, 1, (k, d))
    for _ in range(STEPS):
        # Squared distances, without the term that is the same for all centers.
        scores = (centers**2).sum(axis=1) - 2 * points @ centers.T
        nearest = scores.argmin(axis=1)
        counts = np.bincount(nearest, minlength=k) + rng.laplace(0, scale, k)
        for cluster in np.flatnonzero(counts > 1):
            noise = rng.laplace(0, scale, d)
            total = points[nearest == cluster].sum(axis=0) + noise
            centers[cluster] = np.clip(total / counts[cluster], -1, 1)
    columns = dict(zip(table.column_names, centers.T, strict=True))
    parts.append(pa.table({"replicate": [replicate] * k, **columns}))

pq.write_table(pa.concat_tables(parts), "centers.parquet")
claim = {
    "notion": "pure",
    "adjacency": "add_remove",
    "unit": "row",
    "epsilon": request["epsilon"],
    "delta": 0.0,
}
with open("claim.json", "w") as file:
    json.dump(claim, file)
