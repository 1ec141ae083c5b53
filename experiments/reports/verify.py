"""Run what a claim or a figure rests on again, and compare: ``pkm verify NAME``.

    pkm verify fastlloyd/real-best-private
    pkm verify dpm/table1 profile=smoke results=results jobs=2

NAME is the id of a claim, or a paper and a figure's name. The stored cells that it needs are run
again, into a temporary folder. Further words are keys of `pkm reproduce` (profile, results, data,
jobs; the profile is quick by default).

The exit code is 0 if stored and fresh rows agree bit for bit (running times left out), 1 if they do
not, and 2 if the request was refused.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from omegaconf import DictConfig
from rich.console import Console

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import Claim, papers_with_claims, read_claims
from pkm.analysis.claims.findings import NOT_RUN
from pkm.analysis.figures.figure import FigureSpec, read_figures
from pkm.analysis.render.draw import draw
from pkm.analysis.tables.study import Study
from pkm.experiments.backends.backends import checked_backend, run_cells
from pkm.experiments.cell.cell import Cell
from pkm.experiments.commands.composition import load
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import consoles, duration, exit_code, parsed_words
from pkm.experiments.plan.estimate import estimator, wall_seconds
from pkm.experiments.plan.plan import Plan, make_plan
from pkm.experiments.store.cell_tables import TIMES
from pkm.experiments.store.store import Store
from pkm.names import suggestion
from pkm.schema import names

#: What two runs of one cell have in common.
REPEATED = [
    *(name for name in names("identity", "privacy", "setting", "metric") if name not in TIMES),
    "clipped",
    "references",
    "centers",
    "data",
]
#: How many cells that differ are named.
LINES = 20


@dataclass(frozen=True)
class Target:
    """A claim or a figure.

    Parameters
    ----------
    name : str
        As on the command line.
    claim : Claim or None
    figure : FigureSpec or None
        Where `claim` is None.
    """

    name: str
    claim: Claim | None
    figure: FigureSpec | None = None

    @property
    def paper(self) -> str:
        """Name of the paper."""
        return self.name.partition("/")[0]

    @property
    def words(self) -> set[str]:
        """Every word of its entry, and of the named sets in it."""
        declared = self.figure if self.claim is None else self.claim.check
        found = set(words_in(declared if isinstance(declared, dict) else vars(declared)))
        sets = read_claims(self.paper)["sets"]
        return found.union(*(words_in(sets[name]) for name in found & set(sets)))

    def evaluate(self, rows: pd.DataFrame, missing: pd.DataFrame) -> "Evaluation":
        """Evaluate the claim, or compute the numbers of the figure."""
        study = Study(rows)
        if self.claim is None:
            return Evaluation("", draw(study, self.figure).table)
        study, context = verdicts.prepare(study, self.paper, missing)
        finding = verdicts.evaluate_check(study, self.claim.check, context)
        return Evaluation(finding.verdict, finding.evidence, finding.numbers)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What rows say: a verdict (none for a figure), the numbers behind it, and these in words."""

    verdict: str
    table: pd.DataFrame
    numbers: str = ""

    def equals(self, other: "Evaluation") -> bool:
        """Tell whether all of it is equal."""
        texts = (self.verdict, self.numbers) == (other.verdict, other.numbers)
        return texts and self.table.equals(other.table)


def find(name: str) -> Target:
    """Find a claim or a figure by its name.

    Raises
    ------
    ValueError
        If there is none; the nearest known name is in the message.
    """
    paper, separator, _ = name.partition("/")
    if not separator:
        raise ValueError(
            f"name={name!r} is not allowed: name must be PAPER/CLAIM or PAPER/FIGURE, such as "
            "fastlloyd/figure8"
        )
    if paper not in papers_with_claims():
        raise ValueError(f"paper={paper!r} is unknown{suggestion(paper, papers_with_claims())}")
    targets = {
        f"{paper}/{spec.name}": Target(f"{paper}/{spec.name}", None, spec)
        for spec in read_figures(paper)
    }
    targets |= {claim.id: Target(claim.id, claim) for claim in read_claims(paper)["claims"]}
    if name not in targets:
        raise ValueError(f"no claim or figure is called {name!r}{suggestion(name, targets)}")
    return targets[name]


