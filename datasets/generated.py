"""Generated data sets: families of names, each name a data set with its own recorded seeds.

The seed of a data set is made of its family's number and the numbers in its name, so the name alone
reproduces it. Sizes and separation, shapes, points and the number of outliers have separate random
streams: an outlier count given in the name leaves the prescribed separation and the shapes as they
are. The family ``blobs`` is scikit-learn's and has a single published seed, and so has ``sklearn``.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from pkm.datasets import clusters
from pkm.datasets.scaling import divide_by_largest
from pkm.source import code_of

POWERS = tuple(2**i for i in range(1, 11))
REPLICATES = (0, 1, 2)

SYNTH_POINTS = 10_000
SYNTH_OUTLIERS = 100
SYNTH_SEPARATION = (0.16, 0.26)
TIMESYNTH_SEPARATION = 0.21
ABLATION_POINTS = 2048
ABLATION_SIZES = (0.7, 1.3)  # range of a cluster's size, as a multiple of the mean size
FAST_LLOYD_CITATION = (
    "Recipe of the FastLloyd paper (USENIX Security 2025), section 6.1.3 and appendix B. Qiu, W. "
    "and Joe, H. (2006). Generation of random clusters with specified degree of separation. "
    "Journal of Classification 23(2), 315-334."
)

G2_CLUSTER_SIZE = 1024
G2_CENTERS = (500.0, 600.0)
#: Ending of the names of the generated substitutes of published G2 files.
SUBSTITUTE_SUFFIX = "-generated"
G2_CITATION = (
    "Fränti, P., Mariescu-Istodor, R. and Zhong, C. (2016). XNN graph. Joint IAPR International "
    "Workshop on Structural, Syntactic, and Statistical Pattern Recognition, LNCS 10029, 207-217 "
    "(G2 sets)."
)

BLOBS_CENTERS = (-100.0, 100.0)
BLOBS_SEED = 42
SKLEARN_POINTS = 20_000
SKLEARN_CENTERS = (-10.0, 10.0)
SKLEARN_SEED = 1
SKLEARN_CITATION = (
    "Normal clusters of scikit-learn's make_blobs with its defaults, as in the PE-means paper "
    "(Humphries et al. 2026). Pedregosa, F. et al. (2011). Scikit-learn: machine learning in "
    "Python. Journal of Machine Learning Research 12, 2825-2830."
)
BLOBS_CITATION = (
    "Normal clusters of scikit-learn's make_blobs, as in the DPM paper (Liebenow et al.). "
    "Pedregosa, F. et al. (2011). Scikit-learn: machine learning in Python. Journal of Machine "
    "Learning Research 12, 2825-2830."
)

GAUSSIANS_VARIANCE = 0.5
GAUSSIANS_CITATION = (
    "Recipe of Pan, C. et al. (2023). Machine unlearning of federated clusters. ICLR, appendix M "
    "(drawn by this project)."
)

CITIES_POINTS = 50_000
CITIES_REGIONS = 6
CITIES_PER_REGION = 40
#: Exponent of the Pareto distribution of the cities' sizes.
CITIES_PARETO_EXPONENT = 1.1
#: Standard deviations of a region's cities around its center, degrees of latitude and longitude.
REGION_DEVIATIONS = (8.0, 15.0)
#: Range of the standard deviations of a city's people around its center, degrees.
CITY_DEVIATIONS = (0.05, 0.5)
CITIES_CITATION = (
    "No real places: cities of random sizes at random positions, made by this project."
)

PLANTED_CANDIDATES = 1024  # at least, and eight for each ball
PLANTED_MIN_DISTANCE = 4.0  # between two centers, in radii
PLANTED_CITATION = (
    "Balls of equal sizes about well separated centers in the unit ball, made by this project."
)
HALF_MIN_DISTANCE = 0.1  # between two of the points that a half is drawn from, in radii
HALF_CITATION = (
    "Recipe of Epasto, A. et al. (2023). k-means clustering with distance-based privacy. NeurIPS, "
    "proposition D.1 (drawn by this project)."
)

#: Fixed names of members of a family.
ALIASES = {
    "synth-10d": "blobs-100000-10-64",
    "synth-100d": "blobs-100000-100-64",
    "gaussian-10": "gaussians-30000-10-10",
}


@dataclass(frozen=True)
class Recipe:
    """What a generated data set is made from; its fields determine every point.

    Attributes
    ----------
    family : str
    seed : tuple of int
        Entropy of the `numpy.random.SeedSequence`.
    n : int
        Number of points, outliers included; 0 where the sizes are drawn.
    d, n_clusters : int
    numbers : tuple of (str, float)
        Further numbers of the recipe: prescribed separation or its range, outliers, standard
        deviation. Their names are part of the fingerprint.
    """

    family: str
    seed: tuple[int, ...]
    n: int
    d: int
    n_clusters: int
    numbers: tuple[tuple[str, float], ...] = ()

    def number(self, name: str) -> float:
        """Return a further number that the recipe has."""
        return dict(self.numbers)[name]

    def optional_number(self, name: str) -> float | None:
        """Return a further number, None where the recipe has none or draws it."""
        return dict(self.numbers).get(name)


@dataclass(frozen=True)
class GeneratedPoints:
    """Points, labels, public domain, and the range of all columns where it is not the domain's.

    `prescaled` says that the points were scaled by bounds read off them.
    """

    points: np.ndarray
    labels: np.ndarray
    domain: np.ndarray
    common_range: tuple[float, float] | None = None
    prescaled: bool = False


@dataclass(frozen=True)
class Family:
    """A family of names.

    Attributes
    ----------
    name : str
    title : str
        What its sets are, in one line.
    form : str
        The names in words, for lists and error messages.
    pattern : str
        Regular expression of the names.
    recipe : callable
        From the groups of the pattern to a `Recipe`.
    draw : callable
        From a `Recipe` to `GeneratedPoints`.
    members : tuple of str
        The names that the papers use.
    citation : str
    """

    name: str
    title: str
    form: str
    pattern: str
    recipe: Callable[..., Recipe]
    draw: Callable[[Recipe], GeneratedPoints]
    members: tuple[str, ...]
    citation: str


def ratio_sizes(n: int, n_clusters: int) -> np.ndarray:
    """Cluster sizes in the ratio 1:2:...:k that sum to n, by largest remainders, none of them 0.

    Examples
    --------
    >>> ratio_sizes(10, 3).tolist()
    [2, 3, 5]
    """
    ratios = np.arange(1, n_clusters + 1)
    # In integers, so that no rounding error decides which cluster gets the last points.
    sizes, remainders = np.divmod(n * ratios, ratios.sum())
    extra = np.argsort(-remainders, kind="stable")[: n - sizes.sum()]
    sizes[extra] += 1
    if sizes.min() < 1:
        raise ValueError(
            f"n={n} points are too few for n_clusters={n_clusters} in the ratio "
            f"1:2:...:{n_clusters}"
        )
    return sizes


def _streams(recipe: Recipe) -> list[np.random.Generator]:
    """Four generators with separate streams: design, shapes, points, number of outliers."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(recipe.seed).spawn(4)]


