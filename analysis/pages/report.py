"""One self-contained HTML report per paper, from stored rows.

It has verdicts, figures, claims, missing cells, deviations, privacy and environment,
and knows no paper: figures come from ``conf/paper/<paper>/figures.yaml``, claims and
deviations from ``conf/paper/<paper>/claims.yaml``.
"""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import LEVEL, MIN_SEEDS, VERDICTS
from pkm.analysis.figures.figure import FigureResult, read_figures
from pkm.analysis.figures.texts import DASH, missing_text
from pkm.analysis.pages import audits
from pkm.analysis.pages.audit_figure import draw_audit
from pkm.analysis.pages.audits import Audits
from pkm.analysis.pages.html import TEMPLATES, embedded, packed, render, web_width
from pkm.analysis.pages.missing import missing_table
from pkm.analysis.pages.privacy_table import flaws_in, privacy_table
from pkm.analysis.pages.table_files import write
from pkm.analysis.render import charts, plot
from pkm.analysis.render.draw import draw
from pkm.analysis.tables.statistics import BOOTSTRAP_REPEATS, summarize
from pkm.analysis.tables.study import Study
from pkm.files import atomic_write

#: What the page over all papers reads of a report.
SUMMARY = "report.json"
#: What the charts of a page are filtered by, and how it is called.
CHOICES = {"dataset": "data set", "adjacency": "adjacency"}
#: Outcomes of comparisons: what speaks against a claim comes first.
OUTCOMES = {
    "violated": 0,
    "open": 1,
    "kept": 2,
}
_MAX_EVIDENCE_LINES = 12
_WRITTEN_SUFFIXES = (".csv", ".tex", ".png")


