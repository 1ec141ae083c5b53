"""The wheel contains the code and its data; methods run with the base dependencies alone."""

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
#: Packages of the wheel; those of pkm are links to top-level folders.
PACKAGES = ("pkm", "hydra_plugins/pkm_cells")
FOLDERS = [link.name for link in (ROOT / "pkm").iterdir() if link.is_symlink()]
DATA = (".yaml", ".jinja", ".csv", ".toml", ".parquet")
#: Other packages that a user may have installed under the names of two subpackages.
FOREIGN_PACKAGES = ("datasets", "metrics")


def run(*command, **options):
    """Return the output of a command that runs without a data_dir, a cache or a module path."""
    code, printed, errors = call(*command, **options)
    assert code == 0, printed + errors
    return printed


def call(*command, **options):
    words = [str(word) for word in command]
    environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    completed = subprocess.run(words, env=environment, capture_output=True, text=True, **options)
    return completed.returncode, completed.stdout, completed.stderr


def base_distributions():
    """The project's base dependencies and their dependencies, as installed."""
    queue = list(PROJECT["project"]["dependencies"])
    distributions = {}
    while queue:
        requirement = Requirement(queue.pop())
        name = requirement.name
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_needed and name not in distributions:
            distributions[name] = distribution(name)
            queue += distributions[name].requires or []
    return distributions


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the wheel, built from a copy without the files of earlier builds."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pkm", "hydra_plugins", *FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    build = ("-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps", "--wheel-dir", out)
    run(sys.executable, *build, cwd=source)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """Return an environment with the wheel, the base dependencies and the foreign packages."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for dependency in base_distributions().values():
        names = {path.parts[0] for path in dependency.files} - {"..", "__pycache__"}
        for name in names:
            if not (site / name).exists():
                (site / name).symlink_to(dependency.locate_file(name))
    for name in FOREIGN_PACKAGES:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("IS_FOREIGN = True\n")
    install = ("install", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *install)
    return folder


def test_wheel_holds_code_and_data(wheel):
    suffixes = (".py", *DATA)
    expected = set()
    for package in PACKAGES:
        for folder, _, files in os.walk(ROOT / package, followlinks=True):
            relative = Path(folder).relative_to(ROOT).as_posix()
            names = [name for name in files if name.endswith(suffixes) and name[0] != "."]
            expected |= {f"{relative}/{name}" for name in names}
    packed = {name for name in ZipFile(wheel).namelist() if name.endswith(suffixes)}
    assert {"pkm/conf/method/fastlloyd.yaml", "pkm/conf/paper/fastlloyd/claims.yaml"} <= packed
    assert packed == expected


def test_readme_example_runs_with_base_dependencies(environment, tmp_path):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    assert "from pkm.methods import SynopsisKMeans" in example
    program = [
        "import sys",
        *example.strip().splitlines(),
        "assert model.cluster_centers_.shape == (5, 2)",
        "assert set(model.predict(X)) == set(range(5))",
        "assert model.ledger_.spent() <= 1.0 + 1e-9",
        "print(*sorted(name for name in sys.modules if name.startswith('pkm.')))",
        f"import {', '.join(FOREIGN_PACKAGES)}",
        *(f"assert {name}.IS_FOREIGN" for name in FOREIGN_PACKAGES),
    ]
    (tmp_path / "example.py").write_text("\n".join(program))
    printed = run(environment / "bin" / "python", "example.py", cwd=tmp_path)
    modules = printed.splitlines()[-1].split()
    assert "pkm.methods.synthetic.synopsis" in modules
    needed = {"catalogue", "compute", "files", "methods", "names", "privacy"}
    needed |= {"row_blocks", "scalars"}
    assert {name.split(".")[1] for name in modules} == needed


def test_command_is_installed(environment, tmp_path):
    printed = run(environment / "bin" / "pkm", "--help", cwd=tmp_path)
    assert printed.startswith("usage: pkm VERB")


@pytest.mark.parametrize("verb, module", [("run", "hydra"), ("data", "rich"), ("export", "rich")])
def test_commands_say_what_they_need(environment, tmp_path, verb, module):
    code, printed, error = call(environment / "bin" / "pkm", verb, "list", cwd=tmp_path)
    assert (code, printed) == (2, "")
    assert error == (
        f"error: pkm {verb}: No module named '{module}'; "
        "pip install '.[bench]' installs what it needs\n"
    )
