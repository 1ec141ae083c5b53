"""Replay of `pkm run`: on neighboring files it shows the same, but for what is disclosed."""

import itertools
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest

from pkm.audit.pairs import PAIR_GENERATORS, draw_pair
from pkm.audit.replay import ReplayMismatch, Trace, compare_traces, make_tracing_curator, observe
from pkm.experiments.commands import run
from pkm.experiments.config.groups import choices, read_choice
from pkm.experiments.fit import inputs
from pkm.experiments.store.store import Store
from pkm.methods import load_method
from pkm.privacy import Adjacency, Budget, PrivacyAccountant
from pkm.privacy.query import ONE_RECORD_ADJACENCIES
from pkm.schema import names

pytestmark = pytest.mark.integration
#: Columns of a row that are no release, as "What results disclose" of docs/privacy.md says:
#: metrics, times, the number of clipped rows, and keyed fingerprints. Where n is secret, so is n.
DISCLOSED = {*names("metric", "resource"), "clipped", "cell", "data", "finished"}
#: The same in what a command prints: null records, clipped rows, means of metrics, time.
DISCLOSED_TEXT = [
    r"; \d+ rows lack a value: null records \(number not protected\)",
    r"\w+: \d+ of \d+ points \(number not protected\) lie outside [^()]* \(clip=false refuses "
    r"them\) ",
    r"[-\w.]+ ± [-\w.]+",
    r"about \d+ s left",
]
N_ROWS = r"\d+ rows, (?=\d+ columns)"  # of the file; n is public elsewhere
#: One of every family; published variants whose budgets depend on n.
METHODS = [
    "glloyd_published",
    "fastlloyd",
    "dpm_published",
    "em_mc",
    "lsh_splits",
    "kaplan_stemmer",
    "quadtree",
    "mst",
    "pe_means",
    "dist_dp",
    "ldp_mean",
]
SETTINGS = (
    "bounds=[-1,1]",
    "k=3",
    "epsilon=1.0",
    "seeds=2",
    "keep_centers=true",
    "metrics=[nicv,centroid_distance]",
    "backend.retries=0",
)
slow = partial(pytest.param, marks=pytest.mark.slow)
KINDS_BY_NAME = {kind.__name__.removeprefix("draw_"): kind for kind in PAIR_GENERATORS}


@pytest.fixture
def trace_command(monkeypatch, tmp_path):
    """Return a function that runs a command on points, and writes down what it shows."""
    monkeypatch.delenv("PKM_DATA", raising=False)
    monkeypatch.setenv("PKM_CACHE", str(tmp_path / "cache"))
    numbers = itertools.count()

    def trace_main(method, X, recorded=None, adjacency=None):
        folder = tmp_path / f"run{next(numbers)}"
        folder.mkdir()
        file = folder / "own.csv"
        account = folder / "account.json"
        pd.DataFrame(X).add_prefix("x").to_csv(file, index=False)
        known = method in choices("method")
        built = load_method(read_choice("method", method)["_target_"] if known else method)
        budget = built(2).budget(*X.shape)
        terms = Budget(999.0, 0.99, adjacency or budget.adjacency, rho=budget.rho)
        PrivacyAccountant(terms, account)

        # Public seeds are equal, and outcomes are recorded or forced.
        seeds = itertools.count(7)
        trace = Trace()
        curator = make_tracing_curator(built.curator, trace, recorded)
        with monkeypatch.context() as patched, observe(trace.observed):
            patched.setattr(inputs.secrets, "randbits", lambda bits: next(seeds))
            patched.setattr(built, "curator", curator)
            words = [f"method={method}", "dataset=file", f"path={file}", f"account={account}"]
            settings = SETTINGS
            if adjacency is not None:
                # Less noise on n, which else is below k in half of all runs.
                settings = [word.replace("epsilon=1.0", "epsilon=100.0") for word in SETTINGS]
                words.append(f"method.adjacency={adjacency}")
            code = run.main([*words, *settings, f"results={folder / 'results'}"])
        store = Store(folder / "results")
        keys = list(store.keys())

        failed = [path.name.partition(".")[0] for path in folder.rglob("*.failed.json")]

        def clean(text):
            for key in [*keys, *failed]:
                text = text.replace(key, "CELL").replace(f"/{key[:2]}/", "/")
            return text.replace(str(folder), "")

        text = " ".join(trace.observed["printed text"].split())
        hides_n = adjacency == Adjacency.ADD_REMOVE
        for pattern in [*DISCLOSED_TEXT, *[N_ROWS] * hides_n]:
            text = re.sub(pattern, "", text)
        files = [path for path in folder.rglob("*") if path.is_file()]
        runs = [
            charged.to_dict() | {"date": ""} for charged in PrivacyAccountant.open(account).runs
        ]
        rows = store.read(keys) if keys else pd.DataFrame()
        trace.observed |= {
            "exit code": code,
            "printed text": clean(text),
            "files": sorted((clean(str(path)), path.stat().st_mode) for path in files),
            "account's file": clean(repr(runs)),
            **{
                f"column {name}": rows[name].tolist()
                for name in rows
                if name not in DISCLOSED and not (hides_n and name == "n")
            },
        }
        return trace

    return trace_main


