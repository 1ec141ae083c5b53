"""Stored audits in the report: verdicts in the privacy table, the figure, the page of the docs."""

import json
import math

import audit_page
import pytest
import reports
from charts import panels_of
from fabricated.audit import all_records, make_record, write_records
from fabricated.fastlloyd import SIZES, cell_rows
from fabricated.rows import make_rows

from pkm.analysis.pages import audits, report
from pkm.analysis.pages.audit_figure import MAX_RATIO, draw_audit
from pkm.analysis.pages.privacy_table import privacy_table
from pkm.analysis.tables.study import Study
from pkm.audit import records

#: Marker and color of a verdict.
MARKS = {
    "consistent": ("o", "#0072b2"),
    "no power here": ("o", "#8c8c8c"),
    "violated": ("X", "#d55e00"),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return audits.read(write_records(tmp_path_factory.mktemp("results"), all_records()))


@pytest.fixture(scope="module")
def drawn(stored):
    return draw_audit(list(stored.values()))


@pytest.fixture(scope="module")
def lloyd_rows():
    rows = cell_rows("real", "fastlloyd_published", "iris", 0.5, 3, size=SIZES["iris"])
    return rows.assign(target="pkm.methods.FastLloyd", variant="published")


def named(stored, method, variant="sound"):
    (audit,) = (a for a in stored.values() if (a.method, a.variant) == (method, variant))
    return audit


def marks(panel):
    """Where a panel has marks of verdicts: horizontal position, marker, color."""
    lines = [line for line in panel.axes.lines if line.get_marker() in ("o", "X")]
    return [(line.get_xdata()[0], line.get_marker(), line.get_color()) for line in lines]


@pytest.mark.parametrize(
    ("method", "variant", "text"),
    [
        ("FastLloyd", "sound", "consistent"),
        ("FastLloyd", "published", "consistent"),
        ("DPLloyd", "published", "violated (F-26)"),
        ("DPM", "sound", "violated (not registered)"),
        ("Balcan", "sound", "no power here"),
    ],
)
def test_the_worst_view_gives_the_verdict_and_registered_flaws_are_named(
    stored, method, variant, text
):
    assert named(stored, method, variant).summary() == text


def test_views_that_were_not_tried_are_named(stored):
    text = "replay: no power here; residuals: not tried; black box: not tried"
    assert named(stored, "Balcan").by_view() == text


def test_an_audit_without_views_was_not_tried():
    assert audits.parse(make_record("DPM", "sound", verdicts={})).verdict == "not tried"


def test_infinite_ratios_are_read(stored):
    assert named(stored, "DPM").tightness["splits"] == math.inf


def test_without_a_file_there_are_no_audits(tmp_path):
    assert audits.read(tmp_path / "audit.jsonl") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"target": "a.B"}'])
def test_a_damaged_file_is_named(tmp_path, text):
    path = tmp_path / "audit.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"audit\.jsonl is damaged"):
        audits.read(path)


def test_what_the_audit_writes_is_what_the_report_reads(tmp_path):
    from pkm.audit import audit
    from pkm.methods import SuLloyd

    method = SuLloyd(2)
    written = audit(method, n_pairs=2)
    path = records.write([records.make_record(written, method)], tmp_path / "results")
    (found,) = audits.read(path).values()
    assert (found.target, found.variant) == ("pkm.methods.SuLloyd", "sound")
    assert found.flaws == list(written.flaws)
    for name in ("method", "adjacency", "verdicts", "query_verdicts", "n_pairs", "n_runs"):
        assert getattr(found, name) == getattr(written, name), name
    assert found.tightness == pytest.approx(written.tightness)
    assert found.lower_bound is None and found.epsilon is None
    assert not found.stale


def test_a_second_audit_of_a_variant_replaces_the_first_and_keeps_the_others(tmp_path):
    folder = tmp_path / "results"
    records.write(all_records(), folder)
    again = make_record("DPM", "sound")
    stored = audits.read(records.write([again], folder))
    assert len(stored) == len(all_records())
    assert named(stored, "DPM").verdict == "consistent"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ValueError, match="results="):
        records.write(all_records(), blocked)


