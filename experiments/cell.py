"""The unit of work and its identity: what is run, by which code, on which data."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pkm import datasets
from pkm.experiments.code_hash import Harness, code_hash
from pkm.methods.base import is_integer, is_number

#: The names of `pkm.federation.SPLITS`, which no central cell shall depend on, and how parties can
#: be run.
SPLITS = ("balanced", "unbalanced", "sorted")
TRANSPORTS = ("threads", "mpi")
#: How points are split over the clients of federated clustering, and which are requested to be
#: removed.
CLIENT_SPLITS = ("published", "noniid", "iid")
REQUESTS = ("random", "adversarial")
#: How figures draw a method: attributes of its class, keys of its file in ``conf/method``, columns
#: of its rows.
STYLE = ("label", "color", "marker")


@dataclass(frozen=True)
class Cell:
    """One method on one data set at one budget, over a tuple of seeds.

    A cell is a plain value: two cells with equal fields are the same experiment. Its `key` names
    the stored result and changes with the fields, with the code behind the result and with the
    data.

    Parameters
    ----------
    method : str
        Name under which the method appears in tables, e.g. ``"fastlloyd"``.
    target : str
        Import path of the method's class, e.g. ``"pkm.methods.lloyd.FastLloyd"``.
    params : tuple of (str, value) pairs
        Constructor parameters apart from the number of clusters and the budget, sorted by name. Use
        `to_hashable`.
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
        Where a data set called ``"file"`` lies. Not part of the identity: the content is, under a
        key (see `data_fingerprint`).
    bounds : tuple or None
        Public domain of a data set called ``"file"``: ``(lower, upper)``, numbers or one value per
        column.
    clip : bool, default=True
        Whether points outside the public domain are moved to its border or refused.
    timing : bool, default=False
        Whether the cell measures running time: every seed is a separate fit on one thread, while
        nothing else runs.
    federation : tuple of (str, value) pairs, optional
        How the cell is run as a protocol between clients and a server: clients, latency_ms,
        word_bytes, split and transport, sorted by name. None: centrally. Part of the identity only
        where it is given.
    unlearning : tuple of (str, value) pairs, optional
        How points are split over clients and removed again: clients, split, clusters_per_client,
        split_seed, removals, batch, requests and sparse, sorted by name. Part of the identity only
        where it is given.
    time_limit : float, optional
        Seconds that the cell may take; the backend's limit where there is none. Not part of the
        identity.
    style : tuple of (str, str) pairs, optional
        Those of `STYLE` that the configuration sets instead of the class. Not part of the identity.

    Raises
    ------
    ValueError
        If a field breaks its rule; the message names field, value and rule.

    Examples
    --------
    >>> data = ("iris", "minmax", 3)
    >>> budget = (None, None)
    >>> cell = Cell("lloyd", "pkm.methods.lloyd.Lloyd", (), *data, *budget, (0, 1), ("nicv",))
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
    style: tuple = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in ("clip", "timing"):
            require_flag(name, getattr(self, name))
        require_time_limit(self.time_limit)
        holds = is_integer(self.k) and self.k >= 1
        require(holds, "k", self.k, "a whole number of at least 1")
        require_budget(self.epsilon, self.delta)
        require_seeds(self.seeds)
        require(len(self.metrics) >= 1, "metrics", self.metrics, "at least one metric")
        require_kind(self.timing, self.federation, self.unlearning)

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
            clients = f"{setting['split']} clients"
            removals = (
                f", {setting['removals']} {setting['requests']} removals of {setting['batch']}"
            )
            parts.append(clients + (removals if setting["removals"] else ""))
        return " · ".join(parts)

    @property
    def dataset_name(self) -> str:
        """Name of the data set in tables: the registry's, or that of the file without suffix."""
        return self.dataset if self.path is None else Path(self.path).stem

    @property
    def variant(self) -> str:
        """The method's variant as configured: published, sound or empty."""
        return str(dict(self.params).get("variant") or "")

    @property
    def restricted(self) -> bool:
        """Whether the data are somebody's own or given on request: then so are the results."""
        return datasets.is_restricted(self.dataset)

    def identity(self) -> dict:
        """Return the fields that say what is computed, as plain JSON-ready values.

        Returns
        -------
        dict
            All fields but `path`, `time_limit`, `style` and, where they are None, `federation` and
            `unlearning`.
        """
        fields = {
            "method": self.method,
            "target": self.target,
            "params": {name: to_json(value) for name, value in self.params},
            "dataset": self.dataset,
            "bounds": to_json(self.bounds),
            "preprocessing": self.preprocessing,
            "clip": self.clip,
            "k": int(self.k),
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "delta": float(self.delta) if is_number(self.delta) else self.delta,
            "seeds": [int(seed) for seed in self.seeds],
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
    def harness(self) -> Harness:
        """Kind of fit: on all points, as a protocol between parties, or with removals."""
        if self.federation is not None:
            return "federated"
        return "central" if self.unlearning is None else "removals"

    @property
    def code(self) -> str:
        """SHA-256 (hex) over the code behind the result; see `pkm.experiments.code_hash`."""
        return code_hash(self.target, self.harness)

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) over the identity, the code and the data: the name of the stored result."""
        parts = {
            "cell": self.identity(),
            "code": self.code,
            "data": data_fingerprint(self.dataset, self.path),
        }
        return hashlib.sha256(canonical(parts).encode()).hexdigest()


def require(holds: bool, name: str, value: object, rule: str) -> None:
    """Refuse a value, naming the parameter, the value got and the rule.

    Raises
    ------
    ValueError
        If `holds` is false.
    """
    if not holds:
        raise ValueError(f"{name}={value!r} is not allowed: {name} must be {rule}")


def require_flag(name: str, value: object) -> None:
    """Refuse a value that is neither true nor false.

    Raises
    ------
    ValueError
        If it breaks that rule.
    """
    require(isinstance(value, bool), name, value, "true or false")


def require_time_limit(seconds: object) -> None:
    """Refuse a time limit that is neither a positive number nor None.

    Raises
    ------
    ValueError
        If it breaks that rule.
    """
    holds = seconds is None or (is_number(seconds) and 0 < seconds < math.inf)
    require(holds, "time_limit", seconds, "a number of seconds above 0, or null")


def require_budget(epsilon: object, delta: object) -> None:
    """Refuse an epsilon or a delta that breaks its rule.

    Raises
    ------
    ValueError
        If epsilon is neither None nor positive, or delta neither None nor ``"auto"`` nor between 0
        and 1.
    """
    holds = epsilon is None or (is_number(epsilon) and 0 < epsilon < math.inf)
    require(holds, "epsilon", epsilon, "a finite number above 0")
    holds = delta is None or delta == "auto" or (is_number(delta) and 0 < delta < 1)
    require(holds, "delta", delta, 'a number in (0, 1) or "auto"')


def require_seeds(seeds: tuple) -> None:
    """Refuse seeds that are no whole numbers, negative, repeated or none at all.

    Raises
    ------
    ValueError
        If they break that rule.
    """
    distinct = len(set(seeds)) == len(seeds) >= 1
    holds = distinct and all(is_integer(seed) and seed >= 0 for seed in seeds)
    require(holds, "seeds", seeds, "at least one whole number, none negative, none twice")


def require_kind(timing: bool, federation: tuple | None, unlearning: tuple | None) -> None:
    """Refuse settings of a protocol or of removals that break a rule or do not go together.

    Raises
    ------
    ValueError
        Naming what is wrong, its value and the rule.
    """
    if federation is not None:
        require_federation(dict(federation))
        require(timing, "timing", timing, "true for a cell with federation")
    if unlearning is not None:
        require(federation is None, "federation", federation, "null for a cell with unlearning")
        require_unlearning(dict(unlearning))
        holds = timing or not dict(unlearning)["removals"]
        require(holds, "timing", timing, "true for a cell with removals")


def require_federation(setting: dict) -> None:
    """Refuse a setting of a protocol that is incomplete or breaks a rule.

    Raises
    ------
    ValueError
        Naming what is wrong, its value and the rule.
    """
    names = ("clients", "latency_ms", "split", "transport", "word_bytes")
    require(tuple(sorted(setting)) == names, "federation", setting, f"given {', '.join(names)}")

    clients = setting["clients"]
    holds = is_integer(clients) and clients >= 1
    require(holds, "clients", clients, "a whole number of at least 1")

    latency = setting["latency_ms"]
    holds = is_number(latency) and 0 <= latency < 60_000
    rule = "a number of milliseconds, at least 0 and below 60000"
    require(holds, "latency_ms", latency, rule)

    require_choices(setting, {"word_bytes": (4, 8), "split": SPLITS, "transport": TRANSPORTS})


def require_unlearning(setting: dict) -> None:
    """Refuse a setting of federated clustering with removals that is incomplete or breaks a rule.

    Raises
    ------
    ValueError
        Naming what is wrong, its value and the rule.
    """
    smallest = {"batch": 1, "clients": 1, "clusters_per_client": 1, "removals": 0, "split_seed": 0}
    choices = {"split": CLIENT_SPLITS, "requests": REQUESTS, "sparse": (True, False)}
    names = sorted([*smallest, *choices])
    require(sorted(setting) == names, "unlearning", setting, f"given {', '.join(names)}")
    for name, lowest in smallest.items():
        value = setting[name]
        holds = is_integer(value) and value >= lowest
        require(holds, name, value, f"an integer, {lowest} or more")
    require_choices(setting, choices)


def require_choices(setting: dict, choices: Mapping[str, tuple]) -> None:
    """Refuse values that are none of those allowed.

    Raises
    ------
    ValueError
        Naming the first such value and what is allowed.
    """
    for name, allowed in choices.items():
        rule = f"one of {', '.join(map(str, allowed))}"
        require(setting[name] in allowed, name, setting[name], rule)


def to_hashable(value: Any) -> Any:
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


def to_json(value: Any) -> Any:
    """Turn nested tuples into nested lists, as JSON has them."""
    return [to_json(item) for item in value] if isinstance(value, tuple) else value


def canonical(value: Any) -> str:
    """Write a JSON value in its one canonical form: sorted keys, no blanks, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


@cache
def data_fingerprint(dataset: str, path: str | None = None) -> str:
    """Return the fingerprint of a data set, computed once per process.

    That of a file, or of records given on request, is keyed by the secret of the cache folder: rows
    and keys may be shown to people who must not find the records by trial.
    """
    return datasets.fingerprint(dataset, path=path)
