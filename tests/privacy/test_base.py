"""Every query: what is refused, before anything is charged or drawn."""

import dataclasses
import math

import numpy as np
import pytest
from query_examples import (
    BUDGETS,
    CURATORS,
    EXAMPLES,
    N_MOVED,
    SERVED,
    NoDraws,
    asked,
    numbered,
)

from pkm.compute.kernels.hashing import euclidean_hash
from pkm.privacy import (
    SCALE,
    BoundedLaplace,
    BucketCounts,
    BucketSums,
    Budget,
    BudgetExceeded,
    CandidateSets,
    CellCounts,
    CellSums,
    ClippedSum,
    ClusterSummary,
    CountsAndBoundedSums,
    CoverPicks,
    Curator,
    DependentColumns,
    Exponential,
    GapPercentile,
    Gaussian,
    GridCounts,
    Laplace,
    Ledger,
    Marginals,
    MaximumCover,
    NearestCounts,
    NearestShells,
    NearestSumsAndCounts,
    NoiseStreams,
    Percentile,
    ProjectedCounts,
    ProjectedSumsAndCounts,
    ShellCounts,
    SideCounts,
    Splits,
    SplitScore,
    StabilityHistogram,
    SumsAndCounts,
    Swaps,
    WorstApproximated,
)
from pkm.privacy.local_aggregator import (
    LocalAggregator,
    LocalCounts,
    LocalSums,
    ReportReuseError,
)
from pkm.privacy.mechanisms.additive import MAX_SCALE, Cost
from pkm.privacy.mechanisms.randomizers import (
    HadamardResponse,
    LocalHashing,
    RandomizedResponse,
    SignedSums,
    VectorRandomizer,
)
from pkm.privacy.queries.clipped_regions import RegionCounts, RegionSums
from pkm.privacy.queries.moved_records import (
    AllPoints,
    GroupSums,
    QuadtreeCounts,
    SoftCounts,
    SortedGaussian,
)
from pkm.privacy.rho_bounded import RhoBoundedCurator

#: A mechanism of each type, which any part of the examples accepts.
MECHANISMS = {
    type(mechanism): mechanism
    for mechanism in (
        Gaussian(9.0 * SCALE),
        Laplace(9.0 * SCALE),
        SortedGaussian(9.0 * SCALE),
        BoundedLaplace(0.1, 4.0 * SCALE),
        StabilityHistogram(9.0, 1e-6, 64),
        Exponential(0.1),
        Percentile(0.1),
        MaximumCover(0.1, 1e-6),
        RandomizedResponse(1.0, 8),
        LocalHashing(1.0, 8),
        HadamardResponse(1.0, 8),
        SignedSums(1.0, 2),
        VectorRandomizer(1.0, 2),
    )
}


PARTS = [
    pytest.param(kind, part, mechanism, id=f"{kind.__name__}-{part}-{mechanism.__name__}")
    for kind in SERVED
    for part, mechanisms in kind.mechanisms.items()
    for mechanism in mechanisms
]


#: Those with additive noise, which has a scale.
SCALED = (Gaussian, Laplace, SortedGaussian, StabilityHistogram)


SCALED_PARTS = [case for case in PARTS if case.values[2] in SCALED]


def noise_of(query):
    return {part: MECHANISMS[kinds[0]] for part, kinds in query.mechanisms.items()}


def fields_of(value):
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


@pytest.mark.parametrize(("kind", "part", "mechanism"), PARTS)
def test_well_posed_queries_are_released_and_charged(kind, part, mechanism):
    """What the tests below start from."""
    curator, view, query = asked(kind, NoiseStreams([0]))
    answer = view.release(query, **noise_of(query) | {part: MECHANISMS[mechanism]})
    assert answer.keys() == query.mechanisms.keys()
    # Laplace noise on counts that a move changes is charged for both records.
    is_charged_twice = kind is RegionCounts and mechanism is Laplace
    assert len(curator._ledger.charges) == (2 if is_charged_twice else 1)
    assert curator._ledger.charges[0].label == query.label


