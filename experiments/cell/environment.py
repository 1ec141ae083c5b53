"""Provenance of results: versions, machine, commit."""

import importlib.metadata
import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path

import pandas as pd
import psutil

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "numba",
    "hydra-core",
    "mlflow",
    "matplotlib",
    "dp-accounting",
)


def describe_environment() -> dict:
    """Describe the machine and the software.

    Returns
    -------
    dict
        Strings and numbers: python, platform, processor and its cores, memory in GiB,
        git commit, and package versions as ``version of <package>``.
    """
    details = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": name_processor(),
        "cores": os.cpu_count(),
        "memory (GiB)": round(psutil.virtual_memory().total / 2**30, 1),
        "git commit": git_commit(),
    }
    for name in PACKAGES:
        details[f"version of {name}"] = importlib.metadata.version(name)
    return details


def name_processor() -> str:
    """Name the model of the processor; its architecture where that is unknown."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line for line in lines if line.startswith("model name")]
    return models[0].partition(": ")[2] if models else platform.machine()


def describe_sources(rows: pd.DataFrame) -> dict:
    """Describe where stored rows come from: machines and versions, also earlier ones.

    Parameters
    ----------
    rows : DataFrame
        As stored, with the columns ``git``, ``versions`` and ``host``.

    Returns
    -------
    dict
        Lists of distinct values: commits, versions as text, and machines.
    """
    return {
        "computed at commit": sorted(rows["git"].unique()),
        "computed with": " or ".join(sorted(rows["versions"].unique())),
        "computed on": sorted(rows["host"].unique()),
    }


@lru_cache(maxsize=1)
def git_commit() -> str:
    """Return the project's commit, with ``+changes`` if files differ from it.

    ``unknown`` outside a checkout.
    """
    try:
        commit = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit + ("+changes" if changed else "")


def git(*arguments: str) -> str:
    """Run git in the project's folder and return what it prints.

    Raises
    ------
    OSError, subprocess.SubprocessError
        If git is not installed or fails.
    """
    call = subprocess.run(
        ["git", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return call.stdout.strip()
