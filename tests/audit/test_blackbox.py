"""Bounds on epsilon from errors, and the exact losses of transcripts."""

import math

import numpy as np
import planted_faults as planted
import pytest
from planted_faults import broken

from pkm.audit import audit
from pkm.audit.blackbox import compute_bound, measure_transcripts
from pkm.audit.pairs import Pair
from pkm.audit.replay import measure_losses, trace_run
from pkm.methods import DPLloyd, EUGkM, GLloyd, LocalMean, SuLloyd
from pkm.privacy import SCALE

DOMAIN = np.array([[-1.0, -1.0], [1.0, 1.0]])
ROWS = np.array([[0.9, 0.9], [-0.8, -0.9], [-0.9, -0.8]]) * SCALE
PAIR = Pair("three", np.rint(ROWS).astype(np.int64), 0, None, DOMAIN)


def losses_of(method, seeds):
    """Exact losses of runs that are made together."""
    public_seeds = [0] * len(seeds)
    recorded = trace_run(method, PAIR.points, seeds, DOMAIN, public_seeds)
    replayed = trace_run(method, PAIR.reversed.points, seeds, DOMAIN, public_seeds, recorded.draws)
    draws = list(zip(recorded.draws, replayed.draws, strict=True))
    return measure_losses(draws, len(seeds))


@pytest.mark.parametrize("method", [GLloyd(2), DPLloyd(2, variant="published")])
def test_losses_of_a_batch_are_those_of_single_runs(method):
    seeds = [3, 1, 4]
    single = np.concatenate([losses_of(method, [seed]) for seed in seeds])
    assert len(np.unique(single)) == 3
    np.testing.assert_allclose(losses_of(method, seeds), single, rtol=1e-12)


@pytest.mark.statistical
def test_transcript_losses_have_their_mean_and_variance():
    """Of Gaussian releases alone, losses are normal with mean mu^2 / 2 and variance mu^2.

    One cluster: all releases are of one cell, and mu is what the ledger has charged, but for the
    record's distance to the corner.
    """
    n_runs = 2000
    corner = Pair("corner", np.full((3, 2), SCALE, np.int64), 0, None, DOMAIN)
    method = GLloyd(1, epsilon=2.0, n_iterations=2)
    losses = measure_transcripts(method, corner, n_runs, (0,))
    recorded = trace_run(method, corner.points, [0], DOMAIN)
    mu = math.hypot(*(charge.mu for charge in recorded.ledgers[0].charges))
    assert abs(losses.mean() - mu**2 / 2) < 5 * mu / math.sqrt(n_runs)
    assert losses.std() == pytest.approx(mu, rel=5 * math.sqrt(1 / (2 * n_runs)))


def test_atoms_of_a_loss_do_not_tell_the_sides_apart():
    """Both sides have losses of plus and minus epsilon; their last bits must not differ."""
    rows = np.tile(PAIR.rows, (60, 1))
    moved = Pair("moved", rows, 0, -rows[0], DOMAIN)
    method = LocalMean(1)
    losses = measure_transcripts(method, moved, 60, (0,))
    other_losses = -measure_transcripts(method, moved.reversed, 60, (1,))
    assert set(losses) & set(other_losses)
    assert len(set(losses) | set(other_losses)) <= 3


def test_exchanged_pairs_exchange_their_data_sets():
    reverse = PAIR.reversed
    assert reverse.points != PAIR.points
    assert reverse.reversed.points == PAIR.points


def test_bounds_of_epsilon():
    """Nothing seen is 0; one side alone is capped by the number of runs; never above the truth."""
    assert compute_bound(500, 480, 1000, 0.0) == 0.0
    assert compute_bound(1000, 0, 1000, 0.0) == pytest.approx(5.28, abs=0.01)
    assert compute_bound(1000, 0, 1000, 0.0) > compute_bound(1000, 0, 1000, 0.5)
    counts = np.array([0, 10, 500])
    assert (compute_bound(counts, counts, 1000, 0.0) == 0).all()


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