def wide(rows):
    """The same with a feature more."""
    return np.concatenate([rows, rows[..., :1]], axis=-1)


def halves(positions):
    """Positions between grid points."""
    return positions + 0.5


def outside(positions):
    """Positions off the domain."""
    return positions + 3 * SCALE


def repeated(values):
    """The first one twice."""
    return np.concatenate([values[:1], values])


def filled(value):
    return lambda values: np.full(np.shape(values), value)


HASH_OF_THREE = euclidean_hash(np.random.default_rng(0), 1, 3, 1.0)


#: Queries, arguments that are ill-posed (functions are called on those of the example), messages.
ILL_POSED = (
    (SumsAndCounts, {"centers": halves}, "centers must be grid integers"),
    (SumsAndCounts, {"centers": repeated}, "for 1 replicates"),
    (SumsAndCounts, {"radius": 0.0}, "radius=0.0 must be positive"),
    (SumsAndCounts, {"radius": math.nan}, "radius=nan must be positive"),
    (SumsAndCounts, {"radius": math.inf}, "radius=inf must be positive and finite"),
    (SumsAndCounts, {"relative": True}, "relative sums need a radius"),
    (SumsAndCounts, {"fill": 1}, "fill=1 must be True or False"),
    (CountsAndBoundedSums, {"fill": None}, "fill=None must be True or False"),
    (CountsAndBoundedSums, {"centers": halves}, "centers must be grid integers"),
    (CountsAndBoundedSums, {"centers": repeated}, "for 1 replicates"),
    (GridCounts, {"intervals": 0}, "intervals=0 must be at least 1"),
    (GridCounts, {"intervals": 30_000}, "intervals=30000"),
    (GapPercentile, {"percent": -1.0}, "percent=-1.0 must be between"),
    (GapPercentile, {"percent": 101.0}, "percent=101.0"),
    (GapPercentile, {"percent": math.nan}, "percent=nan"),
    (ShellCounts, {"center": wide}, "center must be finite float64"),
    (ShellCounts, {"center": filled(math.nan)}, "center must be finite float64"),
    (ShellCounts, {"radii": lambda radii: radii[:0]}, "radii must be finite, positive"),
    (ShellCounts, {"radii": repeated}, "radii must be finite, positive and decreasing"),
    (ShellCounts, {"radii": filled(math.inf)}, "radii must be finite"),
    (ShellCounts, {"box": 2}, "box=2 must be True or False"),
    (SideCounts, {"center": wide}, "center must be finite float64"),
    (SideCounts, {"radii": lambda radii: -radii}, "radii must be finite, positive"),
    (SideCounts, {"columns": (1, 0)}, r"columns=\(1, 0\) must be increasing numbers"),
    (SideCounts, {"columns": (0, 9)}, r"columns=\(0, 9\) must be increasing numbers"),
    (SideCounts, {"columns": ()}, r"columns=\(\) must be increasing numbers"),
    (ClippedSum, {"center": filled(math.inf)}, "center must be finite float64"),
    (ClippedSum, {"radius": 0.0}, "radius=0.0 must be positive"),
    (ClippedSum, {"radius": math.nan}, "radius=nan must be positive"),
    (Marginals, {"column_sets": [(0, 0)]}, r"columns=\(0, 0\) of a table must be"),
    (Marginals, {"column_sets": [(9,)]}, r"columns=\(9,\) of a table must be"),
    (Marginals, {"column_sets": []}, "tables have 0 cells"),
    (Marginals, {"edges": repeated}, "edges must be of 2 columns, got 3"),
    (
        Marginals,
        {"edges": lambda edges: [edges[0], edges[1][::-1].repeat(2)]},
        r"edges\[1\] must be",
    ),
    (DependentColumns, {"column_sets": []}, "tables have 0 cells"),
    (DependentColumns, {"edges": lambda edges: edges[:1]}, "edges must be of 2 columns, got 1"),
    (DependentColumns, {"shares": lambda shares: shares[:1]}, "shares must be of 2 columns"),
    (
        DependentColumns,
        {"shares": lambda shares: [-each for each in shares]},
        r"shares\[0\] must be",
    ),
    (
        DependentColumns,
        {"shares": lambda shares: [1e20 * each for each in shares]},
        r"expected records of \(0, 1\) must be",
    ),
    (WorstApproximated, {"column_sets": []}, "tables have 0 cells"),
    (WorstApproximated, {"edges": lambda edges: edges[:1]}, "edges must be of 2 columns, got 1"),
    (WorstApproximated, {"weights": lambda weights: weights[1:]}, "weights must be of"),
    (WorstApproximated, {"weights": lambda weights: [0 for _ in weights]}, "weights=0 must be"),
    (WorstApproximated, {"weights": lambda weights: [0.5 for _ in weights]}, "weights=0.5 must be"),
    (WorstApproximated, {"offsets": filled(math.nan)}, "offsets=nan must be"),
    (
        WorstApproximated,
        {"expected": lambda expected: [each[:-1] for each in expected]},
        "expected counts of columns",
    ),
    (
        WorstApproximated,
        {"expected": lambda expected: [each * math.inf for each in expected]},
        "expected counts of columns",
    ),
    (CellCounts, {"cells": [99]}, r"cells=\[99\] must be among"),
    (CellCounts, {"cells": [-1]}, r"cells=\[-1\] must be among"),
    (CellCounts, {"cells": repeated}, "named once"),
    (CellCounts, {"cells": lambda leaves: [0, leaves[-1]]}, "overlap"),
    (CellSums, {"cells": lambda leaves: [99, *leaves[1:]]}, "must be among"),
    (CellSums, {"cells": lambda leaves: [leaves[0]] * len(leaves)}, "named once"),
    (CellSums, {"origins": halves}, "origins must be grid integers"),
    (CellSums, {"origins": wide}, "origins must be grid integers of shape"),
    (CellSums, {"origins": lambda origins: origins + (1 << 58)}, "too far away"),
    (CellSums, {"radius": 0.001}, "radius=0.001 must cover"),
    (CellSums, {"radius": math.nan}, "at most"),
    (CellSums, {"radius": math.inf}, "at most"),
    (Splits, {"cells": lambda leaves: [99, *leaves[1:]]}, "must be among"),
    (Splits, {"sizes": repeated}, "sizes must be"),
    (Splits, {"sizes": filled(math.nan)}, "sizes must be"),
    (Splits, {"sizes": filled(math.inf)}, "sizes must be"),
    (Splits, {"margin": -1.0}, "margin=-1.0 must not be negative"),
    (Splits, {"margin": math.nan}, "margin=nan must not be negative"),
    (Splits, {"failure": -1e-9}, "delta=-1e-09"),
    (BucketCounts, {"hashing": HASH_OF_THREE}, "hashing of 3 features"),
    (BucketSums, {"hashing": HASH_OF_THREE}, "hashing of 3 features"),
    (BucketSums, {"origins": halves}, "positions must be grid integers"),
    (BucketSums, {"origins": wide}, "positions must be grid integers of shape"),
    (BucketSums, {"origins": outside}, "must lie in the domain"),
    (BucketSums, {"origins": repeated}, "increasing numbers, one for each"),
    (BucketSums, {"codes": lambda codes: codes[::-1]}, "increasing numbers"),
    (BucketSums, {"radius": 0.0}, "radius=0.0 must be positive"),
    (BucketSums, {"radius": math.inf}, "radius=inf must be positive"),
    (NearestCounts, {"centers": halves}, "centers must be grid integers"),
    (NearestCounts, {"centers": wide}, "centers must be grid integers of shape"),
    (NearestShells, {"centers": halves}, "centers must be grid integers"),
    (NearestShells, {"radii": np.array([1.0, 2.0])}, "radii must be finite, positive and decre"),
    (NearestShells, {"radii": np.array([math.nan])}, "radii must be finite, positive and decre"),
    (NearestSumsAndCounts, {"centers": halves}, "centers must be grid integers"),
    (NearestSumsAndCounts, {"centers": wide}, "centers must be grid integers of shape"),
    (NearestSumsAndCounts, {"radius": -1.0}, "radius=-1.0 must be positive"),
    (NearestSumsAndCounts, {"radius": math.nan}, "radius=nan must be positive"),
    (Swaps, {"candidates": halves}, "positions must be grid integers"),
    (Swaps, {"candidates": outside}, "must lie in the domain"),
    (Swaps, {"current": np.array([5])}, "current must be one or more indices from 0 to 4"),
    (Swaps, {"current": np.array([-1])}, "current must be"),
    (Swaps, {"slots": [3]}, "slots must be one or more indices"),
    (Swaps, {"slots": []}, "slots must be one or more indices"),
    (CandidateSets, {"candidates": halves}, "positions must be grid integers"),
    (CandidateSets, {"candidates": outside}, "must lie in the domain"),
    (CandidateSets, {"sets": np.array([[6]])}, "sets must be one or more indices from 0 to 5"),
    (CandidateSets, {"sets": np.empty((0, 2), int)}, "sets must be one or more indices"),
    (CoverPicks, {"n_picks": 0}, "n_picks=0"),
    (CoverPicks, {"grids": ()}, "number of grids, 0"),
    (ProjectedCounts, {"centers": wide}, "centers must be finite float64 of shape"),
    (ProjectedCounts, {"centers": lambda centers: centers[:0]}, "centers must be one or more"),
    (ProjectedCounts, {"centers": filled(math.nan)}, "centers must be finite"),
    (ProjectedSumsAndCounts, {"centers": wide}, "centers must be finite float64 of shape"),
    (ProjectedSumsAndCounts, {"centers": lambda centers: centers[:0]}, "centers must be one"),
    (ProjectedSumsAndCounts, {"centers": filled(math.inf)}, "centers must be finite"),
    (ClusterSummary, {"centers": halves}, "centers must be grid integers"),
    (ClusterSummary, {"centers": wide}, "centers must be grid integers of shape"),
    (ClusterSummary, {"centers": lambda centers: centers[:0]}, "centers must be one or more"),
    (ClusterSummary, {"radius": 0.0}, "radius=0.0 must be positive"),
    (ClusterSummary, {"radius": math.nan}, "radius=nan must be positive"),
    (ClusterSummary, {"thresholds": np.array([0.5])}, "thresholds must be grid integers"),
    (ClusterSummary, {"thresholds": np.array([2, 1])}, "thresholds must not decrease"),
    (GroupSums, {"groups": repeated}, "groups must be 12 integers"),
    (GroupSums, {"groups": halves}, "groups must be 12 integers"),
    (GroupSums, {"groups": filled(99)}, "groups must be from -1 to"),
    (GroupSums, {"groups": filled(-2)}, "groups must be from -1 to"),
    (QuadtreeCounts, {"shifts": halves}, "shifts must be grid integers"),
    (QuadtreeCounts, {"shifts": wide}, "shifts must be grid integers of shape"),
    (QuadtreeCounts, {"levels": range(1, 6, 2)}, "must be consecutive"),
    (SoftCounts, {"intervals": 0}, "intervals=0 in 2 features"),
    (SoftCounts, {"intervals": 600}, "at most 262144 nodes"),
    (RegionCounts, {"cells": repeated}, "must be different"),
    (RegionCounts, {"cells": np.array([99])}, "must be different and below"),
    (RegionCounts, {"cells": np.array([-1])}, "must be different and below"),
    (RegionSums, {"groups": repeated}, "groups must have"),
    (RegionSums, {"groups": filled(99)}, "groups must be from -1 to"),
    (RegionSums, {"groups": filled(0)}, "must not unite cells of different regions"),
    (LocalCounts, {"rule": object()}, "must be one of SingleCell"),
    (LocalSums, {"rule": object()}, "must be one of SingleCell"),
    (LocalSums, {"cells": filled(99)}, "must name one or more cells"),
    (LocalSums, {"cells": repeated}, "must name one or more cells"),
    (LocalSums, {"origins": wide}, "origins, of shape"),
    (LocalSums, {"radii": filled(0.0)}, "positive radii must be given"),
    (LocalSums, {"radii": filled(math.nan)}, "positive radii must be given"),
)


