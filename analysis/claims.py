"""Claims of the papers as data: ``conf/paper/<paper>/claims.yaml``.

The file has `title`, `reference`, `sets` (named lists), `reported` (numbers that the paper prints),
`deviations` and `claims`. Checks with formulas of a paper's own are registered by
``analysis/papers/<paper>_checks.py``, hyphens of the name as underscores.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import yaml

from pkm.analysis import (  # noqa: F401, types of checks
    exact,
    hyperparameters,
    orderings,
    planted,
    predicates,
)
from pkm.analysis.findings import CHECK_TYPES, COMMON_KEYS
from pkm.names import suggestion

#: One folder for each paper.
PAPERS = Path(__file__).parents[1] / "conf" / "paper"
#: Keys of a check that joins others.
_ALL_OF = frozenset((*COMMON_KEYS, "parts"))
_CONTENT = ("title", "reference", "sets", "reported", "deviations", "claims")


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes
    ----------
    id : str
        ``<paper>/<name>``.
    section, source : str
        Where the paper has it.
    kind : str
        ordering, threshold, trend, magnitude or count.
    basis : str
        Where the claim comes from: explicit, implied, cited, theorem, printed, derived, surrogate.
    statement : str
        The claim, paraphrased.
    check : mapping
        How it is checked: a `type` of `pkm.analysis.findings.CHECK_TYPES` and the keys of that.
    reported, doubt : str
        Numbers of the paper; what is this project's interpretation.
    """

    id: str
    section: str
    kind: str
    basis: str
    statement: str
    check: Mapping
    source: str = ""
    reported: str = ""
    doubt: str = ""


def papers() -> list[str]:
    """Names of the papers that have claims."""
    return sorted(path.parent.name for path in PAPERS.glob("*/claims.yaml"))


@cache
def load(paper: str) -> dict:
    """Read and check the claims of one paper; its entry `claims` is a list of `Claim`.

    Raises
    ------
    ValueError
        If the paper is unknown, two claims share an id, or a key is unknown or absent.
    """
    if paper not in papers():
        raise ValueError(f"paper={paper!r} has no claims; known: {papers()}")
    special_checks(paper)
    path = PAPERS / paper / "claims.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    where = f"conf/paper/{paper}/claims.yaml"
    refuse_unknown(content, _CONTENT, where)
    claims = [claim_of(entry, f"{where}: {entry.get('id', entry)}") for entry in content["claims"]]
    ids = [claim.id for claim in claims]
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise ValueError(f"{where}: several claims have the ids {repeated}")
    return content | {"claims": claims}


def special_checks(paper: str) -> ModuleType | None:
    """Module of the checks that only this paper needs, which registers them; None without one."""
    name = f"pkm.analysis.papers.{paper.replace('-', '_')}_checks"
    return import_module(name) if find_spec(name) else None


def claim_of(entry: Mapping, where: str) -> Claim:
    """Make a claim of its entry, with all keys checked."""
    refuse_unknown(entry, [field.name for field in fields(Claim)], where)
    required = [field.name for field in fields(Claim) if field.default is MISSING]
    absent = [name for name in required if name not in entry]
    if absent:
        raise ValueError(f"{where}: the keys {absent} are required")
    check_keys(entry["check"], where)
    return Claim(**entry)


def check_keys(check: Mapping, where: str) -> None:
    """Refuse a check, its parts or its variants with an unknown type or key."""
    kind = check.get("type")
    known = {name: each.keys for name, each in CHECK_TYPES.items()} | {"all_of": _ALL_OF}
    refuse_unknown([kind], known, f"{where}: type of check")
    refuse_unknown(check, known[kind], f"{where}: check {kind}")
    for part in check["parts"] if kind == "all_of" else ():
        check_keys(part, where)
    for variant in variants(check):
        changes = {name: value for name, value in variant.items() if name != "text"}
        check_keys({name: check[name] for name in check if name != "also"} | changes, where)


def variants(check: Mapping) -> list[Mapping]:
    """Further interpretations of a check: `also` lists them, or is a single one.

    Each is a `text`, and options that replace those of the check.
    """
    also = check.get("also", [])
    return also if isinstance(also, list) else [also]


def refuse_unknown(names: Iterable, known: Iterable[str], where: str) -> None:
    """Raise an error for the first name that is not known, with the nearest known one.

    Examples
    --------
    >>> refuse_unknown(["at_mots"], ["at_most", "at_least"], "check bound")
    Traceback (most recent call last):
    ...
    ValueError: check bound: 'at_mots' is unknown; did you mean 'at_most'?
    """
    known = sorted(known)
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: {name!r} is unknown{suggestion(name, known)}")
