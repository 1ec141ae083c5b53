"""The audit of every method, and what it refuses."""

import math
from dataclasses import replace

import pytest
from estimators import private_methods
from registered_flaws import REGISTERED

from pkm.audit import audit, replay
from pkm.audit import report as audit_report
from pkm.audit.pairs import PAIR_GENERATORS
from pkm.methods import DistDP, GLloyd, Lloyd, QuadtreeKMeans, SuLloyd

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


def find_flaws(report):
    return {found.label: found.flaw for found in report.findings}


# One pair of every kind of data, for what a short replay may miss or would take long for; `make
# audit` replays 500 of every method, and a thousand audits are `make false-alarms`. Replay is
# deterministic: a sound method never exceeds its charge.
# Coverage is measured in shorter tests of the same code (`no_cover`): it makes half as long again.
@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", [*REGISTERED, *COSTLY])
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
    assert max(report.tightness.values()) > 0.9


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


def test_a_report_names_what_it_saw():
    report = audit(SuLloyd(3), n_pairs=8)
    assert (report.method, report.variant, report.adjacency) == ("SuLloyd", "sound", "zero_out")
    # Some of the pairs are replayed with a zoom, some with a report.
    zoom = ("shell_counts", "clipped_sum", "side_counts")
    labels = ("sums_and_counts", *zoom, "nearest_shells", "cluster_summary")
    assert report.query_verdicts == dict.fromkeys(labels, "consistent")
    assert report.lower_bound is None
    assert math.isnan(report.epsilon)
