"""Costs of a method on generated families of data sets, on which constants are chosen.

Each family draws data that were hard for an earlier `SynopsisKMeans`: wide bounds,
small groups far away, heavy tails, many columns. Three families draw the shape of the
data at random. Run ``python tools/studies/families.py --help`` from the root of the
repository. An ablation is a run with another value of a constant, whose costs are
printed over those of the value that is in use: ``--ablate
pkm.methods.zoom.MAX_OUTSIDE=0.01``.
"""

import argparse
import itertools
import math
import pydoc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pandas as pd
from numpy.random import Generator
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

import pkm.methods
from pkm.datasets import load
from pkm.methods import PrivateKMeans, SynopsisKMeans
from pkm.methods.fitting import RepeatableNoiseWarning

EPSILONS = [0.25, 1.0, 4.0]
SHAPES = ("round", "stretched", "skewed", "tails", "integers")


@dataclass(frozen=True)
class Data:
    """A data set, its public bounds, and the number of clusters."""

    points: np.ndarray
    bounds: np.ndarray
    n_clusters: int


def blobs(
    rng: Generator,
    sizes: np.ndarray,
    n_features: int,
    *,
    spread: float = 0.05,
    width: float = 1.0,
) -> np.ndarray:
    """Draw Gaussian clusters of given sizes; the centers are in [-width, width]^d."""
    centers = rng.uniform(-width, width, (len(sizes), n_features))
    means = np.repeat(centers, sizes, axis=0)
    noise = rng.standard_normal(means.shape)
    return means + spread * noise


