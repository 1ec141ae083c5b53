"""The leaderboard, from the folders of entries alone: ``pkm arena leaderboard``.

    pkm arena leaderboard entries/2026-11-full-* out=docs

It writes ``leaderboard.md``, ``leaderboard.csv``, its metadata (Croissant) and a
picture of mean ranks for each accounting. Methods of this project enter as all others
do. An entry is *self-reported* until ``pkm arena verify`` has written its result to the
folder. With advice=FILE it also writes what ``pkm advise`` answers from.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.analysis.tables.ranking import LEVEL, rank
from pkm.arena.advice import fit_advice
from pkm.arena.checks import check_files
from pkm.arena.croissant import describe_table
from pkm.arena.entry import ENTRY, VERIFICATION, read_entry, read_rows
from pkm.arena.rank_figure import draw_ranks
from pkm.arena.scores import cpu_ratio, geometric_mean, score_costs
from pkm.arena.suite import read_suite
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.reports.crate import write_json
from pkm.files import atomic_write, sha256

PAGE = "leaderboard.md"
TABLE = "leaderboard.csv"
METADATA = "leaderboard.json"
#: Accountings with the notions of the entries that keep them.
ACCOUNTINGS = {
    "pure": ("pure epsilon", ["pure"]),
    "approximate": ("(epsilon, delta)", ["pure", "approximate"]),
}
#: Sizes of data sets by which costs are shown: column of rows, bounds.
GROUPS = {
    "2 to 4 columns": ("d", 1, 4),
    "5 to 16 columns": ("d", 5, 16),
    "17 columns or more": ("d", 17, math.inf),
    "below 5,000 records": ("n", 1, 4_999),
    "50,000 records or more": ("n", 50_000, math.inf),
}
WIDE = "wide bounds"
TEXT_COLUMNS = ["notion", "adjacency", "unit", "audit", "status"]
INTRODUCTION = """# Leaderboard

Which private k-means costs least, on the real sets of [suite {suite}](enter.md)? A
cost is the mean NICV over the best of scikit-learn's k-means: 1 is best. Ranks are
means over {sets} sets, by the costs over all epsilon. Entries whose mean ranks differ
by less than the critical difference (Nemenyi, {level:.0%}) are not told apart. A set
without a result is ranked last, and is not in the cost. CPU times are ratios to k-means
in the same run.

Methods of this project enter as all others do. Their authors knew these sets; on sets
that nobody had tuned on the order is [much the same](studies/untouched.md).

`{command}` makes this page. The numbers are in
[{table}]({table}), with [metadata]({metadata}).
"""


def read_scores(folders: Sequence[Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read entries.

    Parameters
    ----------
    folders : sequence of Path
        Of one suite and stage.

    Returns
    -------
    entries : DataFrame
        One row per entry: what is known of it.
    scores : DataFrame
        One row per entry, data set, epsilon and bounds_factor: its cost.

    Raises
    ------
    ValueError
        If a folder is no entry, two have one name, or suites or stages differ.
    """
    lines = []
    tables = []
    for folder in folders:
        entry = read_entry(folder)
        rows = read_rows(folder)
        reference = read_suite(entry.suite)["reference"]
        own = rows[rows["method"] != reference]
        sizes = rows.groupby("dataset")[["n", "d", "k"]].first()
        first = own.iloc[0]
        # Of a program the claim is its own, and without an audit.
        claim = first.to_dict() | (entry.claimed or {})
        verdicts = (entry.audit or {}).get("verdicts", {})
        lines.append(
            {
                "entry": entry.name,
                "label": first["label"] or entry.name,
                **{name: claim[name] for name in ("notion", "adjacency", "unit")},
                "audit": join_verdicts(verdicts.values()),
                "status": read_status(folder),
                "cpu_ratio": cpu_ratio(rows, reference),
                "suite": entry.suite,
                "stage": entry.stage,
            }
        )
        scores = score_costs(rows, reference)
        tables.append(scores.assign(entry=entry.name).join(sizes, on="dataset"))
    entries = pd.DataFrame(lines)
    require(
        not entries["entry"].duplicated().any(),
        "folders",
        [*map(str, folders)],
        "entries of different names",
    )
    for column in ("suite", "stage"):
        values = sorted(set(entries[column]))
        require(len(values) == 1, column, values, "the same in all entries")
    return entries, pd.concat(tables, ignore_index=True)


def join_verdicts(verdicts: Sequence[str]) -> str:
    """Join the verdicts of an audit's views: the worst one, or that there is none."""
    for verdict in ("violated", "consistent"):
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
    cells = logs.pivot_table(
        index="dataset", columns=["entry", "epsilon"], values="log"
    )
    means = cells.T.groupby(level="entry").mean().T
    counts = cells.notna().T.groupby(level="entry").sum().T
    is_missing = counts < scores["epsilon"].nunique()
    table = means.mask(is_missing, math.inf).stack().rename("median").reset_index()
    table = table.rename(columns={"entry": "method"})
    table = table.assign(epsilon=0.0, notion="private")
    ranks = rank(table, 0.0, list(means.index), list(means.columns))
    return ranks.join(entries.set_index("entry")[["label"]], on="method")


