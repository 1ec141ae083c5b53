"""What cells of parties and of coresets release: their schedules, charge by charge."""

import dataclasses

import pytest
from protocol_cells import CENTRAL_CELL, protocol

from pkm.experiments.fit.coreset import Coreset
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import build_method
from pkm.federation import Network
from pkm.federation.parties import get_rounds
from pkm.methods import METHODS, load_method
from pkm.methods.coreset import CoresetMethod
from pkm.methods.planned import PlannedMethod
from pkm.methods.schedule import Schedule
from pkm.privacy import Charge

#: Rows and columns of the data sets.
SHAPES = {"iris": (150, 4), "planted-2000-4-4-0.05": (2000, 4)}
VARIANTS = [
    (name, variant, bool(claim.private))
    for name in METHODS
    for variant, claim in load_method(name).claims.items()
]


def make_cell(name, variant, **params):
    """Make a central cell of a method, on iris."""
    method = load_method(name)
    known = method._get_param_names()
    if "variant" in known:
        params["variant"] = variant
    is_private = method.claims[variant].private
    return dataclasses.replace(
        CENTRAL_CELL,
        method=name.lower(),
        target=f"pkm.methods.{name}",
        params=params,
        epsilon=1.0 if is_private else None,
        delta="auto" if is_private and "delta" in known else None,
        seeds=(3, 0),
        timing=False,
    )


def runs_as_protocol(name, variant):
    """Tell whether a method with default parameters has the schedule of a protocol."""
    method = build_method(make_cell(name, variant))
    try:
        get_rounds(method, *SHAPES["iris"], Network(2))
    except (NotImplementedError, ValueError):
        return False
    return True


def assert_charged(cell, schedule):
    """Run a cell, and compare what its rows say that it has spent with a schedule."""
    n, d = SHAPES[cell.dataset]
    budget = build_method(cell).budget(n, d)
    rows = execute(cell)
    assert (rows["n"].iloc[0], rows["d"].iloc[0]) == (n, d)
    fields = ("label", "round", "mechanism", "mu", "epsilon", "delta", "group")
    for recorded, spent in zip(rows["charges"], rows["epsilon_spent"], strict=True):
        charges = [Charge(**{name: charge.get(name) for name in fields}) for charge in recorded]
        assert len(charges) == len(schedule.charges)
        for charge, planned in zip(charges, schedule.charges, strict=True):
            assert charge.matches(planned), (charge, planned)
        assert spent == pytest.approx(schedule.to_ledger(budget).spent(), abs=1e-9, rel=0)


PROTOCOLS = [
    (name, variant)
    for name, variant, is_private in VARIANTS
    if is_private and runs_as_protocol(name, variant)
]


@pytest.mark.parametrize(("name", "variant"), PROTOCOLS)
def test_parties_release_what_an_account_is_charged(name, variant):
    cell = protocol(dataclasses.replace(make_cell(name, variant), timing=True))
    planned = build_method(cell).planned_run(*SHAPES["iris"], cell.seeds)
    assert_charged(cell, Schedule(*planned.schedule))


def test_the_lloyd_family_runs_as_a_protocol():
    assert {name for name, _ in PROTOCOLS} == {"SuLloyd", "GLloyd", "FastLloyd", "DPLloyd"}


#: Releases of a coreset, by its method, from n, d and a method without a zoom.
CORESET_RELEASES = {
    "KaplanStemmer": lambda method, n, d: method.schedule(n, d, result="coreset").releases,
    # The cohorts of Lloyd steps do not report.
    "KaplanStemmerLocal": lambda method, n, d: method.schedule(n, d).releases[: 2 + method.passes],
}


CORESETS = [
    *((name, {}) for name in METHODS if issubclass(load_method(name), CoresetMethod)),
    ("KaplanStemmer", {"zoom": 0.1}),
    ("KaplanStemmer", {"release": "candidates"}),
    ("KaplanStemmer", {"select": "local_search"}),
    ("KaplanStemmer", {"zoom": 0.1, "select": "local_search"}),
    ("KaplanStemmerLocal", {"lloyd_steps": 0}),
    ("KaplanStemmerLocal", {"passes": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "params"), CORESETS, ids=str)
def test_a_coreset_releases_its_schedule(name, params):
    central = make_cell(name, "sound", **params)
    cell = dataclasses.replace(
        central, dataset="planted-2000-4-4-0.05", preprocessing="public", kind=Coreset()
    )
    method = build_method(cell)
    shape = SHAPES[cell.dataset]
    planned = PlannedMethod(method, *shape)
    releases = CORESET_RELEASES[name](planned.method_with_rest, *shape)
    assert (planned.zoom is not None) == ("zoom" in params)
    if planned.zoom is not None:
        releases = (*planned.zoom.releases, *releases)
    assert_charged(cell, Schedule(*releases))
