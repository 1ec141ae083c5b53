"""List the claims whose verdicts contradict each other in two runs.

    python tools/verdict_flips.py A B

A and B are folders of reports, or one report each: two runs of one profile, two
machines, or the profiles quick and paper. A claim that is undecided in one of them is
no flip. The exit code is 1 if there is a flip.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from pkm.analysis.claims.findings import INCONCLUSIVE, NOT_CONTRADICTED, NOT_RUN

#: Verdicts that more data may turn into any other.
UNDECIDED = {INCONCLUSIVE, NOT_CONTRADICTED, NOT_RUN}


def read_verdicts(folder: Path) -> dict[str, str]:
    """Read the verdicts of all reports in a folder, by the ids of the claims."""
    tables = [pd.read_csv(path) for path in sorted(folder.rglob("tables/claims.csv"))]
    if not tables:
        raise FileNotFoundError(f"no report in {folder}: make one with `make report`")
    table = pd.concat(tables)
    return dict(zip(table["id"], table["verdict"], strict=True))


def list_flips(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """List the claims with two unlike verdicts, both of them decided.

    Examples
    --------
    >>> list_flips({"p/x": "holds"}, {"p/x": "not reproduced"})
    ['p/x: holds -> not reproduced']
    >>> list_flips({"p/x": "holds"}, {"p/x": "inconclusive"})
    []
    """
    return [
        f"{name}: {a[name]} -> {b[name]}"
        for name in a
        if name in b and a[name] != b[name] and not {a[name], b[name]} & UNDECIDED
    ]


def main(argv: Sequence[str]) -> int:
    """Print the flips between two folders; return 1 if there are some."""
    a, b = (read_verdicts(Path(name)) for name in argv)
    flips = list_flips(a, b)
    print(f"{len(flips)} of {len(a.keys() & b.keys())} claims flip")
    print(*flips, sep="\n", end="\n" if flips else "")
    return int(bool(flips))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
