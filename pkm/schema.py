"""The columns of a stored row, each declared once in ``schema.csv``.

They are printed in ``docs/schema.md``. A row is one seed of one cell. Execution fills
the columns, the store checks them, and tables, figures, MLflow and the tests'
fabricated rows take labels, units and fill values from here.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

#: Type of a value; those of the second line are nested: see `pkm.arrow`.
Dtype = Literal[
    "text", "integer", "number", "flag",
    "integers", "parameters", "charges", "checkpoints", "centers",
]  # fmt: skip
#: Topic of a column: which cell and seed, what was run, its privacy, how it was run,
#: how figures draw it, what was measured, its resources, and its provenance.
Topic = Literal[
    "key", "identity", "privacy", "setting", "style", "metric", "resource", "provenance"
]
#: Cells that have the column, in this order: all; those that measure a protocol between
#: clients and a server; those with removable points; those that remove some points;
#: those that measure a coreset.
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
    fill_value : object
        Value in rows without the column; None for a column that every row has.
    raw_power : int
        Power of the half-width of the domain by which a value in half-widths is
        multiplied to be in raw units, those of the data: 1 for a length, 2 for a
        squared one.
    better : {"lower", "higher", ""}
        Which values of a metric are better; empty if neither.
    topic : str
        See `Topic`.
    scope : str
        See `Scope`.
    """

    name: str
    dtype: Dtype
    label: str
    unit: str
    fill_value: object
    raw_power: int
    better: Literal["lower", "higher", ""]
    topic: Topic
    scope: Scope


def read_columns(path: Path) -> tuple[Column, ...]:
    """Read the declared columns; their fill values are JSON."""
    with path.open(encoding="utf-8", newline="") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file))
    for line in lines:
        fill_value = json.loads(line["fill_value"] or "null")
        line["fill_value"] = () if fill_value == [] else fill_value
        line["raw_power"] = int(line["raw_power"] or 0)
    return tuple(Column(**line) for line in lines)


COLUMNS = read_columns(Path(__file__).with_suffix(".csv"))
BY_NAME = {column.name: column for column in COLUMNS}


def names(*topics: Topic, scope: Scope | None = None) -> tuple[str, ...]:
    """Name the columns of some topics, and of one scope if it is given.

    Examples
    --------
    >>> names("style")
    ('label', 'color', 'marker')
    """
    return tuple(
        column.name
        for column in COLUMNS
        if column.topic in topics and scope in (None, column.scope)
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
