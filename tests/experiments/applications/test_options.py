"""Keys and choices: help, completion."""

import re
import subprocess
import sys

import pytest

import pkm.__main__
from pkm.experiments.applications.application import complete_arguments
from pkm.experiments.applications.options import SCHEMAS, list_keys
from pkm.experiments.commands import reproduce, run
from pkm.experiments.config.groups import choices

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("command", [run, reproduce])
def test_help_names_every_key_and_choice(call, command):
    code, out, _ = call("--help", command=command)
    name = command.__name__.rpartition(".")[2]
    assert code == 0
    for key in list_keys(SCHEMAS[name]):
        assert re.search(rf"^  {key} |^{key}: ", out, re.MULTILINE), key
    group = {"run": "method", "reproduce": "paper"}[name]
    for choice in choices(group):
        assert choice in out


@pytest.mark.slow
def test_help_imports_no_method():
    script = (
        "from pkm.experiments.commands import run; code = run.main(['--help']); import sys; "
        + ("sys.exit(code or int(bool({'numba', 'sklearn', 'pandas'} & set(sys.modules))))")
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert completed.returncode == 0


@pytest.mark.parametrize(
    "line, expected",
    [
        ("pkm re", "reproduce"),
        ("pkm run method=fast", "method=fastlloyd method=fastlloyd_published"),
        ("pkm run method.rad", "method.radius="),
        ("pkm run dataset=wi", "dataset=wine"),
        ("pkm run hydra/launcher=ce", "hydra/launcher=cells"),
        ("pkm reproduce paper=d", "paper=distdp paper=dpm"),
        ("pkm reproduce prof", "profile."),
    ],
)
def test_the_shell_completes_keys_and_choices(monkeypatch, capfd, line, expected):
    monkeypatch.setenv("COMP_LINE", line)
    assert pkm.__main__.main(["-sc", "query=bash"]) == 0
    assert expected in capfd.readouterr().out


@pytest.mark.parametrize("words", [["--info"], ["-i", "k=3"], ["--info", "config", "k=3"]])
def test_info_needs_no_value(words):
    completed = complete_arguments(words, "run")
    assert completed[-1] == "hydra/hydra_logging=default"
    assert completed[0] == ("--info" if "config" in words else "--info=all")
