"""From a paper's sweeps and a profile to cells and gaps, and what running them would cost."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import pandas as pd
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from pkm import datasets
from pkm.datasets.dataset import shared_range
from pkm.datasets.loading import resolve
from pkm.experiments.backends import Backend, duration, limit_of
from pkm.experiments.cell import STYLE, Cell, require, to_hashable
from pkm.experiments.configuration import ConfigurationError, method_entry, unknown
from pkm.experiments.federated import network_of
from pkm.experiments.prepared import accepts, build, method_class, prepare, presets
from pkm.experiments.removals import check_unlearning
from pkm.experiments.store import Store
from pkm.federation import mpi_available
from pkm.federation.parties import check_schedule
from pkm.methods.base import is_integer
from pkm.metrics import METRICS

SWEEP_KEYS = (
    "datasets", "methods", "preprocessing", "clip", "metrics", "epsilon", "delta", "k", "seeds", "timing", "time_limit",
    "federation", "unlearning",
)  # fmt: skip
#: What a sweep with `federation` has there unless it says otherwise; any of it may be a list.
FEDERATION = {
    "clients": 2,
    "latency_ms": 0.0,
    "word_bytes": 8,
    "split": "balanced",
    "transport": "auto",
}
#: The same for `unlearning`.
UNLEARNING = {
    "clients": 100, "split": "noniid", "clusters_per_client": 3, "split_seed": 0, "removals": 0, "batch": 1,
    "requests": "random", "sparse": False,
}  # fmt: skip

#: The rough model of a cell's seconds: a fixed part, then operations over rates measured on an ordinary core.
SECONDS_PER_CELL = 0.01
DISTANCE_RATE = 5e10
PAIR_RATE = 2e9
#: What a method that runs seed by seed takes for each: a fixed part, and how many times the work of batched iterations.
SECONDS_PER_FIT, FIT_FACTOR = 0.1, 20
#: What every party costs that is a process of its own, and the most iterations that a paper's rule asks for.
SECONDS_PER_PROCESS = 1.5
MAX_ITERATIONS = 7
#: What federated clustering costs for each seed, and each request to remove points, with what is measured beside it.
SECONDS_PER_MODEL, SECONDS_PER_REQUEST = 0.3, 0.05
#: Families of generated data sets whose columns share one range by their recipe.
RANGED_FAMILIES = ("g2", "blobs")
#: How many stored cells are read for their timings.
TIMINGS_READ = 2000
#: How many names a printed line spells out.
NAMES_SHOWN = 10


@dataclass(frozen=True)
class Gap:
    """Something a sweep asks for and does not get, with the reason in words."""

    sweep: str
    method: str
    dataset: str
    epsilon: float | None
    reason: str


@dataclass(frozen=True)
class Substitution:
    """A data set that is not at hand and the one that takes its place.

    Parameters
    ----------
    sweep : str
        Which sweep asks for it.
    dataset, stand_in : str
        The name asked for and the name used.
    family : str
        In one line, which data sets are replaced by which: the patterns that gave both names.
    """

    sweep: str
    dataset: str
    stand_in: str
    family: str


@dataclass(frozen=True)
class Plan:
    """What is to be run for a paper: cells by sweep, and what cannot be run here.

    Parameters
    ----------
    paper : str
        Name of the paper.
    entries : tuple of (str, Cell)
        Sweep and cell; a cell that several sweeps ask for appears once in each.
    gaps : tuple of Gap
        What is left out and why.
    substitutions : tuple of Substitution
        Data sets in whose place others are used; nothing is lacking because of them.
    """

    paper: str
    entries: tuple[tuple[str, Cell], ...]
    gaps: tuple[Gap, ...] = ()
    substitutions: tuple[Substitution, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """The distinct cells, in the order of the sweeps."""
        return list({cell.key: cell for _, cell in self.entries}.values())

    @property
    def sweeps(self) -> list[str]:
        """The sweeps that have cells or gaps, in their order."""
        return list(
            dict.fromkeys([sweep for sweep, _ in self.entries] + [gap.sweep for gap in self.gaps])
        )

    def rows(self, store: Store) -> pd.DataFrame:
        """Read the finished cells.

        Parameters
        ----------
        store : Store
            Where they are.

        Returns
        -------
        DataFrame
            Rows of every finished cell, once per sweep that asks for it, with the column ``sweep``. Data sets have the
            names of this plan: files of equal content share a cell, stored under the name of the first one run.
        """
        rows = store.read([cell.key for cell in self.cells])
        if rows.empty:
            return rows
        asked = [(sweep, cell.key, cell.dataset_name) for sweep, cell in self.entries]
        wanted = pd.DataFrame(asked, columns=["sweep", "cell", "dataset"]).drop_duplicates()
        named = wanted.merge(rows.drop(columns="dataset"), on="cell", how="inner", sort=False)
        return named[["sweep", *rows.columns]]

    def missing(self, store: Store) -> pd.DataFrame:
        """List what a report cannot show.

        Returns
        -------
        DataFrame
            Columns sweep, method, dataset, epsilon (NaN where there is none), reason: the plan's gaps, failed cells
            with their error, cells not run.
        """
        gaps = list(self.gaps)
        for sweep, cell in self.entries:
            status = store.status(cell.key)
            if status != "done":
                error = store.failure_record(cell.key).get("error", "unreadable failure record")
                reason = f"failed: {error}" if status == "failed" else "not run"
                gaps.append(Gap(sweep, cell.method, cell.dataset_name, cell.epsilon, reason))
        table = pd.DataFrame(
            [asdict(gap) for gap in gaps],
            columns=["sweep", "method", "dataset", "epsilon", "reason"],
        )
        return table.astype({"epsilon": float})


def make_plan(paper: Mapping, profile: Mapping, *, mirror: str | None = None) -> Plan:
    """Expand the sweeps of a paper, at the size of a profile, to cells.

    Parameters
    ----------
    paper : mapping
        As in ``conf/paper``: name, sweeps, defaults for the sweeps, and what profiles change.
    profile : mapping
        As in ``conf/profile``: name and seeds.
    mirror : str, optional
        Folder with the original data files.

    Returns
    -------
    Plan
        Data sets and methods that are not at hand become gaps; the rest goes on.

    Raises
    ------
    ConfigurationError
        If the configuration itself is wrong: an unknown name, a parameter the method does not have, a value that breaks
        its rule. Also if a data file at hand is damaged.
    """
    entries: list[tuple[str, Cell]] = []
    gaps: list[Gap] = []
    substitutions: list[Substitution] = []
    for sweep, spec in sized_sweeps(paper, profile).items():
        try:
            found, lacking, replaced = sweep_cells(sweep, spec, mirror)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(f"{paper['name']}, sweep {sweep}: {error}") from error
        entries += [(sweep, cell) for cell in found]
        gaps += lacking
        substitutions += replaced
    return Plan(paper["name"], tuple(entries), tuple(gaps), tuple(substitutions))


def sized_sweeps(paper: Mapping, profile: Mapping) -> dict[str, dict]:
    """Return a paper's sweeps with the paper's defaults filled in and the profile's changes made.

    A sweep that the profile does not name stays as the paper has it; one that the profile sets to null is left out.

    Raises
    ------
    ConfigurationError
        If the profile changes a sweep that does not exist, or a sweep has a key that nothing reads.
    """
    paper = (
        OmegaConf.to_container(paper, resolve=True) if OmegaConf.is_config(paper) else dict(paper)
    )
    sweeps = paper["sweeps"]
    changes = (paper.get("profiles") or {}).get(profile["name"]) or {}
    strangers = sorted(set(changes) - set(sweeps))
    if strangers:
        raise ConfigurationError(
            unknown(f"profile {profile['name']}: sweep", strangers[0], list(sweeps))
        )
    general = {key: paper[key] for key in SWEEP_KEYS if key in paper} | {"seeds": profile["seeds"]}
    sized = {}
    for name, own in sweeps.items():
        if own is None or (name in changes and changes[name] is None):
            continue
        spec = general | own | (changes.get(name) or {})
        strange = sorted(set(spec) - set(SWEEP_KEYS))
        if strange:
            raise ConfigurationError(unknown(f"sweep {name}: key", strange[0], SWEEP_KEYS))
        sized[name] = spec
    return sized


def sweep_cells(
    sweep: str, spec: Mapping, mirror: str | None
) -> tuple[list[Cell], list[Gap], list[Substitution]]:
    """Expand one sweep.

    Returns
    -------
    cells : list of Cell
    gaps : list of Gap
    substitutions : list of Substitution

    Raises
    ------
    ValueError
        If a name is unknown or a value breaks its rule.
    """
    metrics = known_metrics(spec.get("metrics", ["nicv"]))
    chosen = {
        "clip": spec.get("clip", True),
        "timing": spec.get("timing", False),
        "time_limit": spec.get("time_limit"),
    }
    seeds, epsilons, ks = (
        seed_list(spec["seeds"]),
        as_list(spec.get("epsilon", [1.0])),
        as_list(spec.get("k")),
    )
    sources, methods = dataset_entries(spec["datasets"]), method_entries(spec["methods"])
    kinds = [
        {"federation": federation, "unlearning": unlearning}
        for federation in federation_entries(spec.get("federation"))
        for unlearning in crossed("unlearning", spec.get("unlearning"), UNLEARNING)
    ]
    if not (sources and methods and epsilons and ks and kinds):
        raise ConfigurationError(
            "a sweep needs at least one data set, one method, one epsilon, one k (or null) and one value of each key "
            "of federation and unlearning (or none at all)"
        )
    # Checked here because a method without epsilon would let a wrong one pass unseen.
    for epsilon, kind in itertools.product(epsilons, kinds):
        given = chosen | kind
        Cell(
            "check",
            "",
            (),
            "check",
            "",
            1,
            epsilon,
            spec.get("delta", "auto"),
            seeds,
            metrics,
            **given,
        )
    cells, gaps, substitutions = [], [], []
    for source in sources:
        preprocessing = preprocessing_of(source, spec.get("preprocessing"))
        reason = obtainable(source["name"], source["path"], mirror)
        if reason and source["otherwise"]:
            substitutions.append(
                Substitution(sweep, source["name"], source["otherwise"], source["family"])
            )
            source = source | {"name": source["otherwise"]}
            reason = obtainable(source["name"], None, mirror)
        facts = None if reason else facts_of(source["name"], source["path"])
        if facts and None in ks and facts.k is None:
            raise ValueError(
                f"k=None is not allowed: data set {source['name']!r} has no number of its own, give k=..."
            )
        if facts and ks != [None] and facts.n is None:
            facts = replace(facts, n=drawn_points(source["name"]))
        for entry in methods:
            name = entry["name"] or entry["_target_"].rpartition(".")[2].lower()
            try:
                found, lacking = method_class(entry["_target_"]), reason
                target = f"{found.__module__}.{found.__qualname__}"
                private = accepts(target, "epsilon")
            except ValueError as error:
                private, lacking = True, str(error)
            for k, epsilon, kind in itertools.product(ks, epsilons if private else [None], kinds):
                label = source["name"] if source["path"] is None else source["path"]
                if lacks := lacking or transport_lacking(kind["federation"]):
                    gaps.append(Gap(sweep, name, label, epsilon, lacks))
                    continue
                cell = Cell(
                    method=name,
                    target=target,
                    params=to_hashable(
                        {
                            key: value
                            for key, value in entry.items()
                            if key not in ("name", "_target_", *STYLE)
                        }
                    ),
                    dataset=source["name"],
                    preprocessing=preprocessing,
                    k=facts.k if k is None else k,
                    epsilon=None if epsilon is None else float(epsilon),
                    delta=spec.get("delta", "auto") if accepts(target, "delta") else None,
                    seeds=seeds,
                    metrics=metrics,
                    path=source["path"],
                    bounds=to_hashable(source["bounds"]),
                    style=to_hashable({key: entry[key] for key in STYLE if key in entry}),
                    **kind,
                    **chosen,
                )
                check(cell, facts, mirror)
                cells.append(cell)
    return list(dict.fromkeys(cells)), gaps, substitutions


def preprocessing_of(source: Mapping, asked: str | None) -> str:
    """Return how a data set is scaled: as asked, else ``public`` where bounds are given with it, else ``minmax``.

    Raises
    ------
    ConfigurationError
        If `asked` is unknown, or is one that would pass over the bounds given.
    """
    if asked not in (None, *datasets.PREPROCESSING):
        raise ConfigurationError(unknown("preprocessing", asked, datasets.PREPROCESSING))
    given = source["bounds"] is not None
    if given and asked == "minmax":
        raise ConfigurationError(
            f"bounds={source['bounds']!r} is not allowed with preprocessing='minmax', which scales by the data's own "
            "extremes: use preprocessing=public, or leave bounds out"
        )
    return asked or ("public" if given else "minmax")


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before it is loaded; None where it is not."""

    n: int | None
    d: int | None
    k: int | None


