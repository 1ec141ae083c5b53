"""Open or show an account: what all runs on one data set cost together, and their budget.

    pkm account FILE epsilon=4 delta=1e-6
    pkm account FILE
    pkm run account=FILE method=fastlloyd dataset=iris epsilon=0.5 seeds=1

The first line opens an account, the second one shows it. Other terms of a new one are
adjacency=, rho=, composition= (basic or gaussian) and failure_delta=; see
`pkm.privacy.Account`. A run that would exceed the account's budget is refused before
anything is drawn.
"""

import sys
from collections.abc import Collection, Sequence

from pkm.experiments.cell.cell import Cell, require
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.console.console import consoles, exit_code, parser_of

#: What an account is opened with: the key, and how its value is read.
TERMS = {
    "epsilon": float,
    "delta": float,
    "adjacency": str,
    "rho": float,
    "composition": str,
    "failure_delta": float,
}
#: Before the key of a cell, in the purpose of the run that was charged for it.
PURPOSE = "cell "


def charge(
    path: str, cells: Sequence[Cell], stored: Collection[str], mirror: str | None
) -> str:
    """Charge an account for all replicates of some cells, before any of them runs: all, or none.

    A cell that the account has paid for is not charged again: with the same seeds its
    releases are the same. One with ``secure=true`` is, whenever it is run. A cell that
    was stored without the account is charged, because its releases are used now.

    Parameters
    ----------
    path : str
        File of the account.
    cells : sequence of Cell
    stored : collection of str
        Keys of the cells that will not be run.
    mirror : str or None
        Folder with the original data files.

    Returns
    -------
    str
        A line about what the account has spent.

    Raises
    ------
    ConfigurationError
        If the runs would exceed the budget, or a cell's method claims no privacy.
    AccountError
        If the account cannot be read or written, or has another adjacency or rho.
    """
    from pkm.experiments.fit.inputs import build, prepare
    from pkm.methods import PrivateKMeans
    from pkm.privacy import Account, BudgetExceeded

    account = Account.open(path)
    paid = {run.purpose for run in account.runs}
    runs = []
    for cell in cells:
        method = build(cell)
        require(
            isinstance(method, PrivateKMeans) and method.claim.private,
            "method",
            cell.method,
            "one that claims privacy, with account=FILE",
        )
        purpose = PURPOSE + cell.key
        if purpose in paid and (cell.key in stored or not method.secure):
            continue
        prepared = prepare(cell, mirror)
        run = method.planned_run(*prepared.points.shape, cell.seeds, purpose=purpose)
        runs.append(run)
    try:
        account.charge(*runs)
    except BudgetExceeded as error:
        raise ConfigurationError(f"account={path!r}: {error}") from error
    n_replicates = sum(run.n_replicates for run in runs)
    return f"{n_replicates} replicates of {len(runs)} cells were charged; {summary(account)}"


def summary(account) -> str:
    """Say in one line what an account has spent and on which terms."""
    budget = account.budget
    rho = "" if budget.rho is None else f", rho={budget.rho:g}"
    failure = (
        f", failure_delta={account.failure_delta:g}" if account.failure_delta else ""
    )
    name = "delta" if account.composition == "basic" else "failures"
    return (
        f"{account.path}: epsilon={account.spent():.6g} of {budget.epsilon:g} and "
        f"{name}={account.spent_delta():.3g} spent of delta={budget.delta:g}{failure} under "
        f"{budget.adjacency}{rho}, {account.composition} composition"
    )


def terms_of(words: Sequence[str]) -> dict:
    """Read the terms of a new account from ``key=value``.

    Raises
    ------
    ConfigurationError
        If a key is unknown or a value is not of its kind.
    """
    terms = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in TERMS:
            known = ", ".join(TERMS)
            raise ConfigurationError(
                f"{word!r} is unknown. Known, as key=value: {known}"
            )
        try:
            terms[key] = TERMS[key](value)
        except ValueError as error:
            raise ConfigurationError(f"{key}={value!r} must be a number") from error
    if terms and "epsilon" not in terms:
        raise ConfigurationError(
            f"epsilon must be given to open an account, got {terms}"
        )
    return terms


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        Exit code: 0, or 2 if the request was refused.
    """
    parser = parser_of("account", __doc__)
    parser.add_argument("path", metavar="FILE")
    parser.add_argument("terms", nargs="*", metavar="key=value", help=", ".join(TERMS))
    arguments = parser.parse_args(argv)
    return exit_code(lambda: show(arguments.path, arguments.terms))


def show(path: str, words: Sequence[str]) -> None:
    """Open an account on terms, or show one that there is.

    Raises
    ------
    ConfigurationError
        If the terms are not allowed.
    """
    from pkm.privacy import Account, Budget

    console, _ = consoles()
    terms = terms_of(words)
    if terms:
        of_budget = {"epsilon", "delta", "adjacency", "rho"} & terms.keys()
        budget = Budget(**{name: terms.pop(name) for name in of_budget})
        account = Account(budget, path, **terms)
    else:
        account = Account.open(path)
    for run in account.runs:
        flaws = f", flaws: {', '.join(run.flaws)}" if run.flaws else ""
        line = (
            f"{run.date}  {run.method}  {run.n_replicates} replicates of "
            f"epsilon={run.budget.epsilon:g} delta={run.budget.delta:.3g}{flaws}"
        )
        console.print(line, markup=False, highlight=False)
    console.print(summary(account), markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
