"""One page over the reports of all papers: ``results/reports/index.html``."""

import json
from pathlib import Path

from pkm.analysis.claims.findings import NOT_RUN, VERDICTS
from pkm.analysis.pages.html import embedded, render
from pkm.analysis.pages.report import SUMMARY
from pkm.files import atomic_write
from pkm.names import list_names

#: Profiles by how much of a paper they run.
PROFILES = ("smoke", "quick", "paper")
_SIZES = {name: size for size, name in enumerate(PROFILES)}
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
    """
    folder = Path(folder)
    reports = read_summaries(folder)
    # The largest profile comes first, and its pictures count.
    reports.sort(
        key=lambda report: (report["paper"], -_SIZES.get(report["profile"], -1))
    )
    pictures: dict[str, dict] = {}
    for report in reports:
        for picture in report["pictures"]:
            name = picture["name"]
            image = folder / report["folder"] / "figures" / f"{name}.png"
            picture["folder"] = report["folder"]
            picture["image"] = embedded(image.read_bytes())
            pictures.setdefault(name, picture)
    page = folder / "index.html"
    html = render(
        "index.html.jinja",
        reports=reports,
        verdicts=VERDICTS,
        pictures=list(pictures.values()),
    )
    atomic_write(page, html.encode())
    return page


def read_summaries(folder: Path) -> list[dict]:
    """Read the summaries of all reports in a folder; see `read_summary`."""
    return [read_summary(path) for path in sorted(folder.glob(f"*/{SUMMARY}"))]


def read_summary(path: Path) -> dict:
    """Read the summary of a report, and say what it lacks and which command helps."""
    report = json.loads(path.read_text(encoding="utf-8"))
    report |= {
        "folder": path.parent.name,
        "n_claims": sum(report["counts"].values()),
        "n_code": sum(report.get("code_counts", {}).values()),
    }
    verb = "reproduce"
    profile = report["profile"]
    missing = sorted(report["missing"], key=lambda line: -line["cells"])
    lacking = "nothing"
    has_command = any(line["command"] for line in missing)
    if missing:
        names = list_names([line["datasets"] for line in missing], NAMED, "; ")
        lacking = f"{sum(line['cells'] for line in missing)} cells: {names}"
        # Running again downloads what can be had, runs what is not run, and leaves
        # failures alone.
        if all("retry" in line["command"] for line in missing):
            verb = "retry"
    elif profile in PROFILES[:-1] and report["counts"][NOT_RUN]:
        # Say what a larger profile adds.
        has_command = True
        profile = PROFILES[_SIZES[profile] + 1]
        count = report["counts"][NOT_RUN]
        lacking = f"nothing of this profile; {count} claims need more"
    command = f"make {verb} PAPER={report['paper']} PROFILE={profile}"
    return report | {"lacking": lacking, "command": command if has_command else ""}
