"""The page over all reports: verdicts, age, what is missing and the command that supplies it."""

import json
import re

import pytest
import reports
from fabricated.fastlloyd import SIZES, cell_rows

from pkm.analysis.claims.findings import VERDICTS
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages import index_page
from pkm.analysis.pages.html import embedded
from pkm.analysis.pages.report import SUMMARY

LINE = ("datasets", "cells", "command")


def summary(folder, paper, profile="quick", *, missing=(), **counts):
    """Write the summary of a report."""
    content = {
        "paper": paper,
        "profile": profile,
        "title": paper.upper(),
        "counts": dict.fromkeys(VERDICTS, 0) | counts,
        "code_counts": {"holds": 3, "not reproduced": 1},
        "oldest": "2026-01-01",
        "newest": "2026-02-01",
        "missing": [dict(zip(LINE, line, strict=True)) for line in missing],
        "pictures": [],
    }
    path = folder / f"{paper}-{profile}" / SUMMARY
    path.parent.mkdir()
    path.write_text(json.dumps(content))
    return path


def test_page_has_a_line_per_report_with_its_verdicts(tmp_path):
    summary(tmp_path, "dpm", holds=7, refuted=2)
    summary(tmp_path, "mufc", holds=3)
    html = index_page.build(tmp_path).read_text(encoding="utf-8")
    assert html.index("dpm-quick/index.html") < html.index("mufc-quick/index.html")
    line = html[html.index("DPM") : html.index("MUFC")]
    assert '<td data-label="own code holds">3 of 4</td>' in line
    # On a narrow window each cell has its heading beside it.
    _, *headings = re.findall("<th>(.*?)</th>", html)
    assert re.findall('<td data-label="(.*?)"', line) == headings
    numbers = re.findall(r"<td[^>]*>(\d+)</td>", line)
    assert numbers == ["7", "0", "2", "0", "0", "0", "0"]


def test_larger_profiles_come_first(tmp_path):
    for profile in ("smoke", "paper", "quick"):
        summary(tmp_path, "dpm", profile)
    html = index_page.build(tmp_path).read_text(encoding="utf-8")
    assert re.findall(r'href="dpm-(\w+)/', html) == ["paper", "quick", "smoke"]


@pytest.mark.parametrize(
    ("missing", "lacking", "command"),
    [
        ([], "nothing", ""),
        (
            [("iris", 2, ""), ("s1", 5, "pkm data fetch s1")],
            "7 cells: s1; iris",
            "make reproduce PAPER=dpm PROFILE=quick",
        ),
        (
            [("iris", 2, "make retry PAPER=dpm PROFILE=quick")],
            "2 cells: iris",
            "make retry PAPER=dpm PROFILE=quick",
        ),
        ([("tmi", 4, "")], "4 cells: tmi", ""),
    ],
)
def test_what_is_missing_and_the_command(tmp_path, missing, lacking, command):
    report = index_page.read_summary(summary(tmp_path, "dpm", missing=missing))
    assert (report["lacking"], report["command"]) == (lacking, command)


def test_claims_not_run_ask_for_the_next_profile(tmp_path):
    report = index_page.read_summary(summary(tmp_path, "dpm", "smoke", **{"not run": 3}))
    assert report["command"] == "make reproduce PAPER=dpm PROFILE=quick"
    report = index_page.read_summary(summary(tmp_path, "mufc", "paper", **{"not run": 3}))
    assert report["command"] == ""


@pytest.mark.slow
def test_the_comparison_is_on_the_front_page(tmp_path, monkeypatch):
    fronts = [spec.name for spec in read_figures("comparison") if spec.front_page]
    assert fronts == ["comparison_price"]
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    out = tmp_path / "fastlloyd-quick"
    reports.build_report("fastlloyd", rows, out, monkeypatch, ("figure2",))
    content = json.loads((out / SUMMARY).read_text())
    assert content["pictures"] == []
    content["pictures"] = [{"name": "figure2", "title": "T", "caption": "C", "width": 300}]
    (out / SUMMARY).write_text(json.dumps(content))
    html = index_page.build(tmp_path).read_text(encoding="utf-8")
    assert html.count(embedded((out / "figures" / "figure2.png").read_bytes())) == 1
    assert 'href="fastlloyd-quick/index.html#figure2"' in html
