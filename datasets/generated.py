"""Generated data sets: families of names, each name one data set with its own recorded seeds.

The seed of a data set is made of its family's number and the numbers in its name, so the name alone reproduces it.
Sizes and separation, shapes, points and the number of outliers have separate random streams: an outlier count given by
hand leaves the prescribed separation and the shapes as they are. The family ``blobs`` is scikit-learn's and has one
published seed.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from pkm.datasets import clusters
from pkm.datasets.scaling import largest_one
from pkm.source import code_of

POWERS = tuple(2**i for i in range(1, 11))
SYNTH_POINTS = 10_000
SYNTH_OUTLIERS = 100
SYNTH_SEPARATION = (0.16, 0.26)
TIMESYNTH_SEPARATION = 0.21
ABLATION_POINTS = 2048
ABLATION_SPREAD = (0.7, 1.3)
G2_CLUSTER_SIZE = 1024
G2_CENTERS = (500.0, 600.0)
REPLICATES = (0, 1, 2)
# Ending of the names of generated sets that stand in for published G2 files.
STAND_IN = "-generated"

CLUSTER_GENERATION = (
    "Qiu, W. and Joe, H. (2006). Generation of random clusters with specified degree of separation. "
    "Journal of Classification 23(2), 315-334."
)
FAST_LLOYD = "Recipe of the FastLloyd paper (USENIX Security 2025), section 6.1.3 and appendix B. "
BLOBS_CENTERS = (-100.0, 100.0)
BLOBS_SEED = 42
BLOBS_CITATION = (
    "Normal clusters of scikit-learn's make_blobs, as in the DPM paper (Liebenow et al.). Pedregosa, F. et al. (2011). "
    "Scikit-learn: machine learning in Python. Journal of Machine Learning Research 12, 2825-2830."
)
GAUSSIANS_VARIANCE = 0.5
GAUSSIANS_CITATION = "Recipe of Pan, C. et al. (2023). Machine unlearning of federated clusters. ICLR, appendix M (a draw of ours)."
CITIES_POINTS, CITIES_REGIONS, CITIES_EACH = 50_000, 6, 40
CITIES_TAIL = 1.1  # exponent of the Pareto law of the cities' sizes
CITIES_SPREADS = (
    8.0,
    15.0,
)  # degrees of latitude and longitude, of a region's cities about its middle
CITIES_WIDTHS = (0.05, 0.5)  # degrees, of a city's people about its center
CITIES_CITATION = (
    "No real places: cities of random sizes at random positions, made by this project."
)
PLANTED_CANDIDATES = 1024  # at least, and eight for each ball
PLANTED_APART = 4.0  # smallest distance between two centers, in radii
PLANTED_CITATION = (
    "Balls of equal sizes about well separated centers in the unit ball, made by this project."
)
HALF_APART = 0.1  # least distance between two of the points that a half is drawn from, in radii
HALF_CITATION = (
    "Recipe of Epasto, A. et al. (2023). k-means clustering with distance-based privacy. NeurIPS, proposition D.1 (a "
    "draw of ours)."
)
# Names that stand for a member of a family.
ALIASES = {
    "synth-10d": "blobs-100000-10-64",
    "synth-100d": "blobs-100000-100-64",
    "gaussian-10": "gaussians-30000-10-10",
}
G2_CITATION = (
    "Fränti, P., Mariescu-Istodor, R. and Zhong, C. (2016). XNN graph. Joint IAPR International Workshop on "
    "Structural, Syntactic, and Statistical Pattern Recognition, LNCS 10029, 207-217 (G2 sets)."
)


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
        Further numbers of the recipe: prescribed separation or its range, outliers, standard deviation.
    """

    family: str
    seed: tuple[int, ...]
    n: int
    d: int
    n_clusters: int
    numbers: tuple[tuple[str, float], ...] = ()

    def number(self, name):
        """Return one of the further numbers, None where the recipe leaves it to the random stream."""
        return dict(self.numbers).get(name)


