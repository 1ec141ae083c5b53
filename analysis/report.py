"""One self-contained HTML report per paper: verdicts, figures, claims, gaps, deviations, privacy, environment.

The report knows no paper: figures come from ``analysis/figures/<paper>.py``, claims and deviations from
``analysis/claims/<paper>.yaml``.
"""

import base64
import io
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pkm.analysis import claims, verdicts
from pkm.analysis.figures import figures_of
from pkm.analysis.figures.style import styled
from pkm.analysis.tables import Study, summarize, write
from pkm.files import atomic_write

_FOLDER = Path(__file__).parent
_DPI = 170
_EVIDENCE_LINES = 12
_GAP_LINES = 200
_LONG_TEXT = 300
_OURS = (".csv", ".tex", ".png", ".pdf")


def build(rows, *, paper, missing, out, environment):
    """Build figures, tables and the report of one paper from stored rows.

    Parameters
    ----------
    rows : DataFrame
        Per-seed rows with a `sweep` column, as `experiments` hands them over. May be empty of a sweep, not of columns.
    paper : str
        Name of a paper with figures and claims.
    missing : DataFrame
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`: planned cells that have no rows.
    out : path
        Folder of the report; created. ``index.html``, ``figures/`` and ``tables/`` are written into it; figures and
        tables of an earlier report there are removed first, the page is replaced in one step at the end.
    environment : mapping
        What to print under "environment", such as versions; nested mappings become groups, long texts and lists fold.

    Returns
    -------
    Path
        The HTML file.

    Raises
    ------
    ValueError
        If the paper is unknown, columns are missing, or there are no rows at all; nothing is written then.
    """
    specs, content = figures_of(paper), claims.load(paper)
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
    overview = verdicts.overview(findings)
    if findings:
        write(
            overview,
            folders["tables"],
            "claims",
            formatted=overview[["id", "verdict", "comparisons", "seeds"]].astype(str),
            caption=f"Claims of {content['title']}",
        )
    _write_summary(study, folders["tables"])
    html = _template().render(
        title=content["title"],
        reference=content["reference"],
        counts=[
            (
                verdict,
                len(mine := overview[overview["verdict"] == verdict]),
                int(mine["partial"].sum()),
            )
            for verdict in (verdicts.HOLDS, verdicts.FAILS, verdicts.INCONCLUSIVE, verdicts.NOT_RUN)
        ],
        partial=int(overview["partial"].sum()),
        claims=[_claim(finding, folders["tables"]) for finding in findings],
        level=verdicts.LEVEL,
        min_seeds=verdicts.MIN_SEEDS,
        rules=verdicts.__doc__.split("\n\n"),
        paper_figures=[figure for figure in figures if figure["in_paper"]],
        own_figures=[figure for figure in figures if not figure["in_paper"]],
        extent=_extent(rows, study),
        missing=_missing(missing),
        deviations=content["deviations"],
        privacy=privacy_table(study).to_dict("records"),
        flaws=_flaws_in(study),
        environment=_environment(environment),
    )
    page = out / "index.html"
    atomic_write(page, html.encode())
    return page


