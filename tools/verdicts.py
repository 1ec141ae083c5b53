"""Count the verdicts of reports, or list those that contradict each other in two runs.

    python tools/verdicts.py A      # counts per report, as a table in Markdown
    python tools/verdicts.py A B    # flips

A and B are folders of reports, or one report each: two runs of one profile, two
machines, or the profiles quick and paper. Claims about this project's own code are
counted in one column. A flip is a claim with two unlike verdicts, both of them decided:
inconclusive, for example, is not. The exit code is 1 if there is a flip.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from pkm.analysis.claims.findings import (
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_RUN,
    VERDICTS,
)
from pkm.analysis.claims.verdicts import count_verdicts

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


def list_flips(
    a: Mapping[str, str],
    b: Mapping[str, str],
) -> list[str]:
    """List the claims with two unlike verdicts, both of them decided.

    Examples
    --------
    >>> list_flips({"p/x": "holds"}, {"p/x": "not reproduced"})
    ['p/x: holds -> not reproduced']
    >>> list_flips({"p/x": "holds"}, {"p/x": "inconclusive"})
    []
    """
    flips = []
    for name in a:
        pair = {a[name], b.get(name, a[name])}
        if len(pair) > 1 and not pair & UNDECIDED:
            flips.append(f"{name}: {a[name]} -> {b[name]}")
    return flips


def main(argv: Sequence[str]) -> int:
    """Print counts of one folder or flips of two; return 1 if there are some."""
    a, *others = (read_claims(Path(name)) for name in argv)
    if not others:
        print(write_counts(a))
        return 0
    a, b = (claims["verdict"].to_dict() for claims in (a, *others))
    flips = list_flips(a, b)
    n_shared = len(a.keys() & b.keys())
    print(f"{len(flips)} of {n_shared} claims flip")
    print(*flips, sep="\n", end="\n" if flips else "")
    return int(bool(flips))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
