"""The command `pkm audit`: what it prints, and what it refuses in one line."""

import json

import planted_faults as planted
import pytest
from registered_flaws import REGISTERED

from pkm.audit.__main__ import main
from pkm.methods import GLloyd, SuLloyd


class DoesNotBuild(GLloyd):
    """Wrong: needs a parameter that no caller knows of."""

    def __init__(self, secret):
        super().__init__(2)


class FailsInside(SuLloyd):
    """Wrong: fails whatever the data."""

    def cluster(self, curator):
        raise KeyError("nothing there")


class FailsWithoutSchedule(planted.HasNoSchedule):
    """Wrong: fails whatever the data. An account, of some pairs, needs a schedule."""

    def cluster(self, curator):
        raise KeyError("nothing there")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SuLloyd", "view=replay,xray"], "view='xray' is unknown"),
        (["SuLloyd", "view="], "view='' is unknown"),
        (["SuLloyd", "speed=3"], "'speed=3' is unknown"),
        (["SuLloyd", "pairs"], "'pairs' is unknown"),
        (["SuLloyd", "pairs=0"], "pairs=0 must be at least 1"),
        (["SuLloyd", "pairs=-1"], "pairs='-1' must be a whole number"),
        (["SuLloyd", "pairs=many"], "pairs='many' must be a whole number"),
        (["SuLloyd", "view=blackbox", "runs=5"], "runs=5 must be at least 100"),
        (["NoSuchMethod"], "method 'NoSuchMethod' is unknown; "),
        (["no.such.Method"], "is its folder on PYTHONPATH?"),
        (["math.pi"], "is no method"),
        (["Lloyd"], "claims no privacy"),
        ([f"{__name__}.DoesNotBuild"], "does not build"),
        ([f"{__name__}.FailsInside", "pairs=2"], "fails on every pair"),
        ([f"{__name__}.FailsWithoutSchedule", "pairs=8"], "KeyError('nothing there')"),
        ([f"{__name__}.FailsInside", "view=residuals"], "fails on 400 points"),
    ],
    ids=" ".join,
)
def test_a_bad_command_is_refused_in_one_line(words, message, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


# Two pairs with these seeds show the registered flaws.
@pytest.mark.parametrize(("name", "seed"), [("DPM", 3), ("DPLloyd", 0)])
def test_command_prints_json_lines(name, seed, capsys):
    assert main([name, "pairs=2", f"seed={seed}", "view=replay", "--json"]) == 0
    published, sound = map(json.loads, capsys.readouterr().out.splitlines())
    assert (published["method"], published["variant"]) == (name, "published")
    assert published["verdicts"] == {"replay": "violated"}
    flaws = {found["label"]: found["flaw"] for found in published["findings"]}
    assert flaws == REGISTERED[f"{name} published"]
    assert sound["verdicts"] == {"replay": "consistent"}
    assert sound["n_pairs"] == 2


@pytest.mark.slow
def test_command_fails_for_a_violation_that_is_not_registered(capsys):
    assert main(["planted_faults.ReadsRows", "pairs=8"]) == 1
    printed = capsys.readouterr().out
    assert "replay violated" in printed
    assert "cluster_centers_ differs although all releases are equal" in printed


def test_the_command_writes_json_lines(tmp_path, capsys):
    assert main(["SuLloyd", "pairs=1", "view=replay", f"results={tmp_path}", "--json"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == printed
    assert [record["variant"] for record in printed] == ["published", "sound"]
    assert [record["default"] for record in printed] == [False, True]
