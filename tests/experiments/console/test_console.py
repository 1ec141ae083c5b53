"""What all commands share: the help of their words, exit codes, and consoles."""

import io
import sys

import pytest

from pkm.experiments.console.console import make_console, make_main, run_action


@pytest.mark.parametrize(
    ("keys", "expected"),
    [(["k", "bounds"], "names, k or bounds=..."), ([], "names, key=...")],
)
def test_the_help_names_keys(keys, expected, capsys):
    with pytest.raises(SystemExit, match="0"):
        make_main("pack", "", "FILE", keys, print)(["--help"])
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "expected", "printed"),
    [(None, 0, ""), (3, 3, ""), ("no device", 1, "no device\n")],
)
def test_an_exit_is_the_one_of_the_process(code, expected, printed, capsys):
    def stop():
        raise SystemExit(code)

    assert run_action(stop) == expected
    assert capsys.readouterr().err == printed


def test_each_console_has_the_width_of_its_stream(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "70")
    output, errors = make_console(), make_console(stderr=True)
    assert (output.width, errors.width) == (160, 70)
