"""The fabricated study of a paper and its verdicts, by `PAPER` of the tests' module."""

import pytest
import reports
from fabricated.studies import study_of


@pytest.fixture(scope="module")
def study(request):
    return study_of(request.module.PAPER)


@pytest.fixture(scope="module")
def findings(request):
    return reports.by_claim(reports.verdicts_of(request.module.PAPER))