@lru_cache(maxsize=4096)
def facts_of(dataset: str, path: str | None = None) -> Facts:
    """Return shape and default number of clusters of a data set; those of a file are read from it."""
    known = resolve(dataset)
    declared = known.entry or known.recipe
    if declared is not None:
        return Facts(declared.n or None, declared.d, declared.n_clusters)
    n, d = datasets.load(dataset, path=path).points.shape
    return Facts(n, d, None)


@lru_cache(maxsize=4096)
def drawn_points(dataset: str) -> int:
    """Return the number of points of a generated data set whose sizes are drawn with its points."""
    return len(datasets.load(dataset).points)


@lru_cache(maxsize=4096)
def obtainable(dataset: str, path: str | None, mirror: str | None) -> str | None:
    """Ask, once per process, whether a data set can be had without the network; see `datasets.obtainable`."""
    return datasets.obtainable(dataset, mirror=mirror, path=path)


def check(cell: Cell, facts: Facts, mirror: str | None) -> None:
    """Refuse a cell that cannot succeed, as far as that can be told before running it.

    Raises
    ------
    ValueError
        If k exceeds the number of points, the method refuses its parameters, a file's content does not fit, a data set
        has no range that all columns share and is to be scaled by it, points lie outside a domain that may not clip
        them, or the method cannot be run as a protocol with words of that size.
    """
    if facts.n is not None and cell.k > facts.n:
        raise ValueError(
            f"k={cell.k} is not allowed: k must be at most n={facts.n}, the points of {cell.dataset_name}"
        )
    if cell.unlearning is not None:
        check_unlearning(cell, facts.n)
    else:
        method = build(cell)
        through = hasattr(method, "fit_with")
        require(
            through,
            "method",
            cell.method,
            "one that asks a curator; this one needs the sweep's key unlearning",
        )
        method.check_parameters(facts.n)
    if cell.federation is not None and None not in (facts.n, facts.d):
        check_schedule(method, facts.n, facts.d, network_of(cell))
    unclipped = cell.preprocessing != "minmax" and not cell.clip
    ranged = cell.preprocessing == "range" and not has_common_range(cell.dataset)
    if cell.dataset == "file" or unclipped or ranged:
        prepare(cell, mirror)


