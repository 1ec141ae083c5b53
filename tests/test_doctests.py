"""Examples in docstrings give the printed results, in every module of the package."""

import doctest
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules_with_examples():
    """Names of the modules whose source has an example."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    setuptools = settings["tool"]["setuptools"]
    names = []
    for package in setuptools["packages"]:
        subpackage, _, rest = package.removeprefix("pkm.").partition(".")
        folder = ROOT / setuptools["package-dir"].get(f"pkm.{subpackage}", subpackage) / rest
        for path in sorted(folder.glob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                names.append(package if path.stem == "__init__" else f"{package}.{path.stem}")
    return names


# pytest's --doctest-modules would import the folder methods/ as a second package, not pkm.methods.
@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name, capsys):
    failed, attempted = doctest.testmod(import_module(name))
    assert attempted
    assert not failed, capsys.readouterr().out