@dataclass(frozen=True)
class GeneratedPoints:
    """A drawn data set: points, labels, public domain, and the range of all columns where it is another.

    `prescaled` says that the points were scaled by bounds read off them.
    """

    points: np.ndarray
    labels: np.ndarray
    domain: np.ndarray
    common_range: tuple[float, float] | None = None
    prescaled: bool = False


@dataclass(frozen=True)
class Family:
    """One family of names.

    Attributes
    ----------
    name : str
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
    form: str
    pattern: str
    recipe: Callable[..., Recipe]
    draw: Callable[[Recipe], GeneratedPoints]
    members: tuple[str, ...]
    citation: str


def ratio_sizes(n, n_clusters):
    """Cluster sizes in the ratio 1:2:...:k that sum to n, by largest remainders, none of them empty.

    Examples
    --------
    >>> ratio_sizes(10, 3).tolist()
    [2, 3, 5]
    """
    shares = np.arange(1, n_clusters + 1)
    # In integers, so that no rounding error decides which cluster gets the last points.
    sizes, remainders = np.divmod(n * shares, shares.sum())
    extra = np.argsort(-remainders, kind="stable")[: n - sizes.sum()]
    sizes[extra] += 1
    if sizes.min() < 1:
        raise ValueError(
            f"n={n} points are too few for n_clusters={n_clusters} in the ratio 1:2:...:{n_clusters}"
        )
    return sizes


def _streams(recipe):
    """Four generators with separate streams: recipe, covariances, points, outliers' number."""
    return [np.random.default_rng(child) for child in np.random.SeedSequence(recipe.seed).spawn(4)]


def synth_parameters(recipe):
    """Prescribed separation and number of outliers of a Synth or Synth-K data set.

    Returns
    -------
    separation : float
        Uniform in [0.16, 0.26].
    n_outliers : int
        Uniform in 0..100 unless the name gives it.
    """
    design, _, _, outliers = _streams(recipe)
    given = recipe.number("outliers")
    drawn = (
        int(outliers.integers(0, recipe.number("most outliers"), endpoint=True))
        if given is None
        else int(given)
    )
    return float(
        design.uniform(recipe.number("least separation"), recipe.number("most separation"))
    ), drawn


def draw_synth(recipe):
    """Draw clusters of sizes 1:2:...:k, with outliers that take their places among the n points."""
    separation, n_outliers = synth_parameters(recipe)
    return _draw_clusters(
        recipe, ratio_sizes(recipe.n - n_outliers, recipe.n_clusters), separation, n_outliers
    )


def draw_gaussians(recipe):
    """Draw round normal clusters of equal sizes, one after another, around centers uniform in the unit cube.

    The clusters are wider than their centers are apart. Everything is divided by the largest value.
    """
    design, _, noise, _ = _streams(recipe)
    labels = np.arange(recipe.n) * recipe.n_clusters // recipe.n
    centers = design.uniform(size=(recipe.n_clusters, recipe.d))
    points = centers[labels] + np.sqrt(recipe.number("variance")) * noise.standard_normal(
        (recipe.n, recipe.d)
    )
    return GeneratedPoints(
        largest_one(points), labels, np.repeat([[-1.0], [1.0]], recipe.d, axis=1), prescaled=True
    )


