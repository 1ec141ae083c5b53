"""From a sweep of a paper to cells: every combination of its data sets, methods and budgets."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from omegaconf import OmegaConf

from pkm import datasets
from pkm.datasets.dataset import shared_range
from pkm.datasets.loading import resolve
from pkm.experiments.cell import (
    STYLE,
    Cell,
    require,
    require_budget,
    require_flag,
    require_kind,
    require_seeds,
    require_time_limit,
    to_hashable,
)
from pkm.experiments.configuration import ConfigurationError, method_entry, unknown
from pkm.experiments.federated import network_of
from pkm.experiments.prepared import accepts, build, method_class, prepare
from pkm.federation import mpi_available
from pkm.federation.parties import check_schedule
from pkm.metrics import METRICS

SWEEP_KEYS = (
    "datasets", "methods", "preprocessing", "clip", "metrics", "epsilon", "delta", "k", "seeds",
    "timing", "time_limit",
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
    "clients": 100, "split": "noniid", "clusters_per_client": 3, "split_seed": 0, "removals": 0,
    "batch": 1,
    "requests": "random", "sparse": False,
}  # fmt: skip

#: Families of generated data sets whose columns share one range by their recipe.
RANGED_FAMILIES = ("g2", "blobs")


@dataclass(frozen=True)
class Gap:
    """A cell that a sweep requests and that cannot be run, with the reason."""

    sweep: str
    method: str
    dataset: str
    epsilon: float | None
    reason: str


@dataclass(frozen=True)
class Substitution:
    """A data set that is not available and its substitute.

    Parameters
    ----------
    sweep : str
        Which sweep requests it.
    dataset, substitute : str
        The name requested and the name used.
    family : str
        In one line, which data sets are replaced by which: the patterns that gave both names.
    """

    sweep: str
    dataset: str
    substitute: str
    family: str


def sized_sweeps(paper: Mapping, profile: Mapping) -> dict[str, dict]:
    """Return a paper's sweeps with the paper's defaults filled in and the profile's changes made.

    A sweep that the profile does not name stays as the paper has it; one that the profile sets to
    null is left out.

    Raises
    ------
    ConfigurationError
        If the profile changes a sweep that does not exist, or a sweep has an unknown key.
    """
    paper = (
        OmegaConf.to_container(paper, resolve=True) if OmegaConf.is_config(paper) else dict(paper)
    )
    sweeps = paper["sweeps"]
    changes = (paper.get("profiles") or {}).get(profile["name"]) or {}
    unknown_sweeps = sorted(set(changes) - set(sweeps))
    if unknown_sweeps:
        raise ConfigurationError(
            unknown(f"profile {profile['name']}: sweep", unknown_sweeps[0], list(sweeps))
        )
    general = {key: paper[key] for key in SWEEP_KEYS if key in paper}
    general["seeds"] = profile["seeds"]
    sized = {}
    for name, declared in sweeps.items():
        if declared is None or (name in changes and changes[name] is None):
            continue
        spec = general | declared | (changes.get(name) or {})
        unknown_keys = sorted(set(spec) - set(SWEEP_KEYS))
        if unknown_keys:
            raise ConfigurationError(unknown(f"sweep {name}: key", unknown_keys[0], SWEEP_KEYS))
        sized[name] = spec
    return sized


@dataclass(frozen=True)
class Sweep:
    """A sweep of a paper, expanded along each of its axes and not yet crossed.

    Parameters
    ----------
    name : str
    sources : list of dict
        Data sets, from `dataset_entries`.
    methods : list of dict
        From `method_entries`.
    epsilons, ks : list
        A k may be None: the data set's own.
    kinds : list of dict
        `federation` and `unlearning` of a cell, either or both None.
    delta : float, "auto" or None
    preprocessing : str or None
    seeds, metrics : tuple
    settings : dict
        `clip`, `timing` and `time_limit` of all cells.
    """

    name: str
    sources: list[dict]
    methods: list[dict]
    epsilons: list
    ks: list
    kinds: list[dict]
    delta: float | str | None
    preprocessing: str | None
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    settings: dict


def read_sweep(name: str, spec: Mapping) -> Sweep:
    """Parse the keys of a sweep and check each of them.

    Raises
    ------
    ValueError
        If a name is unknown or a value breaks its rule, whether or not a method would use it.
    """
    sweep = Sweep(
        name,
        sources=dataset_entries(spec["datasets"]),
        methods=method_entries(spec["methods"]),
        epsilons=as_list(spec.get("epsilon", [1.0])),
        ks=as_list(spec.get("k")),
        kinds=[
            {"federation": federation, "unlearning": unlearning}
            for federation in federation_entries(spec.get("federation"))
            for unlearning in crossed("unlearning", spec.get("unlearning"), UNLEARNING)
        ],
        delta=spec.get("delta", "auto"),
        preprocessing=spec.get("preprocessing"),
        seeds=seed_list(spec["seeds"]),
        metrics=known_metrics(spec.get("metrics", ["nicv"])),
        settings={
            "clip": spec.get("clip", True),
            "timing": spec.get("timing", False),
            "time_limit": spec.get("time_limit"),
        },
    )
    if not (sweep.sources and sweep.methods and sweep.epsilons and sweep.ks and sweep.kinds):
        raise ConfigurationError(
            "a sweep needs at least one data set, one method, one epsilon, one k (or null) and one "
            "value of each key "
            "of federation and unlearning (or none at all)"
        )
    # A cell checks its values, but a cell of a method without epsilon has none to check.
    for setting in ("clip", "timing"):
        require_flag(setting, sweep.settings[setting])
    require_time_limit(sweep.settings["time_limit"])
    for epsilon in sweep.epsilons:
        require_budget(epsilon, sweep.delta)
    require_seeds(sweep.seeds)
    for kind in sweep.kinds:
        require_kind(sweep.settings["timing"], **kind)
    return sweep


def sweep_cells(
    name: str, spec: Mapping, mirror: str | None
) -> tuple[list[Cell], list[Gap], list[Substitution]]:
    """Expand a sweep: every data set with every method at every k and epsilon.

    Parameters
    ----------
    name : str
        Of the sweep.
    spec : mapping
        Its keys, defaults filled in; see `sized_sweeps`.
    mirror : str or None
        Folder with the original data files.

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
    sweep = read_sweep(name, spec)
    methods = [find_method(entry) for entry in sweep.methods]
    cells: list[Cell] = []
    gaps: list[Gap] = []
    substitutions: list[Substitution] = []
    for declared in sweep.sources:
        preprocessing = preprocessing_of(declared, sweep.preprocessing)
        source, unavailable = available_source(declared, mirror)
        if source["name"] != declared["name"]:
            substitutions.append(
                Substitution(name, declared["name"], source["name"], declared["family"])
            )
        facts = None if unavailable else sweep_facts(source, sweep.ks)
        for method in methods:
            epsilons = sweep.epsilons if method.private else [None]
            for k, epsilon, kind in itertools.product(sweep.ks, epsilons, sweep.kinds):
                reason = method.missing or unavailable or missing_transport(kind["federation"])
                if reason:
                    label = source["path"] or source["name"]
                    gaps.append(Gap(name, method.name, label, epsilon, reason))
                    continue
                assert facts is not None
                cell = Cell(
                    method=method.name,
                    target=method.target,
                    params=method.params,
                    dataset=source["name"],
                    preprocessing=preprocessing,
                    k=facts.k if k is None else k,
                    epsilon=None if epsilon is None else float(epsilon),
                    delta=sweep.delta if accepts(method.target, "delta") else None,
                    seeds=sweep.seeds,
                    metrics=sweep.metrics,
                    path=source["path"],
                    bounds=to_hashable(source["bounds"]),
                    style=method.style,
                    **kind,
                    **sweep.settings,
                )
                check(cell, facts, mirror)
                cells.append(cell)
    return list(dict.fromkeys(cells)), gaps, substitutions


