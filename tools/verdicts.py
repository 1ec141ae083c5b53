"""Count the verdicts of reports, or list those that contradict each other in two runs.

    python tools/verdicts.py A      # counts per report, as a table in Markdown
    python tools/verdicts.py A B    # flips

A and B are folders of reports, or one report each: two runs of one profile, two
machines, or the profiles quick and paper. Reports of one name are compared with each
other, and the others by the ids of their claims. Claims about this project's own code
are counted in one column. A flip is a claim with two unlike verdicts, both of them
decided: inconclusive, for example, is not. The exit code is 1 if there is a flip, and 2
if the folders cannot be compared.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pkm.analysis.claims.findings import (
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_RUN,
    VERDICTS,
)
from pkm.analysis.claims.verdicts import count_verdicts
from pkm.arguments import Parser

#: Verdicts that more data may turn into any other.
UNDECIDED = {INCONCLUSIVE, NOT_CONTRADICTED, NOT_RUN}


def read_claims(folder: Path) -> pd.DataFrame:
    """Read the claims of all reports in a folder, by their ids.

    The column `report` names the folder of a report.
    """
    tables = [
        pd.read_csv(path).assign(report=path.parents[1].name)
        for path in sorted(folder.rglob("tables/claims.csv"))
    ]
    if not tables:
        raise FileNotFoundError(f"no report in {folder}: make one with `make report`")
    return pd.concat(tables).set_index("id")


def write_counts(claims: pd.DataFrame) -> str:
    """Write the verdicts of every report as a row of a Markdown table."""
    columns = ["report", "claims", *VERDICTS, "our code"]
    lines = [columns, ["---"] * len(columns)]
    for report, rows in claims.groupby("report"):
        counts = count_verdicts(rows)
        numbers = counts["paper"].values()
        of_code = sum(counts["code"].values())
        lines.append([report, sum(numbers), *numbers, of_code])
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def list_flips(pairs: pd.DataFrame) -> list[str]:
    """List the claims with two unlike verdicts, both of them decided.

    Examples
    --------
    >>> columns = ["verdict_a", "verdict_b"]
    >>> list_flips(pd.DataFrame([["holds", "not run"]], ["p/x"], columns))
    []
    >>> list_flips(pd.DataFrame([["holds", "not reproduced"]], ["p/x"], columns))
    ['p/x: holds -> not reproduced']
    """
    verdicts = pairs[["verdict_a", "verdict_b"]]
    return [
        f"{name}: {a} -> {b}"
        for name, a, b in verdicts.itertuples()
        if a != b and not {a, b} & UNDECIDED
    ]


def pair_claims(
    a: pd.DataFrame,
    b: pd.DataFrame,
) -> pd.DataFrame:
    """Pair the claims of reports of one name, and those of all others by their ids.

    Raises
    ------
    ValueError
        If a claim has several partners.
    """
    shared = {*a["report"]} & {*b["report"]}
    for claims in (a, b):
        is_shared = claims["report"].isin(shared)
        claims["name"] = claims["report"].where(is_shared, "")
    pairs = a.merge(b, on=["name", "id"], suffixes=("_a", "_b"))
    pairs = pairs.reset_index()
    repeated = pairs[pairs.duplicated(["name", "id"])]
    if len(repeated):
        claim = repeated["id"].iloc[0]
        raise ValueError(f"{claim} has several partners: name one report of each run")
    return pairs.set_index("id")


def main(argv: Sequence[str]) -> int:
    """Print counts of one folder or flips of two; return 1 if there are some."""
    parser = Parser(prog="tools/verdicts.py", description=__doc__.splitlines()[0])
    parser.add_argument("a", metavar="A", type=Path)
    parser.add_argument(
        "b",
        metavar="B",
        type=Path,
        nargs="?",
    )
    folders = parser.parse_args(argv)
    try:
        a = read_claims(folders.a)
        if folders.b is None:
            print(write_counts(a))
            return 0
        pairs = pair_claims(a, read_claims(folders.b))
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    flips = list_flips(pairs.sort_values("name", kind="stable"))
    print(f"{len(flips)} of {len(pairs)} claims flip")
    print(*flips, sep="\n", end="\n" if flips else "")
    return int(bool(flips))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
