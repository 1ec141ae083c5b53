"""The command that compares two stores."""

import pytest
from compared_stores import NOISE, put

from pkm.experiments.commands import diff
from pkm.experiments.store.store import Store


@pytest.fixture
def stores(tmp_path):
    return Store(tmp_path / "a"), Store(tmp_path / "b")


def test_command(stores, capsys):
    folders = [str(store.root) for store in stores]
    assert diff.main(folders) == 2
    assert "holds no cells" in capsys.readouterr().err
    assert diff.main(folders[:1]) == 2
    assert diff.main([*folders, "paper=fastlloyd"]) == 2
    nicv = NOISE.random(20)
    put(stores[0], nicv)
    put(stores[1], nicv)
    assert diff.main(folders) == 0
    put(stores[1], nicv + 1)
    assert diff.main(folders) == 1
    out = capsys.readouterr().out
    assert "fastlloyd published" in out
    assert "0 verdicts of reports changed" in out
