"""The columns of a stored row, each declared once in ``schema.csv``.

They are printed in ``docs/schema.md``. A row is one seed of one cell. Execution fills
the columns, the store checks them, and tables, figures, MLflow and the tests'
fabricated rows take labels, units and missing values from here.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

#: What a value is; the last five are nested: see `pkm.arrow`.
Dtype = Literal[
    "text", "integer", "number", "flag",
    "integers", "parameters", "charges", "checkpoints", "centers",
]  # fmt: skip
#: Topic of a column: which cell and seed, what was run, its privacy, how it was run,
#: how figures draw it, what was measured, its resources, and its provenance.
Kind = Literal[
    "key", "identity", "privacy", "setting", "style", "metric", "resource", "provenance"
]
#: Which cells have the column: all of them, those between clients and a server, those
#: with removable points, and of the latter those that remove some.
Scope = Literal["all", "federation", "unlearning", "removals", "coreset"]


@dataclass(frozen=True)
class Column:
    """One column of a row.

    Parameters
    ----------
    name : str
    dtype : str
        See `Dtype`.
    label : str
        For a metric, its name in figures and tables; else a description of the column.
    unit : str
        Empty for none.
    missing : object
        Value in rows without the column; None for a column that every row has.
    raw_power : int
        Power of the half-width of the domain that turns a value into raw units.
    better : {"lower", "higher", ""}
        Which values of a metric are better; empty if neither.
    kind : str
        See `Kind`.
    scope : {"all", "federation", "unlearning", "removals", "coreset"}
        Which cells have it.
    """

    name: str
    dtype: Dtype
    label: str
    unit: str
    missing: object
    raw_power: int
    better: Literal["lower", "higher", ""]
    kind: Kind
    scope: Scope


def read_columns(path: Path) -> tuple[Column, ...]:
    """Read the declared columns; their missing values are JSON."""
    with path.open(encoding="utf-8", newline="") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file))
    for line in lines:
        missing = json.loads(line["missing"] or "null")
        line["missing"] = () if missing == [] else missing
        line["raw_power"] = int(line["raw_power"] or 0)
    return tuple(Column(**line) for line in lines)


COLUMNS = read_columns(Path(__file__).with_suffix(".csv"))
BY_NAME = {column.name: column for column in COLUMNS}


def names(*kinds: Kind, scope: Scope | None = None) -> tuple[str, ...]:
    """Name the columns of some kinds, and of one scope if it is given.

    Examples
    --------
    >>> names("style")
    ('label', 'color', 'marker')
    """
    return tuple(
        column.name
        for column in COLUMNS
        if column.kind in kinds and scope in (None, column.scope)
    )


def higher_is_better(metric: str) -> bool:
    """Tell whether larger values of a metric are better; false for unknown names.

    Examples
    --------
    >>> higher_is_better("silhouette"), higher_is_better("nicv")
    (True, False)
    """
    return metric in BY_NAME and BY_NAME[metric].better == "higher"


def raw_power(metric: str) -> int:
    """Return the power of the half-width that turns a metric into raw units, else 0.

    Examples
    --------
    >>> raw_power("inertia")
    2
    """
    return BY_NAME[metric].raw_power if metric in BY_NAME else 0
