"""Noise is fresh by default; where a seed makes it repeatable, nothing but the same run has it."""

import warnings

import numpy as np
import pytest

from pkm.methods import (
    METHODS,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    SuLloyd,
    load_method,
)
from pkm.methods.base import RepeatableNoiseWarning
from pkm.privacy import SCALE, Curator, NoiseStreams, SumsAndCounts
from pkm.privacy.mechanisms.noise import public_seed

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
    release_from = Curator.release_from

    def recording(self, view, query, noise):
        answer = release_from(self, view, query, noise)
        if isinstance(query, SumsAndCounts):
            released.append((query, noise, answer["counts"]))
        return answer

    monkeypatch.setattr(Curator, "release_from", recording)
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
