"""`pkm reproduce` downloads what its plans lack, and goes on without what cannot be had."""

import time

import pytest

from pkm import datasets
from pkm.datasets import downloads
from pkm.experiments.commands import reproduce
from pkm.experiments.reports import fetching, reproduction

PATTERN = "{pattern:'g2-{d}-20',fallback:'g2-{d}-20-generated',d:[128]}"
WANTED = f"paper.profiles.smoke.g2.datasets=[brightkite,gowalla,{PATTERN}]"
OMITTED = (
    "real",
    "sound",
    "synthk",
    "synth",
    "ablation",
    "iterations",
    "initialization",
    "protocol",
)


@pytest.fixture
def call(cache, tmp_path, capsys, monkeypatch):
    """Return a function that reproduces a small paper; `requests` are the names it fetches."""
    monkeypatch.setattr(fetching, "has_network", lambda urls: True)
    words = ["profile=smoke", f"results={tmp_path / 'results'}", "tracking=none", "backend=serial"]
    words += [WANTED, *(f"paper.profiles.smoke.{sweep}=null" for sweep in OMITTED)]

    def call_verb(verb, *more):
        return reproduce.main([verb, *words, *more]), capsys.readouterr().out

    call_verb.requests = []

    def fetch_missing(names, data_dir=None, report=None):
        call_verb.requests.append(names)
        report("brightkite: 105 kB from example.org; license: none")
        return datasets.Fetched((), {name: f"no answer for {name}" for name in names})

    monkeypatch.setattr(datasets, "fetch_missing", fetch_missing)
    fetching.why_unavailable.cache_clear()
    return call_verb


@pytest.mark.slow
def test_what_cannot_be_had_is_listed_once(call):
    code, out = call("run", "fetch=yes")
    assert code == 0
    assert len(call.requests) == 1
    assert set(call.requests[0]) == {"brightkite", "gowalla", "g2-128-20"}
    assert out.index("105 kB from example.org") < out.index("cells, 0 stored")
    assert out.count("no answer for NAME") == 1
    assert "0 failed" in out


@pytest.mark.slow
@pytest.mark.parametrize("verb, more", [("run", "fetch=no"), ("plan", "fetch=yes"), ("status", "")])
def test_nothing_is_fetched(call, verb, more, tmp_path):
    (tmp_path / "results").mkdir()
    assert call(verb, *filter(None, [more]))[0] == 0
    assert call.requests == []


@pytest.mark.slow
def test_tests_do_not_fetch(call):
    call("run")
    assert call.requests == []


@pytest.mark.slow
def test_without_network_one_line(call, monkeypatch):
    monkeypatch.setattr(fetching, "has_network", lambda urls: False)
    code, out = call("run", "fetch=yes")
    assert code == 0
    assert call.requests == []
    assert out.count("no network: goes on without g2-128-20, brightkite, gowalla") == 1


@pytest.mark.slow
def test_plans_are_made_again(call, monkeypatch):
    made = []
    original = reproduction.make_plan

    def make_plan(*given, **options):
        made.append(given[0]["name"])
        return original(*given, **options)

    monkeypatch.setattr(reproduction, "make_plan", make_plan)
    monkeypatch.setattr(datasets, "fetch_missing", lambda *_: datasets.Fetched(("brightkite",)))
    code, out = call("run", "fetch=yes")
    assert code == 0
    assert made == ["fastlloyd", "fastlloyd"]
    assert "downloaded: brightkite" in out


def test_probe_is_short(monkeypatch):
    def head(url, timeout):
        if "slow" in url:
            time.sleep(1)
        if "closed" in url:
            raise requests.ConnectionError(url)

    requests = pytest.importorskip("requests")
    monkeypatch.setattr(requests, "head", head)
    monkeypatch.setattr(downloads, "PROBE_SECONDS", 0.2)
    assert downloads.has_network(["https://closed/a", "https://open/b"])
    assert not downloads.has_network(["https://closed/a"])
    start = time.perf_counter()
    assert not downloads.has_network(["https://slow/a", "https://closed/b"])
    assert time.perf_counter() - start < 0.8
