"""Orderings of stored means, with a margin for ties."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from pkm.analysis.claims.comparisons import SELECTION, Pairs, find_pairs
from pkm.analysis.claims.findings import (
    BootstrapValues,
    Context,
    MissingRows,
    check_type,
)
from pkm.analysis.tables.statistics import resampled_means
from pkm.analysis.tables.study import Study

#: Keys of an ordering.
ORDER = ("strict", "margin", "higher_is_better")
#: By which share the left side may be worse where a claim has no margin of its own.
MARGIN = 0.05


@check_type(*SELECTION, *ORDER)
def ordering(study: Study, check: Mapping, context: Context) -> BootstrapValues:
    """Check that left is no worse than right by more than the `margin`.

    The value is the ratio of the two means, of better over worse with
    `higher_is_better`. Where a mean is not above zero, as silhouettes are not, it is
    one plus the difference as a share of the right mean. A `strict` claim has no margin
    and needs a value below one.
    """
    return measure_order(find_pairs(study, check, context), check)


@check_type(*SELECTION, *ORDER, "along", "steps")
def improving(study: Study, check: Mapping, context: Context) -> BootstrapValues:
    """Check that the metric does not get worse from one value of `along` to the next.

    See `ordering`.
    """
    pairs = find_pairs(study, check, context)
    steps = _pair_with_previous(pairs, check["along"])
    n_steps = len(steps.keys)
    few = f"{n_steps} of {check['steps']} steps available"
    missing = few if n_steps < check["steps"] else ""
    return measure_order(replace(steps, missing=missing), check)


def _pair_with_previous(pairs: Pairs, along: str) -> Pairs:
    """Compare the left side at each value of a column with that at the value before."""
    datasets = pairs.matrix.cells["dataset"].to_numpy()
    rows = pairs.rows.assign(dataset=datasets[pairs.rows["left"]])
    sides = dict(tuple(rows.groupby("comparison")))
    names = [name for name in pairs.keys.columns if name not in (along, "right")]
    keys = []
    steps = []
    for group, members in pairs.keys.groupby(names, sort=False):
        key = dict(zip(names, group, strict=True)) | {"right": "the value before"}
        values = members[along].astype(float).sort_values()
        for before, after in pairwise(values.index):
            step = f"{members[along][before]} to {members[along][after]}"
            earlier = sides[before].set_index("dataset")["left"]
            later = sides[after]
            # Both values must be stored of a data set.
            right = later["dataset"].map(earlier)
            later = later.assign(right=right).dropna(subset="right")
            if len(later):
                keys.append(key | {along: step})
                steps.append(later.assign(comparison=len(steps)))
    if not steps:
        raise MissingRows(f"only one value of {along} is stored")

    rows = pd.concat(steps, ignore_index=True).drop(columns="dataset")
    return replace(
        pairs,
        keys=pd.DataFrame(keys),
        rows=rows.astype(int),
        complete=np.ones(len(steps), dtype=bool),
    )


def measure_order(pairs: Pairs, check: Mapping) -> BootstrapValues:
    """Measure how much worse the left side of each comparison is; see `ordering`."""
    means = resampled_means(pairs.matrix)
    left, right = (
        pairs.relative(means[:, pairs.rows[side]], means) for side in ("left", "right")
    )
    # Costs are compared by their ratio, and so are positive scores.
    sign = -1.0 if check.get("higher_is_better") else 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (left / right) ** sign
        shifted = 1 + sign * (left - right) / np.abs(right)
    is_positive = ((left > 0) & (right > 0)).all(axis=0)
    values = np.where(is_positive, ratio, shifted)
    values = np.where(left == right, 1.0, values)

    bounds = {"at_most": 1 + check.get("margin", MARGIN)}
    if check.get("strict"):
        bounds = {"below": 1.0}
    return BootstrapValues(
        values,
        pairs.keys,
        pairs.shared_seeds,
        pairs.missing,
        "Ratio",
        pairs.complete,
        {"left_mean": left[0], "right_mean": right[0]},
        bounds=bounds,
    )
