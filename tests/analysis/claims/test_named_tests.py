"""The tests that claims and documents name exist."""

import re
from pathlib import Path

import pytest

from pkm.analysis.claims.claim import Claim, read_claims
from pkm.experiments.config.groups import choices

ROOT = Path(__file__).parents[3]
#: Papers all of whose claims are judged by stored rows.
WITHOUT_TESTS = ("comparison", "pe-means")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def nested_texts(value):
    """All texts of a nested value."""
    if isinstance(value, Claim):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in nested_texts(item)]
    return [value] if isinstance(value, str) else []


def named_tests(text):
    """Tests that a text names, with the module that it names before them."""
    module = None
    for word in re.findall(r"\btests/[\w/]+\.py|\btest_\w+\b(?!\.py)", text):
        if word.startswith("tests/"):
            module = word
        else:
            yield module, word


@pytest.mark.parametrize("paper", choices("paper"))
def test_claims_name_tests_that_exist(paper):
    named = set(named_tests("\n".join(nested_texts(read_claims(paper)))))
    assert bool(named) == (paper not in WITHOUT_TESTS)
    for module, name in named:
        assert f"def {name}(" in (ROOT / module).read_text(encoding="utf-8"), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_tests_that_exist(document):
    text = document.read_text(encoding="utf-8")
    modules = re.findall(r"\btests/[\w/]+\.py", text)
    assert all((ROOT / module).is_file() for module in modules)
