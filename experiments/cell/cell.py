"""The unit of work and its identity: what is run, by which code, on which data."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, cached_property
from glob import has_magic
from pathlib import Path
from typing import Any

from pkm import datasets
from pkm.datasets.loading import NO_FILE
from pkm.datasets.user_files import FileOptions
from pkm.experiments.cell.code_hash import code_hash
from pkm.experiments.cell.kind import Kind
from pkm.experiments.config.settings import (
    DELTA,
    EPSILON,
    FLAG,
    METRICS,
    NOISE,
    PATH,
    SEEDS,
    TEXT,
    TIME_LIMIT,
    Settings,
    at_least,
    checked_field,
    require_params,
)
from pkm.privacy import Unit
from pkm.schema import names

#: Style of a method in figures: attributes of its class, keys of its file in
#: ``conf/method``, columns of its rows.
STYLE = names("style")


@dataclass(frozen=True)
class Cell(Settings):
    """One method on one data set at one budget, over a tuple of seeds.

    A cell is a plain value: two cells with equal fields are the same experiment. Its
    `key` names the stored result and changes with the fields, with the code behind the
    result and with the data.

    Parameters
    ----------
    method : str
        Name under which the method appears in tables, e.g. ``"fastlloyd"``.
    target : str
        Import path of the method's class, e.g. ``"pkm.methods.FastLloyd"``.
    params : mapping of str to value
        Constructor parameters apart from the number of clusters and the budget: flags,
        numbers, texts, None, or lists of numbers or of texts.
    dataset : str
        Name of the data set in the registry, or ``"file"``.
    preprocessing : {"minmax", "public", "range", "ball"}
        How the raw columns are mapped to [-1, 1]; see `datasets.scale`.
    k : int
        Number of clusters.
    epsilon : float or None
        Declared privacy parameter; None for a method that has none.
    delta : float, "auto" or None
        Declared delta; ``"auto"`` leaves the choice to the method, None for a method
        that has none.
    seeds : tuple of int
        One replicate each.
    metrics : tuple of str
        Names from `pkm.metrics.METRICS`.
    file : FileOptions
        Where a data set called ``"file"`` lies and how it is read; its `groups` hold
        for other data sets, too. Part of the identity through the fingerprint of the
        data, which has the content under a key. Metrics are of complete rows.
    bounds : tuple or None
        Public domain of a data set called ``"file"``: ``(lower, upper)``, numbers or
        one value per column.
    clip : bool, default=True
        Whether points outside the public domain are moved to its border or refused.
    timing : bool, default=False
        Whether the cell measures running time: every seed is a separate fit on one
        thread, while nothing else runs.
    noise : {"secure", "seeded"}, default="seeded"
        Where the noise of private methods comes from: the operating system, or the
        seeds, which is for public data. With secure noise a seed is the number of a
        replicate, and the seed of its public randomness is drawn.
    keep_centers : bool, default=False
        Whether the released centers are stored, in the raw units of the data.
    account : str or None
        File of the account that is charged for the cell. It is part of the identity:
        an account has not paid for results that were released without it.
    kind : Kind
        How the seeds are fitted: one of `pkm.experiments.fit.kinds`.
    time_limit : float, optional
        Seconds that the cell may take; the backend's limit where there is none. Not
        part of the identity.
    style : mapping of str to str, optional
        Attributes of `STYLE` that override those of the class. Not part of the
        identity.

    Raises
    ------
    ValueError
        If a field breaks its rule; the message names field, value and rule.

    Examples
    --------
    >>> from pkm.experiments.fit.central import Central
    >>> fields = ("lloyd", "pkm.methods.Lloyd", {}, "iris", "minmax", 3, None, None)
    >>> cell = Cell(*fields, seeds=(0, 1), metrics=("nicv",), kind=Central())
    >>> cell.label
    'lloyd · iris'
    """

    method: str = checked_field(MISSING, TEXT)
    target: str = checked_field(MISSING, TEXT)
    params: Mapping[str, Any]
    dataset: str = checked_field(MISSING, TEXT)
    preprocessing: str = checked_field(MISSING, TEXT)
    k: int = checked_field(MISSING, at_least(1))
    epsilon: float | None = checked_field(MISSING, EPSILON)
    delta: float | str | None = checked_field(MISSING, DELTA)
    seeds: tuple[int, ...] = checked_field(MISSING, SEEDS)
    metrics: tuple[str, ...] = checked_field(MISSING, METRICS)
    file: FileOptions = NO_FILE
    bounds: tuple | None = None
    clip: bool = checked_field(True, FLAG)
    timing: bool = checked_field(False, FLAG)
    noise: str = checked_field("seeded", NOISE)
    keep_centers: bool = checked_field(False, FLAG)
    account: str | None = checked_field(None, PATH)
    time_limit: float | None = checked_field(None, TIME_LIMIT, compare=False)
    style: Mapping[str, str] = field(default_factory=dict, compare=False)
    kind: Kind = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_params(self.params)
        for name, value in self.style.items():
            TEXT.require(name, value)
        for metric in self.metrics:
            TEXT.require("metrics", metric)
        PATH.require("path", self.file.path)
        self.kind.check_cell(self)

    def __hash__(self) -> int:
        # Parameters are a mapping, which has no hash of its own.
        return hash((self.method, self.dataset, self.k, self.epsilon, self.seeds))

    @property
    def label(self) -> str:
        """Short name for people: method, data set, budget, kind."""
        parts = [self.method, self.dataset_name]
        if self.epsilon is not None:
            parts.append(f"ε={self.epsilon:g}")
        return " · ".join([*parts, *self.kind.describe()])

    @property
    def dataset_name(self) -> str:
        """Name of the data set in tables: the registry's, or the file's without suffix.

        Of a pattern it is the name of the folder.
        """
        if self.file.path is None:
            return self.dataset
        path = Path(self.file.path)
        return path.parent.name or path.stem if has_magic(path.name) else path.stem

    @property
    def variant(self) -> str:
        """The method's variant as configured: published, sound or empty."""
        return str(self.params.get("variant") or "")

    @property
    def restricted(self) -> bool:
        """Whether the data are a user's file or given on request only."""
        return datasets.is_restricted(self.dataset)

    def identity(self) -> dict:
        """Return the fields that determine the result, ready for JSON.

        Returns
        -------
        dict
            All fields except those of `file`, `time_limit` and `style`.
        """
        values = {declared.name: getattr(self, declared.name) for declared in IDENTITY}
        kind = [type(self.kind).__name__, self.kind.columns()]
        return values | {"params": dict(self.params), "kind": kind}

    def planned_columns(self) -> dict[str, Any]:
        """Return the columns of its rows that are known before it is run."""
        params = dict(self.params)
        params.pop("variant", None)
        if self.file.missing is not None:
            params["missing"] = self.file.missing
        return {
            "method": self.method,
            "target": self.target,
            "variant": self.variant,
            "params": params,
            "dataset": self.dataset_name,
            "unit": str(Unit.ROW if self.file.groups is None else Unit.PERSON),
            "preprocessing": self.preprocessing,
            "k": self.k,
            "timing": self.timing,
            "metrics": " ".join(self.metrics),
            **self.kind.columns(),
        }

    @property
    def code(self) -> str:
        """SHA-256 (hex) over the code behind the result."""
        return code_hash(self.target, type(self.kind).__module__)

    @property
    def data(self) -> str:
        """Fingerprint of the points; see `data_fingerprint`."""
        return data_fingerprint(self.dataset, self.file)

    @property
    def points(self) -> tuple:
        """All fields that determine the points, as arguments of `prepare_data`."""
        return self.dataset, self.file, self.bounds, self.preprocessing, self.clip

    @cached_property
    def key(self) -> str:
        """Name of the stored result: SHA-256 (hex) over identity, code and data."""
        parts = {"cell": self.identity(), "code": self.code, "data": self.data}
        return hashlib.sha256(to_canonical_json(parts).encode()).hexdigest()


#: Fields of a cell that determine its result.
IDENTITY = [
    declared
    for declared in fields(Cell)
    if declared.compare and declared.name != "file"
]


def to_canonical_json(value: Any) -> str:
    """Return the canonical JSON of a value: sorted keys, no blanks, no NaN."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
        ensure_ascii=False,
    )


@cache
def data_fingerprint(dataset: str, file: FileOptions) -> str:
    """Return the fingerprint of a data set, computed once per process.

    The fingerprint of a file, or of records given on request, is keyed by the secret of
    the cache folder. Otherwise a reader of rows could find the records by trial.
    """
    return datasets.fingerprint(dataset, file)