def even(
    n_points: int,
    n_clusters: int,
) -> np.ndarray:
    """Return the sizes of clusters that are equally large."""
    return np.full(n_clusters, n_points // n_clusters)


def widen(
    rng: Generator,
    points: np.ndarray,
    factor: float,
    n_clusters: int,
) -> Data:
    """Give points public bounds that are wider than their range by a factor."""
    lower = points.min(axis=0)
    upper = points.max(axis=0)
    middle = (lower + upper) / 2
    widest = float((upper - lower).max())
    own_half = max(widest / 2, 1e-9)
    half = own_half * factor
    shifts = rng.uniform(-1, 1, len(middle))
    middle = middle + shifts * (half - own_half)
    bounds = np.array([middle - half, middle + half])
    return Data(points, bounds, n_clusters)


def plain(
    rng: Generator,
    factor: float,
) -> Data:
    """Draw ten clusters in two to sixteen columns, 5,000 records."""
    d = rng.choice([2, 3, 5, 8, 16])
    sizes = even(5000, 10)
    points = blobs(rng, sizes, d, spread=0.1)
    return widen(rng, points, factor, 10)


def any_shape(
    rng: Generator,
    least_columns: int,
    most_columns: int,
) -> Data:
    """Draw columns, clusters, records, sizes, spread and bounds; no heavy tails."""
    d = int(rng.integers(least_columns, most_columns + 1))
    k = int(rng.choice([3, 10, 30]))
    n = int(10 ** rng.uniform(2.8, 4.7))
    shares = rng.dirichlet(np.full(k, 3.0))
    sizes = (n * shares).astype(int)
    sizes = np.maximum(sizes, 1)
    spread = rng.choice([0.02, 0.05, 0.1, 0.2])
    points = blobs(rng, sizes, d, spread=spread)
    factor = rng.choice([1.1, 3.0, 30.0])
    return widen(rng, points, factor, k)


def wide(
    rng: Generator,
    d: int,
) -> Data:
    """Draw few columns and records, with bounds 100 to 10,000 times too wide."""
    k = int(rng.integers(3, 9))
    n = int(k * rng.integers(150, 900))
    factor = float(10 ** rng.uniform(2, 4))
    sizes = even(n, k)
    points = blobs(rng, sizes, d)
    return widen(rng, points, factor, k)


def far_clusters(rng: Generator) -> Data:
    """Draw clusters of 1 % of the records far away, in four to eight columns."""
    d = int(rng.integers(4, 9))
    n = int(rng.choice([20_000, 60_000]))
    sizes = even(int(0.97 * n), 4)
    main = blobs(rng, sizes, d, spread=0.1)
    few = even(int(0.03 * n), 3)
    far = blobs(rng, few, d, spread=0.1, width=10.0)
    points = np.concatenate([main, far])
    return widen(rng, points, 1.1, 7)


def far_rows(rng: Generator) -> Data:
    """Draw 1 % of the rows 20 times as far as the clusters."""
    d = int(rng.integers(3, 9))
    n = 20_000
    sizes = even(n - 200, 8)
    main = blobs(rng, sizes, d, spread=0.1)
    far = rng.standard_normal((200, d))
    lengths = np.linalg.norm(far, axis=1, keepdims=True)
    far *= 20 * math.sqrt(d / 3) / lengths
    points = np.concatenate([main, far])
    return widen(rng, points, 1.1, 8)


def many_columns(rng: Generator) -> Data:
    """Draw 16 clusters of 312 records in 64 columns."""
    sizes = even(4992, 16)
    points = blobs(rng, sizes, 64, spread=0.2)
    return widen(rng, points, 1.5, 16)


def skewed_sizes(rng: Generator) -> Data:
    """Draw sizes from 1 to 100 in five columns."""
    sizes = np.geomspace(60, 6000, 8).astype(int)
    points = blobs(rng, sizes, 5, spread=0.1)
    return widen(rng, points, 1.5, 8)


def all_sizes(rng: Generator) -> Data:
    """Draw sizes from 8 to 4,000, each 1.3 times the one before.

    Which of these clusters get a center shows the detection limit.
    """
    d = int(2 ** rng.uniform(1, 5))
    sizes = np.geomspace(8, 4000, 24).astype(int)
    points = blobs(rng, sizes, d, spread=0.02)
    return widen(rng, points, 1.5, 24)


def starved(rng: Generator) -> Data:
    """Draw 50 clusters of 20 records in 32 columns."""
    sizes = even(1000, 50)
    points = blobs(rng, sizes, 32, spread=0.2)
    return widen(rng, points, 1.5, 50)


def wide_columns(rng: Generator) -> Data:
    """Draw 1,500 records in many columns, with bounds 100 to 10,000 times too wide."""
    d = rng.choice([16, 32, 64])
    factor = float(10 ** rng.uniform(2, 4))
    sizes = even(1500, 5)
    points = blobs(rng, sizes, d, spread=0.2)
    return widen(rng, points, factor, 5)


def two_groups(rng: Generator) -> Data:
    """Draw two groups of 0.5 % far out on both sides, one to three columns."""
    d = int(rng.integers(1, 4))
    sizes = even(19_800, 3)
    main = blobs(rng, sizes, d)
    direction = rng.standard_normal(d)
    direction *= 30 / np.linalg.norm(direction)
    both_sides = [direction, -direction]
    groups = np.repeat(both_sides, 100, axis=0)
    noise = rng.standard_normal(groups.shape)
    groups += 0.05 * noise
    points = np.concatenate([main, groups])
    return widen(rng, points, 1.1, 5)


def anything(rng: Generator) -> Data:
    """Draw columns, clusters, sizes, shapes, tails, steps of values and bounds."""
    d = int(2 ** rng.uniform(0, 6))
    k = int(2 ** rng.uniform(1, 5))
    n = int(10 ** rng.uniform(3, 4.7))
    evenness = rng.choice([0.5, 2.0, 50.0])
    shares = rng.dirichlet(np.full(k, evenness))
    sizes = (n * shares).astype(int)
    sizes = np.maximum(sizes, 1)
    spread = rng.choice([0.05, 0.1, 0.3])
    points = blobs(rng, sizes, d, spread=spread)
    shape = rng.choice(SHAPES)
    if shape == "stretched":
        directions = rng.standard_normal((d, d))
        points = points @ directions / math.sqrt(d)
    elif shape == "skewed":
        points = np.exp(points)
    elif shape == "tails":
        lengths = rng.pareto(2.5, (len(points), 1))
        points *= 1 + lengths
    elif shape == "integers":
        points = np.rint(5 * points)
    factor = float(10 ** rng.uniform(0.1, 4))
    return widen(rng, points, factor, k)


FAMILIES: dict[str, Callable[[Generator], Data]] = {
    "few_columns": lambda rng: any_shape(rng, 1, 4),
    "more_columns": lambda rng: any_shape(rng, 4, 32),
    "plain2": lambda rng: plain(rng, 2.0),
    "plain10": lambda rng: plain(rng, 10.0),
    "wide2": lambda rng: wide(rng, 2),
    "wide3": lambda rng: wide(rng, 3),
    "far_clusters": far_clusters,
    "far_rows": far_rows,
    "many_columns": many_columns,
    "skewed_sizes": skewed_sizes,
    "all_sizes": all_sizes,
    "starved": starved,
    "wide_columns": wide_columns,
    "two_groups": two_groups,
    "anything": anything,
}


def published(name: str) -> Data:
    """Return a data set of the registry in its public bounds."""
    dataset = load(name)
    return Data(dataset.points, dataset.domain, dataset.n_clusters)


def cost(
    points: np.ndarray,
    centers: np.ndarray,
) -> float:
    """Compute the sum of squared distances to the nearest center."""
    total = 0.0
    n_blocks = max(1, len(points) // 4096)
    for block in np.array_split(points, n_blocks):
        squares = cdist(block, centers, "sqeuclidean")
        total += float(squares.min(axis=1).sum())
    return total


def fit_reference(
    points: np.ndarray,
    n_clusters: int,
    n_init: int = 5,
) -> tuple[KMeans, float]:
    """Fit the best of some k-means, and compute its cost."""
    reference = KMeans(n_clusters, n_init=n_init, random_state=0).fit(points)
    return reference, cost(points, reference.cluster_centers_)


def largest_missed(
    points: np.ndarray,
    reference: KMeans,
    centers: np.ndarray,
) -> int:
    """Return the size of the largest cluster that lies apart and has no center, or 0.

    A cluster of the reference lies apart if the next one is more than eight standard
    deviations away. It has a center if one is nearer than half of that distance.
    """
    own = reference.cluster_centers_
    labels = reference.labels_
    sizes = np.bincount(labels, minlength=len(own))
    squares = np.square(points - own[labels]).sum(axis=1)
    inertias = np.bincount(labels, squares, len(own))
    deviations = np.sqrt(inertias / sizes)
    between = np.sort(cdist(own, own), axis=1)
    distances = between[:, 1]
    nearest = cdist(own, centers).min(axis=1)
    is_apart = distances > 8 * deviations
    is_far = nearest >= distances / 2
    missed = sizes[is_apart & is_far]
    return int(missed.max(initial=0))


def measure(
    family: str,
    numbers: range,
    epsilons: Sequence[float],
    n_seeds: int,
    ablations: Sequence[str],
    method: type[PrivateKMeans] = SynopsisKMeans,
) -> Iterator[dict[str, float | str]]:
    """Yield costs of fits, and of the mean, over that of the best of five k-means."""
    for number in numbers:
        rng = np.random.default_rng([number, *family.encode()])
        draw = FAMILIES.get(family)
        data = draw(rng) if draw else published(family)
        points = data.points
        reference, best_cost = fit_reference(points, data.n_clusters)
        mean = points.mean(axis=0, keepdims=True)
        mean_ratio = cost(points, mean) / best_cost
        for ablation in ["", *ablations]:
            with replaced_constant(ablation):
                for epsilon, seed in itertools.product(epsilons, range(n_seeds)):
                    model = method(
                        n_clusters=data.n_clusters,
                        epsilon=epsilon,
                        bounds=tuple(data.bounds),
                        clip=True,
                        random_state=seed,
                    )
                    centers = model.fit(points).cluster_centers_
                    yield {
                        "family": family,
                        "set": number,
                        "n": len(points),
                        "d": points.shape[1],
                        "k": data.n_clusters,
                        "ablation": ablation,
                        "epsilon": epsilon,
                        "ratio": cost(points, centers) / best_cost,
                        "mean": mean_ratio,
                        "missed": largest_missed(points, reference, centers),
                    }


@contextmanager
def replaced_constant(assignment: str) -> Iterator[None]:
    """Replace a constant for a while, or the default of a method's parameter.

    It is ``module.NAME=number``, or ``module.Method.parameter=number``.
    """
    if not assignment:
        yield
        return
    path, _, value = assignment.partition("=")
    path, _, name = path.rpartition(".")
    home = pydoc.locate(path)
    values = getattr(getattr(home, "__init__", None), "__kwdefaults__", None)
    if isinstance(home, ModuleType):
        values = vars(home)
    if values is None or name not in values:
        raise SystemExit(f"--ablate {assignment}: {path} has no constant {name}")
    kept = values[name]
    values[name] = type(kept)(float(value))
    try:
        yield
    finally:
        values[name] = kept


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarize the logarithms of ratios over the seeds of each data set."""
    logs = rows.assign(
        ratio=np.log(rows["ratio"]),
        mean=np.log(rows["mean"]),
    )
    keys = ["ablation", "family", "set", "epsilon"]
    sets = logs.groupby(keys, sort=False)
    return pd.DataFrame(
        {
            "median": sets["ratio"].median(),
            "p90": sets["ratio"].quantile(0.9),
            "mean only": sets["mean"].first(),
        }
    )


def compare(sets: pd.DataFrame) -> pd.DataFrame:
    """Compare costs of ablations with those of the constants in use."""
    medians = sets["median"].unstack("ablation", sort=False)
    others = medians.drop(columns="")
    changes = others.sub(medians[""], axis=0)
    by_epsilon = changes.groupby("epsilon").mean()
    by_epsilon = np.exp(by_epsilon).T
    by_family = changes.groupby("family").mean()
    by_family = np.exp(by_family)
    return by_epsilon.assign(
        mean=np.exp(changes.mean()),
        best_family=by_family.min(),
        worst_family=by_family.max(),
        of=by_family.idxmax(),
    )


def main() -> None:
    """Print geometric means over the sets of a family."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "families",
        nargs="*",
        default=list(FAMILIES),
        help="families, or data sets of the registry",
    )
    numbers = {
        "--sets": (5, "data sets of a family"),
        "--seeds": (5, "fits of a data set"),
        "--first": (0, "number of the first set"),
    }
    for name, (default, text) in numbers.items():
        parser.add_argument(name, type=int, default=default, help=text)
    parser.add_argument(
        "--epsilon",
        type=float,
        nargs="+",
        default=EPSILONS,
    )
    parser.add_argument(
        "--ablate",
        action="append",
        default=[],
        help="a constant's other value, or that of a parameter's default",
    )
    parser.add_argument("--method", default="SynopsisKMeans", help="a class of methods")
    parser.add_argument("--rows", help="write all ratios to this CSV file")
    options = parser.parse_args()
    # Seeds make a table repeatable. The points are generated: they need no privacy.
    warnings.simplefilter("ignore", RepeatableNoiseWarning)
    chosen = range(options.first, options.first + options.sets)
    method = getattr(pkm.methods, options.method)
    settings = options.epsilon, options.seeds, options.ablate, method
    rows = pd.DataFrame(
        row for family in options.families for row in measure(family, chosen, *settings)
    )
    if options.rows:
        rows.to_csv(options.rows, index=False)
    sets = summarize(rows)
    in_use = sets.loc[""].groupby(["family", "epsilon"], sort=False)
    means = np.exp(in_use.mean()).unstack("epsilon")
    print(means.round(3).to_string())
    if options.ablate:
        ablated = compare(sets)
        print(ablated.round(3).to_string())


if __name__ == "__main__":
    main()
