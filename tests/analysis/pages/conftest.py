"""Stored audits that tests of pages share."""

import pytest
from fabricated.audit import all_records, write_records
from fabricated.fastlloyd import SIZES, cell_rows

from pkm.analysis.pages import audits


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return audits.read(write_records(tmp_path_factory.mktemp("results"), all_records()))


@pytest.fixture(scope="module")
def lloyd_rows():
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    return rows.assign(target="pkm.methods.FastLloyd", variant="published")
