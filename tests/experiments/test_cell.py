"""Identity of a cell: what changes its key and what does not."""

import dataclasses
import inspect
import sys
import textwrap

import pytest

from pkm.experiments import code_hash as module
from pkm.experiments.cell import Cell, to_hashable
from pkm.experiments.code_hash import closure, code_hash
from pkm.experiments.execute import FITTERS
from pkm.source import code_digest, normal_form, source_of

BASE = Cell(
    "fastlloyd",
    "pkm.methods.lloyd.FastLloyd",
    to_hashable({"alpha": 0.8}),
    "iris",
    "minmax",
    3,
    1.0,
    "auto",
    (0, 1),
    ("nicv",),
)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "other"}, {"target": "pkm.methods.lloyd.GLloyd"},
        {"params": to_hashable({"alpha": 0.9})}, {"dataset": "wine"}, {"preprocessing": "public"},
        {"clip": False}, {"k": 4}, {"epsilon": 0.5}, {"delta": 1e-6},
        {"seeds": (0, 2)}, {"metrics": ("nicv", "silhouette")}, {"timing": True},
    ],
)  # fmt: skip
def test_every_field_counts(change):
    assert dataclasses.replace(BASE, **change).key != BASE.key


def test_equal_fields_give_equal_keys_however_they_are_written():
    same = dataclasses.replace(BASE, epsilon=1, params=to_hashable({"alpha": 0.8}))
    assert same.key == BASE.key


def test_time_limit_is_no_part_of_the_identity():
    limited = dataclasses.replace(BASE, time_limit=60.0)
    assert limited.key == BASE.key and limited == BASE and limited.identity() == BASE.identity()


def test_file_is_known_by_content_not_by_place(tmp_path):
    cells = []
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("0.1,0.2\n0.3,0.4\n")
        cells.append(dataclasses.replace(BASE, dataset="file", path=str(tmp_path / name), k=1))
    assert cells[0].key == cells[1].key
    assert cells[0].label != cells[1].label
    (tmp_path / "c.csv").write_text("0.1,0.2\n0.3,0.5\n")
    changed = dataclasses.replace(cells[0], path=str(tmp_path / "c.csv"))
    assert changed.key != cells[0].key
    assert dataclasses.replace(cells[0], bounds=(0, 1)).key != cells[0].key


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
    ],
)
def test_value_outside_its_rule_is_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(BASE, **change)


def test_closure_follows_imports_and_leaves_out_other_methods_and_loaders():
    files = set(closure(("pkm.methods.lloyd", *module.ALWAYS)))
    assert {
        "pkm.methods.lloyd",
        "pkm.methods.base",
        "pkm.privacy.ledger",
        "pkm.metrics",
        "pkm.datasets.scaling",
        "pkm.experiments.execute",
        "pkm.source",
    } <= files
    assert (
        not {
            "pkm",
            "pkm.methods",
            "pkm.methods.kmeans",
            "pkm.datasets",
            "pkm.datasets.registry",
            "pkm.experiments.store",
            *module.HARNESSES.values(),
        }
        & files
    )


def test_every_harness_is_fitted_by_the_module_that_is_hashed_for_it():
    assert {kind: fit.__module__ for kind, fit in FITTERS.items()} == module.HARNESSES


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Return the folder of a small package that is not part of the project."""
    package = tmp_path / "outside_methods"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tools.py").write_text("SHIFT = 0\n")
    (package / "unused.py").write_text("")
    (package / "mean.py").write_text(
        "from pkm.methods.baselines import DataMean\nfrom .tools import SHIFT\n\n\n"
        "class Shifted(DataMean):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
        del sys.modules[name]


def fresh_hash():
    for cached in (code_hash, source_of, module.imported_names):
        cached.cache_clear()
    return code_hash("outside_methods.mean.Shifted")


def test_code_hash_follows_an_outside_method_into_its_own_package(outside):
    before = fresh_hash()
    (outside / "unused.py").write_text("VALUE = 1\n")
    assert fresh_hash() == before
    (outside / "tools.py").write_text("SHIFT = 1\n")
    assert fresh_hash() != before


@pytest.mark.parametrize(
    "text, same",
    [
        ("SHIFT = 0  # half-widths\n", True),
        ('"""Tools."""\n\n# A comment.\nSHIFT = 0\n', True),
        ("SHIFT = (\n    0\n)\n", True),
        ("SHIFT = 0.0\n", False),
        ('SHIFT = "0"\n', False),
        ("SHIFT = 0\nprint(SHIFT)\n", False),
    ],
)
def test_comments_docstrings_and_layout_change_no_key_and_code_does(outside, text, same):
    before = fresh_hash()
    (outside / "tools.py").write_text(text)
    assert (fresh_hash() == before) is same


def test_digest_of_a_function_is_that_of_its_code():
    def plain(x):
        return [x, "a text"]

    def explained(x):
        """Explain it."""
        # Explain it more.
        return [x, "a text"]

    def different(x):
        return [x, "another text"]

    code = [normal_form(textwrap.dedent(inspect.getsource(f))) for f in (plain, explained)]
    assert code[0] == code[1].replace("explained", "plain")
    assert code_digest(plain) != code_digest(different)
    assert code_digest(plain, different) != code_digest(different, plain)


def test_missing_module_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"pkm\.methods\.nowhere"):
        closure(["pkm.methods.nowhere"])


def test_style_of_a_method_is_no_code():
    plain = normal_form("class A:\n    depth: int = 2\n")
    styled = normal_form('class A:\n    label: ClassVar[str] = "A"\n    depth: int = 2\n')
    assert plain == styled != normal_form('label: str = "A"\n' + plain)