def compare_commands(trace_command, method, X, neighbor_X, adjacency=None):
    """Run a command on both files, with equal outcomes: what it shows, and the difference."""
    recorded = trace_command(method, X, adjacency=adjacency)
    try:
        replayed = trace_command(method, neighbor_X, recorded.draws, adjacency=adjacency)
    except ReplayMismatch as error:
        return recorded, str(error)
    return recorded, compare_traces(recorded, replayed)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param(*case, marks=() if case[0] == "fastlloyd" else pytest.mark.slow)
        for case in zip(METHODS, itertools.cycle(["outside", "lone_record"]), strict=False)
    ],
)
def test_commands_on_neighbors_show_the_same(trace_command, method, kind):
    method_class = load_method(read_choice("method", method)["_target_"])
    adjacency = Adjacency(method_class.claims["sound"].adjacency)
    n = 60 if adjacency in ONE_RECORD_ADJACENCIES else 400
    rho = method_class(3).budget(n, 2).rho
    pair = draw_pair(KINDS_BY_NAME[kind], adjacency, np.random.default_rng(0), n, 2, rho)
    recorded, difference = compare_commands(trace_command, method, pair.X, pair.reversed.X)
    assert difference == ""
    assert recorded.draws
    assert recorded.observed["exit code"] == 0
    assert {"column centers", "column charges", "column epsilon_spent"} <= recorded.observed.keys()


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4, 60])
@pytest.mark.parametrize("method", ["fastlloyd", "quadtree"])
def test_commands_on_files_of_other_lengths_show_the_same(trace_command, method, n):
    """Under add-remove adjacency, also where one file has fewer rows than clusters."""
    rng = np.random.default_rng(n)
    pair = draw_pair(KINDS_BY_NAME["outside"], Adjacency.ADD_REMOVE, rng, n, 2)
    recorded, difference = compare_commands(
        trace_command, method, pair.X, pair.reversed.X, "add_remove"
    )
    assert difference == ""
    assert recorded.draws
    if recorded.observed["exit code"] == 0:
        assert recorded.observed["column adjacency"] == ["add_remove"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "X",
    [
        pytest.param([[0.1, 0.2], [-0.5, 0.4], [0.9, 0.9]], id="k points"),
        pytest.param([[0.1, 0.2], [-0.5, 0.4], [0.9, 0.9]] * 9, id="k distinct points"),
        pytest.param([[np.inf, 0.2], [-0.5, 0.4], [0.9, 0.9], [0.1, 0.1]], id="infinite value"),
    ],
)
def test_commands_on_few_points_show_the_same(trace_command, X):
    """A null record counts in n, so that no rule on n tells whether it is there."""
    neighbor_X = np.array(X)
    neighbor_X[0] = np.nan
    recorded, difference = compare_commands(
        trace_command, "glloyd_published", np.array(X), neighbor_X
    )
    assert difference == ""
    assert recorded.observed["exit code"] == 0


@pytest.mark.parametrize(
    ("method", "shown"),
    [
        ("faults_around_releases:PrintsSize", "printed text differs"),
        slow("faults_around_releases:WarnsOfSize", "warnings differs"),
        slow("faults_around_releases:IterationsFromData", "column iterations differs"),
        slow("faults_around_releases:RefusesEmptyQuadrant", "printed text differs"),
        ("planted_faults:ReadsRows", "column centers differs"),
    ],
)
def test_a_command_that_shows_more_is_found(trace_command, method, shown):
    X = np.array([[0.5, 0.5]] + [[-0.5, -0.5]] * 20)
    neighbor_X = X.copy()
    neighbor_X[0] = np.nan
    _, difference = compare_commands(trace_command, method, X, neighbor_X)
    assert shown in difference
