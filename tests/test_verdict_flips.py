"""What tools/verdict_flips.py calls a flip."""

import pytest
import verdict_flips


def write_report(folder, **verdicts):
    tables = folder / "paper-quick" / "tables"
    tables.mkdir(parents=True)
    lines = [f"paper/{name},{verdict}" for name, verdict in verdicts.items()]
    (tables / "claims.csv").write_text("\n".join(["id,verdict", *lines]))
    return str(folder)


def test_only_decided_verdicts_flip(tmp_path, capsys):
    a = write_report(tmp_path / "a", x="holds", y="holds", z="inconclusive", w="not run")
    others = {"x": "not reproduced", "y": "not contradicted", "z": "holds", "w": "refuted"}
    b = write_report(tmp_path / "b", **others)
    assert verdict_flips.main([a, b]) == 1
    out = capsys.readouterr().out
    assert out.splitlines() == ["1 of 4 claims flip", "paper/x: holds -> not reproduced"]
    assert verdict_flips.main([a, a]) == 0


def test_folder_without_reports_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="make report"):
        verdict_flips.main([str(tmp_path), str(tmp_path)])
