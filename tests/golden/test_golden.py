"""Nothing changes unseen: centers, charges, figures and verdicts equal the golden records."""

import pytest
import record
from fabricated.studies import ROWS

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

#: The file of tests that draws the same figures: what one process has drawn is drawn once.
FILES = {"fastlloyd": "report", "fastlloyd/protocol": "federation_costs"}


def groups() -> list:
    """Every study, in the process of the tests of its report."""
    found = []
    for study in ROWS:
        file = FILES.get(study, study.replace("-", "_"))
        group = pytest.mark.xdist_group(f"analysis/test_{file}.py")
        found.append(pytest.param(study, marks=group))
    return found


def changes(name, expected, found):
    """What to say of records that changed; empty if none did."""
    changed = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
    meant = "; if that is meant: make golden"
    return f"{len(changed)} records of {name} changed: {changed[:5]}{meant}" if changed else ""


@pytest.mark.parametrize("name", ["methods", "federation", "unlearning"])
def test_golden_records(name):
    assert not changes(name, record.stored(name), record.rounded(record.RECORDS[name]()))


@pytest.mark.parametrize("study", groups())
@pytest.mark.parametrize(("name", "mark"), [("figures", "/"), ("claims", ": ")])
def test_golden_records_of_studies(name, mark, study):
    expected = {
        key: value for key, value in record.stored(name).items() if key.rpartition(mark)[0] == study
    }
    found = record.RECORDS[name]([study])
    assert not changes(name, expected, found)


@pytest.mark.parametrize("name", ["figures", "claims"])
def test_golden_records_are_of_known_studies(name):
    mark = {"figures": "/", "claims": ": "}[name]
    assert {key.rpartition(mark)[0] for key in record.stored(name)} <= set(ROWS)
