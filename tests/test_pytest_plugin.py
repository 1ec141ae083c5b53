"""The plugin of pytest: a test of every private variant."""

import subprocess
import sys

import pytest

SUITE = """
import pytest
from pkm.testing import check_noise

@pytest.mark.private_methods("DPM", "EUGkM")
def test_variants(private_method):
    assert private_method.claim.private

def test_without():
    pass
"""


@pytest.mark.slow
def test_the_plugin_gives_a_test_every_private_variant(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    options = ["-p", "pkm.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", "-v"]
    command = [sys.executable, "-m", "pytest", *options, "test_suite.py"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    for name in ("DPM published", "DPM sound", "EUGkM sound"):
        assert f"test_variants[{name}] PASSED" in finished.stdout
    assert "4 passed" in finished.stdout