#: Refused after the charge, if at all.
REFUSED_LATE = (
    (SumsAndCounts, {"centers": wide}, "shape"),
    (CountsAndBoundedSums, {"centers": wide}, "shape"),
    (GridCounts, {"intervals": 2.5}, "intervals=2.5"),
    (NearestCounts, {"centers": lambda centers: centers[:0]}, "centers"),
    (NearestShells, {"centers": lambda centers: centers[:0]}, "centers"),
    (NearestSumsAndCounts, {"centers": lambda centers: centers[:0]}, "centers"),
    (CountsAndBoundedSums, {"origin": halves}, "origin"),
    (CountsAndBoundedSums, {"origin": wide}, "origin"),
    (CoverPicks, {"grids": ((math.nan, 0.5),)}, "grids"),
    (CoverPicks, {"grids": ((0.5, math.nan),)}, "grids"),
    (CoverPicks, {"grids": ((-0.5, 0.5),)}, "grids"),
    (QuadtreeCounts, {"levels": range(30, 32)}, "levels"),
    (QuadtreeCounts, {"shifts": filled(-9 * SCALE)}, "shifts"),
)


def test_every_argument_is_checked_in_some_case():
    """But for those that have no ill-posed values of their own."""
    tested = {(kind, name) for kind, arguments, _ in ILL_POSED for name in arguments}
    tested |= {(kind, name) for kind, arguments, _ in REFUSED_LATE for name in arguments}
    arguments = {(kind, field.name) for kind in SERVED for field in dataclasses.fields(kind)}
    assert arguments - tested == {
        (BucketCounts, "min_count"),  # raises a threshold
        (Splits, "score"),  # refuses its own arguments
        (GroupSums, "n_groups"),  # checked with the groups
        (RegionSums, "n_groups"),
    }


