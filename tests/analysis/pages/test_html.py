"""Pages from templates."""

import re

from pkm.analysis.pages.html import render


def test_environment_entries():
    names = [f"g2-{d}-{sd}" for d in (2, 4) for sd in range(10, 101, 10)]
    substitutes = [f"{name} by {name}-generated" for name in names]
    environment = {
        "computed with": {"numpy": "2.4", "inner": {"python": "3.11"}},
        "substitutes": substitutes,
        "joined": "; ".join(substitutes),
        "few": ["a", "b"],
        "empty": [],
        "cores": 2,
    }
    page = render("environment.html.jinja", environment=environment)
    entries = dict(re.findall("<dt>(.*?)</dt>\n<dd>(.*?)</dd>", page))
    assert entries["computed with · inner · python"] == "3.11"
    for name in ("substitutes", "joined"):
        assert re.findall("<li>(.*?)</li>", entries[name]) == substitutes
        assert entries[name].startswith("<details><summary>20 entries: g2-2-10 by ")
    assert entries["few"] == "a, b"
    assert entries["empty"] == "–"
    assert entries["cores"] == "2"