@dataclass(frozen=True)
class Method:
    """A method of a sweep.

    Parameters
    ----------
    name : str
        In tables.
    target : str
        Import path of its class.
    params, style : tuple of (str, value) pairs
        As in `Cell`.
    private : bool
        Whether it has a parameter epsilon; assumed of one that cannot be imported.
    missing : str or None
        Why it cannot be imported.
    """

    name: str
    target: str
    params: tuple
    style: tuple
    private: bool = True
    missing: str | None = None


def find_method(entry: Mapping) -> Method:
    """Find the class of an entry from `method_entries`."""
    target = entry["_target_"]
    name = entry["name"] or target.rpartition(".")[2].lower()
    given = {key: value for key, value in entry.items() if key not in ("name", "_target_", *STYLE)}
    params = to_hashable(given)
    style = tuple((key, entry[key]) for key in STYLE if key in entry)
    try:
        method = method_class(target)
    except ValueError as error:
        return Method(name, target, params, style, missing=str(error))
    target = f"{method.__module__}.{method.__qualname__}"
    return Method(name, target, params, style, private=accepts(target, "epsilon"))


def available_source(source: dict, mirror: str | None) -> tuple[dict, str | None]:
    """Return a data set that is available, or its fallback where it is not and has one.

    Returns
    -------
    source : dict
        From `dataset_entries`, under the name of the one to be used.
    reason : str or None
        Why that one is not available either.
    """
    reason = obtainable(source["name"], source["path"], mirror)
    if reason and source["fallback"]:
        source = source | {"name": source["fallback"]}
        reason = obtainable(source["name"], None, mirror)
    return source, reason


