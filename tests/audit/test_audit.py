"""The audit of sound methods, its command, and what it refuses."""

import gc
import json
import math
import warnings
from dataclasses import replace

import planted_faults as planted
import pytest
from estimators import private_methods
from planted_faults import broken

from pkm.audit import audit, replay
from pkm.audit import report as audit_report
from pkm.audit.__main__ import main
from pkm.audit.pairs import PAIR_GENERATORS
from pkm.methods import DistDP, EUGkM, GLloyd, Lloyd, QuadtreeKMeans, SuLloyd

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_fits"),
]


PRIVATE = private_methods()
for method in PRIVATE.values():
    # Starts of a k-means on what was released: no release depends on their number.
    if "n_init" in method.get_params():
        method.set_params(n_init=1)

#: One of every kind of data, and the tenth one, of many records.
N_PAIRS = len(PAIR_GENERATORS) + 1
#: Of a short audit.
FEW_PAIRS = 4
#: Four pairs of it take as long as those of twenty other methods.
COSTLY = {"PEMeans published"}
# Releases that cost more than is charged, with the flaw that says so. All other registered flaws
# are of a kind that no release shows: quantities that are taken as public, or accuracy.
REGISTERED = {
    "DPM published": {"gap_percentile": "F-13"},
    "DPLloyd published": {"budget": "F-26"},
}


def find_flaws(report):
    return {found.label: found.flaw for found in report.findings}


# One pair of every kind of data; `make audit` replays 500, and a thousand audits are
# `make false-alarms`. Replay is deterministic: a sound method never exceeds its charge.
# Coverage is measured in shorter tests of the same code (`no_cover`): it makes half as long again.
@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", PRIVATE)
def test_replay_finds_registered_flaws_alone(name):
    # Ten pairs show the flaws of DPM and DP-Lloyd in most audits: in this one.
    report = audit(PRIVATE[name], ["replay"], n_pairs=N_PAIRS, seed=4)
    assert find_flaws(report) == REGISTERED.get(name, {})
    verdict = "violated" if name in REGISTERED else "consistent"
    assert report.verdicts == {"replay": verdict}
    assert report.n_pairs == N_PAIRS
    assert max(report.tightness.values()) > 0.9


# With seeds in turn, all methods together have the pairs of one long audit.
@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("seed", "name"),
    [pytest.param(*case, id=case[1]) for case in enumerate(PRIVATE) if case[1] not in COSTLY],
)
def test_a_short_replay_finds_registered_flaws_alone(seed, name):
    report = audit(PRIVATE[name], ["replay"], n_pairs=FEW_PAIRS, seed=seed)
    found = find_flaws(report)
    assert found.items() <= REGISTERED.get(name, {}).items()
    assert report.verdicts == {"replay": "violated" if found else "consistent"}


# Residuals, which see no pairs, make about twenty tests, each an alarm by chance with probability
# MAX_P_VALUE = 1e-9.
@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", PRIVATE)
def test_residuals_are_those_of_the_declared_laws(name, monkeypatch):
    # A run of the synopsis has 100,000 noisy counts: a few make a powerful test.
    n_runs = 5 if name.startswith("SynopsisKMeans") else 20
    monkeypatch.setattr(audit_report, "RESIDUAL_RUNS", n_runs)
    report = audit(PRIVATE[name], ["residuals"], n_pairs=1, seed=3)
    assert report.findings == ()
    assert report.verdicts == {"residuals": "consistent"}


@pytest.mark.slow
def test_a_move_that_is_charged_as_one_record_is_the_registered_flaw():
    method = DistDP(3, variant="published", replacement="uncharged")
    report = audit(method, ["replay"], n_pairs=8)
    assert {found.flaw for found in report.findings} == {"F-17"}
    assert report.unregistered == ()
    assert report.tightness["region_counts"] == pytest.approx(2.0)


def test_the_warning_of_few_centers_is_the_same_for_a_neighbor(monkeypatch):
    """It counts what was released: a replay compares the warnings of both fits."""
    seen = []

    def observe(observed):
        seen.append(observed)
        return replay_observe(observed)

    replay_observe = replay.observe
    monkeypatch.setattr(replay, "observe", observe)
    # Without secure noise every run of the test is the same.
    monkeypatch.setattr(audit_report, "SECURE_SHARE", 0.0)
    report = audit(QuadtreeKMeans(3), ["replay"], n_pairs=6)
    assert report.verdicts == {"replay": "consistent"}
    warned = [observed for observed in seen if "smaller than n_clusters" in str(observed)]
    assert len(warned) >= 2


