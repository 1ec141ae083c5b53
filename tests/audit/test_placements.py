"""Where the audit moves a record: each placement meets every partition, and is used."""

from collections import Counter

import numpy as np
import pytest
from planted_faults import broken, find_labels

from pkm.audit import audit, pairs, placements
from pkm.audit import report as audit_report
from pkm.audit.pairs import draw_blobs, draw_pair, move_record
from pkm.audit.placements import PLACEMENTS, Partition, list_partitions
from pkm.audit.replay import trace_run
from pkm.methods import (
    DPM,
    AIMKMeans,
    EUGkM,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    LocalLloyd,
    LSHSplits,
)
from pkm.privacy import SCALE, Adjacency, SumsAndCounts
from pkm.privacy.queries.moved_records import QuadtreeCounts
from pkm.privacy.queries.tree import CellCounts

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_fits"),
]

RNG = np.random.default_rng(0)

#: Methods whose queries partition the domain by each rule.
RULES = {
    "nearest": GLloyd(3),
    "radius": FastLloyd(3),
    "sides": GLloyd(3, zoom=0.3, epsilon=100.0),
    "ball": KaplanStemmer(3, radius=0.5),
    "grid": EUGkM(3, n_init=1),
    "bins": GLloyd(3, report=0.3),
    "table": AIMKMeans(3, n_init=1),
    "buckets": KaplanStemmer(3),
    "tree": DPM(3, epsilon=30.0),
    "users": LocalLloyd(3),
}


def partitions_of(method, rule, seed=0):
    """The points of a run, and the partitions by a rule that its queries have made."""
    is_local = method.claim.adjacency == Adjacency.LOCAL
    n = 500 if is_local else 60
    adjacency = Adjacency(method.claim.adjacency)
    pair = draw_pair(draw_blobs, adjacency, np.random.default_rng(seed), n, 2, 0.1)
    trace = trace_run(method, pair.points, [seed], pair.domain)
    return pair, [partition for partition in trace.partitions if partition.rule == rule]


def neighbors_of(place):
    """Points at most a step away in each of two columns."""
    offsets = np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1]), axis=-1).reshape(-1, 2)
    return place + offsets


@pytest.mark.parametrize("rule", RULES)
def test_a_record_is_moved_to_a_border_of_every_partition(rule):
    pair, found = partitions_of(RULES[rule], rule)
    assert found
    places = [placements.draw_border(pair.rows, partition, RNG) for partition in found]
    codes = [
        partition.codes(neighbors_of(place)) for partition, place in zip(found, places, strict=True)
    ]
    n_divided = sum(len(np.unique(code, axis=0)) > 1 for code in codes)
    # A tree or a table of one cell has no border.
    assert n_divided >= len(found) / 3


def test_hyperplanes_have_borders():
    pair, found = partitions_of(LSHSplits(3, epsilon=30.0), "tree")
    _, *divided = found  # the first one is the whole domain
    places = [placements.draw_border(pair.rows, partition, RNG) for partition in divided]
    n_codes = [
        len(np.unique(partition.codes(neighbors_of(place)), axis=0))
        for partition, place in zip(divided, places, strict=True)
    ]
    assert max(n_codes) > 1


def test_cells_of_shifted_quadtrees_have_borders():
    query = QuadtreeCounts(np.array([[5, 9]]), range(3, 5))
    (partition,) = list_partitions(None, query, whole(2))
    place = placements.draw_border(np.array([[-9, 4], [60_000, 8]]), partition, RNG)
    shifted = place + np.array([5, 9])
    remainders = shifted % (1 << 15)
    assert min(remainders.min(), (1 << 15) - 1 - remainders.max()) == 0


def whole(n_features):
    return np.array([[-1.0] * n_features, [1.0] * n_features])


def nearest(centers):
    centers = np.array(centers, np.int64)
    encode = placements.partial(placements.find_nearest, centers)
    return Partition("nearest", encode, centers, whole(centers.shape[1]))


def test_borders_of_centers_are_their_bisectors():
    """Ties belong to the lower center: half of the places are exact ties."""
    partition = nearest([[-100, 40], [300, 40], [-100, 20_000]])
    rng = np.random.default_rng(0)
    places = np.array(
        [placements.draw_border(partition.positions, partition, rng) for _ in range(200)]
    )
    differences = places[:, None] - partition.positions
    squares = np.sort((differences**2).sum(axis=2), axis=1)
    n_ties = (squares[:, 0] == squares[:, 1]).sum()
    assert n_ties > 20


def test_borders_of_a_radius_are_at_it():
    center = np.array([[5, 7]])
    encode = placements.partial(placements.find_shells, center, np.full((1, 1), 1000.0))
    partition = Partition("radius", encode, center, whole(2))
    rows = np.array([[40_000, 3], [-20_000, -9]])
    rng = np.random.default_rng(0)
    places = np.array([placements.draw_border(rows, partition, rng) for _ in range(50)])
    distances = np.linalg.norm(places - center, axis=1)
    assert np.abs(distances - 1000).max() < 2
    assert (distances <= 1000).any()
    assert (distances > 1000).any()


