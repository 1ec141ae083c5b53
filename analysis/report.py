"""One self-contained HTML report per paper, from stored rows.

It has verdicts, figures, claims, gaps, deviations, privacy and environment, and knows no paper:
figures come from ``conf/paper/<paper>/figures.yaml``, claims and deviations from
``conf/paper/<paper>/claims.yaml``.
"""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import vl_convert
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from pkm.analysis import audits, claims, verdicts
from pkm.analysis.audits import Audits
from pkm.analysis.figure import FigureResult, FigureSpec, figures_of
from pkm.analysis.findings import LEVEL, MIN_SEEDS, VERDICTS
from pkm.analysis.render.audit import draw_audit
from pkm.analysis.render.figures import draw
from pkm.analysis.render.layout import DASH, missing_text
from pkm.analysis.render.style import styled
from pkm.analysis.tables import BOOTSTRAP_REPEATS, Study, summarize, write
from pkm.files import atomic_write

_FOLDER = Path(__file__).parent
_DPI = 170
_CSS_DPI = 96  # a figure of 10 inches is at most 960 pixels wide on the page
_MAX_EVIDENCE_LINES = 12
_MAX_MISSING_LINES = 200
_MAX_TEXT = 300
_WRITTEN_SUFFIXES = (".csv", ".tex", ".png", ".pdf")


