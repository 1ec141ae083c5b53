"""Claims as data: the documented example, keys and names that are refused."""

import re
from pathlib import Path

import pytest
import yaml
from two_methods import FIGURE2, evaluate_check, shifted_study

from pkm.analysis.claims import exact
from pkm.analysis.claims.claim import check_keys, make_claim, read_claims
from pkm.analysis.claims.findings import CHECK_TYPES
from pkm.analysis.paper_files import KnownNames


def test_documented_claim_and_types():
    text = (Path(__file__).parents[3] / "docs" / "extending.md").read_text(encoding="utf-8")
    section = text[text.index("### A claim") : text.index("### Federated runs and removals")]
    example = section[section.index("```yaml") : section.index("```\n\n|")]
    (entry,) = yaml.safe_load(example.removeprefix("```yaml"))
    claim = make_claim(entry, "docs/extending.md", KnownNames("fastlloyd"))
    assert claim in read_claims("fastlloyd")["claims"]
    assert set(exact.__dict__) & set(CHECK_TYPES) <= set(re.findall(r"`(\w+)`", section))


def test_unknown_papers_and_checks_are_refused():
    with pytest.raises(ValueError, match="fastlloyd"):
        read_claims("nobody")
    with pytest.raises(ValueError, match="'orderin' is unknown; did you mean 'ordering'"):
        check_keys({"type": "orderin"}, "claim")
    with pytest.raises(
        ValueError, match="check bound: 'at_mots' is unknown; did you mean 'at_most'"
    ):
        check_keys({"type": "all_of", "parts": [{"type": "bound", "at_mots": 1}]}, "claim")
    with pytest.raises(ValueError, match="'lefd' is unknown"):
        check_keys(FIGURE2 | {"variants": [{"text": "Else", "lefd": ["lloyd_published"]}]}, "claim")
    entry = {"id": "paper/name", "check": FIGURE2, "statment": "None."}
    with pytest.raises(ValueError, match="'statment' is unknown; did you mean 'statement'"):
        make_claim(entry, "claims.yaml", KnownNames("fastlloyd"))
    with pytest.raises(ValueError, match="needs one of the bounds"):
        evaluate_check(FIGURE2 | {"type": "bound"}, shifted_study(0.0))
