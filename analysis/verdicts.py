"""Claims of a paper against the stored rows: *holds*, *fails*, *inconclusive* or *not run*, with
the numbers.

The rules, the same for every claim:

* **Orderings** ("A is at least as good as B") are paired one-sided t tests over seeds, one per
  comparison (data set, epsilon, ...), in both directions, each direction Holm-corrected over the
  comparisons of the claim at level 0.05. A comparison is *kept* or *violated* if its test says so,
  else *tied*. The claim fails if a comparison is violated. It holds if none is, some are kept, and
  no more ties lean the other way than comparisons are kept; ties count as kept then. A strict claim
  needs every comparison kept. Mere ties prove nothing (inconclusive), except where the claim itself
  says that there is no difference or comes with a margin for ties: ties suffice there. The rule of
  leaning ties is ours and stricter than the claims as recorded, which count every tie as kept.
* **Averages over data sets** are averages of the metric itself. Where a claim divides by the same
  average of another method it is the ratio of the two means, not the mean of the ratios per data
  set; the latter is stated beside it.
* **Thresholds, trends and magnitudes** are predicates on means. They are evaluated on 2000 paired
  bootstrap resamples of the seeds (one draw for all methods, data sets and epsilons). A part of the
  claim is *kept* if the predicate is true on the sample and in 95 % of the resamples, *violated* if
  it is false on the sample and true in so few resamples that the Holm-corrected share is at most
  0.05. The claim holds if every part is kept, fails if one is violated. "Some" and "most" are decided
  on the joint predicate.
* **Times of the protocol** are ours, from this machine and with the simulated latency in them; such
  a claim says what carried the messages. A printed time is compared by its factor: *faster* or
  *slower* beyond sampling error, never reproduced. Bytes must be equal in every run.
* **Counts and formulas** are compared exactly (up to rounding) with what the rows and the ledger's
  charges say.
* Fewer than `MIN_SEEDS` paired seeds decide nothing about means: such a comparison is left out of
  the verdict, and where no other is left the claim is inconclusive, whatever the numbers look like.
* Where part of the data is absent the claim is judged on the part at hand and marked *partial*,
  with what is lacking. What the absent part could still supply (a larger maximum, "some" case) is
  inconclusive instead of failed.

No correction is made across claims: with some fifty claims at 5 % one or two false verdicts must be
expected. Both kinds of test are approximate for heavy-tailed metrics at small numbers of seeds.
"""

from collections.abc import Mapping
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
    decide,
    exact,
    percent,
    too_few,
    within,
)
from pkm.analysis.inference import holm, paired_tests, rank_correlation
from pkm.analysis.tables import (
    Study,
    area,
    column_statistics,
    concatenate,
    percentile_interval,
    resampled_means,
    resampling_weights,
)


@dataclass(frozen=True)
class Verdict:
    """A claim with its finding."""

    claim: Mapping
    finding: Finding

    @property
    def partial(self):
        """Whether the verdict rests on a part of the data only."""
        return bool(self.finding.lacking) and self.finding.verdict != NOT_RUN


def evaluate(study, paper, missing=None):
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
    missing = (
        pd.DataFrame(columns=["sweep", "method", "dataset", "epsilon", "reason"])
        if missing is None
        else missing
    )
    context = Context(content["sets"], missing, content.get("printed", {}))
    evaluators = EVALUATORS | claim_data.own_evaluators(paper)
    return [
        Verdict(claim, _check(study, claim["check"], context, evaluators))
        for claim in content["claims"]
    ]


def _check(study, check, context, evaluators):
    """Evaluate one check; with `also` (`text` and options that replace its own, or a list of such)
    others beside it.
    """
    if "also" not in check:
        return _evaluate_one(study, check, context, evaluators)
    plain = {name: value for name, value in check.items() if name != "also"}
    finding = _evaluate_one(study, plain, context, evaluators)
    if finding.verdict == NOT_RUN:
        return finding
    text = ""
    for reading in check["also"] if isinstance(check["also"], list) else [check["also"]]:
        other = {name: value for name, value in reading.items() if name != "text"}
        beside = _evaluate_one(study, plain | other, context, evaluators)
        text += f" {reading['text']}: {beside.verdict}"
        text += " as well." if beside.verdict == finding.verdict else f" instead. {beside.numbers}"
    return replace(finding, numbers=finding.numbers + text)


def _evaluate_one(study, check, context, evaluators):
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
    except MissingRows as absent:
        return Finding(NOT_RUN, str(absent))


def _all_of(findings):
    """Join findings: one failure fails, a part that was not run makes the rest partial."""
    ran = [finding for finding in findings if finding.verdict != NOT_RUN]
    if not ran:
        return findings[0]
    verdicts = {finding.verdict for finding in ran}
    verdict = next(name for name in (FAILS, INCONCLUSIVE, HOLDS) if name in verdicts)
    seeds = [finding.seeds for finding in ran if finding.seeds is not None]
    lacking = [part for finding in ran for part in finding.lacking.split("; ")]
    lacking += [finding.numbers for finding in findings if finding.verdict == NOT_RUN]
    return Finding(
        verdict,
        " ".join(
            f"({i + 1}) {finding.verdict}: {finding.numbers}" for i, finding in enumerate(findings)
        ),
        sum(finding.comparisons for finding in ran),
        min(seeds) if seeds else None,
        "; ".join(dict.fromkeys(text for text in lacking if text)),
        pd.concat(
            [f.evidence.assign(part=i + 1) for i, f in enumerate(findings) if len(f.evidence)],
            ignore_index=True,
        )
        if any(len(finding.evidence) for finding in findings)
        else pd.DataFrame(),
    )


