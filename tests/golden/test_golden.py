"""Nothing changes unseen: centers, charges, figures and verdicts equal the golden records."""

import pytest
import record


@pytest.mark.parametrize("name", record.RECORDS)
@pytest.mark.filterwarnings("ignore")
def test_golden_records(name):
    expected, found = record.stored(name), record.rounded(record.RECORDS[name]())
    changed = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
    assert not changed, (
        f"{len(changed)} records of {name} changed: {changed[:5]}; if that is meant: make golden"
    )
