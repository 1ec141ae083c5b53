"""One page over the reports of all papers: ``results/reports/index.html``."""

import json
from pathlib import Path
from typing import Any

from pkm.analysis.claims.findings import NOT_RUN, VERDICTS
from pkm.analysis.pages.html import embedded, render
from pkm.analysis.pages.report import SUMMARY
from pkm.files import atomic_write

#: Profiles by how much of a paper they run.
PROFILES = ("smoke", "quick", "paper")
#: How many missing data sets a line names.
NAMED = 5


def build(folder: str | Path) -> Path:
    """Write the page over all reports in a folder, from the summary that each one has.

    Parameters
    ----------
    folder : path
        Has one folder per report, as `report.build` writes them. ``index.html`` in it
        is replaced.

    Returns
    -------
    Path
        The HTML file.

    Raises
    ------
    FileNotFoundError
        If there is no report in the folder.
    """
    folder = Path(folder)
    paths = sorted(folder.glob(f"*/{SUMMARY}"))
    if not paths:
        raise FileNotFoundError(f"no report in {folder}: make one with `make reproduce`")
    reports = [read_summary(path) for path in paths]
    reports.sort(key=lambda report: (report["paper"], -_size(report["profile"])))
    shown: dict[str, dict[str, Any]] = {}
    for report in reports:
        for picture in report["pictures"]:
            image = folder / report["folder"] / "figures" / f"{picture['name']}.png"
            picture |= {"folder": report["folder"], "image": embedded(image.read_bytes())}
            # The largest profile comes first.
            shown.setdefault(picture["name"], picture)
    html = render(
        "index.html.jinja", reports=reports, verdicts=VERDICTS, pictures=list(shown.values())
    )
    page = folder / "index.html"
    atomic_write(page, html.encode())
    return page


def _size(profile: str) -> int:
    return PROFILES.index(profile) if profile in PROFILES else -1


def read_summary(path: Path) -> dict[str, Any]:
    """Read the summary of a report, and say what it lacks and which command supplies it."""
    report = json.loads(path.read_text(encoding="utf-8"))
    missing = report["missing"]
    report |= {"folder": path.parent.name, "n_claims": sum(report["counts"].values())}
    if not missing:
        return report | _of_larger_profile(report)
    lines = sorted(missing, key=lambda line: -line["cells"])
    names = "; ".join(line["datasets"] for line in lines[:NAMED])
    more = f" and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    cells = sum(line["cells"] for line in lines)
    # Running again downloads what can be had, runs what is not run, and leaves failures alone.
    verb = "retry" if all("retry" in line["command"] for line in lines) else "reproduce"
    known = any(line["command"] for line in lines)
    run = f"make {verb} PAPER={report['paper']} PROFILE={report['profile']}" if known else ""
    return report | {"lacking": f"{cells} cells: {names}{more}", "command": run}


def _of_larger_profile(report: dict[str, Any]) -> dict[str, str]:
    """Say what a larger profile adds to a report that lacks nothing of its own."""
    size = _size(report["profile"])
    if size < 0 or size + 1 == len(PROFILES):
        return {"lacking": "nothing", "command": ""}
    larger = PROFILES[size + 1]
    count = report["counts"][NOT_RUN]
    lacking = f"nothing of this profile; {count} claims need more" if count else "nothing"
    run = f"make reproduce PAPER={report['paper']} PROFILE={larger}" if count else ""
    return {"lacking": lacking, "command": run}
