"""A report folder as an RO-Crate: which run of which workflow has made its files.

The crate follows the profiles Process Run, Workflow Run and Workflow RO-Crate: the workflow is the
paper's file of sweeps, which `pkm reproduce` runs; its inputs are the profile and the data sets by
their digests; its results are the page, the figures and the tables.

References
----------
RO-Crate 1.1; Workflow Run RO-Crate 0.5, Leo et al., PLoS ONE 19 (2024), e0309210.
"""

import hashlib
import json
import mimetypes
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import pkm
from pkm.files import atomic_write

METADATA = "ro-crate-metadata.json"
WORKFLOW = "sweeps.yaml"
README = "README.md"
READ_ME = """# {title}: report on stored results ({profile})

Made by `pkm reproduce paper={paper} profile={profile}`.

- `index.html`: the report, which opens without a network
- `figures/`: pictures as PNG and PDF, and as JSON where each comes from
- `tables/`: the numbers of the figures and the evidence of each claim
- `sweeps.yaml`: what was run
- `ro-crate-metadata.json`: all of this for machines (RO-Crate, profile Workflow Run)
"""
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
LICENSE = "https://spdx.org/licenses/BSD-3-Clause"
#: Formats that Python's table of types lacks.
TYPES = {".md": "text/markdown", ".yaml": "application/yaml", ".tex": "application/x-tex"}


def write_crate(
    folder: Path,
    rows: pd.DataFrame,
    workflow: str,
    *,
    title: str,
    paper: str,
    profile: str,
    environment: Mapping,
) -> Path:
    """Write the metadata of a report folder, and the workflow file that they speak of.

    Parameters
    ----------
    folder : Path
        Of the report; all files in it become part of the crate.
    rows : DataFrame
        Rows of the report.
    workflow : str
        The sweeps that were run, as YAML.
    title, paper, profile : str
        Of the paper.
    environment : mapping
        Versions and machine, as the report prints them.

    Returns
    -------
    Path
        The metadata file.
    """
    atomic_write(folder / WORKFLOW, workflow.encode())
    atomic_write(
        folder / README, READ_ME.format(title=title, paper=paper, profile=profile).encode()
    )
    files = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name != METADATA and path.suffix != ".tmp"
    )
    content = {
        "@context": [
            "https://w3id.org/ro/crate/1.1/context",
            "https://w3id.org/ro/terms/workflow-run/context",
        ],
        "@graph": graph(folder, files, rows, title, paper, profile, environment),
    }
    path = folder / METADATA
    atomic_write(path, json.dumps(content, indent=1, ensure_ascii=False).encode())
    return path


