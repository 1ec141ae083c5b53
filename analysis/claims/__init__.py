"""Claims of the papers as data: one YAML file per paper, and a module for formulas of its own.

``conf/paper/<paper>/claims.yaml`` holds `title`, `reference`, `sets`, `reported` (numbers the paper
prints), `deviations` and `claims`. If ``analysis/claims/<paper>.py`` exists (hyphens of the name as
underscores), its `EVALUATORS` extend those of `pkm.analysis.verdicts`.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import yaml

#: One folder for each paper.
PAPERS = Path(__file__).parents[2] / "conf" / "paper"


def papers() -> list[str]:
    """Names of the papers that have claims."""
    return sorted(path.parent.name for path in PAPERS.glob("*/claims.yaml"))


@cache
def load(paper: str) -> dict:
    """Read the claims of one paper.

    Raises
    ------
    ValueError
        If the paper is unknown, or two claims share an id.
    """
    if paper not in papers():
        raise ValueError(f"paper={paper!r} has no claims; known: {papers()}")
    content = yaml.safe_load((PAPERS / paper / "claims.yaml").read_text(encoding="utf-8"))
    ids = [claim["id"] for claim in content["claims"]]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise ValueError(f"claims of {paper!r} repeat the ids {repeated}")
    return content


def paper_evaluators(paper: str) -> dict[str, Callable]:
    """Evaluators that only this paper needs, by check type; empty where it has none."""
    name = f"{__name__}.{paper.replace('-', '_')}"
    return import_module(name).EVALUATORS if find_spec(name) else {}
