"""Orderings of stored means, by paired t tests over seeds."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from pkm.analysis.claims.comparisons import SELECTION, Pairs, find_pairs
from pkm.analysis.claims.findings import (
    INCONCLUSIVE,
    LEVEL,
    MIN_SEEDS,
    Context,
    Finding,
    MissingRows,
    check_type,
    describe_case,
    describe_seeds,
    join_texts,
    join_words,
    percent,
    to_verdict,
    weaken,
)
from pkm.analysis.tables.inference import holm, paired_tests
from pkm.analysis.tables.statistics import column_statistics
from pkm.analysis.tables.study import Study

#: Keys of an ordering.
ORDER = ("strict", "ties_suffice", "higher_is_better", "within", "tolerated")


@check_type(*SELECTION, *ORDER)
def ordering(study: Study, check: Mapping, context: Context) -> Finding:
    """Left at most right (`higher_is_better`: at least), by paired one-sided tests.

    Options: `strict`; `ties_suffice` (the claim is that there is no difference in favor
    of the right side); `tolerated` with `within`: so many values of one key may be
    violated.
    """
    return judge_ordering(find_pairs(study, check, context), check)


@check_type(*SELECTION, *ORDER, "along", "steps")
def improving(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the metric does not get worse from one value of `along` to the next.

    See `ordering`.
    """
    pairs = find_pairs(study, check, context)
    steps = _pair_with_previous(pairs, check["along"])
    n_steps = len(steps.keys)
    few = f"{n_steps} of {check['steps']} steps available"
    missing = few if n_steps < check["steps"] else ""
    return judge_ordering(replace(steps, missing=missing), check)


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


def judge_ordering(pairs: Pairs, check: Mapping) -> Finding:
    """Judge pairs of columns by paired tests, Holm-corrected in each direction."""
    values = pairs.matrix.values
    means = column_statistics(values).mean[None]
    left = pairs.rows["left"]
    right = pairs.rows["right"]
    sign = -1.0 if check.get("higher_is_better") else 1.0

    # Test the differences per seed, averaged over data sets. The denominators are the
    # same on both sides: their means are factors.
    differences = values[:, left] - values[:, right]
    differences = pairs.relative(differences, means)
    tests = paired_tests(sign * differences)
    violation = holm(tests["p_greater"])
    support = holm(tests["p_less"])
    outcome = np.select(
        [tests["seeds"] < MIN_SEEDS, violation <= LEVEL, support <= LEVEL],
        ["few seeds", "violated", "kept"],
        "tied",
    )
    evidence = pairs.keys.assign(
        left_mean=pairs.relative(means[:, left], means)[0],
        right_mean=pairs.relative(means[:, right], means)[0],
        difference=sign * tests["difference"],
        half_width=tests["half_width"],
        seeds=tests["seeds"],
        p_violated=violation,
        p_kept=support,
        outcome=outcome,
    )
    return _decide_ordering(evidence, tests["difference"], check, pairs)


def _decide_ordering(
    evidence: pd.DataFrame, toward_violation: pd.Series, check: Mapping, pairs: Pairs
) -> Finding:
    """Decide an ordering by its comparisons; see the rules of verdicts."""
    outcome = evidence["outcome"]
    enough = outcome != "few seeds"
    violated = outcome == "violated"
    unfavorable_ties = (outcome == "tied") & (toward_violation > 0)
    n_kept = (outcome == "kept").sum()

    # So many values of the key `within` may be violated for each combination of the
    # other keys.
    is_violated = violated.any()
    if "within" in check and is_violated:
        others = [name for name in check["over"] if name != check["within"]]
        n_violated = evidence[violated].groupby(others)[check["within"]].nunique()
        is_violated = n_violated.max() > check["tolerated"]
    if check.get("strict"):
        is_supported = n_kept == enough.sum()
    else:
        is_supported = 0 < n_kept >= unfavorable_ties.sum()
        is_supported |= check.get("ties_suffice", False)
    verdict = to_verdict(is_violated, is_supported)

    # Comparisons with few seeds count as missing, unless all have few.
    seeds = evidence["seeds"].max()
    missing = pairs.missing
    if enough.any():
        seeds = evidence.loc[enough, "seeds"].min()
        n_few = (~enough).sum()
        few = f"{n_few} comparisons have fewer than {MIN_SEEDS} paired seeds"
        missing = join_texts(missing, few if n_few else "")
    refuted = (violated & pairs.complete).any()
    verdict = weaken(verdict, missing, refuted=refuted)
    if not enough.any():
        verdict = INCONCLUSIVE

    relative = toward_violation / evidence["right_mean"].abs()
    over = list(check["over"])
    outcomes = _describe_outcomes(evidence, relative, unfavorable_ties, over)
    summary = join_words(outcomes, describe_seeds(seeds))
    return Finding(verdict, summary, len(evidence), int(seeds), missing, evidence)


def _describe_outcomes(
    evidence: pd.DataFrame,
    relative: pd.Series,
    unfavorable_ties: pd.Series,
    over: list[str],
) -> str:
    """Describe the outcomes: counts, the largest violation, the widest interval."""
    outcome = evidence["outcome"]
    counts = [
        f"{(outcome == name).sum()} {name}" for name in ("kept", "tied", "violated")
    ]
    text = f"{', '.join(counts)} of {len(evidence)} comparisons."

    violated = outcome == "violated"
    unfavorable = violated if violated.any() else unfavorable_ties
    if unfavorable.any():
        worst = relative.where(unfavorable, -np.inf).argmax()
        row = evidence.iloc[worst]
        case = describe_case(row[over]) if over else ""
        name = f"{case} ({row['left']} against {row['right']})".strip()
        name += f" by {percent(relative[worst])}"
        if not violated.any():
            n_ties = unfavorable_ties.sum()
            text += f" {n_ties} ties lean the other way, most {name}."
        elif over:
            counts = evidence.loc[violated, over[0]].value_counts(sort=False)
            places = [f"{value} ({count})" for value, count in counts.items()]
            text += f" Violated most: {name}; violated in: {', '.join(places)}."
        else:
            text += f" Violated most: {name}."

    tied = outcome == "tied"
    if tied.any():
        widths = evidence["half_width"] / evidence["right_mean"].abs()
        widest = percent(widths[tied].max())
        text += (
            f" Widest interval of a tied difference: ±{widest} of the right-hand mean."
        )
    return text
