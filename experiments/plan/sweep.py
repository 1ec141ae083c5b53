"""From a sweep to cells: every combination of data sets, methods and budgets."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from pkm.experiments.cell.cell import STYLE, Cell
from pkm.experiments.cell.kind import Kind
from pkm.experiments.config.errors import ConfigurationError, require_known, unknown
from pkm.experiments.config.groups import choices, entry_of, is_choice
from pkm.experiments.config.method_parameters import accepts, method_class
from pkm.experiments.config.settings import (
    FLAG,
    TIME_LIMIT,
    as_list,
    require,
    require_budget,
    require_params,
    require_seeds,
    require_text,
)
from pkm.experiments.fit.kinds import KINDS, expand_kinds
from pkm.experiments.plan.entries import (
    dataset_entries,
    known_metrics,
    method_entries,
    seed_list,
)
from pkm.experiments.plan.feasibility import (
    available_source,
    check,
    preprocessing_of,
    sweep_facts,
)
from pkm.methods import import_path

#: Keys of a sweep with the settings that all its cells share, and their defaults.
CELL_SETTINGS = {
    "clip": True,
    "timing": False,
    "keep_centers": False,
    "time_limit": None,
}
SWEEP_KEYS = (
    "datasets",
    "methods",
    "preprocessing",
    "metrics",
    "epsilon",
    "delta",
    "k",
    "seeds",
    *CELL_SETTINGS,
    *(kind.key for kind in KINDS),
)


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
        In one line, which data sets are replaced by which: the patterns that gave both
        names.
    """

    sweep: str
    dataset: str
    substitute: str
    family: str


def sized_sweeps(paper: Mapping, profile: Mapping) -> dict[str, dict]:
    """Return a paper's sweeps with its defaults and the profile's changes.

    A sweep that the profile does not name stays as the paper has it; one that the
    profile sets to null is left out.

    Raises
    ------
    ConfigurationError
        If the profile changes a sweep that does not exist, or a sweep has an unknown
        key.
    """
    paper = (
        OmegaConf.to_container(paper, resolve=True)
        if OmegaConf.is_config(paper)
        else dict(paper)
    )
    sweeps = paper["sweeps"]
    changes = (paper.get("profiles") or {}).get(profile["name"]) or {}
    unknown_sweeps = sorted(set(changes) - set(sweeps))
    if unknown_sweeps:
        raise ConfigurationError(
            unknown(
                f"profile {profile['name']}: sweep", unknown_sweeps[0], list(sweeps)
            )
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
            raise ConfigurationError(
                unknown(f"sweep {name}: key", unknown_keys[0], SWEEP_KEYS)
            )
        sized[name] = spec
    return sized


def check_paper(paper: Mapping, profile: str) -> None:
    """Refuse unknown keys of a paper, and changes for unknown profiles.

    Raises
    ------
    ConfigurationError
        Naming the key or the profile, and those that there are.
    """
    profiles = sorted({*choices("profile"), profile})
    require_known(paper.get("profiles") or {}, profiles, "paper.profiles.")
    if is_choice("paper", paper["name"]):
        known = dict.fromkeys([*entry_of("paper", paper["name"]), *SWEEP_KEYS])
        require_known(paper, known, "paper.")


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
    kinds : list of Kind
    delta : float, "auto", "1/n^POWER" or None
    preprocessing : str or None
    seeds, metrics : tuple
    settings : dict
        `CELL_SETTINGS` of all cells.
    """

    name: str
    sources: list[dict]
    methods: list[dict]
    epsilons: list
    ks: list
    kinds: list[Kind]
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
        If a name is unknown or a value breaks its rule, whether or not a method would
        use it.
    """
    sweep = Sweep(
        name,
        sources=dataset_entries(spec["datasets"]),
        methods=method_entries(spec["methods"]),
        epsilons=as_list(spec.get("epsilon", [1.0])),
        ks=as_list(spec.get("k")),
        kinds=expand_kinds(spec),
        delta=spec.get("delta", "auto"),
        preprocessing=spec.get("preprocessing"),
        seeds=seed_list(spec["seeds"]),
        metrics=known_metrics(spec.get("metrics", ["nicv"])),
        settings={
            key: spec.get(key, default) for key, default in CELL_SETTINGS.items()
        },
    )
    if not (
        sweep.sources and sweep.methods and sweep.epsilons and sweep.ks and sweep.kinds
    ):
        raise ConfigurationError(
            "a sweep needs at least one data set, one method, one epsilon, one k (or "
            "null) and one value of each key of federation and unlearning (or none)"
        )
    # A cell checks its values, but a cell of a method without epsilon has none to
    # check.
    for name in ("clip", "timing", "keep_centers"):
        require(FLAG.holds(sweep.settings[name]), name, sweep.settings[name], FLAG.text)
    time_limit = sweep.settings["time_limit"]
    require(TIME_LIMIT.holds(time_limit), "time_limit", time_limit, TIME_LIMIT.text)
    for epsilon in sweep.epsilons:
        require_budget(epsilon, delta_of(sweep.delta, 3))
    require_seeds(sweep.seeds)
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
            is_given = not method.private or None not in sweep.epsilons
            require(
                is_given,
                "epsilon",
                None,
                f"a number for {method.name}, which is private",
            )
            epsilons = sweep.epsilons if method.private else [None]
            for k, epsilon, kind in itertools.product(sweep.ks, epsilons, sweep.kinds):
                reason = method.missing or unavailable or kind.unavailable()
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
                    delta=(
                        delta_of(sweep.delta, facts.n)
                        if accepts(method.target, "delta")
                        else None
                    ),
                    seeds=sweep.seeds,
                    metrics=sweep.metrics,
                    path=source["path"],
                    columns=source["columns"],
                    label_column=source["label"],
                    bounds=tuples(source["bounds"]),
                    style=method.style,
                    kind=kind,
                    **sweep.settings,
                )
                check(cell, facts, mirror)
                cells.append(cell)
    return list(dict.fromkeys(cells)), gaps, substitutions


