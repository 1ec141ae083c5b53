"""Stored audits, made up: one of every verdict, and what `pkm audit` writes of them."""

import json
from pathlib import Path

from pkm.audit.records import SUBPACKAGES
from pkm.source import subpackages_digest

SMALL_RATIO = 0.25


def make_record(method: str, variant: str, **changes) -> dict:
    """Record of an audit without findings, of one query, with the code as it is now."""
    record = {
        "target": f"pkm.methods.{method}",
        "default": variant == "sound",
        "label": method,
        "method": method,
        "variant": variant,
        "adjacency": "zero_out",
        "flaws": [],
        "verdicts": {"replay": "consistent", "residuals": "consistent"},
        "tightness": {"sums_and_counts": 1.0},
        "findings": [],
        "n_pairs": 60,
        "tests": [],
        "lower_bound": None,
        "transcript_bound": None,
        "epsilon": None,
        "query_verdicts": {"sums_and_counts": "consistent"},
        "n_runs": 0,
        "subpackages": list(SUBPACKAGES),
        "code": subpackages_digest(*SUBPACKAGES),
    }
    return record | changes


def finding(view: str, label: str, flaw: str, message: str) -> dict:
    """What an audit saw."""
    return {"view": view, "label": label, "flaw": flaw, "message": message}


def all_records() -> list[dict]:
    """A sound method, two that are violated, one without power, one that was only replayed."""
    views = {"replay": "consistent", "residuals": "consistent", "blackbox": "consistent"}
    bounds = {"lower_bound": 0.5, "transcript_bound": 0.7, "epsilon": 1.0, "n_runs": 20_000}
    swapped = finding("replay", "budget", "F-26", "spends epsilon=1.13, claims 1")
    halved = finding("replay", "cell_counts", "", "blobs: realized mu=2, charged mu=1")
    seen = finding("blackbox", "run", "", "epsilon is at least 1.4, the ledger says 1")
    return [
        make_record("FastLloyd", "sound", verdicts=views, **bounds),
        make_record(
            "DPLloyd",
            "published",
            flaws=["F-09", "F-26"],
            verdicts=views | {"replay": "violated", "blackbox": "no power here"},
            findings=[swapped],
            **bounds | {"lower_bound": 0.0, "epsilon": 1.13},
        ),
        make_record(
            "DPM",
            "sound",
            verdicts=views | {"replay": "violated", "blackbox": "violated"},
            tightness={"cell_counts": 2.0, "splits": "inf", "cell_sums": SMALL_RATIO},
            query_verdicts={
                "cell_counts": "violated",
                "splits": "violated",
                "cell_sums": "no power here",
            },
            findings=[halved, seen],
            **bounds | {"lower_bound": 1.4, "n_runs": 2000},
        ),
        make_record(
            "Balcan",
            "sound",
            verdicts={"replay": "no power here"},
            tightness={"swaps": SMALL_RATIO},
            query_verdicts={"swaps": "no power here"},
        ),
        make_record("FastLloyd", "published", flaws=["F-09"]),
    ]


def write_records(folder: Path, records: list[dict]) -> Path:
    """Write records as ``pkm audit results=FOLDER`` does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "audit.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
