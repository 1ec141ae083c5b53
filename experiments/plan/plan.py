"""From a paper and a profile to a plan: cells to run, and what cannot be run here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd
from rich.console import Console

from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.console.console import show
from pkm.experiments.plan.sweep import Gap, Substitution, apply_profile, expand_sweep
from pkm.experiments.store.store import Store

#: Printed by a command that draws some noise from seeds.
SEEDED_NOISE_NOTICE = (
    "noise is repeatable (noise=seeded): whoever knows the seeds can take it off. "
    "Publish such centers of public data only"
)


@dataclass(frozen=True)
class Plan:
    """The cells of a paper by sweep, and what cannot be run here.

    Parameters
    ----------
    paper : str
        Name of the paper.
    sweep_cells : tuple of (str, Cell)
        Sweep and cell; a cell that several sweeps request appears once in each.
    gaps : tuple of Gap
        Cells that are left out, with the reasons.
    substitutions : tuple of Substitution
        Data sets that are replaced by substitutes; none of their cells is missing.
    """

    paper: str
    sweep_cells: tuple[tuple[str, Cell], ...]
    gaps: tuple[Gap, ...] = ()
    substitutions: tuple[Substitution, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """The distinct cells, in the order of the sweeps."""
        return list({cell.key: cell for _, cell in self.sweep_cells}.values())

    @property
    def sweeps(self) -> list[str]:
        """The sweeps that have cells or gaps, in their order."""
        sweeps = [sweep for sweep, _ in self.sweep_cells]
        return list(dict.fromkeys(sweeps + [gap.sweep for gap in self.gaps]))

    def read_rows(self, store: Store) -> pd.DataFrame:
        """Read the finished cells.

        Parameters
        ----------
        store : Store
            The store that has them.

        Returns
        -------
        DataFrame
            Rows of every finished cell, once per sweep that requests it, with the
            column ``sweep``. Data sets have the names of this plan: files of equal
            content share a cell, stored under the name of the first one run.
        """
        rows = store.read([cell.key for cell in self.cells])
        if rows.empty:
            return rows
        requested = pd.DataFrame(
            [(sweep, cell.key, cell.dataset_name) for sweep, cell in self.sweep_cells],
            columns=["sweep", "cell", "dataset"],
        )
        named = requested.drop_duplicates().merge(rows.drop(columns="dataset"))
        return named[["sweep", *rows.columns]]

    def list_missing(self, store: Store) -> pd.DataFrame:
        """List the missing cells: those that are planned and have no rows.

        Returns
        -------
        DataFrame
            Columns sweep, method, dataset, epsilon (NaN where there is none), reason:
            the plan's gaps, failed cells with their error, absent cells ("not run").
        """
        gaps = list(self.gaps)
        for sweep, cell in self.sweep_cells:
            status = store.status(cell.key)
            if status == "done":
                continue
            reason = "not run"
            if status == "failed":
                failure = store.read_failure(cell.key)
                reason = f"failed: {failure.get('error', 'unreadable failure record')}"
            gap = Gap(sweep, cell.method, cell.dataset_name, cell.epsilon, reason)
            gaps.append(gap)
        columns = ["sweep", "method", "dataset", "epsilon", "reason"]
        return pd.DataFrame(gaps, columns=columns).astype({"epsilon": float})


def warn_seeded_noise(
    cells: Iterable[Cell],
    console: Console,
) -> None:
    """Print a warning if a cell of a private method has seeded noise."""
    if any(cell.noise == "seeded" and cell.epsilon is not None for cell in cells):
        show(console, SEEDED_NOISE_NOTICE, "yellow")


def make_plan(
    paper: Mapping,
    profile: Mapping,
    *,
    data_dir: str | None = None,
) -> Plan:
    """Expand the sweeps of a paper, at the size of a profile, to cells.

    Parameters
    ----------
    paper : mapping
        As in ``conf/paper``: name, sweeps, defaults for the sweeps, and changes by
        profile.
    profile : mapping
        As in ``conf/profile``: name and seeds.
    data_dir : str, optional
        Folder with the original data files.

    Returns
    -------
    Plan
        Data sets and methods that are not available become gaps; the rest goes on.

    Raises
    ------
    ConfigurationError
        If the configuration itself is wrong: an unknown name, a parameter the method
        does not have, a value that breaks its rule. Also if an available data file is
        damaged.
    """
    sweep_cells: list[tuple[str, Cell]] = []
    gaps: list[Gap] = []
    substitutions: list[Substitution] = []
    for sweep, spec in apply_profile(paper, profile).items():
        try:
            cells, sweep_gaps, replaced = expand_sweep(sweep, spec, data_dir)
        except (ValueError, TypeError) as error:
            raise ConfigurationError(
                f"{paper['name']}, sweep {sweep}: {error}"
            ) from error
        sweep_cells += [(sweep, cell) for cell in cells]
        gaps += sweep_gaps
        substitutions += replaced
    return Plan(paper["name"], tuple(sweep_cells), tuple(gaps), tuple(substitutions))
