"""Rewrite the tables of ``docs/schema.md`` from the declared columns.

python tools/schema_page.py docs/schema.md
"""

import math
import sys
from pathlib import Path

from pkm.schema import COLUMNS

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
HEADING = """
## {}

| column | type | meaning | unit | if missing | applies to |
|---|---|---|---|---|---|"""
ARROWS = {"lower": " ↓", "higher": " ↑", "": ""}


def write_page(text: str) -> str:
    """Return the text of ``docs/schema.md`` with new tables."""
    lines = []
    for kind, heading in HEADINGS.items():
        lines.append(HEADING.format(heading))
        for column in COLUMNS:
            if column.kind == kind:
                meaning = column.label + ARROWS[column.better]
                # The page says once that metrics are NaN where they are missing.
                is_metric = kind == "metric"
                missing = "" if is_metric else format_default(column.missing)
                applies_to = "" if column.scope == "all" else column.scope
                dtype = "" if column.dtype == "number" else column.dtype
                cells = (dtype, meaning, column.unit, missing, applies_to)
                row = f"`{column.name}` | {' | '.join(cells)}"
                lines.append(f"| {row.rstrip(' |')} |")
    return text.partition(MARKER)[0] + MARKER + "\n".join(lines) + "\n"


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
