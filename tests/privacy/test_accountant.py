"""Accounts: composition, filters against all adaptive choices, files, and runs of methods."""

import copy
import json
import math
import os
import pickle
import stat
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from planted_faults import FollowsTheData
from scipy.special import expit, ndtr, ndtri

from pkm.benchmarks.measurement import peak_bytes
from pkm.methods import (
    DPM,
    HST,
    METHODS,
    FastLloyd,
    GLloyd,
    KaplanStemmer,
    KaplanStemmerLocal,
    Lloyd,
    SuLloyd,
    load_method,
)
from pkm.methods.base import PrivateKMeans
from pkm.privacy import (
    AccountedRun,
    AccountError,
    Budget,
    BudgetExceeded,
    Charge,
    NoiseStreams,
    PrivacyAccountant,
    ScheduleError,
    gaussian_mu,
    gdp_delta,
    gdp_epsilon,
    snap,
)
from pkm.privacy.accountant import gaussian_cost

X = np.random.default_rng(0).uniform(-1, 1, (400, 2))


def gaussian(*mus):
    return [Charge("sums", i, "gaussian", mu=mu) for i, mu in enumerate(mus)]


def pure(*epsilons, group=None):
    return [
        Charge("counts", i, "laplace", epsilon=epsilon, group=group)
        for i, epsilon in enumerate(epsilons)
    ]


def pure_run(epsilon, **about):
    return AccountedRun(Budget(epsilon), pure(epsilon), **about)


# Composition


def test_gaussian_runs_compose_as_in_dp_accounting():
    account = PrivacyAccountant(Budget(10.0, 1e-5), composition="gaussian")
    mus = ([0.3, 0.2], [0.5], [0.1, 0.1, 0.4])
    composed = pld.identity()
    for of_run in mus:
        mu = math.hypot(*of_run)
        account.charge(AccountedRun(Budget(gdp_epsilon(mu, 1e-6) * 1.01, 1e-6), gaussian(*of_run)))
        for mu in of_run:
            composed = composed.compose(pld.from_gaussian_mechanism(1 / mu))
    assert account.spent() == pytest.approx(composed.get_epsilon_for_delta(1e-5), rel=1e-3)


def test_gaussian_composition_of_mixtures_is_never_below_dp_accounting():
    account = PrivacyAccountant(Budget(10.0, 1e-5), composition="gaussian")
    composed = pld.identity()
    for mu, epsilon in ((0.2, 0.1), (0.3, 0.4), (0.1, 1.0)):
        schedule = [*gaussian(mu), *pure(epsilon)]
        account.charge(AccountedRun(Budget(5.0, 1e-6), schedule))
        composed = composed.compose(pld.from_gaussian_mechanism(1 / mu))
        composed = composed.compose(pld.from_laplace_mechanism(1 / epsilon))
    assert account.spent() >= composed.get_epsilon_for_delta(1e-5)


def test_pure_runs_add_up_as_in_dp_accounting():
    account = PrivacyAccountant(Budget(10.0))
    composed = pld.identity()
    for epsilon in (0.25, 0.5, 1.5):
        account.charge(pure_run(epsilon))
        composed = composed.compose(pld.from_laplace_mechanism(1 / epsilon))
    assert account.spent() == 2.25
    assert account.unspent() == 7.75
    assert account.spent() == pytest.approx(composed.get_epsilon_for_delta(1e-12), abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 20.0])
def test_a_pure_release_is_gaussian_private_for_the_mu_it_costs(epsilon):
    mu_squared, failure = gaussian_cost(pure(epsilon))
    assert failure == 0
    alphas = np.append(np.geomspace(1e-12, 0.5, 1000), 1 - np.geomspace(1e-12, 0.5, 1000))
    of_noise = ndtr(-ndtri(alphas) - math.sqrt(mu_squared))
    of_pure = np.maximum(
        0, np.maximum(1 - math.exp(epsilon) * alphas, (1 - alphas) * math.exp(-epsilon))
    )
    assert (of_noise <= of_pure + 1e-12).all()
    # They touch in the corner: no smaller mu would do.
    corner = expit(-epsilon)
    assert ndtr(-ndtri(corner) - math.sqrt(mu_squared)) == pytest.approx(corner)


