"""A suite of the arena for tests."""

#: Three sets of 150 to 400 records.
SUITE = {
    "name": "tiny",
    "title": "A suite for tests",
    "reference": "kmeans",
    "delta": 1e-6,
    "preprocessing": "public",
    "clip": True,
    "noise": "seeded",
    "keep_centers": True,
    "metrics": ["nicv", "n_centers"],
    "stages": {"lite": ["lite", "wide", "times"], "full": ["full", "times"]},
    "sweeps": {
        "times": {"datasets": ["iris"], "epsilon": [1.0], "seeds": 2, "timing": True},
        "wide": {"datasets": ["iris"], "epsilon": [4.0], "seeds": 3, "bounds_factor": 10},
        "lite": {"datasets": ["iris", "lsun", "wine"], "epsilon": [0.5, 4.0], "seeds": 3},
        "full": {"datasets": ["iris"], "epsilon": [0.5], "seeds": 2},
    },
}
