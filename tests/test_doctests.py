"""Examples in docstrings give the printed results, in every module of the package."""

import doctest
import os
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules_with_examples():
    """Names of the modules whose source has an example."""
    names = []
    for folder, _, files in os.walk(ROOT / "pkm", followlinks=True):
        for name in files:
            path = Path(folder, name)
            if path.suffix == ".py" and ">>> " in path.read_text(encoding="utf-8"):
                parts = path.relative_to(ROOT).with_suffix("").parts
                names.append(".".join(parts).removesuffix(".__init__"))
    return sorted(names)


# pytest's --doctest-modules would import the folder methods/ as a second package, not pkm.methods.
@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name, capsys):
    failed, attempted = doctest.testmod(import_module(name))
    assert attempted
    assert not failed, capsys.readouterr().out