@pytest.mark.parametrize(("kind", "arguments", "message"), [*ILL_POSED, *REFUSED_LATE])
def test_ill_posed_queries_are_refused(kind, arguments, message):
    curator, view, query = asked(kind)
    values = {
        name: value(getattr(query, name)) if callable(value) else value
        for name, value in arguments.items()
    }
    with pytest.raises((ValueError, TypeError), match=message):
        view.release(dataclasses.replace(query, **values), **noise_of(query))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("n_replicates", [1, 2])
def test_queries_on_the_wrong_view_or_state_are_refused(n_replicates):
    """Splits of hyperplane cells, percentiles of two replicates, records without numbers."""
    points = np.zeros((N_MOVED, 2), int)
    ledger = Ledger(BUDGETS[Curator])
    curator = Curator(points, ledger, NoDraws(range(n_replicates)))
    if n_replicates == 2:
        with pytest.raises(ValueError, match="gap_percentile serves one replicate at a time"):
            curator.release(GapPercentile(50.0), gap=Percentile(0.1))
    else:
        tree = curator.hyperplanes(np.ones((1, 2), int), np.zeros(2, int))
        query = Splits([0], [3.0], SplitScore(0.3, 1 / 12, 5.0, True))
        with pytest.raises(ValueError, match="on a grid only"):
            tree.release(query, choices=Exponential(0.1))
    assert ledger.charges == ()


