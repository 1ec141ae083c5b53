"""Claims of the papers as data: ``conf/paper/<paper>/claims.yaml``.

The file has `title`, `reference`, `sets` (lists with anchors, for several claims),
`reported` (numbers that the paper prints), `derived` (sweeps, methods and metrics that
functions make), `deviations` and `claims`. `removals` says that the rows are of a
`RemovalStudy`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pkm.analysis.claims import exact, predicates  # noqa: F401, types of checks
from pkm.analysis.claims.findings import CHECK_KEYS
from pkm.analysis.paper_files import (
    KnownNames,
    parse_entry,
    read,
    refuse_unknown,
)
from pkm.analysis.tables.removals import RemovalStudy
from pkm.analysis.tables.study import Study

#: What a claim is about: an order of methods, a bound, a change along a column, a size,
#: or a number.
Kind = Literal["ordering", "threshold", "trend", "magnitude", "count"]
#: Where a claim comes from: the authors say it, suggest it, or take it from other work;
#: it follows from a theorem or from printed numbers; this project found it in printed
#: numbers, or takes a form of it that can be measured.
Basis = Literal[
    "explicit", "implied", "cited", "theorem", "printed", "derived", "surrogate"
]
_REQUIRED = {
    "title": str,
    "reference": str,
    "claims": list,
}
#: Values of the keys that a file may leave out.
_DEFAULTS = {
    "derived": [],
    "sets": {},
    "reported": {},
    "deviations": [],
    "removals": False,
}


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes
    ----------
    id : str
        ``<paper>/<name>``.
    section, source : str
        Where the paper has it.
    kind, basis : str
        See `Kind` and `Basis`.
    statement : str
        The claim, paraphrased.
    check : mapping
        How it is checked: a `type` of `findings.CHECK_TYPES` and the keys of that.
    reported : str
        Numbers of the paper.
    doubt : str
        What the paper leaves open, and how it is interpreted here.
    about : {"paper", "code"}
        What it is about: the paper, or this project's methods, formulas and ledger.
        Verdicts are counted separately by it.
    """

    id: str
    section: str
    kind: Kind
    basis: Basis
    statement: str
    check: Mapping
    source: str = ""
    reported: str = ""
    doubt: str = ""
    about: Literal["paper", "code"] = "paper"


@cache
def read_claims(paper: str) -> dict:
    """Read and check the claims of one paper; its entry `claims` is a list of `Claim`.

    Raises
    ------
    ValueError
        If the paper has no such file, two claims share an id, one is not of this paper
        by its id, or a key is unknown or absent.
    """
    content, file = read(paper, "claims.yaml", _REQUIRED, _DEFAULTS)
    content = _DEFAULTS | content
    known = KnownNames(paper, content["derived"])
    claims: dict[str, Claim] = {}
    for entry in content["claims"]:
        claim = make_claim(entry, f"{file}: {entry.get('id', entry)}", known)
        if not claim.id.startswith(f"{paper}/"):
            raise ValueError(f"{file}: the id {claim.id!r} must begin with '{paper}/'")
        if claim.id in claims:
            raise ValueError(f"{file}: several claims have the id {claim.id!r}")
        claims[claim.id] = claim
    return content | {"claims": list(claims.values())}


def adapt_study(
    study: Study,
    paper: str,
) -> Study:
    """Return stored rows with the paper's names of sweeps."""
    return RemovalStudy(study) if read_claims(paper)["removals"] else study


def make_claim(
    entry: Mapping,
    location: str,
    known: KnownNames,
) -> Claim:
    """Make a claim of its entry, with all keys and names checked."""
    claim = parse_entry(Claim, entry, location)
    check_keys(claim.check, location)
    for check in _list_checks(claim.check):
        known.check(check, location)
    return claim


def check_keys(
    check: Mapping,
    location: str,
) -> None:
    """Refuse a check, its parts or its variants with an unknown type or key."""
    for entry in _list_checks(check):
        name = entry.get("type")
        refuse_unknown([name], CHECK_KEYS, f"{location}: type of check")
        refuse_unknown(entry, CHECK_KEYS[name], f"{location}: check {name}")


def _list_checks(check: Mapping) -> Iterator[Mapping]:
    """Yield a check, its parts, and its variants with their options."""
    yield check
    for entry in (*check.get("parts", ()), *list_variants(check)):
        yield from _list_checks(entry)


def list_variants(check: Mapping) -> list[Mapping]:
    """Return the further interpretations of a check that `variants` lists.

    Each has a `text`, and options that replace those of the check.
    """
    main = {name: value for name, value in check.items() if name != "variants"}
    return [main | variant for variant in check.get("variants", ())]