# --- which cells are compared ---------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Comparisons found in a panel: labels, matched columns of both sides, and what was expected
    but absent.
    """

    panel: object
    keys: pd.DataFrame
    left: list
    right: list
    scale: list | None
    lacking: str

    @property
    def seeds(self):
        """Fewest seeds that both sides of a comparison share."""
        finite = np.isfinite(self.panel.values)
        shared = [
            np.logical_and(finite[:, a], finite[:, b]).sum(axis=0).min()
            for a, b in zip(self.left, self.right, strict=True)
        ]
        return int(min(shared))


def _pairs(study, check, context):
    """Find the comparisons of a check.

    `left` and `right` list selectors (a method's name, or column values); `over` names the columns
    in which both sides must agree, with the expected values. Data sets that share these columns are
    averaged, over those that both have. With `across` each selector names one cell per combination,
    and the two sides need not be of the same data set.
    """
    sweeps = [check["sweep"]] if isinstance(check["sweep"], str) else list(check["sweep"])
    found = [
        panel
        for panel in (study.panel(sweep, check["metric"]) for sweep in sweeps)
        if len(panel.cells)
    ]
    if not found:
        raise MissingRows(context.why(sweeps))
    panel = concatenate(found)
    panel = area(panel) if check.get("area") else panel.spread()
    over = {
        name: values if values == "any" else context.resolve(values)
        for name, values in check["over"].items()
    }
    panel = panel.take(_allowed(panel.cells, over, check.get("at_least_d", 0)))
    selectors = list(check["left"]), _right_selectors(panel.cells, check)
    lefts, rights = (
        [(_label(s), _positions(panel.cells, s, list(over))) for s in side] for side in selectors
    )
    denominators = _denominators(panel.cells, check.get("relative_to"))
    lines, left, right, scale = [], [], [], []
    for (a, a_cells), (b, b_cells) in product(lefts, rights or [("1", None)]):
        for key, mine in a_cells.items():
            theirs = mine if b_cells is None else b_cells.get(key, {})
            if check.get("across"):
                mine, theirs = _nameless(mine, a), _nameless(theirs, b)
            datasets = [
                name
                for name in mine
                if name in theirs and (denominators is None or name in denominators)
            ]
            if not datasets:
                continue
            lines.append(dict(zip(over, key, strict=True)) | {"left": a, "right": b})
            left.append([mine[name] for name in datasets])
            right.append([theirs[name] for name in datasets])
            scale.append(
                [denominators[name] for name in datasets] if denominators is not None else []
            )
    if not lines:
        raise MissingRows(context.why(sweeps))
    keys = pd.DataFrame(lines)
    lacking = "; ".join(
        filter(
            None, [_lacking(check, over, keys, min(map(len, left))), _unseen(check, panel.cells)]
        )
    )
    return Pairs(panel, keys, left, right, scale if denominators is not None else None, lacking)


def _nameless(positions, selector):
    """Return the only cell under no name, so that it matches one of another data set."""
    if len(positions) > 1:
        raise ValueError(
            f"across: selector {selector!r} matches several data sets, {sorted(positions)}"
        )
    return dict(zip([""], positions.values(), strict=False))


def _right_selectors(cells, check):
    """Return the selectors of the right side; `best_of` splits each into one per combination of
    those columns.
    """
    selectors = list(check.get("right", ()))
    if "best_of" not in check:
        return selectors
    split = []
    for selector in selectors:
        chosen = cells[_matches(cells, selector)]
        if set(check["best_of"]) <= set(cells.columns):
            found = chosen[check["best_of"]].dropna().drop_duplicates()
            split += [_as_mapping(selector) | line for line in found.to_dict("records")]
    return split


def _as_mapping(selector):
    return {"method": selector} if isinstance(selector, str) else dict(selector)


def _matches(cells, selector):
    """Mask of the cells that a selector means; none if a column it names does not exist."""
    mask = np.ones(len(cells), dtype=bool)
    for name, value in _as_mapping(selector).items():
        values = value if isinstance(value, list) else [value]
        mask &= cells[name].isin(values).to_numpy() if name in cells else False
    return mask


def _allowed(cells, over, least_d):
    allowed = (cells["d"] >= least_d).to_numpy()
    for name, values in over.items():
        if name in cells and not isinstance(values, str):
            if name in ("dataset", "epsilon", "n", "d", "k"):
                listed = cells[name].isin(values) | ((name == "epsilon") & cells[name].isna())
                allowed = allowed & listed.to_numpy()
        elif name not in cells:
            raise MissingRows(f"no stored row has the parameter {name}")
    return allowed


def _positions(cells, selector, keys):
    """Map each combination of key values to its cells by data set, for one selector."""
    mask = _matches(cells, selector)
    positions = {}
    chosen = cells[mask]
    for at, line, name in zip(
        chosen.index, chosen[keys].to_numpy(dtype=object), chosen["dataset"], strict=True
    ):
        key = tuple(line)
        inside = positions.setdefault(key, {})
        if name in inside:
            raise ValueError(
                f"selector {selector!r} matches two cells of data set {name!r} at {keys}={key}"
            )
        inside[name] = at
    return positions


def _denominators(cells, selector):
    if selector is None:
        return None
    mask = _matches(cells, selector)
    return dict(zip(cells.loc[mask, "dataset"], cells.index[mask], strict=True))


def _label(selector):
    if isinstance(selector, str):
        return selector
    return ", ".join(
        f"{name}={value}" if name != "method" else str(value) for name, value in selector.items()
    )


def _lacking(check, over, keys, fewest):
    """Say which comparisons, or data sets inside a comparison, the claim asks for and the rows
    lack.
    """
    expected, found = check.get("expected"), len(keys)
    if "best_of" in check:
        found = len(keys[[*over, "left"]].drop_duplicates())
    if expected is None:
        sides = len(check["left"]) * (1 if "best_of" in check else len(check.get("right", "1")))
        expected = np.prod([len(values) for values in over.values()], dtype=int) * sides
    texts = []
    if found < expected:
        gone = []
        for name, values in over.items():
            absent = (
                []
                if isinstance(values, str)
                else [value for value in values if value not in set(keys[name])]
            )
            if absent:
                gone.append(f"{name} {', '.join(map(str, absent))}")
        texts.append(
            f"{found} of {expected} comparisons at hand"
            + (f"; absent: {'; '.join(gone)}" if gone else "")
        )
    each = check.get("datasets_each", 1)
    if fewest < each:
        texts.append(f"only {fewest} of {each} data sets behind some comparisons")
    return "; ".join(texts)


def _unseen(check, cells):
    """Say which listed values of a `best_of` column no stored cell has."""
    texts = []
    for selector, name in product(check.get("right", ()), check.get("best_of", ())):
        listed = _as_mapping(selector).get(name)
        if isinstance(listed, list) and name in cells:
            absent = [str(value) for value in listed if not (cells[name] == value).any()]
            texts += [f"{name} {', '.join(absent)} not stored"] if absent else []
    return "; ".join(texts)


def _scaled(means, at, scale, average):
    """Average of columns over data sets, relative to the columns `scale` of the same data sets
    where these are given.

    Parameters
    ----------
    means : ndarray of shape (n_lines, n_cells)
    at, scale : list of int
        Columns, data set by data set; an empty `scale` divides by nothing.
    average : str
        ``"ratio_of_means"`` or ``"mean_of_ratios"`` (every data set weighs the same, whatever its
        height).

    Returns
    -------
    ndarray of shape (n_lines,)
    """
    if not scale:
        return means[:, at].mean(axis=1)
    if average == "mean_of_ratios":
        return (means[:, at] / means[:, scale]).mean(axis=1)
    if average == "ratio_of_means":
        return means[:, at].mean(axis=1) / means[:, scale].mean(axis=1)
    raise ValueError(f"average={average!r} is unknown; known: 'ratio_of_means', 'mean_of_ratios'")


# --- orderings: paired t tests --------------------------------------------------------------------


def ordering(study, check, context):
    """Left at most right (at least, with `higher_is_better`), by paired one-sided t tests; see the
    module's rules.

    Options: `strict`; `ties_suffice` (the claim is that there is no difference in favor of the
    right side); `tolerated` with `within`: so many values of one key may be violated; `across`: the
    sides name their data sets.
    """
    return _order(_pairs(study, check, context), check)


def improving(study, check, context):
    """Every value of `along` is at least as good as the one before, as `ordering` judges it."""
    pairs = _pairs(study, check, context)
    along, keys = check["along"], pairs.keys
    groups = [name for name in keys.columns if name not in (along, "right")]
    lines, left, right = [], [], []
    for group, inside in keys.groupby(groups, sort=False):
        at = inside.index.to_numpy()[np.argsort(inside[along].to_numpy(dtype=float))]
        for before, after in pairwise(at):
            named = dict(zip(groups, group, strict=True))
            place = {along: f"{keys[along][before]} to {keys[along][after]}"}
            lines.append({name: named[name] for name in groups if name != "left"} | place)
            lines[-1] |= {"left": named["left"], "right": "the one before"}
            left.append(pairs.left[after])
            right.append(pairs.left[before])
    if not lines:
        raise MissingRows(f"only one value of {along} is stored")
    # Steps are counted here, not values.
    asked = check["steps"]
    lacking = f"{len(lines)} of {asked} steps at hand" if len(lines) < asked else ""
    return _order(
        replace(pairs, keys=pd.DataFrame(lines), left=left, right=right, lacking=lacking), check
    )


def _order(pairs, check):
    """Judge pairs of columns by paired tests."""
    values = pairs.panel.values
    sign = -1.0 if check.get("higher_is_better") else 1.0
    average = check.get("average", "ratio_of_means")
    means = column_statistics(values)[0][None]
    # The denominators are data of their own and the same on both sides; here they only set the
    # scale.
    weights = [_weights(means[0, at], average) for at in pairs.scale or [[]] * len(pairs.left)]
    differences = np.column_stack(
        [
            ((values[:, a] - values[:, b]) * weight).mean(axis=1) * sign
            for a, b, weight in zip(pairs.left, pairs.right, weights, strict=True)
        ]
    )
    tests = paired_tests(differences)
    left, right = (
        _sides(means, side, pairs.scale, average)[0] for side in (pairs.left, pairs.right)
    )
    violation, support = holm(tests["p_greater"]), holm(tests["p_less"])
    outcome = np.select(
        [tests["seeds"] < MIN_SEEDS, violation <= LEVEL, support <= LEVEL],
        ["few seeds", "violated", "kept"],
        "tied",
    )
    evidence = pairs.keys.assign(
        left_mean=left,
        right_mean=right,
        difference=sign * tests["difference"],
        half_width=tests["half_width"],
        seeds=tests["seeds"],
        p_violated=violation,
        p_kept=support,
        outcome=outcome,
    )
    return _judge_ordering(evidence, tests["difference"].to_numpy(), check, pairs)


def _weights(denominators, average):
    """What the difference on each data set is multiplied by before the mean over data sets is
    taken.
    """
    if not denominators.size:
        return 1.0
    return 1 / (denominators if average == "mean_of_ratios" else denominators.mean())


def _judge_ordering(evidence, toward_violation, check, pairs):
    counts = {
        name: int((evidence["outcome"] == name).sum())
        for name in ("kept", "tied", "violated", "few seeds")
    }
    enough = evidence["outcome"] != "few seeds"
    seeds = (
        int(evidence.loc[enough, "seeds"].min()) if enough.any() else int(evidence["seeds"].max())
    )
    broken = counts["violated"] > 0
    leaning = (evidence["outcome"] == "tied").to_numpy() & (toward_violation > 0)
    if "within" in check and broken:
        violated = evidence[evidence["outcome"] == "violated"]
        others = [name for name in check["over"] if name != check["within"]]
        broken = violated.groupby(others)[check["within"]].nunique().max() > check["tolerated"]
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
    lacking = pairs.lacking
    if counts["few seeds"] and enough.any():
        few = f"{counts['few seeds']} comparisons have fewer than {MIN_SEEDS} paired seeds"
        lacking = "; ".join(filter(None, [lacking, few]))
    numbers = _ordering_numbers(evidence, toward_violation, leaning, counts, check)
    return Finding(verdict, numbers + too_few(seeds), len(evidence), seeds, lacking, evidence)


def _ordering_numbers(evidence, toward_violation, leaning, counts, check):
    """Say how many comparisons are kept, which is violated most, and how much a tie could hide."""
    text = f"{counts['kept']} kept, {counts['tied']} tied, {counts['violated']} violated of {len(evidence)} comparisons."
    right = np.abs(evidence["right_mean"].to_numpy())
    relative = toward_violation / right
    violated, tied = ((evidence["outcome"] == name).to_numpy() for name in ("violated", "tied"))
    if violated.any():
        worst = np.where(violated, relative, -np.inf).argmax()
        text += f" Violated most: {_where(evidence, worst)} by {percent(relative[worst])}"
        text += f"; violated in: {_spread(evidence[violated], check)}." if check["over"] else "."
    elif leaning.any():
        worst = np.where(leaning, relative, -np.inf).argmax()
        text += f" {leaning.sum()} ties lean the other way, most {_where(evidence, worst)} by {percent(relative[worst])}."
    if tied.any():
        widest = (evidence["half_width"].to_numpy()[tied] / right[tied]).max()
        text += f" Widest interval of a tied difference: ±{percent(widest)} of the right-hand mean."
    return text


def _spread(violated, check):
    """Name what is violated by its first key, with counts."""
    first = next(iter(check["over"]))
    return ", ".join(
        f"{value} ({count})" for value, count in violated[first].value_counts(sort=False).items()
    )


def _where(evidence, position):
    line = evidence.iloc[position]
    names = evidence.columns[: list(evidence.columns).index("left")]
    where = ", ".join(f"{name} {line[name]}" for name in names)
    return f"{where} ({line['left']} against {line['right']})".strip()


# --- predicates on means: paired bootstrap --------------------------------------------------------


def _ratios(study, check, context):
    """Resampled ratios left / right per comparison.

    Without `right` the left side itself (its mean relative to `relative_to`); with `best_of` the
    smallest right-hand side divides, chosen anew in every resample. ``by: difference`` subtracts
    the right side instead; `per` divides the left side by a column of its cells, such as ``k``.

    Returns
    -------
    tuple
        Comparisons (DataFrame), ndarray of shape (repeats + 1, comparisons), seeds, what is
        lacking.
    """
    pairs = _pairs(study, check, context)
    weights = resampling_weights(len(pairs.panel.seeds))
    means = resampled_means(pairs.panel, weights)
    average = check.get("average", "ratio_of_means")
    left, right = (_sides(means, side, pairs.scale, average) for side in (pairs.left, pairs.right))
    keys = pairs.keys
    if "per" in check:
        column = pairs.panel.cells[check["per"]].to_numpy(dtype=float)
        left = left / [column[at].mean() for at in pairs.left]
    if check.get("by", "ratio") == "difference":
        return keys, left - right, pairs.seeds, pairs.lacking
    if "right" not in check:
        right = np.ones_like(left)
    if "best_of" in check:
        names = [*check["over"], "left"]
        groups = list(keys.groupby(names, sort=False).indices.values())
        left = np.column_stack([left[:, at[0]] for at in groups])
        right = np.column_stack([right[:, at].min(axis=1) for at in groups])
        keys = (
            keys.iloc[[at[0] for at in groups]].assign(right="best of all").reset_index(drop=True)
        )
    return keys, left / right, pairs.seeds, pairs.lacking


def _sides(means, side, scale, average):
    """One column per comparison: `_scaled` of every line of means."""
    scale = scale or [[]] * len(side)
    return np.column_stack(
        [_scaled(means, at, by, average) for at, by in zip(side, scale, strict=True)]
    )


def bound(study, check, context):
    """Check the ratio left / right against `at_most`, `at_least`, `below`, `above`, for `all` or
    `some` comparisons.

    See `_ratios` for differences and values.
    """
    word = "Difference" if check.get("by") == "difference" else "Ratio"
    if not {"right", "relative_to", "per"} & set(check):
        word = "Value"
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    truth = within(ratios, check)
    low, high = percentile_interval(ratios)
    evidence = keys.assign(**{word.lower(): ratios[0]}, low=low, high=high)
    numbers = f"{word} between {_place(keys, ratios[0], np.argmin)} and {_place(keys, ratios[0], np.argmax)}"
    numbers += f" (asked: {_rule(check)});" if len(keys) > 1 else ""
    if len(keys) == 1:
        numbers = (
            f"{word} {ratios[0, 0]:.4g} [{low[0]:.4g}, {high[0]:.4g}] (asked: {_rule(check)});"
        )
    return decide(truth, keys, seeds, numbers, lacking, evidence, check.get("quantifier", "all"))


def _rule(check):
    signs = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}
    return " and ".join(f"{sign} {check[name]:g}" for name, sign in signs.items() if name in check)


def _place(keys, values, pick):
    at = int(pick(values))
    names = [name for name in keys.columns if name not in ("left", "right")]
    where = ", ".join(f"{name} {keys.iloc[at][name]}" for name in names)
    return f"{values[at]:.4g} ({where}{', ' if where else ''}{keys.iloc[at]['left']})"


def trend(study, check, context):
    """Check that the ratio left / right rises or falls along a key.

    Per group of the other keys: Spearman's correlation in `direction` above `above` or at least
    `at_least`, and with `ends` the last value beyond the first. `quantifier` over the groups: all
    (default) or most.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    along = check["along"]
    sign = 1.0 if check["direction"] == "rising" else -1.0
    names = [name for name in keys.columns if name not in (along, "right")]
    truth, lines = [], []
    for group, inside in keys.groupby(names, sort=False):
        at = inside.index.to_numpy()
        at = at[np.argsort(keys[along].to_numpy()[at])]
        if at.size < 3:
            lacking = "; ".join(
                filter(
                    None,
                    [lacking, f"{_plain_group(names, group)}: only {at.size} values of {along}"],
                )
            )
            continue
        values = ratios[:, at]
        correlation = sign * rank_correlation(keys[along].to_numpy(dtype=float)[at], values)
        true = within(correlation, check)
        if check.get("ends"):
            true &= sign * (values[:, -1] - values[:, 0]) > 0
        truth.append(true)
        lines.append(
            dict(zip(names, group, strict=True))
            | {
                "correlation": sign * correlation[0],
                "first": values[0, 0],
                "last": values[0, -1],
                "values": at.size,
            }
        )
    if not truth:
        raise MissingRows(f"a trend along {along} needs at least three stored values of it")
    evidence = pd.DataFrame(lines)
    direct = sign * evidence["correlation"].to_numpy()
    numbers = (
        f"Spearman along {along} between {sign * direct.min():.3g} and {sign * direct.max():.3g}"
    )
    if len(evidence) == 1:
        numbers = f"Spearman along {along} {evidence['correlation'][0]:.3g}"
    sharp = "at_least" not in check
    asked = sign * check["above" if sharp else "at_least"]
    numbers += f" (asked: {('>' if sharp else '≥') if sign > 0 else ('<' if sharp else '≤')} {asked + 0:g});"
    numbers += f" mean ratio from {evidence['first'].mean():.4g} at the first to {evidence['last'].mean():.4g} at the last;"
    return decide(
        np.column_stack(truth),
        evidence,
        seeds,
        numbers,
        lacking,
        evidence,
        check.get("quantifier", "all"),
    )


def _plain_group(names, group):
    return ", ".join(f"{name} {value}" for name, value in zip(names, group, strict=True))


def ends(study, check, context):
    """Check that the ratio left / right, averaged over the other keys, is higher or lower at the
    end of `along`.

    Only groups that have both ends count. `first` and `last` name the ends; the outermost stored
    values stand in for them where they are absent, and the verdict is then partial.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    along = check["along"]
    values = keys[along].to_numpy(dtype=float)
    first, last = values.min(), values.max()
    if first == last:
        raise MissingRows(f"only one value of {along} is stored")
    others = [name for name in check["over"] if name != along]
    groups = (
        keys[others].astype(str).agg("|".join, axis=1)
        if others
        else pd.Series("", index=keys.index)
    )
    both = set(groups[values == first]) & set(groups[values == last])
    if not both:
        raise MissingRows(f"no group has both {along} = {first:g} and {along} = {last:g}")
    inside = groups.isin(both).to_numpy()
    low = ratios[:, inside & (values == first)].mean(axis=1)
    high = ratios[:, inside & (values == last)].mean(axis=1)
    sign = 1.0 if check["direction"] == "rising" else -1.0
    if (first, last) != (check["first"], check["last"]):
        lacking = "; ".join(filter(None, [lacking, f"ends are {along} = {first:g} and {last:g}"]))
    evidence = pd.DataFrame({along: [first, last], "ratio": [low[0], high[0]], "groups": len(both)})
    numbers = (
        f"Mean ratio {low[0]:.4g} at {along} = {first:g}, {high[0]:.4g} at {along} = {last:g};"
    )
    finding = decide(
        (sign * (high - low) > 0)[:, None],
        evidence.iloc[:1],
        seeds,
        numbers,
        lacking,
        evidence.iloc[:1],
    )
    return replace(finding, evidence=evidence)


def largest_gain(study, check, context):
    """Check that the largest reduction 1 - left / right over all comparisons lies in [`at_least`,
    `at_most`].
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    gains = 1 - ratios
    largest = gains.max(axis=1)
    (low,), (high,) = percentile_interval(largest[:, None])
    evidence = keys.assign(gain=gains[0]).sort_values("gain", ascending=False, ignore_index=True)
    at = int(gains[0].argmax())
    where = ", ".join(f"{name} {keys.iloc[at][name]}" for name in check["over"])
    interval = f"[{percent(low)}, {percent(high)}]"
    numbers = (
        f"Largest reduction {percent(largest[0])} {interval} at {where} (asked: {_rule(check)});"
    )
    one = evidence.iloc[:1]
    found = decide(within(largest, check)[:, None], one, seeds, numbers, lacking, one)
    if lacking and found.verdict == FAILS and largest[0] < check["at_least"]:
        found = replace(
            found,
            verdict=INCONCLUSIVE,
            numbers=f"{found.numbers} The absent part may hold a larger one.",
        )
    return replace(found, evidence=evidence)


def best_value(study, check, context):
    """Check that the key value with the smallest ratio left / right lies in [`at_least`,
    `at_most`].

    The largest with `higher_is_better`; without a right side the value itself.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    along = keys[check["along"]].to_numpy(dtype=float)
    largest = check.get("higher_is_better", False)
    at = ratios.argmax(axis=1) if largest else ratios.argmin(axis=1)
    best = along[at]
    evidence = keys.assign(
        ratio=ratios[0], best_in_resamples=[(best[1:] == value).mean() for value in along]
    )
    word = "ratio" if "right" in check or "relative_to" in check else "value"
    numbers = f"{'Largest' if largest else 'Smallest'} at {check['along']} = {best[0]:g} "
    numbers += f"({word} {ratios[0, at[0]]:.4g}; asked: {_rule(check)});"
    one = evidence.iloc[:1]
    return replace(
        decide(within(best, check)[:, None], one, seeds, numbers, lacking, one), evidence=evidence
    )


def crossing(study, check, context):
    """Check that the first left method comes within `level` of the right one no later than the
    others do.

    `left` lists the method in question first, then its rivals; for each `over` group but epsilon.
    Other `levels` are reported beside the verdict.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    groups = [name for name in check["over"] if name != "epsilon"]
    reached = {
        level: _first_epsilon(keys, ratios, level, groups)
        for level in (check["level"], *check["other_levels"])
    }
    mine = _label(check["left"][0])
    truth, lines, others = [], [], {}
    for level, found in reached.items():
        members = sorted({group for group, _ in found})
        earliest = [
            found[group, mine]
            <= np.min(
                [at for (name, left), at in found.items() if name == group and left != mine], axis=0
            )
            for group in members
            if (group, mine) in found
            and any(name == group and left != mine for name, left in found)
        ]
        others[level] = sum(bool(true[0]) for true in earliest), len(earliest)
        if level == check["level"]:
            truth = earliest
            lines = [
                dict(zip(groups, group, strict=True))
                | {left: found[name, left][0] for name, left in found if name == group}
                for group in members
            ]
    if not truth:
        raise MissingRows(f"no stored group has both {mine} and one of its rivals")
    evidence = pd.DataFrame(lines)
    numbers = "; ".join(
        f"within {percent(level)}: first or level in {count} of {total}"
        for level, (count, total) in others.items()
    )
    return decide(
        np.column_stack(truth), evidence, seeds, numbers.capitalize() + ";", lacking, evidence
    )


def _first_epsilon(keys, ratios, level, groups):
    """Smallest epsilon at which a ratio is at most 1 + level, per group and method, under each
    resample.
    """
    found = {}
    for name, at in keys.groupby([*groups, "left"], sort=False).indices.items():
        at = at[np.argsort(keys["epsilon"].to_numpy(dtype=float)[at])]
        epsilon = keys["epsilon"].to_numpy(dtype=float)[at]
        near = ratios[:, at] <= 1 + level
        found[tuple(name[:-1]), name[-1]] = np.where(
            near.any(axis=1), epsilon[near.argmax(axis=1)], np.inf
        )
    return found


def contrast(study, check, context):
    """Check that the smallest reduction 1 - left / right inside `group` is above the median of all
    comparisons.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    gains = 1 - ratios
    inside = keys["dataset"].isin(check["group"]).to_numpy()
    if not inside.any():
        raise MissingRows(f"no stored rows of {', '.join(check['group'])}")
    if inside.sum() < len(check["group"]):
        lacking = "; ".join(
            filter(None, [lacking, f"of {', '.join(check['group'])} only {inside.sum()} at hand"])
        )
    smallest, median = gains[:, inside].min(axis=1), np.median(gains, axis=1)
    evidence = keys.assign(gain=gains[0], in_group=inside).sort_values(
        "gain", ascending=False, ignore_index=True
    )
    numbers = f"Smallest reduction in the group {percent(smallest[0])}, median of all {percent(median[0])};"
    one = evidence.iloc[:1]
    return replace(
        decide((smallest > median)[:, None], one, seeds, numbers, lacking, one), evidence=evidence
    )


def dispersion(study, check, context):
    """Check the standard deviation of the left side over its mean against `above`, `at_most`, ..."""
    pairs = _pairs(study, check, context)
    weights = resampling_weights(len(pairs.panel.seeds))
    panel = pairs.panel
    mean = _sides(resampled_means(panel, weights), pairs.left, None, "ratio_of_means")
    square = _sides(
        resampled_means(replace(panel, values=panel.values**2), weights),
        pairs.left,
        None,
        "ratio_of_means",
    )
    seeds = pairs.seeds
    deviation = np.sqrt(np.maximum(square - mean**2, 0) * seeds / max(seeds - 1, 1))
    relative = deviation / np.abs(mean)
    evidence = pairs.keys.assign(mean=mean[0], deviation=deviation[0], relative=relative[0])
    numbers = f"Deviation over mean between {_place(pairs.keys, relative[0], np.argmin)} and "
    numbers += f"{_place(pairs.keys, relative[0], np.argmax)} (asked: {_rule(check)});"
    return decide(within(relative, check), pairs.keys, seeds, numbers, pairs.lacking, evidence)


def slope(study, check, context):
    """Check the slope of log(left) over log(`along`) in every group of the other keys against its
    bounds.

    Inconclusive where a group is not stored up to `reach`.
    """
    keys, values, seeds, lacking = _ratios(study, check, context)
    along = check["along"]
    names = [name for name in keys.columns if name not in (along, "right")]
    slopes, lines = [], []
    for group, inside in keys.groupby(names, sort=False):
        x = np.log(inside[along].to_numpy(dtype=float))
        if x.size < 3:
            continue
        centerd = x - x.mean()
        slopes.append(np.log(values[:, inside.index]) @ centerd / (centerd @ centerd))
        ends = {"from": np.exp(x.min()), "to": np.exp(x.max()), "values": x.size}
        lines.append(dict(zip(names, group, strict=True)) | ends)
    if not slopes:
        raise MissingRows(f"a slope along {along} needs at least three stored values of it")
    slopes = np.column_stack(slopes)
    low, high = percentile_interval(slopes)
    evidence = pd.DataFrame(lines).assign(slope=slopes[0], low=low, high=high)
    shown = "; ".join(
        f"{line.slope:.3g} [{line.low:.3g}, {line.high:.3g}]" for line in evidence.itertuples()
    )
    numbers = (
        f"Slope over {along} from {evidence['from'].min():g} to {evidence['to'].max():g}: {shown} "
    )
    numbers += f"(asked: {_rule(check)});"
    finding = decide(within(slopes, check), evidence, seeds, numbers, lacking, evidence)
    if evidence["to"].min() < check["reach"] * (1 - 1e-9):
        small = (
            f"{finding.numbers} Sizes up to {along} = {check['reach']:g} are needed for a verdict."
        )
        return replace(finding, verdict=INCONCLUSIVE, numbers=small)
    return finding


def longer_than(study, check, context):
    """Check that `runs` fits take more CPU seconds than `seconds`; a recorded time limit below that
    leaves it open.
    """
    for sweep in check["sweeps"]:
        panel = study.panel(sweep, "fit_cpu_seconds")
        cells = panel.cells
        if len(cells):
            panel = panel.take(
                (
                    (cells["method"] == check["method"]) & (cells["dataset"] == check["dataset"])
                ).to_numpy()
            )
        if len(panel.cells):
            total = (
                check["runs"] * resampled_means(panel, resampling_weights(len(panel.seeds)))[:, :1]
            )
            evidence = pd.DataFrame({"sweep": [sweep], "seconds_of_one": total[0] / check["runs"]})
            numbers = f"{check['runs']} fits take {total[0, 0]:.4g} s of CPU time (asked: more than {check['seconds']:g} s);"
            return decide(
                total > check["seconds"], evidence, len(panel.seeds), numbers, "", evidence
            )
    gaps = context.missing
    mine = gaps[gaps["sweep"].isin(check["sweeps"]) & (gaps["method"] == check["method"])]
    mine = mine[
        (mine["dataset"] == check["dataset"]) & mine["reason"].str.contains("time limit|time_limit")
    ]
    if not len(mine):
        raise MissingRows(context.why(check["sweeps"]))
    return Finding(
        INCONCLUSIVE,
        f"Stopped before the end, so only a lower bound is known: {mine['reason'].iloc[0]}",
        1,
    )


# --- counts and printed numbers -------------------------------------------------------------------


def sizes(study, check, context):
    """Compare N, d and k of the stored data sets with the printed ones (`expected`: data set to [N,
    d, k]).

    `sweep` restricts the look to one sweep, where others run the data sets with another k.
    """
    cells = study.cells[study.cells["sweep"] == check["sweep"]] if "sweep" in check else study.cells
    stored = cells.drop_duplicates("dataset").set_index("dataset")[["n", "d", "k"]]
    lines = [
        {
            "dataset": name,
            "printed": str(tuple(size)),
            "stored": str(tuple(int(v) for v in stored.loc[name])),
            "agrees": tuple(stored.loc[name]) == tuple(size),
        }
        for name, size in check["expected"].items()
        if name in stored.index
    ]
    absent = [name for name in check["expected"] if name not in stored.index]
    lacking = f"no stored rows of {', '.join(absent)}" if absent else ""
    return exact(pd.DataFrame(lines), lacking or "Compared: N, d, k.", lacking)


def grid_count(study, check, context):
    """Count the combinations of `keys` and the data sets of a sweep against `combinations` and
    `datasets`.

    A thinned profile plans fewer; that says nothing about the generator, so it is inconclusive.
    """
    cells = study.cells[study.cells["sweep"] == check["sweep"]]
    planned = set(cells["dataset"]) | set(
        context.missing.loc[context.missing["sweep"] == check["sweep"], "dataset"]
    )
    if not planned:
        raise MissingRows(context.why([check["sweep"]]))
    combinations = len(cells[check["keys"]].drop_duplicates())
    numbers = f"{combinations} combinations stored, {len(planned)} data sets planned"
    numbers += f" (printed: {check['combinations']} and {check['datasets']})."
    if len(planned) < check["datasets"]:
        return Finding(INCONCLUSIVE, numbers, 1, None, "the profile plans a part of the grid only")
    complete = combinations == check["combinations"] and len(planned) == check["datasets"]
    part = combinations < check["combinations"] and len(planned) == check["datasets"]
    lacking = (
        f"{check['combinations'] - combinations} combinations without stored rows" if part else ""
    )
    return Finding(
        HOLDS if complete else INCONCLUSIVE if part else FAILS, numbers, 1, None, lacking
    )


def every_row(study, check, context):
    """Check a metric in every stored row of a method against bounds; `sweeps` restricts the look."""
    rows = study.rows_with([check["metric"]])
    rows = rows[rows["method"] == check["method"]]
    if "sweeps" in check:
        rows = rows[rows["sweep"].isin(check["sweeps"])]
    if not len(rows):
        raise MissingRows(f"no stored row of {check['method']} has {check['metric']}")
    extremes = (
        rows.groupby(["sweep", "dataset"])[check["metric"]]
        .agg(["min", "max", "size"])
        .reset_index()
    )
    extremes["agrees"] = within(extremes["min"].to_numpy(), check) & within(
        extremes["max"].to_numpy(), check
    )
    values = rows[check["metric"]]
    numbers = f"Between {values.min():g} and {values.max():g} in {len(rows)} rows (asked: {_rule(check)})."
    return exact(extremes, numbers)


def printed_values(study, check, context):
    """Check that every printed number that can be compared is reproduced within sampling error.

    Holds if every one is; fails if more lie outside than two standard errors let by chance
    (binomial test at the level of all claims); else inconclusive.
    """
    table = reported.compare(study, context.printed[check["numbers"]])
    judged = table[table["verdict"].isin(reported.JUDGED)]
    if not len(judged):
        reasons = ", ".join(
            f"{reason} ({count})" for reason, count in table["verdict"].value_counts().items()
        )
        raise MissingRows(f"none of {len(table)} printed numbers can be judged: {reasons}")
    counts = judged["verdict"].value_counts().reindex(reported.JUDGED, fill_value=0)
    outside = len(judged) - counts[reported.WITHIN]
    # Two-sided chance beyond two standard errors; half a printed digit of slack makes it smaller.
    by_chance = stats.binom.sf(
        outside - 1, len(judged), 2 * stats.norm.sf(reported.STANDARD_ERRORS)
    )
    verdict = HOLDS if not outside else FAILS if by_chance <= LEVEL else INCONCLUSIVE
    near = sum(reported.near(line) for line in judged.to_dict("records"))
    within_error, better, worse = counts
    counted = f"{within_error} are within sampling error, {better} better here and {worse} worse"
    numbers = f"Of {len(judged)} printed numbers that can be compared {counted}; {near} lie within "
    numbers += f"{percent(reported.LOOSE)} of the printed mean."
    others = table["verdict"].value_counts()
    lacking = "; ".join(
        f"{others[name]} numbers {name}" for name in others.index if name not in reported.JUDGED
    )
    order = {reported.WORSE: 0, reported.BETTER: 1, reported.WITHIN: 2}
    shown = judged.sort_values("verdict", key=lambda column: column.map(order), ignore_index=True)
    columns = [
        "dataset",
        "method",
        "metric",
        "mean",
        "deviation",
        "seeds",
        "printed",
        "margin",
        "ratio",
        "verdict",
    ]
    return Finding(
        verdict,
        numbers,
        len(judged),
        int(judged["seeds"].min()),
        lacking,
        shown[[*columns, "note"]],
    )


def proved_by(study: Study, check: Mapping, context: Context) -> Finding:
    """Give the verdict of a claim that no row bears on: a test proves it, or its opposite."""
    verdict = check["verdict"]
    if verdict not in (HOLDS, FAILS):
        raise ValueError(f"verdict={verdict!r} of a proved claim must be {HOLDS!r} or {FAILS!r}")
    what = "Follows" if verdict == HOLDS else "Is refuted"
    return Finding(verdict, f"{what} without stored rows: {check['test']} asserts it.", 1)


def not_run(study, check, context):
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
    "printed_values": printed_values,
    "contrast": contrast,
    "sizes": sizes,
    "grid_count": grid_count,
    "not_run": not_run,
    "proved_by": proved_by,
} | hyperparameters.EVALUATORS


OVERVIEW = [
    "id", "section", "statement", "kind", "basis", "verdict", "partial", "comparisons", "seeds", "numbers", "lacking",
    "reported",
]  # fmt: skip


def overview(verdicts):
    """One line per claim, for the verdict table and as CSV.

    Returns
    -------
    DataFrame
        `id`, `section`, `statement`, `kind`, `basis`, `verdict`, `partial`, `comparisons`, `seeds`,
        `numbers`, `lacking`, `reported`.
    """
    return pd.DataFrame(
        [
            {
                "id": verdict.claim["id"],
                "section": verdict.claim["section"],
                "statement": verdict.claim["statement"],
                "kind": verdict.claim["kind"],
                "basis": verdict.claim["basis"],
                "verdict": verdict.finding.verdict,
                "partial": verdict.partial,
                "comparisons": verdict.finding.comparisons,
                "seeds": verdict.finding.seeds,
                "numbers": verdict.finding.numbers,
                "lacking": verdict.finding.lacking,
                "reported": verdict.claim.get("reported", ""),
            }
            for verdict in verdicts
        ],
        columns=OVERVIEW,
    )