def test_records_are_named_after_their_only_release():
    ledger = Ledger(BUDGETS[RhoBoundedCurator])
    curator = RhoBoundedCurator(np.zeros((2, 2), int), ledger, NoDraws([0]))
    noise = Gaussian(SCALE)
    with pytest.raises(ValueError, match="groups name released records"):
        curator.release(GroupSums(np.zeros(2, int), 1), sums=noise)
    with pytest.raises(ValueError, match="AllPoints is released alone, got 2 requests"):
        curator.release_all([(AllPoints(), {"points": SortedGaussian(SCALE)})] * 2)
    numbered(curator)
    with pytest.raises(ValueError, match="noised_points can be released once"):
        curator.release(AllPoints(), points=SortedGaussian(SCALE))
    assert ledger.charges == ()


@pytest.mark.parametrize("kind", LocalAggregator.serves)
def test_users_report_once(kind):
    aggregator, cohort, query = asked(kind, NoiseStreams([0]))
    with pytest.raises(TypeError, match="is a query on Cohort, not on LocalAggregator"):
        aggregator.release(query, **noise_of(query))
    assert aggregator._ledger.charges == ()
    cohort.release(query, **noise_of(query))
    charges = aggregator._ledger.charges
    with pytest.raises(ReportReuseError, match="cohort 0 has reported"):
        cohort.release(query, **noise_of(query))
    assert aggregator._ledger.charges == charges


