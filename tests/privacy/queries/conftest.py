"""Histograms without a threshold."""

import pytest

from pkm.privacy import StabilityHistogram


@pytest.fixture
def every_cell_is_released(monkeypatch):
    monkeypatch.setattr(StabilityHistogram, "threshold", 0.0)