def test_fullest_and_emptiest_cells_are_met():
    partition = nearest([[-30_000], [0], [30_000]])
    rows = np.array([[-30_001]] * 5 + [[1]] * 2)
    rng = np.random.default_rng(0)
    for _ in range(20):
        fullest = placements.draw_in_fullest(rows, partition, rng)
        emptiest = placements.draw_in_emptiest(rows, partition, rng)
        assert partition.encode(fullest[None]) == 0
        assert partition.encode(emptiest[None]) == 2


def test_quantiles_are_of_the_records():
    rows = np.arange(100)[:, None] * [1, 10]
    rng = np.random.default_rng(0)
    partition = nearest([[0, 0]])
    places = np.array([placements.draw_at_quantile(rows, partition, rng) for _ in range(50)])
    assert (np.abs(10 * places[:, 0] - places[:, 1]) < 10).all()
    assert len(np.unique(places, axis=0)) > 20


def test_a_record_is_placed_in_the_domain_of_the_partition():
    """After a zoom the grid is finer: the record moves in the steps of the pair."""
    pair = draw_pair(draw_blobs, Adjacency.ZERO_OUT, np.random.default_rng(0), 20, 2)
    inner = 0.25 * whole(2)
    centers = np.array([[-SCALE, 0], [SCALE, 0]])
    encode = placements.partial(placements.find_nearest, centers)
    partition = Partition("nearest", encode, centers, inner)
    rng = np.random.default_rng(0)
    moved = [move_record(pair, [partition], rng) for _ in range(100)]
    places = np.array([other.rows[other.index] for other in moved])
    assert (np.abs(places) <= SCALE // 4).all()
    assert (np.abs(places[:, 0]) <= 1).any()
    kept = np.delete(pair.rows, pair.index, axis=0)
    for other in moved:
        assert np.array_equal(np.delete(other.rows, pair.index, axis=0), kept)


@pytest.mark.slow
def test_an_audit_uses_every_placement(monkeypatch):
    used = Counter()

    def counting(placement):
        def count(rows, partition, rng):
            used[placement] += 1
            return placement(rows, partition, rng)

        return count

    counted = {counting(placement): share for placement, share in PLACEMENTS.items()}
    monkeypatch.setattr(placements, "PLACEMENTS", counted)
    monkeypatch.setattr(audit_report, "N_SEEDS", 1)
    audit(GLloyd(3), ["replay"], n_pairs=100)
    assert set(used) == set(PLACEMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_an_audit_places_records_by_every_partition(rule, monkeypatch):
    seen = set()

    def record(pair, partitions, rng, rho=None):
        seen.update(partition.rule for partition in partitions)
        return pairs.move_record(pair, partitions, rng, rho)

    epsilon = 4.0 if rule == "users" else 100.0
    monkeypatch.setattr(audit_report, "move_record", record)
    monkeypatch.setattr(audit_report, "EPSILONS", (epsilon,))
    audit(RULES[rule], ["replay"], n_pairs=8)
    assert rule in seen


# Faults that only a record on a border shows


class TwoAtTheRadius(SumsAndCounts):
    """A record within a step of the radius counts twice."""

    def exact(self, view):
        found = dict(super().exact(view))
        for points in view._shards:
            distances = np.linalg.norm(points.rows[:, None] - self.centers[0], axis=2)
            is_near = abs(distances.min(axis=1) - self.radius * SCALE) < 1.5
            np.add.at(found["counts"][0], distances.argmin(axis=1)[is_near], SCALE)
        return found


class TwoAtASplit(CellCounts):
    """A record at the upper end of a cell counts twice there."""

    def exact(self, view):
        found = dict(super().exact(view))
        for number, cell in enumerate(self.cells):
            lower, upper = view.box(cell)
            for points in view._points:
                rows = points.rows
                inside = ((rows >= lower) & (rows <= upper)).all(axis=1)
                at_end = ((rows == upper) & (rows < SCALE)).any(axis=1)
                found["counts"][0, number] += SCALE * (inside & at_end).sum()
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "label", "n_pairs"),
    [
        (broken(FastLloyd, queries=[TwoAtTheRadius])(3), "sums_and_counts", 120),
        (broken(DPM, queries=[TwoAtASplit])(3, epsilon=30.0), "cell_counts", 60),
    ],
    ids=["radius", "split"],
)
def test_a_fault_at_a_border_is_found(method, label, n_pairs, monkeypatch):
    monkeypatch.setattr(audit_report, "SECURE_SHARE", 0.0)
    monkeypatch.setattr(audit_report, "N_SEEDS", 1)
    assert find_labels(method, n_pairs) == {label}


def test_positions_outside_of_the_domain_are_no_places():
    """Sums with noise put centers there; cells are found by the centers as they are."""
    centers = np.array([[[-3 * SCALE, 0], [SCALE // 2, 5]]])
    (partition,) = list_partitions(None, SumsAndCounts(centers), whole(2))
    assert np.abs(partition.positions).max() == SCALE
    assert partition.codes(np.array([[-SCALE, 0]])).tolist() == [[1]]
