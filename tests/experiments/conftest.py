"""Fixtures of the tests of experiments."""

import shutil

import pytest


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """Return a copy of `conf/` that is read instead of it."""
    from pkm import catalogue

    shutil.copytree(catalogue.CONF, tmp_path / "conf")
    search_path = (tmp_path / "conf",)
    monkeypatch.setattr(catalogue, "current", lambda: catalogue.Catalogue(search_path))
    return tmp_path / "conf"


@pytest.fixture
def file_entry(tmp_path):
    """Return a sweep's entry for a file with one of three points outside its bounds."""
    (tmp_path / "points.csv").write_text("0.1,0.2\n0.3,0.4\n0.5,7\n")
    return {"name": "file", "path": str(tmp_path / "points.csv"), "bounds": [0, 1]}
