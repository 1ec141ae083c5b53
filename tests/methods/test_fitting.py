"""Fits: where their noise comes from, warnings of seeds, accounts."""

import contextlib
import warnings

import numpy as np
import pytest
from estimators import blobs, private_methods
from faults_around_releases import WithoutContext

from pkm.audit.report import configure
from pkm.compute import Points
from pkm.methods import (
    DPM,
    METHODS,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    PrivateKMeans,
    SuLloyd,
    load_method,
)
from pkm.methods.fitting import RepeatableNoiseWarning
from pkm.privacy import SCALE, Budget, Curator, NoiseStreams, PrivacyAccountant, SumsAndCounts, snap
from pkm.privacy.mechanisms.noise import public_seed

pytestmark = pytest.mark.usefixtures("short_fits")

KEY = ("sums_and_counts", 0, "counts")


def noise_of(method, **where):
    return method.noise_streams([5], 100, 2, **where).normal(KEY, (3,))


def test_a_fit_and_a_coreset_share_no_noise():
    """With two scales of the same noise, exact counts would follow."""
    method = KaplanStemmer(2)
    assert (noise_of(method) != noise_of(method, purpose="coreset")).all()


def test_domains_share_no_noise():
    """The same points on two grids differ by known factors; the same noise would be taken off."""
    X = np.clip(np.random.default_rng(0).normal(0, 0.3, (300, 2)), -1, 1)
    method = GLloyd(2)
    wide = noise_of(method, domain=[[-2.0, -2.0], [2.0, 2.0]])
    assert (noise_of(method) != wide).all()
    # Bounds and the domain of the grid are the same thing, as is its default.
    assert (noise_of(method) == noise_of(method, domain=[[-1.0, -1.0], [1.0, 1.0]])).all()
    by_fit = GLloyd(2, random_state=5, bounds=(-1, 1)).fit(X)
    by_batch = GLloyd(2).fit_batch(Points.quantize(X, -np.ones(2), np.ones(2))[0], [5])
    assert (by_fit._centers == by_batch.centers).all()


def test_parameters_that_are_arrays_are_in_the_key_in_full():
    """An abbreviated array would let budgets differ and share noise."""
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    other = shares + np.array([0.0, 0.0, 1e-10, -1e-10])
    assert (noise_of(DPM(shares=shares)) != noise_of(DPM(shares=other))).all()


def test_arguments_of_fit_are_not_swallowed():
    model = FastLloyd(2, bounds=(-1, 1), random_state=0)
    X = blobs()
    weights = np.linspace(0, 1, len(X))
    model.fit_predict(X, sample_weight=weights)
    assert (model.cluster_centers_ == model.fit(X, sample_weight=weights).cluster_centers_).all()
    with pytest.raises(TypeError, match="weights"):
        model.fit_predict(X, weights=weights)


def test_an_account_is_no_path():
    model = FastLloyd(2, bounds=(-1, 1))
    message = r"^account='a.json' must be a PrivacyAccountant, which .*open\(FILE\) reads$"
    with pytest.raises(TypeError, match=message):
        model.fit("nowhere.npy", account="a.json")
    with pytest.raises(TypeError, match=message):
        model.fit_batch(np.zeros((4, 2), np.int64), [0], account="a.json")


def test_secure_noise_ignores_the_seed():
    points = snap(blobs())
    first = FastLloyd(2, secure=True).fit_batch(points, [0]).centers
    second = FastLloyd(2, secure=True).fit_batch(points, [0]).centers
    assert (first != second).any()


PRIVATE = [
    method
    for method in map(load_method, METHODS)
    if any(claim.private for claim in method.claims.values())
]


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return np.clip(rng.normal(0.0, 0.3, (400, 2)), -1, 1)


@pytest.fixture
def answers(monkeypatch):
    """Noisy counts of every release of sums and counts, run after run."""
    released = []
    release_all = Curator.release_all

    def recording(self, requests, source=None):
        answers = release_all(self, requests, source)
        for (query, noise), answer in zip(requests, answers, strict=True):
            if isinstance(query, SumsAndCounts):
                released.append((query, noise, answer["counts"]))
        return answers

    monkeypatch.setattr(Curator, "release_all", recording)
    return released