def sweep_facts(source: Mapping, ks: Sequence) -> "Facts":
    """Return what is known of a data set before it is loaded, as far as a sweep's k need it.

    Raises
    ------
    ValueError
        If a k is to be the data set's own, which has none.
    """
    facts = facts_of(source["name"], source["path"])
    if None in ks and facts.k is None:
        raise ValueError(
            f"k=None is not allowed: data set {source['name']!r} has no number of its own, "
            "give k=..."
        )
    if facts.n is None and list(ks) != [None]:
        facts = replace(facts, n=drawn_points(source["name"]))
    return facts


def preprocessing_of(source: Mapping, requested: str | None) -> str:
    """Return how a data set is scaled: as requested, else by whether bounds are given with it.

    With bounds it is ``public``, without ``minmax``.

    Raises
    ------
    ConfigurationError
        If `requested` is unknown, or is one that would pass over the bounds given.
    """
    if requested not in (None, *datasets.PREPROCESSING):
        raise ConfigurationError(unknown("preprocessing", requested, datasets.PREPROCESSING))
    given = source["bounds"] is not None
    if given and requested == "minmax":
        raise ConfigurationError(
            f"bounds={source['bounds']!r} is not allowed with preprocessing='minmax', "
            "which scales by the data's own "
            "extremes: use preprocessing=public, or leave bounds out"
        )
    return requested or ("public" if given else "minmax")


@dataclass(frozen=True)
class Facts:
    """What is known of a data set before it is loaded; None where it is not."""

    n: int | None
    d: int | None
    k: int | None


@lru_cache(maxsize=4096)
def facts_of(dataset: str, path: str | None = None) -> Facts:
    """Return shape and default number of clusters of a data set; a file's are read from it."""
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
    """Tell, once per process, why a data set cannot be had; see `datasets.obtainable`."""
    return datasets.obtainable(dataset, mirror=mirror, path=path)


def check(cell: Cell, facts: Facts, mirror: str | None) -> None:
    """Refuse a cell that cannot succeed, as far as that is known before running it.

    Raises
    ------
    ValueError
        If k exceeds the number of points, the method refuses its parameters, a file's content does
        not fit, a data set has no range that all columns share and is to be scaled by it, points
        lie outside a domain that may not clip them, or the method cannot be run as a protocol with
        words of that size.
    """
    if facts.n is not None and cell.k > facts.n:
        raise ValueError(
            f"k={cell.k} is not allowed: k must be at most n={facts.n}, "
            f"the points of {cell.dataset_name}"
        )
    if cell.unlearning is not None:
        from pkm.experiments.removals import check_unlearning  # a tenth of a second of imports

        check_unlearning(cell, facts.n)
    else:
        method = build(cell)
        rule = "one with fit_with; this one needs the sweep's key unlearning"
        require(hasattr(method, "fit_with"), "method", cell.method, rule)
        method.check_parameters(facts.n)
    if cell.federation is not None and None not in (facts.n, facts.d):
        check_schedule(method, facts.n, facts.d, network_of(cell))
    unclipped = cell.preprocessing != "minmax" and not cell.clip
    ranged = cell.preprocessing == "range" and not has_common_range(cell.dataset)
    if cell.dataset == "file" or unclipped or ranged:
        prepare(cell, mirror)


