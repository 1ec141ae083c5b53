"""Figures in the arrangement of their papers: one module per paper, each with a tuple `FIGURES`.

A module ``analysis/figures/<paper>.py`` (hyphens of the name as underscores) declares `FIGURES`, a
tuple of `FigureSpec`; nothing else lists it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

import pandas as pd
from matplotlib.figure import Figure

from pkm.analysis.tables import Study


@dataclass(frozen=True)
class FigureResult:
    """One figure (or a table alone) with its numbers.

    Attributes
    ----------
    figure : matplotlib.figure.Figure or None
        None for a table of the paper.
    table : DataFrame
        The numbers of the figure, full precision, one observation per line.
    formatted : DataFrame
        The same, formatted for the report.
    caption : str
        What is shown, over which data, and how limits and bands were chosen.
    gaps : tuple of str
        What the paper's figure has and this one lacks, in words.
    substitutes : str
        Which generated data sets replace files that were not available, in words; empty if none do.
    """

    figure: Figure | None
    table: pd.DataFrame
    formatted: pd.DataFrame
    caption: str
    gaps: tuple[str, ...] = field(default=())
    substitutes: str = ""


@dataclass(frozen=True)
class FigureSpec:
    """A declared figure.

    Name for files, title, whether the paper has it, and the function that draws it.

    Attributes
    ----------
    name : str
        File name without ending.
    title : str
        Heading in the report.
    in_paper : bool
        False for the figures that this bench adds.
    draw : callable
        ``draw(study) -> FigureResult``.
    """

    name: str
    title: str
    in_paper: bool
    draw: Callable[[Study], FigureResult]


def figures_of(paper: str) -> tuple[FigureSpec, ...]:
    """Return the declared figures of a paper.

    Raises
    ------
    ValueError
        If there is no module of that name.
    """
    module = paper.replace("-", "_")
    try:
        return import_module(f"{__name__}.{module}").FIGURES
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{module}":
            raise
        raise ValueError(
            f"no figures for paper={paper!r}: add analysis/figures/{module}.py with FIGURES"
        ) from None