def draw_balanced(recipe):
    """Draw clusters of equal sizes (the first ones a point larger where n is no multiple of k), without outliers."""
    sizes = np.full(recipe.n_clusters, recipe.n // recipe.n_clusters)
    sizes[: recipe.n % recipe.n_clusters] += 1
    return _draw_clusters(recipe, sizes, recipe.number("separation"), 0)


def draw_ablation(recipe):
    """Draw clusters of sizes uniform in [0.7, 1.3] of 2048/k, without outliers."""
    design = _streams(recipe)[0]
    mean = recipe.number("mean points") / recipe.n_clusters
    lower, upper = (
        int(np.ceil(recipe.number("least size") * mean)),
        int(np.floor(recipe.number("most size") * mean)),
    )
    sizes = design.integers(lower, upper, recipe.n_clusters, endpoint=True)
    return _draw_clusters(recipe, sizes, recipe.number("separation"), 0)


def _draw_clusters(recipe, sizes, separation, n_outliers):
    _, shape, points, _ = _streams(recipe)
    law = clusters.random_clusters(shape, recipe.n_clusters, recipe.d, separation)
    return GeneratedPoints(
        *clusters.draw(points, law, sizes, n_outliers), clusters.domain(law, sizes)
    )


def draw_g2(recipe):
    """Draw two normal clusters of 1,024 points at (500, ..., 500) and (600, ..., 600), cut down to integers.

    Cut, not rounded: the means of the 91 published files lie 0.504 below the centers (standard error 0.008).
    """
    generator = _streams(recipe)[2]
    center = np.repeat(
        [recipe.number("first center"), recipe.number("second center")], recipe.n // 2
    )[:, None]
    points = center + recipe.number("sd") * generator.standard_normal((recipe.n, recipe.d))
    return GeneratedPoints(
        np.floor(points), np.repeat([0, 1], recipe.n // 2), g2_domain(recipe.number("sd"), recipe.d)
    )


def g2_domain(sd, n_dimensions):
    """Public box of a G2 set, (2, d): five of its published standard deviations around its published centers."""
    return np.repeat([[G2_CENTERS[0] - 5 * sd], [G2_CENTERS[1] + 5 * sd]], n_dimensions, axis=1)


def draw_blobs(recipe):
    """Draw normal clusters of equal size and deviation around centers uniform in a box.

    The range of all columns is the box of the centers, as the DPM paper has it: points may lie outside. The public
    domain reaches five standard deviations further.
    """
    box, sd = (recipe.number("least center"), recipe.number("most center")), recipe.number("sd")
    from sklearn.datasets import make_blobs  # a second of imports

    points, labels = make_blobs(
        n_samples=recipe.n,
        n_features=recipe.d,
        centers=recipe.n_clusters,
        cluster_std=sd,
        center_box=box,
        random_state=recipe.seed[0],
    )
    domain = np.repeat([[box[0] - 5 * sd], [box[1] + 5 * sd]], recipe.d, axis=1)
    return GeneratedPoints(points, labels.astype(np.int64), domain, box)


def draw_cities(recipe):
    """Draw people about cities of heavy-tailed sizes, which lie in a few regions of a made-up map.

    Latitude and longitude in degrees. Labels are the cities.
    """
    design, shape, people, _ = _streams(recipe)
    regions = np.stack(
        [design.uniform(-45, 60, CITIES_REGIONS), design.uniform(-160, 160, CITIES_REGIONS)], axis=1
    )
    spread = design.standard_normal((CITIES_REGIONS, CITIES_EACH, 2)) * CITIES_SPREADS
    cities = (regions[:, None] + spread).reshape(-1, 2)
    sizes = shape.pareto(CITIES_TAIL, len(cities)) + 1
    widths = shape.uniform(*CITIES_WIDTHS, len(cities))
    labels = np.searchsorted(np.cumsum(sizes / sizes.sum()), people.random(recipe.n)).clip(
        max=len(cities) - 1
    )
    points = cities[labels] + widths[labels, None] * people.standard_normal((recipe.n, 2))
    domain = np.array([[-90.0, -180.0], [90.0, 180.0]])
    return GeneratedPoints(np.clip(points, *domain), labels.astype(np.int64), domain)


@lru_cache(maxsize=16)
def planted_centers(d, n_clusters):
    """Well separated points of the unit ball: of many drawn in it, one after another the farthest from the others.

    They depend on nothing else, so that sets of different sizes and radii have the same centers.

    Returns
    -------
    ndarray of float64, shape (n_clusters, d)

    Examples
    --------
    >>> planted_centers(3, 5).shape, bool((np.linalg.norm(planted_centers(3, 5), axis=1) <= 1).all())
    ((5, 3), True)
    """
    generator = np.random.default_rng(np.random.SeedSequence((8, d, n_clusters)))
    candidates = _in_ball(generator, max(PLANTED_CANDIDATES, 8 * n_clusters), d)
    chosen, nearest = [0], np.full(len(candidates), np.inf)
    while len(chosen) < n_clusters:
        nearest = np.minimum(nearest, ((candidates - candidates[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(nearest.argmax()))
    return candidates[chosen]


def far_center(centers):
    """Place one more center on the unit sphere, at the farthest of many drawn there from those that there are."""
    generator = np.random.default_rng(np.random.SeedSequence((9, *reversed(centers.shape))))
    drawn = generator.standard_normal((PLANTED_CANDIDATES, centers.shape[1]))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    nearest = ((drawn[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
    return drawn[nearest.argmax()]


def _in_ball(generator, n, d):
    """Points uniform in the unit ball, (n, d)."""
    directions = generator.standard_normal((n, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * generator.random((n, 1)) ** (1 / d)


def planted_layout(recipe):
    """Centers of all balls, the far one last, pulled in so that balls of the radius lie in the unit ball."""
    small = recipe.number("small")
    centers = planted_centers(recipe.d, recipe.n_clusters - bool(small))
    if small:
        centers = np.concatenate([centers, far_center(centers)[None]])
    return centers * (1 - recipe.number("radius"))


def draw_planted(recipe):
    """Draw balls of equal sizes (and a far, smaller one last), uniform inside; radius 0 repeats the centers exactly."""
    points = _streams(recipe)[2]
    small, k, centers = recipe.number("small") or 0, recipe.n_clusters, planted_layout(recipe)
    n, k = recipe.n - small, k - bool(small)
    labels = np.concatenate([np.arange(n) * k // n, np.full(small, k)])
    away = recipe.number("radius") * _in_ball(points, recipe.n, recipe.d)
    return GeneratedPoints(
        centers[labels] + away, labels, np.repeat([[-1.0], [1.0]], recipe.d, axis=1)
    )


def draw_half(recipe):
    """Draw a random half of 2 k separated points in a small ball about the origin: k points, a cluster each.

    No radius makes them easier to tell apart: the 2 k points are the same up to scale.
    """
    k, radius = recipe.n_clusters, recipe.number("radius")
    chosen = np.sort(_streams(recipe)[2].choice(2 * k, k, replace=False))
    points = radius * planted_centers(recipe.d, 2 * k)[chosen]
    return GeneratedPoints(points, np.arange(k), np.repeat([[-1.0], [1.0]], recipe.d, axis=1))


SYNTH_NUMBERS = (
    ("least separation", SYNTH_SEPARATION[0]),
    ("most separation", SYNTH_SEPARATION[1]),
    ("most outliers", SYNTH_OUTLIERS),
)


def _synth(k, d, replicate, outliers=None):
    numbers = SYNTH_NUMBERS if outliers is None else (*SYNTH_NUMBERS, ("outliers", int(outliers)))
    return Recipe(
        "synth", (1, int(k), int(d), int(replicate)), SYNTH_POINTS, int(d), int(k), numbers
    )


def _synthk(k, replicate):
    return Recipe("synthk", (2, int(k), int(replicate)), SYNTH_POINTS, 2, int(k), SYNTH_NUMBERS)


def _ablation(k, d, separation):
    seed = (3, int(k), int(d), round(1e4 * float(separation)))
    numbers = (
        ("separation", float(separation)),
        ("mean points", ABLATION_POINTS),
        ("least size", ABLATION_SPREAD[0]),
        ("most size", ABLATION_SPREAD[1]),
    )
    return Recipe("ablation", seed, 0, int(d), int(k), numbers)


def _timesynth(n, k, d):
    numbers = (("separation", TIMESYNTH_SEPARATION),)
    return Recipe("timesynth", (4, int(n), int(k), int(d)), int(n), int(d), int(k), numbers)


def _g2(d, sd):
    numbers = (("sd", int(sd)), ("first center", G2_CENTERS[0]), ("second center", G2_CENTERS[1]))
    return Recipe("g2", (5, int(d), int(sd)), 2 * G2_CLUSTER_SIZE, int(d), 2, numbers)


def _blobs(n, d, k):
    numbers = (("sd", 1.0), ("least center", BLOBS_CENTERS[0]), ("most center", BLOBS_CENTERS[1]))
    return Recipe("blobs", (BLOBS_SEED,), int(n), int(d), int(k), numbers)


def _gaussians(n, d, k):
    numbers = (("variance", GAUSSIANS_VARIANCE),)
    return Recipe("gaussians", (6, int(n), int(d), int(k)), int(n), int(d), int(k), numbers)


def _cities():
    return Recipe("cities", (7,), CITIES_POINTS, 2, 8)


def _planted(n, d, k, r, small=0):
    n, d, k, small, tenths = int(n), int(d), int(k), int(small), round(1e4 * float(r))
    numbers = (("radius", float(r)), ("small", small)) if small else (("radius", float(r)),)
    return Recipe("planted", (10, n, d, k, tenths, small), n + small, d, k + bool(small), numbers)


def _half(d, k, r):
    seed = (11, int(d), int(k), round(1e4 * float(r)))
    return Recipe("half", seed, int(k), int(d), int(k), (("radius", float(r)),))


FAMILIES = (
    Family(
        "g2",
        f"g2-<d>-<sd>[{STAND_IN}]",
        rf"g2-([1-9]\d*)-([1-9]\d*)(?:{STAND_IN})?",
        _g2,
        draw_g2,
        tuple(f"g2-{d}-{sd}" for d in (1, *POWERS) for sd in range(10, 101, 10)),
        G2_CITATION,
    ),
    Family(
        "synth",
        "synth-<k>-<d>-<replicate>[-o<outliers>]",
        r"synth-([1-9]\d*)-([1-9]\d*)-(0|[1-9]\d*)(?:-o(0|[1-9]\d*))?",
        _synth,
        draw_synth,
        tuple(f"synth-{k}-{d}-{r}" for k in POWERS[:5] for d in POWERS[:9] for r in REPLICATES),
        FAST_LLOYD + CLUSTER_GENERATION,
    ),
    Family(
        "synthk",
        "synthk-<k>-<replicate>",
        r"synthk-([1-9]\d*)-(0|[1-9]\d*)",
        _synthk,
        draw_synth,
        tuple(f"synthk-{k}-{r}" for k in POWERS[:7] for r in REPLICATES),
        FAST_LLOYD + CLUSTER_GENERATION,
    ),
    Family(
        "ablation",
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
        FAST_LLOYD + CLUSTER_GENERATION,
    ),
    Family(
        "timesynth",
        "timesynth-<n>-<k>-<d>",
        r"timesynth-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)",
        _timesynth,
        draw_balanced,
        tuple(f"timesynth-{n}-{k}-{d}" for n in (10_000, 100_000) for k in (2, 5) for d in (2, 5)),
        FAST_LLOYD + CLUSTER_GENERATION,
    ),
    Family(
        "blobs",
        "blobs-<n>-<d>-<k>",
        r"blobs-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)",
        _blobs,
        draw_blobs,
        tuple(alias for alias, name in ALIASES.items() if name.startswith("blobs-")),
        BLOBS_CITATION,
    ),
    Family(
        "gaussians",
        "gaussians-<n>-<d>-<k>",
        r"gaussians-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)",
        _gaussians,
        draw_gaussians,
        tuple(alias for alias, name in ALIASES.items() if name.startswith("gaussians-")),
        GAUSSIANS_CITATION,
    ),
    Family(
        "cities",
        "generated-cities",
        "generated-cities",
        _cities,
        draw_cities,
        ("generated-cities",),
        CITIES_CITATION,
    ),
    Family(
        "planted",
        "planted-<n>-<d>-<k>-<radius>",
        r"planted-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)-(0(?:\.\d{1,4})?)",
        _planted,
        draw_planted,
        ("planted-10000-2-16-0.05",),
        PLANTED_CITATION,
    ),
    Family(
        "planted-small",
        "planted-small-<n>-<d>-<k>-<radius>-<m>",
        r"planted-small-([1-9]\d*)-([1-9]\d*)-([1-9]\d*)-(0(?:\.\d{1,4})?)-([1-9]\d*)",
        _planted,
        draw_planted,
        ("planted-small-10000-2-16-0.05-100",),
        PLANTED_CITATION,
    ),
    Family(
        "half",
        "half-<d>-<k>-<radius>",
        r"half-([1-9]\d*)-([1-9]\d*)-(0\.(?!0+$)\d{1,4})",
        _half,
        draw_half,
        ("half-8-32-0.05",),
        HALF_CITATION,
    ),
)

# Larger than any set of the papers; keeps a slip in a name from filling the memory.
LIMITS = {"d": 4096, "n_clusters": 1024, "n": 10_000_000}
MAX_VALUES = 10**9


def find(name):
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
            _check(name, recipe)
            return family, recipe
    return None


def _check(name, recipe):
    from scipy.spatial.distance import pdist

    least = 1 if recipe.family in ("g2", "blobs", "gaussians", "planted", "half") else 2
    for field, most in LIMITS.items():
        value = getattr(recipe, field)
        if value > most:
            raise ValueError(f"{name}: {field}={value} should be at most {most}")
    if recipe.n * recipe.d > MAX_VALUES:
        raise ValueError(f"{name}: n={recipe.n} times d={recipe.d} should be at most {MAX_VALUES}")
    if recipe.d < least or recipe.n_clusters < 2:
        raise ValueError(
            f"{name}: d={recipe.d} should be at least {least} and k={recipe.n_clusters} at least 2"
        )
    outliers = recipe.number("outliers")
    if outliers is not None and outliers > SYNTH_OUTLIERS:
        raise ValueError(f"{name}: {outliers} outliers should be at most {SYNTH_OUTLIERS}")
    separation = recipe.number("separation")
    if separation is not None and not 0 < separation < 1:
        raise ValueError(f"{name}: separation={separation} should be between 0 and 1")
    if recipe.n:
        most = int(np.sqrt(2 * recipe.n)) - 1 if recipe.family.startswith("synth") else recipe.n
        if recipe.n_clusters > most:
            raise ValueError(
                f"{name}: k={recipe.n_clusters} is too large for n={recipe.n}; at most {most}"
            )
    if recipe.family == "half":
        apart = float(pdist(planted_centers(recipe.d, 2 * recipe.n_clusters)).min())
        if apart < HALF_APART:
            raise ValueError(
                f"{name}: of 2 k={2 * recipe.n_clusters} points in d={recipe.d} dimensions two would be {apart:.4f} "
                f"radii apart, which should be at least {HALF_APART}: take more dimensions or a smaller k"
            )
    elif radius := recipe.number("radius"):
        apart = float(pdist(planted_layout(recipe)).min())
        if apart < PLANTED_APART * radius:
            raise ValueError(
                f"{name}: radius={radius} should be at most {apart / PLANTED_APART:.4f}, a quarter of the smallest "
                "distance between the centers"
            )


def fingerprint(family, recipe):
    """SHA-256 of a recipe and of the code of everything that turns it into points."""
    digest = hashlib.sha256(json.dumps(_plain(recipe), sort_keys=True).encode())
    for text in _sources(family):
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()


def _plain(recipe):
    return {field: getattr(recipe, field) for field in recipe.__dataclass_fields__}


def _sources(family):
    """Code (see `pkm.source`): the whole generator of clusters for those that use it, and this module."""
    folder = Path(__file__).parent
    yield code_of(family.draw)
    if family.name == "blobs":
        # The points are scikit-learn's: another release may draw others.
        from sklearn.datasets import make_blobs

        yield code_of(make_blobs)
        return
    yield code_of(_streams)
    if family.name == "gaussians":
        yield code_of(largest_one)
        return
    if family.name == "g2":
        yield code_of(g2_domain)
        return
    if family.name == "cities":
        yield f"{CITIES_REGIONS=}{CITIES_EACH=}{CITIES_TAIL=}{CITIES_SPREADS=}{CITIES_WIDTHS=}"
        return
    planted = (planted_centers, far_center, _in_ball, planted_layout)
    placed = {"half": (planted_centers, _in_ball), "planted": planted, "planted-small": planted}
    if family.name in placed:
        for function in placed[family.name]:
            yield code_of(function)
        yield f"{PLANTED_CANDIDATES=}"
        return
    for text in (_draw_clusters, synth_parameters, ratio_sizes):
        yield code_of(text)
    for module in ("clusters.py", "separation.py"):
        yield code_of(folder / module)
