"""Axes of a sweep: its keys expanded to lists of seeds, metrics, data sets, methods."""

from collections.abc import Mapping, Sequence
from typing import Any

from pkm.datasets.user_files import FileOptions
from pkm.experiments.cell.cell import STYLE
from pkm.experiments.config.errors import ConfigurationError, require_choices
from pkm.experiments.config.groups import FILE_KEYS, fill_defaults, read_choice
from pkm.experiments.config.settings import expand_grid, require, to_list
from pkm.metrics import METRICS
from pkm.scalars import is_integer, is_number

#: What a data set of a sweep may declare beside its name.
SOURCE_KEYS = (*FILE_KEYS, "groups", "fallback")


def list_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Turn a number of seeds, or a list of them, into the tuple of seeds.

    Raises
    ------
    ValueError
        If the number is below one. (A list is checked by `Cell`.)

    Examples
    --------
    >>> list_seeds(3), list_seeds([7, 9])
    ((0, 1, 2), (7, 9))
    """
    if isinstance(seeds, list | tuple):
        return tuple(seeds)
    holds = is_integer(seeds) and seeds >= 1
    require(holds, "seeds", seeds, "a number of at least 1 or a list of seeds")
    return tuple(range(seeds))


def check_metrics(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return metric names as a tuple without repetition.

    Raises
    ------
    ConfigurationError
        If a name is unknown; the known ones are listed.
    """
    listed = to_list(names)
    are_texts = all(isinstance(name, str) for name in listed)
    require(are_texts, "metrics", names, "a name of a metric, or a list of names")
    require_choices("metric", listed, METRICS)
    return tuple(dict.fromkeys(listed))


def expand_datasets(specs: Sequence) -> list[dict]:
    """Expand the data sets of a sweep: names, patterns, and mappings for files.

    Each source that is returned is a mapping with the name of one data set.

    The key ``fallback`` of a pattern is the pattern of substitutes for data sets that
    are not available.

    Raises
    ------
    ConfigurationError
        If a pattern has a field without values.

    Examples
    --------
    >>> specs = ["iris", {"pattern": "g2-{d}-{sd}", "d": [2, 4], "sd": [10]}]
    >>> [source["name"] for source in expand_datasets(specs)]
    ['iris', 'g2-2-10', 'g2-4-10']
    """
    sources = []
    for spec in specs:
        spec = {"name": spec} if isinstance(spec, str) else spec
        rule = "names, patterns or mappings with a name"
        require(isinstance(spec, Mapping), "datasets", spec, rule)
        if "pattern" in spec:
            sources += expand_pattern(spec)
            continue
        require("name" in spec, "datasets", spec, rule)
        require_choices("key of a data set", spec, ["name", *SOURCE_KEYS])
        sources.append(read_file_source(spec))
    defaults = dict.fromkeys(SOURCE_KEYS)
    sources = [defaults | {"family": source["name"]} | source for source in sources]
    for source in sources:
        options = {name: source[name] for name in FileOptions._fields}
        source["file"] = FileOptions(**options)
    return sources


def expand_pattern(spec: Mapping) -> list[dict]:
    """Expand a pattern of data sets over the values of its fields.

    Raises
    ------
    ConfigurationError
        If it has a field without values.
    """
    grid = dict(spec)
    texts = {"name": grid.pop("pattern"), "fallback": grid.pop("fallback", None)}
    texts = {key: text for key, text in texts.items() if text}
    family = {"family": " as ".join(texts.values())}
    try:
        return [
            family | {key: text.format(**values) for key, text in texts.items()}
            for values in expand_grid(grid)
        ]
    except (KeyError, IndexError) as error:
        rule = f"pattern {texts['name']!r} has a field without values: {error}"
        raise ConfigurationError(rule) from error


def read_file_source(spec: Mapping) -> dict:
    """Return a file among a sweep's data sets as a source, its lists as tuples.

    Raises
    ------
    ValueError
        If the columns or the label name no column, or the bounds are no two numbers and
        no two lists of numbers.
    """
    columns, label = spec.get("columns"), spec.get("label")
    rule = "the name or the number of a column"
    require(label is None or is_column(label), "label", label, rule)
    bounds = spec.get("bounds")
    rule = "[lower,upper] or [[lower,...],[upper,...]], in numbers"
    require(bounds is None or are_bounds(bounds), "bounds", bounds, rule)
    source = dict(spec) | {"bounds": to_tuples(bounds)}
    if columns is None:
        return source
    holds = isinstance(columns, list | tuple) and all(map(is_column, columns))
    rule = "a list of names or numbers of columns"
    require(holds and columns != [], "columns", columns, rule)
    return source | {"columns": tuple(columns)}


def to_tuples(value: Any) -> Any:
    """Turn nested lists into nested tuples, which can be keys of caches."""
    return tuple(map(to_tuples, value)) if isinstance(value, list | tuple) else value


def are_bounds(value: object) -> bool:
    """Tell whether a value is two numbers, or two lists of numbers."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    are_lists = all(isinstance(item, list | tuple) and item for item in value)
    numbers = [*value[0], *value[1]] if are_lists else value
    return all(map(is_number, numbers))


def is_column(value: object) -> bool:
    """Tell whether a value can name a column."""
    return isinstance(value, str) or is_integer(value)


def expand_methods(specs: Sequence) -> list[dict]:
    """Expand the methods of a sweep: names, grids over them, or whole configurations.

    A grid over a method may give it another ``name``, and another style.

    Raises
    ------
    ConfigurationError
        If a method is unknown; the known ones are listed.

    Examples
    --------
    >>> specs = [{"method": "fastlloyd", "grid": {"alpha": [0.4, 0.8]}}]
    >>> [config["alpha"] for config in expand_methods(specs)]
    [0.4, 0.8]
    """
    configs = []
    for spec in specs:
        spec = {"method": spec} if isinstance(spec, str) else spec
        rule = "names, mappings with a method or with a _target_"
        is_method = isinstance(spec, Mapping) and {"_target_", "method"} & spec.keys()
        require(bool(is_method), "methods", spec, rule)
        if "_target_" in spec:
            configs.append(fill_defaults(spec))
            continue
        require_choices("key of a method", spec, ["method", "grid", "name", *STYLE])
        config = read_choice("method", spec["method"])
        config |= {key: spec[key] for key in ("name", *STYLE) if key in spec}
        configs += [config | values for values in expand_grid(spec.get("grid", {}))]
    return configs
