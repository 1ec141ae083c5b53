"""Statements of a release: what is promised to whom, what it cost, what is open."""

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, Self

import numpy as np
from scipy.special import expit

import pkm
from pkm.privacy import Budget, Charge, Ledger
from pkm.privacy.ledger import COST_FIELDS

FORMAT = "statement of a release, version 1"
SOFTWARE = f"private-kmeans-bench {pkm.__version__}"
#: Columns of the table of releases.
CHARGE = (*COST_FIELDS, "details")
#: Texts of pages and registry entries, and the questions to the data curator.
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Statement:
    """Releases and guarantee of a model, for those who approve or check it.

    Its fields are values of JSON, released or public.

    Parameters
    ----------
    method : str
        Import path of its class.
    variant : str
    claim : mapping
        Fields of :class:`pkm.privacy.PrivacyClaim`.
    ledger : mapping or None
        Its ``budget``, ``charges``, ``notes``, and whether noise is ``repeatable``;
        None where no privacy is claimed.
    public : mapping
        Number of records ``n``, ``n_clusters``, ``feature_names`` (None without names),
        ``bounds`` (2, d), and ``parameters`` but the seed.
    domain : sequence of shape (2, d)
        Bounds that the method ran in: the public ones, or some that it released.
    sha256 : mapping
        SHA-256 of each file of a saved model that holds released numbers.
    curator : mapping of str to str
        Answers of the data curator, a person or an organization, by the keys of
        ``TEXTS["questions"]``.
    software : str
        Name and version of what the model was fitted with.

    Examples
    --------
    >>> from pkm.methods import SuLloyd
    >>> model = SuLloyd(1, bounds=(0, 10)).fit([[0.0], [10.0]])
    >>> statement = model.statement(name="Opening hours")
    >>> statement.promise["guess_by_budget"]
    0.7311
    >>> statement.to_markdown().splitlines()[0]
    '# Statement: Opening hours'
    """

    method: str
    variant: str
    claim: Mapping[str, Any]
    ledger: Mapping[str, Any] | None
    public: Mapping[str, Any]
    domain: Sequence[Sequence[float]]
    sha256: Mapping[str, str]
    curator: Mapping[str, str]
    software: str

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Make a statement of the record that :meth:`to_dict` returned.

        Only fields are read: what follows from them is computed anew.

        Raises
        ------
        ValueError
            If the record has another format.
        """
        if record.get("format") != FORMAT:
            raise ValueError(f"format={record.get('format')!r} must be {FORMAT!r}")
        return cls(**{field.name: record[field.name] for field in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Return a record for JSON, with what follows from the fields.

        Returns
        -------
        dict
            The fields, and where privacy is claimed: ``promise``; ``nist``, the parts
            of the guarantee by NIST SP 800-226; ``registry``, an entry of tier 3 of the
            Differential Privacy Deployments Registry.
        """
        record = {"format": FORMAT, **asdict(self)}
        if self.ledger is not None:
            facts = self._find_facts()
            record["promise"] = self.promise
            record |= {name: _fill(TEXTS[name], facts) for name in ("nist", "registry")}
        return record

    def to_markdown(self) -> str:
        """Return the page for people, in Markdown."""
        if self.ledger is None:
            return TEXTS["no_claim"].format_map(vars(self)).lstrip()
        facts = self._find_facts()
        questions = TEXTS["questions"].items()
        answers = [(text, self.curator.get(name, "open")) for name, text in questions]
        bounds = np.concatenate([self.public["bounds"], self.domain]).T.tolist()
        names = self.public["feature_names"] or range(len(bounds))
        ends = ["lower bound", "upper bound", "lower end of domain", "upper end"]
        columns = zip(names, *zip(*bounds, strict=True), strict=True)
        releases = [
            [charge[name] for name in CHARGE] for charge in self.ledger["charges"]
        ]
        facts |= {
            "answers": _tabulate(["question", "answer"], answers),
            "columns": _tabulate(["column", *ends], columns),
            "digests": _tabulate(["released numbers", "SHA-256"], self.sha256.items()),
            "parts": _tabulate(["part", "here"], _fill(TEXTS["nist"], facts).items()),
            "releases": _tabulate(CHARGE, releases),
        }
        page = f"# Statement: {self.curator.get('name', self.method)}\n"
        for title, text in TEXTS["page"].items():
            page += f"\n## {title}\n\n{text.format_map(facts).strip()}\n"
        return page

    def to_ledger(self) -> Ledger | None:
        """Charge all releases to a new ledger, which composes them and takes no more.

        Raises
        ------
        BudgetExceeded
            If they cost more than what is promised.
        """
        record = self.ledger
        if record is None:
            return None
        charges = [Charge(**charge) for charge in record["charges"]]
        # The charges are the schedule as well: the ledger takes no others.
        ledger = Ledger(Budget(**record["budget"]), charges, record["repeatable"])
        ledger.charge(*charges)
        for note in record["notes"]:
            ledger.note(note)
        return ledger

    @property
    def promise(self) -> dict[str, float]:
        """What the ledger promises.

        ``epsilon`` and ``delta`` are those of the budget, and ``spent`` is the epsilon
        that the releases need at this delta. ``guess_by_budget`` and
        ``guess_by_releases`` are the largest probabilities with which anybody guesses
        right a fair coin that decides between two neighbors, rounded up.

        Notes
        -----
        For a fair coin the probability is (1 + TV) / 2, with the total variation TV
        between the outcomes. The delta that releases need at epsilon 0 is TV. Under
        (epsilon, delta) it is at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), by
        Kairouz, Oh, Viswanath 2015.
        """
        ledger = self.to_ledger()
        if ledger is None:
            return {}
        epsilon, delta = ledger.budget.epsilon, ledger.budget.delta
        by_budget = expit(epsilon) + delta * expit(-epsilon)
        by_releases = (1 + min(1.0, ledger.delta_at(0.0))) / 2
        # Rounded up: what is printed must not promise more than what is proved.
        return {
            "epsilon": epsilon,
            "delta": delta,
            "spent": ledger.spent(),
            "guess_by_budget": math.ceil(1e4 * by_budget) / 1e4,
            "guess_by_releases": math.ceil(1e4 * by_releases) / 1e4,
        }

    def _find_facts(self) -> dict[str, Any]:
        """Facts for the texts: values, and the texts that apply."""
        ledger = self.to_ledger()
        assert ledger is not None, "a claim has a ledger"
        flaws = {*self.claim["flaws"], *[charge.flaw for charge in ledger.charges]}
        facts: dict[str, Any] = {
            **TEXTS["always"],
            **vars(self),
            **self.public,
            **self.promise,
            "budget": ledger.budget,
            "declared": ", ".join(self.claim["public"]),
            "ids": ", ".join(sorted(flaws - {""})),
            "mechanisms": ", ".join(sorted({c.mechanism for c in ledger.charges})),
            "notes": "; ".join(ledger.notes) or "none",
            "parameters": _show(self.public["parameters"]),
        }
        for name, question in TEXTS["questions"].items():
            text = TEXTS["open"].format(question=question)
            facts[name] = self.curator.get(name, text)
        cases = {
            "unit": ledger.budget.unit,
            "notion": self.claim["notion"],
            "adjacency": ledger.budget.adjacency,
            "trust": self.claim["trust"],
            "view": self.claim["view"],
            "noise": "repeatable" if ledger.repeatable else "secure",
            "flaws": "known" if facts["ids"] else "none",
            "delta": "large" if facts["delta"] * facts["n"] > 1 else "small",
        }
        for kind, case in cases.items():
            for name, text in TEXTS[kind][case].items():
                facts[name] = text.format_map(facts)
        return facts