def _cube(d: int) -> np.ndarray:
    """Domain [-1, 1]^d, shape (2, d)."""
    return np.repeat([[-1.0], [1.0]], d, axis=1)


def synth_parameters(recipe: Recipe) -> tuple[float, int]:
    """Prescribed separation and number of outliers of a Synth or Synth-K data set.

    Returns
    -------
    separation : float
        Uniform in [0.16, 0.26].
    n_outliers : int
        Uniform in 0..100 unless the name gives it.
    """
    design, _, _, outliers = _streams(recipe)
    n_outliers = recipe.optional_number("outliers")
    if n_outliers is None:
        n_outliers = outliers.integers(0, int(recipe.number("most outliers")), endpoint=True)
    separation = design.uniform(recipe.number("least separation"), recipe.number("most separation"))
    return float(separation), int(n_outliers)


def draw_synth(recipe: Recipe) -> GeneratedPoints:
    """Draw clusters of sizes 1:2:...:k, with outliers counted among the n points."""
    separation, n_outliers = synth_parameters(recipe)
    sizes = ratio_sizes(recipe.n - n_outliers, recipe.n_clusters)
    return _draw_clusters(recipe, sizes, separation, n_outliers)


def draw_gaussians(recipe: Recipe) -> GeneratedPoints:
    """Draw round normal clusters of equal sizes, in order, around centers uniform in the unit cube.

    The clusters are wider than the distances between their centers. Everything is divided by the
    largest value.
    """
    design, _, noise, _ = _streams(recipe)
    labels = np.arange(recipe.n) * recipe.n_clusters // recipe.n
    centers = design.uniform(size=(recipe.n_clusters, recipe.d))
    deviation = np.sqrt(recipe.number("variance"))
    points = centers[labels] + deviation * noise.standard_normal((recipe.n, recipe.d))
    return GeneratedPoints(divide_by_largest(points), labels, _cube(recipe.d), prescaled=True)