@lru_cache(maxsize=4096)
def has_common_range(dataset: str) -> bool:
    """Tell whether it is known without the points of a data set that all its columns share one range."""
    known = resolve(dataset)
    if known.family is not None:
        return known.family.name in RANGED_FAMILIES
    entry = known.entry
    return entry is not None and (
        entry.common_range is not None or shared_range(entry.domain()) is not None
    )


def as_list(value) -> list:
    """Return a list as it is and anything else as the only item of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def seed_list(seeds) -> tuple:
    """Turn a number of seeds, or a list of them, into the tuple of seeds.

    Raises
    ------
    ValueError
        If the number is below one. (A list is checked by `Cell`.)

    Examples
    --------
    >>> seed_list(3), seed_list([7, 9])
    ((0, 1, 2), (7, 9))
    """
    if isinstance(seeds, list | tuple):
        return tuple(seeds)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise ValueError(
            f"seeds={seeds!r} is not allowed: seeds must be a number of at least 1 or a list of seeds"
        )
    return tuple(range(seeds))


def known_metrics(names) -> tuple[str, ...]:
    """Return metric names as a tuple without repetition.

    Raises
    ------
    ConfigurationError
        If a name is unknown; the known ones are listed.
    """
    names = tuple(dict.fromkeys(as_list(names)))
    for name in names:
        if name not in METRICS:
            raise ConfigurationError(unknown("metric", name, METRICS))
    return names


def dataset_entries(specs: Sequence) -> list[dict]:
    """Expand the data sets of a sweep: names, patterns, and mappings with name, path and bounds.

    A pattern may name, under ``otherwise``, the pattern of a data set that takes its place where it is not at hand.

    Raises
    ------
    ConfigurationError
        If a pattern's places and values do not fit.

    Examples
    --------
    >>> [entry["name"] for entry in dataset_entries(["iris", {"pattern": "g2-{d}-{sd}", "d": [2, 4], "sd": [10]}])]
    ['iris', 'g2-2-10', 'g2-4-10']
    """
    entries = []
    for spec in specs:
        if isinstance(spec, str):
            entries.append({"name": spec})
        elif "pattern" in spec:
            texts = {"name": spec["pattern"], "otherwise": spec.get("otherwise") or ""}
            family = {"family": " as ".join(text for text in texts.values() if text)}
            places = {
                name: as_list(values)
                for name, values in spec.items()
                if name not in ("pattern", "otherwise")
            }
            for values in itertools.product(*places.values()):
                chosen = dict(zip(places, values, strict=True))
                try:
                    entries.append(
                        family | {field: text.format(**chosen) for field, text in texts.items()}
                    )
                except (KeyError, IndexError) as error:
                    rule = f"pattern {spec['pattern']!r} has a place without values: {error}"
                    raise ConfigurationError(rule) from error
        else:
            entries.append(dict(spec))
    return [
        {"path": None, "bounds": None, "otherwise": None, "family": entry["name"]} | entry
        for entry in entries
    ]


def method_entries(specs: Sequence) -> list[dict]:
    """Expand the methods of a sweep: files of ``conf/method``, grids over their parameters, or whole entries.

    Raises
    ------
    ConfigurationError
        If a method is unknown; the known ones are listed.

    Examples
    --------
    >>> [entry["alpha"] for entry in method_entries([{"method": "fastlloyd", "grid": {"alpha": [0.4, 0.8]}}])]
    [0.4, 0.8]
    """
    entries = []
    for spec in specs:
        if isinstance(spec, str):
            entries.append(method_entry(spec))
        elif "_target_" in spec:
            entries.append(dict(spec))
        else:
            grid = {name: as_list(values) for name, values in spec.get("grid", {}).items()}
            for values in itertools.product(*grid.values()):
                entries.append(method_entry(spec["method"]) | dict(zip(grid, values, strict=True)))
    return entries


def federation_entries(spec) -> list[tuple | None]:
    """Expand the `federation` of a sweep: every combination of its lists, or None alone for a sweep without it.

    Raises
    ------
    ConfigurationError
        If it has a key that nothing reads.
    ValueError
        If it is no mapping.

    Examples
    --------
    >>> [dict(entry)["clients"] for entry in federation_entries({"clients": [2, 4]})]
    [2, 4]
    """
    at_hand = "mpi" if mpi_available() else "threads"
    return [
        entry
        and to_hashable({name: at_hand if value == "auto" else value for name, value in entry})
        for entry in crossed("federation", spec, FEDERATION)
    ]


def crossed(key: str, spec, presets: Mapping) -> list[tuple | None]:
    """Expand a sweep's key that is a mapping of lists: every combination, or None alone for a sweep without it.

    Raises
    ------
    ConfigurationError
        If it has a key that nothing reads.
    ValueError
        If it is no mapping.
    """
    if spec is None:
        return [None]
    require(isinstance(spec, Mapping), key, spec, f"null or a mapping of {', '.join(presets)}")
    strange = sorted(set(spec) - set(presets))
    if strange:
        raise ConfigurationError(unknown(f"{key}: key", strange[0], list(presets)))
    lists = {name: as_list(value) for name, value in (presets | spec).items()}
    return [
        to_hashable(dict(zip(lists, values, strict=True)))
        for values in itertools.product(*lists.values())
    ]


def transport_lacking(federation: tuple | None) -> str | None:
    """Say what is lacking for parties to be processes of their own; None where nothing is, or they are threads."""
    processes = federation is not None and dict(federation)["transport"] == "mpi"
    return (
        "transport=mpi needs mpi4py and mpirun: make protocol"
        if processes and not mpi_available()
        else None
    )


def rough_seconds(cell: Cell) -> float:
    """Estimate a cell's seconds without any measurement.

    A fixed part, the distances from points to centers in seven iterations of every seed, and for the silhouette the
    distances among at most 10,000 points and their sums for every seed, each over a rate of an ordinary core. Methods
    that grow trees or collect candidates for one seed after the other take longer, by a factor that is right to an
    order of magnitude. A timing cell makes one fit more.
    """
    facts = facts_of(cell.dataset, cell.path)
    n, d, fits = facts.n or 2048, facts.d or 2, len(cell.seeds) + cell.timing
    per_center = 7 * n * (2 * d + 2) / DISTANCE_RATE
    seconds = fixed_seconds(cell) + fits * most_centers(cell) * per_center
    if not getattr(method_class(cell.target), "batched", True):
        seconds += fits * (SECONDS_PER_FIT + FIT_FACTOR * cell.k * per_center)
    if "silhouette" in cell.metrics:
        seconds += min(n, 10_000) ** 2 * (2 * d / DISTANCE_RATE + len(cell.seeds) / PAIR_RATE)
    if cell.federation is not None:
        seconds += fits * MAX_ITERATIONS * 2 * dict(cell.federation)["latency_ms"] / 1000
    if cell.unlearning is not None:
        seconds += len(cell.seeds) * (
            SECONDS_PER_MODEL + SECONDS_PER_REQUEST * dict(cell.unlearning)["removals"]
        )
    return seconds


def fixed_seconds(cell: Cell) -> float:
    """Estimate the seconds that a cell takes whatever its work: more where its parties are processes to be started."""
    setting = dict(cell.federation or ())
    processes = setting["clients"] + 1 if setting.get("transport") == "mpi" else 0
    return SECONDS_PER_CELL + SECONDS_PER_PROCESS * processes


def most_centers(cell: Cell) -> int:
    """Return how many centers a cell's method may release: k, or all leaves of a tree that is not merged to k."""
    values = presets(cell.target) | dict(cell.params)
    return (
        2 ** values["depth"]
        if values.get("merge") is False and is_integer(values.get("depth"))
        else cell.k
    )


