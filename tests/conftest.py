"""Shared fixtures: where the mirror of the original data lies, if there is one."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def mirror():
    """Return the folder with the original data files, or skip the test."""
    folder = Path(os.environ.get("PKM_DATA", ROOT / ".." / "shared" / "data"))
    if not (folder / "iris" / "iris.data").is_file():
        pytest.skip("no mirror of the original data (set PKM_DATA)")
    return folder