def test_the_most_expensive_group_counts():
    schedule = [*pure(0.5, group=0)]
    schedule.append(Charge("counts", 1, "laplace", epsilon=0.7, delta=0.0, group=1))
    assert gaussian_cost(schedule) == gaussian_cost(pure(0.7))
    assert gaussian_cost([*schedule, *gaussian(0.3)])[0] == pytest.approx(
        gaussian_cost(pure(0.7))[0] + 0.09
    )


# Filters: the worst of all adaptive strategies, by brute force.

# An action is what is charged, what the account calls a failure, and the two laws of what is seen
# otherwise.


def coin(epsilon, failure=0.0):
    """The worst mechanism that is epsilon-private but for a failure (Kairouz, Oh, Viswanath)."""
    likely = expit(epsilon)
    return failure, ((likely, 1 - likely), (1 - likely, likely))


def noise(mu, cells):
    """A Gaussian release of which the cell between equal quantiles is seen."""
    edges = np.append(np.linspace(-2.5, 2.5 + mu, cells - 1), np.inf)
    laws = [np.diff(ndtr(edges - mean), prepend=0.0) for mean in (mu, 0.0)]
    return 0.0, laws


def worst_delta(actions, accepts, epsilon, n_actions):
    """Largest P(E) - exp(epsilon) Q(E) of all strategies that choose actions by what was seen."""

    @cache
    def accepted(history):
        return accepts(history)

    def value(history, p, q):
        best = max(p - math.exp(epsilon) * q, 0.0)
        if len(history) == n_actions:
            return best
        for name, (failure, (law, other)) in actions.items():
            after = tuple(sorted((*history, name)))
            if not accepted(after):
                continue
            seen = sum(
                value(after, p * (1 - failure) * p_y, q * (1 - failure) * q_y)
                for p_y, q_y in zip(law, other, strict=True)
            )
            best = max(best, p * failure + seen)
        return best

    return value((), 1.0, 1.0)


def accepts_by(make_account, runs):
    """Whether an account accepts runs one after the other."""

    def accepts(history):
        account = make_account()
        try:
            for name in history:
                account.charge(runs[name])
        except BudgetExceeded:
            return False
        return True

    return accepts


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 1.5])
def test_basic_filter_holds_against_all_adaptive_choices(epsilon):
    delta = 0.1
    costs = {"small": (0.25, 0.04), "large": (0.5, 0.0), "delta": (0.125, 0.05)}
    actions = {name: coin(*cost) for name, cost in costs.items()}
    runs = {
        name: AccountedRun(Budget(*cost), [Charge("a", 0, "coin", epsilon=cost[0], delta=cost[1])])
        for name, cost in costs.items()
    }
    accepts = accepts_by(lambda: PrivacyAccountant(Budget(epsilon, delta)), runs)
    worst = worst_delta(actions, accepts, epsilon, 4)
    assert 0.05 < worst <= delta


@pytest.mark.parametrize("epsilon", [0.3, 0.6, 1.0])
@pytest.mark.parametrize("failure_delta", [0.0, 0.05])
def test_gaussian_filter_holds_against_all_adaptive_choices(epsilon, failure_delta):
    delta = failure_delta + gdp_delta(0.95, epsilon)
    run_budget = Budget(2.0, 0.6)
    actions = {"noise": noise(0.6, 4), "coin": coin(0.5), "failure": coin(0.1, 0.05)}
    runs = {
        "noise": AccountedRun(run_budget, gaussian(0.6)),
        "coin": AccountedRun(run_budget, pure(0.5)),
        "failure": AccountedRun(run_budget, [Charge("f", 0, "coin", epsilon=0.1, delta=0.05)]),
    }
    budget = Budget(epsilon, delta)
    accepts = accepts_by(
        lambda: PrivacyAccountant(budget, composition="gaussian", failure_delta=failure_delta), runs
    )
    worst = worst_delta(actions, accepts, epsilon, 4)
    assert 0 < worst <= delta


