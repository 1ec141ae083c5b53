"""Statements: their numbers are the ledger's, and their texts cover all claims."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from estimators import blobs
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

from pkm.methods import (
    METHODS,
    Balcan,
    FastLloyd,
    GLloyd,
    Lloyd,
    SuLloyd,
    SynopsisKMeans,
    load_method,
)
from pkm.methods.statement import TEXTS, Statement
from pkm.privacy import Adjacency, Budget, BudgetExceeded, Charge, Ledger, Unit
from pkm.privacy.budget import NOTIONS, TRUSTS, VIEWS

#: Fields of an entry of tier 3 of the registry (deployments-schema.yaml at 057e5d8).
REGISTRY = {
    "basic": {
        "name",
        "data_curators",
        "intended_use",
        "description",
        "data_product_type",
        "data_product_region",
        "data_product_sector",
        "publication_date",
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        "privacy_unit",
        "privacy_unit_details",
        "number_of_privacy_units",
        "privacy_parameters",
        "privacy_parameters_details",
    },
    "deployment_model": {
        "model_name",
        "trust_assumptions",
        "actors",
        "release_type",
        "release_type_details",
        "data_source_type",
        "access_type",
    },
    "implementation": {
        "preprocessing_and_hyperparameter_tuning",
        "mechanisms",
        "composition",
        "post_processing",
        "justification",
        "utility",
        "additional_information",
    },
    "administrative": {"status", "registry_authors", "tier"},
}
#: Its closed lists, as far as a claim chooses from them.
CHOICES = {
    "variant_name": {"Pure DP", "Approximate DP", "Custom"},
    "model_name": {"Local", "Central", "Federated"},
}
#: Parts of a guarantee in figure 1 of NIST SP 800-226.
NIST = [
    "epsilon",
    "unit of privacy",
    "algorithms and correctness",
    "utility",
    "bias",
    "query model",
    "threat model",
    "side channels",
    "security",
    "access control",
    "data collection exposure",
]
AVAILABLE = [name for name in METHODS if not load_method(name).unavailable()]


def fitted(method=FastLloyd, n=600, **parameters):
    return method(2, bounds=(-1, 1), **parameters).fit(blobs(n))


def with_charges(*charges, epsilon=20.0, delta=0.1):
    """A statement of some releases alone."""
    statement = fitted().statement()
    ledger = Ledger(Budget(epsilon, delta))
    for charge in charges:
        ledger.charge(charge)
    fields = [vars(charge) for charge in ledger.charges]
    budget = {"epsilon": epsilon, "delta": delta}
    record = {"budget": budget, "charges": fields, "notes": [], "repeatable": False}
    return replace(statement, ledger=record), ledger


@pytest.mark.parametrize("use", ["statement", "to_sklearn"])
def test_models_that_were_never_fitted_state_nothing(use):
    with pytest.raises(NotFittedError):
        getattr(FastLloyd(bounds=(0, 1)), use)()


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="no keyword 'purpos'; did you mean 'purpose'"):
        fitted().statement(purpos="shops")


@pytest.mark.parametrize("name", AVAILABLE)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:delta=:UserWarning")
def test_every_method_and_variant_states_its_ledger(name):
    method = load_method(name)
    for variant, claim in method.claims.items():
        parameters = {"variant": variant} if "variant" in method().get_params() else {}
        model = fitted(method, **parameters)
        statement = model.statement()
        record = statement.to_dict()
        # It is JSON, without NaN and infinite numbers, and comes back equal.
        read = json.loads(json.dumps(record, allow_nan=False))
        assert read == record
        assert Statement.from_dict(read) == statement
        page = statement.to_markdown()
        assert statement.to_ledger() is None or "{" not in page

        if not claim.private:
            assert record.keys().isdisjoint({"promise", "nist", "registry"})
            assert statement.promise == {}
            assert "promises no privacy to anybody" in page
            continue
        ledger = model.ledger_
        assert statement.to_ledger().charges == ledger.charges
        assert statement.to_ledger().budget == ledger.budget
        promise = record["promise"]
        assert (promise["epsilon"], promise["delta"]) == (
            ledger.budget.epsilon,
            ledger.budget.delta,
        )
        assert promise["spent"] == ledger.spent()
        assert 0.5 <= promise["guess_by_releases"] <= promise["guess_by_budget"] + 1e-4
        for charge in ledger.charges:
            assert f"| {charge.label} | {charge.round} | {charge.mechanism} |" in page
        for flaw in claim.flaws:
            assert flaw in page
            assert flaw in record["nist"]["algorithms and correctness"]
        for found in CHOICES:
            sections = record["registry"].values()
            (value,) = [section[found] for section in sections if found in section]
            assert value in CHOICES[found]


def test_an_entry_of_the_registry_is_whole_and_typed():
    model = fitted(n=700)
    entry = model.statement(curator="A hospital", purpose="Plan clinics").to_dict()["registry"]
    assert {name: set(section) for name, section in entry.items()} == REGISTRY
    loss = entry["privacy_loss"]
    assert loss["number_of_privacy_units"] == 700
    assert loss["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert entry["administrative"]["tier"] == 3
    assert entry["basic"]["intended_use"] == "Plan clinics"
    assert entry["basic"]["data_curators"][0]["data_curator_name"] == "A hospital"
    assert entry["basic"]["data_product_region"].startswith("(the curator says: ")


def test_all_parts_of_a_guarantee_are_filled_or_open():
    nist = fitted().statement(bias="None known.").to_dict()["nist"]
    assert list(nist) == NIST
    assert nist["bias"] == "None known."
    assert nist["security"] == f"(the curator says: {TEXTS['questions']['security']})"


def test_answers_of_the_curator_are_on_the_page():
    """Whatever their signs, which are signs of formats and of tables elsewhere."""
    answers = {name: f"{{answer}} | {name}" for name in TEXTS["questions"]}
    statement = fitted().statement(**answers)
    page = statement.to_markdown()
    for name, question in TEXTS["questions"].items():
        assert f"| {question} | {{answer}} \\| {name} |" in page
    assert "the curator says" not in json.dumps(statement.to_dict()["registry"])


def test_texts_cover_all_claims():
    assert TEXTS["adjacency"].keys() == {*Adjacency}
    assert TEXTS["unit"].keys() == {*Unit}
    assert TEXTS["trust"].keys() == {*TRUSTS} - {"none"}
    assert TEXTS["view"].keys() == {*VIEWS}
    assert TEXTS["notion"].keys() == {*NOTIONS} - {"none"}


@pytest.mark.parametrize("adjacency", [*Adjacency])
@pytest.mark.parametrize("unit", [*Unit])
def test_texts_of_all_adjacencies_and_units_are_filled(adjacency, unit):
    statement = fitted().statement()
    rho = 0.25 if adjacency == Adjacency.RHO_BOUNDED else None
    terms = {"adjacency": adjacency, "unit": unit, "rho": rho}
    ledger = {**statement.ledger, "budget": {**statement.ledger["budget"], **terms}}
    page = replace(statement, ledger=ledger).to_markdown()
    assert f"one {unit}" in page
    assert "{" not in page
    assert ("0.25 half-widths" in page) == (rho is not None)
    # A secret number is none of the public values, but what was released of it is.
    is_secret = adjacency == Adjacency.ADD_REMOVE
    assert ("number of records, as released: 600" in page) == is_secret


def test_a_statement_of_persons_counts_persons():
    """Also of a table with names of columns, which are public."""
    table = pd.DataFrame(blobs(600), columns=["lat", "a|b"])
    model = GLloyd(2, bounds=[[-1, -2], [1, 2]]).fit(table, groups=np.arange(600) // 3)
    statement = model.statement()
    assert statement.public["n"] == model.n_ == 200
    assert statement.ledger["budget"]["unit"] == "person"
    page = statement.to_markdown()
    assert "| lat | -1 | 1 | -1 | 1 |" in page
    assert "| a\\|b | -2 | 2 | -2 | 2 |" in page
    assert "all rows with the person's id" in page


def test_a_seed_is_said_and_not_shown():
    seeded = fitted(random_state=271828182)
    page = seeded.statement().to_markdown()
    assert "Whoever knows or guesses the seed" in page
    assert "271828182" not in page + json.dumps(seeded.statement().to_dict())
    secure = fitted(random_state=271828182, secure=True).statement()
    assert "the operating system's entropy" in secure.to_markdown()
    assert secure.public["parameters"] == seeded.statement().public["parameters"]


def test_a_domain_that_was_found_is_on_the_page():
    model = SynopsisKMeans(2, bounds=(-40, 40), zoom=0.1, require_zoom=True).fit(blobs(20_000))
    statement = model.statement()
    assert np.array_equal(statement.domain, model.domain_)
    assert np.array_equal(statement.public["bounds"], [[-40, -40], [40, 40]])
    assert f"| 0 | -40 | 40 | {model.domain_[0, 0]:.10g} |" in statement.to_markdown()


def test_a_delta_above_one_over_n_is_said():
    with pytest.warns(UserWarning, match="is above 1/n"):
        model = fitted(GLloyd, delta=2 / 600)
    assert "Delta is above 1/n" in model.statement().to_markdown()
    assert "Delta is above 1/n" not in fitted(GLloyd).statement().to_markdown()


def test_a_guess_is_the_best_one_of_gaussian_noise():
    """The likelihood ratio test between N(0, 1) and N(mu, 1) is right with Phi(mu / 2)."""
    statement, _ = with_charges(
        Charge("sums", 0, "gaussian", mu=0.3), Charge("sums", 1, "gaussian", mu=0.4)
    )
    assert statement.promise["guess_by_releases"] == pytest.approx(norm.cdf(0.25), abs=1e-4)
    assert statement.promise["guess_by_releases"] >= norm.cdf(0.25)


def test_a_guess_is_the_best_one_of_randomized_response():
    """Enumerated: answers are true with odds e^epsilon to 1, and the likelier world is guessed."""
    epsilons = (0.5, 0.5, 1.2)
    best = 0.0
    for answers in itertools.product([True, False], repeat=3):
        likelihoods = []
        for world in (True, False):
            terms = [
                math.exp(epsilon) / (1 + math.exp(epsilon))
                if answer == world
                else 1 / (1 + math.exp(epsilon))
                for answer, epsilon in zip(answers, epsilons, strict=True)
            ]
            likelihoods.append(math.prod(terms))
        best += max(likelihoods) / 2
    charges = [Charge("a", i, "laplace", epsilon=epsilon) for i, epsilon in enumerate(epsilons)]
    statement, _ = with_charges(*charges)
    assert best <= statement.promise["guess_by_releases"] <= best + 1e-4


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 0.2), (700.0, 0.0), (1e6, 1e-6)])
def test_a_guess_by_the_budget_is_that_of_its_worst_mechanism(epsilon, delta):
    """It shows the record with probability delta; else it is randomized response."""
    statement, _ = with_charges(
        Charge("a", 0, "laplace", epsilon=0.01), epsilon=epsilon, delta=delta
    )
    worst = delta + (1 - delta) / (1 + math.exp(-min(epsilon, 700)))
    found = statement.promise["guess_by_budget"]
    assert worst - 1e-12 <= found <= min(1.0, worst + 1e-4)


def test_failures_are_part_of_a_guess():
    statement, ledger = with_charges(Charge("a", 0, "threshold", mu=0.1, delta=0.05))
    tv = 2 * norm.cdf(0.05) - 1 + 0.05
    assert statement.promise["guess_by_releases"] == pytest.approx((1 + tv) / 2, abs=1e-4)
    assert statement.promise["spent"] == ledger.spent()


def test_a_statement_that_promises_less_than_its_charges_is_refused():
    statement = fitted(SuLloyd).statement()
    ledger = {**statement.ledger, "budget": {**statement.ledger["budget"], "epsilon": 0.5}}
    with pytest.raises(BudgetExceeded):
        _ = replace(statement, ledger=ledger).promise


def test_a_record_of_another_format_is_refused():
    record = fitted().statement().to_dict()
    with pytest.raises(ValueError, match=r"format='other' must be 'statement of a release"):
        Statement.from_dict({**record, "format": "other"})


def test_charges_of_every_kind_are_listed():
    """Scales, sensitivities and thresholds, as the curator computed them."""
    model = fitted(Balcan)
    page = model.statement().to_markdown()
    charge = next(charge for charge in model.ledger_.charges if charge.delta)
    scale = charge.details["count_scale"]
    assert f"| {charge.delta:.10g} | None | count_scale {scale:.10g}" in page


def test_a_method_without_a_claim_promises_nothing():
    record = fitted(Lloyd).statement(purpose="a test").to_dict()
    assert record["ledger"] is None
    assert record["claim"]["notion"] == "none"
    assert "registry" not in record
