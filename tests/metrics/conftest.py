"""Metrics are tested with a separate cache for each test, on disk and in memory."""

import pytest

from pkm.metrics import reference_set


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Return the folder of the reference clusterings in the test's own cache."""
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    reference_set.cache_clear()
    return tmp_path / "cache" / "references"
