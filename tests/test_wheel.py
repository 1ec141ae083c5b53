"""The wheel holds all that the package needs; methods run with the base dependencies alone."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {"pkm": "pkm"} | PROJECT["tool"]["setuptools"]["package-dir"]
DATA = (".yaml", ".jinja", ".csv", ".toml")
#: Packages that others have on their path under the names of two rooms.
NAMESAKES = ("datasets", "metrics")


def run(*command, **options):
    """Run a command without a mirror, a cache or a path of its own; return what it prints."""
    environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    done = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def base_distributions():
    """The project's base dependencies and what they need in turn, as installed here."""
    waiting = list(PROJECT["project"]["dependencies"])
    found = {}
    while waiting:
        requirement = Requirement(waiting.pop())
        needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if needed and requirement.name not in found:
            found[requirement.name] = distribution(requirement.name)
            waiting += found[requirement.name].requires or []
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the wheel, built from a copy: what earlier builds left behind would go into it."""
    source = tmp_path_factory.mktemp("source")
    for name in (*FOLDERS.values(), "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name)
        else:
            shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    build = ("-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps", "--wheel-dir", out)
    run(sys.executable, *build, cwd=source)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Return an environment with the wheel, the base dependencies and two namesakes of rooms."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for each in base_distributions().values():
        for name in {path.parts[0] for path in each.files} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(each.locate_file(name))
    for name in NAMESAKES:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("NAMESAKE = True\n")
    install = ("install", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *install)
    return folder


def test_wheel_holds_code_and_data(wheel):
    expected = {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}"
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", *DATA)
    }
    found = {name for name in ZipFile(wheel).namelist() if name.endswith((".py", *DATA))}
    assert {"pkm/conf/config.yaml", "pkm/analysis/claims/fastlloyd.yaml"} <= found
    assert found == expected


def test_readme_example_runs_beside_base_dependencies(environment, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    assert "from pkm.methods import FastLloyd" in example
    program = [
        "import sys",
        *example.strip().splitlines(),
        "assert model.cluster_centers_.shape == (3, 2)",
        "assert set(model.predict(X)) <= {0, 1, 2}",
        "assert model.ledger_.spent() <= 1.0 + 1e-9",
        "print(*sorted(name for name in sys.modules if name.startswith('pkm.')))",
        f"import {', '.join(NAMESAKES)}",
        *(f"assert {name}.NAMESAKE" for name in NAMESAKES),
    ]
    (tmp_path / "example.py").write_text("\n".join(program))
    printed = run(environment / "bin" / "python", "example.py", cwd=tmp_path)
    rooms = printed.splitlines()[-1].split()
    assert "pkm.methods.lloyd" in rooms
    assert {name.split(".")[1] for name in rooms} == {"compute", "methods", "privacy"}


def test_command_is_installed(environment, tmp_path):
    assert run(environment / "bin" / "pkm", "--help", cwd=tmp_path).startswith("usage: pkm VERB")
