"""Two methods whose difference in every cell is known, and checks that compare them."""

import itertools
from functools import partial

import numpy as np
from fabricated.fastlloyd import SIZES, lloyd_cell
from fabricated.rows import join_cells
from reports import NONE_MISSING

from pkm.analysis.claims import verdicts
from pkm.analysis.tables.study import Study

FIGURE2 = {
    "type": "ordering",
    "sweep": "real",
    "metric": "nicv",
    "left": ["fastlloyd_published"],
    "right": ["glloyd_published"],
    "over": {"dataset": ["iris", "s1"], "epsilon": [0.1, 1.0]},
}


def rows_of(
    shift, *, seeds=20, spread=0.1, datasets=("iris", "s1"), epsilons=(0.1, 1.0), metric="nicv"
):
    """Two methods whose paired difference per cell is normal around `shift(dataset, epsilon)`."""
    rng = np.random.default_rng(0)
    parts = []
    for name, epsilon in itertools.product(datasets, epsilons):
        fabricate = partial(
            lloyd_cell, "real", dataset=name, epsilon=epsilon, seeds=seeds, size=SIZES[name]
        )
        common = rng.normal(10, 1, seeds)
        difference = shift(name, epsilon) + rng.normal(0, spread, seeds)
        glloyd = fabricate(method="glloyd_published", metrics=(metric,))
        glloyd[metric] = common
        fastlloyd = fabricate(method="fastlloyd_published", metrics=(metric,))
        fastlloyd[metric] = common + difference
        parts += [glloyd, fastlloyd]
    return join_cells(parts)


def make_study(shift, **options):
    """Study of the rows of `rows_of`."""
    return Study(rows_of(shift, **options))


def tied_rows(**options):
    """Rows in which no cell has a difference but noise."""
    return rows_of(lambda name, epsilon: 0.0, **options)


def shifted_study(shift, **options):
    """Two methods whose paired difference is normal around the same value in every cell."""
    return make_study(lambda name, epsilon: shift, **options)


def study_with_exception(exception, shift, **options):
    """Study with one shift on S1 at epsilon 0.1 and another one in all other cells."""
    return make_study(
        lambda name, epsilon: exception if (name, epsilon) == ("s1", 0.1) else shift, **options
    )


def evaluate_check(check, study, missing=NONE_MISSING):
    return verdicts.evaluate_check(study, check, verdicts.Context(missing))


ABLATION = {
    "sweep": "ablation",
    "metric": "nicv",
    "relative_to": "glloyd_published",
    "left": [{"method": "fastlloyd_published", "postprocessing": "fold"}],
    "right": [{"method": "fastlloyd_published", "postprocessing": "none"}],
    "over": {"alpha": [0.8]},
}


def ablation_study(levels, *, seeds=20):
    """Naive GLloyd, folding and no post-processing, with little noise.

    `levels` has their NICV by data set, in this order.
    """
    rng = np.random.default_rng(5)
    configurations = (
        ("glloyd_published", {"postprocessing": "none"}),
        ("fastlloyd_published", {"alpha": 0.8, "postprocessing": "fold"}),
        ("fastlloyd_published", {"alpha": 0.8, "postprocessing": "none"}),
    )
    shape = {"size": (100, 2, 2), "metrics": ("nicv",)}
    parts = []
    for name, nicv in levels.items():
        for (method, params), level in zip(configurations, nicv, strict=True):
            cell = lloyd_cell("ablation", method, name, 0.1, seeds, params=params, **shape)
            parts.append(cell | {"nicv": level * rng.normal(1, 0.001, seeds)})
    return Study(join_cells(parts))


# On the high set folding is a little better, on the low one much worse: the two averages disagree.
DISAGREEING = {"high": (100.0, 90.0, 95.0), "low": (1.0, 1.9, 1.0)}


BY_SET = {
    "sweep": "real",
    "metric": "nicv",
    "left": ["fastlloyd_published"],
    "over": {"dataset": ["iris", "s1"], "epsilon": [0.1, 1.0]},
}
