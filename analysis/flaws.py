"""The register of flaws of published methods, ``flaws.yaml``, which has its fields."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pkm.analysis.paper_files import parse_entry
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
        If a field is unknown, absent or no text; the error names the entry.
    """
    entries = read_file(PATH)
    return {
        name: parse_entry(Flaw, entry, f"analysis/flaws.yaml: {name}")
        for name, entry in entries.items()
    }