def test_one_delta_for_noise_and_failures_is_no_filter():
    """Why failure_delta is fixed: a rule that lets both share delta is broken by choices."""
    epsilon = 0.5
    first, second = 0.3, 0.9
    delta = gdp_delta(math.hypot(first, second), epsilon)
    failure = delta - gdp_delta(first, epsilon)
    mus = {"first": first, "second": second, "failure": 0.0}
    failures = {"first": 0.0, "second": 0.0, "failure": failure}

    def shared(history):
        mu = math.hypot(*(mus[name] for name in history))
        return gdp_delta(mu, epsilon) + sum(failures[name] for name in history) <= delta * (
            1 + 1e-9
        )

    actions = {
        "first": noise(first, 40),
        "second": noise(second, 40),
        "failure": coin(0.0, failure),
    }
    assert worst_delta(actions, shared, epsilon, 2) > 1.05 * delta

    # The same choices against the account.
    budget = Budget(epsilon, delta)
    runs = {
        "first": AccountedRun(Budget(5.0, 0.5), gaussian(first)),
        "second": AccountedRun(Budget(5.0, 0.5), gaussian(second)),
        "failure": AccountedRun(Budget(5.0, 0.5), [Charge("f", 0, "threshold", delta=failure)]),
    }
    for failure_delta in (0.0, failure / 2, failure):
        accepts = accepts_by(
            lambda failure_delta=failure_delta: PrivacyAccountant(
                budget, composition="gaussian", failure_delta=failure_delta
            ),
            runs,
        )
        assert worst_delta(actions, accepts, epsilon, 2) <= delta


# Terms


@pytest.mark.parametrize(
    ("budget", "terms", "name"),
    [
        (Budget(1.0), {"composition": "gaussian"}, "failure_delta=0.0"),
        (Budget(1.0, 1e-6), {"composition": "gaussian", "failure_delta": 1e-6}, "failure_delta="),
        (Budget(1.0, 1e-6), {"composition": "gaussian", "failure_delta": -1e-9}, "failure_delta="),
        (Budget(1.0, 1e-6), {"composition": "gaussian", "failure_delta": math.nan}, "failure_del"),
        (Budget(1.0, 1e-6), {"failure_delta": 1e-7}, "failure_delta=1e-07"),
        (Budget(1.0, 1e-6), {"composition": "renyi"}, "composition='renyi'"),
    ],
)
def test_budgets_that_a_filter_cannot_take_are_refused(budget, terms, name, tmp_path):
    with pytest.raises(AccountError, match=name) as refusal:
        PrivacyAccountant(budget, tmp_path / "account.json", **terms)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "budget",
    [
        Budget(0.1, 0.0, "add_remove"),
        Budget(0.1, 0.0, "rho_bounded", rho=0.25),
        Budget(0.1, 0.0, "local"),
    ],
)
def test_a_run_of_another_adjacency_is_refused(budget):
    account = PrivacyAccountant(Budget(1.0))
    with pytest.raises(AccountError, match=f"adjacency={budget.adjacency}"):
        account.charge(AccountedRun(budget, pure(0.1)))
    assert account.spent() == 0


def test_a_run_of_another_rho_is_refused():
    account = PrivacyAccountant(Budget(1.0, 0.0, "rho_bounded", rho=0.25))
    account.charge(AccountedRun(Budget(0.1, 0.0, "rho_bounded", rho=0.25), pure(0.1)))
    with pytest.raises(AccountError, match=r"rho=0\.5"):
        account.charge(AccountedRun(Budget(0.1, 0.0, "rho_bounded", rho=0.5), pure(0.1)))


