"""The files of `conf/`, what they leave to a method's class, and what is refused."""

import shutil
from functools import partial

import pytest
import yaml
from omegaconf import OmegaConf

from pkm import catalogue
from pkm.catalogue import CONF, Catalogue, yaml_problem
from pkm.experiments.cell.cell import STYLE
from pkm.experiments.commands.composition import load
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.groups import choices, entry_of, with_defaults
from pkm.experiments.config.method_parameters import presets
from pkm.yaml_files import read_file

METHODS = choices("method")


@pytest.mark.parametrize("name", METHODS)
def test_a_file_without_a_base_is_the_class_as_python_builds_it(name):
    given = yaml.safe_load((CONF / "method" / f"{name}.yaml").read_text())
    assert given["name"] == name
    changed = set(given) - {"name", "_target_", "defaults", *STYLE}
    assert bool(changed) == ("defaults" in given)


def test_published_variants_say_so_in_their_names():
    for name in METHODS:
        entry = entry_of("method", name)
        named = "published" in name or name in ("dist_dp_printed", "diffprivlib")
        assert (entry.get("variant") == "published") == named, name
        if name.endswith("_published"):
            assert entry_of("method", name.removesuffix("_published"))["variant"] == "sound"


@pytest.mark.parametrize("name", METHODS)
def test_method_files_hold_changes_alone(name):
    given = yaml.safe_load((CONF / "method" / f"{name}.yaml").read_text())
    changed = {key for key in given if key not in ("name", "_target_", "defaults", *STYLE)}
    (base,) = [base for base in given.get("defaults", [None]) if base != "_self_"]
    inherited = entry_of("method", base) if base else presets(given["_target_"])
    for key in changed:
        differs = inherited[key] != given[key] or type(inherited[key]) is not type(given[key])
        assert differs, f"{key} of {name} is what it would be without"
    assert ("_target_" in given) == (base is None)


def test_parameters_are_filled_in_from_the_class():
    entry = with_defaults({"name": "own", "_target_": "pkm.methods.KMeansPlusPlus"})
    target = "pkm.methods.KMeansPlusPlus"
    zoom = {"zoom": None, "require_zoom": False}  # of all methods
    assert entry == {"name": "own", "_target_": target, **zoom, "n_init": 1}
    assert with_defaults({"name": "own", "_target_": "nowhere.Class"})["name"] == "own"


@pytest.mark.parametrize("pattern", ["method/*.yaml", "paper/*/sweeps.yaml", "profile/*.yaml"])
def test_files_are_read_as_by_omegaconf(pattern):
    for path in CONF.glob(pattern):
        assert repr(read_file(path)) == repr(OmegaConf.to_container(OmegaConf.load(path)))


@pytest.mark.parametrize(
    "text",
    [
        "1e-6", "1E6", "-1e3", "1.", ".5", "-.5e-3", "1_000.5", "1:30", "1:30.5", "017", "0x1f",
        "2001-01-01", "yes", "~", ".inf", "-.INF", ".nan", "NaN", "1e", "'1'", "${seeds}", "???",
        "[1, 2e3]", "{a: {b: null}}", "&a [1]\nj: *a",
    ],
)  # fmt: skip
def test_values_are_read_as_by_omegaconf(tmp_path, text):
    path = tmp_path / "values.yaml"
    path.write_text(f"k: {text}\n")
    assert repr(read_file(path)) == repr(OmegaConf.to_container(OmegaConf.load(path)))


def test_a_key_that_occurs_twice_is_refused_with_its_line(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(yaml.MarkedYAMLError) as refusal:
        read_file(path)
    assert yaml_problem(refusal.value) == f"{path}:3: found duplicate key a"


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """Return a copy of `conf/` that is read instead of it."""
    shutil.copytree(CONF, tmp_path / "conf")
    search_path = (tmp_path / "conf",)
    monkeypatch.setattr(catalogue, "current", lambda: Catalogue(search_path))
    return tmp_path / "conf"


@pytest.mark.parametrize(
    "text, message",
    [
        ("name: x\n_target_: [1\n", "broken.yaml:3: "),
        ("name: x\n\t_target_: y\n", "broken.yaml:2: "),
        ("", "broken.yaml:1: the file must hold a mapping"),
        ("- name\n", "broken.yaml:1: the file must hold a mapping"),
        ("name\n", "broken.yaml:1: the file must hold a mapping"),
        ("_target_: y\n", "broken.yaml: the key name is missing"),
        ("name: x\n", "broken.yaml: the key _target_ is missing"),
        ("name: x\ndefaults: [nowhere, _self_]\n", "method='nowhere' is unknown"),
    ],
)
def test_unreadable_method_files_are_named(conf, text, message):
    (conf / "method" / "broken.yaml").write_text(text)
    for read in (partial(entry_of, "method"), lambda name: load([f"method={name}"], "run")):
        with pytest.raises(ConfigurationError) as refusal:
            read("broken")
        assert message in str(refusal.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "sweeps.yaml:1: the file must hold a mapping"),
        ("name: x\nsweeps: 3\n", "sweeps.yaml: sweeps=3 is not allowed: it must be a mapping"),
        ("name: x\n", "sweeps.yaml: the key sweeps is missing"),
    ],
)
def test_unreadable_papers_are_named(conf, text, message):
    (conf / "paper" / "broken").mkdir()
    (conf / "paper" / "broken" / "sweeps.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as refusal:
        load(["paper=broken"])
    assert message in str(refusal.value)


@pytest.mark.parametrize("name", ["wine", "g2-8-10", "ablation-2-2-0.25", "file"])
def test_every_data_set_is_a_choice(name):
    assert load([f"dataset={name}"], "run")["dataset"]["name"] == name


@pytest.mark.parametrize("command", ["run", "reproduce"])
def test_keys_of_the_other_command_are_refused(command):
    word = {"run": "sweeps=[real]", "reproduce": "epsilon=3"}[command]
    with pytest.raises(ConfigurationError, match="; it is a key of `pkm"):
        load([word], command)