def noise_of_counts(recorded, points):
    """Noise of recorded counts, in units of its scale."""
    query, noise, counts = recorded
    exact = query.exact(Curator(points, None, NoiseStreams([0])))["counts"]
    return (counts - exact) / noise["counts"].scale


def test_two_budgets_of_one_seed_are_not_two_equations(points, answers):
    """With shared noise, two scales of it would give the exact counts."""
    for epsilon in (0.5, 1.0):
        GLloyd(2, epsilon=epsilon, n_iterations=2, random_state=7, bounds=(-1, 1)).fit(points)
    grid = np.rint(points * SCALE).astype(np.int64)
    first, _, other, _ = (noise_of_counts(recorded, grid) for recorded in answers)
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 1.5},
        {"delta": 1e-7},
        {"n_iterations": 3},
        {"n_clusters": 4},
        {"postprocessing": "none"},
        {"variant": "published"},
    ],
)
def test_noise_depends_on_every_parameter(parameters):
    key = ("sums_and_counts", 0, "counts")
    given = {"epsilon": 1.0, "n_clusters": 3, **parameters}
    streams = GLloyd(3, epsilon=1.0).noise_streams([5], 100, 2)
    other = GLloyd(**given).noise_streams([5], 100, 2)
    assert (streams.normal(key, (3,)) != other.normal(key, (3,))).all()


def test_noise_depends_on_method_and_shape():
    key = ("sums_and_counts", 0, "counts")
    draws = [
        method.noise_streams([5], n, d).normal(key, (3,))
        for method, n, d in (
            (GLloyd(3), 100, 2),
            (FastLloyd(3), 100, 2),
            (GLloyd(3), 101, 2),
            (GLloyd(3), 100, 3),
        )
    ]
    assert len(np.unique(np.concatenate(draws))) == 12


#: What two fits may differ in and have the same noise: the domain and a zoom are in its key apart,
#: and rows with all their entries are the same with any ``missing``.
NOT_OF_NOISE = ("bounds", "clip", "random_state", "secure", "zoom", "require_zoom", "missing")


def test_no_two_methods_or_variants_share_noise():
    """Whatever two methods or two parameters of one run with one seed has other noise."""
    rng = np.random.default_rng(0)
    draws = {}
    for method in private_methods().values():
        drawn = [method]
        rules = {name: rule for name, rule in method.constraints.items() if rule is not None}
        for name, rule in rules.items():
            drawn += [configure(method, **{name: rule.draw(rng)}) for _ in range(3)]
        for changed in drawn:
            parameters = changed.get_params().items()
            known = [item for item in parameters if item[0] not in NOT_OF_NOISE]
            # Some values are refused together with the others.
            with contextlib.suppress(ValueError):
                noise = noise_of(changed, secure=False)[0]
                draws[type(method), repr(known), changed.zoom] = tuple(noise.tolist())
    assert len(draws) > 400
    assert len(set(draws.values())) == len(draws)


def test_streams_without_a_context_would_be_found():
    """The check above refuses a planted fault: one noise at two budgets."""
    first, second = (noise_of(WithoutContext(3, epsilon=epsilon))[0] for epsilon in (1.0, 2.0))
    assert (first == second).all()


def test_methods_of_one_name_from_two_packages_share_no_noise():
    inherited = type("GLloyd", (GLloyd,), {"__module__": "plugin.methods"})
    other = type("GLloyd", (GLloyd,), {"__module__": "another.methods"})
    draws = {tuple(noise_of(method(3))[0].tolist()) for method in (GLloyd, inherited, other)}
    assert len(draws) == 3


def test_no_two_methods_of_this_package_have_one_name():
    """Keys of noise hold their names alone."""
    classes = {load_method(name) for name in METHODS}
    for method in list(classes):
        classes.update(base for base in method.__mro__ if issubclass(base, PrivateKMeans))
    names = [method.__qualname__ for method in classes]
    assert {method.__module__.partition(".")[0] for method in classes} == {"pkm"}
    assert len(set(names)) == len(names)


