"""Centers, charges, figures and verdicts equal the golden records."""

import pytest
import record
from fabricated.studies import ROWS, paper_of

from pkm.experiments.config.groups import choices

pytestmark = [
    pytest.mark.integration,
    pytest.mark.no_cover,  # other tests run the same code
    pytest.mark.filterwarnings("ignore"),
]

#: What separates the name of a study from the rest of a record's key.
SEPARATORS = {"figures": "/", "claims": ": "}


def changes(name, expected, actual):
    """Message on the records that changed; empty if none did."""
    keys = {**expected, **actual}
    changed = [key for key in keys if expected.get(key) != actual.get(key)]
    if not changed:
        return ""
    return (
        f"{len(changed)} records of {name} changed: {changed[:5]}; if this is intended: make golden"
    )


@pytest.mark.parametrize("name", ["methods", "federation", "unlearning"])
def test_golden_records(name):
    actual = record.rounded(record.RECORDS[name]())
    assert not changes(name, record.stored(name), actual)


@pytest.mark.slow
@pytest.mark.parametrize("study", ROWS)
@pytest.mark.parametrize(("name", "separator"), SEPARATORS.items())
def test_golden_records_of_studies(name, separator, study):
    records = record.stored(name)
    expected = {
        key: value for key, value in records.items() if key.rpartition(separator)[0] == study
    }
    actual = record.RECORDS[name]([study])
    assert not changes(name, expected, actual)


@pytest.mark.slow
def test_golden_records_of_pictures():
    assert not changes("pictures", record.stored("pictures"), record.picture_records())


@pytest.mark.parametrize(("name", "separator"), SEPARATORS.items())
def test_golden_records_are_of_all_studies(name, separator):
    studies = {key.rpartition(separator)[0] for key in record.stored(name)}
    papers = set(choices("paper") if name == "claims" else map(paper_of, ROWS))
    assert studies == {study for study in ROWS if paper_of(study) in papers}