class Unclosed:
    """In a cycle, so that it warns only when garbage is collected."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        warnings.warn("unclosed", ResourceWarning, stacklevel=1)


def test_garbage_of_other_code_warns_in_no_fit():
    """It would be collected in one of the two fits, whose warnings then differ."""
    observed = {}
    gc.collect()
    gc.disable()
    Unclosed()
    gc.enable()
    with replay.observe(observed):
        fills_a_generation = [[] for _ in range(2 * gc.get_threshold()[0])]
    assert fills_a_generation
    assert observed["warnings"] == []
    assert gc.isenabled()


@pytest.mark.slow
def test_audits_are_repeatable(monkeypatch):
    # What a replay releases after secure noise cannot be repeated. An account asks for it.
    monkeypatch.setattr(audit_report, "SECURE_SHARE", 0.0)
    monkeypatch.setattr(audit_report, "ACCOUNT_EVERY", 10**6)
    reports = [audit(GLloyd(3), n_pairs=8, seed=3) for _ in range(2)]
    seeded = [[test for test in report.tests if "secure" not in test.label] for report in reports]
    assert seeded[0] == seeded[1]
    assert len(seeded[0]) < len(reports[0].tests)  # secure noise cannot be repeated
    without_tests = [replace(report, tests=(), epsilon=1.0) for report in reports]
    assert without_tests[0] == without_tests[1]


def test_audits_of_two_pairs_have_all_kinds_of_pairs_in_turn(monkeypatch):
    pairs = []

    def replay_nothing(configuration, pair, *arguments, **options):
        pairs.append(pair)
        return replay.Replay()

    monkeypatch.setattr(audit_report, "replay", replay_nothing)
    # The second half of an audit changes the pairs of the first.
    monkeypatch.setattr(audit_report, "move_record", lambda pair, *arguments: pair)
    monkeypatch.setattr(audit_report, "perturb", lambda pair, *arguments: pair)
    for seed in range(5):
        audit(GLloyd(3), ["replay"], n_pairs=2, seed=seed)
    assert len({pair.name for pair in pairs}) >= len(PAIR_GENERATORS)
    assert max(pair.n_records for pair in pairs) >= audit_report.LARGE_SIZES[0]


# Black box: centers alone, with few runs


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("method", "n_runs", "least"),
    [
        (broken(SuLloyd, curator=planted.SkipsEmpty)(3), 400, 2.0),
        (broken(EUGkM, curator=planted.SkipsEmpty)(3, n_init=1), 400, 2.0),
        (planted.DecodesSaturation(3), 400, 3.0),
        (broken(EUGkM, mechanisms=[planted.HalfLaplace])(3, n_init=1), 1000, 1.0),
    ],
    ids=["empty cluster skipped", "empty cell skipped", "saturated noise", "noise x 0.5"],
)
def test_blackbox_finds(method, n_runs, least):
    report = audit(method, ["blackbox"], n_runs=n_runs)
    assert report.verdicts == {"blackbox": "violated"}
    assert report.lower_bound > max(least, report.epsilon)


@pytest.mark.slow
def test_blackbox_bounds_a_sound_method_below_its_ledger():
    report = audit(EUGkM(3, n_init=1), ["blackbox"], n_runs=400)
    assert report.verdicts["blackbox"] in ("consistent", "no power here")
    assert report.lower_bound <= report.epsilon == pytest.approx(1.0)


# The command


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


@pytest.mark.parametrize(
    ("views", "sizes", "message"),
    [
        ([], {}, "view=''"),
        (["xray"], {}, "view='xray'"),
        (["replay"], {"n_pairs": 0}, "pairs=0"),
        (["blackbox"], {"n_runs": 99}, "runs=99"),
    ],
)
def test_bad_arguments_are_refused(views, sizes, message):
    with pytest.raises(ValueError, match=message):
        audit(GLloyd(3), views, **sizes)


def test_a_method_without_a_claim_is_refused():
    with pytest.raises(ValueError, match="claims no privacy"):
        audit(Lloyd(3))


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


def test_a_report_names_what_it_saw():
    report = audit(SuLloyd(3), n_pairs=8)
    assert (report.method, report.variant, report.adjacency) == ("SuLloyd", "sound", "zero_out")
    # Some of the pairs are replayed with a zoom, some with a report.
    zoom = ("shell_counts", "clipped_sum", "side_counts")
    labels = ("sums_and_counts", *zoom, "nearest_shells", "cluster_summary")
    assert report.query_verdicts == dict.fromkeys(labels, "consistent")
    assert report.lower_bound is None
    assert math.isnan(report.epsilon)
