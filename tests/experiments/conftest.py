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
