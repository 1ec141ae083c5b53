"""Words of the command line, composed: papers, data sets, keys of the other command."""

import pytest
from hydra import compose, initialize

from pkm.experiments.applications.composition import load_config, register_plugins
from pkm.experiments.config.errors import ConfigurationError


@pytest.mark.slow
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
        load_config(["paper=broken"])
    assert message in str(refusal.value)


@pytest.mark.parametrize("name", ["wine", "g2-8-10", "ablation-2-2-0.25", "file"])
def test_every_data_set_is_a_choice(name):
    assert load_config([f"dataset={name}"], "run")["dataset"]["name"] == name


@pytest.mark.parametrize("command", ["run", "reproduce"])
def test_keys_of_the_other_command_are_refused(command):
    word = {"run": "sweeps=[real]", "reproduce": "epsilon=3"}[command]
    with pytest.raises(ConfigurationError, match="; it is a key of `pkm"):
        load_config([word], command)


@pytest.mark.parametrize("command", ["run", "reproduce"])
def test_no_file_sets_a_mode(command):
    """Hydra composes twice to learn it, and `one_composition` leaves the first time out."""
    register_plugins()
    with initialize(version_base="1.3", config_path=None):
        composed = compose(command, return_hydra_config=True)
    assert composed.hydra.mode is None