def _clear(folder):
    """Remove what an earlier report wrote: a table of a claim that is no longer judged must not look current."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix in _OURS:
            path.unlink()


def _template():
    loader = FileSystemLoader(_FOLDER / "templates")
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template("report.html.jinja")


def _figure(spec, study, folders):
    """Draw one figure, write its files, and return what the template needs."""
    with styled():
        drawn = spec.draw(study)
        image = None
        if drawn.figure is not None:
            buffer = io.BytesIO()
            drawn.figure.savefig(buffer, format="png", dpi=_DPI)
            image = buffer.getvalue()
            (folders["figures"] / f"{spec.name}.png").write_bytes(image)
            # The layout just found serves the second file too; finding it takes longer than drawing.
            drawn.figure.set_layout_engine("none")
            # Without a creation date the same rows give the same file.
            drawn.figure.savefig(
                folders["figures"] / f"{spec.name}.pdf", metadata={"CreationDate": None}
            )
    write(drawn.table, folders["tables"], spec.name, formatted=drawn.formatted, caption=drawn.caption)
    return {
        "name": spec.name,
        "title": spec.title,
        "in_paper": spec.in_paper,
        "caption": drawn.caption,
        "gaps": drawn.gaps,
        "stand_ins": drawn.stand_ins,
        "image": base64.b64encode(image).decode() if image else None,
        "table": None if image else drawn.formatted.to_dict("split"),
    }


def _write_summary(study, folder):
    """Write every mean of every sweep and metric as one CSV."""
    parts = [
        summarize(panel)
        for sweep in study.sweeps
        for metric in study.metrics
        if len((panel := study.panel(sweep, metric)).cells)
    ]
    if parts:
        pd.concat(parts, ignore_index=True).drop(columns=["charges"]).to_csv(
            folder / "summary.csv", index=False
        )


def _claim(verdict, folder):
    finding, claim = verdict.finding, verdict.claim
    name = "claim_" + claim["id"].split("/")[-1]
    shown = []
    if len(finding.evidence):
        finding.evidence.to_csv(folder / f"{name}.csv", index=False)
        shown = _telling(finding.evidence)
    return {
        "id": claim["id"],
        "short": claim["id"].split("/")[-1],
        "section": claim["section"],
        "source": claim.get("source", ""),
        "kind": claim["kind"],
        "basis": claim["basis"],
        "statement": claim["statement"],
        "reported": claim.get("reported", ""),
        "doubt": claim.get("doubt", ""),
        "verdict": finding.verdict,
        "partial": verdict.partial,
        "numbers": finding.numbers,
        "missing": finding.missing,
        "comparisons": finding.comparisons,
        "seeds": finding.seeds,
        "evidence": shown,
        "evidence_lines": len(finding.evidence),
        "evidence_file": f"tables/{name}.csv" if len(finding.evidence) else None,
    }


def _telling(evidence):
    """Pick the lines of evidence that decide: what speaks against the claim first."""
    order = {"violated": 0, "open": 1, "tied": 2, "kept": 3}
    if "outcome" in evidence:
        ranked = evidence.assign(_rank=evidence["outcome"].map(order)).sort_values(
            "_rank", kind="stable"
        )
        evidence = ranked.drop(columns="_rank")
    elif "agrees" in evidence:
        evidence = evidence.sort_values("agrees", kind="stable")
    top = evidence.head(_EVIDENCE_LINES)
    return {
        "columns": list(top.columns),
        "data": [[_short(value) for value in line] for line in top.to_numpy(dtype=object)],
    }


def _short(value):
    if isinstance(value, float):
        return "–" if pd.isna(value) else f"{value:.4g}"
    return "–" if value is None else str(value)


def _extent(rows, study):
    """What the report rests on, sweep by sweep."""
    counted = rows.groupby("sweep").agg(
        rows=("seed", "size"), cells=("cell", "nunique"), seeds=("seed", "nunique")
    )
    sets = study.cells.groupby("sweep")["dataset"].nunique().rename("datasets")
    return counted.join(sets).reset_index().to_dict("records")


def _missing(missing):
    """Group the gaps: one line per sweep, data set and reason, methods and epsilons joined."""
    if not len(missing):
        return {"total": 0, "lines": [], "hidden": 0}
    grouped = (
        missing.assign(reason=missing["reason"].astype(str).str.strip().str.split("\n").str[-1])
        .groupby(["sweep", "reason", "dataset"], sort=True)
        .agg(
            cells=("method", "size"),
            methods=("method", lambda names: ", ".join(sorted(set(names)))),
        )
        .reset_index()
    )
    lines = (
        grouped.groupby(["sweep", "reason", "methods"], sort=True)
        .agg(cells=("cells", "sum"), datasets=("dataset", lambda names: ", ".join(names)))
        .reset_index()
    )
    return {
        "total": len(missing),
        "lines": lines.head(_GAP_LINES).to_dict("records"),
        "hidden": max(len(lines) - _GAP_LINES, 0),
    }


def privacy_table(study):
    """What each method claims, to whom, and what it spent.

    Returns
    -------
    DataFrame
        One line per method, variant and preprocessing: notion, adjacency (with rho), trust, view, epsilons, delta, the
        largest share of epsilon spent, the largest epsilon left unspent, and flaws. F-10 is added where the data were
        scaled by their own bounds.
    """
    keys = ["method", "variant", "notion", "adjacency", "trust", "view", "private_bounds", "flaws"]
    lines = []
    for key, cells in study.cells.groupby(keys, sort=True):
        facts = dict(zip(keys, key, strict=True))
        private = facts["notion"] != "none"
        epsilons = sorted(cells["epsilon"].dropna().unique())
        flaws = facts["flaws"].split() + (["F-10"] if private and facts["private_bounds"] else [])
        share = (cells["epsilon_spent"] / cells["epsilon"]).max()
        lines.append(
            facts
            | {
                "adjacency": _with_rho(facts["adjacency"], cells),
                "flaws": sorted(set(flaws)),
                "private": private,
                "declared": ", ".join(f"{value:g}" for value in epsilons) or "–",
                "delta": _delta_range(cells["delta"]) if private else "–",
                "spent": f"{share:.4%}" if private else "–",
                "unspent": f"{max(cells['epsilon_unspent'].max(), 0):.2g}" if private else "–",
                "cells": cells["cell"].nunique(),
            }
        )
    return pd.DataFrame(lines).sort_values(
        ["private", "method"], ascending=[False, True], ignore_index=True
    )


def _with_rho(adjacency, cells):
    """An adjacency with the rho that it holds for: an epsilon under moves means nothing without it."""
    if adjacency != "rho_bounded" or "rho" not in cells:
        return adjacency
    rhos = set(cells["rho"].dropna())
    named = sorted(rho for rho in rhos if isinstance(rho, str))
    return (
        f"{adjacency}, ρ {', '.join([*(f'{rho:g}' for rho in sorted(rhos - set(named))), *named])}"
    )


def _delta_range(delta):
    low, high = delta.min(), delta.max()
    return "0" if high == 0 else f"{low:.2g}" if low == high else f"{low:.1e} to {high:.1e}"


def _flaws_in(study):
    """One-line meaning of every flaw id in the rows; an id without an entry says so."""
    register = yaml.safe_load((_FOLDER / "flaws.yaml").read_text(encoding="utf-8"))
    found = sorted({flaw for line in privacy_table(study)["flaws"] for flaw in line})
    return {flaw: register.get(flaw, "not in the register (analysis/flaws.yaml)") for flaw in found}


def _environment(environment):
    """Lay an environment out for print, nested mappings flattened.

    Returns
    -------
    list of dict
        `name`; `text`, the value in one line; `lines`, the items of a value too long for that, otherwise empty.
    """
    entries = []
    for name, value in environment.items():
        if isinstance(value, Mapping) and value:
            inner = _environment(value)
            entries += [entry | {"name": f"{name} · {entry['name']}"} for entry in inner]
            continue
        several = isinstance(value, list | tuple | set | frozenset)
        items = [str(item) for item in value] if several else str(value).strip().splitlines()
        text = (", " if several else " ").join(items) or "–"
        entries.append(
            {
                "name": str(name),
                "text": text,
                "lines": _split(items) if len(text) > _LONG_TEXT else [],
            }
        )
    return entries


def _split(items):
    """Return one line per item; a single long text is cut at its semicolons or commas."""
    if len(items) > 1:
        return items
    for mark in ("; ", ", "):
        if mark in items[0]:
            return items[0].split(mark)
    return items
