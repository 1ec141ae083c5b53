"""Samplers of the generated data sets: from a recipe to points, labels and bounds.

Sizes and separation, shapes, points and the number of outliers have separate random
streams. So an outlier count in the name of a set leaves its separation and its shapes
as they are.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pkm.datasets.generated.clusters import (
    bound_clusters,
    draw_clusters,
    random_clusters,
)
from pkm.datasets.scaling import divide_by_largest

SYNTH_OUTLIERS = 100
SYNTH_SEPARATION = (0.16, 0.26)
TIMESYNTH_SEPARATION = 0.21
ABLATION_POINTS = 2048
#: Range of a cluster's size, as a multiple of the mean size.
ABLATION_SIZES = (0.7, 1.3)
G2_CENTERS = (500.0, 600.0)
BLOBS_SD = 1.0
GAUSSIANS_VARIANCE = 0.5
#: Standard deviations of a normal cluster that a public box reaches beyond its center.
DEVIATIONS = 5

CITIES_REGIONS = 6
CITIES_PER_REGION = 40
#: Exponent of the Pareto distribution of the cities' sizes.
CITIES_PARETO_EXPONENT = 1.1
#: Standard deviations of a region's cities around its center, in degrees of latitude
#: and longitude.
REGION_DEVIATIONS = (8.0, 15.0)
#: Range of the standard deviations of a city's people around its center, in degrees.
CITY_DEVIATIONS = (0.05, 0.5)

#: Mean number of visits of a person, and exponent of its Pareto distribution.
VISITS_PER_PERSON = 10
VISITS_PARETO_EXPONENT = 1.1
#: Share of a person's visits that are to one place; deviation of visits from places.
VISITS_AT_HOME = 0.8
VISITS_DEVIATION = 0.1

#: Least number of random candidates for centers; there are eight or more for each ball.
PLANTED_CANDIDATES = 1024


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
    numbers : dict of str to float
        Further numbers of the name or the family, such as a separation or a radius.
    """

    family: str
    seed: tuple[int, ...]
    n: int
    d: int
    n_clusters: int
    numbers: dict[str, float]


@dataclass(frozen=True)
class GeneratedPoints:
    """Points, labels, public domain, and the common range of the columns if it differs.

    `prescaled` means that the points were scaled by bounds computed from them; `groups`
    are the persons of the points, if a person has several.
    """

    points: np.ndarray
    labels: np.ndarray
    domain: np.ndarray
    common_range: tuple[float, float] | None = None
    prescaled: bool = False
    groups: np.ndarray | None = None


def _spawn_streams(recipe: Recipe) -> list[np.random.Generator]:
    """Return generators with separate streams: design, shapes, points, outliers."""
    children = np.random.SeedSequence(recipe.seed).spawn(4)
    return [np.random.default_rng(child) for child in children]


def make_box(
    lower: float,
    upper: float,
    d: int,
) -> np.ndarray:
    """Return a domain with the same bounds in every column, shape (2, d)."""
    return np.repeat([[float(lower)], [float(upper)]], d, axis=1)


def ratio_sizes(
    n: int,
    n_clusters: int,
) -> np.ndarray:
    """Divide n points in the ratio 1:2:...:k by largest remainders, none of them 0.

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


def draw_synth_parameters(recipe: Recipe) -> tuple[float, int]:
    """Draw the prescribed separation and the number of outliers of a Synth data set.

    Returns
    -------
    separation : float
        Uniform in [0.16, 0.26].
    n_outliers : int
        Uniform in 0..100 unless the name gives it.
    """
    design, _, _, outliers = _spawn_streams(recipe)
    drawn = outliers.integers(0, SYNTH_OUTLIERS, endpoint=True)
    n_outliers = recipe.numbers.get("outliers", drawn)
    return float(design.uniform(*SYNTH_SEPARATION)), int(n_outliers)


def draw_synth(recipe: Recipe) -> GeneratedPoints:
    """Draw clusters of sizes 1:2:...:k, with outliers counted among the n points."""
    separation, n_outliers = draw_synth_parameters(recipe)
    sizes = ratio_sizes(recipe.n - n_outliers, recipe.n_clusters)
    return _draw_separated(recipe, sizes, separation, n_outliers)


def draw_balanced(recipe: Recipe) -> GeneratedPoints:
    """Draw clusters of equal sizes, without outliers.

    Where n is no multiple of k, the first clusters are larger by a point.
    """
    sizes = np.full(recipe.n_clusters, recipe.n // recipe.n_clusters)
    sizes[: recipe.n % recipe.n_clusters] += 1
    return _draw_separated(recipe, sizes, TIMESYNTH_SEPARATION)


def draw_ablation(recipe: Recipe) -> GeneratedPoints:
    """Draw clusters of sizes uniform in [0.7, 1.3] of 2048/k, without outliers."""
    design = _spawn_streams(recipe)[0]
    mean = ABLATION_POINTS / recipe.n_clusters
    lower = int(np.ceil(ABLATION_SIZES[0] * mean))
    upper = int(np.floor(ABLATION_SIZES[1] * mean))
    sizes = design.integers(lower, upper, recipe.n_clusters, endpoint=True)
    return _draw_separated(recipe, sizes, recipe.numbers["separation"])


def _draw_separated(
    recipe: Recipe,
    sizes: np.ndarray,
    separation: float,
    n_outliers: int = 0,
) -> GeneratedPoints:
    """Draw the clusters' parameters, then their points and the outliers."""
    _, shapes, generator, _ = _spawn_streams(recipe)
    clusters = random_clusters(shapes, recipe.n_clusters, recipe.d, separation)
    points, labels = draw_clusters(generator, clusters, sizes, n_outliers)
    return GeneratedPoints(points, labels, bound_clusters(clusters, sizes))


