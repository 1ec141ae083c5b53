"""Claims and documents that point to tests point to tests that exist."""

import re
from pathlib import Path

import pytest

from pkm.analysis import claims

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def sentences(value):
    """All texts of a nested value."""
    if isinstance(value, dict):
        return [text for each in value.values() for text in sentences(each)]
    if isinstance(value, list):
        return [text for each in value for text in sentences(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    ("paper", "n_tests"),
    [
        ("comparison", 0),
        ("distdp", 2),
        ("dpm", 8),
        ("fastlloyd", 6),
        ("kaplan-stemmer", 3),
        ("mufc", 12),
    ],
)
def test_claims_name_tests_that_exist(paper, n_tests):
    text = "\n".join(sentences(claims.load(paper)))
    modules = set(re.findall(r"\btests/[\w/]+\.py", text))
    code = "".join((ROOT / module).read_text(encoding="utf-8") for module in modules)
    named = set(re.findall(r"\btest_\w+\b(?!\.py)", text))
    assert [name for name in named if f"def {name}(" not in code] == []
    assert len(named) == n_tests


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_tests_that_exist(document):
    text = document.read_text(encoding="utf-8")
    assert all((ROOT / module).is_file() for module in re.findall(r"\btests/[\w/]+\.py", text))
