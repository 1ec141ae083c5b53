"""Print the register of flaws, all of it or that of some works.

    python tools/flaws.py [WORK ...]

The site of ``make docs`` shows the part of a work where a page has a comment
``<!-- flaws: WORK -->``: MkDocs calls `on_page_markdown` (``hooks`` in ``mkdocs.yml``).
"""

import argparse
import re
from collections.abc import Iterable
from typing import Any

from pkm.analysis.flaws import READ, Flaw, read_flaws

COMMENT = re.compile("<!-- flaws: (.*?) -->")


def format_flaw(name: str, flaw: Flaw) -> str:
    """Write one entry as a paragraph in Markdown."""
    evidence = "read, not tested" if flaw.evidence == READ else f"`{flaw.evidence}`"
    return (
        f"**{name}.** {flaw.title}  \n"
        f"*Where*: {flaw.target}, `{flaw.quote}`  \n"
        f"*Effect*: {flaw.effect}  \n"
        f"*What stands*: {flaw.stands}  \n"
        f"*Shown by*: {evidence}. *Authors told*: {flaw.told}.\n"
    )


def format_flaws(works: Iterable[str]) -> str:
    """Write the entries of some works, or all."""
    works = set(works)
    flaws = read_flaws()
    unknown = works - {flaw.work for flaw in flaws.values()}
    if unknown:
        raise ValueError(f"no flaw is registered of {', '.join(sorted(unknown))}")
    return "\n".join(
        format_flaw(name, flaw)
        for name, flaw in flaws.items()
        if not works or flaw.work in works
    )


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put entries in the place of their comments: a hook of MkDocs."""
    return COMMENT.sub(lambda match: format_flaws(match[1].split(", ")), markdown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the register of flaws.")
    parser.add_argument("works", nargs="*", metavar="WORK", help="such as DPM")
    try:
        print(format_flaws(parser.parse_args().works))
    except ValueError as error:
        parser.error(str(error))