def make_table(entries: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """Return one line per entry: its properties, and geometric means of costs.

    Columns of costs are those of every epsilon, those of `GROUPS`, over all epsilon,
    and that in wide bounds; the number of sets without a missing cell is ``sets``.
    """
    is_wide = scores["bounds_factor"] > 1
    wide = scores[is_wide].groupby("entry")["ratio"].apply(geometric_mean)
    scores = scores[~is_wide]
    by_entry = scores.groupby("entry")["ratio"]
    columns = {"cost": by_entry.apply(geometric_mean)}
    for epsilon, part in scores.groupby("epsilon"):
        costs = part.groupby("entry")["ratio"].apply(geometric_mean)
        columns[f"epsilon {epsilon:g}"] = costs
    for name, (column, least, most) in GROUPS.items():
        part = scores[scores[column].between(least, most)]
        columns[name] = part.groupby("entry")["ratio"].apply(geometric_mean)
    columns[WIDE] = wide
    counts = scores.groupby(["entry", "dataset"])["epsilon"].nunique()
    complete = counts == scores["epsilon"].nunique()
    columns["sets"] = complete.groupby("entry").sum()
    return entries.join(pd.DataFrame(columns), on="entry").sort_values("cost")


def make_page(
    table: pd.DataFrame,
    ranks: Mapping[str, pd.DataFrame],
    n_sets: int,
) -> str:
    """Make the page: a table and a picture of ranks for each accounting, and sizes."""
    suite, stage = table[["suite", "stage"]].iloc[0]
    lines = [
        INTRODUCTION.format(
            suite=suite,
            sets=n_sets,
            level=LEVEL,
            command=f"pkm arena leaderboard entries/{suite}-{stage}-* out=docs",
            table=TABLE,
            metadata=METADATA,
        )
    ]
    epsilons = [name for name in table if name.startswith("epsilon ")]
    for key, ranked in ranks.items():
        title, _ = ACCOUNTINGS[key]
        merged = ranked.merge(table, left_on="method", right_on="entry")
        difference = ranked["critical_difference"].iloc[0]
        lines += [f"## {title[0].upper()}{title[1:]}", ""]
        # It needs three entries.
        if math.isfinite(difference):
            lines += [
                f"![Mean ranks, {title}](figures/leaderboard-{key}.png)",
                "",
                f"The critical difference of mean ranks is {difference:.2f}.",
                "",
            ]
        lines += [
            *format_table(
                merged,
                ["mean_rank", "sets", "cost", *epsilons, "cpu_ratio"],
                TEXT_COLUMNS,
            ),
            "",
        ]
    groups = [*GROUPS, WIDE, "sets"]
    lines += ["## By the size of the data", "", *format_table(table, groups)]
    return "\n".join([*lines, ""])


def format_table(
    table: pd.DataFrame, numbers: Sequence[str], texts: Sequence[str] = ()
) -> list[str]:
    """Format lines of entries as a Markdown table."""
    label = "label" if "label" in table else "label_y"
    heads = [name.replace("_", " ") for name in ("entry", *numbers, *texts)]
    rules = ["---", *["---:"] * len(numbers), *["---"] * len(texts)]
    lines = [heads, rules]
    for line in table.to_dict("records"):
        values = [format_number(line[name]) for name in numbers]
        values += [str(line[name]) for name in texts]
        lines.append([line[label], *values])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def format_number(value: float) -> str:
    """Format a count or a ratio for a table; a dash where there is none."""
    if math.isnan(value):
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def run(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Write the leaderboard of some entries."""
    folders = [Path(word) for word in words]
    require(bool(folders), "folders", "", "one folder or more")
    out = Path(options.get("out", "leaderboard"))
    entries, scores = read_scores(folders)
    table = make_table(entries, scores)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    ranks = {}
    for key, (_, notions) in ACCOUNTINGS.items():
        chosen = entries[entries["notion"].isin(notions)]
        is_ranked = scores["entry"].isin(chosen["entry"])
        kept = scores[is_ranked & (scores["bounds_factor"] == 1)]
        if len(chosen):
            ranks[key] = rank_entries(chosen, kept)
            if ranks[key]["critical_difference"].notna().all():
                draw_ranks(ranks[key], out / "figures" / f"leaderboard-{key}.png")
    page = make_page(table, ranks, scores["dataset"].nunique())
    atomic_write(out / PAGE, page.encode())
    content = table.to_csv(index=False, float_format="%.6g").encode()
    atomic_write(out / TABLE, content)
    write_json(out / METADATA, describe_table(table, TABLE, content))
    if "advice" in options:
        advice = {"suite": table["suite"].iloc[0], **fit_advice(scores)}
        write_json(Path(options["advice"]), advice)
    print(f"{out / PAGE}: {len(table)} entries, {scores['dataset'].nunique()} sets")


main = make_main("arena leaderboard", __doc__, "FOLDER", ("out", "advice"), run)
