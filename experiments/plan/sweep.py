"""From a sweep to cells: every combination of data sets, methods and budgets."""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from pkm.datasets import PREPROCESSING
from pkm.experiments.cell.cell import STYLE, Cell
from pkm.experiments.cell.kind import Kind
from pkm.experiments.config.errors import (
    ConfigurationError,
    require_choices,
)
from pkm.experiments.config.groups import choices, is_choice, read_choice
from pkm.experiments.config.method_parameters import accepts_parameter
from pkm.experiments.config.settings import (
    DELTA,
    EPSILON,
    FLAG,
    NOISE,
    SEEDS,
    TEXT,
    TIME_LIMIT,
    Rule,
    require,
    to_list,
)
from pkm.experiments.fit.kinds import KINDS, expand_kinds
from pkm.experiments.plan.axes import (
    check_metrics,
    expand_datasets,
    expand_methods,
    list_seeds,
)
from pkm.experiments.plan.feasibility import (
    DatasetInfo,
    check_cell,
    choose_noise,
    choose_preprocessing,
    choose_source,
    find_sweep_info,
)
from pkm.methods import import_path, load_method

NOISE_KEY = Rule(
    lambda value: value is None or NOISE.holds(value),
    f"{NOISE.text}, or null",
)
#: Keys of a sweep with the settings that all its cells share: defaults and rules.
CELL_SETTINGS = {
    "clip": (True, FLAG),
    "timing": (False, FLAG),
    "keep_centers": (False, FLAG),
    "time_limit": (None, TIME_LIMIT),
    "noise": (None, NOISE_KEY),
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
    """A cell that a sweep requests and that cannot be run here, with the reason.

    `subject` is the method, the data set or the kind of cell that the reason is about.
    """

    sweep: str
    method: str
    dataset: str
    epsilon: float | None
    reason: str
    subject: str = ""


@dataclass(frozen=True)
class Substitution:
    """A data set that is not available and has a substitute.

    Parameters
    ----------
    sweep : str
        Which sweep requests it.
    dataset : str
        The name requested.
    family : str
        The patterns of both names: which data sets are replaced by which.
    """

    sweep: str
    dataset: str
    family: str


def apply_profile(
    paper: Mapping,
    profile: Mapping,
) -> dict[str, dict]:
    """Return a paper's sweeps with its defaults and the profile's changes.

    A sweep that the profile does not name stays unchanged; a sweep that it sets to null
    is left out.

    Raises
    ------
    ConfigurationError
        If the profile changes a sweep that does not exist, or a sweep has an unknown
        key.
    """
    if OmegaConf.is_config(paper):
        paper = OmegaConf.to_container(paper, resolve=True)
    sweeps = paper["sweeps"]
    changes = (paper.get("profiles") or {}).get(profile["name"]) or {}
    require_choices(f"profile {profile['name']}: sweep", changes, list(sweeps))
    general = {key: paper[key] for key in SWEEP_KEYS if key in paper}
    general["seeds"] = profile["seeds"]
    profiled = {}
    for name, declared in sweeps.items():
        if declared is None or (name in changes and changes[name] is None):
            continue
        spec = general | declared | (changes.get(name) or {})
        require_choices(f"sweep {name}: key", spec, SWEEP_KEYS)
        profiled[name] = spec
    return profiled


def check_paper(paper: Mapping, profile: str) -> None:
    """Refuse unknown keys of a paper, and changes for unknown profiles.

    Raises
    ------
    ConfigurationError
        Naming the unknown key or profile, and the known ones.
    """
    profiles = sorted({*choices("profile"), profile})
    changed = paper.get("profiles") or {}
    require_choices("key", changed, profiles, "paper.profiles.")
    if is_choice("paper", paper["name"]):
        known = [*read_choice("paper", paper["name"]), *SWEEP_KEYS]
        require_choices("key", paper, list(dict.fromkeys(known)), "paper.")


@dataclass(frozen=True)
class Sweep:
    """The axes of a sweep: its cells are their combinations.

    Parameters
    ----------
    sources : list of dict
        Data sets, from `expand_datasets`.
    methods : list of Method
    ks, epsilons : list
        A k may be None: the data set's own.
    kinds : list of Kind
    delta : float, "auto", "1/n^POWER" or None
    preprocessing : str or None
    settings : dict
        Fields that all cells share.
    """

    sources: list[dict]
    methods: list["Method"]
    ks: list
    epsilons: list
    kinds: list[Kind]
    delta: float | str | None
    preprocessing: str | None
    settings: dict[str, Any]


def read_sweep(spec: Mapping) -> Sweep:
    """Parse the keys of a sweep and check each of them.

    Raises
    ------
    ValueError
        If a name is unknown or a value breaks its rule, even if no method uses it.
    """
    settings = {
        key: spec.get(key, default) for key, (default, _) in CELL_SETTINGS.items()
    }
    settings["seeds"] = list_seeds(spec["seeds"])
    settings["metrics"] = check_metrics(spec.get("metrics", ["nicv"]))
    sweep = Sweep(
        sources=expand_datasets(spec["datasets"]),
        methods=list(map(find_method, expand_methods(spec["methods"]))),
        ks=to_list(spec.get("k")),
        epsilons=to_list(spec.get("epsilon", [1.0])),
        kinds=expand_kinds(spec),
        delta=spec.get("delta", "auto"),
        preprocessing=spec.get("preprocessing"),
        settings=settings,
    )
    axes = (sweep.sources, sweep.methods, sweep.epsilons, sweep.ks, sweep.kinds)
    if not all(axes):
        raise ConfigurationError(
            "a sweep needs at least one data set, one method, one epsilon, one k (or "
            "null) and one value of each key of federation and unlearning (or none)"
        )
    # Cells check their values, too, but those of methods without epsilon have none.
    for key, (_, rule) in CELL_SETTINGS.items():
        rule.require(key, settings[key])
    if sweep.preprocessing is not None:
        require_choices("preprocessing", [sweep.preprocessing], PREPROCESSING)
    for epsilon in sweep.epsilons:
        EPSILON.require("epsilon", epsilon)
    # A delta that depends on n is checked again with the cells of each data set.
    DELTA.require("delta", compute_delta(sweep.delta, 10_000))
    SEEDS.require("seeds", settings["seeds"])
    for method in sweep.methods:
        holds = not method.private or None not in sweep.epsilons
        rule = f"a number for {method.name}, which is private"
        require(holds, "epsilon", None, rule)
    return sweep


def expand_sweep(
    name: str,
    spec: Mapping,
    data_dir: str | None,
) -> tuple[list[Cell], list[Gap], list[Substitution]]:
    """Expand a sweep: every data set with every method at every k and epsilon.

    Parameters
    ----------
    name : str
        Name of the sweep.
    spec : mapping
        Its keys, defaults filled in; see `apply_profile`.
    data_dir : str or None
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
    sweep = read_sweep(spec)
    cells: list[Cell] = []
    gaps: list[Gap] = []
    substitutions: list[Substitution] = []
    for declared in sweep.sources:
        source, unavailable = choose_source(declared, data_dir)
        dataset, requested = source["name"], declared["name"]
        label = source["path"] or dataset
        if dataset != requested:
            replaced = Substitution(name, requested, declared["family"])
            substitutions.append(replaced)
        info = DatasetInfo() if unavailable else find_sweep_info(source, sweep.ks)
        noise = choose_noise(dataset, sweep.settings["noise"])
        for method in sweep.methods:
            epsilons = sweep.epsilons if method.private else [None]
            for k, epsilon, kind in itertools.product(sweep.ks, epsilons, sweep.kinds):
                subjects = {
                    method.name: method.unavailable,
                    label: unavailable,
                    kind.key: kind.unavailable(),
                }
                subject = next(filter(subjects.get, subjects), None)
                if subject is not None:
                    reason = subjects[subject]
                    gap = Gap(name, method.name, label, epsilon, reason, subject)
                    gaps.append(gap)
                    continue
                has_delta = accepts_parameter(method.target, "delta")
                is_secret = method.params.get("adjacency") == "add_remove"
                n = None if is_secret else info.n
                cell = Cell(
                    method=method.name,
                    target=method.target,
                    params=method.params,
                    dataset=dataset,
                    preprocessing=choose_preprocessing(source, sweep.preprocessing),
                    k=info.k if k is None else k,
                    epsilon=epsilon,
                    delta=compute_delta(sweep.delta, n) if has_delta else None,
                    file=source["file"],
                    bounds=source["bounds"],
                    style=method.style,
                    kind=kind,
                    **sweep.settings | {"noise": noise},
                )
                check_cell(cell, info, data_dir)
                cells.append(cell)
    return list(dict.fromkeys(cells)), gaps, substitutions


def compute_delta(
    delta: float | str | None,
    n_points: int | None,
) -> float | str | None:
    """Return delta of the cells on a data set: as given, or from the number of points.

    Raises
    ------
    ValueError
        If it depends on a number of points that is drawn with the points, or secret.

    Examples
    --------
    >>> compute_delta("1/n^1.5", 10_000), compute_delta("auto", 10_000)
    (1e-06, 'auto')
    """
    match = re.fullmatch(r"1/n\^(\d+(?:\.\d+)?)", str(delta))
    if match is None:
        return delta
    if n_points is None:
        rule = "a number for data sets whose size is drawn, or secret (add_remove)"
        require(False, "delta", delta, rule)
    return n_points ** -float(match[1])


@dataclass(frozen=True)
class Method:
    """A method of a sweep.

    Parameters
    ----------
    name : str
        Name in tables.
    target : str
        Import path of its class.
    params, style : dict
        As in `Cell`.
    private : bool
        Whether it has a parameter epsilon; true if it cannot be imported.
    unavailable : str or None
        Why it cannot be imported, or cannot run here.
    """

    name: str
    target: str
    params: dict[str, Any]
    style: dict[str, str]
    private: bool = True
    unavailable: str | None = None


def find_method(config: Mapping) -> Method:
    """Find the class of a configuration from `expand_methods`."""
    target = config["_target_"]
    TEXT.require("method._target_", target)
    name = config["name"]
    if name is None:
        name = target.rpartition(".")[2].lower()
    TEXT.require("method.name", name)
    style = {key: config[key] for key in STYLE if key in config}
    for key, value in style.items():
        TEXT.require(f"method.{key}", value)
    others = {"name", "_target_", *STYLE}
    params = {key: config[key] for key in config if key not in others}
    try:
        method = load_method(target)
    except ValueError as error:
        return Method(name, target, params, style, unavailable=str(error))
    is_method = isinstance(method, type) and hasattr(method, "claim")
    rule = "a subclass of PrivateKMeans that declares `claims`"
    require(is_method, "method._target_", target, rule)
    target = import_path(method)
    unavailable = getattr(method, "unavailable", lambda: None)()
    private = accepts_parameter(target, "epsilon")
    return Method(name, target, params, style, private, unavailable)
