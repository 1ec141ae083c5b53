"""Claims of a paper against the stored rows: *holds*, *fails*, *inconclusive* or *not run*.

The rules, the same for every claim:

* **Orderings** ("A is at least as good as B") are paired one-sided t tests over seeds, one per
  comparison (data set, epsilon, ...), in both directions, each direction Holm-corrected over the
  comparisons of the claim at level 0.05. A comparison is *kept* or *violated* if its test says so,
  else *tied*. The claim fails if a comparison is violated. It holds if none is, some are kept, and
  no more ties lean the other way than comparisons are kept; ties count as kept then. A strict claim
  needs every comparison kept. Mere ties prove nothing (inconclusive), except where the claim itself
  says that there is no difference or comes with a margin for ties: ties suffice there. The rule of
  leaning ties is this project's, and stricter than the claims as recorded, which count every tie as
  kept.
* **Averages over data sets** are averages of the metric itself. Where a claim divides by the same
  average of another method it is the ratio of the two means, not the mean of the ratios per data
  set; the latter is stated too.
* **Thresholds, trends and magnitudes** are predicates on means. They are evaluated on 2000 paired
  bootstrap resamples of the seeds (one draw for all methods, data sets and epsilons). A part of the
  claim is *kept* if the predicate is true on the sample and in 95 % of the resamples, *violated* if
  it is false on the sample and true in so few resamples that the Holm-corrected share is at most
  0.05. The claim holds if every part is kept, fails if one is violated. "Some" and "most" are
  decided on the joint predicate.
* **Times of the protocol** are measured on this machine and include the simulated latency; such a
  claim names the transport of the messages. A reported time is compared by its factor: *faster* or
  *slower* beyond sampling error, never reproduced. Bytes must be equal in every run.
* **Counts and formulas** are compared exactly (up to rounding) with what the rows and the ledger's
  charges say.
* Fewer than `MIN_SEEDS` paired seeds decide nothing about means: such a comparison is left out of
  the verdict, and where no other is left the claim is inconclusive, whatever its numbers.
* Where part of the data is absent the claim is judged on the part available and marked *partial*,
  with what is missing. What the absent part could still supply (a larger maximum, "some" case) is
  inconclusive instead of failed.

No correction is made across claims: with some fifty claims at 5 % one or two false verdicts must be
expected. Both kinds of test are approximate for heavy-tailed metrics at small numbers of seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pandas as pd
from scipy import stats

from pkm.analysis import claims as claim_data
from pkm.analysis import hyperparameters, reported
from pkm.analysis.findings import (
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    LEVEL,
    MIN_SEEDS,
    NOT_RUN,
    Context,
    Finding,
    MissingRows,
    bounds_text,
    decide,
    decide_joint,
    exact,
    join_texts,
    no_rows_of,
    percent,
    too_few,
    within,
)
from pkm.analysis.inference import holm, paired_tests, rank_correlation
from pkm.analysis.tables import (
    Panel,
    Study,
    area,
    column_statistics,
    matches,
    panel_of_sweeps,
    percentile_interval,
    resampled_means,
)

Selector = str | Mapping
Evaluator = Callable[[Study, Mapping, Context], Finding]


@dataclass(frozen=True)
class Verdict:
    """A claim with its finding."""

    claim: Mapping
    finding: Finding

    @property
    def partial(self) -> bool:
        """Whether the verdict rests on a part of the data only."""
        return bool(self.finding.missing) and self.finding.verdict != NOT_RUN


def evaluate(study: Study, paper: str, missing: pd.DataFrame | None = None) -> list[Verdict]:
    """Evaluate every claim of a paper.

    Parameters
    ----------
    study : analysis.tables.Study
    paper : str
        Name of a paper with claims.
    missing : DataFrame, optional
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`.

    Returns
    -------
    list of Verdict
        In the order of the claims file.
    """
    content = claim_data.load(paper)
    if missing is None:
        missing = pd.DataFrame(columns=["sweep", "method", "dataset", "epsilon", "reason"])
    context = Context(content["sets"], missing, content.get("reported", {}))
    evaluators = EVALUATORS | claim_data.paper_evaluators(paper)
    return [
        Verdict(claim, _check(study, claim["check"], context, evaluators))
        for claim in content["claims"]
    ]


def _check(
    study: Study, check: Mapping, context: Context, evaluators: Mapping[str, Evaluator]
) -> Finding:
    """Evaluate one check, and state the verdicts of its variants.

    `also` lists them, or is a single one: a `text`, and options that replace those of the check.
    """
    if "also" not in check:
        return _evaluate_one(study, check, context, evaluators)
    main = {name: value for name, value in check.items() if name != "also"}
    finding = _evaluate_one(study, main, context, evaluators)
    if finding.verdict == NOT_RUN:
        return finding
    numbers = finding.numbers
    variants = check["also"] if isinstance(check["also"], list) else [check["also"]]
    for variant in variants:
        options = {name: value for name, value in variant.items() if name != "text"}
        of_variant = _evaluate_one(study, main | options, context, evaluators)
        numbers += f" {variant['text']}: {of_variant.verdict} "
        same = of_variant.verdict == finding.verdict
        numbers += "as well." if same else f"instead. {of_variant.numbers}"
    return replace(finding, numbers=numbers)


def _evaluate_one(
    study: Study, check: Mapping, context: Context, evaluators: Mapping[str, Evaluator]
) -> Finding:
    kind = check["type"]
    if kind == "all_of":
        return _all_of([_check(study, part, context, evaluators) for part in check["parts"]])
    try:
        evaluator = evaluators[kind]
    except KeyError:
        raise ValueError(
            f"check type {kind!r} is unknown; known: {sorted(evaluators)} and all_of"
        ) from None
    try:
        return evaluator(study, check, context)
    except MissingRows as missing:
        return Finding(NOT_RUN, str(missing))


def _all_of(findings: Sequence[Finding]) -> Finding:
    """Join findings: one failure fails, a part that was not run makes the rest partial."""
    ran = [finding for finding in findings if finding.verdict != NOT_RUN]
    if not ran:
        return findings[0]
    verdicts = {finding.verdict for finding in ran}
    verdict = next(name for name in (FAILS, INCONCLUSIVE, HOLDS) if name in verdicts)
    numbers = []
    evidence = []
    missing = []
    for number, finding in enumerate(findings, 1):
        numbers.append(f"({number}) {finding.verdict}: {finding.numbers}")
        if len(finding.evidence):
            evidence.append(finding.evidence.assign(part=number))
    for finding in ran:
        missing += finding.missing.split("; ")
    missing += [finding.numbers for finding in findings if finding.verdict == NOT_RUN]
    seeds = [finding.seeds for finding in ran if finding.seeds is not None]
    return Finding(
        verdict,
        numbers=" ".join(numbers),
        comparisons=sum(finding.comparisons for finding in ran),
        seeds=min(seeds) if seeds else None,
        missing=join_texts(*dict.fromkeys(missing)),
        evidence=pd.concat(evidence, ignore_index=True) if evidence else pd.DataFrame(),
    )


# --- which cells are compared ---------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Comparisons found in a panel.

    Attributes
    ----------
    panel : Panel
    keys : DataFrame
        One line per comparison: values of the `over` columns and labels of both sides.
    left, right : list of list of int
        Columns of the panel, data set by data set.
    scale : list of list of int, or None
        Columns of the method that both sides are relative to.
    missing : str
        What was expected and is not stored.
    """

    panel: Panel
    keys: pd.DataFrame
    left: list[list[int]]
    right: list[list[int]]
    scale: list[list[int]] | None
    missing: str

    @property
    def seeds(self) -> int:
        """Fewest seeds that both sides of a comparison share."""
        finite = np.isfinite(self.panel.values)
        shared = [
            np.logical_and(finite[:, left], finite[:, right]).sum(axis=0).min()
            for left, right in zip(self.left, self.right, strict=True)
        ]
        return int(min(shared))


def _pairs(study: Study, check: Mapping, context: Context) -> Pairs:
    """Find the comparisons of a check.

    `left` and `right` list selectors (a method's name, or column values); `over` names the columns
    in which both sides must agree, with the expected values. Data sets that share these columns are
    averaged, over those that both have. With `across` each selector names one cell per combination,
    and the two sides need not be of the same data set.
    """
    panel = panel_of_sweeps(study, check["sweep"], check["metric"])
    if not len(panel.cells):
        raise MissingRows(context.why(check["sweep"]))
    panel = area(panel) if check.get("area") else panel.broadcast()

    # Keep the cells with expected values of the `over` columns.
    over = {
        name: values if values == "any" else context.resolve(values)
        for name, values in check["over"].items()
    }
    panel = panel.take(_allowed(panel.cells, over, check.get("at_least_d", 0)))

    # Find the cells of every selector, by the values of the `over` columns and by data set.
    left_cells = _cells_of(panel.cells, check["left"], over)
    right_cells = _cells_of(panel.cells, _right_selectors(panel.cells, check), over)
    denominators = _denominators(panel.cells, check.get("relative_to"))

    # Match both sides on the data sets that they share.
    lines = []
    left = []
    right = []
    scale = None if denominators is None else []
    sides = product(left_cells, right_cells or [("1", None)])
    for (left_label, left_side), (right_label, right_side) in sides:
        for key, left_columns in left_side.items():
            right_columns = left_columns if right_side is None else right_side.get(key, {})
            if check.get("across"):
                left_columns = _nameless(left_columns, left_label)
                right_columns = _nameless(right_columns, right_label)
            datasets = [name for name in left_columns if name in right_columns]
            if denominators is not None:
                datasets = [name for name in datasets if name in denominators]
            if not datasets:
                continue
            line = dict(zip(over, key, strict=True))
            lines.append(line | {"left": left_label, "right": right_label})
            left.append([left_columns[name] for name in datasets])
            right.append([right_columns[name] for name in datasets])
            if denominators is not None and scale is not None:
                scale.append([denominators[name] for name in datasets])
    if not lines:
        raise MissingRows(context.why(check["sweep"]))
    keys = pd.DataFrame(lines)
    n_datasets = min(len(columns) for columns in left)
    missing = join_texts(
        _missing_comparisons(check, over, keys, n_datasets),
        _missing_candidates(check, panel.cells),
    )
    return Pairs(panel, keys, left, right, scale, missing)


def _nameless(positions: Mapping[str, int], label: str) -> dict[str, int]:
    """Return the only cell under no name, so that it matches one of another data set."""
    if len(positions) > 1:
        raise ValueError(
            f"across: selector {label!r} matches several data sets, {sorted(positions)}"
        )
    return dict(zip([""], positions.values(), strict=False))


def _right_selectors(cells: pd.DataFrame, check: Mapping) -> list[Selector]:
    """Return the selectors of the right side; `best_of` splits each by those columns' values."""
    selectors = list(check.get("right", ()))
    if "best_of" not in check:
        return selectors
    split: list[Selector] = []
    for selector in selectors:
        candidates = cells[matches(cells, selector)]
        if set(check["best_of"]) <= set(cells.columns):
            values = candidates[check["best_of"]].dropna().drop_duplicates()
            split += [_as_mapping(selector) | line for line in values.to_dict("records")]
    return split


def _as_mapping(selector: Selector) -> dict:
    return {"method": selector} if isinstance(selector, str) else dict(selector)


def _allowed(cells: pd.DataFrame, over: Mapping, min_d: int) -> np.ndarray:
    """Mask of the cells with `min_d` columns or more and expected values of the `over` columns."""
    allowed = cells["d"] >= min_d
    for name, values in over.items():
        if name not in cells:
            raise MissingRows(f"no stored row has the parameter {name}")
        if name in ("dataset", "epsilon", "n", "d", "k") and not isinstance(values, str):
            listed = cells[name].isin(values)
            if name == "epsilon":
                listed |= cells[name].isna()
            allowed &= listed
    return allowed.to_numpy()


def _cells_of(
    cells: pd.DataFrame, selectors: Sequence[Selector], over: Mapping
) -> list[tuple[str, dict]]:
    """Label of every selector with its cells; see `_positions`."""
    keys = list(over)
    return [(_label(selector), _positions(cells, selector, keys)) for selector in selectors]


def _positions(
    cells: pd.DataFrame, selector: Selector, keys: list[str]
) -> dict[tuple, dict[str, int]]:
    """Map each combination of key values to its cells by data set, for one selector."""
    selected = cells[matches(cells, selector)]
    values = selected[keys].to_numpy(dtype=object)
    positions: dict[tuple, dict[str, int]] = {}
    for position, line, name in zip(selected.index, values, selected["dataset"], strict=True):
        by_dataset = positions.setdefault(tuple(line), {})
        if name in by_dataset:
            raise ValueError(
                f"selector {selector!r} matches two cells of data set {name!r} at {keys}="
                f"{tuple(line)}"
            )
        by_dataset[name] = position
    return positions


def _denominators(cells: pd.DataFrame, selector: Selector | None) -> dict[str, int] | None:
    if selector is None:
        return None
    selected = cells[matches(cells, selector)]
    return dict(zip(selected["dataset"], selected.index, strict=True))


def _label(selector: Selector) -> str:
    if isinstance(selector, str):
        return selector
    texts = {name: f"{name}={value}" for name, value in selector.items()}
    if "method" in selector:
        texts["method"] = str(selector["method"])
    return ", ".join(texts.values())


def _missing_comparisons(
    check: Mapping, over: Mapping, keys: pd.DataFrame, min_datasets: int
) -> str:
    """Say which comparisons, or data sets inside one, the claim asks for and are not stored."""
    # Count the comparisons that are available and those that are expected.
    n_available = len(keys)
    if "best_of" in check:
        n_available = len(keys[[*over, "left"]].drop_duplicates())
    n_expected = check.get("expected")
    if n_expected is None:
        n_right = 1 if "best_of" in check else len(check.get("right", "1"))
        n_values = np.prod([len(values) for values in over.values()], dtype=int)
        n_expected = n_values * len(check["left"]) * n_right

    # Name the expected values that no comparison has.
    texts = []
    if n_available < n_expected:
        texts.append(f"{n_available} of {n_expected} comparisons available")
        absent_texts = []
        for name, values in over.items():
            if isinstance(values, str):
                continue
            absent = [str(value) for value in values if value not in set(keys[name])]
            if absent:
                absent_texts.append(f"{name} {', '.join(absent)}")
        if absent_texts:
            texts.append(f"absent: {'; '.join(absent_texts)}")
    n_datasets = check.get("datasets_each", 1)
    if min_datasets < n_datasets:
        texts.append(f"only {min_datasets} of {n_datasets} data sets behind some comparisons")
    return "; ".join(texts)


def _missing_candidates(check: Mapping, cells: pd.DataFrame) -> str:
    """Say which listed values of a `best_of` column no stored cell has."""
    texts = []
    for selector, name in product(check.get("right", ()), check.get("best_of", ())):
        listed = _as_mapping(selector).get(name)
        if isinstance(listed, list) and name in cells:
            absent = [str(value) for value in listed if not (cells[name] == value).any()]
            texts += [f"{name} {', '.join(absent)} not stored"] if absent else []
    return "; ".join(texts)


def _average(means: np.ndarray, columns: list[int], scale: list[int], average: str) -> np.ndarray:
    """Average of columns over data sets, relative to the columns `scale` where these are given.

    Parameters
    ----------
    means : ndarray of shape (n_lines, n_cells)
    columns, scale : list of int
        Columns, data set by data set; an empty `scale` divides by nothing.
    average : str
        ``"ratio_of_means"`` or ``"mean_of_ratios"`` (every data set weighs the same, whatever its
        height).

    Returns
    -------
    ndarray of shape (n_lines,)
    """
    if not scale:
        return means[:, columns].mean(axis=1)
    if average == "mean_of_ratios":
        return (means[:, columns] / means[:, scale]).mean(axis=1)
    if average == "ratio_of_means":
        return means[:, columns].mean(axis=1) / means[:, scale].mean(axis=1)
    raise ValueError(f"average={average!r} is unknown; known: 'ratio_of_means', 'mean_of_ratios'")


# --- orderings: paired t tests --------------------------------------------------------------------


def ordering(study: Study, check: Mapping, context: Context) -> Finding:
    """Left at most right (at least, with `higher_is_better`), by paired one-sided t tests.

    See the module's rules. Options: `strict`; `ties_suffice` (the claim is that there is no
    difference in favor of the right side); `tolerated` with `within`: so many values of one key may
    be violated; `across`: the sides name their data sets.
    """
    return _order(_pairs(study, check, context), check)


def improving(study: Study, check: Mapping, context: Context) -> Finding:
    """Every value of `along` is at least as good as the one before, as `ordering` judges it."""
    pairs = _pairs(study, check, context)
    keys = pairs.keys
    along = check["along"]
    groups = [name for name in keys.columns if name not in (along, "right")]
    lines = []
    left = []
    right = []
    for group, members in keys.groupby(groups, sort=False):
        values = members[along].to_numpy(dtype=float)
        in_order = members.index.to_numpy()[np.argsort(values)]
        for before, after in pairwise(in_order):
            line = dict(zip(groups, group, strict=True))
            label = line.pop("left")
            line[along] = f"{keys[along][before]} to {keys[along][after]}"
            lines.append(line | {"left": label, "right": "the value before"})
            left.append(pairs.left[after])
            right.append(pairs.left[before])
    if not lines:
        raise MissingRows(f"only one value of {along} is stored")
    # The expected number is one of steps, not of values.
    n_steps = check["steps"]
    missing = f"{len(lines)} of {n_steps} steps available" if len(lines) < n_steps else ""
    steps = replace(pairs, keys=pd.DataFrame(lines), left=left, right=right, missing=missing)
    return _order(steps, check)


def _order(pairs: Pairs, check: Mapping) -> Finding:
    """Judge pairs of columns by paired tests."""
    values = pairs.panel.values
    sign = -1.0 if check.get("higher_is_better") else 1.0
    average = check.get("average", "ratio_of_means")
    means = column_statistics(values)[0][None]

    # Test the differences per seed, averaged over data sets. The denominators are the same on both
    # sides: their means are factors.
    scale = pairs.scale or [[]] * len(pairs.left)
    differences = []
    for left, right, denominators in zip(pairs.left, pairs.right, scale, strict=True):
        weights = _weights(means[0, denominators], average)
        weighted = (values[:, left] - values[:, right]) * weights
        differences.append(weighted.mean(axis=1) * sign)
    tests = paired_tests(np.column_stack(differences))
    violation = holm(tests["p_greater"])
    support = holm(tests["p_less"])
    outcome = np.select(
        [tests["seeds"] < MIN_SEEDS, violation <= LEVEL, support <= LEVEL],
        ["few seeds", "violated", "kept"],
        "tied",
    )

    evidence = pairs.keys.assign(
        left_mean=_average_sides(means, pairs.left, pairs.scale, average)[0],
        right_mean=_average_sides(means, pairs.right, pairs.scale, average)[0],
        difference=sign * tests["difference"],
        half_width=tests["half_width"],
        seeds=tests["seeds"],
        p_violated=violation,
        p_kept=support,
        outcome=outcome,
    )
    return _judge_ordering(evidence, tests["difference"].to_numpy(), check, pairs.missing)


def _weights(denominators: np.ndarray, average: str) -> np.ndarray | float:
    """Factors of the differences on each data set, before their mean over data sets is taken."""
    if not denominators.size:
        return 1.0
    if average == "mean_of_ratios":
        return 1 / denominators
    return 1 / denominators.mean()


def _judge_ordering(
    evidence: pd.DataFrame, toward_violation: np.ndarray, check: Mapping, missing: str
) -> Finding:
    """Decide an ordering by the outcomes of its comparisons; see the module's rules."""
    outcome = evidence["outcome"]
    outcomes = ("kept", "tied", "violated", "few seeds")
    counts = {name: int((outcome == name).sum()) for name in outcomes}
    enough = outcome != "few seeds"
    seeds = evidence.loc[enough, "seeds"].min() if enough.any() else evidence["seeds"].max()
    leaning = (outcome == "tied").to_numpy() & (toward_violation > 0)

    # So many values of the key `within` may be violated for each combination of the other keys.
    broken = counts["violated"] > 0
    if "within" in check and broken:
        violated = evidence[outcome == "violated"]
        other_keys = [name for name in check["over"] if name != check["within"]]
        n_violated = violated.groupby(other_keys)[check["within"]].nunique()
        broken = n_violated.max() > check["tolerated"]

    if not enough.any():
        verdict = INCONCLUSIVE
    elif broken:
        verdict = FAILS
    elif check.get("strict"):
        verdict = HOLDS if counts["kept"] == enough.sum() else INCONCLUSIVE
    elif not check.get("ties_suffice") and not 0 < counts["kept"] >= leaning.sum():
        verdict = INCONCLUSIVE
    else:
        verdict = HOLDS
    if counts["few seeds"] and enough.any():
        few = f"{counts['few seeds']} comparisons have fewer than {MIN_SEEDS} paired seeds"
        missing = join_texts(missing, few)
    numbers = _ordering_numbers(evidence, toward_violation, leaning, counts, check)
    numbers += too_few(int(seeds))
    return Finding(verdict, numbers, len(evidence), int(seeds), missing, evidence)


def _ordering_numbers(
    evidence: pd.DataFrame,
    toward_violation: np.ndarray,
    leaning: np.ndarray,
    counts: Mapping[str, int],
    check: Mapping,
) -> str:
    """Describe the outcomes: counts, the largest violation, the widest interval of a tie."""
    text = f"{counts['kept']} kept, {counts['tied']} tied, {counts['violated']} violated of "
    text += f"{len(evidence)} comparisons."
    outcome = evidence["outcome"].to_numpy()
    violated = outcome == "violated"
    tied = outcome == "tied"
    right = np.abs(evidence["right_mean"].to_numpy())
    relative = toward_violation / right
    if violated.any():
        worst = np.where(violated, relative, -np.inf).argmax()
        text += f" Violated most: {_describe_comparison(evidence, worst)} by "
        text += percent(relative[worst])
        if check["over"]:
            text += f"; violated in: {_count_by_first_key(evidence[violated], check)}"
        text += "."
    elif leaning.any():
        worst = np.where(leaning, relative, -np.inf).argmax()
        text += f" {leaning.sum()} ties lean the other way, most "
        text += f"{_describe_comparison(evidence, worst)} by {percent(relative[worst])}."
    if tied.any():
        widest = (evidence["half_width"].to_numpy()[tied] / right[tied]).max()
        text += f" Widest interval of a tied difference: ±{percent(widest)} of the right-hand mean."
    return text


def _count_by_first_key(violated: pd.DataFrame, check: Mapping) -> str:
    """Name what is violated by its first key, with counts."""
    first = next(iter(check["over"]))
    counts = violated[first].value_counts(sort=False)
    return ", ".join(f"{value} ({count})" for value, count in counts.items())


def _describe_comparison(evidence: pd.DataFrame, position: int) -> str:
    line = evidence.iloc[position]
    names = evidence.columns[: list(evidence.columns).index("left")]
    key = ", ".join(f"{name} {line[name]}" for name in names)
    return f"{key} ({line['left']} against {line['right']})".strip()


# --- predicates on means: paired bootstrap --------------------------------------------------------


def _ratios(
    study: Study, check: Mapping, context: Context
) -> tuple[pd.DataFrame, np.ndarray, int, str]:
    """Resampled ratios left / right per comparison.

    Without `right` the left side itself (its mean relative to `relative_to`); with `best_of` the
    smallest right-hand side divides, chosen anew in every resample. ``by: difference`` subtracts
    the right side instead; `per` divides the left side by a column of its cells, such as ``k``.

    Returns
    -------
    tuple
        Comparisons (DataFrame), ndarray of shape (repeats + 1, comparisons), seeds, what is
        missing.
    """
    pairs = _pairs(study, check, context)
    keys = pairs.keys
    means = resampled_means(pairs.panel)
    average = check.get("average", "ratio_of_means")
    left = _average_sides(means, pairs.left, pairs.scale, average)
    right = _average_sides(means, pairs.right, pairs.scale, average)
    if "per" in check:
        column = pairs.panel.cells[check["per"]].to_numpy(dtype=float)
        left = left / [column[columns].mean() for columns in pairs.left]
    if check.get("by", "ratio") == "difference":
        return keys, left - right, pairs.seeds, pairs.missing
    if "right" not in check:
        right = np.ones_like(left)
    if "best_of" in check:
        names = [*check["over"], "left"]
        groups = list(keys.groupby(names, sort=False).indices.values())
        firsts = [members[0] for members in groups]
        left = left[:, firsts]
        right = np.column_stack([right[:, members].min(axis=1) for members in groups])
        keys = keys.iloc[firsts].assign(right="best of all").reset_index(drop=True)
    return keys, left / right, pairs.seeds, pairs.missing


def _average_sides(
    means: np.ndarray, side: list[list[int]], scale: list[list[int]] | None, average: str
) -> np.ndarray:
    """One column per comparison: `_average` of every line of means."""
    scale = scale or [[]] * len(side)
    averages = [
        _average(means, columns, denominators, average)
        for columns, denominators in zip(side, scale, strict=True)
    ]
    return np.column_stack(averages)


def bound(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the ratio left / right against bounds, for `all` or `some` comparisons.

    The bounds are `at_most`, `at_least`, `below` and `above`; see `_ratios` for differences and
    values.
    """
    word = "Difference" if check.get("by") == "difference" else "Ratio"
    if not {"right", "relative_to", "per"} & set(check):
        word = "Value"
    keys, ratios, seeds, missing = _ratios(study, check, context)
    truth = within(ratios, check)
    low, high = percentile_interval(ratios)
    evidence = keys.assign(**{word.lower(): ratios[0]}, low=low, high=high)
    if len(keys) == 1:
        numbers = f"{word} {ratios[0, 0]:.4g} [{low[0]:.4g}, {high[0]:.4g}]"
    else:
        lowest = _describe_value(keys, ratios[0], ratios[0].argmin())
        numbers = f"{word} between {lowest} and "
        numbers += _describe_value(keys, ratios[0], ratios[0].argmax())
    numbers += f" (required: {bounds_text(check)});"
    return decide(truth, seeds, numbers, missing, evidence, check.get("quantifier", "all"))


def _describe_value(keys: pd.DataFrame, values: np.ndarray, position: int) -> str:
    line = keys.iloc[position]
    names = [name for name in keys.columns if name not in ("left", "right")]
    labels = [*(f"{name} {line[name]}" for name in names), line["left"]]
    return f"{values[position]:.4g} ({', '.join(labels)})"


def trend(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the ratio left / right rises or falls along a key.

    Per group of the other keys: Spearman's correlation in `direction` above `above` or at least
    `at_least`, and with `ends` the last value beyond the first. `quantifier` over the groups: all
    (default) or most.
    """
    keys, ratios, seeds, missing = _ratios(study, check, context)
    along = check["along"]
    sign = 1.0 if check["direction"] == "rising" else -1.0
    names = [name for name in keys.columns if name not in (along, "right")]
    truth = []
    lines = []
    for group, members in keys.groupby(names, sort=False):
        line = dict(zip(names, group, strict=True))
        members = members.sort_values(along)
        n_values = len(members)
        if n_values < 3:
            label = ", ".join(f"{name} {value}" for name, value in line.items())
            missing = join_texts(missing, f"{label}: only {n_values} values of {along}")
            continue
        values = ratios[:, members.index]
        correlation = sign * rank_correlation(members[along].to_numpy(dtype=float), values)
        true = within(correlation, check)
        if check.get("ends"):
            rise = values[:, -1] - values[:, 0]
            true &= sign * rise > 0
        truth.append(true)
        line["correlation"] = sign * correlation[0]
        line["first"] = values[0, 0]
        line["last"] = values[0, -1]
        line["values"] = n_values
        lines.append(line)
    if not truth:
        raise MissingRows(f"a trend along {along} needs at least three stored values of it")
    evidence = pd.DataFrame(lines)
    return decide(
        np.column_stack(truth),
        seeds,
        _trend_numbers(evidence, check),
        missing,
        evidence,
        check.get("quantifier", "all"),
    )


def _trend_numbers(evidence: pd.DataFrame, check: Mapping) -> str:
    rising = check["direction"] == "rising"
    sign = 1.0 if rising else -1.0
    along = check["along"]
    directed = sign * evidence["correlation"].to_numpy()
    if len(evidence) == 1:
        text = f"Spearman along {along} {evidence['correlation'][0]:.3g}"
    else:
        text = f"Spearman along {along} between {sign * directed.min():.3g} and "
        text += f"{sign * directed.max():.3g}"
    strict = "at_least" not in check
    relation = (">" if strict else "≥") if rising else ("<" if strict else "≤")
    threshold = sign * check["above" if strict else "at_least"] + 0  # never -0
    text += f" (required: {relation} {threshold:g}); mean ratio from "
    text += f"{evidence['first'].mean():.4g} at the first to {evidence['last'].mean():.4g} at the "
    return text + "last;"


def ends(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the ratio left / right is higher or lower at the end of `along`, on average.

    Only groups of the other keys that have both ends count. `first` and `last` name the ends; where
    they are not stored, the outermost stored values are compared and the verdict is partial.
    """
    keys, ratios, seeds, missing = _ratios(study, check, context)
    along = check["along"]
    values = keys[along].to_numpy(dtype=float)
    first = values.min()
    last = values.max()
    if first == last:
        raise MissingRows(f"only one value of {along} is stored")
    others = [name for name in check["over"] if name != along]
    groups = pd.Series("", index=keys.index)
    if others:
        groups = keys[others].astype(str).agg("|".join, axis=1)
    shared = set(groups[values == first]) & set(groups[values == last])
    if not shared:
        raise MissingRows(f"no group has both {along} = {first:g} and {along} = {last:g}")
    inside = groups.isin(shared).to_numpy()
    low = ratios[:, inside & (values == first)].mean(axis=1)
    high = ratios[:, inside & (values == last)].mean(axis=1)
    sign = 1.0 if check["direction"] == "rising" else -1.0
    if (first, last) != (check["first"], check["last"]):
        missing = join_texts(missing, f"ends are {along} = {first:g} and {last:g}")
    evidence = pd.DataFrame(
        {along: [first, last], "ratio": [low[0], high[0]], "groups": len(shared)}
    )
    numbers = f"Mean ratio {low[0]:.4g} at {along} = {first:g}, {high[0]:.4g} at {along} = "
    numbers += f"{last:g};"
    return decide_joint(sign * (high - low) > 0, seeds, numbers, missing, evidence)


def largest_gain(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the largest reduction 1 - left / right lies in [`at_least`, `at_most`]."""
    keys, ratios, seeds, missing = _ratios(study, check, context)
    gains = 1 - ratios
    largest = gains.max(axis=1)
    (low,), (high,) = percentile_interval(largest[:, None])
    evidence = keys.assign(gain=gains[0]).sort_values("gain", ascending=False, ignore_index=True)
    key = keys.iloc[gains[0].argmax()]
    label = ", ".join(f"{name} {key[name]}" for name in check["over"])
    numbers = f"Largest reduction {percent(largest[0])} [{percent(low)}, {percent(high)}] at "
    numbers += f"{label} (required: {bounds_text(check)});"
    finding = decide_joint(within(largest, check), seeds, numbers, missing, evidence)
    if missing and finding.verdict == FAILS and largest[0] < check["at_least"]:
        text = f"{finding.numbers} The absent part may hold a larger one."
        return replace(finding, verdict=INCONCLUSIVE, numbers=text)
    return finding


def best_value(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the key value with the smallest ratio left / right lies within bounds.

    The largest with `higher_is_better`; without a right side the value itself.
    """
    keys, ratios, seeds, missing = _ratios(study, check, context)
    along = keys[check["along"]].to_numpy(dtype=float)
    largest = check.get("higher_is_better", False)
    positions = ratios.argmax(axis=1) if largest else ratios.argmin(axis=1)
    best = along[positions]
    share_best = [(best[1:] == value).mean() for value in along]
    evidence = keys.assign(ratio=ratios[0], best_in_resamples=share_best)
    word = "ratio" if "right" in check or "relative_to" in check else "value"
    best_ratio = ratios[0, positions[0]]
    numbers = f"{'Largest' if largest else 'Smallest'} at {check['along']} = {best[0]:g} "
    numbers += f"({word} {best_ratio:.4g}; required: {bounds_text(check)});"
    return decide_joint(within(best, check), seeds, numbers, missing, evidence)


def crossing(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the first left method reaches the right one's level no later than its rivals.

    The level is reached at the smallest epsilon with a ratio of at most 1 + `level`. `left` lists
    the method in question first, then its rivals; for each `over` group but epsilon. Counts for
    `other_levels` are stated with the verdict.
    """
    keys, ratios, seeds, missing = _ratios(study, check, context)
    groups = [name for name in check["over"] if name != "epsilon"]
    first = _label(check["left"][0])
    texts = []
    truth = []
    lines = []
    for level in (check["level"], *check["other_levels"]):
        reached = _first_epsilons(keys, ratios, level, groups)
        earliest = []
        compared = []
        for group in sorted(reached):
            by_method = reached[group]
            rivals = [epsilon for name, epsilon in by_method.items() if name != first]
            if first in by_method and rivals:
                earliest.append(by_method[first] <= np.min(rivals, axis=0))
                compared.append(group)
        count = sum(bool(true[0]) for true in earliest)
        texts.append(f"within {percent(level)}: first or equal in {count} of {len(earliest)}")
        if level == check["level"]:
            truth = earliest
            lines = [
                dict(zip(groups, group, strict=True))
                | {name: epsilon[0] for name, epsilon in reached[group].items()}
                for group in compared
            ]
    if not truth:
        raise MissingRows(f"no stored group has both {first} and one of its rivals")
    numbers = "; ".join(texts).capitalize() + ";"
    return decide(np.column_stack(truth), seeds, numbers, missing, pd.DataFrame(lines))


def _first_epsilons(
    keys: pd.DataFrame, ratios: np.ndarray, level: float, groups: list[str]
) -> dict[tuple, dict[str, np.ndarray]]:
    """Smallest epsilon with a ratio of at most 1 + level, by group and method, per resample."""
    epsilons = keys["epsilon"].to_numpy(dtype=float)
    by_group: dict[tuple, dict[str, np.ndarray]] = {}
    for name, columns in keys.groupby([*groups, "left"], sort=False).indices.items():
        *group, method = name
        columns = columns[np.argsort(epsilons[columns])]
        near = ratios[:, columns] <= 1 + level
        first = epsilons[columns][near.argmax(axis=1)]
        reached = np.where(near.any(axis=1), first, np.inf)
        by_group.setdefault(tuple(group), {})[method] = reached
    return by_group


def contrast(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that the smallest reduction 1 - left / right inside `group` is above the median."""
    keys, ratios, seeds, missing = _ratios(study, check, context)
    gains = 1 - ratios
    inside = keys["dataset"].isin(check["group"]).to_numpy()
    names = ", ".join(check["group"])
    if not inside.any():
        raise MissingRows(f"no stored rows of {names}")
    if inside.sum() < len(check["group"]):
        missing = join_texts(missing, f"of {names} only {inside.sum()} available")
    smallest = gains[:, inside].min(axis=1)
    median = np.median(gains, axis=1)
    evidence = keys.assign(gain=gains[0], in_group=inside)
    evidence = evidence.sort_values("gain", ascending=False, ignore_index=True)
    numbers = f"Smallest reduction in the group {percent(smallest[0])}, median of all "
    numbers += f"{percent(median[0])};"
    return decide_joint(smallest > median, seeds, numbers, missing, evidence)


def dispersion(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the standard deviation of the left side over its mean against bounds."""
    pairs = _pairs(study, check, context)
    squares = replace(pairs.panel, values=pairs.panel.values**2)
    mean = _average_sides(resampled_means(pairs.panel), pairs.left, None, "ratio_of_means")
    square = _average_sides(resampled_means(squares), pairs.left, None, "ratio_of_means")
    seeds = pairs.seeds
    deviation = np.sqrt(np.maximum(square - mean**2, 0) * seeds / max(seeds - 1, 1))
    relative = deviation / np.abs(mean)
    evidence = pairs.keys.assign(mean=mean[0], deviation=deviation[0], relative=relative[0])
    lowest = _describe_value(pairs.keys, relative[0], relative[0].argmin())
    highest = _describe_value(pairs.keys, relative[0], relative[0].argmax())
    numbers = f"Deviation over mean between {lowest} and {highest} "
    numbers += f"(required: {bounds_text(check)});"
    return decide(within(relative, check), seeds, numbers, pairs.missing, evidence)


def slope(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the slope of log(left) over log(`along`) in every group of the other keys.

    Inconclusive where a group is not stored up to `reach`.
    """
    keys, values, seeds, missing = _ratios(study, check, context)
    along = check["along"]
    names = [name for name in keys.columns if name not in (along, "right")]
    slopes = []
    lines = []
    for group, members in keys.groupby(names, sort=False):
        x = np.log(members[along].to_numpy(dtype=float))
        if x.size < 3:
            continue
        centered = x - x.mean()
        logs = np.log(values[:, members.index])
        slopes.append(logs @ centered / (centered @ centered))
        line = dict(zip(names, group, strict=True))
        line["from"] = np.exp(x.min())
        line["to"] = np.exp(x.max())
        line["values"] = x.size
        lines.append(line)
    if not slopes:
        raise MissingRows(f"a slope along {along} needs at least three stored values of it")
    draws = np.column_stack(slopes)
    low, high = percentile_interval(draws)
    evidence = pd.DataFrame(lines).assign(slope=draws[0], low=low, high=high)
    texts = [
        f"{line.slope:.3g} [{line.low:.3g}, {line.high:.3g}]" for line in evidence.itertuples()
    ]
    numbers = f"Slope over {along} from {evidence['from'].min():g} to {evidence['to'].max():g}: "
    numbers += f"{'; '.join(texts)} (required: {bounds_text(check)});"
    finding = decide(within(draws, check), seeds, numbers, missing, evidence)
    if evidence["to"].min() < check["reach"] * (1 - 1e-9):
        text = f"{finding.numbers} Sizes up to {along} = {check['reach']:g} are needed for a "
        return replace(finding, verdict=INCONCLUSIVE, numbers=f"{text}verdict.")
    return finding


def longer_than(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that `runs` fits take more CPU seconds than `seconds`.

    Where a fit was stopped at a recorded time limit the claim is inconclusive.
    """
    selector = {"method": check["method"], "dataset": check["dataset"]}
    for sweep in check["sweeps"]:
        panel = study.panel(sweep, "fit_cpu_seconds")
        panel = panel.take(matches(panel.cells, selector))
        if len(panel.cells):
            seconds = resampled_means(panel)[:, :1]
            total = check["runs"] * seconds
            evidence = pd.DataFrame({"sweep": [sweep], "seconds_per_fit": seconds[0]})
            numbers = f"{check['runs']} fits take {total[0, 0]:.4g} s of CPU time (required: more "
            numbers += f"than {check['seconds']:g} s);"
            return decide(total > check["seconds"], len(panel.seeds), numbers, "", evidence)
    stopped = context.missing[context.missing["sweep"].isin(check["sweeps"])]
    stopped = stopped[matches(stopped, selector)]
    stopped = stopped[stopped["reason"].str.contains("time limit|time_limit").astype(bool)]
    if not len(stopped):
        raise MissingRows(context.why(check["sweeps"]))
    text = "Stopped before the end, so only a lower bound is known: "
    return Finding(INCONCLUSIVE, text + stopped["reason"].iloc[0], 1)


def compare_sizes(
    cells: pd.DataFrame, expected: Mapping[str, Sequence[int]], columns: Sequence[str]
) -> tuple[pd.DataFrame, str]:
    """Compare columns of stored data sets with what a paper reports.

    Returns
    -------
    DataFrame, str
        One line per stored data set, and which ones have no rows.
    """
    stored = cells.drop_duplicates("dataset").set_index("dataset")[list(columns)]
    lines = []
    for name, size in expected.items():
        if name in stored.index:
            values = tuple(int(value) for value in stored.loc[name])
            line = {"dataset": name, "reported": str(tuple(size)), "stored": str(values)}
            lines.append(line | {"agrees": values == tuple(size)})
    return pd.DataFrame(lines), no_rows_of(expected, stored.index)


# --- counts and reported numbers ---


def sizes(study: Study, check: Mapping, context: Context) -> Finding:
    """Compare N, d and k of the stored data sets with `expected`, a data set to [N, d, k].

    `sweep` restricts the comparison to one sweep, where others run the data sets with another k.
    """
    cells = study.cells
    if "sweep" in check:
        cells = cells[cells["sweep"] == check["sweep"]]
    table, missing = compare_sizes(cells, check["expected"], ["n", "d", "k"])
    return exact(table, missing or "Compared: N, d, k.", missing)


def grid_count(study: Study, check: Mapping, context: Context) -> Finding:
    """Count the combinations of `keys` and the data sets of a sweep.

    A thinned profile plans fewer than `combinations` and `datasets`; that says nothing about the
    generator, so it is inconclusive.
    """
    cells = study.cells[study.cells["sweep"] == check["sweep"]]
    gaps = context.missing[context.missing["sweep"] == check["sweep"]]
    planned = set(cells["dataset"]) | set(gaps["dataset"])
    if not planned:
        raise MissingRows(context.why(check["sweep"]))
    combinations = len(cells[check["keys"]].drop_duplicates())
    numbers = f"{combinations} combinations stored, {len(planned)} data sets planned"
    numbers += f" (reported: {check['combinations']} and {check['datasets']})."
    if len(planned) < check["datasets"]:
        return Finding(INCONCLUSIVE, numbers, 1, None, "the profile plans a part of the grid only")
    if len(planned) > check["datasets"] or combinations > check["combinations"]:
        return Finding(FAILS, numbers, 1)
    n_missing = check["combinations"] - combinations
    if n_missing:
        missing = f"{n_missing} combinations without stored rows"
        return Finding(INCONCLUSIVE, numbers, 1, None, missing)
    return Finding(HOLDS, numbers, 1)


def every_row(study: Study, check: Mapping, context: Context) -> Finding:
    """Check a metric in every stored row of a method against bounds; `sweeps` is optional."""
    rows = study.rows_with([check["metric"]])
    rows = rows[rows["method"] == check["method"]]
    if "sweeps" in check:
        rows = rows[rows["sweep"].isin(check["sweeps"])]
    if not len(rows):
        raise MissingRows(f"no stored row of {check['method']} has {check['metric']}")
    values = rows[check["metric"]]
    grouped = values.groupby([rows["sweep"], rows["dataset"]])
    extremes = grouped.agg(["min", "max", "size"]).reset_index()
    low_agrees = within(extremes["min"].to_numpy(), check)
    extremes["agrees"] = low_agrees & within(extremes["max"].to_numpy(), check)
    numbers = f"Between {values.min():g} and {values.max():g} in {len(rows)} rows "
    numbers += f"(required: {bounds_text(check)})."
    return exact(extremes, numbers)


def reported_values(study: Study, check: Mapping, context: Context) -> Finding:
    """Check that every reported number that can be compared is reproduced within sampling error.

    Holds if all are; fails if more lie outside than two standard errors allow by chance (binomial
    test at the level of all claims); else inconclusive.
    """
    table = reported.compare(study, context.reported[check["numbers"]])
    judged = table[table["verdict"].isin(reported.JUDGED)]
    all_counts = table["verdict"].value_counts()
    if not len(judged):
        reasons = ", ".join(f"{reason} ({count})" for reason, count in all_counts.items())
        raise MissingRows(f"none of {len(table)} reported numbers can be judged: {reasons}")

    # Two-sided chance beyond two standard errors; half a reported digit of slack makes it smaller.
    counts = judged["verdict"].value_counts().reindex(reported.JUDGED, fill_value=0)
    n_outside = len(judged) - counts[reported.WITHIN]
    chance = 2 * stats.norm.sf(reported.STANDARD_ERRORS)
    p_value = stats.binom.sf(n_outside - 1, len(judged), chance)
    verdict = HOLDS if not n_outside else FAILS if p_value <= LEVEL else INCONCLUSIVE

    n_near = sum(reported.near(line) for line in judged.to_dict("records"))
    numbers = f"Of {len(judged)} reported numbers that can be compared {counts[reported.WITHIN]} "
    numbers += f"are within sampling error, {counts[reported.BETTER]} measured ones are better and "
    numbers += f"{counts[reported.WORSE]} worse; {n_near} lie within "
    numbers += f"{percent(reported.NEAR_SHARE)} of the reported mean."
    missing = [
        f"{count} numbers {name}"
        for name, count in all_counts.items()
        if name not in reported.JUDGED
    ]
    order = {reported.WORSE: 0, reported.BETTER: 1, reported.WITHIN: 2}
    evidence = judged.sort_values(
        "verdict", key=lambda column: column.map(order), ignore_index=True
    )
    seeds = int(judged["seeds"].min())
    columns = evidence[EVIDENCE_OF_REPORTED]
    return Finding(verdict, numbers, len(judged), seeds, "; ".join(missing), columns)


EVIDENCE_OF_REPORTED = [
    "dataset",
    "method",
    "metric",
    "mean",
    "deviation",
    "seeds",
    "reported",
    "margin",
    "ratio",
    "verdict",
    "note",
]


def proved_by(study: Study, check: Mapping, context: Context) -> Finding:
    """Give the verdict of a claim that no row bears on: a test proves it, or its opposite."""
    verdict = check["verdict"]
    if verdict not in (HOLDS, FAILS):
        raise ValueError(f"verdict={verdict!r} of a proved claim must be {HOLDS!r} or {FAILS!r}")
    what = "Follows" if verdict == HOLDS else "Is refuted"
    return Finding(verdict, f"{what} without stored rows: {check['test']} asserts it.", 1)


def not_run(study: Study, check: Mapping, context: Context) -> Finding:
    """Give the recorded reason why a claim is not evaluated here."""
    return Finding(NOT_RUN, check["reason"])


EVALUATORS = {
    "ordering": ordering,
    "bound": bound,
    "trend": trend,
    "ends": ends,
    "largest_gain": largest_gain,
    "best_value": best_value,
    "crossing": crossing,
    "improving": improving,
    "dispersion": dispersion,
    "slope": slope,
    "longer_than": longer_than,
    "every_row": every_row,
    "reported_values": reported_values,
    "contrast": contrast,
    "sizes": sizes,
    "grid_count": grid_count,
    "not_run": not_run,
    "proved_by": proved_by,
} | hyperparameters.EVALUATORS


#: Columns of `overview`.
OVERVIEW = [
    "id", "section", "statement", "kind", "basis", "verdict", "partial", "comparisons", "seeds",
    "numbers", "missing", "reported",
]  # fmt: skip


def overview(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """One line per claim, for the verdict table and as CSV.

    Returns
    -------
    DataFrame
        `id`, `section`, `statement`, `kind`, `basis`, `verdict`, `partial`, `comparisons`, `seeds`,
        `numbers`, `missing`, `reported`.
    """
    lines = []
    for verdict in verdicts:
        line = {name: verdict.claim.get(name, "") for name in OVERVIEW}
        finding = verdict.finding
        line |= {name: getattr(finding, name) for name in ("verdict", "comparisons", "seeds")}
        line |= {"partial": verdict.partial, "numbers": finding.numbers, "missing": finding.missing}
        lines.append(line)
    return pd.DataFrame(lines, columns=OVERVIEW)