def build(
    rows: pd.DataFrame,
    *,
    paper: str,
    missing: pd.DataFrame,
    out: str | Path,
    environment: Mapping[str, Any],
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
        Folder of the report; created. ``index.html``, ``figures/`` and ``tables/`` are written into
        it; figures and tables of an earlier report there are removed first, the page is replaced in
        one step at the end.
    environment : mapping
        What to print under "environment", such as versions; nested mappings become groups, long
        texts and lists fold.
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
    specs = figures_of(paper)
    content = claims.load(paper)
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
    findings = verdicts.evaluate(study, paper, missing)
    figures = [_figure(spec, study, folders) for spec in specs]
    audited = audited or {}
    _write_summary(study, folders["tables"])
    html = _template().render(
        title=content["title"],
        reference=content["reference"],
        **_claims_context(findings, content["title"], folders["tables"]),
        paper_figures=[figure for figure in figures if figure["in_paper"]],
        further_figures=[figure for figure in figures if not figure["in_paper"]],
        extent=_extent(rows, study),
        missing=_missing(missing),
        deviations=content["deviations"],
        privacy=privacy_table(study, audited).to_dict("records"),
        audit=_audit_figure(study, audited, folders),
        flaws=_flaws_in(study),
        environment=_environment(environment),
        chart_script=chart_script() if any(figure["chart"] for figure in figures) else "",
    )
    page = out / "index.html"
    atomic_write(page, html.encode())
    return page


@cache
def chart_script() -> str:
    """Return the JavaScript that draws charts: Vega, Vega-Lite and their embedding."""
    return vl_convert.javascript_bundle()


def _claims_context(
    findings: Sequence[verdicts.Verdict], title: str, folder: Path
) -> dict[str, Any]:
    """Write the table of verdicts, and return what the template says of claims."""
    overview = verdicts.overview(findings)
    if findings:
        formatted = overview[["id", "verdict", "comparisons", "seeds"]].astype(str)
        write(overview, folder, "claims", formatted=formatted, caption=f"Claims of {title}")
    counts = []
    for verdict in VERDICTS:
        judged = overview[overview["verdict"] == verdict]
        counts.append((verdict, len(judged), int(judged["partial"].sum())))
    return {
        "claims": [_claim(finding, folder) for finding in findings],
        "counts": counts,
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


def _template() -> Template:
    loader = FileSystemLoader(_FOLDER / "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("report.html.jinja")


def _figure(spec: FigureSpec, study: Study, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Draw one figure, write its files, and return what the template needs."""
    written = _written(lambda: draw(study, spec), spec.name, folders)
    return written | {"title": spec.title, "in_paper": spec.in_paper}


def _written(
    drawing: Callable[[], FigureResult], name: str, folders: Mapping[str, Path]
) -> dict[str, Any]:
    """Draw, write image and table, and return what the template needs of them."""
    with styled():
        result = drawing()
        image = _write_images(result, folders["figures"] / name)
    write(
        result.table,
        folders["tables"],
        name,
        formatted=result.formatted,
        caption=f"{result.caption} {missing_text(result.gaps)}".strip(),
    )
    width = result.figure.get_figwidth() * _CSS_DPI if result.figure else 0
    return {
        "name": name,
        "caption": result.caption,
        "missing": missing_text(result.gaps),
        "substitutes": result.substitutes,
        "image": base64.b64encode(image).decode() if image else None,
        "width": round(width),
        "chart": result.chart if image else None,
        "table": None if image or not len(result.formatted) else result.formatted.to_dict("split"),
    }


def _audit_figure(
    study: Study, audited: Audits, folders: Mapping[str, Path]
) -> dict[str, Any] | None:
    """Draw the audits of the methods that have rows; None without any."""
    shown = audits.of_cells(audited, study.cells)
    if not shown:
        return None
    written = _written(lambda: draw_audit(shown), "audit", folders)
    return written | {"title": "What the audit found", "in_paper": False}


def _write_images(result: FigureResult, path: Path) -> bytes:
    """Write a figure as PNG and PDF; return the PNG, empty for a table."""
    if result.figure is None:
        return b""
    buffer = io.BytesIO()
    result.figure.savefig(buffer, format="png", dpi=_DPI)
    path.with_suffix(".png").write_bytes(buffer.getvalue())
    # The layout serves the second file too; finding it takes longer than drawing.
    result.figure.set_layout_engine("none")
    # Without a creation date the same rows give the same file.
    result.figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    return buffer.getvalue()


def _write_summary(study: Study, folder: Path) -> None:
    """Write every mean of every sweep and metric as one CSV."""
    panels = [study.panel(sweep, metric) for sweep in study.sweeps for metric in study.metrics]
    parts = [summarize(panel) for panel in panels if len(panel.cells)]
    if parts:
        table = pd.concat(parts, ignore_index=True).drop(columns=["charges"])
        table.to_csv(folder / "summary.csv", index=False)


def _claim(verdict: verdicts.Verdict, folder: Path) -> dict[str, Any]:
    """Write the evidence of a claim, and return what the template says of it."""
    finding = verdict.finding
    claim = verdict.claim
    short = claim.id.split("/")[-1]
    context = vars(claim) | {
        "short": short,
        "verdict": finding.verdict,
        "partial": verdict.partial,
        "numbers": finding.numbers,
        "missing": finding.missing,
        "comparisons": finding.comparisons,
        "seeds": finding.seeds,
        "evidence": [],
        "evidence_lines": len(finding.evidence),
        "evidence_file": None,
    }
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
    """Return what the report rests on, sweep by sweep."""
    counted = rows.groupby("sweep").agg(
        rows=("seed", "size"), cells=("cell", "nunique"), seeds=("seed", "nunique")
    )
    sets = study.cells.groupby("sweep")["dataset"].nunique().rename("datasets")
    return counted.join(sets).reset_index().to_dict("records")


def _missing(missing: pd.DataFrame) -> dict[str, Any]:
    """Group the gaps: one line per sweep, reason and methods, with their data sets."""
    if not len(missing):
        return {"total": 0, "lines": [], "hidden": 0}
    # The last line of a traceback says what went wrong.
    reasons = missing["reason"].astype(str).str.strip().str.split("\n").str[-1]
    by_dataset = missing.assign(reason=reasons).groupby(["sweep", "reason", "dataset"], sort=True)
    grouped = by_dataset.agg(
        cells=("method", "size"),
        methods=("method", lambda names: ", ".join(sorted(set(names)))),
    ).reset_index()
    by_methods = grouped.groupby(["sweep", "reason", "methods"], sort=True)
    lines = by_methods.agg(cells=("cells", "sum"), datasets=("dataset", ", ".join)).reset_index()
    return {
        "total": len(missing),
        "lines": lines.head(_MAX_MISSING_LINES).to_dict("records"),
        "hidden": max(len(lines) - _MAX_MISSING_LINES, 0),
    }


def privacy_table(study: Study, audited: Audits | None = None) -> pd.DataFrame:
    """Return what each method claims, towards whom, what it spent, and what its audit found.

    Parameters
    ----------
    study : Study
    audited : mapping of (str, str) to Audit, optional
        Stored audits, by import path and variant.

    Returns
    -------
    DataFrame
        One line per method, variant and preprocessing: notion, adjacency (with rho), trust, view,
        epsilons, delta, the largest share of epsilon spent, the largest epsilon left unspent,
        flaws, the verdict of the audit and those of its views. F-10 is added where the data were
        scaled by their own bounds; rows on points of a map fitted to the records have F-28, and a
        line of their own.
    """
    keys = ["method", "variant", "notion", "adjacency", "trust", "view", "private_bounds", "flaws"]
    lines = []
    for key, cells in study.cells.groupby(keys, sort=True):
        facts = dict(zip(keys, key, strict=True))
        private = facts["notion"] != "none"
        flaws = set(facts["flaws"].split())
        if private and facts["private_bounds"]:
            flaws.add("F-10")
        epsilons = sorted(cells["epsilon"].dropna().unique())
        share = (cells["epsilon_spent"] / cells["epsilon"]).max()
        unspent = max(cells["epsilon_unspent"].max(), 0)
        facts |= {
            "adjacency": _with_rho(facts["adjacency"], cells),
            "flaws": sorted(flaws),
            "private": private,
            "declared": ", ".join(f"{value:g}" for value in epsilons) or DASH,
            "delta": _delta_range(cells["delta"]) if private else DASH,
            "spent": f"{share:.4%}" if private else DASH,
            "unspent": f"{unspent:.2g}" if private else DASH,
            "cells": cells["cell"].nunique(),
        }
        facts |= _audit_facts(cells, audited or {}) if private else {"audit": DASH, "views": ""}
        lines.append(facts)
    table = pd.DataFrame(lines)
    return table.sort_values(["private", "method"], ascending=[False, True], ignore_index=True)


def _audit_facts(cells: pd.DataFrame, audited: Audits) -> dict[str, str]:
    """Return the verdict of the audit of some cells of one method, and those of its views."""
    audit = audits.find(audited, cells["target"].iloc[0], cells["variant"].iloc[0])
    if audit is None:
        return {"audit": audits.NOT_TRIED, "views": ""}
    return {"audit": audit.summary(), "views": audit.by_view()}


def _with_rho(adjacency: str, cells: pd.DataFrame) -> str:
    """Return an adjacency with its rho: an epsilon under moves means nothing without it."""
    if adjacency != "rho_bounded" or "rho" not in cells:
        return adjacency
    rhos = set(cells["rho"].dropna())
    named = {rho for rho in rhos if isinstance(rho, str)}
    texts = [f"{rho:g}" for rho in sorted(rhos - named)] + sorted(named)
    return f"{adjacency}, ρ {', '.join(texts)}"


def _delta_range(delta: pd.Series) -> str:
    low = delta.min()
    high = delta.max()
    if high == 0:
        return "0"
    return f"{low:.2g}" if low == high else f"{low:.1e} to {high:.1e}"


def _flaws_in(study: Study) -> dict[str, str]:
    """Return the meaning of every flaw id in the rows; an id without an entry says so."""
    register = yaml.safe_load((_FOLDER / "flaws.yaml").read_text(encoding="utf-8"))
    ids = sorted({flaw for flaws in privacy_table(study)["flaws"] for flaw in flaws})
    return {flaw: register.get(flaw, "not in the register (analysis/flaws.yaml)") for flaw in ids}


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
