"""The unit of work and its identity: what is run, by which source files, on which data."""

import ast
import hashlib
import importlib.util
import json
import math
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from pkm import datasets
from pkm.methods import load_method

ROOT = Path(__file__).resolve().parents[1]
#: The project's import packages: imports are followed inside these (and inside an outside method's own package).
ROOMS = ("compute", "datasets", "metrics", "privacy", "federation", "methods", "experiments", "analysis")
#: Modules whose results end up in a row, whatever the method.
ALWAYS = ("pkm.metrics", "pkm.privacy", "pkm.compute", "pkm.experiments.execute")
#: Modules that fit special kinds of cells, which depend on them as well.
PROTOCOL, UNLEARNING = "pkm.experiments.federated", "pkm.experiments.removals"
#: The names of `pkm.federation.SPLITS`, which no central cell shall depend on, and how parties can be run.
SPLITS = ("balanced", "unbalanced", "sorted")
TRANSPORTS = ("threads", "mpi")
#: How points are dealt out to the clients of federated clustering, and which are asked to be removed.
CLIENT_SPLITS = ("published", "noniid", "iid")
REQUESTS = ("random", "adversarial")


@dataclass(frozen=True)
class Cell:
    """One method on one data set at one budget, over a tuple of seeds.

    A cell is a plain value: two cells with equal fields are the same experiment. Its `key` names the stored
    result and changes with the fields, with the source files behind the result and with the data.

    Parameters
    ----------
    method : str
        Name under which the method appears in tables, e.g. ``"fastlloyd"``.
    target : str
        Import path of the method's class, e.g. ``"pkm.methods.lloyd.FastLloyd"``.
    params : tuple of (str, value) pairs
        Constructor parameters apart from the number of clusters and the budget, sorted by name. Use `to_hashable`.
    dataset : str
        Name of the data set in the registry, or ``"file"``.
    preprocessing : {"minmax", "public", "range"}
        How the raw columns are mapped to [-1, 1]; see `datasets.scale`.
    k : int
        Number of clusters.
    epsilon : float or None
        Declared privacy parameter; None for a method that has none.
    delta : float, "auto" or None
        Declared delta; ``"auto"`` leaves the choice to the method, None for a method that has none.
    seeds : tuple of int
        One replicate each.
    metrics : tuple of str
        Names from `pkm.metrics.METRICS`.
    path : str or None
        Where a data set called ``"file"`` lies. Not part of the identity: the content is (see `data_fingerprint`).
    bounds : tuple or None
        Public domain of a data set called ``"file"``: ``(lower, upper)``, numbers or one value per column.
    clip : bool, default=True
        Whether points outside the public domain are moved to its border or refused.
    timing : bool, default=False
        Whether the cell measures running time: every seed is a fit of its own, on one thread, with nothing beside it.
    federation : tuple of (str, value) pairs, optional
        How the cell is run as a protocol between clients and a server: clients, latency_ms, word_bytes, split and
        transport, sorted by name. None: centrally. Part of the identity only where it is given.
    unlearning : tuple of (str, value) pairs, optional
        How points are dealt out to clients and removed again: clients, split, clusters_per_client, split_seed,
        removals, batch, requests and sparse, sorted by name. Part of the identity only where it is given.
    time_limit : float, optional
        Seconds that the cell may take; the backend's limit where there is none. Not part of the identity.

    Raises
    ------
    ValueError
        If a field breaks its rule; the message names field, value and rule.

    Examples
    --------
    >>> cell = Cell("lloyd", "pkm.methods.lloyd.Lloyd", (), "iris", "minmax", 3, None, None, (0, 1), ("nicv",))
    >>> cell.label
    'lloyd · iris'
    """

    method: str
    target: str
    params: tuple
    dataset: str
    preprocessing: str
    k: int
    epsilon: float | None
    delta: float | str | None
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    path: str | None = None
    bounds: tuple | None = None
    clip: bool = True
    timing: bool = False
    federation: tuple | None = None
    unlearning: tuple | None = None
    time_limit: float | None = field(default=None, compare=False)

    def __post_init__(self):
        for name in ("clip", "timing"):
            require(
                isinstance(getattr(self, name), bool), name, getattr(self, name), "true or false"
            )
        require_time_limit(self.time_limit)
        require(is_int(self.k) and self.k >= 1, "k", self.k, "a whole number of at least 1")
        if self.epsilon is not None:
            require(
                is_real(self.epsilon) and self.epsilon > 0,
                "epsilon",
                self.epsilon,
                "a finite number above 0",
            )
        if not (self.delta is None or self.delta == "auto"):
            require(
                is_real(self.delta) and 0 < self.delta < 1,
                "delta",
                self.delta,
                'a number in (0, 1) or "auto"',
            )
        rule = "at least one whole number, none negative, none twice"
        require(
            len(self.seeds) >= 1
            and all(is_int(seed) and seed >= 0 for seed in self.seeds)
            and len(set(self.seeds)) == len(self.seeds),
            "seeds",
            self.seeds,
            rule,
        )
        require(len(self.metrics) >= 1, "metrics", self.metrics, "at least one metric")
        if self.federation is not None:
            require_federation(dict(self.federation))
            require(self.timing, "timing", self.timing, "true for a cell with federation")
        if self.unlearning is not None:
            require(
                self.federation is None,
                "federation",
                self.federation,
                "null for a cell with unlearning",
            )
            require_unlearning(dict(self.unlearning))
            removals = dict(self.unlearning)["removals"]
            require(
                self.timing or not removals, "timing", self.timing, "true for a cell with removals"
            )

    @property
    def label(self) -> str:
        """Short name for people: method, data set, budget, and the parties of a protocol."""
        parts = [self.method, self.dataset_name]
        if self.epsilon is not None:
            parts.append(f"ε={self.epsilon:g}")
        if self.federation is not None:
            setting = dict(self.federation)
            parts.append(f"{setting['clients']} clients, {setting['latency_ms']:g} ms")
        if self.unlearning is not None:
            setting = dict(self.unlearning)
            asked = f"{setting['removals']} {setting['requests']} removals of {setting['batch']}"
            parts.append(
                f"{setting['split']} clients" + (f", {asked}" if setting["removals"] else "")
            )
        return " · ".join(parts)

    @property
    def dataset_name(self) -> str:
        """Name of the data set in tables: the registry's, or the file's own without folder and suffix."""
        return self.dataset if self.path is None else Path(self.path).stem

    @property
    def variant(self) -> str:
        """The method's variant as configured: published, sound or empty."""
        return str(dict(self.params).get("variant") or "")

    def identity(self) -> dict:
        """Return the fields that say what is computed, as plain JSON-ready values.

        Returns
        -------
        dict
            All fields but `path`, `time_limit` and, where they are None, `federation` and `unlearning`.
        """
        fields = {
            "method": self.method,
            "target": self.target,
            "params": {name: to_json(value) for name, value in self.params},
            "dataset": self.dataset,
            "bounds": to_json(self.bounds),
            "preprocessing": self.preprocessing,
            "clip": self.clip,
            "k": self.k,
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "delta": float(self.delta) if is_real(self.delta) else self.delta,
            "seeds": list(self.seeds),
            "metrics": list(self.metrics),
            "timing": self.timing,
        }
        if self.federation is not None:
            setting = dict(self.federation)
            fields["federation"] = setting | {"latency_ms": float(setting["latency_ms"])}
        if self.unlearning is not None:
            fields["unlearning"] = dict(self.unlearning)
        return fields

    @property
    def harness(self) -> str | None:
        """Module that fits this kind of cell; None for those that `pkm.experiments.execute` fits itself."""
        if self.federation is not None:
            return PROTOCOL
        return None if self.unlearning is None else UNLEARNING

    @property
    def code(self) -> str:
        """SHA-256 (hex) over the source files behind the result; see `code_hash`."""
        return code_hash(self.target, self.harness)

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) over the identity, the source closure and the data: the name of the stored result."""
        parts = {
            "cell": self.identity(),
            "code": self.code,
            "data": data_fingerprint(self.dataset, self.path),
        }
        return hashlib.sha256(canonical(parts).encode()).hexdigest()


def require(holds: bool, name: str, value, rule: str) -> None:
    """Refuse a value, naming the parameter, the value got and the rule.

    Raises
    ------
    ValueError
        If `holds` is false.
    """
    if not holds:
        raise ValueError(f"{name}={value!r} is not allowed: {name} must be {rule}")


def require_time_limit(seconds) -> None:
    """Refuse a time limit that is neither a positive number nor None.

    Raises
    ------
    ValueError
        If it breaks that rule.
    """
    holds = seconds is None or (is_real(seconds) and seconds > 0)
    require(holds, "time_limit", seconds, "a number of seconds above 0, or null")


def require_federation(setting: dict) -> None:
    """Refuse a setting of a protocol that lacks something or breaks a rule.

    Raises
    ------
    ValueError
        Naming what is wrong, its value and the rule.
    """
    names = ("clients", "latency_ms", "split", "transport", "word_bytes")
    require(tuple(sorted(setting)) == names, "federation", setting, f"given {', '.join(names)}")
    clients, latency = setting["clients"], setting["latency_ms"]
    require(is_int(clients) and clients >= 1, "clients", clients, "a whole number of at least 1")
    rule = "a number of milliseconds, at least 0 and below 60000"
    require(is_real(latency) and 0 <= latency < 60_000, "latency_ms", latency, rule)
    for name, known in (("word_bytes", (4, 8)), ("split", SPLITS), ("transport", TRANSPORTS)):
        require(setting[name] in known, name, setting[name], f"one of {', '.join(map(str, known))}")


def require_unlearning(setting: dict) -> None:
    """Refuse a setting of federated clustering with removals that lacks something or breaks a rule.

    Raises
    ------
    ValueError
        Naming what is wrong, its value and the rule.
    """
    names = (
        "batch",
        "clients",
        "clusters_per_client",
        "removals",
        "requests",
        "sparse",
        "split",
        "split_seed",
    )
    require(tuple(sorted(setting)) == names, "unlearning", setting, f"given {', '.join(names)}")
    for name, least in (
        ("batch", 1),
        ("clients", 1),
        ("clusters_per_client", 1),
        ("removals", 0),
        ("split_seed", 0),
    ):
        require(
            is_int(setting[name]) and setting[name] >= least,
            name,
            setting[name],
            f"an integer, {least} or more",
        )
    for name, known in (
        ("split", CLIENT_SPLITS),
        ("requests", REQUESTS),
        ("sparse", (True, False)),
    ):
        require(setting[name] in known, name, setting[name], f"one of {', '.join(map(str, known))}")


def is_int(value) -> bool:
    """Tell whether `value` is a whole number (a bool is not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_real(value) -> bool:
    """Tell whether `value` is a finite number (a bool is not)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def to_hashable(value):
    """Turn nested lists and mappings into nested tuples, mappings sorted by key.

    Examples
    --------
    >>> to_hashable({"b": [1, 2], "a": "x"})
    (('a', 'x'), ('b', (1, 2)))
    """
    if isinstance(value, dict):
        return tuple((name, to_hashable(value[name])) for name in sorted(value))
    if isinstance(value, list | tuple):
        return tuple(to_hashable(item) for item in value)
    return value


def to_json(value):
    """Turn nested tuples into nested lists, as JSON has them."""
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def canonical(value) -> str:
    """Write a JSON value in its one canonical form: sorted keys, no blanks, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


@cache
def data_fingerprint(dataset: str, path: str | None = None) -> str:
    """Return the fingerprint of a data set, asked for once per process."""
    return datasets.fingerprint(dataset, path=path)


@cache
def code_hash(target: str, harness: str | None = None) -> str:
    """Hash the source files that a result of `target` depends on.

    Parameters
    ----------
    target : str
        Import path of a method's class.
    harness : str, optional
        Module that fits its kind of cell.

    Returns
    -------
    str
        SHA-256 (hex) over the names and contents of the files in `closure`.
    """
    module = load_method(target).__module__
    roots = (module, *ALWAYS, datasets.scale.__module__, *((harness,) if harness else ()))
    files = closure(roots, outside=module.partition(".")[0])
    listing = [[name, file_hash(path)] for name, path in sorted(files.items())]
    return hashlib.sha256(canonical(listing).encode()).hexdigest()


@cache
def file_hash(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def closure(modules, outside: str | None = None) -> dict[str, Path]:
    """Follow the import statements from some modules through the project's files.

    Imports anywhere in a file count, those inside functions as well. A package's ``__init__.py`` counts where it is
    imported by name (``from privacy import Budget``), not as the parent of another module.

    Two roads are left out, so that adding a data set or a method does not make every stored result stale: from
    `experiments` into `datasets`, for which the data fingerprint stands, and from `experiments` into `methods`, of
    which only the cell's own method matters.

    Parameters
    ----------
    modules : iterable of str
        Dotted names to start from.
    outside : str, optional
        A top-level package outside the project whose files are followed as well (that of an outside method).

    Returns
    -------
    dict
        Dotted module name to its file.

    Raises
    ------
    ModuleNotFoundError
        If a starting module has no source file.
    """
    found: dict[str, Path] = {}
    roots = set(modules)
    queue = sorted(roots)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        path = source_file(name, outside)
        if path is None:
            if name in roots:
                raise ModuleNotFoundError(f"no Python source found for module {name!r}", name=name)
            continue
        found[name] = path
        imported = imported_names(path, name)
        if name.startswith("pkm.experiments"):
            imported = [
                other
                for other in imported
                if not other.startswith(("pkm.datasets", "pkm.methods"))
            ]
        queue.extend(imported)
    return found


def source_file(module: str, outside: str | None = None) -> Path | None:
    """Return the file of a module of the project or of the package `outside`; None for any other name."""
    top, _, rest = module.partition(".")
    if top == "pkm" and rest.partition(".")[0] in ROOMS:
        base = ROOT
    elif top == outside:
        spec = importlib.util.find_spec(top)
        if spec is None or not spec.origin:
            return None
        origin = Path(spec.origin)
        if not spec.submodule_search_locations:
            return origin if not rest else None
        base = origin.parent
    else:
        return None
    place = base.joinpath(*rest.split(".")) if rest else base
    for candidate in (place / "__init__.py", place.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


@cache
def imported_names(path: Path, module: str) -> tuple[str, ...]:
    """List the dotted names a file imports, relative ones resolved.

    ``from a import b`` yields both ``a`` and ``a.b``, for `b` may be a module; names that are none are dropped later
    because they have no file.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(dict.fromkeys(name for name in names if name))