def wall_seconds(costs: Mapping[str, float], cells: Iterable[Cell], jobs: int) -> float:
    """Estimate how long cells take together: those that measure running time one by one, the others side by side."""
    times = {False: 0.0, True: 0.0}
    for cell in cells:
        times[cell.timing] += costs[cell.key]
    return times[False] / jobs + times[True]


def estimator(store: Store, backend: Backend | None = None):
    """Make the function that estimates a cell's seconds: from stored cells like it, else by the rough model.

    Alike are cells of the same method, data set, k and metrics, timed or not, with the same parties and latency,
    whatever their budget, parameters or code version; their time is scaled to the number of seeds. Only the newest
    cells are looked at. No cell takes longer than its time limit.

    Parameters
    ----------
    store : Store
        Where timings are looked for.
    backend : Backend, optional
        Whose time limit holds for cells that have none of their own.

    Returns
    -------
    callable
        Cell to (seconds, whether measured).
    """
    backend = backend or Backend()
    alike = [
        "method",
        "dataset",
        "k",
        "metrics_asked",
        "timing",
        "clients",
        "latency_ms",
        "transport",
    ]
    rows = store.read(store.keys()[:TIMINGS_READ], [*alike, "fit_seconds", "metric_seconds"])
    measured = {}
    if not rows.empty:
        rows["seconds"] = rows["fit_seconds"] + rows["metric_seconds"]
        # Results of older versions do not say whether they were timed, or run as a protocol; they were not.
        for name, value in {
            "timing": False,
            "clients": 0,
            "latency_ms": 0.0,
            "transport": "",
        }.items():
            rows[name] = rows[name].where(rows[name].notna(), value) if name in rows else value
        measured = rows.groupby(alike)["seconds"].median().to_dict()

    def estimate(cell: Cell) -> tuple[float, bool]:
        setting = {"clients": 0, "latency_ms": 0.0, "transport": ""} | dict(cell.federation or ())
        parties = (setting["clients"], setting["latency_ms"], setting["transport"])
        found = measured.get(
            (cell.method, cell.dataset_name, cell.k, " ".join(cell.metrics), cell.timing, *parties)
        )
        seconds = rough_seconds(cell)
        if found is not None:
            seconds = fixed_seconds(cell) + found * (len(cell.seeds) + cell.timing)
        limit = limit_of(cell, backend)
        return seconds if limit is None else min(seconds, limit), found is not None

    return estimate


