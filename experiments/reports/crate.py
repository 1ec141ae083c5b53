"""Provenance of a report folder: that of each figure, and an RO-Crate.

A JSON file beside each figure says from which rows it was drawn. The crate follows
RO-Crate 1.1 and Workflow Run RO-Crate 0.5 (Leo et al., PLoS ONE 19 (2024), e0309210).
The workflow is the paper's file of sweeps; its inputs are the profile and the data sets
by their digests; its results are the page, the figures and the tables.
"""

import json
import mimetypes
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from string import Template

import pandas as pd
import yaml

import pkm
from pkm.analysis.figures.figure import FigureSpec, read_figures
from pkm.files import atomic_write, sha256

METADATA = "ro-crate-metadata.json"
WORKFLOW = "sweeps.yaml"
README = "README.md"
#: Media type of files of which none is known.
BINARY = "application/octet-stream"
#: Keys of the provenance of a figure, and the columns of rows that have their values.
PROVENANCE_COLUMNS = {
    "sweeps": "sweep",
    "metrics_code": "metrics_code",
    "versions": "versions",
    "commits": "git",
    "machines": "host",
}
METHOD_COLUMNS = ["method", "variant", "target", "code"]


def write_provenance(
    rows: pd.DataFrame,
    paper: str,
    profile: str,
    folder: Path,
) -> None:
    """Write the provenance of every picture as ``<name>.json`` beside it."""
    for old in folder.glob("*.json"):
        old.unlink()
    for spec in read_figures(paper):
        if (folder / f"{spec.name}.png").is_file():
            provenance = describe_provenance(spec, rows, profile)
            write_json(folder / f"{spec.name}.json", provenance)


def describe_provenance(spec: FigureSpec, rows: pd.DataFrame, profile: str) -> dict:
    """Describe the rows of the sweeps that a figure names; without any, all rows."""
    specs = [spec, *map(spec.for_panel, spec.panels)]
    is_named = rows["sweep"].isin([sweep for panel in specs for sweep in panel.sweep])
    used = rows[is_named] if is_named.any() else rows
    keys = sorted(used["cell"].unique())
    name = f"{spec.paper}/{spec.name}"
    return {
        "figure": name,
        "title": spec.title,
        "command": f"pkm verify {name} profile={profile}",
        "methods": used[METHOD_COLUMNS]
        .drop_duplicates()
        .sort_values(METHOD_COLUMNS)
        .to_dict("records"),
        "data": list_digests(used),
        "cells": len(keys),
        "cells_sha256": sha256("\n".join(keys).encode()),
        **{
            key: sorted(used[column].dropna().unique())
            for key, column in PROVENANCE_COLUMNS.items()
        },
    }


def write_crate(
    folder: Path,
    rows: pd.DataFrame,
    workflow: str,
    *,
    title: str,
    paper: str,
    profile: str,
    environment: Mapping,
) -> None:
    """Write the metadata of a report folder, its workflow file and a page to read.

    All files of the folder become part of the crate. The workflow are the sweeps that
    were run, as YAML. The environment has versions and the machine, as the report
    prints them.
    """
    seconds = rows.groupby("cell")[["fit_seconds", "metric_seconds"]].transform("sum")
    started = (rows["finished"] - seconds.sum(axis=1)).min()
    metadata = {
        "name": f"{title}: report on stored results ({profile})",
        "n_cells": str(rows["cell"].nunique()),
        "command": f"pkm reproduce paper={paper} profile={profile}",
        "paper": paper,
        "commits": ", ".join(sorted(rows["git"].unique())),
        "version": pkm.__version__,
        "profile": profile,
        "environment": json.dumps(environment, ensure_ascii=False, default=str),
        "started": format_moment(started),
        "ended": format_moment(rows["finished"].max()),
    }
    atomic_write(folder / WORKFLOW, workflow.encode())
    page = read_template(README).substitute(metadata)
    atomic_write(folder / README, page.encode())
    files = describe_files(folder)
    data = describe_data(rows)
    references = {
        "files": make_references(files),
        "results": make_references(files.keys() - {WORKFLOW, README}),
        "inputs": make_references(["#profile-value", *data]),
    }
    # A value of JSON is one of YAML; the template has the quotes of texts.
    values = {
        key: json.dumps(value, ensure_ascii=False).strip('"')
        for key, value in (metadata | references).items()
    }
    crate = yaml.safe_load(read_template("crate.yaml").substitute(values))
    entities = {entity["@id"]: entity for entity in crate["@graph"]}
    for name, entity in (data | files).items():
        entities[name] = entity | entities.get(name, {})
    write_json(folder / METADATA, crate | {"@graph": list(entities.values())})


def format_moment(seconds: float) -> str:
    """Write seconds since 1970 as a moment of UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def read_template(name: str) -> Template:
    """Read a template, which has names after dollar signs."""
    path = Path(__file__).with_name("templates") / name
    return Template(path.read_text(encoding="utf-8"))


def describe_files(folder: Path) -> dict[str, dict]:
    """Describe each file of a folder; a JSON file is about the picture beside it."""
    entities = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix == ".tmp" or path.name == METADATA:
            continue
        name = path.relative_to(folder).as_posix()
        content = path.read_bytes()
        entities[name] = {
            "@id": name,
            "@type": "File",
            "name": path.name,
            "encodingFormat": mimetypes.guess_type(name)[0] or BINARY,
            "contentSize": str(len(content)),
            "sha256": sha256(content),
        }
        if path.suffix == ".json" and path.with_suffix(".png").is_file():
            entities[name]["about"] = {"@id": name.replace(".json", ".png")}
    return entities


def describe_data(rows: pd.DataFrame) -> dict[str, dict]:
    """Return an entity for each data set, with its digest."""
    return {
        f"#data-{name}": {
            "@id": f"#data-{name}",
            "@type": "PropertyValue",
            "name": f"data set {name}",
            "description": "SHA-256 of its points, with their public domain and parser",
            "value": digest,
            "exampleOfWork": {"@id": "#data"},
        }
        for name, digest in list_digests(rows).items()
    }


def list_digests(rows: pd.DataFrame) -> dict[str, str]:
    """List the data sets of rows and their digests."""
    return dict(sorted(zip(rows["dataset"], rows["data"], strict=True)))


def make_references(names: Iterable[str]) -> list[dict[str, str]]:
    """Return references to entities."""
    return [{"@id": name} for name in sorted(names)]


def write_json(path: Path, content: Mapping) -> None:
    """Write a JSON file for people and machines."""
    atomic_write(path, json.dumps(content, indent=1, ensure_ascii=False).encode())
