"""Stored audits: what ``pkm audit`` has found, for reports and a page of the docs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import pandas as pd

from pkm.source import subpackages_digest

VIOLATED = "violated"
CONSISTENT = "consistent"
NO_POWER = "no power here"
NOT_TRIED = "not tried"
#: Views of an audit, as texts write them.
VIEWS = {
    "replay": "replay",
    "residuals": "residuals",
    "blackbox": "black box",
}
#: Of a finding that no registered flaw explains.
UNREGISTERED = "not registered"


@dataclass(frozen=True)
class Audit:
    """A stored audit of one variant of a method, with default parameters.

    Attributes
    ----------
    target : str
        Import path of the class.
    default : bool
        Whether the variant is that of a method whose configuration names none.
    method, variant : str
    label : str
        Of the method in figures; empty where it has none.
    adjacency : str
    flaws : list of str
        Registered ones.
    verdicts : mapping of str to str
        By view of `VIEWS`; views that were not tried are absent.
    tightness : mapping of str to float
        By query: largest realized cost over the charge, over all pairs.
    query_verdicts : mapping of str to str
        By query, of the replay.
    findings : list of mapping
        Each with `view`, `label`, `flaw` (empty where none is registered) and
        `message`.
    n_pairs, n_runs : int
        Of the replay, and of the black box on either data set.
    lower_bound : float or None
        On epsilon, of the black box by released centers, with 95 % confidence.
    transcript_bound : float or None
        The same by all releases of a run.
    epsilon : float or None
        What the ledger says of the same runs.
    subpackages : list of str
        Parts of this package that an audit depends on.
    code : str
        Digest of their code when the audit was made.
    """

    target: str
    default: bool
    method: str
    variant: str
    verdicts: Mapping[str, str]
    label: str = ""
    adjacency: str = ""
    flaws: Sequence[str] = ()
    tightness: Mapping[str, float] = field(default_factory=dict)
    query_verdicts: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Mapping[str, str]] = ()
    n_pairs: int = 0
    n_runs: int = 0
    lower_bound: float | None = None
    transcript_bound: float | None = None
    epsilon: float | None = None
    subpackages: Sequence[str] = ()
    code: str = ""

    @property
    def verdict(self) -> str:
        """Worst verdict of the views that had power; "no power here" if none had."""
        known = set(self.verdicts.values())
        words = (VIOLATED, CONSISTENT, NO_POWER)
        return next((word for word in words if word in known), NOT_TRIED)

    @property
    def found_flaws(self) -> list[str]:
        """Ids of the registered flaws behind the findings, or `UNREGISTERED`."""
        ids = {name for finding in self.findings for name in finding["flaw"].split(",")}
        unregistered = [UNREGISTERED] if "" in ids else []
        return sorted(ids - {""}) + unregistered

    @property
    def stale(self) -> bool:
        """Whether the code has changed since."""
        return self.code != subpackages_digest(*self.subpackages)

    @property
    def name(self) -> str:
        """Label with the variant, where that says something."""
        return f"{self.label or self.method} ({self.variant})"

    def summary(self) -> str:
        """Write the verdict in a few words, with the flaws that the audit has met.

        Examples
        --------
        >>> record = {"target": "a.B", "default": True, "method": "B"}
        >>> record["variant"] = "sound"
        >>> findings = [{"view": "replay", "flaw": "F-26"}]
        >>> record |= {"verdicts": {"replay": "violated"}, "findings": findings}
        >>> parse(record).summary()
        'violated (F-26)'
        """
        flaws = ", ".join(self.found_flaws)
        return f"{self.verdict} ({flaws})" if flaws else self.verdict

    def by_view(self) -> str:
        """Write the verdict of every view, those that were not tried included."""
        return "; ".join(
            f"{name}: {self.verdicts.get(view, NOT_TRIED)}"
            for view, name in VIEWS.items()
        )


Audits = Mapping[tuple[str, str], Audit]
"""Audits by import path and variant."""


def read(path: str | Path) -> dict[tuple[str, str], Audit]:
    """Read stored audits.

    Parameters
    ----------
    path : path
        Of the JSON lines that ``pkm audit results=...`` writes.

    Returns
    -------
    dict
        By import path of the class and variant; empty where there is no such file.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    path = Path(path)
    if not path.exists():
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        audits = [parse(json.loads(line)) for line in lines]
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is damaged, remove it or run the audit again: {error}"
        ) from error
    return {(audit.target, audit.variant): audit for audit in audits}


def parse(record: Mapping) -> Audit:
    """Return one stored record as an audit; JSON has names for some numbers."""
    names = {column.name for column in fields(Audit)}
    values = {name: value for name, value in record.items() if name in names}
    for name in ("lower_bound", "transcript_bound", "epsilon"):
        if values.get(name) is not None:
            values[name] = float(values[name])
    ratios = values.get("tightness", {}).items()
    values["tightness"] = {query: float(ratio) for query, ratio in ratios}
    return Audit(**values)


def find(
    audits: Audits,
    target: str,
    variant: str,
) -> Audit | None:
    """Return the audit of a method; without a variant, that of its default one."""
    if variant:
        return audits.get((target, variant))
    of_target = (
        audit for audit in audits.values() if audit.target == target and audit.default
    )
    return next(of_target, None)


def select(
    audits: Audits,
    cells: pd.DataFrame,
) -> list[Audit]:
    """Select the audits of the methods of some cells, in the order of the audits."""
    methods = cells[["target", "variant"]].drop_duplicates()
    known = [find(audits, *method) for method in methods.itertuples(index=False)]
    return [audit for audit in audits.values() if audit in known]


def table(audits: Sequence[Audit]) -> pd.DataFrame:
    """Make a table of audits: worst ratios, black-box bounds and verdicts."""
    lines = []
    for audit in audits:
        line = vars(audit) | dict.fromkeys(VIEWS, NOT_TRIED) | audit.verdicts
        line["verdict"] = audit.verdict
        line["largest_ratio"] = max(audit.tightness.values(), default=float("nan"))
        line["found_flaws"] = " ".join(audit.found_flaws)
        lines.append(line)
    return pd.DataFrame(lines)
