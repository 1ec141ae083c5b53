"""Fixtures of the tests of experiments."""

import logging
import shutil

import pytest

from pkm.experiments.commands import run


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


@pytest.fixture
def call(tmp_path, capfd, monkeypatch):
    """Return a function that calls a command: exit code, output, errors.

    Results are in the folder ``results`` of the current one.
    """
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    # A command is a process of its own, for which no earlier one has set up logging.
    logger = logging.getLogger("hydra")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True

    def call_command(*words, command=run):
        code = command.main([*words, "results=results"])
        return code, *capfd.readouterr()

    return call_command
