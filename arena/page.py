"""The page of an entry, and its metadata for archives (RO-Crate 1.1)."""

import math
from pathlib import Path

import pandas as pd

from pkm.arena.entry import ENTRY, Entry
from pkm.arena.scores import cpu_ratio, geometric_mean, score_costs
from pkm.arena.suite import read_suite
from pkm.experiments.reports.crate import (
    METADATA,
    describe_files,
    make_references,
    write_json,
)
from pkm.files import atomic_write

README = "README.md"
NO_RESULT = "There is no result: see what failed."


def write_page(entry: Entry, rows: pd.DataFrame, folder: Path) -> None:
    """Write ``README.md`` and the RO-Crate metadata of an entry's folder."""
    atomic_write(folder / README, make_page(entry, rows).encode())
    files = describe_files(folder)
    # It is written last, with the digests of all others.
    files[ENTRY] = {"@id": ENTRY, "@type": "File", "encodingFormat": "application/json"}
    dataset = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"{entry.name}: private k-means on suite {entry.suite} ({entry.stage})",
        "description": "Costs, charges and released centers of a private method",
        "datePublished": entry.created,
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "author": {"@id": "#submitter"},
        "hasPart": make_references(files),
    }
    submitter = {
        "@id": "#submitter",
        "@type": "Person",
        "name": entry.submitter or "unknown",
    }
    about = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }
    crate = {
        "@context": "https://w3id.org/ro/crate/1.1/context",
        "@graph": [about, dataset, submitter, *files.values()],
    }
    write_json(folder / METADATA, crate)


def make_page(entry: Entry, rows: pd.DataFrame) -> str:
    """Make the page of an entry: results, privacy, and how to verify it.

    Parameters
    ----------
    entry : Entry
    rows : DataFrame
        Its rows and those of the reference.
    """
    lines = [
        f"# {entry.name} on suite {entry.suite} ({entry.stage})",
        "",
        f"Submitted by {entry.submitter or 'an unknown person'} on {entry.created}.",
        "A cost is the mean over seeds of NICV, the squared distance of a record to",
        "its center, divided by that of the best k-means without privacy: 1 is best.",
        "",
        "## Results",
        "",
    ]
    own = rows[rows["method"] == entry.name]
    if own.empty:
        lines.append(NO_RESULT)
    else:
        reference = read_suite(entry.suite)["reference"]
        for factor, costs in score_costs(rows, reference).groupby("bounds_factor"):
            width = "" if factor == 1 else f", {factor:g} times as wide"
            lines += [f"Bounds of the suite{width}:", "", *format_costs(costs), ""]
        cpu = cpu_ratio(rows, reference)
        if not math.isnan(cpu):
            lines += [f"A fit takes {cpu:.2g} times the CPU time of {reference}."]
        lines += format_privacy(entry, own)
    lines += ["", "## Problems", ""]
    lines += [f"- {problem}" for problem in entry.problems] or ["None."]
    lines += [
        "",
        "## Verify",
        "",
        "```",
        f"pkm arena verify entries/{entry.suite}-{entry.stage}-{entry.name}",
        "```",
        "",
    ]
    return "\n".join(lines)


def format_costs(scores: pd.DataFrame) -> list[str]:
    """Format costs as a Markdown table: data sets down, epsilon across."""
    table = scores.pivot(index="dataset", columns="epsilon", values="ratio")
    means = [geometric_mean(table[epsilon].dropna()) for epsilon in table]
    lines = {"geometric mean": means} | {
        name: list(values)
        for name, values in zip(table.index, table.to_numpy(), strict=True)
    }
    heads = ["no privacy" if e != e else f"epsilon {e:g}" for e in table.columns]
    return [
        f"| set | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
        *(
            f"| {name} | {' | '.join(f'{value:.3g}' for value in values)} |"
            for name, values in lines.items()
        ),
    ]


def format_privacy(entry: Entry, rows: pd.DataFrame) -> list[str]:
    """Format the claim, and the verdicts of conformance and audit."""
    values = {
        name: " or ".join(sorted(set(rows[name].astype(str)) - {""}))
        for name in ("notion", "adjacency", "unit", "trust", "flaws")
    }
    passed = sum(not line["error"] for line in entry.checks)
    verdicts = (entry.audit or {}).get("verdicts", {})
    text = ", ".join(f"{view} {verdict}" for view, verdict in verdicts.items())
    claim = ", ".join(f"{key} {value}" for key, value in (entry.claimed or {}).items())
    said = [f"| the program says | {claim}, which is not audited |"] if claim else []
    return [
        "",
        "## Privacy",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value or 'none'} |" for name, value in values.items()),
        *said,
        f"| conformance | {passed} of {len(entry.checks)} checks passed |",
        f"| audit | {text or 'none'} |",
    ]
