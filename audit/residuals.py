"""Residuals: whether noise follows the law that it was charged for.

The distribution function of the law that a mechanism declares turns every output into
randomized quantile residuals (Dunn and Smyth 1996; :mod:`pkm.audit.laws`): uniform
numbers. Pooled over releases and runs they must be uniform, uncorrelated between
releases, and different in every run. Replay is blind to all of that: it never looks at
how outputs are drawn.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import ndtri

from pkm.audit.replay import Draw
from pkm.privacy.mechanisms.additive import Gaussian, Laplace

#: Largest p-value that refutes a law: far below one in a million audits of a few tests.
MAX_P_VALUE = 1e-9
# Noise vectors of so many words, of so large a scale in grid steps, repeat by chance
# with probability below 1e-7 in a thousand runs.
MIN_WORDS = 4
MIN_SPREAD = 2.0**10
SMALLEST = 1e-16  # of uniform numbers, as float64 resolves them below 1
MIN_VALUES = 200  # fewer residuals of a law have no power against a factor of 2

#: Label of a release, and its residuals, (replicates, m).
LabeledResiduals = tuple[str, np.ndarray]
#: Residuals of two releases, or of the entries of one, that are compared one by one.
Sides = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class LawTest:
    """Test of one property of the noise of all releases of a kind.

    Attributes
    ----------
    label : str
        Of the releases; of two kinds, where they are compared.
    what : {"law", "correlation", "repeats", "grid"}
        Distribution; correlation of two releases, or of the entries of one; noise that
        two runs share; outputs between grid points.
    n_values : int
    p_value : float
    """

    label: str
    what: str
    n_values: int
    p_value: float

    @property
    def is_refuted(self) -> bool:
        """Whether the noise is not what was charged for."""
        return self.p_value < MAX_P_VALUE

    @property
    def powerless(self) -> bool:
        """Whether there were too few values to see a factor of 2."""
        return self.n_values < MIN_VALUES


def run_law_tests(
    runs: Iterable[Sequence[Draw]],
    seed: int,
) -> list[LawTest]:
    """Test the noise of runs whose seeds all differ.

    Parameters
    ----------
    runs : iterable of sequence of Draw
        Draws of each run in order.
    seed : int
        Of the random numbers that discrete laws need.

    Returns
    -------
    list of LawTest
    """
    rng = np.random.default_rng(seed)
    residuals: dict[str, list[np.ndarray]] = defaultdict(list)
    compared: dict[str, list[Sides]] = defaultdict(list)
    noises: dict[str, list[bytes]] = defaultdict(list)
    off_grid: Counter[str] = Counter()

    def compare(
        label: str,
        one: np.ndarray,
        another: np.ndarray,
    ) -> None:
        size = min(one.shape[1], another.shape[1])
        if size and len(one) == len(another):
            left = one[:, :size].ravel()
            right = another[:, :size].ravel()
            compared[label].append((left, right))

    for draws in runs:
        releases: list[LabeledResiduals] = []
        for draw in draws:
            uniforms = draw.law.draw_residuals(draw.output, draw.values, rng)
            label = _label(draw)
            releases.append((label, uniforms))
            residuals[label].append(uniforms.ravel())
            entries = f"{label}, its entries"
            compare(entries, uniforms[:, ::2], uniforms[:, 1::2])
            # Sorted rows are additive noise too, but not in the order of the values.
            is_additive = isinstance(draw.mechanism, Gaussian | Laplace)
            is_array = isinstance(draw.output, np.ndarray)
            if not (is_additive and is_array):
                continue
            if draw.output.dtype.kind != "i":
                off_grid[label] += draw.output.size
            scale = draw.mechanism.scale * np.min(draw.sensitivity.unit)
            if uniforms.shape[1] >= MIN_WORDS and scale >= MIN_SPREAD:
                exact = draw.values / draw.sensitivity.resolution
                noise = draw.output - exact
                key = f"{label} {draw.key}"
                noises[key] += [row.tobytes() for row in noise]
        for (label, one), (other_label, another) in _pair_releases(releases):
            compare(f"{label}, {other_label}", one, another)

    tests = [_test_law(*item) for item in residuals.items()]
    tests += [_test_correlation(*item) for item in compared.items()]
    tests += [_test_repeats(*item) for item in noises.items()]
    tests += [LawTest(label, "grid", n, 0.0) for label, n in off_grid.items()]
    return [test for test in tests if test.n_values]


def _pair_releases(
    releases: Sequence[LabeledResiduals],
) -> Iterator[tuple[LabeledResiduals, LabeledResiduals]]:
    """Pair each release of a run with the one before, and the last of its label."""
    last: dict[str, LabeledResiduals] = {}
    for number, release in enumerate(releases):
        label, _ = release
        if number > 0:
            yield releases[number - 1], release
        if label in last and last[label] is not releases[number - 1]:
            yield last[label], release
        last[label] = release


def _label(draw: Draw) -> str:
    """Join the label of a release and the name of one of several answers."""
    names = [name for name in draw.key[2:] if isinstance(name, str)]
    secure = ["(secure)"] if draw.is_secure else []
    return " ".join([draw.key[0], *names, *secure])


def _score(uniforms: np.ndarray) -> np.ndarray:
    """Turn uniform numbers into standard normal ones."""
    return ndtri(np.clip(uniforms, SMALLEST, 1 - SMALLEST))


def _test_law(
    label: str,
    residuals: list[np.ndarray],
) -> LawTest:
    """Test whether numbers are uniform.

    Kolmogorov and Smirnov's test sees their shape. Of the scale of noise the squares of
    normal scores tell far more.
    """
    uniforms = np.clip(np.concatenate(residuals), 0.0, 1.0)
    n = len(uniforms)
    if not n:
        return LawTest(label, "law", 0, 1.0)
    shape = stats.kstest(uniforms, "uniform").pvalue

    scores = _score(uniforms)
    squares = float(scores @ scores)
    below = stats.chi2.cdf(squares, n)
    above = stats.chi2.sf(squares, n)
    tail = min(below, above)
    p_value = 2 * float(min(shape, 2 * tail))
    return LawTest(label, "law", n, min(1.0, p_value))


def _test_correlation(
    label: str,
    compared: list[Sides],
) -> LawTest:
    """Test whether neighboring releases share their noise."""
    sides = zip(*compared, strict=True)
    one, another = (_score(np.concatenate(side)) for side in sides)
    n = len(one)
    if n < 3 or np.ptp(one) == 0 or np.ptp(another) == 0:
        return LawTest(label, "correlation", 0, 1.0)
    # Exact for normal scores, however few.
    result: Any = stats.pearsonr(one, another)
    return LawTest(label, "correlation", n, float(result.pvalue))


def _test_repeats(
    label: str,
    noises: list[bytes],
) -> LawTest:
    """Test whether runs of different seeds share noise, as honest runs do not."""
    p_value = 0.0 if len(set(noises)) < len(noises) else 1.0
    return LawTest(label, "repeats", len(noises), p_value)