def test_the_privacy_table_has_the_audit_of_the_variant_that_was_run(stored, lloyd_rows):
    assert privacy_table(Study(lloyd_rows), stored)["audit"].tolist() == ["consistent"]
    sound = lloyd_rows.assign(variant="sound")
    (line,) = privacy_table(Study(sound), stored).to_dict("records")
    assert line["views"] == "replay: consistent; residuals: consistent; black box: consistent"
    other = lloyd_rows.assign(target="pkm.methods.DPM", variant="published")
    assert privacy_table(Study(other), stored)["audit"].tolist() == ["not tried"]
    assert privacy_table(Study(lloyd_rows))["audit"].tolist() == ["not tried"]


def test_rows_without_a_variant_have_the_audit_of_the_default_one(stored, lloyd_rows):
    study = Study(lloyd_rows.assign(variant=""))
    (line,) = privacy_table(study, stored).to_dict("records")
    assert line["views"].endswith("black box: consistent")
    (audit,) = audits.select(stored, study.cells)
    assert audit.variant == "sound"


def test_a_method_that_claims_no_privacy_has_no_audit(stored):
    rows = make_rows("real", "kmeans", "kmeans", "iris", size=SIZES["iris"], seeds=2)
    assert privacy_table(Study(rows), stored)["audit"].tolist() == ["–"]


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


def test_an_audit_of_other_code_is_called_old(stored):
    audit = named(stored, "FastLloyd")
    old = audits.parse(make_record("FastLloyd", "sound", code="other"))
    assert not audit.stale and old.stale
    assert "code has changed" in draw_audit([audit, old]).caption
    assert "code has changed" not in draw_audit([audit]).caption


@pytest.mark.slow
def test_the_report_shows_the_audits_of_its_methods(tmp_path, monkeypatch, stored, lloyd_rows):
    monkeypatch.setattr(report, "read_figures", lambda paper: ())
    page = report.build(
        lloyd_rows,
        paper="fastlloyd",
        missing=reports.NONE_MISSING,
        out=tmp_path,
        environment={},
        audited=stored,
    )
    text = page.read_text(encoding="utf-8")
    assert 'id="audit"' in text and "audit was not tried" not in text
    assert "<td>consistent<div" in text
    table = (tmp_path / "tables" / "audit.csv").read_text(encoding="utf-8")
    assert "FastLloyd,published" in table and "DPM" not in table


@pytest.mark.slow
def test_a_report_without_audits_says_how_to_try_them(tmp_path, monkeypatch, lloyd_rows):
    page = reports.build_report("fastlloyd", lloyd_rows, tmp_path, monkeypatch, ())
    text = page.read_text(encoding="utf-8")
    assert "<td>not tried</td>" in text and "<code>make audit</code>" in text
    assert not (tmp_path / "tables" / "audit.csv").exists()


def test_the_page_has_verdicts_findings_and_the_table(tmp_path):
    source = write_records(tmp_path / "results", all_records())
    assert audit_page.main([str(source), str(tmp_path / "docs")]) == 0
    text = (tmp_path / "docs" / "audit.md").read_text(encoding="utf-8")
    assert "| violated | 2 |" in text and "| no power here | 1 |" in text
    assert "(F-26): spends epsilon=1.13, claims 1" in text
    assert "(not registered): blobs: realized mu=2, charged mu=1" in text
    assert "| FastLloyd | sound | 1 | 0.5 | 0.7 | 1 |" in text
    assert (tmp_path / "docs" / "figures" / "audit.png").read_bytes()[1:4] == b"PNG"


def test_a_page_about_no_audit_is_refused(tmp_path, capsys):
    assert audit_page.main([str(tmp_path / "audit.jsonl"), str(tmp_path)]) == 2
    assert "make audit" in capsys.readouterr().err


def test_the_command_writes_json_lines(tmp_path, capsys):
    from pkm.audit.__main__ import main

    assert main(["SuLloyd", "pairs=1", "view=replay", f"results={tmp_path}", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == printed
    assert [record["variant"] for record in printed] == ["published", "sound"]
    assert [record["default"] for record in printed] == [False, True]
