"""Orderings of stored means, by paired t tests over seeds."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from pkm.analysis.claims.comparisons import AVERAGES, SELECTION, Pairs, find_pairs
from pkm.analysis.claims.findings import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    LEVEL,
    MIN_SEEDS,
    Context,
    Finding,
    MissingRows,
    check_type,
    describe_case,
    join_texts,
    join_words,
    percent,
    too_few,
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
    return compare(find_pairs(study, check, context), check)


@check_type(*SELECTION, *ORDER, "along", "steps")
def improving(study: Study, check: Mapping, context: Context) -> Finding:
    """Every value of `along` is as good as the one before, as in `ordering`."""
    pairs = find_pairs(study, check, context)
    datasets = pairs.matrix.cells["dataset"].to_numpy()
    lines = pairs.lines.assign(dataset=datasets[pairs.lines["left"]])
    sides = dict(tuple(lines.groupby("comparison")))
    along = check["along"]
    groups = [name for name in pairs.keys.columns if name not in (along, "right")]
    keys = []
    steps = []
    for group, members in pairs.keys.groupby(groups, sort=False):
        facts = dict(zip(groups, group, strict=True)) | {"right": "the value before"}
        for before, after in pairwise(members[along].astype(float).sort_values().index):
            step = f"{members[along][before]} to {members[along][after]}"
            earlier = sides[before].set_index("dataset")["left"]
            later = sides[after].assign(right=sides[after]["dataset"].map(earlier))
            later = later.dropna(subset="right")
            if len(later):
                keys.append(facts | {along: step})
                steps.append(later.assign(comparison=len(steps)))
    if not steps:
        raise MissingRows(f"only one value of {along} is stored")
    missing = f"{len(steps)} of {check['steps']} steps available"
    compared = replace(
        pairs,
        keys=pd.DataFrame(keys),
        lines=pd.concat(steps, ignore_index=True).drop(columns="dataset").astype(int),
        missing=missing if len(steps) < check["steps"] else "",
        complete=np.ones(len(steps), dtype=bool),
    )
    return compare(compared, check)


def compare(pairs: Pairs, check: Mapping) -> Finding:
    """Judge pairs of columns by paired tests, Holm-corrected in each direction."""
    values = pairs.matrix.values
    means = column_statistics(values).mean[None]
    left = pairs.lines["left"]
    right = pairs.lines["right"]
    sign = -1.0 if check.get("higher_is_better") else 1.0
    how = check.get("average", AVERAGES[0])

    # Test the differences per seed, averaged over data sets. The denominators are the
    # same on both sides: their means are factors.
    differences = pairs.relative(values[:, left] - values[:, right], means, how)
    tests = paired_tests(sign * differences)
    violation = holm(tests["p_greater"])
    support = holm(tests["p_less"])
    outcome = np.select(
        [tests["seeds"] < MIN_SEEDS, violation <= LEVEL, support <= LEVEL],
        ["few seeds", "violated", "kept"],
        "tied",
    )
    evidence = pairs.keys.assign(
        left_mean=pairs.relative(means[:, left], means, how)[0],
        right_mean=pairs.relative(means[:, right], means, how)[0],
        difference=sign * tests["difference"],
        half_width=tests["half_width"],
        seeds=tests["seeds"],
        p_violated=violation,
        p_kept=support,
        outcome=outcome,
    )
    return _judge(evidence, tests["difference"], check, pairs)


def _judge(
    evidence: pd.DataFrame, toward_violation: pd.Series, check: Mapping, pairs: Pairs
) -> Finding:
    """Decide an ordering by its comparisons; see the rules of verdicts."""
    outcome = evidence["outcome"]
    enough = outcome != "few seeds"
    violated = outcome == "violated"
    leaning = (outcome == "tied") & (toward_violation > 0)
    n_kept = (outcome == "kept").sum()

    # So many values of the key `within` may be violated for each combination of the
    # other keys.
    is_broken = violated.any()
    if "within" in check and is_broken:
        others = [name for name in check["over"] if name != check["within"]]
        n_violated = evidence[violated].groupby(others)[check["within"]].nunique()
        is_broken = n_violated.max() > check["tolerated"]

    is_kept = check.get("ties_suffice") or 0 < n_kept >= leaning.sum()
    if check.get("strict"):
        is_kept = n_kept == enough.sum()
    verdict = FAILS if is_broken else HOLDS if is_kept else INCONCLUSIVE
    seeds = int(evidence["seeds"].max())
    missing = pairs.missing
    if enough.any():
        seeds = int(evidence.loc[enough, "seeds"].min())
        n_few = (~enough).sum()
        few = f"{n_few} comparisons have fewer than {MIN_SEEDS} paired seeds"
        missing = join_texts(missing, few if n_few else "")
    verdict = weaken(verdict, missing, refuted=(violated & pairs.complete).any())
    if not enough.any():
        verdict = INCONCLUSIVE
    relative = toward_violation / evidence["right_mean"].abs()
    numbers = _describe_outcomes(evidence, relative, leaning, list(check["over"]))
    numbers = join_words(numbers, too_few(seeds))
    return Finding(verdict, numbers, len(evidence), seeds, missing, evidence)


def _describe_outcomes(
    evidence: pd.DataFrame, relative: pd.Series, leaning: pd.Series, over: list[str]
) -> str:
    """Describe the outcomes: counts, the largest violation, the widest interval."""
    outcome = evidence["outcome"]
    counts = [
        f"{(outcome == name).sum()} {name}" for name in ("kept", "tied", "violated")
    ]
    text = f"{', '.join(counts)} of {len(evidence)} comparisons."
    violated = outcome == "violated"
    if violated.any() or leaning.any():
        worst = relative.where(
            violated if violated.any() else leaning, -np.inf
        ).argmax()
        line = evidence.iloc[worst]
        key = describe_case(line[over]) if over else ""
        name = f"{key} ({line['left']} against {line['right']})".strip()
        name += f" by {percent(relative[worst])}"
        if not violated.any():
            text += f" {leaning.sum()} ties lean the other way, most {name}."
        elif over:
            counts = evidence.loc[violated, over[0]].value_counts(sort=False)
            places = [f"{value} ({count})" for value, count in counts.items()]
            text += f" Violated most: {name}; violated in: {', '.join(places)}."
        else:
            text += f" Violated most: {name}."
    if (outcome == "tied").any():
        widths = evidence["half_width"] / evidence["right_mean"].abs()
        widest = percent(widths[outcome == "tied"].max())
        text += (
            f" Widest interval of a tied difference: ±{widest} of the right-hand mean."
        )
    return text
