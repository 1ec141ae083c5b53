"""Families of generated data sets; every name that fits a template is a data set.

The seed of a set is made of its family's number and the numbers in its name, so the
name alone reproduces it. The families ``blobs`` and ``sklearn`` are scikit-learn's and
have a single published seed each.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from pkm.datasets.generated import samplers
from pkm.datasets.generated.samplers import GeneratedPoints, Recipe
from pkm.source import read_code, read_with_dependencies

#: Ending of the names of the generated substitutes of published G2 files.
SUBSTITUTE_SUFFIX = "-generated"

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
    members : sequence of str
        The names that the papers use.
    citation : str
    seed : sequence of int
        Integers that begin the seed of each set, before the numbers of its name.
    seed_end : sequence of int
        Integers that end it.
    numbers : dict of str to float
        Numbers that all members share.
    patterns : dict of str to str
        Regular expressions of the numbers in a name.
    min_columns : int
        Least number of columns of its sets.
    person : str or None
        Name under which `groups` asks for the person of each point; None if a point is
        a person.
    """

    name: str
    name_template: str
    title: str
    draw: Callable[[Recipe], GeneratedPoints]
    members: Sequence[str]
    citation: str
    seed: Sequence[int]
    seed_end: Sequence[int] = ()
    numbers: dict[str, float] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=lambda: PATTERNS)
    min_columns: int = 1
    person: str | None = None

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


def _read_families() -> tuple[tuple[Family, ...], dict[str, str]]:
    """Read the families, and the aliases of their members."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    families = []
    for name, table in tables["families"].items():
        template, *choices = table.pop("members")
        draw = getattr(samplers, table.pop("draw"))
        citation = tables["citations"][table.pop("citation")]
        members = [template.format(*numbers) for numbers in product(*choices)]
        families.append(
            Family(name, draw=draw, members=members, citation=citation, **table)
        )
    return tuple(families), tables["aliases"]


FAMILIES, ALIASES = _read_families()
BY_NAME = {family.name: family for family in FAMILIES}


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
        # Without n every point is a cluster, as in `draw_half`.
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
    if recipe.d < family.min_columns or recipe.n_clusters < 2:
        raise ValueError(
            f"{name}: d={recipe.d} should be at least {family.min_columns} and "
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
    content += read_with_dependencies(family.draw)
    if family.draw is samplers.draw_blobs:
        # The points are scikit-learn's: another release may draw others.
        from sklearn.datasets import make_blobs

        content += read_code(make_blobs)
    return hashlib.sha256(content.encode()).hexdigest()
