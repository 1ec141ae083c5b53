"""What entries are ranked by, from their folders alone.

An entry is ranked if it keeps the contract, and if the audit attacked it and did not
refute it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.analysis.tables.ranking import rank
from pkm.arena.checks import check_files
from pkm.arena.entry import (
    ENTRY,
    ROWS,
    VERIFICATION,
    Entry,
    read_entry,
    read_rows,
)
from pkm.arena.scores import cpu_ratio, geometric_mean, score_costs
from pkm.arena.suite import read_suite
from pkm.experiments.config.settings import require
from pkm.files import sha256

#: Accountings with the notions of the entries that keep them.
ACCOUNTINGS = {
    "pure": ("pure epsilon", ["pure"]),
    "approximate": ("(epsilon, delta)", ["pure", "approximate"]),
}
#: Classes of data sets by their sizes: column of rows, upper ends and words. The page
#: offers a choice among words that begin with a letter.
SIZES = {
    "columns": ("d", [0, 4, 16, math.inf], ["up to 4", "up to 16", "above 16"]),
    "records": (
        "n",
        [0, 5_000, 50_000, math.inf],
        ["up to 5,000", "up to 50,000", "above 50,000"],
    ),
}
BOUNDS = {False: "as declared", True: "wide"}
TEXT_COLUMNS = ["notion", "adjacency", "unit", "audit", "status"]
#: What the audit says of entries that are ranked.
CONSISTENT = "consistent"
#: Where an entry has no value.
NO_VALUE = "–"


def read_scores(folders: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read entries.

    Parameters
    ----------
    folders : sequence of Path
        Of one suite and stage.

    Returns
    -------
    entries : DataFrame
        One row per entry: what is known of it, and whether it is ``ranked``.
    scores : DataFrame
        One row per entry, data set, epsilon and bounds_factor: its cost. An entry
        without a result has none.

    Raises
    ------
    ValueError
        If a folder is no entry, two have one name, suites or stages differ, or no entry
        has a result.
    """
    lines = []
    tables = []
    for folder in folders:
        entry = read_entry(folder)
        line = dict.fromkeys(TEXT_COLUMNS, NO_VALUE) | {
            "entry": entry.name,
            "label": entry.name,
            "audit": read_verdict(entry),
            "status": read_status(folder),
            "cpu_ratio": math.nan,
            "suite": entry.suite,
            "stage": entry.stage,
        }
        reference = read_suite(entry.suite)["reference"]
        rows = pd.DataFrame(columns=["method"])
        if ROWS in entry.files:
            rows = read_rows(folder)
        own = rows[rows["method"] != reference]
        has_result = len(own) > 0
        if has_result:
            line |= describe_rows(entry, own)
            line["cpu_ratio"] = cpu_ratio(rows, reference)
            sizes = rows.groupby("dataset")[["n", "d", "k"]].first()
            scores = score_costs(rows, reference).join(sizes, on="dataset")
            tables.append(scores.assign(entry=entry.name))
        is_consistent = line["audit"] == CONSISTENT
        is_refuted = line["status"].startswith("refuted")
        line["ranked"] = has_result and is_consistent and not is_refuted
        lines.append(line)

    entries = pd.DataFrame(lines)
    names = [*map(str, folders)]
    is_unique = not entries["entry"].duplicated().any()
    require(is_unique, "folders", names, "entries of different names")
    for column in ("suite", "stage"):
        values = sorted(set(entries[column]))
        require(len(values) == 1, column, values, "the same in all entries")
    require(bool(tables), "folders", names, "entries of which one has a result")
    return entries, pd.concat(tables, ignore_index=True)


def describe_rows(entry: Entry, rows: pd.DataFrame) -> dict[str, str]:
    """Return the label and the claim of a method; of a program it is its own."""
    first = rows.iloc[0].to_dict()
    claim = first | (entry.claimed or {})
    return {
        "label": first["label"] or entry.name,
        "notion": claim["notion"],
        "adjacency": claim["adjacency"],
        "unit": claim["unit"],
    }


def read_verdict(entry: Entry) -> str:
    """Read the worst of what conformance and the views of the audit found."""
    if any(line["error"] for line in entry.checks):
        return "breaks the contract"
    verdicts = (entry.audit or {}).get("verdicts", {}).values()
    for verdict in ("violated", CONSISTENT):
        if verdict in verdicts:
            return verdict
    return "no audit"


