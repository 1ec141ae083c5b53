"""Claims and figures run again."""

import itertools

import pandas as pd
import pytest

from pkm.experiments.reports import verify as reports_verify
from pkm.experiments.reports.verify import select_needed

pytestmark = pytest.mark.integration


def test_rows_that_change_nothing_are_not_needed(monkeypatch):
    """A target that reads method a of sweep one, and says on which data sets."""

    def evaluate(target, rows, missing):
        read = rows.query("sweep == 'one' and method == 'a'")
        return "", read[["dataset", "nicv"]].drop_duplicates(ignore_index=True)

    monkeypatch.setattr(reports_verify, "evaluate", evaluate)
    names = itertools.product(("one", "two"), ("a", "b"), ("iris", "wine"))
    rows = pd.DataFrame(names, columns=["sweep", "method", "dataset"]).assign(nicv=1.0)
    needed = select_needed(None, rows, None)
    assert needed[["sweep", "method"]].drop_duplicates().to_numpy().tolist() == [["one", "a"]]
    assert needed["dataset"].tolist() == ["iris", "wine"]
    assert select_needed(None, rows[rows["sweep"] == "two"], None).empty