def draw_gaussians(recipe: Recipe) -> GeneratedPoints:
    """Draw round normal clusters of equal sizes around centers in the unit cube.

    The clusters come in order and are wider than the distances between their centers.
    Everything is divided by the largest value.
    """
    design, _, noise, _ = _spawn_streams(recipe)
    labels = np.arange(recipe.n) * recipe.n_clusters // recipe.n
    centers = design.uniform(size=(recipe.n_clusters, recipe.d))
    offsets = noise.standard_normal((recipe.n, recipe.d))
    points = centers[labels] + np.sqrt(GAUSSIANS_VARIANCE) * offsets
    cube = make_box(-1, 1, recipe.d)
    return GeneratedPoints(divide_by_largest(points), labels, cube, prescaled=True)


def draw_g2(recipe: Recipe) -> GeneratedPoints:
    """Draw two normal clusters at (500, ..., 500) and (600, ..., 600), as integers.

    Values are rounded down: the means of the 91 published files lie 0.504 below the
    centers (standard error 0.008).
    """
    generator = _spawn_streams(recipe)[2]
    size = recipe.n // 2
    sd = recipe.numbers["sd"]
    centers = np.repeat(G2_CENTERS, size)[:, None]
    offsets = sd * generator.standard_normal((recipe.n, recipe.d))
    labels = np.repeat([0, 1], size)
    return GeneratedPoints(np.floor(centers + offsets), labels, bound_g2(sd, recipe.d))


def bound_g2(
    sd: float,
    d: int,
) -> np.ndarray:
    """Return the public box of a G2 set, shape (2, d)."""
    reach = DEVIATIONS * sd
    return make_box(G2_CENTERS[0] - reach, G2_CENTERS[1] + reach, d)


def draw_blobs(recipe: Recipe) -> GeneratedPoints:
    """Draw normal clusters of equal size and deviation around centers in a box.

    The range of all columns is the box of the centers, as the DPM paper has it: points
    may lie outside. The public domain reaches five standard deviations further.
    """
    from sklearn.datasets import make_blobs  # a second of imports

    largest = recipe.numbers["largest_center"]
    points, labels = make_blobs(
        n_samples=recipe.n,
        n_features=recipe.d,
        centers=recipe.n_clusters,
        cluster_std=BLOBS_SD,
        center_box=(-largest, largest),
        random_state=recipe.seed[0],
    )
    reach = largest + DEVIATIONS * BLOBS_SD
    domain = make_box(-reach, reach, recipe.d)
    return GeneratedPoints(points, labels.astype(np.int64), domain, (-largest, largest))


def draw_cities(recipe: Recipe) -> GeneratedPoints:
    """Draw people around cities of heavy-tailed sizes in regions of an invented map.

    Columns are latitude and longitude in degrees. Labels are the cities.
    """
    design, shapes, people, _ = _spawn_streams(recipe)

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
    labels = np.searchsorted(cumulative, people.random(recipe.n))
    labels = labels.clip(max=len(cities) - 1)
    offsets = deviations[labels, None] * people.standard_normal((recipe.n, 2))
    domain = np.array([[-90.0, -180.0], [90.0, 180.0]])
    points = np.clip(cities[labels] + offsets, *domain)
    return GeneratedPoints(points, labels.astype(np.int64), domain)


