"""Fabricated entries of an arena, with costs that are known."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.arena.entry import Entry, write_entry, write_rows

SETS = {"iris": (150, 4), "s1": (5000, 2), "adult": (40_000, 6), "letters": (20_000, 16)}
EPSILONS = [0.25, 1.0, 4.0]
STAGES = {"full": 1.0, "wide": 10.0}


def make_rows(method, cost, notion="pure", seeds=2):
    """Rows of a method whose cost over the reference is a function of set and epsilon."""
    lines = []
    for sweep, factor in STAGES.items():
        for dataset, (n, d) in SETS.items():
            for name, epsilons in (("kmeans", [math.nan]), (method, EPSILONS)):
                for epsilon in epsilons:
                    ratio = 1.0 if name == "kmeans" else cost(dataset, epsilon) * factor
                    lines += [
                        {
                            "sweep": sweep,
                            "method": name,
                            "label": name.title(),
                            "dataset": dataset,
                            "epsilon": epsilon,
                            "seed": seed,
                            "nicv": 0.5 * ratio,
                            "n": n,
                            "d": d,
                            "k": 5,
                            "bounds_factor": factor,
                            "notion": "none" if name == "kmeans" else notion,
                            "adjacency": "zero_out",
                            "unit": "row",
                            "timing": False,
                            "fit_cpu_seconds": 0.1,
                        }
                        for seed in range(seeds)
                    ]
    rows = pd.DataFrame(lines)
    timed = rows[(rows["sweep"] == "full") & (rows["epsilon"] != 4.0)]
    seconds = np.where(timed["method"] == method, 0.3, 0.1)
    return pd.concat(
        [rows, timed.assign(sweep="times", timing=True, fit_cpu_seconds=seconds)],
        ignore_index=True,
    )


def make_entry(folder, rows, **changes):
    """Write an entry of some rows."""
    folder.mkdir(parents=True)
    write_rows(rows, folder)
    entry = Entry(
        method={"name": folder.name, "_target_": "pkm.methods.SuLloyd"},
        suite="2026-11",
        stage="full",
        submitter="Ada",
        created="2026-11-28T00:00:00+00:00",
        package="",
        checks=[],
        audit={"verdicts": {"replay": "consistent", "residuals": "consistent"}},
        problems=[],
        environment={},
    )
    write_entry(replace(entry, **changes), folder)
    return folder


COSTS = {
    "first": (lambda dataset, epsilon: 1.1 + 0.1 / epsilon, "pure"),
    "second": (lambda dataset, epsilon: 1.2 + 0.1 / epsilon, "approximate"),
    "third": (lambda dataset, epsilon: 1.3 + 0.1 / epsilon, "pure"),
    "fourth": (lambda dataset, epsilon: 3.0 if dataset == "s1" else 1.0, "pure"),
}
