"""The figure of the audit: marks, bounds, flaws and gaps."""

import math

import pytest
from charts import panels_of
from fabricated.audit import make_record

from pkm.analysis.pages import audits
from pkm.analysis.pages.audit_figure import MAX_RATIO, draw_audit

#: Marker and color of a verdict.
MARKS = {
    "consistent": ("o", "#0072b2"),
    "no power here": ("o", "#8c8c8c"),
    "violated": ("X", "#d55e00"),
}


@pytest.fixture(scope="module")
def drawn(stored):
    return draw_audit(list(stored.values()))


def marks(panel):
    """Where a panel has marks of verdicts: horizontal position, marker, color."""
    lines = [line for line in panel.axes.lines if line.get_marker() in ("o", "X")]
    return [(line.get_xdata()[0], line.get_marker(), line.get_color()) for line in lines]


def test_the_figure_marks_every_query_at_its_ratio(drawn, stored):
    left, _ = panels_of(drawn)
    expected = [
        (min(ratio, MAX_RATIO), *MARKS[audit.query_verdicts[query]])
        for audit in stored.values()
        for query, ratio in audit.tightness.items()
    ]
    assert sorted(marks(left)) == sorted(expected)
    assert set(left.texts) == {"∞"}


def test_the_figure_names_the_flaws_of_violated_methods(drawn):
    left, _ = panels_of(drawn)
    assert "DPLloyd (published), F-26,  sums and counts" in left.y.labels
    assert "DPM (sound), not registered,  cell counts" in left.y.labels


def test_the_figure_has_bounds_under_the_ledgers_epsilon(drawn, stored):
    _, right = panels_of(drawn)
    bounded = [audit for audit in stored.values() if audit.lower_bound is not None]
    assert {mark[0] for mark in marks(right)} == {audit.lower_bound for audit in bounded}
    ledger = [place for place, _ in right.marks("|")]
    assert ledger == [audit.epsilon for audit in bounded]
    assert len(right.y.labels) == len(bounded)


def test_the_figure_has_numbers_behind_it(drawn, stored):
    replayed = drawn.table[drawn.table["panel"] == "replay"]
    assert len(replayed) == sum(len(audit.tightness) for audit in stored.values())
    assert replayed["number"].max() == math.inf
    ledger = drawn.table["hue"] == "ε of the ledger"
    assert drawn.table.loc[ledger, "value"].tolist() == [1.0, 1.13, 1.0]
    assert "60 pairs a method. 2000 to 20000 runs" in drawn.caption
    lines = drawn.formatted.set_index(["method", "variant"])
    assert lines.loc[("DPM", "sound"), "realized / charged"] == "∞"
    assert lines.loc[("DPLloyd", "published"), "flaws met"] == "F-26"


def test_what_no_registered_flaw_explains_is_a_gap_of_the_figure(drawn):
    assert drawn.missing == (
        "DPM (sound): replay, cell_counts: blobs: realized mu=2, charged mu=1",
        "DPM (sound): blackbox, run: epsilon is at least 1.4, the ledger says 1",
    )


def test_without_a_black_box_there_is_one_panel():
    only = [audits.parse(make_record("FastLloyd", "sound"))]
    drawn = draw_audit(only)
    (replay,) = panels_of(drawn)
    assert len(marks(replay)) == 1
    assert drawn.formatted["of the ledger's"].tolist() == ["–"]
    assert not drawn.missing
