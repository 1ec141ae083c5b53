"""The leaderboard, from the folders of entries alone: ``pkm arena leaderboard``.

    pkm arena leaderboard entries/2026-11-full-* out=docs

It writes ``leaderboard.md``, its tables as CSV, their metadata (Croissant) and a
picture of mean ranks for each accounting. Methods of this project enter as all others
do. An entry is ranked if it keeps the contract, and if the audit attacked it and did
not refute it; all others are listed. An entry is *self-reported* until ``pkm arena
verify`` has written its result to the folder. With advice=FILE it also writes what
``pkm advise`` answers from.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from pkm.analysis.tables.ranking import LEVEL
from pkm.arena.advice import ALWAYS, fit_advice
from pkm.arena.croissant import describe_tables
from pkm.arena.rank_figure import draw_ranks
from pkm.arena.ranks import (
    ACCOUNTINGS,
    NO_VALUE,
    SIZES,
    TEXT_COLUMNS,
    make_size_table,
    make_table,
    rank_by_accounting,
    read_scores,
)
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.experiments.reports.crate import write_json
from pkm.files import atomic_write

PAGE = "leaderboard.md"
TABLE = "leaderboard.csv"
SIZE_TABLE = "leaderboard-sizes.csv"
METADATA = "leaderboard.json"
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
[{table}]({table}) and [{size_table}]({size_table}), with [metadata]({metadata}).
"""
UNRANKED = """## Not ranked

These entries break the contract, the audit found a violation or could not look inside,
a verification refuted them, or they have no result. What a program claims is its own
word.
"""


def make_page(table: pd.DataFrame, sizes: pd.DataFrame, n_sets: int) -> str:
    """Make the page: a table and a picture of ranks for each accounting, and sizes."""
    suite, stage = table[["suite", "stage"]].iloc[0]
    lines = [
        INTRODUCTION.format(
            suite=suite,
            sets=n_sets,
            level=LEVEL,
            command=f"pkm arena leaderboard entries/{suite}-{stage}-* out=docs",
            table=TABLE,
            size_table=SIZE_TABLE,
            metadata=METADATA,
        )
    ]
    epsilons = [name for name in table if name.startswith("epsilon ")]
    numbers = ["sets", "cost", *epsilons, "cpu_ratio"]
    for key, (title, _) in ACCOUNTINGS.items():
        if f"mean_rank_{key}" not in table:
            continue
        ranked = table.rename(columns={f"mean_rank_{key}": "mean_rank"})
        ranked = ranked.dropna(subset="mean_rank")
        ranked = ranked.sort_values(["mean_rank", "entry"])
        difference = ranked[f"critical_difference_{key}"].iloc[0]
        lines += [f"## {title[0].upper()}{title[1:]}", ""]
        # It needs three entries.
        if math.isfinite(difference):
            lines += [
                f"![Mean ranks, {title}](figures/leaderboard-{key}.png)",
                "",
                f"The critical difference of mean ranks is {difference:.2f}.",
                "",
            ]
        heads = ["mean_rank", *numbers, *TEXT_COLUMNS]
        lines += [*format_table(ranked, heads), ""]
    unranked = table[~table["ranked"]]
    if len(unranked):
        lines += [UNRANKED, *format_table(unranked, [*numbers, *TEXT_COLUMNS]), ""]
    heads = [*SIZES, "bounds", "notion", "sets", "cost"]
    lines += ["## By the size of the data", "", *format_table(sizes, heads)]
    return "\n".join([*lines, ""])


def format_table(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Format columns of entries as a Markdown table, numbers to the right."""
    heads = [name.replace("_", " ") for name in ("entry", *names)]
    rules = ["---:" if is_numeric_dtype(table[name]) else "---" for name in names]
    lines = [heads, ["---", *rules]]
    for line in table.to_dict("records"):
        values = [format_value(line[name]) for name in names]
        lines.append([line["label"], *values])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def format_value(value: float | str) -> str:
    """Format a text, a count or a ratio for a table; a dash where there is none."""
    if not isinstance(value, float):
        return str(value)
    return NO_VALUE if math.isnan(value) else f"{value:.2f}"


def run(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Write the leaderboard of some entries."""
    folders = [Path(word) for word in words]
    require(bool(folders), "folders", "", "one folder or more")
    out = Path(options.get("out", "leaderboard"))
    entries, scores = read_scores(folders)
    ranked_names = [*entries.loc[entries["ranked"], "entry"]]
    if "advice" in options:
        rule = f"left out, unless {ALWAYS} is ranked, too"
        require(ALWAYS in ranked_names, "advice", options["advice"], rule)
    ranks = rank_by_accounting(entries, scores)
    table = make_table(entries, scores, ranks)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    for key, ranked in ranks.items():
        if ranked["critical_difference"].notna().all():
            draw_ranks(ranked, out / "figures" / f"leaderboard-{key}.png")
    sizes = make_size_table(entries, scores)
    n_sets = scores["dataset"].nunique()
    atomic_write(out / PAGE, make_page(table, sizes, n_sets).encode())
    tables = {TABLE: table, SIZE_TABLE: sizes}
    contents = {
        name: lines.to_csv(index=False, float_format="%.6g").encode()
        for name, lines in tables.items()
    }
    for name, content in contents.items():
        atomic_write(out / name, content)
    write_json(out / METADATA, describe_tables(tables, contents))
    if "advice" in options:
        is_ranked = scores["entry"].isin(ranked_names)
        advice = {"suite": table["suite"].iloc[0], **fit_advice(scores[is_ranked])}
        write_json(Path(options["advice"]), advice)
    print(f"{out / PAGE}: {len(table)} entries, {n_sets} sets")


main = make_main("arena leaderboard", __doc__, "FOLDER", ("out", "advice"), run)