def test_noise_does_not_depend_on_where_points_and_noise_come_from():
    key = ("sums_and_counts", 0, "counts")
    expected = GLloyd(3).noise_streams([5], 100, 2).normal(key, (3,))
    for method in (GLloyd(3, bounds=(0, 5)), GLloyd(3, clip=False), GLloyd(3, random_state=5)):
        assert (method.noise_streams([5], 100, 2).normal(key, (3,)) == expected).all()


def test_public_seed_does_not_give_the_noise(points, answers):
    """A method holds the public seed; streams of it, with any known key, are other streams."""
    seen = []
    cluster = GLloyd.cluster

    class Curious(GLloyd):
        def cluster(self, curator):
            seen.extend(curator.public_seeds)
            assert not hasattr(curator, "seeds")
            return cluster(self, curator)

    Curious(2, random_state=7, bounds=(-1, 1)).fit(points)
    assert seen == [public_seed(7)]
    grid = np.rint(points * SCALE).astype(np.int64)
    noise = noise_of_counts(answers[0], grid)
    guessed = NoiseStreams(seen).normal(("sums_and_counts", 0, "counts"), (2,))
    assert np.abs(noise - guessed).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", PRIVATE, ids=lambda method: method.__name__)
def test_fit_without_a_seed_is_fresh_and_secure(method, monkeypatch):
    """Two fits differ, and no seeded stream is touched."""
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal(0.0, 0.3, (3000, 2)), -1, 1)

    def refuse(*arguments):
        raise AssertionError("noise was drawn from a seed")

    monkeypatch.setattr(NoiseStreams, "_seeded", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        first = method(n_clusters=2, bounds=(-1, 1)).fit(X)
        second = method(n_clusters=2, bounds=(-1, 1)).fit(X)
    assert not first.ledger_.repeatable
    assert not np.array_equal(first.cluster_centers_, second.cluster_centers_)


@pytest.mark.parametrize("method", [SuLloyd, KaplanStemmer])
def test_a_seed_warns_and_marks_the_ledger(method, points):
    with pytest.warns(RepeatableNoiseWarning, match="random_state=3 makes noise repeatable"):
        fitted = method(2, random_state=3, bounds=(-1, 1)).fit(points)
    assert fitted.ledger_.repeatable
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        fitted = method(2, random_state=3, secure=True, bounds=(-1, 1)).fit(points)
    assert not fitted.ledger_.repeatable


def test_a_batch_warns_unless_seeded_noise_is_asked_for(points):
    method = SuLloyd(2)
    grid = snap(points)
    with pytest.warns(RepeatableNoiseWarning, match=r"seeds=\[3, 4\] makes noise repeatable"):
        method.fit_batch(grid, [3, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        assert method.fit_batch(grid, [3], secure=False).ledger.repeatable
        assert not method.fit_batch(grid, [3], secure=True).ledger.repeatable
        assert not SuLloyd(2, secure=True).fit_batch(grid, [3]).ledger.repeatable


def test_a_seed_of_a_method_without_a_claim_does_not_warn(points):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RepeatableNoiseWarning)
        fitted = load_method("Lloyd")(2, random_state=3).fit(points)
    assert fitted.ledger_ is None


def test_a_coreset_warns_too(points):
    with pytest.warns(RepeatableNoiseWarning):
        coreset = KaplanStemmer(2, bounds=(-1, 1), random_state=3).coreset(points)
    assert coreset.ledger.repeatable
    assert not KaplanStemmer(2, bounds=(-1, 1)).coreset(points).ledger.repeatable


def test_a_method_without_a_random_state_charges_an_account():
    class Secure(GLloyd):
        def __init__(self, n_clusters=3, *, epsilon=1.0, bounds=(-1, 1)):
            self.n_clusters = n_clusters
            self.epsilon = epsilon
            self.bounds = bounds

    account = PrivacyAccountant(Budget(2.0, 1e-5))
    Secure().fit(blobs(500), account=account)
    assert [run.parameters for run in account.runs] == [
        {"n_clusters": 3, "epsilon": 1.0, "bounds": (-1, 1)}
    ]
