"""Groups of the configuration: names, defaults, files that cannot be read."""

from functools import partial

import pytest

from pkm.experiments.applications.composition import load_config
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.groups import choices, fill_defaults, read_choice

METHODS = choices("method")


def test_published_variants_say_so_in_their_names():
    for name in METHODS:
        entry = read_choice("method", name)
        named = "published" in name or name in ("dist_dp_printed", "diffprivlib")
        assert (entry.get("variant") == "published") == named, name
        if name.endswith("_published"):
            assert read_choice("method", name.removesuffix("_published"))["variant"] == "sound"


def test_parameters_are_filled_in_from_the_class():
    entry = fill_defaults({"name": "own", "_target_": "pkm.methods.KMeansPlusPlus"})
    target = "pkm.methods.KMeansPlusPlus"
    # Three of all methods, and the adjacency.
    shares = {"zoom": None, "require_zoom": False, "report": None}
    inherited = {"name": "own", "_target_": target, **shares, "adjacency": "zero_out"}
    assert entry == inherited | {"n_init": 1}
    assert fill_defaults({"name": "own", "_target_": "nowhere.Class"})["name"] == "own"


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
    for read in (
        partial(read_choice, "method"),
        lambda name: load_config([f"method={name}"], "run"),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            read("broken")
        assert message in str(refusal.value)
