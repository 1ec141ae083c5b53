"""Replay pairs of persons over all methods that serve them, as far as time goes.

Every method has the same share of the time, so that slow ones have fewer pairs. One
pair in four has a secret number of persons, one in four missing entries::

    python tools/studies/person_pairs.py --pairs 20000 --seconds 3600
"""

import argparse
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pkm.audit.pairs import Pair, add_missing, add_persons, draw_pairs
from pkm.audit.replay import Replay, replay
from pkm.audit.report import (
    EPSILONS,
    LARGE_SIZES,
    SMALL_SIZES,
    TOLERANCE,
    configure,
    draw_missing,
    draw_parameters,
    load_variants,
)
from pkm.methods import METHODS
from pkm.privacy import Adjacency

TYPICAL_SHAPE = (200, 3)
FIRST_SEED = 1 << 20  # tests have smaller ones


@dataclass
class Tally:
    """What the pairs of a method have shown.

    Attributes
    ----------
    seconds : float
        Of the processor.
    replays : list of Replay
        Without draws.
    above : list of str
        Pairs that cost more than was charged, or that tell data sets apart.
    """

    method: Any
    seconds: float = 0.0
    replays: list[Replay] = field(default_factory=list)
    above: list[str] = field(default_factory=list)

    def add(self, seed: int) -> None:
        """Replay one more pair."""
        start = time.process_time()
        method, pair = draw_case(self.method, seed)
        result = replay(method, pair, seed)
        if result.mismatch:
            self.above.append(f"{seed} {pair.name}: {result.mismatch}")
        self.above += [
            f"{seed} {pair.name}: {release.label} costs {release.ratio:.6g} charges"
            for release in result.realized
            if release.ratio > 1 + TOLERANCE and not release.flaw
        ]
        self.replays.append(replace(result, partitions=(), draws=()))
        self.seconds += time.process_time() - start

    def summarize(self) -> dict[str, Any]:
        """Return the row of the method in the table."""
        deltas = sum(result.delta for result in self.replays)
        losses = np.array([result.loss for result in self.replays])
        n_impossible = int(np.isinf(losses).sum())
        return {
            "method": type(self.method).__name__,
            "variant": self.method.variant,
            "pairs": len(self.replays),
            "refused": sum(result.refusal is not None for result in self.replays),
            "largest ratio": max(result.ratio for result in self.replays),
            "above": len(self.above),
            "impossible": n_impossible,
            "p": stats.poisson.sf(n_impossible - 1, deltas),
        }


def draw_case(method: Any, seed: int) -> tuple[Any, Pair]:
    """Draw parameters of a method, and two data sets that differ in a person."""
    rng = np.random.default_rng(seed)
    method = configure(
        method,
        epsilon=float(rng.choice(EPSILONS)),
        n_clusters=int(rng.integers(2, 5)),
    )
    if rng.random() < 0.25:
        method = hide_n(method)
    (pair,) = draw_pairs(
        Adjacency(method.claim.adjacency),
        1,
        seed,
        n_points=LARGE_SIZES if rng.random() < 0.1 else SMALL_SIZES,
        first=seed,
    )
    method = draw_parameters(method, pair.rows.shape, rng)
    persons = add_persons(pair, rng)
    while persons.groups is None:
        persons = add_persons(pair, rng)
    if rng.random() < 0.25:
        persons = add_missing(persons, rng)
        method = draw_missing(method, rng)
    return method, persons.reversed if rng.random() < 0.5 else persons


def hide_n(method: Any) -> Any:
    """Copy a method with a secret number of records, if it can."""
    hidden = configure(method, adjacency=str(Adjacency.ADD_REMOVE))
    try:
        hidden.check_parameters()
    except ValueError:
        return method
    return hidden


def list_methods() -> list[Any]:
    """List the variants of all methods that serve persons."""
    methods = []
    for name in METHODS:
        try:
            variants = load_variants(name)
        except ValueError:  # it claims no privacy
            continue
        methods += [
            variant
            for variant in variants
            if not variant.find_unweighted(*TYPICAL_SHAPE)
        ]
    return methods


def main() -> None:
    """Print a row for each method, and every pair above its charge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="seed of a pair")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tallies = [Tally(method) for method in list_methods()]
    start = time.process_time()
    for number in range(options.pairs):
        if time.process_time() - start > options.seconds:
            break
        least = min(tallies, key=lambda tally: tally.seconds)
        least.add(options.first + number)
    tried = [tally for tally in tallies if tally.replays]
    table = pd.DataFrame([tally.summarize() for tally in tried])
    print(table.to_string(index=False))
    above = [line for tally in tried for line in tally.above]
    print(f"{table['pairs'].sum()} pairs of persons, {len(above)} above their charge")
    print(*above, sep="\n")


if __name__ == "__main__":
    main()
