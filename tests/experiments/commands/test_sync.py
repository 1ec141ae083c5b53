"""The command that brings MLflow up to date."""

import pytest

from pkm.experiments.commands.sync import main

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("word", ["verb=run", "sweeps=[real]", "jobs=2", "backend.jobs=2"])
def test_keys_without_effect_are_refused(word, capsys, tmp_path):
    assert main([word, f"results={tmp_path / 'results'}"]) == 2
    assert f"error: {word} has no effect on `pkm sync`" in capsys.readouterr().err
