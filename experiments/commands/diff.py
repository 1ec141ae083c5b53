"""Compare two results folders cell by cell: ``pkm diff A B``.

    pkm diff A B
    pkm diff A B paper=fastlloyd profile=paper

A cell of A and one of B are the same experiment if method, parameters, data set,
settings, metrics and budget agree; seeds, code and machine may differ. Each pair has
the same bits on every seed that both have, or it differs: within sampling error, by
more than that ("moved"), or on fewer than two seeds, where nothing is tested. Means are
compared by t tests, paired where at least two seeds are in both, by Welch's otherwise,
with Holm's correction over all cells and metrics. Running times are left out.

Where cells differ, the claims of every paper that has a report in A or B (or of
paper=NAME, at profile=NAME, by default quick) are evaluated on both. data=FOLDER is the
mirror, as for `pkm reproduce`.

The exit code is 0 if no cell has moved, 1 if some have, and 2 if A and B must not be
compared: unlike budgets or adjacency, or other code of the metrics.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from pkm.analysis.claims.claim import papers_with_claims
from pkm.analysis.claims.findings import NOT_RUN
from pkm.experiments.commands.composition import load_config
from pkm.experiments.config.groups import choices
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.reports.diff import MOVED, SAME, STATES, compare, evaluate_claims
from pkm.experiments.store.cell_tables import read_cells
from pkm.experiments.store.store import Store

#: How many moved cells are printed, and which columns.
MAX_LINES = 20
COLUMNS = ["method", "variant", "params", "dataset", "k", "epsilon"]
COLUMNS += ["metric", "mean_a", "mean_b", "p", "origin"]


def run(folders: Sequence[str], options: Mapping[str, str]) -> int:
    """Print what differs; return 1 if a cell has moved, else 0."""
    rule = "two results folders, A and B"
    require(len(folders) == 2, "folders", " ".join(folders), rule)
    stores = [Store(folder) for folder in folders]
    reports = [(options.get("paper"), options.get("profile", "quick"))]
    if "paper" not in options:
        reports = list_reports(stores)
    data = [f"data={options['data']}"] if "data" in options else []
    configs = [
        load_config([f"paper={paper}", f"profile={profile}", "tracking=none", *data])
        for paper, profile in reports
    ]
    cells = [read_cells(store) for store in stores]
    difference = compare(stores, cells)
    print_states(difference)
    if (difference["state"] == SAME).all():
        return 0

    if not configs:
        print("verdicts: no report there; paper=NAME profile=NAME says of which paper")
    for config in configs:
        plan = make_plan(config.paper, config.profile, data_dir=config.data)
        a, b = map(evaluate_claims, (plan, plan), stores, cells)
        lines = []
        for name in a | b:
            before, after = a.get(name, NOT_RUN), b.get(name, NOT_RUN)
            if before != after:
                lines.append(f"  {name}: {before} -> {after}")
        print(f"{plan.paper} ({config.profile.name}): {len(lines)} verdicts changed")
        print(*lines, sep="\n", end="\n" if lines else "")
    return int((difference["state"] == MOVED).any())


def list_reports(stores: Sequence[Store]) -> list[tuple[str, str]]:
    """List the papers and profiles that some store has a report on."""
    return [
        (paper, profile)
        for paper in papers_with_claims()
        for profile in choices("profile")
        if any(store.report_folder(paper, profile).is_dir() for store in stores)
    ]


def print_states(difference: pd.DataFrame) -> None:
    """Print how many cells are in each state, and which have moved, surest first."""
    counts = difference["state"].value_counts().reindex(STATES, fill_value=0)
    print(counts.rename_axis(None).to_string())
    moved = difference[difference["state"] == MOVED].sort_values("p", kind="stable")
    if len(moved):
        print(
            f"\n{min(len(moved), MAX_LINES)} of the cells that have moved, "
            "the surest first:"
        )
        table = moved[COLUMNS].head(MAX_LINES)
        print(table.to_string(index=False, float_format="{:.4g}".format))


main = make_main("diff", __doc__, "FOLDER", ("paper", "profile", "data"), run)