def read_status(folder: Path) -> str:
    """Read what a verification says of an entry as it is; else it is self-reported."""
    path = folder / VERIFICATION
    if not path.is_file():
        return "self-reported"
    record = json.loads(path.read_text(encoding="utf-8"))
    is_same_entry = record["entry"] == sha256((folder / ENTRY).read_bytes())
    if not is_same_entry or check_files(read_entry(folder), folder):
        return "self-reported"
    by = f" by {record['verifier']}" if record["verifier"] else ""
    return f"{record['status']}{by}, {record['created'][:10]}"


def rank_entries(entries: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Rank entries on every data set by their cost over all epsilon.

    A data set on which a cell is missing counts as the worst.

    Returns
    -------
    DataFrame
        As `ranking.rank` returns it, with the label; the best first.
    """
    logs = scores.assign(log=np.log(scores["ratio"]))
    cells = logs.groupby(["dataset", "entry"])
    means = cells["log"].mean().unstack()
    counts = cells["epsilon"].nunique().unstack()

    # Without a cell the count is NaN, which is not complete either.
    is_complete = counts >= scores["epsilon"].nunique()
    costs = means.where(is_complete, math.inf).stack()
    table = costs.rename("median").rename_axis(["dataset", "method"])
    table = table.reset_index().assign(epsilon=0.0, notion="private")
    datasets = list(means.index)
    names = list(means.columns)
    ranks = rank(table, 0.0, datasets, names)
    labels = entries.set_index("entry")[["label"]]
    return ranks.join(labels, on="method")


def rank_by_accounting(
    entries: pd.DataFrame, scores: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Rank the entries that keep each of `ACCOUNTINGS`, in bounds as declared."""
    ranks = {}
    for key, (_, notions) in ACCOUNTINGS.items():
        keeps = entries["notion"].isin(notions)
        chosen = entries[entries["ranked"] & keeps]
        is_chosen = scores["entry"].isin(chosen["entry"])
        is_declared = scores["bounds_factor"] == 1
        if len(chosen):
            ranks[key] = rank_entries(chosen, scores[is_chosen & is_declared])
    return ranks


def make_table(
    entries: pd.DataFrame,
    scores: pd.DataFrame,
    ranks: Mapping[str, pd.DataFrame],
) -> pd.DataFrame:
    """Return one line per entry: its properties, costs, and ranks by accounting.

    Costs are geometric means over sets: at every epsilon, over all, and that in wide
    bounds; the number of sets without a missing cell is ``sets``.
    """
    is_wide = scores["bounds_factor"] > 1
    wide, scores = scores[is_wide], scores[~is_wide]
    columns = {"cost": average_costs(scores)}
    for epsilon, costs in scores.groupby("epsilon"):
        columns[f"epsilon {epsilon:g}"] = average_costs(costs)
    columns["wide bounds"] = average_costs(wide)

    # Sets of which no cell is missing.
    cells = scores.groupby(["entry", "dataset"])
    counts = cells["epsilon"].nunique()
    is_complete = counts == scores["epsilon"].nunique()
    n_sets = is_complete.groupby("entry").sum()
    table = entries.join(pd.DataFrame(columns), on="entry")
    table["sets"] = table["entry"].map(n_sets).fillna(0).astype(int)

    numbers = ["mean_rank", "critical_difference"]
    for key, ranked in ranks.items():
        own = ranked.set_index("method")[numbers]
        table = table.join(own.add_suffix(f"_{key}"), on="entry")
    return table.sort_values(["cost", "entry"])


def average_costs(scores: pd.DataFrame) -> pd.Series:
    """Return the geometric mean of each entry's costs."""
    return scores.groupby("entry")["ratio"].agg(geometric_mean)


def make_size_table(entries: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return costs by the size of the data: one line per entry, `SIZES` and bounds."""
    for name, (column, ends, words) in SIZES.items():
        classes = pd.cut(scores[column], ends, labels=words)
        scores = scores.assign(**{name: classes})
    is_wide = scores["bounds_factor"] > 1
    scores = scores.assign(bounds=is_wide.map(BOUNDS))

    keys = [*SIZES, "bounds"]
    cells = scores.groupby([*keys, "entry"], observed=True)
    table = cells.agg(
        sets=("dataset", "nunique"),
        cost=("ratio", geometric_mean),
    )
    table = table.reset_index()
    names = entries.set_index("entry")[["label", "notion"]]
    table = table.join(names, on="entry")
    return table.sort_values([*keys, "cost", "entry"])
