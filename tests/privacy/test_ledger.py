"""The ledger: composition, and what it refuses."""

import math

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution

from pkm.privacy import (
    Budget,
    BudgetExceeded,
    Charge,
    Ledger,
    ScheduleError,
    StreamReuseError,
    gaussian_mu,
    gdp_delta,
    gdp_epsilon,
    largest_multiple,
)
from pkm.privacy import ledger as ledger_module


def gaussian_charge(round_index, mu):
    return Charge("q", round_index, "gaussian", mu=mu)


def laplace_charge(round_index, epsilon):
    return Charge("q", round_index, "laplace", epsilon=epsilon)


def test_ledger_composes_gaussians_in_closed_form():
    """Seven rounds of noise multiplier 8 need epsilon 1.260096 at delta 1e-5 (exact)."""
    ledger = Ledger(Budget(2.0, 1e-5))
    for i in range(7):
        ledger.charge(gaussian_charge(i, 1 / 8))
    spent = ledger.spent()
    assert spent == pytest.approx(1.260096, abs=1e-6)

    single_round = privacy_loss_distribution.from_gaussian_mechanism(
        8.0, value_discretization_interval=1e-3
    )
    composed = single_round.self_compose(7)
    assert spent == pytest.approx(composed.get_epsilon_for_delta(1e-5), rel=1e-4)
    mu = math.sqrt(7) / 8
    assert ledger.delta_at(2.0) == pytest.approx(gdp_delta(mu, 2.0))
    assert ledger.unspent() == pytest.approx(2.0 - spent)


def test_a_ledger_prints_what_was_spent():
    ledger = Ledger(Budget(1.0))
    ledger.charge(Charge("count", 0, "laplace", epsilon=0.75))
    assert repr(ledger).endswith("1 releases, spent epsilon=0.75)")
    assert "epsilon=1.0" in repr(ledger)


def test_ledger_refuses_overspending_and_stays_unchanged():
    mu = gaussian_mu(1.0, 1e-5) / math.sqrt(7)
    ledger = Ledger(Budget(1.0, 1e-5))
    for i in range(7):
        ledger.charge(gaussian_charge(i, mu))
    charges = ledger.charges
    with pytest.raises(BudgetExceeded, match="round 7 would need delta"):
        ledger.charge(gaussian_charge(7, mu))
    assert ledger.charges == charges


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (laplace_charge(1, 0.75), BudgetExceeded),
        (laplace_charge(0, 0.25), StreamReuseError),
        (laplace_charge(2, 0.25), ScheduleError),
    ],
)
def test_ledger_records_all_charges_of_a_release_or_none(second, error):
    schedule = [laplace_charge(0, 0.5), laplace_charge(1, 0.25), laplace_charge(2, 0.25)]
    ledger = Ledger(Budget(1.0), schedule if error is ScheduleError else None)
    with pytest.raises(error):
        ledger.charge(laplace_charge(0, 0.5), second)
    assert ledger.charges == ()
    ledger.charge(*schedule)
    assert ledger.charges == tuple(schedule)


def test_ledger_refuses_a_used_stream():
    ledger = Ledger(Budget(1.0))
    ledger.charge(laplace_charge(0, 0.1))
    with pytest.raises(StreamReuseError, match="noise must be fresh"):
        ledger.charge(laplace_charge(0, 0.1))


def test_pure_budget_adds_epsilons_and_refuses_gaussians():
    ledger = Ledger(Budget(1.0))
    for i in range(10):
        ledger.charge(laplace_charge(i, 0.1))
    assert ledger.spent() == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        ledger.charge(laplace_charge(10, 1e-3))

    unused = Ledger(Budget(1.0))
    with pytest.raises(BudgetExceeded):
        unused.charge(gaussian_charge(0, 0.01))


@pytest.mark.parametrize(
    "cost",
    [
        {"mu": math.nan},
        {"mu": -1.0},
        {"epsilon": -0.1},
        {"delta": math.inf},
        {"delta": 2.0},
    ],
)
def test_charge_refuses_invalid_costs(cost):
    with pytest.raises(ValueError, match="of a charge must be between 0 and"):
        Charge("q", 0, "gaussian", **cost)


def test_costs_of_short_types_are_composed_in_64_bits():
    """Sums in float16 would lose most of these costs."""

    def ledger(kind):
        opened = Ledger(Budget(kind(1.0), kind(1e-5)))
        for n_earlier in range(50):
            opened.charge(Charge("q", n_earlier, "gaussian", mu=kind(0.03)))
        return opened

    short = ledger(np.float16)
    same = ledger(lambda number: float(np.float16(number)))
    assert short.spent() == same.spent()
    assert short.delta_at(np.float16(0.5)) == same.delta_at(0.5)


def test_small_pure_charges_cost_less_than_their_sum():
    """200 charges of 0.01 add up to 2, but at delta 1e-6 they cost less than 1: charge and spent
    must agree.
    """
    ledger = Ledger(Budget(1.0, 1e-6))
    for i in range(200):
        ledger.charge(laplace_charge(i, 0.01))
    assert ledger.spent() < 1.0
    assert ledger.delta_at(1.0) <= 1e-6


