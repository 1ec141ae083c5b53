"""Planted faults of persons and weights: replay moves whole persons through ``fit``."""

from dataclasses import replace

import numpy as np
import pytest

from pkm.audit import report
from pkm.compute import SCALE
from pkm.compute.kernels import clipping, farthest, grid_codes, nearest, shells
from pkm.compute.storage.blocks import Shards
from pkm.compute.storage.points import RowWeights
from pkm.methods import (
    DPM,
    HST,
    AIMKMeans,
    Balcan,
    FastLloyd,
    FedDPKMeans,
    GLloyd,
    KaplanStemmer,
    LSHSplits,
    MSTKMeans,
    PEMeans,
    QuadtreeKMeans,
    SynopsisKMeans,
)
from pkm.methods import base as methods_base
from pkm.methods import weights as methods_weights
from pkm.privacy import StabilityHistogram
from pkm.privacy.queries import clipped_points, clipped_queries

N_PAIRS = 24
NO_WEIGHTS = np.empty(0, np.int32)
correct = methods_weights.weigh_rows
moments = clipped_queries._moments


def weigh_by(change):
    """A fault: weights, and the number of persons, that are changed."""

    def weigh_rows(n_rows, groups=None, sample_weight=None, max_weight=1.0):
        weights = correct(n_rows, groups, sample_weight, max_weight)
        if weights is None:
            return None
        return change(weights, groups, sample_weight)

    return weigh_rows


def count_each_row(weights, groups, sample_weight):
    return RowWeights(np.full(len(weights.units), SCALE, np.int32), weights.n_persons)


def round_up(weights, groups, sample_weight):
    if groups is None:
        return weights
    sizes = np.bincount(groups)[groups]
    units = np.where(SCALE % sizes, weights.units + 1, weights.units)
    return weights._replace(units=units.astype(np.int32))


def one_row_fewer(weights, groups, sample_weight):
    if groups is None:
        return weights
    sizes = np.maximum(np.bincount(groups)[groups] - 1, 1)
    return weights._replace(units=(SCALE // sizes).astype(np.int32))


def join_within_halves(weights, groups, sample_weight):
    """Rows of a person in two blocks are taken for those of two persons."""
    if groups is None:
        return weights
    half = len(groups) // 2
    units = [correct(len(part), part).units for part in (groups[:half], groups[half:]) if len(part)]
    return weights._replace(units=np.concatenate(units))


def root_of_sizes(weights, groups, sample_weight):
    """As for vectors that are orthogonal: rows of a person may be in one cell."""
    units = np.sqrt(weights.units.astype(float) * SCALE)
    return weights._replace(units=units.astype(np.int32))


def no_bound(weights, groups, sample_weight):
    if sample_weight is None:
        return weights
    units = np.where(np.isfinite(sample_weight), 1.5 * weights.units, 0)
    return weights._replace(units=units.astype(np.int32))


def count_present(weights, groups, sample_weight):
    """n is that of persons with some weight."""
    if groups is None or sample_weight is None:
        return weights
    present = np.unique(groups[weights.units > 0])
    return weights._replace(n_persons=max(len(present), 4))


@pytest.mark.parametrize(
    "change",
    [
        count_each_row,
        round_up,
        one_row_fewer,
        join_within_halves,
        root_of_sizes,
        no_bound,
        count_present,
    ],
)
def test_faults_of_weights_are_found(change, monkeypatch):
    monkeypatch.setattr(methods_base, "weigh_rows", weigh_by(change))
    _, findings = report.replay_pairs(QuadtreeKMeans(2, bounds=(-1, 1)), N_PAIRS, 0)
    assert findings


@pytest.mark.parametrize(
    ("module", "method"),
    [
        (clipping, FastLloyd(2, bounds=(-1, 1))),
        (grid_codes, QuadtreeKMeans(2, bounds=(-1, 1))),
        (shells, GLloyd(2, bounds=(-1, 1), zoom=0.3)),
    ],
    ids=["sums", "grid", "shells"],
)
def test_kernels_that_count_rows_are_found(module, method, monkeypatch):
    """A kernel forgets the weights, and gives each row that of a record."""
    if module is clipping:
        weightless = clipping.clipped_sums

        def clipped_sums(rows, weights, *arguments):
            return weightless(rows, NO_WEIGHTS, *arguments)

        monkeypatch.setattr(clipping, "clipped_sums", clipped_sums)
    else:

        def read_weights(points):
            return np.full(len(points.rows), SCALE, np.int32)

        monkeypatch.setattr(module, "read_weights", read_weights)
    _, findings = report.replay_pairs(method, N_PAIRS, 0)
    assert findings


def one_threshold(self, count, is_secure=False):
    """As if a cell that one person occupies held one record: there may be many of them."""
    return self.threshold


def select_rows(points, previous, centers, n_farthest):
    """The farthest rows, whatever their weight: a person's rows are replaced by as many."""
    shards = [replace(shard, weights=None) for shard in points]
    n_rows = sum(len(shard.rows) for shard in shards)
    return farthest.farthest(Shards(shards), previous, centers, n_rows // 2)


def whole_moments(points):
    return moments(replace(points, weights=None))


def whole_costs(squares, weights):
    return squares


@pytest.mark.parametrize(
    ("owner", "name", "fault", "method"),
    [
        (StabilityHistogram, "find_threshold", one_threshold, KaplanStemmer(2, bounds=(-1, 1))),
        pytest.param(
            clipped_points,
            "farthest",
            select_rows,
            KaplanStemmer(2, bounds=(-1, 1)),
            marks=pytest.mark.slow,
        ),
        (clipped_queries, "_moments", whole_moments, FedDPKMeans(2, dimensions=1, bounds=(-1, 1))),
        (nearest, "weigh_sq_dists", whole_costs, Balcan(2, bounds=(-1, 1))),
    ],
    ids=["threshold", "farthest", "moments", "costs"],
)
def test_faults_in_a_ball_are_found(owner, name, fault, method, monkeypatch):
    monkeypatch.setattr(owner, name, fault)
    # One seed in three finds the rows, each of them the others.
    assert any(report.replay_pairs(method, 4 * N_PAIRS, seed)[1] for seed in range(30))


IN_A_BALL = [KaplanStemmer, Balcan, PEMeans, FedDPKMeans]
OF_CELLS = [DPM, LSHSplits, HST, MSTKMeans, AIMKMeans]


@pytest.mark.parametrize(
    "method",
    [kind(2, bounds=(-1, 1)) for kind in [FastLloyd, SynopsisKMeans, *IN_A_BALL, *OF_CELLS]],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.usefixtures("short_fits")
def test_replay_moves_persons(method):
    _, findings = report.replay_pairs(method, N_PAIRS, 0)
    assert not findings
