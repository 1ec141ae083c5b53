"""The code behind a cell: what changes its hash."""

import inspect
import sys
import textwrap

import pytest

from pkm import source
from pkm.experiments.cell import code_hash as module
from pkm.experiments.cell.code_hash import code_hash, find_dependencies
from pkm.experiments.fit.kinds import KINDS
from pkm.source import code_digest, parse_code, read_source


def test_closure_follows_imports_of_one_method_only():
    files = set(find_dependencies(("pkm.methods.lloyd.lloyd", *module.COMMON_MODULES)))
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
        "pkm.schema",
        "pkm.experiments.store.store",
        *(kind.__module__ for kind in KINDS),
    }
    assert not excluded & files


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
    for cached_function in (code_hash, read_source, module.list_imports):
        cached_function.cache_clear()
    return code_hash("external_methods.mean.Shifted")


def test_code_hash_follows_imports_of_external_methods(external_package):
    before = fresh_hash()
    (external_package / "unused.py").write_text("VALUE = 1\n")
    assert fresh_hash() == before
    (external_package / "tools.py").write_text("SHIFT = 1\n")
    assert fresh_hash() != before


@pytest.mark.slow
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
        find_dependencies(["pkm.methods.nowhere"])


def test_code_hash_ignores_the_label_of_a_method():
    plain = parse_code("class A:\n    depth: int = 2\n").code
    styled = parse_code('class A:\n    label: ClassVar[str] = "A"\n    depth: int = 2\n').code
    assert plain == styled
    # A label at the top of a module is code.
    assert styled != parse_code('label: str = "A"\n' + plain).code