@lru_cache(maxsize=4096)
def has_common_range(dataset: str) -> bool:
    """Tell whether all columns are known to share one range, without reading the points."""
    known = resolve(dataset)
    if known.family is not None:
        return known.family.name in RANGED_FAMILIES
    entry = known.entry
    return entry is not None and (
        entry.common_range is not None or shared_range(entry.domain()) is not None
    )


def as_list(value: object) -> list:
    """Return a list as it is, and any other value as a list of one item."""
    return list(value) if isinstance(value, list | tuple) else [value]


def seed_list(seeds: int | Sequence[int]) -> tuple[int, ...]:
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
            f"seeds={seeds!r} is not allowed: seeds must be a number of at least 1 "
            "or a list of seeds"
        )
    return tuple(range(seeds))


def known_metrics(names: str | Sequence[str]) -> tuple[str, ...]:
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

    A pattern may name, under ``fallback``, the pattern of a data set that replaces it where it is
    not available.

    Raises
    ------
    ConfigurationError
        If a pattern has a field without values.

    Examples
    --------
    >>> specs = ["iris", {"pattern": "g2-{d}-{sd}", "d": [2, 4], "sd": [10]}]
    >>> [entry["name"] for entry in dataset_entries(specs)]
    ['iris', 'g2-2-10', 'g2-4-10']
    """
    entries = []
    for spec in specs:
        if isinstance(spec, str):
            entries.append({"name": spec})
        elif "pattern" in spec:
            texts = {"name": spec["pattern"], "fallback": spec.get("fallback") or ""}
            family = {"family": " as ".join(text for text in texts.values() if text)}
            fields = {
                name: as_list(values)
                for name, values in spec.items()
                if name not in ("pattern", "fallback")
            }
            for values in itertools.product(*fields.values()):
                chosen = dict(zip(fields, values, strict=True))
                try:
                    names = {key: text.format(**chosen) for key, text in texts.items()}
                    entries.append(family | names)
                except (KeyError, IndexError) as error:
                    rule = f"pattern {spec['pattern']!r} has a field without values: {error}"
                    raise ConfigurationError(rule) from error
        else:
            entries.append(dict(spec))
    return [
        {"path": None, "bounds": None, "fallback": None, "family": entry["name"]} | entry
        for entry in entries
    ]


def method_entries(specs: Sequence) -> list[dict]:
    """Expand the methods of a sweep: files of ``conf/method``, grids over them, or whole entries.

    Raises
    ------
    ConfigurationError
        If a method is unknown; the known ones are listed.

    Examples
    --------
    >>> specs = [{"method": "fastlloyd", "grid": {"alpha": [0.4, 0.8]}}]
    >>> [entry["alpha"] for entry in method_entries(specs)]
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


def federation_entries(spec: Mapping | None) -> list[tuple | None]:
    """Expand the `federation` of a sweep: every combination of its lists.

    None alone for a sweep without it.

    Raises
    ------
    ConfigurationError
        If it has an unknown key.
    ValueError
        If it is no mapping.

    Examples
    --------
    >>> [dict(entry)["clients"] for entry in federation_entries({"clients": [2, 4]})]
    [2, 4]
    """
    available = "mpi" if mpi_available() else "threads"
    return [
        entry
        and to_hashable({name: available if value == "auto" else value for name, value in entry})
        for entry in crossed("federation", spec, FEDERATION)
    ]


def crossed(key: str, spec: Mapping | None, presets: Mapping) -> list[tuple | None]:
    """Expand a sweep's key that is a mapping of lists: every combination.

    None alone for a sweep without it.

    Raises
    ------
    ConfigurationError
        If it has an unknown key.
    ValueError
        If it is no mapping.
    """
    if spec is None:
        return [None]
    require(isinstance(spec, Mapping), key, spec, f"null or a mapping of {', '.join(presets)}")
    unknown_keys = sorted(set(spec) - set(presets))
    if unknown_keys:
        raise ConfigurationError(unknown(f"{key}: key", unknown_keys[0], list(presets)))
    lists = {name: as_list(value) for name, value in (presets | spec).items()}
    return [
        to_hashable(dict(zip(lists, values, strict=True)))
        for values in itertools.product(*lists.values())
    ]


def missing_transport(federation: tuple | None) -> str | None:
    """Say what is missing for parties to be processes of their own; None where nothing is."""
    needs_mpi = federation is not None and dict(federation)["transport"] == "mpi"
    if not needs_mpi or mpi_available():
        return None
    return "transport=mpi needs mpi4py and mpirun: make protocol"
