"""Which method for some data, from public numbers alone: ``pkm advise``.

    pkm advise n=20000 d=8 k=10 epsilon=1
    pkm advise n=20000 d=8 k=10 epsilon=1 bounds=wide unit=person
    pkm advise n=20000 schema=customers.yaml k=10 epsilon=1

It ranks methods by their costs over those of the best method, on the suite's sets of
such a size. It prints the costs over those of k-means, with an interval for 80 % of
such cells. A schema says how many columns there are. bounds=wide is for bounds that may
be ten times as wide as the data. With unit=person, n is the number of persons, and
methods that serve persons alone are ranked; each counts as the mean of its rows.
"""

from collections.abc import Mapping, Sequence

from pkm.arena.advice import ALWAYS, find_leaf, make_features, read_advice
from pkm.arena.suite import read_suite
from pkm.catalogue import current
from pkm.datasets.user_schema import Schema
from pkm.experiments.config.groups import read_choice
from pkm.experiments.config.settings import EPSILON, FILE, at_least, one_of, require
from pkm.experiments.console.console import make_main
from pkm.methods import load_method
from pkm.yaml_files import read_value

#: Of the data, all required.
NUMBERS = {
    "n": at_least(1),
    "d": at_least(1),
    "k": at_least(1),
    "epsilon": EPSILON,
}
BOUNDS = one_of("tight", "wide")
UNITS = one_of("row", "person")
#: How many times as wide as declared the bounds of the suite's sweep `wide` are.
WIDE_FACTOR = 10.0


def read_numbers(options: Mapping[str, str]) -> dict[str, float]:
    """Read the numbers of the data, each by its rule.

    Raises
    ------
    ValueError
        Naming the first that is missing or breaks its rule.
    """
    if "schema" in options:
        path = options["schema"]
        FILE.require("schema", path)
        require("d" not in options, "d", options.get("d"), "left out: schema= has it")
        names = Schema.from_yaml(path).get_feature_names_out()
        options = {**options, "d": str(len(names))}
    numbers: dict[str, float] = {}
    for name, rule in NUMBERS.items():
        text = options.get(name, "")
        value = read_value(text)
        require(value is not None and rule.holds(value), name, text, rule.text)
        numbers[name] = value
    return numbers


def serves_persons(method: str, n: int, d: int) -> bool:
    """Tell whether a method, if it is known here, takes persons with several rows."""
    if method not in current().choices("method"):
        return False
    entry = read_choice("method", method)
    estimator = load_method(entry["_target_"])(n_clusters=2)
    return not estimator.find_unweighted(n, d)


def run(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Print a ranking of methods."""
    require(not words, "words", " ".join(words), "left out: use n= d= k= epsilon=")
    numbers = read_numbers(options)
    bounds = options.get("bounds", "tight")
    unit = options.get("unit", "row")
    BOUNDS.require("bounds", bounds)
    UNITS.require("unit", unit)
    advice = read_advice()
    numbers["bounds_factor"] = WIDE_FACTOR if bounds == "wide" else 1.0
    leaf = find_leaf(advice["leaves"], make_features(numbers))
    methods = list(leaf["costs"])
    if unit == "person":
        size = int(numbers["n"]), int(numbers["d"])
        methods = [name for name in methods if serves_persons(name, *size)]
    print(f"{'method':24}{'cost':>8}   80 % of cells")
    for name in methods:
        cost, low, high = leaf["costs"][name]
        print(f"{name:24}{cost:8.3g}   {low:.3g} to {high:.3g}")
    suite = read_suite(advice["suite"])["title"].lower()
    print(
        f"Costs are over that of k-means, by {leaf['cells']} cells of suite "
        f"{advice['suite']} ({suite})."
    )
    (median, most), (fixed_median, fixed_most) = (
        advice["regret"][name] for name in ("advice", ALWAYS)
    )
    print(
        f"On sets that were left out, the first one cost {median:.1%} more than the "
        f"best (median; 90th percentile {most:.1%}); always {ALWAYS}: "
        f"{fixed_median:.1%} ({fixed_most:.1%})."
    )


OPTIONS = (*NUMBERS, "schema", "bounds", "unit")
main = make_main(
    "advise",
    __doc__,
    "WORD",
    OPTIONS,
    run,
)