def test_mixed_charges_compose_exactly():
    """A mixture costs more than its parts and less than their sum; a delta charged in addition is
    added.
    """
    ledger = Ledger(Budget(5.0, 1e-5))
    ledger.charge(Charge("g", 0, "gaussian", mu=0.2))
    gaussian_only = ledger.spent()
    for i in range(7):
        ledger.charge(Charge("p", i, "exponential", epsilon=0.05))
    mixed = ledger.spent()
    assert max(gaussian_only, 0.35) < mixed < gaussian_only + 0.35

    # The accountant's grid overestimates the loss by about its interval.
    interval = 1e-3
    parameters = common.DifferentialPrivacyParameters(0.05, 0)
    pure = privacy_loss_distribution.from_privacy_parameters(
        parameters, value_discretization_interval=interval
    )
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(
        5.0, value_discretization_interval=interval
    )
    composed = gaussian.compose(pure.self_compose(7))
    accountant_epsilon = composed.get_epsilon_for_delta(1e-5)
    assert mixed <= accountant_epsilon <= mixed * (1 + 1e-5)

    ledger.charge(Charge("d", 0, "threshold", delta=5e-6))
    assert ledger.spent() > mixed


def exponential_charge(round_index, epsilon):
    return Charge("e", round_index, "exponential", epsilon=epsilon)


def test_largest_multiple_exhausts_the_budget():
    mus = [0.01, 0.02, 0.1]
    epsilons = [0.01, 0.02, 0.05]
    factor = largest_multiple(mus, epsilons, 1.0, 1e-6)
    ledger = Ledger(Budget(1.0, 1e-6))
    for i, mu in enumerate(mus):
        ledger.charge(gaussian_charge(i, factor * mu))
    for i, epsilon in enumerate(epsilons):
        ledger.charge(exponential_charge(i, factor * epsilon))
    assert ledger.spent() == pytest.approx(1.0, rel=1e-4)
    assert ledger.spent() <= 1.0 + 1e-9
    with pytest.raises(BudgetExceeded):
        ledger.charge(exponential_charge(9, 0.01))

    with pytest.raises(ValueError, match="must not all be zero"):
        largest_multiple([0.0], [], 1.0, 1e-6)
    pure_factor = largest_multiple([], [0.5, 0.5], 1.0, 1e-9)
    assert pure_factor == pytest.approx(1.0, rel=1e-3)


def test_basic_composition_bounds_the_composition():
    """Sums of epsilons bound the composition from above, so the quick check is the stricter one."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        epsilons = rng.uniform(0, 0.2, 4)
        mu = rng.uniform(0.01, 0.3)
        plain_sum = epsilons.sum() + gdp_epsilon(mu, 1e-6)
        ledger = Ledger(Budget(10.0, 1e-6))
        ledger.charge(gaussian_charge(0, mu))
        for i, epsilon in enumerate(epsilons):
            ledger.charge(exponential_charge(i, epsilon))
        assert ledger.delta_at(plain_sum) <= 1e-6 * (1 + 1e-6)


def clear_composition_caches():
    ledger_module._pure_losses.cache_clear()
    ledger_module._composed_delta.cache_clear()


def test_pure_mixtures_match_brute_force_and_round_up(monkeypatch):
    """Every outcome of 12 releases is listed; with few losses allowed, they are rounded up, never
    down.
    """
    composed_delta = ledger_module._composed_delta
    epsilons = np.random.default_rng(0).uniform(0.01, 0.3, 12)
    sorted_epsilons = tuple(sorted(epsilons.tolist()))

    # All outcomes as signs, with their probabilities and privacy losses.
    outcomes = np.array(list(np.ndindex(*[2] * 12)))
    signs = outcomes * 2 - 1
    p_positive = np.exp(epsilons) / (1 + np.exp(epsilons))
    factors = np.where(signs == 1, p_positive, 1 - p_positive)
    probabilities = factors.prod(axis=1)
    losses = signs @ epsilons
    for epsilon in (0.0, 0.4, 1.0, 3.0):
        excess = np.maximum(-np.expm1(epsilon - losses), 0)
        delta = composed_delta(0.0, sorted_epsilons, epsilon)
        assert delta == pytest.approx(probabilities @ excess, abs=1e-14)

    clear_composition_caches()
    monkeypatch.setattr(ledger_module, "MAX_LOSSES", 500)
    rounded_delta = composed_delta(0.1, sorted_epsilons, 0.7)
    clear_composition_caches()
    monkeypatch.undo()
    exact_delta = composed_delta(0.1, sorted_epsilons, 0.7)
    assert exact_delta <= rounded_delta <= 1.1 * exact_delta


@pytest.mark.parametrize("mu", [1e-9, 0.2])
def test_a_pure_budget_takes_no_gaussian_noise(mu):
    """The delta that it would need may be too small for a float."""
    ledger = Ledger(Budget(10.0))
    ledger.charge(Charge("a", 0, "laplace", epsilon=0.1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(Charge("b", 0, "gaussian", mu=mu))
    assert ledger.spent() == pytest.approx(0.1)


def test_many_small_pure_charges_do_not_exceed_a_pure_budget():
    n = 2000
    ledger = Ledger(Budget(1.0))
    ledger.charges = tuple(Charge("a", i, "laplace", epsilon=1.05 / n) for i in range(n - 1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(Charge("a", n, "laplace", epsilon=1.05 / n))
