"""Identity of a cell: what changes its key and what does not."""

import dataclasses
import inspect
import sys
import textwrap

import pytest

from pkm import source
from pkm.experiments.cell import code_hash as module
from pkm.experiments.cell.cell import Cell
from pkm.experiments.cell.code_hash import closure, code_hash
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.coreset import Coreset
from pkm.experiments.fit.federation import Federation
from pkm.experiments.fit.kinds import KINDS, expand_kinds
from pkm.experiments.fit.unlearning import Unlearning
from pkm.source import code_digest, parse_code, read_source

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
        return dataclasses.replace(BASE, dataset="file", path=str(path), k=1)

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
        ({"path": 3}, "path=3 is not allowed"),
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


def test_closure_follows_imports_of_one_method_only():
    files = set(closure(("pkm.methods.lloyd.lloyd", *module.ALWAYS)))
    included = {
        "pkm.methods.lloyd.lloyd",
        "pkm.methods.base",
        "pkm.privacy.ledger",
        "pkm.metrics",
        "pkm.datasets.scaling",
        "pkm.experiments.fit.execute",
        "pkm.source",
    }
    assert included <= files
    # Neither other methods nor loaders are in the closure.
    excluded = {
        "pkm",
        "pkm.methods",
        "pkm.methods.baselines.kmeans",
        "pkm.datasets",
        "pkm.datasets.registry",
        "pkm.experiments.store.store",
        *(kind.__module__ for kind in KINDS),
    }
    assert not excluded & files


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"coreset": 1}, "coreset=1 is not allowed"),
        ({"coreset": True, "unlearning": {}}, "null for a cell with unlearning"),
        ({"federation": {}, "unlearning": {}}, "null for a cell with federation"),
        ({"federation": {}, "bounds_factor": 10}, "1 for a cell with federation"),
        ({"federation": [("clients", 2)]}, "null or a mapping of clients"),
        ({"bounds_factor": 0.5}, "a number from 1 to 1,000,000"),
    ],
)
def test_a_sweep_asks_for_one_kind_of_cells(spec, message):
    with pytest.raises(ValueError, match=message):
        expand_kinds(spec)


@pytest.fixture
def external_package(tmp_path, monkeypatch):
    """Return the folder of a small package that is not part of the project."""
    package = tmp_path / "external_methods"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tools.py").write_text("SHIFT = 0\n")
    (package / "unused.py").write_text("")
    (package / "mean.py").write_text(
        "from pkm.methods.baselines.baselines import DataMean\nfrom .tools import SHIFT\n\n\n"
        "class Shifted(DataMean):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    imported = [name for name in sys.modules if name.partition(".")[0] == package.name]
    for name in imported:
        del sys.modules[name]


def fresh_hash():
    for cached_function in (code_hash, read_source, module.imported_names):
        cached_function.cache_clear()
    return code_hash("external_methods.mean.Shifted")


def test_code_hash_follows_imports_of_external_methods(external_package):
    before = fresh_hash()
    (external_package / "unused.py").write_text("VALUE = 1\n")
    assert fresh_hash() == before
    (external_package / "tools.py").write_text("SHIFT = 1\n")
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
def test_code_hash_depends_on_statements_only(external_package, text, same):
    before = fresh_hash()
    (external_package / "tools.py").write_text(text)
    assert (fresh_hash() == before) is same


def test_code_digest_depends_on_statements_only():
    def plain(x):
        return [x, "a text"]

    def explained(x):
        """Explain it."""
        # Explain it more.
        return [x, "a text"]

    def different(x):
        return [x, "another text"]

    def normal_source(function):
        text = inspect.getsource(function)
        return parse_code(textwrap.dedent(text)).code

    renamed = normal_source(explained).replace("explained", "plain")
    assert normal_source(plain) == renamed
    assert code_digest(plain) != code_digest(different)
    assert code_digest(plain, different) != code_digest(different, plain)


def test_parsed_files_are_kept_by_their_content(tmp_path, monkeypatch):
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "code.py"
    path.write_text("from .a import b\nimport c, d  # both\n")

    def read_again():
        read_source.cache_clear()
        return read_source(path)

    expected = source.parse_code(path.read_text())
    assert expected.imports == (source.Import("a", ("b",), 1), source.Import(None, ("c", "d")))
    assert read_again() == expected
    # Kept: it is not parsed again, unless what is kept is damaged or the file has changed.
    with monkeypatch.context() as patch:
        patch.setattr(source, "parse_code", None)
        assert read_again() == expected
    (kept,) = (tmp_path / "cache" / "sources").iterdir()
    kept.write_bytes(b"damaged")
    assert read_again() == expected
    path.write_text("import e\n")
    assert read_again().imports == (source.Import(None, ("e",)),)


def test_error_names_the_missing_module():
    with pytest.raises(ModuleNotFoundError, match=r"pkm\.methods\.nowhere"):
        closure(["pkm.methods.nowhere"])


def test_code_hash_ignores_the_label_of_a_method():
    plain = parse_code("class A:\n    depth: int = 2\n").code
    styled = parse_code('class A:\n    label: ClassVar[str] = "A"\n    depth: int = 2\n').code
    assert plain == styled
    # A label at the top of a module is code.
    assert styled != parse_code('label: str = "A"\n' + plain).code