@pytest.mark.parametrize("n_replicates", [0, -1, 1.5, True, "2"])
def test_replicates_must_be_a_positive_integer(n_replicates):
    with pytest.raises(AccountError, match="n_replicates="):
        pure_run(0.1, n_replicates=n_replicates)


def test_a_schedule_must_stay_within_its_own_budget():
    with pytest.raises(BudgetExceeded):
        AccountedRun(Budget(0.5), pure(0.3, 0.3))
    with pytest.raises(AccountError, match=r"schedule=\(\)"):
        AccountedRun(Budget(0.5), [])


# Charging


def test_runs_are_charged_together_or_not_at_all():
    account = PrivacyAccountant(Budget(1.0))
    with pytest.raises(BudgetExceeded, match=r"epsilon=1\.2"):
        account.charge(pure_run(0.6), pure_run(0.6))
    assert account.runs == ()
    account.charge(pure_run(0.6), pure_run(0.4))
    assert account.unspent() == 0
    with pytest.raises(BudgetExceeded):
        account.charge(pure_run(0.001))


def test_every_replicate_is_charged():
    account = PrivacyAccountant(Budget(1.0))
    account.charge(pure_run(0.25, n_replicates=3))
    assert account.spent() == 0.75
    with pytest.raises(BudgetExceeded, match="2 replicates"):
        account.charge(pure_run(0.25, n_replicates=2))


def test_deltas_add_up():
    account = PrivacyAccountant(Budget(5.0, 2e-6))
    run = AccountedRun(Budget(1.0, 1e-6), gaussian(gaussian_mu(1.0, 1e-6)))
    account.charge(run, run)
    assert account.spent_delta() == 2e-6
    with pytest.raises(BudgetExceeded, match="delta=3e-06"):
        account.charge(run)


def test_a_ledger_accepts_what_was_paid_for_and_nothing_else():
    account = PrivacyAccountant(Budget(1.0))
    ledger = account.ledger(Budget(0.5), pure(0.2, 0.3))
    assert account.spent() == 0.5
    first, second = pure(0.2, 0.3)
    with pytest.raises(ScheduleError, match="'counts' round 1"):
        ledger.charge(second)
    ledger.charge(first)
    ledger.charge(second)
    with pytest.raises(ScheduleError):
        ledger.charge(Charge("counts", 2, "laplace", epsilon=1e-9))
    with pytest.raises(AccountError, match="n_replicates=2"):
        account.ledger(Budget(0.1), pure(0.1), n_replicates=2)


# Files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "account.json"


def test_a_file_keeps_the_account(path):
    account = PrivacyAccountant(Budget(4.0, 1e-6), path, composition="gaussian", failure_delta=2e-7)
    run = AccountedRun(
        Budget(1.0, 1e-6),
        [*gaussian(0.1), Charge("picks", 0, "threshold", epsilon=0.1, delta=1e-7)],
        n_replicates=2,
        method="FastLloyd",
        parameters={"epsilon": 1.0, "start": np.zeros(2)},
        purpose="a test",
        flaws=("flaw",),
    )
    account.charge(run)
    again = PrivacyAccountant.open(path)
    (kept,) = again.runs
    assert kept.schedule == run.schedule
    assert (kept.n_replicates, kept.method, kept.purpose) == (2, "FastLloyd", "a test")
    assert kept.parameters == {"epsilon": 1.0, "start": repr(np.zeros(2))}
    assert kept.date.startswith("20")
    assert list(kept.flaws) == ["flaw"]
    assert again.spent() == account.spent() > 0
    assert again.spent_delta() == 2e-7
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["runs"][0]["spent"] == account.spent()


def test_an_account_is_opened_again_on_its_terms_alone(path):
    PrivacyAccountant(Budget(1.0), path).charge(pure_run(0.5))
    assert PrivacyAccountant(Budget(1.0), path).spent() == 0.5
    for budget in (Budget(2.0), Budget(1.0, 1e-6), Budget(1.0, 0.0, "local")):
        with pytest.raises(AccountError, match="other terms"):
            PrivacyAccountant(budget, path)


