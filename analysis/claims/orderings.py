"""Orderings of stored means, by paired t tests over seeds."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from pkm.analysis.claims.comparisons import SELECTION, Pairs, average_sides, find_pairs, weights
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
    """Left at most right (at least, with `higher_is_better`), by paired one-sided t tests.

    Options: `strict`; `ties_suffice` (the claim is that there is no difference in favor of the
    right side); `tolerated` with `within`: so many values of one key may be violated.
    """
    return compare(find_pairs(study, check, context), check)


@check_type(*SELECTION, *ORDER, "along", "steps")
def improving(study: Study, check: Mapping, context: Context) -> Finding:
    """Every value of `along` is at least as good as the one before, as `ordering` judges it."""
    pairs = find_pairs(study, check, context)
    along = check["along"]
    groups = [name for name in pairs.keys.columns if name not in (along, "right")]
    lines = []
    steps = []
    for group, members in pairs.keys.groupby(groups, sort=False):
        facts = dict(zip(groups, group, strict=True))
        left_label = facts.pop("left")
        for before, after in pairwise(members[along].astype(float).sort_values().index):
            facts[along] = f"{members[along][before]} to {members[along][after]}"
            lines.append(facts | {"left": left_label, "right": "the value before"})
            steps.append((before, after))
    if not lines:
        raise MissingRows(f"only one value of {along} is stored")
    missing = ""
    if len(lines) < check["steps"]:
        missing = f"{len(lines)} of {check['steps']} steps available"
    compared = replace(
        pairs,
        keys=pd.DataFrame(lines),
        left=[pairs.left[after] for _, after in steps],
        right=[pairs.left[before] for before, _ in steps],
        scale=[pairs.scale[after] for _, after in steps],
        missing=missing,
        complete=np.ones(len(steps), dtype=bool),
    )
    return compare(compared, check)


def compare(pairs: Pairs, check: Mapping) -> Finding:
    """Judge pairs of columns by paired tests, Holm-corrected in each direction."""
    values = pairs.matrix.values
    sign = -1.0 if check.get("higher_is_better") else 1.0
    average = check.get("average", "ratio_of_means")
    means = column_statistics(values).mean[None]

    # Test the differences per seed, averaged over data sets. The denominators are the same on both
    # sides: their means are factors.
    sides = zip(pairs.left, pairs.right, pairs.scale, strict=True)
    differences = [
        ((values[:, left] - values[:, right]) * weights(means[0, scale], average)).mean(axis=1)
        for left, right, scale in sides
    ]
    tests = paired_tests(sign * np.column_stack(differences))
    violation = holm(tests["p_greater"])
    support = holm(tests["p_less"])
    outcome = np.select(
        [tests["seeds"] < MIN_SEEDS, violation <= LEVEL, support <= LEVEL],
        ["few seeds", "violated", "kept"],
        "tied",
    )
    evidence = pairs.keys.assign(
        left_mean=average_sides(means, pairs.left, pairs.scale, average)[0],
        right_mean=average_sides(means, pairs.right, pairs.scale, average)[0],
        difference=sign * tests["difference"],
        half_width=tests["half_width"],
        seeds=tests["seeds"],
        p_violated=violation,
        p_kept=support,
        outcome=outcome,
    )
    return _judge(evidence, tests["difference"].to_numpy(), check, pairs)


def _judge(
    evidence: pd.DataFrame, toward_violation: np.ndarray, check: Mapping, pairs: Pairs
) -> Finding:
    """Decide an ordering by the outcomes of its comparisons; see the rules of verdicts."""
    outcome = evidence["outcome"].to_numpy()
    enough = outcome != "few seeds"
    seeds = evidence.loc[enough, "seeds"].min() if enough.any() else evidence["seeds"].max()
    n_kept = np.count_nonzero(outcome == "kept")
    leaning = (outcome == "tied") & (toward_violation > 0)
    violated = outcome == "violated"

    # So many values of the key `within` may be violated for each combination of the other keys.
    broken = violated.any()
    if "within" in check and broken:
        others = [name for name in check["over"] if name != check["within"]]
        n_violated = evidence[violated].groupby(others)[check["within"]].nunique()
        broken = n_violated.max() > check["tolerated"]

    shown = check.get("ties_suffice") or 0 < n_kept >= leaning.sum()
    if check.get("strict"):
        shown = n_kept == enough.sum()
    verdict = FAILS if broken else HOLDS if shown else INCONCLUSIVE
    missing = pairs.missing
    if not enough.all() and enough.any():
        n_few = np.count_nonzero(~enough)
        few = f"{n_few} comparisons have fewer than {MIN_SEEDS} paired seeds"
        missing = join_texts(missing, few)
    verdict = weaken(verdict, missing, refuted=(violated & pairs.complete).any())
    if not enough.any():
        verdict = INCONCLUSIVE
    numbers = _describe_outcomes(evidence, toward_violation, leaning, check)
    numbers = join_words(numbers, too_few(int(seeds)))
    return Finding(verdict, numbers, len(evidence), int(seeds), missing, evidence)


def _describe_outcomes(
    evidence: pd.DataFrame, toward_violation: np.ndarray, leaning: np.ndarray, check: Mapping
) -> str:
    """Describe the outcomes: counts, the largest violation, the widest interval of a tie."""
    outcome = evidence["outcome"].to_numpy()
    names = ("kept", "tied", "violated")
    counts = [f"{np.count_nonzero(outcome == name)} {name}" for name in names]
    text = f"{', '.join(counts)} of {len(evidence)} comparisons."
    right = np.abs(evidence["right_mean"].to_numpy())
    relative = toward_violation / right
    violated = outcome == "violated"
    if violated.any() or leaning.any():
        worst = np.where(violated if violated.any() else leaning, relative, -np.inf).argmax()
        line = evidence.iloc[worst]
        key = describe_case(line[[*check["over"]]]) if check["over"] else ""
        name = f"{key} ({line['left']} against {line['right']})".strip()
        size = percent(relative[worst])
        if violated.any():
            text += f" Violated most: {name} by {size}"
            if check["over"]:
                first = evidence.loc[violated, next(iter(check["over"]))]
                n_by_value = first.value_counts(sort=False).items()
                places = ", ".join(f"{value} ({count})" for value, count in n_by_value)
                text += f"; violated in: {places}"
            text += "."
        else:
            text += f" {leaning.sum()} ties lean the other way, most {name} by {size}."
    tied = outcome == "tied"
    if tied.any():
        widest = (evidence["half_width"].to_numpy()[tied] / right[tied]).max()
        text += f" Widest interval of a tied difference: ±{percent(widest)} of the right-hand mean."
    return text
