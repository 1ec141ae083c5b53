"""Where the figures of a report come from: a JSON file beside each picture."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from pkm.analysis.figures.figure import FigureSpec, read_figures
from pkm.files import atomic_write

#: Columns that say how a method was run.
RUN = ["method", "variant", "target", "code"]


def write_origins(rows: pd.DataFrame, paper: str, profile: str, folder: Path) -> list[Path]:
    """Write the origin of every picture of a report as ``<name>.json`` beside it.

    Parameters
    ----------
    rows : DataFrame
        Rows of the report, with their sweeps.
    paper, profile : str
    folder : Path
        Of the pictures. Origins of pictures that are gone are removed.

    Returns
    -------
    list of Path
        The files written.
    """
    for old in folder.glob("*.json"):
        old.unlink()
    written = []
    for spec in read_figures(paper):
        if (folder / f"{spec.name}.png").is_file():
            origin = origin_of_figure(spec, rows, profile)
            path = folder / f"{spec.name}.json"
            atomic_write(path, json.dumps(origin, indent=1, ensure_ascii=False).encode())
            written.append(path)
    return written


def origin_of_figure(spec: FigureSpec, rows: pd.DataFrame, profile: str) -> dict:
    """Describe what a figure is made from.

    Parameters
    ----------
    spec : FigureSpec
    rows : DataFrame
        Rows of the report, with their sweeps.
    profile : str

    Returns
    -------
    dict
        `figure`, `title`, `command` (that runs it again), `sweeps`, `methods` (method, variant,
        import path and hash of the code), `data` (name to SHA-256), `metrics_code`, `versions`,
        `commits`, `machines`, `cells` (how many) and `cells_sha256`, the digest of their keys. They
        are those of all rows of the sweeps that the figure names, and of all sweeps where it names
        none.
    """
    used = of_sweeps(spec, rows)
    keys = sorted(used["cell"].unique())
    data = used[["dataset", "data"]].drop_duplicates().sort_values("dataset")
    return {
        "figure": f"{spec.paper}/{spec.name}",
        "title": spec.title,
        "command": f"pkm verify {spec.paper}/{spec.name} profile={profile}",
        "sweeps": sorted(used["sweep"].unique()),
        "methods": used[RUN].drop_duplicates().sort_values(RUN).to_dict("records"),
        "data": dict(zip(data["dataset"], data["data"], strict=True)),
        "metrics_code": distinct(used, "metrics_code"),
        "versions": distinct(used, "versions"),
        "commits": distinct(used, "git"),
        "machines": distinct(used, "host"),
        "cells": len(keys),
        "cells_sha256": digest_of(keys),
    }


def of_sweeps(spec: FigureSpec, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the sweeps that a figure or one of its panels names; without any, all."""
    panels = [spec.part(name) for name in spec.panels]
    named = {sweep for each in (spec, *panels) for sweep in each.sweep}
    chosen = rows[rows["sweep"].isin(named)]
    return chosen if len(chosen) else rows


def distinct(rows: pd.DataFrame, column: str) -> list[str]:
    """Return the distinct texts of a column, sorted; none where rows lack it."""
    return sorted(rows[column].dropna().unique()) if column in rows else []


def digest_of(texts: Sequence[str]) -> str:
    """Return the SHA-256 of some lines."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