def test_a_refused_run_leaves_the_file_untouched(path):
    account = PrivacyAccountant(Budget(1.0), path)
    account.charge(pure_run(0.75))
    before = path.read_bytes()
    for run in (pure_run(0.5), AccountedRun(Budget(0.1, 0.0, "local"), pure(0.1))):
        with pytest.raises((BudgetExceeded, AccountError)):
            account.charge(run)
    assert path.read_bytes() == before


def damages(content):
    text = content.decode()
    body = json.loads(text)
    body["runs"] = []
    return {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "not text": b"\xff\x00" + content,
        "another value": text.replace("0.75", "0.25").encode(),
        "no runs": json.dumps(body).encode(),
        "no object": b"[]",
        "no checksum": json.dumps({"format": "?"}).encode(),
    }


@pytest.mark.parametrize(
    "damage", damages(b'{"runs": [], "epsilon": 0.75}'), ids=lambda damage: damage
)
def test_a_damaged_file_is_refused_and_stays(path, damage):
    account = PrivacyAccountant(Budget(1.0), path)
    account.charge(pure_run(0.75))
    content = damages(path.read_bytes())[damage]
    path.write_bytes(content)
    with pytest.raises(AccountError, match="damaged") as refusal:
        account.charge(pure_run(0.1))
    assert "\n" not in str(refusal.value)
    with pytest.raises(AccountError, match="damaged"):
        PrivacyAccountant.open(path)
    with pytest.raises(AccountError, match="damaged"):
        PrivacyAccountant(Budget(1.0), path)
    assert path.read_bytes() == content


def test_a_file_that_is_gone_is_not_begun_anew(path):
    account = PrivacyAccountant(Budget(1.0), path)
    path.unlink()
    with pytest.raises(AccountError, match="cannot be read"):
        account.charge(pure_run(0.1))
    assert not path.exists()
    with pytest.raises(AccountError, match="No such file"):
        PrivacyAccountant(Budget(1.0), path.parent / "missing" / "account.json")


def test_an_older_copy_is_refused_by_who_charged_since(path):
    account = PrivacyAccountant(Budget(1.0), path)
    account.charge(pure_run(0.25))
    copied = path.read_bytes()
    account.charge(pure_run(0.25, parameters={"shares": (0.5, 0.5)}))
    last = path.read_bytes()
    path.write_bytes(copied)
    with pytest.raises(AccountError, match="lacks runs that it had"):
        account.charge(pure_run(0.25))
    path.write_bytes(last)
    account.charge(pure_run(0.5))
    assert account.spent() == 1.0


def test_a_file_with_two_names_is_refused(path):
    account = PrivacyAccountant(Budget(1.0), path)
    os.link(path, path.with_name("other"))
    with pytest.raises(AccountError, match="2 hard links"):
        account.charge(pure_run(0.5))
    with pytest.raises(AccountError, match="2 hard links"):
        PrivacyAccountant.open(path.with_name("other"))


def test_a_charge_by_another_lock_is_seen(path, monkeypatch):
    """Another process removes the lock's file, and charges by one of its own."""
    account = PrivacyAccountant(Budget(1.0), path)
    check = PrivacyAccountant._check_fits

    def check_slowly(self, *runs):
        check(self, *runs)
        monkeypatch.undo()
        path.with_name(f"{path.name}.lock").unlink()
        PrivacyAccountant.open(path).charge(pure_run(0.75))

    monkeypatch.setattr(PrivacyAccountant, "_check_fits", check_slowly)
    with pytest.raises(AccountError, match="changed while it was locked"):
        account.charge(pure_run(0.75))
    assert account.spent() == 0.75


def test_a_write_that_fails_charges_nothing(path, monkeypatch):
    account = PrivacyAccountant(Budget(1.0), path)
    account.charge(pure_run(0.25))

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pkm.files.os.replace", fail)
    with pytest.raises(AccountError, match="No space left"):
        account.charge(pure_run(0.5))
    monkeypatch.undo()
    assert PrivacyAccountant.open(path).spent() == account.spent() == 0.25
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "account.json",
        "account.json.lock",
    ]


