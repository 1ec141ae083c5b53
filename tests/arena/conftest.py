"""A small suite, and the phases of an entry in this process."""

import contextlib
import json
import random
import secrets
import shutil
from importlib import metadata

import pytest
import yaml
from arena_entries import COSTS, make_entry, make_rows
from tiny_suite import SUITE

from pkm.arena import submit as submitting
from pkm.arena import verify as verifying
from pkm.arena.entry import ROWS
from pkm.arena.phases import PHASES
from pkm.audit import conformance
from pkm.catalogue import add_config_dirs
from pkm.experiments.config.groups import read_choice


@pytest.fixture(scope="session")
def conf(tmp_path_factory):
    """Return the folder of configurations with the suite."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "suite").mkdir()
    (folder / "suite" / "tiny.yaml").write_text(yaml.safe_dump(SUITE))
    return folder


@pytest.fixture(scope="session", autouse=True)
def tiny_suite(conf):
    with add_config_dirs([str(conf)]):
        yield


class Phases:
    """Phases in this process, unconfined; what has been asked before is not run again."""

    def __init__(self):
        self.answers = {}

    def run(self, phase, request, folder, seconds, n_cells=0):
        # Which seed an audit has makes no difference here.
        key = json.dumps([phase, {**request, "seed": 0}], sort_keys=True)
        if key not in self.answers:
            (folder / ROWS).unlink(missing_ok=True)
            with contextlib.chdir(folder):
                answer = PHASES[phase](**request)
            rows = (folder / ROWS).read_bytes() if (folder / ROWS).is_file() else b""
            self.answers[key] = answer, rows
        answer, rows = self.answers[key]
        if rows:
            (folder / ROWS).write_bytes(rows)
        return answer | {"confined": True}


@pytest.fixture(scope="session")
def phases():
    """Run phases of entries in this process, on few pairs."""
    here = Phases()
    with pytest.MonkeyPatch.context() as patch:
        for module in (submitting, verifying):
            patch.setattr(module, "run_attempt", here.run)
            patch.setattr(module, "N_PAIRS", 2)
        patch.setattr(conformance, "N_PAIRS", 4)
        installed = metadata.packages_distributions()
        patch.setattr(metadata, "packages_distributions", lambda: installed)
        yield here


@pytest.fixture(scope="session")
def enter(phases, tmp_path_factory):
    """Return a function that enters a method, once."""
    folder = tmp_path_factory.mktemp("entries")
    entered = {}

    def enter_method(name):
        if name not in entered:
            entered[name] = folder / name.replace(":", "-")
            submitting.submit(read_choice("method", name), entered[name], suite="tiny", jobs=1)
        return entered[name]

    return enter_method


@pytest.fixture
def make_copy(enter, tmp_path):
    """Return a function that copies the entry of a method, to change it."""

    def copy(name):
        return shutil.copytree(enter(name), tmp_path / name.replace(":", "-"))

    return copy


@pytest.fixture(autouse=True)
def fixed_seeds(monkeypatch):
    """Audits of entries take drawn seeds, of which some miss a fault: the same in each run."""
    monkeypatch.setattr(secrets, "randbits", random.Random(0).getrandbits)


@pytest.fixture
def folders(tmp_path):
    return [
        make_entry(tmp_path / name, make_rows(name, cost, notion))
        for name, (cost, notion) in COSTS.items()
    ]
