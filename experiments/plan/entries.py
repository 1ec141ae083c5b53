"""Keys of a sweep expanded: lists, patterns and grids to an entry for each value."""

import itertools
from collections.abc import Mapping, Sequence

from pkm.experiments.cell.cell import STYLE
from pkm.experiments.config.errors import ConfigurationError, unknown
from pkm.experiments.config.groups import entry_of, with_defaults
from pkm.experiments.config.settings import as_list, require
from pkm.metrics import METRICS
from pkm.scalars import is_integer

#: What a data set that lies in a file is given by.
FILE_KEYS = ("path", "bounds", "columns", "label")


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
    """Expand the data sets of a sweep: names, patterns, and mappings of what a file is.

    A pattern may name, under ``fallback``, the pattern of a data set that replaces it
    where it is not available.

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
        elif isinstance(spec, Mapping) and "pattern" in spec:
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
                    pattern = spec["pattern"]
                    rule = f"pattern {pattern!r} has a field without values: {error}"
                    raise ConfigurationError(rule) from error
        else:
            is_mapping = isinstance(spec, Mapping)
            require(
                is_mapping, "datasets", spec, "names, patterns or mappings with a name"
            )
            entries.append(file_entry(spec))
    return [
        dict.fromkeys((*FILE_KEYS, "fallback")) | {"family": entry["name"]} | entry
        for entry in entries
    ]


def file_entry(spec: Mapping) -> dict:
    """Return a file of a sweep's data sets, its columns as a tuple.

    Raises
    ------
    ValueError
        If the columns or the label are none.
    """
    columns, label = spec.get("columns"), spec.get("label")
    holds = columns is None or (
        isinstance(columns, list | tuple) and all(map(is_column, columns))
    )
    require(
        holds and columns != [],
        "columns",
        columns,
        "a list of names or numbers of columns",
    )
    rule = "the name or the number of a column"
    require(label is None or is_column(label), "label", label, rule)
    return dict(spec) | {"columns": None if columns is None else tuple(columns)}


def is_column(value: object) -> bool:
    """Tell whether a value can name a column."""
    return isinstance(value, str) or is_integer(value)


def method_entries(specs: Sequence) -> list[dict]:
    """Expand the methods of a sweep: names, grids over them, or whole entries.

    A grid over a method may give it another ``name``, and another style.

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
            entries.append(entry_of("method", spec))
        elif isinstance(spec, Mapping) and "_target_" in spec:
            entries.append(with_defaults(spec))
        else:
            is_grid = isinstance(spec, Mapping) and "method" in spec
            require(
                is_grid,
                "methods",
                spec,
                "names, mappings with a method or with a _target_",
            )
            grid = {
                name: as_list(values) for name, values in spec.get("grid", {}).items()
            }
            entry = entry_of("method", spec["method"])
            entry |= {key: spec[key] for key in ("name", *STYLE) if key in spec}
            for values in itertools.product(*grid.values()):
                entries.append(entry | dict(zip(grid, values, strict=True)))
    return entries
