"""Entries of the registry."""

import pytest

from pkm.datasets import registry


def test_entry_refuses_bounds_of_another_width():
    entry = registry.find("iris")
    with pytest.raises(ValueError, match="iris: bounds of 3 and 4 columns with 4 reasons, d=4"):
        registry.Entry(**{**vars(entry), "lower": (0.0,) * 3})
