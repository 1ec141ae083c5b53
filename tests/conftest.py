"""Groups of tests, and fixtures that they share."""

import gc
import os
import sys
from pathlib import Path

import pytest
import web
from absl import logging as absl_logging

from pkm.analysis.render import chart
from pkm.methods import PrivateKMeans
from pkm.privacy import NoiseStreams

TESTS = Path(__file__).resolve().parent
#: No test downloads data, nor a process that one starts.
os.environ["PKM_FETCH"] = "false"
# absl, which dp-accounting imports, closes the stream of its handler when Hydra sets up logging. It
# would be the file in which pytest catches output.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__
GROUPS = {"statistical", "integration", "slow"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests without a group as unit tests, and run the tests of a file in one process."""
    for item in items:
        names = [mark.name for mark in item.iter_markers()]
        if GROUPS.isdisjoint(names):
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
    """Return the folder of an empty cache; there is neither a mirror nor downloads."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PKM_CACHE", str(folder))
    for name in ("PKM_DATA", "PKM_DOWNLOAD"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def server(monkeypatch):
    """Address of a web server on this machine, its pages and the requests; see `web.serving`."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with web.serving() as served:
        yield served


@pytest.fixture
def shared_noise(monkeypatch):
    """Let runs of one seed have the same noise, whatever their method and parameters."""

    def noise_streams(method, seeds, *shape, public_seeds=None, **where):
        return NoiseStreams(seeds, public_seeds=public_seeds)

    monkeypatch.setattr(PrivateKMeans, "noise_streams", noise_streams)


@pytest.fixture
def new_objects_alone():
    """Let the garbage collector see the objects of the test alone, not those of all modules."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def drafts(request, monkeypatch):
    """Save figures as drafts: small, no PDF. Slow tests save them in full."""
    if request.node.get_closest_marker("slow") is not None:
        return
    monkeypatch.setattr(chart, "RESOLUTION", 40)
    monkeypatch.setattr(chart, "svg_to_pdf", lambda svg: b"%PDF")