def draw_visits(recipe: Recipe) -> GeneratedPoints:
    """Draw visits of persons to places, in numbers with a heavy tail.

    Most visits of a person are to one place, the others to any. Labels are the places.
    """
    design, shapes, visits, _ = _spawn_streams(recipe)
    places = design.uniform(-1, 1, (recipe.n_clusters, recipe.d))
    n_persons = -(-recipe.n // VISITS_PER_PERSON)

    # Each person has one visit, and further ones by how active it is.
    activity = shapes.pareto(VISITS_PARETO_EXPONENT, n_persons) + 1
    activity /= activity.sum()
    further = visits.choice(n_persons, recipe.n - n_persons, p=activity)
    persons = np.concatenate([np.arange(n_persons), further])

    # Draw the place of each visit, then the position around it.
    homes = shapes.integers(recipe.n_clusters, size=n_persons)
    others = visits.integers(recipe.n_clusters, size=recipe.n)
    at_home = visits.random(recipe.n) < VISITS_AT_HOME
    labels = np.where(at_home, homes[persons], others)
    offsets = VISITS_DEVIATION * visits.standard_normal((recipe.n, recipe.d))
    reach = 1 + DEVIATIONS * VISITS_DEVIATION
    return GeneratedPoints(
        places[labels] + offsets,
        labels,
        make_box(-reach, reach, recipe.d),
        groups=persons,
    )


@lru_cache(maxsize=16)
def plant_centers(
    d: int,
    n_clusters: int,
) -> np.ndarray:
    """Choose well separated points of the unit ball among random candidates.

    The choice is a farthest-first traversal. It depends on nothing else, so that sets
    of different sizes and radii have the same centers.

    Returns
    -------
    ndarray of float64, shape (n_clusters, d)

    Examples
    --------
    >>> centers = plant_centers(3, 5)
    >>> centers.shape, bool((np.linalg.norm(centers, axis=1) <= 1).all())
    ((5, 3), True)
    """
    generator = np.random.default_rng(np.random.SeedSequence((8, d, n_clusters)))
    candidates = _draw_in_ball(generator, max(PLANTED_CANDIDATES, 8 * n_clusters), d)
    chosen = [0]
    nearest = np.full(len(candidates), np.inf)
    while len(chosen) < n_clusters:
        squares = ((candidates - candidates[chosen[-1]]) ** 2).sum(axis=1)
        nearest = np.minimum(nearest, squares)
        chosen.append(int(nearest.argmax()))
    return candidates[chosen]


def _choose_far_center(centers: np.ndarray) -> np.ndarray:
    """Choose the random point of the unit sphere that is farthest from `centers`."""
    sequence = np.random.SeedSequence((9, *reversed(centers.shape)))
    generator = np.random.default_rng(sequence)
    candidates = _draw_directions(generator, PLANTED_CANDIDATES, centers.shape[1])
    nearest = ((candidates[:, None] - centers) ** 2).sum(axis=2).min(axis=1)
    return candidates[nearest.argmax()]


def _draw_directions(
    generator: np.random.Generator,
    n: int,
    d: int,
) -> np.ndarray:
    """Draw points uniform on the unit sphere, shape (n, d)."""
    directions = generator.standard_normal((n, d))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def _draw_in_ball(
    generator: np.random.Generator,
    n: int,
    d: int,
) -> np.ndarray:
    """Draw points uniform in the unit ball, shape (n, d)."""
    directions = _draw_directions(generator, n, d)
    return directions * generator.random((n, 1)) ** (1 / d)


def plant_balls(recipe: Recipe) -> np.ndarray:
    """Return the centers of all balls, the far one last.

    They are scaled so that all balls lie in the unit ball.
    """
    n_far = int("m" in recipe.numbers)
    centers = plant_centers(recipe.d, recipe.n_clusters - n_far)
    if n_far:
        centers = np.concatenate([centers, _choose_far_center(centers)[None]])
    return centers * (1 - recipe.numbers["radius"])


def draw_planted(recipe: Recipe) -> GeneratedPoints:
    """Draw uniform balls of equal sizes and, if the recipe has it, a small far ball.

    The small ball comes last. Radius 0 repeats the centers exactly.
    """
    generator = _spawn_streams(recipe)[2]
    centers = plant_balls(recipe)
    n_small = int(recipe.numbers.get("m", 0))
    n_equal = recipe.n - n_small
    k_equal = recipe.n_clusters - bool(n_small)
    equal = np.arange(n_equal) * k_equal // n_equal
    labels = np.concatenate([equal, np.full(n_small, k_equal)])
    unit_offsets = _draw_in_ball(generator, recipe.n, recipe.d)
    points = centers[labels] + recipe.numbers["radius"] * unit_offsets
    return GeneratedPoints(points, labels, make_box(-1, 1, recipe.d))


def draw_half(recipe: Recipe) -> GeneratedPoints:
    """Draw half of 2 k separated points in a small ball about the origin.

    Each point is a cluster. The 2 k points are the same up to scale for all radii, so
    that the radius does not change how well they are separated.
    """
    k = recipe.n_clusters
    generator = _spawn_streams(recipe)[2]
    chosen = np.sort(generator.choice(2 * k, k, replace=False))
    points = recipe.numbers["radius"] * plant_centers(recipe.d, 2 * k)[chosen]
    return GeneratedPoints(points, np.arange(k), make_box(-1, 1, recipe.d))
