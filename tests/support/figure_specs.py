"""Figures that tests specify, drawn from fabricated rows."""

from fabricated.studies import study_of

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.figure_data import make_figure_data
from pkm.analysis.paper_files import parse_entry
from pkm.analysis.render.draw import render
from pkm.analysis.tables.study import Study


def spec_of(**keys):
    """Specification of a figure of NICV over epsilon, with changes."""
    entry = {"paper": "fastlloyd", "name": "a", "title": "A", "sweep": "real"} | keys
    return parse_entry(FigureSpec, entry, "a")


def drawn(spec, rows=None):
    """Result of a specification on fabricated rows."""
    study = study_of("fastlloyd") if rows is None else Study(rows)
    return render(make_figure_data(study, spec), spec)
