"""Groups of tests, and fixtures that they share."""

import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure

TESTS = Path(__file__).resolve().parent
GROUPS = {"statistical", "integration", "slow"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests of no other group as unit tests, and keep the tests of a file in one process."""
    for item in items:
        if GROUPS.isdisjoint(mark.name for mark in item.iter_markers()):
            item.add_marker(pytest.mark.unit)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(TESTS))))


@pytest.fixture(scope="session")
def mirror():
    """Return the folder with the original data files, or skip the test."""
    folder = Path(os.environ.get("PKM_DATA", TESTS / ".." / ".." / "shared" / "data"))
    if not (folder / "iris" / "iris.data").is_file():
        pytest.skip("no mirror of the original data (set PKM_DATA)")
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache for data, and neither a mirror nor downloads: return the folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PKM_CACHE", str(folder))
    for name in ("PKM_DATA", "PKM_DOWNLOAD"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture(autouse=True)
def drafts(request, monkeypatch):
    """Save figures as drafts: small, not laid out, no PDF. Slow tests save them as they are."""
    if request.node.get_closest_marker("slow") is not None:
        return
    save = Figure.savefig

    def savefig(figure, target, **options):
        if str(target).endswith(".pdf"):
            Path(target).touch()
            return
        figure.set_layout_engine("none")
        save(figure, target, **options | {"dpi": 40})

    monkeypatch.setattr(Figure, "savefig", savefig)
