"""The tests that claims and documents name exist."""

import re
from pathlib import Path

import pytest

from pkm.analysis.claims.claim import Claim, read_claims

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(
    ("paper", "n_tests"),
    [
        ("comparison", 0),
        ("distdp", 3),
        ("dpm", 8),
        ("fastlloyd", 7),
        ("kaplan-stemmer", 2),
        ("mufc", 12),
        ("pe-means", 0),
    ],
)
def test_claims_name_tests_that_exist(paper, n_tests):
    text = "\n".join(nested_texts(read_claims(paper)))
    modules = set(re.findall(r"\btests/[\w/]+\.py", text))
    code = "".join((ROOT / module).read_text(encoding="utf-8") for module in modules)
    tests = set(re.findall(r"\btest_\w+\b(?!\.py)", text))
    missing = [name for name in tests if f"def {name}(" not in code]
    assert missing == []
    assert len(tests) == n_tests


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_tests_that_exist(document):
    text = document.read_text(encoding="utf-8")
    modules = re.findall(r"\btests/[\w/]+\.py", text)
    assert all((ROOT / module).is_file() for module in modules)