def delta_of(delta: float | str | None, n_points: int | None) -> float | str | None:
    """Return delta of the cells on a data set: as given, or by the number of points.

    Raises
    ------
    ValueError
        If it is by a number of points that is drawn with the points.

    Examples
    --------
    >>> delta_of("1/n^1.5", 10_000), delta_of("auto", 10_000)
    (1e-06, 'auto')
    """
    match = (
        re.fullmatch(r"1/n\^(\d+(?:\.\d+)?)", delta) if isinstance(delta, str) else None
    )
    if match is None:
        return delta
    require(
        n_points is not None,
        "delta",
        delta,
        "a number for data sets whose size is drawn",
    )
    assert n_points is not None
    return n_points ** -float(match[1])


@dataclass(frozen=True)
class Method:
    """A method of a sweep.

    Parameters
    ----------
    name : str
        In tables.
    target : str
        Import path of its class.
    params, style : dict
        As in `Cell`.
    private : bool
        Whether it has a parameter epsilon; assumed of one that cannot be imported.
    missing : str or None
        Why it cannot be imported, or cannot run here.
    """

    name: str
    target: str
    params: dict[str, Any]
    style: dict[str, str]
    private: bool = True
    missing: str | None = None


def find_method(entry: Mapping) -> Method:
    """Find the class of an entry from `method_entries`."""
    target = entry["_target_"]
    require_text("method._target_", target)
    name = target.rpartition(".")[2].lower() if entry["name"] is None else entry["name"]
    require_text("method.name", name)
    params = {
        key: value
        for key, value in entry.items()
        if key not in ("name", "_target_", *STYLE)
    }
    require_params(params)
    style = {key: entry[key] for key in STYLE if key in entry}
    for key, value in style.items():
        require_text(f"method.{key}", value)
    try:
        method = method_class(target)
    except ValueError as error:
        return Method(name, target, params, style, missing=str(error))
    target = import_path(method)
    missing = getattr(method, "unavailable", lambda: None)()
    return Method(
        name, target, params, style, private=accepts(target, "epsilon"), missing=missing
    )


def tuples(value: Any) -> Any:
    """Return nested lists as nested tuples, which can be keys of caches."""
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value
