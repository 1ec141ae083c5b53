"""Identity of a cell: what changes its key and what does not."""

import dataclasses

import pytest

from pkm.datasets import FileOptions
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.coreset import Coreset
from pkm.experiments.fit.federation import Federation
from pkm.experiments.fit.unlearning import Unlearning

BASE = Cell(
    "fastlloyd",
    "pkm.methods.FastLloyd",
    {"alpha": 0.8},
    "iris",
    "minmax",
    3,
    1.0,
    "auto",
    (0, 1),
    ("nicv",),
    kind=Central(),
)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "other"}, {"target": "pkm.methods.GLloyd"},
        {"params": {"alpha": 0.9}}, {"dataset": "wine"}, {"preprocessing": "public"},
        {"clip": False}, {"k": 4}, {"epsilon": 0.5}, {"delta": 1e-6},
        {"keep_centers": True}, {"seeds": (0, 2)}, {"metrics": ("nicv", "silhouette")},
        {"timing": True}, {"kind": Coreset()}, {"kind": Central(10.0)},
        {"kind": Unlearning()},
    ],
)  # fmt: skip
def test_key_depends_on_every_field(change):
    assert dataclasses.replace(BASE, **change).key != BASE.key


def test_key_does_not_depend_on_the_notation():
    same = dataclasses.replace(BASE, epsilon=1, params={"alpha": 0.8})
    assert same.key == BASE.key


def test_time_limit_is_not_part_of_the_identity():
    limited = dataclasses.replace(BASE, time_limit=60.0)
    assert limited.key == BASE.key
    assert limited == BASE
    assert limited.identity() == BASE.identity()


def test_key_depends_on_file_content_not_path(tmp_path):
    def cell_of_file(name, content):
        path = tmp_path / name
        path.write_text(content)
        return dataclasses.replace(BASE, dataset="file", file=FileOptions(str(path)), k=1)

    first = cell_of_file("a.csv", "0.1,0.2\n0.3,0.4\n")
    copy = cell_of_file("b.csv", "0.1,0.2\n0.3,0.4\n")
    assert first.key == copy.key
    assert first.label != copy.label
    changed = cell_of_file("c.csv", "0.1,0.2\n0.3,0.5\n")
    assert changed.key != first.key
    with_bounds = dataclasses.replace(first, bounds=(0, 1))
    assert with_bounds.key != first.key


@pytest.mark.parametrize(
    "change, message",
    [
        ({"k": 0}, "k=0 is not allowed"),
        ({"k": True}, "k=True"),
        ({"epsilon": 0.0}, r"epsilon=0\.0"),
        ({"epsilon": float("inf")}, "epsilon=inf"),
        ({"epsilon": "1"}, "epsilon='1'"),
        ({"delta": 0.0}, r"delta=0\.0"),
        ({"delta": 1.0}, r"delta=1\.0"),
        ({"delta": "small"}, "delta='small'"),
        ({"seeds": ()}, r"seeds=\(\)"),
        ({"seeds": (1, 1)}, r"seeds=\(1, 1\)"),
        ({"seeds": (-1,)}, r"seeds=\(-1,\)"),
        ({"metrics": ()}, r"metrics=\(\)"),
        ({"clip": 0}, "clip=0 is not allowed: clip must be true or false"),
        ({"timing": 1}, "timing=1 is not allowed: timing must be true or false"),
        (
            {"time_limit": 0},
            "time_limit=0 is not allowed: time_limit must be a number of seconds above 0, or null",
        ),
        ({"time_limit": "1 h"}, "time_limit='1 h' is not allowed"),
        ({"method": 3}, "method=3 is not allowed: method must be a text"),
        ({"target": ""}, "target='' is not allowed"),
        ({"params": ()}, "params=.* must be a mapping"),
        ({"params": {"alpha": {"a": 1}}}, "alpha={'a': 1} is not allowed: alpha must be a flag"),
        ({"params": {"alpha": [1, "a"]}}, "alpha=.1, 'a'. is not allowed"),
        ({"params": {3: 1}}, "the name of a parameter=3 is not allowed"),
        ({"dataset": 3}, "dataset=3 is not allowed"),
        ({"file": FileOptions(3)}, "path=3 is not allowed"),
        ({"style": {"color": 3}}, "color=3 is not allowed"),
        ({"metrics": (3,)}, "metrics=3 is not allowed"),
        ({"keep_centers": "yes"}, "keep_centers='yes' is not allowed"),
        ({"kind": Federation(), "timing": True}, "transport='auto' is not allowed"),
        ({"kind": Federation(transport="threads")}, "timing=False is not allowed"),
        ({"kind": Unlearning(removals=1)}, "true for a cell with removals"),
        ({"params": {"public_data": "all"}}, "public_data='all' is not allowed"),
    ],
)
def test_invalid_values_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BASE, **change)


def test_styles_are_not_part_of_the_identity():
    fields = (
        "a",
        "pkm.methods.Lloyd",
        {},
        "iris",
        "minmax",
        3,
        None,
        None,
        (0,),
        ("nicv",),
    )
    plain = Cell(*fields, kind=Central())
    styled = Cell(*fields, style={"label": "b"}, kind=Central())
    assert plain == styled
    assert plain.identity() == styled.identity()
    assert plain.key == styled.key
