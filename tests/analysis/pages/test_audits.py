"""Stored audits: their verdicts, damaged files, the report and the page of the docs."""

import math

import audit_page
import pytest
import reports
from fabricated.audit import all_records, make_record, write_records

from pkm.analysis.pages import audits, report
from pkm.analysis.pages.audit_figure import draw_audit


def named(stored, method, variant="sound"):
    (audit,) = (a for a in stored.values() if (a.method, a.variant) == (method, variant))
    return audit


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
    with pytest.raises(SystemExit, match="2"):
        audit_page.main(["audit.jsonl"])
    assert "required: folder" in capsys.readouterr().err
