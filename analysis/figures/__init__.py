"""Figures in the arrangement of their papers: one module per paper, each with a tuple `FIGURES`.

A module ``analysis/figures/<paper>.py`` (hyphens of the name as underscores) declares `FIGURES`, a
tuple of `FigureSpec`; nothing else lists it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pkm.analysis.figure import FigureResult, load
from pkm.analysis.tables import Study

__all__ = ["FigureResult", "FigureSpec", "figures_of"]


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


def figures_of(paper: str) -> tuple[Any, ...]:
    """Return the declared figures of a paper: those of its figures.yaml, then those of its module.

    Raises
    ------
    ValueError
        If it has neither.
    """
    specs = load(paper)
    module = paper.replace("-", "_")
    try:
        older = import_module(f"{__name__}.{module}").FIGURES
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{module}":
            raise
        older = ()
    declared = {spec.name for spec in specs}
    found = (*specs, *(spec for spec in older if spec.name not in declared))
    if not found:
        raise ValueError(f"no figures for paper={paper!r}: add conf/paper/{paper}/figures.yaml")
    return found