def show(plan: Plan, store: Store, backend: Backend, console: Console) -> None:
    """Print a dry run: cells per sweep, what is stored already, what is lacking, and an estimate of the time.

    Parameters
    ----------
    plan : Plan
        What would be run.
    store : Store
        What has been run.
    backend : Backend
        Which the estimate is for.
    console : rich.console.Console
        Where to print.
    """
    estimate, jobs = estimator(store, backend), backend.jobs
    status = {cell.key: store.status(cell.key) for cell in plan.cells}
    table = Table(
        "sweep",
        "data sets",
        "methods",
        "cells",
        "stored",
        "failed",
        "gaps",
        "estimate",
        title=plan.paper,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    guessed, waiting = 0, {}
    for sweep in plan.sweeps:
        cells = [cell for name, cell in plan.entries if name == sweep]
        gaps = sum(gap.sweep == sweep for gap in plan.gaps)
        open_cells = [cell for cell in cells if status[cell.key] != "done"]
        seconds = 0.0
        for cell in open_cells:
            cost, known = estimate(cell)
            seconds += cost
            # A cell that two sweeps share is run, and counted in the total, once.
            if cell.key not in waiting:
                waiting[cell.key] = cost
                guessed += not known
        counts = Counter(status[cell.key] for cell in cells)
        table.add_row(
            sweep,
            str(len({cell.dataset_name for cell in cells})),
            str(len({cell.method for cell in cells})),
            str(len(cells)),
            str(counts["done"]),
            str(counts["failed"]),
            str(gaps),
            duration(seconds) if open_cells else "-",
        )
    console.print(table)
    show_lacking(plan, console)
    basis = f"{len(waiting) - guessed} cells from stored timings, {guessed} by the rough model"
    total = wall_seconds(waiting, [cell for cell in plan.cells if cell.key in waiting], jobs)
    console.print(
        f"{len(waiting)} of {len(status)} cells to run, about {duration(total)} with jobs={jobs} ({basis})"
    )


def show_lacking(plan: Plan, console: Console) -> None:
    """Print what a plan lacks, one line per reason, and what stands in for something else, one line per family."""
    for line in gap_lines(plan.gaps):
        console.print(f"gap: {line}", style="yellow", markup=False, soft_wrap=True)
    for line in stand_in_lines(plan.substitutions):
        console.print(f"stand-in: {line}", markup=False, soft_wrap=True)


def gap_lines(gaps: Iterable[Gap]) -> list[str]:
    """Describe gaps, one line for those whose reasons differ in the data set's name alone.

    Examples
    --------
    >>> gap_lines([Gap("one", "lloyd", name, None, f"no file {name}.txt") for name in ("g2-2-10", "g2-2-20")])
    ['g2-2-10, g2-2-20 (2 cells): no file NAME.txt']
    """
    groups: dict[str, list[Gap]] = {}
    for gap in gaps:
        groups.setdefault(gap.reason.replace(gap.dataset, "NAME"), []).append(gap)
    lines = []
    for common, group in groups.items():
        names = list(dict.fromkeys(gap.dataset for gap in group))
        reason = group[0].reason if len(names) == 1 else common
        lines.append(f"{listed(names)} ({len(group)} cells): {reason}")
    return lines


def stand_in_lines(substitutions: Iterable[Substitution]) -> list[str]:
    """Describe substitutions, one line per family.

    Examples
    --------
    >>> stand_in_lines([Substitution("g2", "g2-2-10", "g2-2-10-generated", "g2-{d}-{sd} as g2-{d}-{sd}-generated")])
    ['g2-{d}-{sd} as g2-{d}-{sd}-generated, because the file is not at hand: g2-2-10']
    """
    families: dict[str, dict[str, None]] = {}
    for found in substitutions:
        families.setdefault(found.family, {})[found.dataset] = None
    return [
        f"{family}, because the file is not at hand: {listed(list(names))}"
        for family, names in families.items()
    ]


def listed(names: Sequence[str]) -> str:
    """Join names, the first ones only where there are many.

    Examples
    --------
    >>> listed([str(number) for number in range(12)])
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
