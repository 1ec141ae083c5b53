"""The register of flaws of published methods, ``flaws.yaml``, which has its fields."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from pkm.analysis.paper_files import refuse_unknown
from pkm.yaml_files import read_file

PATH = Path(__file__).with_suffix(".yaml")
#: Evidence of what no test shows.
READ = "read"


@dataclass(frozen=True)
class Flaw:
    """One entry of the register; the head of its file explains the fields."""

    title: str
    target: str
    quote: str
    evidence: str
    effect: str
    stands: str
    told: str

    @property
    def work(self) -> str:
        """Whose work it is: a paper or a library."""
        return self.target.partition(":")[0]


@cache
def read_flaws() -> dict[str, Flaw]:
    """Return the entries of the register by their ids.

    Raises
    ------
    ValueError
        If a field is unknown, absent or empty; the error names the entry.
    """
    entries = read_file(PATH)
    return {name: make_flaw(name, entry) for name, entry in entries.items()}


def make_flaw(
    name: str,
    entry: Mapping[str, str],
) -> Flaw:
    """Make a flaw of its entry, which must have all fields and no others."""
    where = f"analysis/flaws.yaml: {name}"
    known = [field.name for field in fields(Flaw)]
    refuse_unknown(entry, known, where)
    for field in known:
        value = entry.get(field)
        if not (isinstance(value, str) and value):
            raise ValueError(f"{where}: {field}={value!r} must be a text")
    return Flaw(**entry)