def describe_ledger(ledger: Ledger) -> dict[str, Any]:
    """Return the budget, charges and notes of a ledger."""
    return {
        "budget": asdict(ledger.budget),
        "repeatable": ledger.repeatable,
        "charges": [asdict(charge) for charge in ledger.charges],
        "notes": ledger.notes,
    }


def to_json(value: Any) -> Any:
    """Return a value as JSON represents it; arrays are lists, numbers stay exact.

    Dataclasses are mappings.
    """

    def simplify(item: Any) -> Any:
        return vars(item) if is_dataclass(item) else np.asarray(item).tolist()

    return json.loads(json.dumps(value, allow_nan=False, default=simplify))


def _fill(template: Any, facts: Mapping[str, Any]) -> Any:
    """Put facts into all texts; a text that is one name becomes the fact itself."""
    if isinstance(template, Mapping):
        return {name: _fill(part, facts) for name, part in template.items()}
    if isinstance(template, list):
        return [_fill(part, facts) for part in template]
    if not isinstance(template, str):
        return template
    name = template[1:-1]
    return facts[name] if name in facts else template.format_map(facts)


def _show(value: Any) -> str:
    """Write a cell of a table: numbers to ten digits, and few items of a list."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_show(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:.10g}"
    # A bar would end the cell.
    text = shorten(value) if isinstance(value, list) else str(value)
    return text.replace("|", "\\|")


def _tabulate(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_show, line))} |" for line in lines)
