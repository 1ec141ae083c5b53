"""The page of the docs on the last full audit: its numbers, and its figure.

    python tools/audit_page.py results/audit.jsonl docs

writes ``docs/audit.md`` and ``docs/figures/audit.png``; ``make audit`` calls it.
"""

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pandas as pd

from pkm.analysis.figures.texts import count_text
from pkm.analysis.pages.audit_figure import draw_audit, read_spec
from pkm.analysis.pages.audits import Audit, read, table
from pkm.analysis.render import plot
from pkm.arguments import Parser
from pkm.files import atomic_write

WIDTH = 110  # of prose
TEXT = """# The last full audit

Written by `make audit`. What the words mean, and what an audit can and cannot see:
[privacy](privacy.md#the-audit). No verdict says that a method is private.

| verdict | variants of methods |
|---|---|
{counts}

{findings}

![Realized over charged, and lower bounds on epsilon]({figure})

*{caption}*

{numbers}

The black box and the residuals have default parameters, with epsilon 1. The replay
draws others. The figure has the worst query of each method.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page.

    Returns
    -------
    int
        Exit code: 0, or 2 if there is no audit to write about.
    """
    parser = Parser(prog="tools/audit_page.py", description=__doc__.splitlines()[0])
    for name in ("audits", "folder"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args(arguments)
    path = options.audits
    folder = options.folder
    try:
        audits = list(read(path).values())
        if not audits:
            raise ValueError(f"{path} has no audits: run `make audit`")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    drawn = draw_audit([_keep_worst_query(audit) for audit in audits])
    digest = plot.digest(read_spec(), "bench")
    figure = plot.plot(drawn.drawing)
    picture = plot.save(figure, "png", digest)
    atomic_write(folder / "figures" / "audit.png", picture)
    page = TEXT.format(
        counts=_format_counts(audits),
        findings=_format_findings(audits),
        figure="figures/audit.png",
        caption=textwrap.fill(drawn.caption, WIDTH),
        numbers=_format_table(drawn.formatted),
    )
    atomic_write(folder / "audit.md", page.encode())
    return 0


def _keep_worst_query(audit: Audit) -> Audit:
    """Keep the largest ratio of a method: the page has many methods."""
    by_ratio = sorted(audit.tightness.items(), key=itemgetter(1))
    return replace(audit, tightness=dict(by_ratio[-1:]))


def _format_counts(audits: Sequence[Audit]) -> str:
    """Write the lines of the table of verdicts."""
    counts = table(audits)["verdict"].value_counts()
    return "\n".join(f"| {verdict} | {count} |" for verdict, count in counts.items())


def _format_findings(audits: Sequence[Audit]) -> str:
    """Write one item for each finding."""
    items = [
        f"- **{audit.name}**, {finding['view']}, {finding['label'].replace('_', ' ')} "
        f"({finding['flaw'] or 'not registered'}): "
        f"{finding['message'].replace('_', ' ')}"
        for audit in audits
        for finding in audit.findings
    ]
    if not items:
        return f"No finding in {count_text([len(audits)], 'variants')}."
    heading = "Findings, with the registered [flaws](glossary.md#flaw):"
    return "\n".join([heading, "", *items])


def _format_table(formatted: pd.DataFrame) -> str:
    """Write the table in Markdown, without what the caption says."""
    in_caption = ["adjacency", "residuals", "pairs", "runs"]
    formatted = formatted.drop(columns=in_caption)
    lines = [
        list(formatted.columns),
        ["---"] * formatted.shape[1],
        *formatted.astype(str).to_numpy().tolist(),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
