"""One self-contained HTML report per paper, from stored rows.

It has verdicts, figures, claims, gaps, deviations, privacy and environment, and knows no paper:
figures come from ``conf/paper/<paper>/figures.yaml``, claims and deviations from
``conf/paper/<paper>/claims.yaml``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import vl_convert

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import LEVEL, MIN_SEEDS, VERDICTS
from pkm.analysis.figures.figure import FigureResult, FigureSpec, read_figures
from pkm.analysis.figures.texts import DASH, missing_text
from pkm.analysis.pages import audits
from pkm.analysis.pages.audit_figure import draw_audit
from pkm.analysis.pages.audits import Audits
from pkm.analysis.pages.html import embedded, packed, render, web_width
from pkm.analysis.pages.missing import missing_table
from pkm.analysis.pages.privacy_table import flaws_in, privacy_table
from pkm.analysis.pages.table_files import write
from pkm.analysis.render.chart import pictures
from pkm.analysis.render.draw import draw
from pkm.analysis.tables.statistics import BOOTSTRAP_REPEATS, summarize
from pkm.analysis.tables.study import Study
from pkm.files import atomic_write

#: What the page over all papers reads of a report.
SUMMARY = "report.json"
#: What the charts of a page are filtered by, and how it is called.
CHOICES = {"dataset": "data set", "adjacency": "adjacency"}
_MAX_EVIDENCE_LINES = 12
_MAX_TEXT = 300
_WRITTEN_SUFFIXES = (".csv", ".tex", ".png", ".pdf")


def check_figures_and_claims(paper: str) -> None:
    """Refuse a paper whose figures or claims are absent or not well written.

    Raises
    ------
    ValueError
        With the file, the entry and the rule.
    """
    read_figures(paper)
    read_claims(paper)


def build(
    rows: pd.DataFrame,
    *,
    paper: str,
    missing: pd.DataFrame,
    out: str | Path,
    environment: Mapping[str, Any],
    profile: str = "quick",
    audited: Audits | None = None,
) -> Path:
    """Build figures, tables and the report of one paper from stored rows.

    Parameters
    ----------
    rows : DataFrame
        Per-seed rows with a `sweep` column, as `experiments` hands them over. May be empty of a
        sweep, not of columns.
    paper : str
        Name of a paper with figures and claims.
    missing : DataFrame
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`: planned cells that have no rows.
    out : path
        Folder of the report; created. ``index.html``, ``report.json``, ``figures/`` and ``tables/``
        are written into it; figures and tables of an earlier report there are removed first, the
        page is replaced in one step at the end.
    environment : mapping
        What to print under "environment", such as versions; nested mappings become groups, long
        texts and lists fold.
    profile : str, default="quick"
        Profile of the rows, for the commands on the page.
    audited : mapping of (str, str) to Audit, optional
        Stored audits, by import path and variant; those of methods without rows are left out.

    Returns
    -------
    Path
        The HTML file.

    Raises
    ------
    ValueError
        If the paper is unknown, columns are missing, or there are no rows at all; nothing is
        written then.
    """
    specs = read_figures(paper)
    content = read_claims(paper)
    if not len(rows):
        raise ValueError(
            f"rows is empty: run the sweeps of paper={paper!r} before asking for its report"
        )
    study = Study(rows)
    out = Path(out)
    folders = {name: out / name for name in ("figures", "tables")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
        _clear(folder)
    source = Source(study, paper, profile, folders)
    findings = verdicts.evaluate(study, paper, missing)
    figures = [_figure(spec, source) for spec in specs]
    audited = audited or {}
    privacy = privacy_table(study, audited)
    lacking = missing_table(missing, paper, profile)
    extent = _extent(rows, study)
    _write_summary(study, folders["tables"])
    audit = _audit_figure(source, audited)
    charts = [figure["chart"] for figure in (*figures, audit) if figure and figure["chart"]]
    judged = _claims_context(findings, content["title"], source)
    html = render(
        "report.html.jinja",
        title=content["title"],
        reference=content["reference"],
        **judged,
        paper_figures=[figure for figure in figures if figure["in_paper"]],
        further_figures=[figure for figure in figures if not figure["in_paper"]],
        choices=_choices(figures),
        extent=extent,
        missing=lacking.to_dict("records"),
        deviations=content["deviations"],
        privacy=privacy.to_dict("records"),
        audit=audit,
        flaws=flaws_in(privacy),
        environment=_environment(environment),
        chart_script=chart_script() if charts else "",
    )
    summary = {
        "paper": paper,
        "profile": profile,
        "title": content["title"],
        "counts": {verdict: count for verdict, count, _ in judged["counts"]},
        "oldest": min(line["oldest"] for line in extent),
        "newest": max(line["newest"] for line in extent),
        "missing": lacking[["datasets", "cells", "command"]].to_dict("records"),
        "pictures": [
            {key: figure[key] for key in ("name", "title", "caption", "width")}
            for figure, spec in zip(figures, specs, strict=True)
            if spec.front_page and figure["image"]
        ],
    }
    atomic_write(out / SUMMARY, json.dumps(summary, indent=1, ensure_ascii=False).encode())
    page = out / "index.html"
    atomic_write(page, html.encode())
    return page


@dataclass(frozen=True)
class Source:
    """What a report is made of, and where its files go."""

    study: Study
    paper: str
    profile: str
    folders: Mapping[str, Path]

    def command(self, name: str) -> str:
        """Return the command that runs the cells behind a figure or a claim again."""
        return f"pkm verify {self.paper}/{name} profile={self.profile}"


def _choices(figures: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """Return field, label and values of what charts can be filtered by: two values or more."""
    panels = [panel for figure in figures if figure["chart"] for panel in figure["chart"]["concat"]]
    records = [record for panel in panels for record in panel["data"]["values"]]
    found = [
        (field, label, sorted({record[field] for record in records if field in record}))
        for field, label in CHOICES.items()
    ]
    return [choice for choice in found if len(choice[2]) > 1]


@cache
def chart_script() -> str:
    """Return the JavaScript that draws charts: Vega, Vega-Lite and their embedding."""
    return vl_convert.javascript_bundle()


def _claims_context(
    findings: Sequence[verdicts.Verdict], title: str, source: Source
) -> dict[str, Any]:
    """Write the table of verdicts, and return what the template says of claims."""
    overview = verdicts.overview(findings)
    if findings:
        formatted = overview[["id", "verdict", "comparisons", "seeds"]].astype(str)
        folder = source.folders["tables"]
        write(overview, folder, "claims", formatted=formatted, caption=f"Claims of {title}")
    counts = []
    for verdict in VERDICTS:
        judged = overview[overview["verdict"] == verdict]
        counts.append((verdict, len(judged), int(judged["partial"].sum())))
    return {
        "claims": [_claim(finding, source) for finding in findings],
        "counts": counts,
        "order": {verdict: order for order, verdict in enumerate(VERDICTS)},
        "partial": int(overview["partial"].sum()),
        "level": LEVEL,
        "min_seeds": MIN_SEEDS,
        "repeats": BOOTSTRAP_REPEATS,
    }


def _clear(folder: Path) -> None:
    """Remove what an earlier report wrote: a table of a claim that is gone is not current."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix in _WRITTEN_SUFFIXES:
            path.unlink()


def _figure(spec: FigureSpec, source: Source) -> dict[str, Any]:
    """Draw one figure, write its files, and return what the template needs."""
    written = _written(lambda: draw(source.study, spec), spec.name, source)
    return written | {"title": spec.title, "in_paper": spec.in_paper}


def _written(drawing: Callable[[], FigureResult], name: str, source: Source) -> dict[str, Any]:
    """Draw, write image and table, and return what the template needs of them."""
    result = drawing()
    image = _write_images(result, source.folders["figures"] / name)
    missing = missing_text(result.gaps)
    write(
        result.table,
        source.folders["tables"],
        name,
        formatted=result.formatted,
        caption=f"{result.caption} {missing}".strip(),
    )
    return {
        "name": name,
        "caption": result.caption,
        "command": source.command(name),
        "missing": missing,
        "n_missing": len(result.gaps),
        "substitutes": result.substitutes,
        "image": embedded(image) if image else None,
        "width": web_width(image) if image else 0,
        "chart": result.chart,
        "packed": packed(result.chart) if result.chart else None,
        "table": None if image or not len(result.formatted) else result.formatted.to_dict("split"),
    }


def _audit_figure(source: Source, audited: Audits) -> dict[str, Any] | None:
    """Draw the audits of the methods that have rows; None without any."""
    shown = audits.of_cells(audited, source.study.cells)
    if not shown:
        return None
    written = _written(lambda: draw_audit(shown), "audit", source)
    return written | {"title": "What the audit found", "in_paper": False, "command": "make audit"}


def _write_images(result: FigureResult, path: Path) -> bytes:
    """Write a figure as PNG and PDF; return the PNG, empty for a table."""
    if result.chart is None:
        return b""
    png, pdf = pictures(result.chart)
    path.with_suffix(".png").write_bytes(png)
    path.with_suffix(".pdf").write_bytes(pdf)
    return png


def _write_summary(study: Study, folder: Path) -> None:
    """Write every mean of every sweep and metric as one CSV."""
    panels = [study.matrix(sweep, metric) for sweep in study.sweeps for metric in study.metrics]
    parts = [summarize(panel) for panel in panels if len(panel.cells)]
    if parts:
        table = pd.concat(parts, ignore_index=True).drop(columns=["charges"])
        table.to_csv(folder / "summary.csv", index=False)


def _claim(verdict: verdicts.Verdict, source: Source) -> dict[str, Any]:
    """Write the evidence of a claim, and return what the template says of it."""
    finding = verdict.finding
    claim = verdict.claim
    short = claim.id.split("/")[-1]
    folder = source.folders["tables"]
    context = vars(claim) | vars(finding)
    context |= {"short": short, "command": source.command(short), "partial": verdict.partial}
    context |= {"evidence": [], "evidence_lines": len(finding.evidence), "evidence_file": None}
    if len(finding.evidence):
        finding.evidence.to_csv(folder / f"claim_{short}.csv", index=False)
        context["evidence"] = _decisive(finding.evidence)
        context["evidence_file"] = f"tables/claim_{short}.csv"
    return context


def _decisive(evidence: pd.DataFrame) -> dict[str, list]:
    """Pick the lines of evidence that decide: what speaks against the claim first."""
    order = {"violated": 0, "open": 1, "tied": 2, "kept": 3}
    if "outcome" in evidence:
        rank = evidence["outcome"].map(order).to_numpy()
        evidence = evidence.iloc[np.argsort(rank, kind="stable")]
    elif "agrees" in evidence:
        evidence = evidence.sort_values("agrees", kind="stable")
    top = evidence.head(_MAX_EVIDENCE_LINES)
    lines = top.to_numpy(dtype=object)
    return {
        "columns": list(top.columns),
        "data": [[_short(value) for value in line] for line in lines],
    }


def _short(value: object) -> str:
    if isinstance(value, float):
        return DASH if pd.isna(value) else f"{value:.4g}"
    return DASH if value is None else str(value)


def _extent(rows: pd.DataFrame, study: Study) -> list[dict[str, Any]]:
    """Return what the report rests on, sweep by sweep, with the days of its oldest, newest rows."""
    finished = rows.get("finished", pd.Series(np.nan, rows.index))
    days = pd.to_datetime(finished, unit="s").dt.strftime("%Y-%m-%d").fillna("")
    by_sweep = rows.assign(day=days).groupby("sweep")
    counted = by_sweep.agg(
        rows=("seed", "size"),
        cells=("cell", "nunique"),
        seeds=("seed", "nunique"),
        oldest=("day", "min"),
        newest=("day", "max"),
    )
    sets = study.cells.groupby("sweep")["dataset"].nunique().rename("datasets")
    return counted.join(sets).reset_index().to_dict("records")


def _environment(environment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lay an environment out for print, nested mappings flattened.

    Returns
    -------
    list of dict
        `name`; `text`, the value in one line; `lines`, the items of a value too long for that,
        otherwise empty.
    """
    entries = []
    for name, value in environment.items():
        if isinstance(value, Mapping) and value:
            for entry in _environment(value):
                entries.append(entry | {"name": f"{name} · {entry['name']}"})
            continue
        several = isinstance(value, list | tuple | set | frozenset)
        items = [str(item) for item in value] if several else str(value).strip().splitlines()
        text = (", " if several else " ").join(items) or DASH
        lines = _split(items) if len(text) > _MAX_TEXT else []
        entries.append({"name": str(name), "text": text, "lines": lines})
    return entries


def _split(items: list[str]) -> list[str]:
    """Return one line per item; a single long text is cut at its semicolons or commas."""
    if len(items) > 1:
        return items
    for mark in ("; ", ", "):
        if mark in items[0]:
            return items[0].split(mark)
    return items
