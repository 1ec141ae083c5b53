"""Families of generated data sets; every name that fits a template is a data set.

The seed of a set is made of its family's number and the numbers in its name, so the
name alone reproduces it. The families ``blobs`` and ``sklearn`` are scikit-learn's and
have a single published seed each.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from itertools import product

import numpy as np

from pkm.datasets.generated import samplers
from pkm.datasets.generated.samplers import GeneratedPoints, Recipe
from pkm.source import read_code, read_code_behind

POWERS = tuple(2**i for i in range(1, 11))
REPLICATES = (0, 1, 2)
G2_POINTS = 2048
#: Ending of the names of the generated substitutes of published G2 files.
SUBSTITUTE_SUFFIX = "-generated"
#: Fixed names of members of a family.
ALIASES = {
    "synth-10d": "blobs-100000-10-64",
    "synth-100d": "blobs-100000-100-64",
    "gaussian-10": "gaussians-30000-10-10",
}

FAST_LLOYD_CITATION = (
    "Recipe of the FastLloyd paper (USENIX Security 2025), section 6.1.3 and appendix "
    "B. Qiu, W. and Joe, H. (2006). Generation of random clusters with specified "
    "degree of separation. Journal of Classification 23(2), 315-334."
)
G2_CITATION = (
    "Fränti, P., Mariescu-Istodor, R. and Zhong, C. (2016). XNN graph. Joint IAPR "
    "International Workshop on Structural, Syntactic, and Statistical Pattern "
    "Recognition, LNCS 10029, 207-217 (G2 sets)."
)
SCIKIT_LEARN = (
    "Pedregosa, F. et al. (2011). Scikit-learn: machine learning in Python. Journal of "
    "Machine Learning Research 12, 2825-2830."
)
SKLEARN_CITATION = (
    "Normal clusters of scikit-learn's make_blobs with its defaults, as in the "
    f"PE-means paper (Humphries et al. 2026). {SCIKIT_LEARN}"
)
BLOBS_CITATION = (
    "Normal clusters of scikit-learn's make_blobs, as in the DPM paper (Liebenow et "
    f"al.). {SCIKIT_LEARN}"
)
GAUSSIANS_CITATION = (
    "Recipe of Pan, C. et al. (2023). Machine unlearning of federated clusters. ICLR, "
    "appendix M (drawn by this project)."
)
CITIES_CITATION = (
    "No real places: cities of random sizes at random positions, made by this project."
)
PLANTED_CITATION = (
    "Balls of equal sizes about well separated centers in the unit ball, made by this "
    "project."
)
HALF_CITATION = (
    "Recipe of Epasto, A. et al. (2023). k-means clustering with distance-based "
    "privacy. NeurIPS, proposition D.1 (drawn by this project)."
)

#: Regular expressions of the numbers in a name; by default they are positive integers.
POSITIVE = r"[1-9]\d*"
PATTERNS = {
    "replicate": rf"0|{POSITIVE}",
    "outliers": rf"0|{POSITIVE}",
    "separation": r"0\.\d{1,4}",
    "radius": r"0(?:\.\d{1,4})?",
}
#: Limits above all sets of the papers, so that a wrong name cannot exhaust the memory.
LIMITS = {"d": 4096, "n_clusters": 1024, "n": 10_000_000}
MAX_VALUES = 10**9
#: Families whose members have two columns or more.
MIN_TWO_COLUMNS = ("synth", "synthk", "ablation", "timesynth", "sklearn")
#: Smallest distance between two centers of balls, in radii.
PLANTED_MIN_DISTANCE = 4.0
#: Smallest distance between the points of which `draw_half` chooses half, in radii.
HALF_MIN_DISTANCE = 0.1


@dataclass(frozen=True)
class Family:
    """A family of names.

    Attributes
    ----------
    name : str
    name_template : str
        The names in words, for lists and error messages: numbers are in angle
        brackets, an ending that may be left out in square brackets.
    title : str
        What its sets are, in one line.
    draw : callable
        From a `Recipe` to `GeneratedPoints`.
    members : tuple of str
        The names that the papers use.
    citation : str
    seed : tuple of int
        Integers that begin the seed of each set, before the numbers of its name.
    seed_end : tuple of int
        Integers that end it.
    numbers : dict of str to float
        Numbers that all members share.
    patterns : dict of str to str
        Regular expressions of the numbers in a name.
    """

    name: str
    name_template: str
    title: str
    draw: Callable[[Recipe], GeneratedPoints]
    members: tuple[str, ...]
    citation: str
    seed: tuple[int, ...]
    seed_end: tuple[int, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=lambda: PATTERNS)

    def match(self, name: str) -> dict[str, float] | None:
        """Return the numbers in a name, None if it is no name of the family."""

        def group(number: re.Match) -> str:
            pattern = self.patterns.get(number[1], POSITIVE)
            return f"(?P<{number[1]}>{pattern})"

        template = self.name_template.replace("[", "(?:").replace("]", ")?")
        match = re.fullmatch(re.sub(r"<(\w+)>", group, template), name)
        if match is None:
            return None
        return {
            key: float(text) if "." in text else int(text)
            for key, text in match.groupdict().items()
            if text is not None
        }


def _name_members(template: str, *choices: Iterable) -> tuple[str, ...]:
    """Return the names with all combinations of some numbers."""
    return tuple(template.format(*numbers) for numbers in product(*choices))


FAMILIES = (
    Family(
        "g2",
        f"g2-<d>-<sd>[{SUBSTITUTE_SUFFIX}]",
        "two normal clusters of 1,024 integer points each",
        samplers.draw_g2,
        _name_members("g2-{}-{}", (1, *POWERS), range(10, 101, 10)),
        G2_CITATION,
        seed=(5,),
        numbers={"n": G2_POINTS, "k": 2},
    ),
    Family(
        "synth",
        "synth-<k>-<d>-<replicate>[-o<outliers>]",
        "clusters of sizes 1:2:...:k, with outliers",
        samplers.draw_synth,
        _name_members("synth-{}-{}-{}", POWERS[:5], POWERS[:9], REPLICATES),
        FAST_LLOYD_CITATION,
        seed=(1,),
        numbers={"n": 10_000},
    ),
    Family(
        "synthk",
        "synthk-<k>-<replicate>",
        "clusters of sizes 1:2:...:k on a plane, for large k",
        samplers.draw_synth,
        _name_members("synthk-{}-{}", POWERS[:7], REPLICATES),
        FAST_LLOYD_CITATION,
        seed=(2,),
        numbers={"n": 10_000, "d": 2},
    ),
    Family(
        "ablation",
        "ablation-<k>-<d>-<separation>",
        "clusters of similar sizes and a prescribed separation",
        samplers.draw_ablation,
        _name_members("ablation-{}-{}-{}", POWERS[:4], POWERS[:4], (0.25, 0.5, 0.75)),
        FAST_LLOYD_CITATION,
        seed=(3,),
        numbers={"n": 0},
    ),
    Family(
        "timesynth",
        "timesynth-<n>-<k>-<d>",
        "clusters of equal sizes, for running times",
        samplers.draw_balanced,
        _name_members("timesynth-{}-{}-{}", (10_000, 100_000), (2, 5), (2, 5)),
        FAST_LLOYD_CITATION,
        seed=(4,),
    ),
    Family(
        "blobs",
        "blobs-<n>-<d>-<k>",
        "normal clusters around centers uniform in a box",
        samplers.draw_blobs,
        ("synth-10d", "synth-100d"),
        BLOBS_CITATION,
        seed=(42,),
        numbers={"largest_center": 100.0},
    ),
    Family(
        "sklearn",
        "sklearn-<k>-<d>",
        "20,000 points in normal clusters around centers uniform in a box",
        samplers.draw_blobs,
        _name_members("sklearn-{}-{}", (4, 16, 64), (4, 16, 64, 128)),
        SKLEARN_CITATION,
        seed=(1,),
        numbers={"n": 20_000, "largest_center": 10.0},
    ),
    Family(
        "gaussians",
        "gaussians-<n>-<d>-<k>",
        "overlapping normal clusters of equal sizes",
        samplers.draw_gaussians,
        ("gaussian-10",),
        GAUSSIANS_CITATION,
        seed=(6,),
    ),
    Family(
        "cities",
        "generated-cities",
        "people around cities of an invented map",
        samplers.draw_cities,
        ("generated-cities",),
        CITIES_CITATION,
        seed=(7,),
        numbers={"n": 50_000, "d": 2, "k": 8},
    ),
    Family(
        "planted",
        "planted-<n>-<d>-<k>-<radius>",
        "balls around well separated centers: the optimum is known",
        samplers.draw_planted,
        ("planted-10000-2-16-0.05",),
        PLANTED_CITATION,
        seed=(10,),
        # The same seeds as planted-small with m = 0.
        seed_end=(0,),
    ),
    Family(
        "planted-small",
        "planted-small-<n>-<d>-<k>-<radius>-<m>",
        "as planted, with one small ball far away",
        samplers.draw_planted,
        ("planted-small-10000-2-16-0.05-100",),
        PLANTED_CITATION,
        seed=(10,),
    ),
    Family(
        "half",
        "half-<d>-<k>-<radius>",
        "half of 2 k separated points, each a cluster",
        samplers.draw_half,
        ("half-8-32-0.05",),
        HALF_CITATION,
        seed=(11,),
        # A radius of 0 would make one point of all.
        patterns={"radius": r"0\.(?!0+$)\d{1,4}"},
    ),
)


def find(name: str) -> tuple[Family, Recipe] | None:
    """Return the family and the recipe of a name, or None if it is in no family.

    Raises
    ------
    ValueError
        If the name fits a template and its numbers are out of range.
    """
    for family in FAMILIES:
        numbers = family.match(ALIASES.get(name, name))
        if numbers is not None:
            recipe = _make_recipe(family, numbers)
            _check_sizes(name, family, recipe)
            _check_numbers(name, family, recipe)
            _check_distances(name, recipe)
            return family, recipe
    return None


def _make_recipe(family: Family, in_name: dict[str, float]) -> Recipe:
    seed = [
        round(1e4 * number) if isinstance(number, float) else number
        for key, number in in_name.items()
        # A number of outliers leaves the clusters as they are.
        if key != "outliers"
    ]
    numbers = family.numbers | in_name
    k = numbers.pop("k")
    n_small = numbers.get("m", 0)
    return Recipe(
        family.name,
        (*family.seed, *seed, *family.seed_end),
        # Half of 2 k points: each is a cluster.
        n=numbers.pop("n", k) + n_small,
        d=numbers.pop("d"),
        n_clusters=k + bool(n_small),
        numbers=numbers,
    )


def _check_sizes(name: str, family: Family, recipe: Recipe) -> None:
    """Refuse a recipe with too many points, columns or clusters, or too few."""
    for key, limit in LIMITS.items():
        value = getattr(recipe, key)
        if value > limit:
            raise ValueError(f"{name}: {key}={value} should be at most {limit}")
    if recipe.n * recipe.d > MAX_VALUES:
        raise ValueError(
            f"{name}: n={recipe.n} times d={recipe.d} should be at most {MAX_VALUES}"
        )
    min_columns = 2 if family.name in MIN_TWO_COLUMNS else 1
    if recipe.d < min_columns or recipe.n_clusters < 2:
        raise ValueError(
            f"{name}: d={recipe.d} should be at least {min_columns} and "
            f"k={recipe.n_clusters} at least 2"
        )


def _check_numbers(name: str, family: Family, recipe: Recipe) -> None:
    """Refuse numbers out of range, and more clusters than the points can fill."""
    outliers = recipe.numbers.get("outliers", 0)
    if outliers > samplers.SYNTH_OUTLIERS:
        raise ValueError(
            f"{name}: {outliers} outliers should be at most {samplers.SYNTH_OUTLIERS}"
        )
    separation = recipe.numbers.get("separation")
    if separation == 0:
        raise ValueError(f"{name}: separation={separation} should be between 0 and 1")
    max_clusters = recipe.n
    if family.draw is samplers.draw_synth:
        # Sizes in the ratio 1:2:...:k.
        max_clusters = int(np.sqrt(2 * recipe.n)) - 1
    if recipe.n and recipe.n_clusters > max_clusters:
        raise ValueError(
            f"{name}: k={recipe.n_clusters} is too large for n={recipe.n}; at most "
            f"{max_clusters}"
        )


def _check_distances(name: str, recipe: Recipe) -> None:
    """Refuse planted sets whose balls or points would be too close to each other."""
    radius = recipe.numbers.get("radius")
    if not radius:
        return
    from scipy.spatial.distance import pdist  # a tenth of a second of imports

    if recipe.family == "half":
        k = 2 * recipe.n_clusters
        distance = pdist(samplers.plant_centers(recipe.d, k)).min()
        if distance < HALF_MIN_DISTANCE:
            raise ValueError(
                f"{name}: of 2 k={k} points in d={recipe.d} dimensions two would be "
                f"{distance:.4f} radii apart, which should be at least "
                f"{HALF_MIN_DISTANCE}: take more dimensions or a smaller k"
            )
        return
    max_radius = pdist(samplers.plant_balls(recipe)).min() / PLANTED_MIN_DISTANCE
    if radius > max_radius:
        raise ValueError(
            f"{name}: radius={radius} should be at most {max_radius:.4f}, a quarter of "
            "the smallest distance between the centers"
        )


def fingerprint(family: Family, recipe: Recipe) -> str:
    """Hash a recipe and the code of everything that turns it into points (SHA-256)."""
    content = json.dumps(asdict(recipe), sort_keys=True)
    content += read_code_behind(family.draw)
    if family.draw is samplers.draw_blobs:
        # The points are scikit-learn's: another release may draw others.
        from sklearn.datasets import make_blobs

        content += read_code(make_blobs)
    return hashlib.sha256(content.encode()).hexdigest()