SPEND = """
import sys
from pkm.privacy import PrivacyAccountant, AccountedRun, Budget, BudgetExceeded, Charge
account = PrivacyAccountant.open(sys.argv[1])
for _ in range(10):
    try:
        account.charge(AccountedRun(Budget(0.125), [Charge("a", 0, "laplace", epsilon=0.125)]))
    except BudgetExceeded:
        continue
    print("charged")
"""


@pytest.mark.slow
@pytest.mark.integration
def test_processes_cannot_overspend_together(path):
    account = PrivacyAccountant(Budget(2.0), path)
    processes = [
        subprocess.Popen([sys.executable, "-c", SPEND, path], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert b"".join(outputs).count(b"charged") == len(account.runs) == 16
    assert account.spent() == 2.0


# Methods


def is_private(name):
    method = load_method(name)
    return issubclass(method, PrivateKMeans) and any(
        claim.private for claim in method.claims.values()
    )


@pytest.mark.parametrize("name", [name for name in METHODS if is_private(name)])
def test_a_schedule_is_every_method_s_releases(name):
    """A fit whose releases are not those of the schedule would be refused."""
    method = load_method(name)(3, bounds=(-1, 1), random_state=5).set_params(epsilon=2.0)
    plain = method.fit(X)
    budget = plain.ledger_.budget
    account = PrivacyAccountant(Budget(2.5, budget.delta, budget.adjacency, budget.rho))
    with pytest.raises(ValueError, match="account takes secure noise alone"):
        method.fit(X, account=account)
    method.set_params(secure=True).fit(X, account=account)
    (run,) = account.runs
    pairs = zip(run.schedule, method.ledger_.charges, strict=True)
    assert all(planned.matches(charge) for planned, charge in pairs)
    assert account.spent() == 2.0
    with pytest.raises(BudgetExceeded):
        method.fit(X, account=account)


@pytest.mark.parametrize("method", [FastLloyd, SuLloyd])
def test_a_batch_is_charged_for_each_replicate(method):
    points = (X * 2**16).astype(np.int64)
    batch = PrivacyAccountant(Budget(8.0, 1e-5), composition="gaussian")
    single = PrivacyAccountant(Budget(8.0, 1e-5), composition="gaussian")
    fitted = method(3, epsilon=0.25, secure=True)
    fitted.fit_batch(points, [1, 2, 3], account=batch)
    for seed in (1, 2, 3):
        fitted.fit_batch(points, [seed], account=single)
    assert batch.spent() == pytest.approx(single.spent(), rel=1e-12)
    assert batch.runs[0].n_replicates == 3


def test_a_refused_fit_draws_nothing(path, monkeypatch):
    account = PrivacyAccountant(Budget(1.0, 1e-6), path)
    FastLloyd(3, epsilon=0.75, delta=1e-7, bounds=(-1, 1)).fit(X, account=account)
    before = path.read_bytes()
    drawn_from = []
    release = NoiseStreams.release

    def noted(self, mechanism, values, *arguments):
        drawn_from.append(values)
        return release(self, mechanism, values, *arguments)

    monkeypatch.setattr(NoiseStreams, "release", noted)
    method = FastLloyd(3, epsilon=0.75, delta=1e-7, bounds=(-1, 1))
    method.planned_run(*X.shape, [4])
    with pytest.raises(BudgetExceeded, match="FastLloyd"):
        method.fit_predict(X, account=account)
    assert drawn_from == []
    assert path.read_bytes() == before


@pytest.mark.parametrize("method", [FastLloyd(3), KaplanStemmer(3), DPM(3), HST(3)])
def test_a_plan_takes_no_memory_for_the_points(method):
    # A byte a point would be 10 MB.
    assert peak_bytes(lambda: method.planned_run(10**7, 4, [0])) < 5e6
    planned = method.planned_run(*X.shape, [0]).schedule
    charged = method.fit_batch(snap(X), [0]).ledger.charges
    assert [(charge.label, charge.round) for charge in planned] == [
        (charge.label, charge.round) for charge in charged
    ]
    for charge, other in zip(planned, charged, strict=True):
        np.testing.assert_allclose(
            (charge.mu, charge.epsilon, charge.delta),
            (other.mu, other.epsilon, other.delta),
            rtol=1e-9,
        )


@pytest.mark.parametrize(
    ("method", "error"),
    [
        (Lloyd(3), "claims no privacy"),
        (FastLloyd(0), "n_clusters=0"),
        (FastLloyd(3, epsilon=-1.0), "epsilon=-1.0"),
        (FastLloyd(3, epsilon=1e-17), "epsilon=1e-17"),
        (FastLloyd(3, epsilon=1e-9, bounds=(-9, 9)), "epsilon=1e-09 is too small: with an account"),
    ],
)
def test_a_fit_that_is_refused_charges_nothing(method, error):
    account = PrivacyAccountant(Budget(1.0, 1e-6))
    with pytest.raises(ValueError, match=error):
        method.fit(X, account=account)
    assert account.runs == ()


def test_a_crash_after_the_charge_leaves_it(path, monkeypatch):
    account = PrivacyAccountant(Budget(1.0, 1e-6), path)
    cluster = FastLloyd.cluster

    def crash(self, curator):
        if PrivacyAccountant.open(path).runs:
            raise KeyboardInterrupt
        return cluster(self, curator)

    monkeypatch.setattr(FastLloyd, "cluster", crash)
    with pytest.raises(KeyboardInterrupt):
        FastLloyd(3, epsilon=0.5, delta=1e-7, bounds=(-1, 1)).fit(X, account=account)
    assert PrivacyAccountant.open(path).spent() == 0.5


def test_a_schedule_that_follows_the_data_is_stopped():
    account = PrivacyAccountant(Budget(2.0, 1e-5))
    with pytest.raises(ScheduleError, match="must not depend on private data"):
        FollowsTheData(1, bounds=(-1, 1)).fit(np.ones((400, 2)), account=account)
    assert len(account.runs) == 1


def test_users_that_report_in_two_fits_pay_twice():
    account = PrivacyAccountant(Budget(3.0, 0.0, "local"))
    method = KaplanStemmerLocal(2, epsilon=1.5, bounds=(-1, 1))
    method.fit(X, account=account)
    method.fit(X, account=account)
    assert account.spent() == 3.0
    with pytest.raises(BudgetExceeded):
        method.fit(X, account=account)


def test_a_file_has_no_seed_of_the_noise(path):
    account = PrivacyAccountant(Budget(1.0, 1e-6), path)
    model = FastLloyd(3, epsilon=0.5, delta=1e-7, random_state=86420, secure=True, bounds=(-1, 1))
    model.fit(X, account=account)
    assert "86420" not in path.read_text()


def test_a_pure_account_takes_no_gaussian_run():
    account = PrivacyAccountant(Budget(10.0))
    with pytest.raises(BudgetExceeded):
        GLloyd(2, epsilon=1.0, secure=True).fit_batch(
            np.zeros((50, 2), np.int64), [0], account=account
        )


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_account_has_no_copies(tmp_path, make_copy):
    for path in (None, tmp_path / "account.json"):
        account = PrivacyAccountant(Budget(1.0), path)
        with pytest.raises(TypeError, match="cannot be copied or pickled: open its file"):
            make_copy(account)


def test_an_account_without_a_file_is_of_one_process(monkeypatch):
    account = PrivacyAccountant(Budget(1.0))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    run = AccountedRun(Budget(0.5), [Charge("q", 0, "laplace", epsilon=0.5)])
    with pytest.raises(AccountError, match="other processes do not see this account"):
        account.charge(run)
    assert account.spent() == 0