@pytest.mark.parametrize("kind", SERVED)
def test_parts_without_noise_are_refused(kind):
    curator, view, query = asked(kind)
    noise = noise_of(query)
    extra = noise | {"other": Gaussian(SCALE)}
    for given in ({}, extra):
        with pytest.raises(TypeError, match="give one mechanism for each"):
            view.release(query, **given)
    for part in noise:
        for given in (noise | {part: None}, dict.fromkeys(noise)):
            with pytest.raises(PermissionError, match="would return exact answers"):
                view.release(query, **given)
        with pytest.raises(TypeError, match="and no subclass"):
            view.release(query, **noise | {part: 1.0})
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", Curator.serves)
def test_exact_answers_of_curators_without_a_ledger(kind):
    """Only those that methods without a claim are meant to have; and none with noise."""
    rng = np.random.default_rng(0)
    query, view_of = EXAMPLES[kind][0](rng, 1 if kind is GapPercentile else 2)
    points = np.zeros((N_MOVED, 1 if kind is GapPercentile else 2), int)
    view = view_of(Curator(points, None, NoDraws([0])))
    noise = noise_of(query)
    with pytest.raises(ValueError, match="needs a ledger"):
        view.release(query, **noise)
    exact = dict.fromkeys(noise)
    if query.exact_without_ledger:
        assert view.release(query, **exact).keys() == noise.keys()
    else:
        with pytest.raises(ValueError, match="needs a ledger"):
            view.release(query, **exact)
    assert query.exact_without_ledger == (kind is SumsAndCounts)


class Quiet(Gaussian):
    """Gaussian noise that is charged and not added."""

    def draw(self, values, streams, key, sensitivity=None):
        return values


class Cheap(Gaussian):
    """Gaussian noise at any price."""

    def cost(self, sensitivity):
        return Cost(mu=1e-9)


@pytest.mark.parametrize("subclass", [Quiet, Cheap])
@pytest.mark.parametrize("kind", SERVED)
def test_subclasses_of_gaussian_noise_are_refused(kind, subclass):
    curator, view, query = asked(kind)
    noise = noise_of(query)
    for part in noise:
        with pytest.raises(TypeError, match=f"{part}={subclass.__name__}.*no subclass"):
            view.release(query, **noise | {part: subclass(9.0 * SCALE)})
    assert curator._ledger.charges == ()


