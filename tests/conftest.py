"""Groups of tests, and fixtures that they share.

Fixtures import from the project, not this module: the process that deals out tests needs nothing.
"""

import gc
import os
import sys
from pathlib import Path

import pytest
import web
from absl import logging as absl_logging
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).resolve().parent
#: No test downloads data, nor a process that one starts.
os.environ["PKM_FETCH"] = "false"
# Threads of OpenMP and BLAS sleep while they wait. By default they spin, and keep the cores from
# other processes of tests: a small k-means then takes up to 200 times as much CPU time.
os.environ |= {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}
# absl, which dp-accounting imports, closes the stream of its handler when Hydra sets up logging. It
# would be the file in which pytest catches output.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__
GROUPS = {"statistical", "integration", "slow"}
#: Files that take longest come first, so that no process waits for them in the end.
FIRST = [TESTS / "audit/test_report.py", TESTS / "federation/test_parties.py"]
#: Tests that fabricate the same rows, draw the same figures and judge the same claims, by the
#: beginnings of their names.
REPORTS = (
    "tests/analysis/",
    "tests/golden/test_golden.py::test_golden_records_of_studies",
    "tests/test_schema.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Look for no garbage among modules and tests: neither now nor in the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark tests without a group as unit tests, and put the longest files first."""
    for item in items:
        names = [mark.name for mark in item.iter_markers()]
        if GROUPS.isdisjoint(names):
            item.add_marker(pytest.mark.unit)
    items.sort(key=lambda item: item.path not in FIRST)


class FileScheduling(LoadFileScheduling):
    """Give a process whole files of tests, which share what they have made.

    Marks of groups have no effect: with pytest 9.2, pytest-xdist 3.8 does not see them (its issue
    1386) and deals out single tests.
    """

    def _split_scope(self, nodeid):
        return "reports" if nodeid.startswith(REPORTS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Deal out files in their order."""
    config.option.loadscopereorder = False
    return FileScheduling(config, log)


@pytest.fixture(scope="session")
def data_dir():
    """Return the folder with the original data files, or skip the test."""
    folder = Path(os.environ.get("PKM_DATA", TESTS / ".." / ".." / "shared" / "data"))
    if not (folder / "iris" / "iris.data").is_file():
        pytest.skip("no folder of the original data (set PKM_DATA)")
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the folder of an empty cache; there is neither a data folder nor downloads."""
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

    from pkm.methods import PrivateKMeans
    from pkm.privacy import NoiseStreams

    def noise_streams(method, seeds, *shape, public_seeds=None, **where):
        return NoiseStreams(seeds, public_seeds=public_seeds)

    monkeypatch.setattr(PrivateKMeans, "noise_streams", noise_streams)


@pytest.fixture
def short_fits(monkeypatch):
    """Shorten the fits of AIM's model to what was released: no release depends on their steps."""
    from pkm.methods.synthetic import aim

    monkeypatch.setattr(aim, "ROUND_STEPS", 5)
    monkeypatch.setattr(aim, "FINAL_STEPS", 5)


@pytest.fixture
def new_objects_alone():
    """Let the garbage collector see the objects of the test alone, not those of all modules."""
    gc.freeze()


@pytest.fixture(autouse=True)
def drafts(monkeypatch):
    """Save figures as drafts: small, no PDF. Return the function that saves them in full."""
    from pkm.analysis.render import plot

    saved = plot.save

    def save(figure, kind, *source):
        figure.set_dpi(20)
        return saved(figure, kind, *source) if kind == "png" else b"%PDF"

    monkeypatch.setattr(plot, "save", save)
    return saved


@pytest.fixture(autouse=True)
def one_composition(monkeypatch):
    """Let Hydra compose a command's settings once.

    By itself it composes them twice, and the first time looks for ``hydra.mode`` only; see
    `test_no_file_sets_a_mode`.
    """
    from hydra._internal.hydra import Hydra

    look = Hydra.get_mode

    def get_mode(hydra, config_name, overrides):
        is_set = any("hydra.mode" in word for word in overrides)
        return look(hydra, config_name, overrides) if is_set else None

    monkeypatch.setattr(Hydra, "get_mode", get_mode)