def words_in(value: object) -> Iterator[str]:
    """Iterate over the words in the texts of nested containers, keys included.

    Examples
    --------
    >>> sorted(words_in({"left": ["dpm"], "where": "method == 'k-means'"}))
    ['dpm', 'k-means', 'left', 'method', 'where']
    """
    if isinstance(value, str):
        yield from re.findall(r"[\w.-]+", value)
    elif isinstance(value, dict):
        yield from words_in([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from words_in(item)


def needed(plan: Plan, target: Target, rows: pd.DataFrame, missing: pd.DataFrame) -> Plan | None:
    """Return the part of a plan that a claim or figure rests on.

    Parameters
    ----------
    plan : Plan
        The cells that are stored.
    target : Target
    rows, missing : DataFrame
        Stored rows of the plan, and what it lacks.

    Returns
    -------
    Plan or None
        The cells of the sweeps, methods and data sets that its entry names, if all cells say
        the same as these; else of more of them, at last all. None if they say nothing.
    """
    words = target.words
    complete = target.evaluate(rows, missing)
    if complete.verdict == NOT_RUN or not (complete.verdict or len(complete.table)):
        return None
    for levels in (("sweep", "method", "dataset"), ("sweep", "method"), ("sweep",)):
        entries = plan.entries
        for level in levels:
            named = [entry for entry in entries if facts_of(entry)[level] in words]
            # A level of which nothing is named is needed as a whole.
            entries = tuple(named) or entries
        keys = {(sweep, cell.key) for sweep, cell in entries}
        pairs = zip(rows["sweep"], rows["cell"], strict=True)
        part = rows[[pair in keys for pair in pairs]]
        if target.evaluate(part, missing).equals(complete):
            return replace(plan, entries=entries)
    return plan


def facts_of(entry: tuple[str, Cell]) -> dict[str, str]:
    """Return the names of an entry of a plan."""
    sweep, cell = entry
    return {"sweep": sweep, "method": cell.method, "dataset": cell.dataset_name}


def differing_columns(stored: pd.DataFrame, fresh: pd.DataFrame) -> dict[str, list[str]]:
    """Compare the rows of cells bit for bit, running times left out.

    Returns
    -------
    dict of str to list of str
        Key of each cell that differs to the columns in which it does; none of them where a row is
        missing.
    """
    of_fresh = dict(list(fresh.groupby("cell"))) if len(fresh) else {}
    differing = {}
    for key, rows in stored.groupby("cell", sort=False):
        again = of_fresh.get(key)
        if again is None or again["seed"].tolist() != rows["seed"].tolist():
            differing[key] = []
            continue
        columns = [name for name in REPEATED if texts_of(rows, name) != texts_of(again, name)]
        if columns:
            differing[key] = columns
    return differing


def texts_of(rows: pd.DataFrame, column: str) -> list[str]:
    """Write the values of a column so that those with other bits differ; NaN is one value."""
    return [repr(value) for value in rows[column].tolist()] if column in rows else []


def verify(target: Target, config: DictConfig, console: Console) -> int:
    """Run the cells of a claim or figure again, compare, and print what was found.

    Returns
    -------
    int
        0 if all rows are equal, else 1.

    Raises
    ------
    FileNotFoundError
        If nothing is stored that it needs.
    """
    plan = make_plan(config.paper, config.profile, mirror=config.data)
    store = Store(config.results)
    missing = plan.missing(store)
    is_stored = store.readable([cell.key for cell in plan.cells])
    plan = replace(
        plan, entries=tuple(entry for entry in plan.entries if entry[1].key in is_stored)
    )
    profile = config.profile.name
    if not plan.entries:
        raise FileNotFoundError(
            f"results={config.results!r} holds no cell of {plan.paper} ({profile}) of this code: "
            f"run pkm reproduce paper={plan.paper} profile={profile} first"
        )
    part = needed(plan, target, plan.rows(store), missing)
    if part is None:
        raise FileNotFoundError(
            f"results={config.results!r} lacks the cells of {target.name} ({profile}): "
            f"run pkm reproduce paper={plan.paper} profile={profile} first"
        )
    stored = part.rows(store)

    backend = checked_backend(Backend(**config.backend))
    estimate = estimator(store, backend)
    costs = {cell.key: estimate(cell)[0] for cell in part.cells}
    about = duration(wall_seconds(costs, part.cells, backend.jobs))
    console.print(
        f"{target.name} ({profile}): {len(part.cells)} cells are run again, about {about}"
    )
    with tempfile.TemporaryDirectory() as folder:
        again = Store(folder)
        options = {"mirror": config.data, "costs": costs, "console": console}
        outcomes = run_cells(part.cells, again, backend, **options)
        fresh = part.rows(again)
    errors = {outcome.key: outcome.error for outcome in outcomes if outcome.status == "failed"}
    differing = differing_columns(stored, fresh)
    show(part, differing, errors, console)
    if len(fresh):
        before, after = (target.evaluate(rows, missing) for rows in (stored, fresh))
        show_evaluations(before, after, console)
    return 1 if differing else 0


def show(
    plan: Plan, differing: Mapping[str, list[str]], errors: Mapping[str, str], console: Console
) -> None:
    """Print how many cells agree bit for bit, and of the others what differs."""
    cells = {cell.key: cell for cell in plan.cells}
    console.print(
        f"stored and fresh rows agree bit for bit in {len(cells) - len(differing)} of {len(cells)} "
        "cells (running times left out)"
    )
    for key, columns in list(differing.items())[:LINES]:
        reason = errors.get(key) or ", ".join(columns) or "other seeds"
        console.print(f"  {cells[key].label}: {reason}", markup=False, soft_wrap=True)
    if len(differing) > LINES:
        console.print(f"  and {len(differing) - LINES} more")


def show_evaluations(before: Evaluation, after: Evaluation, console: Console) -> None:
    """Print what the stored and the fresh rows say."""
    if not before.verdict:
        same = before.table.equals(after.table)
        console.print(f"numbers of the figure: {'equal' if same else 'not equal'}")
        return
    for origin, each in {"stored": before, "fresh": after}.items():
        text = f"verdict on {origin} rows: {each.verdict}. {each.numbers}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, 1 if rows differ, 2 if the request was refused.
    """
    given, options = parsed_words("verify", __doc__, "NAME", "claim or figure, profile=, ...", argv)
    overrides = [f"{key}={value}" for key, value in options.items()]

    def run() -> int:
        require(len(given) == 1, "name", " ".join(given), "one claim or figure")
        target = find(given[0])
        # Nothing is projected to MLflow.
        config = load([*overrides, f"paper={target.paper}", "tracking=none"])
        return verify(target, config, consoles()[0])

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
