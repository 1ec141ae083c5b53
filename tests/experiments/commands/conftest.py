"""Fixtures of the tests of commands."""

import logging

import pytest

from pkm.experiments.commands import run


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
