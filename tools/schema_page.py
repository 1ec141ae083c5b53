"""Rewrite the tables of ``docs/schema.md`` from the declared columns.

python tools/schema_page.py docs/schema.md
"""

import itertools
import math
import sys
from collections.abc import Iterable
from pathlib import Path

from pkm.schema import COLUMNS, Column

#: Headings of the page, by kind of column.
HEADINGS = {
    "key": "Which cell and seed",
    "identity": "What was run",
    "privacy": "Privacy",
    "setting": "How it was run",
    "style": "How figures draw it",
    "metric": "Metrics",
    "resource": "Time and memory",
    "provenance": "Origin",
}
#: The line after which this script writes the page.
MARKER = "<!-- Below: python tools/schema_page.py docs/schema.md -->\n"
COLUMN_HEADINGS = ("column", "type", "meaning", "unit", "if missing", "applies to")
ARROWS = {"lower": " ↓", "higher": " ↑", "": ""}


def write_page(text: str) -> str:
    """Return the text of ``docs/schema.md`` with new tables."""
    lines = []
    for kind, heading in HEADINGS.items():
        rows = [describe_column(column) for column in COLUMNS if column.kind == kind]
        # Leave out what no column of the section has.
        used = [any(cells) for cells in zip(*rows, strict=True)]
        lines += ["", f"## {heading}", ""]
        lines += [write_row(itertools.compress(COLUMN_HEADINGS, used))]
        lines += ["|" + used.count(True) * "---|"]
        lines += [write_row(itertools.compress(cells, used)) for cells in rows]
    return text.partition(MARKER)[0] + MARKER + "\n".join(lines) + "\n"


def describe_column(column: Column) -> tuple[str, ...]:
    """Describe a column by the texts under `COLUMN_HEADINGS`."""
    # The page says once that metrics are NaN where they are missing.
    is_metric = column.kind == "metric"
    return (
        f"`{column.name}`",
        "" if column.dtype == "number" else column.dtype,
        column.label.removesuffix(f" ({column.unit})") + ARROWS[column.better],
        column.unit,
        "" if is_metric else format_default(column.missing),
        "" if column.scope == "all" else column.scope,
    )


def write_row(cells: Iterable[str]) -> str:
    """Write a row of a table, without empty cells at its end."""
    return f"| {' | '.join(cells).rstrip(' |')} |"


def format_default(value: object) -> str:
    """Format the default for rows without this column."""
    if value is None:
        return ""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if value == ():
        return "null"
    return str(value).lower() or "empty"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(write_page(path.read_text(encoding="utf-8")), encoding="utf-8")
