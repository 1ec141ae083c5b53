"""Planted faults of persons, weights and missing entries, and replays of methods without any."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from planted_faults import find_labels

from pkm.audit import report
from pkm.compute import SCALE
from pkm.compute.kernels import clipping, farthest, grid_codes, nearest, shells
from pkm.compute.storage import points as points_module
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
from pkm.privacy.queries import clipped_points, clipped_queries, marginals, tree

N_PAIRS = 24
NO_WEIGHTS = np.empty(0, np.int32)
correct = methods_weights.weigh_rows
read_points = methods_base.read_points
clipped_sums = clipping.clipped_sums
histogram = tree.histogram
moments = clipped_queries._moments
fill_missing = points_module._fill_missing


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


def cap_in_each_cell(method, X, groups, weigh):
    """A person's rows weigh one record in each cell of a hash, not in all cells together."""
    if groups is None:
        return read_points(method, X, groups, weigh)
    cells = np.floor(4 * X[:, 0])
    ids = [f"{person} in {cell}" for person, cell in zip(groups, cells, strict=True)]
    n_persons = len(set(groups))

    def weigh_in_cells(n_rows, groups):
        return weigh(n_rows, ids)._replace(n_persons=n_persons)

    return read_points(method, X, groups, weigh_in_cells)


def count_rows(points):
    """A kernel forgets the weights, and gives each row that of a record."""
    return np.full(len(points.rows), SCALE, np.int32)


def sum_rows(rows, weights, *arguments):
    return clipped_sums(rows, NO_WEIGHTS, *arguments)


def score_rows(codes, order, weights, counts):
    weights = np.full(len(codes), SCALE if len(weights) else 1, np.int32)
    histogram(codes, order, weights, counts)


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


def inverse_share(points):
    """Rows with missing entries stand for those that are complete."""
    return (SCALE / (~points.is_missing).mean(axis=1)).astype(np.int32)


def fill_by_mean(points, middle):
    """Missing entries are the mean of their column, which is one of the data."""
    with np.errstate(invalid="ignore"):
        present = np.where(np.isfinite(points), points, 0.0).sum(axis=0)
        means = present / np.isfinite(points).sum(axis=0)
    return fill_missing(points, np.nan_to_num(means))


def drop_rows(method, X, groups, weigh):
    """Rows without a value are left out, and n is the number of the others."""
    if groups is None and weigh.keywords["sample_weight"] is None:
        X = X[np.isfinite(X).any(axis=1)]
    return read_points(method, X, groups, weigh)


#: What is broken, by what, the method that shows it, and in how many pairs, of how many seeds, if
#: they are more.
FAULTS = {
    "rows once each": (methods_base, "weigh_rows", weigh_by(count_each_row), QuadtreeKMeans),
    "rounded up": (methods_base, "weigh_rows", weigh_by(round_up), QuadtreeKMeans),
    "one row fewer": (methods_base, "weigh_rows", weigh_by(one_row_fewer), QuadtreeKMeans),
    "two blocks": (methods_base, "weigh_rows", weigh_by(join_within_halves), QuadtreeKMeans),
    "roots": (methods_base, "weigh_rows", weigh_by(root_of_sizes), QuadtreeKMeans),
    "no bound": (methods_base, "weigh_rows", weigh_by(no_bound), QuadtreeKMeans),
    "n of weights": (methods_base, "weigh_rows", weigh_by(count_present), QuadtreeKMeans),
    "cap in each cell": (methods_base, "read_points", cap_in_each_cell, KaplanStemmer),
    "rows in sums": (clipping, "clipped_sums", sum_rows, FastLloyd),
    "rows in a grid": (grid_codes, "read_weights", count_rows, QuadtreeKMeans),
    "rows in shells": (shells, "read_weights", count_rows, partial(GLloyd, zoom=0.3)),
    "rows in a tree": (tree, "read_weights", count_rows, LSHSplits),
    "rows in scores": (tree, "histogram", score_rows, DPM),
    "rows in tables": (marginals, "read_weights", count_rows, MSTKMeans),
    "threshold": (StabilityHistogram, "find_threshold", one_threshold, KaplanStemmer),
    "farthest rows": (clipped_points, "farthest", select_rows, KaplanStemmer, 4 * N_PAIRS, 30),
    "moments": (clipped_queries, "_moments", whole_moments, partial(FedDPKMeans, dimensions=1)),
    "costs": (nearest, "weigh_sq_dists", whole_costs, Balcan),
    "weight of missing entries": (clipping, "weigh_present", inverse_share, FastLloyd),
    "mean of a column": (points_module, "_fill_missing", fill_by_mean, LSHSplits),
    "rows left out": (methods_base, "read_points", drop_rows, GLloyd),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.no_cover  # other tests run the same code
def test_replay_finds(name, monkeypatch):
    owner, attribute, fault, method, *numbers = FAULTS[name]
    monkeypatch.setattr(owner, attribute, fault)
    assert find_labels(method(2, bounds=(-1, 1)), *numbers or [N_PAIRS])


# AIM has the releases of MST, and more of them: a second for a pair.
PAIRS_OF_METHODS = {AIMKMeans: 6}
IN_A_BALL = [KaplanStemmer, Balcan, PEMeans, FedDPKMeans]
OF_CELLS = [DPM, LSHSplits, HST, MSTKMeans, AIMKMeans]


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [kind(2, bounds=(-1, 1)) for kind in [FastLloyd, SynopsisKMeans, *IN_A_BALL, *OF_CELLS]],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.usefixtures("short_fits")
def test_replay_moves_persons(method):
    n_pairs = PAIRS_OF_METHODS.get(type(method), N_PAIRS)
    _, findings = report.replay_pairs(method, n_pairs, 0)
    assert not findings
