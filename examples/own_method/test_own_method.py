"""The method keeps the contract, and releases no more than it charges for."""

import pytest

from pkm.testing import check_method


@pytest.mark.private_methods("own_method:OwnMethod")
def test_privacy(private_method):
    check_method(private_method)