def graph(
    folder: Path,
    files: Sequence[str],
    rows: pd.DataFrame,
    title: str,
    paper: str,
    profile: str,
    environment: Mapping,
) -> list[dict]:
    """Return the entities of a crate."""
    started, ended = times(rows)
    inputs = data_sets(rows)
    command = f"pkm reproduce paper={paper} profile={profile}"
    described = [name for name in files if name != WORKFLOW]
    results = [name for name in described if name != README]
    profiles = [identified(each) for each in PROFILES]
    return [
        {
            "@id": METADATA,
            "@type": "CreativeWork",
            "conformsTo": [
                identified("https://w3id.org/ro/crate/1.1"),
                identified("https://w3id.org/workflowhub/workflow-ro-crate/1.0"),
            ],
            "about": identified("./"),
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": f"{title}: report on stored results ({profile})",
            "description": f"Figures, tables and verdicts of the claims of {title}, computed from "
            f"{rows['cell'].nunique()} stored cells by `{command}`.",
            "datePublished": ended,
            "license": identified(LICENSE),
            "conformsTo": profiles,
            "hasPart": [identified(name) for name in files],
            "mainEntity": identified(WORKFLOW),
            "mentions": identified("#run"),
            "author": identified("#developers"),
            "publisher": identified("#developers"),
        },
        {"@id": LICENSE, "@type": "CreativeWork", "name": "BSD 3-Clause License", "url": LICENSE},
        *(
            {"@id": at, "@type": "CreativeWork", "name": name, "version": at.rpartition("/")[2]}
            for at, name in PROFILES.items()
        ),
        {
            "@id": WORKFLOW,
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
            "name": f"Sweeps of {paper}",
            "description": "Data sets, methods, budgets and metrics of every sweep",
            "programmingLanguage": identified("#pkm"),
            "license": identified(LICENSE),
            "input": [identified("#profile"), identified("#data")],
            "output": identified("#report"),
            "version": code_version(rows),
            "conformsTo": identified(
                "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
            ),
            **file_facts(folder / WORKFLOW),
        },
        {
            "@id": "#pkm",
            "@type": ["ComputerLanguage", "SoftwareApplication"],
            "name": "pkm",
            "alternateName": "private k-means bench",
            "softwareVersion": pkm.__version__,
        },
        parameter("#profile", "profile", "Text", "how much of the paper is run"),
        parameter("#data", "data", "PropertyValue", "data sets by their digests"),
        parameter("#report", "report", "File", "page, figures and tables"),
        {
            "@id": "#run",
            "@type": "CreateAction",
            "name": f"Run of {paper} at the profile {profile}",
            "description": f"Command: {command}",
            "instrument": identified(WORKFLOW),
            "object": [
                identified("#profile-value"),
                *(identified(entity["@id"]) for entity in inputs),
            ],
            "result": [identified(name) for name in results],
            "startTime": started,
            "endTime": ended,
            "agent": identified("#developers"),
            "actionStatus": "http://schema.org/CompletedActionStatus",
            "environment": identified("#environment"),
        },
        {
            "@id": "#developers",
            "@type": "Organization",
            "name": "the private k-means bench developers",
        },
        {
            "@id": "#profile-value",
            "@type": "PropertyValue",
            "name": "profile",
            "value": profile,
            "exampleOfWork": identified("#profile"),
        },
        {
            "@id": "#environment",
            "@type": "PropertyValue",
            "name": "environment",
            "value": json.dumps(environment, ensure_ascii=False, default=str),
        },
        *inputs,
        *(
            {"@id": name, "@type": "File", "name": Path(name).name, **file_facts(folder / name)}
            | ({"exampleOfWork": identified("#report")} if name == "index.html" else {})
            | ({"about": identified(picture)} if (picture := of_picture(name)) in files else {})
            | ({"about": identified("./")} if name == README else {})
            for name in described
        ),
    ]


def of_picture(name: str) -> str:
    """Return the picture that a file of the crate describes; empty for other files."""
    path = Path(name)
    return path.with_suffix(".png").as_posix() if path.suffix == ".json" else ""


def identified(identity: str) -> dict[str, str]:
    """Return a reference to an entity."""
    return {"@id": identity}


def parameter(identity: str, name: str, kind: str, description: str) -> dict:
    """Return a formal parameter of the workflow."""
    return {
        "@id": identity,
        "@type": "FormalParameter",
        "name": name,
        "additionalType": kind,
        "description": description,
        "valueRequired": True,
        "conformsTo": identified("https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"),
    }


def data_sets(rows: pd.DataFrame) -> list[dict]:
    """Return an entity for each data set, with its digest."""
    found = rows[["dataset", "data", "n", "d"]].drop_duplicates("dataset").sort_values("dataset")
    return [
        {
            "@id": f"#data-{each['dataset']}",
            "@type": "PropertyValue",
            "name": f"data set {each['dataset']}",
            "value": each["data"],
            "propertyID": "https://www.wikidata.org/wiki/Q384041",
            "description": f"SHA-256 of {each['n']} points of {each['d']} columns, with their "
            "public domain and parser",
            "exampleOfWork": identified("#data"),
        }
        for each in found.to_dict("records")
    ]


def code_version(rows: pd.DataFrame) -> str:
    """Return the commits whose code made the rows, or the project's version where none is known."""
    commits = sorted(rows["git"].dropna().unique()) if "git" in rows else []
    return ", ".join(commits) or pkm.__version__


def file_facts(path: Path) -> dict:
    """Return format, size and digest of a file."""
    content = path.read_bytes()
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    return {
        "encodingFormat": kind or "application/octet-stream",
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def times(rows: pd.DataFrame) -> tuple[str, str]:
    """Return when the first cell was begun and the last one was done, in the form of ISO 8601."""
    ended = rows["finished"].to_numpy(dtype=float)
    spent = rows.groupby("cell")[["fit_seconds", "metric_seconds"]].transform("sum").sum(axis=1)
    moments = ((ended - spent.to_numpy()).min(), ended.max())
    start, end = (datetime.fromtimestamp(each, UTC) for each in moments)
    return start.isoformat(timespec="seconds"), end.isoformat(timespec="seconds")
