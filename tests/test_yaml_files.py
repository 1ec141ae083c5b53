"""Files of YAML are read as OmegaConf reads them; keys occur once."""

import pytest
import yaml
from omegaconf import OmegaConf

from pkm.catalogue import CONF, describe_yaml_error
from pkm.yaml_files import read_file


@pytest.mark.slow
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


@pytest.mark.parametrize("key", ["a", "1"])
def test_a_key_that_occurs_twice_is_refused_with_its_line(tmp_path, key):
    path = tmp_path / "twice.yaml"
    path.write_text(f"{key}: 1\nb: 2\n{key}: 3\n")
    with pytest.raises(yaml.MarkedYAMLError) as refusal:
        read_file(path)
    assert describe_yaml_error(refusal.value) == f"{path}:3: found duplicate key {key}"
