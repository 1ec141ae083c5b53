"""What all audits of the tests have in common."""

import pytest

from pkm.methods.synthetic import aim


@pytest.fixture(autouse=True)
def short_fits(monkeypatch):
    """Shorten the fits of a model to what was released: no release depends on their steps."""
    monkeypatch.setattr(aim, "ROUND_STEPS", 5)
    monkeypatch.setattr(aim, "FINAL_STEPS", 5)
