"""Points of clients, and what a model of them releases or sends."""

import numpy as np

from pkm.compute import SCALE, Points


def draw(seed, n=40, d=2, step=1):
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE // step, SCALE // step + 1, (n, d)) * step


def split(points, sizes):
    """Return parts of given sizes, and the ids of their points."""
    cuts = np.cumsum(sizes)[:-1]
    parts = [Points.from_grid(part) for part in np.split(points, cuts)]
    ids = np.split(np.arange(len(points)), cuts)
    return parts, ids


def without(parts, ids, removed):
    """Return the parts and the ids that are left after a removal."""
    kept_parts = []
    kept_ids = []
    for part, part_ids in zip(parts, ids, strict=True):
        kept = ~np.isin(part_ids, removed)
        kept_parts.append(Points.from_grid(part.rows[kept].astype(np.int64)))
        kept_ids.append(part_ids[kept])
    return kept_parts, kept_ids


def state(model):
    """Return all that a model releases or sends."""
    messages = model.messages() if model.gamma is not None else []
    return (
        model.centers.tolist(),
        model.seeds.tolist(),
        model.sizes,
        [(bins.tolist(), counts.tolist()) for bins, counts in messages],
    )
