"""Open or show an account: the cost of all runs on one data set, and their budget.

    pkm account FILE epsilon=4 delta=1e-6
    pkm account FILE
    pkm run account=FILE dataset=iris epsilon=0.5 seeds=1

The first line opens an account, the second one shows it. Other terms of a new one are
adjacency=, rho=, unit= (row or person), composition= (basic or gaussian) and
failure_delta=; see `pkm.privacy.PrivacyAccountant`. A run that would exceed the
account's budget is refused before anything is drawn.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.errors import ConfigurationError, require_choices
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import (
    make_console,
    make_main,
    require_one,
    show,
)

#: Terms of a new account: the key and the type of its value.
TERMS = {
    "epsilon": float,
    "delta": float,
    "adjacency": str,
    "rho": float,
    "unit": str,
    "composition": str,
    "failure_delta": float,
}
#: Prefix of a cell's key in the purpose of its charged run.
PURPOSE_PREFIX = "cell "


def charge_account(
    path: str,
    cells: Sequence[Cell],
    stored: Collection[str],
    data_dir: str | None,
) -> str:
    """Charge an account for all replicates of cells before they run: all, or none.

    A stored cell that was charged before is not charged again. One with secure noise is
    charged whenever it is run. A cell that was stored without the account is another
    one, so that it is run and charged.

    Parameters
    ----------
    path : str
        File of the account.
    cells : sequence of Cell
    stored : collection of str
        Keys of the cells that will not be run.
    data_dir : str or None
        Folder with the original data files.

    Returns
    -------
    str
        A line about what the account has spent.

    Raises
    ------
    ConfigurationError
        If the runs would exceed the budget, or a cell's method claims no privacy or
        has no schedule.
    AccountError
        If the account cannot be read or written, or has another adjacency, rho or unit.
    """
    from pkm.experiments.fit.inputs import build_method, prepare_cell_data
    from pkm.methods import PrivateKMeans
    from pkm.privacy import BudgetExceeded, PrivacyAccountant, Unit

    account = PrivacyAccountant.open(path)
    paid = {run.purpose for run in account.runs}
    runs = []
    for cell in cells:
        method = build_method(cell)
        holds = isinstance(method, PrivateKMeans) and method.claim.private
        rule = "one that claims privacy, with account=FILE"
        require(holds, "method", cell.method, rule)
        purpose = PURPOSE_PREFIX + cell.key
        if purpose in paid and (cell.key in stored or not method.secure):
            continue
        data = prepare_cell_data(cell, data_dir)
        # Null records count in n, which is public.
        shape = data.points.n_records, data.points.shape[1]
        try:
            unit = Unit.of(data.points.n_persons)
            planned = method.planned_run(*shape, cell.seeds, purpose=purpose, unit=unit)
        except NotImplementedError as error:
            raise ConfigurationError(f"account={path!r}: {error}") from error
        runs.append(replace(planned, flaws=[*planned.flaws, *data.flaws]))
    try:
        account.charge(*runs)
    except BudgetExceeded as error:
        raise ConfigurationError(f"account={path!r}: {error}") from error
    n_replicates = sum(run.n_replicates for run in runs)
    charged = f"{n_replicates} replicates of {len(runs)} cells were charged"
    return f"{charged}; {summarize(account)}"


def summarize(account) -> str:
    """Say in one line what an account has spent and on which terms."""
    budget = account.budget
    rho = "" if budget.rho is None else f", rho={budget.rho:g}"
    unit = "" if budget.unit == "row" else f", unit={budget.unit}"
    failure = (
        f", failure_delta={account.failure_delta:g}" if account.failure_delta else ""
    )
    name = "delta" if account.composition == "basic" else "failures"
    return (
        f"{account.path}: epsilon={account.spent():.6g} of {budget.epsilon:g} and "
        f"{name}={account.spent_delta():.3g} spent of "
        f"delta={budget.delta:g}{failure} under "
        f"{budget.adjacency}{rho}{unit}, {account.composition} composition"
    )


def run(names: Sequence[str], options: Mapping[str, str]) -> None:
    """Open an account on terms, or show one that there is.

    Raises
    ------
    ConfigurationError
        If the terms are not allowed.
    """
    from pkm.privacy import Budget, PrivacyAccountant

    path = require_one(names, "FILE", "one file of an account")
    terms = read_terms(options)
    if terms:
        of_account = {"composition", "failure_delta"} & terms.keys()
        options = {name: terms.pop(name) for name in of_account}
        account = PrivacyAccountant(Budget(**terms), path, **options)
    else:
        account = PrivacyAccountant.open(path)
    console = make_console()
    for charged in account.runs:
        flaws = f", flaws: {', '.join(charged.flaws)}" if charged.flaws else ""
        line = (
            f"{charged.date}  {charged.method}  {charged.n_replicates} replicates of "
            f"epsilon={charged.budget.epsilon:g} "
            f"delta={charged.budget.delta:.3g}{flaws}"
        )
        show(console, line)
    show(console, summarize(account))


def read_terms(options: Mapping[str, str]) -> dict:
    """Read the terms of a new account.

    Raises
    ------
    ConfigurationError
        If a key is unknown or a value is not of its kind.
    """
    terms = {}
    require_choices("key", options, list(TERMS))
    for key, value in options.items():
        try:
            terms[key] = TERMS[key](value)
        except ValueError as error:
            raise ConfigurationError(f"{key}={value!r} must be a number") from error
    if terms and "epsilon" not in terms:
        message = f"epsilon must be given to open an account, got {terms}"
        raise ConfigurationError(message)
    return terms


main = make_main("account", __doc__, "FILE", (), run)
