"""``pkm explain`` says what a method releases, from public numbers alone."""

import re

import numpy as np
import pytest

from pkm.__main__ import main
from pkm.experiments.commands.explain import list_releases
from pkm.methods import METHODS, FastLloyd, KaplanStemmer, KaplanStemmerLocal, load_method
from pkm.privacy import Charge


def test_the_plan_is_printed_with_what_it_costs_and_promises(capsys):
    assert main(["explain", "FastLloyd", "n=5000", "d=2", "k=15", "variant=published"]) == 0
    page = " ".join(capsys.readouterr().out.replace("│", " ").split())
    method = FastLloyd(15, variant="published")
    charges = method.planned_run(5000, 2, [0]).schedule
    mu = f"{charges[0].mu:.4g}"
    assert f"1 {len(charges)} sums_and_counts gaussian {len(charges)} {mu} 0 0 100.0%" in page
    assert "sums_and_counts: Sums and counts of the points nearest to each center." in page
    delta = f"{method.resolved_delta(5000):g}"
    assert f"together: epsilon 1 of 1, delta {delta} unit:" in page
    assert "Several rows of one person are protected each by itself" in page
    assert "the same but for one row, in whose place one of them has a null record" in page
    assert "public: n, domain, k, all parameters flaws: F-09" in page


@pytest.mark.parametrize("method", [FastLloyd(3), KaplanStemmer(3)])
def test_the_plan_is_what_a_fit_releases(method):
    points = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    fitted = method.set_params(bounds=(-1, 1), secure=True).fit(points)
    planned = method.planned_run(1000, 2, [0]).schedule
    assert list_releases(planned) == list_releases(fitted.ledger_.charges)


@pytest.mark.parametrize("name", METHODS)
def test_every_release_of_every_method_is_listed_once(name):
    method = load_method(name)(n_clusters=3)
    if not method.claim.private:
        pytest.skip("it releases what it likes")
    charges = method.planned_run(10_000, 2, [0]).schedule
    rows = list_releases(charges)[1:]
    assert sum(int(row[4]) for row in rows) == len(charges)
    assert {row[2] for row in rows} == {charge.label for charge in charges}
    if all(charge.group is None for charge in charges):
        # Shares are rounded to tenths of a percent.
        total = sum(float(row[-1].rstrip("%")) for row in rows)
        assert total == pytest.approx(100, abs=0.05 * len(rows) + 1e-9)


def test_shares_of_mu_squared_are_those_of_the_cost():
    mus = [0.3, 0.4, 0.3]
    charges = [Charge(label, 0, "gaussian", mu=mu) for label, mu in zip("aba", mus, strict=True)]
    rows = list_releases(charges)[1:]
    # 0.09 + 0.16 + 0.09 = 0.34
    assert rows == [
        ["1", "3", "a", "gaussian", "2", "0.3", "0", "0", "52.9%"],
        ["2", "2", "b", "gaussian", "1", "0.4", "0", "0", "47.1%"],
    ]


def test_disjoint_users_pay_for_their_own_release_alone():
    charges = KaplanStemmerLocal(3).planned_run(10_000, 2, [0]).schedule
    assert {row[-1] for row in list_releases(charges)[1:]} == {"100.0%"}


def test_a_secret_number_of_records_is_released_first(capsys):
    words = ["explain", "FastLloyd", "n=9", "d=2", "k=3", "adjacency=add_remove"]
    assert main(words) == 0
    page = capsys.readouterr().out.replace("│", " ")
    assert re.search(r"1 +1 +record_count +gaussian +1 +\S+ +0 +0 +2.0%", page)
    assert re.search(r"2 +2 +rest +gaussian +1 +\S+ +0 +0 +98.0%", page)
    assert "public: domain, k, all parameters" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "METHOD='' is not allowed: METHOD must be one method"),
        (["FastLloid"], "did you mean 'FastLloyd'?"),
        (["FastLloyd", "n=9", "d=2"], "k=None is not allowed: k must be a whole number"),
        (["FastLloyd", "n=9", "d=two", "k=3"], "d='two' is not allowed"),
        (["FastLloyd", "n=9", "d=2", "k=3", "alhpa=1"], "did you mean 'alpha'?"),
        (["FastLloyd", "n=9", "d=2", "k=3", "alpha=-1"], "alpha=-1"),
        (["Lloyd", "n=9", "d=2", "k=3"], "Lloyd claims no privacy"),
        (["FastLloyd", "n=2", "d=2", "k=3"], "n_clusters=3 must be at most the number"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(capsys, words, message):
    assert main(["explain", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
