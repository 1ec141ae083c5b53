"""What tools/verdicts.py counts, and what it calls a flip."""

import pytest
import verdicts


def write_report(folder, profile="quick", **found):
    tables = folder / f"paper-{profile}" / "tables"
    tables.mkdir(parents=True)
    lines = [f"paper/{name},{verdict},paper" for name, verdict in found.items()]
    code = "paper/ledger,holds,code"
    (tables / "claims.csv").write_text("\n".join(["id,verdict,about", *lines, code]))
    return str(folder)


def test_only_decided_verdicts_flip(tmp_path, capsys):
    a = write_report(tmp_path / "a", x="holds", y="holds", z="inconclusive", w="not run")
    others = {"x": "not reproduced", "y": "not contradicted", "z": "holds", "w": "refuted"}
    b = write_report(tmp_path / "b", **others)
    assert verdicts.main([a, b]) == 1
    out = capsys.readouterr().out
    assert out.splitlines() == ["1 of 5 claims flip", "paper/x: holds -> not reproduced"]
    assert verdicts.main([a, a]) == 0


def test_reports_of_two_profiles_are_compared_by_their_names(tmp_path, capsys):
    a = write_report(tmp_path / "a", x="holds")
    write_report(tmp_path / "a", "paper", x="not reproduced")
    b = write_report(tmp_path / "b", x="not reproduced")
    write_report(tmp_path / "b", "paper", x="not reproduced")
    assert verdicts.main([a, b]) == 1
    out = capsys.readouterr().out
    assert out.splitlines() == ["1 of 4 claims flip", "paper/x: holds -> not reproduced"]
    one = f"{a}/paper-paper"
    assert verdicts.main([f"{a}/paper-quick", one]) == 1
    assert verdicts.main([one, b]) == 0


def test_what_cannot_be_compared_is_refused_in_one_line(tmp_path, capsys):
    a = write_report(tmp_path / "a", x="holds")
    write_report(tmp_path / "a", "paper", x="holds")
    b = write_report(tmp_path / "b", "smoke", x="holds")
    (tmp_path / "empty").mkdir()
    for words, message in (
        ([a, b], "has several partners: name one report of each run"),
        ([a, str(tmp_path / "empty")], "make report"),
        ([], "required: A"),
        ([a, a, a], "unrecognized arguments"),
    ):
        with pytest.raises(SystemExit, match="2"):
            verdicts.main(words)
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1


def test_verdicts_are_counted_apart_from_those_about_our_code(tmp_path, capsys):
    folder = write_report(tmp_path, x="holds", y="holds", z="not run")
    assert verdicts.main([folder]) == 0
    header, _, line = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    names = [cell.strip() for cell in header.strip("|").split("|")]
    found = dict(zip(names, cells, strict=True))
    assert found.pop("report") == "paper-quick"
    counts = {name: int(count) for name, count in found.items()}
    others = {"claims": 3, "holds": 2, "not run": 1, "our code": 1}
    assert counts == dict.fromkeys(counts, 0) | others