def build(
    rows: pd.DataFrame,
    *,
    paper: str,
    missing: pd.DataFrame,
    out: str | Path,
    environment: Mapping,
    profile: str = "quick",
    audited: Audits | None = None,
) -> Path:
    """Build figures, tables and the report of one paper from stored rows.

    Parameters
    ----------
    rows : DataFrame
        Per-seed rows with a `sweep` column, as `experiments` hands them over. May be
        empty of a sweep, not of columns.
    paper : str
        Name of a paper with figures and claims.
    missing : DataFrame
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`: planned cells that
        have no rows.
    out : path
        Folder of the report; created. ``index.html``, ``report.json``, ``figures/`` and
        ``tables/`` are written into it; figures and tables of an earlier report there
        are removed first, the page is replaced in one step at the end.
    environment : mapping
        What to print under "environment", such as versions; nested mappings become
        groups, long texts and lists fold.
    profile : str, default="quick"
        Profile of the rows, for the commands on the page.
    audited : mapping of (str, str) to Audit, optional
        Stored audits, by import path and variant; those of methods without rows are
        left out.

    Returns
    -------
    Path
        The HTML file.

    Raises
    ------
    ValueError
        If the paper is unknown, columns are missing, or there are no rows at all;
        nothing is written then.
    """
    specs = read_figures(paper)
    content = read_claims(paper)
    if not len(rows):
        raise ValueError(
            f"rows is empty: run the sweeps of paper={paper!r} before its report"
        )
    study = Study(rows)
    out = Path(out)
    #: The command that runs the cells behind a figure or a claim again.
    verify = f"pkm verify {paper}/{{}} profile={profile}".format
    # Remove what an earlier report wrote.
    for folder in (out / "figures", out / "tables"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.is_file() and path.suffix in _WRITTEN_SUFFIXES:
                path.unlink()

    # Draw the figures.
    figures = [
        _write_figure(out, spec.name, draw(study, spec))
        | {"title": spec.title, "command": verify(spec.name), "spec": spec}
        for spec in specs
    ]
    drawn = [figure for figure in figures if figure["drawing"]]
    stored = [figure for figure in figures if len(figure["formatted"])]
    unstored = [figure["title"] for figure in figures if not len(figure["formatted"])]
    audit = None
    audited = audited or {}
    audits_of_rows = audits.select(audited, study.cells)
    if audits_of_rows:
        facts = {"title": "What the audit found", "command": "make audit"}
        audit = _write_figure(out, "audit", draw_audit(audits_of_rows)) | facts

    # Judge the claims.
    findings = verdicts.evaluate_claims(study, paper, missing)
    overview = verdicts.overview(findings)
    if findings:
        formatted = overview[["id", "verdict", "comparisons", "seeds"]].astype(str)
        caption = f"Claims of {content['title']}"
        write(overview, out / "tables", "claims", formatted, caption)
    _write_summary(out, study)
    totals = verdicts.count_verdicts(overview)

    # Write the page.
    privacy = privacy_table(study, audited)
    lacking = missing_table(missing, paper, profile)
    extent = _extent(rows, study)
    html = render(
        "report.html.jinja",
        paper=content,
        claims=[_write_claim(out, verdict, verify) for verdict in findings],
        counts=totals["paper"],
        code_counts=totals["code"],
        verdicts=VERDICTS,
        level=LEVEL,
        min_seeds=MIN_SEEDS,
        repeats=BOOTSTRAP_REPEATS,
        figures=stored,
        unstored=unstored,
        command=f"make reproduce PAPER={paper} PROFILE=paper",
        choices=_choices(drawn),
        extent=extent,
        missing=lacking.to_dict("records"),
        privacy=privacy.to_dict("records"),
        audit=audit,
        flaws=flaws_in(privacy),
        environment=environment,
        chart_script=chart_script() if drawn or audit else "",
    )
    summary = {
        "paper": paper,
        "profile": profile,
        "title": content["title"],
        "counts": totals["paper"],
        "code_counts": totals["code"],
        "oldest": min(line["oldest"] for line in extent),
        "newest": max(line["newest"] for line in extent),
        "missing": lacking[["datasets", "cells", "command"]].to_dict("records"),
        "pictures": [
            {key: figure[key] for key in ("name", "title", "caption", "width")}
            for figure in drawn
            if figure["spec"].front_page
        ],
    }
    text = json.dumps(
        summary,
        indent=1,
        ensure_ascii=False,
    )
    atomic_write(out / SUMMARY, text.encode())
    page = out / "index.html"
    atomic_write(page, html.encode())
    return page


def _write_figure(
    out: Path,
    name: str,
    result: FigureResult,
) -> dict:
    """Write image and table of a figure; return what the template needs of them."""
    missing = missing_text(result.missing)
    caption = f"{result.caption} {missing}".strip()
    write(
        result.table,
        out / "tables",
        name,
        result.formatted,
        caption,
    )
    context = vars(result) | {"name": name, "missing_text": missing}
    if result.drawing is None:
        return context
    # No PDF, which would take as long again: `pkm figure` writes it.
    png = plot.save(plot.plot(result.drawing), "png")
    (out / "figures" / f"{name}.png").write_bytes(png)
    chart = charts.chart(result.drawing)
    return context | {
        "image": embedded(png),
        "width": web_width(png),
        "chart": chart,
        "packed": packed(chart),
    }


def _write_summary(
    out: Path,
    study: Study,
) -> None:
    """Write every mean of every sweep and metric as one CSV."""
    matrices = [study.matrix(study.sweeps, metric) for metric in study.metrics]
    means = [summarize(matrix) for matrix in matrices if len(matrix.cells)]
    if means:
        table = pd.concat(means, ignore_index=True).drop(columns="charges")
        table.to_csv(out / "tables" / "summary.csv", index=False)


def _write_claim(
    out: Path,
    verdict: verdicts.Verdict,
    verify: Callable[[str], str],
) -> dict:
    """Write the evidence of a claim; return what the template says of it."""
    evidence = verdict.finding.evidence
    name = verdict.claim.id.split("/")[-1]
    if len(evidence):
        evidence.to_csv(out / "tables" / f"claim_{name}.csv", index=False)
    return {
        **vars(verdict.claim),
        **vars(verdict.finding),
        "short": name,
        "command": verify(name),
        "partial": verdict.partial,
        "decisive": _decisive(evidence),
    }


def _choices(figures: Sequence[Mapping]) -> list[tuple[str, str, list[str]]]:
    """Return field, label and values of what charts can be filtered by: two or more."""
    panels = [panel for figure in figures for panel in figure["chart"]["panels"]]
    records = [record for panel in panels for record in panel["values"]]
    choices = []
    for field, label in CHOICES.items():
        values = sorted({record[field] for record in records if field in record})
        if len(values) > 1:
            choices.append((field, label, values))
    return choices


@cache
def chart_script() -> str:
    """Return the JavaScript that draws charts: Vega, Vega-Lite and their embedding."""
    return gzip.decompress((TEMPLATES / "vega.js.gz").read_bytes()).decode()


def _decisive(evidence: pd.DataFrame) -> dict[str, list]:
    """Pick the lines of evidence that decide: what speaks against the claim first."""
    if "outcome" in evidence:
        order = evidence["outcome"].map(OUTCOMES)
        evidence = evidence.iloc[order.argsort(kind="stable")]
    elif "agrees" in evidence:
        evidence = evidence.sort_values("agrees", kind="stable")
    top = evidence.head(_MAX_EVIDENCE_LINES).astype(object)
    texts = top.map(
        lambda item: f"{item:.4g}" if isinstance(item, float) else str(item)
    )
    return texts.where(top.notna(), DASH).to_dict("split")


def _extent(
    rows: pd.DataFrame,
    study: Study,
) -> list[dict]:
    """Return what the report rests on, sweep by sweep, with its first and last day."""
    finished = rows.get("finished", pd.Series(None, rows.index))
    days = pd.to_datetime(finished, unit="s").dt.strftime("%Y-%m-%d").fillna("")
    by_sweep = rows.assign(day=days).groupby("sweep")
    counted = by_sweep.agg(
        rows=("seed", "size"),
        cells=("cell", "nunique"),
        seeds=("seed", "nunique"),
        oldest=("day", "min"),
        newest=("day", "max"),
    )
    datasets = study.cells.groupby("sweep")["dataset"].nunique()
    return counted.assign(datasets=datasets).reset_index().to_dict("records")