OVERRIDES = {
    "Quiet": {"draw": lambda self, values, *_: values},
    "Cheap": {"cost": lambda self, sensitivity: Cost()},
    "Unchecked": {"check": lambda self, sensitivity: None},
    "Equal": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize(("kind", "part", "mechanism"), PARTS)
def test_subclasses_of_mechanisms_are_refused(kind, part, mechanism, name):
    curator, view, query = asked(kind)
    subclass = type(name, (mechanism,), OVERRIDES[name])
    given = subclass(**fields_of(MECHANISMS[mechanism]))
    with pytest.raises(TypeError, match=f"{part}={name}.*no subclass"):
        view.release(query, **noise_of(query) | {part: given})
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", SERVED)
def test_subclasses_of_queries_are_refused(kind):
    """One could bound less than neighbors change, or answer more than it is charged for."""
    curator, view, query = asked(kind)
    for overrides in ({}, {"sensitivity": lambda self, view: {}}):
        subclass = type("Free", (kind,), overrides)
        with pytest.raises(TypeError, match="is not served by"):
            view.release(subclass(**fields_of(query)), **noise_of(query))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", SERVED)
def test_queries_of_other_curators_are_refused(kind):
    _, _, query = asked(kind)
    for other in CURATORS:
        if kind not in other.serves:
            points = np.zeros((N_MOVED, 2), int)
            curator = other(points, Ledger(BUDGETS[other]), NoDraws([0]))
            with pytest.raises(TypeError, match=f"is not served by {other.__name__}"):
                curator.release(query, **noise_of(query))
            assert curator._ledger.charges == ()


@pytest.mark.parametrize("kind", SERVED)
def test_views_of_another_curator_are_refused(kind):
    """Its points would be charged to the wrong ledger."""
    curator, view, query = asked(kind)
    other, other_view, _ = asked(kind)
    noise = noise_of(query)
    for holder, foreign in ((curator, other_view), (other, view), (curator, other)):
        with pytest.raises(ValueError, match="is of another curator"):
            holder.release_all([(query, noise)], foreign)
    assert curator._ledger.charges == other._ledger.charges == ()


@pytest.mark.parametrize("kind", [SumsAndCounts, GridCounts, BucketCounts, BucketSums])
@pytest.mark.parametrize("example", [0, 1])
def test_releases_together_are_those_one_by_one(kind, example):
    """Charges, noise and answers, to the bit."""
    if example >= len(EXAMPLES[kind]):
        example = 0
    curator, view, query = asked(kind, NoiseStreams([5]), example=example)
    other, other_view, _ = asked(kind, NoiseStreams([5]), example=example)
    requests = [(query, noise_of(query)) for _ in range(3)]
    together = view.release_all(requests)
    alone = [other_view.release(same, **noise) for same, noise in requests]
    assert curator._ledger.charges == other._ledger.charges
    assert len({charge.round for charge in curator._ledger.charges}) == 3
    for answer, expected in zip(together, alone, strict=True):
        assert answer.keys() == expected.keys()
        for part, values in answer.items():
            np.testing.assert_equal(values, expected[part])


def test_all_releases_are_charged_before_points_are_read(monkeypatch):
    _, view, query = asked(GridCounts, NoDraws([0]))
    n_charged = []

    def exact_all(source, queries):
        n_charged.append(len(source._ledger.charges))
        raise RuntimeError("points are read")

    monkeypatch.setattr(GridCounts, "exact_all", exact_all)
    with pytest.raises(RuntimeError, match="points are read"):
        view.release_all([(query, noise_of(query))] * 4)
    assert n_charged == [4]


def test_releases_together_are_of_one_type_and_checked_before_any_is_charged():
    curator, view, query = asked(GridCounts, NoDraws([0]))
    noise = noise_of(query)
    _, _, other = asked(SumsAndCounts)
    with pytest.raises(TypeError, match="of one type, got GridCounts, SumsAndCounts"):
        view.release_all([(query, noise), (other, noise_of(other))])
    with pytest.raises(TypeError, match="of one type, got none"):
        view.release_all([])
    with pytest.raises(ValueError, match="intervals=0"):
        view.release_all([(query, noise), (GridCounts(0), noise)])
    # A scale is checked against the sensitivity.
    with pytest.raises(ValueError, match=r"must be at most 1.76e\+13"):
        view.release_all([(query, noise), (query, {"counts": Laplace(1e40)})])
    assert curator._ledger.charges == ()


def test_releases_together_that_exceed_the_budget_charge_nothing():
    """Each costs 1/8, of a quarter."""
    curator, view, query = asked(GridCounts, ledger=Ledger(Budget(0.25)))
    noise = Laplace(8 * query.sensitivity(view)["counts"].l1)
    with pytest.raises(BudgetExceeded, match="round 2"):
        view.release_all([(query, {"counts": noise})] * 3)
    assert curator._ledger.charges == ()
    assert not curator._rounds["grid_counts"]


def scaled(mechanism, scale):
    """A mechanism with noise of a scale, in grid steps."""
    if mechanism is StabilityHistogram:
        return StabilityHistogram(scale / SCALE, 1e-6, 64)
    return mechanism(scale)


@pytest.mark.parametrize(("kind", "part", "mechanism"), SCALED_PARTS)
def test_noise_beyond_the_largest_scale_is_refused(kind, part, mechanism):
    """It would leave the low bits of an answer, and then all of it, as they are."""
    curator, view, query = asked(kind)
    sensitivity = query.sensitivity(view)[part]
    largest = MAX_SCALE / np.max(sensitivity.unit)
    for scale in (1e40, 2 * largest, largest * (1 + 1e-9)):
        noise = noise_of(query) | {part: scaled(mechanism, scale)}
        with pytest.raises(ValueError, match=r"must be at most 1.76e\+13"):
            view.release(query, **noise)
    assert curator._ledger.charges == ()
    scaled(mechanism, largest * (1 - 1e-9)).check(sensitivity)


def test_bounded_noise_beyond_the_largest_scale_is_refused():
    """At an epsilon of 1e-20 the noise is lost in rounding, and sums are released as they are."""
    curator, view, query = asked(CountsAndBoundedSums, NoiseStreams([0]))
    mechanism = BoundedLaplace(1e-20, 2.0 * SCALE)
    with pytest.raises(ValueError, match="at most"):
        view.release(query, counts=Laplace(SCALE), sums=mechanism)
    assert curator._ledger.charges == ()


class Changing(float):
    """A number that is tiny when it is first multiplied, as for a price, and large later."""

    n_calls = 0

    def __mul__(self, other):
        Changing.n_calls += 1
        return (1e-9 if Changing.n_calls <= 2 else 10.0) * other

    __rmul__ = __mul__


class Lying(np.ndarray):
    """An array whose entries are smaller than its values."""

    def __getitem__(self, index):
        return np.ndarray.__getitem__(self.view(np.ndarray), index) * 1e-12


@pytest.mark.parametrize("radius", [Changing(3.0), np.full((1, 1), 3.0).view(Lying)], ids=type)
def test_an_argument_is_the_same_when_priced_and_when_used(radius):
    """Subclasses of numbers and arrays become plain ones, so that both give one release."""

    def release(given):
        points = np.random.default_rng(0).integers(-9999, 9999, (50, 3))
        curator = Curator(points, Ledger(Budget(1.0, 1e-6)), NoiseStreams([1]))
        query = SumsAndCounts(np.zeros((1, 1, 3), np.int64), given, relative=True)
        answer = curator.release(query, sums=Gaussian(1e6), counts=Gaussian(1e9))
        return answer["sums"], curator._ledger.spent()

    plain = float(radius) if isinstance(radius, float) else np.array(radius)
    (sums, spent), (expected, charged) = release(radius), release(plain)
    assert np.array_equal(sums, expected)
    assert spent == charged > 0


def test_a_query_keeps_what_it_was_given():
    centers = np.zeros((1, 1, 3), np.int64)
    query = SumsAndCounts(centers)
    centers += 1
    assert not query.centers.any()
    with pytest.raises(ValueError, match="read-only"):
        query.centers += 1
    with pytest.raises(TypeError, match="centers: an array of object must hold real numbers"):
        SumsAndCounts(np.array([[[0, 0, 0]]], dtype=object))


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda x: Gaussian(x),
        lambda x: Laplace(x),
        lambda x: BoundedLaplace(x, x),
        lambda x: Exponential(x),
        lambda x: StabilityHistogram(x, 0.5),
    ],
)
def test_numbers_of_mechanisms_are_plain(mechanism):
    for field, value in vars(mechanism(Changing(0.5))).items():
        assert type(value) in (float, int), field
