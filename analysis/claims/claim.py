"""Claims of the papers as data: ``conf/paper/<paper>/claims.yaml``.

The file has `title`, `reference`, `sets` (named lists), `reported` (numbers that the paper prints),
`derived` (sweeps, methods and metrics that functions make), `deviations` and `claims`. Checks with
formulas of a paper's own are registered by ``analysis/papers/<paper>_checks.py``, hyphens of the
name as underscores.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from pkm import catalogue
from pkm.analysis.claims import exact, orderings, predicates  # noqa: F401, types of checks
from pkm.analysis.claims.findings import CHECK_TYPES, COMMON_KEYS
from pkm.analysis.paper_files import KnownNames, read, refuse_unknown

KINDS = ("ordering", "threshold", "trend", "magnitude", "count")
BASES = ("explicit", "implied", "cited", "theorem", "printed", "derived", "surrogate")
#: Keys of a check that joins others.
_ALL_OF = frozenset((*COMMON_KEYS, "parts"))
_REQUIRED = {"title": str, "reference": str, "claims": list}
#: What a file leaves out if it has none of it.
_NOTHING = {"derived": [], "sets": {}, "reported": {}, "deviations": []}


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
        One of `KINDS`.
    basis : str
        Where the claim comes from: one of `BASES`.
    statement : str
        The claim, paraphrased.
    check : mapping
        How it is checked: a `type` of `findings.CHECK_TYPES` and the keys of that.
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


def papers_with_claims() -> list[str]:
    """Names of the papers that have claims."""
    papers = catalogue.current()
    names = papers.choices("paper")
    return [name for name in names if (papers.folder(name) / "claims.yaml").is_file()]


@cache
def read_claims(paper: str) -> dict:
    """Read and check the claims of one paper; its entry `claims` is a list of `Claim`.

    Raises
    ------
    ValueError
        If the paper has no such file, two claims share an id, one is not of this paper by its id,
        or a key is unknown or absent.
    """
    content = _NOTHING | read(paper, "claims.yaml", _REQUIRED, _NOTHING)
    import_checks(paper)
    where = f"conf/paper/{paper}/claims.yaml"
    known = KnownNames(paper, content["derived"])
    claims = []
    for entry in content["claims"]:
        claim_where = f"{where}: {entry.get('id', entry)}"
        claims.append(make_claim(entry, claim_where))
        check_names(entry["check"], known, claim_where)
    ids = [claim.id for claim in claims]
    strange = [name for name in ids if not name.startswith(f"{paper}/")]
    if strange:
        raise ValueError(f"{where}: the id {strange[0]!r} must begin with '{paper}/'")
    repeated = sorted({name for name in ids if ids.count(name) > 1})
    if repeated:
        raise ValueError(f"{where}: several claims have the ids {repeated}")
    return content | {"claims": claims}


def import_checks(paper: str) -> ModuleType | None:
    """Module of the checks that only this paper needs, which registers them; None without one."""
    name = f"pkm.analysis.papers.{paper.replace('-', '_')}_checks"
    return import_module(name) if find_spec(name) else None


def make_claim(entry: Mapping, where: str) -> Claim:
    """Make a claim of its entry, with all keys checked."""
    refuse_unknown(entry, [field.name for field in fields(Claim)], where)
    required = [field.name for field in fields(Claim) if field.default is MISSING]
    absent = [name for name in required if name not in entry]
    if absent:
        raise ValueError(f"{where}: the keys {absent} are required")
    refuse_unknown([entry["kind"]], KINDS, f"{where}: kind")
    refuse_unknown([entry["basis"]], BASES, f"{where}: basis")
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
        check_keys({name: check[name] for name in check if name != "variants"} | changes, where)


def check_names(check: Mapping, known: KnownNames, where: str) -> None:
    """Refuse a check, its parts or its variants with an unknown sweep, metric or method."""
    known.check(check, where)
    for other in [*check.get("parts", ()), *variants(check)]:
        check_names(other, known, where)


def variants(check: Mapping) -> list[Mapping]:
    """Further interpretations of a check: `variants` lists them, or is a single one.

    Each is a `text`, and options that replace those of the check.
    """
    listed = check.get("variants", [])
    return listed if isinstance(listed, list) else [listed]
