"""Audits on disk, as the report reads them."""

import pytest
from fabricated.audit import all_records, make_record

from pkm.analysis.pages import audits
from pkm.audit import audit, records
from pkm.methods import SuLloyd


def test_what_the_audit_writes_is_what_the_report_reads(tmp_path):
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
    variants = {(audit.method, audit.variant): audit for audit in stored.values()}
    assert variants["DPM", "sound"].verdict == "consistent"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ValueError, match="results="):
        records.write(all_records(), blocked)