def draw_balanced(recipe: Recipe) -> GeneratedPoints:
    """Draw clusters of equal sizes, without outliers.

    Where n is no multiple of k, the first clusters are larger by a point.
    """
    sizes = np.full(recipe.n_clusters, recipe.n // recipe.n_clusters)
    sizes[: recipe.n % recipe.n_clusters] += 1
    return _draw_clusters(recipe, sizes, recipe.number("separation"), 0)


def draw_ablation(recipe: Recipe) -> GeneratedPoints:
    """Draw clusters of sizes uniform in [0.7, 1.3] of 2048/k, without outliers."""
    design = _streams(recipe)[0]
    mean = recipe.number("mean points") / recipe.n_clusters
    lower = int(np.ceil(recipe.number("least size") * mean))
    upper = int(np.floor(recipe.number("most size") * mean))
    sizes = design.integers(lower, upper, recipe.n_clusters, endpoint=True)
    return _draw_clusters(recipe, sizes, recipe.number("separation"), 0)


def _draw_clusters(
    recipe: Recipe, sizes: np.ndarray, separation: float, n_outliers: int
) -> GeneratedPoints:
    """Draw the clusters' parameters, then their points and the outliers."""
    _, shapes, generator, _ = _streams(recipe)
    distributions = clusters.random_clusters(shapes, recipe.n_clusters, recipe.d, separation)
    points, labels = clusters.draw(generator, distributions, sizes, n_outliers)
    return GeneratedPoints(points, labels, clusters.domain(distributions, sizes))


def draw_g2(recipe: Recipe) -> GeneratedPoints:
    """Draw two normal clusters of 1,024 points at (500, ..., 500) and (600, ..., 600), as integers.

    Values are rounded down: the means of the 91 published files lie 0.504 below the centers
    (standard error 0.008).
    """
    generator = _streams(recipe)[2]
    size = recipe.n // 2
    centers = [recipe.number("first center"), recipe.number("second center")]
    sd = recipe.number("sd")
    center = np.repeat(centers, size)[:, None]
    points = np.floor(center + sd * generator.standard_normal((recipe.n, recipe.d)))
    return GeneratedPoints(points, np.repeat([0, 1], size), g2_domain(sd, recipe.d))


def g2_domain(sd: float, n_dimensions: int) -> np.ndarray:
    """Public box of a G2 set, (2, d): five published standard deviations around the centers."""
    return np.repeat([[G2_CENTERS[0] - 5 * sd], [G2_CENTERS[1] + 5 * sd]], n_dimensions, axis=1)


def draw_blobs(recipe: Recipe) -> GeneratedPoints:
    """Draw normal clusters of equal size and deviation around centers uniform in a box.

    The range of all columns is the box of the centers, as the DPM paper has it: points may lie
    outside. The public domain reaches five standard deviations further.
    """
    from sklearn.datasets import make_blobs  # a second of imports

    lower = recipe.number("least center")
    upper = recipe.number("most center")
    sd = recipe.number("sd")
    points, labels = make_blobs(
        n_samples=recipe.n,
        n_features=recipe.d,
        centers=recipe.n_clusters,
        cluster_std=sd,
        center_box=(lower, upper),
        random_state=recipe.seed[0],
    )
    domain = np.repeat([[lower - 5 * sd], [upper + 5 * sd]], recipe.d, axis=1)
    return GeneratedPoints(points, labels.astype(np.int64), domain, (lower, upper))


def draw_cities(recipe: Recipe) -> GeneratedPoints:
    """Draw people around cities of heavy-tailed sizes in a few regions of an invented map.

    Latitude and longitude in degrees. Labels are the cities.
    """
    design, shapes, people, _ = _streams(recipe)

    # Draw the centers of the regions, and of the cities around them.
    latitudes = design.uniform(-45, 60, CITIES_REGIONS)
    longitudes = design.uniform(-160, 160, CITIES_REGIONS)
    regions = np.stack([latitudes, longitudes], axis=1)
    normal = design.standard_normal((CITIES_REGIONS, CITIES_PER_REGION, 2))
    cities = (regions[:, None] + normal * REGION_DEVIATIONS).reshape(-1, 2)

    # Draw the cities' sizes and widths.
    sizes = shapes.pareto(CITIES_PARETO_EXPONENT, len(cities)) + 1
    deviations = shapes.uniform(*CITY_DEVIATIONS, len(cities))

    # Draw each person's city by its size, then the position around its center.
    cumulative = np.cumsum(sizes / sizes.sum())
    labels = np.searchsorted(cumulative, people.random(recipe.n)).clip(max=len(cities) - 1)
    offsets = deviations[labels, None] * people.standard_normal((recipe.n, 2))
    domain = np.array([[-90.0, -180.0], [90.0, 180.0]])
    points = np.clip(cities[labels] + offsets, *domain)
    return GeneratedPoints(points, labels.astype(np.int64), domain)


@lru_cache(maxsize=16)
def planted_centers(d: int, n_clusters: int) -> np.ndarray:
    """Well separated points of the unit ball, by farthest-first traversal of random candidates.

    They depend on nothing else, so that sets of different sizes and radii have the same centers.

    Returns
    -------
    ndarray of float64, shape (n_clusters, d)

    Examples
    --------
    >>> centers = planted_centers(3, 5)
    >>> centers.shape, bool((np.linalg.norm(centers, axis=1) <= 1).all())
    ((5, 3), True)
    """
    generator = np.random.default_rng(np.random.SeedSequence((8, d, n_clusters)))
    candidates = _in_ball(generator, max(PLANTED_CANDIDATES, 8 * n_clusters), d)
    chosen = [0]
    nearest = np.full(len(candidates), np.inf)
    while len(chosen) < n_clusters:
        nearest = np.minimum(nearest, ((candidates - candidates[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(nearest.argmax()))
    return candidates[chosen]


def far_center(centers: np.ndarray) -> np.ndarray:
    """Choose a further center: the random point of the unit sphere farthest from `centers`."""
    generator = np.random.default_rng(np.random.SeedSequence((9, *reversed(centers.shape))))
    candidates = generator.standard_normal((PLANTED_CANDIDATES, centers.shape[1]))
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    nearest = ((candidates[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
    return candidates[nearest.argmax()]


def _in_ball(generator: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Points uniform in the unit ball, (n, d)."""
    directions = generator.standard_normal((n, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * generator.random((n, 1)) ** (1 / d)


def planted_layout(recipe: Recipe) -> np.ndarray:
    """Centers of all balls, the far one last, scaled so that the balls lie in the unit ball."""
    has_small_ball = bool(recipe.optional_number("small"))
    centers = planted_centers(recipe.d, recipe.n_clusters - has_small_ball)
    if has_small_ball:
        centers = np.concatenate([centers, far_center(centers)[None]])
    return centers * (1 - recipe.number("radius"))


def draw_planted(recipe: Recipe) -> GeneratedPoints:
    """Draw uniform balls of equal sizes and, where the recipe has it, a far, smaller ball last.

    Radius 0 repeats the centers exactly.
    """
    generator = _streams(recipe)[2]
    centers = planted_layout(recipe)
    n_small = int(recipe.optional_number("small") or 0)
    n_equal = recipe.n - n_small
    k_equal = recipe.n_clusters - bool(n_small)
    equal = np.arange(n_equal) * k_equal // n_equal
    labels = np.concatenate([equal, np.full(n_small, k_equal)])
    offsets = recipe.number("radius") * _in_ball(generator, recipe.n, recipe.d)
    return GeneratedPoints(centers[labels] + offsets, labels, _cube(recipe.d))


def draw_half(recipe: Recipe) -> GeneratedPoints:
    """Draw a random half of 2 k separated points in a small ball about the origin, a cluster each.

    The radius does not change how well they are separated: the 2 k points are the same up to scale.
    """
    k = recipe.n_clusters
    chosen = np.sort(_streams(recipe)[2].choice(2 * k, k, replace=False))
    points = recipe.number("radius") * planted_centers(recipe.d, 2 * k)[chosen]
    return GeneratedPoints(points, np.arange(k), _cube(recipe.d))


#: The numbers' names are part of the fingerprints.
SYNTH_NUMBERS = (
    ("least separation", SYNTH_SEPARATION[0]),
    ("most separation", SYNTH_SEPARATION[1]),
    ("most outliers", SYNTH_OUTLIERS),
)


def _synth(k: str, d: str, replicate: str, outliers: str | None = None) -> Recipe:
    numbers = SYNTH_NUMBERS if outliers is None else (*SYNTH_NUMBERS, ("outliers", int(outliers)))
    seed = (1, int(k), int(d), int(replicate))
    return Recipe("synth", seed, SYNTH_POINTS, int(d), int(k), numbers)


def _synthk(k: str, replicate: str) -> Recipe:
    seed = (2, int(k), int(replicate))
    return Recipe("synthk", seed, SYNTH_POINTS, 2, int(k), SYNTH_NUMBERS)


def _ablation(k: str, d: str, separation: str) -> Recipe:
    seed = (3, int(k), int(d), round(1e4 * float(separation)))
    numbers = (
        ("separation", float(separation)),
        ("mean points", ABLATION_POINTS),
        ("least size", ABLATION_SIZES[0]),
        ("most size", ABLATION_SIZES[1]),
    )
    return Recipe("ablation", seed, 0, int(d), int(k), numbers)


def _timesynth(n: str, k: str, d: str) -> Recipe:
    seed = (4, int(n), int(k), int(d))
    numbers = (("separation", TIMESYNTH_SEPARATION),)
    return Recipe("timesynth", seed, int(n), int(d), int(k), numbers)


def _g2(d: str, sd: str) -> Recipe:
    seed = (5, int(d), int(sd))
    numbers = (("sd", int(sd)), ("first center", G2_CENTERS[0]), ("second center", G2_CENTERS[1]))
    return Recipe("g2", seed, 2 * G2_CLUSTER_SIZE, int(d), 2, numbers)


def _blobs(n: str, d: str, k: str) -> Recipe:
    numbers = (("sd", 1.0), ("least center", BLOBS_CENTERS[0]), ("most center", BLOBS_CENTERS[1]))
    return Recipe("blobs", (BLOBS_SEED,), int(n), int(d), int(k), numbers)


def _sklearn(k: str, d: str) -> Recipe:
    box = (("least center", SKLEARN_CENTERS[0]), ("most center", SKLEARN_CENTERS[1]))
    numbers = (("sd", 1.0), *box)
    return Recipe("sklearn", (SKLEARN_SEED,), SKLEARN_POINTS, int(d), int(k), numbers)


def _gaussians(n: str, d: str, k: str) -> Recipe:
    seed = (6, int(n), int(d), int(k))
    numbers = (("variance", GAUSSIANS_VARIANCE),)
    return Recipe("gaussians", seed, int(n), int(d), int(k), numbers)


def _cities() -> Recipe:
    return Recipe("cities", (7,), CITIES_POINTS, 2, 8)


def _planted(n: str, d: str, k: str, radius: str) -> Recipe:
    return _balls(int(n), int(d), int(k), float(radius), 0)


def _planted_small(n: str, d: str, k: str, radius: str, small: str) -> Recipe:
    return _balls(int(n), int(d), int(k), float(radius), int(small))


def _balls(n: int, d: int, k: int, radius: float, small: int) -> Recipe:
    seed = (10, n, d, k, round(1e4 * radius), small)
    numbers: tuple[tuple[str, float], ...] = (("radius", radius),)
    if small:
        numbers = (*numbers, ("small", small))
    return Recipe("planted", seed, n + small, d, k + bool(small), numbers)


def _half(d: str, k: str, radius: str) -> Recipe:
    seed = (11, int(d), int(k), round(1e4 * float(radius)))
    return Recipe("half", seed, int(k), int(d), int(k), (("radius", float(radius)),))


FAMILIES = (
    Family(
        "g2",
        "two normal clusters of 1,024 integer points each",
        f"g2-<d>-<sd>[{SUBSTITUTE_SUFFIX}]",
        rf"g2-([1-9]\d*)-([1-9]\d*)(?:{SUBSTITUTE_SUFFIX})?",
        _g2,
        draw_g2,
        tuple(f"g2-{d}-{sd}" for d in (1, *POWERS) for sd in range(10, 101, 10)),
        G2_CITATION,
    ),
    Family(
        "synth",
        "clusters of sizes 1:2:...:k, with outliers",
        "synth-<k>-<d>-<replicate>[-o<outliers>]",
        r"synth-([1-9]\d*)-([1-9]\d*)-(0|[1-9]\d*)(?:-o(0|[1-9]\d*))?",
        _synth,
        draw_synth,
        tuple(f"synth-{k}-{d}-{r}" for k in POWERS[:5] for d in POWERS[:9] for r in REPLICATES),
        FAST_LLOYD_CITATION,
    ),
    Family(
        "synthk",
        "clusters of sizes 1:2:...:k on a plane, for large k",
        "synthk-<k>-<replicate>",
        r"synthk-([1-9]\d*)-(0|[1-9]\d*)",
        _synthk,
        draw_synth,
        tuple(f"synthk-{k}-{r}" for k in POWERS[:7] for r in REPLICATES),
        FAST_LLOYD_CITATION,
    ),
    Family(
        "ablation",
        "clusters of similar sizes and a prescribed separation",
        "ablation-<k>-<d>-<separation>",
        r"ablation-([1-9]\d*)-([1-9]\d*)-(0\.\d{1,4})",
        _ablation,
        draw_ablation,
        tuple(
            f"ablation-{k}-{d}-{s}"
            for k in POWERS[:4]
            for d in POWERS[:4]
            for s in (0.25, 0.5, 0.75)
        ),
        FAST_LLOYD_CITATION,
    ),
    Family(
        "timesynth",
        "clusters of equal sizes, for running times",
        "timesynth-<n>-<k>-<d>",
        r"timesynth-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)",
        _timesynth,
        draw_balanced,
        tuple(f"timesynth-{n}-{k}-{d}" for n in (10_000, 100_000) for k in (2, 5) for d in (2, 5)),
        FAST_LLOYD_CITATION,
    ),
    Family(
        "blobs",
        "normal clusters around centers uniform in a box",
        "blobs-<n>-<d>-<k>",
        r"blobs-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)",
        _blobs,
        draw_blobs,
        tuple(alias for alias, name in ALIASES.items() if name.startswith("blobs-")),
        BLOBS_CITATION,
    ),
    Family(
        "sklearn",
        "20,000 points in normal clusters around centers uniform in a box",
        "sklearn-<k>-<d>",
        r"sklearn-([1-9]\d*)-([1-9]\d*)",
        _sklearn,
        draw_blobs,
        tuple(f"sklearn-{k}-{d}" for k in (4, 16, 64) for d in (4, 16, 64, 128)),
        SKLEARN_CITATION,
    ),
    Family(
        "gaussians",
        "overlapping normal clusters of equal sizes",
        "gaussians-<n>-<d>-<k>",
        r"gaussians-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)",
        _gaussians,
        draw_gaussians,
        tuple(alias for alias, name in ALIASES.items() if name.startswith("gaussians-")),
        GAUSSIANS_CITATION,
    ),
    Family(
        "cities",
        "people around cities of an invented map",
        "generated-cities",
        "generated-cities",
        _cities,
        draw_cities,
        ("generated-cities",),
        CITIES_CITATION,
    ),
    Family(
        "planted",
        "balls around well separated centers: the optimum is known",
        "planted-<n>-<d>-<k>-<radius>",
        r"planted-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)-(0(?:\.\d{1,4})?)",
        _planted,
        draw_planted,
        ("planted-10000-2-16-0.05",),
        PLANTED_CITATION,
    ),
    Family(
        "planted-small",
        "as planted, with one small ball far away",
        "planted-small-<n>-<d>-<k>-<radius>-<m>",
        r"planted-small-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)-(0(?:\.\d{1,4})?)-([1-9]\d*)",
        _planted_small,
        draw_planted,
        ("planted-small-10000-2-16-0.05-100",),
        PLANTED_CITATION,
    ),
    Family(
        "half",
        "half of 2 k separated points, each a cluster",
        "half-<d>-<k>-<radius>",
        r"half-([1-9]\d*)-([1-9]\d*)-(0\.(?!0+$)\d{1,4})",
        _half,
        draw_half,
        ("half-8-32-0.05",),
        HALF_CITATION,
    ),
)

#: Larger than any set of the papers; an error in a name cannot exhaust the memory.
LIMITS = {"d": 4096, "n_clusters": 1024, "n": 10_000_000}
MAX_VALUES = 10**9
#: Families that have members of a single column.
ONE_COLUMN = ("g2", "blobs", "gaussians", "planted", "half")


def find(name: str) -> tuple[Family, Recipe] | None:
    """Family and recipe of a generated data set's name, or None if the name belongs to no family.

    Raises
    ------
    ValueError
        If the name has a family's form but numbers out of range.
    """
    for family in FAMILIES:
        match = re.fullmatch(family.pattern, ALIASES.get(name, name))
        if match:
            recipe = family.recipe(*match.groups())
            _check_sizes(name, recipe)
            _check_numbers(name, recipe)
            _check_distances(name, recipe)
            return family, recipe
    return None


def _check_sizes(name: str, recipe: Recipe) -> None:
    """Refuse a recipe with too many points, columns or clusters, or too few."""
    for field, limit in LIMITS.items():
        value = getattr(recipe, field)
        if value > limit:
            raise ValueError(f"{name}: {field}={value} should be at most {limit}")
    if recipe.n * recipe.d > MAX_VALUES:
        raise ValueError(f"{name}: n={recipe.n} times d={recipe.d} should be at most {MAX_VALUES}")
    min_columns = 1 if recipe.family in ONE_COLUMN else 2
    if recipe.d < min_columns or recipe.n_clusters < 2:
        raise ValueError(
            f"{name}: d={recipe.d} should be at least {min_columns} and k={recipe.n_clusters} at "
            "least 2"
        )


def _check_numbers(name: str, recipe: Recipe) -> None:
    """Refuse outliers and separations out of range, and more clusters than the points can fill."""
    outliers = recipe.optional_number("outliers")
    if outliers is not None and outliers > SYNTH_OUTLIERS:
        raise ValueError(f"{name}: {outliers} outliers should be at most {SYNTH_OUTLIERS}")
    separation = recipe.optional_number("separation")
    if separation is not None and not 0 < separation < 1:
        raise ValueError(f"{name}: separation={separation} should be between 0 and 1")
    if not recipe.n:
        return
    max_clusters = recipe.n
    if recipe.family.startswith("synth"):
        # Sizes in the ratio 1:2:...:k.
        max_clusters = int(np.sqrt(2 * recipe.n)) - 1
    if recipe.n_clusters > max_clusters:
        raise ValueError(
            f"{name}: k={recipe.n_clusters} is too large for n={recipe.n}; at most {max_clusters}"
        )


def _check_distances(name: str, recipe: Recipe) -> None:
    """Refuse planted sets whose balls or points would be too close to each other."""
    if recipe.family == "half":
        distance = _min_distance(planted_centers(recipe.d, 2 * recipe.n_clusters))
        if distance < HALF_MIN_DISTANCE:
            raise ValueError(
                f"{name}: of 2 k={2 * recipe.n_clusters} points in d={recipe.d} dimensions two "
                f"would be {distance:.4f} radii apart, which should be at least "
                f"{HALF_MIN_DISTANCE}: take more dimensions or a smaller k"
            )
    elif radius := recipe.optional_number("radius"):
        distance = _min_distance(planted_layout(recipe))
        if distance < PLANTED_MIN_DISTANCE * radius:
            raise ValueError(
                f"{name}: radius={radius} should be at most {distance / PLANTED_MIN_DISTANCE:.4f}, "
                "a quarter of the smallest distance between the centers"
            )


def _min_distance(centers: np.ndarray) -> float:
    from scipy.spatial.distance import pdist  # a tenth of a second of imports

    return float(pdist(centers).min())


def fingerprint(family: Family, recipe: Recipe) -> str:
    """SHA-256 of a recipe and of the code of everything that turns it into points."""
    digest = hashlib.sha256(json.dumps(_plain(recipe), sort_keys=True).encode())
    for text in _sources(family):
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


def _plain(recipe: Recipe) -> dict[str, object]:
    return {field: getattr(recipe, field) for field in recipe.__dataclass_fields__}


def _sources(family: Family) -> Iterator[str]:
    """Code (see `pkm.source`) and constants that determine a family's points."""
    yield code_of(family.draw)
    if family.name in ("blobs", "sklearn"):
        # The points are scikit-learn's: another release may draw others.
        from sklearn.datasets import make_blobs

        yield code_of(make_blobs)
        return
    yield code_of(_streams)
    if family.name == "cities":
        yield f"{CITIES_REGIONS=}{CITIES_PER_REGION=}{CITIES_PARETO_EXPONENT=}"
        yield f"{REGION_DEVIATIONS=}{CITY_DEVIATIONS=}"
        return
    if family.name == "g2":
        yield code_of(g2_domain)
        return
    if family.name == "gaussians":
        steps = (divide_by_largest, _cube)
    elif family.name == "half":
        steps = (planted_centers, _in_ball, _cube)
    elif family.name in ("planted", "planted-small"):
        steps = (planted_centers, far_center, _in_ball, planted_layout, _cube)
    else:
        steps = (_draw_clusters, synth_parameters, ratio_sizes)
    for step in steps:
        yield code_of(step)
    if planted_centers in steps:
        yield f"{PLANTED_CANDIDATES=}"
    if _draw_clusters in steps:
        for module in ("clusters.py", "separation.py"):
            yield code_of(Path(__file__).with_name(module))
